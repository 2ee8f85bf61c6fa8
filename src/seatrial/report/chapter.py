"""What the parts of the chapter "What it means" are made of: sentences, tables, words for figures.

The parts are ``meaning`` and the modules that it puts together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from seatrial.analysis.conclusion import Estimate, Inputs, Unit
from seatrial.analysis.decision import SMALLEST, Decision
from seatrial.report.estimates import bounded, times, with_interval
from seatrial.report.text import message_size
from seatrial.results.wording import number, plural, some

_BETWEEN = "; "  # the parts of a basis


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
    basis: str = ""  # of each of its sentences
    change: str = ""  # of each of its sentences
    table_first: bool = False  # before the sentences

    @property
    def open(self) -> bool:
        """Whether the sentences are of what is not known, so that a reader needs what it takes."""
        return all(sentence.key == "inconclusive" for sentence in self.sentences)

    @property
    def rests(self) -> bool:
        """Whether there is something to say of what the sentences rest on."""
        return bool(self.basis or (self.change and not self.open)) or any(
            sentence.basis or (sentence.change and sentence.key != "inconclusive")
            for sentence in self.sentences
        )

    def with_shared_words(self) -> Section:
        """The section with what all its sentences have in common said once: what would change them,
        and the parts of their basis."""
        if len(self.sentences) < 2:
            return self
        changes = {sentence.change for sentence in self.sentences}
        change = changes.pop() if len(changes) == 1 else ""
        bases = [sentence.basis.split(_BETWEEN) for sentence in self.sentences]
        common = [part for part in bases[0] if part and all(part in basis for basis in bases)]
        sentences = [
            replace(
                sentence,
                basis=_BETWEEN.join(part for part in basis if part not in common),
                change="" if change else sentence.change,
            )
            for sentence, basis in zip(self.sentences, bases, strict=True)
        ]
        return replace(self, sentences=sentences, basis=_BETWEEN.join(common), change=change)


def made_from(inputs: Inputs) -> str:
    return (
        f"{plural(inputs.samples, 'sample')} of {plural(len(inputs.cases), 'case')}, trial"
        f"{'s' if len(inputs.trials) > 1 else ''} {some(inputs.trials)}"
    )


def bytes_text(size: float) -> str:
    """Such as ``100 B`` and ``64 KiB``."""
    return f"{message_size(size)} B".replace("i B", "iB")


def repeats_text(count: int, unit: Unit = "repeat", what: str = "profile") -> str:
    """What it takes to have so many samples of each profile, or other option."""
    text = f"{count} {unit}s of each {what} (seatrial trial --{unit}s {count})"
    return f"{text}, in one trial or several" if unit == "round" else text


def percent(fraction: float) -> str:
    return f"{number(100 * fraction, 2)} %"


def joined(names: Sequence[str]) -> str:
    """Such as ``a, b and c``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def largest(d: Decision) -> str:
    """Of leaders: the largest difference that the intervals allow."""
    return f"{joined(d.leaders)} differ by at most {percent(d.apart)}, with 95 % confidence"


def slower(d: Decision) -> str:
    """The options that are worse, or ""."""
    if not d.worse:
        return ""
    far = sorted(d.worse, key=lambda p: -d.ahead[p].value)
    listed = [f"{p} ({d.leaders[0]} has {times(d.ahead[p])} its performance)" for p in far]
    return f" Worse: {some(listed)}."


def ratio_cell(estimate: Estimate, *, good: int = 1, text: str = "") -> Cell:
    """A ratio in words and a colour, under ``text`` if there is some.

    ``good``: 1 if a ratio above 1 is better, -1 if it is worse, 0 for neither.
    """
    ratio, word, style = with_interval(estimate, " times"), "", ""
    if not bounded(estimate):
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
