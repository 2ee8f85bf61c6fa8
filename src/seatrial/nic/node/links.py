"""What makes more of an interface than its settings: driver reloads, bonds, and the addresses and
routes that both of them take away.

Only says what is to be done (see ``changes``). An interface's *link* is its addresses, routes and
whether it is up, as ``record`` finds them.
"""

import json
import os
import re
from typing import Any, Dict, List

from . import programs, readers
from .changes import Action, command, wait
from .errors import Refused

LINK_TIMEOUT_S = 30.0
_WORD = re.compile(r"^[A-Za-z0-9_.,:+-]+\Z")


def _json(*argv: str) -> List[Dict[str, Any]]:
    answer = programs.run(["ip", "-json", *argv])
    if answer.code:
        raise Refused("ip %s: %s" % (" ".join(argv), answer.err.strip()))
    try:
        return json.loads(answer.out or "[]")
    except ValueError:
        raise Refused("ip %s: its answer is not JSON" % " ".join(argv))


def record(interface: str) -> Dict[str, Any]:
    """Addresses, routes and state of an interface. Raises Refused where they cannot be read."""
    found = _json("address", "show", "dev", interface)
    addresses = []
    for info in (one for link in found for one in link.get("addr_info", [])):
        if info.get("scope") != "link" or info.get("family") == "inet":
            addresses.append("%s/%s" % (info["local"], info["prefixlen"]))
    routes = []
    for family in ("-4", "-6"):
        for route in _json(family, "route", "show", "table", "all", "dev", interface):
            # The kernel makes these itself, when the address and the link come back.
            if route.get("protocol") == "kernel" or route.get("table") == "local":
                continue
            routes.append([family, *_route(route)])
    flags = found[0].get("flags", []) if found else []
    return {"addresses": addresses, "routes": routes, "up": "UP" in flags}


def _route(route: Dict[str, Any]) -> List[str]:
    words = [str(route["dst"])]
    for key, word in (("gateway", "via"), ("prefsrc", "src"), ("metric", "metric"),
                      ("table", "table"), ("scope", "scope")):  # fmt: skip
        if key in route:
            words += [word, str(route[key])]
    return words


def put_back(setting: str, interface: str, link: Dict[str, Any]) -> List[Action]:
    """Actions that give an interface the addresses and routes of a recorded link."""
    actions = []
    if link["up"]:
        actions.append(command(setting, "ip", "link", "set", "dev", interface, "up"))
    for address in link["addresses"]:
        actions.append(command(setting, "ip", "address", "replace", address, "dev", interface))
    for family, *words in link["routes"]:
        actions.append(command(setting, "ip", family, "route", "replace", *words, "dev", interface))
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


def reload_driver(
    module: str,
    parameters: Dict[str, Any],
    links: Dict[str, Dict[str, Any]],
    timeout_s: float = LINK_TIMEOUT_S,
) -> List[Action]:
    """Actions that load a driver anew. ``links`` are those of all its interfaces.

    Raises Refused for a name or value that modprobe could take for an option.
    """
    words = ["%s=%s" % (name, parameters[name]) for name in sorted(parameters)]
    for word in [module, *words]:
        if word.startswith("-") or not _WORD.match(word.replace("=", "", 1)):
            raise Refused("driver: %r is not a module or a parameter" % word)
    actions = [
        command("driver", "modprobe", "-r", module),
        command("driver", "modprobe", module, *words),
    ]
    for interface in sorted(links):
        actions.append(wait("driver", interface, timeout_s))
    for interface in sorted(links):
        actions += put_back("driver", interface, links[interface])
    return actions


def make_bond(bond: Dict[str, Any], links: Dict[str, Dict[str, Any]]) -> List[Action]:
    """Actions that put interfaces under a bond, which takes the first one's addresses."""
    name, members = bond["name"], bond["members"]
    actions = [
        command("bond", "ip", "link", "add", "name", name, "type", "bond", "mode", bond["mode"],
                "miimon", str(bond.get("miimon_ms", 100))),
    ]  # fmt: skip
    for member in members:
        actions += [
            command("bond", "ip", "address", "flush", "dev", member),
            command("bond", "ip", "link", "set", "dev", member, "down"),
            command("bond", "ip", "link", "set", "dev", member, "master", name),
        ]
    return actions + put_back("bond", name, dict(links[members[0]], up=True))


def unmake_bond(bond: Dict[str, Any], links: Dict[str, Dict[str, Any]]) -> List[Action]:
    """Actions that free the members of a bond and give them back their own addresses."""
    name = bond["name"]
    actions = []
    if os.path.isdir("%s/%s" % (readers.SYSFS, name)):
        if not os.path.isdir("%s/%s/bonding" % (readers.SYSFS, name)):
            raise Refused("bond: %s is no bond" % name)
        actions.append(command("bond", "ip", "link", "del", "dev", name))
    for member in bond["members"]:
        actions += put_back("bond", member, links[member])
    return actions
