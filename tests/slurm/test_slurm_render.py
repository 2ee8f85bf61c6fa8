"""The text of the installed files: its content, and that no value breaks its syntax."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from seatrial.base.errors import InputError
from seatrial.base.templates import lua_string
from seatrial.slurm import render as rendering
from seatrial.slurm.layout import Layout
from seatrial.slurm.render import File, find_state, folded, node_features, render


def files(policy: dict, layout: Layout) -> dict[str, File]:
    return {Path(file.path).name: file for file in render(policy, layout)}


def settings(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_slurm_conf_piece(policy: dict, layout: Layout) -> None:
    text = files(policy, layout)["seatrial-nic.conf"].text
    assert settings(text) == {
        "Prolog": "/usr/libexec/seatrial/prolog",
        "Epilog": "/usr/libexec/seatrial/epilog",
        "PrologFlags": "Alloc,Contain,DeferBatch",
        "PrologEpilogTimeout": "240",
        "BatchStartTimeout": "300",
        "HealthCheckProgram": "/usr/libexec/seatrial/health",
        "HealthCheckInterval": "60",
        "HealthCheckNodeState": "ANY",
        "JobSubmitPlugins": "lua",
    }
    assert "#     NodeName=n[1-2] Feature=nic_default,nic_jumbo,nic_few\n" in text
    assert "#     NodeName=n3 Feature=nic_default,nic_jumbo\n" in text


def test_each_setting_has_its_reason(policy: dict, layout: Layout) -> None:
    lines = files(policy, layout)["seatrial-nic.conf"].text.splitlines()
    said = [line for line in lines if line and not line.startswith("#")]
    for one in said:
        before = lines[lines.index(one) - 1]
        assert before.startswith("#") or before.split("=")[0] == "HealthCheckProgram", one


def test_only_nodes_that_a_profile_fits_have_its_feature(policy: dict) -> None:
    assert node_features(policy)["n2"] == ("nic_default", "nic_jumbo", "nic_few")
    assert "nic_few" not in node_features(policy)["n3"]
    assert [str(nodes) for nodes, _ in folded(node_features(policy))] == ["n[1-2]", "n3"]


def test_unit_recovers_before_each_start_of_slurmd(policy: dict, layout: Layout) -> None:
    lines = files(policy, layout)["seatrial-nic-recover.service"].text.splitlines()
    for line in (
        "Before=slurmd.service",
        "After=irqbalance.service tuned.service",
        "WantedBy=slurmd.service",
        "Type=oneshot",
        "ExecStart=/usr/libexec/seatrial/seatrial-nic recover --boot --seconds=230",
    ):
        assert line in lines
    assert not [line for line in lines if line.startswith("RemainAfterExit")]


#: systemd's measure of exposure, from 0 (safe) to 10; a unit without a sandbox has 9.6
EXPOSURE = 4.0


@pytest.mark.parametrize("state", [None, "/home/nic/%n", "/home/nic/state-%n"])
def test_the_unit_has_a_sandbox(policy: dict, tmp_path: Path, state: str | None) -> None:
    """systemd knows each directive, and finds little that the unit may do without need."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is missing: apt-get install systemd")
    policy = {**policy, "state_folder": state or policy["state_folder"]}
    text = files(policy, Layout())["seatrial-nic-recover.service"].text
    folder = "/home/nic" if state else policy["state_folder"]
    assert f"ReadWritePaths=-{folder}\n" in text
    unit = tmp_path / "seatrial-nic-recover.service"
    # systemd also looks for the program.
    unit.write_text(text.replace("/usr/libexec/seatrial/seatrial-nic", "/bin/true"))
    for words in (["verify"], ["security", "--offline=yes", f"--threshold={EXPOSURE * 10:.0f}"]):
        done = subprocess.run(
            ["systemd-analyze", *words, str(unit)], capture_output=True, text=True,
            env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
        )  # fmt: skip
        about = [line for line in done.stderr.splitlines() if unit.name in line]
        assert (done.returncode, about) == (0, []), done.stdout[-2000:]


def test_nothing_is_left_to_fill_in(policy: dict, layout: Layout) -> None:
    for file in render(policy, layout):
        if "seatrial_nic/" not in file.path:
            assert "{{" not in file.text
            assert "{%" not in file.text
            assert file.text.endswith("\n")


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        rendering._environment().get_template("prolog.j2").render({})


