"""Makes the plan of a site and its stack. It runs nothing.

The plan lists the cases, because ReFrame silently omits a test that it cannot run. A planned case
that did not run is an error in the verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ClusterShell.NodeSet import NodeSet

from seatrial.base.errors import InputError
from seatrial.base.names import NO_TRANSPORT, PSEUDO_TRANSPORTS
from seatrial.base.suggest import matching, suggest
from seatrial.benchmarks.benchmark import Benchmark
from seatrial.benchmarks.links import Links
from seatrial.plan.model import (
    PLAN_FILE,
    Attachment,
    Plan,
    PlannedPartition,
    PlannedProfile,
    PlannedTransport,
    read_plan,
)
from seatrial.plan.requirement_problems import suspect_factor
from seatrial.plan.selection import Selection, select
from seatrial.results.record import Case, Cost, Machine, Power, TransportUse
from seatrial.results.requirements import load_requirements
from seatrial.site.effects import effects_of
from seatrial.site.load import load_site
from seatrial.site.model import Site
from seatrial.site.nic_policy import declared
from seatrial.site.profiles import carrier_interfaces, is_tested, rails_of, resolved
from seatrial.stack import Stack, load_stack
from seatrial.stack.model import Transport
from seatrial.stack.transports import UCX_DEVICES, with_shared_memory

NO_PROGRAM = "the stack has no program for it"  # for the user, after the name of a benchmark
MODULES_SYSTEMS = {"lmod": "lmod", "tcl": "tmod4"}  # site's name -> ReFrame's
_PLANS: dict[Path, Plan] = {}  # cache of ``plan_of`` for site.yaml


def plan_trial(site_file: Path, selection: Selection) -> Plan:
    """The plan of a trial of a site.

    Raises InputError if the site or the selection is wrong or leaves no case, LabError if the stack
    does not exist.
    """
    whole = load_site(site_file)
    site, stack = select(whole, selection), load_stack(whole)
    plan = resolve(site, stack)
    require_cases(plan)
    _set_suspect_factor(plan, site_file)
    plan.site_repeats = whole.trial.repeats
    plan.site_rounds = whole.trial.rounds
    plan.site_reruns = whole.trial.reruns
    plan.selection = selection.patterns()
    if plan.selection:
        cases = set(plan.cases)
        plan.outside = [case for case in resolve(whole, stack).cases if case not in cases]
    plan.unmeasured = list(unmeasured(plan, whole))
    return plan


def unmeasured(plan: Plan, site: Site) -> Iterator[str]:
    """A sentence on each network of role test that a plan of the site has no case on.

    Also on those that it has none on under some of its NIC profiles, and on those without an RDMA
    device beside others of their fabric. ``plan.outside`` tells what the user's selection leaves
    out.
    """
    profiles = dict.fromkeys(case.profile for case in plan.cases)
    transports = {case.transport for case in plan.cases} - {NO_TRANSPORT}
    over_rdma = sorted(
        transport for transport in transports if site.data_path(transport) == "verbs"
    )
    fabrics = {site.networks[rail].fabric for rail in site.rails if site.networks[rail].device}
    for network in site.test_networks:
        name = f"network {network} ({site.networks[network].interface})"
        without = [
            profile for profile in profiles if not _measures(plan.cases, site, network, profile)
        ]
        if network not in site.rails:
            if len(without) == len(profiles):
                why = "trial.networks of site.yaml leaves it out"
                if not site.networks[network].cable:
                    why = "it has no cable (cable: false in site.yaml)"
                yield f"{name} is not measured: {why}"
            continue
        reasons: dict[str, list[str]] = {}
        for profile in without:
            reasons.setdefault(_why_unmeasured(plan, site, network, profile), []).append(profile)
        for reason, names in reasons.items():
            under = ""
            if len(names) < len(profiles):
                under = f" under NIC profile{'s' * (len(names) > 1)} {', '.join(names)}"
            yield f"{name} is not measured{under}: {reason}"
        network_of_site = site.networks[network]
        if over_rdma and not network_of_site.device and network_of_site.fabric in fabrics:
            yield (
                f"{name} is not measured over RDMA ({', '.join(over_rdma)}): it has no device in "
                "site.yaml, and another network of its fabric has one"
            )


def _measures(cases: list[Case], site: Site, network: str, profile: str) -> bool:
    """Whether cases measure a network under a profile, by itself or with others at once."""
    spanning = {
        benchmark.name for benchmark in site.benchmarks.enabled()
        if benchmark.spans_networks and network in benchmark.settings.networks
    }  # fmt: skip
    return any(
        case.profile == profile
        and case.transport != NO_TRANSPORT
        and (case.network == network or case.check in spanning
             or (not case.network and [network] == site.rails))
        for case in cases
    )  # fmt: skip


def _why_unmeasured(plan: Plan, site: Site, network: str, profile: str) -> str:
    names = [
        name for name in _names(site) if name != NO_TRANSPORT and is_tested(site, profile, name)
    ]
    if _measures(plan.outside, site, network, profile):
        return "the trial's selection leaves it out"
    if network not in carrier_interfaces(site, profile):
        bond = resolved(site, profile).bond()
        return f"its interface is a member of {bond['name'] if bond else 'a bond'} there"
    if not any(network in rails_of(site, name, profile) for name in names):
        sets = resolved(site, profile).networks
        if sets and network not in sets:
            return f"the profile sets only {', '.join(sets)}"
        return "each transport of the trial has another network (transports in site.yaml)"
    return "no check and transport of the trial uses it"


def require_cases(plan: Plan) -> None:
    """Raise InputError if a plan has no case."""
    if not plan.cases:
        nothing = (
            "nothing to run: the selection, the site (with the profiles, transports and networks "
            "of its benchmarks) and the stack share no case"
        )
        raise InputError("; ".join([nothing, *plan.left_out]))


def plan_of(file: Path) -> Plan:
    """The plan in a trial's ``plan.json``, or that of a site's ``site.yaml``.

    Plain ReFrame plans a site without a trial. Raises InputError if the file is wrong, LabError if
    the stack does not exist.
    """
    if file.name == PLAN_FILE:
        return read_plan(file)
    if file not in _PLANS:
        site = load_site(file)
        _PLANS[file] = resolve(site, load_stack(site))
        _set_suspect_factor(_PLANS[file], file)
    return _PLANS[file]


def _set_suspect_factor(plan: Plan, site_file: Path) -> None:
    """Derive ``suspect_factor`` of links from the requirements, where the site does not give it."""
    links, file = plan.benchmarks.get(Links.name), site_file.with_name("requirements.yaml")
    if links and links["suspect_factor"] is None and file.exists():
        links["suspect_factor"] = suspect_factor(load_requirements(file), plan.cases)


def resolve(site: Site, stack: Stack) -> Plan:
    """The plan of all cases that the site requests and the stack can run."""
    stack = stack.with_variants(
        {name: transport.base for name, transport in site.transports.items() if transport.base}
    )
    transports = {name: _transport(site, stack, name) for name in _names(site)}
    profiles = {name: _profile(site, name) for name in site.nic_profiles}
    benchmarks = site.benchmarks.enabled()
    cases = list(_cases(site, transports, profiles, stack))
    return Plan(
        site=site.name,
        description=site.description,
        lab_cores=site.lab.cores if site.lab else None,
        own_cores=site.node_cores if site.lab and site.lab.processors == "own" else None,
        virtual_time=site.virtual,
        partitions={
            name: PlannedPartition(options=partition.options, description=partition.description)
            for name, partition in site.partitions.items()
        },
        partition=site.trial_partition,
        backend=site.slurm.backend,
        options=site.slurm.options,
        jobs_in_queue=site.slurm.jobs_in_queue,
        own_interfaces={name: network.interface for name, network in site.networks.items()},
        rdma_ports={
            name: network.device for name, network in site.networks.items() if network.device
        },
        line_rates={
            name: int(network.line_rate)
            for name, network in site.networks.items()
            if network.line_rate is not None
        },
        profiles=profiles,
        transports=transports,
        benchmarks={
            benchmark.name: benchmark.settings.model_dump(mode="json") for benchmark in benchmarks
        },
        blas=stack.blas(),
        modules_system=_modules_system(site),
        modulepath=stack.modulepath,
        stack=stack.model_dump(include={"source", "id", "distribution", "versions", "origins"}),
        machine=_machine(site),
        repeats=site.trial.repeats,
        rounds=site.trial.rounds,
        reruns=site.trial.reruns,
        round_limit_s=site.trial.time_limit_s,
        cases=cases,
        lacking=list(_lacking(site, stack, profiles)),
        left_out=list(_left_out(site, stack)),
    )


def _machine(site: Site) -> Machine:
    """What the site file says of the machine, for the record of a trial."""
    power = site.machine.power
    only = site.rails if len(site.rails) == 1 else []  # cases then have no network in their names
    return Machine(
        nodes=len(site.node_names),
        peaks={
            name: group.peak_GFLOPS
            for group in site.nodes
            if group.peak_GFLOPS is not None
            for name in NodeSet(group.names)
        },
        costs=[
            Cost(
                name=cost.name, usd=cost.usd, date=cost.day.isoformat(), includes=cost.includes,
                network="" if cost.network in only else cost.network or "",
                profile=cost.profile or "",
            )
            for cost in site.machine.costs
        ],
        power=Power.model_validate(power.model_dump()) if power else None,
    )  # fmt: skip


def _names(site: Site) -> list[str]:
    return [*site.transports, *site.pseudo_transports]


def _modules_system(site: Site) -> str:
    """ReFrame's name of the module system; ``nomod`` if the stack has no modules."""
    return MODULES_SYSTEMS[site.stack.modules] if site.stack.source == "spack" else "nomod"


