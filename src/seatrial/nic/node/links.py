"""Driver reloads and bonds, and the addresses and routes that an interface loses by them.

Nothing is changed here: the functions return actions. The *link* of an interface is its addresses,
routes, MAC address and whether it is up, as ``record`` finds them. Not part of it: link-local
addresses, what IPv6 routers announce, neighbours, and sysctls of the interface. ``mtus`` has what
changes with an MTU.
"""

import json
import os
import re
from typing import Any, Dict, List, Optional, Tuple

from . import programs, readers
from .actions import Action, command, wait, wait_for_link
from .errors import Refused
from .policy import INTERFACE

LINK_TIMEOUT_S = 30.0
FOREVER_S = 4294967295
INFINIBAND = 32  # ARPHRD_INFINIBAND of if_arp.h: the type of IPoIB's interfaces
_WORD = re.compile(r"^[A-Za-z0-9_.,:/+-]+\Z")
#: words of an address that count down by themselves
_LIFETIMES = ("valid_lft", "preferred_lft")
_METRICS = ("mtu", "advmss", "window", "initcwnd", "initrwnd", "rtt", "hoplimit", "quickack")

Link = Dict[str, Any]


def _json(*argv: str) -> List[Dict[str, Any]]:
    answer = programs.run(["ip", "-json", *argv])
    if answer.code:
        raise Refused("ip %s: %s" % (" ".join(argv), answer.err.strip()))
    try:
        return json.loads(answer.out or "[]")
    except ValueError:
        raise Refused("ip %s: its answer is not JSON" % " ".join(argv))


def record(interface: str) -> Link:
    """Addresses, routes and state of an interface. Raises Refused where they cannot be read, or
    not be put back as they are."""
    devices = _json("address", "show", "dev", interface)
    if not devices:
        raise Refused("there is no interface %s" % interface)
    device = devices[0]
    routes = []
    for family in ("-4", "-6"):
        routes += _routes(family, interface)
    return {
        "addresses": [_address(address, interface) for address in device.get("addr_info", [])
                      if not _by_kernel(address)],
        # Those that need no other route come first.
        "routes": sorted(routes, key=lambda words: "via" in words),
        "up": "UP" in device.get("flags", []),
        "link": readers.number("%s/%s/carrier" % (readers.SYSFS, interface)) == 1,
        "mac": device.get("address", ""),
        "permanent": readers.permanent_address(interface),
    }  # fmt: skip


def _by_kernel(address: Dict[str, Any]) -> bool:
    """Whether it comes back by itself, with the link or with what a router announces."""
    return address.get("family") == "inet6" and bool(
        address.get("scope") == "link" or address.get("dynamic")
    )


def _address(info: Dict[str, Any], interface: str) -> List[str]:
    words = ["%s/%s" % (info["local"], info["prefixlen"])]
    if "address" in info:
        words = [info["local"], "peer", "%s/%s" % (info["address"], info["prefixlen"])]
    if "broadcast" in info:
        words += ["broadcast", info["broadcast"]]
    if info.get("scope", "global") != "global":
        words += ["scope", info["scope"]]
    if "metric" in info:
        words += ["metric", str(info["metric"])]
    for word in _LIFETIMES:
        key = word.replace("lft", "life_time")
        if info.get(key, FOREVER_S) != FOREVER_S:
            words += [word, str(info[key])]
    words += [flag for flag in ("noprefixroute", "nodad", "home") if info.get(flag)]
    if info.get("label", interface) != interface:
        words += ["label", info["label"]]
    return words


def _routes(family: str, interface: str) -> List[List[str]]:
    routes = []
    for route in _with_locks(family, _json(family, "route", "show", "table", "all")):
        if any(hop.get("dev") == interface for hop in route.get("nexthops", [])):
            raise Refused("%s has a part of the route to %s, which could not be restored"
                          % (interface, route.get("dst")))  # fmt: skip
        if "nhid" in route and route.get("dev", interface) == interface:
            raise Refused("the route to %s goes over a next hop object, which could not be restored"
                          % route.get("dst"))  # fmt: skip
        # The kernel makes these itself, when the address and the link come back.
        made = route.get("protocol") in ("kernel", "ra") or route.get("table") == "local"
        if route.get("dev") == interface and not made:
            routes.append([family, *_route(route)])
    return routes


