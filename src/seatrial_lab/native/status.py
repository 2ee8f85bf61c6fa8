"""The state of a native lab as data."""

from __future__ import annotations

import platform
import re
import time
from typing import Any

from seatrial.base.errors import LabError
from seatrial_lab.common import access, processes, state
from seatrial_lab.common.paths import LabPaths
from seatrial_lab.common.programs import programs, version_of
from seatrial_lab.common.spec import LOGIN, LabSpec
from seatrial_lab.native.engine import Lab

_DAEMONS = ("munged", "slurmctld", "slurmdbd", "mariadbd", "slurmd")


def status(instance: str) -> dict[str, Any]:
    """Return the state of an instance, up or not, as plain data for JSON.

    Keys: ``instance``, ``state`` (up, broken or down), ``uptime_s``, ``user``,
    ``checkout``, ``home``, ``logs``, ``versions``, ``hosts`` (name, alive,
    state in Slurm, addresses, daemons with their process ids on this machine)
    and ``faults``.
    """
    running = state.load(instance)
    paths = LabPaths(instance)
    if running is None:
        left = paths.run.exists() or paths.data.exists()
        return {"instance": instance, "state": "broken" if left else "down", "hosts": []}
    spec = running.spec
    slurm = _slurm_states(spec)
    hosts = [_host(spec, host, slurm) for host in spec.hosts]
    complete = bool(slurm) and all(entry["alive"] for entry in hosts)
    return {
        "instance": instance,
        "state": "up" if complete else "broken",
        "started_at": running.started_at,
        "uptime_s": round(time.time() - running.started_at, 1),
        "user": spec.user,
        "accounting": spec.accounting,
        "checkout": str(spec.checkout),
        "home": str(paths.home),
        "logs": str(paths.data / "log"),
        "test_mtu": spec.test_mtu,
        "versions": _versions(spec),
        "hosts": hosts,
        "faults": [vars(fault) for fault in running.faults],
    }


def _slurm_states(spec: LabSpec) -> dict[str, str]:
    try:
        return Lab(spec).node_states()
    except LabError:
        return {}


def _host(spec: LabSpec, host: str, slurm: dict[str, str]) -> dict[str, Any]:
    first = access.first_process(spec, host)
    inside = processes.in_node(first) if first else {}
    compute = host != LOGIN
    return {
        "name": host,
        "alive": first is not None,
        "slurm_state": slurm.get(host, "unknown") if compute else None,
        "mgmt_address": spec.mgmt_address(host),
        "test_address": ", ".join(
            spec.test_address(host, subnet) for subnet in (spec.test_subnet, *spec.rails)
        )
        if compute
        else None,
        "cpus": spec.cpus if compute else None,
        "first_process": first,
        "daemons": {name: pid for pid, name in sorted(inside.items()) if name in _DAEMONS},
    }


def _versions(spec: LabSpec) -> dict[str, str]:
    versions = {
        "slurm": programs().slurm_text,
        "munge": version_of("munged"),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    if spec.accounting:
        match = re.search(r"\d[\d.]*-MariaDB", version_of("mariadbd"))
        versions["mariadb"] = match[0] if match else "unknown"
    return versions
