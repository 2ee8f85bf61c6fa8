"""The plan of a job: nodes, ranks, transport, module and NIC profile for a request on a site.

Every error of a request is raised here, except those that a template itself raises. Nothing here
renders a template.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ClusterShell.NodeSet import NodeSet

from seatrial.base.errors import InputError
from seatrial.base.suggest import suggest
from seatrial.job import hpl
from seatrial.job.choose import Chosen, choose, choose_kind, choose_launcher, mpi_of
from seatrial.job.measured import Size
from seatrial.job.request import Request, Surroundings
from seatrial.job.template import Parameter, Template
from seatrial.site.model import Nodes, Site
from seatrial.site.profiles import carrier_interfaces, measured_on, nodes_of, resolved
from seatrial.stack import wire_up
from seatrial.stack.model import Transport
from seatrial.stack.transports import TRANSPORTS, UCX_DEVICES, bound, with_shared_memory

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class Plan:
    """Everything that a template is rendered from. The fields are the templates' variables."""

    template: Template
    kind: str
    kind_why: str
    nodes: int
    ranks_per_node: int
    cpus_per_rank: int
    partition: str
    memory_MiB: int
    options: list[str]
    transport: str
    transport_why: str
    transport_description: str
    within_node: str
    mpi: str
    launcher: str
    srun_options: list[str]
    over_pmix: bool  # whether srun starts the ranks over Slurm's PMIx
    bind: dict[str, str]
    network: str
    interface: str
    rdma_ports: dict[str, str]  # interface -> RDMA port, for a transport of verbs; else empty
    test_interfaces: list[str]
    profile: str
    profile_why: str
    basis: str  # the trial, its answer and interval, if the choice is measured; else ""
    constraint: str
    exclusive: bool
    module: str
    module_folder: str
    exports: dict[str, str]
    unset: list[str]  # variables that the module may set, and that have no value for all nodes
    from_stack: bool
    stack_blas: dict[str, str]
    values: dict[str, Any]

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node


def plan(request: Request, around: Surroundings) -> Plan:
    """The plan for a request. Raises InputError that names what is wrong and what is right."""
    site, template = around.site, request.template
    values = _values(request)
    kind, kind_why = choose_kind(request, values)
    partition = values.get("partition") or site.trial_partition
    if partition not in site.partitions:
        hint = suggest(partition, site.partitions)
        raise InputError(f"site {site.name} has no partition {partition!r} ({hint})")
    chosen = choose(request, around, kind, values, partition)
    transport, profile, constraint = chosen.transport, chosen.profile, chosen.feature
    base = site.base_of(transport.name)
    part = _known(base)
    mpi = mpi_of(transport.name)
    launcher = choose_launcher(request, mpi)
    groups, offered = _nodes(site, partition, profile.name)
    nodes = request.nodes if request.nodes is not None else min(template.header.nodes, offered)
    ranks, cpus = _layout(request, values, groups)
    _check_nodes(nodes, offered, site, partition, profile.name)
    memory_MiB = min(group.memory_MiB for group in groups)
    of_site = site.transports.get(transport.name)
    network_name = chosen.network or measured_on(site, transport.name, profile.name)
    carriers = carrier_interfaces(site, profile.name)
    if network_name not in carriers:
        raise InputError(
            f"transport {transport.name} uses network {network_name}, whose interface is in the "
            f"bond of NIC profile {profile.name} and carries no network of its own; choose another "
            "profile or transport"
        )
    if not site.networks[network_name].cable:
        raise InputError(
            f"transport {transport.name} uses network {network_name}, which has no cable in "
            "site.yaml; choose another profile or transport"
        )
    interface = carriers[network_name]
    ports = _rdma_ports(site, transport.name, carriers)
    module, folder = _module(values, around, base)
    srun_options = [*part.launcher, *(of_site.options if of_site else [])]
    result = Plan(
        template=template,
        kind=kind or "",
        kind_why=kind_why,
        nodes=nodes,
        ranks_per_node=ranks,
        cpus_per_rank=cpus,
        partition=partition,
        memory_MiB=memory_MiB,
        options=[*site.partitions[partition].options, *site.slurm.options],
        transport=transport.name,
        transport_why=transport.why,
        transport_description=(of_site.description if of_site else "") or part.description,
        within_node=part.within_node,
        mpi=mpi,
        launcher=launcher,
        srun_options=srun_options,
        over_pmix=launcher == "srun" and wire_up.over_pmix(srun_options),
        bind=dict(part.bind),
        network=network_name,
        interface=interface,
        rdma_ports=ports,
        test_interfaces=[
            carriers[name]
            for name in site.test_networks
            if name in carriers and site.networks[name].cable
        ],
        profile=profile.name,
        profile_why=profile.why,
        basis=_basis(chosen, request, around, values, nodes, ranks, memory_MiB),
        constraint=constraint,
        exclusive=template.header.exclusive or bool(constraint),
        module=module,
        module_folder=folder,
        exports={},
        unset=[],
        from_stack=False,
        stack_blas=around.stack.blas() if around.stack else {},
        values=values,
    )
    result.exports = {
        **_settings(part, around, values, bool(module)),
        **_tied(part, interface, site.networks[network_name].subnet, ports),
        **(_for_users(of_site.env) if of_site else {}),
    }
    if module and ports and UCX_DEVICES in part.bind and UCX_DEVICES not in result.exports:
        result.unset = [UCX_DEVICES]  # UCX over verbs finds no device by the module's interface
    if wrong := [export for export in result.exports if not _NAME.fullmatch(export)]:
        raise InputError(
            f"transport {transport.name}: {wrong[0]!r} is not a valid name of a variable"
        )
    _programs(result, request, around)
    return result


