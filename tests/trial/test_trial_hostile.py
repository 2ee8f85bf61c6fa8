"""A whole trial whose job user attacks root by what it leaves in the trial's folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from reframe.core.exceptions import ConfigError

from plan_support import bare_stack
from seatrial.base.errors import LabError
from seatrial.checks.configuration import settings
from seatrial.plan.model import PLAN_FILE, write
from seatrial.plan.resolve import resolve
from seatrial.results import manifest
from seatrial.results.folder import RESULTS_FILE, Results, read_results
from seatrial.site.load import load_site
from seatrial.trial import reframe_run, run
from seatrial.trial.machine import ThisMachine
from seatrial.trial.run import run_trial
from seatrial_lab.common.owner import give, take
from trial_folder import judge
from trial_support import Silent, make_site

pytestmark = pytest.mark.root
JOB_USER, OTHER = 2000, 65534
#: stands for ReFrame; its output names what it could do although the folder is root's
ATTACK = """
import json, os, sys
foreign = sys.argv[1]
here = os.getcwd()

def tries(what, deed):
    try:
        deed()
    except OSError:
        return
    print("DONE:", what, flush=True)

names = "allocations .reserve .lock jumbo.lease results.partial cases SHA256SUMS".split()
for name in [*names, f".results.jsonl.{os.getppid()}.draft"]:
    tries(name, lambda: os.symlink(foreign, name))
    tries(name, lambda: os.unlink(name))
for name in "results.jsonl config stage output reframe.out reframe-report.json .lock".split():
    tries(f"rename {name}", lambda: os.rename(name, f"stage/{name}"))
    tries(f"rename to {name}", lambda: os.rename("reframe.log", name))
for name in "results.jsonl config/site/plan.json config/site/part.json reframe.out .lock".split():
    tries(f"write {name}", lambda: open(name, "a"))

stage = "stage/site/compute/tcp"
os.makedirs(f"{stage}/fifo")
os.mkfifo(f"{stage}/fifo/evidence.json")
os.makedirs(f"{stage}/device")
os.symlink("/dev/zero", f"{stage}/device/evidence.json")
os.makedirs(f"{stage}/links/deep")
os.symlink(f"{foreign}/letter", f"{stage}/links/run.py")
os.symlink(foreign, f"{stage}/links/deep/folder")
os.symlink(foreign, f"{stage}/linked")
os.symlink(foreign, "stage/tree")
os.symlink(foreign, "output/tree")
os.makedirs("output/deep")
os.chdir("output/deep")
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
os.chdir(here)
open(f"{stage}/links/program", "w").close()
os.chmod(f"{stage}/links/program", 0o6777)
folders = [foreign, f"{here}/../foreign", f"{here}/stage/../../../foreign", f"{here}/stage/tree",
           f"{here}/stage/tree/inner", f"{here}/{stage}/linked", f"{here}/{stage}/fifo",
           f"{here}/{stage}/device", f"{here}/{stage}/links", here, f"{here}/config", 5, None]
cases = [
    {"benchmark": "tcp_stream", "environ": "tcp", "num_nodes": 2, "repeat": number, "jobid": "1",
     "result": "pass", "stagedir": folder}
    for number, folder in enumerate(folders)
]
with open("reframe-report.json", "w") as report:
    json.dump({"runs": [{"testcases": cases}]}, report)
print("attacked")
"""


class Lab(ThisMachine):
    """Commands run as the job user, as in a lab; Slurm does not answer."""

    def popen(self, argv: list[str], env: dict[str, str], cwd: Path) -> subprocess.Popen:
        return subprocess.Popen(
            argv, cwd=cwd, stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True, user=JOB_USER, group=JOB_USER,
            extra_groups=[],
        )  # fmt: skip

    @property
    def uid(self) -> int:
        return JOB_USER

    def run(self, argv: list[str]) -> subprocess.CompletedProcess:
        return subprocess.CompletedProcess(argv, 1, "", "no Slurm")

    def give(self, path: Path) -> None:
        give(path, JOB_USER, JOB_USER)

    def take(self, folder: Path) -> dict[str, int]:
        return take(folder)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm is asked once for the trial's remaining jobs."""
    monkeypatch.setattr(run, "SILENT_S", 0)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user passes; pytest's own is closed to others."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_root_follows_nothing_of_the_job_user(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = place / "trials" / "foreign"
    (foreign / "inner").mkdir(parents=True)
    (foreign / "letter").write_text("kept")
    for path in (foreign, *foreign.rglob("*")):
        os.chown(path, OTHER, OTHER)
    before = {path: path.stat() for path in (foreign, *foreign.rglob("*"))}
    command = [sys.executable, "-I", "-c", ATTACK, str(foreign)]
    monkeypatch.setattr(reframe_run, "reframe_command", lambda *_: command)
    file = make_site(place / "site", {"tcp_stream": {"seconds": 1}}, repeats=13)
    plan = resolve(load_site(file), bare_stack())
    results = run_trial(plan, file, Lab(), Silent(), place / "trials")

    said = (results.folder / "reframe.out").read_text()
    assert said == "attacked\n"
    for path, status in before.items():
        now = path.stat()
        assert (now.st_uid, now.st_mode, now.st_ino) == (OTHER, status.st_mode, status.st_ino)
    assert sorted(path.name for path in foreign.iterdir()) == ["inner", "letter"]
    assert {run.outcome for run in results.runs} == {"error"}
    left = [results.folder, *results.folder.rglob("*")]
    assert {path.lstat().st_uid for path in left} == {0}
    assert not [path for path in left if not (path.is_dir() or path.is_file()) or path.is_symlink()]
    assert not [path for path in left if path.stat().st_mode & 0o6022]
    assert (results.folder / "cases").is_dir()
    assert manifest.check(results.folder) == []


