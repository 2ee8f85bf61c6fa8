"""Verification inside the job: whether its nodes had the settings of its NIC profile.

The node-side wrapper (``node/run.py``) compares each node with the profile before the node's first
step and after its last, and records the result. This module selects these steps and reads the
records. ``seatrial.site.nic_policy`` computes the declared settings, and ``seatrial.nic.node``
compares a node with them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import seatrial.nic
from seatrial.results.record import LOCATION_CHARACTERS, MOST_OF_CASE, NicProof

#: the declared settings, in the job's folder
DECLARED_FILE = "nic.json"
#: the package that the wrapper imports on the nodes: standard library only
NODE_PACKAGE = Path(seatrial.nic.__file__).with_name("node")
PHASES = ("before", "after")
MOST_REASONS = 4


def write_declared(declared: dict[str, Any], folder: Path) -> None:
    """Write the settings that the job's nodes must have, for the wrapper."""
    (folder / DECLARED_FILE).write_text(json.dumps(declared))


def node_numbers(step, all_nodes: int) -> list[int]:
    """The nodes of a step, by their numbers in the job, which has ``all_nodes`` nodes."""
    return step.node_numbers or list(range(step.nodes or all_nodes))


def occasions(steps: list, all_nodes: int) -> dict[str, str]:
    """Step name -> before, after or both, for each step that is the first or last of a node."""
    first: dict[int, str] = {}
    last: dict[int, str] = {}
    for step in steps:
        for number in node_numbers(step, all_nodes):
            first.setdefault(number, step.name)
            last[number] = step.name
    when = dict.fromkeys(first.values(), "before")
    for name in last.values():
        when[name] = "both" if when.get(name) in ("before", "both") else "after"
    return when


def wrapper_options(when: str) -> list[str]:
    """The options by which the wrapper records the NIC state of the node."""
    return ["--nic", DECLARED_FILE, str(NODE_PACKAGE), when]


def read_records(folder: Path) -> list[dict[str, Any]]:
    """The wrapper's records of each node, before and after; damaged files are left out."""
    records = []
    for when in PHASES:
        for file in sorted(folder.glob(f"nic-{when}.*.json")):
            try:
                data = json.loads(file.read_text(errors="replace"))
            except (OSError, ValueError):
                continue
            if isinstance(data, dict) and isinstance(data.get("node"), str):
                records.append({**data, "when": when})
    return records


def proofs(records: Iterable[dict[str, Any]]) -> list[NicProof]:
    """One proof for each record of the wrapper."""
    result = []
    for record in records:
        ok = record.get("ok") is True
        owner = record.get("owner")
        seconds = record.get("seconds")
        result.append(
            NicProof(
                node=record["node"],
                when=record["when"],
                ok=ok,
                reason="" if ok else _reason(record),
                job=str(owner.get("job") or "") if isinstance(owner, dict) else "",
                seconds=float(seconds) if isinstance(seconds, int | float) else None,
                left_out=list(_left_out(record))[:MOST_OF_CASE],
            )
        )
    return result


def _left_out(record: dict[str, Any]) -> Iterable[str]:
    """Interface and setting, for what the node lacks and its profile does without."""
    for name, data in _interfaces(record):
        keys = data.get("left_out")
        for key in keys if isinstance(keys, list) else ():
            yield f"{name} {key}"[:LOCATION_CHARACTERS]


def _reason(record: dict[str, Any]) -> str:
    reason = str(record.get("reason") or "").strip() or _differences(record)
    reason = reason or "its NIC settings are not as declared"
    return reason if record["node"] in reason else f"{record['node']}: {reason}"


def _differences(record: dict[str, Any]) -> str:
    return "; ".join(
        f"{name}: {difference.get('setting')} is {difference.get('actual')}, not "
        f"{difference.get('wanted')}"
        for name, data in _interfaces(record)
        for difference in data.get("differences") or ()
        if isinstance(difference, dict)
    )


def _interfaces(record: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    interfaces = record.get("interfaces")
    items = interfaces.items() if isinstance(interfaces, dict) else ()
    return [(str(name), data) for name, data in items if isinstance(data, dict)]


def states(records: Iterable[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """(node, interface, before or after) -> settings in force."""
    return {
        (record["node"], name, record["when"]): data["state"]
        for record in records
        for name, data in _interfaces(record)
        if isinstance(data.get("state"), dict)
    }


def fault(profile: str, proofs: list[NicProof]) -> str:
    """Why the run was not under its profile; empty if no proof shows a difference."""
    wrong = [proof for proof in proofs if not proof.ok]
    if not wrong:
        return ""
    reasons = list(dict.fromkeys(f"{proof.reason} ({proof.when} the run)" for proof in wrong))
    more = f" and {len(reasons) - MOST_REASONS} more" if len(reasons) > MOST_REASONS else ""
    return f"not under profile {profile}: {'; '.join(reasons[:MOST_REASONS])}{more}"


def missing(profile: str, proofs: list[NicProof], nodes: int) -> str:
    """Which proofs of the profile are missing; empty if each of the nodes has both."""
    for when in PHASES:
        names = [proof.node for proof in proofs if proof.when == when]
        if len(names) < nodes:
            listed = ", ".join(names) or "none"
            return (
                f"only {len(names)} of {nodes} nodes recorded their NIC settings {when} the run "
                f"({listed}): the profile {profile} is not proven"
            )
    return ""
