"""The broker of a guest: starts QEMU, forwards commands, and stops the guest's clock when idle.

Runs as root, as ``python -P -S -m seatrial_lab.virtual.broker RUN``, with only the standard
library. RUN is the lab's run folder with ``qemu.json`` (argv, env, go, paths, user, uid, gid,
hosts). Commands arrive at ``broker.sock``; see ``client``. The broker knows no Slurm and no trial.

The kernel says who a client is: root may run commands as any user, the lab's job user (``user``,
``uid``) only as itself, others none. What a client sends is hostile: a bad request gets an error
and ends its own connection, and nothing else.

The broker stops a guest without a command, because virtual time jumps from event to event and an
idle guest's clock would run far ahead. Only a command can disturb a measurement in the guest, so
the broker refuses queries while a step runs.

The broker never waits for a client or for the guest: it always reads what the guest sends, so the
guest's agent waits for the broker only. It reads no client while the guest has much to read.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

from seatrial.base.files import write_whole
from seatrial_lab.virtual.frames import (
    BUSY,
    CHUNK,
    ERROR,
    EXIT,
    FAILED,
    INPUT,
    LIMIT,
    OUTPUT,
    QUIET,
    READY,
    RUN,
    SIGNAL,
    BadFrame,
    Reader,
    frame,
    request_data,
)
from seatrial_lab.virtual.run_as_user import make_reachable
from seatrial_lab.virtual.snapshot import BROKER_SOCKET, connect_to_qemu, start_qemu

REFUSED = 77  # EX_NOPERM: exit code of a command that its client may not run
INVALID = 64  # EX_USAGE
#: with more connections, only root gets another: it must always find a free descriptor
MAX_CONNECTIONS = 64
#: output that a client has not read yet: a client that reads nothing must not fill the memory
MAX_UNREAD = 16 << 20
#: frames that the guest has not read yet: with more, no client is read until the guest has read all
MAX_TO_GUEST = 1 << 20
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
KINDS = ("step", "query", "")


class Refused(Exception):
    """A request that is not executed, with the exit code of its command."""

    def __init__(self, message: str, code: int = INVALID):
        super().__init__(message)
        self.code = code


class Client:
    """The connection of one command's client, and the user who opened it."""

    def __init__(self, connection: socket.socket, uid: int):
        self.connection = connection
        self.uid = uid
        self.reader = Reader()
        self.number = 0
        self.unread = bytearray()  # frames that the socket has not taken yet
        self.ends = False  # after these frames


def peer_of(connection: socket.socket) -> int:
    """Return the user id of a socket's peer when it connected (SO_PEERCRED, unix(7))."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(data)[1]


def read_request(content: bytes, hosts: list[str]) -> dict[str, Any]:
    """Return the request in a RUN frame. Raises Refused, with the reason, if it is not valid."""
    try:
        request = json.loads(content)
    except (ValueError, RecursionError):
        raise Refused("the request is not JSON") from None
    names = {"argv", "env", "cwd", "user", "node", "kind"}
    if not isinstance(request, dict) or set(request) != names:
        raise Refused(f"a request is an object with {', '.join(sorted(names))}")
    argv, env = request["argv"], request["env"]
    if not isinstance(argv, list) or not argv or not argv[0] or not all(map(_is_word, argv)):
        raise Refused("argv is not a list of words")
    if not isinstance(env, dict) or not all(map(_is_word, (*env, *env.values()))):
        raise Refused("env is not an object of words")
    if not all(name and "=" not in name for name in env):
        raise Refused("env has a name that no variable has")
    for name in ("cwd", "user", "node", "kind"):
        if not _is_word(request[name]):
            raise Refused(f"{name} is not a word")
    if request["node"] not in hosts:
        raise Refused(f"no node {request['node']!r}")
    if request["kind"] not in KINDS:
        raise Refused(f"no kind {request['kind']!r}")
    return request


def _is_word(value: object) -> bool:
    """Whether a value is a string that execve(2) takes."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return True


def read_signal(content: bytes) -> int:
    """Return the number in a SIGNAL frame. Raises Refused."""
    number = int(content) if content.isdigit() and len(content) < 3 else 0
    if not 0 < number < signal.NSIG:
        raise Refused("no signal has this number")
    return number


