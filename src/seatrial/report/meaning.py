"""The chapter "What it means": the conclusions of ``seatrial.analysis`` in sentences and tables.

Each sentence has its figure with the interval; under it stand what it was made from and what would
change it. Pictures are in ``seatrial.report.meaning_figures``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from seatrial.analysis.axis import NETWORK, PROFILE, SETTING, TRANSPORT, Axis
from seatrial.analysis.communication import Relation, Share
from seatrial.analysis.conclusion import CONFIDENCE, Estimate, merged, scaled
from seatrial.analysis.decision import SMALLEST, Decision, least_repeats
from seatrial.analysis.groups import FEATURES, Groups
from seatrial.analysis.message_times import FEWEST_CALLS, CallTimes, Line, half_round_trip
from seatrial.analysis.profile_cost import CPU, METRICS, ProfileCosts
from seatrial.analysis.response import BASE, Response
from seatrial.analysis.scaling import Scaling
from seatrial.analysis.trials import Analysis
from seatrial.analysis.value import Gain, Value
from seatrial.report import meaning_frames, meaning_pairs, meaning_short, meaning_sizes
from seatrial.report.chapter import (
    Cell,
    Grid,
    Section,
    Sentence,
    bytes_text,
    joined,
    largest,
    made_from,
    percent,
    ratio_cell,
    repeats_text,
    slower,
)
from seatrial.report.estimates import (
    amount_with_interval,
    bounded,
    small_difference,
    times,
    with_interval,
)
from seatrial.report.text import amount
from seatrial.results.wording import MAX_NAMED, number, plural, some

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
    "response to the network": "comparison of networks for",
    "response to the transport": "comparison of transports for",
    "response to the setting": "comparison of settings for",
    "runs": "complete set of runs of",
    "undisturbed runs": "complete set of undisturbed runs of",
    "usable runs": "complete set of usable runs of",
    "model of message times": "model of the message times of",
    "scaling": "scaling of",
    "groups": "groups of",
    "share of the peak": "share of the peak for",
    "price per GFLOPS": "price or power per GFLOPS for",
}
_RESPONSE = ("response", "runs", "undisturbed runs")


def sections(analysis: Analysis) -> list[Section]:
    """The sections that have something to say, in the order of a reader's questions."""
    made = [
        Section(
            "Which profile for which application",
            [*_responses(analysis), *_preferences(analysis.responses, analysis.shares)],
            [matrix] if (matrix := _matrix(analysis.responses)) else [],
            "responses",
        ),
        Section(
            "How much the applications communicate",
            [*map(_relation, analysis.relations), *_shares(analysis.shares)],
            [grid] if (grid := _share_grid(analysis.shares)) else [],
            "shares",
        ),
        Section(
            "What each profile costs",
            [s for one in analysis.costs for s in _costs(one)],
            [_cost_grid(one) for one in analysis.costs],
            "costs",
        ),
        meaning_sizes.section(PROFILE, analysis.comparisons_of(PROFILE)),
        *(part for axis in (NETWORK, TRANSPORT, SETTING) for part in _of_axis(analysis, axis)),
        Section(
            "Times of sends and receives",
            [s for one in analysis.call_times for s in _call_times(one)],
            [_models(analysis.call_times)] if analysis.call_times else [],
            "models",
        ),
        Section("More nodes", [_scaling(one) for one in analysis.scalings], figures="scaling"),
        meaning_frames.section(analysis.sweeps),
        meaning_pairs.section(analysis.pairs),
        Section("Cases that communicate alike", _groups(analysis.groups), figures="groups"),
        Section(
            "Share of the peak, and what a GFLOPS costs",
            [*_values(analysis.values), *map(_gain, analysis.gains)],
            [grid] if (grid := _value_grid(analysis.values)) else [],
        ),
        Section("What is not known, and what it takes", _missing(analysis, of_responses=False)),
    ]
    made = [one.with_shared_words() for one in made if one.sentences]
    return [meaning_short.section(analysis).with_shared_words(), *made] if made else []


# --- applications ------------------------------------------------------------------------------


def _responses(analysis: Analysis) -> list[Sentence]:
    costs = {one.hardware: one for one in analysis.costs}
    answers = _answers(analysis.responses, costs, analysis.features)
    if not answers and any(one.what in _RESPONSE for one in analysis.missing):
        text = (
            "No application ran under two profiles without an error and undisturbed, so none can "
            "be advised."
        )
        answers.append(Sentence(text, key="inconclusive", word="measure more"))
    return answers + _missing(analysis, of_responses=True)


