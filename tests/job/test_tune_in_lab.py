"""An ordinary user of a real Slurm tunes programs that are not benchmarks, under real profiles."""

from __future__ import annotations

import json
import re
import sys

import pytest

from labs import own_name, running
from seatrial.stack import STACK_FOLDER, load_stack, stack_folder
from seatrial_lab.native.site import spec_for_site
from trial_support import SMALL, make_site
from two_ranks import compile_exchange

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.stack, pytest.mark.timeout(1200)]
#: the messages take more than a second at this rate, and a tenth of it without
SLOW = {"networks": ["test"], "transports": ["tcp", "openmpi-tcp"], "egress_rate": "100 Mbit/s"}
BYTES, ROUNDS = 1 << 20, 20


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune")
    folder.chmod(0o755)
    return make_site(
        folder / "lab-tune", {"tcp_stream": SMALL["tcp_stream"]},
        transports={"openmpi-tcp": {}}, nic_profiles={"slow": {"description": "slow", **SLOW}},
    )  # fmt: skip


@pytest.fixture(scope="module")
def lab(site):
    with running(spec_for_site(str(site), own_name("tune"))) as lab:
        yield lab


@pytest.fixture
def tune(lab, site):
    """``tune(folder, *words)``: the command as the lab's user; its exit code, output and answer."""

    def run(folder, *words):
        command = [sys.executable, "-m", "seatrial", "job", "tune", "--site", str(site)]
        done = lab.run(
            [*command, "--output", folder, *words], timeout=300,
            env={STACK_FOLDER: str(stack_folder())},
        )  # fmt: skip
        said = done.stdout + done.stderr
        file = lab.paths.home / folder / "answer.json"
        assert file.exists(), said
        return done.returncode, said, json.loads(file.read_text())

    return run


def connected(run):
    """Whether both ranks of a run came out of MPI_Init.

    The distribution's Open MPI ends a rank there now and then (docs/dev/stack.md), and a tune does
    not count such a run.
    """
    return len(re.findall("^rank . connected$", (run / "output.begin").read_text(), re.M)) == 2


def test_a_program_that_communicates_has_a_best_profile(lab, tune):
    program = compile_exchange(lab, f"module use {load_stack().prefix}/modules", "openmpi-tcp")
    words = ("-n", "1", "--run-limit", "60", "--", program, str(BYTES), str(ROUNDS))
    for folder in ("moves", "moves-2", "moves-3"):
        code, said, answer = tune(folder, *words)
        runs = lab.paths.home / folder / "runs"
        for run in answer["not_counted"]:
            assert run["fault"] == "program", said
            assert not connected(runs / f"{run['run']:04}"), said
        if not any(candidate["out"] for candidate in answer["candidates"]):
            break  # out by crashes in MPI_Init alone: only another tune tells more
    assert (code, answer["answer"]) == (0, "best"), said
    assert answer["use"] == {"profile": "default", "transport": "openmpi-tcp"}
    rows = {candidate["profile"]: candidate for candidate in answer["candidates"]}
    assert rows["default"]["runs"] == rows["slow"]["runs"] == 5
    assert rows["slow"]["median"] > 1.2 * rows["default"]["median"]
    assert rows["slow"]["first_is_better_by"]["low"] > 1
    best = "best(?: where it succeeds)?: use NIC profile default with transport openmpi-tcp"
    assert re.search(f"^{best}", said, re.M), said
    assert any("in 10 of 10 counted runs most bytes" in one for one in answer["proven"]), said
    assert any("libmpi.so.40" in one for one in answer["proven"])
    folder = runs.parent
    assert {file.stat().st_uid for file in folder.rglob("*")} == {lab.spec.uid}
    assert any("rank 0 of 2" in file.read_text() for file in runs.glob("*/output.begin"))
    assert lab.run(["squeue", "--noheader"]).stdout == ""


@pytest.mark.nightly(reason="a study of a program that does not communicate")
def test_a_program_that_does_not_communicate_has_none(tune):
    program = ["python3", "-c", "import time; time.sleep(0.3); print('a b')"]
    words = ("--time-limit", "0.6", "--run-limit", "60", "--", *program)
    for folder in ("rests", "rests-2", "rests-3"):  # 5 % may say "best": test_tune_study.py
        code, said, answer = tune(folder, *words)
        if answer["answer"] != "best":
            break
    assert answer["answer"] in ("no difference", "measure more"), said
    assert code == (0 if answer["answer"] == "no difference" else 2)
    assert any("the path in" in one for one in answer["not_proven"]), said
    assert {candidate["transport"] for candidate in answer["candidates"]} == {"tcp"}
