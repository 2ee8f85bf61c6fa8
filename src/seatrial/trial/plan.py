"""Which cases a trial consists of, told from the site and the stack before anything runs.

What is planned and then does not run is an error in the verdict; so the plan is made here
and not taken from what ReFrame happened to find.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from seatrial.base.errors import InputError
from seatrial.base.names import NO_TRANSPORT, PLAIN_SOCKETS
from seatrial.base.suggest import suggest, unmatched
from seatrial.benchmarks.programs import available, wanted
from seatrial.checks.configuration import WITHOUT_MPI, enabled, environment_names, matching, offered
from seatrial.results.record import Case
from seatrial.site.model import HPL, Benchmark, Site
from seatrial.site.profiles import tried


@dataclass(frozen=True)
class Selection:
    """What the user asked for instead of all: glob patterns; empty means what the site says."""

    checks: tuple[str, ...] = ()
    transports: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    repeats: int | None = None
    reruns: int | None = None


def select(site: Site, selection: Selection) -> Site:
    """The site as it is to be tried: cut down to the selection.

    Raises InputError where a pattern matches nothing.
    """
    names = [name for name, _ in enabled(site)]
    known = [*site.transports, PLAIN_SOCKETS, NO_TRANSPORT]
    faults = [
        *unmatched("--check", list(selection.checks), names),
        *unmatched("--transport", list(selection.transports), known),
        *unmatched("--profile", list(selection.profiles), site.nic_profiles),
    ]
    if faults:
        raise InputError("; ".join(f"{f.field.rsplit('.', 1)[0]} {f.message} ({f.correction})"
                                   for f in faults))  # fmt: skip
    trial = site.trial.model_copy(
        update={
            "repeats": selection.repeats or site.trial.repeats,
            "reruns": site.trial.reruns if selection.reruns is None else selection.reruns,
            "profiles": matching(list(selection.profiles), site.nic_profiles)
            or site.trial.profiles,
            "transports": list(selection.transports) or site.trial.transports,
        }
    )
    update: dict[str, object] = {"trial": trial}
    if selection.checks:
        chosen = matching(list(selection.checks), names)
        dropped = {name: None for name in names if name not in chosen}
        update["benchmarks"] = site.benchmarks.model_copy(update=dropped)
    return site.model_copy(update=update)


def variants(name: str, options: Benchmark, stack, transport: str) -> list[str]:
    """The variants that one job of a benchmark yields figures of under a transport."""
    if name in WITHOUT_MPI or transport == PLAIN_SOCKETS:
        return wanted(name, options)
    return available(name, options, stack.programs(transport), stack.blas())


def planned(site: Site, stack) -> list[Case]:
    """All cases of the trial, in the order of the site file."""
    profiles = matching(site.trial.profiles, site.nic_profiles)
    transports = matching(site.trial.transports, environment_names(site))
    cases = []
    for name, options in enabled(site):
        for transport in transports:
            if name not in offered(site, stack, transport):
                continue
            for profile in matching(options.profiles, profiles):
                if not tried(site, profile, transport):
                    continue
                for nodes in options.nodes:
                    cases += [
                        Case(check=name, variant=variant, transport=transport,
                             profile=profile, nodes=nodes)
                        for variant in variants(name, options, stack, transport)
                    ]  # fmt: skip
    return cases


def not_offered(site: Site, stack) -> Iterable[str]:
    """Sentences on what the site wants and the stack cannot give: never left out in silence."""
    transports = matching(site.trial.transports, site.transports)
    for name, options in enabled(site):
        if name in WITHOUT_MPI:
            continue
        missing: dict[tuple[str, str], list[str]] = {}
        libraries = stack.blas() if isinstance(options, HPL) else {}
        absent: list[str] = []
        for transport in matching(options.transports, transports):
            there = variants(name, options, stack, transport)
            lacks = stack.transports[transport].lacks
            reason = lacks.get(name, "the stack has no program for it")
            for variant in wanted(name, options):
                if variant in there:
                    continue
                if libraries and variant not in libraries:
                    absent += [variant] if variant not in absent else []
                else:
                    missing.setdefault((variant, reason), []).append(transport)
        for (variant, reason), names in missing.items():
            what = f"{name} {variant}".strip()
            yield f"{what} did not run under {', '.join(names)}: {reason}"
        if absent:
            hint = suggest(absent[0], libraries)
            yield f"{name} did not run with {', '.join(absent)}: not in the stack ({hint})"
