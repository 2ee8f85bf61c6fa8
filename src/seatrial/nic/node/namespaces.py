"""Interfaces in other network namespaces that use one of this namespace: of containers, mostly.

``/sys/class/net`` shows only what uses an interface in the same namespace. A macvlan or VLAN in
another one follows the MTU of the interface below, too, and goes when that goes. A namespace is
known here by a process in it or by a mount; one that is only an open file is not found.
"""

import json
import os
from typing import Any, Dict, List, Set

from . import programs, readers
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
        for link in _links(path):
            kind = link.get("linkinfo", {}).get("info_kind")
            below = link.get("link_index") in indices and "link_netnsid" in link
            if below and kind not in PAIRS and _is_here(path, link["link_netnsid"]):
                users.append("%s (in %s)" % (link["ifname"], path))
    return users


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


def _links(path: str) -> List[Dict[str, Any]]:
    answer = _inside(path, "ip", "-json", "-details", "link", "show")
    if answer.code == 0:
        try:
            return json.loads(answer.out or "[]")
        except ValueError:
            pass
    if not os.path.exists(path) or os.geteuid():
        return []  # it is gone; or this is a dry run, which needs no rights
    raise Refused("the network namespace %s cannot be read: %s" % (path, answer.err.strip()))


def _is_here(path: str, number: int) -> bool:
    """Whether another namespace means this one by a number; if nobody can say so, it does."""
    words = ("lsns", "--type", "net", "--raw", "--noheadings", "--output", "NS,NETNSID")
    rows = [line.split() for line in _inside(path, *words).out.splitlines()]
    numbers = {row[0]: row[1] for row in rows if len(row) == 2}
    return numbers.get(str(_own()), str(number)) == str(number)


def _inside(path: str, *argv: str) -> programs.Answer:
    return programs.run(["nsenter", "--net=" + path, "--", programs.find(argv[0]), *argv[1:]])