def _profile(site: Site, name: str) -> PlannedProfile:
    selected = name in matching(site.trial.profiles, site.nic_profiles)
    return PlannedProfile(
        description=resolved(site, name).description,
        feature="" if name == "default" else site.nic_profiles[name].feature or "",
        declared=declared(site, name),
        interfaces=carrier_interfaces(site, name),
        transports=[transport for transport in _names(site) if is_tested(site, name, transport)],
        benchmarks=[
            benchmark.name
            for benchmark in site.benchmarks.enabled()
            if selected and matching(benchmark.settings.profiles, [name])
        ],
        effects=effects_of(site, name),
    )


def _transport(site: Site, stack: Stack, name: str) -> PlannedTransport:
    part = stack.transport(name)
    of_site = site.transports.get(name)
    selected = matching(site.trial.transports, [name])
    return PlannedTransport(
        declared=of_site
        and TransportUse(
            name=name,
            base=of_site.base or "",
            data_path=of_site.data_path,
            env=of_site.env,
            options=of_site.options,
        ),
        benchmarks=[
            benchmark.name
            for benchmark in site.benchmarks.enabled()
            if selected and _offered(benchmark, stack, name)
        ],
        launcher=[*part.launcher, *(of_site.options if of_site else [])],
        path_report=part.path_report,
        data_path=site.data_path(name),
        overcommit=part.overcommit,
        programs=part.programs,
        versions=part.versions,
        packages=part.packages,
        modules=part.modules,
        attachments=_attachments(site, stack, name),
        used_at_once=_used_at_once(site, stack, name),
        within_env=_within_env(part, of_site.env if of_site else {}),
        within_node=part.within_node,
    )


