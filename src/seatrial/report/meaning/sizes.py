"""The part of the chapter "What it means" on message sizes: where profiles, networks or transports
part, and which is the fastest and the cheapest for which messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from seatrial.analysis.axis import NETWORK, PROFILE, Axis
from seatrial.analysis.conclusion import merged
from seatrial.analysis.crossover import (
    APART,
    STEEP,
    TOGETHER,
    Comparison,
    Fastest,
    Knee,
    Near,
    Parting,
)
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
    repeats_text,
    slower,
)
from seatrial.report.estimates import small_difference, times
from seatrial.report.figures import MARKERS, PALETTE, Figure, Table, axes, label, log_ticks, titled
from seatrial.report.text import message_size
from seatrial.results.wording import MAX_NAMED, number, some

_FIGURES = 6  # of more curves there are the sentences alone


def section(axis: Axis, comparisons: Sequence[Comparison]) -> Section:
    return Section(
        f"Which {axis.name} for which message size",
        _sentences(axis, comparisons),
        [grid] if (grid := _grid(comparisons)) else [],
        figures=figures_name(axis),
    )


def figures_name(axis: Axis) -> str:
    return f"sizes by {axis.name}"


def _curve(comparison: Comparison) -> str:
    return (
        comparison.curve
        if comparison.curve.split(" ")[0] == comparison.check
        else f"{comparison.check} {comparison.curve}"
    )


def place(comparison: Comparison) -> str:
    """What the options of a comparison share."""
    if comparison.axis == PROFILE:
        return f"over {comparison.route} on {comparison.hardware}, {comparison.nodes} nodes"
    over = f"over {comparison.route}" if comparison.axis == NETWORK else f"on {comparison.hardware}"
    return f"{over}, {comparison.nodes} nodes, {comparison.profile}"


def _where(comparison: Comparison) -> str:
    """The curve, and what the options share."""
    return f"{_curve(comparison)} {place(comparison)}"


def curves_of(comparisons: Iterable[Comparison]) -> str:
    """The curves, those of one benchmark together: ``netpipe, imb pingpong and bcast``."""
    names: dict[str, list[str]] = {}
    for comparison in comparisons:
        check, _, pattern = _curve(comparison).partition(" ")
        names.setdefault(check, []).append(pattern)
    listed = []
    for check, patterns in names.items():
        own = list(dict.fromkeys(patterns))
        listed += [f"{check} {own[0]}".rstrip(), *own[1:]]
    return joined(listed)


def _places(comparisons: Sequence[Comparison]) -> str:
    """The curves, and after those of one place what their options share."""
    by_place: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        by_place.setdefault(place(comparison), []).append(comparison)
    return "; ".join(f"{curves_of(names)} {where}" for where, names in by_place.items())


def _sentences(axis: Axis, comparisons: Sequence[Comparison]) -> list[Sentence]:
    return [
        *_faults(axis, comparisons),
        *map(_fastest, fastest_groups(comparisons)),
        *_partings(comparisons),
        *_cheapest(comparisons),
        *_steps(comparisons),
        *_seem(comparisons),
        *_unsure(axis, comparisons),
        *_not_priced(axis, comparisons),
    ]


def _faults(axis: Axis, comparisons: Sequence[Comparison]) -> list[Sentence]:
    return [
        Sentence(
            f"Of {_where(comparison)} it is not known which {axis.name} is the fastest: "
            f"{comparison.fault}.",
            made_from(comparison.inputs), "records of the same sizes, one unit and one hardware",
            "inconclusive", "not known",
        )
        for comparison in comparisons if comparison.fault
    ]  # fmt: skip


#: comparisons of one place with the same answer for a range of sizes
Alike = list[tuple[Comparison, Fastest]]


def fastest_groups(comparisons: Sequence[Comparison]) -> list[Alike]:
    """The curves whose fastest option is known, those with the same answer together."""
    groups: dict[tuple[object, ...], Alike] = {}
    for comparison in comparisons:
        for part in comparison.fastest:
            d = part.decision
            if d.answer == "measure more":
                continue
            # what has words of its own is a sentence of its own
            apart_by = id(part) if d.behind or d.uneven else 0
            key = (place(comparison), part.word, d.answer, tuple(sorted(d.leaders)), d.leaders[0]
                   if d.answer == "best" else "", tuple(sorted(d.worse)), apart_by)  # fmt: skip
            groups.setdefault(key, []).append((comparison, part))
    return list(groups.values())


def _fastest(alike: Alike) -> Sentence:
    comparison, part = alike[0]
    d = part.decision
    curves = [curve for curve, _ in alike]
    text = f"{span(alike)}, {curves_of(curves)} {place(comparison)}: "
    text = text[0].upper() + text[1:]
    basis = made_from(merged(curve.inputs for curve in curves))
    change = "other sizes, or another program"
    if d.answer == "best":
        nexts = []
        for curve, own in alike:
            ahead = own.decision.ahead
            near = min(ahead, key=lambda p: ahead[p].value)
            of = f"in {_curve(curve)} " if len(alike) > 1 else ""
            nexts.append(f"{of}{near} takes {times(ahead[near])} as long")
        text += f"{d.leaders[0]} is the fastest. Of the others the next, {'; '.join(nexts)}."
        return Sentence(text, basis, change, "pass", "best")
    if len(alike) == 1:
        equal = small_difference(d) or f"{joined(d.leaders)} are equally fast"
        text += f"{equal}; {largest(d)}.{slower(d)}"
        text += f" But {d.uneven}." if d.uneven else ""
    else:
        apart = [f"in {_curve(curve)} {percent(own.decision.apart)}" for curve, own in alike]
        text += f"{joined(d.leaders)} are equally fast; they differ, with 95 % confidence, "
        text += f"at most by {'; '.join(apart)}."
        text += f" Worse: {some(d.worse)}." if d.worse else ""
    return Sentence(text, basis, change, "unjudged", "no difference")


def span(alike: Alike) -> str:
    """Such as ``small messages (1 B to 1 KiB)``."""
    first = min(part.first for _, part in alike)
    last = max(part.last for _, part in alike)
    return f"{alike[0][1].word} messages ({bytes_text(first)} to {bytes_text(last)})"


def _alike(texts: Iterable[tuple[Comparison, str]]) -> list[tuple[list[Comparison], str]]:
    """The comparisons of one place of which the same holds."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for comparison, text in texts:
        groups.setdefault((place(comparison), text), []).append(comparison)
    return [(comparisons, text) for (_, text), comparisons in groups.items()]


