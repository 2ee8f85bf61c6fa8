"""Which folders a lab covers, and what it binds back over them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial_lab.common import mounts


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``closed/a/b`` and ``open/a`` below a folder that anyone may pass through."""
    for path in ("closed/a/b", "closed/c", "open/a"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    real = mounts.closed_ancestor

    def below_tree(path: Path) -> Path | None:
        # pytest's own folder is closed as well; the tests are about what is in it.
        found = real(path)
        if found is not None and found in (tmp_path, *tmp_path.parents):
            folders = [p for p in reversed(path.parents) if tmp_path in p.parents]
            closed = [p for p in folders if p.exists() and not p.stat().st_mode & 1]
            return closed[0] if closed else None
        return found

    monkeypatch.setattr(mounts, "closed_ancestor", below_tree)
    return tmp_path


def test_an_open_path_needs_nothing(tree: Path) -> None:
    assert mounts.plan([tree / "open/a"], {}) == ({}, [])


def test_a_closed_folder_is_covered_and_the_path_bound_back(tree: Path) -> None:
    path = tree / "closed/a"
    assert mounts.plan([path], {}) == ({str(tree / "closed"): "755"}, [[str(path)] * 2])


def test_a_path_below_another_is_bound_once(tree: Path) -> None:
    _, binds = mounts.plan([tree / "closed/a/b", tree / "closed/a", tree / "closed/c"], {})
    assert [bind[0] for bind in binds] == [str(tree / "closed/a"), str(tree / "closed/c")]


def test_a_path_below_a_given_cover_is_bound_back(tree: Path) -> None:
    path = tree / "open/a"
    covers, binds = mounts.plan([path], {str(tree / "open"): "1777"})
    assert covers == {str(tree / "open"): "1777"}
    assert binds == [[str(path)] * 2]


def test_a_cover_between_two_paths_hides_the_lower(tree: Path) -> None:
    cover = {str(tree / "open"): "1777"}
    _, binds = mounts.plan([tree, tree / "open/a"], cover)
    assert [bind[0] for bind in binds] == [str(tree / "open/a")]


def test_closed_ancestor_is_the_topmost(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir(mode=0o700)
    (tmp_path / "x/y").mkdir(mode=0o700)
    found = mounts.closed_ancestor(tmp_path / "x/y/z")
    assert found is not None
    assert found != tmp_path / "x/y"


MOUNT = """
import sys
from seatrial_lab.common import mounts
source, target = sys.argv[1:]
mounts.check(mounts.LIBC.unshare(mounts.CLONE_NEWNS), "unshare")
mounts.mount("none", "/", "", mounts.MS_REC | mounts.MS_SLAVE)
mounts.attach_tree(mounts.open_tree(source), target)
print(open(target if target.endswith("file") else target + "/file").read())
"""


@pytest.mark.root
@pytest.mark.parametrize("owner", [0, 2000])
@pytest.mark.parametrize("kind", ["folder", "file", "link", "link above"])
def test_a_mount_follows_only_links_of_root(tmp_path: Path, kind: str, owner: int) -> None:
    """Else a job user chooses the place on which root mounts, or where it makes a folder."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_text("seen")
    (tmp_path / "elsewhere").mkdir()
    source, target = tmp_path / "source", tmp_path / "a" / "b"
    if kind == "file":
        source, target = source / "file", target / "file"
    elif kind == "link":
        (tmp_path / "a").mkdir()
        target.symlink_to(tmp_path / "elsewhere")
        os.chown(target, owner, owner, follow_symlinks=False)
    elif kind == "link above":
        (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
        os.chown(tmp_path / "a", owner, owner, follow_symlinks=False)
    done = subprocess.run(
        [sys.executable, "-c", MOUNT, str(source), str(target)], capture_output=True, text=True
    )
    if owner and "link" in kind:
        assert "is a symbolic link of user 2000" in done.stderr
        assert list((tmp_path / "elsewhere").iterdir()) == []
    else:
        assert done.stdout == "seen\n", done.stderr


COVER = """
import sys
from pathlib import Path
from seatrial_lab.common import mounts
source, target = sys.argv[1:]
mounts.check(mounts.LIBC.unshare(mounts.CLONE_NEWNS), "unshare")
mounts.mount("none", "/", "", mounts.MS_REC | mounts.MS_SLAVE)
for _ in range(2):
    try:
        mounts.attach_below_cover(mounts.open_tree(source), target)
    except OSError as error:
        print(error, file=sys.stderr)
above = str(Path(target).parents[1])
print(sorted(line.split()[4] for line in open("/proc/self/mountinfo") if above in line))
"""


@pytest.fixture
def passable() -> Iterator[Path]:
    """A folder that everybody may pass through; pytest's own are closed."""
    with tempfile.TemporaryDirectory(prefix="seatrial-mounts-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.root
@pytest.mark.parametrize("planted", ["nothing", "closed", "link"])
def test_a_closed_folder_is_covered_but_not_through_a_link(passable: Path, planted: str) -> None:
    """Else a job user has root mount a tmpfs over any closed folder of the node, as /root."""
    source, secret, home = passable / "source", passable / "secret", passable / "home"
    source.mkdir()
    (secret / "trials").mkdir(parents=True)
    secret.chmod(0o700)
    if planted == "link":
        home.symlink_to(secret)
        os.chown(home, 2000, 2000, follow_symlinks=False)
    else:
        (home / "trials").mkdir(parents=True)
        home.chmod(0o700 if planted == "closed" else 0o755)
    done = subprocess.run(
        [sys.executable, "-c", COVER, str(source), str(home / "trials")],
        capture_output=True,
        text=True,
    )
    mounted = {
        "nothing": [str(home / "trials")],
        "closed": [str(home), str(home / "trials")],
        "link": [],
    }
    assert done.stdout == f"{mounted[planted]}\n", done.stderr
    assert ("is a symbolic link of user 2000" in done.stderr) == (planted == "link")
