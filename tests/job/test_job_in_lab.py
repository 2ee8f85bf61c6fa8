"""Rendered scripts and a real Slurm: it takes all of them, and programs really run by most.

The lab's nodes have the features of the site's profiles and no Prolog: what a profile does to a
NIC is not tested here.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from job_support import CASES, HERE, harbour, rendered
from typer.testing import CliRunner

from seatrial.base.errors import LabError
from seatrial.cli import app
from seatrial.job.request import Surroundings
from seatrial.job.template import LAUNCHERS
from seatrial.stack import load_stack

pytestmark = [pytest.mark.root, pytest.mark.slurm]
NAMES = [
    "two words", "it's", 'say "aye"', "back\\slash \\", "#no comment", "$(reboot) `id` $HOME", "*",
    "-N9", "é%x", "\\'", "a=b;c|d&",
]  # fmt: skip


@pytest.fixture
def lab(plain_lab):
    return plain_lab


@pytest.mark.parametrize("case", CASES)
def test_slurm_would_start_it(lab, case):
    done = lab.run(["sbatch", "--test-only"], stdin=rendered(**CASES[case]), timeout=600)
    assert done.returncode == 0, done.stderr
    assert re.search(r"Job \d+ to start at", done.stderr)


def test_slurm_would_not_start_what_no_node_can(lab):
    text = rendered("npb").replace("nic_low_latency", "nic_unheard_of")
    done = lab.run(["sbatch", "--test-only"], stdin=text, timeout=600)
    assert done.returncode
    assert "feature" in done.stderr


def test_sbatch_reads_directives_as_they_were_given(lab):
    jobs = []
    for name in NAMES:
        text = rendered("npb", values={"job_name": name})
        done = lab.run(["sbatch", "--parsable", "--hold"], stdin=text, timeout=600)
        assert done.returncode == 0, (name, done.stderr)
        jobs.append(done.stdout.strip())
    wanted = ["squeue", "--noheader", "--jobs", ",".join(jobs), "--sort=i", "--format=%j|%D|%k"]
    found = lab.run(wanted, check=True, timeout=600).stdout.splitlines()
    lab.run(["scancel", *jobs], check=True, timeout=600)
    assert found == [f"{name}|2|harbour's own" for name in NAMES]


def test_submit_goes_to_the_login_node(lab, tmp_path):
    text = (HERE / "harbour" / "site.yaml").read_text() + "lab: {engine: native}\n"
    text = re.sub(r"(?m)^transports:\n(  .*\n)+", "transports:\n  openmpi-tcp: {}\n", text)
    text = re.sub(r"(?m)^jobs: .*\n", "", text)

    def submit(partition):
        file = tmp_path / partition / "harbour" / "site.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(text.replace("compute:", f"{partition}:"))
        words = ["job", "submit", "npb", "--site", str(file), "--instance", lab.spec.instance]
        words += ["--test-only", "--set", "program=./is", "--set", "module=none"]
        return CliRunner().invoke(app, words, catch_exceptions=False)

    done = submit("compute")
    assert done.exit_code == 0
    assert "to start at" in done.output.splitlines()[-1]
    with pytest.raises(LabError, match=r"refused the job.*partition"):
        submit("nowhere")


# -- programs that really run


def application(family: str, ranks: int = 4) -> dict[str, str]:
    """NPB IS as if it were a user's own program: the ranks sort 2^20 keys."""
    return {"program": f"{{bench}}/{family}/is", "arguments": f"{ranks} W"}


#: Open MPI through Slurm's PMIx with two ranks on a node ends by SIGSEGV now and then on a busy
#: machine (docs/dev/stack.md)
ONE_RANK_A_NODE = {"ranks_per_node": 1, "values": application("openmpi", 2)}


