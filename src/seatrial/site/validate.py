"""What must agree between the parts of one site file, beyond the type of each field."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ClusterShell.NodeSet import NodeSet

from seatrial.base.names import NO_TRANSPORT, PLAIN_SOCKETS
from seatrial.base.suggest import Fault, suggest, unmatched
from seatrial.site.model import NPB, MPBench, Site, TCPStreams
from seatrial.site.validate_profiles import profile_faults


def disagreements(site: Site) -> list[Fault]:
    """All contradictions in ``site``, in the order of the file's fields."""
    return [
        *_networks(site),
        *_partitions(site),
        *profile_faults(site),
        *_transports(site),
        *_benchmarks(site),
        *_trial(site),
    ]


def _networks(site: Site) -> Iterable[Fault]:
    roles = [net.role for net in site.networks.values()]
    if "test" not in roles:
        yield Fault("networks", "no network has the role test", "set role: test on one of them")
    seen: dict[str, str] = {}
    for name, net in site.networks.items():
        if net.interface in seen:
            yield Fault(
                f"networks.{name}.interface",
                f"{net.interface} is already the interface of {seen[net.interface]!r}",
                "each network needs an interface of its own, or path proof cannot tell them apart",
            )
        seen[net.interface] = name
        if net.switch_mtu is not None and net.mtu > net.switch_mtu:
            yield Fault(
                f"networks.{name}.mtu",
                f"{net.mtu} is more than the switches carry: switch_mtu is {net.switch_mtu}",
                f"at most {net.switch_mtu}",
            )


def _partitions(site: Site) -> Iterable[Fault]:
    known = NodeSet.fromlist(site.node_names)
    for name, part in site.partitions.items():
        unknown = NodeSet(part.nodes) - known
        if unknown:
            yield Fault(
                f"partitions.{name}.nodes",
                f"{unknown} is not among the nodes",
                f"nodes are {known}",
            )


def _transports(site: Site) -> Iterable[Fault]:
    for name, transport in site.transports.items():
        if name in (PLAIN_SOCKETS, NO_TRANSPORT):
            yield Fault(
                f"transports.{name}", "this name is taken", "it stands for runs without MPI"
            )
        if transport.network and transport.network not in site.networks:
            yield Fault(
                f"transports.{name}.network",
                f"there is no network {transport.network!r}",
                suggest(transport.network, site.networks),
            )


def _benchmarks(site: Site) -> Iterable[Fault]:
    largest = max((len(NodeSet(part.nodes)) for part in site.partitions.values()), default=0)
    for name, benchmark in site.benchmarks:
        if benchmark is None:
            continue
        for index, count in enumerate(benchmark.nodes):
            if count > largest:
                yield Fault(
                    f"benchmarks.{name}.nodes.{index}",
                    f"{count} nodes are more than any partition has",
                    f"at most {largest}",
                )
        known = {*site.transports, PLAIN_SOCKETS, NO_TRANSPORT}
        if isinstance(benchmark, NPB):
            yield from _npb(benchmark)
        elif isinstance(benchmark, MPBench):
            yield from _mpbench(benchmark)
        elif isinstance(benchmark, TCPStreams):
            tests = [name for name, net in site.networks.items() if net.role == "test"]
            for index, network in enumerate(benchmark.networks):
                if network not in tests:
                    yield Fault(
                        f"benchmarks.tcp_streams.networks.{index}",
                        f"{network!r} is no network of role test",
                        suggest(network, tests),
                    )
        yield from unmatched(f"benchmarks.{name}.transports", benchmark.transports, known)
        yield from unmatched(f"benchmarks.{name}.profiles", benchmark.profiles, site.nic_profiles)


def _npb(npb: NPB) -> Iterable[Fault]:
    """NPB's BT and SP take only a square number of ranks, all but EP and LU a power of two
    (README of NPB3.4-MPI)."""
    for count in npb.nodes:
        ranks = count * npb.ranks_per_node
        for index, kernel in enumerate(npb.kernels):
            if kernel in ("bt", "sp"):
                fits, due = math.isqrt(ranks) ** 2 == ranks, "a square number: 1, 4, 9, 16 ..."
            elif kernel in ("is", "cg", "mg", "ft"):
                fits, due = ranks & (ranks - 1) == 0, "a power of two: 1, 2, 4, 8 ..."
            else:
                continue
            if not fits:
                yield Fault(
                    f"benchmarks.npb.kernels.{index}",
                    f"{kernel} does not run on {ranks} ranks ({count} nodes x "
                    f"{npb.ranks_per_node} per node)",
                    f"it needs {due}",
                )


def _mpbench(mpbench: MPBench) -> Iterable[Fault]:
    largest = int(mpbench.max_bytes)
    if largest < 8 or largest & (largest - 1):
        yield Fault(
            "benchmarks.mpbench.max_bytes",
            f"{largest} B is not a size of mpi_bench",
            "a power of two of at least 8 B, as 64 KiB",
        )
    if largest * mpbench.iterations >= 1 << 31:
        yield Fault(
            "benchmarks.mpbench.iterations",
            f"{mpbench.iterations} x {largest} B is over 2 GiB: mpi_bench counts bytes in an int",
            f"at most {((1 << 31) - 1) // largest}",
        )


def _trial(site: Site) -> Iterable[Fault]:
    if site.trial.partition is None and len(site.partitions) > 1:
        names = ", ".join(site.partitions)
        yield Fault(
            "trial.partition",
            f"there are several partitions ({names}), and a trial uses one of them",
            f"add partition: {next(iter(site.partitions))}",
        )
    if site.trial.partition is not None and site.trial.partition not in site.partitions:
        message = f"there is no partition {site.trial.partition!r}"
        yield Fault("trial.partition", message, suggest(site.trial.partition, site.partitions))
    yield from unmatched("trial.profiles", site.trial.profiles, site.nic_profiles)
    known = {*site.transports, PLAIN_SOCKETS, NO_TRANSPORT}
    yield from unmatched("trial.transports", site.trial.transports, known)
