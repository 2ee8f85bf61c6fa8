"""Over which interfaces the node sends: from all routing tables, rules and next hops, as ``ip``
shows them. Changes nothing, and keeps what it has read: one object serves one command.
"""

import json
import socket
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from . import programs
from .errors import Refused

#: the unicast addresses, as numbers: 0.0.0.0 to 223.255.255.255, and the global ones, 2000::/3
UNICAST = {"-4": (0, 224 << 24), "-6": (1 << 125, 2 << 125)}
#: routes over one interface that reach so many of these stand for a default route: a /5, a /8
MANY = {"-4": 1 << 27, "-6": 1 << 120}
#: that drop what they match, so that nothing is sent
DROPPING = ("unreachable", "blackhole", "prohibit", "throw")
FAMILIES = ("-4", "-6")

Row = Dict[str, Any]
Range = Tuple[int, int]  # the first address as a number, and the one after the last


class Routes:
    """The routing of this network namespace. Methods raise Refused where ``ip`` fails."""

    def __init__(self) -> None:
        self._rows: Dict[tuple, List[Row]] = {}

    def _ask(self, *words: str) -> List[Row]:
        if words not in self._rows:
            self._rows[words] = self._answer(*words) or []
        return self._rows[words]

    def _answer(self, *words: str) -> Optional[List[Row]]:
        """Rows that ``ip`` prints; None where the kernel says that there is no such thing."""
        answer = programs.run(["ip", "-json", *words])
        if answer.code in (124, 127):
            raise Refused("the node's routes cannot be read: " + answer.err)
        try:
            rows = json.loads(answer.out or "[]")
        except ValueError:
            raise Refused("ip %s: its answer is not JSON" % " ".join(words))
        return None if answer.code else [row for row in rows if row]

    def _must(self, *words: str) -> List[Row]:
        """As ``_ask``, for what each kernel has: no answer says nothing of the routes."""
        if words not in self._rows:
            rows = self._answer(*words)
            if rows is None:
                raise Refused("the node's routes cannot be read: ip %s failed" % " ".join(words))
            self._rows[words] = rows
        return self._rows[words]

    def defaults(self, family: Set[str]) -> Dict[str, str]:
        """Interface -> routing table of each default route over interfaces of a family, which are
        an interface and what uses it. Routes that split the default route count as one.

        Not those in a table which only packets from the family's own addresses reach: policy
        routing of a second network.
        """
        carrying: Dict[str, str] = {}
        for version in FAMILIES:
            ranges: Dict[Tuple[str, str], List[Range]] = {}
            for row, table in self._sending(version):
                for interface in set(self._interfaces(row)) & family:
                    ranges.setdefault((interface, table), []).append(_range(version, row))
            for interface, table in sorted(ranges):
                many = _size(ranges[interface, table], *UNICAST[version]) >= MANY[version]
                if many and not self._is_own(version, table, family):
                    carrying.setdefault(interface, table)
        return carrying

    def _sending(self, version: str) -> Iterator[Tuple[Row, str]]:
        """Each route that sends packets, with its table."""
        for row in self._must(version, "route", "show", "table", "all"):
            table = str(row.get("table", "main"))
            if row.get("type", "unicast") not in DROPPING and table != "local":
                yield row, table

    def _in_any_table(self, address: str) -> Set[str]:
        """Interfaces of the routes to an address in all tables to which a rule leads for other
        packets than those from the interface's own network.

        The kernel answers for a packet without mark, port, type of service and user; rules and
        routes can ask for these.
        """
        number = int.from_bytes(number_of(address), "big")
        version = "-6" if len(number_of(address)) == 16 else "-4"
        rows: Dict[Tuple[str, str], List[Tuple[int, Row]]] = {}
        for row, table in self._sending(version):
            first, end = _range(version, row)
            if first <= number < end:
                kind = (table, str(row.get("tos", "")))
                rows.setdefault(kind, []).append((end - first, row))
        interfaces = set()
        for (table, _), matching in rows.items():
            smallest = min(size for size, _ in matching)
            for size, row in matching:
                for interface in self._interfaces(row) if size == smallest else ():
                    if not self._is_own(version, table, {interface}):
                        interfaces.add(interface)
        return interfaces

    def _interfaces(self, row: Row) -> Iterator[str]:
        """Interfaces of a route: its own, those of its next hops, those of a next hop object."""
        hops = [row, *row.get("nexthops", [])]
        if "nhid" in row and "dev" not in row and "nexthops" not in row:
            hops += self._next_hops(row["nhid"])
        for hop in hops:
            if hop.get("dev", "lo") != "lo":  # the kernel lists an unreachable default on lo
                yield hop["dev"]

    def _next_hops(self, number: int) -> List[Row]:
        """The object of this id, or those of its group."""
        objects = {row["id"]: row for row in self._ask("nexthop", "show") if "id" in row}
        group = objects.get(number, {}).get("group", [{"id": number}])
        return [objects[member["id"]] for member in group if member.get("id") in objects]

    def _is_own(self, version: str, table: str, family: Set[str]) -> bool:
        """Whether only rules for the family's own packets lead to a table, and at least one."""
        rules = [
            row for row in self._must(version, "rule", "show") if str(row.get("table")) == table
        ]
        return bool(rules) and all(self._is_for(rule, family) for rule in rules)

    def _is_for(self, rule: Row, family: Set[str]) -> bool:
        if "not" in rule:
            return False
        if rule.get("oif") in family or rule.get("iif") in family:
            return True
        source = rule.get("src", "all")
        if source == "all":
            return False
        import ipaddress  # slow to load, and seldom needed

        asked = ipaddress.ip_network("%s/%s" % (source, rule.get("srclen", "")) if "srclen" in rule
                                     else source, strict=False)  # fmt: skip
        for name, address, length in self._addresses():
            if name in family and asked.version == (6 if ":" in address else 4):
                network = ipaddress.ip_network("%s/%s" % (address, length), strict=False)
                if int(network[0]) <= int(asked[0]) and int(asked[-1]) <= int(network[-1]):
                    return True
        return False

    def _addresses(self) -> Iterator[tuple]:
        """(interface, address, length of the prefix) of all addresses of the node."""
        for device in self._must("address", "show"):
            for info in device.get("addr_info", []):
                if "local" in info:
                    yield device["ifname"], info["local"], info["prefixlen"]

    def having(self, address: str) -> Set[str]:
        """The interfaces that have an address of the node."""
        wanted = number_of(address)
        return {name for name, one, _ in self._addresses() if number_of(one) == wanted} - {"lo"}

    def to(self, address: str, source: str = "") -> Set[str]:
        """All interfaces that packets to an address may take, whatever a rule asks for, also inside
        a VRF; with ``source``, also those from this address of the node. None where there is no
        route."""
        if "%" in address:  # a link-local address
            return {address.partition("%")[2]}
        if not number_of(address):
            return set()
        where: List[List[str]] = [[]]
        where += [["vrf", row["ifname"]] for row in self._ask("link", "show", "type", "vrf")
                  if "ifname" in row]  # fmt: skip
        interfaces = self._in_any_table(address)
        for words in where:
            more = (["from", source] if source else []) + words
            # The route itself has all its next hops; what is sent now takes one of them.
            for what in (["fibmatch", address], [address]):
                for row in self._ask("route", "get", *what, *more):
                    interfaces.update(self._interfaces(row))
        return interfaces


def number_of(address: str) -> bytes:
    """An address as bytes, however it is written. An IPv4 address within IPv6 is that address."""
    try:
        if ":" not in address:
            return socket.inet_pton(socket.AF_INET, address)
        number = socket.inet_pton(socket.AF_INET6, address)
    except (OSError, ValueError):
        return b""
    return number[12:] if number[:12] == b"\0" * 10 + b"\xff\xff" else number


def _range(version: str, row: Row) -> Range:
    """The addresses that a route is for."""
    text, _, length = str(row.get("dst", "default")).partition("/")
    bits = 128 if version == "-6" else 32
    if text == "default":
        return 0, 1 << bits
    family = socket.AF_INET6 if version == "-6" else socket.AF_INET
    try:
        first = int.from_bytes(socket.inet_pton(family, text), "big")
        return first, first + (1 << (bits - int(length or bits)))
    except (OSError, ValueError):  # a kind of destination that this release does not know
        return 0, 1 << bits


def _size(ranges: List[Range], least: int, end: int) -> int:
    """How many of the addresses from ``least`` up to ``end`` these reach together."""
    size = 0
    for first, after in sorted(ranges):
        first, after = max(first, least), min(after, end)
        size += max(0, after - first)
        least = max(least, after)
    return size
