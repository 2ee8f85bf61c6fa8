"""What the guard sees of routes that a real kernel has: each table, rule and next hop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from place import Place, made_place

pytestmark = pytest.mark.root

PROFILES: dict[str, Any] = {
    "default": {},
    "one": {"eth1": {"txqueuelen": 50}},
    "two": {"tap0": {"txqueuelen": 50}},
}
CONTROLLER = "10.99.0.1"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """eth1 10.1.0.1/16 and tap0 10.2.0.1/16; eth0 carries the default route."""
    setup = "".join(
        f"ip link add {name} type veth peer name peer{number};"
        f"ip address add 10.{number}.0.1/16 dev {name};"
        f"ip -6 address add fd0{number}::1/64 dev {name} nodad;"
        f"ip link set {name} up; ip link set peer{number} up;"
        for number, name in enumerate(("eth0", "eth1", "tap0"))
    )
    setup += "ip route add default via 10.0.0.9; ip -6 route add default via fd00::9"
    with made_place(tmp_path, PROFILES, setup) as made:
        made.data["controllers"] = [CONTROLLER]
        made.write()
        yield made


def refuses(place: Place, profile: str) -> str:
    """Why a profile is refused here; empty where it is applied."""
    answer = place.begin(profile)
    assert place.end(profile).returncode == 0
    assert answer.returncode in (0, 2), answer.stderr
    return answer.stderr.strip().partition("seatrial-nic: ")[2] if answer.returncode else ""


ROUTES = {
    "a second next hop of the default route": (
        ["route replace default nexthop via 10.0.0.9 nexthop via 10.1.0.9"],
        "eth1 carries the node's default route",
    ),
    "a table and a rule": (
        ["rule add from all lookup 100", "route add default via 10.1.0.9 table 100"],
        "eth1 carries the node's default route of routing table 100",
    ),
    "a table and a rule, of a controller": (
        ["rule add to 10.99.0.0/16 lookup 100", "route add 10.99.0.0/16 via 10.1.0.9 table 100"],
        "eth1 carries Slurm's own traffic",
    ),
    "a table that no rule names yet": (
        ["route add default via 10.1.0.9 table 100"],
        "eth1 carries the node's default route of routing table 100",
    ),
    "a mark": (
        ["rule add fwmark 7 lookup 100", "route add default via 10.1.0.9 table 100"],
        "eth1 carries the node's default route of routing table 100",
    ),
    "another interface's packets": (
        ["rule add from 10.0.0.1 lookup 100", "route add default via 10.1.0.9 table 100"],
        "eth1 carries the node's default route of routing table 100",
    ),
    "all but another interface's packets": (
        ["rule add not iif eth1 lookup 100", "route add default via 10.1.0.9 table 100"],
        "eth1 carries the node's default route of routing table 100",
    ),
    "all but what is bound to it": (
        ["rule add not oif eth1 lookup 100", "route add default via 10.1.0.9 table 100"],
        "eth1 carries the node's default route of routing table 100",
    ),
    "its own packets": (
        ["rule add from 10.1.0.1 lookup 100", "route add default via 10.1.0.9 table 100"],
        "",
    ),
    "its own network's packets": (
        ["rule add from 10.1.0.0/16 lookup 100", "route add default via 10.1.0.9 table 100"],
        "",
    ),
    "more than its own network": (
        ["rule add from 10.0.0.0/8 lookup 100", "route add default via 10.1.0.9 table 100"],
        "eth1 carries the node's default route of routing table 100",
    ),
    "its own packets, and all": (
        ["rule add from 10.1.0.1 lookup 100", "rule add from all lookup 100",
         "route add default via 10.1.0.9 table 100"],
        "eth1 carries the node's default route of routing table 100",
    ),
    "two halves": (["route add 128.0.0.0/1 via 10.1.0.9"], "eth1 carries the node's default"),
    "four quarters": (
        [f"route add {first}.0.0.0/2 via 10.1.0.9" for first in (0, 64, 128)],
        "eth1 carries the node's default route",
    ),
    "many networks": (
        [f"route add {first}.0.0.0/8 via 10.1.0.9 table 100" for first in range(30, 38)],
        "eth1 carries the node's default route of routing table 100",
    ),
    "a few networks": (
        [f"route add {first}.0.0.0/8 via 10.1.0.9" for first in range(30, 37)], "",
    ),
    "multicast": (["route add 224.0.0.0/4 dev eth1"], ""),
    "IPv6 in parts": (
        [f"-6 route add 2{digit}00::/8 via fd01::9" for digit in range(2)],
        "eth1 carries the node's default route",
    ),
    "IPv6 of this site": (["-6 route add fc00::/7 via fd01::9"], ""),
    "a mark, of a controller": (
        ["rule add fwmark 7 lookup 100", "route add 10.99.0.0/16 via 10.1.0.9 table 100"],
        "eth1 carries Slurm's own traffic",
    ),
    "a port, of a controller": (
        ["rule add ipproto tcp dport 6817 lookup 100",
         "route add 10.99.0.0/16 via 10.1.0.9 table 100"],
        "eth1 carries Slurm's own traffic",
    ),
    "a user, of a controller": (
        ["rule add uidrange 64030-64030 lookup 100",
         "route add 10.99.0.0/16 via 10.1.0.9 table 100"],
        "eth1 carries Slurm's own traffic",
    ),
    "a type of service, of a controller": (
        ["route add 10.99.0.0/16 tos 0x10 via 10.1.0.9"], "eth1 carries Slurm's own traffic",
    ),
    "a port, of another network": (
        ["rule add ipproto tcp dport 6817 lookup 100",
         "route add 10.98.0.0/16 via 10.1.0.9 table 100"], "",
    ),
    "its own packets, to a controller": (
        ["rule add from 10.1.0.1 lookup 100", "route add 10.99.0.0/16 via 10.1.0.9 table 100"], "",
    ),
    "a shorter route to a controller": (["route add 10.0.0.0/9 via 10.1.0.9",
                                         "route add 10.99.0.0/16 via 10.0.0.9"], ""),
    "IPv6": (["-6 route add default via fd01::9 table 100", "-6 rule add from all lookup 100"],
             "eth1 carries the node's default route of routing table 100"),
    "a route that drops": (["route add unreachable default table 100"], ""),
    "a network": (["route add 10.98.0.0/16 via 10.1.0.9"], ""),
}  # fmt: skip


@pytest.mark.parametrize("what", ROUTES)
def test_what_an_interface_carries(place: Place, what: str) -> None:
    commands, reason = ROUTES[what]
    assert refuses(place, "one") == ""
    for command in commands:
        place.ip(*command.split())
    assert refuses(place, "one")[: len(reason) or None] == reason
    assert refuses(place, "two") == ""


@pytest.mark.parametrize(
    "commands",
    [
        "ip route add 10.99.0.0/16 nexthop via 10.1.0.9 nexthop via 10.2.0.9",
        (
            "ip nexthop add id 7 via 10.1.0.9 dev eth1; ip nexthop add id 8 via 10.2.0.9 dev tap0;"
            "ip nexthop add id 9 group 7/8; ip route add 10.99.0.0/16 nhid 9"
        ),
    ],
    ids=["of the route", "objects"],
)
def test_each_next_hop_counts(place: Place, commands: str) -> None:
    """What is sent at the moment takes only one of them."""
    place.shell(commands)
    assert refuses(place, "one") == "eth1 carries Slurm's own traffic"
    assert refuses(place, "two") == "tap0 carries Slurm's own traffic"


def test_next_hop_objects_that_routes_only_name(place: Place) -> None:
    """net.ipv4.nexthop_compat_mode=0: a route has the number of its next hops, and nothing else."""
    place.shell("echo 0 > /proc/sys/net/ipv4/nexthop_compat_mode")
    for number, hop in ((7, "10.0.0.9 dev eth0"), (8, "10.1.0.9 dev eth1")):
        place.ip("nexthop", "add", "id", str(number), "via", *hop.split())
    place.shell("ip nexthop add id 9 group 7/8")
    place.shell("ip route replace default nhid 9")
    assert refuses(place, "one") == "eth1 carries the node's default route"


def test_a_controller_behind_what_uses_the_interface(place: Place) -> None:
    place.shell("ip link add link eth1 name mv1 type macvlan")
    place.shell("ip link set mv1 up")
    place.shell("ip route add 10.99.0.0/16 dev mv1")
    assert refuses(place, "one") == "eth1 carries Slurm's own traffic (by mv1)"
