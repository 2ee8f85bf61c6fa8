"""A lab's beginning and end: what it leaves, also when it is killed half way."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab_support import SESSION, traces

from seatrial.base.errors import LabError
from seatrial_lab.common import access, network, processes
from seatrial_lab.native.engine import Lab
from seatrial_lab.native.status import status
from trial_support import until

pytestmark = [pytest.mark.root, pytest.mark.slurm]

MakeLab = Callable[..., Lab]


def _links() -> str:
    command = ["ip", "-o", "link"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _members(lab: Lab) -> dict[int, int]:
    """All processes of a lab as this machine numbers them, with their start times."""
    firsts = [access.first_process(lab.spec, host) for host in lab.spec.hosts]
    assert all(firsts)
    inside = [pid for first in firsts if first for pid in processes.in_node(first)]
    return {pid: processes.start_time(pid) for pid in inside}


def test_down_leaves_nothing(make_lab: MakeLab) -> None:
    links = _links()
    lab = make_lab(accounting=True)
    assert lab.up() is True
    assert _links() == links
    members = _members(lab)
    spaces = [
        processes.namespace_id(network.NETNS_ROOT / name)
        for name in network.namespaces(lab.spec.instance)
    ]
    assert len(spaces) == 6
    assert len(members) > 12
    assert lab.down() is True
    assert [pid for pid, started in members.items() if processes.is_alive(pid, started)] == []
    assert processes.in_namespaces("net", [space for space in spaces if space]) == []
    assert traces(lab.spec.instance) == []
    assert _links() == links
    assert lab.down() is False
    assert status(lab.spec.instance)["state"] == "down"


_UP = """
import sys
from seatrial_lab.native.engine import Lab
from seatrial_lab.common.spec import LabSpec
Lab(LabSpec(instance=sys.argv[1])).up()
"""


@pytest.mark.usefixtures("hangup_ends")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_start_that_a_signal_ends_leaves_only_the_logs(
    make_lab: MakeLab, number: signal.Signals
) -> None:
    lab = make_lab()
    name = lab.spec.instance
    command = [sys.executable, "-m", "seatrial", "lab", "up", "--no-accounting", "-i", name]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        until(lambda: bool(network.namespaces(name)), 120, "a node")
        process.send_signal(number)
        for later in (number, signal.SIGHUP, signal.SIGINT):  # as of somebody who does not wait
            time.sleep(0.05)
            process.send_signal(later)
        # One of the later signals may come when the removal has ended.
        assert process.wait(120) in (130, -number, -signal.SIGHUP, -signal.SIGINT)
    assert network.namespaces(name) == []
    assert [path.name for path in lab.paths.data.iterdir()] == ["log"]


def test_a_start_with_nohup_goes_on_after_a_hangup(make_lab: MakeLab) -> None:
    lab = make_lab(nodes=("n1",))
    name = lab.spec.instance
    command = [sys.executable, "-m", "seatrial", "lab", "up", "--no-accounting", "-i", name]
    with subprocess.Popen(["nohup", *command], stderr=subprocess.PIPE) as process:
        until(lambda: bool(network.namespaces(name)), 120, "a node")
        process.send_signal(signal.SIGHUP)
        assert process.wait(600) == 0
    assert status(name)["state"] == "up"


@pytest.mark.parametrize("turn", range(8))
def test_a_killed_up_is_cleared(make_lab: MakeLab, turn: int) -> None:
    lab = make_lab(accounting=True)
    process = subprocess.Popen([sys.executable, "-c", _UP, lab.spec.instance])
    # Spread over the whole start, which takes about 1.2 s after Python's own.
    time.sleep(0.1 + turn * 0.18 + random.uniform(0, 0.18))
    process.send_signal(signal.SIGKILL)
    process.wait()
    if turn % 2:
        lab.down()
        assert traces(lab.spec.instance) == []
    else:
        lab.up()
        assert lab.run(["srun", "-N2", "true"], timeout=600).returncode == 0
        lab.down()
    assert traces(lab.spec.instance) == []


def test_a_killed_down_is_finished_by_the_next(make_lab: MakeLab) -> None:
    lab = make_lab()
    code = _UP.replace(").up()", ").down()")
    for pause in (0.1, 0.13, 0.16, 0.2):
        lab.up()
        process = subprocess.Popen([sys.executable, "-c", code, lab.spec.instance])
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.wait()
        lab.down()
        assert traces(lab.spec.instance) == []


def test_two_labs_at_once_do_not_meet(lab: Lab, make_lab: MakeLab) -> None:
    other = make_lab(nodes=("n1", "n2"))
    other.up()
    both = [one.run(["srun", "-N2", "hostname"], check=True, timeout=600) for one in (lab, other)]
    assert [sorted(out.stdout.split()) for out in both] == [["n1", "n2"]] * 2
    assert other.spec.mgmt_address("n1") == lab.spec.mgmt_address("n1")
    assert other.run(["getent", "hosts", "n3"]).returncode != 0
    other.down()
    assert traces(other.spec.instance) == []
    assert status(SESSION)["state"] == "up"


def test_two_ups_at_once_make_one_lab(make_lab: MakeLab) -> None:
    lab = make_lab()
    code = _UP.replace("sys.argv[1]", "sys.argv[1], accounting=False")
    command = [sys.executable, "-c", code, lab.spec.instance]
    racers = [subprocess.Popen(command) for _ in range(3)]
    assert [racer.wait(600) for racer in racers] == [0, 0, 0]
    assert lab.up() is False


def test_a_lab_without_its_controller_is_started_again(make_lab: MakeLab) -> None:
    lab = make_lab(nodes=("n1",))
    lab.up()
    first = access.first_process(lab.spec, "login")
    assert first
    controllers = [p for p, name in processes.in_node(first).items() if name == "slurmctld"]
    processes.kill_all(controllers)
    assert processes.wait_gone(controllers, timeout=600) == []
    assert lab.up() is True
    assert lab.run(["srun", "hostname"], timeout=600).stdout == "n1\n"


def test_a_start_that_fails_says_why_and_keeps_only_the_logs(make_lab: MakeLab) -> None:
    lab = make_lab(extra_slurm_conf=("NoSuchParameter=1",))
    with pytest.raises(LabError, match="slurmctld"):
        lab.up()
    left = [path.name for path in lab.paths.data.iterdir()]
    assert left == ["log"]
    assert network.namespaces(lab.spec.instance) == []


def test_a_checkout_below_a_closed_folder_is_readable(make_lab: MakeLab, closed: Path) -> None:
    checkout, run = closed / "home/checkout", closed / "home/run"
    lab = make_lab(checkout=checkout, nodes=("n1",))
    lab.up()
    assert lab.run(["srun", "cat", f"{checkout}/file"], check=True, timeout=600).stdout == "hi\n"
    assert lab.run(["ls", str(closed)]).stdout.split() == ["home"]
    # A folder that comes later, and that the user may write.
    run.mkdir()
    run.chmod(0o777)
    assert lab.run(["test", "-e", str(run)], node="n1").returncode == 1
    lab.add_bind(run)
    lab.add_bind(run)
    lab.run(["srun", "sh", "-c", f"hostname >{run}/out"], check=True, timeout=600)
    assert (run / "out").read_text() == "n1\n"
    assert (closed.stat().st_mode & 0o777) == 0o700


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder that only root may pass through, with ``home/checkout/file`` in it."""
    import shutil

    folder = Path(f"/opt/seatrial-{SESSION}")
    (folder / "home/checkout").mkdir(parents=True)
    (folder / "home/checkout/file").write_text("hi\n")
    (folder / "secret").write_text("no\n")
    folder.chmod(0o700)
    yield folder
    shutil.rmtree(folder)
