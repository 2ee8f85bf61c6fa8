"""Rules between the NIC profiles of a site and the other sections of its file.

The model of a profile validates its fields. Conflicts between the settings of one profile are in
``seatrial.nic.conflicts``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ClusterShell.NodeSet import NodeSet

from seatrial.base import globs
from seatrial.base.names import PLAIN_SOCKETS
from seatrial.base.suggest import FieldProblem, suggest, unmatched
from seatrial.nic.conflicts import conflicts, field_of
from seatrial.nic.flatten import Flat
from seatrial.nic.inheritance import Cycle, NoSuchBase, Resolved
from seatrial.nic.library import ready_profiles
from seatrial.nic.profile import READY, NicProfile, default_feature
from seatrial.site.model import Site
from seatrial.site.profiles import (
    interfaces,
    is_tested,
    lacking_networks,
    measured_on,
    networks_set,
    nodes_of,
    rails_of,
    resolved,
)

#: names of files of a trial: ``seatrial.trial.session.Session.suffix``
_OF_TRIAL = re.compile(r"(?:round|rerun)\d+(?:-|$)")


def profile_problems(site: Site) -> Iterator[FieldProblem]:
    """All problems of the site's NIC profiles, in the order of the file."""
    if "default" not in site.nic_profiles:
        yield FieldProblem(
            "nic_profiles", "there is no profile 'default'", "add it: the node as it boots"
        )
    yield from _features(site)
    for name, profile in site.nic_profiles.items():
        problems = [*_names(site, name, profile)]
        if name == "default":
            problems += _default(profile)
        base = [*_base(site, name)]
        yield from (*problems, *base)
        if problems or base or name == "default":
            continue
        whole = resolved(site, name)
        yield from _fits(site, whole)
        if not whole.sets(*networks_set(site, whole)):
            # The figures of such a profile would be figures of the default.
            yield FieldProblem(f"nic_profiles.{name}", "it sets nothing", "add settings, or a base")
        yield from conflict_problems(site, whole)


def _features(site: Site) -> Iterable[FieldProblem]:
    seen = {default_feature("default"): "default"}
    for name, profile in site.nic_profiles.items():
        feature = profile.feature or default_feature(name)
        if name == "default" and feature != default_feature(name):
            yield FieldProblem(
                "nic_profiles.default.feature",
                f"the feature of default is {default_feature(name)}",
                "leave it out",
            )
        elif name != "default" and feature in seen:
            yield FieldProblem(
                f"nic_profiles.{name}.feature",
                f"{feature} is already the feature of {seen[feature]!r}",
                "give each profile a feature of its own",
            )
        seen.setdefault(feature, name)


def _default(profile: NicProfile) -> Iterable[FieldProblem]:
    if profile.has_settings or profile.base not in (None, f"{READY}default"):
        yield FieldProblem(
            "nic_profiles.default",
            "default is the state after boot, so it has no settings",
            "move the settings to another profile",
        )


def _names(site: Site, name: str, profile: NicProfile) -> Iterable[FieldProblem]:
    """Problems of names: that of the profile, and names that do not exist in the site."""
    at = f"nic_profiles.{name}"
    if _OF_TRIAL.match(name):
        message = "a trial has files of this name, of its rounds and reruns"
        yield FieldProblem(at, message, "begin it with another word")
    for index, network in enumerate(profile.networks or []):
        yield from _network(site, network, f"{at}.networks.{index}")
    classes = {group.node_class for group in site.nodes if group.node_class}
    for index, node_class_ in enumerate(profile.node_classes or []):
        if node_class_ not in classes:
            message = f"no nodes have the class {node_class_!r}"
            yield FieldProblem(f"{at}.node_classes.{index}", message, suggest(node_class_, classes))
    known = {*site.transports, *site.pseudo_transports}
    yield from unmatched(f"{at}.transports", profile.transports or [], known)
    for network in profile.per_network or {}:
        problems = [*_network(site, network, f"{at}.per_network.{network}")]
        yield from problems
        if not problems and profile.networks is not None and network not in profile.networks:
            yield FieldProblem(
                f"{at}.per_network.{network}",
                f"{network!r} is not in the profile's networks",
                f"add it to {at}.networks",
            )
    ports = {site.networks[network].interface: network for network in site.test_networks}
    for index, member in enumerate(profile.bonding.members if profile.bonding else []):
        if member not in ports:
            message = f"{member} is not the interface of a network of role test"
            yield FieldProblem(f"{at}.bonding.members.{index}", message, suggest(member, ports))


