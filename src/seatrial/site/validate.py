"""Rules between the sections of one site file.

The rules on NIC profiles are in ``seatrial.site.validate_profiles``. What depends on the software
stack is in ``seatrial.plan.validate``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from ipaddress import ip_network
from itertools import combinations

from ClusterShell.NodeSet import NodeSet

from seatrial.base.names import PSEUDO_TRANSPORTS, RAIL, VERBS
from seatrial.base.suggest import FieldProblem, suggest, unmatched
from seatrial.benchmarks.registry import check_file
from seatrial.site.model import Site
from seatrial.site.validate_profiles import profile_problems


def site_problems(site: Site) -> list[FieldProblem]:
    """All problems of a site, in the order of the sections of its file."""
    return [
        *_nics(site),
        *_wires(site),
        *_networks(site),
        *_subnets(site),
        *_nodes(site),
        *_partitions(site),
        *profile_problems(site),
        *_transports(site),
        *_benchmarks(site),
        *_trial(site),
        *_jobs(site),
        *_machine(site),
    ]


def _nics(site: Site) -> Iterable[FieldProblem]:
    """Cards of a virtual lab for a class that no node has."""
    known = [group.node_class for group in site.nodes if group.node_class]
    for name in site.lab.nics if site.lab else ():
        if name not in known:
            yield FieldProblem(
                f"lab.nics.{name}", f"no node has the class {name!r}", suggest(name, known)
            )


def _wires(site: Site) -> Iterable[FieldProblem]:
    """Cables of a virtual lab for networks that do not exist, or of another rate."""
    known = site.test_networks
    for name, wire in site.lab.wires.items() if site.lab else ():
        if name not in known:
            yield FieldProblem(
                f"lab.wires.{name}", f"there is no network {name!r} of role test",
                suggest(name, known),
            )  # fmt: skip
        elif site.networks[name].line_rate not in (None, wire.rate):
            yield FieldProblem(
                f"lab.wires.{name}.rate",
                f"it is not the line_rate of network {name!r}",
                "the same rate, or no line_rate",
            )


def _networks(site: Site) -> Iterable[FieldProblem]:
    roles = [net.role for net in site.networks.values()]
    if "test" not in roles:
        yield FieldProblem(
            "networks", "no network has the role test", "set role: test on one of them"
        )
    seen: dict[str, str] = {}
    ports: dict[str | None, str] = {}
    for name, net in site.networks.items():
        if net.interface in seen:
            yield FieldProblem(
                f"networks.{name}.interface",
                f"{net.interface} is already the interface of {seen[net.interface]!r}",
                "give each network its own interface: path proof counts bytes by interface",
            )
        seen[net.interface] = name
        if net.device in ports:
            yield FieldProblem(
                f"networks.{name}.device",
                f"{net.device} is already the RDMA port of {ports[net.device]!r}",
                "give each network its own port: path proof counts bytes by port",
            )
        ports |= {net.device: name} if net.device else {}
        if net.switch_mtu is not None and net.mtu > net.switch_mtu:
            yield FieldProblem(
                f"networks.{name}.mtu",
                f"{net.mtu} is more than switch_mtu, {net.switch_mtu}",
                f"at most {net.switch_mtu}",
            )


def _subnets(site: Site) -> Iterable[FieldProblem]:
    """Subnets that overlap, or that have fewer addresses than the site has nodes."""
    subnets = {name: ip_network(net.subnet, strict=False) for name, net in site.networks.items()}
    for (first, one), (second, other) in combinations(subnets.items(), 2):
        if one.overlaps(other):
            yield FieldProblem(
                f"networks.{second}.subnet",
                f"{other} overlaps {one} of network {first!r}",
                "give each network its own subnet: a node chooses the interface by the subnet",
            )
    nodes = len(site.node_names)
    for name, subnet in subnets.items():
        hosts = subnet.num_addresses - (2 if subnet.version == 4 else 0)
        if hosts < nodes:
            longest = subnet.max_prefixlen - (nodes + 1).bit_length()
            yield FieldProblem(
                f"networks.{name}.subnet",
                f"{subnet} has {max(hosts, 0)} addresses for {nodes} nodes",
                f"a prefix of /{longest} or shorter",
            )


def _nodes(site: Site) -> Iterable[FieldProblem]:
    """Names of networks that do not exist, and nodes of the trials without a measured network."""
    partition = site.partitions.get(site.trial_partition)
    used = NodeSet(partition.nodes) if partition else NodeSet()
    at_once = [
        benchmark.settings.networks
        for benchmark in site.benchmarks.enabled()
        if benchmark.spans_networks
    ]
    measured = dict.fromkeys([*site.rails, *(name for names in at_once for name in names)])
    for index, group in enumerate(site.nodes):
        field = f"nodes.{index}.networks"
        known = list(site.networks)
        for number, name in enumerate(group.networks or []):
            if name not in known:
                yield FieldProblem(
                    f"{field}.{number}", f"there is no network {name!r}", suggest(name, known)
                )
        without = [name for name in measured if name not in (group.networks or known)]
        here = NodeSet(group.names) & used
        if without and here:
            yield FieldProblem(
                field,
                f"{here} has no interface of network {', '.join(without)}, which the trials in "
                f"partition {site.trial_partition} measure",
                f"leave {here} out of the partition, or {without[0]} out of trial.networks and of "
                "the networks of benchmarks",
            )


def _partitions(site: Site) -> Iterable[FieldProblem]:
    known = NodeSet.fromlist(site.node_names)
    for name, part in site.partitions.items():
        unknown = NodeSet(part.nodes) - known
        if unknown:
            yield FieldProblem(
                f"partitions.{name}.nodes",
                f"{unknown} is not in nodes",
                f"nodes are {known}",
            )


def _rails(site: Site) -> list[str]:
    """The networks that trials measure; all of role test where ``trial.networks`` is wrong.

    Its own problem is enough: names that it should have are not wrong elsewhere.
    """
    wrong = list(unmatched("trial.networks", site.trial.networks, site.test_networks))
    return site.test_networks if wrong else site.rails


def _transports(site: Site) -> Iterable[FieldProblem]:
    for name, transport in site.transports.items():
        if name in PSEUDO_TRANSPORTS:
            yield FieldProblem(
                f"transports.{name}", f"{name!r} is reserved for runs without MPI", "rename it"
            )
        if transport.base in PSEUDO_TRANSPORTS:
            yield FieldProblem(
                f"transports.{name}.base",
                f"{transport.base!r} is for runs without MPI",
                "the name of a transport of an MPI",
            )
        elif transport.base == name:
            yield FieldProblem(f"transports.{name}.base", "it is its own base", "leave base out")
        elif transport.base and not re.match(rf"{re.escape(transport.base)}-[^-]", name):
            yield FieldProblem(
                f"transports.{name}.base",
                f"{name!r} is not the name of its base, a hyphen and a word",
                f"name the transport {transport.base}-WORD, or correct the base",
            )
        network = transport.network or next(iter(site.test_networks), "")
        device = network in site.networks and site.networks[network].device
        if transport.data_path == "verbs" and network in site.networks and not device:
            yield FieldProblem(
                f"transports.{name}.data_path",
                f"network {network!r} has no RDMA device, whose counters prove the path",
                f"add the device and port to networks.{network}, as device: mlx5_0:1",
            )
        if transport.network and transport.network not in site.networks:
            yield FieldProblem(
                f"transports.{name}.network",
                f"there is no network {transport.network!r}",
                suggest(transport.network, site.networks),
            )
        elif transport.network and transport.network not in site.test_networks:
            yield FieldProblem(
                f"transports.{name}.network",
                f"network {transport.network!r} is not of role test, and only such networks are "
                "measured",
                f"one of {', '.join(site.test_networks) or 'those with role: test'}",
            )
        elif transport.network and not site.networks[transport.network].cable:
            yield _without_cable(f"transports.{name}.network", transport.network)
        elif transport.network and transport.network not in _rails(site):
            yield FieldProblem(
                f"transports.{name}.network",
                f"trial.networks leaves out {transport.network}",
                f"add {transport.network} to trial.networks",
            )
        if len(site.rails) > 1 and RAIL in name:
            yield FieldProblem(
                f"transports.{name}",
                f"{RAIL!r} separates a transport from its network in ReFrame's environments",
                "rename it",
            )


def _without_cable(field: str, network: str) -> FieldProblem:
    return FieldProblem(
        field,
        f"network {network!r} has no cable (cable: false)",
        f"another network, or cable: true in networks.{network}",
    )


def _benchmarks(site: Site) -> Iterable[FieldProblem]:
    largest = max((len(NodeSet(part.nodes)) for part in site.partitions.values()), default=0)
    known = {*site.transports, *site.pseudo_transports}
    for name in site.benchmarks.empty():
        yield FieldProblem(
            f"benchmarks.{name}",
            "expected a mapping, found nothing",
            f"write '{name}: {{}}' for its defaults, or remove the line",
        )
    for benchmark in site.benchmarks.enabled():
        field, settings = f"benchmarks.{benchmark.name}", benchmark.settings
        yield from _check(field, benchmark.name)
        for index, count in enumerate(settings.nodes):
            if count > largest:
                yield FieldProblem(
                    f"{field}.nodes.{index}",
                    f"{count} nodes are more than the largest partition has",
                    f"at most {largest}",
                )
        if benchmark.pseudo_transport == VERBS and VERBS not in site.pseudo_transports:
            yield FieldProblem(
                field,
                "no network of role test has an RDMA device",
                "add its device and port, as device: mlx5_0:1",
            )
        for problem in benchmark.problems(site):
            yield problem._replace(field=f"{field}.{problem.field}")
        yield from unmatched(f"{field}.transports", settings.transports, known)
        if patterns := getattr(settings, "mpi_time", []):
            yield from unmatched(f"{field}.mpi_time", patterns, site.transports)
        if benchmark.spans_networks:
            for index, name in enumerate(settings.networks):
                if name in site.test_networks and not site.networks[name].cable:
                    yield _without_cable(f"{field}.networks.{index}", name)
        else:
            yield from unmatched(f"{field}.networks", settings.networks, _rails(site))
        yield from unmatched(f"{field}.profiles", settings.profiles, site.nic_profiles)


def _check(field: str, name: str) -> Iterable[FieldProblem]:
    """A check that ReFrame would not run: it passes silently over one for something else."""
    file = check_file(name)
    shown = f"{file.parent.name}/{file.name}"
    if not file.is_file():
        right = "write it as docs/add-a-benchmark.md shows"
        yield FieldProblem(field, f"its check is missing: {shown}", right)
        return
    text = file.read_text(errors="replace")
    try:
        tree = ast.parse(text, file.name)
    except (SyntaxError, ValueError) as error:
        yield FieldProblem(field, f"{shown}: {error}", "correct the check")
        return
    classes = [
        node for node in tree.body if isinstance(node, ast.ClassDef) and _is_check(node, name)
    ]
    if not classes:
        message = f"{shown} has no check of this benchmark"
        yield FieldProblem(field, message, f'benchmark = "{name}"')
    for check in classes:
        if "site_test" not in {ast.unparse(decorator) for decorator in check.decorator_list}:
            message = f"{shown}:{check.lineno}: ReFrame does not run class {check.name}"
            yield FieldProblem(field, message, "add @site_test above it")
    for other in sorted({*re.findall(r"""["']\+(\w+)["']""", text)} - {name}):
        yield FieldProblem(field, f"{shown} asks for +{other}, which no partition has", f"+{name}")
    for line, call, other in _asked(tree):
        if other != name:
            message = f"{shown}:{line}: {call} is of another benchmark"
            yield FieldProblem(field, message, call.replace(repr(other), repr(name)))


def _is_check(check: ast.ClassDef, name: str) -> bool:
    for line in check.body:
        match line:
            case ast.Assign(targets=[ast.Name("benchmark")], value=ast.Constant(value)):
                return bool(value == name)
    return False


def _asked(tree: ast.Module) -> Iterable[tuple[int, str, str]]:
    """Line, call and benchmark of each call of ``context`` with the name of a benchmark."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                ast.Attribute(ast.Name("context"), "node_counts" | "variants"),
                [ast.Constant(str(name)), *_],
            ):
                yield node.lineno, ast.unparse(node), name


def _trial(site: Site) -> Iterable[FieldProblem]:
    if site.trial.partition is None and len(site.partitions) > 1:
        names = ", ".join(site.partitions)
        yield FieldProblem(
            "trial.partition",
            f"there are several partitions ({names}), but a trial uses one",
            f"add partition: {next(iter(site.partitions))}",
        )
    if site.trial.partition is not None and site.trial.partition not in site.partitions:
        message = f"there is no partition {site.trial.partition!r}"
        yield FieldProblem(
            "trial.partition", message, suggest(site.trial.partition, site.partitions)
        )
    yield from unmatched("trial.profiles", site.trial.profiles, site.nic_profiles)
    known = {*site.transports, *site.pseudo_transports}
    yield from unmatched("trial.transports", site.trial.transports, known)
    yield from unmatched("trial.networks", site.trial.networks, site.test_networks)


def _jobs(site: Site) -> Iterable[FieldProblem]:
    for index, name in enumerate(site.jobs.transports):
        if name not in site.transports:
            message = f"the section transports has no {name!r}"
            field = f"jobs.transports.{index}"
            yield FieldProblem(field, message, suggest(name, site.transports))


def _machine(site: Site) -> Iterable[FieldProblem]:
    """Prices of networks and profiles that the site does not have."""
    for index, cost in enumerate(site.machine.costs):
        known = {"network": site.test_networks, "profile": list(site.nic_profiles)}
        for field, names in known.items():
            name = getattr(cost, field)
            if name is not None and name not in names:
                role = " of role test" if field == "network" else ""
                yield FieldProblem(
                    f"machine.costs.{index}.{field}",
                    f"there is no {field} {name!r}{role}",
                    suggest(name, names),
                )