def _within_env(part: Transport, env: Mapping[str, str]) -> dict[str, str]:
    """Variables of a step on one node. ``env``: those of the site, whose UCX_TLS stays."""
    kept = {name: with_shared_memory(env[name]) for name in ("UCX_TLS",) if name in env}
    return {name: kept.get(name, value) for name, value in part.within_env.items()}


def _attachments(site: Site, stack: Stack, transport: str) -> list[Attachment]:
    """One for each network and interface that the transport is measured on, the default's first.

    A profile may select networks, or replace an interface by a bond. The networks that a bond takes
    away have none.
    """
    profiles_of: dict[tuple[str, str], list[str]] = {}
    for profile in dict.fromkeys(("default", *site.nic_profiles)):
        carriers = carrier_interfaces(site, profile)
        for network in rails_of(site, transport, profile):
            profiles_of.setdefault((network, carriers[network]), []).append(profile)
    return [
        _attachment(site, stack, transport, *place, profiles)
        for place, profiles in profiles_of.items()
    ]


def _used_at_once(site: Site, stack: Stack, transport: str) -> list[Attachment]:
    """Those to the networks that benchmarks over the transport use at once: the trials need not
    measure each.

    Of a network whose interface belongs to a bond: that of the bond.
    """
    pseudo = transport if transport in PSEUDO_TRANSPORTS else ""
    spanning = [
        benchmark
        for benchmark in site.benchmarks.enabled()
        if benchmark.spans_networks and benchmark.pseudo_transport == pseudo
    ]
    names = dict.fromkeys(name for benchmark in spanning for name in benchmark.settings.networks)
    profiles_of: dict[tuple[str, str], list[str]] = {}
    for profile in dict.fromkeys(("default", *site.nic_profiles)):
        carriers = carrier_interfaces(site, profile)
        bond = [name for name, used in carriers.items() if used != site.networks[name].interface]
        for network in dict.fromkeys(name if name in carriers else bond[0] for name in names):
            profiles_of.setdefault((network, carriers[network]), []).append(profile)
    return [
        _attachment(site, stack, transport, *place, profiles)
        for place, profiles in profiles_of.items()
    ]