def _basis(
    chosen: Chosen, request: Request, around: Surroundings, values: dict[str, Any], nodes: int,
    ranks_per_node: int, memory_MiB: int,
) -> str:  # fmt: skip
    """What the site's trials say, and how the size that they measured differs from the job's."""
    if chosen.advice is None or around.trials is None:
        return ""
    ranks = nodes * ranks_per_node
    if request.template.name == "hpl":
        size = Size(nodes, ranks, order=hpl.problem(values, memory_MiB, nodes)[0])
    else:
        size = Size(nodes, ranks, str(values.get("problem_class") or ""))
    unlike = chosen.advice.unlike(size, around.trials)
    return f"{chosen.advice.sentence()} {unlike}".rstrip()


# -- the values of the parameters


def _values(request: Request) -> dict[str, Any]:
    known = request.template.parameters
    values: dict[str, Any] = {}
    for name, text in request.values.items():
        if name not in known:
            raise InputError(
                f"template {request.template.name} has no value {name!r} ({suggest(name, known)})"
            )
        values[name] = known[name].parse(name, text)
    for name, parameter in known.items():
        if name in values:
            continue
        if parameter.required:
            raise InputError(_required(request.template.name, name, parameter))
        values[name] = _default(parameter)
    return values


def _default(parameter: Parameter) -> Any:
    if parameter.default is None:
        return [] if parameter.type == "words" else None
    if parameter.type == "words":
        return parameter.parse("default", str(parameter.default))
    return parameter.default


def _required(template: str, name: str, parameter: Parameter, why: str = "") -> str:
    return f"template {template} needs {name}: {parameter.help}{why} (--set {name}=...)"


def _programs(plan: Plan, request: Request, around: Surroundings) -> None:
    """Programs of the stack for the parameters that name one and were not given."""
    for name, parameter in plan.template.parameters.items():
        if not parameter.program or plan.values[name]:
            continue
        wanted = parameter.program.format_map(plan.values)
        base = around.site.base_of(plan.transport)
        programs = around.stack.programs(base) if around.stack else {}
        if wanted not in programs:
            why = f"; the stack of this machine has no program {wanted}"
            raise InputError(_required(request.template.name, name, parameter, why))
        plan.values[name] = programs[wanted]
        plan.from_stack = True


# -- nodes, ranks


