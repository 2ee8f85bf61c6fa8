"""Transport, launcher and NIC profile, each with the reason: the site's trials, else the kind of
application."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from ClusterShell.NodeSet import NodeSet

from seatrial.analysis.decision import Answer
from seatrial.base import globs
from seatrial.base.errors import InputError
from seatrial.base.names import PLAIN_SOCKETS
from seatrial.base.suggest import suggest
from seatrial.job.measured import Advice, Application, Option, advise
from seatrial.job.request import Request, Surroundings
from seatrial.job.template import LAUNCHERS
from seatrial.site.model import Site
from seatrial.site.profiles import is_tested, nodes_of, rails_of, resolved

DEFAULT = "default"  # the profile
NO_DIFFERENCE: Answer = "no difference"
#: kind -> why it decides; docs/job-templates.md has the measurements and their sources
KINDS: dict[str, str] = {
    "compute-bound": (
        "Computation takes most of the time: a NIC profile that costs little CPU time helps more "
        "than a low latency."
    ),
    "communication-bound": (
        "Communication takes much of the time: low latency and high bandwidth help more than the "
        "CPU time that they cost."
    ),
    "latency-bound": (
        "It sends many small messages and waits for each: most of the latency is the delay of "
        "interrupts."
    ),
}
UNKNOWN = (
    "Give its kind with --kind: latency and bandwidth alone do not tell which NIC profile suits "
    "an application."
)
#: kernel of NPB -> what is known of it; the same document has the figures
NPB: dict[str, str] = {
    "is": "NPB IS communicates more than the other kernels measured",
    "cg": "NPB CG communicates much and computes much",
    "lu": "NPB LU communicates little",
    "ft": "NPB FT gains from a driver that costs little CPU time",
    "ep": "NPB EP sends almost nothing",
    "mg": "NPB MG is treated as compute-bound: no measurement of it is known",
    "bt": "NPB BT depends little on the network",
    "sp": "NPB SP depends little on the network",
}
#: kind -> (check, variant, metric, whether less is better) of the figures that compare transports,
#: the first that was measured: an application's, not ping-pong's, where communication or
#: computation bounds it
FIGURES = {
    "communication-bound": (("npb", "is.*", "mops", False),),
    "compute-bound": (("hpl", "*", "hpl_GFLOPS", False), ("npb", "ep.*", "mops", False)),
    "latency-bound": (("osu", "", "latency_us", True),),
}


#: kernel of NPB -> what stands for it before the programs of its kind do
ALIKE = {"ft": [Application("hpcc", "mpifft", "mpifft_GFLOPS", "a parallel FFT")]}


@dataclass(frozen=True)
class Choice:
    """A chosen name, and the sentence that gives the reason."""

    name: str
    why: str


MEASURED = "measured by the site's own trial, see below."


@dataclass(frozen=True)
class Chosen:
    """``feature`` requests the profile ("": default). ``network``: "" for that of the transport.

    ``advice``: what the site's trials say, also if they do not decide.
    """

    transport: Choice
    profile: Choice
    feature: str
    network: str = ""
    advice: Advice | None = None


def mpi_of(transport: str) -> str:
    """The MPI of a transport, with which its name begins; "" for plain sockets.

    Raises InputError for another name.
    """
    if transport == PLAIN_SOCKETS:
        return ""
    mpi = transport.partition("-")[0]
    if mpi not in LAUNCHERS:
        raise InputError(
            f"transport {transport}: job templates know {', '.join(LAUNCHERS)}, and its name "
            "begins with none of these"
        )
    return mpi


def choose_kind(request: Request, values: dict[str, Any]) -> tuple[str | None, str]:
    header = request.template.header
    usual: str | None = header.kinds.get(str(values[header.by])) if header.by else header.kind
    kind = request.kind or usual
    if kind is None:
        return None, UNKNOWN
    if kind not in KINDS:
        raise InputError(f"--kind: {kind!r} is not a kind ({suggest(kind, KINDS)})")
    if header.by == "kernel" and kind == usual:
        return kind, f"{NPB[values['kernel']]}. {KINDS[kind]}"
    given = "" if request.kind in (None, usual) else "Given by --kind. "
    return kind, given + KINDS[kind]


def transports_of(request: Request, site: Site) -> list[str]:
    """The transports that the request allows. Raises InputError if there is none."""
    if request.mpi is not None and request.mpi not in LAUNCHERS:
        raise InputError(
            f"--mpi: {request.mpi!r} is not an MPI ({suggest(request.mpi, LAUNCHERS)})"
        )
    if request.transport:
        return [_given_transport(request, site)]
    wanted = [request.mpi] if request.mpi else list(LAUNCHERS)
    if request.launcher in request.template.header.launchers:
        # --launcher mpiexec must not choose an MPI that has no mpiexec
        wanted = [mpi for mpi in wanted if request.launcher in request.template.launchers(mpi)]
        if request.mpi and not wanted:
            choose_launcher(request, request.mpi)  # raises the error that names the launchers
    names = [name for name in site.transports if name.partition("-")[0] in wanted]
    if not names:
        mpi = " or ".join([request.mpi] if request.mpi else wanted)
        started = f" started by {request.launcher}" if request.launcher else ""
        raise InputError(
            f"site {site.name} has no transport of {mpi}{started}; it has "
            f"{', '.join(site.transports) or 'none at all'}"
        )
    return names


def choose_transport(request: Request, around: Surroundings, kind: str | None) -> Choice:
    """The transport, where the site's trials do not say which is the best."""
    site = around.site
    names = transports_of(request, site)
    if request.transport:
        return Choice(request.transport, "given by --transport.")
    measured = _measured(around, names, kind) if kind else None
    if measured:
        return measured
    unmeasured = "the kind of application is unknown."
    if kind:
        listed = " and no ".join(f"{check} {metric}" for check, _, metric, _ in FIGURES[kind])
        unmeasured = f"the site's baselines have no {listed} of several transports."
    for name in site.jobs.transports:
        if name in names:
            return Choice(name, f"declared by the site (jobs.transports); {unmeasured}")
    # A variant beside its base is for those who ask for it.
    usual = [name for name in names if site.transports[name].base not in names]
    if len(usual) == 1:
        return Choice(usual[0], "the only one of the site that the template can use.")
    raise InputError(
        f"site {site.name} does not say which transport a job uses: {unmeasured.rstrip('.')}, and "
        f"jobs.transports of site.yaml has none of {', '.join(names)} (add one there, or give "
        "--transport)"
    )


