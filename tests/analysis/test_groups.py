"""Groups of runs: the published ones, what is refused, and what is left out."""

from __future__ import annotations

import numpy as np
import pytest

from analysis_maker import app, mpi_fact
from seatrial.analysis.conclusion import Measured
from seatrial.analysis.groups import FEATURES, grouped, groups

#: Tessera, table 4: runs, then rate, volume and frequency of the centre
PUBLISHED = (
    (51, (1.00, 35.55, 2310.75)),
    (39, (2.78, 298.32, 50486.8)),
    (3, (52.12, 87.63, 1823.0)),
)
NAMES = ("CG EP FT IS and most MG", "BT LU", "MG on Myrinet with 32 64 128 processes")


def around(scatter, seed):
    generator = np.random.default_rng(seed)
    rows, names = [], []
    for (count, centre), name in zip(PUBLISHED, NAMES, strict=True):
        rows += [tuple(centre * np.exp(generator.normal(0, scatter, 3))) for _ in range(count)]
        names += [name] * count
    order = generator.permutation(len(rows))
    return [names[i] for i in order], [rows[i] for i in order]


@pytest.mark.parametrize("seed", range(3))
def test_the_published_centres_are_the_groups_of_runs_around_them(seed):
    made = groups(*around(0.08, seed))
    assert [(g.cases, list(g.members)) for g in made.groups] == [
        (count, [name]) for (count, _), name in zip(PUBLISHED, NAMES, strict=True)
    ]
    for group, (_, centre) in zip(made.groups, PUBLISHED, strict=True):
        for name, value in zip(FEATURES, centre, strict=True):
            assert group.centre[name] == pytest.approx(value, rel=0.2)
    assert made.silhouette > 0.6
    assert groups(*around(0.08, seed)) == made  # a fixed seed


def test_what_is_refused():
    with pytest.raises(ValueError, match="5 cases are too few, 6 are needed"):
        groups(["x"] * 5, [(1.0, 2.0, 3.0)] * 5)
    with pytest.raises(ValueError, match="all cases communicate alike"):
        groups(["x"] * 9, [(1.0, 2.0, 3.0)] * 9)


CLOUDS = {
    "normal": lambda r, n: r.normal(10, 1, (n, 3)),
    "lognormal": lambda r, n: np.exp(r.normal(0, 1, (n, 3))),
    "long": lambda r, n: 10 + r.normal(0, 1, (n, 1)) + r.normal(0, 0.2, (n, 3)),
    "long, skewed": lambda r, n: np.exp(r.normal(0, 1, (n, 1)) + r.normal(0, 0.2, (n, 3))),
    "heavy tails": lambda r, n: 30 + r.standard_t(3, (n, 1)) + r.normal(0, 0.2, (n, 3)),
}


@pytest.mark.parametrize("cases", [6, 12])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_cases_of_one_cloud_are_no_groups(cloud, cases, monkeypatch):
    monkeypatch.setattr("seatrial.analysis.groups.RESTARTS", 5)  # for speed
    said, trials = 0, 30
    for seed in range(trials):
        rows = CLOUDS[cloud](np.random.default_rng(seed), cases)
        try:
            groups(["x"] * cases, [tuple(map(float, row)) for row in rows])
            said += 1
        except ValueError as error:
            assert "no groups are apart" in str(error)  # noqa: PT017
    assert said <= 0.05 * trials + 3 * (0.05 * 0.95 * trials) ** 0.5


def test_a_constant_feature_is_dropped():
    rows = [(1.0 + i % 2 + 0.01 * i, 5.0, 10.0 * (i % 2) + i * 0.01) for i in range(12)]
    made = groups([f"run {i % 2}" for i in range(12)], rows)
    assert made.constant == ["volume_MB"]
    assert [list(g.members) for g in made.groups] in (
        [["run 0"], ["run 1"]],
        [["run 1"], ["run 0"]],
    )


def test_a_case_counts_once_and_runs_without_time_in_mpi_are_listed():
    def run(i, mpi_s):
        one = app("npb", f"k{i % 8}.S", "default", 1.0, i)
        one.facts["mpi"] = {
            **mpi_fact(mpi_s / 2), "bytes": 1000 * (1 + 99 * (i % 2)) + i, "calls": 10 * (1 + i % 2)
        }  # fmt: skip
        return Measured("t1", one)

    none, missing = grouped([Measured("t1", app("npb", "is.S", "default", 1.0))])
    assert none is None
    assert missing == []
    made, missing = grouped([*(run(i, 0.1) for i in range(16)), run(17, 0.0)])
    assert missing == []
    assert made.excluded == ["npb k1.S, openmpi-tcp, default, 2 nodes"]
    assert sorted(g.cases for g in made.groups) == [4, 4]
    none, [lost] = grouped([run(i, 0.1) for i in range(3)])
    assert none is None
    assert "3 cases are too few" in lost.reason