def _of_axis(analysis: Analysis, axis: Axis) -> list[Section]:
    """What networks, transports or settings do to applications and to messages."""
    responses = analysis.responses_to(axis)
    what = "profile, transport and network together" if axis == SETTING else axis.name
    applications = Section(
        f"Which {what} for which application",
        _answers(responses, {}, {}),
        [matrix] if (matrix := _matrix(responses)) else [],
        f"responses to {axis.name}s",
    )
    return [applications, meaning_sizes.section(axis, analysis.comparisons_of(axis))]


def _answers(
    responses: Sequence[Response],
    costs: Mapping[str, ProfileCosts],
    features: Mapping[str, str],
) -> list[Sentence]:
    open_ = [one for one in responses if _is_open(one.decision)]
    answers = [
        _response(one, costs.get(one.hardware), features) for one in responses if one not in open_
    ]
    return answers + _not_known(open_)


def _response(one: Response, costs: ProfileCosts | None, features: Mapping[str, str]) -> Sentence:
    what = one.axis.name
    name = _subject(one)
    d = one.decision
    each = f"at least {plural(d.repeats, d.unit)} of each {what}"
    basis = f"{made_from(one.inputs)}; {each}"
    top = d.leaders[0]
    value = amount(one.medians[top], one.unit)
    if d.answer == "best":
        near = min(d.ahead, key=lambda p: d.ahead[p].value)
        how = f" (--constraint={features[top]})" if features.get(top) else ""
        text = (
            f"Use {top}{how} for {name}: {value}, {times(d.ahead[near])} the performance of the "
            f"next {what}, {near}."
        )
        change = f"other software, nodes or network; a {what} that was not measured"
        return Sentence(text, basis, change, "pass", "best")
    if d.answer == "no difference":
        equal = f"{joined(d.leaders)} do equally well" if d.worse else f"The {what} does not matter"
        word = "no difference"
        text = f"{equal} for {name}: {value} under {top}; {largest(d)}."
        if small := small_difference(d):
            word = "small difference"
            text = f"For {name} {small}: {value} under {top}; {largest(d)}."
        if d.uneven:
            word = "like medians"
            text = f"In the median {text[0].lower()}{text[1:]} But {d.uneven}."
        text += slower(d)
        text += _cheapest(d, costs)
        change = f"a need for differences below {percent(d.margin)}, which do not count here"
        return Sentence(text, basis, change, "unjudged", word)
    if d.worse:
        text = f"Of {joined(d.leaders)} it is not known which suits {name} best: {d.reason}."
        text += slower(d)
    else:
        text = f"It is not known which {what} suits {name}: {d.reason}."
    chance = "" if d.takes and not d.needs else ", which may be chance"
    text += f" {top} has the best median, {value}{chance}"
    open_ = [
        f"{times(d.ahead[p])} the performance of {p}" for p in d.leaders[1:] if bounded(d.ahead[p])
    ]
    text += f": {some(open_)}." if open_ else "."
    return Sentence(text, basis, _change(d, what), "inconclusive", "measure more")


def _is_open(d: Decision) -> bool:
    """Whether nothing certain is known of any option."""
    return d.answer == "measure more" and not d.worse and not any(map(bounded, d.ahead.values()))


def _not_known(responses: Sequence[Response]) -> list[Sentence]:
    """Applications of which nothing is certain: one sentence for each reason."""
    groups: dict[tuple[str, str], list[Response]] = {}
    for one in responses:
        change = _change(one.decision, one.axis.name)
        groups.setdefault((one.decision.reason, change), []).append(one)
    sentences = []
    for (reason, change), own in groups.items():
        listed = [
            f"{one.application} ({one.decision.leaders[0]}: "
            f"{amount(one.medians[one.decision.leaders[0]], one.unit)})"
            for one in own
        ]
        what = own[0].axis.name
        routes = joined(list(dict.fromkeys(one.route for one in own if one.route)))
        nodes = joined([str(n) for n in dict.fromkeys(one.nodes for one in own)])
        held = joined(list(dict.fromkeys(one.profile for one in own if one.profile)))
        over = f"over {routes}" if routes else ""
        where = ", ".join(filter(None, [over, f"{nodes} nodes", held]))
        text = (
            f"It is not known which {what} suits these applications ({where}): {reason}. The best "
            f"medians, which may be chance: {some(listed, '; ')}."
        )
        if len(own) == 1:
            [one] = own
            top = one.decision.leaders[0]
            text = (
                f"It is not known which {what} suits {one.application} ({where}): {reason}. {top} "
                f"has the best median, {amount(one.medians[top], one.unit)}, which may be chance."
            )
        inputs = merged(one.inputs for one in own)
        least = min((one.decision for one in own), key=lambda d: d.repeats)
        basis = f"{made_from(inputs)}; at least {plural(least.repeats, least.unit)} of each {what}"
        sentences.append(Sentence(text, basis, change, "inconclusive", "measure more"))
    return sentences


