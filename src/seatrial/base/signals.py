"""Handlers of signals, for the time of a block."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

#: those with which people, shells and batch systems end a program
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def handled(
    numbers: Iterable[signal.Signals], handler: Callable[[int, object], None] | signal.Handlers
) -> Iterator[None]:
    """Handle signals with ``handler`` during the block.

    SIGHUP stays ignored if it is: nohup does that for its command. SIGINT does not, although shells
    ignore it for commands in the background: programs that the block starts would ignore it, too.
    Python delivers signals to the main thread only: in another thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, handler)
        for number in numbers
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, earlier in before.items():
            with suppress(TypeError):  # a handler that was not set from Python
                signal.signal(number, earlier)
