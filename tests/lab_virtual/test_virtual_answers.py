"""Commands of root in a guest whose job user decides what arrives, and when."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seatrial.base.errors import LabError
from seatrial_lab.common import access
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.virtual.engine import VirtualLab
from seatrial_lab.virtual.frames import EXIT, INPUT, OUTPUT, RUN, Reader, frame
from seatrial_lab.virtual.spec import VirtualSpec

Answer = Callable[[socket.socket, Callable[[], bool]], None]
GIVES_UP_S = 20  # of a broker whose client should have ended long before


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VirtualLab:
    monkeypatch.setattr(VirtualLab, "socket", tmp_path / "broker.sock")
    return VirtualLab(VirtualSpec(LabSpec(instance="answers"), ()))


@pytest.fixture
def broker(lab: VirtualLab) -> Iterator[Callable[[Answer], None]]:
    """Starts a broker that accepts one client and answers as the test wants, until it gives up."""
    end = time.monotonic() + GIVES_UP_S
    threads = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(lab.socket))
        listener.listen()

        def start(answer: Answer) -> None:
            def serve() -> None:
                with listener.accept()[0] as connection, contextlib.suppress(OSError):
                    answer(connection, lambda: time.monotonic() < end)

            threads.append(threading.Thread(target=serve, daemon=True))
            threads[0].start()

        yield start
        for thread in threads:
            thread.join()


def trickle(connection: socket.socket, goes_on: Callable[[], bool]) -> None:
    while goes_on():
        connection.sendall(frame(1, OUTPUT, b"."))
        time.sleep(0.01)
    connection.sendall(frame(1, EXIT, b"0"))


def read_nothing(connection: socket.socket, goes_on: Callable[[], bool]) -> None:
    poll = select.poll()
    poll.register(connection, select.POLLHUP)
    while goes_on() and not poll.poll(50):
        pass


def flood(connection: socket.socket, goes_on: Callable[[], bool]) -> None:
    while goes_on():
        connection.sendall(frame(1, OUTPUT, bytes(32768)))


def test_output_that_trickles_does_not_move_the_deadline(
    lab: VirtualLab, broker: Callable[[Answer], None]
) -> None:
    broker(trickle)
    with pytest.raises(LabError, match=r"login: sleep 1: not done after 0\.5 s"):
        lab.run(["sleep", "1"], timeout=0.5)


def test_the_size_of_an_answer_is_bounded(
    lab: VirtualLab, broker: Callable[[Answer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "MAX_ANSWER_B", 1 << 20)
    broker(flood)
    with pytest.raises(LabError, match="login: yes: more than 1048576 bytes of output"):
        lab.run(["yes"])


def test_a_broker_that_reads_nothing_does_not_hold_the_request(
    lab: VirtualLab, broker: Callable[[Answer], None]
) -> None:
    broker(read_nothing)
    with pytest.raises(LabError, match=r"not done after 0\.5 s"):
        lab.run(["echo", "x" * 900_000], timeout=0.5)


def test_a_full_queue_of_the_broker_is_waited_for(lab: VirtualLab) -> None:
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as opened:
        listener.bind(str(lab.socket))
        listener.listen(0)
        others = []
        while True:
            other = opened.enter_context(socket.socket(socket.AF_UNIX))
            other.setblocking(False)
            try:
                other.connect(str(lab.socket))
            except BlockingIOError:
                break
            others.append(other)
        with pytest.raises(LabError, match=r"not done after 0\.2 s"):
            lab.run(["id"], timeout=0.2)

        def serve() -> None:
            for _ in others:
                listener.accept()[0].close()
            with listener.accept()[0] as connection:
                reader, frames = Reader(), []
                while len(frames) < 2:
                    frames += reader.feed(connection.recv(65536))
                assert [kind for _, kind, _ in frames] == [RUN, INPUT]
                connection.sendall(frame(1, OUTPUT, b"root") + frame(1, EXIT, b"0"))

        thread = threading.Timer(0.3, serve)
        thread.start()
        assert lab.run(["id"], timeout=600).stdout == "root"
        thread.join()
