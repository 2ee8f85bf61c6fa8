"""``seatrial baseline``: writes requirements of basis *baseline* from repeated trials.

The reference is the median of the samples of all trials. The bound lies on the bad side only, so
that an improvement does not fail a machine. Contracts are never changed, shadowed or duplicated.
``seatrial.results.requirements_text`` edits the file.

A new entry can be looser than the one that it displaces, which is the older baseline or a relative
requirement. Noisy trials make it so. The summary names each of these with both bounds.

The width of a bound is the largest of
- ``sigmas`` robust standard deviations. The default of 3.5 is the limit of B. Iglewicz and
  D. Hoaglin, How to Detect and Handle Outliers (ASQC 1993), beyond which a robust z-score
  marks an outlier;
- ``floor``, a fraction of the reference. The default of 0.05 is a choice: repeats within a few
  hours do not show the effect of reboots and temperature;
- the width with which each of the given trials passes (``statistics.decide``): a baseline must
  not reject its own trials. If this decides, the summary names the trial, which may be an outlier.

The summary names each bound that is farther from its reference than ``WIDE``, and than the bound of
the same form that it displaces: such a bound finds no small change.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import Literal

from seatrial.base import yamlfile
from seatrial.base.errors import InputError, Problem
from seatrial.base.files import write_whole
from seatrial.base.lock import locked
from seatrial.base.say import say_nothing
from seatrial.results import manifest, statistics
from seatrial.results.figures import Figure, collect
from seatrial.results.folder import Results
from seatrial.results.judge import judge
from seatrial.results.record import Case, Judgement
from seatrial.results.requirements import (
    WIDEST,
    Accepted,
    Document,
    MetricRequirements,
    Threshold,
    build,
)
from seatrial.results.requirements_text import edit, with_accepted
from seatrial.results.wording import distinct, number, plural

SIGMAS = 3.5
FLOOR = 0.05
WIDE = 0.2  # a choice: the noise of the figures then hides a change of a fifth
MINIMUM = 3
SAME = 1e-9  # two bounds that differ by a smaller fraction are the same
ANY = "?*"
NAMED_CASES = 3  # that a line of the summary names
COUNTED = 10  # more looser entries than this are counted at the end of the summary
_NEW_FILE = "schema: 1\n\nrequirements:\n"


@dataclass(frozen=True)
class Change:
    """The action on one figure, for the summary of the command."""

    case: Case
    metric: str
    location: str | None
    action: Literal["added", "replaced", "skipped"]
    message: str
    looser: str = ""  # than the entry in force until now: its bound and the new one
    wide: str = ""  # the distance of its bound from the reference, if the bound finds little

    @property
    def name(self) -> str:
        location = f" at {self.location}" if self.location else ""
        return f"{self.case.id}: {self.metric}{location}"

    def __str__(self) -> str:
        return f"{self.action} {self.name}: {self.message}"


@dataclass(frozen=True)
class Baseline:
    """The new text of a requirements file, not yet written."""

    path: Path
    text: str
    changes: list[Change]
    before: str | None  # the text it was made from; None if there was no file

    @property
    def written(self) -> list[Change]:
        """The changes that add or replace an entry."""
        return [change for change in self.changes if change.action != "skipped"]

    def summary(self) -> list[str]:
        """A line for each new entry, one for all figures that were skipped for one reason, one for
        each entry that is looser than the one that it displaces, and one for each wide bound."""
        lines = [str(change) for change in self.written]
        reasons: dict[str, list[Change]] = {}
        for change in self.changes:
            if change.action == "skipped":
                reasons.setdefault(change.message, []).append(change)
        for reason, skipped in reasons.items():
            cases = list(dict.fromkeys(change.case.id for change in skipped))
            names = ", ".join(cases[:NAMED_CASES])
            if len(cases) > NAMED_CASES:
                names += f" and {len(cases) - NAMED_CASES} more"
            count, of = plural(len(skipped), "figure"), plural(len(cases), "case")
            lines.append(f"skipped {count} of {of}: {reason} ({names})")
        looser = [change for change in self.written if change.looser]
        lines += [f"looser {change.name}: {change.looser}" for change in looser]
        lines += [f"wide {change.name}: {change.wide}" for change in self.written if change.wide]
        if len(looser) > COUNTED:
            lines.append(f"{len(looser)} new entries are looser than those that they displace")
        return lines

    def write(self, to: Path | None = None) -> Path:
        """Write the file atomically, to ``to`` or else ``path``. Returns the file written.

        Of several commands one writes at a time, with a lock beside the file.

        Raises InputError if ``path`` is to be written and has changed since it was read, if ``to``
        is not empty and not a requirements file, or if the file is a link or could be exchanged by
        another user. Raises OSError.
        """
        path = to or self.path
        _check_place(path)
        path.parent.stat()  # a folder that is missing is an error: the lock would make it
        lock = path.with_name(f".{path.name}.lock")
        with locked(lock, say_nothing):  # who waits for it waits for one file to be written
            try:
                return self._written(path)
            finally:
                lock.unlink()

    def _written(self, path: Path) -> Path:
        now = _read(path) if path.exists() else None
        if now and path.resolve() != self.path.resolve():
            yamlfile.loads(now, Document, path)
        if path.resolve() == self.path.resolve() and now != self.before:
            text = "the file was changed while the baseline was made"
            raise InputError([Problem(self.path, None, "", text, "run the command again")])
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
        write_whole(path, self.text, mode)
        return path


def _check_place(path: Path) -> None:
    """Refuse a link, and for root a folder that another user can exchange. Raises InputError."""
    if path.is_symlink():
        text = f"it is a symbolic link to {path.readlink()}, which is not followed"
        raise InputError([Problem(path, None, "--write", text, "name the file itself")])
    if os.geteuid() == 0 and (exposed := manifest.exposed_to_others(path.parent)):
        text = f"{exposed.who}, and could lead what root writes to another file"
        raise InputError(
            [Problem(exposed.path, None, "--write", text, "name a file in a folder of root")]
        )


@dataclass
class _Group:
    """The figures of one metric over the trials."""

    case: Case
    metric: str
    location: str | None
    figures: list[tuple[str, Figure]] = field(default_factory=list)  # trial's name, figure

    @property
    def samples(self) -> list[float]:
        return [value for _, figure in self.figures for value in figure.values]

    @property
    def keys(self) -> Iterable[_Key]:
        """The judged figures that an entry is of: one, or those of all locations."""
        locations = dict.fromkeys(figure.location for _, figure in self.figures)
        return [(self.case, self.metric, location) for location in locations]


_Key = tuple[Case, str, str | None]  # case, metric, location
#: the judgements by the entries that are no contracts, over the trials
_InForce = dict[_Key, list[Judgement]]


def make_baseline(
    results: Sequence[Results],
    path: Path | str,
    *,
    sigmas: float = SIGMAS,
    floor: float = FLOOR,
    allow_few: bool = False,
    locations: Literal["each", "pooled"] = "each",
    only: Mapping[_Key, Collection[Path]] | None = None,
    courses: Mapping[_Key, str] | None = None,
    accepted: Accepted | None = None,
    again: bool = False,
) -> Baseline:
    """New text for the requirements file at ``path`` (which need not exist yet).

    ``allow_few`` accepts fewer than three samples. ``locations="pooled"`` makes one entry for all
    locations of a metric instead of one for each. ``only``: the figures to make entries of, each
    with the folders of its trials. ``courses``: what these did, for the summary. ``accepted``: the
    change that these figures are the level of; it is named in each entry, and kept in the file.
    ``again``: it may have been accepted before. Call ``write()`` of the result to write it. Raises
    InputError if there are no results, if they are of different sites, if baselines do not apply to
    one of them (``no_baselines``), or if the file is invalid or cannot be edited.
    """
    file = Path(path)
    check_origin(results)
    for trial in (result.trial for result in results):
        if trial.no_baselines:
            raise InputError(f"{trial.trial} is not of the lab of its site: {trial.no_baselines}")
    before = _read(file) if file.exists() else None
    text = _NEW_FILE if before is None else before
    document, lines = yamlfile.loads(text, Document, file)
    requirements = build(document, lines, file)
    in_force: _InForce = {}
    for result in results:
        for j in judge(result.trial, result.runs, requirements):
            if j.requirement and j.requirement.basis != "contract":
                in_force.setdefault((j.case, j.metric, j.location), []).append(j)
    rules_of: dict[tuple[Case, str], MetricRequirements] = {}
    if (
        accepted
        and not again
        and (one := next((a for a in document.accepted if a.change == accepted.change), None))
    ):
        text = f"{one.change} was accepted on {one.when} by {one.by}: {one.reason}"
        raise InputError([Problem(file, None, "accepted", text, "nothing is left to do")])
    older_of = _Older(document, alone=only is not None)
    entries: list[tuple[list[int], Threshold]] = []
    changes: list[Change] = []
    for group in _groups(results, locations, only):
        kind = group.case, group.metric
        if kind not in rules_of:
            rules_of[kind] = requirements.of(*kind)
        why = _excluded(group, rules_of[kind], in_force, 1 if allow_few else MINIMUM)
        threshold, note = (None, why) if why else _threshold(group, sigmas, floor)
        if threshold is None:
            changes.append(Change(group.case, group.metric, group.location, "skipped", note))
            continue
        if accepted:
            by = f"accepted {accepted.when} by {accepted.by}: {accepted.reason} ({accepted.change})"
            threshold = threshold.model_copy(update={"source": f"{threshold.source}; {by}"})
        if document.defaults.statistic != "median":
            threshold = threshold.model_copy(update={"statistic": "median"})
        older = older_of(group)
        if course := (courses or {}).get((group.case, group.metric, group.location)):
            note += f"; {course}"
        note += _displaced(group, rules_of[kind])
        action: Literal["added", "replaced"] = "replaced" if older else "added"
        judged = [j for key in group.keys for j in in_force.get(key, ())]
        looser, wide = _looser(threshold, judged), _wide(threshold, judged)
        changes.append(Change(group.case, group.metric, group.location, action, note, looser, wide))
        entries.append((older, threshold))
    text = edit(text, document, lines, entries)
    if accepted and entries:
        text = with_accepted(text, accepted, file)
    return Baseline(file, text, changes, before)


def check_origin(results: Sequence[Results]) -> None:
    """Refuse trials of different sites, or one that is named twice. Raises InputError."""
    sites = sorted({result.trial.site for result in results})
    if not results:
        raise InputError("it needs the results of at least one trial")
    if len(sites) > 1:
        raise InputError(f"the trials are of different sites: {', '.join(sites)}")
    names = [(result.trial.trial, result.trial.started) for result in results]
    twice = sorted({name for name, started in names if names.count((name, started)) > 1})
    if twice:
        raise InputError(f"its samples would count twice: {', '.join(twice)} is named twice")


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError([Problem(file, None, "", f"cannot be read: {error}")]) from None


def _groups(
    results: Sequence[Results], locations: str, only: Mapping[_Key, Collection[Path]] | None
) -> list[_Group]:
    groups: dict[tuple[Case, str, str | None], _Group] = {}
    for result in results:
        planned = [run for run in result.runs if not result.trial.is_rerun(run)]
        for case, by_metric in collect(result.trial, planned).items():
            for figure in (figure for alike in by_metric.values() for figure in alike.values()):
                metric, location = figure.metric, figure.location
                if only is not None and result.folder not in only.get((case, metric, location), ()):
                    continue
                where = ANY if location and locations == "pooled" else location
                group = groups.setdefault((case, metric, where), _Group(case, metric, where))
                group.figures.append((result.trial.trial, figure))
    return list(groups.values())


def _excluded(
    group: _Group,
    requirements: MetricRequirements,
    in_force: _InForce,
    minimum: int,
) -> str:
    """Why a group gets no baseline, or ""."""
    figures = [figure for _, figure in group.figures]
    for figure in figures:
        rules = requirements.matching(figure.location)
        for rule in rules:
            if rule.threshold.basis == "contract":
                return f"the contract at {rule.id} applies and stays as it is"
        for j in in_force.get((group.case, group.metric, figure.location), ()):
            if j.verdict == "fail" and j.requirement and j.requirement.basis == "relative":
                at = j.requirement.id
                return f"it fails the relative requirement at {at}, which a baseline would hide"
        if requirements.is_informative(figure.location) and not rules:
            return "informative: it is not judged"
        if figure.fault or figure.doubt:
            return figure.fault or figure.doubt
    if len({(figure.unit, figure.better) for figure in figures}) > 1:
        return "its unit or its better direction differs between the trials"
    if len(group.samples) < minimum:
        has, lacks = len(group.samples), minimum - len(group.samples)
        more = f"{lacks} more {'is' if lacks == 1 else 'are'} needed; name further trials"
        return f"{has} sample{'' if has == 1 else 's'}, {more}"
    return ""


def _threshold(group: _Group, sigmas: float, floor: float) -> tuple[Threshold | None, str]:
    """The entry for a group, or None, and a sentence about it."""
    samples, first = group.samples, group.figures[0][1]
    if not (first.unit and group.metric):
        return None, "it has no unit or no name"
    reference = float(f"{statistics.median(samples):.6g}")
    if reference < 0:
        return None, "its median is below zero, where fractions have no meaning"
    sigma = statistics.spread(samples) or 0.0
    width, widened = sigmas * sigma, ""
    sign = 1 if first.better == "lower" else -1
    for name, figure in group.figures:
        own = statistics.spread(figure.values) or 0.0
        beyond = sign * (figure.median - reference)
        need = max(own, beyond + statistics.median_error(own, len(figure.values)))
        if need > max(width, floor * reference):
            width, widened = need, f"; widened for {name}, whose median is {number(figure.median)}"
    if reference == 0:
        # Up to six digits, rounded outward.
        bound = float(f"{width * 1.00001:.6g}")
    elif (bound := max(floor, math.ceil(width / reference * 1e4) / 1e4)) > WIDEST:
        return None, (
            f"too noisy: the bound would lie {bound:.0%} from the reference "
            f"{number(reference)} {first.unit}{widened}"
        )
    spread = f"spread {number(sigma, 2)} {first.unit}"
    trials = len({name for name, _ in group.figures})
    count = f"{plural(len(samples), 'sample')} of {plural(trials, 'trial')}"
    threshold = Threshold(
        select={
            "check": escape(group.case.check),
            "variant": escape(group.case.variant),
            "transport": escape(group.case.transport),
            **({"network": escape(group.case.network)} if group.case.network else {}),
            "profile": escape(group.case.profile),
            "nodes": group.case.nodes,
            "location": group.location if group.location == ANY else escape(group.location or ""),
        },
        metric=escape(group.metric),
        basis="baseline",
        source=f"{count}, {spread}",
        unit=first.unit,
        reference=reference,
        upper=bound if sign > 0 else None,
        lower=-bound if sign < 0 else None,
    )
    limit = next(one for one in threshold.bounds() if one is not None)
    side = f"at {'most' if sign > 0 else 'least'} {number(limit)} {first.unit}"
    how = f", {'+' if sign > 0 else '-'}{_percent(bound)}" if reference else ""
    return threshold, f"{number(reference)} {first.unit}, {side}{how} ({count}){widened}"


def _displaced(group: _Group, requirements: MetricRequirements) -> str:
    rules = {
        rule.id: rule.threshold.basis
        for _, figure in group.figures
        for rule in requirements.applying(figure.location)
        if rule.threshold.basis == "relative"
    }
    return (
        f"; takes precedence over the relative requirement at {', '.join(rules)}" if rules else ""
    )


def _looser(threshold: Threshold, judged: Sequence[Judgement]) -> str:
    """How a new entry is looser than the entries that judge its figures now; "" if it is not.

    A bound is looser if it is farther out, or gone. The bound of a relative requirement differs
    from trial to trial: the tightest counts.
    """
    texts = []
    least, most = threshold.bounds()
    for word, new, sign in (("at least", least, -1), ("at most", most, 1)):
        bounds = {(j.upper if sign > 0 else j.lower): j for j in reversed(judged)}
        old = min((b for b in bounds if b is not None), key=lambda b: sign * b, default=None)
        if old is None or (new is not None and sign * (new - old) <= SAME * abs(old)):
            continue
        requirement = bounds[old].requirement
        assert requirement is not None
        before, after = distinct(old, old if new is None else new)
        unit = f" {threshold.unit}" if threshold.unit else ""
        now = f"no bound '{word}'" if new is None else f"{word} {after}{unit}"
        of = f": {requirement.text}" if requirement.basis == "relative" else ""
        texts.append(f"{word} {before}{unit} ({requirement.id}{of}) becomes {now}")
    return ", ".join(texts)


def _wide(threshold: Threshold, judged: Sequence[Judgement]) -> str:
    """How far a bound is from its reference, if that is more than ``WIDE`` and more than of the
    entries that judge its figures now; else ""."""
    width = max(threshold.upper or 0.0, -(threshold.lower or 0.0))
    if not threshold.reference or width <= WIDE:
        return ""
    older = [
        abs(bound - j.reference) / abs(j.reference)
        for j in judged if j.reference and j.requirement and j.requirement.basis == "baseline"
        for bound in (j.lower, j.upper) if bound is not None
    ]  # fmt: skip
    if older and width <= min(older) * (1 + SAME):
        return ""
    before = f", until now {_percent(min(older))}" if older else ""
    return f"its bound is {_percent(width)} from the level{before}: the figures scatter"


def _percent(fraction: float) -> str:
    return f"{number(100 * fraction, 3)} %"


class _Older:
    """The baseline entries of a file, of which a new one replaces some."""

    def __init__(self, document: Document, alone: bool = False):
        """``alone``: an entry of all locations stays, because not all of them get a new one."""
        self.alone = alone
        self.entries: dict[tuple[object, ...], dict[object, list[int]]] = {}  # kind, location
        for index, t in enumerate(document.requirements):
            s = t.select
            kind = (s.check, s.variant, s.transport, s.network, s.profile, s.nodes, t.metric)
            if t.basis == "baseline" and not any(
                isinstance(word, list) for word in (*kind, s.location)
            ):
                self.entries.setdefault(kind, {}).setdefault(s.location, []).append(index)

    def __call__(self, group: _Group) -> list[int]:
        """The indices of the entries that the one for a group replaces."""
        case, location = group.case, group.location or ""
        network = escape(case.network) if case.network else None
        words = (escape(case.check), escape(case.variant), escape(case.transport), network)
        kind = (*words, escape(case.profile), case.nodes, escape(group.metric))
        by_location = self.entries.get(kind, {})
        if location == ANY:
            locations = [name for name in by_location if name]
        else:
            locations = list(
                {location, escape(location), *([ANY] if location and not self.alone else [])}
            )
        return sorted(index for name in locations for index in by_location.get(name, []))