def _nodes(site: Site, partition: str, profile: str) -> tuple[list[Nodes], int]:
    """The groups of nodes that a job may get there, and how many nodes these are."""
    able = NodeSet(site.partitions[partition].nodes)
    able &= NodeSet.fromlist(nodes_of(site, resolved(site, profile)))
    groups = [group for group in site.nodes if NodeSet(group.names) & able]
    if not groups:
        raise InputError(f"NIC profile {profile} fits no node of partition {partition}")
    return groups, len(able)


def _check_nodes(nodes: int, offered: int, site: Site, partition: str, profile: str) -> None:
    if nodes < 1:
        raise InputError(f"--nodes: {nodes}; it must be 1 or more")
    if nodes > offered:
        whole = len(NodeSet(site.partitions[partition].nodes))
        under = f" that NIC profile {profile} fits" if whole > offered else ""
        word = "node" if offered == 1 else "nodes"
        raise InputError(f"--nodes: {nodes}, but partition {partition} has {offered} {word}{under}")


def _layout(request: Request, values: dict[str, Any], groups: list[Nodes]) -> tuple[int, int]:
    """Ranks on a node and CPUs of a rank. Raises InputError where a node has too few cores.

    Where threads fill a node, each socket has a rank: threads on two sockets slow a rank down.
    """
    header = request.template.header
    cores = min(group.cores for group in groups)
    sockets = max(group.sockets for group in groups)
    ranks = request.ranks_per_node
    cpus = values.get("cpus_per_rank")
    if ranks is None:
        usual = min(sockets, cores) if header.fill else header.ranks_per_node
        ranks = usual or max(1, cores // (cpus or 1))
    if ranks < 1:
        raise InputError(f"--ranks-per-node: {ranks}; it must be 1 or more")
    if cpus is None:
        cpus = max(1, cores // ranks) if header.fill else 1
    if ranks * cpus > cores:
        each = f" of {cpus} CPUs" if cpus > 1 else ""
        raise InputError(f"--ranks-per-node: {ranks} ranks{each} on nodes that have {cores} cores")
    return ranks, cpus


# -- environment


def _known(name: str) -> Transport:
    if name in TRANSPORTS:
        return TRANSPORTS[name]
    known = [part.name for part in TRANSPORTS.values() if part.family]
    raise InputError(f"job templates do not know transport {name!r} ({suggest(name, known)})")


def _module(values: dict[str, Any], around: Surroundings, transport: str) -> tuple[str, str]:
    """Environment module and the folder to search for it first; "" for none."""
    given = values.get("module")
    if given:
        return ("", "") if given == "none" else (given, values["module_folder"])
    folder = around.modules.get(transport, "")
    return (transport, folder) if folder else ("", "")


def _settings(
    part: Transport, around: Surroundings, values: dict[str, Any], loaded: bool
) -> dict[str, str]:
    """The transport's own variables, except those that a module sets."""
    if loaded and not values.get("module"):
        return {}  # the stack's own module sets them
    if around.stack and not loaded:
        return around.stack.transport(part.name).env
    return {name: value for name, value in part.env.items() if "{" not in value}


def _for_users(env: dict[str, str]) -> dict[str, str]:
    """The site's variables of a transport. Its UCX_TLS is for checks, without shared memory."""
    return {
        name: with_shared_memory(value) if name == "UCX_TLS" else value
        for name, value in env.items()
    }


def _rdma_ports(site: Site, transport: str, carriers: dict[str, str]) -> dict[str, str]:
    """Interface -> RDMA port, as UCX names it, for a transport whose data path is verbs.

    Empty where the name differs from node to node (``%n``): one script has no value for all nodes,
    and UCX finds the device.
    """
    if site.data_path(transport) != "verbs":
        return {}
    ports = {carriers[name]: site.networks[name].device or "" for name in site.test_networks
             if name in carriers}  # fmt: skip
    return {interface: "" if "%n" in port else port for interface, port in ports.items()}


def _tied(part: Transport, interface: str, subnet: str, ports: dict[str, str]) -> dict[str, str]:
    """Variables that tie messages to the network; UCX over verbs has its RDMA port."""
    fields = {"interface": interface, "subnet": subnet}
    tied = {name: value.format_map(fields) for name, value in part.bind.items()}
    return bound(tied, ports.get(interface, "")) if ports else tied
