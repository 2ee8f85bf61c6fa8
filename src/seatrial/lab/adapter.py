"""From a site's description to the lab that plays it, and to the machine a trial runs on."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from typing import Any

from ClusterShell.NodeSet import NodeSet

from seatrial.errors import InputError
from seatrial.lab.engine import Lab
from seatrial.lab.spec import LabSpec
from seatrial.site.load import CHECKOUT, load_site, site_file
from seatrial.site.model import Site
from seatrial.slurm.lab import nic_settings
from seatrial.stack import stack_folder

#: what an ordinary switch lets through, where the site says nothing
SWITCH_MTU = 9216
TAP = "tap0"


def spec_for_site(name: str, instance: str | None = None, binds: tuple[Path, ...] = ()) -> LabSpec:
    """The lab of a site. Raises InputError where the site is not a lab, or cannot be one."""
    file = site_file(name)
    outside = () if file.is_relative_to(CHECKOUT) else (file.parent,)
    return lab_spec(load_site(file), instance, (*outside, *binds))


def lab_spec(site: Site, instance: str | None = None, binds: tuple[Path, ...] = ()) -> LabSpec:
    """The lab of a site that was read. ``binds`` are further folders that it must see."""
    if site.lab is None:
        raise InputError(f"site {site.name} has no 'lab:': its cluster exists by itself")
    management = [net for net in site.networks.values() if net.role == "management"]
    test = [net for net in site.networks.values() if net.role == "test"]
    interfaces = [net.interface for net in (*management, *test)]
    if interfaces not in (["eth0", "eth1"], ["eth0", "eth1", TAP]):
        raise InputError(
            f"site {site.name}: a native lab has one management network on eth0, one test "
            f"network on eth1 and may have a second on {TAP}, not {', '.join(interfaces)}"
        )
    cores, memory = {group.cores for group in site.nodes}, {g.memory_MiB for g in site.nodes}
    if len(cores) > 1 or len(memory) > 1:
        raise InputError(f"site {site.name}: all nodes of a native lab are alike")
    for name, part in site.partitions.items():
        if NodeSet(part.nodes) != NodeSet.fromlist(site.node_names):
            raise InputError(f"site {site.name}: partition {name} of a native lab holds all nodes")
    licenses = ",".join(
        f"{name}:{count or os.cpu_count() or 1}" for name, count in site.slurm.licenses.items()
    )
    instance = instance or os.environ.get("SEATRIAL_LAB_INSTANCE") or site.name.replace("-", "_")
    settings: dict[str, Any] = {"extra_slurm_conf": tuple(site.slurm.config)}
    settings |= nic_settings(site, instance)
    return LabSpec(
        instance=instance,
        nodes=tuple(site.node_names),
        cpus=cores.pop(),
        memory_mb=memory.pop(),
        mgmt_subnet=management[0].subnet,
        test_subnet=test[0].subnet,
        test_mtu=test[0].mtu,
        switch_mtu=max(test[0].switch_mtu or SWITCH_MTU, test[0].mtu),
        taps=tuple(net.interface for net in test[1:]),
        binds=binds,
        partitions=tuple(site.partitions),
        licenses=licenses or None,
        accounting=site.lab.accounting,
        modulepath=(str(stack_folder() / "modules"),),
        **settings,
    )


class LabMachine:
    """The login node of a lab, for ``seatrial.trial.run``."""

    def __init__(self, lab: Lab):
        self.lab = lab

    def popen(self, argv: list[str], env: dict[str, str], cwd: Path) -> subprocess.Popen:
        return self.lab.popen(
            argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def run(self, argv: list[str]) -> subprocess.CompletedProcess:
        return self.lab.run(argv, timeout=60, check=False)

    def own(self, folder: Path) -> None:
        """Let the lab's user write the trial's folder."""
        _chown(folder, self.lab.spec.uid, self.lab.spec.gid)

    def disown(self, folder: Path) -> None:
        """Give the trial's folder back to who started the trial."""
        _chown(folder, os.getuid(), os.getgid())

    def notes(self) -> list[str]:
        return [f"fault planted on purpose: {fault}" for fault in self.lab.faults()]


def _chown(folder: Path, uid: int, gid: int) -> None:
    os.chown(folder, uid, gid)
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):  # a job that ends removes its files
                os.chown(Path(root) / name, uid, gid, follow_symlinks=False)