def _basis(comparisons: Sequence[Comparison]) -> str:
    """Of partings."""
    scatters = [comparison.scatter for comparison in comparisons if comparison.scatter is not None]
    how = f"runs differ by up to {percent(max(scatters))} in the median" if scatters else \
        "each was measured once"  # fmt: skip
    basis = made_from(merged(comparison.inputs for comparison in comparisons))
    return f"{basis}; {how}; all partings of a curve hold together with 95 %"


def _partings(comparisons: Sequence[Comparison]) -> list[Sentence]:
    """Where two options part for certain."""
    known = [
        (comparison, text)
        for comparison in comparisons
        for option, at in comparison.partings.items()
        if (text := _parting(comparison, option, at))
    ]
    return [
        Sentence(f"{_places(of_text)}: {text}", _basis(of_text), "more sizes near the interval")
        for of_text, text in _alike(known)
    ]


def _parting(comparison: Comparison, option: str, at: Parting) -> str:
    if at.apart is None and at.reversed_at is None:
        return ""
    takes_longer = f"{option} takes at least 1.5 times as long as {comparison.reference}"
    first, last = bytes_text(comparison.fastest[0].first), bytes_text(comparison.fastest[-1].last)
    parts = []
    if at.apart == comparison.fastest[0].first:
        parts.append(f"at all measured sizes ({first} to {last}) {takes_longer}")
    elif at.apart == comparison.fastest[-1].last:
        parts.append(f"at {last}, the largest measured size, {takes_longer}")
    elif at.apart is not None:  # what is larger than the last size was not measured
        from_it = f"from {bytes_text(at.apart)} to {last}, the largest measured size,"
        parts.append(f"{from_it} {takes_longer}")
    if at.together is not None:
        limit = f"from {first} to {bytes_text(at.together)}"
        if bytes_text(at.together) == first:
            limit = f"at {first}, the smallest measured size,"
        parts.append(
            f"{limit} {option} and {comparison.reference} are within {percent(TOGETHER - 1)}"
        )
    if at.reversed_at is not None:
        parts.append(f"up to {bytes_text(at.reversed_at)} {option} is the faster one")
    text = f"{'; '.join(parts)}."
    return f"{text} But {comparison.nodes_differ}." if comparison.nodes_differ else text