def _network(site: Site, network: str, field: str) -> Iterable[FieldProblem]:
    if network not in site.networks:
        yield FieldProblem(
            field, f"there is no network {network!r}", suggest(network, site.test_networks)
        )
    elif site.networks[network].role != "test":
        role = site.networks[network].role
        correction = f"profiles set networks of role test: {', '.join(site.test_networks)}"
        yield FieldProblem(
            field, f"the role of {network} is {role}: it is never touched", correction
        )


def _base(site: Site, name: str) -> Iterable[FieldProblem]:
    """A problem if the profile's base is wrong. A base with a wrong base has its own problem."""
    field = f"nic_profiles.{name}.base"
    try:
        resolved(site, name)
    except NoSuchBase as error:
        if error.name == name:
            known = [*(n for n in site.nic_profiles if n != name), *ready_names()]
            bare = error.base.removeprefix(READY)
            hint = f"did you mean {READY + bare!r}?" if bare in ready_profiles() else ""
            if bare in site.nic_profiles and bare != name:
                hint = f"did you mean {bare!r}?"
            message = f"there is no profile {error.base!r}"
            yield FieldProblem(field, message, hint or suggest(error.base, known))
        else:
            yield FieldProblem(field, f"its base is invalid: {error}", "correct that profile")
    except Cycle as error:
        line = " -> ".join(error.names)
        yield FieldProblem(
            field, f"it leads back to itself: {line}", "remove a base from the cycle"
        )


def ready_names() -> list[str]:
    return [READY + name for name in ready_profiles()]


def _fits(site: Site, profile: Resolved) -> Iterable[FieldProblem]:
    """Problems of a profile without nodes or networks, or with too few nodes for a trial."""
    at = f"nic_profiles.{profile.name}"
    lacking = lacking_networks(site)
    for node in nodes_of(site, profile):
        without = [name for name in networks_set(site, profile) if name in lacking[node]]
        if without:
            yield FieldProblem(
                at,
                f"node {node} has no interface of network {without[0]}, which it sets",
                f"leave {without[0]} out of its networks, or set node_classes",
            )
            return
    if not networks_set(site, profile):
        yield FieldProblem(
            f"{at}.networks", "it fits no network of role test", "set networks, here or in its base"
        )
    if profile.node_classes is not None and not nodes_of(site, profile):
        yield FieldProblem(f"{at}.node_classes", "it fits no node of this site", "set node_classes")
        return
    partition = site.partitions.get(site.trial_partition)
    wanted = globs.any_matches(site.trial.profiles, profile.name)
    if partition is None or not wanted:
        return
    here = NodeSet(partition.nodes) & NodeSet.fromlist(nodes_of(site, profile))
    where = f"partition {site.trial_partition}"
    if not here:
        yield FieldProblem(f"{at}.node_classes", f"it fits no node of {where}, which trials use",
                    "take it out of trial.profiles, or choose another partition")  # fmt: skip
        return
    if len(here) == len(NodeSet(partition.nodes)):
        return
    for name, benchmark in site.benchmarks:
        if benchmark and globs.any_matches(benchmark.profiles, profile.name):
            for index, count in enumerate(benchmark.nodes):
                if count > len(here):
                    yield FieldProblem(
                        f"benchmarks.{name}.nodes.{index}",
                        f"{profile.name} fits only {len(here)} nodes of {where}, but the benchmark "
                        f"needs {count}: its job would never start",
                        f"at most {len(here)}, or leave {profile.name} out of "
                        f"benchmarks.{name}.profiles",
                    )


