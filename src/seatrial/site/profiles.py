"""NIC profiles on a site: the networks, nodes, interfaces and transports of each profile."""

from __future__ import annotations

from ClusterShell.NodeSet import NodeSet

from seatrial.base import globs
from seatrial.nic.flatten import Flat
from seatrial.nic.inheritance import Resolved, resolve
from seatrial.site.model import Site


def resolved(site: Site, profile: str) -> Resolved:
    """A profile of the site with all that it inherits. Raises NoSuchBase or Cycle."""
    return resolve(profile, site.nic_profiles)


def networks_set(site: Site, profile: Resolved) -> list[str]:
    """The networks of role test whose interfaces the profile sets, in the order of the site."""
    tests = site.test_networks
    return tests if profile.networks is None else [n for n in tests if n in profile.networks]


def rails_of(site: Site, transport: str, profile: str) -> list[str]:
    """The networks on which a transport is measured under a profile, one after the other.

    These are the network of the transport, if the site sets one. Else those that the profile names,
    so that a profile for one interface is measured on it. Else all that the site's trials measure.
    A network whose interface belongs to the bond of another is left out, and one without an RDMA
    device for a transport of verbs.
    """
    of_site = site.transports.get(transport)
    names = [of_site.network] if of_site and of_site.network else site.rails
    if not (of_site and of_site.network):
        named = resolved(site, profile).networks or ()
        names = [network for network in named if network in names] or names
    if site.data_path(transport) == "verbs":
        names = [network for network in names if site.networks[network].device]
    carriers = carrier_interfaces(site, profile)
    return [network for network in names if network in carriers]


def measured_on(site: Site, transport: str, profile: str) -> str:
    """The network of a job that uses one: the first of ``rails_of``."""
    rails = rails_of(site, transport, profile)
    return rails[0] if rails else site.network_of(transport)


def carrier_interfaces(site: Site, profile: str) -> dict[str, str]:
    """Network -> the interface that carries it under a profile, for all networks of the site.

    A bond takes the addresses of its first member and carries that member's network. The networks
    of the other members have no interface.
    """
    carriers = {name: network.interface for name, network in site.networks.items()}
    bond = resolved(site, profile).bond()
    if bond:
        first, *others = bond["members"]
        carriers = {
            network: bond["name"] if interface == first else interface
            for network, interface in carriers.items()
            if interface not in others
        }
    return carriers


def interfaces(site: Site, profile: Resolved) -> dict[str, Flat]:
    """Interface -> flat settings, for each interface that the profile sets.

    The bond belongs to its first member.
    """
    settings = {}
    for network in networks_set(site, profile):
        settings[site.networks[network].interface] = profile.settings(network)
    bond = profile.bond()
    if bond and bond["members"][0] in settings:
        settings[bond["members"][0]]["bond"] = bond
    return {name: flat for name, flat in settings.items() if flat}


def lacking_networks(site: Site) -> dict[str, list[str]]:
    """Node -> the networks of role test that it has no interface of."""
    tested = site.test_networks
    absent: dict[str, set[str]] = {node: set() for node in site.node_names}
    for group in site.nodes:
        if group.networks is not None:
            others = set(tested).difference(group.networks)
            for node in NodeSet(group.names):
                absent[node] |= others
    return {node: [name for name in tested if name in names] for node, names in absent.items()}


def short(node: str) -> str:
    """The short name of a node: the part before the first dot."""
    return node.partition(".")[0]


def nodes_of(site: Site, profile: Resolved) -> list[str]:
    """Full names of the nodes that the profile fits, in the order of a node list."""
    names = NodeSet()
    for group in site.nodes:
        if profile.node_classes is None or group.node_class in profile.node_classes:
            names.update(group.names)
    return list(names)


def is_tested(site: Site, profile: str, transport: str) -> bool:
    """Whether a trial measures a transport (also ``tcp`` and ``none``) under a profile."""
    return globs.any_matches(resolved(site, profile).transports, transport)
