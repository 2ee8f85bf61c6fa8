"""The part of the chapter "What it means" on how much the applications communicate."""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.analysis.communication import Relation, Share
from seatrial.analysis.conclusion import CONFIDENCE
from seatrial.analysis.decision import SMALLEST
from seatrial.analysis.response import BASE
from seatrial.report.chapter import Cell, Grid, Section, Sentence, joined, made_from, percent
from seatrial.report.estimates import bounded, percent_with_interval, times
from seatrial.results.wording import number, plural, some, volume


def section(relations: Sequence[Relation], shares: Sequence[Share]) -> Section:
    """Each relation of shares to responses, and each application's share."""
    return Section(
        "How much the applications communicate",
        [*map(_relation, relations), *_shares(shares)],
        [grid] if (grid := _share_grid(shares)) else [],
        "shares",
    )


def _shares(shares: Sequence[Share]) -> list[Sentence]:
    """Of each application under the base, or the first profile, on the most nodes."""
    first: dict[tuple[str, str, str], dict[int, Share]] = {}
    for share in shares:
        by_nodes = first.setdefault((share.application, share.route, share.hardware), {})
        if share.nodes not in by_nodes or share.profile == BASE:
            by_nodes[share.nodes] = share
    most = [own.pop(max(own)) for own in first.values()]
    pairs = sorted(zip(most, first.values(), strict=True), key=lambda pair: -pair[0].share.value)
    return [_share(largest, [own[n] for n in sorted(own, reverse=True)]) for largest, own in pairs]


def _share(share: Share, on_fewer: Sequence[Share]) -> Sentence:
    """``on_fewer``: the same application on fewer nodes."""
    text = (
        f"{share.application} (over {share.route}, {share.nodes} nodes, {share.profile}) is in MPI "
        "for "
        f"{percent_with_interval(share.share)} of its run time"
    )
    top = [f"{call} {percent(part)}" for call, part in share.by_call.items() if part >= 0.1][:3]
    text += f", most of it in {joined(top)}." if top else "."
    text += f" A rank makes {number(share.calls_per_s, 3)} calls per second"
    if share.message_B is not None:
        text += f"; those that move data move {volume(share.message_B)} on average"
    text += "."
    if on_fewer:
        listed = [f"{percent(s.share.value)} on {s.nodes}" for s in on_fewer]
        text += f" On fewer nodes: {', '.join(listed)}."
    key = word = ""
    if share.flagged and share.slowdown:
        slower = (
            "so the share is of a slower run" if share.slowdown.low > 1 else "which may be chance"
        )
        text += f" With the library the run took {times(share.slowdown)} as long, {slower}."
        key, word = "inconclusive", "doubtful"
    elif share.slowdown is None:
        text += " Whether the library slows the run is not known."
    if share.of_timed and share.timed is not None:
        text += (
            f" The program's own figure times {percent(share.timed)} of this run; of that part "
            f"{percent_with_interval(share.of_timed)} is in MPI."
        )
    elif share.of_setup and share.timed is not None:
        low, high = share.bounds
        text += (
            " Most of this run is set-up and checks: the program's own figure times "
            f"{percent(share.timed)} of it, of which {number(100 * low, 2)} to {percent(high)} can "
            "be in MPI. So the share counts for no relation to the responses."
        )
        key, word = "inconclusive", "mostly set-up"
    how = f"median over {share.unit}s; time in MPI over run time, summed over the ranks, waiting "
    how += "included"
    change = "another class or number of nodes; waiting for a processor counts as communication"
    return Sentence(text, f"{made_from(share.inputs)}; {how}", change, key, word)


def _relation(relation: Relation) -> Sentence:
    name = (
        f"{relation.profile} against {relation.base}, over {relation.route} on {relation.hardware}"
    )
    count = len(relation.points)
    basis = f"{made_from(relation.inputs)}; " + "; ".join(
        f"{app}: {percent(share.value)} in MPI, {number(ratio.value, 3)} times"
        for app, share, ratio in relation.points
    )
    basis += f"; responses below {percent(SMALLEST)} are equal"
    change = "more applications, each measured several times"
    if relation.left_out:
        listed = [f"{s.application} ({percent(s.timed or 0)})" for s in relation.left_out]
        basis += f"; left out, as their figures time less than half of the run: {some(listed)}"
        change += "; runs in which mpi_time finds what the program times, or larger problems"
    if relation.correlation is None:
        text = f"{name}: all {count} applications communicate, or respond, alike."
        return Sentence(text, basis, change)
    r = number(relation.correlation, 2)
    of = f"{count} applications"
    if relation.programs < count:
        of = f"{plural(relation.programs, 'program')} in {of}; the classes of one count once"
    if relation.p is None:
        text = (
            f"{name}: share of communication and response have the rank correlation {r} over "
            f"{of}. Fewer than five programs can show no relation."
        )
        return Sentence(text, basis, change, "inconclusive", "measure more")
    sure = f"rank correlation {r} over {of}, p = {number(relation.p, 2)}"
    if relation.p > 1 - CONFIDENCE:
        text = f"{name}: no relation of the share of communication to the response shows ({sure})."
        return Sentence(text, basis, change, "unjudged", "no relation")
    more = "more" if relation.correlation > 0 else "less"
    text = f"{name}: the more an application communicates, the {more} it gains ({sure})."
    return Sentence(text, basis, change, "pass", "relation")


def _share_grid(shares: Sequence[Share]) -> Grid | None:
    """Applications by profiles, of those with several; None if there is none."""
    profiles = list(dict.fromkeys(share.profile for share in shares))
    rows: dict[str, dict[str, Share]] = {}
    for share in shares:
        rows.setdefault(f"{share.application}, {share.route}, {share.nodes} nodes", {})[
            share.profile
        ] = share
    rows = {name: by_profile for name, by_profile in rows.items() if len(by_profile) > 1}
    if not rows:
        return None
    made = [
        [
            Cell(name),
            *(
                _share_cell(by_profile[p]) if p in by_profile else Cell("not measured", "quiet")
                for p in profiles
            ),
        ]
        for name, by_profile in rows.items()
    ]
    return Grid("Share of the run time in MPI", ["application", *profiles], made)


def _share_cell(share: Share) -> Cell:
    notes = ["slowed by the library"] if share.flagged else []
    if bounded(share.share):
        return Cell(percent_with_interval(share.share), note="; ".join(notes))
    notes.insert(0, "no interval")
    return Cell(f"{number(100 * share.share.value, 3)} %", note="; ".join(notes))
