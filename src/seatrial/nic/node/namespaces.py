"""Interfaces in other network namespaces that use one of this namespace: of containers, mostly.

``/sys/class/net`` shows only what uses an interface in the same namespace. A macvlan or VLAN in
another one follows the MTU of the interface below, too, and goes when that goes. A namespace is
known here by a process in it or by a mount; one that is only an open file is not found.
"""

import array
import fcntl
import os
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Set

from . import netlink, programs, readers
from .errors import Refused

#: kinds whose ``link`` is the other end of a cable
PAIRS = ("veth", "netkit", "vxcan")
NS_GET_USERNS, NS_GET_OWNER_UID = 0xB701, 0xB704  # of linux/nsfs.h
USERS_S = 2.0  # for all namespaces that users have made


User = NamedTuple("User", [("below", int), ("name", str), ("path", str)])


class Elsewhere:
    """The interfaces in other namespaces that use one of this namespace, read once.

    ``unread``: sentences on namespaces that were left out.
    """

    def __init__(self) -> None:
        self.unread: List[str] = []
        self._users: Optional[List[User]] = None

    def users_of(self, interfaces: Set[str]) -> List[str]:
        """Names of interfaces that use one of these, with their namespace.

        Raises Refused where a namespace of root cannot be looked into. That of a user is left out
        then: he can make it too large to be read, and only he could lose something.
        """
        if self._users is None:
            self._users = list(self._read())
        indices = {readers.number("%s/%s/ifindex" % (readers.SYSFS, name)) for name in interfaces}
        return [
            "%s (in %s)" % (user.name, user.path) for user in self._users if user.below in indices
        ]

    def _read(self) -> Iterator[User]:
        owners = {path: _owner(path) for path in sorted(_others().values())}
        for path in [path for path, owner in owners.items() if not owner]:
            try:
                yield from _using(path, netlink.TIMEOUT_S)
            except OSError as error:
                # It may have ended; and a dry run needs no rights.
                if os.path.exists(path) and not os.geteuid():
                    raise Refused("the network namespace %s cannot be read: %s" % (path, error))
        end = time.monotonic() + USERS_S
        for path in [path for path, owner in owners.items() if owner]:
            try:
                yield from _using(path, max(0.0, end - time.monotonic()))
            except OSError as error:
                if os.path.exists(path):
                    self.unread.append(
                        "what user %s has in the network namespace %s is not known: %s"
                        % (owners[path], path, error)
                    )


def _owner(path: str) -> int:
    """The user who made the user namespace that a network namespace belongs to (ioctl_ns(2)).

    0, root, where the kernel does not say: older ones let only root make them.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            of_users = fcntl.ioctl(descriptor, NS_GET_USERNS)
        finally:
            os.close(descriptor)
        try:
            uid = array.array("I", [0])
            fcntl.ioctl(of_users, NS_GET_OWNER_UID, uid)
            return uid[0]
        finally:
            os.close(of_users)
    except OSError:
        return 0


def _using(path: str, seconds: float) -> Iterator[User]:
    """The interfaces of a namespace that use one of this namespace."""
    namespace = netlink.Namespace(path, seconds)
    try:
        # The kernel gives a namespace a number for this one when an interface comes that uses one
        # of here. Others may have so many interfaces that a list of them takes seconds.
        here = namespace.number_of(readers.PROC + "/self/ns/net")
        if here is not None:
            for interface in namespace.interfaces():
                if interface.namespace == here and interface.kind not in PAIRS:
                    yield User(interface.below, interface.name, path)
    finally:
        namespace.close()


def _others() -> Dict[int, str]:
    """Inode -> path of each other network namespace that a process or a mount shows."""
    paths = [
        "%s/%s/ns/net" % (readers.PROC, name)
        for name in readers.names(readers.PROC)
        if name.isdigit()
    ]
    for root, folder, kind, _, _ in programs.mounts(
        programs.read_text(readers.PROC + "/self/mountinfo")[1]
    ):
        if root.startswith("net:[") and kind == "nsfs":
            paths.append(folder)
    namespaces: Dict[int, str] = {}
    for path in paths:
        try:
            namespaces.setdefault(os.stat(path).st_ino, path)
        except OSError:
            continue  # the process has ended, or belongs to another user
    namespaces.pop(_own(), None)
    return namespaces


def _own() -> int:
    return os.stat(readers.PROC + "/self/ns/net").st_ino
