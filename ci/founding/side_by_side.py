"""Published figures and the lab's own side by side: a page in Markdown and a picture.

What agrees, how far, and where it does not and why, is said of every finding.
"""

from __future__ import annotations

import html
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from published import NO_EFFECT, WITHIN, Comparison, Outcome, Published

from seatrial.report.text import number

WORDS = {
    "size": "in size",
    "direction": "in direction only",
    "no": "no",
    "by construction": "by construction",
    "not comparable": "not comparable",
    "unmeasured": "not measured",
}
COLOURS = {
    "size": "#009e73",
    "direction": "#0072b2",
    "no": "#d55e00",
    "by construction": "#7f7f7f",
    "unmeasured": "#7f7f7f",
}
LEGEND = {
    "size": "agrees in size",
    "direction": "in direction only",
    "no": "does not agree",
    "by construction": "by construction, not counted",
}
COUNTED = ("size", "direction", "no")
AIM = 0.75  # of the findings whose size is published
RULES = (
    "An effect is the ratio of two figures, each the median of its runs. An effect below "
    f"{100 * NO_EFFECT:.0f} %, either way, counts as none. "
    "No effect agrees with no effect alone. Two effects agree in size if the logarithm of one is "
    f"at most {WITHIN:.0f} times that of the other. Message sizes between which something happens "
    f"agree in size if their upper ends are at most a factor of {WITHIN:.0f} apart, and in "
    "direction if it happens elsewhere. Where a figure was measured several times, the range is "
    "that of all pairs of runs, and the finding counts as what the worst pair gives."
)


def markdown(published: Published, outcomes: Sequence[Outcome], heading: str) -> str:
    """The count and the rules, then for each source a table of its findings and the reasons."""
    lines = [heading.rstrip(), "", f"{count(outcomes)} {aim(outcomes)}".rstrip(), ""]
    lines += [f"{RULES} {repeated(outcomes)}"]
    if published.trials:
        lines += ["", "The trials that measure the figures:", "", "```"]
        lines += [f"./seatrial trial {options}" for options in published.trials]
        lines += ["```"]
    for name, title in published.sources.items():
        own = [outcome for outcome in outcomes if outcome.comparison.source == name]
        lines += _of_source(title, own) if own else []
    lines += ["", "## Trials of this page", "", *_trials(outcomes)]
    return "\n".join(lines) + "\n"


def repeated(outcomes: Iterable[Outcome]) -> str:
    """How far the runs of a figure differ, of the figures that have several."""
    values = {
        figure.figure: figure.values
        for each in outcomes
        for figure in each.measured
        if figure.values
    }
    several = {figure: own for figure, own in values.items() if len(own) > 1 and min(own) > 0}
    notes = (
        "[Figures of the virtual lab](dev/virtual-lab-figures.md) say how far they repeated in "
        "other trials."
    )
    if not several:
        return (
            f"Each figure was measured once, so this page does not show how far it repeats. {notes}"
        )
    apart = {figure: max(own) / min(own) - 1 for figure, own in several.items()}
    most = max(apart, key=lambda figure: apart[figure])
    return (
        f"{len(several)} of the {len(values)} figures have several runs. The largest run of a "
        f"figure exceeds its smallest by {_percent(statistics.median(apart.values()))} in the "
        f"median over these figures, and by {_percent(apart[most])} at most ({most}). {notes}"
    )


def _percent(fraction: float) -> str:
    return f"{number(100 * fraction, 2)} %"


def _of_source(title: str, outcomes: Sequence[Outcome]) -> list[str]:
    lines = ["", f"## {title}", "", count(outcomes), ""]
    lines += ["| finding | published | here | site | agrees |", "| --- | --- | --- | --- | --- |"]
    lines += [_row(outcome) for outcome in outcomes]
    reasons = [
        f"- **{outcome.comparison.finding}**: {why}"
        for outcome in outcomes
        if (why := _reason(outcome))
    ]
    return [*lines, "", *reasons] if reasons else lines


