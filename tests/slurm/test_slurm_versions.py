"""Versions of the node side beside each other: upgrades while it starts, and in parallel."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seatrial.base.errors import InputError, LabError
from seatrial.slurm import install as installing
from seatrial.slurm import render as rendering
from seatrial.slurm import versions
from seatrial.slurm.layout import Layout
from seatrial.slurm.render import INSTALLED, MARKER, File, render

LAYOUT = Layout()
LIBEXEC = "usr/libexec/seatrial"


@dataclasses.dataclass(frozen=True)
class Image:
    """A folder to install into."""

    root: Path

    @property
    def libexec(self) -> Path:
        return self.root / LIBEXEC

    @property
    def versions(self) -> list[str]:
        """The names of all that is beside the versions."""
        return sorted(path.name for path in (self.libexec / "versions").iterdir())

    def install(self, files: list[File], say: Callable[[str], None] = print) -> None:
        installing.install(installing.plan(files, self.root, LAYOUT), LAYOUT, say)

    def in_use(self) -> Path:
        """The version that the launcher starts; it is whole."""
        version = versions.in_use(self.root, LAYOUT)
        assert version is not None
        done = subprocess.run([self.libexec / "seatrial-nic", "diff", "--profile", "nothing"],
                              capture_output=True, text=True)  # fmt: skip
        assert "no NIC profile 'nothing'" in done.stderr
        return version

    def age(self, version: str) -> None:
        """Make a version, or a draft, older than it is kept."""
        path = self.libexec / "versions" / version
        package = path / "seatrial_nic"
        past = time.time() - versions.KEPT_S - 60
        os.utime(package if package.is_dir() else path, (past, past), follow_symlinks=False)


@pytest.fixture
def image(tmp_path: Path) -> Image:
    root = tmp_path / "image"
    root.mkdir()
    return Image(root)


@pytest.fixture
def old(policy: dict) -> list[File]:
    return render({**policy, "digest": "old"}, LAYOUT)


@pytest.fixture
def new(policy: dict) -> list[File]:
    return render({**policy, "digest": "new"}, LAYOUT)


def name_of(files: list[File]) -> str:
    (path,) = (Path(file.path) for file in files if file.path.endswith(INSTALLED))
    return path.parent.name


@contextmanager
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the node side's sources, which is installed instead of them."""
    copy = tmp_path / "node"
    shutil.copytree(rendering.NODE_SIDE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(rendering, "NODE_SIDE", copy)
    yield copy
    monkeypatch.undo()


HOLD = """
import importlib.abc, os, runpy, sys, time
sys.dont_write_bytecode = True

class Hold(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            print("holds", flush=True)
            sys.stdin.readline()

sys.meta_path.insert(0, Hold())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("module", ["seatrial_nic.cli", "seatrial_nic.work"])
def test_an_upgrade_during_an_import_mixes_no_versions(
    image: Image, policy: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """Another version has another name for what one module imports of another: ImportError."""
    words = [sys.executable, "-c", HOLD.format(module=module), image.libexec / "seatrial-nic"]
    with sources(tmp_path, monkeypatch) as copy:
        image.install(render(policy, LAYOUT))
        starts = subprocess.Popen(
            [*words, "diff", "--profile", "nothing"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert starts.stdout is not None
        assert starts.stdout.readline() == "holds\n"
        for file in copy.glob("*.py"):
            file.write_text(file.read_text().replace("Unrestored", "NotRestored"))
        image.install(render({**policy, "schema": 2}, LAYOUT))
        _, said = starts.communicate("\n")
    assert (starts.returncode, "no NIC profile 'nothing'" in said) == (3, True), said


def test_package_and_policy_change_in_one_step(image: Image, old, new, monkeypatch) -> None:
    """Before the launcher is written nothing of the new version is in use, after it all is."""
    image.install(old)
    digests = []
    write = installing.write_whole

    def watched(target: Path, *words: object, **options: object) -> None:
        for _ in range(2):
            digests.append((target.name, versions.policy_in_use(image.root, LAYOUT)["digest"]))
            if len(digests) % 2:
                write(target, *words, **options)

    monkeypatch.setattr(installing, "write_whole", watched)
    image.install(new)
    assert sorted(digests) == [
        ("nic.json", "old"), ("nic.json", "old"), ("seatrial-nic", "new"), ("seatrial-nic", "old"),
    ]  # fmt: skip


def test_the_package_imports_its_modules_when_it_starts() -> None:
    """A module that is imported later may be gone, a day after an upgrade."""
    for file in rendering.NODE_SIDE.glob("*.py"):
        for line in file.read_text().splitlines():
            assert not line.startswith(" ") or not line.strip().startswith("from ."), file


def test_a_version_stays_for_a_day_after_its_last_use(image: Image, policy: dict) -> None:
    first, second, third = (
        render({**policy, "digest": digest}, LAYOUT) for digest in ("one", "two", "three")
    )
    image.install(first)
    image.age(name_of(first))
    image.install(second)
    assert image.versions == sorted([name_of(first), name_of(second)])  # used until now
    image.age(name_of(first))
    image.age(name_of(second))
    image.install(second)
    assert image.versions == [name_of(second)]
    image.install(third)
    image.install(first)
    assert len(image.versions) == 3
    assert image.in_use().name == name_of(first)


def test_the_clock_of_a_node_does_not_matter(image: Image, old, new, monkeypatch) -> None:
    image.install(old)
    monkeypatch.setattr(time, "time", lambda: 4e9)
    image.install(new)
    image.install(new)
    assert len(image.versions) == 2


def test_drafts_of_others_stay_until_they_are_old(image: Image, old, tmp_path: Path) -> None:
    """A draft may belong to an installation on another node that has no lock in common."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("")
    image.install(old)
    (image.libexec / "versions/.draft-other.1.x").mkdir()
    (image.libexec / "versions/.draft-other.2.x").symlink_to(elsewhere)
    (image.libexec / ".seatrial_nic.seatrial-x").symlink_to(elsewhere)
    image.install(old)
    assert len(image.versions) == 3
    for name in (".draft-other.1.x", ".draft-other.2.x", "../.seatrial_nic.seatrial-x"):
        image.age(name)
    image.install(old)
    assert image.versions == [name_of(old)]
    assert not list(image.libexec.glob(".seatrial_nic*"))
    assert [path.name for path in elsewhere.iterdir()] == ["kept"]


def test_installations_wait_for_one_another(image: Image, old, new) -> None:
    """The plan of the one that waits is out of date when it begins."""
    image.install(old)
    lock = image.libexec / versions.LOCK
    said: list[str] = []
    plan = installing.plan(old, image.root, LAYOUT)
    assert {step.state for step in plan} == {"same"}
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waits = threading.Thread(target=installing.install, args=(plan, LAYOUT, said.append))
        waits.start()
        deadline = time.monotonic() + 200
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "waiting" in said[0]
        # What the other one does meanwhile.
        steps = installing.plan(new, image.root, LAYOUT)
        installing._write_all(steps, LAYOUT)
    waits.join(200)
    assert image.in_use().name == name_of(old)
    policy = json.loads((image.root / "etc/seatrial/nic.json").read_text())
    assert policy["digest"] == "old"


def test_without_locks_one_installation_spares_the_other(
    image: Image, old, new, monkeypatch
) -> None:
    """The second runs as a whole while the first has a draft that is not whole."""

    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    said: list[str] = []
    compiles = versions._compile
    begun: list[Path] = []

    def interrupted(package: Path, *words: str) -> None:
        begun.append(package)
        if len(begun) == 1:
            image.install(new)
            image.install(old)
        compiles(package, *words)

    monkeypatch.setattr(versions, "_compile", interrupted)
    image.install(old, said.append)
    assert len(begun) == 3
    assert "has no locks: install on one node at a time" in said[0]
    assert image.versions == sorted([name_of(old), name_of(new)])
    assert image.in_use().name == name_of(old)


def test_parallel_installations_leave_whole_versions(image: Image, old, new) -> None:
    image.install(old)
    for _ in range(3):
        children = []
        for files in (old, new, new):
            child = os.fork()
            if not child:
                code = 1
                try:
                    image.install(files, lambda _: None)
                    code = 0
                finally:
                    os._exit(code)
            children.append(child)
        assert {os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in children} == {0}
        used = image.in_use().name
        assert image.versions == sorted([name_of(old), name_of(new)])
        plans = [installing.plan(files, image.root, LAYOUT) for files in (old, new)]
        states = [{step.state for step in plan} for plan in plans]
        assert states[used == name_of(new)] == {"same"}
        assert states == [
            {"same"} if used == name_of(files) else {"same", "changed"} for files in (old, new)
        ]


def test_a_draft_that_is_not_whole_is_not_installed(image: Image, old, new, monkeypatch) -> None:
    image.install(old)

    def loses(package: Path, *_: str) -> None:
        (package / "cli.py").unlink()

    monkeypatch.setattr(versions, "_compile", loses)
    with pytest.raises(LabError, match=r"changed while it was written: seatrial_nic/cli\.py"):
        image.install(new)
    assert image.versions == [name_of(old)]
    assert image.in_use().name == name_of(old)


@pytest.mark.parametrize("lost", [(INSTALLED,), (INSTALLED, "seatrial_nic/work.py", "nic.json")])
def test_half_a_version_is_replaced(image: Image, old, lost: tuple[str, ...]) -> None:
    """Of an installation or removal that was killed, also without the marker."""
    image.install(old)
    for name in lost:
        (image.libexec / "versions" / name_of(old) / name).unlink()
    image.install(old)
    assert {step.state for step in installing.plan(old, image.root, LAYOUT)} == {"same"}
    assert image.in_use().name == name_of(old)


def test_the_launcher_is_not_written_before_its_version(
    image: Image, old, new, monkeypatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    image.install(old)
    monkeypatch.setattr(versions, "write_whole", full)
    with pytest.raises(OSError, match="No space left"):
        image.install(new)
    assert image.versions == [name_of(old)]
    assert image.in_use().name == name_of(old)


# -- an installation that has no versions yet


LAUNCHER_BEFORE = f"""#!/usr/bin/python3 -IS
# {MARKER}
import os
import sys
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from seatrial_nic.cli import main
sys.exit(main(["--policy", {{policy!r}}, *sys.argv[1:]]))
"""


@pytest.fixture
def before(image: Image, policy: dict) -> Path:
    """The package of such an installation."""
    package = image.libexec / "seatrial_nic"
    shutil.copytree(rendering.NODE_SIDE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "of_then.py").write_text("")
    (package / INSTALLED).write_text(f"{MARKER}\n")
    text = LAUNCHER_BEFORE.format(policy=str(image.root / "etc/seatrial/nic.json"))
    (image.libexec / "seatrial-nic").write_text(text)
    (image.libexec / "seatrial-nic").chmod(0o755)
    for file in render(policy, LAYOUT):
        path = image.root / file.path.lstrip("/")
        if "versions" not in path.parts and path.name != "seatrial-nic":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.text)
            path.chmod(file.mode)
    past = time.time() - 10 * versions.KEPT_S
    os.utime(package, (past, past))
    return package


def test_an_installation_without_versions_is_upgraded(
    image: Image, before: Path, policy: dict
) -> None:
    files = render(policy, LAYOUT)
    assert image.in_use() == image.libexec
    plan = installing.plan(files, image.root, LAYOUT)
    changed = {step.target.name for step in plan if step.state != "new"}
    assert {"seatrial-nic", "prolog"} <= changed
    assert "foreign" not in {step.state for step in plan}
    image.install(files)
    assert image.in_use().name == name_of(files)
    assert (before / "cli.py").exists()  # a Prolog of before may be about to import it
    image.age("../seatrial_nic")
    image.install(files)
    assert not before.exists()


def test_a_package_of_before_without_its_marker(image: Image, before: Path, policy: dict) -> None:
    """What two installations at once left: modules are missing, and so is the marker."""
    (before / INSTALLED).unlink()
    (before / "of_then.py").unlink()
    (before / "changes.py").unlink()
    files = render(policy, LAYOUT)
    image.install(files)
    assert image.in_use().name == name_of(files)
    os.utime(before, (0, 0))
    image.install(files)
    assert not before.exists()


def test_a_folder_of_others_with_the_packages_name_stays(
    image: Image, before: Path, policy: dict
) -> None:
    (before / INSTALLED).unlink()
    (before / "of_then.py").rename(before / "theirs.txt")
    image.install(render(policy, LAYOUT))
    os.utime(before, (0, 0))
    image.install(render(policy, LAYOUT))
    assert (before / "theirs.txt").exists()


def test_a_difference_is_shown_of_a_version_to_the_one_in_use(
    image: Image, policy: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sources(tmp_path, monkeypatch) as copy:
        image.install(render(policy, LAYOUT))
        (copy / "kinds.py").write_text((copy / "kinds.py").read_text() + "# more\n")
        plan = installing.plan(render(policy, LAYOUT), image.root, LAYOUT)
    (step,) = (step for step in plan if step.target.name == "kinds.py")
    assert step.diff().splitlines()[-1] == "+# more"
    assert not [step for step in plan if step.target.name == "work.py" and step.diff()]


# -- removal


def test_all_versions_are_removed(image: Image, before: Path, policy: dict, old, new) -> None:
    for files in (old, new):
        image.install(files)
    steps = installing.plan(render(policy, LAYOUT), image.root, LAYOUT)
    listed = installing.remove(steps, LAYOUT, dry_run=True)
    assert image.versions == sorted([name_of(old), name_of(new)])
    assert installing.remove(steps, LAYOUT) == listed
    assert before / "cli.py" in listed
    assert not [path for path in image.root.rglob("*") if not path.is_dir()]
    assert not image.libexec.exists()
    assert installing.remove(installing.plan(old, image.root, LAYOUT), LAYOUT) == []
    assert not image.libexec.exists()


def test_an_installation_that_waited_for_a_removal(image: Image, old, new) -> None:
    """The lock file is gone, and another has its name."""
    image.install(old)
    lock = image.libexec / versions.LOCK
    said: list[str] = []
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waits = threading.Thread(target=image.install, args=(new, said.append))
        waits.start()
        deadline = time.monotonic() + 200
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
        shutil.rmtree(image.libexec)
    waits.join(200)
    assert lock.exists()
    assert image.in_use().name == name_of(new)


@pytest.mark.parametrize("of", ["version", "copy"])
def test_a_profile_in_force_by_either_policy_stops_a_removal(
    image: Image, policy: dict, old, of: str
) -> None:
    image.install(old)
    state = image.root / "var/lib/other"
    state.mkdir(parents=True)
    (state / "journal.json").write_text("{}")
    folder = image.libexec / "versions" / name_of(old) if of == "version" else None
    file = folder / "nic.json" if folder else image.root / "etc/seatrial/nic.json"
    file.write_text(json.dumps({**policy, "state_folder": "/var/lib/other"}))
    steps = installing.plan(old, image.root, LAYOUT)
    for act in (installing.remove, installing.install):
        with pytest.raises(InputError, match=r"other/journal\.json: a NIC profile is in force"):
            act(steps, LAYOUT)
    (state / "journal.json").unlink()
    installing.install(steps, LAYOUT)


def test_the_state_folder_of_shared_versions_stays(
    image: Image, policy: dict, old, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node may have a profile in force, and its journal is not to be seen here."""
    image.install(old)
    monkeypatch.setattr(installing, "_shared", lambda *_: "nfs4")
    moved = render({**policy, "state_folder": "/var/lib/moved"}, LAYOUT)
    with pytest.raises(InputError, match=r"is on nfs4.*has its state in .*, not in /var/lib/moved"):
        image.install(moved)
    image.install(render({**policy, "digest": "newer"}, LAYOUT))


def test_where_libexec_is_shared() -> None:
    def kind(libexec: str) -> str:
        return installing._shared(Path("/"), dataclasses.replace(LAYOUT, libexec=libexec))

    assert kind("/proc") == ""
    assert kind("/no/such") == ""
