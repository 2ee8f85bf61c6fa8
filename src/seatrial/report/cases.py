"""The details of one case for report.html: runs, path proof, NIC state, raw files."""

from __future__ import annotations

import errno
import itertools
import json
import math
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from seatrial.base.files import files_below, folder_below
from seatrial.report.figures import interrupt_rates, spread_text
from seatrial.report.summary import CaseView
from seatrial.report.text import number, quantity, relative_href
from seatrial.results.record import Run

_MAX_FILES = 50
MAX_ROWS = 24  # rows of a table with one for each node or location
T = TypeVar("T")
_PHASES = ("before", "during", "after")


@dataclass(frozen=True)
class Link:
    """A path relative to the report. ``href`` is None if it must not be a link."""

    text: str
    href: str | None
    note: str = ""


@dataclass(frozen=True)
class NicState:
    """One interface: the settings that differ between the phases, and the other settings."""

    node: str
    interface: str
    phases: list[str]
    changed: list[tuple[str, list[str]]]
    same: str  # settings that do not differ, in one line
    others: int  # further settings, which are as under the default profile or were not recorded
    left_changed: bool  # the state after differs from the state before


def first_rows(rows: Sequence[T], is_bad: Callable[[T], bool]) -> tuple[list[T], int]:
    """The bad rows and then the first of the others, at most `MAX_ROWS`; the number left out."""
    if len(rows) <= MAX_ROWS:
        return list(rows), 0
    ranked = sorted(range(len(rows)), key=lambda index: (not is_bad(rows[index]), index))
    return [rows[index] for index in sorted(ranked[:MAX_ROWS])], len(rows) - MAX_ROWS


def plain(value: Any) -> str:
    """A value of a free-form record as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return number(value)
    if value is None:
        return "none"
    if isinstance(value, bool | dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested dictionaries as (dotted name, text)."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, plain(value)


def evidence_link(run: Run, folder: Path, base: str = ".") -> Link | None:
    """The link to a run's folder of raw files. ``base`` leads from the page to the trial."""
    if not run.evidence:
        return None
    href = relative_href(run.evidence, base)
    if href is None:
        return Link(run.evidence, None, "outside the trial's folder, so not linked")
    try:
        with folder_below(folder, Path(run.evidence)):
            return Link(run.evidence, href)
    except (OSError, ValueError) as error:  # ValueError: a null character
        # ENOTDIR is also of a link: a job user could make one to any folder.
        if isinstance(error, OSError) and error.errno in (errno.ENOTDIR, errno.ELOOP):
            return Link(run.evidence, None, "not a folder, or behind a symbolic link: not linked")
        return Link(run.evidence, href, "did not exist when the report was written")


def raw_files(run: Run, folder: Path, base: str = ".") -> list[Link]:
    """The files of a run's evidence: at most `_MAX_FILES`, and a note if there are others."""
    link = evidence_link(run, folder, base)
    if link is None or link.href is None or link.note:
        return []
    names, complete = files_below(folder, Path(run.evidence), _MAX_FILES)
    links = [
        Link(name, relative_href(f"{run.evidence.rstrip('/')}/{name}", base)) for name in names
    ]
    return links if complete else [*links, Link("and more in the folder", None)]


#: settings of an interface that are always shown
_IDENTITY = ("network", "driver", "version", "firmware", "bus", "mtu")
_SHORT = 16  # a state with at most so many settings is shown completely
Usual = dict[tuple[str, str], dict[str, Any]]
Declared = dict[tuple[str, str, str], set[str]]


def nic_states(
    run: Run, usual: Usual | None = None, declared: Declared | None = None
) -> tuple[list[NicState], str]:
    """The NIC states of a run; the second item is JSON of records with another structure.

    A long state shows the settings of the profile (``declared``) and settings that differ from
    the default profile (``usual``), and counts the others.
    """
    states: list[NicState] = []
    other: dict[str, Any] = {}
    for node, interfaces in run.nic.items():
        for interface, state in interfaces.items() if isinstance(interfaces, dict) else ():
            phases = [p for p in _PHASES if isinstance(state, dict) and p in state]
            if phases:
                location = (str(node), str(interface))
                named = (declared or {}).get((run.case.profile, *location), set())
                states.append(
                    _nic_state(*location, state, phases, named, (usual or {}).get(location))
                )
            else:
                other[f"{node} {interface}"] = state
        if not isinstance(interfaces, dict):
            other[str(node)] = interfaces
    return states, json.dumps(other, ensure_ascii=False, default=str, indent=1) if other else ""


