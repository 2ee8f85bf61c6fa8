"""Who owns a profile and whether that owner lives, told from processes, real and made up."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.nic.node import owner
from seatrial.nic.node.owner import Process
from seatrial.nic.node.sockets import Sockets
from seatrial_lab.common import processes

SOURCE = str(Path(owner.__file__).parents[3])
#: tells who is above it, waits for its standard input to end, and tells again
ASK = f"""
import json, sys
sys.path.insert(0, {SOURCE!r})
from seatrial.nic.node.owner import World, boottime, slurmd_above
world = World()
print(json.dumps([world.slurmd, world.me, world.alive(world.slurmd)]), flush=True)
sys.stdin.read()
print(json.dumps([slurmd_above(), world.me, world.alive(world.slurmd)]), flush=True)
"""


@pytest.fixture
def slurmd(tmp_path: Path) -> str:
    """A shell that has the name of Slurm's daemon, as the kernel tells it."""
    shutil.copy("/bin/bash", tmp_path / "slurmd")
    return str(tmp_path / "slurmd")


@contextlib.contextmanager
def asker(*above: str) -> Iterator[subprocess.Popen[str]]:
    """A process that asks, below a chain of shells that stay what they are."""
    command = [sys.executable, "-c", ASK]
    for shell in reversed(above):
        # Something to do afterwards, so that the shell does not become what it runs.
        command = [shell, "-c", '"$@"; exit $?', "x", *command]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def told(process: subprocess.Popen[str]) -> tuple[Process | None, Process, bool]:
    assert process.stdout
    above, me, alive = json.loads(process.stdout.readline())
    return above and Process(*above), Process(*me), alive


def test_slurmd_through_scripts(slurmd: str) -> None:
    with asker(slurmd, "/bin/sh", "/bin/bash") as process:
        above, me, alive = told(process)
        assert above is not None
        assert above.pid == process.pid
        assert alive
        assert owner.is_alive(above)
        assert owner.is_alive(me)


def test_without_slurmd_there_is_none() -> None:
    with asker("/bin/sh") as process:
        above, _, alive = told(process)
        assert above is None
        assert not alive


def test_an_orphan_sees_that_it_is_one(slurmd: str) -> None:
    with asker(slurmd, "/bin/sh") as process:
        above, me, alive = told(process)
        assert above
        assert alive
        os.kill(above.pid, signal.SIGKILL)
        process.wait()
        assert not owner.is_alive(above)
        assert owner.is_alive(me)
        assert process.stdin
        process.stdin.close()
        above, _, alive = told(process)
        assert above is None
        assert not alive


def test_a_zombie_is_dead() -> None:
    process = subprocess.Popen(["sleep", "60"])
    stat = owner._stat(process.pid)
    assert stat
    one = Process(process.pid, stat[2])
    assert owner.is_alive(one)
    process.kill()
    deadline = time.monotonic() + 60
    while owner.is_alive(one):
        assert time.monotonic() < deadline
    process.wait()
    assert not owner.is_alive(one)


def test_another_process_under_the_same_number_is_not_the_owner() -> None:
    me = owner.myself()
    assert me.pid == os.getpid()
    assert owner.is_alive(me)
    assert not owner.is_alive(Process(me.pid, me.started - 1))
    assert not owner.is_alive(None)
    world = owner.World()
    assert world.alive([me.pid, me.started])  # as the journal has it
    assert not world.alive([me.pid, me.started + 1])
    assert not world.alive(None)


def test_the_clock_is_that_of_start_times() -> None:
    before = owner.boottime()
    with subprocess.Popen(["sleep", "60"]) as process:
        stat = owner._stat(process.pid)
        after = owner.boottime()
        process.kill()
    assert stat
    assert before - 0.02 <= owner.started_s(Process(process.pid, stat[2])) <= after


