"""The part of the chapter "What it means" on cases that communicate alike."""

from __future__ import annotations

from seatrial.analysis.groups import FEATURES, Groups
from seatrial.report.chapter import Section, Sentence, joined, made_from
from seatrial.results.wording import number, plural, some


def section(groups: Groups | None) -> Section:
    """The groups of cases; empty without any."""
    return Section("Cases that communicate alike", _groups(groups), figures="groups")


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
