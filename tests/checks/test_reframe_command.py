"""Plain ReFrame on any host: what it lists, and what it says where something is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from reframe.core.schedulers import slurm
from reframe.utility import osext

from seatrial.base.paths import CHECKS
from seatrial.checks import configuration
from seatrial.stack import wire_up
from trial_support import SMALL, make_site

REFRAME = Path(sys.prefix) / "bin" / "reframe"

Reframe = Callable[..., tuple[int, str]]


@pytest.fixture
def reframe(tmp_path: Path) -> Reframe:
    """Run ReFrame with the settings of a site that has three benchmarks."""
    benchmarks = {
        "netpipe": SMALL["netpipe"],
        "hpl": {**SMALL["hpl"], "blas": ["openblas", "blis"]},
        "npb": {"kernels": ["is", "ep"], "problem_class": "S"},
    }
    return on(make_site(tmp_path / "site", benchmarks, transports={"mpich-ofi": {}}), tmp_path)


def on(site: Path, folder: Path) -> Reframe:
    """Run ReFrame with the settings of ``site``, in ``folder``."""

    def run(*options: str, settings: Path | None = None) -> tuple[int, str]:
        done = subprocess.run(
            [REFRAME, "-C", settings or site.with_name("settings.py"), "-c", CHECKS, "--nocolor",
             *options],
            cwd=folder, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert "Traceback" not in said
        return done.returncode, said

    return run


@pytest.mark.stack
def test_list_names_benchmarks_of_the_site_with_their_variants(reframe: Reframe) -> None:
    code, said = reframe("-l")
    assert code == 0
    assert "WARNING" not in said
    assert sorted(re.findall(r"^- (.*) /\w+$", said, re.MULTILINE)) == [
        "HPL %repeat=0 %num_nodes=2 %blas=openblas+blis",
        "NPB %repeat=0 %num_nodes=2 %kernels=is.S+ep.S",
        "NetPIPE %repeat=0 %num_nodes=2",
    ]


@pytest.mark.stack
def test_test_cases_name_profile_and_transport(reframe: Reframe) -> None:
    code, said = reframe("-lC", "-n", "NetPIPE")
    assert code == 0
    assert re.findall(r"@(site\S+)$", said, re.MULTILINE) == [
        "site:compute+mpich-ofi", "site:compute+tcp",
    ]  # fmt: skip


@pytest.mark.stack
@pytest.mark.parametrize(
    ("tag", "checks"),
    [("acceptance", "HPL NPB NetPIPE"), ("nightly", "NPB NetPIPE"), ("production", "NetPIPE"),
     ("maintenance", "HPL NetPIPE")],
)  # fmt: skip
def test_tags(reframe: Reframe, tag: str, checks: str) -> None:
    _, said = reframe("-l", "--tag", f"^{tag}$")
    assert sorted(re.findall(r"^- (\w+)", said, re.MULTILINE)) == checks.split()


@pytest.mark.stack
def test_dry_run_writes_the_job_script(reframe: Reframe, tmp_path: Path) -> None:
    options = ("--dry-run", "-n", "NetPIPE", "-p", "mpich-ofi", "--system=site:compute")
    code, said = reframe(*options, "--prefix", str(tmp_path / "run"))
    assert (code, "Ran 1/1 test case" in said) == (0, True), said
    (script,) = (tmp_path / "run").rglob("rfm_job.sh")
    assert "-u 1024" in script.read_text()


@pytest.mark.stack
@pytest.mark.parametrize("own", [{}, {"SLURM_PMIX_FENCE": "tree"}])
def test_steps_on_a_part_of_the_nodes_have_no_variables_of_pmix(
    tmp_path: Path, own: dict[str, str]
) -> None:
    """Of such steps some hang. What the site sets by itself stays."""
    pairs = {"mpi_pairs": {"networks": ["test"], "pairs": [1], "pairs_within": [1]}}
    site = make_site(tmp_path / "site", pairs, transports={"openmpi-tcp": {"env": own}})
    options = ("--dry-run", "-n", "MPIPairs", "-p", "openmpi-tcp", "--system=site:compute")
    code, said = on(site, tmp_path)(*options, "--prefix", str(tmp_path / "run"))
    assert code == 0, said
    (script,) = (tmp_path / "run").rglob("rfm_job.sh")
    lines = script.read_text().splitlines()
    unset = [name for name in wire_up.VARIABLES if name not in own]
    for line in lines:
        if line.startswith("seatrial_step"):
            expected = unset if "--nodes=1" in line else []
            assert re.findall(r"-u (\w+)", line) == expected, line
    assert sum("--nodes=1" in line for line in lines) == 1
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho slurm 24.11.5\n")
    scontrol.chmod(0o755)
    of_site = [line for line in lines if line.startswith("export SLURM_PMIX")]
    first = lines.index("case $(scontrol --version) in")
    of_wire_up = lines[first : lines.index("esac", first) + 1]
    settings = "\n".join([*of_site, *of_wire_up, "echo $SLURM_PMIX_FENCE"])
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", settings], env=env, text=True, capture_output=True)
    assert done.stdout == own.get("SLURM_PMIX_FENCE", "ring") + "\n"


@pytest.mark.stack
def test_settings_of_a_benchmark_can_be_replaced(reframe: Reframe, tmp_path: Path) -> None:
    options = ("--dry-run", "-n", "NetPIPE", "-p", "mpich-ofi", "--system=site:compute")
    changed = ("-S", "NetPIPE.settings={max_bytes: 64, repetitions: 7}", "-S", "time_limit=7m")
    code, said = reframe(*options, *changed, "--prefix", str(tmp_path / "run"))
    assert code == 0, said
    (script,) = (tmp_path / "run").rglob("rfm_job.sh")
    assert "-u 64 -p 0 -n 7 " in script.read_text()
    assert "--time=0:7:0" in script.read_text()


@pytest.mark.stack
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            "{max_bytes: many}",
            "max_bytes: 'many' is not a size (write a whole number of bytes, or for example 64 KiB",
        ),
        ("{max_byte: 64}", "max_byte: unknown field (did you mean 'max_bytes'?)"),
        (
            "{max_byte: 64, repetitions: -1}",
            (
                "repetitions: must be greater than or equal to 1, found -1 (write for example "
                "'repetitions: 1'); max_byte: unknown field (did you mean 'max_bytes'?)"
            ),
        ),
        ("[64]", "expected a mapping, found a list"),
        ("{max_bytes: 64, max_bytes: 65}", "max_bytes: given twice, first on line 1"),
        ("{max_bytes", "not valid YAML: while parsing a flow mapping"),
    ],
)
def test_wrong_settings(reframe: Reframe, settings: str, message: str) -> None:
    """The field, what is wrong with it, and what would be right, as for a site's file."""
    code, said = reframe(
        "--dry-run", "-n", "NetPIPE", "-p", "mpich-ofi", "-S", f"NetPIPE.settings={settings}"
    )
    assert code == 1
    said = " ".join(said.split())
    assert f"-S NetPIPE.settings={settings}: {message}" in said
    assert "pydantic" not in said