class Proc:
    """A /proc that is made up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(
        self, pid: int, name: str, parent: int = 1, title: str = "", uid: int = 0, exe: str = "",
        flags: int = 0x400100,
    ) -> None:  # fmt: skip
        folder = self.folder / str(pid)
        folder.mkdir()
        rest = f"0 0 0 0 {flags} " + " ".join(["0"] * 12)
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} {rest} {pid * 10} 0\n")
        (folder / "cmdline").write_bytes((title or name).encode() + b"\0")
        (folder / "exe").symlink_to("/usr/sbin/" + (exe or name))
        (folder / "status").write_text(
            f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t0\n"
        )


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proc:
    monkeypatch.setattr(owner, "PROC", str(tmp_path))
    return Proc(tmp_path)


def test_steps_of_jobs(proc: Proc) -> None:
    proc.add(5, "slurmstepd", title="slurmstepd: [123.extern]")
    proc.add(6, "slurmstepd", title="slurmstepd: [1234.batch]")
    proc.add(7, "bash", title="bash -c slurmstepd: [9.0]")
    proc.add(8, "slurmstepd", title="slurmstepd: [55")
    proc.add(9, "slurmstepd", title="slurmstepd: [x.0]")
    # An upgrade of Slurm replaces the file of steps that run.
    proc.add(10, "slurmstepd", title="slurmstepd: [77.0]", exe="slurmstepd-wlm (deleted)")
    (proc.folder / "self").mkdir()
    assert sorted(owner.steps()) == ["123", "1234", "77"]
    assert owner.has_steps("123")
    assert not owner.has_steps("12")
    assert not owner.has_steps("9")


def test_the_title_of_a_users_process_is_not_read(proc: Proc) -> None:
    """Its user can make the read wait for ever, and with it each Epilog of the node."""
    proc.add(5, "slurmstepd", title="slurmstepd: [123.extern]")
    proc.add(6, "slurmstepd", title="", uid=65534)
    proc.add(7, "python3", title="")
    for pid in (6, 7):
        file = proc.folder / str(pid) / "cmdline"
        file.unlink()
        os.mkfifo(file)  # opening it waits for a writer
    jobs: list[str] = []
    reader = threading.Thread(target=lambda: jobs.extend(owner.steps()), daemon=True)
    reader.start()
    reader.join(30)
    assert not reader.is_alive()
    assert jobs == ["123"]


def test_a_user_cannot_pretend_that_a_job_still_runs(proc: Proc) -> None:
    proc.add(5, "slurmstepd", title="slurmstepd: [123.extern]", uid=4321)
    # Nor by a program that runs as root for whoever calls it.
    proc.add(6, "slurmstepd", title="slurmstepd: [123.extern]", exe="sudo")
    assert not owner.has_steps("123")
    assert owner.World().any_steps() is None


def test_names_with_brackets_and_blanks(proc: Proc) -> None:
    proc.add(5, "a) R 9 (b", parent=7)
    assert owner._stat(5) == ("a) R 9 (b", 7, 50, False)
    assert owner.names() == {"a) R 9 (b": 5}


def test_a_thread_of_the_kernel_is_no_daemon(proc: Proc) -> None:
    """Older kernels name the rescuer of a bond's workqueue after the bond, which any user makes."""
    proc.add(5, "irqbalance", parent=2, flags=0x4208060)
    assert owner.names() == {}
    proc.add(6, "irqbalance")
    assert owner.names() == {"irqbalance": 6}


@pytest.mark.skipif(not Path("/proc/2/comm").exists(), reason="no kernel threads are to be seen")
def test_no_thread_of_this_kernel_is_a_daemon() -> None:
    assert owner._stat(2) is not None
    assert Path("/proc/2/comm").read_text().strip() not in owner.names()


@pytest.mark.parametrize("name", ["slurmd", "slurmstepd"])
def test_ancestors(proc: Proc, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 30)
    proc.add(1, "init", parent=0)
    proc.add(20, name)
    proc.add(30, "sh", parent=20)
    assert owner.slurmd_above() == Process(20, 200)


def test_a_daemon_that_is_the_first_process(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container, slurmd can be it; any other first process adopts orphans."""
    monkeypatch.setattr(os, "getppid", lambda: 30)
    proc.add(30, "sh", parent=1)
    proc.add(1, "init", parent=0)
    assert owner.slurmd_above() is None
    shutil.rmtree(proc.folder / "1")
    proc.add(1, "slurmd", parent=0)
    assert owner.slurmd_above() == Process(1, 10)


def test_a_circle_of_parents_has_an_end(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 30)
    proc.add(30, "sh", parent=31)
    proc.add(31, "sh", parent=30)
    assert owner.slurmd_above() is None


def test_the_boots_identity(proc: Proc) -> None:
    assert owner.boot_id() == ""
    file = proc.folder / "sys/kernel/random/boot_id"
    file.parent.mkdir(parents=True)
    file.write_text("abc\n")
    assert owner.boot_id() == "abc"


def test_a_real_process_with_a_steps_title(tmp_path: Path) -> None:
    """Named as slurmstepd names itself."""
    shutil.copy("/bin/bash", tmp_path / "slurmstepd")
    with subprocess.Popen(
        ["slurmstepd: [987654.extern]", "-c", "read x"], executable=tmp_path / "slurmstepd",
        stdin=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            deadline = time.monotonic() + 60
            while not owner.has_steps("987654"):
                assert time.monotonic() < deadline
        finally:
            process.kill()
    assert not owner.has_steps("987654")


@pytest.mark.root
def test_the_name_of_a_process_does_not_make_it_root(tmp_path: Path) -> None:
    """The kernel escapes a newline in a name, and no carriage return."""
    program = (
        "import ctypes; ctypes.CDLL(None).prctl(15, b'\\rUid:\\t0\\t0\\t', 0, 0, 0); "
        "print('named', flush=True); input()"
    )
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3"]
    with subprocess.Popen(
        [*words, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == b"named\n"
            status = Path(f"/proc/{process.pid}/status").read_bytes()
            assert status.startswith(b"Name:\t\rUid:\t0")
            assert owner._uid(str(process.pid)) == "65534"
            assert not Sockets("/").is_of_root(str(process.pid))
            assert not processes.is_of_root(process.pid)
            assert processes.is_alive(process.pid)
        finally:
            process.kill()
