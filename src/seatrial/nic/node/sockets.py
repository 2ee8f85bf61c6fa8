"""The TCP connections of this network namespace, and which of root's programs hold them. Changes
nothing.
"""

import os
import socket
import struct
from typing import Callable, Container, Iterator, List, NamedTuple, Set, Tuple

from . import programs
from .routes import number_of
from .tree import Tree

ESTABLISHED, LISTENING = "01", "0A"  # of /proc/net/tcp

Socket = NamedTuple(
    "Socket",
    [
        ("local", str),
        ("local_port", int),
        ("peer", str),
        ("peer_port", int),
        ("state", str),
        ("uid", str),
        ("inode", str),
    ],
)


class Sockets(Tree):
    """Looks below ``root`` (for tests; the node's own ``/``)."""

    def all(self) -> List[Socket]:
        rows = [
            line.split()
            for table in ("/proc/net/tcp", "/proc/net/tcp6")
            for line in self.text(table).splitlines()[1:]
        ]
        return [
            Socket(_address(row[1]), _port(row[1]), _address(row[2]), _port(row[2]), row[3], row[7],
                   row[9] if len(row) > 9 else "")
            for row in rows if len(row) > 7
        ]  # fmt: skip

    def peers_of(self, program: str, members: Container[str] = ()) -> List[str]:
        """Addresses that root's processes of this name are connected to. The kernel keeps 15
        characters of a name.

        Anybody on the network can connect to a port that such a process listens on: those count
        only if they are among ``members``.
        """
        return self._peers(lambda pid: self.text("/proc/%s/comm" % pid) == program[:15], members)

    def peers_of_fuse(self) -> List[str]:
        """Addresses that root's processes have connected to which serve a FUSE file system."""
        return self._peers(lambda pid: "/dev/fuse" in self._open_files(pid), ())

    def _peers(self, is_wanted: Callable[[str], bool], members: Container[str]) -> List[str]:
        inodes: Set[str] = set()
        for pid in self.names("/proc"):
            if pid.isdigit() and self.is_of_root(pid) and is_wanted(pid):
                inodes.update(self._open_files(pid))
        return list(
            dict.fromkeys(
                each.peer
                for each, accepted in self.established()
                if "socket:[%s]" % each.inode in inodes
                and (not accepted or each.peer in members)
            )
        )  # fmt: skip

    def established(self) -> Iterator[Tuple[Socket, bool]]:
        """Each connection, and whether a socket of root on this address and port accepted it.

        What other users listen on says nothing: they can choose the port of any connection.
        """
        sockets = self.all()
        listening = {
            (number_of(each.local), each.local_port)
            for each in sockets
            if each.state == LISTENING and each.uid == "0"
        }
        for each in sockets:
            if each.state == ESTABLISHED:
                at = map(number_of, (each.local, "0.0.0.0", "::"))
                places = [(address, each.local_port) for address in at]
                yield each, not listening.isdisjoint(places)

    def is_of_root(self, pid: str) -> bool:
        """Anybody can give a process a name."""
        return programs.real_uid(self.path("/proc/%s" % pid)) == "0"

    def _open_files(self, pid: str) -> Set[str]:
        folder = "/proc/%s/fd" % pid
        files = set()
        for name in self.names(folder):
            try:
                files.add(os.readlink(self.path("%s/%s" % (folder, name))))
            except OSError:
                continue  # it was closed meanwhile
        return files


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _address(words: str) -> str:
    """The address of ``0A01000A:1AA1``: /proc/net/tcp prints words of the machine's byte order."""
    digits = words.partition(":")[0]
    raw = b"".join(
        struct.pack("=I", int(digits[at : at + 8], 16)) for at in range(0, len(digits), 8)
    )
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
