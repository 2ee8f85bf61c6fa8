"""The command line of a trial as a user meets it: exit codes, sentences, signals."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest
import yaml
from rich.console import Console

from plan_support import bare_stack
from seatrial.base.paths import CHECKOUT
from seatrial.cli import screen, trial_folders
from seatrial.cli import trial as trial_commands
from seatrial.cli.trial import Bar
from seatrial.history.index import INDEX_FILE
from seatrial.plan.resolve import resolve
from seatrial.results.folder import read_results, write_results
from seatrial.results.record import Case, Metric, Run, Trial, Verdict
from seatrial.site.load import load_site
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.native.engine import Lab
from trial_support import SMALL, false_stack, make_site, traces, until

INSTANCE = f"tt{os.getpid()}_cli"
real = [pytest.mark.root, pytest.mark.slurm, pytest.mark.stack]


def command(*words) -> list[str]:
    return [sys.executable, "-m", "seatrial", *(str(word) for word in words)]


def call(*words, **env) -> subprocess.CompletedProcess:
    return subprocess.run(
        command(*words), capture_output=True, text=True, timeout=1000, cwd="/",
        env={**os.environ, "SEATRIAL_LAB_INSTANCE": INSTANCE, **env}, check=False,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def own_instance(monkeypatch):
    monkeypatch.setenv("SEATRIAL_LAB_INSTANCE", INSTANCE)


@pytest.fixture
def site(tmp_path):
    """A site that tries NetPIPE over plain sockets and over one MPI."""
    return make_site(
        tmp_path / "site",
        {"netpipe": {**SMALL["netpipe"], "time_limit_s": 60}},
        "schema: 1\nrequirements:\n  - {select: {}, metric: latency_us, basis: contract,"
        " source: t, at_most: 1000000, unit: us}\n"
        'informative:\n  - {select: {}, metric: "*", reason: t}\n',
        transports={"mpich-ofi": {}},
    )


@pytest.fixture
def no_lab():
    """Fails where a test's lab is still there afterwards, and removes it."""
    yield
    left = traces(INSTANCE)
    Lab(LabSpec(instance=INSTANCE)).down()
    assert left == []


def bad_site(folder, old, new):
    """The small site with a piece of its text replaced."""
    file = make_site(folder / "site", {"netpipe": SMALL["netpipe"]})
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    return file


@pytest.mark.parametrize(
    ("old", "new", "where", "what"),
    [
        ("role: test", "role: tset", "networks.test.role", "tset"),
        ("max_bytes: 1024", "max_bytes: 1 kB", "benchmarks.netpipe.max_bytes", "not a size"),
        ("nodes:", "nodse:", "nodse", "did you mean"),
        ("name: site", "name: other", "name", "the folder's name"),
        ("schema: 1", "schema: [1", "", "site.yaml:"),
    ],
)
def test_wrong_site_file(here, tmp_path, old, new, where, what):
    file = bad_site(tmp_path, old, new)
    code, _, said = here("trial", "--site", file)
    assert code == 3
    assert str(file) + ":" in said
    assert where in said
    assert what in said


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--site", "lba"], "did you mean 'lab'?"),
        (["--profile", "lowlatency"], "known here: bulk, default"),
        (["--check", "netpip"], "did you mean 'netpipe'?"),
        (["--transport", "openmpi-tpc"], "did you mean 'openmpi-tcp'?"),
        (["--repeats", "0"], "--repeats"),
        (["--check", "links", "--transport", "mpich-ofi"], "nothing to run"),
        (["--no-such-option"], "--no-such-option"),
        (["--output", "/proc/1/here"], "/proc/1/here"),
    ],
)
@pytest.mark.stack
@pytest.mark.root
def test_wrong_words(here, words, what):
    code, _, said = here("trial", *words)
    assert code == 3, said
    assert what in said
    assert traces(INSTANCE) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("NPB %repeat=1 %num_nodes=2 /3c21beec @site:compute_jumbo+mpich-ofi",
         "NPB (is.S, ep.S), mpich-ofi, jumbo, 2 nodes, repeat 2"),
        ("TCPStream %repeat=0 %num_nodes=2 /c17dc637 @site:compute+tcp",
         "TCPStream, tcp, default, 2 nodes, repeat 1"),
        ("another text", "another text"),
    ],
)  # fmt: skip
def test_progress_is_in_the_words_of_the_plan(tmp_path, capsys, name, text):
    """ReFrame's partition and class are the plan's profile and check; a test has its variants."""
    benchmarks = {"npb": {"kernels": ["is", "ep"], "problem_class": "S"}, "tcp_stream": {}}
    file = make_site(
        tmp_path / "site", benchmarks, transports={"mpich-ofi": {}}, profiles=["default", "jumbo"],
        nic_profiles={"jumbo": {"description": "j", "networks": ["test"], "mtu": 9000}},
    )  # fmt: skip
    plan = resolve(load_site(file), bare_stack())
    bar = Bar(plan)
    bar.line("RUN", 0, 0, name)
    bar.line("OK", 3, 12, name)
    bar.line("FAIL", 4, 12, name)
    failed = "not passed at first; the verdict at the end says why"
    assert capsys.readouterr().out.splitlines() == [
        f"  3/12 {text}: ran",
        f"  4/12 {text}: {failed}",
    ]