def _given_transport(request: Request, site: Site) -> str:
    name = request.transport or ""
    if name not in (*site.transports, PLAIN_SOCKETS):
        hint = suggest(name, [*site.transports, PLAIN_SOCKETS])
        raise InputError(f"site {site.name} has no transport {name!r} ({hint})")
    if request.mpi not in (None, mpi_of(name)):
        raise InputError(
            f"--mpi {request.mpi}: transport {name} is one of {mpi_of(name) or 'no MPI'} "
            "(leave one of --mpi and --transport out)"
        )
    return name


def _measured(around: Surroundings, names: list[str], kind: str) -> Choice | None:
    """The best transport by the site's baselines; None if no two of ``names`` can be compared.

    The first of ``FIGURES`` that compares two decides. Only figures that differ in nothing but the
    transport are compared. Of several such sets the one with the most transports decides, then the
    one under NIC profile default, then that of the most nodes. Contracts are what a vendor promised
    and decide nothing.
    """
    for figure in FIGURES[kind]:
        if choice := _by_figure(around, names, *figure):
            return choice
    return None


def _by_figure(
    around: Surroundings, names: list[str], check: str, variant: str, metric: str, less: bool
) -> Choice | None:
    sets: dict[tuple[str, str, int], dict[str, float]] = defaultdict(dict)
    for rule in around.requirements.rules if around.requirements else ():
        entry = rule.threshold
        select = entry.select
        if entry.basis != "baseline" or entry.reference is None or entry.metric != metric:
            continue
        case = (select.variant or "", select.profile or "", select.nodes or 0)
        if select.check != check or select.location or any(isinstance(x, list) for x in case):
            continue
        if select.transport in names and globs.matcher(variant)(str(case[0])):
            sets[case][select.transport] = entry.reference  # type: ignore[index]
    if not sets:
        return None
    case = max(sets, key=lambda one: (len(sets[one]), one[1] == DEFAULT, one[2], one))
    figures = sets[case]
    if len(figures) < 2:
        return None
    best = (min if less else max)(figures, key=lambda name: figures[name])
    where = [case[0], f"{case[2]} nodes" * bool(case[2]), f"NIC profile {case[1]}" * bool(case[1])]
    of = " ".join(
        [check, metric, *(f"({text})" for text in [", ".join(filter(None, where))] if text)]
    )
    listed = ", ".join(f"{name} {value:g}" for name, value in figures.items())
    return Choice(best, f"the {'lowest' if less else 'highest'} {of} of the baselines: {listed}.")


def choose_profile(
    request: Request, site: Site, transport: str, kind: str | None
) -> tuple[Choice, str]:
    """The NIC profile, and the node feature that requests it ("" for default).

    From the literature, by the kind of the application: the site's trials say nothing.
    """
    transport_of_site = site.transports.get(transport)
    path = transport_of_site.data_path if transport_of_site else "kernel"
    if request.profile:
        return _given_profile(request.profile, site, transport, path, kind)
    if kind is None:
        return Choice("default", "the kind of application is unknown."), ""
    suited = [
        profile
        for profile in (resolved(site, name) for name in site.nic_profiles if name != DEFAULT)
        if kind in profile.suits and is_tested(site, profile.name, transport)
    ]
    effective = [profile for profile in suited if path not in profile.ignored_by]
    unmeasured = "no trial of the site compares profiles for it"
    if effective:
        best = effective[0]
        why = (
            f"from the literature, as {unmeasured}. The site has it for {kind} applications: "
            f"{best.description.rstrip('.')}."
        )
        if others := ", ".join(profile.name for profile in effective[1:]):
            why += f" Others that suit: {others}."
        return Choice(best.name, why), _feature(site, best.name)
    if suited:
        why = f"{suited[0].name} would have no effect: {suited[0].ignored_by[path]}"
    else:
        why = f"{unmeasured}, and the site has no other for {kind} applications under {transport}."
    return Choice(DEFAULT, why), ""