def _with_locks(family: str, routes: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The routes with ``lock`` before each value that the kernel must not change, which ip's JSON
    does not show."""
    if not any("metrics" in route for route in routes):
        return routes
    answer = programs.run(["ip", "-oneline", family, "route", "show", "table", "all"])
    lines = [line.split() for line in answer.out.splitlines()]
    if len(lines) != len(routes):
        raise Refused("the routes changed while they were read")
    for at, words in enumerate(lines):
        for metrics in routes[at].get("metrics", []):
            for key in metrics:
                if key in words[:-1] and words[words.index(key) + 1] == "lock":
                    metrics[key] = "lock %s" % metrics[key]
    return routes


def _route(route: Dict[str, Any]) -> List[str]:
    words = [str(route["dst"])]
    for key, word in (("gateway", "via"), ("prefsrc", "src"), ("metric", "metric"),
                      ("table", "table"), ("scope", "scope"), ("protocol", "proto")):  # fmt: skip
        if key in route:
            words += [word, str(route[key])]
    if "via" in route:  # a gateway of the other family
        words += ["via", route["via"]["family"], route["via"]["host"]]
    for metrics in route.get("metrics", []):
        for key in _METRICS:
            if key in metrics:
                words += [key, *str(metrics[key]).split()]
    return words + (["onlink"] if "onlink" in route.get("flags", []) else [])


def above(interface: str, folder: str = "") -> List[str]:
    """Interfaces that use this one: bonds, bridges, VLANs. ``folder``: in place of sysfs's."""
    folder = folder or readers.SYSFS
    names = readers.names("%s/%s" % (folder, interface))
    uppers = [name[len("upper_") :] for name in names if name.startswith("upper_")]
    return uppers + [name for name in _children(interface, folder) if name not in uppers]


def _children(interface: str, folder: str) -> List[str]:
    """Interfaces of partitions (P_Keys) of IPoIB: sysfs names no upper_ link for them."""

    def value(name: str, file: str) -> Any:
        return readers.number("%s/%s/%s" % (folder, name, file))

    if value(interface, "type") != INFINIBAND:
        return []
    number = value(interface, "ifindex")
    return [
        name
        for name in readers.names(folder)
        if name != interface and value(name, "type") == INFINIBAND
        and value(name, "iflink") == number
    ]  # fmt: skip


def family(interface: str, folder: str = "") -> List[str]:
    """The interface and all that use it, at once or through others; those below come first."""
    names = [interface]
    for name in names:
        names += [upper for upper in above(name, folder) if upper not in names]
    return names


def differences(then: Link, now: Link) -> List[str]:
    """Sentences on what a link has lost or gained."""
    messages = []
    for key in ("up", "mac"):
        if then[key] != now[key]:
            messages.append("%s is %s, was %s" % (key, now[key], then[key]))
    for what in _missing_from(then, now):
        messages.append("%s is gone" % what)
    for what in _missing_from(now, then):
        messages.append("%s was not there" % what)
    return messages


def _missing_from(then: Link, now: Link) -> List[str]:
    there = [_without_lifetimes(words) for key in ("addresses", "routes") for words in now[key]]
    had = [_without_lifetimes(words) for key in ("addresses", "routes") for words in then[key]]
    return [" ".join(words) for words in had if words not in there]


def without(words: List[str], keys: Tuple[str, ...]) -> List[str]:
    """The words of an address or route without these, and without the word after each."""
    return [
        word
        for at, word in enumerate(words)
        if word not in keys and (at == 0 or words[at - 1] not in keys)
    ]


def _without_lifetimes(words: List[str]) -> List[str]:
    return without(words, _LIFETIMES)


def restore(setting: str, interface: str, link: Link, now: Optional[Link] = None) -> List[Action]:
    """Actions that give an interface the addresses and routes of a recorded link.

    What it has ``now`` and had not then is taken away; without that, it is as after a reload."""
    device = ("dev", interface)
    actions = []
    for words in now["routes"] if now else []:
        if words not in link["routes"]:
            actions.append(command(setting, "ip", words[0], "route", "del", *words[1:], *device))
    had = [_without_lifetimes(words)[0] for words in link["addresses"]]
    for words in now["addresses"] if now else []:
        if words[0] not in had:
            actions.append(command(setting, "ip", "address", "del", words[0], *device))
    mac = now["mac"] if now else link["permanent"]
    if link["mac"] and link["mac"] != mac:
        actions.append(command(setting, "ip", "link", "set", *device, "down"))
        actions.append(command(setting, "ip", "link", "set", *device, "address", link["mac"]))
    actions.append(command(setting, "ip", "link", "set", *device, "up" if link["up"] else "down"))
    for words in link["addresses"]:
        actions.append(command(setting, "ip", "address", "replace", *words, *device))
    for family, *words in link["routes"]:
        actions.append(command(setting, "ip", family, "route", "replace", *words, *device))
    return actions


def interfaces_of(module: str) -> List[str]:
    """The interfaces that a kernel module drives now."""
    return [
        name
        for name in readers.names(readers.SYSFS)
        if os.path.basename(
            os.path.realpath("%s/%s/device/driver/module" % (readers.SYSFS, name))
        ) == module
    ]  # fmt: skip


def is_known_by(interface: str, address: str) -> bool:
    """Whether it is the interface of a device that has this permanent MAC address."""
    folder = "%s/%s" % (readers.SYSFS, interface)
    if not os.path.exists(folder + "/device"):
        return False  # a VLAN or bridge can have the address of the interface below
    present = programs.read_text(folder + "/address")[1]
    return present == address or readers.permanent_address(interface) == address


def known_by(address: str) -> List[str]:
    """The interfaces with this permanent MAC address, whatever they are called."""
    return [name for name in readers.names(readers.SYSFS) if is_known_by(name, address)]


def reload_driver(
    module: str,
    parameters: Dict[str, Any],
    links: Dict[str, Link],
    timeout_s: float = LINK_TIMEOUT_S,
) -> List[Action]:
    """Actions that reload a driver. ``links`` are those of all its interfaces.

    Raises Refused for a name or value that modprobe could take for an option.
    """
    words = ["%s=%s" % (name, parameters[name]) for name in sorted(parameters)]
    for word in [module, *words]:
        # A parameter may be without a value.
        if word.startswith("-") or not _WORD.match(word.replace("=", "", 1)):
            raise Refused("driver: %r is not a module or a parameter" % word)
    actions = [
        command("driver", "modprobe", "-r", module)._replace(wait_s=timeout_s),
        command("driver", "modprobe", module, *words)._replace(wait_s=timeout_s),
    ]
    for interface in sorted(links):
        actions.append(wait("driver", interface, timeout_s, links[interface]["permanent"]))
    for interface in sorted(links):
        actions += restore("driver", interface, links[interface])
    return actions + _wait_for_links("driver", links, timeout_s)


def _wait_for_links(setting: str, links: Dict[str, Link], timeout_s: float) -> List[Action]:
    """An application that starts on a link which is not up yet would fail."""
    had = [name for name in sorted(links) if links[name]["up"] and links[name]["link"]]
    return [wait_for_link(setting, name, timeout_s) for name in had]


def make_bond(bond: Dict[str, Any], links: Dict[str, Link], mtu: Optional[int]) -> List[Action]:
    """Actions that put interfaces under a bond, which takes the first one's addresses.

    ``mtu`` is the bond's; the kernel gives it to members. Raises Refused for a name that is none.
    """
    name, members = bond["name"], bond["members"]
    if not INTERFACE.match(name) or name.startswith(("-", ".")):
        raise Refused("bond: %r is no name of an interface" % name)
    actions = []
    if not os.path.isdir(readers.MODULES + "/bonding"):
        # By itself, the module makes a bond0 when it is loaded, which would be left behind.
        actions.append(command("bond", "modprobe", "bonding", "max_bonds=0"))
    actions.append(
        command("bond", "ip", "link", "add", "name", name, "type", "bond", "mode", bond["mode"],
                "miimon", str(bond.get("miimon_ms", 100))))  # fmt: skip
    if mtu:
        actions.append(command("bond", "ip", "link", "set", "dev", name, "mtu", str(mtu)))
    for member in members:
        actions += [
            # Down first: what is up without link-local addresses would not get them again.
            command("bond", "ip", "link", "set", "dev", member, "down"),
            command("bond", "ip", "address", "flush", "dev", member),
            command("bond", "ip", "link", "set", "dev", member, "master", name),
        ]
    first = links[members[0]]
    # Labels begin with the interface's own name, and the kernel gives the bond its MAC address.
    addresses = [without(words, ("label",)) for words in first["addresses"]]
    actions += restore("bond", name, dict(first, up=True, mac="", addresses=addresses))
    linked = any(links[member]["link"] for member in members)
    return actions + _wait_for_links("bond", {name: {"up": True, "link": linked}}, LINK_TIMEOUT_S)


def remove_bond(bond: Dict[str, Any], links: Dict[str, Link]) -> List[Action]:
    """Actions that free the members of a bond and give them back their own addresses.

    The bond may be half made, or not be there at all.
    """
    name = bond["name"]
    actions = []
    if os.path.isdir("%s/%s" % (readers.SYSFS, name)):
        if not os.path.isdir("%s/%s/bonding" % (readers.SYSFS, name)):
            raise Refused("bond: %s is no bond" % name)
        actions.append(command("bond", "ip", "link", "del", "dev", name))
    for member in bond["members"]:
        # The kernel gives a member its MAC address back when it leaves.
        actions += restore("bond", member, dict(links[member], permanent=links[member]["mac"]))
    return actions
