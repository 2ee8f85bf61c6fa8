"""The files of NIC profiles that Slurm uses, as fields of a LabSpec.

The text of the files is the same as on a cluster; ``seatrial.slurm.render`` makes it.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from seatrial.site.model import Site
from seatrial.slurm.layout import Layout
from seatrial.slurm.policy import policy_of
from seatrial.slurm.render import node_features, render
from seatrial_lab.common.paths import LabPaths

#: shorter than on a cluster: a user of a lab waits for the cleanup after a dead job
HEALTH_INTERVAL_S, PROLOG_TIMEOUT_S, BATCH_START_TIMEOUT_S = 20, 60, 75


def lab_layout(instance: str) -> Layout:
    """Return the layout of the files: a cluster's, but all nodes share the data folder."""
    data = LabPaths(instance).data
    return Layout(
        libexec=f"{data}/libexec",
        state=f"{data}/nic/%n",
        health_interval_s=HEALTH_INTERVAL_S,
        prolog_timeout_s=PROLOG_TIMEOUT_S,
        batch_start_timeout_s=BATCH_START_TIMEOUT_S,
    )


def nic_settings(site: Site, instance: str) -> dict[str, Any]:
    """Return fields of a LabSpec for a site's NIC profiles; none if it has only ``default``."""
    if set(site.nic_profiles) <= {"default"}:
        return {}
    layout = lab_layout(instance)
    policy = policy_of(site, layout)
    data = LabPaths(instance).data
    files = {}
    for file in render(policy, layout):
        if file.path == layout.unit:
            continue  # a lab's node has no service manager; before_slurmd replaces the unit
        path = PurePosixPath(file.path)
        place = path.relative_to(data if path.is_relative_to(data) else "/")
        files[str(place)] = file.text
    return {
        "files": files,
        "features": {node: names for node, names in node_features(policy).items() if names},
        "epilog": None,
        "before_slurmd": (layout.command, "recover", "--boot"),
        "extra_slurm_conf": (*site.slurm.config, f"Include {layout.slurm_conf}"),
    }
