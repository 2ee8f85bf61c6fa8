"""Commands of a lab whose job user holds what root waits for, and locks that no user can hold."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from labs import own_name
from seatrial.base.errors import InputError, LabError
from seatrial_lab.adapter import end, further_instance
from seatrial_lab.common import access, network, processes
from seatrial_lab.common.paths import RUN_ROOT
from seatrial_lab.common.spec import LabSpec

Run = Callable[..., subprocess.CompletedProcess[str]]
#: a command that leaves the pipes of its output to a process of another session for HOLD_S
HOLD_S = 60
HOLDER = f"setsid sleep {HOLD_S} & echo $! >holder; echo hi; "


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command as on a node of a native lab, but in the namespaces of this machine."""
    monkeypatch.setattr(access, "node_command", lambda spec, host, user, argv, cwd: [*argv])

    def run(
        *argv: str, timeout: float | None = 600, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        spec = LabSpec(instance="answers")
        return access.run(spec, argv, "sailor", "n1", {}, "/", timeout, False, stdin)

    return run


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Callable[[], bool]]:
    """Says whether the process that holds the pipes is still alive."""

    def pid() -> int:
        return int((tmp_path / "holder").read_text())

    yield lambda: processes.is_alive(pid())
    processes.kill_all([pid()])


def in_folder(tmp_path: Path, script: str) -> list[str]:
    return ["sh", "-c", f"cd {tmp_path}; {script}"]


def test_the_end_of_a_command_is_not_that_of_its_pipes(
    run: Run, holder: Callable[[], bool], tmp_path: Path
) -> None:
    done = run(*in_folder(tmp_path, HOLDER + "echo no >&2; exit 3"))
    assert (done.returncode, done.stdout, done.stderr) == (3, "hi\n", "no\n")
    assert holder()


def test_a_timeout_waits_for_no_pipe(run: Run, holder: Callable[[], bool], tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"not done after 3 s"):
        run(*in_folder(tmp_path, HOLDER + "exec sleep 1000"), timeout=3)
    assert holder()


def test_the_size_of_an_answer_is_bounded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_ANSWER_B", 1 << 20)
    assert len(run("head", "-c", str(1 << 20), "/dev/zero").stdout) == 1 << 20
    for redirected in ("", " >&2"):
        with pytest.raises(LabError, match="more than 1048576 bytes of output"):
            run("sh", "-c", f"yes{redirected}", timeout=None)


def test_input_and_output_of_any_size_pass(run: Run) -> None:
    text = "\u20acxyz\n" * 300_000
    assert run("cat", stdin=text).stdout == text
    assert run("sh", "-c", "exec <&-; echo done", stdin=text).stdout == "done\n"
    assert run("cat", stdin=None).stdout == ""


@pytest.fixture
def held() -> Iterator[Callable[[Path], None]]:
    """Has a user of the machine hold the lock of a folder until the end of the test."""
    code = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], 0), 2); print(1, flush=True)"
    started = []

    def hold(folder: Path) -> None:
        words = ["/usr/bin/python3", "-Ic", code + "; sys.stdin.read()", str(folder)]
        process = subprocess.Popen(
            words, user=65534, group=65534, extra_groups=[], cwd="/", stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == b"1\n"

    yield hold
    for process in started:
        process.communicate()


TEMPLATE = """
import sys
from pathlib import Path
from seatrial_lab.native import database
database.CACHE_ROOT = Path(sys.argv[1])
database._make = lambda ready: ready.mkdir()
print(database.template().is_dir())
"""
REGISTRY = """
import sys
from seatrial_lab.common import network
network.remove(sys.argv[1])
print(True)
"""


@pytest.mark.root
@pytest.mark.parametrize("what", ["registry", "template"])
def test_no_user_holds_up_what_all_labs_share(held: Callable[[Path], None], what: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        RUN_ROOT.mkdir(exist_ok=True)
        RUN_ROOT.chmod(0o755)
        held(RUN_ROOT if what == "registry" else Path(name))
        code, argument = (REGISTRY, own_name("none")) if what == "registry" else (TEMPLATE, name)
        command = [sys.executable, "-c", code, argument]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert (done.stdout, done.stderr) == ("True\n", "")
    network.remove_registry()


@pytest.mark.root
def test_who_waits_for_the_registry_is_told() -> None:
    RUN_ROOT.mkdir(exist_ok=True)
    with (RUN_ROOT / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        heard = []

        def note(text: str) -> None:
            heard.append(text)
            fcntl.flock(file, fcntl.LOCK_UN)

        network.remove(own_name("none"), note)
    assert heard == [f"waiting for another process that holds {RUN_ROOT}/.lock"]
    network.remove_registry()


@pytest.mark.root
def test_the_end_of_a_lab_takes_its_name_as_text():
    """A pattern ended the further guests of other labs."""
    RUN_ROOT.mkdir(exist_ok=True)
    other = RUN_ROOT / further_instance(own_name("other"), 2)
    other.mkdir()
    try:
        for name in ("*", "**", "/abs", f"{own_name('other')[:-1]}*"):
            with pytest.raises(InputError, match="is not 1 to 20 of"):
                end(name)
        assert other.is_dir()
        end(own_name("other"))
        assert not other.exists()
    finally:
        if other.exists():
            other.rmdir()


def test_a_command_that_is_killed_leaves_no_process_of_its_group(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where these die later than its leader, as on a busy machine."""
    later: list[threading.Thread] = []
    killpg = os.killpg

    def slowly(group: int, number: int) -> None:
        if number != signal.SIGKILL:
            return killpg(group, number)
        os.kill(group, number)
        later.append(threading.Timer(0.5, killpg, (group, number)))
        return later[-1].start()

    monkeypatch.setattr(os, "killpg", slowly)
    with pytest.raises(LabError, match="not done after"):
        run(*in_folder(tmp_path, "sleep 333 & echo $! >child; wait"), timeout=0.3)
    monkeypatch.undo()
    assert not processes.is_alive(int((tmp_path / "child").read_text()))
    later[0].join()
