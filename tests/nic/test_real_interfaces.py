"""The node side on real interfaces, in a network namespace of the test's own: veth and tap."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inside_namespace import difference
from place import COMMAND, Place, made_place

from campaigns import rounds
from seatrial.base.paths import CHECKOUT
from seatrial.nic.node import owner

pytestmark = [pytest.mark.root]

INSIDE = Path(__file__).with_name("inside_namespace.py")
SEED = int(os.environ.get("SEATRIAL_SEED", time.time_ns() % 10**6))
CASES, KILLS = rounds(8, 60), rounds(6, 40)
PROFILES: dict[str, Any] = {
    "default": {},
    "many": {
        "eth1": {"mtu": 9000, "txqueuelen": 3000, "channels.rx": 2, "channels.tx": 2,
                 "feature.tcp-segmentation-offload": "off", "feature.generic-receive-offload": "on",
                 "rps_cpus": "all", "sysfs.gro_flush_timeout": 20000, "egress_bit_s": 10**9},
        "tap0": {"coalesce.rx-frames": 16, "mtu": 4000, "rps_cpus": "0"},
    },
    "other": {"eth1": {"mtu": 6000}, "tap0": {"coalesce.rx-frames": 4}},
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    setup = (
        # Addresses that are being looked for elsewhere show a mark that goes by itself.
        "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad; ip link set lo up;"
        "ip tuntap add dev tap0 mode tap multi_queue;"
        "ip link add eth1 numrxqueues 4 numtxqueues 4 type veth"
        " peer name peer1 numrxqueues 4 numtxqueues 4; ip address add 10.77.0.1/24 dev eth1;"
        "ethtool -L eth1 rx 1 tx 1; for i in eth1 tap0 peer1; do ip link set $i up; done;"
        "ip route add 10.78.0.0/24 via 10.77.0.2;"
        "until ip -6 address show dev eth1 | grep -q fe80; do sleep 0.01; done"
    )
    with made_place(tmp_path, PROFILES, setup) as made:
        yield made


def test_random_settings_there_and_back(place: Place, tmp_path: Path) -> None:
    answer = subprocess.run(
        place.inside(sys.executable, str(INSIDE), str(tmp_path), str(SEED), str(CASES)),
        capture_output=True, text=True, check=False, timeout=550,
    )  # fmt: skip
    assert answer.returncode == 0, f"seed {SEED}: {answer.stderr}"
    found = [json.loads(line) for line in answer.stdout.splitlines()]
    assert len(found) == CASES
    wrong = [one for one in found if one["error"]]
    assert not wrong, f"seed {SEED}: {wrong[0]}"
    assert sum(one["changed"] for one in found) > CASES // 5, "hardly anything was set"
    refused = [one["refused"] for one in found if one["refused"]]
    assert refused
    assert all("all settings were restored" in one for one in refused)


def test_killed_at_random_moments(place: Place) -> None:
    """SIGKILL of the Prolog, alone or with its slurmd; then what comes next puts all back."""
    chance = random.Random(SEED)
    before = place.look()
    hits = 0
    for number in itertools.count():
        if number >= KILLS and hits >= KILLS // 3:
            break
        assert number < 5 * KILLS, "hardly any had begun"
        job = 4_000_000_000 + number
        process = subprocess.Popen(
            place.command("prolog", job=job, profile="many", slurmd=True),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            if number % 2:
                wait_for_journal(place, process)
                time.sleep(chance.uniform(0, 0.15))
            else:
                time.sleep(chance.uniform(0, 0.4))
        finally:
            together = chance.random() < 0.5
            kill(process, together)
        hits += place.store.has_journal()
        # What the killed one had started may still be at work, and is waited for.
        what = chance.choice(["recover", "epilog", "next"])
        if what == "recover":
            answer = place.run("recover")
        elif what == "epilog":
            answer = place.run("epilog", job=job, profile="many", slurmd=True)
        else:
            answer = place.run("prolog", job=job + 500, profile="other", slurmd=True)
            assert answer.returncode == 0, f"seed {SEED}: {answer.stderr}"
            assert "mtu 6000" in place.look()
            answer = place.run("epilog", job=job + 500, profile="other", slurmd=True)
        assert answer.returncode == 0, f"seed {SEED}, {number}, {what}: {answer.stderr}"
        after = place.look()
        assert after == before, f"seed {SEED}, {number}, {what}: {difference(before, after)}"
        assert place.store.journal() is None


def wait_for_journal(place: Place, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 200
    while not place.store.has_journal() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def kill(process: subprocess.Popen[bytes], together: bool) -> None:
    """The whole group, as when a node's daemon and all it started die; or slurmd survives a bit."""
    with contextlib.suppress(ProcessLookupError):
        if together:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            for child in children(process.pid):
                os.kill(child, signal.SIGKILL)
            process.wait(timeout=600)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=600)


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


