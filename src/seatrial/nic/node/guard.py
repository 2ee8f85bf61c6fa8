"""The interfaces that must never be changed: those not under test, and those that the node needs.

The guard also refuses a setting that would interrupt what the node holds over an interface, that
could not be undone in another network namespace, or that a daemon would undo. Each refusal names
the interface, and what is in the way.
"""

import os
from typing import Any, Dict, List, Optional, Set, Tuple

from . import links
from .consumers import Consumers
from .daemons import Daemons
from .errors import Refused
from .namespaces import Elsewhere
from .policy import Policy
from .routes import Routes
from .settings import of
from .sockets import Sockets
from .tree import Tree

#: of slurmctld, where the policy does not name others
SLURM_PORTS = (6817,)
#: settings that change or remove what uses the interface, in other network namespaces too
CUTTING = ("driver", "bond", "mtu")
#: settings that remove the virtual functions that there are
REMOVING = ("driver", "vfs")


class Guard(Tree):
    """Looks below ``root`` (for tests; the node's own ``/``)."""

    def __init__(self, root: str = "/", processes: Optional[Dict[str, int]] = None) -> None:
        super().__init__(root)
        self.daemons = Daemons(root, processes)
        self.routes = Routes()
        self.elsewhere = Elsewhere()
        self.consumers = Consumers(root, self.routes)

    @property
    def processes(self) -> Dict[str, int]:
        return self.daemons.processes

    @property
    def warnings(self) -> List[str]:
        return self.elsewhere.unread

    def check(self, policy: Policy, profile: Dict[str, Any]) -> None:
        """Raise Refused if any interface of a profile must not be touched."""
        settings = profile.get("interfaces", {})
        for interface in sorted(
            {name for setting in settings for name in _with_members(setting, settings)}
        ):
            self.check_interface(policy, interface)
        for interface, wanted in sorted(settings.items()):
            interfaces = _with_members(interface, settings)
            if "driver" in wanted:
                self._check_driver(policy, wanted["driver"])
                interfaces.update(self._driven_by(wanted["driver"]["module"]))
            self._check_consumers(interfaces, [key for key in wanted if of(key).link_down])
            self._check_elsewhere(interfaces, [key for key in CUTTING if key in wanted])
            self._check_functions(interfaces, wanted)
            for name in sorted(_with_members(interface, settings)):
                self._check_daemons(name, wanted)

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
        for relative, table in sorted(self.routes.defaults(family).items()):
            where = "" if table == "main" else " of routing table " + table
            raise Refused("%s carries the node's default route%s%s"
                          % (interface, where, _by(interface, relative)))  # fmt: skip
        for relative in sorted(family & self.slurm_interfaces(policy)):
            raise Refused(
                "%s carries Slurm's own traffic%s" % (interface, _by(interface, relative))
            )

    def family(self, interface: str) -> Set[str]:
        """The interface and all that use it: bonds, bridges, VLANs."""
        return set(links.family(interface, self.path("/sys/class/net")))

    def slurm_interfaces(self, policy: Policy) -> Set[str]:
        """Interfaces of the routes to the policy's controllers, and of root's connections to one.

        Only connections that root's processes here have made: any other, and any that has ended,
        could be an ordinary user's, of this node or of another.
        """
        interfaces: Set[str] = set()
        for local, peer in self._slurm_connections(policy):
            interfaces |= self.routes.having(local) | self.routes.to(peer)
            interfaces |= self.routes.to(peer, local)
        for address in policy.data.get("controllers", []):
            interfaces |= self.routes.to(address)
        return interfaces - {"lo"}

    def _slurm_connections(self, policy: Policy) -> Set[Tuple[str, str]]:
        """Local and remote address of each of root's connections to a controller."""
        ports = set(policy.data.get("slurm_ports", SLURM_PORTS))
        return {
            (socket.local, socket.peer)
            for socket, accepted in Sockets(self.root).established()
            if socket.uid == "0" and socket.inode != "0"
            and socket.peer_port in ports and not accepted
        }  # fmt: skip

    def _check_consumers(self, interfaces: Set[str], disruptive: List[str]) -> None:
        """Refuse settings that take the link down where something of the node would lose it."""
        for interface in sorted(interfaces) if disruptive else []:
            users = self.consumers.of(self.family(interface))
            if users:
                raise Refused(
                    "%s carries %s: %s can take its link down; leave that out for this network, or "
                    "move what it carries to another one"
                    % (interface, ", ".join(users), ", ".join(sorted(disruptive)))
                )

    def _check_functions(self, interfaces: Set[str], settings: Dict[str, Any]) -> None:
        """With virtual functions go their addresses, VLANs and rates, and the interfaces that
        containers have of them."""
        for interface in sorted(interfaces):
            count = self.text("/sys/class/net/%s/device/sriov_numvfs" % interface).strip()
            removing = [key for key in REMOVING if str(settings.get(key, count)) != count]
            if removing and count not in ("", "0"):
                raise Refused(
                    "%s has %s virtual functions, which %s would remove with all that is set on "
                    "them: leave that out for this network, or remove the functions first"
                    % (interface, count, " and ".join(removing))
                )

    def _check_elsewhere(self, interfaces: Set[str], cutting: List[str]) -> None:
        """What another namespace has on an interface cannot be restored from here."""
        family = {relative for name in interfaces for relative in self.family(name)}
        users = self.elsewhere.users_of(family) if cutting else []
        if users:
            raise Refused(
                "%s is used by %s of another network namespace, whose MTU or link could not be "
                "restored: leave out %s, or end that container"
                % (", ".join(sorted(interfaces)), ", ".join(users), " and ".join(cutting))
            )

    def _check_daemons(self, interface: str, wanted: Dict[str, Any]) -> None:
        for daemon in sorted({name for key in wanted for name in of(key).rivals}):
            settings = [of(key).name for key in wanted if daemon in of(key).rivals]
            self.daemons.check(daemon, interface, settings)

    def _driven_by(self, module: str) -> List[str]:
        folder = "/sys/class/net"
        links = {
            name: self.path("%s/%s/device/driver/module" % (folder, name))
            for name in self.names(folder)
        }
        return [
            name
            for name, link in links.items()
            if os.path.exists(link) and os.path.basename(os.path.realpath(link)) == module
        ]

    def _check_elsewhere_driven(self, module: str) -> None:
        """Refuse where a card of the driver has its interface in another network namespace: a
        reload takes it from there, and nothing has its settings."""
        drivers = "/sys/module/%s/drivers" % module
        for device in (
            "%s/%s/%s" % (drivers, name, device)
            for name in self.names(drivers)
            for device in self.names("%s/%s" % (drivers, name))
        ):
            folder = device + "/net"
            is_card = self.text(device + "/class").startswith("0x02")
            if (is_card or os.path.isdir(self.path(folder))) and not self.names(folder):
                raise Refused(
                    "driver %s cannot be reloaded: the interface of its device %s is in another "
                    "network namespace, or it has none" % (module, os.path.basename(device))
                )

    def _check_driver(self, policy: Policy, driver: Dict[str, Any]) -> None:
        """All interfaces of a driver lose their link when it is reloaded."""
        module = driver["module"]
        self._check_elsewhere_driven(module)
        for name in self._driven_by(module):
            try:
                if not driver.get("allow_shared") or name in policy.protected:
                    self._check_tested(policy, name)
                self._check_vital(policy, name)
            except Refused as error:
                raise Refused("driver %s cannot be reloaded: %s" % (module, error))


def _with_members(interface: str, settings: Dict[str, Any]) -> Set[str]:
    """An interface and the members of the bond that the profile puts it under."""
    return {interface, *settings[interface].get("bond", {}).get("members", [])}


def _by(interface: str, other: str) -> str:
    return "" if other == interface else " (by %s)" % other
