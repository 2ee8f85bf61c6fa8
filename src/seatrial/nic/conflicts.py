"""Settings of one profile, inherited ones included, that contradict each other.

A driver would ignore such a setting or refuse it when a job starts; here it is an error with a line
in the site file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from seatrial.base.suggest import FieldProblem
from seatrial.nic.flatten import Flat
from seatrial.nic.inheritance import Resolved
from seatrial.nic.node.settings import SWITCHED, of, switch_of


def conflicts(profile: Resolved, network: str) -> Iterator[FieldProblem]:
    """The conflicts between the settings of one network's interface."""
    settings = profile.settings(network)
    yield from _hidden(profile, network, settings)
    yield from _flows(profile, network, settings)


def field_of(profile: Resolved, network: str, key: str) -> str:
    """Dotted path of the field that gives a setting: the profile's own, or its base."""
    last, group = profile.chain[-1], of(key).name
    at = f"nic_profiles.{profile.name}"
    special = (last.per_network or {}).get(network)
    if special is not None and group in special.model_fields_set:
        return f"{at}.per_network.{network}.{group}"
    return f"{at}.{group}" if group in last.model_fields_set else f"{at}.base"


def _hidden(profile: Resolved, network: str, settings: Flat) -> Iterable[FieldProblem]:
    """A fault for each switch that is on and hides values: at the first of them."""
    seen = set()
    for key in (key for key in SWITCHED if key in settings):
        switch = switch_of(key)
        if settings.get(switch) == "on" and switch not in seen:
            seen.add(switch)
            yield FieldProblem(
                field_of(profile, network, key),
                f"{_name(switch)} is on, so that {_name(key)} has no effect",
                f"set {_name(switch)}: off, or {_name(key)}: null",
            )


def _name(key: str) -> str:
    return key.partition(".")[2].replace("-", "_")


def _flows(profile: Resolved, network: str, settings: Flat) -> Iterable[FieldProblem]:
    if settings.get("rps_flow_cnt") and settings.get("rps_cpus") == "none":
        yield FieldProblem(
            field_of(profile, network, "rps_flow_cnt"),
            "it has no effect while rps_cpus is none",
            "set rps_cpus, or rps_flow_cnt: null",
        )
