"""Transport, launcher and NIC profile by what an application is, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from seatrial.base.errors import InputError
from seatrial.base.suggest import suggest
from seatrial.job import reasons
from seatrial.job.header import LAUNCHERS
from seatrial.job.request import Request, Surroundings
from seatrial.site.model import Site
from seatrial.site.profiles import resolved

#: kind -> (check, variant, metric, whether less is better) of the figure that transports are
#: compared by: an application's, not ping-pong's, where communication or computation bounds it
FIGURES = {
    "communication-bound": ("npb", "is.*", "mops", False),
    "compute-bound": ("hpl", "*", "hpl_GFLOPS", False),
    "latency-bound": ("osu", "", "latency_us", True),
}


@dataclass(frozen=True)
class Choice:
    """A name that was chosen, and the sentence that says why."""

    name: str
    why: str


def mpi_of(transport: str) -> str:
    """The MPI of a transport, which its name begins with. Raises InputError for another one."""
    mpi = transport.partition("-")[0]
    if mpi not in LAUNCHERS:
        raise InputError(f"transport {transport}: job templates know {', '.join(LAUNCHERS)}")
    return mpi


def choose_kind(request: Request, values: dict[str, Any]) -> tuple[str | None, str]:
    header = request.template.header
    known = header.kinds.get(str(values.get(header.by))) if header.by else None
    usual = known or header.kind
    kind = request.kind or usual
    if kind is None:
        return None, reasons.UNKNOWN
    because = reasons.KINDS.get(kind)
    if because is None:
        raise InputError(f"--kind: {kind!r} is none ({suggest(kind, reasons.KINDS)})")
    said = "" if request.kind in (None, usual) else "As you said (--kind). "
    if header.by == "kernel" and kind == usual:
        said = f"{reasons.NPB[values['kernel']]}. "
    return kind, said + because


def choose_transport(request: Request, around: Surroundings, kind: str | None) -> Choice:
    site, header = around.site, request.template.header
    if request.transport:
        if request.transport not in site.transports:
            hint = suggest(request.transport, site.transports)
            raise InputError(f"site {site.name} has no transport {request.transport!r} ({hint})")
        mpi = mpi_of(request.transport)
        if mpi not in header.mpi:
            raise InputError(
                f"template {request.template.name} is for {', '.join(header.mpi)}, and transport "
                f"{request.transport} is {mpi}"
            )
        return Choice(request.transport, "as you said (--transport).")
    names = [name for name in site.transports if name.partition("-")[0] in header.mpi]
    if request.launcher in header.launchers:
        # so that --launcher mpiexec does not meet an MPI that has none
        names = [n for n in names if request.launcher in request.template.launchers(mpi_of(n))]
    if not names:
        wanted = " or ".join(header.mpi) + (f" with {request.launcher}" if request.launcher else "")
        raise InputError(f"site {site.name} has no transport of {wanted}")
    found = _measured(around, names, kind) if kind else {}
    if len(found) > 1:
        check, _, metric, less = FIGURES[kind or ""]
        best = (min if less else max)(found, key=lambda name: found[name])
        figures = ", ".join(f"{name} {value:g}" for name, value in found.items())
        word = "lowest" if less else "highest"
        return Choice(best, f"the {word} {check} {metric} in the site's requirements ({figures}).")
    return Choice(
        names[0],
        "the first of the site's that this template takes; the site's requirements.yaml has no "
        "reference figures of several to choose by.",
    )


def _measured(around: Surroundings, names: list[str], kind: str) -> dict[str, float]:
    """Reference figures of transports, where the site's requirements have them."""
    check, variant, metric, less = FIGURES[kind]
    found: dict[str, float] = {}
    for rule in around.requirements.rules if around.requirements else ():
        entry = rule.threshold
        select = entry.select
        if entry.reference is None or select.check != check or entry.metric != metric:
            continue
        if not isinstance(select.transport, str) or select.transport not in names:
            continue
        if select.variant is not None and not fnmatchcase(str(select.variant), variant):
            continue
        better = min if less else max
        name = select.transport
        found[name] = better(found.get(name, entry.reference), entry.reference)
    return found


def choose_profile(
    request: Request, site: Site, transport: str, kind: str | None
) -> tuple[Choice, str]:
    """The NIC profile, and the node feature that asks for it ("" for default)."""
    own = site.transports.get(transport)
    path = own.data_path if own else "kernel"
    if request.profile:
        if request.profile not in site.nic_profiles:
            hint = suggest(request.profile, site.nic_profiles)
            raise InputError(f"site {site.name} has no NIC profile {request.profile!r} ({hint})")
        why = "as you said (--profile)."
        found = resolved(site, request.profile)
        if kind and found.suits and kind not in found.suits:
            why += f" The site has it for {', '.join(found.suits)} applications."
        if path in found.ignored_by:
            why += f" Of no effect on this transport: {found.ignored_by[path]}"
        return Choice(request.profile, why), _feature(site, request.profile)
    if kind is None:
        return Choice("default", "nothing is known of the application."), ""
    suited = [
        found
        for found in (resolved(site, name) for name in site.nic_profiles if name != "default")
        if kind in found.suits
        and any(fnmatchcase(transport, pattern) for pattern in found.transports)
    ]
    able = [found for found in suited if path not in found.ignored_by]
    if able:
        best = able[0]
        others = ", ".join(found.name for found in able[1:])
        why = f"the site has it for {kind} applications: {best.description.rstrip('.')}."
        return (
            Choice(best.name, why + (f" Also for these: {others}." if others else "")),
            _feature(site, best.name),
        )
    if suited:
        why = f"{suited[0].name} would be of no effect: {suited[0].ignored_by[path]}"
    else:
        why = f"the site has no other for {kind} applications under {transport}."
    return Choice("default", why), ""


def _feature(site: Site, profile: str) -> str:
    return "" if profile == "default" else site.nic_profiles[profile].feature or ""


def choose_launcher(request: Request, mpi: str) -> str:
    known = request.template.launchers(mpi)
    if not known:
        names = ", ".join(request.template.header.launchers)
        raise InputError(f"template {request.template.name} is for {names}, which {mpi} has not")
    if request.launcher is None:
        return known[0]
    if request.launcher not in known:
        raise InputError(
            f"--launcher: template {request.template.name} starts {mpi} programs by "
            f"{' or '.join(known)}, not by {request.launcher!r}"
        )
    return request.launcher
