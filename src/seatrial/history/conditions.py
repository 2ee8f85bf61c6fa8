"""The conditions of a case: what it was measured with.

A condition has a name and a text. ``kernel``, ``stack`` or ``driver of eth1`` are versions, and
``nodes`` are the nodes. The others are what the site declares, by the beginning of their names: of
a NIC profile, a transport or a benchmark. History, comparisons, exports and reports use the same
names.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seatrial.history import renamed
from seatrial.results.folder import Results
from seatrial.results.locations import natural
from seatrial.results.record import OF_LAB, Case, ProfileUse, Run, TransportUse, Trial
from seatrial.results.wording import some

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


def conditions_of(trial: Trial, runs: Iterator[Run]) -> dict[Case, dict[str, str]]:
    """What each case was measured with: versions, stack, settings, nodes, Seatrial.

    If the runs of a case differ in a version, the value names all; if the nodes of a run differ in
    a kernel, driver or firmware, with the nodes (``of_nodes_text``).
    """
    general = {"seatrial": trial.seatrial}
    if kernel := trial.host.get("kernel"):
        general["kernel of the host"] = str(kernel)
    for name in OF_LAB:
        if value := trial.host.get(name):
            general[name] = _cut(str(value))
    if trial.stack:
        stack = (trial.stack.get(key, "") for key in ("source", "id"))
        general["stack"] = " ".join(filter(None, map(str, stack)))
    profiles = {use.name: _settings(use) for use in trial.profiles}
    transports = {use.name: _of_transport(use) for use in trial.transports}
    benchmarks = {
        name: {f"{BENCHMARK}{name}.{key}": _cut(value) for key, value in _flat(settings)}
        for name, settings in (
            (renamed.CHECKS.get(name, name), settings)
            for name, settings in trial.benchmarks.items()
        )
    }
    values: dict[Case, dict[str, set[str]]] = {}
    of_nodes: dict[Case, dict[str, dict[str, str]]] = {}
    for run in runs:
        case = renamed.todays_case(run.case)
        of_case = values.setdefault(case, {})
        of_nodes.setdefault(case, {}).update(_nodes_differ(run))
        of_case.setdefault(NODES, set()).update(run.job.nodes)
        for name, value in run.versions.items():
            of_case.setdefault(name, set()).add(value)
    for case, differing in of_nodes.items():
        values[case] |= {name: {of_nodes_text(by_node)} for name, by_node in differing.items()}
    return {
        case: {
            **general,
            **{name: ", ".join(sorted(several)) for name, several in of_one.items() if several},
            **profiles.get(case.profile, {}),
            **transports.get(case.transport, {}),
            **benchmarks.get(case.check, {}),
        }
        for case, of_one in values.items()
    }


def different_settings(results: Sequence[Results]) -> list[str]:
    """A sentence for each declared setting that is not the same in all trials of one of the cases:
    their figures are not of one kind. A trial that does not have it on record does not differ."""
    of_case: dict[Case, list[tuple[str, dict[str, str]]]] = {}
    for of_trial in results:
        for case, conditions in conditions_of(of_trial.trial, iter(of_trial.runs)).items():
            declared = {name: text for name, text in conditions.items() if is_setting(name)}
            of_case.setdefault(case, []).append((of_trial.trial.trial, declared))
    values: dict[str, dict[str, dict[str, None]]] = {}  # name, value, trials in their order
    for of_trials in of_case.values():
        for name in sorted({name for _, conditions in of_trials for name in conditions}):
            known = [(trial, value_in(conditions, name)) for trial, conditions in of_trials]
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
    every = {name: {node: of_node.get(node, "none") for node in run.nic}
             for name, of_node in by_node.items() if name in run.versions}  # fmt: skip
    return {name: of_node for name, of_node in every.items() if len(set(of_node.values())) > 1}


def _settings(use: ProfileUse) -> dict[str, str]:
    """``setting coalesce.rx-usecs of eth1`` -> declared value, of all nodes of the profile. A node
    on which an interface is not declared to have it has "none"."""
    by_node: dict[str, dict[str, str]] = {}
    for node, interfaces in use.settings.items():
        for interface, facts in interfaces.items():
            for name, value in _flat(facts):
                by_node.setdefault(f"{SETTING}{name} of {interface}", {})[node] = value
    values = {f"{SETTING}{name}": value for name, value in _flat(use.node_settings)}
    return values | {
        name: of_nodes_text({node: of_node.get(node, "none") for node in use.settings})
        for name, of_node in by_node.items()
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
        nodes = sorted((node for node, other in by_node.items() if other == value), key=natural)
        names = " ".join(nodes)
        if len(names) > _LONG:
            names = f"{len(nodes)} nodes; {_digest(nodes)}"
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
    of_all = [value for value, names in parts if names is None]
    return of_all[0] if len(of_all) == 1 else None


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