SORTED = r"Verification +=  +SUCCESSFUL"
RUNS = {
    **{
        f"{mpi}-{launcher}": (
            {"name": "mpi", "mpi": mpi, "launcher": launcher,
             "values": application("openmpi" if mpi == "openmpi" else "mpich")},
            SORTED,
        )
        for mpi, launchers in LAUNCHERS.items()
        for launcher in launchers
    },
    "openmpi-srun": (
        {"name": "mpi", "mpi": "openmpi", "launcher": "srun", **ONE_RANK_A_NODE},
        SORTED,
    ),
    "hybrid": (
        {"name": "hybrid", "values": {"program": "bash -c 'echo $OMP_NUM_THREADS threads'"}},
        r"(2 threads\n){2}",
    ),
    "hpl": (
        {"name": "hpl", "values": {"blas": "openblas", "memory_fraction": "0.001"}},
        r"HPL_Tflops=[0-9.e-]*[1-9][\s\S]*HPL_N=384\nHPL_NB=192\nHPL_nprow=1\nHPL_npcol=2",
    ),
    "hpl-mpiexec": (
        {"name": "hpl", "transport": "intelmpi-tcp", "launcher": "mpiexec",
         "values": {"blas": "openblas", "memory_fraction": "0.001"}},
        r"HPL_Tflops=[0-9.e-]*[1-9]",
    ),
    "npb": ({"name": "npb", "values": {"problem_class": "W"}}, SORTED),
    "osu": ({"name": "osu", "values": {"max_bytes": "64"}}, r"\n +64 +[1-9][\d.]*\n"),
    "all-pairs": (
        {"name": "all-pairs", "values": {"arguments": "-m 4096 -i 20 -x 2", "pair_seconds": "20"}},
        r"pair\tbw\n(n\d-n\d\t[\d.]+\n){6}",
    ),
    "multirail": (
        {"name": "multirail", **ONE_RANK_A_NODE},
        SORTED,
    ),
    "multirail-per-rank": (
        {"name": "multirail", "transport": "mpich-ofi",
         "values": {**application("mpich")}},
        SORTED,
    ),
}  # fmt: skip


def two_rails():
    """The site with both interfaces of the lab's nodes as test networks."""
    site = harbour()
    rail1 = site.networks["rail1"]
    site.networks = {"rail1": rail1, "rail2": rail1.model_copy(update={"interface": "eth0"})}
    return site


def crossed(lab, interface):
    """Bytes in and out of an interface of n1 so far."""
    text = lab.run(["cat", "/proc/net/dev"], user="root", node="n1").stdout
    words = re.search(rf"{interface}: *(.*)", text)[1].split()
    return int(words[0]) + int(words[8])


def wait(lab, job):
    """Wait for the end of a job; its state."""
    for _ in range(600):
        text = lab.run(["scontrol", "-o", "show", "job", job], check=True, timeout=600).stdout
        state = re.search(r"JobState=(\w+)", text)[1]
        if state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
            return state
        time.sleep(0.1)
    raise AssertionError(f"job {job} does not end: {text}")


@pytest.mark.stack
@pytest.mark.parametrize("case", RUNS)
def test_program_runs(lab, case):
    options, result = RUNS[case]
    stack = load_stack()
    bench = f"{stack.prefix}/bench"
    modules = dict.fromkeys(stack.names(), f"{stack.prefix}/modules")
    values = {
        name: value.replace("{bench}", bench) for name, value in options.get("values", {}).items()
    }
    values["log"] = f"{case}.out"
    around = Surroundings(two_rails(), stack, modules)
    text = rendered(**{**options, "around": around, "values": values})
    before = {interface: crossed(lab, interface) for interface in ("eth1", "eth0")}
    done = lab.run(["sbatch", "--parsable"], stdin=text, timeout=600)
    assert done.returncode == 0, done.stderr
    state = wait(lab, done.stdout.strip())
    said = (lab.paths.home / f"{case}.out").read_text()
    said += "".join(f"{file}:\n{file.read_text()}" for file in lab.paths.home.glob("pairs-*/*.err"))
    assert state == "COMPLETED", said[-3000:]
    assert re.search(result, said), said[-3000:]
    moved = {name: crossed(lab, name) - count for name, count in before.items()}
    if result == SORTED:  # the keys are 4 MiB and are exchanged ten times
        assert moved["eth1"] > 5_000_000
        rails = case.startswith("multirail")
        assert (moved["eth0"] > 5_000_000) == rails, moved
    if case == "all-pairs":
        folder = next(Path(lab.paths.home).glob("pairs-*"))
        assert len(list(folder.glob("n?-n?.out"))) == 6
