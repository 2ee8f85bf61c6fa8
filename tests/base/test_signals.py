"""Handlers of signals for the time of a block."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from seatrial.base.signals import ENDING, handled


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_is_handled_in_the_block_and_as_before_after_it(number: signal.Signals) -> None:
    seen: list[str] = []
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(number, lambda *_: seen.append("outside"))
    with handled(ENDING, lambda *_: seen.append("inside")):
        os.kill(os.getpid(), number)
    os.kill(os.getpid(), number)
    assert seen == ["inside", "outside"]


def test_a_hangup_that_is_ignored_stays_so_and_no_other_signal() -> None:
    seen: list[int] = []
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    with handled(ENDING, lambda number, _: seen.append(number)):
        for number in ENDING:
            os.kill(os.getpid(), number)
    assert seen == [signal.SIGINT, signal.SIGTERM]
    assert [signal.getsignal(number) for number in ENDING] == [signal.SIG_IGN] * 3


def test_another_thread_changes_nothing() -> None:
    seen: list[object] = []

    def work() -> None:
        with handled(ENDING, signal.SIG_IGN):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]
