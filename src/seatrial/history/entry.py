"""What the index keeps of one trial: its facts, its figures, and the conditions of each case.

This module reads a trial's folder. A trial that is not as its manifest says, or that is damaged, is
an error with a reason. It knows no database.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from seatrial.base.errors import InputError, Problem
from seatrial.base.files import regular_below
from seatrial.history import renamed
from seatrial.results.figures import POSITIVE_UNITS, collect, is_valid, longest_wait, valid_runs
from seatrial.results.figures import Figure as Collected
from seatrial.results.later import CLOCK_TOLERANCE, check_unchanged
from seatrial.results.locations import natural
from seatrial.results.manifest import MANIFEST, has_manifest
from seatrial.results.record import (
    JUDGEMENT_FILE,
    JUDGEMENTS_FOLDER,
    RESULTS_FILE,
    Case,
    ProfileUse,
    Results,
    Run,
    TransportUse,
    Trial,
    Verdict,
    numbered,
    read_results,
)
from seatrial.results.wording import some

#: of an older record: what the index needs of each kind. The other fields are not read.
_NEEDED = {
    "trial": (
        "record", "schema", "trial", "site", "started", "seatrial", "stack", "host", "repeats",
        "rounds", "virtual_time", "reruns", "cases", "notes",
    ),
    "run": (
        "record", "case", "repeat", "round", "outcome", "phase", "reason", "job", "metrics", "path",
        "versions", "activity",
    ),
    "verdict": ("record", "verdict", "counts", "findings", "ended", "number", "judged"),
    "job": ("nodes",),
    "path": ("network", "required_bytes", "crossed", "reason"),
    "activity": ("step", "node", "seconds", "waited_percent"),
}  # fmt: skip
#: what of a node's record may differ between nodes -> fields of the state of a NIC
_OF_NODES = {"driver": ("driver", "version"), "firmware": ("firmware",), "kernel": ("kernel",)}
_OF_NODE = frozenset({"kernel"})  # of the node, whichever interface
_LONG = 200  # characters of the names of nodes in a condition
NODES = "nodes"  # the condition that names the nodes of a case
SETTING = "setting "  # begins the name of a condition that a NIC profile declares
VARIABLE = "variable "  # of an environment variable that the site declares for a transport
TRANSPORT = "transport "  # of what else it declares of a transport
BENCHMARK = "benchmark "  # of a setting of a benchmark
_LONGEST_VALUE = 200  # characters of a declared value
CLOCK = "a clock is wrong: "  # begins the note of a trial whose times cannot be true
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)  # Seatrial is younger
_LONGEST = timedelta(days=30)  # of a trial; each of its jobs has a limit of time


@dataclass(frozen=True)
class Figure:
    """One metric of one case at one location ("": the case as a whole) in one trial."""

    case: Case
    metric: str
    location: str
    unit: str
    better: str
    value: float  # the median; not above zero where it must be: the case failed to measure it
    samples: list[float]  # of the planned repeats: a rerun is made only of what is bad


@dataclass(frozen=True)
class Entry:
    """One trial."""

    trial: str
    site: str
    started: datetime  # UTC
    verdict: str  # "": interrupted, or it runs
    judged: int  # number of its newest judgement
    notes: list[str]  # planted faults, a clock that is wrong
    figures: list[Figure]
    conditions: dict[Case, dict[str, str]] = field(default_factory=dict)  # name -> version
    proven: bool = True  # its manifest has the results as they are; False: it has no manifest
    #: how long a case waited for a processor, in per cent of its time; none: not on record
    waits: dict[Case, float] = field(default_factory=dict)
    #: planned runs of a case that share a block (``seatrial.analysis.conclusion``); 0: none share
    #: one, in virtual time
    block_runs: int = 1
    #: name of a series without a location, of which samples are missing -> how many each block has
    short: dict[str, list[int]] = field(default_factory=dict)


def series_name(case: Case, metric: str, location: str = "") -> str:
    at = f" at {location}" if location else ""
    return f"{case.id}: {metric}{at}"


def fingerprint(folder: Path) -> str:
    """What changes if the files that the index reads change. "": there is no results file.

    A folder in which they cannot be looked at has the number of the error.
    """
    if (results := _mark(folder, RESULTS_FILE)) == "-":
        return ""
    marks = [results, *(_mark(folder, name) for name in (MANIFEST, JUDGEMENTS_FOLDER))]
    if marks[-1] != "-":  # few trials have later judgements
        place = os.path.join(folder, JUDGEMENTS_FOLDER)  # noqa: PTH118
        with suppress(OSError):
            numbers = sorted(filter(str.isdecimal, os.listdir(place)))  # noqa: PTH208
            marks += [f"{one}: {_mark(place, one, JUDGEMENT_FILE)}" for one in numbers]
    return " ".join(marks)


def _mark(*parts: str | os.PathLike[str]) -> str:
    """What changes if a file changes; "-": there is none."""
    try:
        status = os.stat(os.path.join(*parts), follow_symlinks=False)  # noqa: PTH116, PTH118
    except (FileNotFoundError, NotADirectoryError):
        return "-"
    except OSError as error:  # a link to itself, a folder of another user
        return f"error {error.errno}"
    return f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns}"


def read_entry(folder: Path) -> Entry:
    """Read the trial in a folder. Raises InputError if it is damaged or changed, OSError."""
    proven = has_manifest(folder)  # before the results: a trial that ends meanwhile is read again
    check_unchanged(folder)
    try:
        results = read_results(folder)
    except InputError:
        if (older := _read_older(folder)) is None:
            raise
        results = older
    trial = results.trial
    planned = [run for run in results.runs if not trial.is_rerun(run)]
    collected = [
        one
        for own in collect(trial, planned).values()
        for alike in own.values()
        for one in alike.values()
        if one.values and not one.doubt and (not one.fault or is_zero(one.unit, one.median))
    ]
    figures = [
        Figure(
            _today(one.case), renamed.METRICS.get(one.metric, one.metric), one.location or "",
            one.unit, one.better, one.median, one.values,
        )
        for one in collected
    ]  # fmt: skip
    _check_distinct(folder / RESULTS_FILE, planned, figures)
    started = trial.started.astimezone(UTC)
    newest = results.verdict
    return Entry(
        trial.trial, trial.site, started, newest.verdict if newest else "",
        newest.number if newest else 0, [*trial.planted, *_clock(started, results)], figures,
        conditions_of(trial, filter(is_valid, planned)), proven, _waits(planned),
        0 if trial.virtual_time else trial.repeats, _short(trial, planned, collected, figures),
    )  # fmt: skip


def _short(
    trial: Trial, planned: list[Run], collected: list[Collected], figures: list[Figure]
) -> dict[str, list[int]]:
    """As ``Entry.short``. ``figures``: those that were ``collected``, in the same order."""
    valid = valid_runs(planned)
    return {
        series_name(one.case, one.metric): list(
            Counter(valid[number].round for number in of_runs.runs).values()
        )
        for of_runs, one in zip(collected, figures, strict=True)
        if not one.location and len(one.samples) != trial.runs_of_case
    }


def is_zero(unit: str, value: float) -> bool:
    """Whether a figure that must be above zero is not: a link that moves nothing, for example."""
    return unit in POSITIVE_UNITS and -math.inf < value <= 0


def _waits(runs: list[Run]) -> dict[Case, float]:
    of_case: dict[Case, list[Run]] = {}
    for run in filter(is_valid, runs):
        of_case.setdefault(_today(run.case), []).append(run)
    known = {case: longest_wait(own) for case, own in of_case.items()}
    return {case: wait for case, wait in known.items() if wait is not None}


def conditions_of(trial: Trial, runs: Iterator[Run]) -> dict[Case, dict[str, str]]:
    """What each case was measured with: versions, stack, settings, nodes, Seatrial.

    If the runs of a case differ in a version, the value names all; if the nodes of a run differ in
    a kernel, driver or firmware, with the nodes (``of_nodes_text``).
    """
    general = {"seatrial": trial.seatrial}
    if kernel := trial.host.get("kernel"):
        general["kernel of the host"] = str(kernel)
    if trial.stack:
        stack = (trial.stack.get(key, "") for key in ("source", "id"))
        general["stack"] = " ".join(filter(None, map(str, stack)))
    profiles = {use.name: _settings(use) for use in trial.profiles}
    transports = {use.name: _of_transport(use) for use in trial.transports}
    benchmarks = {
        name: {f"{BENCHMARK}{name}.{key}": _cut(value) for key, value in _flat(settings)}
        for name, settings in (
            (renamed.CHECKS.get(name, name), own) for name, own in trial.benchmarks.items()
        )
    }
    values: dict[Case, dict[str, set[str]]] = {}
    of_nodes: dict[Case, dict[str, dict[str, str]]] = {}
    for run in runs:
        case = _today(run.case)
        own = values.setdefault(case, {})
        of_nodes.setdefault(case, {}).update(_nodes_differ(run))
        own.setdefault(NODES, set()).update(run.job.nodes)
        for name, value in run.versions.items():
            own.setdefault(name, set()).add(value)
    for case, differing in of_nodes.items():
        values[case] |= {name: {of_nodes_text(by_node)} for name, by_node in differing.items()}
    return {
        case: {
            **general,
            **{name: ", ".join(sorted(several)) for name, several in own.items() if several},
            **profiles.get(case.profile, {}),
            **transports.get(case.transport, {}),
            **benchmarks.get(case.check, {}),
        }
        for case, own in values.items()
    }


def different_settings(results: Sequence[Results]) -> list[str]:
    """A sentence for each declared setting that is not the same in all trials of one of the cases:
    their figures are not of one kind. A trial that does not have it on record does not differ."""
    of_case: dict[Case, list[tuple[str, dict[str, str]]]] = {}
    for one in results:
        for case, conditions in conditions_of(one.trial, iter(one.runs)).items():
            declared = {name: text for name, text in conditions.items() if is_setting(name)}
            of_case.setdefault(case, []).append((one.trial.trial, declared))
    values: dict[str, dict[str, dict[str, None]]] = {}  # name, value, trials in their order
    for own in of_case.values():
        for name in sorted({name for _, conditions in own for name in conditions}):
            known = [(trial, value_in(conditions, name)) for trial, conditions in own]
            if len({value for _, value in known if value is not None}) > 1:
                for trial, value in known:
                    if value is not None:
                        values.setdefault(name, {}).setdefault(value, {})[trial] = None
    return [
        f"{name} is "
        + some([f"{value} in {some([*trials])}" for value, trials in of.items()], " and ")
        for name, of in sorted(values.items())
    ]


def _nodes_differ(run: Run) -> dict[str, dict[str, str]]:
    """``driver of eth1`` -> node -> version at the end of the run, of those in which nodes differ.
    A node on record that lacks one has "none"."""
    by_node: dict[str, dict[str, str]] = {}
    for node, interfaces in run.nic.items():
        for interface, states in interfaces.items() if isinstance(interfaces, dict) else ():
            state = states.get("after") if isinstance(states, dict) else None
            if not isinstance(state, dict):
                continue
            for kind, fields in _OF_NODES.items():
                if value := " ".join(str(state[key]) for key in fields if state.get(key)):
                    name = kind if kind in _OF_NODE else f"{kind} of {interface}"
                    by_node.setdefault(name, {})[node] = value
    every = {name: {node: own.get(node, "none") for node in run.nic}
             for name, own in by_node.items() if name in run.versions}  # fmt: skip
    return {name: own for name, own in every.items() if len(set(own.values())) > 1}


def _settings(use: ProfileUse) -> dict[str, str]:
    """``setting coalesce.rx-usecs of eth1`` -> declared value, of all nodes of the profile. A node
    on which an interface is not declared to have it has "none"."""
    by_node: dict[str, dict[str, str]] = {}
    for node, interfaces in use.settings.items():
        for interface, own in interfaces.items():
            for name, value in _flat(own):
                by_node.setdefault(f"{SETTING}{name} of {interface}", {})[node] = value
    values = {f"{SETTING}{name}": value for name, value in _flat(use.node_settings)}
    return values | {
        name: of_nodes_text({node: own.get(node, "none") for node in use.settings})
        for name, own in by_node.items()
    }


def _of_transport(use: TransportUse) -> dict[str, str]:
    """``variable OMPI_MCA_btl of openmpi-tcp`` -> value, and what else the site declares of it."""
    others = {"base": use.base, "options": " ".join(use.options), "data_path": use.data_path}
    named = {f"{TRANSPORT}{key} of {use.name}": value for key, value in others.items()}
    named |= {f"{VARIABLE}{key} of {use.name}": value or '""' for key, value in use.env.items()}
    return {name: _cut(value or "none") for name, value in named.items()}


def _cut(value: str) -> str:
    if len(value) <= _LONGEST_VALUE:
        return value
    return f"{value[:_LONGEST_VALUE]}... ({len(value)} characters; {_digest(value)})"


def value_in(conditions: Mapping[str, str], name: str) -> str | None:
    """The value of a condition in those of a case: "none" if it was not set. None: not on record.

    A setting of a benchmark is on record if the version of Seatrial knew it, and a declaration of a
    transport if its data path is, which each record with such declarations has.
    """
    if name in conditions:
        return conditions[name]
    data_path = f"{TRANSPORT}data_path of {name.rpartition(' of ')[2]}"
    if name.startswith(BENCHMARK) or (is_of_case(name) and data_path not in conditions):
        return None
    return "none"


def is_setting(name: str) -> bool:
    """Whether a condition is declared; else it is a version, or the nodes."""
    return name.startswith(SETTING) or is_of_case(name)


def is_of_case(name: str) -> bool:
    """Whether a condition is declared for a transport or a benchmark: the nodes do not differ."""
    return name.startswith((VARIABLE, TRANSPORT, BENCHMARK))


def plain_name(name: str) -> str:
    """``coalesce.rx-usecs of eth1`` of ``setting coalesce.rx-usecs of eth1``."""
    for kind in (SETTING, VARIABLE, TRANSPORT, BENCHMARK):
        name = name.removeprefix(kind)
    return name


def of_nodes_text(by_node: Mapping[str, str]) -> str:
    """The value of all nodes; if they differ, that of most nodes first, and each other one with its
    nodes: ``igb 5.1, igb 5.2 (n1 n3)``. Of very many names, their number and a sum."""
    counts = Counter(by_node.values())
    first, *others = sorted(counts, key=lambda value: (-counts[value], value))
    parts = [first]
    for value in others:
        own = sorted((node for node, one in by_node.items() if one == value), key=natural)
        names = " ".join(own)
        if len(names) > _LONG:
            names = f"{len(own)} nodes; {_digest(own)}"
        parts.append(f"{value} ({names})")
    return ", ".join(parts)


def values_of(text: str) -> frozenset[str]:
    """The values in the text of a condition."""
    return frozenset(value for value, _ in _parted(text))


def value_on(text: str, node: str) -> str | None:
    """The value that a node has by the text of a condition. None: the text does not say."""
    parts = _parted(text)
    if any(names is not None and ";" in names for _, names in parts):
        return None
    for value, names in parts:
        if names is not None and node in names.split():
            return value
    own = [value for value, names in parts if names is None]
    return own[0] if len(own) == 1 else None


def _parted(text: str) -> list[tuple[str, str | None]]:
    """Each value with its nodes; None: those that the others leave."""
    parts = [re.fullmatch(r"(.*?)(?: \(([^()]*)\))?", part, re.S) for part in text.split(", ")]
    return [(part[1], part[2]) for part in parts if part]


def _flat(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each setting by itself, such as ``driver.parameters.InterruptThrottleRate``."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", text) for inner, text in _flat(value))
        else:
            yield name, value if isinstance(value, str) else _text(value)


def _text(value: Any) -> str:
    # ", " would separate the values of different nodes (``of_nodes_text``).
    return "none" if value is None else json.dumps(value, separators=(",", ":"))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _today(case: Case) -> Case:
    return replace(case, check=renamed.CHECKS.get(case.check, case.check))


def with_todays_names(results: Results) -> Results:
    """The same trial with the names of its series: today's for its checks and its metrics."""
    trial = results.trial
    runs = [
        run.model_copy(
            update={
                "case": _today(run.case),
                "metrics": [
                    replace(one, metric=renamed.METRICS.get(one.metric, one.metric))
                    for one in run.metrics
                ],
            }
        )
        for run in results.runs
    ]
    own = trial.model_copy(update={"cases": [_today(case) for case in trial.cases]})
    return results.model_copy(update={"trial": own, "runs": runs})


