"""The chapter "What it means": the conclusions of ``seatrial.analysis`` in sentences and tables.

Each sentence has its figure with the interval; under it stand what it was made from and what would
change it. Pictures are in ``seatrial.report.meaning_figures``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from seatrial.analysis.conclusion import Estimate, Inputs
from seatrial.analysis.crossover import TOGETHER, Comparison, Fastest
from seatrial.analysis.decision import SMALLEST, Decision, least_repeats
from seatrial.analysis.message_times import CallTimes, Line, half_round_trip
from seatrial.analysis.profile_cost import CPU, METRICS, ProfileCosts
from seatrial.analysis.response import Response
from seatrial.analysis.scaling import Scaling
from seatrial.analysis.trials import Analysis
from seatrial.report.text import message_size, quantity
from seatrial.results.wording import number, plural, some

COSTS = {
    "latency_us": "latency",
    "n_half_B": "message size of half the bandwidth",
    "bandwidth_MB_s": "bandwidth of a TCP stream",
    CPU: "processor time of both ends per MB",
    "interrupts_per_s": "interrupts per second",
}


#: kinds of conclusions that are missing
_WORDS = {
    "response": "comparison of profiles for",
    "runs": "complete set of runs of",
    "model of message times": "model of the message times of",
    "scaling": "scaling of",
}
_RESPONSE = ("response", "runs")


@dataclass(frozen=True)
class Sentence:
    """A conclusion, what it was made from, and what would change it. ``key``: a badge's style."""

    text: str
    basis: str = ""
    change: str = ""
    key: str = ""
    word: str = ""


@dataclass(frozen=True)
class Cell:
    text: str
    style: str = ""  # a class of the style sheet
    note: str = ""


@dataclass
class Grid:
    """A table: the first cell of a row is its header."""

    title: str
    header: list[str]
    rows: list[list[Cell]]
    folded: bool = False


@dataclass
class Section:
    title: str
    sentences: list[Sentence] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)
    figures: str = ""  # the kind of its pictures


def sections(analysis: Analysis) -> list[Section]:
    """The sections that have something to say, in the order of a reader's questions."""
    made = [
        Section(
            "Which profile for which application",
            [*_responses(analysis), *_preferences(analysis.responses)],
            [matrix] if (matrix := _matrix(analysis.responses)) else [],
            "responses",
        ),
        Section(
            "What each profile costs",
            [s for one in analysis.costs for s in _costs(one)],
            [_cost_grid(one) for one in analysis.costs],
        ),
        Section("Which profile for which message size", _messages(analysis.comparisons)),
        Section(
            "Times of sends and receives",
            [s for one in analysis.call_times for s in _call_times(one)],
            [_models(analysis.call_times)] if analysis.call_times else [],
            "models",
        ),
        Section("More nodes", [_scaling(one) for one in analysis.scalings], figures="scaling"),
        Section("What is not known, and what it takes", _missing(analysis, of_responses=False)),
    ]
    return [one for one in made if one.sentences]


# --- words for figures -------------------------------------------------------------------------


def _texts(estimate: Estimate) -> list[str]:
    """Value, low and high with as many digits as tell the ends from each other and from 1."""
    ends = (estimate.value, estimate.low, estimate.high)
    apart = (
        d
        for d in range(3, 7)
        if number(estimate.low, d) != number(estimate.high, d)
        and all(number(end, d) != "1" or end == 1 for end in (estimate.low, estimate.high))
    )
    digits = next(apart, 3)
    return [number(x, digits) for x in ends]


def _bounded(estimate: Estimate) -> bool:
    return math.isfinite(estimate.low) and math.isfinite(estimate.high)


def with_interval(estimate: Estimate, unit: str = "") -> str:
    """``1.34 times (1.30 to 1.38)`` of unit times; without an interval if there is none."""
    if not _bounded(estimate):
        return f"{number(estimate.value, 3)}{unit} (too few samples for an interval)"
    value, low, high = _texts(estimate)
    return f"{value}{unit} ({low} to {high})"


def times(estimate: Estimate) -> str:
    return with_interval(estimate, " times")


def _made_from(inputs: Inputs) -> str:
    return (
        f"{plural(inputs.samples, 'sample')} of {plural(len(inputs.cases), 'case')}, trial"
        f"{'s' if len(inputs.trials) > 1 else ''} {some(inputs.trials)}"
    )


