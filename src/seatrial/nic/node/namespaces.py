"""Interfaces in other network namespaces that use one of this namespace: of containers, mostly.

``/sys/class/net`` shows only what uses an interface in the same namespace. A macvlan or VLAN in
another one follows the MTU of the interface below, too, and goes when that goes. A namespace is
known here by a process in it or by a mount; one that is only an open file is not found.
"""

import os
from typing import Dict, List, Optional, Set

from . import netlink, programs, readers
from .errors import Refused

#: kinds whose ``link`` is the other end of a cable
PAIRS = ("veth", "netkit", "vxcan")


def users_elsewhere(interfaces: Set[str]) -> List[str]:
    """Names of interfaces in other namespaces that use one of these, with their namespace.

    Raises Refused where a namespace cannot be looked into.
    """
    indices = {readers.number("%s/%s/ifindex" % (readers.SYSFS, name)) for name in interfaces}
    users = []
    for path in sorted(_others().values()):
        try:
            users += ["%s (in %s)" % (name, path) for name in _using(path, indices)]
        except OSError as error:
            # It may have ended; and a dry run needs no rights.
            if os.path.exists(path) and not os.geteuid():
                raise Refused("the network namespace %s cannot be read: %s" % (path, error))
    return users


def _using(path: str, indices: Set[Optional[int]]) -> List[str]:
    """Names of the interfaces of a namespace that use one of these indices of this namespace."""
    namespace = netlink.Namespace(path)
    try:
        # The kernel gives a namespace a number for this one when an interface comes that uses one
        # of here. Others may have so many interfaces that a list of them takes seconds.
        here = namespace.number_of(readers.PROC + "/self/ns/net")
        if here is None:
            return []
        users = [
            one
            for one in namespace.interfaces()
            if one.below in indices and one.namespace == here and one.kind not in PAIRS
        ]
        return [one.name for one in users]
    finally:
        namespace.close()


def _others() -> Dict[int, str]:
    """Inode -> path of each other network namespace that a process or a mount shows."""
    paths = [
        "%s/%s/ns/net" % (readers.PROC, name)
        for name in readers.names(readers.PROC)
        if name.isdigit()
    ]
    for line in programs.read_text(readers.PROC + "/self/mountinfo")[1].splitlines():
        words = line.split()
        if len(words) > 4 and words[3].startswith("net:[") and " - nsfs " in line:
            paths.append(words[4])
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
