"""The Slurm side on the real Slurm of a lab: scripts run, jobs are exclusive, refusals explain."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from slurm_support import HARBOUR
from typer.testing import CliRunner

from seatrial.cli.slurm import app
from seatrial_lab.native import faults
from seatrial_lab.native.engine import Lab

pytestmark = [pytest.mark.root, pytest.mark.slurm]
MTU = ["cat", "/sys/class/net/eth1/mtu"]


def mtu(lab: Lab, node: str) -> str:
    return lab.run(MTU, node=node, check=True).stdout.strip()


def settled(lab: Lab, node: str) -> None:
    """Wait until no job's end is under way on a node."""
    deadline = time.monotonic() + 200
    while lab.node_states()[node] != "idle":
        assert time.monotonic() < deadline, lab.node_states()
        time.sleep(0.05)


@pytest.fixture
def held(lab: Lab) -> Iterator[list[str]]:
    """Jobs to be cancelled after a test."""
    jobs: list[str] = []
    yield jobs
    lab.run(["scancel", *jobs])


def job(lab: Lab, number: str) -> dict[str, str]:
    text = lab.run(["scontrol", "-o", "show", "job", number], check=True).stdout
    return dict(re.findall(r"(\w+)=(\S*)", text))


def test_check_finds_nothing_wrong(lab: Lab) -> None:
    words = ["check", "--site", str(HARBOUR), "--instance", lab.spec.instance]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.stdout
    assert "wrong" not in result.stdout


def test_check_reports_what_is_missing(lab: Lab) -> None:
    def set_features(names: str) -> None:
        both = [f"availablefeatures={names}", f"activefeatures={names}"]
        lab.run(["scontrol", "update", "nodename=n3", *both], user="root", check=True)

    set_features("nic_few")
    try:
        words = ["check", "--site", str(HARBOUR), "--instance", lab.spec.instance]
        result = CliRunner().invoke(app, words)
    finally:
        set_features("nic_default,nic_jumbo")
    assert result.exit_code == 1
    assert "n3 lacks nic_default, nic_jumbo" in result.stdout
    assert "n3 has nic_few" in result.stdout


def test_nodes_have_the_features_of_profiles_that_fit_them(lab: Lab) -> None:
    out = lab.run(["sinfo", "-h", "-N", "-o", "%N %f"], check=True).stdout
    rows = dict(line.split() for line in out.splitlines())
    assert rows == {
        "n1": "nic_default,nic_jumbo,nic_few",
        "n2": "nic_default,nic_jumbo,nic_few",
        "n3": "nic_default,nic_jumbo",
    }


@pytest.mark.parametrize("command", [["srun", "-N2"], ["sbatch", "-W", "-N2", "-o", "out.txt"]])
def test_a_profile_is_on_all_nodes_of_its_job_and_gone_after_it(lab: Lab, command) -> None:
    script = "\n".join(["#!/bin/sh", "srun cat /sys/class/net/eth1/mtu", ""])
    if command[0] == "srun":
        out = lab.run([*command, "-C", "nic_jumbo", *MTU], check=True, timeout=600).stdout
    else:
        lab.run([*command, "-C", "nic_jumbo"], stdin=script, check=True, timeout=600)
        out = (lab.paths.home / "out.txt").read_text()
    assert out.split() == ["9000", "9000"]
    for node in lab.spec.nodes:
        settled(lab, node)
        assert mtu(lab, node) == "1500"


def test_a_job_without_a_profile_has_the_settings_after_boot(lab: Lab) -> None:
    out = lab.run(["srun", "-N3", *MTU], check=True, timeout=600).stdout
    assert out.split() == ["1500"] * 3


