"""The part of the chapter "What it means" on what suits which application: NIC profiles, networks,
transports and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seatrial.analysis.axis import SETTING, Axis
from seatrial.analysis.communication import Share
from seatrial.analysis.conclusion import CONFIDENCE, merged
from seatrial.analysis.decision import Decision
from seatrial.analysis.profile_cost import CPU, ProfileCosts
from seatrial.analysis.response import Response
from seatrial.analysis.trials import Analysis
from seatrial.report.chapter import (
    Cell,
    Grid,
    Section,
    Sentence,
    joined,
    largest,
    made_from,
    percent,
    ratio_cell,
    repeats_text,
    slower,
)
from seatrial.report.estimates import bounded, small_difference, times
from seatrial.report.meaning import short, sizes
from seatrial.report.meaning.missing import RESPONSE, missing
from seatrial.report.text import amount
from seatrial.results.wording import plural, some


def section(analysis: Analysis) -> Section:
    """Which NIC profile suits which application."""
    costs = {cost.hardware: cost for cost in analysis.costs}
    answers = _answers(analysis.responses, costs, analysis.features)
    if not answers and any(one.what in RESPONSE for one in analysis.missing):
        text = (
            "No application ran under two profiles without an error and undisturbed, so none can "
            "be advised."
        )
        answers.append(Sentence(text, key="inconclusive", word="measure more"))
    answers += missing(analysis, of_responses=True)
    return Section(
        "Which profile for which application",
        [*answers, *_preferences(analysis.responses, analysis.shares)],
        [matrix] if (matrix := _matrix(analysis.responses)) else [],
        "responses",
    )


def of_axis(analysis: Analysis, axis: Axis) -> list[Section]:
    """What networks, transports or settings do to applications and to messages."""
    responses = analysis.responses_to(axis)
    what = "profile, transport and network together" if axis == SETTING else axis.name
    applications = Section(
        f"Which {what} for which application",
        _answers(responses, {}, {}),
        [matrix] if (matrix := _matrix(responses)) else [],
        f"responses to {axis.name}s",
    )
    return [applications, sizes.section(axis, analysis.comparisons_of(axis))]


def _answers(
    responses: Sequence[Response],
    costs: Mapping[str, ProfileCosts],
    features: Mapping[str, str],
) -> list[Sentence]:
    open_ = [response for response in responses if _is_open(response.decision)]
    answers = [
        _response(response, costs.get(response.hardware), features)
        for response in responses
        if response not in open_
    ]
    return answers + _not_known(open_)


def _response(
    response: Response, costs: ProfileCosts | None, features: Mapping[str, str]
) -> Sentence:
    what = response.axis.name
    name = _subject(response)
    d = response.decision
    each = f"at least {plural(d.repeats, d.unit)} of each {what}"
    basis = f"{made_from(response.inputs)}; {each}"
    top = d.leaders[0]
    value = amount(response.medians[top], response.unit)
    gone = _without(response)
    if d.answer == "best":
        near = min(d.ahead, key=lambda p: d.ahead[p].value)
        how = f" (--constraint={features[top]})" if features.get(top) else ""
        text = (
            f"Use {top}{how} for {name}: {value}, {times(d.ahead[near])} the performance of the "
            f"next {what}, {near}.{gone}"
        )
        change = f"other software, nodes or network; a {what} that was not measured"
        return Sentence(text, basis, change, "pass", "best")
    if d.answer == "no difference":
        equal = f"The {what} does not matter"
        if d.worse or gone:
            equal = f"{joined(d.leaders)} do equally well"
        word = "no difference"
        text = f"{equal} for {name}: {value} under {top}; {largest(d)}."
        if small := small_difference(d):
            word = "small difference"
            text = f"For {name} {small}: {value} under {top}; {largest(d)}."
        if d.uneven:
            word = "like medians"
            text = f"In the median {text[0].lower()}{text[1:]} But {d.uneven}."
        text += slower(d)
        text += gone
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


def _without(response: Response) -> str:
    """A sentence on the options of which no run counts, after a blank; "" if there are none."""
    if not response.without:
        return ""
    names = joined(response.without)
    return f" No run under {names} counts: each failed, or its path or profile was not proven."


def _is_open(d: Decision) -> bool:
    """Whether nothing certain is known of any option."""
    return d.answer == "measure more" and not d.worse and not any(map(bounded, d.ahead.values()))


def _not_known(responses: Sequence[Response]) -> list[Sentence]:
    """Applications of which nothing is certain: one sentence for each reason."""
    groups: dict[tuple[str, str], list[Response]] = {}
    for response in responses:
        change = _change(response.decision, response.axis.name)
        groups.setdefault((response.decision.reason, change), []).append(response)
    sentences = []
    for (reason, change), group in groups.items():
        listed = [
            f"{one.application} ({one.decision.leaders[0]}: "
            f"{amount(one.medians[one.decision.leaders[0]], one.unit)})"
            for one in group
        ]
        what = group[0].axis.name
        routes = joined(list(dict.fromkeys(one.route for one in group if one.route)))
        nodes = joined([str(n) for n in dict.fromkeys(one.nodes for one in group)])
        held = joined(list(dict.fromkeys(one.profile for one in group if one.profile)))
        over = f"over {routes}" if routes else ""
        where = ", ".join(filter(None, [over, f"{nodes} nodes", held]))
        text = (
            f"It is not known which {what} suits these applications ({where}): {reason}. The best "
            f"medians, which may be chance: {some(listed, '; ')}."
        )
        if len(group) == 1:
            [response] = group
            top = response.decision.leaders[0]
            text = (
                f"It is not known which {what} suits {response.application} ({where}): {reason}. "
                f"{top} "
                f"has the best median, {amount(response.medians[top], response.unit)}, which may "
                "be chance."
            )
        inputs = merged(one.inputs for one in group)
        least = min((one.decision for one in group), key=lambda d: d.repeats)
        basis = f"{made_from(inputs)}; at least {plural(least.repeats, least.unit)} of each {what}"
        sentences.append(Sentence(text, basis, change, "inconclusive", "measure more"))
    return sentences


def _change(d: Decision, what: str) -> str:
    more = repeats_text(d.needs, d.unit, what) if d.needs else ""
    return "; ".join(filter(None, [more, d.takes]))


def _subject(response: Response) -> str:
    """The application, and what the compared runs share."""
    over = f"over {response.route}" if response.route else ""
    held = ", ".join(filter(None, [over, f"{response.nodes} nodes", response.profile]))
    return f"{response.application} ({held})"


def _cheapest(d: Decision, costs: ProfileCosts | None) -> str:
    """Of profiles that are as good: the one that takes least processor time, if that is certain."""
    best = short.cheapest(d, costs)
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
    for response in responses:
        if response.decision.answer != "measure more":
            groups.setdefault((response.hardware, response.route), []).append(response)
    sentences = []
    for (hardware, route), group in groups.items():
        if len(group) < 2:
            continue
        common = set.intersection(*(set(response.decision.leaders) for response in group))
        listed = "; ".join(
            f"{response.application}: {_suits(response.decision)}" for response in group
        )
        if common:
            text = (
                f"These {len(group)} applications over {route} on {hardware} do not prefer "
                f"differently: {' or '.join(sorted(common))} suits all. ({listed}.)"
            )
        else:
            text = f"No profile suits all applications over {route} on {hardware}. {listed}."
        basis = (
            "the answers above: each is wrong in at most 5 % of such trials, at least one of the "
        )
        basis += f"{len(group)} in at most {percent(min(1.0, len(group) * (1 - CONFIDENCE)))}"
        sentences.append(Sentence(text, basis, "another application", "pass", "together"))
        sentences += _most_and_least(group, shares)
    return sentences


def _most_and_least(responses: Sequence[Response], shares: Sequence[Share]) -> list[Sentence]:
    """Whether the application that communicates most prefers another profile than the one that
    communicates least; none where fewer than two have a share that counts."""
    of_base = {(s.application, s.route, s.profile, s.nodes, s.hardware): s for s in shares}
    known = [
        (share.counted.value, response)
        for response in responses
        if (
            share := of_base.get(
                (
                    response.application,
                    response.route,
                    response.base,
                    response.nodes,
                    response.hardware,
                )
            )
        )
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
    for response in (most, least):
        suits = _suits(response.decision)
        apart = f" ({largest(response.decision)})" if suits == "any" else ""
        text += f" {response.application}: {suits}{apart}."
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
    profiles = list(dict.fromkeys(p for response in responses for p in response.medians))
    rows = []
    for response in responses:
        held = ", ".join(filter(None, [response.application, response.route, response.profile]))
        row = [Cell(f"{held}, {response.nodes} nodes")]
        for profile in profiles:
            if profile == response.base:
                row.append(Cell(f"base: {amount(response.medians[profile], response.unit)}"))
            elif profile in response.ratios:
                row.append(ratio_cell(response.ratios[profile]))
            else:
                row.append(Cell("not measured", "quiet"))
        rows.append(row)
    title = f"Response: performance by {what} over that of the base, with its 95 % interval"
    return Grid(title, ["application", *profiles], rows)
