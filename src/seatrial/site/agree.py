"""What must agree between the parts of one site file, beyond the type of each field."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import NamedTuple

from ClusterShell.NodeSet import NodeSet

from seatrial.site.model import Site

PLAIN_SOCKETS = "tcp"  # the transport of checks that use no MPI
NO_TRANSPORT = "none"  # of checks that send nothing


class Fault(NamedTuple):
    field: str
    message: str
    correction: str


def disagreements(site: Site) -> list[Fault]:
    """All contradictions in ``site``, in the order of the file's fields."""
    return [
        *_networks(site),
        *_partitions(site),
        *_profiles(site),
        *_transports(site),
        *_benchmarks(site),
        *_trial(site),
    ]


def suggest(word: str, known: Iterable[str]) -> str:
    """A correction for a name that is not among ``known``."""
    names = sorted(known)
    near = get_close_matches(word, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(names) or 'none'}"


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


def _profiles(site: Site) -> Iterable[Fault]:
    if "default" not in site.nic_profiles:
        yield Fault("nic_profiles", "there is no profile 'default'", "add it: the node as it boots")
    for name, profile in site.nic_profiles.items():
        if name != "default" and not profile.feature:
            yield Fault(
                f"nic_profiles.{name}.feature",
                "a profile other than default needs the Slurm feature that asks for it",
                f"add feature: nic_{name.replace('-', '_')}",
            )
        elif name != "default":
            # Figures under the name of settings that nobody made would be worse than none.
            yield Fault(
                f"nic_profiles.{name}",
                "this version does not set NICs: only 'default' can be tried",
                "remove it for now",
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
        yield from unmatched(f"benchmarks.{name}.transports", benchmark.transports, known)
        yield from unmatched(f"benchmarks.{name}.profiles", benchmark.profiles, site.nic_profiles)


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


def unmatched(field: str, patterns: list[str], known: Iterable[str]) -> Iterable[Fault]:
    """A fault for each glob pattern that matches nothing: most likely a misspelt name."""
    names = list(known)
    for index, pattern in enumerate(patterns):
        if not any(fnmatchcase(name, pattern) for name in names):
            yield Fault(f"{field}.{index}", f"{pattern!r} matches nothing", suggest(pattern, names))
