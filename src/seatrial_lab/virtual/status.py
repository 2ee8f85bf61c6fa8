"""The state of a virtual lab as data, with the keys of ``seatrial_lab.native.status``."""

from __future__ import annotations

import platform
import time
from dataclasses import asdict
from typing import Any

from seatrial.base.errors import LabError
from seatrial_lab.common.programs import programs, version_of
from seatrial_lab.common.spec import LOGIN
from seatrial_lab.virtual import wires
from seatrial_lab.virtual.engine import VirtualLab
from seatrial_lab.virtual.machine import kernel_note, processors_note, wires_note


def status(instance: str) -> dict[str, Any]:
    """Return the state of a virtual lab, complete or not."""
    try:
        lab = VirtualLab.attach(instance)
    except LabError:  # its start was killed, or has not ended
        return {"instance": instance, "state": "broken", "hosts": []}
    spec, facts = lab.virtual_spec, lab.facts()
    try:
        states = lab.node_states() if lab.is_up() else {}
    except LabError:  # a step is being measured
        states = dict.fromkeys(spec.lab.nodes, "measuring")
    cards = {node: [c for c in spec.cards if c.node == node] for node in spec.lab.nodes}
    hosts: list[dict[str, Any]] = [
        {
            "name": host,
            "alive": lab.is_up(),
            "slurm_state": states.get(host, "unknown") if host != LOGIN else None,
            "mgmt_address": spec.lab.mgmt_address(host),
            "test_address": ", ".join(spec.address(c).split("/")[0] for c in cards.get(host, [])),
            "nics": [f"{card.interface} {card.model}" for card in cards.get(host, [])],
            "daemons": {},
        }
        for host in spec.lab.hosts
    ]
    return {
        "instance": instance,
        "engine": "virtual",
        "state": "up" if lab.is_up() and states else "broken",
        "started_at": facts["started_at"],
        "uptime_s": round(time.time() - facts["started_at"], 1),
        "user": spec.lab.user,
        "accounting": False,
        "checkout": str(spec.lab.checkout),
        "home": str(lab.paths.home),
        "logs": str(lab.paths.run),
        "versions": {
            "slurm": programs().slurm_text,
            "munge": version_of("munged"),
            "kernel": kernel_note(facts),
            "qemu": f"QEMU {facts['qemu']}",
            "processors": processors_note(facts),
            **({"wires": note} if (note := wires_note(spec, facts)) else {}),
            "python": platform.python_version(),
        },
        "hosts": hosts,
        "wires": wires.counters(lab) if lab.is_up() else [],
        "faults": [asdict(fault) for fault in lab.faults()],
    }
