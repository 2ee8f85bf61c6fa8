"""Installing below a folder: what is written, kept and printed."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from slurm_support import HARBOUR
from typer.testing import CliRunner

from seatrial.base.errors import InputError, LabError
from seatrial.base.paths import CHECKOUT
from seatrial.cli import slurm as command
from seatrial.cli.slurm import app
from seatrial.nic.node.policy import DEFAULT_FILE
from seatrial.site.load import load_site
from seatrial.slurm import install as installing
from seatrial.slurm import running, versions
from seatrial.slurm.check import names_ours
from seatrial.slurm.layout import Layout
from seatrial.slurm.policy import policy_of
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


def package_below(root: Path) -> Path:
    """The package of the only version that is installed below a folder."""
    (package,) = root.glob("**/versions/[0-9a-f]*/seatrial_nic")
    return package


def version_of(policy: dict) -> str:
    """The name of the version that is installed for a policy."""
    names = {Path(file.path).parent.name for file in render(policy, Layout())}
    (name,) = (name for name in names if len(name) == 16 and set(name) <= set("0123456789abcdef"))
    return name


def test_a_dry_run_writes_nothing_and_shows_all(do: Do, tmp_path: Path) -> None:
    said = do("install", "--dry-run")
    assert list(tmp_path.iterdir()) == []
    names = "/versions/ seatrial-nic nic.json prolog epilog health seatrial-nic-recover.service"
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
    folders = [
        tmp_path / folder for folder in ("etc/seatrial", "etc/slurm", "usr/libexec/seatrial")
    ]
    for folder in (*folders, package_below(tmp_path).parent, package_below(tmp_path)):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert not [name for name in files if name.endswith(".draft")]


def test_nobody_else_writes_to_what_root_runs(do: Do, tmp_path: Path) -> None:
    """Also not to the byte code, which the interpreter of the nodes writes."""
    before = os.umask(0)
    try:
        do("install")
    finally:
        os.umask(before)
    modes = {path: path.lstat().st_mode for path in tmp_path.rglob("*")}
    assert [path for path in modes if path.suffix == ".pyc"]
    assert [path for path, mode in modes.items() if mode & 0o022] == []


@pytest.mark.parametrize(
    "inside", ["__pycache__", "__pycache__/cli.cpython-*.pyc", "cli.py", ".", "../nic.json", ".."]
)
def test_what_an_older_version_left_open_is_replaced(do: Do, tmp_path: Path, inside: str) -> None:
    do("install")
    package = package_below(tmp_path)
    (opened,) = package.glob(inside) if "*" in inside else [package / inside]
    opened.chmod(opened.stat().st_mode | 0o002)
    if opened.suffix == ".pyc":
        opened.write_bytes(b"planted byte code")
    do("install")
    version = package.parent
    assert not [path for path in (version, *version.rglob("*")) if path.stat().st_mode & 0o022]
    assert not [path for path in package.rglob("*.pyc") if b"planted" in path.read_bytes()]


def test_a_folder_that_everybody_can_write_to_is_refused(do: Do, tmp_path: Path) -> None:
    folder = tmp_path / "usr/libexec/seatrial"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(InputError, match=r"everybody can write to it.*chmod g?o-w"):
        do("install")
    assert listing(tmp_path) == {}


def test_the_compiler_imports_nothing_from_the_current_folder(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    for name in ("compileall", "struct", "importlib"):
        (planted / f"{name}.py").write_text("open('ran', 'w')\n")
    monkeypatch.chdir(planted)
    do("install")
    assert not (planted / "ran").exists()
    assert list(package_below(tmp_path).glob("__pycache__/*.pyc"))


def test_the_node_side_runs_from_where_it_was_installed(do: Do, tmp_path: Path) -> None:
    do("install")
    command = tmp_path / "usr/libexec/seatrial/seatrial-nic"
    package = package_below(tmp_path)
    assert len(list(package.glob("__pycache__/*.pyc"))) == len(list(package.glob("*.py")))
    environment = {"PYTHONPATH": "/nonexistent", "PYTHONHOME": "/nonexistent"}
    words = [command, "diff", "--profile", "nothing"]  # with the policy beside the package
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


def test_a_version_that_was_changed_is_replaced(do: Do, tmp_path: Path) -> None:
    do("install")
    package = package_below(tmp_path)
    (package / "gone.py").write_text("")
    (package / "cli.py").write_text("broken")
    (package.parent / "nic.json").unlink()
    said = do("install", "--dry-run")
    assert "-broken" in said
    do("install")
    assert not (package / "gone.py").exists()
    assert (package / "cli.py").read_text() != "broken"
    assert json.loads((package.parent / "nic.json").read_text())["site"] == "harbour"
    assert [p.name for p in package.parents[1].iterdir()] == [package.parent.name]


def test_an_extra_module_is_removed_even_if_nothing_else_changed(do: Do, tmp_path: Path) -> None:
    do("install")
    extra = package_below(tmp_path) / "gone.py"
    extra.write_text("")
    do("install")
    assert not extra.exists()


@pytest.mark.parametrize(
    "path",
    ["usr/libexec/seatrial/prolog", "etc/seatrial/nic.json", "etc/slurm/seatrial-nic.conf",
     "usr/libexec/seatrial/versions/VERSION/theirs", "usr/libexec/seatrial/versions/VERSION",
     "etc/systemd/system/seatrial-nic-recover.service"],
)  # fmt: skip
def test_files_of_others_are_not_replaced(do: Do, tmp_path: Path, policy: dict, path: str) -> None:
    path = path.replace("VERSION", version_of(policy))
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text("theirs\n")
    assert "foreign" in do("install", "--dry-run")
    with pytest.raises(InputError, match="not installed by seatrial"):
        do("install")
    assert listing(tmp_path) == {path: (stat.S_IMODE(file.stat().st_mode), b"theirs\n")}
    do("install", "--force")
    assert "theirs\n" not in [text.decode() for _, text in listing(tmp_path).values()]


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
    do("install", "--libexec", "/opt/nic", "--state", "/var/nic/%n", "--slurm-conf", "/opt/slurm")
    files = {name: text.decode() for name, (_, text) in listing(tmp_path).items()}
    assert "usr/libexec" not in "".join(files)
    for name, text in files.items():
        if "seatrial_nic/" not in name:
            assert "/usr/libexec/seatrial" not in text, name
    inside = package_below(tmp_path).parent / "nic.json"
    for text in (files["etc/seatrial/nic.json"], inside.read_text()):
        assert json.loads(text)["state_folder"] == "/var/nic/%n"
    assert 'state=/var/nic/"$node"' in files["opt/nic/prolog"]


def test_jobs_look_for_the_policy_where_it_is_installed() -> None:
    """The program of a job imports nothing of Seatrial, so it names the file itself."""
    script = CHECKOUT / "src/seatrial/checks/node/run.py"
    assert f'\nPOLICY = "{DEFAULT_FILE}"' in script.read_text()
    assert Layout().policy == DEFAULT_FILE


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
              "HealthCheckProgram": "/usr//libexec/x/../seatrial/health"}  # fmt: skip
    assert names_ours(config, Layout()) == ["Prolog", "HealthCheckProgram"]
    own.write_text("#!/bin/sh\nexit 0\n")
    assert names_ours({"Prolog": str(own)}, Layout()) == []


def test_a_failed_exchange_falls_back(
    policy: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Old:  # a C library, or a file system, that cannot exchange
        def renameat2(self, *_: object) -> int:
            return -1

    monkeypatch.setattr(versions.ctypes, "CDLL", lambda *_, **__: Old())
    layout = Layout()
    installing.install(installing.plan(render(policy, layout), tmp_path, layout), layout)
    package = package_below(tmp_path)
    (package / "cli.py").write_text("")
    installing.install(installing.plan(render(policy, layout), tmp_path, layout), layout)
    assert (package / "cli.py").read_text()
    assert (package.parent / INSTALLED).exists()
    assert [path.name for path in package.parents[1].iterdir()] == [package.parent.name]


@pytest.fixture
def machine() -> Iterator[tuple[Path, Callable[[], list[str]]]]:
    """A folder that only root changes, and an installation of all parts into it, without --root."""
    made = tempfile.mkdtemp(prefix="seatrial-install-", dir="/opt")
    top = Path(made)
    top.chmod(0o755)
    layout = Layout(f"{top}/a/libexec", f"{top}/a/conf", f"{top}/a/slurm", f"{top}/a/units")
    files = render(policy_of(load_site(HARBOUR), layout), layout)

    def run() -> list[str]:
        steps = installing.plan(files, Path("/"), layout)
        installing.install(steps, layout)
        return [step.target.name for step in steps if step.state == "changed"]

    try:
        yield top, run
    finally:
        shutil.rmtree(made)


@pytest.mark.root
@pytest.mark.parametrize("where", ["a/libexec", "a", "."])
@pytest.mark.parametrize(
    ("change", "message"),
    [("owner", "user 2000 owns it"), ("group", "its group can"), ("others", "everybody can")],
)
def test_a_folder_above_that_others_change_is_refused(
    machine: tuple[Path, Callable[[], list[str]]], where: str, change: str, message: str
) -> None:
    """They would exchange the folder with what root runs."""
    top, run = machine
    run()
    folder = top / where
    if change == "owner":
        os.chown(folder, 2000, 0)
    else:
        folder.chmod(0o775 if change == "group" else 0o757)
    before = listing(top)
    with pytest.raises(InputError, match=message) as error:
        run()
    assert str(error.value).startswith(f"{folder}: ")
    assert listing(top) == before


@pytest.mark.root
def test_a_link_through_a_folder_of_others_is_refused(
    machine: tuple[Path, Callable[[], list[str]]],
) -> None:
    top, run = machine
    (top / "open").mkdir()
    (top / "real").mkdir()
    (top / "open/hop").symlink_to(top / "real")
    (top / "a").symlink_to("open/hop")
    run()
    (top / "open").chmod(0o777)
    with pytest.raises(InputError, match="open: everybody can write to it"):
        run()


@pytest.mark.root
def test_a_file_of_another_owner_is_replaced(
    machine: tuple[Path, Callable[[], list[str]]],
) -> None:
    top, run = machine
    run()
    module = str((package_below(top) / "cli.py").relative_to(top))
    names = ("a/libexec/prolog", "a/conf/nic.json", module)
    for name in names:
        os.chown(top / name, 2000, 2000)
    assert sorted(run()) == ["cli.py", "nic.json", "prolog"]
    assert {(top / name).stat().st_uid for name in names} == {0}
    assert run() == []


@pytest.mark.root
@pytest.mark.parametrize("where", ["image", "."])
def test_an_image_that_others_can_exchange_is_refused(tmp_path: Path, where: str) -> None:
    """Between the look and the write, its owner would put a link in the place of ``usr``."""
    image = tmp_path / "image"
    image.mkdir()
    layout = Layout()
    files = render(policy_of(load_site(HARBOUR), layout), layout)

    def run() -> None:
        installing.install(installing.plan(files, image, layout), layout)

    (tmp_path / where).chmod(0o1777)
    if where == ".":
        run()  # in a folder with the sticky bit only root renames the image
        (tmp_path / where).chmod(0o755)
    os.chown(tmp_path / where, 2000, 2000)
    before = listing(image)
    message = f"{tmp_path / where}: " + ("everybody can write" if where == "image" else "user 2000")
    with pytest.raises(InputError, match=message):
        run()
    (tmp_path / where).chmod(0o755)
    with pytest.raises(InputError, match=f"{tmp_path / where}: user 2000 owns it"):
        run()
    steps = installing.plan(files, image, layout)
    if where == ".":
        with pytest.raises(InputError, match="user 2000 owns it"):
            installing.remove(steps, layout)
    assert listing(image) == before


@pytest.mark.root
def test_an_ordinary_user_builds_an_image(tmp_path: Path) -> None:
    """Its folders are its own, with the umask 002 of Debian and Red Hat."""
    with tempfile.TemporaryDirectory(prefix="seatrial-image-", dir="/var/tmp") as name:
        os.chown(name, 2000, 2000)
        child = os.fork()
        if not child:
            code = 1
            try:
                os.setgroups([])
                os.setgid(2000)
                os.setuid(2000)
                os.umask(0o002)
                (Path(name) / "usr/libexec/seatrial").mkdir(parents=True)
                layout = Layout()
                files = render(policy_of(load_site(HARBOUR), layout), layout)
                for _ in range(2):
                    steps = installing.plan(files, Path(name), layout)
                    installing.install(steps, layout)
                code = 0 if {step.state for step in steps} == {"same"} else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (Path(name) / "usr/libexec/seatrial/prolog").stat().st_uid == 2000


@pytest.mark.parametrize("kind", ["fifo", "endless", "large", "deep"])
@pytest.mark.parametrize("path", ["usr/libexec/seatrial/prolog", "etc/seatrial/nic.json"])
def test_what_is_no_file_of_ours_neither_blocks_nor_crashes(
    do: Do, tmp_path: Path, path: str, kind: str
) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "endless":
        file.symlink_to("/dev/zero")
    else:
        file.write_text("[" * (200_000 if kind == "deep" else 2 << 20))
    with pytest.raises(InputError, match=f"not installed by seatrial: {file}"):
        do("install")
    do("uninstall")
    assert file.is_symlink() or file.exists()
    do("install", "--force")
    assert stat.S_ISREG(file.lstat().st_mode)
    assert "0 files written" in do("install")


@pytest.mark.parametrize(
    ("files", "where"),
    [
        ({"slurm.conf": "Include seatrial-nic.conf"}, "slurm.conf:1"),
        ({"slurm.conf": "include /etc/slurm/../slurm//seatrial-nic.conf"}, "slurm.conf:1"),
        ({"slurm.conf": "A=b\nInclude nodes.conf",
          "nodes.conf": "#\nProlog=/usr/libexec/seatrial/prolog"}, "nodes.conf:2"),
        ({"slurm.conf": "ClusterName=Big\nInclude /etc/slurm/%c.conf",
          "big.conf": "Include more/x.conf", "more/x.conf": "Include seatrial-nic.conf"},
         "x.conf:1"),
        ({"slurm.conf": "Epilog=/usr//libexec/./x/../seatrial/epilog"}, "slurm.conf:1"),
        ({"slurm.conf": "//usr/libexec/seatrial/health".join(("A=b\nHealthCheckProgram=", ""))},
         "slurm.conf:2"),
        ({"slurm.conf": "Prolog=/usr/libexec/sea*/pro*"}, "slurm.conf:1"),
        ({"slurm.conf": "A=b\nProlog=\\\n/usr/libexec/seatrial/prolog"}, "slurm.conf:2"),
        ({"slurm.conf": "Prolog=/etc/slurm/own", "own": "exec /usr/libexec/seatrial/prolog"},
         "slurm.conf:1"),
        ({"slurm.conf": "Include slurm.conf\nInclude b\nEpilog=/link/epilog",
          "b": "Include slurm.conf"}, "slurm.conf:3"),
    ],
)  # fmt: skip
def test_uninstall_sees_each_way_to_name_our_files(
    do: Do, tmp_path: Path, files: dict[str, str], where: str
) -> None:
    do("install")
    (tmp_path / "link").symlink_to("usr/libexec/seatrial")
    for name, text in files.items():
        file = tmp_path / "etc/slurm" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    before = listing(tmp_path)
    with pytest.raises(InputError, match=f"{where}: it names our files"):
        do("uninstall")
    assert listing(tmp_path) == before


def test_uninstall_does_not_mistake_other_files_for_ours(do: Do, tmp_path: Path) -> None:
    do("install")
    (tmp_path / "etc/slurm/slurm.conf").write_text(
        "# Include seatrial-nic.conf\nInclude other.conf\nProlog=/usr/libexec/seatrial-x/prolog\n"
        "SlurmctldLogFile=/log #/usr/libexec/seatrial/prolog\n"
    )
    (tmp_path / "log").write_text("error: /usr/libexec/seatrial/prolog: exit code 1\n")
    assert f"not read, so it may name our files: {tmp_path}/etc/slurm/other.conf" in do("uninstall")
    assert listing(tmp_path / "usr") == {}


def test_a_scontrol_that_finds_no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    script = "#!/bin/sh\necho 'Could not establish a configuration source' >&2; exit 1\n"
    (tmp_path / "scontrol").write_text(script)
    (tmp_path / "scontrol").chmod(0o755)
    with pytest.raises(LabError, match=r"scontrol show config: this machine has no slurm.conf"):
        command._scontrol(["show", "config"], None)


@pytest.mark.parametrize("conf", [None, "A=b\n", "Include gone.conf\n", "fifo"])
def test_uninstall_without_an_answer_of_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, conf: str | None
) -> None:
    """Without --root: an unknown use of our files is no reason to remove them."""

    def silent(*_: object) -> str:
        raise LabError("scontrol cannot be asked")

    monkeypatch.setattr(command, "_scontrol", silent)
    for signs in ("daemons", "configless"):
        monkeypatch.setattr(running, signs, lambda: ())
    file = tmp_path / "slurm.conf"
    if conf == "fifo":
        os.mkfifo(file)
    elif conf:
        file.write_text(conf)
    layout = Layout(slurm=str(tmp_path))
    if conf in ("fifo", "Include gone.conf\n"):
        missing = file if conf == "fifo" else tmp_path / "gone.conf"
        with pytest.raises(InputError, match=f"is unknown: scontrol cannot.*not read: {missing}"):
            command._refuse_in_use(Path("/"), layout)
    else:
        command._refuse_in_use(Path("/"), layout)
        assert ("names none of our files" in capsys.readouterr().out) == bool(conf)


def false_proc(folder: Path, **daemons: str) -> Path:
    """A /proc with one process for each keyword: its name, and its PID namespace."""
    (folder / "self/ns").mkdir(parents=True)
    (folder / "self/ns/pid").symlink_to("pid:[1]")
    for number, (name, namespace) in enumerate(daemons.items(), 100):
        (folder / f"{number}/ns").mkdir(parents=True)
        (folder / f"{number}/comm").write_text(f"{name}\n")
        (folder / f"{number}/ns/pid").symlink_to(namespace)
    return folder


def test_daemons_of_slurm_on_this_machine(tmp_path: Path) -> None:
    proc = false_proc(tmp_path, slurmd="pid:[1]", slurmstepd="pid:[1]", slurmctld="pid:[2]")
    assert list(running.daemons(proc)) == ["slurmd runs here (process 100)"]
    (proc / "102/ns/pid").unlink()
    assert len(list(running.daemons(proc))) == 1  # it has ended
    (proc / "102/ns/pid").symlink_to("pid:[1]")
    assert list(running.daemons(proc))[1] == "slurmctld runs here (process 102)"


@pytest.mark.root
def test_a_users_program_is_no_daemon_of_slurm(tmp_path: Path) -> None:
    proc = false_proc(tmp_path, slurmd="pid:[1]", slurmctld="pid:[1]")
    os.chown(proc / "100", 1000, 1000)
    os.chown(proc / "101", 64, 64)
    assert list(running.daemons(proc)) == ["slurmctld runs here (process 101)"]


@pytest.mark.parametrize(
    "path", ["run/slurm/conf", "var/spool/slurmd/conf-cache", "var/spool/slurm/d/conf-cache"]
)
def test_the_configuration_of_a_configless_slurm(tmp_path: Path, path: str) -> None:
    assert list(running.configless(tmp_path)) == []
    (tmp_path / path).mkdir(parents=True)
    assert len(list(running.configless(tmp_path))) == 1


@pytest.mark.parametrize(
    ("conf", "sign", "refused"),
    [
        (None, "configless", True), (None, "daemons", True), (None, "", False),
        ("A=b\n", "configless", False), ("A=b\n", "daemons", True), ("A=b\n", "", False),
    ],
)  # fmt: skip
def test_uninstall_where_slurm_runs_and_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conf: str | None, sign: str, refused: bool
) -> None:
    """A configless node has no slurm.conf, and the PATH of sudo has no scontrol."""
    monkeypatch.setenv("PATH", "/nonexistent")
    for name in ("daemons", "configless"):
        signs = ["a sign of it"] if name == sign else []
        monkeypatch.setattr(running, name, lambda signs=signs: signs)
    if conf:
        (tmp_path / "slurm.conf").write_text(conf)
    layout = Layout(slurm=str(tmp_path))
    if refused:
        with pytest.raises(InputError, match=r"is unknown: scontrol cannot be asked.*a sign of it"):
            command._refuse_in_use(Path("/"), layout)
    else:
        command._refuse_in_use(Path("/"), layout)
    command._refuse_in_use(Path("/"), layout, not_in_use=True)
    (tmp_path / "slurm.conf").write_text("Include seatrial-nic.conf\n")
    with pytest.raises(InputError, match="it names our files"):
        command._refuse_in_use(Path("/"), layout, not_in_use=True)


def test_what_the_check_says_of_this_host(do: Do, tmp_path: Path, policy: dict) -> None:
    top = tmp_path / "node"
    layout = Layout(f"{top}/libexec", f"{top}/conf", f"{top}/slurm", f"{top}/units")
    assert list(command._wrong_here(layout, policy["digest"])) == []
    files = render(policy, layout)
    for file in files:
        path = Path(file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
    assert list(command._wrong_here(layout, policy["digest"])) == []
    assert len(list(command._wrong_here(layout, "another"))) == 2
    launcher = Path(layout.command).read_text()
    Path(layout.command).write_text(f"# {MARKER}\n")  # of an installation without versions
    assert list(command._wrong_here(layout, policy["digest"])) == []
    Path(layout.command).write_text(launcher)
    shutil.rmtree(layout.versions)
    (wrong,) = command._wrong_here(layout, policy["digest"])
    assert "a version is incomplete" in wrong
