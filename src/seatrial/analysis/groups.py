"""Groups of cases that behave alike, by how they communicate.

The repeats of a case are alike by themselves and would be a group of their own: a case counts once,
with the medians of its runs. The features are those of Tessera, table 4: the rate (volume over the
time in MPI, MB/s), the volume (MB of all ranks) and the number of MPI calls (of all ranks; the
paper's "frequency", which it does not define). They are z-scores before k-means
(``scipy.cluster.vq``) with a fixed seed and 100 restarts. The paper names no algorithm for the
number of groups: here the mean silhouette (Rousseeuw 1987) decides among 2 to 6.

k-means divides any cloud, and the silhouette of the two halves of a long or skewed one is high.
Groups are reported only if each has three cases, and if the gap between any two is more than three
times the widest gap within one of them (the longest edge of its minimum spanning tree). One cloud
has such groups in less than 5 % of trials, be it normal, lognormal, uniform on a line or of heavy
tails (``ci/bench/conclusions.py``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

import numpy as np
from numpy.typing import NDArray

from seatrial.analysis.conclusion import Inputs, Measured, Missing, inputs_of
from seatrial.benchmarks import mpi_time
from seatrial.results.record import Case

Array = NDArray[np.float64]
Row = tuple[float, float, float]  # in the order of FEATURES

FEATURES = ("rate_MB_s", "volume_MB", "calls")
MOST_GROUPS = 6
RESTARTS = 100
CASES_OF_GROUP = 3  # least number
GAP = 3.0  # between groups, over the widest gap within one
#: a lower mean silhouette is a weak structure, which may be chance, or none (Kaufman and Rousseeuw,
#: Finding Groups in Data (1990), table 4 of chapter 2)
WEAK = 0.5
_SEED = 4


@dataclass(frozen=True)
class Group:
    """``centre``: feature -> mean. ``members``: name -> number of its cases. ``rows``: the features
    of each case, in the order of ``FEATURES``, beside its name."""

    centre: Mapping[str, float]
    members: Mapping[str, int]
    rows: Sequence[tuple[str, Row]] = ()

    @property
    def cases(self) -> int:
        return sum(self.members.values())


@dataclass(frozen=True)
class Groups:
    """The groups, the largest first. ``silhouette``: -1 to 1, how far apart they are.

    ``constant``: features that were dropped because all cases have the same. ``excluded``: names of
    runs without time in MPI.
    """

    groups: Sequence[Group]
    silhouette: float
    constant: Sequence[str]
    excluded: Sequence[str]
    inputs: Inputs


def grouped(measured: Iterable[Measured]) -> tuple[Groups | None, list[Missing]]:
    """The groups of the runs that have the facts of the library ``mpi_time``."""
    runs, excluded = [], []
    by_case: dict[tuple[Case, str], list[Row]] = defaultdict(list)
    for sample in measured:
        fact, case = mpi_time.measured(sample.run.facts), sample.run.case
        if fact is None:
            continue
        if not fact.mpi_s:
            excluded.append(_name(case))
            continue
        volume = fact.bytes / 1e6
        runs.append(sample)
        row = (volume / fact.mpi_s, volume, float(fact.calls))
        by_case[case, sample.run.hardware].append(row)
    if not runs:
        return None, []
    names = [_name(case) for case, _ in by_case]
    rows = [
        (median(a), median(b), median(c))
        for a, b, c in (zip(*r, strict=True) for r in by_case.values())
    ]
    try:
        return groups(names, rows, excluded, inputs_of(runs, len(runs))), []
    except ValueError as error:
        takes = "runs of more kernels, numbers of nodes or profiles (mpi_time of npb, hpl and hpcc)"
        return None, [Missing("groups", f"{len(rows)} cases", str(error), takes)]


def _name(case: Case) -> str:
    return f"{case.check} {case.variant}, {case.route}, {case.profile}, {case.nodes} nodes"


def groups(
    names: Sequence[str],
    rows: Sequence[Row],
    excluded: Sequence[str] = (),
    inputs: Inputs | None = None,
) -> Groups:
    """The groups of cases with the features ``rows``, in the order of ``FEATURES``.

    Raises ValueError if there are too few cases, they are all alike, or no groups are apart.
    """
    values = np.array(rows, dtype=float)
    count = len(values)
    if count < 2 * CASES_OF_GROUP:
        raise ValueError(f"{count} cases are too few, {2 * CASES_OF_GROUP} are needed")
    spread = values.std(axis=0)
    # rounding is no difference
    varies = spread > 1e-9 * np.abs(values).max(axis=0)
    if not varies.any():
        raise ValueError("all cases communicate alike")
    scores = (values[:, varies] - values[:, varies].mean(axis=0)) / spread[varies]
    most = min(MOST_GROUPS, count // CASES_OF_GROUP, len(np.unique(scores, axis=0)))
    labels, score = max(
        ((made, silhouette(scores, made)) for made in _candidates(scores, most)),
        key=lambda pair: pair[1],
    )
    if score < WEAK:
        raise ValueError(f"no groups are apart: the best mean silhouette is {score:.2f}")
    if (smallest := min(Counter(labels.tolist()).values())) < CASES_OF_GROUP:
        raise ValueError(f"no groups are apart: one would have {smallest} of the cases")
    if not _apart(scores, labels):
        raise ValueError("no groups are apart: the gaps within them are as wide as between them")
    made = []
    for label in dict.fromkeys(labels.tolist()):  # in the order of the cases
        in_group = labels == label
        centre = dict(zip(FEATURES, map(float, values[in_group].mean(axis=0)), strict=True))
        of_group = [row for row, is_own in zip(zip(names, rows, strict=True), in_group, strict=True)
                    if is_own]  # fmt: skip
        members = Counter(name for name, _ in of_group)
        made.append(Group(centre, dict(members), of_group))
    made.sort(key=lambda group: -group.cases)
    constant = [name for name, vary in zip(FEATURES, varies, strict=True) if not vary]
    listed = list(dict.fromkeys(excluded))
    return Groups(made, score, constant, listed, inputs or Inputs((), (), count))


def _candidates(scores: Array, most: int) -> list[NDArray[np.int64]]:
    """For each number of groups the labels with the least sum of squares of all restarts."""
    from scipy.cluster.vq import ClusterError, kmeans2  # takes long to import

    generator = np.random.default_rng(_SEED)
    made = []
    for k in range(2, most + 1):
        best: tuple[float, NDArray[np.int64]] | None = None
        for _ in range(RESTARTS):
            try:
                centres, labels = kmeans2(scores, k, minit="++", missing="raise", rng=generator)
            except ClusterError:  # a group without a case
                continue
            squares = float(np.sum((scores - centres[labels]) ** 2))
            if best is None or squares < best[0] - 1e-12:
                best = squares, labels
        if best is not None:
            made.append(best[1])
    if not made:
        raise ValueError("the cases do not part into groups")
    return made


def _apart(scores: Array, labels: NDArray[np.int64]) -> bool:
    """Whether the gap between any two groups is wide, over the widest gap within one of both."""
    from scipy.cluster.hierarchy import linkage  # takes long to import
    from scipy.spatial.distance import cdist

    parts = [scores[labels == label] for label in np.unique(labels)]
    within = [float(linkage(part, "single")[-1, 2]) for part in parts]  # a minimum spanning tree's
    return all(
        float(cdist(a, b).min()) > GAP * max(x, y)
        for (a, x), (b, y) in combinations(zip(parts, within, strict=True), 2)
    )


def silhouette(scores: Array, labels: NDArray[np.int64]) -> float:
    """The mean over all cases of (b - a) / max(a, b).

    a: mean distance to the other cases of its group; b: to those of the nearest other group. Of the
    only case of a group it is 0.
    """
    distances = np.sqrt(np.sum((scores[:, None, :] - scores[None, :, :]) ** 2, axis=2))
    kinds = np.unique(labels)
    widths = []
    for i, label in enumerate(labels):
        members = labels == label
        if members.sum() == 1:
            widths.append(0.0)
            continue
        a = distances[i, members].sum() / (members.sum() - 1)
        b = min(distances[i, labels == other].mean() for other in kinds if other != label)
        widths.append(float((b - a) / max(a, b)) if max(a, b) > 0 else 0.0)
    return float(np.mean(widths))