def _attachment(
    site: Site, stack: Stack, transport: str, network: str, interface: str, profiles: list[str]
) -> Attachment:
    of_site = site.transports.get(transport)
    subnet, lab = site.networks[network].subnet, site.lab is not None
    part = stack.transport(transport, interface, subnet, check=True, lab=lab)
    env = dict(part.env)
    device = site.networks[network].device
    if device and site.data_path(transport) == "verbs" and UCX_DEVICES in env:
        env[UCX_DEVICES] = device.replace("%n", "{node}")  # run.py knows the node
    env |= of_site.env if of_site else {}
    return Attachment(network=network, interface=interface, env=env, profiles=profiles)


def _offered(benchmark: Benchmark[Any], stack: Stack, transport: str) -> bool:
    """Whether a benchmark runs under a transport and the stack has its program."""
    pseudo = transport in PSEUDO_TRANSPORTS
    return bool(
        benchmark.transports([transport])
        and (pseudo or matching(benchmark.settings.transports, [transport]))
        and _available(benchmark, stack, transport)
    )


def _available(benchmark: Benchmark[Any], stack: Stack, transport: str) -> list[str]:
    return benchmark.available(transport, stack.programs(transport), stack.blas())


def _cases(
    site: Site,
    transports: dict[str, PlannedTransport],
    profiles: dict[str, PlannedProfile],
    stack: Stack,
) -> Iterator[Case]:
    """The cases, in the order of the site file."""
    for benchmark in site.benchmarks.enabled():
        for transport, part in transports.items():
            if benchmark.name not in part.benchmarks:
                continue
            variants = _available(benchmark, stack, transport)
            yield from _cases_of(site, benchmark, transport, variants, profiles)


def _cases_of(
    site: Site,
    benchmark: Benchmark[Any],
    transport: str,
    variants: list[str],
    profiles: dict[str, PlannedProfile],
) -> Iterator[Case]:
    """The cases of some variants under one transport."""
    for profile, planned_profile in profiles.items():
        if (
            benchmark.name not in planned_profile.benchmarks
            or transport not in planned_profile.transports
        ):
            continue
        networks = _networks_of(site, benchmark, transport, profile)
        for nodes in benchmark.settings.nodes:
            for network in networks:
                for variant in variants:
                    yield Case(
                        check=benchmark.name, variant=variant, transport=transport,
                        network=network, profile=profile, nodes=nodes,
                    )  # fmt: skip


def _networks_of(site: Site, benchmark: Benchmark[Any], transport: str, profile: str) -> list[str]:
    """The field ``network`` of the cases of a benchmark, one for each network."""
    if transport == NO_TRANSPORT or benchmark.spans_networks:
        return [""]
    networks = matching(benchmark.settings.networks, rails_of(site, transport, profile))
    return networks if len(site.rails) > 1 else [""] * len(networks)


def _lacking(
    site: Site,
    stack: Stack,
    profiles: dict[str, PlannedProfile],
) -> Iterator[Case]:
    """The cases that the site requests and the stack cannot run."""
    for benchmark in site.benchmarks.enabled():
        for transport in _requested(site, benchmark):
            available = _available(benchmark, stack, transport)
            variants = [variant for variant in benchmark.variants() if variant not in available]
            yield from _cases_of(site, benchmark, transport, variants, profiles)


def _requested(site: Site, benchmark: Benchmark[Any]) -> list[str]:
    """The MPI transports under which the site requests a benchmark."""
    selected = matching(site.trial.transports, site.transports)
    return benchmark.transports(matching(benchmark.settings.transports, selected))


def _left_out(site: Site, stack: Stack) -> Iterator[str]:
    """Notes on the variants of the site's benchmarks that the stack cannot run."""
    for benchmark in site.benchmarks.enabled():
        missing: dict[tuple[str, str], list[str]] = {}
        absent: dict[str, None] = {}
        for transport in _requested(site, benchmark):
            available = _available(benchmark, stack, transport)
            reason = stack.transports[transport].lacks.get(benchmark.name, NO_PROGRAM)
            for variant in benchmark.variants():
                if variant in available:
                    continue
                if benchmark.lacks_library(variant, stack.blas()):
                    absent[variant] = None
                else:
                    missing.setdefault((variant, reason), []).append(transport)
        for (variant, reason), without in missing.items():
            what = f"{benchmark.name} {variant}".strip()
            yield f"{what} does not run under {', '.join(without)}: {reason}"
        without_part: dict[str, list[str]] = {}
        for transport in _requested(site, benchmark):
            if part := benchmark.not_measured(transport, stack.programs(transport)):
                without_part.setdefault(part, []).append(transport)
        for part, without in without_part.items():
            yield f"{benchmark.name} does not measure under {', '.join(without)} {part}"
        if absent:
            hint = suggest(next(iter(absent)), stack.blas())
            names = ", ".join(absent)
            yield f"{benchmark.name} does not run with {names}: not in the stack ({hint})"
