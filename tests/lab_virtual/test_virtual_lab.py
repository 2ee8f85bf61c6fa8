"""The virtual lab as a whole: Slurm, commands on its nodes, its clock, shared folders, its end."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seatrial.base.errors import LabError
from seatrial.base.paths import CHECKOUT
from seatrial_lab.adapter import VIRTUAL, attach, end, engine_of
from seatrial_lab.common import processes
from seatrial_lab.virtual.engine import VirtualLab
from seatrial_lab.virtual.frames import OUTPUT
from seatrial_lab.virtual.share import PID_FILES, QEMU_PID, processes_of
from seatrial_lab.virtual.status import status
from trial_support import until

pytestmark = [pytest.mark.root, pytest.mark.slurm]
IDLE = dict.fromkeys(["n1", "n2"], "idle")


def cpu_s(lab: VirtualLab) -> float:
    """Processor time of the guest's QEMU so far, in seconds."""
    found = 0.0
    for pid in processes_of(lab.paths.run):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found += (int(fields[11]) + int(fields[12])) / 100
    return found


def test_slurm_has_its_nodes(lab: VirtualLab) -> None:
    assert lab.node_states() == IDLE
    assert status(lab.spec.instance)["state"] == "up"
    assert engine_of(lab.spec.instance) is VIRTUAL
    assert attach(lab.spec.instance).spec == lab.spec


def test_commands_have_streams_codes_and_a_user(lab: VirtualLab) -> None:
    answer = lab.run(["sh", "-c", "cat; echo oops >&2; id -un; hostname; exit 6"],
                     node="n2", stdin="hello\n")  # fmt: skip
    assert answer.returncode == 6
    assert answer.stdout == "hello\nsailor\nn2\n"
    assert answer.stderr == "oops\n"
    with pytest.raises(LabError, match="no node 'n9'"):
        lab.run(["true"], node="n9")
    assert lab.run(["no-such-program"]).returncode == 127


def test_much_output_arrives_whole(lab: VirtualLab) -> None:
    answer = lab.run(["seq", "200000"], timeout=600)
    assert answer.stdout == "".join(f"{number}\n" for number in range(1, 200001))


def is_stopped(lab: VirtualLab) -> bool:
    with lab.control() as qemu:
        return qemu.execute("query-status")["status"] == "paused"


def test_an_idle_guest_costs_nothing_and_its_clock_stands(lab: VirtualLab) -> None:
    before = float(lab.run(["cat", "/proc/uptime"]).stdout.split()[0])
    until(lambda: is_stopped(lab), 30, "a guest that has been stopped")
    spent = cpu_s(lab)
    time.sleep(3)
    assert cpu_s(lab) - spent < 0.3
    after = float(lab.run(["cat", "/proc/uptime"]).stdout.split()[0])
    # In these 3 s it would go on by hours, and it goes on by seconds until it has been stopped.
    assert after - before < 300


def test_no_connection_colours_the_next(lab: VirtualLab) -> None:
    """A node remembers nothing of a peer; its namespace has this setting for itself."""
    for node in ("n1", "n2", "login"):
        answer = lab.run(["cat", "/proc/sys/net/ipv4/tcp_no_metrics_save"], node=node)
        assert answer.stdout == "1\n", node
        assert lab.run(["ip", "tcp_metrics", "show"], node=node, user="root").stdout == ""


def test_slow_start_does_not_end_by_chance(lab: VirtualLab) -> None:
    answer = lab.run(["cat", "/sys/module/tcp_cubic/parameters/hystart"], node="n1")
    assert answer.stdout == "0\n"
    used = lab.run(["cat", "/proc/sys/net/ipv4/tcp_congestion_control"], node="n1")
    assert used.stdout == "cubic\n"


def test_the_nic_is_the_drivers_own(lab: VirtualLab) -> None:
    shown = lab.run(["ethtool", "-i", "eth1"], user="root", node="n1").stdout
    assert "driver: igb\n" in shown


