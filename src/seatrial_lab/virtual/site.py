"""Convert a site's description to the specification of its virtual lab. Starts nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ClusterShell.NodeSet import NodeSet

from seatrial.base.errors import InputError, LabError, Problem
from seatrial.site.model import LabWire, Site
from seatrial.stack import stack_folder
from seatrial_lab.common.slurm_files import nic_settings
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.virtual import kernels
from seatrial_lab.virtual.spec import WINDOW_NS, Card, VirtualSpec, Wire

#: at the end of slurm.conf. No health checks: each starts a Python on every node, also during a
#: measurement. The scheduler runs on events, not every second.
SLURM_CONF = (
    "HealthCheckInterval=0",
    (
        "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=600,"
        "bf_interval=600"
    ),
    "SlurmdTimeout=3600",
    "SlurmctldTimeout=3600",
    "MessageTimeout=60",
    "TCPTimeout=20",
)
MOST_PROCESSORS = 4  # of a node, where the nodes have their own
TASK_PROLOG = Path(__file__).with_name("guest") / "task-prolog.sh"
SLURM_FILES = "/etc/slurm"  # on the nodes
FRAMING = 38  # bytes of Ethernet around the packet: preamble, header, FCS and the gap


def virtual_spec(site: Site, instance: str) -> VirtualSpec:
    """Return the virtual lab of a site. Raises InputError if the site is not valid for one."""
    assert site.lab is not None
    management = [net for net in site.networks.values() if net.role == "management"]
    test = [net for net in site.networks.values() if net.role == "test"]
    if [net.interface for net in management] != ["eth0"]:
        raise InputError("a virtual lab has one management network, on eth0")
    most = MOST_PROCESSORS if site.lab.processors == "own" else 1
    first = site.nodes[0]
    for number, group in enumerate(site.nodes):
        for name, value, same in (
            ("cores", group.cores, first.cores),
            ("memory_MiB", group.memory_MiB, first.memory_MiB),
        ):
            if value != same:
                text, right = f"{value} is not that of {first.names}, {same}", "the same in all"
                raise InputError([Problem("", None, f"nodes.{number}.{name}", text, right)])
        if group.cores > most:
            with_own = "" if most > 1 else f"; with lab.processors: own up to {MOST_PROCESSORS}"
            text, right = (
                f"{group.cores} cores are too many",
                f"at most {most} in this lab{with_own}",
            )
            raise InputError([Problem("", None, f"nodes.{number}.cores", text, right)])
    for name, part in site.partitions.items():
        if NodeSet(part.nodes) != NodeSet.fromlist(site.node_names):
            raise InputError(f"partition {name} of a lab holds all nodes")
    kernel = site.lab.kernel or ""
    if problems := [*_kernel_problems(kernel), *_driver_problems(site.lab.drivers)]:
        raise InputError(problems)
    settings: dict[str, Any] = {"extra_slurm_conf": tuple(site.slurm.config)}
    settings |= nic_settings(site, instance)
    several = first.cores > 1
    # A site's own TaskProlog is later in the file, so it counts.
    before = (f"TaskProlog={SLURM_FILES}/{TASK_PROLOG.name}",) if several else ()
    settings["extra_slurm_conf"] = (*before, *settings["extra_slurm_conf"], *SLURM_CONF)
    settings.pop("before_slurmd", None)  # nothing to recover: the NICs are new with the guest
    lab = LabSpec(
        instance=instance,
        nodes=tuple(site.node_names),
        cpus=first.cores,
        memory_mb=first.memory_MiB,
        mgmt_subnet=management[0].subnet,
        test_subnet=test[0].subnet,
        partitions=tuple(site.partitions),
        licenses=None,
        slurm_files={TASK_PROLOG.name: TASK_PROLOG.read_text()} if several else {},
        accounting=False,
        modulepath=(str(stack_folder() / "modules"),),
        **settings,
    )
    return VirtualSpec(
        lab,
        tuple(_cards(site)),
        site.lab.memory_MiB,
        kernel,
        drivers=tuple(site.lab.drivers),
        own_processors=site.lab.processors == "own",
        bus_B_s=round(site.lab.bus_MB_s * 10**6) if site.lab.bus_MB_s else None,
        window_ns=site.lab.window_ns or WINDOW_NS,
    )


def _kernel_problems(kernel: str) -> Iterator[Problem]:
    if not kernel.startswith("/"):
        return
    try:
        if not Path(kernel).is_dir():
            raise LabError(f"there is no folder {kernel}")
        kernels.files_of_own(Path(kernel))
    except LabError as error:
        yield Problem("", None, "lab.kernel", str(error))


def _driver_problems(drivers: Sequence[str]) -> Iterator[Problem]:
    names: dict[str, str] = {}
    for number, file in enumerate(drivers):
        try:
            kernels.read_driver(Path(file))
            if (name := kernels.module_name(file)) in names:
                raise LabError(f"driver {file}: {name} has a file already: {names[name]}")
            names[name] = file
        except LabError as error:
            yield Problem("", None, f"lab.drivers.{number}", str(error))


def _cards(site: Site) -> list[Card]:
    """Return the NICs of all nodes. On each test network, nodes of one class are connected."""
    assert site.lab is not None
    test = [net for net in site.networks.values() if net.role == "test"]
    wires = [
        _wire(site.lab.wires.get(name), name, max(net.mtu, net.switch_mtu or 0))
        for name, net in zip(site.test_networks, test, strict=True)
    ]
    cards = []
    for number, group in enumerate(site.nodes):
        models = site.lab.nics.get(group.node_class or "", [])
        if len(models) != len(test):
            text = f"one NIC model is needed for each of the {len(test)} test networks"
            field = f"lab.nics.{group.node_class}"
            raise InputError([Problem("", None, field, f"{text}, not {len(models)}")])
        cards += [
            Card(
                node,
                net.interface,
                model,
                number * len(test) + position,
                net.subnet,
                net.mtu,
                net.rdma_port(node).partition(":")[0],
                wire,
            )
            for node in NodeSet(group.names)
            for position, (net, model, wire) in enumerate(zip(test, models, wires, strict=True))
        ]
    return cards


def _wire(wire: LabWire | None, network: str, mtu: int) -> Wire | None:
    """``mtu``: the greatest one that the network can have."""
    if wire is None:
        return None
    if wire.switch is None:
        return Wire(int(wire.rate), wire.delay_ns, bus=wire.bus)
    queue = int(wire.switch.queue)
    if queue < mtu + FRAMING:
        text = f"{queue} B hold no frame of this network: at least {mtu + FRAMING} B are needed"
        raise InputError([Problem("", None, f"lab.wires.{network}.switch.queue", text)])
    return Wire(int(wire.rate), wire.delay_ns, queue, wire.switch.latency_ns, wire.bus)
