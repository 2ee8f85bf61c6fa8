"""The node's interfaces: read, and changed by one action at a time."""

import os
import time
from typing import Any, Dict, List

from . import links, programs, readers
from .changes import Action, text_of
from .errors import SettingRefused


class Nic:
    """The real interfaces of this node."""

    def read(self, interface: str) -> Dict[str, Any]:
        return readers.read_state(interface)

    def read_node(self) -> Dict[str, Any]:
        return readers.read_node()

    def identity(self, interface: str) -> Dict[str, Any]:
        return readers.identity(interface)

    def link(self, interface: str) -> Dict[str, Any]:
        return links.record(interface)

    def interfaces_of(self, module: str) -> List[str]:
        return links.interfaces_of(module)

    def fixed(self, interface: str) -> Dict[str, str]:
        """Features of the interface that nobody can change."""
        return readers.fixed_features(programs.run(["ethtool", "-k", interface]).out)

    def cpus(self) -> List[int]:
        """The node's CPUs that are online: not only those that this process may use."""
        text = programs.read_text("/sys/devices/system/cpu/online")[1]
        try:
            from .values import cpu_set

            return sorted(cpu_set(text))
        except ValueError:
            return list(range(os.cpu_count() or 1))

    def perform(self, action: Action) -> None:
        """Carry out one action. Raises SettingRefused with what the driver or kernel said."""
        if action.argv is not None:
            answer = programs.run(action.argv)
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
        deadline = time.monotonic() + action.wait_s
        while not os.path.isdir("%s/%s" % (readers.SYSFS, action.text)):
            if time.monotonic() > deadline:
                raise SettingRefused(
                    action.setting,
                    "%s did not come back within %g s" % (action.text, action.wait_s),
                )
            time.sleep(0.05)


class DryRun(Nic):
    """Reads what there is and prints what would be done."""

    def __init__(self, tell: Any) -> None:
        self.tell = tell

    def perform(self, action: Action) -> None:
        self.tell(text_of(action))
