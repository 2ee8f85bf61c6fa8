"""A command at root's terminal gets another terminal."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

RUN = "import os, sys; from seatrial_lab.native import terminal; \
sys.exit(terminal.run(sys.argv[1:], os.environ))"
LOOK = """
import json, os, sys
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
links = {}
for number in os.listdir("/proc/self/fd"):
    try:
        links[number] = os.readlink("/proc/self/fd/" + number)
    except FileNotFoundError:
        pass
size = list(os.get_terminal_size(1)) if os.isatty(1) else None
with open(sys.argv[1], "w") as stream:
    seen = {"tty": int(fields[4]), "links": links, "size": size, "session": os.getsid(0)}
    json.dump(seen, stream)
print("seen")
sys.stdin.readline()
sys.exit(7)
"""


def at_a_terminal(
    words: list[str], typed: bytes, after: bytes = b"", **options: int
) -> tuple[int, bytes, str, int]:
    """Run words with a terminal as their own; (exit code, output, its path, its device)."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    name, device = os.ttyname(slave), os.fstat(slave).st_rdev
    before = termios.tcgetattr(slave)
    streams = {"stdin": slave, "stdout": slave, "stderr": slave, **options}
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *words], start_new_session=True, pass_fds=[slave],
        preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0), **streams,
    )  # fmt: skip
    output = b""
    os.set_blocking(master, False)
    while True:
        if typed and after in output:
            os.write(master, typed)
            typed = b""
        ended = process.poll() is not None
        try:
            output += os.read(master, 65536)
        except BlockingIOError:
            if ended:
                break
            time.sleep(0.01)
    assert termios.tcgetattr(slave) == before
    os.close(slave)
    os.close(master)
    return process.returncode, output, name, device


@pytest.mark.parametrize("stdin", ["terminal", "pipe"])
def test_the_command_has_another_terminal(tmp_path: Path, stdin: str) -> None:
    """Else it types commands into root's, or reads what root types later."""
    told = tmp_path / "told"
    options = {} if stdin == "terminal" else {"stdin": subprocess.DEVNULL}
    words = [sys.executable, "-c", LOOK, str(told)]
    code, output, name, device = at_a_terminal(words, b"word\n", **options)
    assert code == 7, output
    assert b"seen\r\n" in output
    assert b"seen\r\r\n" not in output
    seen = json.loads(told.read_text())
    assert name not in seen["links"].values()
    assert not any("ptmx" in link for link in seen["links"].values())
    assert seen["tty"] not in (0, device)
    assert seen["size"] == [111, 33]
    assert seen["session"] != os.getsid(0)


def test_without_a_terminal_of_the_caller_pipes_are_passed_on(tmp_path: Path) -> None:
    words = [sys.executable, "-c", RUN, "sh", "-c", "cat; readlink /proc/$$/fd/1; exit 3"]
    done = subprocess.run(words, input="in\n", capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "")
    first, second = done.stdout.splitlines()
    assert (first, second[:5]) == ("in", "pipe:")


def test_the_command_has_no_controlling_terminal_of_the_caller() -> None:
    """Also if no stream is a terminal: /dev/tty would open it."""
    read, write = os.pipe()
    words = ["sh", "-c", "sh -c ': </dev/tty' 2>/dev/null && exit 1; exit 0"]
    streams = {"stdin": read, "stdout": write, "stderr": write}
    code, _, _, _ = at_a_terminal(words, b"", **streams)
    assert code == 0


INTERRUPTED = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("up", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    raise SystemExit(9)
"""


def test_an_interrupt_reaches_the_command() -> None:
    words = [sys.executable, "-c", INTERRUPTED]
    assert at_a_terminal(words, b"\x03", after=b"up")[0] == 9


def test_the_exit_code_after_a_signal() -> None:
    assert at_a_terminal(["sh", "-c", "kill -KILL $$"], b"")[0] == 128 + 9


def test_a_process_that_stays_does_not_keep_the_caller(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    stays = f"exec 8<>{fifo}; echo over >{tmp_path}/up; read line <&8"
    script = f"setsid sh -c '{stays}' & until test -e {tmp_path}/up; do sleep 0.01; done; exit 4"
    assert at_a_terminal(["sh", "-c", script], b"")[0] == 4
    with fifo.open("r+b", buffering=0) as stream:
        stream.write(b"end\n")


def test_much_is_printed() -> None:
    """More than the kernel keeps for a terminal."""
    _, output, _, _ = at_a_terminal(["seq", "20000"], b"")
    assert output.splitlines() == [b"%d" % number for number in range(1, 20001)]