def _seem(comparisons: Sequence[Comparison]) -> list[Sentence]:
    """Where options part in the medians alone: one sentence for all, as it may be chance."""
    open_ = [
        (comparison, seeming) for comparison in comparisons if (seeming := _seeming(comparison))
    ]
    if not open_:
        return []
    listed = [
        f"{_where(comparison)}: {joined([f'{option} {how}' for option, how in own.items()])}, "
        "compared "
        f"with {comparison.reference}"
        for comparison, own in open_
    ]
    text = f"In the medians an option takes at least {APART:g} times as long as the fastest in "
    if sum(len(own) for _, own in open_) > MAX_NAMED:
        text += (
            f"{_places([comparison for comparison, _ in open_])}: the table has from which size on."
        )
    else:
        text += f"{'; '.join(listed)}."
    text += " This may be chance."
    change = f"more {open_[0][0].unit}s, which narrow the intervals"
    basis = _basis([comparison for comparison, _ in open_])
    return [Sentence(text, basis, change, "inconclusive", "measure more")]


def _seeming(comparison: Comparison) -> dict[str, str]:
    """Option -> from which size on it takes longer in the medians, if that is not certain."""
    return {
        option: f"from {bytes_text(seem.apart)} on{_before(seem, option)}"
        for option, at in comparison.partings.items()
        if at.apart is None and (seem := comparison.seem[option]).apart is not None
    }


def _before(seem: Parting, option: str) -> str:
    """What the medians of two curves do before they part."""
    parts = []
    if seem.together is not None:
        parts.append(f"last within {percent(TOGETHER - 1)} at {bytes_text(seem.together)}")
    if seem.reversed_at is not None:
        parts.append(f"{option} is the faster one last at {bytes_text(seem.reversed_at)}")
    return f" ({'; '.join(parts)})" if parts else ""


def _steps(comparisons: Sequence[Comparison]) -> list[Sentence]:
    """Where a time grows by far more than the size, alike in all runs of an option."""
    steps: dict[float, list[tuple[Comparison, float]]] = {}  # size -> curves and factors
    for comparison in comparisons:
        for at in comparison.knees.values():
            if at.is_step:
                steps.setdefault(at.size, []).append((comparison, at.factor))
    if not steps:
        return []
    listed = []
    for size, pairs in sorted(steps.items()):
        low, high = (number(f(factor for _, factor in pairs), 3) for f in (min, max))
        factors = f"{low} to {high}" if low != high else low
        ends = f"from {bytes_text(size)} to {bytes_text(2 * size)} {factors} times"
        listed.append(f"{ends} in {_places([comparison for comparison, _ in pairs])}")
    text = f"The time jumps between a size and its double: {'; '.join(listed)}."
    known = {
        id(comparison): comparison.inputs for pairs in steps.values() for comparison, _ in pairs
    }
    basis = f"{made_from(merged(known.values()))}; steps of more than {number(STEEP, 2)} times, on "
    basis += f"which the runs agree; the table has the {comparisons[0].axis.name} of each"
    return [Sentence(text, basis, "more sizes near that step")]


def _rise(at: Knee) -> str:
    factor, least, most = (number(x, 3) for x in (at.factor, at.least, at.most))
    return f"{factor} times ({least} to {most})" if least != most else f"{factor} times"


