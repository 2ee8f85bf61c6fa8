"""A node that is not there: interfaces with the habits of real drivers, processes, a clock, deaths.

The settings of its one interface are changed by the same commands as on a real one, which it
reads word by word. It can refuse a setting, and it can die before any of its operations.
"""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any

from seatrial.nic.node.actions import Action
from seatrial.nic.node.errors import Refused, SettingRefused
from seatrial.nic.node.store import Store

INTERFACE = "eth1"
LIVE_USECS = 77  # what adaptive moderation happens to use at the moment
AGREED = "on"  # what flow control shows while the two ends of the cable negotiate it


class Killed(BaseException):
    """SIGKILL: nothing of the command runs after it."""


class Fuse:
    """Counts operations and kills at a chosen one."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.hook: Any = None

    def burn(self) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            if self.hook:
                hook, self.hook = self.hook, None
                hook()
            else:
                raise Killed()


def boot_state() -> dict[str, Any]:
    return {
        "mtu": 1500,
        "txqueuelen": 1000,
        "coalesce.rx-usecs": 20,
        "coalesce.rx-frames": 5,
        "coalesce.adaptive-rx": "on",
        "coalesce.tx-usecs": 72,
        "coalesce.adaptive-tx": "off",
        "coalesce.rx-usecs-irq": None,
        "pause.autoneg": "on",
        "pause.rx": "off",
        "pause.tx": "on",
        "ring.rx": 256,
        "channels.combined": 2,
        "feature.tx-checksumming": "on",
        "feature.tx-checksum-ip-generic": "on",
        "feature.tcp-segmentation-offload": "on",
        "feature.tx-tcp-segmentation": "on",
        "feature.generic-receive-offload": "on",
        "sysfs.gro_flush_timeout": 0,
        "qdisc": "default mq",
    }


class FakeNic:
    """One interface. ``stubborn``: refuses static values while adaptive is on, as i40e does; else
    a static value turns adaptive off in silence."""

    def __init__(self, fuse: Fuse, stubborn: bool = True) -> None:
        self.fuse = fuse
        self.stubborn = stubborn
        self.refuses: set[str] = set()
        self.name = INTERFACE
        self.ignored: tuple[str, ...] = ()
        #: of ethtool, which decides what ``read`` shows: keys that an older one lacks, and a newer
        self.ethtool = "6.1"
        self.shown_by: dict[str, dict[str, Any]] = {}
        self.hidden_by: dict[str, set[str]] = {}
        self.reboot()

    def reboot(self) -> None:
        self.raw = boot_state()
        self.name = INTERFACE
        self.rps = ["0"] * 2

    def state(self) -> dict[str, Any]:
        found = dict(self.raw)
        for side in ("rx", "tx"):
            if found[f"coalesce.adaptive-{side}"] == "on":
                found[f"coalesce.{side}-usecs"] = LIVE_USECS
        if found["pause.autoneg"] == "on":
            found["pause.rx"] = found["pause.tx"] = AGREED
        if found["feature.tx-checksum-ip-generic"] == "off":
            found["feature.tx-checksumming"] = "off"
            for name in ("feature.tcp-segmentation-offload", "feature.tx-tcp-segmentation"):
                found[name] = "off [requested on]" if self.raw[name] == "on" else "off"
        for queue in range(found["channels.combined"]):
            found[f"rps.rx-{queue}"] = self.rps[queue]
        rate = found["qdisc"].partition("rate ")[2]
        found["egress_bit_s"] = int(rate) if rate else None
        return found

    def exact(self) -> dict[str, Any]:
        """All there is, what adaptive moderation hides included."""
        return copy.deepcopy({**self.raw, "rps": self.rps[: self.raw["channels.combined"]]})

    # -- as seatrial.nic.node.nic.Nic

    def read(self, interface: str) -> dict[str, Any]:
        self.fuse.burn()
        if interface != self.name:
            raise Refused(f"there is no interface {interface}")
        hidden = self.hidden_by.get(self.ethtool, set())
        state = {**self.state(), **self.shown_by.get(self.ethtool, {})}
        return {key: value for key, value in state.items() if key not in hidden}

    def versions(self, interface: str) -> dict[str, str]:
        return {"ethtool": self.ethtool, "seatrial": "1"}

    def read_node(self) -> dict[str, Any]:
        return {"sysctl.net.core.busy_poll": None}

    def identity(self, interface: str) -> dict[str, Any]:
        return {"ifindex": 2, "address": "02:00:00:00:00:01"}

    def find(self, identity: dict[str, Any]) -> str | None:
        return self.name if identity == self.identity(self.name) else None

    def users_of(self, interface: str) -> list[dict[str, Any]]:
        return []

    def ipv6_of(self, interface: str) -> dict[str, Any]:
        return {"devices": [], "routes": []}

    def exists(self, interface: str) -> bool:
        return interface == self.name

    def interfaces_of(self, module: str) -> list[str]:
        return []

    def fixed(self, interface: str) -> dict[str, str]:
        return {}

    def cpus(self) -> list[int]:
        return [0, 1]

    def perform(self, action: Action) -> None:
        self.fuse.burn()
        argv = action.argv
        if argv is None:
            self._write(action)
        elif argv[:2] == ["ethtool", "-C"]:
            self._coalesce(dict(zip(argv[3::2], argv[4::2], strict=True)))
        elif argv[:2] == ["ethtool", "-K"]:
            self._features(dict(zip(argv[3::2], argv[4::2], strict=True)))
        elif argv[:2] == ["ethtool", "-A"]:
            self._pause(dict(zip(argv[3::2], argv[4::2], strict=True)))
        elif argv[0] == "ethtool":
            group = {"-L": "channels", "-G": "ring"}[argv[1]]
            for name, value in zip(argv[3::2], argv[4::2], strict=True):
                self._set(f"{group}.{name}", int(value))
                if group == "channels":  # a queue that goes forgets its settings
                    self.rps[int(value) :] = ["0"] * (2 - int(value))
        elif argv[:3] == ["ip", "link", "set"]:
            self._set(argv[5], int(argv[6]))
        elif argv[:3] == ["tc", "qdisc", "replace"]:
            self._set("qdisc", f"tbf rate {argv[argv.index('rate') + 1].removesuffix('bit')}",
                      "egress_bit_s")  # fmt: skip
        elif argv[:3] == ["tc", "qdisc", "del"]:
            self._set("qdisc", "default mq")
        else:
            raise AssertionError(f"an unknown command: {argv}")
        # A command may be killed when it is done, too.
        self.fuse.burn()

    def _set(self, key: str, value: Any, name: str = "") -> None:
        if (name or key) in self.refuses:
            raise SettingRefused(name or key, "Invalid argument")
        self.raw[key] = value

    def _coalesce(self, words: dict[str, str]) -> None:
        for name, value in words.items():
            if not name.startswith("adaptive"):
                side = "coalesce.adaptive-" + name[:2]
                if self.raw[side] == "on":
                    if self.stubborn:
                        raise SettingRefused(f"coalesce.{name}", "adaptive moderation is on")
                    self.raw[side] = "off"
            self._set(f"coalesce.{name}", value if value in ("on", "off") else int(value))

    def _pause(self, words: dict[str, str]) -> None:
        """The kernel takes values that are not in force while they are negotiated."""
        if self.stubborn and self.raw["pause.autoneg"] == "on" and words != {"autoneg": "off"}:
            raise SettingRefused("pause.rx", "autonegotiation is on")
        for name, value in words.items():
            self._set(f"pause.{name}", value)

    def _features(self, words: dict[str, str]) -> None:
        below = {
            "tx-checksumming": "tx-checksum-ip-generic",
            "tcp-segmentation-offload": "tx-tcp-segmentation",
        }
        above = {leaf: name for name, leaf in below.items()}
        for name, value in words.items():
            for one in {name, below.get(name, name), above.get(name, name)}:
                self._set(f"feature.{one}", value)

    def _write(self, action: Action) -> None:
        assert action.path is not None
        name = action.path.rpartition("/")[2]
        if name == "rps_cpus":
            if "rps_cpus" in self.refuses:
                raise SettingRefused(action.setting, "Input/output error")
            queue = int(action.path.split("/rx-")[1].split("/")[0])
            if queue >= self.raw["channels.combined"]:
                raise SettingRefused(action.setting, "No such file or directory")
            self.rps[queue] = action.text
        else:
            self._set(f"sysfs.{name}", int(action.text))


class MortalStore(Store):
    """The real store, on a disk that can be full and with a writer that can die at any step."""

    def __init__(self, folder: Path, fuse: Fuse) -> None:
        super().__init__(str(folder))
        self.fuse = fuse
        self.full = False

    def write(self, name: str, text: str) -> None:
        self.fuse.burn()
        if self.full:
            raise OSError(28, "No space left on device")
        super().write(name, text)
        self.fuse.burn()

    def remove(self, name: str) -> None:
        self.fuse.burn()
        super().remove(name)
        self.fuse.burn()

    def note(self, **entry: Any) -> None:
        if not self.full:
            super().note(**entry)


class Simulation:
    """The processes, the clock and the boot of the node."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.boot = 1
        self.ids = itertools.count(100)
        self.living: set[int] = set()
        self.steps: set[str] = set()

    def spawn(self) -> tuple[int, int]:
        pid = next(self.ids)
        self.living.add(pid)
        return (pid, int(self.time * 100))

    def kill(self, process: tuple[int, int] | None) -> None:
        if process:
            self.living.discard(process[0])


class FakeWorld:
    """What one command sees of its node (``seatrial.nic.node.owner.World``)."""

    def __init__(self, simulation: Simulation, slurmd: tuple[int, int] | None) -> None:
        self.simulation = simulation
        self.me = simulation.spawn()
        self.slurmd = slurmd
        simulation.time += 0.01  # a program does not start in the moment in which another one ends
        self.started = simulation.time

    def now(self) -> float:
        self.simulation.time += 0.001
        return self.simulation.time

    def boot_id(self) -> str:
        return f"boot-{self.simulation.boot}"

    def alive(self, process: Any) -> bool:
        return bool(process) and process[0] in self.simulation.living

    def has_steps(self, job: str) -> bool:
        return job in self.simulation.steps

    def any_steps(self) -> str | None:
        return next(iter(self.simulation.steps), None)

    def sleep(self, seconds: float) -> None:
        self.simulation.time += seconds


class OpenGuard:
    """Allows all: the guard has tests of its own."""

    warnings: list[str] = []  # noqa: RUF012

    def check(self, policy: Any, profile: Any) -> None: ...
