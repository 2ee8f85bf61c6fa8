"""Run one trial of a site: ReFrame through Slurm, then evidence, judgement and report.

Whatever happens on the way (Ctrl-C, a dead node, a full disk), what was measured is kept,
what was not is named, and the lab is left as it was found.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from ruamel.yaml import YAML

from seatrial.errors import InputError, LabError, SeatrialError
from seatrial.results.judge import conclude, judge
from seatrial.results.record import RESULTS_FILE, Case, Results, Trial, write_results
from seatrial.results.requirements import load_requirements
from seatrial.site.load import load_site
from seatrial.site.model import Site
from seatrial.site.reframe import CHECKS, REPEATS, partition_name
from seatrial.stack import STACK_FOLDER, Stack, load_stack
from seatrial.trial.collect import REPORT_FILE, collect
from seatrial.trial.host import host_facts, version_with_commit
from seatrial.trial.plan import Selection, not_offered, planned, select

SETTINGS = '''"""ReFrame's configuration of this trial."""

from pathlib import Path

from seatrial.site.reframe import settings

site_configuration = settings(Path(__file__).with_name("site.yaml"))
'''
PROGRESS = re.compile(r"\[ +(OK|FAIL|ABORT|SKIP|RUN) +\] *(?:\( *(\d+)/(\d+)\))? *(.*)")
STOP_S = 30  # how long ReFrame may take to cancel its jobs after Ctrl-C
POLL_S = 0.2  # how soon a signal or the trial's time limit is noticed
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RESERVE_FILE = ".reserve"
RESERVE_B = 1 << 20  # kept free, so that a disk that fills up still takes the results


class Machine(Protocol):
    """Where commands of a trial run: the login node of a lab, or this machine."""

    def popen(self, argv: list[str], env: dict[str, str], cwd: Path) -> subprocess.Popen: ...
    def run(self, argv: list[str]) -> subprocess.CompletedProcess: ...
    def own(self, folder: Path) -> None: ...
    def disown(self, folder: Path) -> None: ...
    def notes(self) -> list[str]: ...


class ThisMachine:
    """The login node of a real cluster: commands run as they are, as the user."""

    def popen(self, argv: list[str], env: dict[str, str], cwd: Path) -> subprocess.Popen:
        return subprocess.Popen(
            argv, env={**os.environ, **env}, cwd=cwd, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def run(self, argv: list[str]) -> subprocess.CompletedProcess:
        return subprocess.run(argv, capture_output=True, text=True, timeout=60)

    def own(self, folder: Path) -> None: ...

    def disown(self, folder: Path) -> None: ...

    def notes(self) -> list[str]:
        return []


class Progress(Protocol):
    """Told of what happens, for the terminal."""

    def started(self, folder: Path, cases: int) -> None: ...
    def line(self, word: str, done: int, total: int, name: str) -> None: ...
    def said(self, text: str) -> None: ...


@dataclass
class Outcome:
    """How ReFrame ended. ``why_not`` is a sentence on why the rest did not run, or empty.

    ``broken`` says that ReFrame ran nothing at all.
    """

    code: int | None = None
    broken: bool = False
    why_not: str = ""
    tail: list[str] = field(default_factory=list)


def run_trial(
    site_file: Path,
    selection: Selection,
    machine: Machine,
    progress: Progress,
    trials: Path,
) -> Results:
    """Run the trial and write its folder below ``trials``; returns what was found.

    Raises InputError for a wrong site or selection, LabError where ReFrame cannot start or the
    results cannot be written.
    """
    site, stack, cases = prepare(site_file, selection)
    requirements = load_requirements(site_file.with_name("requirements.yaml"))
    left_out = list(not_offered(site, stack))
    try:
        folder = new_folder(trials, site.name)
        config = write_config(folder, site, site_file)
        trial = Trial(
            trial=folder.name,
            site=site.name,
            description=site.description,
            started=datetime.now(UTC),
            seatrial=version_with_commit(),
            command=["seatrial", *sys.argv[1:]],
            stack=stack.model_dump(include={"source", "id", "distribution", "versions", "origins"}),
            host=host_facts(),
            repeats=site.trial.repeats,
            cases=cases,
            notes=[*left_out, *machine.notes()],
        )
        results = Results(trial=trial, folder=folder)
        write_results(folder / RESULTS_FILE, [trial])
        reserve(folder)
    except OSError as error:
        raise LabError(f"the trial cannot begin: {error}") from None
    names = {
        partition_name(part, profile): profile
        for part in site.partitions
        for profile in site.nic_profiles
    }
    with noted_signals() as signals:
        machine.own(folder)
        progress.started(folder, len(cases) * site.trial.repeats)
        try:
            outcome = run_reframe(site, folder, config, machine, progress, signals)
        finally:
            cancel_leftovers(folder, machine)
            machine.disown(folder)
        (folder / RESERVE_FILE).unlink(missing_ok=True)
        results.runs = collect(
            folder, cases, site.trial.repeats,
            lambda part: names.get(part, part), machine.run, outcome.why_not,
        )  # fmt: skip
        finish(results, requirements, folder)
    if outcome.broken:
        raise LabError("ReFrame did not run:\n" + "\n".join(outcome.tail[-15:]))
    return results


def prepare(site_file: Path, selection: Selection) -> tuple[Site, Stack, list[Case]]:
    """The site as it is to be tried, the stack, and the cases.

    Raises InputError where there is none, LabError where there is no stack.
    """
    site = select(load_site(site_file), selection)
    stack = load_stack(site)
    cases = planned(site, stack)
    if not cases:
        nothing = "nothing to run: the selection, the site and the stack share no case"
        raise InputError("; ".join([nothing, *not_offered(site, stack)]))
    return site, stack, cases


def finish(results: Results, requirements, folder: Path) -> None:
    """Judge, conclude and write; also used to judge a trial anew."""
    results.judgements = judge(results.trial, results.runs, requirements)
    results.verdict = conclude(results.trial, results.runs, results.judgements, requirements)
    lines = [results.trial, *results.runs, *results.judgements, results.verdict]
    try:
        write_results(folder / RESULTS_FILE, lines)
    except OSError as error:
        raise LabError(f"the verdict ({results.verdict.verdict}) cannot be kept: {error}") from None


def reserve(folder: Path) -> None:
    """Take a little of the disk now, to be given back when the results are written."""
    with (folder / RESERVE_FILE).open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, RESERVE_B)


def new_folder(trials: Path, site: str) -> Path:
    """A folder of its own for this trial; never one that exists."""
    trials.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    for number in range(100):
        folder = trials / (f"{site}-{stamp}" + (f"-{number}" if number else ""))
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise LabError(f"{trials}: cannot make a folder for this trial")


def write_config(folder: Path, site: Site, site_file: Path) -> Path:
    """The site as it is tried, beside its requirements, in the trial's folder: provenance, and
    what the checks read."""
    config = folder / "config" / site.name
    config.mkdir(parents=True)
    yaml = YAML()
    with (config / "site.yaml").open("w") as stream:
        yaml.dump(site.model_dump(mode="json", by_alias=True, exclude_none=True), stream)
    shutil.copy(site_file.with_name("requirements.yaml"), config / "requirements.yaml")
    (config / "settings.py").write_text(SETTINGS)
    return config / "settings.py"


def reframe_command(site: Site, folder: Path, config: Path, checks: list[str]) -> list[str]:
    """ReFrame's command line for a trial: all options that matter are visible here."""
    command = [
        str(Path(sys.prefix) / "bin" / "reframe"),
        f"--config-file={config}", f"--system={site.name}", "--exec-policy=async",
        "--keep-stage-files", "--nocolor", f"--report-file={folder / REPORT_FILE}", "--run",
    ]  # fmt: skip
    return command + [f"--checkpath={CHECKS / check}.py" for check in checks]


def database_folder(folder: Path, machine: Machine) -> Path:
    """Where ReFrame keeps its results database: one for all trials, so that they can be compared.

    It stays with the user that jobs run as, for another trial may be writing to it.
    """
    database = folder.parent / "reframe"
    database.mkdir(exist_ok=True)
    machine.own(database)
    return database


def run_reframe(
    site: Site,
    folder: Path,
    config: Path,
    machine: Machine,
    progress: Progress,
    signals: list[str],
) -> Outcome:
    """Run ReFrame to its end, to the trial's time limit, or until ``signals`` holds one."""
    checks = [name for name, options in site.benchmarks if options is not None]
    env = {
        "SEATRIAL_RUN_FOLDER": str(folder),
        "SEATRIAL_DATABASE_FOLDER": str(database_folder(folder, machine)),
        REPEATS: str(site.trial.repeats),
        "RFM_IGNORE_REQNODENOTAVAIL": "1",
    }
    if STACK_FOLDER in os.environ:
        env[STACK_FOLDER] = os.environ[STACK_FOLDER]
    command = reframe_command(site, folder, config, checks)
    process = machine.popen(command, env, folder)
    outcome = Outcome()
    reader = threading.Thread(target=follow, args=(process, progress, outcome, folder), daemon=True)
    reader.start()
    deadline = time.monotonic() + site.trial.time_limit_s
    stopped = False
    while not stopped and outcome.code is None:
        try:
            outcome.code = process.wait(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            if signals:
                outcome.why_not = f"the trial was interrupted by {signals[0]}"
            elif time.monotonic() > deadline:
                outcome.why_not = f"the trial ran into its limit of {site.trial.time_limit_s} s"
            else:
                continue
            stopped = True
            stop(process, progress, outcome.why_not)
    reader.join(timeout=5)
    if outcome.code not in (0, 1, None):
        outcome.why_not = outcome.why_not or (
            f"ReFrame ended with code {outcome.code}: {' | '.join(outcome.tail[-3:])}"
        )
    if not stopped and outcome.code != 0:
        outcome.broken = not any((folder / name).exists() for name in (REPORT_FILE, "stage"))
    if outcome.broken:
        outcome.why_not = outcome.why_not or f"ReFrame did not run: {' | '.join(outcome.tail[-3:])}"
    return outcome


def stop(process: subprocess.Popen, progress: Progress, why: str) -> None:
    """Have ReFrame cancel its jobs and end; end it where it does not."""
    progress.said(f"{why}: cancelling the jobs, keeping what was measured")
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def cancel_leftovers(folder: Path, machine: Machine) -> None:
    """Cancel jobs of this trial that ReFrame left: it was killed, or could not reach Slurm."""
    with contextlib.suppress(OSError, subprocess.SubprocessError, SeatrialError):
        found = machine.run(["squeue", "--me", "--noheader", "--format=%i|%Z"]).stdout
        rows = [line.partition("|") for line in found.splitlines()]
        jobs = [job for job, _, work in rows if Path(work).is_relative_to(folder)]
        if jobs:
            machine.run(["scancel", *jobs])


@contextmanager
def noted_signals() -> Iterator[list[str]]:
    """Note the names of the signals that would end this process, instead of ending it.

    So nothing that is being saved is cut off; who waits looks at the list. Only the main thread
    can do so: in another one the list stays empty.
    """
    noted: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return

    def note(number: int, _: object) -> None:
        noted.append("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(process: subprocess.Popen, progress: Progress, outcome: Outcome, folder: Path) -> None:
    """Read ReFrame's output: keep it, and tell the terminal how far it is."""
    assert process.stdout is not None
    try:
        with (folder / "reframe.out").open("w") as kept:
            for line in process.stdout:
                kept.write(line)
                kept.flush()
                _tell(line, progress, outcome)
    except OSError as error:  # a full disk must not block ReFrame on a full pipe
        progress.said(f"cannot keep ReFrame's output: {error}")
        for line in process.stdout:
            _tell(line, progress, outcome)


def _tell(line: str, progress: Progress, outcome: Outcome) -> None:
    outcome.tail = [*outcome.tail[-30:], line.rstrip()]
    if line.startswith("WARNING: skipping test file"):
        outcome.why_not = line.strip().removeprefix("WARNING: ")
    match = PROGRESS.match(line)
    if match:
        progress.line(match[1], int(match[2] or 0), int(match[3] or 0), match[4])