def _cheapest(comparisons: Sequence[Comparison]) -> list[Sentence]:
    """For each range of sizes the cheapest option that is about as fast as the fastest."""
    known = []
    for comparison in comparisons:
        parts = [(part, part.near) for part in comparison.fastest if part.near and part.near.cost]
        if not parts:
            continue
        first = parts[0][1]
        listed = "; ".join(
            f"{part.word} messages: {near.cheapest or _not_known(near)}" for part, near in parts
        )
        usd = ", ".join(f"{option} {number(price)} USD" for option, price in first.prices.items())
        text = f"the cheapest {comparison.axis.name} that takes at most {percent(TOGETHER - 1)} "
        text += f"longer than the fastest. {listed[0].upper()}{listed[1:]}. ({first.cost}: {usd}.)"
        known.append((comparison, text))
    sentences = []
    for of_text, text in _alike(known):
        certain = all(part.near.cheapest for part in of_text[0].fastest if part.near)
        style = ("pass", "cheapest") if certain else ("inconclusive", "measure more")
        change = (
            "other prices" if certain else f"more {of_text[0].unit}s, which narrow the intervals"
        )
        basis = made_from(merged(comparison.inputs for comparison in of_text))
        sentences.append(Sentence(f"{_places(of_text)}: {text}", basis, change, *style))
    return sentences


def _unsure(axis: Axis, comparisons: Sequence[Comparison]) -> list[Sentence]:
    unsure = [
        (comparison, part.decision)
        for comparison in comparisons
        for part in comparison.fastest
        if part.decision.answer == "measure more"
    ]
    if not unsure:
        return []
    needs = max(d.needs or 0 for _, d in unsure)
    takes = "; ".join(dict.fromkeys(d.takes for _, d in unsure if d.takes))
    # of several numbers of runs the largest
    reasons = dict.fromkeys(d.reason for _, d in unsure if d.takes or (d.needs or 0) == needs)
    curves = list(
        {id(comparison): comparison for comparison, _ in unsure}.values()
    )  # which have several ranges
    text = f"Of {_places(curves)} it is not known which {axis.name} is the fastest: "
    text += f"{'; '.join(reasons)}."
    more = repeats_text(needs, unsure[0][1].unit, axis.name) if needs else ""
    change = "; ".join(filter(None, [more, takes]))
    basis = made_from(merged(curve.inputs for curve in curves))
    return [Sentence(text, basis, change, "inconclusive", "measure more")]


def _not_priced(axis: Axis, comparisons: Sequence[Comparison]) -> list[Sentence]:
    compared = [comparison for comparison in comparisons if comparison.fastest]
    priced = any(
        part.near and part.near.cost for comparison in compared for part in comparison.fastest
    )
    if axis != NETWORK or not compared or priced:
        return []
    text = "Which network is the cheapest for which size is not known: cost not declared."
    change = "a price of each network (machine.costs with network in site.yaml)"
    basis = made_from(merged(comparison.inputs for comparison in compared))
    return [Sentence(text, basis, change, "inconclusive", "not known")]


def _not_known(beside: Near) -> str:
    maybe = beside.open or beside.possible
    return f"not known ({joined(maybe)} may or may not be as fast as that)"


