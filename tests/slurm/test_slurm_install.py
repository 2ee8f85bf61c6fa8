"""Installing below a folder: what is written, kept and printed."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_support import HARBOUR
from typer.testing import CliRunner

from seatrial.base.errors import InputError
from seatrial.cli.slurm import app
from seatrial.slurm import install as installing
from seatrial.slurm.check import names_ours
from seatrial.slurm.layout import Layout
from seatrial.slurm.render import INSTALLED, MARKER, render

RUNNER = CliRunner()
Do = Callable[..., str]


@pytest.fixture
def do(tmp_path: Path) -> Do:
    """Runs a verb of ``seatrial slurm`` with tmp_path as root; returns what it printed."""

    def run(verb: str, *options: str) -> str:
        words = [verb, "--site", str(HARBOUR), "--root", str(tmp_path), *options]
        result = RUNNER.invoke(app, words)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.stdout

    return run


def listing(root: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {
        str(path.relative_to(root)): (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
        for path in files
    }


def test_a_dry_run_writes_nothing_and_shows_all(do: Do, tmp_path: Path) -> None:
    said = do("install", "--dry-run")
    assert list(tmp_path.iterdir()) == []
    names = "seatrial_nic/ seatrial-nic nic.json prolog epilog health seatrial-nic-recover.service"
    for name in (*names.split(), "seatrial-nic.conf", "job_submit.lua"):
        assert name in said


def test_install_writes_all_whatever_the_umask(do: Do, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        do("install")
    finally:
        os.umask(before)
    files = listing(tmp_path)
    modes = {name: mode for name, (mode, _) in files.items()}
    assert modes["usr/libexec/seatrial/prolog"] == 0o755
    assert modes["usr/libexec/seatrial/seatrial-nic"] == 0o755
    assert modes["etc/seatrial/nic.json"] == 0o644
    assert modes["etc/slurm/job_submit.lua"] == 0o644
    for folder in ("usr/libexec/seatrial/seatrial_nic", "etc/seatrial", "etc/slurm"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o755
    assert not [name for name in files if name.endswith(".draft")]


def test_the_node_side_runs_from_where_it_was_installed(do: Do, tmp_path: Path) -> None:
    do("install")
    command = tmp_path / "usr/libexec/seatrial/seatrial-nic"
    policy = tmp_path / "etc/seatrial/nic.json"
    cached = list((command.parent / "seatrial_nic/__pycache__").glob("*.pyc"))
    assert len(cached) == len(list((command.parent / "seatrial_nic").glob("*.py")))
    environment = {"PYTHONPATH": "/nonexistent", "PYTHONHOME": "/nonexistent"}
    words = [command, "--policy", policy, "diff", "--profile", "nothing"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "no NIC profile 'nothing'" in done.stderr
    assert "jumbo" in done.stderr


def test_a_second_install_changes_nothing(do: Do, tmp_path: Path) -> None:
    do("install")
    inodes = {path: path.stat().st_ino for path in tmp_path.rglob("*")}
    assert "0 files written" in do("install")
    assert {path: path.stat().st_ino for path in tmp_path.rglob("*")} == inodes


def test_an_edit_is_shown_and_replaced(do: Do, tmp_path: Path) -> None:
    do("install")
    prolog = tmp_path / "usr/libexec/seatrial/prolog"
    text = prolog.read_text()
    prolog.write_text(text.replace("exec ", ""))
    said = do("install", "--dry-run")
    assert "+exec /usr/libexec/seatrial/seatrial-nic prolog" in said
    assert "exec" not in [line.split()[0] for line in prolog.read_text().splitlines() if line]
    assert "1 files written" in do("install")
    assert prolog.read_text() == text


def test_a_wrong_mode_is_corrected(do: Do, tmp_path: Path) -> None:
    do("install")
    (tmp_path / "usr/libexec/seatrial/epilog").chmod(0o600)
    assert "1 files written" in do("install")


def test_modules_of_an_older_version_are_removed(do: Do, tmp_path: Path) -> None:
    do("install")
    package = tmp_path / "usr/libexec/seatrial/seatrial_nic"
    (package / "gone.py").write_text("")
    (package / "cli.py").write_text("broken")
    do("install")
    assert not (package / "gone.py").exists()
    assert (package / "cli.py").read_text() != "broken"
    assert [p.name for p in package.parent.iterdir() if p.name.startswith(".")] == []


def test_an_extra_module_is_removed_even_if_nothing_else_changed(do: Do, tmp_path: Path) -> None:
    do("install")
    extra = tmp_path / "usr/libexec/seatrial/seatrial_nic/gone.py"
    extra.write_text("")
    do("install")
    assert not extra.exists()


@pytest.mark.parametrize(
    "path",
    ["usr/libexec/seatrial/prolog", "etc/seatrial/nic.json", "etc/slurm/seatrial-nic.conf",
     "usr/libexec/seatrial/seatrial_nic/cli.py", "etc/systemd/system/seatrial-nic-recover.service"],
)  # fmt: skip
def test_files_of_others_are_not_replaced(do: Do, tmp_path: Path, path: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text("theirs\n")
    assert "foreign" in do("install", "--dry-run")
    with pytest.raises(InputError, match="not installed by seatrial"):
        do("install")
    assert listing(tmp_path) == {path: (stat.S_IMODE(file.stat().st_mode), b"theirs\n")}
    do("install", "--force")
    assert b"theirs" not in file.read_bytes()


def test_a_job_submit_of_the_sites_own_is_kept(do: Do, tmp_path: Path) -> None:
    own = tmp_path / "etc/slurm/job_submit.lua"
    own.parent.mkdir(parents=True)
    own.write_text("-- ours\n")
    said = do("install")
    assert own.read_text() == "-- ours\n"
    beside = own.with_name("job_submit_seatrial.lua")
    assert MARKER in beside.read_text()
    assert f'dofile("/etc/slurm/{beside.name}")' in beside.read_text()
    assert "is your own: let it ask ours" in said


def test_only_what_belongs_on_the_controller(do: Do, tmp_path: Path) -> None:
    do("install", "--only", "controller")
    assert set(listing(tmp_path)) == {"etc/slurm/seatrial-nic.conf", "etc/slurm/job_submit.lua"}


def test_other_folders_are_used_everywhere(do: Do, tmp_path: Path) -> None:
    do("install", "--libexec", "/opt/nic", "--conf", "/opt/conf", "--state", "/var/nic/%n",
       "--slurm-conf", "/opt/slurm")  # fmt: skip
    files = {name: text.decode() for name, (_, text) in listing(tmp_path).items()}
    assert "usr/libexec" not in "".join(files)
    for name, text in files.items():
        if "seatrial_nic/" not in name:
            assert "/usr/libexec/seatrial" not in text, name
            assert "/etc/seatrial" not in text, name
    assert json.loads(files["opt/conf/nic.json"])["state_folder"] == "/var/nic/%n"
    assert 'state=/var/nic/"$node"' in files["opt/nic/prolog"]
    assert '"/opt/conf/nic.json"' in files["opt/nic/seatrial-nic"]


def test_a_folder_that_leads_out_of_the_image_is_refused(do: Do, tmp_path: Path) -> None:
    (tmp_path / "etc").symlink_to("/etc")
    with pytest.raises(InputError, match="leads out of"):
        do("install")


def test_a_site_without_profiles_has_nothing_to_install(tmp_path: Path) -> None:
    folder = tmp_path / "bare"
    folder.mkdir()
    lines = HARBOUR.read_text().replace("name: harbour", "name: bare").splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(("  jumbo:", "  few:"))]
    (folder / "site.yaml").write_text("".join(kept))
    result = RUNNER.invoke(app, ["install", "--site", str(folder), "--dry-run"])
    assert "no NIC profile but default" in str(result.exception)


def test_a_lab_is_not_installed_on_the_machine_itself() -> None:
    result = RUNNER.invoke(app, ["install", "--site", str(HARBOUR)])
    assert isinstance(result.exception, InputError)
    assert "is a lab" in str(result.exception)


def test_uninstall_removes_only_our_files(do: Do, tmp_path: Path) -> None:
    kept = tmp_path / "etc/slurm/slurm.conf"
    kept.parent.mkdir(parents=True)
    kept.write_text("ClusterName=x\n")
    do("install")
    (tmp_path / "etc/slurm/job_submit.lua").write_text("-- the site's by now\n")
    would = do("uninstall", "--dry-run")
    assert "prolog" in would
    assert (tmp_path / "usr/libexec/seatrial/prolog").exists()
    do("uninstall")
    assert set(listing(tmp_path)) == {"etc/slurm/slurm.conf", "etc/slurm/job_submit.lua"}
    assert not (tmp_path / "usr/libexec/seatrial").exists()


def test_uninstall_refuses_while_slurm_names_our_files(do: Do, tmp_path: Path) -> None:
    do("install")
    before = listing(tmp_path)
    file = tmp_path / "etc/slurm/slurm.conf"
    for line in ("Include /etc/slurm/seatrial-nic.conf", "Epilog = /usr/libexec/seatrial/epilog"):
        file.write_text(f"ClusterName=x\n# Include /etc/slurm/seatrial-nic.conf\n{line}\n")
        with pytest.raises(InputError, match=r"slurm\.conf:3: it names our files") as error:
            do("uninstall")
        assert "scontrol reconfigure" in str(error.value)
        assert "prolog" in do("uninstall", "--dry-run")
    file.unlink()
    assert listing(tmp_path) == before
    do("uninstall")
    assert listing(tmp_path) == {}


def test_programs_of_the_site_that_call_ours(tmp_path: Path) -> None:
    own = tmp_path / "prolog"
    own.write_text("#!/bin/sh\nexec /usr/libexec/seatrial/prolog\n")
    config = {"Prolog": f"/etc/other {own}", "Epilog": "(null)",
              "HealthCheckProgram": "/usr/libexec/seatrial/health"}  # fmt: skip
    assert names_ours(config, Layout()) == ["Prolog", "HealthCheckProgram"]
    own.write_text("#!/bin/sh\nexit 0\n")
    assert names_ours({"Prolog": str(own)}, Layout()) == []


def test_a_failed_exchange_falls_back(
    policy: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Old:  # a C library, or a file system, that cannot exchange
        def renameat2(self, *_: object) -> int:
            return -1

    monkeypatch.setattr(installing.ctypes, "CDLL", lambda *_, **__: Old())
    layout = Layout()
    package = tmp_path / layout.package.lstrip("/")
    installing.install(installing.plan(render(policy, layout), tmp_path, layout), layout)
    (package / "cli.py").write_text("")
    installing.install(installing.plan(render(policy, layout), tmp_path, layout), layout)
    assert (package / "cli.py").read_text()
    assert (package / INSTALLED).exists()
    assert {p.name for p in package.parent.iterdir() if "seatrial-" in p.name} == {"seatrial-nic"}