def _size(size: float) -> str:
    """Such as ``100 B`` and ``64 KiB``."""
    return f"{message_size(size)} B".replace("i B", "iB")


def _repeats(count: int) -> str:
    return f"{count} repeats of each profile (seatrial trial --repeats {count})"


def _percent(fraction: float) -> str:
    return f"{number(100 * fraction, 2)} %"


# --- applications ------------------------------------------------------------------------------


def _responses(analysis: Analysis) -> list[Sentence]:
    costs = {one.hardware: one for one in analysis.costs}
    answers = [
        _response(one, costs.get(one.hardware), analysis.features) for one in analysis.responses
    ]
    if not answers and any(one.what in _RESPONSE for one in analysis.missing):
        text = "No application ran under two profiles without an error, so none can be advised."
        answers.append(Sentence(text, key="inconclusive", word="measure more"))
    return answers + _missing(analysis, of_responses=True)


def _response(one: Response, costs: ProfileCosts | None, features: Mapping[str, str]) -> Sentence:
    name = f"{one.application} (over {one.route}, {one.nodes} nodes)"
    d = one.decision
    each = "each profile once" if d.repeats == 1 else f"at least {d.repeats} of each profile"
    basis = f"{_made_from(one.inputs)}; {each}"
    top = d.leaders[0]
    value = quantity(one.medians[top], one.unit)
    if d.answer == "best":
        near = min(d.ahead, key=lambda p: d.ahead[p].value)
        how = f" (--constraint={features[top]})" if features.get(top) else ""
        text = (
            f"Use {top}{how} for {name}: {value}, {times(d.ahead[near])} that of the next profile, "
            f"{near}."
        )
        change = f"a change of the software or of {one.hardware}; a profile that was not measured"
        return Sentence(text, basis, change, "pass", "best")
    if d.answer == "no difference":
        equal = f"{_names(d.leaders)} do equally well" if d.worse else "The profile does not matter"
        text = f"{equal} for {name}: {value} under {top}; {_largest(d)}."
        text += _slower(d)
        text += _cheapest(d, costs)
        change = f"a need for differences below {_percent(d.margin)}, which do not count here"
        return Sentence(text, basis, change, "unjudged", "no difference")
    if d.worse:
        text = f"Of {_names(d.leaders)} it is not known which suits {name} best: {d.reason}."
        text += _slower(d)
    else:
        text = f"It is not known which profile suits {name}: {d.reason}."
    text += f" {top} has the best median, {value}, which may be chance"
    open_ = [f"{times(d.ahead[p])} that of {p}" for p in d.leaders[1:] if _bounded(d.ahead[p])]
    text += f": {some(open_)}." if open_ else "."
    change = _repeats(d.needs) if d.needs else ""
    return Sentence(text, basis, change, "inconclusive", "measure more")


def _largest(d: Decision) -> str:
    """The largest difference that the intervals of the leaders allow."""
    ends = [abs(math.log(end)) for p in d.leaders[1:] for end in (d.ahead[p].low, d.ahead[p].high)]
    most = _percent(math.expm1(max(ends)))
    return f"{_names(d.leaders)} differ by at most {most}, with 95 % confidence"


def _slower(d: Decision) -> str:
    if not d.worse:
        return ""
    far = sorted(d.worse, key=lambda p: -d.ahead[p].value)
    listed = [f"{p} ({d.leaders[0]} has {times(d.ahead[p])} its performance)" for p in far]
    return f" Worse: {some(listed)}."


def _cheapest(d: Decision, costs: ProfileCosts | None) -> str:
    """Of profiles that are as good: the one that takes least processor time, if that is certain."""
    known = {p: costs.costs[p][CPU] for p in d.leaders if costs and CPU in costs.costs.get(p, {})}
    if not costs or len(known) < 2:
        return ""
    best = min(known, key=lambda p: known[p].value)
    ratio = known[best].ratio
    if ratio is None or ratio.high >= 1:
        return ""
    return (
        f" Choose by cost: a TCP stream under {best} takes {times(ratio)} the processor time of "
        f"one under {costs.base}."
    )