def test_a_job_with_a_profile_is_alone(lab: Lab, held: list[str]) -> None:
    submit = ["sbatch", "--parsable", "-H", "-n1", "--wrap", "true"]
    for options, sharing in (
        (["-C", "nic_jumbo"], "NO"),
        (["-C", "nic_jumbo", "--oversubscribe"], "NO"),
        (["-C", "nic_jumbo", "--exclusive=user"], "NO"),
        ([], "OK"),
        (["-C", "nic_default"], "OK"),
    ):
        number = lab.run([*submit, *options], check=True).stdout.strip()
        held.append(number)
        assert job(lab, number)["OverSubscribe"] == sharing, options


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["-C", "nic_jumb"], "did you mean nic_jumbo?"),
        (["-C", "nic_jumbo&nic_few"], "one NIC profile, not nic_jumbo and nic_few"),
        (["-C", "nic_jumbo|nic_few"], "an alternative (|)"),
        (["-C", "[nic_jumbo*1]"], "number of nodes"),
        (["-C", "nic_jumbo&%n%s"], "has '%' in it"),
        (["--prefer", "nic_jumbo"], "--prefer"),
    ],
)
@pytest.mark.parametrize("command", ["sbatch", "srun", "salloc"])
def test_the_user_reads_why_a_job_is_refused(
    lab: Lab, command: str, options: list[str], sentence: str
) -> None:
    what = ["--wrap", "true"] if command == "sbatch" else ["true"]
    out = lab.run([command, *options, *what], timeout=600)
    assert out.returncode != 0
    assert sentence in out.stderr


def test_a_changed_job_follows_the_same_rules(lab: Lab, held: list[str]) -> None:
    submit = ["sbatch", "--parsable", "-H", "--wrap", "true"]
    plain, jumbo = (
        lab.run([*submit, *more], check=True).stdout.strip() for more in ([], ["-C", "nic_jumbo"])
    )
    held += [plain, jumbo]

    def change(number: str, what: str, user: str | None = None) -> bool:
        words = ["scontrol", "update", f"jobid={number}", what]
        return lab.run(words, user=user).returncode == 0

    assert not change(plain, "features=nic_jumb")
    assert change(jumbo, "features=nic_few")
    assert job(lab, jumbo)["OverSubscribe"] == "NO"
    # Only an operator may make a job exclusive that was not: the user submits it again.
    assert not change(plain, "features=nic_few")
    assert change(plain, "features=nic_few", user="root")
    assert job(lab, plain)["OverSubscribe"] == "NO"
    assert change(plain, "oversubscribe=yes", user="root")
    assert job(lab, plain)["OverSubscribe"] == "NO"


def test_each_node_of_a_job_has_an_extern_step(lab: Lab) -> None:
    """By which the node side tells whether a profile's owner lives: PrologFlags=Contain."""
    look = ["pgrep", "-c", "-f", r"slurmstepd: \[[0-9]+\.extern\]"]
    out = lab.run(["srun", "-N2", *look], check=True, timeout=600).stdout
    assert out.split() == ["1", "1"]


def test_a_restarted_node_has_recovered_before_it_takes_jobs(lab: Lab) -> None:
    log = lab.paths.log("n2", "boot")
    before = len(log.read_text().splitlines())
    settled(lab, "n2")
    faults.kill_slurmd(lab, "n2")
    faults.start_slurmd(lab, "n2")
    assert len(log.read_text().splitlines()) == before + 1
    lab.wait_ready(["n2"])
    out = lab.run(["srun", "-w", "n2", "-C", "nic_jumbo", *MTU], check=True, timeout=600)
    assert out.stdout == "9000\n"


def test_a_job_on_a_node_that_lost_power_leaves_nothing(lab: Lab, held: list[str]) -> None:
    settled(lab, "n3")
    submit = ["sbatch", "--parsable", "-w", "n3", "-C", "nic_jumbo", "--wrap", "sleep 100"]
    held.append(lab.run(submit, check=True).stdout.strip())
    deadline = time.monotonic() + 200
    while mtu(lab, "n3") != "9000":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    journal = lab.paths.data / "nic" / "n3" / "journal.json"
    assert journal.exists()
    faults.kill_node(lab, "n3")
    faults.clear(lab, "n3")
    assert mtu(lab, "n3") == "1500"
    assert not journal.exists()
    # Slurm itself would take the job for lost after BatchStartTimeout.
    lab.run(["scancel", *held], check=True)
    settled(lab, "n3")
    out = lab.run(["srun", "-w", "n3", *MTU], check=True, timeout=600)
    assert out.stdout == "1500\n"