#: stands for ReFrame; leaves the evidence of a case
LEAVES = """
import json, os
stage = "stage/site/compute/tcp/tcp_stream"
os.makedirs(stage)
with open(f"{stage}/output", "w") as output:
    output.write("as it was")
case = {"benchmark": "tcp_stream", "environ": "tcp", "num_nodes": 2, "repeat": 0, "jobid": "1",
        "result": "pass", "stagedir": os.path.abspath(stage)}
with open("reframe-report.json", "w") as report:
    json.dump({"runs": [{"testcases": [case]}]}, report)
"""


class Outlived(Lab):
    """A process of the job user has a file open after the jobs, and extends it to ``size``."""

    def __init__(self, size: int, why_not: str = "") -> None:
        self.size, self.why_not = size, why_not
        self.held = -1

    def take(self, folder: Path) -> dict[str, int]:
        if not (folder / RESULTS_FILE).exists():
            self.held = os.open(folder / "output", os.O_WRONLY)
            return take(folder)
        try:
            if self.why_not:
                raise OSError(self.why_not)
            return take(folder)
        finally:  # after the folder was taken for the last time
            os.ftruncate(self.held, self.size)
            os.close(self.held)


@pytest.fixture
def try_outlived(place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Results]:
    def call(machine: Outlived, progress: Silent) -> Results:
        command = [sys.executable, "-I", "-c", LEAVES]
        monkeypatch.setattr(reframe_run, "reframe_command", lambda *_: command)
        file = make_site(place / "site", {"tcp_stream": {"seconds": 1}})
        plan = resolve(load_site(file), bare_stack())
        return run_trial(plan, file, machine, progress, place / "trials")

    return call


@pytest.mark.parametrize("size", [10, 1 << 40])
@pytest.mark.timeout(120)
def test_evidence_that_still_grows_is_removed(
    try_outlived: Callable[..., Results], size: int
) -> None:
    """By a byte, or by a hole that costs its owner nothing and takes hours to hash."""
    progress = Silent()
    results = try_outlived(Outlived(size), progress)
    (evidence,) = (results.folder / "cases").glob("*/r0")
    assert not (evidence / "output").exists()
    (note,) = [note for note in results.trial.notes if "grew after the jobs" in note]
    assert f"'{evidence.relative_to(results.folder)}/output'" in note
    assert f"warning: {note}" in progress.lines
    assert read_results(results.folder).trial.notes == results.trial.notes
    assert manifest.check(results.folder) == []


