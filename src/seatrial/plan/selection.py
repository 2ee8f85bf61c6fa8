"""The part of a site's matrix that the user selects for a trial."""

from __future__ import annotations

from dataclasses import dataclass

from seatrial.base.errors import InputError
from seatrial.base.suggest import matching, unmatched
from seatrial.site.model import Site


@dataclass(frozen=True)
class Selection:
    """The options of the user: glob patterns and counts. Empty or None: the site's value."""

    checks: tuple[str, ...] = ()
    transports: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    repeats: int | None = None
    reruns: int | None = None

    def patterns(self) -> dict[str, list[str]]:
        """Option -> patterns, of the options that choose a part of the site's matrix."""
        options = {
            "--check": self.checks, "--transport": self.transports, "--profile": self.profiles
        }  # fmt: skip
        return {option: list(patterns) for option, patterns in options.items() if patterns}


def select(site: Site, selection: Selection) -> Site:
    """The selected part of a site. Raises InputError if a pattern matches nothing."""
    names = [one.name for one in site.benchmarks.enabled()]
    transports = [*site.transports, *site.pseudo_transports]
    problems = [
        *unmatched("--check", list(selection.checks), names),
        *unmatched("--transport", list(selection.transports), transports),
        *unmatched("--profile", list(selection.profiles), site.nic_profiles),
    ]
    if problems:
        raise InputError("; ".join(f"{one.field.rsplit('.', 1)[0]} {one.message} ({one.correction})"
                                   for one in problems))  # fmt: skip
    own = site.trial
    trial = own.model_copy(
        update={
            "repeats": selection.repeats or own.repeats,
            "reruns": own.reruns if selection.reruns is None else selection.reruns,
            "profiles": matching(selection.profiles, site.nic_profiles) or own.profiles,
            "transports": list(selection.transports) or own.transports,
        }
    )
    update: dict[str, object] = {"trial": trial}
    if selection.checks:
        chosen = matching(selection.checks, names)
        dropped = {name: None for name in names if name not in chosen}
        update["benchmarks"] = site.benchmarks.model_copy(update=dropped)
    return site.model_copy(update=update)
