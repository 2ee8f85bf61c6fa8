"""The broker under attack: who may ask for what, and requests that are none. A socket plays the
guest."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial_lab.virtual import broker as module
from seatrial_lab.virtual import client, frames
from seatrial_lab.virtual.broker import INVALID, REFUSED, Broker, Client, Refused, read_request
from seatrial_lab.virtual.client import Connection, NoGuest
from seatrial_lab.virtual.frames import (
    ERROR,
    EXIT,
    INPUT,
    LIMIT,
    OUTPUT,
    RUN,
    SIGNAL,
    Reader,
    frame,
)

SAILOR, NOBODY = 2000, 65534
HOSTS = ["login", "n1"]
REQUEST = {"argv": ["id"], "env": {}, "cwd": "/", "user": "sailor", "node": "login", "kind": ""}


class Guest:
    """Notes what arrives, and ends each command at once: its output is the user's name."""

    def __init__(self, line: socket.socket):
        self.line, self.reader = line, Reader()
        self.output = 0  # bytes besides the name
        self.frames: list[tuple[int, bytes, bytes]] = []

    def serve(self) -> None:
        while data := self.line.recv(65536):
            for number, kind, content in self.reader.feed(data):
                output = self.output
                self.frames.append((number, kind, content))
                if kind == RUN:
                    user = json.loads(content)["user"]
                    chunk = bytes(32768)
                    for _ in range(output // len(chunk)):
                        self.line.sendall(frame(number, OUTPUT, chunk))
                    self.line.sendall(frame(number, OUTPUT, user.encode()))
                    self.line.sendall(frame(number, EXIT, b"0"))


class Qmp:
    def sendall(self, data: bytes) -> None: ...


def broker_with(line: socket.socket, run: Path) -> Broker:
    broker = Broker(run)
    broker.guest_line, broker.qmp = line, Qmp()  # type: ignore[assignment]
    broker.user, broker.uid, broker.hosts = "sailor", SAILOR, HOSTS
    broker.selector.register(line, 1, broker.read_guest)
    return broker


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user passes, with the client; pytest's own is closed to others."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        package = folder / "seatrial_lab" / "virtual"
        package.mkdir(parents=True)
        for file in (package / "__init__.py", package.parent / "__init__.py"):
            file.touch()
        for source in (client.__file__, frames.__file__):
            shutil.copy(source, package)
        yield folder


@pytest.fixture
def guest(place: Path) -> Iterator[Guest]:
    """A broker that listens in ``place``, and its guest."""
    line, end = socket.socketpair()
    guest, broker = Guest(end), broker_with(line, place)
    before = os.umask(0o077)
    broker.listen({"user": "sailor", "uid": SAILOR, "gid": SAILOR, "hosts": HOSTS})
    os.umask(before)
    ended: list[bool] = []

    def serve() -> None:
        while not ended:
            broker.handle_events(timeout=0.02)

    threads = [threading.Thread(target=target, daemon=True) for target in (serve, guest.serve)]
    for thread in threads:
        thread.start()
    yield guest
    ended.append(True)
    end.shutdown(socket.SHUT_RDWR)  # also ends a broker that waits for the guest
    threads[0].join()
    broker.listener.close()


def ask(place: Path, user: str, uid: int, gid: int) -> tuple[int, str]:
    """Exit code and output of the client that a user of this machine starts."""
    program = place / "seatrial_lab" / "virtual" / "client.py"
    words = [str(place / "broker.sock"), user, "/", "/bin", "id"]
    done = subprocess.run(
        ["/usr/bin/python3", "-IS", program, *words], cwd="/", capture_output=True,
        text=True, user=uid, group=gid, extra_groups=[], stdin=subprocess.DEVNULL,
        timeout=900,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def raw(place: Path, data: bytes) -> list[tuple[int, bytes, bytes]]:
    """All frames that the broker answers to raw data before it closes the connection."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(place / "broker.sock"))
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
        reader, answers = Reader(), []
        with contextlib.suppress(ConnectionError):
            while received := connection.recv(65536):
                answers += reader.feed(received)
        return answers


@pytest.mark.root
def test_only_root_and_the_job_user_open_the_socket(place: Path, guest: Guest) -> None:
    status = (place / "broker.sock").stat()
    assert stat.S_IMODE(status.st_mode) == 0o660
    assert (status.st_uid, status.st_gid) == (0, SAILOR)
    code, said = ask(place, "root", NOBODY, NOBODY)
    assert (code, "Permission denied" in said) == (69, True)
    assert guest.frames == []


@pytest.mark.root
@pytest.mark.parametrize(
    ("uid", "user", "code", "said"),
    [
        (NOBODY, "root", REFUSED, "user 65534 may run no commands here"),
        (NOBODY, "sailor", REFUSED, "user 65534 may run no commands here"),
        (SAILOR, "root", REFUSED, "user 2000 may run commands as sailor, not as root"),
        (SAILOR, "slurm", REFUSED, "user 2000 may run commands as sailor, not as slurm"),
        (SAILOR, "sailor", 0, "sailor"),
        (0, "root", 0, "root"),
        (0, "sailor", 0, "sailor"),
    ],
)
def test_the_kernel_says_who_asks(
    place: Path, guest: Guest, uid: int, user: str, code: int, said: str
) -> None:
    """All are in the group of the socket, so the mode of the socket stops none of them."""
    answer = ask(place, user, uid, SAILOR)
    assert answer[0] == code
    assert said in answer[1]
    assert bool(guest.frames) == (code == 0)


JUNK = {
    "noise": b"\xff" * 64,
    "too large": struct.pack(">IcI", 0, RUN, LIMIT + 1),
    "no JSON": frame(0, RUN, b"{"),
    "deep JSON": frame(0, RUN, b"[" * 100_000),
    "no object": frame(0, RUN, b"5"),
    "no user": frame(0, RUN, json.dumps({**REQUEST, "user": None}).encode()),
    "no field": frame(0, RUN, b"{}"),
    "a field more": frame(0, RUN, json.dumps({**REQUEST, "uid": 0}).encode()),
    "no command": frame(0, RUN, json.dumps({**REQUEST, "argv": []}).encode()),
    "numbers": frame(0, RUN, json.dumps({**REQUEST, "argv": [1, 2]}).encode()),
    "a null byte": frame(0, RUN, json.dumps({**REQUEST, "argv": ["a\0b"]}).encode()),
    "half a pair": frame(0, RUN, json.dumps({**REQUEST, "cwd": "\ud800"}).encode()),
    "no name": frame(0, RUN, json.dumps({**REQUEST, "env": {"a=b": "c"}}).encode()),
    "a node's path": frame(0, RUN, json.dumps({**REQUEST, "node": "../../etc/x"}).encode()),
    "no kind": frame(0, RUN, json.dumps({**REQUEST, "kind": ["step"]}).encode()),
    "the guest's frame": frame(0, EXIT, b"0"),
}


@pytest.mark.root
@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_a_bad_request_is_answered_and_the_broker_goes_on(
    place: Path, guest: Guest, junk: bytes
) -> None:
    answers = raw(place, junk)
    assert [kind for _, kind, _ in answers] == [ERROR, EXIT]
    assert answers[0][2].startswith(b"broker: ")
    assert answers[1][2] == b"%d" % INVALID
    assert guest.frames == []
    assert ask(place, "sailor", SAILOR, SAILOR) == (0, "sailor")


@pytest.mark.parametrize("number", [b"", b"0", b"-9", b"99", b"9 9", b"\xb2", b"9" * 5000])
def test_a_signal_is_a_number(number: bytes) -> None:
    with pytest.raises(Refused):
        module.read_signal(number)
    assert module.read_signal(b"15") == 15


@pytest.mark.root
def test_a_client_that_reads_nothing_stops_nobody(
    place: Path, guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_UNREAD", 1 << 20)
    guest.output = 16 << 20
    deaf = Connection(str(place / "broker.sock"), ["id"], {}, "/", "sailor", "login")
    deadline = time.monotonic() + 60
    while not guest.frames and time.monotonic() < deadline:
        time.sleep(0.01)
    guest.output = 0
    assert ask(place, "sailor", SAILOR, SAILOR) == (0, "sailor")
    received, ended = 0, False
    with contextlib.suppress(NoGuest):
        while not ended:
            answers = deaf.receive()
            received += sum(len(content) for _, content in answers)
            ended = any(kind == EXIT for kind, _ in answers)
    assert not ended
    assert received < 16 << 20


@pytest.mark.root
def test_root_gets_in_however_many_connections_the_job_user_has(
    place: Path, guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 3)
    occupy = (
        "import socket, sys\n"
        "held = [socket.socket(socket.AF_UNIX) for _ in range(3)]\n"
        "for one in held: one.connect(sys.argv[1])\n"
        "print('held', flush=True); sys.stdin.read()\n"
    )
    words = ["/usr/bin/python3", "-IS", "-c", occupy, str(place / "broker.sock")]
    with subprocess.Popen(
        words, user=SAILOR, group=SAILOR, extra_groups=[], cwd="/", stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as held:  # fmt: skip
        assert held.stdout
        assert held.stdout.readline() == b"held\n"
        code, said = ask(place, "sailor", SAILOR, SAILOR)
        assert (code, "more than 3 connections" in said) == (REFUSED, True)
        assert ask(place, "root", 0, 0) == (0, "root")
    assert ask(place, "sailor", SAILOR, SAILOR) == (0, "sailor")


@pytest.mark.root
def test_no_command_of_the_job_user_stops_the_line(place: Path, guest: Guest) -> None:
    """The guest writes and does not read meanwhile, as its agent."""
    guest.output = 8 << 20
    flood = frame(0, RUN, json.dumps(REQUEST).encode()) + frame(0, INPUT, bytes(32768)) * 256
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(place / "broker.sock"))

        def send() -> None:
            with contextlib.suppress(OSError):
                connection.sendall(flood)

        threading.Thread(target=send, daemon=True).start()
        while not guest.frames:
            time.sleep(0.01)
        guest.output = 0
        assert ask(place, "root", 0, 0) == (0, "root")
        assert ask(place, "sailor", SAILOR, SAILOR) == (0, "sailor")


def test_a_guest_that_reads_slowly_gets_all_and_the_rest_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_TO_GUEST", 1 << 16)
    line, end = socket.socketpair()
    broker = broker_with(line, Path("/nonexistent"))
    request = {**REQUEST, "argv": ["cat"]}
    size, flood = 4 << 20, []
    clients = []
    for number in range(3):
        connection, peer = socket.socketpair()
        for one in (connection, peer):
            one.setblocking(False)
        client = Client(connection, SAILOR)
        broker.connections.add(client)
        broker.watch(client)
        clients.append(peer)
        content = frame(0, INPUT, bytes([number]) * 32768) * (size // 32768)
        flood.append(bytearray(frame(0, RUN, json.dumps(request).encode()) + content))

    def step() -> None:
        for peer, data in zip(clients, flood, strict=True):
            with contextlib.suppress(BlockingIOError):
                del data[: peer.send(data)]
        broker.handle_events(timeout=0)
        most = module.MAX_TO_GUEST + len(clients) * (module.CHUNK + 1024)
        assert len(broker.to_guest) <= most

    for _ in range(200):  # the guest reads nothing
        step()
    assert broker.guest_is_full
    assert all(flood)
    reader, received = Reader(), dict.fromkeys(range(1, 4), b"")
    end.setblocking(False)
    for _ in range(10_000):
        if sum(map(len, received.values())) == 3 * size:
            break
        end.send(frame(9, OUTPUT, b"."))  # there is always something to read, too
        step()
        with contextlib.suppress(BlockingIOError):
            for number, kind, content in reader.feed(end.recv(1 << 20)):
                received[number] += content if kind == INPUT else b""
    assert sorted(received.values()) == [bytes([number]) * size for number in range(3)]
    for one in (line, end, *clients, *(client.connection for client in broker.connections)):
        one.close()


@pytest.mark.root
def test_a_large_request_stays_as_large(place: Path, guest: Guest) -> None:
    """JSON needs six bytes for a letter that has two in UTF-8."""
    request = {**REQUEST, "argv": ["echo", "\xe9" * 400_000, "\udcff"]}
    content = json.dumps(request, ensure_ascii=False).encode(errors="surrogatepass")
    assert [kind for _, kind, _ in raw(place, frame(0, RUN, content))] == [OUTPUT, EXIT]
    assert len(guest.frames[0][2]) <= LIMIT
    assert json.loads(guest.frames[0][2])["argv"] == request["argv"]


@pytest.mark.root
def test_a_request_that_becomes_too_large_is_refused(place: Path, guest: Guest) -> None:
    """As UTF-16 it is smaller."""
    request = {**REQUEST, "argv": ["echo", "\u20ac" * 400_000]}
    content = json.dumps(request, ensure_ascii=False).encode("utf-16-le")
    assert len(content) < LIMIT
    answers = raw(place, frame(0, RUN, content))
    assert [kind for _, kind, _ in answers] == [ERROR, EXIT]
    assert f"is larger than {LIMIT}" in answers[0][2].decode()
    assert guest.frames == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(REQUEST)), JSON))
def test_a_request_is_valid_or_refused(changes: dict[str, Any]) -> None:
    try:
        request = read_request(json.dumps({**REQUEST, **changes}).encode(), HOSTS)
    except Refused:
        return
    assert all(isinstance(word, str) for word in request["argv"])
    assert request["node"] in HOSTS
    assert isinstance(request["user"], str)


FRAMES = st.lists(
    st.builds(
        frame,
        st.integers(0, 3),
        st.sampled_from([RUN, INPUT, SIGNAL, EXIT, OUTPUT, b"\xff"]),
        st.binary(max_size=20) | st.sampled_from([json.dumps(REQUEST).encode(), b"15", b"99"]),
    ),
    max_size=6,
).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(FRAMES | st.binary(max_size=40))
def test_no_bytes_of_a_client_stop_the_broker(data: bytes) -> None:
    """What reaches the guest is whole frames: commands as the job user, input and signals."""
    pairs = [socket.socketpair(), socket.socketpair()]
    (line, end), (connection, peer) = pairs
    connection.setblocking(False)
    try:
        broker = broker_with(line, Path("/nonexistent"))
        broker.selector.register(connection, 1, Client(connection, SAILOR))
        peer.sendall(data)
        for _ in range(3):
            broker.handle_events(timeout=0)
        end.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for number, kind, content in Reader().feed(end.recv(1 << 20)):
                assert number == 1
                assert kind in (RUN, INPUT, SIGNAL)
                if kind == RUN:
                    assert json.loads(content)["user"] == "sailor"
                if kind == SIGNAL:
                    assert 0 < int(content) < 65
    finally:
        for one in (*pairs[0], *pairs[1]):
            one.close()