@pytest.mark.timeout(120)
def test_a_signal_while_evidence_is_hashed_ends_the_trial(
    place: Path, try_outlived: Callable[..., Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes are not known: files could not be taken. The results are kept."""
    sums_of = manifest.sums_of

    def hashing(*args: object) -> dict[str, str]:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        return sums_of(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(manifest, "sums_of", hashing)
        with pytest.raises(LabError, match="their manifest is not: interrupted by SIGTERM"):
            try_outlived(Outlived(1 << 40, "a disk that fails"), Silent())
    (folder,) = (place / "trials").glob("site-*")
    assert not manifest.has_manifest(folder)
    assert read_results(folder).verdict
    for file in folder.glob("cases/*/r0/output"):
        file.unlink()
    judge(folder)
    assert manifest.check(folder) == []


def test_each_user_of_reframe_has_a_database(place: Path) -> None:
    """What a lab's job user puts into its database is no database of root."""
    trials = place / "trials"
    trials.mkdir()
    own = reframe_run.database_folder(trials, ThisMachine())
    lab = reframe_run.database_folder(trials, Lab())
    assert (own.name, own.stat().st_uid) == ("reframe", 0)
    assert (lab.name, lab.stat().st_uid) == (f"reframe-{JOB_USER}", JOB_USER)
    for folder, uid in ((own, 0), (lab, JOB_USER)):
        (folder / "site.sqlite").touch()
        os.chown(folder / "site.sqlite", uid, uid)
    assert reframe_run.database_folder(trials, ThisMachine()) == own
    assert reframe_run.database_folder(trials, Lab()) == lab


@pytest.mark.parametrize(
    "what", ["folder", "link to a folder", "database", "link", "dead link", "second name", "fifo"]
)
def test_a_database_of_somebody_else_is_refused(place: Path, what: str) -> None:
    trials, file = place / "trials", make_site(place / "site", {"tcp_stream": {"seconds": 1}})
    database = trials / "reframe"
    database.mkdir(parents=True)
    entry = database / ".db.lock"
    if what == "folder":
        os.chown(database, JOB_USER, JOB_USER)
    elif what == "link to a folder":
        database.rename(place / "other")
        database.symlink_to(place / "other")
    elif what == "database":
        entry.touch()
        os.chown(entry, JOB_USER, JOB_USER)
    elif what == "second name":
        (place / "other").touch()
        entry.hardlink_to(place / "other")
    elif what == "fifo":
        os.mkfifo(entry)
    else:
        entry.symlink_to(place / "site" if what == "link" else place / "other")
    plan = resolve(load_site(file), bare_stack())
    path = re.escape(str(database if "folder" in what else entry))
    with pytest.raises(LabError, match=f"^{path} is not .*uid 0: move"):
        run_trial(plan, file, ThisMachine(), Silent(), trials)
    assert list(trials.iterdir()) == [database]
    (config := trials / "site-1" / "config" / "site").mkdir(parents=True)
    write(plan, config / PLAN_FILE)
    with pytest.raises(ConfigError, match=f"{path} is not"):
        settings(config / PLAN_FILE)


#: writes lines that a reader of numbers or of UTF-8 cannot read, and one that it can
OUTPUT = r"""
import os
nines = b"9" * 5000
for line in 3 * [
    b"[       OK ] (" + nines + b"/1) first", b"[       OK ] (1/" + nines + b") second",
    b"\xff\xfe", b"x" * 300_000, b"[       OK ] (1/1) last",
]:
    os.write(1, line + b"\n")
"""


def test_output_of_the_job_user_never_ends_its_reader(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe that nobody reads blocks ReFrame."""
    command = [sys.executable, "-I", "-c", OUTPUT]
    monkeypatch.setattr(reframe_run, "reframe_command", lambda *_: command)
    file = make_site(place / "site", {"tcp_stream": {"seconds": 1}})
    lines: list[str] = []

    class Failing(Silent):
        def line(self, word: str, done: int, total: int, name: str) -> None:
            lines.append(name)
            raise ValueError("the display fails")

    plan = resolve(load_site(file), bare_stack())
    results = run_trial(plan, file, ThisMachine(), Failing(), place / "trials")
    assert lines.count("last") == 3
    assert (results.folder / "reframe.out").read_text().count("last") == 3


#: stands for ReFrame; leaves figures
FIGURES = LEAVES.replace(
    '    output.write("as it was")',
    """    output.write("as it was")
metric = {"metric": "bandwidth_MB_s", "value": 1.0, "unit": "MB/s", "better": "higher"}
run = {"case": {"check": "tcp_stream", "transport": "tcp", "nodes": 2}, "outcome": "ran",
       "metrics": [metric]}
with open(f"{stage}/evidence.json", "w") as evidence:
    json.dump([run], evidence)""",
)


@pytest.mark.usefixtures("hangup_ends")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.timeout(120)
def test_a_signal_ends_the_judging_and_the_runs_are_kept(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What a job user wrote decides how long the judging takes."""

    def judging(*_: object) -> None:
        os.kill(os.getpid(), signal.Signals[name])
        threading.Event().wait(60)

    command = [sys.executable, "-I", "-c", FIGURES]
    monkeypatch.setattr(reframe_run, "reframe_command", lambda *_: command)
    file = make_site(place / "site", {"tcp_stream": {"seconds": 1}})
    plan = resolve(load_site(file), bare_stack())
    word = "Ctrl-C" if name == "SIGINT" else name
    with monkeypatch.context() as patch:
        patch.setattr("seatrial.trial.run.judge", judging)
        with pytest.raises(LabError, match=f"interrupted by {word} while.*its 1 run are in|its 1"):
            run_trial(plan, file, Lab(), Silent(), place / "trials")
    (folder,) = (place / "trials").glob("site-*")
    results = read_results(folder)
    assert [run.outcome for run in results.runs] == ["ran"]
    assert results.verdict is None
    assert {path.lstat().st_uid for path in (folder, *folder.rglob("*"))} == {0}
    judge(folder)
    assert read_results(folder).verdict
