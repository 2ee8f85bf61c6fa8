"""A profile on a site: the networks, nodes and interfaces that it is for."""

from __future__ import annotations

from fnmatch import fnmatchcase

from ClusterShell.NodeSet import NodeSet

from seatrial.nic.flatten import Flat
from seatrial.nic.inheritance import Resolved, resolve
from seatrial.site.model import Site


def resolved(site: Site, profile: str) -> Resolved:
    """A profile of the site with what it inherits. Raises as ``inheritance.chain`` does."""
    return resolve(profile, site.nic_profiles)


def networks_set(site: Site, profile: Resolved) -> list[str]:
    """The networks of role test that the profile sets, in the order of the site file."""
    tests = site.test_networks
    return tests if profile.networks is None else [n for n in tests if n in profile.networks]


def measured_on(site: Site, transport: str, profile: str) -> str:
    """The network of role test that a transport is tried on under a profile.

    The transport's own, where the site gives it one; else the first that the profile names, so
    that a profile for one of several interfaces is measured there; else the site's first.
    """
    own = site.transports.get(transport)
    if not (own and own.network):
        tests = site.test_networks
        for network in resolved(site, profile).networks or ():
            if network in tests:
                return network
    return site.network_of(transport)


def carrying(site: Site, profile: str) -> dict[str, str]:
    """Network -> the interface that carries it under a profile, of all networks of the site.

    That is a bond for the network of its first member, whose addresses it takes; the networks of
    its other members are gone.
    """
    found = {name: network.interface for name, network in site.networks.items()}
    bond = resolved(site, profile).bond()
    if bond:
        first, *others = bond["members"]
        found = {
            network: bond["name"] if interface == first else interface
            for network, interface in found.items()
            if interface not in others
        }
    return found


def interfaces(site: Site, profile: Resolved) -> dict[str, Flat]:
    """Flat settings of each interface that the profile sets; a bond is at its first member."""
    found = {}
    for network in networks_set(site, profile):
        found[site.networks[network].interface] = profile.settings(network)
    bond = profile.bond()
    if bond and bond["members"][0] in found:
        found[bond["members"][0]]["bond"] = bond
    return {name: flat for name, flat in found.items() if flat}


def short(node: str) -> str:
    """The name by which a node knows itself: up to the first dot."""
    return node.partition(".")[0]


def nodes_of(site: Site, profile: Resolved) -> list[str]:
    """Full names of the nodes that the profile is for, in the order of a node list."""
    names = NodeSet()
    for group in site.nodes:
        if profile.node_classes is None or group.node_class in profile.node_classes:
            names.update(group.names)
    return list(names)


def tried(site: Site, profile: str, transport: str) -> bool:
    """Whether a trial tries a transport under a profile; ``tcp`` and ``none`` are names too."""
    patterns = resolved(site, profile).transports
    return any(fnmatchcase(transport, pattern) for pattern in patterns)