def conflict_problems(site: Site, profile: Resolved) -> Iterator[FieldProblem]:
    """The conflicts of one profile, each once and at the field to correct."""
    of_networks: dict[FieldProblem, None] = {}
    for network in networks_set(site, profile):
        settings = profile.settings(network)
        of_networks |= dict.fromkeys(_mtu(site, profile, network, settings))
        of_networks |= dict.fromkeys(conflicts(profile, network))
    yield from of_networks
    if profile.bond():
        yield from _bond(site, profile)
    yield from _drivers(site, profile)


def _mtu(site: Site, profile: Resolved, network: str, settings: Flat) -> Iterable[FieldProblem]:
    largest, wanted = site.networks[network].switch_mtu, settings.get("mtu")
    if largest is not None and isinstance(wanted, int) and wanted > largest:
        yield FieldProblem(
            field_of(profile, network, "mtu"),
            f"MTU {wanted} is more than networks.{network}.switch_mtu, {largest}",
            f"at most {largest}, or leave {network} out of its networks",
        )


def _bond(site: Site, profile: Resolved) -> Iterable[FieldProblem]:
    bond: dict[str, Any] = profile.bond() or {}
    at = f"nic_profiles.{profile.name}"
    at = f"{at}.bonding" if "bonding" in profile.chain[-1].model_fields_set else f"{at}.base"
    members = bond["members"]
    if len(set(members)) < len(members):
        yield FieldProblem(at, "a member is listed twice", "list each member once")
        return
    if bond["name"] in {network.interface for network in site.networks.values()}:
        yield FieldProblem(
            at, f"{bond['name']} is already the interface of a network", "name: bond1"
        )
    networks = {site.networks[name].interface: name for name in networks_set(site, profile)}
    outside = [member for member in members if member not in networks]
    if outside:
        yield FieldProblem(at, f"{outside[0]} is not an interface that this profile sets",
                    "add its network to networks")  # fmt: skip
        return
    of_members = {member: profile.settings(networks[member]) for member in members}
    mtus = {member: settings.get("mtu", site.networks[networks[member]].mtu)
            for member, settings in of_members.items()}  # fmt: skip
    if len(set(mtus.values())) > 1:
        text = ", ".join(f"{member} {mtu}" for member, mtu in mtus.items())
        yield FieldProblem(at, f"its members differ in MTU: {text}", "give them the same mtu")
    yield from _lost(site, profile, bond, [networks[member] for member in members[1:]], at)


def _lost(
    site: Site, profile: Resolved, bond: dict[str, Any], lost: list[str], at: str
) -> Iterable[FieldProblem]:
    """A bond has the addresses of its first member only, so it takes away the other networks.

    A problem for each transport that is left without a network.
    """
    for transport in (*site.transports, PLAIN_SOCKETS):
        if rails_of(site, transport, profile.name):
            continue
        network = measured_on(site, transport, profile.name)
        if is_tested(site, profile.name, transport) and network in lost:
            yield FieldProblem(
                at,
                f"{bond['name']} has the addresses of {bond['members'][0]}, so transport "
                f"{transport} loses its network {network}",
                f"leave {transport} out of the profile's transports, or put "
                f"{site.networks[network].interface} first",
            )


def _drivers(site: Site, profile: Resolved) -> Iterable[FieldProblem]:
    """A module has one set of parameters for all its interfaces."""
    seen: dict[str, Any] = {}
    for interface, settings in interfaces(site, profile).items():
        driver = settings.get("driver")
        if not isinstance(driver, dict):
            continue
        first = seen.setdefault(driver["module"], driver)
        if first["parameters"] != driver["parameters"]:
            yield FieldProblem(
                f"nic_profiles.{profile.name}.per_network",
                f"{driver['module']} has two sets of parameters ({interface})",
                "write one set, with a value for each card, for example 0,3",
            )
