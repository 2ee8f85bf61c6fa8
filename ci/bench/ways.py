"""The same cases run in several ways in one lab: by Seatrial, by plain ReFrame, by sbatch.

Each way is given an empty folder and returns when its last job has ended.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import timeline

from seatrial.base.paths import CHECKOUT
from seatrial.plan.model import PART_FILE, Part, Plan, write
from seatrial.trial.collect import REPORT_FILE
from seatrial.trial.reframe_run import reframe_command, variables
from seatrial.trial.run import write_config
from seatrial_lab.common.paths import LabPaths
from seatrial_lab.native.engine import Lab

OURS = "Seatrial"
CHANGED = "Seatrial, changed"
ASYNC = "plain ReFrame, async"
SERIAL = "plain ReFrame, serial"
LOOP = "sbatch loop"
WAYS = (OURS, CHANGED, ASYNC, SERIAL, LOOP)
SHORT = dict(zip(WAYS, ("seatrial", "changed", "async", "serial", "sbatch"), strict=True))

# What ReFrame does by itself: its poll rates, debug log, eight jobs in the queue, no database.
_PLAIN = """
site_configuration["general"] = [{}]
del site_configuration["logging"], site_configuration["storage"]
for partition in site_configuration["systems"][0]["partitions"]:
    del partition["max_jobs"]
"""
_LOOP = """\
cd "$1" || exit
for folder in job-*; do
    cd "$folder" || exit
    printf '%s\\t%s\\n' "$folder" "$(sbatch --parsable rfm_job.sh)" >>../jobs.tsv
    cd ..
done
while [ -n "$(squeue --noheader --me --format=%i)" ]; do sleep 0.2; done
"""
NODE_FILES = CHECKOUT / "src" / "seatrial" / "checks" / "node"
STOP_S = 30


def controller_log(instance: str) -> Path:
    """A log of the lab's controller with milliseconds, where slurmctld may write it."""
    return LabPaths(instance).data / "slurmctld" / "harness.log"


def slurm_lines(instance: str) -> list[str]:
    """The lines for slurm.conf that make this log."""
    return [f"SlurmctldLogFile={controller_log(instance)}", "LogTimeFormat=iso8601_ms"]


@dataclass
class Bench:
    """A running lab, the plan of a trial, and a folder for the runs."""

    lab: Lab
    plan: Plan
    site_file: Path
    root: Path
    general: dict[str, float]
    runs: int = 0
    scripts: Path | None = None  # a run of Seatrial's, whose job scripts the loop submits

    def run(self, way: str) -> timeline.Measured:
        """Run all cases once. Raises ValueError where no benchmark came to run."""
        self.runs += 1
        folder = self.root / f"run-{self.runs}"
        folder.mkdir()
        env: dict[str, str] = {}
        if way == LOOP:
            command = self._loop(folder)
        else:
            command, env = self._reframe(way, folder)
        begin, end = execute(self.lab, command, env, folder)
        if way == OURS:
            self.scripts = folder
        log = timeline.read_log(controller_log(self.lab.spec.instance))
        return timeline.measure(folder, begin, end, log)

    def _reframe(self, way: str, folder: Path) -> tuple[list[str], dict[str, str]]:
        config = write_config(folder, self.plan, self.site_file)
        if way in (ASYNC, SERIAL):
            config.write_text(config.read_text() + _PLAIN)
        if way == CHANGED:
            line = f'\nsite_configuration["general"][0].update({self.general!r})\n'
            config.write_text(config.read_text() + line)
        checks = list(self.plan.benchmarks)
        command = reframe_command(self.plan, config, checks, folder / REPORT_FILE)
        if way == SERIAL:
            command = [word.replace("policy=async", "policy=serial") for word in command]
        write_part(self.plan, config, folder)
        return command, variables(self.plan)

    def _loop(self, folder: Path) -> list[str]:
        if self.scripts is None:
            raise ValueError("the sbatch loop needs the job scripts of a run of Seatrial")
        scripts = sorted(
            self.scripts.glob("stage/**/rfm_job.sh"), key=lambda path: path.stat().st_mtime_ns
        )
        for number, script in enumerate(scripts):
            job = folder / f"job-{number:03d}"
            shutil.copytree(NODE_FILES, job, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(script, job)
        (folder / "loop.sh").write_text(_LOOP)
        return ["bash", str(folder / "loop.sh"), str(folder)]


def write_part(plan: Plan, config: Path, folder: Path) -> None:
    """Write what a trial gives ReFrame besides its command line."""
    repeats = list(range(plan.repeats))
    now = Part(profile="default", folder=str(folder), database=str(folder), repeats=repeats)
    write(now, config.with_name(PART_FILE))


def start(lab: Lab, command: list[str], env: dict[str, str], folder: Path) -> subprocess.Popen:
    """Start a command on the lab's login node as its user; its output goes to a file."""
    owner = f"{lab.spec.uid}:{lab.spec.gid}"
    subprocess.run(["chown", "-R", owner, str(folder)], check=True)
    name = "loop.out" if command[0] == "bash" else "reframe.out"
    with (folder / name).open("w") as said:
        return lab.popen(
            command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=said,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


def execute(lab: Lab, command: list[str], env: dict[str, str], folder: Path) -> tuple[float, float]:
    """Run a command to its end; returns when it began and ended."""
    begin = time.time()
    process = start(lab, command, env, folder)
    try:
        process.wait()
    except BaseException:
        end_group(process)
        raise
    return begin, time.time()


def end_group(process: subprocess.Popen) -> None:
    """Interrupt a process group, and kill it where it does not end."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back while a lab is taken down."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