def _nic_state(
    node: str,
    interface: str,
    state: dict[str, Any],
    phases: list[str],
    declared: set[str],
    usual: dict[str, Any] | None,
) -> NicState:
    as_usual = dict(flat(usual)) if usual else {}
    by_phase = [dict(flat(state[phase])) for phase in phases]
    names = list(dict.fromkeys(name for values in by_phase for name in values))
    changed, same, others = [], [], 0
    for name in names:
        values = [phase.get(name, "–") for phase in by_phase]
        if len(set(values)) > 1:
            changed.append((name, values))
        elif (
            len(names) <= _SHORT
            or name in _IDENTITY
            or name in declared
            or (usual is not None and as_usual.get(name) != values[0])
        ):
            same.append(f"{name}={values[0]}" if name else values[0])
        else:
            others += 1
    left = "before" in state and "after" in state and state["before"] != state["after"]
    return NicState(node, interface, phases, changed, "  ".join(same), others, left)


@dataclass(frozen=True)
class Counted:
    """One row of a path proof."""

    node: str
    interface: str
    network: str
    total: int
    share: str  # of the required volume
    enough: bool
    rx_bytes: int
    tx_bytes: int
    packets: int
    interrupts: str


def counted(run: Run) -> list[Counted]:
    """The counters: how much each interface moved, and the fraction of the required volume."""
    if run.path is None:
        return []
    rates = interrupt_rates(run)
    rows = []
    for c in run.path.counters:
        total, required = c.rx_bytes + c.tx_bytes, run.path.required_bytes
        rate = rates.get((c.node, c.interface))
        interrupts = "–" if c.interrupts is None else str(c.interrupts)
        if rate is not None:
            interrupts += f" ({number(rate)}/s)"
        share = f"{100 * total / required:.4g} %" if required > 0 else "–"
        # Counters of other networks are shown for comparison; no volume is required of them.
        enough = total >= required or c.network != run.path.network
        packets = c.rx_packets + c.tx_packets
        rows.append(
            Counted(
                *(c.node, c.interface, c.network, total, share, enough),
                *(c.rx_bytes, c.tx_bytes, packets, interrupts),
            )
        )
    return rows


@dataclass(frozen=True)
class MetricRow:
    metric: str
    location: str
    values: str
    by_repeat: str
    status: str  # key of the judgement's verdict, "" if it was not judged
    anchor: str


def metric_rows(view: CaseView, shown: Collection[int]) -> list[MetricRow]:
    """All figures of the case over its runs, judged or not.

    Of a metric at many locations, those that did not pass and a row over all. Of several
    judgements on a figure, the worst. ``shown`` are the judgements that the page has, and thus a
    link to.
    """
    values: dict[tuple[str, str], dict[str | None, list[float]]] = {}
    for run in view.runs:
        for metric in run.metrics:
            of_metric = values.setdefault((metric.metric, metric.unit), {})
            of_metric.setdefault(metric.location, []).append(metric.value)
    rows = []
    for (name, unit), by_location in values.items():
        judged = view.by_location.get(name, {})
        locations: Iterable[str | None] = by_location
        if len(by_location) > MAX_ROWS:
            bad = (
                location
                for location in by_location
                if location in judged and judged[location][1].verdict != "pass"
            )
            locations = itertools.islice(bad, MAX_ROWS)
            rows.append(_over_all(name, unit, by_location))
        for location in locations:
            index, judgement = judged.get(location, (-1, None))
            verdict = judgement.verdict if judgement else ""
            numbers = by_location[location]
            anchor = f"j{index}" if index in shown else ""
            rows.append(
                MetricRow(
                    name,
                    location or "",
                    quantity(numbers[0], unit) if len(numbers) == 1 else _spread(numbers, unit),
                    ", ".join(number(v) for v in numbers),
                    verdict,
                    anchor,
                )
            )
    return rows


def _over_all(name: str, unit: str, by_location: dict[str | None, list[float]]) -> MetricRow:
    medians = [statistics.median(v) for v in by_location.values()]
    where = f"all {len(by_location)} locations"
    return MetricRow(name, where, _spread(medians, unit), "", "", "")


def _spread(numbers: list[float], unit: str) -> str:
    if all(map(math.isfinite, numbers)):
        return f"{spread_text(numbers)} {unit}"
    return "some are not finite numbers"
