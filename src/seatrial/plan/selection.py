"""The part of a site's matrix that the user selects for a trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seatrial.base.errors import InputError
from seatrial.base.names import NO_TRANSPORT
from seatrial.base.suggest import matching, unmatched
from seatrial.benchmarks.benchmark import Benchmark, Settings
from seatrial.site.model import Site


@dataclass(frozen=True)
class Selection:
    """The options of the user: glob patterns and counts. Empty or None: the site's value."""

    checks: tuple[str, ...] = ()
    transports: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    repeats: int | None = None
    rounds: int | None = None
    reruns: int | None = None
    networks: tuple[str, ...] = ()

    def patterns(self) -> dict[str, list[str]]:
        """Option -> patterns, of the options that choose a part of the site's matrix."""
        options = {
            "--check": self.checks, "--transport": self.transports,
            "--network": self.networks, "--profile": self.profiles,
        }  # fmt: skip
        return {option: list(patterns) for option, patterns in options.items() if patterns}


def select(site: Site, selection: Selection) -> Site:
    """The selected part of a site. Raises InputError if a pattern matches nothing."""
    names = [benchmark.name for benchmark in site.benchmarks.enabled()]
    transports = [*site.transports, *site.pseudo_transports]
    problems = [
        *unmatched("--check", list(selection.checks), names),
        *unmatched("--transport", list(selection.transports), transports),
        *unmatched("--network", list(selection.networks), site.rails),
        *unmatched("--profile", list(selection.profiles), site.nic_profiles),
    ]
    if problems:
        texts = (
            f"{problem.field.rsplit('.', 1)[0]} {problem.message} ({problem.correction})"
            for problem in problems
        )
        raise InputError("; ".join(texts))
    defaults = site.trial
    trial = defaults.model_copy(
        update={
            "repeats": selection.repeats or defaults.repeats,
            "rounds": selection.rounds or defaults.rounds,
            "reruns": defaults.reruns if selection.reruns is None else selection.reruns,
            "profiles": matching(selection.profiles, site.nic_profiles) or defaults.profiles,
            "transports": list(selection.transports) or defaults.transports,
        }
    )
    benchmarks: dict[str, object] = {}
    if selection.checks:
        chosen = matching(selection.checks, names)
        benchmarks = {name: None for name in names if name not in chosen}
    if selection.networks:
        rails = matching(selection.networks, site.rails)
        on_rails = {
            benchmark.name: _on(benchmark, rails) for benchmark in site.benchmarks.enabled()
        }
        benchmarks = on_rails | benchmarks
    update: dict[str, object] = {"trial": trial}
    if benchmarks:
        update["benchmarks"] = site.benchmarks.model_copy(update=benchmarks)
    return site.model_copy(update=update)


def _on(benchmark: Benchmark[Any], rails: list[str]) -> Settings | None:
    """The settings of a benchmark on the selected networks; None: it does not run on them.

    ``trial.networks`` stays as it is: by it the cases have their names.
    """
    settings: Settings = benchmark.settings
    if benchmark.spans_networks:
        return settings if set(settings.networks) <= set(rails) else None
    chosen = matching(settings.networks, rails)
    if not chosen or benchmark.pseudo_transport == NO_TRANSPORT:
        return None
    return settings.model_copy(update={"networks": chosen})
