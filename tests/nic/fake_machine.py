"""Interfaces whose driver can be reloaded, and bonds: none of which this machine's kernel has.

A ``Machine`` plays ``ip``, ``modprobe`` and ``ethtool -P`` and keeps a folder like /sys/class/net,
so that everything of the node side but its guard is the real thing. It has the habits of a kernel:
what is down loses its routes, a card comes back without anything and perhaps under another name.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fake_node import Fuse

from seatrial.nic.node import links, nic, programs, readers
from seatrial.nic.node.programs import Answer

MODULE = "e1000e"
MACS = {"eth1": "02:00:00:00:00:01", "eth2": "02:00:00:00:00:02"}


class Failure(Exception):
    """What a program says before it ends with an error."""


@dataclass
class Card:
    name: str
    index: int
    permanent: str = ""
    mac: str = ""
    module: str = ""
    mtu: int = 1500
    queue: int = 1000
    up: bool = False
    since: float = 0.0  # when it was taken up
    addresses: list[dict[str, Any]] = field(default_factory=list)
    routes: list[list[str]] = field(default_factory=list)
    master: str = ""
    before: tuple[int, str] = (0, "")  # MTU and MAC address that a bond gives back
    bond: bool = False
    users: tuple[str, ...] = ()  # interfaces that use it, and follow when its MTU is cut


class Machine:
    """Two cards of one driver. Patches the node side's modules until ``close``."""

    def __init__(self, folder: Path, patch: Any, fuse: Fuse | None = None) -> None:
        self.fuse = fuse or Fuse()
        self.folder = folder
        self.time = 50.0
        self.indices = itertools.count(2)
        self.cards: dict[str, Card] = {}
        self.written: dict[str, str] = {}
        self.loaded: dict[str, dict[str, str]] = {}
        self.bonding = True
        self.log: list[str] = []
        #: what goes wrong: a beginning of a command -> what it says
        self.fails: dict[str, str] = {}
        #: names that the kernel gives after a reload, and those that udev gives later
        self.kernel_names: dict[str, str] = {}
        self.udev: list[tuple[float, str, str]] = []
        self.udev_after: float | None = None
        self.comes_after = 0.3
        self.link_after = 0.5
        self.lost: set[str] = set()
        self.coming: list[tuple[float, str]] = []
        self._load(MODULE, {})
        self.tick(1.0)
        patch.setattr(readers, "SYSFS", str(folder / "net"))
        patch.setattr(readers, "MODULES", str(folder / "module"))
        patch.setattr(programs, "run", self.run)
        patch.setattr(nic, "time", self)
        assert links.programs is programs

    # -- a clock, for the module that waits

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.tick(seconds)

    def tick(self, seconds: float) -> None:
        self.time += seconds
        for at, name in [one for one in self.coming if one[0] <= self.time]:
            self.coming.remove((at, name))
            self._appear(name)
        for at, old, new in [one for one in self.udev if one[0] <= self.time]:
            self.udev.remove((at, old, new))
            if old in self.cards and new not in self.cards:
                self._rename(old, new)
        self.sync()

    # -- what it shows

    def state(self) -> dict[str, Any]:
        """All that must be as it was."""
        cards = {}
        for name, card in sorted(self.cards.items()):
            shown = dataclasses.asdict(card)
            for key in ("index", "since", "before"):
                del shown[key]
            shown["addresses"] = sorted(json.dumps(address) for address in card.addresses)
            shown["routes"] = sorted(map(" ".join, card.routes))
            cards[name] = shown
        return {"cards": cards, "loaded": dict(self.loaded)}

    def sync(self) -> None:
        """Bring the folder to what is, by its differences only."""
        wanted: dict[str, str] = {}
        for name, card in self.cards.items():
            base = f"net/{name}"
            wanted[f"{base}/ifindex"] = f"{card.index}\n"
            wanted[f"{base}/mtu"] = f"{card.mtu}\n"
            wanted[f"{base}/tx_queue_len"] = f"{card.queue}\n"
            wanted[f"{base}/address"] = f"{card.mac}\n"
            if card.up:
                wanted[f"{base}/carrier"] = f"{int(self._has_link(card))}\n"
            if card.module:
                wanted[f"{base}/device/driver/module"] = "->" + str(
                    self.folder / "module" / card.module
                )
            if card.bond:
                wanted[f"{base}/bonding/mode"] = "x\n"
            if card.master:
                wanted[f"{base}/master"] = f"->../{card.master}"
                wanted[f"{base}/upper_{card.master}"] = f"->../{card.master}"
            for user in card.users:
                wanted[f"{base}/upper_{user}"] = f"->../{user}"
        for module in (*self.loaded, *(["bonding"] if self.bonding else [])):
            wanted[f"module/{module}/refcnt"] = "1\n"
        for path in self.written.keys() - wanted.keys():
            (self.folder / path).unlink(missing_ok=True)
        for name in {path.split("/")[1] for path in self.written} - {
            path.split("/")[1] for path in wanted
        }:
            for kind in ("net", "module"):
                shutil.rmtree(self.folder / kind / name, ignore_errors=True)
        for path in wanted.keys() - self.written.keys():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        for path, text in wanted.items():
            if self.written.get(path) == text:
                continue
            if text.startswith("->"):
                (self.folder / path).unlink(missing_ok=True)
                (self.folder / path).symlink_to(text[2:])
            else:
                (self.folder / path).write_text(text)
        if any(path.startswith("net/") and path.endswith("/bonding/mode")
               for path in self.written.keys() - wanted.keys()):  # fmt: skip
            for name in self.cards:
                if not self.cards[name].bond:
                    shutil.rmtree(self.folder / "net" / name / "bonding", ignore_errors=True)
        self.written = wanted

    def _has_link(self, card: Card) -> bool:
        return self.time - card.since >= self.link_after

    # -- programs

    def run(self, argv: Any, timeout: float = 0) -> Answer:
        words = [str(one) for one in argv]
        self.tick(0.01)
        reading = words[0] in ("ethtool", "tc") or {"-json", "-V"} & set(words)
        if not reading:
            self.fuse.burn()
        line = " ".join(words)
        try:
            for beginning, said in self.fails.items():
                if line.startswith(beginning):
                    raise Failure(said)
            out = getattr(self, "_" + words[0])(words[1:])
        except Failure as error:
            return Answer(1, "", str(error))
        finally:
            self.sync()
        if not reading:
            self.log.append(line)
            self.fuse.burn()
        return Answer(0, out or "", "")

    def _tc(self, _: list[str]) -> str:
        return "[]"

    def _ethtool(self, words: list[str]) -> str:
        if words[0] != "-P":
            raise Failure("netlink error: Operation not supported")
        return "Permanent address: " + (self._card(words[1]).permanent or "not set")

    def _card(self, name: str) -> Card:
        if name not in self.cards:
            raise Failure(f'Cannot find device "{name}"')
        return self.cards[name]

    def _modprobe(self, words: list[str]) -> None:
        if words[0] == "-r":
            self.loaded.pop(words[1], None)
            for card in [one for one in self.cards.values() if one.module == words[1]]:
                del self.cards[card.name]
            self.coming.clear()
        elif words[0] == "bonding":
            if not self.bonding:
                self.bonding = True
                if "max_bonds=0" not in words:
                    self._new("bond0", bond=True)
        elif words[0] not in self.loaded:
            self._load(words[0], dict(word.split("=") for word in words[1:]))

    def _load(self, module: str, parameters: dict[str, str]) -> None:
        self.loaded[module] = parameters
        for name in MACS:
            if name not in self.lost:
                self.coming.append((self.time + self.comes_after, name))

    def _appear(self, name: str) -> None:
        called = self.kernel_names.get(name, name)
        while called in self.cards:
            called += "x"
        self._new(called, permanent=MACS[name], mac=MACS[name], module=MODULE)
        if called != name and self.udev_after is not None:
            self.udev.append((self.time + self.udev_after, called, name))

    def _new(self, name: str, **more: Any) -> Card:
        card = self.cards[name] = Card(name, next(self.indices), **more)
        return card

    def _rename(self, old: str, new: str) -> None:
        card = self.cards.pop(old)
        card.name = new
        self.cards[new] = card

    def _ip(self, words: list[str]) -> str | None:
        if words[0] == "-V":
            return "ip utility, iproute2-6.1.0, libbpf 1.1.2\n"
        if words[0] == "-json":
            return json.dumps(self._shown(words[1:]))
        if words[0] in ("-4", "-6"):
            return self._route(words[0], words[2], words[3:])
        if words[:2] == ["link", "set"]:
            return self._set(self._card(words[3]), *words[4:])
        if words[:2] == ["link", "add"]:
            return self._add_bond(words[3])
        if words[:2] == ["link", "del"]:
            card = self._card(words[3])
            for member in self._members(card):
                self._release(member)
            del self.cards[card.name]
            return None
        assert words[0] == "address", f"teach this fake machine: ip {' '.join(words)}"
        return self._address(words[1], words[2:])

    def _shown(self, words: list[str]) -> list[dict[str, Any]]:
        if words[0] == "address":
            card = self._card(words[3])
            own = {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"}
            flags = ["BROADCAST", *(["UP"] if card.up else [])]
            return [{"ifname": card.name, "flags": flags, "address": card.mac,
                     "addr_info": [*card.addresses, *([own] if card.up else [])]}]  # fmt: skip
        kernel = [{"dst": "10.0.0.0/8", "dev": one, "protocol": "kernel"} for one in self.cards]
        return kernel + [
            {
                "dst": route[1],
                "dev": name,
                **dict(zip(("gateway", "metric"), route[2:], strict=False)),
            }
            for name, card in self.cards.items()
            for route in card.routes
            if route[0] == words[0]
        ]

    def _route(self, family: str, verb: str, words: list[str]) -> None:
        assert words[-2] == "dev"
        card = self._card(words[-1])
        more = dict(zip(words[1:-2:2], words[2:-2:2], strict=True))
        route = [family, words[0], *(more[key] for key in ("via", "metric") if key in more)]
        if not card.up:
            raise Failure("RTNETLINK answers: Network is down")
        wanted = "inet" if family == "-4" else "inet6"
        if "via" in more and not any(address["family"] == wanted for address in card.addresses):
            raise Failure("Error: Nexthop has invalid gateway.")
        card.routes = [one for one in card.routes if one[:2] != route[:2]]
        if verb == "replace":
            card.routes.append(route)

    def _set(self, card: Card, what: str, value: str = "") -> None:
        if what in ("up", "down"):
            self._up(card, what == "up")
        elif what == "mtu":
            card.mtu = int(value)
            for member in self._members(card):
                member.mtu = card.mtu
            for user in map(self._card, card.users):
                self._set(user, "mtu", str(min(user.mtu, card.mtu)))
        elif what == "txqueuelen":
            card.queue = int(value)
        elif what == "address":
            card.mac = value
        elif what == "name":
            if card.up:
                raise Failure("RTNETLINK answers: Device or resource busy")
            if value in self.cards:
                raise Failure("RTNETLINK answers: File exists")
            self._rename(card.name, value)
        else:
            assert what == "master", what
            bond = self._card(value)
            if card.up:
                raise Failure("Error: Device can not be enslaved while up.")
            card.before = (card.mtu, card.mac)
            bond.mac = bond.mac or card.mac
            card.master, card.mtu, card.mac = value, bond.mtu, bond.mac
            self._up(card, True)

    def _up(self, card: Card, up: bool) -> None:
        if up and not card.up:
            card.since = self.time
        if not up:
            card.routes = []
            card.addresses = [address for address in card.addresses if address["family"] == "inet"]
        card.up = up

    def _members(self, bond: Card) -> list[Card]:
        return [card for card in self.cards.values() if card.master and card.master == bond.name]

    def _release(self, card: Card) -> None:
        card.mtu, card.mac = card.before
        card.master = ""
        self._up(card, False)

    def _add_bond(self, name: str) -> None:
        if not self.bonding:  # the kernel loads it by itself
            self._modprobe(["bonding"])
        if name in self.cards:
            raise Failure("RTNETLINK answers: File exists")
        self._new(name, bond=True)

    def _address(self, verb: str, words: list[str]) -> None:
        card = self._card(words[-1])
        if verb == "flush":
            card.addresses, card.routes = [], []
            return
        found = info(*words[:-2], name=card.name)
        if found["family"] == "inet6" and not card.up:
            raise Failure("RTNETLINK answers: Permission denied")
        card.addresses = [
            address for address in card.addresses if address["local"] != found["local"]
        ]
        if verb == "replace":
            card.addresses.append(found)


def info(address: str, *words: str, name: str = "") -> dict[str, Any]:
    """An address as ``ip -json`` shows it."""
    more = dict(zip(words[::2], words[1::2], strict=True))
    local, _, length = address.partition("/")
    found: dict[str, Any] = {
        "family": "inet6" if ":" in local else "inet", "local": local, "prefixlen": int(length),
        "scope": "global", "valid_life_time": 4294967295, "preferred_life_time": 4294967295,
    }  # fmt: skip
    if "broadcast" in more:
        found["broadcast"] = more["broadcast"]
    if found["family"] == "inet":
        found["label"] = more.get("label", name)
        if not found["label"].startswith(name):
            raise Failure('"label" must match "dev" or be prefixed by it')
    return found


def furnish(machine: Machine) -> None:
    """Give the cards what a node's interfaces have by the time a job comes."""
    one, two = machine.cards["eth1"], machine.cards["eth2"]
    for card in (one, two):
        machine._up(card, True)
    one.addresses = [
        info("10.1.0.1/16", "broadcast", "10.1.255.255", name="eth1"),
        info("10.1.0.9/16", "label", "eth1:x", name="eth1"),
        info("fd01::1/64"),
    ]
    one.routes = [["-4", "10.5.0.0/16", "10.1.0.2"], ["-4", "10.1.7.0/24"],
                  ["-6", "fd05::/64", "fd01::2", "512"]]  # fmt: skip
    two.addresses = [info("10.2.0.1/16", name="eth2")]
    one.queue = 900
    two.mtu = 4000
    two.queue = 700
    machine.tick(1.0)