def _change(d: Decision, what: str) -> str:
    more = repeats_text(d.needs, d.unit, what) if d.needs else ""
    return "; ".join(filter(None, [more, d.takes]))


def _subject(one: Response) -> str:
    """The application, and what the compared runs share."""
    over = f"over {one.route}" if one.route else ""
    held = ", ".join(filter(None, [over, f"{one.nodes} nodes", one.profile]))
    return f"{one.application} ({held})"


def _cheapest(d: Decision, costs: ProfileCosts | None) -> str:
    """Of profiles that are as good: the one that takes least processor time, if that is certain."""
    best = meaning_short.cheapest(d, costs)
    if not costs or not best:
        return ""
    ratio = costs.costs[best][CPU].ratio
    assert ratio is not None
    return (
        f" Choose by cost: a TCP stream under {best} takes {times(ratio)} the processor time of "
        f"one under {costs.base}."
    )


def _preferences(responses: Sequence[Response], shares: Sequence[Share]) -> list[Sentence]:
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
        listed = "; ".join(f"{one.application}: {_suits(one.decision)}" for one in own)
        if common:
            text = (
                f"These {len(own)} applications over {route} on {hardware} do not prefer "
                f"differently: {' or '.join(sorted(common))} suits all. ({listed}.)"
            )
        else:
            text = f"No profile suits all applications over {route} on {hardware}. {listed}."
        basis = (
            "the answers above: each is wrong in at most 5 % of such trials, at least one of the "
        )
        basis += f"{len(own)} in at most {percent(min(1.0, len(own) * (1 - CONFIDENCE)))}"
        sentences.append(Sentence(text, basis, "another application", "pass", "together"))
        sentences += _most_and_least(own, shares)
    return sentences


def _most_and_least(responses: Sequence[Response], shares: Sequence[Share]) -> list[Sentence]:
    """Whether the application that communicates most prefers another profile than the one that
    communicates least; none where fewer than two have a share that counts."""
    of_base = {(s.application, s.route, s.profile, s.nodes, s.hardware): s for s in shares}
    known = [
        (share.counted.value, one)
        for one in responses
        if (share := of_base.get((one.application, one.route, one.base, one.nodes, one.hardware)))
        and share.counted
    ]
    if len({share for share, _ in known}) < 2:
        return []
    (high, most), (low, least) = (f(known, key=lambda pair: pair[0]) for f in (max, min))
    text = (
        f"{most.application} communicates most ({percent(high)} of its time is in MPI under "
        f"{most.base}), {least.application} least ({percent(low)}). "
    )
    both = [p for p in most.decision.leaders if p in least.decision.leaders]
    text += (
        f"They do not prefer differently: {' or '.join(both)} suits both."
        if both
        else "They prefer differently."
    )
    for one in (most, least):
        suits = _suits(one.decision)
        apart = f" ({largest(one.decision)})" if suits == "any" else ""
        text += f" {one.application}: {suits}{apart}."
    basis = "the answers above, and the shares of the next section, of what each program times"
    change = "another application, or a larger problem of one"
    return [Sentence(text, basis, change, "pass", "together")]


def _suits(d: Decision) -> str:
    return " or ".join(d.leaders) if d.worse or d.refused or d.behind else "any"


def _matrix(responses: Sequence[Response]) -> Grid | None:
    """Applications by the options of an axis: performance over that of the base."""
    if not responses:
        return None
    what = responses[0].axis.name
    profiles = list(dict.fromkeys(p for one in responses for p in one.medians))
    rows = []
    for one in responses:
        held = ", ".join(filter(None, [one.application, one.route, one.profile]))
        row = [Cell(f"{held}, {one.nodes} nodes")]
        for profile in profiles:
            if profile == one.base:
                row.append(Cell(f"base: {amount(one.medians[profile], one.unit)}"))
            elif profile in one.ratios:
                row.append(ratio_cell(one.ratios[profile]))
            else:
                row.append(Cell("not measured", "quiet"))
        rows.append(row)
    title = f"Response: performance by {what} over that of the base, with its 95 % interval"
    return Grid(title, ["application", *profiles], rows)


