"""What is compared: NIC profiles, networks or transports, while all else of the cases is equal.

The rules of a comparison are the same for each axis (``crossover``, ``response``). The axis of
settings is the product of the three, of which a job takes one (``seatrial.job.measured``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from seatrial.base.names import PSEUDO_TRANSPORTS
from seatrial.results.record import Case, Cost, Run, route_of


@dataclass(frozen=True)
class Axis:
    """``name``: what an option is; but for ``setting``, the field of a case with the option."""

    name: Literal["profile", "network", "transport", "setting"]

    def option(self, case: Case) -> str:
        """The option of a case; "" if the case has none."""
        if self in (TRANSPORT, SETTING) and case.transport in PSEUDO_TRANSPORTS:
            return ""  # no choice of an MPI program
        if self == SETTING:
            return setting(case.profile, case.transport, case.network)
        option: str = getattr(case, self.name)
        return option

    def route(self, case: Case) -> str:
        """Transport and network, as far as the options share them."""
        shared = {PROFILE: case.route, NETWORK: case.transport, TRANSPORT: case.network}
        return shared.get(self, "")

    def profile(self, case: Case) -> str:
        """The profile under which the options are compared; "" if profiles are."""
        return case.profile if self in (NETWORK, TRANSPORT) else ""

    def hardware(self, run: Run) -> str:
        """The hardware that the options share; "" if each network has its own."""
        return run.hardware if self in (PROFILE, TRANSPORT) else ""


def setting(profile: str, transport: str, network: str = "") -> str:
    """The option of the axis ``setting``: what a job takes."""
    return f"{profile} over {route_of(transport, network)}"


PROFILE, NETWORK, TRANSPORT = Axis("profile"), Axis("network"), Axis("transport")
SETTING = Axis("setting")


def networks_of(runs: Iterable[Run]) -> tuple[str, str]:
    """The hardware of the networks that are compared, and why they cannot be compared, or "".

    If the driver of a network changed between the runs, its effect is not that of the network.
    """
    by_network: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        by_network[run.case.network].add(run.hardware)
    for network, names in by_network.items():
        if len(names) > 1:
            return "", f"the hardware of {network} changed: {' and '.join(sorted(names))}"
    return ", ".join(name for names in by_network.values() for name in names), ""


def prices(
    costs: Sequence[Cost], axis: Axis, options: Iterable[str], case: Case
) -> tuple[str, dict[str, float]]:
    """The name of the first cost of which each option has a price, and the prices in USD; "" and
    nothing if there is none.

    ``case``: one of those compared, whose profile or network the prices must be of, or of any.
    """
    wanted = list(options)
    for name in dict.fromkeys(cost.name for cost in costs):
        usd_of: dict[str, float] = {}
        for cost in costs:
            of = {"profile": cost.profile, "network": cost.network}
            option = of.pop(axis.name, "")
            holds = all(value in ("", getattr(case, field)) for field, value in of.items())
            if cost.name == name and option and holds:
                usd_of.setdefault(option, cost.usd)
        if usd_of.keys() >= set(wanted):
            return name, {option: usd_of[option] for option in wanted}
    return "", {}