UNIT = CHECKOUT / "slurm-templates" / "seatrial-nic-recover.service.j2"


def test_the_capabilities_of_the_unit_are_enough(place: Place) -> None:
    """The unit before slurmd restores all, and sees which program a process of Slurm runs."""
    (names,) = re.findall(r"^CapabilityBoundingSet=(.*)$", UNIT.read_text(), re.MULTILINE)
    kept = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in names.split())
    limited = ["setpriv", f"--bounding-set=-all,{kept}", "--inh-caps=-all", "--no-new-privs"]
    words = place.command("recover", "--boot")
    at = words.index(COMMAND[0])
    recover = [*words[:at], *limited, *words[at:]]
    before = place.look()
    job = 4_000_000_001
    assert place.run("prolog", job=job, profile="many", slurmd=True).returncode == 0
    # The job's step has all capabilities: a process with fewer reads its program by CAP_SYS_PTRACE.
    program = place.folder / "slurmstepd"
    shutil.copy("/bin/sleep", program)
    title = f"slurmstepd: [{job}.extern]"
    step = subprocess.Popen(["bash", "-c", 'exec -a "$0" "$1" 600', title, str(program)])
    try:
        while not owner.has_steps(str(job)):
            time.sleep(0.01)
        answer = subprocess.run(recover, capture_output=True, text=True, timeout=600)
        assert "mtu 9000" in place.look(), answer
    finally:
        step.kill()
        step.wait()
    answer = subprocess.run(recover, capture_output=True, text=True, timeout=600)
    assert answer.returncode == 0, answer.stderr
    assert place.look() == before


def test_a_whole_job_with_an_empty_environment(place: Place) -> None:
    before = place.look()
    assert place.run("recover").returncode == 0
    answer = place.begin("many")
    assert answer.returncode == 0, answer.stderr
    during = place.look()
    for line in ("mtu 9000", "rx-frames: 16", "tcp-segmentation-offload: off", "rate 1Gbit"):
        assert line in during
    assert place.run("verify").returncode == 0
    assert place.run("diff", "--profile", "many").returncode == 0
    shown = json.loads(place.run("show", "--json").stdout)
    assert shown["in_force"]["job"] == "4000000001"
    assert shown["interfaces"]["eth1"]["egress_bit_s"] == 10**9
    assert shown["interfaces"]["tap0"]["coalesce.rx-usecs"] is None
    assert place.end("many").returncode == 0
    assert place.look() == before
    assert place.run("verify", "--profile", "many").returncode == 1


def test_the_lines_of_a_dry_run_do_what_is_done(place: Place) -> None:
    """Given to a shell, they make of the interfaces what the command makes of them."""
    before = place.look()
    answer = place.run("apply", "--profile", "many", "--dry-run")
    assert answer.returncode == 0, answer.stderr
    assert place.look() == before
    # The command first: it can also take it back.
    assert place.begin("many").returncode == 0
    done = place.look()
    assert place.end("many").returncode == 0
    assert place.look() == before
    subprocess.run(place.inside("env", "-i", "sh", "-ec", answer.stdout), check=True)
    by_hand = place.look()
    handle = [line for line in by_hand.splitlines() if "qdisc tbf" in line]
    assert handle
    assert without_handles(by_hand) == without_handles(done)


def without_handles(text: str) -> list[str]:
    """Numbers that the kernel gives a queueing discipline are no setting."""
    return [" ".join(w for w in line.split() if not w.endswith(":") or "qdisc" not in line)
            for line in text.splitlines()]  # fmt: skip


@pytest.mark.parametrize(
    "how",
    [
        "ip link set eth1 down; ip address flush dev eth1",
        "ip link set eth1 down",
        "ip -4 address flush dev eth1; ip address add 169.254.3.4/16 dev eth1",
        "ip link set eth1 down; ip link set eth1 address 02:00:00:00:00:77",
        "ip address add 10.79.0.1/24 dev eth1; ip route add 10.80.0.0/16 via 10.79.0.2",
    ],
)
def test_addresses_and_routes_come_back(place: Place, how: str) -> None:
    answer = subprocess.run(
        place.inside(sys.executable, str(INSIDE), "link", how),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == ""


def test_the_nodes_own_interfaces_are_refused(place: Place) -> None:
    """Guards look at what the namespace really has."""
    subprocess.run(place.inside("ip", "route", "add", "default", "via", "10.77.0.2"), check=True)
    before = place.look()
    answer = place.begin("many")
    assert answer.returncode == 2
    assert "eth1 carries the node's default route" in answer.stderr
    assert place.look() == before