# --- profiles ----------------------------------------------------------------------------------


def _costs(one: ProfileCosts) -> list[Sentence]:
    sentences = []
    basis = f"{made_from(one.inputs)}; NetPIPE and a TCP stream over plain sockets"
    unsure = []
    for profile, row in one.costs.items():
        known = {
            name: row[name].ratio
            for name in METRICS
            if name in row and (ratio := row[name].ratio) and math.isfinite(ratio.high)
        }
        if profile == one.base:
            continue
        changed = {n: r for n, r in known.items() if r and (r.low > 1 or r.high < 1)}
        if not known:
            unsure.append(profile)
            continue
        listed = "; ".join(
            f"{COSTS[name]} {amount(row[name].value, row[name].unit)}, {times(r)}"
            for name, r in changed.items()
        )
        same = [COSTS[name] for name in known if name not in changed]
        text = f"{profile} against {one.base}, on {one.hardware}: {listed or 'no certain change'}"
        text += f"; no certain change of {joined(same)}." if same and listed else "."
        text += f" But {one.nodes_differ}." if one.nodes_differ else ""
        sentences.append(Sentence(text, basis, f"more {one.unit}s, which narrow the intervals"))
    if len(sentences) > MAX_NAMED:
        sentences = [_cost_range(one, len(sentences), basis)]
    if unsure:
        need = least_repeats(one.options)
        text = (
            f"On {one.hardware} the costs of {joined(unsure)} against {one.base} have no interval: "
            f"each figure was measured in too few {one.unit}s."
        )
        change = repeats_text(need, one.unit)
        sentences.append(Sentence(text, basis, change, "inconclusive", "measure more"))
    return sentences


def _cost_range(one: ProfileCosts, count: int, basis: str) -> Sentence:
    """Of many profiles: for each metric the lowest and the highest. The table has all of them."""
    parts = []
    for name in METRICS:
        known = {
            profile: (row[name], ratio)
            for profile, row in one.costs.items()
            if name in row and (ratio := row[name].ratio) and math.isfinite(ratio.high)
        }
        if not known:
            continue
        low, high = (f(known, key=lambda p: known[p][0].value) for f in (min, max))
        ends = [
            f"{amount(known[p][0].value, known[p][0].unit)} under {p}, {times(known[p][1])}"
            for p in (low, high)
        ]
        parts.append(f"{COSTS[name]} from {ends[0]}, to {ends[1]}")
    text = f"{count} profiles against {one.base}, on {one.hardware}: {'; '.join(parts)}."
    text += " The table has each of them."
    text += f" But {one.nodes_differ}." if one.nodes_differ else ""
    return Sentence(text, basis, f"more {one.unit}s, which narrow the intervals")


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
            text = amount(cost.value, cost.unit)
            if cost.ratio is None:
                cells.append(Cell(text))
            else:
                cells.append(ratio_cell(cost.ratio, good=better[name], text=text))
        rows.append(cells)
    title = f"Median, and ratio to {one.base} with its 95 % interval, on {one.hardware}"
    return Grid(title, ["profile", *(COSTS[name] for name in names)], rows)


# --- calls -------------------------------------------------------------------------------------