def _names(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _preferences(responses: Sequence[Response]) -> list[Sentence]:
    """Whether applications prefer different profiles, of those with the same hardware and route."""
    groups: dict[tuple[str, str], list[Response]] = {}
    for one in responses:
        if one.decision.answer != "measure more":
            groups.setdefault((one.hardware, one.route), []).append(one)
    sentences = []
    for (hardware, route), own in groups.items():
        if len(own) < 2:
            continue
        common = set.intersection(*(set(one.decision.leaders) for one in own))
        listed = "; ".join(f"{one.application}: {' or '.join(one.decision.leaders)}" for one in own)
        if common:
            text = (
                f"These {len(own)} applications over {route} on {hardware} do not prefer "
                f"differently: {' or '.join(sorted(common))} suits all. ({listed}.)"
            )
        else:
            text = f"No profile suits all applications over {route} on {hardware}. {listed}."
        basis = "the answers above: each is wrong in at most 5 % of such trials"
        sentences.append(Sentence(text, basis, "another application", "pass", "together"))
    return sentences


def _matrix(responses: Sequence[Response]) -> Grid | None:
    """Applications by profiles: performance over that under the base."""
    if not responses:
        return None
    profiles = list(dict.fromkeys(p for one in responses for p in one.medians))
    rows = []
    for one in responses:
        row = [Cell(f"{one.application}, {one.route}, {one.nodes} nodes")]
        for profile in profiles:
            if profile == one.base:
                row.append(Cell(f"base: {quantity(one.medians[profile], one.unit)}"))
            elif profile in one.ratios:
                row.append(_ratio_cell(one.ratios[profile]))
            else:
                row.append(Cell("not measured", "quiet"))
        rows.append(row)
    title = "Response: performance under a profile over that under the base, with its 95 % interval"
    return Grid(title, ["application", *profiles], rows)


def _ratio_cell(estimate: Estimate, *, good: int = 1, text: str = "") -> Cell:
    """A ratio in words and a colour, under ``text`` if there is some.

    ``good``: 1 if a ratio above 1 is better, -1 if it is worse, 0 for neither.
    """
    ratio, word, style = with_interval(estimate, " times"), "", ""
    if not _bounded(estimate):
        ratio, word = f"{number(estimate.value, 3)} times", "no interval"
    elif good:
        sign = good * ((estimate.low > 1) - (estimate.high < 1))
        same = estimate.low > 1 / (1 + SMALLEST) and estimate.high < 1 + SMALLEST
        sign = 0 if same else sign
        word = {1: "better", -1: "worse", 0: "the same" if same else "not told apart"}[sign]
        style = {1: "pass", -1: "missing", 0: ""}[sign]
    elif estimate.low <= 1 <= estimate.high:
        word = "not told apart"
    if text:
        return Cell(text, style, f"{ratio}, {word}" if word else ratio)
    return Cell(ratio, style, word)


# --- profiles ----------------------------------------------------------------------------------


def _costs(one: ProfileCosts) -> list[Sentence]:
    sentences = []
    basis = f"{_made_from(one.inputs)}; NetPIPE and a TCP stream over plain sockets"
    unsure = []
    for profile, row in one.costs.items():
        known = {
            name: cost.ratio
            for name, cost in row.items()
            if cost.ratio and math.isfinite(cost.ratio.high)
        }
        if profile == one.base:
            continue
        changed = {n: r for n, r in known.items() if r.low > 1 or r.high < 1}
        if not known:
            unsure.append(profile)
            continue
        listed = ", ".join(f"{COSTS[name]} {times(r)}" for name, r in changed.items())
        same = [COSTS[name] for name in known if name not in changed]
        text = f"{profile} against {one.base}, on {one.hardware}: {listed or 'no certain change'}"
        text += f"; no certain change of {_names(same)}." if same and listed else "."
        sentences.append(Sentence(text, basis, "more repeats, which narrow the intervals"))
    if unsure:
        need = least_repeats(len(one.costs))
        text = (
            f"On {one.hardware} the costs of {_names(unsure)} against {one.base} have no interval: "
            "each figure was measured too few times. The table has the medians."
        )
        change = _repeats(need)
        sentences.append(Sentence(text, basis, change, "inconclusive", "measure more"))
    return sentences


def _cost_grid(one: ProfileCosts) -> Grid:
    names = [name for name in METRICS if any(name in row for row in one.costs.values())]
    better = {"latency_us": -1, "n_half_B": -1, "bandwidth_MB_s": 1, CPU: -1, "interrupts_per_s": 0}
    rows = []
    for profile, row in one.costs.items():
        cells = [Cell(f"{profile} (base)" if profile == one.base else profile)]
        for name in names:
            if name not in row:
                cells.append(Cell("not measured", "quiet"))
                continue
            cost = row[name]
            text = quantity(cost.value, cost.unit)
            if cost.ratio is None:
                cells.append(Cell(text))
            else:
                cells.append(_ratio_cell(cost.ratio, good=better[name], text=text))
        rows.append(cells)
    title = f"Median, and ratio to {one.base} with its 95 % interval, on {one.hardware}"
    return Grid(title, ["profile", *(COSTS[name] for name in names)], rows)


# --- message sizes -----------------------------------------------------------------------------


def _messages(comparisons: Iterable[Comparison]) -> list[Sentence]:
    sentences, unsure = [], []
    for one in comparisons:
        name = f"{one.check} {one.curve}" if one.curve != one.check else one.check
        where = f"{name} over {one.route} on {one.hardware}, {one.nodes} nodes"
        basis = _made_from(one.inputs)
        for part in one.fastest:
            if part.decision.answer == "measure more":
                unsure.append((where, part.decision))
            else:
                sentences.append(_fastest(part, where, basis))
        sentences += _partings(one, where, basis)
    if unsure:
        needs = max(d.needs or 0 for _, d in unsure)
        wheres = list(dict.fromkeys(where for where, _ in unsure))
        reasons = "; ".join(dict.fromkeys(d.reason for _, d in unsure))
        text = f"Of {some(wheres)} it is not known which profile is the fastest: {reasons}."
        change = _repeats(needs)
        sentences.append(Sentence(text, "", change, "inconclusive", "measure more"))
    return sentences


def _fastest(part: Fastest, where: str, basis: str) -> Sentence:
    d = part.decision
    span = f"{_size(part.first)} to {_size(part.last)}"
    text = f"{part.word.capitalize()} messages ({span}), {where}: "
    if d.answer == "best":
        near = min(d.ahead, key=lambda p: d.ahead[p].value)
        text += f"{d.leaders[0]} is the fastest; the next, {near}, takes {times(d.ahead[near])} "
        text += "as long."
        return Sentence(text, basis, "other sizes, or another program", "pass", "best")
    text += f"{_names(d.leaders)} are equally fast; {_largest(d)}.{_slower(d)}"
    return Sentence(text, basis, "other sizes, or another program", "unjudged", "no difference")


def _partings(one: Comparison, where: str, basis: str) -> list[Sentence]:
    if one.noisy:
        text = (
            f"{where}: the repeats of a size differ by {_percent(one.scatter or 0)} in the median, "
            "which hides where profiles part."
        )
        return [Sentence(text, basis, "a quieter machine", "inconclusive", "measure more")]
    how = "each was measured once" if one.scatter is None else \
        f"repeats differ by {_percent(one.scatter)} in the median"  # fmt: skip
    sentences = []
    for profile, at in one.partings.items():
        if at.apart is None:
            continue
        other = profile if at.faster == one.reference else one.reference
        text = f"{where}: from {_size(at.apart)} on {other} takes at least 1.5 times as "
        text += f"long as {at.faster}; "
        if at.together is None:
            text += "it is slower at all smaller sizes, too."
        else:
            text += f"up to {_size(at.together)} they are within {_percent(TOGETHER - 1)}."
        if at.reversed_at is not None:
            text += f" At {_size(at.reversed_at)} {other} is the faster one."
        sentences.append(Sentence(text, f"{basis}; {how}", "more sizes near the interval"))
    return sentences


# --- calls -------------------------------------------------------------------------------------


def _call_times(one: CallTimes) -> list[Sentence]:
    name = f"{one.case.route} under {one.case.profile}"
    poor = [
        f"{call} (a measured time is missed by {_percent(model.largest_error)})"
        for call, model in (("MPI_Send", one.send), ("MPI_Recv", one.recv))
        if model.poor
    ]
    text = f"{name}: "
    if not one.send.poor:
        small = with_interval(one.send.lines[0].intercept, " us")
        text += f"an MPI_Send of a small message takes {small}. "
    if not poor:
        half = half_round_trip(one.send, one.recv, one.send.measured[0])
        text += f"Half of send and receive is {number(half.us, 3)} us at "
        text += f"{_size(one.send.measured[0])}{f' ({half.flaw})' if half.flaw else ''}. "
    else:
        text += f"No lines describe {_names(poor)}. "
    if one.send.thresholds:
        at = [_size(x) for x in one.send.thresholds]
        text += f"The time of a send changes its course above {_names(at)}."
        if one.eager is None:
            text += " The eager limit of the MPI is not on record."
        elif one.eager.between:
            low, high = map(_size, one.eager.between)
            agree = "lies" if one.eager.agrees else "does not lie, so another limit is behind it,"
            text += (
                f" The MPI's eager limit, {_size(one.eager.bytes)} ({one.eager.source}), "
                f"{agree} in the nearest of these steps ({low} to {high})."
            )
        if one.synchronised:
            text += " Above the last a send waits for its receive: both take the same time."
    else:
        text += f"No threshold shows up to {_size(one.send.measured[1])}."
    error = max(one.send.largest_error, one.recv.largest_error)
    basis = f"{_made_from(one.inputs)}; the lines miss a measured time by {_percent(error)} at most"
    return [Sentence(text, basis, "sizes outside the measured range, more sizes per decade")]


def _models(models: Sequence[CallTimes]) -> Grid:
    rows = []
    for one in models:
        for call, model in (("send", one.send), ("receive", one.recv)):
            start = model.measured[0]
            for line in () if model.poor else model.lines:
                end = line.last if line.last is not None else model.measured[1]
                rows.append(_model_row(one, call, line, start, end))
                start = end
    header = ["transport and profile", "call", "sizes", "intercept (us)", "slope (us per KiB)"]
    title = "Lines t = intercept + slope x size, with 95 % intervals"
    return Grid(title, header, rows, folded=True)


def _model_row(one: CallTimes, call: str, line: Line, start: float, end: float) -> list[Cell]:
    per_KiB = Estimate(*(1024 * x for x in (line.slope.value, line.slope.low, line.slope.high)))
    above = "from" if start == one.send.measured[0] else "above"
    return [
        Cell(f"{one.case.route}, {one.case.profile}"),
        Cell(call),
        Cell(f"{above} {_size(start)} to {_size(end)}"),
        Cell(with_interval(line.intercept)),
        Cell(with_interval(per_KiB)),
    ]


# --- nodes -------------------------------------------------------------------------------------


def _scaling(one: Scaling) -> Sentence:
    counts = sorted(one.times)
    efficiency = ", ".join(f"{p}: {_percent(one.efficiency[p])}" for p in counts[1:])
    text = f"{one.name}: efficiency relative to {counts[0]} processes is {efficiency}."
    if (slow := one.slowdown) is not None:
        sure = "" if slow.certain else ", which is not certain"
        text += (
            f" From {slow.start} to {slow.end} processes the run takes {times(slow.ratio)} as long"
            f"{sure}: more nodes cost time."
        )
    else:
        text += f" Up to {counts[-1]} processes more nodes save time."
    if one.model is None:
        text += f" No model of the time: {one.no_model}."
    elif one.model.flaw:
        text += f" The model a0 + a1/p says nothing about a serial part: {one.model.flaw}."
    else:
        share = one.model.serial_share
        assert share is not None
        text += (
            f" {_percent(share)} of the time of one process does not shrink with more of them: "
            f"{with_interval(one.model.a0, ' s')}."
        )
    change = "more repeats of each number of nodes, and more numbers"
    return Sentence(text, _made_from(one.inputs), change)


# --- what is not known -------------------------------------------------------------------------


def _missing(analysis: Analysis, *, of_responses: bool) -> list[Sentence]:
    """One sentence for each kind and reason, with the subjects that it holds for.

    ``of_responses``: those that lack for a response, or all others.
    """
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for one in analysis.missing:
        if (one.what in _RESPONSE) == of_responses:
            grouped.setdefault((one.what, one.reason, one.takes), []).append(one.subject)
    return [
        Sentence(
            f"No {_WORDS[what]} {some(list(dict.fromkeys(subjects)), '; ')}: {reason}.",
            change=takes,
            key="inconclusive",
            word="not known",
        )
        for (what, reason, takes), subjects in grouped.items()
    ]
