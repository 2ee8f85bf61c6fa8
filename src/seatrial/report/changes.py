"""What changed over the nights, in words. It finds nothing itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

from seatrial.history.accept import Key, NewLevel, joined
from seatrial.history.changes import Change, Condition, Finding, better_of, worse_of
from seatrial.history.conditions import NODES, is_of_case, is_setting
from seatrial.report.text import quantity
from seatrial.results.baseline import FLOOR
from seatrial.results.figures import DISTURBED_PERCENT
from seatrial.results.requirements import Accepted
from seatrial.results.wording import number, plural, some

_DAY = "%Y-%m-%d"
_PARTS = 5  # metrics that the doubts about a level name
#: in words why there is no figure any more
_LOST = {
    "zero": "fell to 0",
    "missing": "no figure any more",
    "unit": "another unit since then, not compared with the older figures",
}


def headline(finding: Finding) -> str:
    """One sentence, such as ``2026-11-03-5f2a: node n3: 6 series worse, by 8.1 % at most``."""
    return f"{finding.id}: {subject(finding)}: {effect(finding)}"


def subject(finding: Finding) -> str:
    """What the changes have in common."""
    scope = finding.scope
    if finding.swapped:
        gone, new = (", ".join(nodes) for nodes in finding.swapped)
        several = len(finding.swapped[0]) > 1
        return f"{f'nodes {gone} were' if several else f'node {gone} was'} swapped for {new}"
    value = "value of " if is_setting(scope.name) else ""
    other = "on other nodes" if scope.name == NODES else f"with another {value}{scope.name}"
    return {
        "": "several series", "site": "the whole site", "series": scope.name,
        "condition": f"cases {other}",
    }.get(scope.kind, f"{scope.kind} {scope.name}")  # fmt: skip


def effect(finding: Finding) -> str:
    """How many series became worse and better, and by how much."""
    if not finding.changes:
        return "no figure changed"
    parts = []
    # A version of the whole site need not change all figures.
    of = f" of {finding.compared}" if finding.scope.kind == "site" else ""
    single = finding.scope.kind == "series"
    for kind, text in _LOST.items():
        if several := [change for change in finding.changes if change.lost == kind]:
            parts.append(text if single else f"{len(several)}{of} series: {text}")
    for word, several in (("worse", finding.worse), ("better", finding.better)):
        if several := [change for change in several if not change.lost]:
            most = largest(several)
            count = "" if single else f"{len(several)}{of} series "
            drifts = (
                ""
                if not all(change.drift for change in several)
                else "drifts "
                if single
                else "drift "
            )
            by = f"{size(most)}{' at most' if len(several) > 1 else ''}"
            parts.append(f"{count}{drifts}{word} by {by}")
    if several := [change for change in finding.informative if not change.lost]:
        parts.append(f"{len(several)}{of} informative series changed")
    return ", ".join(parts)


def largest(changes: Sequence[Change]) -> Change:
    """The largest as it is printed. In ``Finding.changes`` half and twice as much are the same."""
    return max(changes, key=lambda change: abs(change.ratio - 1))


def size(change: Change) -> str:
    """The change of level in per cent, without its sign."""
    return f"{number(100 * abs(change.ratio - 1), 2)} %"


def brief(change: Change) -> str:
    """``worse by 8.1 %``, or why there is no figure any more."""
    if change.lost:
        return _LOST[change.lost]
    return f"{'changed' if change.informative else word(change)} by {size(change)}"


def after(change: Change) -> str:
    """The new level: ``32.6 us``, or that there is none."""
    if change.lost in ("", "zero"):
        return quantity(change.after.value, change.series.unit)
    return f"figures in {change.unit}" if change.lost == "unit" else "no figure"


def levels(change: Change) -> str:
    """``from 30 us (29.9 to 30.1) to 32.6 us (32.4 to 32.8)``."""
    unit = change.series.unit
    ends = [f" ({number(x.low)} to {number(x.high)})" for x in (change.before, change.after)]
    new = after(change) + ("" if change.lost else ends[1])
    return f"from {quantity(change.before.value, unit)}{ends[0]} to {new}"


def course(change: Change) -> str:
    """What one series did, without its name."""
    drift = "drifts " if change.drift else ""
    later = "" if change.lasts else "; a later change followed"
    if change.back:
        later = f"; measured again since {change.back.started:{_DAY}}"
    return f"{drift}{levels(change)}, {word(change)}{later}"


def word(change: Change) -> str:
    if change.lost == "unit":
        return "not compared"
    if change.informative:
        return "informative"
    return "worse" if change.gain < 0 else "better"


def acceptance(finding: Finding, accepted: Accepted) -> str:
    """Who accepted a finding, and what became worse only later."""
    text = f"accepted on {accepted.when} by {accepted.by}: {accepted.reason}"
    later = joined(finding, accepted)
    return text + (f"; but {len(later)} series of it became worse later" if later else "")


def courses(level: NewLevel) -> dict[Key, str]:
    """What each series of an accepted level did, such as ``before 30 us: worse by 8.1 %``."""
    return {
        key: f"before {quantity(change.before.value, change.series.unit)}: "
        f"{word(change)} by {size(change)}"
        for key, change in level.changes.items()
    }


def doubts(level: NewLevel) -> list[str]:
    """Why a level may be that of a fault: of one node or link, of some locations, or much worse."""
    scope, changes = level.finding.scope, list(level.changes.values())
    worse, better = worse_of(changes), better_of(changes)
    lines = []
    if scope.kind in ("node", "nodes", "link"):
        lines.append(f"the level is of {scope.kind} {scope.name} only: if that has a fault, the "
                     "fault passes from now on")  # fmt: skip
    for part in level.parts[:_PARTS]:
        of = len(part.changed) + len(part.others)
        text = f"{part.name}: only {len(part.changed)} of {of} locations have the new level"
        lines.append(f"{text}, and not {some(part.others)}")
    if (more := len(level.parts) - _PARTS) > 0:
        lines.append(f"{plural(more, 'more metric')} of which only some locations have it")
    if much := [change for change in worse if abs(change.ratio - 1) > FLOOR]:
        most = largest(much)
        by = f"{size(most)}{' at most' if len(much) > 1 else ''}"
        lines.append(f"{len(much)} series worse by more than {number(100 * FLOOR)} %, by {by}: "
                     f"{most.series.name}")  # fmt: skip
    if worse and better:
        by = f"{size(largest(better))}{' at most' if len(better) > 1 else ''}"
        lines.append(f"{len(better)} series better by {by}, beside those that are worse: if the "
                     "cause is removed, they fail")  # fmt: skip
    return lines


def condition(changed: Condition) -> str:
    return f"{changed.name} {changed.before} -> {changed.after}"


def when(finding: Finding) -> str:
    """The night, and between which trials the change lies."""
    first, last = finding.first, finding.last
    about = "about " if finding.drift else ""
    text = f"{about}{first.started:{_DAY}} ({first.folder.name}, after {last.folder.name})"
    if finding.found.id != first.id:
        text += f", shown by {finding.found.folder.name}"
    return text


def versions(finding: Finding) -> str:
    """What changed that night, or that nothing did."""
    if finding.drift:
        end = finding.until
        until = f" until about {end.started:{_DAY}} ({end.folder.name})" if end else ""
        return f"a drift{until}: no version or setting of one night explains it"
    if not finding.conditions and finding.swapped:
        return "no other recorded version or setting changed that night"
    if not finding.conditions:
        return "no recorded version, setting or node changed that night"
    # A version is more often the cause than one of many settings.
    conditions = sorted(finding.conditions, key=lambda each: is_of_case(each.name))
    named = some([condition(each) for each in conditions], "; ")
    if end := finding.until:
        return f"changed on one node after the other until {end.started:{_DAY}}: {named}"
    return f"changed that night: {named}"


def waited(finding: Finding) -> str:
    """How long the changed cases waited for a processor in the first trial of the new level, if the
    load of the machine may be why figures changed: from the wait on that a verdict takes it for a
    reason. Else ""."""
    percent = finding.waited
    if percent is None or percent < DISTURBED_PERCENT:
        return ""
    several = len({change.series.case for change in finding.changes}) > 1
    who = "a case of these" if several else "its case"
    return f"{who} waited {number(percent, 2)} % of its time for a processor that night"


def beside(finding: Finding) -> str:
    """The effect of the place of a finding beside a change of the other series; or ""."""
    if not finding.beside:
        return ""
    other, effect = finding.beside
    percent = number(100 * math.expm1(min(abs(effect), 10)), 2)
    than = f"than that of the other series of that night ({other})"
    return f"its effect is {percent} % {'worse' if effect > 0 else 'better'} {than}"


def exchanged(finding: Finding) -> str:
    """That two nodes seem to be exchanged; or ""."""
    if not finding.exchanged:
        return ""
    nodes = " and ".join(finding.exchanged)
    return f"nodes {nodes} seem to be exchanged: each has the figures that the other had"


def circumstances(finding: Finding) -> str:
    """What else was so that night."""
    parts = [exchanged(finding), beside(finding), versions(finding), waited(finding)]
    return "; ".join(filter(None, parts))


def sentences(finding: Finding, most: int = 3) -> Sequence[str]:
    """All that a finding says, with its ``most`` largest changes."""
    lines = [headline(finding), f"since {when(finding)}; {circumstances(finding)}"]
    listed = finding.listed
    lines += [f"{change.series.name} {course(change)}" for change in listed[:most]]
    if len(listed) < len(finding.changes):
        lines.append(
            f"{min(most, len(listed))} of {len(finding.changes)} series shown"
            + (f"; {len(listed) - most} more are selected" if len(listed) > most else "")
        )
    elif len(listed) > most:
        lines.append(f"{len(listed) - most} more; {finding.compared} series were compared")
    if text := notes(finding):
        lines.append(f"note: {text}")
    return lines


def notes(finding: Finding) -> str:
    """What a reader must know of the trials of a finding, such as a planted fault; or ""."""
    return "; ".join(dict.fromkeys([*finding.first.marks, *finding.found.marks]))