def test_a_looking_command_is_refused_while_a_step_runs(lab: VirtualLab) -> None:
    script = "echo begun; i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done"
    step = lab.connect(["srun", "-N1", "sh", "-c", script], timeout=600)
    try:
        # A job whose srun is ended earlier has its node for longer.
        while (OUTPUT, b"begun\n") not in step.receive():
            pass
        with pytest.raises(LabError, match="not while a step is measured"):
            lab.run(["squeue"], timeout=600)
        assert status(lab.spec.instance)["hosts"][1]["slurm_state"] == "measuring"
    finally:
        step.send_signal(15)
        step.socket.close()
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        try:
            lab.run(["squeue"], timeout=600)
            break
        except LabError:
            time.sleep(0.5)
    else:
        pytest.fail("the step never ended")


def test_a_folder_of_the_host_is_shared(lab: VirtualLab, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("from the host\n")
    os.chown(tmp_path, lab.spec.uid, lab.spec.gid)
    lab.add_bind(tmp_path)
    assert lab.run(["cat", str(tmp_path / "there")], user="root").stdout == "from the host\n"
    lab.run(["sh", "-c", f"echo from n2 >{tmp_path}/back"], user="root", node="n2", check=True)
    assert (tmp_path / "back").read_text() == "from n2\n"
    lab.add_bind(tmp_path)  # once more does no harm


def test_the_machines_own_files_cannot_be_changed(lab: VirtualLab, tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.write_text("as it was")
    lab.run(["sh", "-c", f"echo changed >{file}"], user="root")
    assert file.read_text() == "as it was"


def test_what_programs_open_at_their_start_is_in_memory(lab: VirtualLab) -> None:
    """With the times that it has on this machine; a folder that is left out is there as well."""
    script = """\
import json, os, sys, sysconfig
print(os.stat(sysconfig.get_path("stdlib")).st_dev == os.stat("/").st_dev)
print(int(os.stat(json.__file__).st_mtime), len(os.listdir(sysconfig.get_path("stdlib"))))
cold = os.path.dirname(sysconfig.get_makefile_filename())  # of libpython3-dev
print(len(os.listdir(cold)) if os.path.exists(cold) else None)
"""
    own = subprocess.run(
        ["/usr/bin/python3", "-ISc", script], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    seen = lab.run(["/usr/bin/python3", "-ISc", script], node="n1", check=True).stdout.splitlines()
    assert seen == ["False", *own[1:]]
    # perl is no program that a node needs.
    programs = ["/usr/bin/srun", "/usr/sbin/ethtool", "/lib/x86_64-linux-gnu/libc.so.6"]
    stat = ["stat", "-Lc", "%d", *programs, "/usr/bin/perl"]
    *hot, cold = lab.run(stat, node="n1", check=True).stdout.split()
    assert cold not in hot
    loaded = lab.run(["/usr/bin/python3", "-vISc", "import json"], node="n1").stderr
    assert "json/__pycache__/__init__.cpython" in loaded
    assert ".py'" not in loaded, "a module was compiled: its source has another time"


def qemu_of(lab: VirtualLab) -> int:
    pid = processes.read_pid_file(lab.paths.run / QEMU_PID)
    assert pid is not None
    assert Path(f"/proc/{pid}/exe").readlink().name.startswith("qemu-system")
    return pid


def test_root_in_the_guest_is_the_job_user_on_this_machine(lab: VirtualLab, tmp_path: Path) -> None:
    """It reads no file of root, and what it writes to a shared folder is the job user's."""
    private = tmp_path / "private"
    private.touch(mode=0o600)
    os.chown(tmp_path, lab.spec.uid, lab.spec.gid)
    tmp_path.chmod(0o755)
    lab.add_bind(tmp_path)
    for file in ("/etc/shadow", private):
        answer = lab.run(["cat", str(file)], user="root")
        assert (answer.returncode, answer.stdout) == (1, "")
        assert "Permission denied" in answer.stderr
    script = f"cp /bin/true {tmp_path}/own; chown 0:0 {tmp_path}/own; chmod 4755 {tmp_path}/own"
    lab.run(["sh", "-c", script], user="root", node="n1")
    assert (tmp_path / "own").stat().st_uid == lab.spec.uid
    status = Path(f"/proc/{qemu_of(lab)}/status").read_text()
    ids = "\t".join([str(lab.spec.uid)] * 4)
    assert f"\nUid:\t{ids}\n" in status
    assert "\nCapEff:\t0000000000000000\n" in status
    trace = ["cat", f"/proc/{qemu_of(lab)}/maps"]
    done = subprocess.run(trace, capture_output=True, user=lab.spec.uid, group=lab.spec.gid)
    assert b"Permission denied" in done.stderr


def test_other_users_of_this_machine_run_nothing(lab: VirtualLab) -> None:
    program = lab.paths.run / "bin" / "squeue"
    # Below /root, for example, nobody else reaches the program that talks to the broker.
    closed = any(not folder.stat().st_mode & 0o001 for folder in CHECKOUT.parents)
    for uid, gid, reason in (
        (65534, 65534, "Permission denied"),
        (65534, lab.spec.gid, "Permission denied" if closed else "user 65534 may run no commands"),
        (lab.spec.uid, lab.spec.gid, "Permission denied" if closed else ""),
    ):
        done = subprocess.run(
            [program, "--version"], user=uid, group=gid, extra_groups=[], cwd="/", text=True,
            capture_output=True, stdin=subprocess.DEVNULL, timeout=600,
        )  # fmt: skip
        assert bool(done.returncode) == bool(reason)
        assert reason in done.stderr
    if not closed:
        as_root = str(lab.socket), ["id"], {"PATH": "/bin"}, "/", "root", "login"
        code = f"from seatrial_lab.virtual.client import *\nserve(Connection(*{as_root!r}), False)"
        done = subprocess.run(
            [sys.executable, "-c", code], user=lab.spec.uid, group=lab.spec.gid, extra_groups=[],
            cwd="/", text=True, capture_output=True, timeout=600,
        )  # fmt: skip
        assert "may run commands as sailor, not as root" in done.stderr
    assert set(lab.node_states()) == set(IDLE)  # the broker goes on


def test_other_settings_are_refused_while_it_is_up(lab: VirtualLab) -> None:
    with pytest.raises(LabError, match=r"other settings \(memory_MiB\): seatrial lab down --"):
        VirtualLab(dataclasses.replace(lab.virtual_spec, memory_MiB=1024)).up()
    assert lab.up() is False


@pytest.mark.nightly(reason="a virtual lab whose guest dies, started three times")
def test_a_lab_whose_guest_died_is_started_anew(tmp_path: Path, lab: VirtualLab) -> None:
    spec = dataclasses.replace(lab.spec, instance=f"{lab.spec.instance}_again")
    other = VirtualLab(dataclasses.replace(lab.virtual_spec, lab=spec))
    try:
        other.up()
        pids = [processes.read_pid_file(other.paths.run / name) for name in PID_FILES]
        assert None not in pids
        assert processes_of(other.paths.run) == pids
        processes.kill_all(pids[:1])  # QEMU outlives its broker, and is ended before the next one
        assert not processes.wait_gone(pids[:1], 100)
        assert processes_of(other.paths.run) == pids[1:]
        assert not other.is_up()
        assert other.up() is True
        assert not processes.is_alive(pids[1])
        for pid in processes_of(other.paths.run):
            subprocess.run(["kill", "-9", str(pid)], check=False)
        deadline = time.monotonic() + 100
        while processes_of(other.paths.run) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not other.is_up()
        assert other.up() is True
        assert other.node_states() == IDLE
    finally:
        assert end(other.spec.instance) is True
    assert not other.paths.run.exists()
    assert not other.paths.data.exists()
    assert not processes_of(other.paths.run)