def _call_times(one: CallTimes) -> list[Sentence]:
    name = f"{one.case.route} under {one.case.profile} on {one.hardware}"
    poor = [
        f"{call} (a measured time is missed by {percent(model.largest_error)})"
        for call, model in (("MPI_Send", one.send), ("MPI_Recv", one.recv))
        if model.poor
    ]
    text = f"{name}: "
    if not one.send.poor and one.send.lines[0].intercept.value > 0:
        small = amount_with_interval(one.send.lines[0].intercept, "us")
        text += f"an MPI_Send of a small message takes {small}. "
    if not poor:
        half = half_round_trip(one.send, one.recv, one.send.measured[0])
        text += f"Half of send and receive is {amount(half.us, 'us')} at "
        text += f"{bytes_text(one.send.measured[0])}{f' ({half.flaw})' if half.flaw else ''}. "
    else:
        text += f"No lines describe {joined(poor)}. "
    last = one.recv.lines[-1]
    if not one.recv.poor and last.slope.low > 0:
        ends = one.recv.thresholds
        above = f" above {bytes_text(ends[-1])}" if ends else ""
        text += f"An MPI_Recv{above} takes {amount_with_interval(last.intercept, 'us')} and for "
        text += f"each KiB {amount_with_interval(scaled(last.slope, 1024), 'us')}. "
    for call, name in (("recv", "MPI_Recv"), ("send", "MPI_Send")):
        if (apart := one.ranks.get(call)) and apart.is_much:
            text += f"{name} of {bytes_text(apart.size)} takes {amount(apart.low, 'us')} on one "
            text += f"rank and {amount(apart.high, 'us')} on the other: its time depends on more "
            text += "than the size, such as the state of the interrupt moderation of each node. "
            break
    if one.send.curved:
        text += (
            "No threshold shows: a smooth curve describes the times of a send better than lines."
        )
    elif one.send.thresholds:
        at = [f"{bytes_text(a)} and {bytes_text(b)}" for a, b in one.send.between]
        text += f"The time of a send changes its course between {'; between '.join(at)}."
        if one.eager is None:
            text += " The eager limit of the MPI is not on record."
        elif one.eager.between:
            low, high = map(bytes_text, one.eager.between)
            agree = "lies" if one.eager.agrees else "does not lie, so another limit is behind it,"
            text += (
                f" The MPI's eager limit, {bytes_text(one.eager.bytes)} ({one.eager.source}), "
                f"{agree} in the nearest of these steps ({low} to {high})."
            )
        if one.synchronised:
            text += " Above the last a send waits for its receive: both take the same time."
    else:
        text += "No threshold shows at the measured sizes, "
        text += f"{' to '.join(map(bytes_text, one.send.measured))}."
    key = word = ""
    change = "sizes outside the measured range, more sizes per decade"
    if one.few:
        known = "a number of repetitions that is not on record" if one.calls is None else \
            f"{plural(one.calls, 'repetition')} of each size"  # fmt: skip
        said = one.send.thresholds and not one.send.curved
        what = "thresholds are" if said else "the absence of a threshold is"
        text += f" These times rest on {known}: below {FEWEST_CALLS} {what} not to be trusted."
        change = f"benchmarks.comms.repetitions: {FEWEST_CALLS} in site.yaml; {change}"
        key, word = "inconclusive", "doubtful"
    error = max(one.send.largest_error, one.recv.largest_error)
    basis = f"{made_from(one.inputs)}; the lines miss a measured time by {percent(error)} at most"
    return [Sentence(text, basis, change, key, word)]


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
    """A line that falls is no time of a message: its two coefficients say nothing by themselves."""
    if line.slope.value < 0:
        certain = line.slope.high < 0
        why = "falls: larger messages took less" if certain else "flat: no slope is certain"
        coefficients = [Cell("–", "quiet"), Cell("–", "quiet", why)]
    else:
        note = "" if line.slope.low > 0 else "not told apart from zero"
        slope = with_interval(scaled(line.slope, 1024))
        coefficients = [Cell(with_interval(line.intercept)), Cell(slope, note=note)]
    above = "from" if start == one.send.measured[0] else "above"
    return [
        Cell(f"{one.case.route}, {one.case.profile}"),
        Cell(call),
        Cell(f"{above} {bytes_text(start)} to {bytes_text(end)}"),
        *coefficients,
    ]


# --- nodes -------------------------------------------------------------------------------------


_EFFECTS = {
    "costs": "More nodes cost time",
    "saves": "More nodes save time",
    "none": "More nodes make no difference",
    "not certain": "It is not certain what more nodes do",
}


def _scaling(one: Scaling) -> Sentence:
    counts = sorted(one.times)
    efficiency = ", ".join(f"{_share_text(one.efficiency[p])} with {p}" for p in counts[1:])
    fewest = "one process" if counts[0] == 1 else f"{counts[0]} processes"
    text = f"{one.name}: efficiency relative to {fewest} is {efficiency} processes."
    for effect, words in _EFFECTS.items():
        own = [step for step in one.steps if step.effect == effect]
        if own:
            listed = [f"from {s.start} to {s.end} processes {times(s.ratio)} as long" for s in own]
            text += f" {words}: {'; '.join(listed)}."
    text += _apart(one)
    what = "computing" if one.apart else "the run"
    if one.model is None:
        text += f" No model of the time: {one.no_model}."
    elif one.model.flaw:
        text += f" The model a0 + a1/p says nothing about a serial part: {one.model.flaw}."
    else:
        text += (
            f" {_share_text(one.model.share)} of the time of {what} with one process does not "
            f"shrink with more: {amount_with_interval(one.model.a0, 's')}, by the model a0 + a1/p."
        )
        if not one.model.tested:
            text += f" Whether the model fits takes several {one.unit}s."
    change = f"more {one.unit}s of each number of nodes, and more numbers"
    return Sentence(text, made_from(one.inputs), change)