def test_what_reframe_prints_is_no_command_of_the_terminal(tmp_path, monkeypatch):
    """The job user of a lab writes it, with escape sequences and the markup of Rich."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=200)
    for module in (trial_commands, screen):
        monkeypatch.setattr(module, "out", console)
    file = make_site(tmp_path / "site", {"tcp_stream": {}}, transports={"mpich-ofi": {}})
    name = "\x1b]0;owned\x07\x9b[/b][red]"
    with Bar(resolve(load_site(file), bare_stack())) as bar:
        bar.line("RUN", 0, 0, name)
        bar.line("OK", 1, 2, name)
        bar.bar.refresh()
        bar.said(f"warning: {name}")
    shown = stream.getvalue()
    assert "\x1b]0;" not in shown
    assert "\x07" not in shown
    assert "\x9b" not in shown
    assert "warning: " in shown
    assert shown.count("[/b][red]") >= 2


@pytest.mark.parametrize("verb", ["report", "judge", "baseline"])
def test_folder_that_is_no_trial(here, tmp_path, verb):
    code, _, said = here(verb, tmp_path)
    assert code == 3
    assert "no such results file" in said


def test_damaged_results(here, tmp_path):
    (tmp_path / "results.jsonl").write_text('{"record": "trial"')
    code, _, said = here("judge", tmp_path)
    assert code == 3
    assert "results.jsonl:1" in said


def test_a_trial_that_is_judged_again_keeps_its_end(here, tmp_path):
    started, ended = datetime(2026, 8, 1, tzinfo=UTC), datetime(2026, 8, 2, tzinfo=UTC)
    case = Case(check="netpipe", transport="tcp", nodes=2)
    figure = Metric(metric="latency_us", value=30.0, unit="us", better="lower")
    run = Run(case=case, outcome="ran", metrics=[figure])
    trial = Trial(trial="t1", site="lab", started=started, seatrial="0", cases=[case])
    verdict = Verdict(verdict="incomplete", counts={}, findings=[], ended=ended)
    write_results(tmp_path / "results.jsonl", [trial, run, verdict])
    requirements = tmp_path / "requirements.yaml"
    requirements.write_text(
        "schema: 1\nrequirements:\n  - {metric: latency_us, basis: contract, source: tender, "
        "at_most: 40, unit: us}\n"
    )
    assert here("judge", tmp_path, "--requirements", requirements)[0] == 0
    judged = read_results(tmp_path).verdict
    assert (judged.verdict, judged.ended) == ("accept", ended)


def test_the_site_is_checked_before_anything_is_built(here, tmp_path, monkeypatch):
    monkeypatch.setenv("SEATRIAL_STACK", str(tmp_path))  # no stack yet
    monkeypatch.setattr(
        "seatrial.cli.trial.provision_lab", lambda *_, **__: pytest.fail("it was built first")
    )
    file = make_site(
        tmp_path / "site", {"netpipe": SMALL["netpipe"]}, transports={"mpich-sock": {}}
    )
    code, _, said = here("trial", "--site", file)
    assert code == 3
    assert "has no transport 'mpich-sock'" in said


def test_no_stack_is_exit_code_4(here, site, tmp_path, monkeypatch):
    monkeypatch.setenv("SEATRIAL_STACK", str(tmp_path))
    code, _, said = here("trial", "--site", site)
    assert code == 4
    assert "there is no stack" in said
    assert traces(INSTANCE) == []


@pytest.mark.parametrize(
    ("sinfo", "what"),
    [
        (
            "echo 'sinfo: error: Unable to contact slurm controller' >&2; exit 1",
            "Slurm does not answer: sinfo: error: Unable to contact slurm controller",
        ),
        ("echo debug", "Slurm has no partition compute"),
        (None, "sinfo is not installed here: use a login node"),
        (
            "echo 'sinfo: fatal: Could not establish a configuration source' >&2; exit 1",
            "Slurm does not answer: this machine has no slurm.conf, and no DNS record names",
        ),
        (
            "echo compute",
            "Slurm's accounting does not answer: Slurm accounting storage is disabled (without",
        ),
    ],
)
def test_a_cluster_whose_slurm_does_not_answer_is_exit_code_4(
    here, site, tmp_path, monkeypatch, sinfo, what
):
    """Nothing is written then."""
    text = yaml.safe_load(site.read_text())
    del text["lab"]
    site.write_text(yaml.safe_dump(text))
    monkeypatch.setenv("SEATRIAL_STACK", str(false_stack(tmp_path / "stack", {})))
    programs = tmp_path / "programs"
    programs.mkdir()
    if sinfo:
        (programs / "sinfo").write_text(f"#!/bin/sh\n{sinfo}\n")
        (programs / "sinfo").chmod(0o755)
    disabled = "#!/bin/sh\necho Slurm accounting storage is disabled >&2\nexit 1\n"
    (programs / "sacct").write_text(disabled)
    (programs / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    code, _, said = here("trial", "--site", site, "--output", tmp_path / "out")
    assert code == 4
    assert what in " ".join(said.split())
    assert not (tmp_path / "out").exists()


class TestRealTrials:
    pytestmark = real

    def test_accepted(self, site, tmp_path, no_lab):
        done = call("trial", "--site", site, "--output", tmp_path / "out")
        assert done.returncode == 0, done.stdout + done.stderr
        (folder,) = (tmp_path / "out").glob("*-2*-*")
        assert read_results(folder).verdict.verdict == "accept"
        assert (folder / "report.html").exists()
        assert (folder / "junit.xml").exists()
        assert folder.name in (tmp_path / "out" / "history.html").read_text()
        with sqlite3.connect(tmp_path / "out" / INDEX_FILE) as index:
            assert index.execute("SELECT name, verdict FROM trial").fetchall() == [
                (folder.name, "accept")
            ]
        index.close()

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_signal(self, site, tmp_path, no_lab, number):
        """The MPI case is done when the signal comes, the one over plain sockets hangs."""
        stack = false_stack(site.parent / "stack", {"tcp": "sleep 100\n"})
        output = tmp_path / "out"
        process = subprocess.Popen(
            command("trial", "--site", site, "--output", output),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/",
            env={**os.environ, "SEATRIAL_LAB_INSTANCE": INSTANCE, "SEATRIAL_STACK": str(stack)},
        )  # fmt: skip
        try:
            until(
                lambda: list(output.glob("*/stage/**/mpich-ofi/*/evidence.json")), 60, "a case done"
            )
            until(lambda: list(output.glob("*/stage/**/tcp/*/netpipe.out")), 60, "a step")
            process.send_signal(number)
            time.sleep(0.3)
            process.send_signal(number)  # an impatient user
            said, _ = process.communicate(timeout=600)
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
        assert process.returncode == 2, said
        assert "Traceback" not in said
        (folder,) = output.glob("*-2*-*")
        lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
        assert lines[-1]["record"] == "verdict"
        assert lines[-1]["verdict"] == "incomplete"
        runs = {line["case"]["transport"]: line for line in lines if line["record"] == "run"}
        assert runs["mpich-ofi"]["outcome"] == "ran", runs["mpich-ofi"]["reason"]
        assert runs["mpich-ofi"]["metrics"]
        assert runs["tcp"]["outcome"] == "error"
        assert runs["tcp"]["job"]["state"] == "CANCELLED"
        word = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
        assert f"interrupted by {word}" in runs["tcp"]["reason"]

    def test_reframe_that_cannot_start(self, site, tmp_path, no_lab):
        """A verdict is written all the same: incomplete, never accepted."""
        # The plan is whole when the trial begins, and is not when ReFrame reads it.
        script = (
            "import seatrial.trial.run as run\n"
            "begin = run.reserve\n"
            "def damage(folder):\n"
            "    begin(folder)\n"
            "    (plan,) = folder.rglob('plan.json')\n"
            "    plan.write_text('{')\n"
            "run.reserve = damage\n"
            "from seatrial.cli import main\n"
            "main()\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, "trial", "--site", site, "--output", tmp_path / "out"],
            capture_output=True, text=True, timeout=600, check=False,
            env={**os.environ, "SEATRIAL_LAB_INSTANCE": INSTANCE},
        )  # fmt: skip
        assert done.returncode == 4, done.stdout + done.stderr
        assert "ReFrame did not run" in done.stderr
        (folder,) = (tmp_path / "out").glob("*-2*-*")
        results = read_results(folder)
        assert results.verdict.verdict == "incomplete"
        assert all("ReFrame did not run" in run.reason for run in results.runs)


def test_the_newest_trial_is_not_in_the_folder_of_reframes_database(tmp_path, monkeypatch):
    """To which the job user of a lab writes."""
    monkeypatch.setattr(trial_folders, "TRIALS", tmp_path)
    for number, name in enumerate(
        ("lab-20261101-000000", "lab-20261102-000000", "reframe", "reframe-2000")
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.jsonl").touch()
        os.utime(tmp_path / name / "results.jsonl", (number, number))
    assert trial_folders.newest(None) == tmp_path / "lab-20261102-000000"


def test_launcher_needs_python_with_venv(tmp_path):
    """What the launcher says where it cannot make the virtual environment."""
    false = tmp_path / "python"
    false.write_text("#!/bin/sh\nexit 1\n")
    false.chmod(0o755)
    for name in ("readlink", "dirname", "cmp", "id"):  # and no apt-get
        (tmp_path / name).symlink_to(shutil.which(name))
    done = subprocess.run(
        ["/bin/sh", CHECKOUT / "seatrial", "--version"], capture_output=True, text=True,
        env={"PATH": str(tmp_path), "SEATRIAL_VENV": str(tmp_path / "venv"),
             "SEATRIAL_PYTHON": str(false)},
        check=False,
    )  # fmt: skip
    assert done.returncode == 4
    assert done.stderr.startswith("seatrial: ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("kind", ["another checkout's", "no virtual environment"])
def test_launcher_leaves_a_foreign_folder_as_it_is(tmp_path, kind):
    venv = tmp_path / "venv"
    if kind == "another checkout's":
        link = venv / "lib" / "python3.11" / "site-packages" / "seatrial-src.pth"
        link.parent.mkdir(parents=True)
        (venv / "pyvenv.cfg").touch()
        (tmp_path / "other" / "src").mkdir(parents=True)
        link.write_text(f"{tmp_path}/other/src\n")
        message = f"{venv} runs the source in {tmp_path}/other/src: set SEATRIAL_VENV"
    else:
        venv.mkdir()
        (venv / "letter").touch()
        message = f"{venv} is not a virtual environment, and its files would be lost"
    before = sorted(venv.rglob("*"))
    done = subprocess.run(
        ["/bin/sh", CHECKOUT / "seatrial", "--version"], capture_output=True, text=True,
        env={**os.environ, "SEATRIAL_VENV": str(venv)}, check=False,
    )  # fmt: skip
    assert done.returncode == 4
    assert message in done.stderr
    assert sorted(venv.rglob("*")) == before