def _check_distinct(file: Path, runs: list[Run], figures: list[Figure]) -> None:
    """Raise InputError if two cases or two figures of a trial belong to one series."""
    of_id: dict[str, Case] = {}
    for run in runs:
        today = _today(run.case).id
        if (other := of_id.setdefault(today, run.case)) != run.case:
            text = f"two cases have the name {today}: {_described(other)}; {_described(run.case)}"
            raise InputError([Problem(file, None, "case", text)])
    keys: set[tuple[str, str, str]] = set()
    for one in figures:
        key = (one.case.id, one.metric, one.location)
        if key in keys:
            at = f" at {one.location}" if one.location else ""
            text = f"two figures of {one.case.id} belong to the series {one.metric}{at}"
            raise InputError([Problem(file, None, "metric", text)])
        keys.add(key)


def _described(case: Case) -> str:
    return ", ".join(f"{name}={value}" for name, value in asdict(case).items() if value)


def _clock(started: datetime, results: Results) -> list[str]:
    """Sentences if the times of a trial cannot be true."""
    notes = []
    took = results.ended - started if results.ended else timedelta(0)
    if took < timedelta(seconds=-1):
        notes.append("the trial ended before it began")
    if started > datetime.now(UTC) + CLOCK_TOLERANCE:
        notes.append("the trial began later than now")
    if started < _FIRST:  # such as 1970, of a machine without a battery
        notes.append(f"the trial began on {started:%Y-%m-%d}")
    elif took > _LONGEST:
        notes.append(f"the trial took {took.days} days")
    return [f"{CLOCK}{note}" for note in notes]