@pytest.mark.parametrize("folder", ["relative", "/a b", "/a;b", "/$x", "/a/../b", "/a\nb", ""])
def test_paths_that_need_quoting_are_refused(folder: str) -> None:
    with pytest.raises(InputError, match="not an absolute path"):
        Layout(libexec=folder)


def test_a_feature_that_slurm_does_not_take_is_refused(policy: dict, layout: Layout) -> None:
    broken = {**policy["profiles"]["jumbo"], "feature": 'nic_a"] = 1 --'}
    with pytest.raises(InputError, match="jumbo"):
        render({**policy, "profiles": {"jumbo": broken}}, layout)


@given(st.text(max_size=40))
def test_lua_strings_hold_any_text(text: str) -> None:
    literal = lua_string(text)
    assert literal.isascii()
    assert "\n" not in literal
    assert '"' not in literal[1:-1].replace('\\"', "")


# -- the scripts, run by the real shell


@pytest.fixture
def installed(policy: dict, tmp_path: Path) -> tuple[Path, Path]:
    """(folder of the scripts, state folder), with a node side that says how it was called."""
    state = tmp_path / "state"
    state.mkdir()
    layout = Layout(libexec=str(tmp_path), state=str(state))
    for file in render({**policy, "state_folder": str(state)}, layout):
        path = Path(file.path)
        if path.parent == tmp_path:
            path.write_text(file.text)
            path.chmod(file.mode)
    (tmp_path / "seatrial-nic").write_text('#!/bin/sh\necho "$PPID $$ $*"\nexit 4\n')
    return tmp_path, state


def run(script: Path, **environment: str) -> tuple[int, str]:
    # As Slurm starts it: without PATH.
    done = subprocess.run([script], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize("script", ["prolog", "epilog"])
def test_nothing_is_started_where_there_is_nothing_to_do(
    installed: tuple[Path, Path], script: str
) -> None:
    folder, _ = installed
    assert run(folder / script) == (0, "")
    assert run(folder / script, SLURM_JOB_CONSTRAINTS="fast&big") == (0, "")


@pytest.mark.parametrize(
    ("script", "left"),
    [
        ("prolog", "journal.json"),
        ("prolog", "journal.bak.json"),
        ("prolog", "reason"),
        ("epilog", "journal.json"),
        ("epilog", "journal.bak.json"),
        ("health", "nothing-of-ours"),
    ],
)
def test_what_is_left_starts_the_node_side(
    installed: tuple[Path, Path], script: str, left: str
) -> None:
    folder, state = installed
    (state / left).write_text("")
    code, said = run(folder / script)
    limit = [] if script == "health" else ["--seconds=230"]
    assert (code, said.split()[2:]) == (4, [script, *limit])


@pytest.mark.parametrize("script", ["prolog", "epilog"])
def test_a_constraint_with_a_profile_starts_the_node_side(
    installed: tuple[Path, Path], script: str
) -> None:
    code, said = run(installed[0] / script, SLURM_JOB_CONSTRAINTS="fast&nic_jumbo")
    assert (code, said.split()[2:]) == (4, [script, "--seconds=230"])


def test_the_node_side_takes_the_place_of_the_script(installed: tuple[Path, Path]) -> None:
    process = subprocess.Popen(
        [installed[0] / "prolog"],
        env={"SLURM_JOB_CONSTRAINTS": "nic_few"},
        stdout=subprocess.PIPE,
        text=True,
    )
    parent, own, *_ = process.communicate()[0].split()
    assert (int(parent), int(own)) == (os.getpid(), process.pid)


def test_a_hostile_constraint_is_only_looked_at(
    installed: tuple[Path, Path], tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    for text in (f"nic_$(touch {mark})", f"nic_`touch {mark}`", f"x;touch {mark}", "nic_*", "-n"):
        for script in ("prolog", "epilog"):
            run(installed[0] / script, SLURM_JOB_CONSTRAINTS=text)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["", "n7"])
def test_the_state_folder_of_a_node(tmp_path: Path, name: str) -> None:
    lines = f'{find_state("/a %n/%n/b")}\necho "$state"\n'
    environment = {"SLURMD_NODENAME": name} if name else {}
    out = subprocess.run(
        ["/bin/sh", "-eu", "-c", lines], env=environment, capture_output=True, text=True, check=True
    ).stdout
    node = name or os.uname().nodename.split(".")[0]
    assert out == f"/a {node}/{node}/b\n"
