"""The part of the chapter "What it means" on message sizes: where profiles, networks or transports
part, and which is the fastest and the cheapest for which messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seatrial.analysis.axis import NETWORK, PROFILE, Axis
from seatrial.analysis.conclusion import merged
from seatrial.analysis.crossover import APART, TOGETHER, Comparison, Fastest, Knee, Near, Parting
from seatrial.report.chapter import (
    Section,
    Sentence,
    bytes_text,
    joined,
    largest,
    made_from,
    percent,
    repeats_text,
    slower,
)
from seatrial.report.estimates import small_difference, times
from seatrial.report.figures import (
    MARKERS,
    PALETTE,
    Figure,
    Table,
    axes,
    label,
    log_ticks,
    titled,
)
from seatrial.report.text import message_size
from seatrial.results.wording import number, some

_FIGURES = 6  # of more curves there are the sentences alone
#: A knee is said from this t(2n) / t(n) on: twice, but for what counts as the same.
_STEEP = 2 * TOGETHER


def section(axis: Axis, comparisons: Sequence[Comparison]) -> Section:
    return Section(
        f"Which {axis.name} for which message size",
        _sentences(axis, comparisons),
        figures=figures_name(axis),
    )


def figures_name(axis: Axis) -> str:
    return f"sizes by {axis.name}"


def _where(one: Comparison) -> str:
    """The curve, and what the options share."""
    name = f"{one.check} {one.curve}"
    if one.curve.split(" ")[0] == one.check:
        name = one.curve
    if one.axis == PROFILE:
        return f"{name} over {one.route} on {one.hardware}, {one.nodes} nodes"
    over = f"over {one.route}" if one.axis == NETWORK else f"on {one.hardware}"
    return f"{name} {over}, {one.nodes} nodes, {one.profile}"


def _sentences(axis: Axis, comparisons: Sequence[Comparison]) -> list[Sentence]:
    sentences, unsure = [], []
    for one in comparisons:
        where, basis = _where(one), made_from(one.inputs)
        if one.fault:
            text = f"Of {where} it is not known which {axis.name} is the fastest: {one.fault}."
            change = "records of the same sizes, one unit and one hardware"
            sentences.append(Sentence(text, basis, change, "inconclusive", "not known"))
            continue
        for part in one.fastest:
            if part.decision.answer == "measure more":
                unsure.append((where, part.decision, one.inputs))
            else:
                sentences.append(_fastest(part, where, basis))
        sentences += _partings(one, where, basis)
        sentences += _knees(one, where, basis)
        sentences += _cheapest(one, where, basis)
    if unsure:
        needs = max(d.needs or 0 for _, d, _ in unsure)
        takes = "; ".join(dict.fromkeys(d.takes for _, d, _ in unsure if d.takes))
        # where -> its inputs, which its ranges of sizes share
        wheres = {where: inputs for where, _, inputs in unsure}
        reasons = "; ".join(dict.fromkeys(d.reason for _, d, _ in unsure))
        basis = made_from(merged(wheres.values()))
        text = f"Of {some(list(wheres))} it is not known which {axis.name} is the fastest: "
        text += f"{reasons}."
        unit = unsure[0][1].unit
        more = repeats_text(needs, unit, axis.name) if needs else ""
        change = "; ".join(filter(None, [more, takes]))
        sentences.append(Sentence(text, basis, change, "inconclusive", "measure more"))
    compared = [one for one in comparisons if one.fastest]
    priced = any(part.near and part.near.cost for one in compared for part in one.fastest)
    if axis == NETWORK and compared and not priced:
        text = "Which network is the cheapest for which size is not known: cost not declared."
        change = "a price of each network (machine.costs with network in site.yaml)"
        basis = made_from(merged(one.inputs for one in compared))
        sentences.append(Sentence(text, basis, change, "inconclusive", "not known"))
    return sentences


def _fastest(part: Fastest, where: str, basis: str) -> Sentence:
    d = part.decision
    text = f"{_span(part)}, {where}: "
    if d.answer == "best":
        near = min(d.ahead, key=lambda p: d.ahead[p].value)
        text += f"{d.leaders[0]} is the fastest; the next, {near}, takes {times(d.ahead[near])} "
        text += "as long."
        return Sentence(text, basis, "other sizes, or another program", "pass", "best")
    equal = small_difference(d) or f"{joined(d.leaders)} are equally fast"
    text += f"{equal}; {largest(d)}.{slower(d)}"
    text += f" But {d.uneven}." if d.uneven else ""
    return Sentence(text, basis, "other sizes, or another program", "unjudged", "no difference")


def _span(part: Fastest) -> str:
    span = f"{bytes_text(part.first)} to {bytes_text(part.last)}"
    return f"{part.word.capitalize()} messages ({span})"


def _partings(one: Comparison, where: str, basis: str) -> list[Sentence]:
    how = "each was measured once" if one.scatter is None else \
        f"runs differ by {percent(one.scatter)} in the median"  # fmt: skip
    how += "; all partings of a curve hold together with 95 %"
    sentences = []
    open_ = []
    for option, at in one.partings.items():
        takes_longer = f"{option} takes at least 1.5 times as long as {one.reference}"
        first, last = bytes_text(one.fastest[0].first), bytes_text(one.fastest[-1].last)
        parts = []
        if at.apart == one.fastest[0].first:
            parts.append(f"at all measured sizes ({first} to {last}) {takes_longer}")
        elif at.apart == one.fastest[-1].last:
            parts.append(f"at {last}, the largest measured size, {takes_longer}")
        elif at.apart is not None:  # what is larger than the last size was not measured
            from_it = f"from {bytes_text(at.apart)} to {last}, the largest measured size,"
            parts.append(f"{from_it} {takes_longer}")
        if at.together is not None:
            limit = f"from {first} to {bytes_text(at.together)}"
            if bytes_text(at.together) == first:
                limit = f"at {first}, the smallest measured size,"
            parts.append(f"{limit} {option} and {one.reference} are within {percent(TOGETHER - 1)}")
        if at.reversed_at is not None:
            parts.append(f"up to {bytes_text(at.reversed_at)} {option} is the faster one")
        seem = one.seem[option]
        if at.apart is None and seem.apart is not None:
            open_.append(f"{option} from {bytes_text(seem.apart)} on{_before(seem, option)}")
        if at.apart is None and at.reversed_at is None:
            continue
        text = f"{where}: {'; '.join(parts)}."
        text += f" But {one.nodes_differ}." if one.nodes_differ else ""
        sentences.append(Sentence(text, f"{basis}; {how}", "more sizes near the interval"))
    if open_:
        text = f"{where}: in the medians at least 1.5 times as long as {one.reference}: "
        text += f"{some(open_)}. This may be chance."
        change = f"more {one.unit}s, which narrow the intervals"
        sentences.append(Sentence(text, f"{basis}; {how}", change, "inconclusive", "measure more"))
    return sentences


def _before(seem: Parting, option: str) -> str:
    """What the medians of two curves do before they part."""
    parts = []
    if seem.together is not None:
        parts.append(f"last within {percent(TOGETHER - 1)} at {bytes_text(seem.together)}")
    if seem.reversed_at is not None:
        parts.append(f"{option} is the faster one last at {bytes_text(seem.reversed_at)}")
    return f" ({'; '.join(parts)})" if parts else ""


def _knees(one: Comparison, where: str, basis: str) -> list[Sentence]:
    """Where a time grows by far more than the size, in all runs of an option."""
    steep = {option: at for option, at in one.knees.items() if at.least >= _STEEP}
    if not steep:
        return []
    listed = [f"{option} {_rise(at)}" for option, at in steep.items()]
    text = f"{where}: largest step of the time between a size and its double: {some(listed, '; ')}."
    if one.rate:
        text += " The bandwidth falls there."
    if any(at.least != at.most for at in steep.values()):
        basis += "; in brackets the least and the greatest of the runs"
    return [Sentence(text, basis, "more sizes near that step")]


def _rise(at: Knee) -> str:
    factor, least, most = (number(x, 3) for x in (at.factor, at.least, at.most))
    runs = f" ({least} to {most})" if least != most else ""
    return f"{factor} times{runs}, from {bytes_text(at.size)} to {bytes_text(2 * at.size)}"


def _cheapest(one: Comparison, where: str, basis: str) -> list[Sentence]:
    """For each range of sizes the cheapest option that is about as fast as the fastest."""
    parts = [(part, part.near) for part in one.fastest if part.near and part.near.cost]
    if not parts:
        return []
    first = parts[0][1]
    listed = "; ".join(
        f"{part.word} messages: {beside.cheapest or _not_known(beside)}" for part, beside in parts
    )
    usd = ", ".join(f"{option} {number(price)} USD" for option, price in first.prices.items())
    text = f"{where}: the cheapest {one.axis.name} that takes at most {percent(TOGETHER - 1)} "
    text += f"longer than the fastest. {listed[0].upper()}{listed[1:]}. ({first.cost}: {usd}.)"
    known = [beside.cheapest for _, beside in parts]
    style = ("pass", "cheapest") if all(known) else ("inconclusive", "measure more")
    change = "other prices" if all(known) else f"more {one.unit}s, which narrow the intervals"
    return [Sentence(text, basis, change, *style)]


def _not_known(beside: Near) -> str:
    maybe = beside.open or beside.possible
    return f"not known ({joined(maybe)} may or may not be as fast as that)"


def size_figures(axis: Axis, comparisons: Sequence[Comparison]) -> list[Figure]:
    """A picture of each curve: its options, and where each parts from the fastest."""
    drawn = [one for one in comparisons if one.medians]
    return [_figure(f"sizes-{axis.name}-{i}", one) for i, one in enumerate(drawn[:_FIGURES])]


def _figure(name: str, one: Comparison) -> Figure:
    unit = "MB/s" if one.rate else "us"
    data: list[dict[str, Any]] = []
    rows: list[list[str]] = []
    shapes: list[dict[str, Any]] = []
    for i, (option, points) in enumerate(one.medians.items()):
        colour = PALETTE[i % len(PALETTE)]
        shown = {n: n / us if one.rate else us for n, us in points.items()}
        data.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": label(option),
                "x": list(shown), "y": list(shown.values()),
                "line": {"color": colour},
                "marker": {"color": colour, "symbol": MARKERS[i % len(MARKERS)], "size": 7},
                "hovertemplate": f"%{{x}} B: %{{y:.4g}} {unit}<extra>%{{fullData.name}}</extra>",
            }
        )  # fmt: skip
        rows += [[option, message_size(n), number(y)] for n, y in shown.items()]
        certain, seem = one.partings.get(option), one.seem.get(option)
        at = certain if certain and certain.apart is not None else seem
        if at is None or at.apart is None:
            continue
        line = {"color": colour, "dash": "solid" if at is certain else "dot", "width": 2}
        shapes.append(_span_shape(at.apart, at.apart, line))
        if at.together is not None:
            shapes.append(_span_shape(at.together, at.apart, {"width": 0}, colour))
    values = [y for trace in data for y in trace["y"]]
    return Figure(
        name,
        f"{_where(one)}: by {one.axis.name}",
        f"Medians over the runs. Upright line: from this size on at least {APART:g} times as long "
        f"as {one.reference}, in the colour of the slower; dotted: in the medians, which may be "
        f"chance. Band: from the last size within {percent(TOGETHER - 1)} to that line. No line: "
        "they do not part for good.",
        data,
        axes(
            {"type": "log", "dtick": 1, **titled("message size (B)")},
            {"type": "log", **log_ticks(values),
             **titled("bandwidth (MB/s)" if one.rate else "time (us)")},
            shapes=shapes,
            showlegend=True,
        ),
        Table([one.axis.name, "size (B)", unit], rows),
    )  # fmt: skip


def _span_shape(first: float, last: float, line: dict[str, Any], fill: str = "") -> dict[str, Any]:
    """Plotly's rectangle between two sizes over the whole height; on a logarithmic axis a shape
    has the sizes themselves."""
    shape = {
        "type": "rect" if fill else "line", "x0": first, "x1": last,
        "yref": "paper", "y0": 0, "y1": 1, "line": line, "layer": "below",
    }  # fmt: skip
    return {**shape, "fillcolor": fill, "opacity": 0.12} if fill else shape
