"""Which processes a lab takes for its own, among those of other users."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from seatrial_lab.common import processes
from seatrial_lab.virtual import share

PREFIX = "/run/seatrial/some/nodes/"
WORDS = ["seatrial_lab.common.nodeinit", "seatrial_lab.virtual.broker", "/run/seatrial/some"]


@pytest.fixture
def pretender() -> Iterator[int]:
    """A process of nobody with the words of a lab's processes in its command."""
    command = [sys.executable, "-ISc", "input()", *WORDS, PREFIX + "n1.json"]
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    with subprocess.Popen([*nobody, *command], stdin=subprocess.PIPE) as process:
        try:
            deadline = time.monotonic() + 60
            while processes.command_line(process.pid)[:1] != [sys.executable]:
                assert time.monotonic() < deadline
            yield process.pid
        finally:
            process.kill()


@pytest.mark.root
def test_a_process_of_another_user_is_no_process_of_a_lab(pretender: int) -> None:
    assert processes.command_line(pretender)[-1].startswith(PREFIX)
    assert pretender not in processes.nodeinit_processes(PREFIX)


@pytest.mark.root
def test_the_command_of_another_users_process_is_not_read(
    pretender: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user can make the read wait for ever."""
    read = []
    monkeypatch.setattr(processes, "command_line", lambda pid: read.append(pid) or [])
    processes.nodeinit_processes(PREFIX)
    share.processes_of(share.Path("/run/seatrial/some"))
    assert read
    assert pretender not in read