def test_configuration_without_a_site(reframe: Reframe, tmp_path: Path) -> None:
    """No traceback, but the option that is missing."""
    settings = tmp_path / "other.py"
    settings.write_text(
        "site_configuration = {'systems': [{'name': 'other', 'hostnames': ['.*'], 'partitions': "
        "[{'name': 'p', 'scheduler': 'local', 'launcher': 'local', 'environs': ['builtin']}]}]}"
    )
    _, said = reframe("-l", settings=settings)
    assert "reframe -C site-configs/<site>/settings.py" in said
    assert "Found 0 check(s)" in said


@pytest.mark.parametrize(
    ("states", "ended"),
    [
        ("RESIZING,COMPLETED", True),
        ("RESIZING,FAILED", True),
        ("RESIZING,RUNNING", False),
        ("RESIZING", False),
        ("COMPLETED", True),
        ("RUNNING", False),
        (None, False),
    ],
)
def test_reframe_knows_the_end_of_a_job_that_lost_a_node(states, ended):
    assert configuration.job_has_ended(states) is ended
    assert slurm.slurm_state_completed is configuration.job_has_ended


TIMED_OUT = "slurm_load_jobs error: Socket timed out on send/recv operation"
INVALID = "slurm_load_jobs error: Invalid job id specified"


class Squeue(slurm.SqueueJobScheduler):
    """Without ReFrame's runtime."""

    def __init__(self):
        self._squeue, self._cancel_reasons = "squeue", []

    def log(self, *_, **__):
        pass

    _cancel_if_pending_too_long = log


class Polled:
    jobid, submit_time, is_cancelling, _state = "7", 0, False, "PENDING"

    @property
    def state(self) -> str:
        return self._state


@pytest.mark.parametrize(
    ("answers", "state"),
    [
        ([(0, "7|RUNNING|n1|None\n", "")], "RUNNING"),
        ([(1, "", TIMED_OUT), (1, "", TIMED_OUT)], "PENDING"),
        ([(1, "", TIMED_OUT), (0, "7\n", "")], "PENDING"),
        ([(1, "", TIMED_OUT), (0, "", "")], "COMPLETED"),
        ([(1, "", TIMED_OUT), (1, "", f"{INVALID}\n{TIMED_OUT}")], "PENDING"),
        ([(1, "", TIMED_OUT), (1, "", INVALID)], "COMPLETED"),
        ([(1, "", INVALID), (1, "", INVALID)], "COMPLETED"),
        ([(0, "", ""), (0, "", "")], "COMPLETED"),
        ([(0, "", ""), (1, "", TIMED_OUT)], "PENDING"),
    ],
)
def test_a_job_has_ended_only_if_squeue_answers(monkeypatch, answers, state):
    scheduler = Squeue()
    left = list(answers)

    def run(command: str, **_) -> subprocess.CompletedProcess:
        return subprocess.CompletedProcess(command, *left.pop(0))

    monkeypatch.setattr(osext, "run_command", run)
    job = Polled()
    scheduler.poll(job, None)
    assert job._state == state
    assert left == []