def _trials(outcomes: Iterable[Outcome]) -> list[str]:
    """The trials that the figures are of, with the number of findings that need each."""
    number_of = Counter(
        trial
        for outcome in outcomes
        for trial in {f"{each.day} {each.figure.site}, {each.trial}" for each in outcome.measured}
    )
    return [
        f"- {trial}: {findings} finding{'s' if findings > 1 else ''}"
        for trial, findings in sorted(number_of.items())
    ]


def count(outcomes: Sequence[Outcome]) -> str:
    """How many findings agree, in sentences. What agrees by construction is not counted.

    A finding of which the source gives the direction alone cannot agree in size.
    """
    number_of = Counter(outcome.word for outcome in outcomes)
    counted = sum(number_of[word] for word in COUNTED)
    of_direction = Counter(outcome.word for outcome in outcomes if outcome.comparison.direction)
    alone = of_direction["direction"] + of_direction["no"]
    sized = number_of - of_direction
    others = [
        f"{number_of[word]} {text}"
        for word, text in (
            ("by construction", "by construction"),
            ("not comparable", "not comparable"),
            ("unmeasured", "not measured"),
        )
        if number_of[word]
    ]
    more = f" Not counted: {', '.join(others)}." if others else ""
    if not counted:
        return f"No comparable finding was measured.{more}"
    return (
        f"Comparable findings: {counted}. Their size is published: {counted - alone}; here agree "
        f"in size: {sized['size']}; in direction only: {sized['direction']}; not: {sized['no']}. "
        f"Only their direction is published: {alone}; here agree: {of_direction['direction']}; "
        f"not: {of_direction['no']}.{more}"
    )


def aim(outcomes: Sequence[Outcome]) -> str:
    """How many findings should agree in size, and whether they do; empty if none is comparable."""
    sized = [
        outcome
        for outcome in outcomes
        if outcome.word in COUNTED and not outcome.comparison.direction
    ]
    least = math.ceil(AIM * len(sized))
    reached = sum(outcome.word == "size" for outcome in sized) >= least
    word = "reached" if reached else "not reached"
    return f"The aim, {least} in size, three quarters, is {word}." if sized else ""


def _reason(outcome: Outcome) -> str:
    """Why it is not counted or does not agree; on what it depends, also where it agrees."""
    comparison = outcome.comparison
    if outcome.agrees == "unmeasured" and not comparison.not_comparable:
        return ""
    uncounted = comparison.by_construction if outcome.word == "by construction" else ""
    texts = (comparison.not_comparable, uncounted, comparison.why, comparison.note)
    return " ".join(text.strip() for text in texts if text)


def _row(outcome: Outcome) -> str:
    comparison = outcome.comparison
    sites = ", ".join(dict.fromkeys(side.measured.site for side in comparison.sides)) or "–"
    of_direction = outcome.word == "direction" and comparison.direction
    word = "in direction, which alone is published" if of_direction else WORDS[outcome.word]
    cells = [comparison.finding, _there(comparison), _here(outcome), sites, word]
    return f"| {' | '.join(cells)} |"


def _there(comparison: Comparison) -> str:
    if comparison.not_comparable:
        return comparison.published
    if comparison.sizes:
        return _between(comparison.sizes.from_B, comparison.sizes.to_B)
    first, second = comparison.sides
    if comparison.direction:
        way = "higher" if comparison.direction == "up" else "lower"
        return f"{second.name} is {way} than {first.name}"
    if first.published is None or second.published is None:
        return f"{second.name} is {_times(comparison.published_ratio)} {first.name}"
    return _pair((first.name, first.published), (second.name, second.published), comparison.unit)


def _here(outcome: Outcome) -> str:
    if outcome.sizes:
        return _between(*outcome.sizes)
    if outcome.ratio is None:
        return "–"
    values = [
        (side.name, own.median)
        for side, own in zip(outcome.comparison.sides, outcome.measured, strict=True)
    ]
    runs = [len(own.values) for own in outcome.measured]
    words = " and ".join(map(str, dict.fromkeys(runs)))
    several = f"; {words} runs: {outcome.low:.2f} to {outcome.high:.2f} x" if max(runs) > 1 else ""
    return _pair(values[0], values[1], outcome.comparison.unit) + several