def _apart(one: Scaling) -> str:
    """Computing and communication with the fewest and the most processes."""
    if not one.apart:
        return ""
    first, last = min(one.apart), max(one.apart)
    parts = [
        f"computing from {amount(one.apart[first][0], 's')} to {amount(one.apart[last][0], 's')}",
        f"MPI from {amount(one.apart[first][1], 's')} to {amount(one.apart[last][1], 's')}",
    ]
    text = f" From {first} to {last} processes {joined(parts)} a process."
    if one.overtaken is not None:
        text += f" From {one.overtaken} processes on MPI takes longer than computing."
    elif one.seems_overtaken is not None:
        text += f" In the medians MPI takes longer than computing from {one.seems_overtaken} "
        text += "processes on, which may be chance."
    return text


# --- communication -----------------------------------------------------------------------------


def _shares(shares: Sequence[Share]) -> list[Sentence]:
    """Of each application under the base, or the first profile, on the most nodes."""
    first: dict[tuple[str, str, str], dict[int, Share]] = {}
    for one in shares:
        own = first.setdefault((one.application, one.route, one.hardware), {})
        if one.nodes not in own or one.profile == BASE:
            own[one.nodes] = one
    most = [own.pop(max(own)) for own in first.values()]
    pairs = sorted(zip(most, first.values(), strict=True), key=lambda pair: -pair[0].share.value)
    return [_share(one, [own[n] for n in sorted(own, reverse=True)]) for one, own in pairs]


def _share(one: Share, on_fewer: Sequence[Share]) -> Sentence:
    """``on_fewer``: the same application on fewer nodes."""
    text = (
        f"{one.application} (over {one.route}, {one.nodes} nodes, {one.profile}) is in MPI for "
        f"{_share_text(one.share)} of its run time"
    )
    top = [f"{call} {percent(part)}" for call, part in one.by_call.items() if part >= 0.1][:3]
    text += f", most of it in {joined(top)}." if top else "."
    text += f" A rank makes {number(one.calls_per_s, 3)} calls per second"
    if one.message_B is not None:
        text += f"; those that move data move {_volume(one.message_B)} on average"
    text += "."
    if on_fewer:
        listed = [f"{percent(s.share.value)} on {s.nodes}" for s in on_fewer]
        text += f" On fewer nodes: {', '.join(listed)}."
    key = word = ""
    if one.flagged and one.slowdown:
        slower = (
            "so the share is of a slower run" if one.slowdown.low > 1 else "which may be chance"
        )
        text += f" With the library the run took {times(one.slowdown)} as long, {slower}."
        key, word = "inconclusive", "doubtful"
    elif one.slowdown is None:
        text += " Whether the library slows the run is not known."
    if one.of_timed and one.timed is not None:
        text += (
            f" The program's own figure times {percent(one.timed)} of this run; of that part "
            f"{_share_text(one.of_timed)} is in MPI."
        )
    elif one.of_setup and one.timed is not None:
        low, high = one.bounds
        text += (
            " Most of this run is set-up and checks: the program's own figure times "
            f"{percent(one.timed)} of it, of which {number(100 * low, 2)} to {percent(high)} can "
            "be in MPI. So the share counts for no relation to the responses."
        )
        key, word = "inconclusive", "mostly set-up"
    how = f"median over {one.unit}s; time in MPI over run time, summed over the ranks, waiting "
    how += "included"
    change = "another class or number of nodes; waiting for a processor counts as communication"
    return Sentence(text, f"{made_from(one.inputs)}; {how}", change, key, word)


