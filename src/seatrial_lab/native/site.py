"""Convert a site's description to the specification of its native lab. Starts nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ClusterShell.NodeSet import NodeSet

from seatrial.base.errors import InputError, LabError
from seatrial.base.paths import CHECKOUT
from seatrial.site.load import load_site, site_file
from seatrial.site.model import Site
from seatrial.stack import load_stack, of_spack, stack_folder
from seatrial_lab.common.network import TEST
from seatrial_lab.common.paths import instance_of
from seatrial_lab.common.slurm_files import nic_settings
from seatrial_lab.common.spec import LabSpec

#: the MTU of a common switch; the default if the site sets none
SWITCH_MTU = 9216
TAP = "tap0"


def spec_for_site(name: str, instance: str | None = None, binds: tuple[Path, ...] = ()) -> LabSpec:
    """Return the lab of a site. Raises InputError if the site has no valid native lab."""
    file = site_file(name)
    outside = () if file.is_relative_to(CHECKOUT) else (file.parent,)
    return lab_spec(load_site(file), instance, (*outside, *binds))


def lab_spec(site: Site, instance: str | None = None, binds: tuple[Path, ...] = ()) -> LabSpec:
    """Return the lab of a loaded site. Its hosts show the checkout, the stack and ``binds``.

    Raises InputError if the site has no valid native lab.
    """
    if site.lab is None:
        raise InputError("the site has no 'lab:': it describes a real cluster")
    if site.lab.engine != "native":
        raise InputError(
            "the lab of the site is not native: in a virtual one, 'seatrial lab shell --node NODE "
            "--user root --' runs a command on a node"
        )
    management = [net for net in site.networks.values() if net.role == "management"]
    test = [net for net in site.networks.values() if net.role == "test"]
    interfaces = [net.interface for net in (*management, *test)]
    cabled = [net for net in test if net.interface != TAP]
    wanted = [f"eth{number}" for number in range(1 + max(1, len(cabled)))]
    if interfaces not in (wanted, [*wanted, TAP]):
        raise InputError(
            "a native lab has one management network on eth0, one test "
            f"network on {TEST}, may have others on eth2 and so on, and "
            f"may have a second on {TAP}, not {', '.join(interfaces)}"
        )
    if len({(net.mtu, net.switch_mtu or SWITCH_MTU) for net in cabled}) > 1:
        raise InputError("the test networks of a native lab have one MTU")
    cores, memory = {group.cores for group in site.nodes}, {g.memory_MiB for g in site.nodes}
    if len(cores) > 1 or len(memory) > 1:
        raise InputError("all nodes of a native lab are alike")
    for name, part in site.partitions.items():
        if NodeSet(part.nodes) != NodeSet.fromlist(site.node_names):
            raise InputError(f"partition {name} of a native lab holds all nodes")
    licenses = ",".join(
        f"{name}:{count or os.cpu_count() or 1}" for name, count in site.slurm.licenses.items()
    )
    stack = stack_folder().resolve()
    if stack.is_dir() and not stack.is_relative_to(CHECKOUT):
        binds = (stack, *binds)
    instance = instance_of(site.name, instance)
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
        rails=tuple(net.subnet for net in cabled[1:]),
        taps=tuple(net.interface for net in test if net.interface == TAP),
        binds=binds,
        partitions=tuple(site.partitions),
        licenses=licenses or None,
        accounting=site.lab.accounting,
        modulepath=module_folders(site),
        **settings,
    )


def module_folders(site: Site) -> tuple[str, ...]:
    """Return the module folders of a site's stack; none before Spack has built the stack."""
    if not of_spack(site):
        return (str(stack_folder() / "modules"),)
    try:
        return tuple(load_stack(site).modulepath)
    except LabError:
        return ()
