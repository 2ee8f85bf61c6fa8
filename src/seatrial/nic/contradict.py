"""Settings of one profile, its base counted in, that contradict each other or the network.

A driver or switch would answer these with silence or with an error at night; here they have a line
in a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from seatrial.base.names import PLAIN_SOCKETS
from seatrial.base.suggest import Fault
from seatrial.nic.fit import interfaces, measured_on, networks_set, tried
from seatrial.nic.flat import Flat, group_of
from seatrial.nic.resolve import Resolved
from seatrial.site.model import Site

#: what adaptive moderation chooses by itself, in each direction
MODERATED = ("usecs", "frames", "usecs-irq", "frames-irq")


def contradictions(site: Site, profile: Resolved) -> Iterator[Fault]:
    """All of one profile, each at the field that the person who wrote it should look at."""
    for network in networks_set(site, profile):
        settings = profile.settings(network)
        yield from _mtu(site, profile, network, settings)
        yield from _adaptive(profile, network, settings)
        yield from _flows(profile, network, settings)
    if profile.bond():
        yield from _bond(site, profile)
    yield from _drivers(site, profile)


def field_of(profile: Resolved, network: str, key: str) -> str:
    """Dotted path of what gives a setting: the profile's own field, or its base."""
    own, group = profile.chain[-1], group_of(key)
    at = f"nic_profiles.{profile.name}"
    special = (own.per_network or {}).get(network)
    if special is not None and group in special.model_fields_set:
        return f"{at}.per_network.{network}.{group}"
    return f"{at}.{group}" if group in own.model_fields_set else f"{at}.base"


def _mtu(site: Site, profile: Resolved, network: str, settings: Flat) -> Iterable[Fault]:
    largest, wanted = site.networks[network].switch_mtu, settings.get("mtu")
    if largest is not None and isinstance(wanted, int) and wanted > largest:
        yield Fault(
            field_of(profile, network, "mtu"),
            f"an MTU of {wanted} is more than the switches of network {network} carry: "
            f"networks.{network}.switch_mtu is {largest}",
            f"at most {largest}, or leave {network} out of its networks",
        )


def _adaptive(profile: Resolved, network: str, settings: Flat) -> Iterable[Fault]:
    for way in ("rx", "tx"):
        hidden = [f"coalesce.{way}-{one}" for one in MODERATED]
        hidden = [key for key in hidden if key in settings]
        if settings.get(f"coalesce.adaptive-{way}") == "on" and hidden:
            name = hidden[0].partition(".")[2].replace("-", "_")
            yield Fault(
                field_of(profile, network, hidden[0]),
                f"adaptive_{way} is on, so that {name} has no effect",
                f"set adaptive_{way}: off, or {name}: null",
            )


def _flows(profile: Resolved, network: str, settings: Flat) -> Iterable[Fault]:
    if settings.get("rps_flow_cnt") and settings.get("rps_cpus") == "none":
        yield Fault(
            field_of(profile, network, "rps_flow_cnt"),
            "it steers nothing while rps_cpus is none",
            "set rps_cpus, or rps_flow_cnt: null",
        )


def _bond(site: Site, profile: Resolved) -> Iterable[Fault]:
    bond: dict[str, Any] = profile.bond() or {}
    at = f"nic_profiles.{profile.name}"
    at = f"{at}.bonding" if "bonding" in profile.chain[-1].model_fields_set else f"{at}.base"
    members = bond["members"]
    if len(set(members)) < len(members):
        yield Fault(at, "a member is named twice", "name each once")
    if bond["name"] in {network.interface for network in site.networks.values()}:
        yield Fault(at, f"{bond['name']} is already the interface of a network", "name: bond1")
    networks = {site.networks[name].interface: name for name in networks_set(site, profile)}
    outside = [member for member in members if member not in networks]
    if outside:
        yield Fault(at, f"{outside[0]} is not an interface that this profile sets",
                    "add its network to networks")  # fmt: skip
        return
    own = {member: profile.settings(networks[member]) for member in members}
    mtus = {member: settings.get("mtu", site.networks[networks[member]].mtu)
            for member, settings in own.items()}  # fmt: skip
    if len(set(mtus.values())) > 1:
        text = ", ".join(f"{member} {mtu}" for member, mtu in mtus.items())
        yield Fault(at, f"its members differ in MTU: {text}", "give them the same mtu")
    yield from _lost(site, profile, bond, [networks[member] for member in members[1:]], at)


def _lost(
    site: Site, profile: Resolved, bond: dict[str, Any], lost: list[str], at: str
) -> Iterable[Fault]:
    """The bond has the first member's addresses: the other members' networks are gone."""
    for transport in (*site.transports, PLAIN_SOCKETS):
        network = measured_on(site, transport, profile.name)
        if tried(site, profile.name, transport) and network in lost:
            yield Fault(
                at,
                f"{bond['name']} has the addresses of {bond['members'][0]}, so that network "
                f"{network} is gone, on which transport {transport} is tested",
                f"leave {transport} out of the profile's transports, or put "
                f"{site.networks[network].interface} first",
            )


def _drivers(site: Site, profile: Resolved) -> Iterable[Fault]:
    """A module has one set of parameters, however many interfaces it drives."""
    seen: dict[str, Any] = {}
    for interface, settings in interfaces(site, profile).items():
        driver = settings.get("driver")
        if not isinstance(driver, dict):
            continue
        first = seen.setdefault(driver["module"], driver)
        if first["parameters"] != driver["parameters"]:
            yield Fault(
                f"nic_profiles.{profile.name}.per_network",
                f"{driver['module']} is to be loaded with two sets of parameters ({interface})",
                "a module has one set: list a value for each card, for example 0,3",
            )