def _given_profile(
    name: str, site: Site, transport: str, path: str, kind: str | None
) -> tuple[Choice, str]:
    if name not in site.nic_profiles:
        hint = suggest(name, site.nic_profiles)
        raise InputError(f"site {site.name} has no NIC profile {name!r} ({hint})")
    why = "given by --profile."
    profile = resolved(site, name)
    if kind and profile.suits and kind not in profile.suits:
        why += f" The site has it for {', '.join(profile.suits)} applications."
    if path in profile.ignored_by:
        why += f" It has no effect on this transport: {profile.ignored_by[path]}"
    elif not is_tested(site, name, transport):
        why += (
            f" No trial of the site measures it under this transport, only under "
            f"{', '.join(profile.transports)}."
        )
    return Choice(name, why), _feature(site, name)


def _feature(site: Site, profile: str) -> str:
    return "" if profile == DEFAULT else site.nic_profiles[profile].feature or ""


def applications(request: Request, kind: str, values: dict[str, Any]) -> list[Application]:
    """What a trial may have measured: the job's own program first, then one with the same pattern
    of communication (``ALIKE``), then those of its kind."""
    stand_ins = [Application(*figure[:3], f"{kind} applications") for figure in FIGURES[kind]]
    own = []
    if request.template.header.by == "kernel":
        kernel, size = values["kernel"], values["problem_class"]
        own.append(Application("npb", f"{kernel}.*", "mops", problem_class=size))
        own += ALIKE.get(kernel, [])
    elif request.template.name == "hpl":
        own.append(Application("hpl", values["blas"] or "*", "hpl_GFLOPS"))
    return [*own, *stand_ins]


def choose(
    request: Request,
    around: Surroundings,
    kind: str | None,
    values: dict[str, Any],
    partition: str,
) -> Chosen:
    """Transport, profile and network: by the site's own trials, else by its baselines and file, and
    the literature. If the trials do not decide, the site's default, unless it is certainly worse.
    """
    site = around.site
    advice = _advice(request, around, kind, values, partition)
    option = advice.best if advice else None
    if option is None:
        transport = choose_transport(request, around, kind)
        if advice and advice.is_worse(request.profile or DEFAULT, transport.name):
            option = advice.first
    if option and not request.transport:
        transport = Choice(option.transport, MEASURED)
    elif option:
        transport = choose_transport(request, around, kind)
    if request.profile or advice is None:
        profile, feature = choose_profile(request, site, transport.name, kind)
    elif option:
        profile, feature = Choice(option.profile, MEASURED), _feature(site, option.profile)
    else:
        said = "show no difference" if advice.decision.answer == NO_DIFFERENCE else "do not decide"
        profile, feature = Choice(DEFAULT, f"the site's default: its trials {said}, see below."), ""
    network = option.network if option else ""
    return Chosen(transport, profile, feature, network, advice)


def _advice(
    request: Request,
    around: Surroundings,
    kind: str | None,
    values: dict[str, Any],
    partition: str,
) -> Advice | None:
    """What the site's own trials say; None if they compare nothing that the request allows."""
    site = around.site
    if around.trials is None or kind is None or (request.profile and request.transport):
        return None
    transports = transports_of(request, site)
    offered = NodeSet(site.partitions[partition].nodes)
    nodes = request.nodes if request.nodes is not None else request.template.header.nodes

    def allowed(option: Option) -> bool:
        if option.transport not in transports or option.profile not in site.nic_profiles:
            return False
        if request.profile not in (None, option.profile):
            return False
        able = NodeSet.fromlist(nodes_of(site, resolved(site, option.profile))) & offered
        rails = rails_of(site, option.transport, option.profile)
        return len(able) >= nodes and (not option.network or option.network in rails)

    for application in applications(request, kind, values):
        if advice := advise(around.trials.comparisons(application), allowed, nodes, application):
            return advice
    return None


def choose_launcher(request: Request, mpi: str) -> str:
    known = request.template.launchers(mpi)
    if not known:
        names = ", ".join(request.template.header.launchers)
        who = mpi or "a program without MPI"
        raise InputError(
            f"template {request.template.name} needs {names}, which {who} does not have"
        )
    if request.launcher is None:
        return known[0]
    if request.launcher not in known:
        raise InputError(
            f"--launcher: template {request.template.name} starts {mpi or 'such'} programs with "
            f"{' or '.join(known)}, not with {request.launcher!r}"
        )
    return request.launcher
