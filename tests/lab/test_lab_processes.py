"""Which processes a lab takes for its own, among those of other users."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

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
    assert read
    assert pretender not in read


@pytest.mark.root
def test_a_process_with_the_name_and_words_of_qemu_is_no_process_of_a_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is its command read."""
    read: list[int] = []
    monkeypatch.setattr(processes, "command_line", lambda pid: read.append(pid) or [])
    with tempfile.TemporaryDirectory() as name:
        program = Path(name) / "qemu-system-x86_64"
        shutil.copy("/bin/sleep", program)
        Path(name).chmod(0o755)
        words = [f"unix:{tmp_path}/qmp.sock,server=on,wait=off", "1000"]
        with subprocess.Popen(words, executable=program, user=65534, group=65534) as pretender:
            try:
                assert share.processes_of(tmp_path) == []
                assert not read
            finally:
                pretender.kill()


def test_the_processes_of_a_guest_are_those_of_its_pid_files(tmp_path: Path) -> None:
    for name in share.PID_FILES:
        preexec = partial(processes.write_pid_file, tmp_path / name)
        with subprocess.Popen(["sleep", "1000"], preexec_fn=preexec) as process:
            try:
                assert share.processes_of(tmp_path) == [process.pid]
                pid, started = (tmp_path / name).read_text().split()
                (tmp_path / name).write_text(f"{pid} {int(started) + 1}\n")
                assert share.processes_of(tmp_path) == []  # the number of a process that ended
            finally:
                process.kill()
