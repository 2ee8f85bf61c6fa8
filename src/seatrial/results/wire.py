"""Findings on the wires: errors that were counted, links that differ, slots that limit a card.

A figure says that a path is slow, and this says where to look. It decides no verdict: the figures
of the case have been judged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from seatrial.results.record import Run
from seatrial.results.wording import plural, some

#: facts of a link on which all nodes of a network should agree, and their units
LINK = {"speed_Mbit_s": "Mbit/s", "duplex": "duplex", "fec": "FEC"}
#: facts that no healthy link changes by itself, and their units
CHANGING = {**LINK, "current_pcie_width": "PCIe lanes"}
Interface = tuple[str, str]  # node, name


def findings(runs: Sequence[Run]) -> list[str]:
    """One for each interface with errors, each fact of a link that changed or differs, and each
    slot."""
    states = _states(runs)
    return [
        *_errors(runs, states),
        *_exchanged(states),
        *_changed_links(runs),
        *_different_links(states),
        *_slots(states),
    ]


def _states(runs: Iterable[Run]) -> dict[Interface, list[dict[str, Any]]]:
    """The states of each interface, before and after each run."""
    states: dict[Interface, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        for node, interfaces in run.nic.items():
            for name, phases in interfaces.items() if isinstance(interfaces, dict) else ():
                for phase in ("before", "after") if isinstance(phases, dict) else ():
                    if isinstance(phases.get(phase), dict):
                        states[node, name].append(phases[phase])
    return states


def _errors(runs: Sequence[Run], states: dict[Interface, list[dict[str, Any]]]) -> list[str]:
    counts: dict[Interface, Counter[str]] = defaultdict(Counter)
    cases: dict[Interface, dict[str, None]] = defaultdict(dict)
    for run in runs:
        for wire_error in run.wire_errors:
            counts[wire_error.node, wire_error.interface].update(wire_error.counts)
            cases[wire_error.node, wire_error.interface][run.case.id] = None
    sentences = []
    for (node, name), counted in counts.items():
        where = list(cases[node, name])
        words = ", ".join(f"{counter} +{count}" for counter, count in counted.most_common())
        sentences.append(
            f"{node}: errors were counted on {name} during {plural(len(where), 'case')} "
            f"({some(where)}): {words}: check its cable, its transceiver and "
            f"{_switch_port(states[node, name])}"
        )
    return sentences


def _switch_port(states: Iterable[dict[str, Any]]) -> str:
    for state in states:
        neighbour = state.get("neighbour")
        if isinstance(neighbour, dict) and neighbour:
            port, switch = neighbour.get("port"), neighbour.get("switch")
            parts = [f"port {port}" if port else "its port", f"of {switch}" if switch else ""]
            return " ".join(filter(None, parts)) + " (LLDP)"
    return "its switch port"


def _exchanged(states: dict[Interface, list[dict[str, Any]]]) -> list[str]:
    """The interfaces whose switch (by LLDP) is that of another network and of none of their own.

    The switches of a network are those that two or more of its nodes are on. A network whose nodes
    are on switches of their own says nothing.
    """
    switch_of: dict[tuple[Interface, str], str] = {}
    for interface, of_interface in states.items():
        for state in of_interface:
            neighbour = state.get("neighbour")
            if isinstance(neighbour, dict) and neighbour.get("switch"):
                switch_of.setdefault(
                    (interface, str(state.get("network"))), str(neighbour["switch"])
                )
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for (_, network), switch in switch_of.items():
        counts[network][switch] += 1
    sentences = []
    for ((node, name), network), switch in switch_of.items():
        usual = [other for other, count in counts[network].items() if count > 1]
        others = [count for count in counts if count != network and counts[count][switch] > 1]
        if usual and switch not in usual and others:
            sentences.append(
                f"{node}: {name} of network {network} is cabled to {switch} (LLDP), on which "
                f"network {some(others)} is; the others of {network} are on {some(usual)}: its "
                "cables are exchanged"
            )
    return sentences


def _changed_links(runs: Iterable[Run]) -> list[str]:
    """The facts of a link or slot that are other ones after a run than before it.

    Between runs a NIC profile may change them.
    """
    cases: dict[str, dict[str, None]] = defaultdict(dict)
    for run in runs:
        for (node, name), states in _states([run]).items():
            if len(states) < 2:
                continue
            before, after = states
            for fact, unit in CHANGING.items():
                was, now = before.get(fact), after.get(fact)
                if was != now and "down" not in (before.get("link"), after.get("link")):
                    text = f"{node}: {name} went from {was or 'no'} to {now or 'no'} {unit}"
                    cases[text][run.case.id] = None
    return [
        f"{text} during {plural(len(names), 'case')} ({some(list(names))}): check its cable, its "
        "transceiver and its slot"
        for text, names in cases.items()
    ]


def _different_links(states: dict[Interface, list[dict[str, Any]]]) -> list[str]:
    """For each network and fact: the nodes whose value differs from that of most nodes.

    Only interfaces of one driver are compared. With two values of equal number no one is right:
    all are named.
    """
    values: dict[tuple[str, str, str], dict[Interface, Any]] = defaultdict(dict)
    for interface, of_interface in states.items():
        for state in of_interface:
            for fact in LINK:
                if fact in state:
                    key = (str(state.get("network")), str(state.get("driver")), fact)
                    values[key].setdefault(interface, state[fact])
    sentences = []
    for (network, _, fact), of_interfaces in values.items():
        by_value: dict[str, list[str]] = defaultdict(list)
        for (node, name), value in of_interfaces.items():
            by_value[str(value)].append(f"{name} of {node}")
        if len(by_value) < 2:
            continue
        groups = sorted(by_value.items(), key=lambda group: len(group[1]))
        parts = [f"{value} {LINK[fact]} on {some(names)}" for value, names in groups]
        sentences.append(f"the links of network {network} differ: {'; '.join(parts)}")
    return sentences


def _slots(states: dict[Interface, list[dict[str, Any]]]) -> list[str]:
    """Notes on the cards whose PCIe link is slower or narrower than they can do."""
    nodes: dict[str, list[str]] = defaultdict(list)
    for (node, name), of_interface in states.items():
        state = next((one for one in of_interface if "max_pcie_width" in one), {})
        now = [state.get(f"current_pcie_{part}") for part in ("speed", "width")]
        most = [state.get(f"max_pcie_{part}") for part in ("speed", "width")]
        if now != most:
            text = f"{now[0]} x{now[1]}, and the card can do {most[0]} x{most[1]}"
            nodes[text].append(f"{name} of {node}")
    return [f"note: the PCIe link of {some(names)} runs at {text}" for text, names in nodes.items()]