def _between(low: float, high: float) -> str:
    """Message sizes; ``low`` is 0 where there is none before."""
    if low == high or not low:
        return f"{high:.0f} B"
    return f"between {low:.0f} and {high:.0f} B"


def _pair(first: tuple[str, float], second: tuple[str, float], unit: str) -> str:
    texts = [f"{name} {number(value)}" for name, value in (first, second)]
    return f"{texts[0]}, {texts[1]} {unit}".rstrip() + f" ({_times(second[1] / first[1])})"


def _times(ratio: float) -> str:
    return f"{ratio:.2f} x"


LEFT, WIDTH, ROW, TOP = 510, 430, 44, 74  # pixels: room for names, the scale, a row, the heading
GREY = "#5b6673"


def picture(outcomes: Sequence[Outcome]) -> str:
    """SVG: for each effect a line from no effect (1) to the published ratio, and to the lab's.

    The scale is logarithmic: a factor of 2 is as far to the left as to the right.
    """
    shown = [
        (outcome, outcome.comparison.published_ratio, outcome.ratio)
        for outcome in outcomes
        if outcome.ratio is not None
        and outcome.word in COLOURS
        and not math.isnan(outcome.comparison.published_ratio)
    ]
    reach = max([abs(math.log2(ratio)) for _, *two in shown for ratio in two] + [1.0]) * 1.08
    height = TOP + ROW * len(shown) + 34

    def x(ratio: float) -> float:
        return LEFT + WIDTH * (0.5 + math.log2(ratio) / (2 * reach))

    heading = "Effect of a setting: published (hollow) and in the virtual-time lab (filled)"
    parts = [
        _tag("rect", width=LEFT + WIDTH + 30, height=height, fill="#ffffff"),
        _tag("text", heading, x=12, y=22, font_weight=600),
    ]
    at = 12.0
    for word, text in LEGEND.items():
        parts.append(_tag("circle", cx=at + 5, cy=40, r=5, fill=COLOURS[word]))
        parts.append(_tag("text", text, x=at + 15, y=44.5, fill=GREY))
        at += 40 + 7 * len(text)
    for step in range(-math.floor(reach), math.floor(reach) + 1):
        at = x(2.0**step)
        stroke = "#e3e7ec" if step else GREY
        parts.append(_tag("line", x1=at, x2=at, y1=TOP - 12, y2=height - 30, stroke=stroke))
        power = f"x {2**step}" if step >= 0 else f"x 1/{2**-step}"
        parts.append(_tag("text", power, x=at, y=height - 12, text_anchor="middle", fill=GREY))
    for index, (outcome, there, here) in enumerate(shown):
        y = TOP + ROW * index + 12
        colour = COLOURS[outcome.word]
        parts.append(_tag("text", outcome.comparison.finding, x=12, y=y + 8))
        for ratio, at, stroke, fill in (
            (there, y, GREY, "#ffffff"),
            (here, y + 12, colour, colour),
        ):
            parts.append(
                _tag("line", x1=x(1), x2=x(ratio), y1=at, y2=at, stroke=stroke, stroke_width=2.5)
            )
            parts.append(
                _tag("circle", cx=x(ratio), cy=at, r=5, fill=fill, stroke=stroke, stroke_width=2)
            )
    box = f"0 0 {LEFT + WIDTH + 30} {height}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" font-size="13"'
    return "\n".join([f'{head} font-family="system-ui, sans-serif">', *parts, "</svg>"]) + "\n"


def _tag(name: str, text: str = "", **attributes: float | str) -> str:
    """An SVG element; coordinates to a tenth of a pixel."""
    shown = " ".join(
        f'{key.replace("_", "-")}="{value:.1f}"' if isinstance(value, float)
        else f'{key.replace("_", "-")}="{value}"'
        for key, value in attributes.items()
    )  # fmt: skip
    return f"<{name} {shown}>{html.escape(text)}</{name}>"