class Broker:
    """Forwards frames between the clients' sockets and the guest's serial line."""

    def __init__(self, run: Path):
        self.run = run
        self.selector = selectors.DefaultSelector()
        self.clients: dict[int, Client] = {}  # by the number of their command
        self.connections: set[Client] = set()
        self.to_guest = bytearray()  # frames that the line has not taken yet
        self.guest_is_full = False
        self.active: dict[int, str] = {}  # number -> kind, of commands in the guest
        self.number = 0
        self.running = True
        self.reader = Reader()
        self.started = time.monotonic()

    def start(self) -> None:
        """Start QEMU and connect to it. Raises OSError, or LabError with QEMU's message."""
        given = json.loads((self.run / "qemu.json").read_text())
        os.umask(0o077)
        # QEMU reads the host's files as the job user, who does not pass a folder closed to others.
        make_reachable([Path(path) for path in given["paths"]])
        self.qemu = start_qemu(given["argv"], given["env"], self.run)
        self.guest_line = connect_to_qemu(self.run / "line.sock", self.qemu)
        self.qmp = connect_to_qemu(self.run / BROKER_SOCKET, self.qemu)
        self.qmp.sendall(b'{"execute": "qmp_capabilities"}\n')
        # The guest's init waits for this line (guest/init.sh).
        self.guest_line.sendall(given["go"].encode() + b"\n")
        # A guest with several processors is loaded stopped, as its time flies while it waits.
        self.qmp.sendall(b'{"execute": "cont"}\n')
        self.selector.register(self.guest_line, selectors.EVENT_READ, self.read_guest)
        self.selector.register(self.qmp, selectors.EVENT_READ, self.read_qmp)
        self.listen(given)

    def listen(self, given: dict[str, Any]) -> None:
        """Accept clients from now on: root, and the job user of ``given``."""
        self.user, self.uid, self.hosts = given["user"], given["uid"], given["hosts"]
        socket_path = self.run / "broker.sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(socket_path))  # 0700 by the umask
        os.chown(socket_path, 0, given["gid"])
        socket_path.chmod(0o660)
        self.listener.listen(64)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)

    def serve(self) -> None:
        """Serve until QEMU ends."""
        while self.qemu.poll() is None:
            self.handle_events(timeout=1.0)

    def handle_events(self, timeout: float) -> None:
        for key, events in self.selector.select(timeout):
            if isinstance(key.data, Client):
                self.handle_client(key.data, events)
                continue
            if events & selectors.EVENT_WRITE:
                self.flush_to_guest()
            if events & selectors.EVENT_READ:
                key.data(key.fileobj)
        # Each client that waits has been read once: none gets all of the guest's room.
        full = len(self.to_guest) > (0 if self.guest_is_full else MAX_TO_GUEST)
        if full != self.guest_is_full:
            self.guest_is_full = full
            for client in self.connections:
                self.watch(client)

    def watch(self, client: Client) -> None:
        """Have the selector wait for what the client's socket is needed for now."""
        if client.connection.fileno() < 0:
            return
        events = selectors.EVENT_WRITE if client.unread else 0
        events |= 0 if self.guest_is_full else selectors.EVENT_READ
        known = client.connection in self.selector.get_map()
        if events and known:
            self.selector.modify(client.connection, events, client)
        elif events:
            self.selector.register(client.connection, events, client)
        elif known:
            self.selector.unregister(client.connection)

    # -- to the guest

    def send_to_guest(self, data: bytes) -> None:
        self.to_guest += data
        self.flush_to_guest()

    def flush_to_guest(self) -> None:
        try:
            while self.to_guest:
                del self.to_guest[: self.guest_line.send(self.to_guest, socket.MSG_DONTWAIT)]
        except BlockingIOError:
            pass
        except OSError:  # QEMU has ended
            self.to_guest.clear()
        if self.guest_line in self.selector.get_map():
            writes = selectors.EVENT_WRITE if self.to_guest else 0
            self.selector.modify(self.guest_line, selectors.EVENT_READ | writes, self.read_guest)

    # -- from the guest

    def read_qmp(self, connection: socket.socket) -> None:
        if not connection.recv(CHUNK):
            self.selector.unregister(connection)

    def read_guest(self, guest_line: socket.socket) -> None:
        data = guest_line.recv(CHUNK)
        if not data:
            self.selector.unregister(guest_line)
            return
        for number, kind, content in self.reader.feed(data):
            if kind in (OUTPUT, ERROR, EXIT):
                self.forward_answer(number, kind, content)
            elif kind in (READY, FAILED):
                self.write_boot_result(kind, content)
            elif kind == QUIET and number == self.number and not self.active:
                self.pause(True)

    def write_boot_result(self, kind: bytes, content: bytes) -> None:
        facts = {
            "ok": kind == READY,
            "text": content.decode(errors="replace"),
            "seconds": round(time.monotonic() - self.started, 2),
        }
        write_whole(self.run / "booted.json", json.dumps(facts), durable=False)

    def forward_answer(self, number: int, kind: bytes, content: bytes) -> None:
        client = self.clients.get(number)
        if kind == EXIT:
            self.active.pop(number, None)
        if client is not None:
            self.send(client, frame(number, kind, content), ends=kind == EXIT)

    # -- from and to clients

    def accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # the client has ended, or there is no free descriptor
        connection.setblocking(False)
        client = Client(connection, peer_of(connection))
        self.connections.add(client)
        self.watch(client)
        number = len(self.connections)
        if client.uid not in (0, self.uid):
            self.refuse(client, Refused(f"user {client.uid} may run no commands here", REFUSED))
        elif client.uid and number > MAX_CONNECTIONS:
            self.refuse(client, Refused(f"more than {MAX_CONNECTIONS} connections", REFUSED))

    def handle_client(self, client: Client, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self.flush(client)
        if not events & selectors.EVENT_READ or client.connection.fileno() < 0:
            return
        try:
            data = client.connection.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.client_closed(client)
        elif not client.ends:
            self.read_client(client, data)

    def read_client(self, client: Client, data: bytes) -> None:
        try:
            for _, kind, content in client.reader.feed(data):
                if kind == RUN and not client.number:
                    self.start_command(client, content)
                elif kind in (INPUT, SIGNAL) and client.number in self.active:
                    if kind == SIGNAL:
                        content = b"%d" % read_signal(content)
                    self.send_to_guest(frame(client.number, kind, content))
                elif kind not in (INPUT, SIGNAL):
                    raise Refused("a frame that no client sends")
        except BadFrame as error:
            self.refuse(client, Refused(str(error)))
        except Refused as error:
            self.refuse(client, error)

    def start_command(self, client: Client, content: bytes) -> None:
        request = read_request(content, self.hosts)
        if client.uid and request["user"] != self.user:
            raise Refused(
                f"user {client.uid} may run commands as {self.user}, not as {request['user']}",
                REFUSED,
            )
        kind = request.pop("kind")
        if kind == "query" and "step" in self.active.values():
            self.send(client, frame(0, BUSY), ends=True)
            return
        data = request_data(request)
        if len(data) > LIMIT:
            raise Refused(f"a command of {len(data)} bytes is larger than {LIMIT}")
        self.number += 1
        client.number = self.number
        self.clients[self.number] = client
        self.active[self.number] = kind
        self.pause(False)
        self.send_to_guest(frame(self.number, RUN, data))

    def refuse(self, client: Client, error: Refused) -> None:
        """Answer a bad request, and end its command if it runs."""
        self.end_command(client)
        text = f"broker: {error}\n".encode(errors="replace")
        answer = frame(client.number, ERROR, text)
        self.send(client, answer + frame(client.number, EXIT, b"%d" % error.code), ends=True)

    def send(self, client: Client, data: bytes, ends: bool = False) -> None:
        """Send frames as fast as the client reads. ``ends``: then close the connection."""
        client.unread += data
        client.ends = client.ends or ends
        if len(client.unread) > MAX_UNREAD:
            self.client_closed(client)
        else:
            self.flush(client)

    def flush(self, client: Client) -> None:
        try:
            while client.unread:
                del client.unread[: client.connection.send(client.unread)]
        except BlockingIOError:
            pass
        except OSError:
            self.client_closed(client)
            return
        if client.ends and not client.unread:
            self.remove_client(client)
            return
        self.watch(client)

    def client_closed(self, client: Client) -> None:
        """End the command of a client that ended before it."""
        self.end_command(client)
        self.remove_client(client)

    def end_command(self, client: Client) -> None:
        self.clients.pop(client.number, None)
        if client.number in self.active:
            self.send_to_guest(frame(client.number, SIGNAL, b"%d" % signal.SIGTERM))

    def remove_client(self, client: Client) -> None:
        self.clients.pop(client.number, None)
        self.connections.discard(client)
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(client.connection)
        client.connection.close()

    # -- the guest's clock

    def pause(self, on: bool) -> None:
        if on == self.running:
            self.running = not on
            self.qmp.sendall(b'{"execute": "%s"}\n' % (b"stop" if on else b"cont"))


def main(arguments: list[str]) -> int:
    """Serve one guest to its end."""
    broker = Broker(Path(arguments[0]))
    signal.signal(signal.SIGTERM, lambda *_: broker.qemu.kill())
    broker.start()
    try:
        broker.serve()
    finally:
        if broker.qemu.poll() is None:
            broker.qemu.kill()
        broker.qemu.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
