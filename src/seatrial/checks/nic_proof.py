"""Verification inside the job: whether its nodes were in the state that its NIC profile declares.

The node side notes the state of each node before its first step and after its last
(``node/run.py``); here it is said which steps those are, and what the notes amount to. What a
profile sets is in ``seatrial.site.nic_policy``, how a node is compared with it in
``seatrial.nic.node``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import seatrial.nic
from seatrial.results.record import NicProof

#: the declared settings, in the job's folder
DECLARED_FILE = "nic.json"
#: the package that the wrapper loads on the nodes: standard library only
NODE_PACKAGE = Path(seatrial.nic.__file__).with_name("node")
PHASES = ("before", "after")
MOST_REASONS = 4


def write_declared(declared: dict[str, Any], folder: Path) -> None:
    """Write what the job's nodes must have, for the wrapper."""
    (folder / DECLARED_FILE).write_text(json.dumps(declared))


def node_numbers(step, all_nodes: int) -> list[int]:
    """Which of the job's nodes a step runs on, by their numbers in its node list."""
    chosen = [int(number) for number in re.findall(r"\$SEATRIAL_NODE_(\d+)", step.nodelist)]
    return chosen or list(range(step.nodes or all_nodes))


def occasions(steps: list, all_nodes: int) -> dict[str, str]:
    """For each step that is some node's first or last: step name -> before, after or both."""
    first: dict[int, str] = {}
    last: dict[int, str] = {}
    for step in steps:
        for number in node_numbers(step, all_nodes):
            first.setdefault(number, step.name)
            last[number] = step.name
    found = dict.fromkeys(first.values(), "before")
    for name in last.values():
        found[name] = "both" if found.get(name) in ("before", "both") else "after"
    return found


def wrapper_options(when: str) -> list[str]:
    """The options by which the wrapper records the NIC state of the node."""
    return ["--nic", DECLARED_FILE, str(NODE_PACKAGE), when]


def notes(folder: Path) -> list[dict[str, Any]]:
    """What the wrapper noted on each node, before and after; damaged files are left out."""
    found = []
    for when in PHASES:
        for file in sorted(folder.glob(f"nic-{when}.*.json")):
            try:
                data = json.loads(file.read_text(errors="replace"))
            except (OSError, ValueError):
                continue
            if isinstance(data, dict) and isinstance(data.get("node"), str):
                found.append({**data, "when": when})
    return found


def proofs(found: Iterable[dict[str, Any]]) -> list[NicProof]:
    """One record for each note."""
    result = []
    for note in found:
        ok = note.get("ok") is True
        owner = note.get("owner")
        seconds = note.get("seconds")
        result.append(
            NicProof(
                node=note["node"],
                when=note["when"],
                ok=ok,
                reason="" if ok else _reason(note),
                job=str(owner.get("job") or "") if isinstance(owner, dict) else "",
                seconds=float(seconds) if isinstance(seconds, int | float) else None,
            )
        )
    return result


def _reason(note: dict[str, Any]) -> str:
    reason = str(note.get("reason") or "").strip() or _differences(note)
    reason = reason or "its NIC state is not as declared"
    return reason if note["node"] in reason else f"{note['node']}: {reason}"


def _differences(note: dict[str, Any]) -> str:
    return "; ".join(
        f"{name}: {one.get('setting')} is {one.get('found')}, and not {one.get('wanted')}"
        for name, data in _interfaces(note)
        for one in data.get("differences") or ()
        if isinstance(one, dict)
    )


def _interfaces(note: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    interfaces = note.get("interfaces")
    items = interfaces.items() if isinstance(interfaces, dict) else ()
    return [(str(name), data) for name, data in items if isinstance(data, dict)]


def states(found: Iterable[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """(node, interface, before or after) -> settings in force."""
    return {
        (note["node"], name, note["when"]): data["state"]
        for note in found
        for name, data in _interfaces(note)
        if isinstance(data.get("state"), dict)
    }


def fault(profile: str, shown: list[NicProof]) -> str:
    """Why the run was not under its profile, in a sentence; empty where it was, as far as shown."""
    wrong = [proof for proof in shown if not proof.ok]
    if not wrong:
        return ""
    reasons = list(dict.fromkeys(f"{proof.reason} ({proof.when} the run)" for proof in wrong))
    more = f" and {len(reasons) - MOST_REASONS} more" if len(reasons) > MOST_REASONS else ""
    return f"not under profile {profile}: {'; '.join(reasons[:MOST_REASONS])}{more}"


def lacking(profile: str, shown: list[NicProof], nodes: int) -> str:
    """Why it is not shown that the run was under its profile; empty where all nodes show it."""
    for when in PHASES:
        names = [proof.node for proof in shown if proof.when == when]
        if len(names) < nodes:
            listed = ", ".join(names) or "none"
            return (
                f"only {len(names)} of {nodes} nodes show their NIC state {when} the run "
                f"({listed}): nothing proves that it was under profile {profile}"
            )
    return ""
