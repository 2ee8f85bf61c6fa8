"""Asks the kernel about the interfaces of another network namespace, without a program: starting
``nsenter`` and ``ip`` in each takes 100 times as long. Source: rtnetlink(7), linux/if_link.h and
linux/net_namespace.h.
"""

import errno
import os
import socket
import struct
import threading
import time
from typing import Dict, Iterator, List, NamedTuple, Optional

from . import programs

CLONE_NEWNET = 0x40000000
TIMEOUT_S = 5.0
REQUEST, DUMP = 0x1, 0x300  # NLM_F_REQUEST, NLM_F_DUMP
KERNEL = 0  # the port of the kernel, which no process can have
ERROR, DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
GET_LINK, GET_NSID = 18, 90  # RTM_GETLINK, RTM_GETNSID
IFNAME, LINK, LINKINFO, LINK_NETNSID = 3, 5, 18, 37  # IFLA_
INFO_KIND = 1  # IFLA_INFO_KIND
NSID, FD = 1, 3  # NETNSA_
HEADER = struct.Struct("=LHHLL")  # struct nlmsghdr
LINK_HEADER = 16  # struct ifinfomsg

Attributes = Dict[int, bytes]

#: an interface: the index of the one below, and the number by which its namespace knows that of
#: the one below (None: the same namespace)
Interface = NamedTuple(
    "Interface", [("name", str), ("kind", str), ("below", int), ("namespace", Optional[int])]
)


class Namespace:
    """A network namespace, by a file of it such as ``/proc/1/ns/net``. Raises OSError.

    All its answers must come within ``seconds``.
    """

    def __init__(self, path: str, seconds: float = TIMEOUT_S) -> None:
        self._end = time.monotonic() + min(seconds, programs.seconds_left())
        self._socket = _socket_in(path)

    def close(self) -> None:
        self._socket.close()

    def interfaces(self) -> List[Interface]:
        interfaces = []
        for content in self._ask(GET_LINK, DUMP, b"\0" * LINK_HEADER):
            attributes = _attributes(content[LINK_HEADER:])
            if LINK in attributes:
                kind = _attributes(attributes.get(LINKINFO, b"")).get(INFO_KIND, b"")
                number = attributes.get(LINK_NETNSID)
                interfaces.append(
                    Interface(
                        _text(attributes.get(IFNAME, b"")),
                        _text(kind),
                        _number(attributes[LINK]),
                        _number(number) if number else None,
                    )
                )
        return interfaces

    def number_of(self, path: str) -> Optional[int]:
        """The number by which it knows another namespace, or None."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            asked = struct.pack("=B3xHHL", 0, 8, FD, descriptor)  # struct rtgenmsg, one attribute
            for content in self._ask(GET_NSID, 0, asked):
                number = _attributes(content[4:]).get(NSID)
                if number is not None:
                    known = _number(number)
                    return known if known >= 0 else None
        finally:
            os.close(descriptor)
        return None

    def _ask(self, kind: int, flags: int, content: bytes) -> Iterator[bytes]:
        """The contents of the kernel's answers."""
        length = HEADER.size + len(content)
        self._socket.send(HEADER.pack(length, kind, REQUEST | flags, 1, 0) + content)
        while True:
            left = self._end - time.monotonic()
            if left <= 0:
                raise OSError(errno.ETIMEDOUT, "the kernel does not answer")
            self._socket.settimeout(left)
            answer, sender = self._socket.recvfrom(1 << 18)
            if sender[0] != KERNEL:
                continue  # sent before the socket was connected
            while answer:
                if len(answer) < HEADER.size:
                    raise OSError(errno.EBADMSG, "an answer of the kernel is cut off")
                length, kind, _, _, _ = HEADER.unpack_from(answer)
                if not HEADER.size <= length <= len(answer):
                    raise OSError(errno.EBADMSG, "an answer of the kernel is cut off")
                content = answer[HEADER.size : length]
                if kind in (DONE, ERROR):
                    number = -_number(content[:4]) if content else 0
                    if number:
                        raise OSError(number, os.strerror(number))
                    return
                yield content
                answer = answer[_aligned(length) :]
            if not flags & DUMP:
                return


def _socket_in(path: str) -> socket.socket:
    """A netlink socket of a namespace. Only a thread enters it, which then ends."""
    made: List[socket.socket] = []
    errors: List[OSError] = []

    def enter() -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _enter(descriptor)
                made.append(_of_the_kernel_only())
            finally:
                os.close(descriptor)
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return made[0]


def _of_the_kernel_only() -> socket.socket:
    """A netlink socket to which only the kernel can send.

    The root of a namespace may be any user, whose messages would fill the socket. The kernel
    refuses senders other than the port that a netlink socket is connected to
    (``netlink_getsockbyportid`` in net/netlink/af_netlink.c).
    """
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    try:
        made.connect((KERNEL, 0))
    except OSError:
        made.close()
        raise
    return made


def _enter(descriptor: int) -> None:
    if hasattr(os, "setns"):  # Python 3.12
        os.setns(descriptor, CLONE_NEWNET)
        return
    import ctypes  # slow to load, and seldom needed

    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _attributes(content: bytes) -> Attributes:
    """Type -> value of netlink attributes."""
    attributes = {}
    while len(content) >= 4:
        length, kind = struct.unpack_from("=HH", content)
        if length < 4:
            break
        attributes[kind & 0x3FFF] = content[4:length]
        content = content[_aligned(length) :]
    return attributes


def _number(value: bytes) -> int:
    if len(value) != 4:
        raise OSError(errno.EBADMSG, "a number in an answer of the kernel has another length")
    number: int = struct.unpack("=l", value)[0]
    return number


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _text(value: bytes) -> str:
    return programs.plain(value.rstrip(b"\0").decode("utf-8", "replace"))
