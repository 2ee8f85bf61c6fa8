"""The lab's verbs on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from lab_support import SESSION
from rich.console import Console
from typer.testing import CliRunner

from seatrial.base.errors import InputError, LabError
from seatrial.base.paths import CHECKOUT
from seatrial.cli.lab import app
from seatrial.cli.provision import told_steps
from seatrial_lab.common import paths, state
from seatrial_lab.native.engine import Lab

RUNNER = CliRunner()


def test_status_of_a_lab_that_is_down() -> None:
    result = RUNNER.invoke(app, ["status", "-i", "no_such_lab", "--json"])
    assert result.exit_code == 4
    assert json.loads(result.stdout) == {"instance": "no_such_lab", "state": "down", "hosts": []}


def test_status_names_the_command_that_starts_the_lab_of_the_site() -> None:
    down = ["status", "-i", "no_such_lab"]
    own = RUNNER.invoke(app, [*down, "--site", "lab-virtual"])
    command = "seatrial lab up --site lab-virtual --instance no_such_lab"
    assert f"(start it with: {command})" in own.stdout
    of_lab = RUNNER.invoke(app, down).stdout
    assert "(start it with: seatrial lab up --instance no_such_lab, and --site for" in of_lab


@pytest.mark.parametrize(("command", "code"), [("status", 4), ("down", 0), ("shell", 1)])
def test_a_lab_can_be_ended_though_its_site_has_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, code: int
) -> None:
    """Somebody may edit the site while the lab is up."""
    monkeypatch.setenv("SEATRIAL_SITES", str(tmp_path))
    monkeypatch.delenv("SEATRIAL_LAB_INSTANCE", raising=False)
    (tmp_path / "no-such-lab").mkdir()
    (tmp_path / "no-such-lab" / "site.yaml").write_text("schema: 1\nname: wrong\n")
    result = RUNNER.invoke(app, [command, "--site", "no-such-lab"])
    assert result.exit_code == code
    said = result.output + str(result.exception)
    assert "no_such_lab" in said
    assert "wrong" not in said


def test_status_of_a_lab_that_another_command_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "RUN_ROOT", tmp_path)
    with state.locked("begun"):
        result = RUNNER.invoke(app, ["status", "-i", "begun"])
    assert result.exit_code == 4
    assert result.stdout.splitlines() == ["lab begun: another command starts or ends it now"]


def test_status_of_a_virtual_lab_has_the_card_of_each_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = {"slurm": "slurm 22", "wires": "eth1: cables of 1000 Mbit/s", "python": "3.11.2"}
    node = {"name": "igb1", "alive": True, "slurm_state": "idle", "mgmt_address": "10.0.0.1",
            "test_address": "10.0.1.1", "nics": ["eth1 igb"], "daemons": {}}  # fmt: skip
    given = {"instance": "of_test", "engine": "virtual", "state": "up", "uptime_s": 1.0,
             "versions": versions, "hosts": [node], "faults": []}  # fmt: skip
    monkeypatch.setattr("seatrial_lab.adapter.status", lambda name: given)
    result = RUNNER.invoke(app, ["status", "-i", "of_test", "--site", "lab-virtual"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:2] == ["lab of_test: up for 1 s; slurm 22, Python 3.11.2", versions["wires"]]
    assert "eth1 igb" in result.stdout


def test_the_lab_of_another_checkout_is_ended_only_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SEATRIAL_LAB_INSTANCE", raising=False)
    node = {"name": "n1", "alive": True, "slurm_state": "idle", "mgmt_address": "10.0.0.1",
            "test_address": "10.0.1.1", "daemons": {}}  # fmt: skip
    given = {"instance": "lab", "state": "up", "uptime_s": 1.0, "versions": {}, "hosts": [node],
             "faults": [], "checkout": "/elsewhere"}  # fmt: skip
    ended: list[str] = []
    monkeypatch.setattr("seatrial_lab.adapter.status", lambda name: given)
    running = SimpleNamespace(spec=SimpleNamespace(checkout=Path("/elsewhere")))
    monkeypatch.setattr("seatrial_lab.adapter.attach", lambda name: running)
    monkeypatch.setattr("seatrial.cli.lab.end", lambda name, say: ended.append(name) or True)
    assert "started by the checkout /elsewhere" in RUNNER.invoke(app, ["status"]).stdout
    refused = RUNNER.invoke(app, ["down"])
    assert isinstance(refused.exception, InputError)
    assert "checkout /elsewhere" in str(refused.exception)
    assert "seatrial lab down --instance lab" in str(refused.exception)
    assert not ended
    assert RUNNER.invoke(app, ["down", "--instance", "lab"]).exit_code == 0
    monkeypatch.setitem(given, "checkout", str(CHECKOUT))
    running.spec.checkout = CHECKOUT
    assert "checkout" not in RUNNER.invoke(app, ["status"]).stdout
    assert RUNNER.invoke(app, ["down"]).exit_code == 0
    assert ended == ["lab", "lab"]


@pytest.mark.parametrize("engine", ["native", "virtual"])
@pytest.mark.parametrize("text", ["", '{"spec": ', "{}", '{"lab": {}, "new": 1}'])
def test_a_lab_whose_state_cannot_be_read_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, text: str
) -> None:
    monkeypatch.delenv("SEATRIAL_LAB_INSTANCE", raising=False)
    monkeypatch.setattr(paths, "RUN_ROOT", tmp_path)
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "engine").write_text(engine)
    for name in ("state.json", "virtual.json"):
        (folder / name).write_text(text)
    ended: list[str] = []
    monkeypatch.setattr("seatrial.cli.lab.end", lambda name, say: ended.append(name) or True)
    assert RUNNER.invoke(app, ["down"]).exit_code == 0
    assert ended == ["lab"]


def test_a_log_has_each_step_of_a_start(capsys: pytest.CaptureFixture[str]) -> None:
    """A spinner shows nothing where the output is no terminal."""
    with told_steps(Console(), "starting the lab") as tell:
        tell("starting the lab: Slurm [n1]")
    assert capsys.readouterr().out == "  starting the lab: Slurm [n1]\n"


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--rate", "1gbit", "--down"],
        ["--rate", "1gbit", "--delay", "2ms"],
        ["--down", "--with", "n2"],
        ["--down", "--only", "sends"],
        ["--delay", "2ms", "--with", "n2"],
    ],
)
def test_a_link_fault_is_one_thing(options: list[str]) -> None:
    result = RUNNER.invoke(app, ["fault", "link", "n1", *options])
    assert isinstance(result.exception, InputError)


@pytest.mark.parametrize(
    ("words", "site", "message"),
    [
        ("link n1 --delay 2ms", "lab", "--delay is for a virtual lab"),
        ("link n1 --rate 1gbit", "lab-virtual", "no rate and no switch: --delay or --down"),
        ("link roce1 --cross --network rail2", "lab-rdma", "no rate and no switch"),
        ("cpu n1 --percent 30", "lab-virtual", "only lab fault link plants faults"),
        ("kill n1", "lab-virtual", "only lab fault link plants faults"),
        ("slurmd n1 --kill", "lab-virtual", "only lab fault link plants faults"),
    ],
)
def test_a_fault_that_the_engine_does_not_have_is_refused(
    words: str, site: str, message: str
) -> None:
    result = RUNNER.invoke(app, ["fault", *words.split(), "--site", site])
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)


@pytest.mark.parametrize("words", ["link igb1 --delay 2ms", "link igb1 --down", "clear"])
def test_a_fault_of_a_virtual_lab_that_is_down(words: str) -> None:
    given = ["fault", *words.split(), "--site", "lab-virtual", "--instance", "no_such_lab"]
    result = RUNNER.invoke(app, given)
    assert isinstance(result.exception, LabError)
    assert "the lab 'no_such_lab' is not up" in str(result.exception)


@pytest.mark.parametrize(
    ("instance", "options"), [("lab", ""), ("lab_virtual", " --site lab-virtual")]
)
def test_the_error_has_the_command_that_starts_the_lab(instance: str, options: str) -> None:
    assert state.not_up(instance).endswith(f"; start it with: seatrial lab up{options}")


@pytest.mark.parametrize(
    "words",
    [
        "link n1 --down",
        "link n1 --rate 1gbit --with n2 --only sends",
        "cpu n1 --percent 30",
        "kill n1",
        "slurmd n1 --kill",
        "clear",
    ],
)
def test_a_fault_is_planted_in_the_lab_of_the_environment(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for its siblings: --instance, else SEATRIAL_LAB_INSTANCE, else the name of the site."""
    monkeypatch.setenv("SEATRIAL_LAB_INSTANCE", "no_such_lab")
    given = ["fault", *words.split()]
    of_environment = RUNNER.invoke(app, [*given, "--site", "lab"])
    assert str(of_environment.exception) == (
        "the lab 'no_such_lab' is not up; start it with: seatrial lab up "
        "--instance no_such_lab, and --site for another site than lab"
    )
    of_option = RUNNER.invoke(app, [*given, "--instance", "nor_this"])
    assert "'nor_this'" in str(of_option.exception)


@pytest.mark.root
@pytest.mark.slurm
def test_status_shows_a_planted_fault(lab: Lab) -> None:
    instance = ["-i", SESSION]
    try:
        assert (
            RUNNER.invoke(app, ["fault", "link", "n2", "--rate", "1gbit", *instance]).exit_code == 0
        )
        result = RUNNER.invoke(app, ["status", *instance])
        assert "planted fault: link n2: rate 1gbit" in result.stdout
        assert result.exit_code == 0
    finally:
        cleared = RUNNER.invoke(app, ["fault", "clear", *instance])
    assert cleared.stdout == "cleared: link n2: rate 1gbit\n"


@pytest.mark.root
@pytest.mark.slurm
def test_shell_passes_everything_through(lab: Lab) -> None:
    verb = [sys.executable, "-m", "seatrial", "lab", "shell", "-i", SESSION]
    script = "cat; id -un; hostname; exit 6"
    out = subprocess.run(
        [
            *verb,
            "--node",
            "n2",
            "--user",
            "root",
            "--",
            "sh",
            "-c",
            script,
        ],
        input="hello\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (out.returncode, out.stdout) == (6, "hello\nroot\nn2\n"), out.stderr
