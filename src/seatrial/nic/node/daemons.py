"""Services of the node that set network interfaces, too: which of them would undo a setting, and
what an operator sets in each so that it does not. Changes nothing.
"""

import re
from fnmatch import fnmatchcase
from typing import Dict, Iterable, List, Optional, Set

from . import owner
from .errors import Refused
from .tree import Tree

TUNED_FOLDERS = ("etc/tuned", "usr/lib/tuned", "etc/tuned/profiles", "usr/lib/tuned/profiles")
#: a section of type net, up to the next one
NET_SECTION = re.compile(r"^\[net\](.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
NET_TYPE = re.compile(r"^type *= *net *$", re.MULTILINE)
DEVICES = re.compile(r"^devices *= *(.+)$", re.MULTILINE)
INCLUDE = re.compile(r"^include *= *(.+)$", re.MULTILINE)
ACTIVE = ("/etc/tuned/active_profile", "/etc/tuned/post_loaded_profile")
#: where systemd-networkd says what it manages, and which file of its own it has for that
NETWORKD = "/run/systemd/netif"
NETWORKD_MTU = re.compile(r"^ *(MTUBytes|UseMTU) *= *(?!no|false|0)\S+", re.MULTILINE)


class Daemons(Tree):
    """Looks below ``root`` (for tests; the node's own ``/``). ``processes``: names of those that
    run for the system, with an id of each."""

    def __init__(self, root: str, processes: Optional[Dict[str, int]] = None) -> None:
        super().__init__(root)
        self._processes = processes

    @property
    def processes(self) -> Dict[str, int]:
        if self._processes is None:
            self._processes = owner.names()
            networkd = owner.run_by_owner_of(self.path(NETWORKD), "systemd-networkd")
            if networkd:
                self._processes["systemd-networkd"] = networkd
        return self._processes

    def check(self, daemon: str, interface: str, settings: List[str]) -> None:
        """Raise Refused if a daemon runs and would undo one of these settings of an interface."""
        if daemon in self.processes:
            getattr(self, "_check_" + daemon.lower().replace("-", "_"))(interface, settings)

    def _check_irqbalance(self, interface: str, _: List[str]) -> None:
        raise Refused("irqbalance runs and would move the interrupts again (also banned ones): "
                      "stop it on the nodes under test, or leave irq_affinity out")  # fmt: skip

    def _check_tuned(self, interface: str, _: List[str]) -> None:
        active = [name for file in ACTIVE for name in self.text(file).split()]
        for name in self._with_included(active, interface):
            raise Refused(
                "tuned runs, and its profile %s sets %s: write devices=!%s in its [net] section, "
                "or choose a profile without one (tuned-adm profile)" % (name, interface, interface)
            )

    def _with_included(self, names: List[str], interface: str) -> Iterable[str]:
        """Those of tuned's profiles, included ones too, that set an interface."""
        seen: Set[str] = set()
        left = list(names)
        while left:
            name = left.pop(0)
            if name in seen or "/" in name:
                continue
            seen.add(name)
            for folder in TUNED_FOLDERS:
                text = self.text("/%s/%s/tuned.conf" % (folder, name))
                if text:
                    left += [
                        word for line in INCLUDE.findall(text) for word in re.split("[,; ]+", line)
                    ]
                    if _sets(text, interface):
                        yield name
                    break

    def _index(self, interface: str) -> str:
        return self.text("/sys/class/net/%s/ifindex" % interface)

    def _check_networkmanager(self, interface: str, _: List[str]) -> None:
        index = self._index(interface)
        text = self.text("/run/NetworkManager/devices/" + index) if index else ""
        if re.search(r"^managed=(true|1)$", text, re.MULTILINE) or "connection-uuid=" in text:
            raise Refused(
                "NetworkManager manages %s and would set it again: nmcli device set %s managed no, "
                "and for the next boot [keyfile] unmanaged-devices=interface-name:%s in "
                "/etc/NetworkManager/conf.d" % (interface, interface, interface)
            )

    def _check_systemd_networkd(self, interface: str, settings: List[str]) -> None:
        """It sets the MTU only where a file of its own says so, but always addresses and bonds."""
        index = self._index(interface)
        text = self.text("%s/links/%s" % (NETWORKD, index)) if index else ""
        values = dict(line.partition("=")[::2] for line in text.splitlines())
        if values.get("ADMIN_STATE", "unmanaged") in ("unmanaged", "linger"):
            return
        file = values.get("NETWORK_FILE", "")
        files = [file, *values.get("NETWORK_FILE_DROPINS", "").replace('"', "").split(":")]
        sets_mtu = any(NETWORKD_MTU.search(self.text(one)) for one in files if one)
        if set(settings) - {"mtu"} or sets_mtu:
            raise Refused(
                "systemd-networkd manages %s (%s) and would set it again: write Unmanaged=yes in "
                "the [Link] section of that file%s, then networkctl reload"
                % (interface, file or "no file", ", or take MTUBytes= out" if sets_mtu else "")
            )


def _sets(text: str, interface: str) -> bool:
    """Whether a profile of tuned has settings for an interface."""
    if NET_TYPE.search(text):
        return True
    for section in NET_SECTION.findall(text):
        patterns = [word for line in DEVICES.findall(section) for word in re.split("[,; ]+", line)]
        refused = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
        chosen = [pattern for pattern in patterns if pattern and not pattern.startswith("!")]
        if any(fnmatchcase(interface, pattern) for pattern in refused):
            continue
        if not chosen or any(fnmatchcase(interface, pattern) for pattern in chosen):
            return True
    return False
