"""The first part of the chapter "What it means": what to use for what, its cost, and how sure.

It repeats the answers of the other parts in one table, and concludes nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seatrial.analysis.axis import NETWORK, PROFILE, TRANSPORT
from seatrial.analysis.conclusion import CONFIDENCE, merged
from seatrial.analysis.decision import Decision
from seatrial.analysis.profile_cost import CPU, ProfileCosts
from seatrial.analysis.response import Response
from seatrial.analysis.trials import Analysis
from seatrial.report.chapter import Cell, Grid, Section, Sentence, made_from, percent, repeats_text
from seatrial.report.estimates import times
from seatrial.report.meaning.sizes import Alike, curves_of, fastest_groups, place, span
from seatrial.report.text import amount
from seatrial.results.wording import plural, some

AXES = (PROFILE, NETWORK, TRANSPORT)
_ROWS = 12  # of the table; what else is known is in the parts that follow
_LATENCY = "latency_us"
_COSTS = "seatrial trial -t tcp -c netpipe -c tcp_stream"


def section(analysis: Analysis) -> Section:
    responses = [response for axis in AXES for response in analysis.responses_to(axis)]
    known = [response for response in responses if response.decision.answer != "measure more"]
    groups = [group for axis in AXES for group in fastest_groups(analysis.comparisons_of(axis))]
    costs = {cost.hardware: cost for cost in analysis.costs}
    rows = [
        _application(response, costs.get(response.hardware), analysis.features)
        for response in known
    ]
    rows += map(_messages, groups)
    sentences = [] if rows else [_nothing(analysis)]
    if rows:
        inputs = [response.inputs for response in known]
        inputs += {id(curve): curve.inputs for group in groups for curve, _ in group}.values()
        sentences.append(_how_sure(len(rows), made_from(merged(inputs))))
        if not analysis.costs and any(response.axis == PROFILE for response in known):
            text = "What the profiles cost in processor time and latency was not measured."
            sentences.append(Sentence(text, "", _COSTS, "inconclusive", "not known"))
    sentences += _open(analysis, responses)
    title = "What to use" if len(rows) <= _ROWS else f"What to use: the first {_ROWS} answers"
    header = ["for", "use", "performance", "latency and processor time", "how sure"]
    if not analysis.costs:
        rows = [[*row[:3], row[4]] for row in rows]
        header.pop(3)
    grids = [Grid(title, header, rows[:_ROWS])] if rows else []
    return Section("In short", sentences, grids, table_first=True)


def _application(
    response: Response, costs: ProfileCosts | None, features: Mapping[str, str]
) -> list[Cell]:
    d = response.decision
    held = filter(None, [response.route, f"{response.nodes} nodes", response.profile])
    name = Cell(response.application, note=", ".join(held))
    top = d.leaders[0]
    if d.answer == "best":
        near = min(d.ahead, key=lambda p: d.ahead[p].value)
        how = f"--constraint={features[top]}" if features.get(top) else ""
        if top in response.ratios:
            gain = f"{times(response.ratios[top])} that of {response.base}"
        else:
            gain = f"{times(d.ahead[near])} that of the next, {near}"
        sure = f"leads the next, {near}, {times(d.ahead[near])}"
        return [name, Cell(top, "pass", how), Cell(gain), _cost(top, costs), _sure(d, sure)]
    some_only = d.worse or d.refused or response.without
    use = " or ".join(d.leaders) if some_only else f"any {response.axis.name}"
    cheap = cheapest(d, costs)
    note = f"least processor time: {cheap}" if cheap else ""
    sure = "but single runs differ" if d.uneven else ""
    return [
        name, Cell(use, "unjudged", note), Cell(f"at most {percent(d.apart)} apart"),
        _cost(cheap or "", costs), _sure(d, sure),
    ]  # fmt: skip


def cheapest(d: Decision, costs: ProfileCosts | None) -> str:
    """Of profiles that are as good: the one that takes least processor time, if that is certain."""
    known = {p: costs.costs[p][CPU] for p in d.leaders if costs and CPU in costs.costs.get(p, {})}
    if len(known) < 2:
        return ""
    best = min(known, key=lambda p: known[p].value)
    ratio = known[best].ratio
    return best if ratio and ratio.high < 1 else ""


def _cost(profile: str, costs: ProfileCosts | None) -> Cell:
    """Latency and processor time of a profile, beside those of the base."""
    row = costs.costs.get(profile, {}) if costs else {}
    if not costs or not row:
        return Cell("–", "quiet")
    base = costs.costs[costs.base]
    texts, notes = [], []
    for name in (_LATENCY, CPU):
        if name in row:
            texts.append(amount(row[name].value, row[name].unit))
            if name in base and profile != costs.base:
                notes.append(amount(base[name].value, base[name].unit))
    note = f"{costs.base}: {', '.join(notes)}" if notes else ""
    return Cell(", ".join(texts), note=note)


def _sure(d: Decision, more: str) -> Cell:
    return Cell(f"{percent(CONFIDENCE)}, {plural(d.repeats, d.unit)} of each", note=more)


def _messages(alike: Alike) -> list[Cell]:
    comparison, part = alike[0]
    d = part.decision
    name = Cell(
        f"{span(alike)}, {curves_of([curve for curve, _ in alike])}", note=place(comparison)
    )
    repeats = min(own.decision.repeats for _, own in alike)
    sure = Cell(f"{percent(CONFIDENCE)}, {plural(repeats, d.unit)} of each")
    if d.answer == "best":
        ratios = [min(own.decision.ahead.values(), key=lambda e: e.value) for _, own in alike]
        least = min(ratios, key=lambda e: e.value)
        gain = f"the next takes {times(least)} as long"
        gain += " or longer" if len(alike) > 1 else ""
        return [name, Cell(d.leaders[0], "pass"), Cell(gain), Cell("–", "quiet"), sure]
    apart = max(own.decision.apart for _, own in alike)
    use = " or ".join(d.leaders) if d.worse else f"any {comparison.axis.name}"
    return [
        name, Cell(use, "unjudged"), Cell(f"at most {percent(apart)} apart"),
        Cell("–", "quiet"), sure,
    ]  # fmt: skip


def _how_sure(count: int, basis: str) -> Sentence:
    each = percent(1 - CONFIDENCE)
    text = f"Each answer of the table is wrong in at most {each} of such trials"
    if count > 1:
        any_of_them = percent(min(1.0, count * (1 - CONFIDENCE)))
        text += f", at least one of the {count} in at most {any_of_them}"
    text += ". They hold for these programs, problems, nodes and versions alone."
    return Sentence(text, basis, "what the parts below say of each answer")


def _nothing(analysis: Analysis) -> Sentence:
    reasons = [missing.reason for missing in analysis.missing if missing.what == "response"]
    text = "This trial does not say what to use: no application or message size was measured often "
    text += "enough, and undisturbed, under several profiles, networks or transports."
    if reasons and len(set(reasons)) == 1 and not analysis.responses:
        text = f"This trial does not say what to use: of each application, {reasons[0]}."
    return Sentence(text, key="inconclusive", word="not known")


def _open(analysis: Analysis, responses: Sequence[Response]) -> list[Sentence]:
    """What was compared without an answer, and what the answers take."""
    sentences = []
    for axis in AXES:
        of_axis = [response for response in responses if response.axis == axis]
        curves = [
            (curve, part.decision) for curve in analysis.comparisons_of(axis)
            for part in curve.fastest
        ]  # fmt: skip
        decisions = [response.decision for response in of_axis] + [d for _, d in curves]
        open_ = [d for d in decisions if d.answer == "measure more"]
        if not open_:
            continue
        unknown = [response for response in of_axis if response.decision in open_]
        of_curves = {id(curve): curve for curve, d in curves if d in open_}.values()
        names = [response.application for response in unknown]
        names += [curves_of([curve]) for curve in of_curves]
        inputs = [response.inputs for response in unknown] + [
            of_curve.inputs for of_curve in of_curves
        ]
        basis = made_from(merged(inputs))
        most = max(open_, key=lambda d: d.needs or 0)
        more = repeats_text(most.needs, most.unit, axis.name) if most.needs else ""
        takes = dict.fromkeys(filter(None, [more, *(d.takes for d in open_)]))
        text = f"Not known is which {axis.name} suits {some(list(dict.fromkeys(names)))}."
        sentences.append(Sentence(text, basis, "; ".join(takes), "inconclusive", "measure more"))
    return sentences
