"""Runs a command at the caller's terminal without giving it that terminal.

A process that has root's terminal can type commands into it (TIOCSTI), and can read from it after
the command has ended. So the command gets a session and, where the caller has a terminal, a
pseudo-terminal of its own. This module knows no lab.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import termios
import tty
from collections.abc import Iterator, Mapping, Sequence

_CHUNK = 65536
_PASSED_ON = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)


def run(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Run a command with the caller's stdin, stdout and stderr and return its exit code.

    A pseudo-terminal replaces each of the three that is a terminal; pipes and files are passed on
    as they are, and no other descriptor. The exit code after signal N is 128 + N. Changes the
    signal handlers of this process: call it last.
    """
    terminals = [number for number in (0, 1, 2) if os.isatty(number)]
    master, slave = _own_terminal(terminals) if terminals else (None, None)
    # The command's parent in the session, nsenter, ignores an interrupt.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    stdin, stdout, stderr = (slave if number in terminals else None for number in (0, 1, 2))
    process = subprocess.Popen(
        command, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True,
        preexec_fn=(lambda: fcntl.ioctl(terminals[0], termios.TIOCSCTTY, 0)) if terminals else None,
    )  # fmt: skip
    for number in _PASSED_ON:
        signal.signal(number, lambda received, _: _send(process, received))
    if master is not None and slave is not None:
        os.close(slave)
        source = terminals[0]
        signal.signal(signal.SIGWINCH, lambda *_: _copy_size(source, master))
        _copy_size(source, master)
        with _raw(0 if 0 in terminals else None):
            _relay(process, master, terminals)
        os.close(master)
    code = process.wait()
    return code if code >= 0 else 128 - code


def _send(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _own_terminal(terminals: Sequence[int]) -> tuple[int, int]:
    """Return master and slave of a pseudo-terminal with the modes of the caller's."""
    master, slave = os.openpty()
    modes = termios.tcgetattr(terminals[0])
    if 0 not in terminals:
        modes[1] &= ~termios.OPOST  # the caller's terminal is not raw and does it
    termios.tcsetattr(slave, termios.TCSANOW, modes)
    _copy_size(terminals[0], slave)
    os.set_blocking(master, False)
    return master, slave


def _copy_size(source: int, target: int) -> None:
    with contextlib.suppress(OSError):  # the caller's terminal may be gone
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)


@contextlib.contextmanager
def _raw(terminal: int | None) -> Iterator[None]:
    """Each key goes to the command's terminal, which interprets it."""
    if terminal is None:
        yield
        return
    modes = termios.tcgetattr(terminal)
    tty.setraw(terminal, termios.TCSADRAIN)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSADRAIN, modes)


def _relay(process: subprocess.Popen[bytes], master: int, terminals: Sequence[int]) -> None:
    """Copy between the two terminals until the command ends, whoever else has its terminal."""
    out = next(number for number in (1, 2, 0) if number in terminals)
    end = os.pidfd_open(process.pid)
    typed, reading = b"", 0 in terminals
    open_end = [master]
    while True:
        sources = [*open_end, end, *([0] if reading and not typed else [])]
        readable, writable, _ = select.select(sources, open_end if typed else [], [])
        if master in readable:
            try:
                _write(out, os.read(master, _CHUNK))
            except BlockingIOError:
                pass
            except OSError:  # nobody has the other end open
                open_end = []
                typed, reading = b"", False
        elif end in readable:
            break
        if 0 in readable:
            try:
                typed = os.read(0, _CHUNK)
            except OSError:
                typed = b""
            if not typed:  # the caller's terminal is gone
                reading = False
                _send(process, signal.SIGHUP)
        if master in writable and typed and open_end:
            with contextlib.suppress(BlockingIOError):
                typed = typed[os.write(master, typed) :]
    os.close(end)


def _write(target: int, content: bytes) -> None:
    while content:
        content = content[os.write(target, content) :]
