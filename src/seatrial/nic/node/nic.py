"""The interfaces of this node: reads their settings, and performs one action at a time."""

import os
import time
from typing import Any, Container, Dict, List, Optional, Tuple

from . import links, mtus, programs, readers, settings, values
from .actions import Action, command, text_of
from .cpus import cpu_set
from .errors import Refused, SettingRefused
from .settings import SETTINGS

POLL_S = 0.05
#: how long udev has to give an interface its name, before it is done here
NAMING_S = 2.0


class Nic:
    """The interfaces of this node. ``ignored``: how the keys begin that others set all the time,
    so that nobody compares them."""

    ignored: Tuple[str, ...] = ()

    def __init__(self) -> None:
        self._programs: Dict[str, str] = {}

    def read(self, interface: str) -> Dict[str, Any]:
        """All settings of an interface. Raises Refused where there is no such interface."""
        if not self.exists(interface):
            raise Refused("there is no interface %s" % interface)
        state: Dict[str, Any] = {}
        for setting in SETTINGS:
            if setting.read and not setting.of_node:
                state.update(setting.read(interface, setting.state_key))
        readers.as_given(state)
        return state

    def read_node(self) -> Dict[str, Any]:
        """Settings that hold for the node as a whole."""
        state: Dict[str, Any] = {}
        for setting in SETTINGS:
            if setting.read and setting.of_node:
                state.update(setting.read("", setting.key))
        return state

    def versions(self, interface: str) -> Dict[str, str]:
        """Versions of all that decides which settings of an interface are seen, and how."""
        if not self._programs:
            self._programs = readers.program_versions()
        return dict(self._programs, driver=readers.driver_version(interface))

    def identity(self, interface: str) -> Dict[str, Any]:
        return readers.identity(interface)

    def find(self, identity: Dict[str, Any]) -> Optional[str]:
        """The present name of the interface that had this identity, or None."""
        return readers.find(identity)

    def link(self, interface: str) -> Dict[str, Any]:
        return links.record(interface)

    def above(self, interface: str) -> List[str]:
        return links.above(interface)

    def users_of(self, interface: str) -> List[Dict[str, Any]]:
        return mtus.users_of(interface)

    def ipv6_of(self, interface: str) -> Dict[str, Any]:
        return mtus.ipv6_of(interface)

    def exists(self, interface: str) -> bool:
        return os.path.isdir("%s/%s" % (readers.SYSFS, interface))

    def interfaces_of(self, module: str) -> List[str]:
        return links.interfaces_of(module)

    def fixed(self, interface: str) -> Dict[str, str]:
        """Features of the interface that nobody can change."""
        return readers.fixed_features(programs.run(["ethtool", "-k", interface]).out)

    def cpus(self) -> List[int]:
        """The node's CPUs that are online: not only those that this process may use."""
        text = programs.read_text("/sys/devices/system/cpu/online")[1]
        try:
            return sorted(cpu_set(text))
        except ValueError:
            return list(range(os.cpu_count() or 1))

    def perform(self, action: Action) -> None:
        """Carry out one action. Raises SettingRefused with what the driver or kernel said."""
        if action.argv is not None:
            answer = programs.run(action.argv, timeout=action.wait_s)
            if answer.code:
                said = " ".join((answer.err or answer.out).split()) or "exit code %d" % answer.code
                raise SettingRefused(action.setting, said)
        elif action.path is not None:
            try:
                with open(action.path, "w") as stream:
                    stream.write(action.text)
            except OSError as error:
                raise SettingRefused(action.setting, "%s: %s" % (action.path, error.strerror))
        else:
            self._wait(action)

    def _wait(self, action: Action) -> None:
        begin = time.monotonic()
        strange = None  # since when it is there under another name
        while not self._arrived(action):
            now = time.monotonic()
            others = links.known_by(action.address) if action.address else []
            if others and strange is None:
                strange = now
            if others and strange is not None and now - strange >= NAMING_S:
                self._rename(action.setting, others[0], action.text)
            elif now - begin > action.wait_s or programs.used_up():
                what = "did not come back" if action.until == "there" else "has no link"
                raise SettingRefused(
                    action.setting, "%s %s within %g s" % (action.text, what, action.wait_s)
                )
            else:
                time.sleep(POLL_S)

    def _arrived(self, action: Action) -> bool:
        if action.until == "link":
            return readers.number("%s/%s/carrier" % (readers.SYSFS, action.text)) == 1
        if not self.exists(action.text):
            return False
        return not action.address or links.is_known_by(action.text, action.address)

    def _rename(self, setting: str, name: str, wanted: str) -> None:
        """Give an interface its name; one that has taken it meanwhile gets a name for a while."""
        if self.exists(wanted):
            free = next(n for n in map("seatrial{}".format, range(1000)) if not self.exists(n))
            self._rename(setting, wanted, free)
        # Older kernels rename only what is down.
        self.perform(command(setting, "ip", "link", "set", "dev", name, "down"))
        self.perform(command(setting, "ip", "link", "set", "dev", name, "name", wanted))


def of_this_node(nic: Nic, processes: Container[str]) -> Nic:
    """``nic``, without the settings that another daemon of the node changes all the time."""
    if "irqbalance" in processes:
        nic.ignored = ("irq.",)
    return nic


class DryRun(Nic):
    """Reads what there is and prints what would be done."""

    def __init__(self, tell: Any) -> None:
        super().__init__()
        self.tell = tell

    def perform(self, action: Action) -> None:
        self.tell(text_of(action))


def lacking(
    nic: Any,
    interface: str,
    wanted: Dict[str, Any],
    state: Dict[str, Any],
    optional: Container[str],
) -> Tuple[List[str], List[str]]:
    """The settings of ``wanted`` that an interface does not have, or whose value nobody can change:
    those that a profile does without (``optional``: the groups of its ``if_supported``), and the
    others."""
    complete = values.with_queues(state, wanted)
    target = values.spread(wanted, complete, nic.cpus())
    absent = values.unsupported(target, complete)
    fixed = nic.fixed(interface) if any(key.startswith("feature.") for key in target) else {}
    for key in sorted(target):
        if key in fixed and not values.same(key, target[key], fixed[key], False):
            absent.append(key)
    # What stands for all queues is missing where one of them lacks it.
    keys = [key for key in wanted if key in absent or _stands_for_one(key, absent)]
    dropped = [key for key in keys if settings.group_of(key) in optional]
    return dropped, [key for key in keys if key not in dropped]


def _stands_for_one(key: str, absent: List[str]) -> bool:
    setting = settings.of(key)
    return bool(setting.spread) and any(setting.has(one) for one in absent)
