"""What changes with the MTU of an interface: the MTU of what uses it, its IPv6 MTU and the MTU of
IPv6 routes.

Nothing is changed here: the functions return actions. The MTU of IPv4 routes stays, and so do IPv6
addresses: no profile has an MTU below 1280, at which the kernel would remove these.
"""

from typing import Any, Dict, List, Tuple

from . import links, programs, readers
from .actions import Action, command, write
from .errors import Refused

#: words of a route that ``ip`` prints and does not take
_STATES = ("linkdown", "dead", "unresolved", "offload", "trap", "offload_failed", "rt_offload",
           "rt_trap", "rt_offload_failed")  # fmt: skip

Route = List[str]


def users_of(interface: str) -> List[Dict[str, Any]]:
    """Name, index and MTU of all interfaces that use this one, those below first.

    The kernel cuts their MTU to that of the interface below, and does not raise it again."""
    return [
        {"name": name, "ifindex": _number(name, "ifindex"), "mtu": _number(name, "mtu")}
        for name in links.family(interface)[1:]
    ]


def different_mtus(users: List[Dict[str, Any]]) -> List[Tuple[str, int, int]]:
    """Name, MTU and recorded MTU of the users whose MTU is another one. Some may be gone."""
    there = [(name, device["mtu"]) for device, name in _present(users)]
    mtus = [(name, _number(name, "mtu"), then) for name, then in there]
    return [(name, now, then) for name, now, then in mtus if now not in (None, then)]


def restore_mtus(users: List[Dict[str, Any]]) -> List[Action]:
    """Actions that restore the MTUs which ``users_of`` has recorded."""
    return [
        command("mtu of " + name, "ip", "link", "set", "dev", name, "mtu", str(then))
        for name, _, then in different_mtus(users)
    ]


def ipv6_of(interface: str) -> Dict[str, Any]:
    """The IPv6 MTU of an interface and of all that use it, and their IPv6 routes with an MTU.

    With the MTU of an interface the kernel sets its IPv6 MTU, and the MTU of each route over it
    that has more, or had the IPv6 MTU (``rt6_mtu_change`` of net/ipv6/route.c); a locked one stays.
    Raises Refused where routes cannot be read."""
    devices = [
        {"name": name, "ifindex": _number(name, "ifindex"), "mtu": readers.number(_file(name))}
        for name in links.family(interface)
    ]
    devices = [device for device in devices if device["mtu"] is not None]
    names = {device["name"] for device in devices}
    routes = [
        words
        for words in (_routes_with_mtu() if devices else [])
        # A route by a next hop object has no name of an interface.
        if not _devices(words) or names & _devices(words)
    ]
    return {"devices": devices, "routes": routes}


def different_ipv6(record: Dict[str, Any]) -> List[Tuple[str, Action]]:
    """A sentence on each IPv6 MTU that is not as ``ipv6_of`` has recorded it, and the action that
    restores it. What is gone meanwhile is no difference."""
    present = {device["name"]: name for device, name in _present(record["devices"])}
    differences = []
    for device in record["devices"]:
        name, then = present.get(device["name"], ""), device["mtu"]
        now = readers.number(_file(name)) if name else None
        if now not in (None, then):
            text = "%s: IPv6 mtu is %s, was %s before" % (name, now, then)
            differences.append((text, write("IPv6 mtu of " + name, _file(name), then)))
    routes = _routes_with_mtu() if record["routes"] else []
    mtus = {_without_mtu(words): _mtu(words) for words in routes}
    for recorded in record["routes"]:
        words = list(recorded)
        for at, word in enumerate(recorded):
            if at and recorded[at - 1] == "dev":
                words[at] = present.get(word, word)
        key = _without_mtu(words)
        if mtus.get(key, _mtu(words)) != _mtu(words):
            values = (" ".join(key), mtus[key], _mtu(words))
            action = command("mtu of a route", "ip", "-6", "route", "replace", *words)
            differences.append(("mtu of the IPv6 route %s is %s, was %s before" % values, action))
    return differences


def _present(records: List[Dict[str, Any]]) -> List[Tuple[Dict[str, Any], str]]:
    """Each recorded interface that is still there, with its present name."""
    names = {_number(name, "ifindex"): name for name in readers.names(readers.SYSFS)}
    return [(record, names[record["ifindex"]]) for record in records if record["ifindex"] in names]


def _number(interface: str, file: str) -> Any:
    return readers.number("%s/%s/%s" % (readers.SYSFS, interface, file))


def _file(interface: str) -> str:
    return "%s/sys/net/ipv6/conf/%s/mtu" % (readers.PROC, interface)


def _routes_with_mtu() -> List[Route]:
    """The IPv6 routes whose MTU is not locked, as ``ip`` takes them: its JSON lacks the lock."""
    answer = programs.run(["ip", "-oneline", "-6", "route", "show", "table", "all"])
    if answer.code:
        raise Refused("the IPv6 routes cannot be read: " + answer.err.strip())
    routes = [_as_taken(line.replace("\\", " ").split()) for line in answer.out.splitlines()]
    return [words for words in routes if _mtu(words).isdigit()]


def _as_taken(words: Route) -> Route:
    """A route as ``ip route replace`` takes it."""
    words = [word for word in words if word not in _STATES]
    if "expires" in words:
        at = words.index("expires") + 1
        words[at] = words[at].replace("sec", "")
    if "nhid" in words:  # the object has the next hops; they are printed as well
        words = words[: words.index("nexthop")] if "nexthop" in words else words
        words = links.without(words, ("via", "dev"))
    return words


def _mtu(words: Route) -> str:
    return words[words.index("mtu") + 1] if "mtu" in words else ""


def _devices(words: Route) -> set:
    return {words[at + 1] for at, word in enumerate(words[:-1]) if word == "dev"}


def _without_mtu(words: Route) -> Tuple[str, ...]:
    return tuple(links.without(words, ("mtu", "expires")))