def _grid(comparisons: Sequence[Comparison]) -> Grid | None:
    """All curves and options that part or have a step, also those of which it may be chance."""
    rows = []
    for comparison in comparisons:
        for option in comparison.medians:
            at, seem, knee = (
                comparison.partings.get(option),
                comparison.seem.get(option),
                comparison.knees.get(option),
            )
            certain = at is not None and at.apart is not None
            shown = at if certain else seem
            step = knee if knee and knee.factor >= STEEP else None
            if (shown is None or shown.apart is None) and step is None:
                continue
            parting = Cell("–", "quiet")
            if shown is not None and shown.apart is not None:
                note = "" if certain else "in the medians, may be chance"
                parting = Cell(f"from {bytes_text(shown.apart)} on", note=note)
            rise = Cell("–", "quiet")
            if step:
                note = "" if step.is_step else "the runs do not agree on it" if step.seen_again \
                    else "measured once"  # fmt: skip
                ends = f"from {bytes_text(step.size)} to {bytes_text(2 * step.size)}"
                rise = Cell(f"{_rise(step)}, {ends}", note=note)
            rows.append(
                [Cell(_where(comparison)), Cell(option), Cell(comparison.reference), parting, rise]
            )
    if not rows:
        return None
    header = ["curve", comparisons[0].axis.name, "fastest of the largest messages",
              f"{APART:g} times as long as that", "largest step of the time"]  # fmt: skip
    return Grid("Where curves part, and their largest steps", header, rows, folded=True)


def size_figures(axis: Axis, comparisons: Sequence[Comparison]) -> list[Figure]:
    """A picture of each curve: its options, and where each parts from the fastest. Of curves of one
    benchmark of which the same is known, the first."""
    groups: dict[object, list[Comparison]] = {}
    for comparison in comparisons:
        if comparison.medians:
            known = (
                *((o, at.apart, at.reversed_at) for o, at in sorted(comparison.partings.items())),
                *((part.word, part.decision.answer, part.decision.leaders)
                  for part in comparison.fastest if part.decision.answer != "measure more"),
            )  # fmt: skip
            groups.setdefault(
                (comparison.check, place(comparison), comparison.rate, known), []
            ).append(comparison)
    return [
        _figure(f"sizes-{axis.name}-{i}", comparison, alike)
        for i, (comparison, *alike) in enumerate(list(groups.values())[:_FIGURES])
    ]


def _figure(name: str, comparison: Comparison, alike: Sequence[Comparison]) -> Figure:
    unit = "MB/s" if comparison.rate else "us"
    data: list[dict[str, Any]] = []
    rows: list[list[str]] = []
    shapes: list[dict[str, Any]] = []
    for i, (option, points) in enumerate(comparison.medians.items()):
        colour = PALETTE[i % len(PALETTE)]
        shown = {n: n / us if comparison.rate else us for n, us in points.items()}
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
        certain, seem = comparison.partings.get(option), comparison.seem.get(option)
        at = certain if certain and certain.apart is not None else seem
        if at is None or at.apart is None:
            continue
        line = {"color": colour, "dash": "solid" if at is certain else "dot", "width": 2}
        shapes.append(_span_shape(at.apart, at.apart, line))
        if at.together is not None:
            shapes.append(_span_shape(at.together, at.apart, {"width": 0}, colour))
    values = [y for trace in data for y in trace["y"]]
    same = f" The same holds of {curves_of(alike)}." if alike else ""
    return Figure(
        name,
        f"{_where(comparison)}: by {comparison.axis.name}",
        f"Medians over the runs. Upright line: from this size on at least {APART:g} times as long "
        f"as {comparison.reference}, in the colour of the slower; dotted: in the medians, which "
        "may be "
        f"chance. Band: from the last size within {percent(TOGETHER - 1)} to that line. No line: "
        f"they do not part for good.{same}",
        data,
        axes(
            {"type": "log", "dtick": 1, **titled("message size (B)")},
            {"type": "log", **log_ticks(values),
             **titled("bandwidth (MB/s)" if comparison.rate else "time (us)")},
            shapes=shapes,
            showlegend=True,
        ),
        Table([comparison.axis.name, "size (B)", unit], rows),
    )  # fmt: skip


def _span_shape(first: float, last: float, line: dict[str, Any], fill: str = "") -> dict[str, Any]:
    """Plotly's rectangle between two sizes over the whole height; on a logarithmic axis a shape
    has the sizes themselves."""
    shape = {
        "type": "rect" if fill else "line", "x0": first, "x1": last,
        "yref": "paper", "y0": 0, "y1": 1, "line": line, "layer": "below",
    }  # fmt: skip
    return {**shape, "fillcolor": fill, "opacity": 0.12} if fill else shape