def _volume(count: float) -> str:
    """Bytes on average, which are no exact number: ``100 B``, ``1.5 MB``."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{number(count / unit, 3)} {name}"
    return f"{number(count, 3)} B"


def _share_text(share: Estimate) -> str:
    """In per cent, with the interval."""
    return with_interval(scaled(share, 100), " %")


def _relation(one: Relation) -> Sentence:
    name = f"{one.profile} against {one.base}, over {one.route} on {one.hardware}"
    count = len(one.points)
    basis = f"{made_from(one.inputs)}; " + "; ".join(
        f"{app}: {percent(share.value)} in MPI, {number(ratio.value, 3)} times"
        for app, share, ratio in one.points
    )
    basis += f"; responses below {percent(SMALLEST)} are equal"
    change = "more applications, each measured several times"
    if one.left_out:
        listed = [f"{s.application} ({percent(s.timed or 0)})" for s in one.left_out]
        basis += f"; left out, as their figures time less than half of the run: {some(listed)}"
        change += "; runs in which mpi_time finds what the program times, or larger problems"
    if one.correlation is None:
        text = f"{name}: all {count} applications communicate, or respond, alike."
        return Sentence(text, basis, change)
    r = number(one.correlation, 2)
    of = f"{count} applications"
    if one.programs < count:
        of = f"{plural(one.programs, 'program')} in {of}; the classes of one count once"
    if one.p is None:
        text = (
            f"{name}: share of communication and response have the rank correlation {r} over "
            f"{of}. Fewer than five programs can show no relation."
        )
        return Sentence(text, basis, change, "inconclusive", "measure more")
    sure = f"rank correlation {r} over {of}, p = {number(one.p, 2)}"
    if one.p > 1 - CONFIDENCE:
        text = f"{name}: no relation of the share of communication to the response shows ({sure})."
        return Sentence(text, basis, change, "unjudged", "no relation")
    more = "more" if one.correlation > 0 else "less"
    text = f"{name}: the more an application communicates, the {more} it gains ({sure})."
    return Sentence(text, basis, change, "pass", "relation")


def _share_grid(shares: Sequence[Share]) -> Grid | None:
    """Applications by profiles, of those with several; None if there is none."""
    profiles = list(dict.fromkeys(one.profile for one in shares))
    rows: dict[str, dict[str, Share]] = {}
    for one in shares:
        rows.setdefault(f"{one.application}, {one.route}, {one.nodes} nodes", {})[one.profile] = one
    rows = {name: own for name, own in rows.items() if len(own) > 1}
    if not rows:
        return None
    made = [
        [
            Cell(name),
            *(_share_cell(own[p]) if p in own else Cell("not measured", "quiet") for p in profiles),
        ]
        for name, own in rows.items()
    ]
    return Grid("Share of the run time in MPI", ["application", *profiles], made)


def _share_cell(one: Share) -> Cell:
    notes = ["slowed by the library"] if one.flagged else []
    if bounded(one.share):
        return Cell(_share_text(one.share), note="; ".join(notes))
    notes.insert(0, "no interval")
    return Cell(f"{number(100 * one.share.value, 3)} %", note="; ".join(notes))


def _groups(made: Groups | None) -> list[Sentence]:
    if made is None:
        return []
    basis = (
        f"{made_from(made.inputs)}; k-means of MB/s while in MPI, volume and number of calls; "
        f"mean silhouette {number(made.silhouette, 2)}, and wider gaps between groups than in them"
    )
    if made.constant:
        basis += f"; the same in all cases, and left out: {joined(list(made.constant))}"
    if made.excluded:
        basis += f"; without time in MPI: {some(list(made.excluded), '; ')}"
    sentences, change = [], "runs of other programs, classes or nodes"
    for index, group in enumerate(made.groups, 1):
        rate, volume, calls = (number(group.centre[name], 3) for name in FEATURES)
        members = [f"{n} ({count})" if count > 1 else n for n, count in group.members.items()]
        text = (
            f"Group {index}, {plural(group.cases, 'case')}: in the mean {rate} MB/s while in MPI, "
            f"{volume} MB and {calls} calls: {some(members, '; ')}."
        )
        sentences.append(Sentence(text, basis, change))
        basis = change = ""
    return sentences


# --- price and power ---------------------------------------------------------------------------


def _of_case(one: Value) -> str:
    case = one.case
    return f"hpl {case.variant} (over {case.route}, {case.nodes} nodes, {case.profile})"


def _values(values: Sequence[Value]) -> list[Sentence]:
    """One sentence each; of many the least and the greatest performance."""
    if len(values) <= MAX_NAMED:
        return [_value(one) for one in values]
    least, most = (f(values, key=lambda one: one.GFLOPS.value) for f in (min, max))
    ends = [f"{with_interval(one.GFLOPS, ' GFLOPS')} of {_of_case(one)}" for one in (least, most)]
    text = f"{len(values)} cases of hpl reach from {ends[0]} to {ends[1]}. The table has each."
    basis = made_from(merged(one.inputs for one in values))
    return [Sentence(text, basis, "the prices and facts of site.yaml")]


def _value_grid(values: Sequence[Value]) -> Grid | None:
    """Of many cases: performance, shares, price and power."""
    if len(values) <= MAX_NAMED:
        return None

    def cell(estimate: Estimate | None, unit: str) -> Cell:
        if estimate is None:
            return Cell("–", "quiet")
        if bounded(estimate):
            return Cell(amount_with_interval(estimate, unit))
        return Cell(amount(estimate.value, unit), note="no interval")

    names = list(dict.fromkeys(price.cost.name for one in values for price in one.prices))
    rows = []
    for one in values:
        prices = {price.cost.name: price.usd_per_GFLOPS for price in one.prices}
        peak = scaled(one.peak_share, 100) if one.peak_share else None
        rows.append(
            [Cell(_of_case(one)), cell(one.GFLOPS, "GFLOPS"), cell(peak, "%"),
             cell(one.dgemm_percent, "%"), cell(one.MFLOPS_per_W, "MFLOPS/W"),
             *(cell(prices.get(name), "USD/GFLOPS") for name in names)]
        )  # fmt: skip
    header = ["case", "performance", "of the peak", "of DGEMM", "per watt", *names]
    used = [i for i in range(len(header)) if any(row[i].style != "quiet" for row in rows)]
    return Grid(
        "Performance of HPL, its shares, and what it costs",
        [header[i] for i in used], [[row[i] for i in used] for row in rows],
    )  # fmt: skip


def _value(one: Value) -> Sentence:
    name = _of_case(one)
    parts = []
    if one.peak_share and one.peak_GFLOPS:
        peak = number(one.peak_GFLOPS, 4)
        share = f"{_share_text(one.peak_share)} of the theoretical peak, {peak} GFLOPS"
        parts.append(f"{share} ({one.peak_source})")
    if one.dgemm_percent:
        parts.append(f"{with_interval(one.dgemm_percent, ' %')} of DGEMM on as many cores")
    for price in one.prices:
        cost = price.cost
        what = f"{cost.name}, {number(cost.usd)} USD of {cost.date}: {cost.includes}"
        parts.append(f"{with_interval(price.usd_per_GFLOPS, ' USD')} per GFLOPS ({what})")
    if one.MFLOPS_per_W and one.power:
        watts = f"{number(one.power.watts)} W under {one.power.load}, source: {one.power.source}"
        parts.append(f"{with_interval(one.MFLOPS_per_W, ' MFLOPS')} per W ({watts})")
    text = f"{name} reaches {with_interval(one.GFLOPS, ' GFLOPS')}: {'; '.join(parts)}."
    change = "the prices and facts of site.yaml"
    if not bounded(one.GFLOPS):
        text += f" An interval takes six {one.unit}s: the repeats of one job are not independent." \
            if one.unit == "round" else f" An interval takes six {one.unit}s."  # fmt: skip
        change += f"; {repeats_text(6, one.unit)}"
    return Sentence(text, made_from(one.inputs), change)


def _gain(one: Gain) -> Sentence:
    response = one.response
    name = f"{one.option} against {response.base} for {response.application}"
    ratio = times(response.ratios[one.option])
    change = f"more {response.decision.unit}s, which narrow the interval"
    basis = made_from(response.inputs)
    if one.equivalent_nodes is None and not one.none:
        text = f"{name}: it is not certain whether it gains ({ratio}), so it has no worth in nodes."
        return Sentence(text, basis, change, "inconclusive", "measure more")
    if one.equivalent_nodes is None:
        text = f"{name}: no gain beyond the spread ({ratio}), so it is worth no node."
        return Sentence(text, basis, change, "unjudged", "no gain")
    nodes = with_interval(one.equivalent_nodes, " nodes")
    text = f"{name}: {ratio} the performance, which is worth {nodes} more than {response.nodes}."
    if one.usd_per_GFLOPS is not None:
        text += (
            f" Each GFLOPS more costs {with_interval(one.usd_per_GFLOPS, ' USD')}."
            if one.usd_per_GFLOPS.value > 0
            else f" {one.option} costs no more than {response.base}."
        )
    return Sentence(text, basis, change)


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
