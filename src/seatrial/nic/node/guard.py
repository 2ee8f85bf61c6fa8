"""The interfaces that must never be changed: those not under test, and those that the node needs.

The guard also refuses a profile beside a daemon that sets the same settings. Each refusal names
the interface or the daemon.
"""

import os
import re
import struct
from typing import Any, Dict, Iterable, List, Optional, Set

from . import owner, programs
from .errors import Refused
from .namespaces import users_elsewhere
from .policy import Policy
from .settings import of

#: of slurmctld, where the policy does not name others
SLURM_PORTS = (6817,)
ESTABLISHED, LISTENING = "01", "0A"  # of /proc/net/tcp
TUNED_FOLDERS = ("etc/tuned", "usr/lib/tuned", "etc/tuned/profiles", "usr/lib/tuned/profiles")
NET_SECTION = re.compile(r"^\[net\]|^type *= *net *$", re.MULTILINE)
INCLUDE = re.compile(r"^include *= *(.+)$", re.MULTILINE)
ACTIVE = ("/etc/tuned/active_profile", "/etc/tuned/post_loaded_profile")
#: how /proc/net/tcp6 begins an IPv4 address
MAPPED = "0" * 16 + "FFFF0000"


class Guard:
    """Looks below ``root`` (for tests; the node's own ``/``)."""

    def __init__(self, root: str = "/", processes: Optional[Dict[str, int]] = None) -> None:
        self.root = root
        self._processes = processes

    def _path(self, path: str) -> str:
        return os.path.join(self.root, path.lstrip("/"))

    def _text(self, path: str) -> str:
        return programs.read_text(self._path(path))[1]

    @property
    def processes(self) -> Dict[str, int]:
        if self._processes is None:
            self._processes = owner.names()
        return self._processes

    def check(self, policy: Policy, profile: Dict[str, Any]) -> None:
        """Raise Refused if any interface of a profile must not be touched."""
        settings = profile.get("interfaces", {})
        interfaces = set(settings)
        for one in settings.values():
            interfaces.update(one.get("bond", {}).get("members", []))
        for interface in sorted(interfaces):
            self.check_interface(policy, interface)
        rivals = {name for one in settings.values() for key in one for name in of(key).rivals}
        for interface, one in sorted(settings.items()):
            if "driver" in one:
                self._check_driver(policy, one["driver"])
            cutting = [key for key in ("driver", "bond", "mtu") if key in one]
            if cutting:
                self._check_elsewhere(interface, one, cutting)
        checks = {
            "irqbalance": self._check_irqbalance,
            "tuned": self._check_tuned,
            "NetworkManager": self._check_networkmanager,
        }
        for rival in sorted(rivals & set(self.processes)):
            for interface in sorted(interfaces):
                checks[rival](interface)

    def check_interface(self, policy: Policy, interface: str) -> None:
        """Raise Refused if an interface must not be touched."""
        self._check_tested(policy, interface)
        self._check_vital(policy, interface)

    def _check_tested(self, policy: Policy, interface: str) -> None:
        if interface in policy.protected:
            raise Refused(
                "%s is not under test at this site (it carries its management)" % interface
            )
        if interface not in policy.interfaces:
            known = ", ".join(policy.interfaces) or "none"
            raise Refused("%s is not under test on %s; under test: %s"
                          % (interface, policy.hostname, known))  # fmt: skip

    def _check_vital(self, policy: Policy, interface: str) -> None:
        """An interface that the node needs is never changed, whatever the site file says."""
        family = self.family(interface)
        for one in sorted(family & self.default_routes()):
            raise Refused(
                "%s carries the node's default route%s" % (interface, _by(interface, one))
            )
        for one in sorted(family & self.slurm_interfaces(policy)):
            raise Refused("%s carries Slurm's own traffic%s" % (interface, _by(interface, one)))

    def family(self, interface: str) -> Set[str]:
        """The interface and all that use it: bonds, bridges, VLANs."""
        family = {interface}
        new = [interface]
        while new:
            folder = self._path("/sys/class/net/" + new.pop())
            try:
                names = os.listdir(folder)
            except OSError:
                continue
            for name in names:
                above = name[len("upper_") :] if name.startswith("upper_") else ""
                if above and above not in family:
                    family.add(above)
                    new.append(above)
        return family

    def default_routes(self) -> Set[str]:
        """Interfaces of the node's default routes, IPv4 and IPv6."""
        interfaces = set()
        for line in self._text("/proc/net/route").splitlines()[1:]:
            words = line.split()
            if len(words) > 7 and words[1] == words[7] == "00000000":
                interfaces.add(words[0])
        for line in self._text("/proc/net/ipv6_route").splitlines():
            words = line.split()
            # The kernel lists an unreachable default on lo for every namespace.
            if len(words) == 10 and words[0] == "0" * 32 and words[1] == "00" and words[9] != "lo":
                interfaces.add(words[9])
        return interfaces

    def slurm_interfaces(self, policy: Policy) -> Set[str]:
        """Interfaces of the routes to the policy's controllers, and of root's connections to one.

        Only connections that root's processes here have made: any other, and any that has ended,
        could be an ordinary user's, of this node or of another.
        """
        ports = set(policy.data.get("slurm_ports", SLURM_PORTS))
        rows = [
            line.split()
            for table in ("/proc/net/tcp", "/proc/net/tcp6")
            for line in self._text(table).splitlines()[1:]
        ]
        listening = {_port(row[1]) for row in rows if len(row) > 7 and row[3] == LISTENING}
        addresses = set()
        for row in rows:
            roots = len(row) > 7 and row[3] == ESTABLISHED and row[7] == "0"
            if roots and _port(row[2]) in ports and _port(row[1]) not in listening:
                local = row[1].partition(":")[0]
                addresses.add(local[len(MAPPED) :] if local.startswith(MAPPED) else local)
        interfaces = self._interfaces_with(addresses) | self._interfaces_with_6(addresses)
        for address in policy.data.get("controllers", []):
            interfaces.update(self.route_to(address))
        return interfaces

    def route_to(self, address: str) -> Set[str]:
        """The interface that leads to an address; none where there is no route."""
        answer = programs.run(["ip", "route", "get", address])
        words = answer.out.split()
        return {words[words.index("dev") + 1]} - {"lo"} if "dev" in words[:-1] else set()

    def _interfaces_with_6(self, addresses: Set[str]) -> Set[str]:
        wanted = {b"".join(struct.pack(">I", number) for number in struct.unpack(
            "=4I", bytes.fromhex(one))) for one in addresses if len(one) == 32}  # fmt: skip
        interfaces = set()
        for line in self._text("/proc/net/if_inet6").splitlines():
            words = line.split()
            if len(words) == 6 and bytes.fromhex(words[0]) in wanted:
                interfaces.add(words[5])
        return interfaces - {"lo"}

    def _interfaces_with(self, addresses: Set[str]) -> Set[str]:
        """Interfaces whose subnet holds one of these addresses, as /proc/net/tcp writes them."""
        numbers = [
            struct.unpack("=I", bytes.fromhex(one)[::-1])[0] for one in addresses if len(one) == 8
        ]
        interfaces = set()
        for line in self._text("/proc/net/route").splitlines()[1:]:
            words = line.split()
            if len(words) < 8 or words[7] == "00000000":
                continue
            destination, mask = _number(words[1]), _number(words[7])
            if any(number & mask == destination for number in numbers):
                interfaces.add(words[0])
        interfaces.discard("lo")
        return interfaces

    def _check_elsewhere(
        self, interface: str, settings: Dict[str, Any], cutting: List[str]
    ) -> None:
        """What another namespace has on an interface cannot be restored from here."""
        interfaces = {interface, *settings.get("bond", {}).get("members", [])}
        if "driver" in settings:
            interfaces.update(self._driven_by(settings["driver"]["module"]))
        users = users_elsewhere(interfaces)
        if users:
            raise Refused(
                "%s is used by %s of another network namespace, whose MTU or link could not be "
                "restored: leave out %s, or end that container"
                % (interface, ", ".join(users), " and ".join(cutting))
            )

    def _driven_by(self, module: str) -> List[str]:
        folder = self._path("/sys/class/net")
        links = {
            name: os.path.join(folder, name, "device/driver/module") for name in _listed(folder)
        }
        return sorted(
            name
            for name, link in links.items()
            if os.path.exists(link) and os.path.basename(os.path.realpath(link)) == module
        )

    def _check_driver(self, policy: Policy, driver: Dict[str, Any]) -> None:
        """All interfaces of a driver lose their link when it is reloaded."""
        module = driver["module"]
        for name in self._driven_by(module):
            try:
                if not driver.get("allow_shared") or name in policy.protected:
                    self._check_tested(policy, name)
                self._check_vital(policy, name)
            except Refused as error:
                raise Refused("driver %s cannot be reloaded: %s" % (module, error))

    # -- daemons that set the same

    def _check_irqbalance(self, _: str) -> None:
        raise Refused("irqbalance runs and would move the interrupts again: stop it on the "
                      "nodes under test, or ban their lines (IRQBALANCE_ARGS)")  # fmt: skip

    def _check_tuned(self, _: str) -> None:
        active = [name for file in ACTIVE for name in self._text(file).split()]
        for name in self._with_included(active):
            raise Refused("tuned runs, and its profile %s sets network interfaces: choose one "
                          "without a [net] section (tuned-adm profile)" % name)  # fmt: skip

    def _with_included(self, names: List[str]) -> Iterable[str]:
        """Those of tuned's profiles, included ones too, that have settings for interfaces."""
        seen: Set[str] = set()
        left = list(names)
        while left:
            name = left.pop(0)
            if name in seen or "/" in name:
                continue
            seen.add(name)
            for folder in TUNED_FOLDERS:
                text = self._text("/%s/%s/tuned.conf" % (folder, name))
                if text:
                    left += [
                        one for line in INCLUDE.findall(text) for one in re.split("[,; ]+", line)
                    ]
                    if NET_SECTION.search(text):
                        yield name
                    break

    def _check_networkmanager(self, interface: str) -> None:
        index = self._text("/sys/class/net/%s/ifindex" % interface)
        text = self._text("/run/NetworkManager/devices/" + index) if index else ""
        if re.search(r"^managed=(true|1)$", text, re.MULTILINE) or "connection-uuid=" in text:
            raise Refused("NetworkManager manages %s and would set it again: nmcli device set %s "
                          "managed no" % (interface, interface))  # fmt: skip


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _by(interface: str, other: str) -> str:
    return "" if other == interface else " (by %s)" % other


def _number(text: str) -> int:
    return int(struct.unpack("=I", bytes.fromhex(text)[::-1])[0])


def _listed(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