def _read_older(folder: Path) -> Results | None:
    """The results of a trial whose records have older names; None if it has none of these."""
    trial: Trial | None = None
    runs: list[Run] = []
    verdict: Verdict | None = None
    changed = False
    with regular_below(folder, Path(RESULTS_FILE)) as stream:
        for number, text in numbered(stream, folder / RESULTS_FILE):
            try:
                before = json.loads(text)
                if before["record"] not in _NEEDED:
                    continue
                record = _renamed(before)
                changed = changed or record != before
                record = _part(record, record["record"])
                if record.get("job"):
                    record["job"] = _part(record["job"], "job")
                if isinstance(record.get("activity"), list):
                    own = [_part(one, "activity") for one in record["activity"]]
                    record["activity"] = [one for one in own if "waited_percent" in one]
                if record.get("path"):
                    record["path"] = {**_part(record["path"], "path"), "counters": []}
                if record["record"] == "trial":
                    trial = Trial.model_validate(record)
                elif record["record"] == "run":
                    runs.append(Run.model_validate(record))
                else:
                    verdict = Verdict.model_validate(record)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                if changed and isinstance(error, ValidationError):
                    what = error.errors(include_url=False)[0]
                    at = ".".join(map(str, what["loc"]))
                    file = folder / RESULTS_FILE
                    raise InputError([Problem(file, number, at, what["msg"])]) from None
                return None
    if trial is None or not changed:
        return None
    return Results(trial=trial, runs=runs, verdict=verdict, folder=folder)


def _part(record: dict[str, Any], kind: str) -> dict[str, Any]:
    return {name: record[name] for name in _NEEDED[kind] if name in record}


def _renamed(value: Any) -> Any:
    """A record with the names of today for its fields."""
    if isinstance(value, dict):
        return {renamed.FIELDS.get(key, key): _renamed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item) for item in value]
    return value
