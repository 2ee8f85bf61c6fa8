"""From a site's description to the lab that plays it, and to the machine a trial runs on."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from ClusterShell.NodeSet import NodeSet

from seatrial.base.errors import InputError, LabError
from seatrial.base.paths import CHECKOUT
from seatrial.site.load import load_site, site_file
from seatrial.site.model import Site
from seatrial.stack import load_stack, of_spack, stack_folder
from seatrial_lab.common.owner import chown_all
from seatrial_lab.common.paths import LabPaths
from seatrial_lab.common.slurm_files import nic_settings
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.native.engine import Lab
from seatrial_lab.virtual.engine import VirtualLab
from seatrial_lab.virtual.machine import VirtualMachine
from seatrial_lab.virtual.site import virtual_spec
from seatrial_lab.virtual.spec import VirtualSpec

#: what an ordinary switch lets through, where the site says nothing
SWITCH_MTU = 9216
TAP = "tap0"


AnyLab = Lab | VirtualLab


def instance_of(site: Site, instance: str | None = None) -> str:
    """The name of a site's lab where none is given: the environment's, or after the site."""
    return instance or os.environ.get("SEATRIAL_LAB_INSTANCE") or site.name.replace("-", "_")


def lab_of_site(name: str, instance: str | None = None, accounting: bool = True) -> AnyLab:
    """The lab that plays a site, by whichever engine, started or not. Raises InputError."""
    file = site_file(name)
    site = load_site(file)
    if site.virtual:
        return VirtualLab(virtual_spec(site, instance_of(site, instance)))
    spec = spec_for_site(name, instance)
    return Lab(replace(spec, accounting=spec.accounting and accounting))


def attach(instance: str) -> AnyLab:
    """The running lab of that name. Raises LabError where there is none."""
    return VirtualLab.attach(instance) if is_virtual(instance) else Lab.attach(instance)


def is_virtual(instance: str) -> bool:
    """Whether the lab of that name, up or broken, is a virtual one."""
    return (LabPaths(instance).run / "qemu.json").exists()


def end(instance: str) -> bool:
    """End the lab of that name, whatever it is; False if there was nothing."""
    virtual = is_virtual(instance)
    empty = LabSpec(instance=instance)
    return (VirtualLab(VirtualSpec(empty, ())) if virtual else Lab(empty)).down()


def machine_of(lab: AnyLab) -> LabMachine | VirtualMachine:
    """The login node of a running lab, for a trial."""
    return VirtualMachine(lab) if isinstance(lab, VirtualLab) else LabMachine(lab)


def spec_for_site(name: str, instance: str | None = None, binds: tuple[Path, ...] = ()) -> LabSpec:
    """The lab of a site. Raises InputError where the site is not a lab, or cannot be one."""
    file = site_file(name)
    outside = () if file.is_relative_to(CHECKOUT) else (file.parent,)
    return lab_spec(load_site(file), instance, (*outside, *binds))


def lab_spec(site: Site, instance: str | None = None, binds: tuple[Path, ...] = ()) -> LabSpec:
    """The lab of a site that was read. ``binds`` are further folders that it must see."""
    if site.lab is None:
        raise InputError(f"site {site.name} has no 'lab:': its cluster exists by itself")
    if site.lab.engine != "native":
        raise InputError(f"site {site.name}: its lab is not a native one")
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
    instance = instance_of(site, instance)
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
        modulepath=module_folders(site),
        **settings,
    )


def module_folders(site: Site) -> tuple[str, ...]:
    """Where `module load` finds the stack of a site; nowhere while Spack has not built it."""
    if not of_spack(site):
        return (str(stack_folder() / "modules"),)
    try:
        return tuple(load_stack(site).modulepath)
    except LabError:
        return ()


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
        chown_all(folder, self.lab.spec.uid, self.lab.spec.gid)

    def disown(self, folder: Path) -> None:
        """Give the trial's folder back to who started the trial."""
        chown_all(folder)

    def notes(self) -> list[str]:
        return [f"fault planted on purpose: {fault}" for fault in self.lab.faults()]
