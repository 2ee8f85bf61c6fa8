"""Pins: what is cloned is what was pinned, and both places that pin builtin agree."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from seatrial.base.errors import InputError, LabError
from seatrial.base.paths import CHECKOUT
from seatrial.stack import install, pins

PINS = sorted(CHECKOUT.glob("site-configs/*/spack/pins.yaml"))


@pytest.fixture
def origin(tmp_path: Path) -> tuple[str, str]:
    """A repository with the tag v1: its URL and the tag's commit."""
    folder = tmp_path / "origin"
    for command in (
        ["git", "init", "-q", str(folder)],
        ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q",
         "--allow-empty", "-m", "one"],
        ["git", "-C", str(folder), "tag", "v1"],
    ):  # fmt: skip
        subprocess.run(command, check=True)
    return f"file://{folder}", install.commit_of(folder)


@pytest.mark.parametrize("file", PINS, ids=lambda file: file.parents[1].name)
def test_pins_agree_with_base(file: Path):
    text = (CHECKOUT / "spack-repo/environments/base/repos.yaml").read_text()
    builtin = YAML(typ="safe").load(text.replace("builtin::", "builtin:"))["repos"]["builtin"]
    found = pins.read(file)
    assert (builtin["git"], builtin["tag"]) == (found.builtin.git, found.builtin.tag)


def test_there_are_pins():
    assert PINS


def test_a_short_commit_is_refused(tmp_path: Path):
    file = tmp_path / "pins.yaml"
    file.write_text(
        "spack: {git: a, tag: v1, commit: abc}\n"
        f"builtin: {{git: a, tag: v1, commit: {'0' * 40}}}\npython: {{}}\n"
    )
    with pytest.raises(InputError, match=r"pins\.yaml:1: spack\.commit: 'abc' is not a commit"):
        pins.read(file)


def test_clone_is_at_the_pin_and_made_once(origin: tuple[str, str], tmp_path: Path):
    url, commit = origin
    repository = pins.Repository(git=url, tag="v1", commit=commit)
    said: list[str] = []
    install.checkout(repository, tmp_path / "clone", "it", said.append)
    install.checkout(repository, tmp_path / "clone", "it", said.append)
    assert install.commit_of(tmp_path / "clone") == commit
    assert said == ["cloning it v1"]


def test_a_moved_tag_is_an_error_and_leaves_nothing(origin: tuple[str, str], tmp_path: Path):
    repository = pins.Repository(git=origin[0], tag="v1", commit="0" * 40)
    with pytest.raises(LabError, match="the tag v1 is now at"):
        install.checkout(repository, tmp_path / "clone", "it", lambda _: None)
    assert not list(tmp_path.glob("clone*"))


def test_no_network_is_one_line(tmp_path: Path):
    repository = pins.Repository(git=f"file://{tmp_path}/none", tag="v1", commit="0" * 40)
    with pytest.raises(LabError, match=r"cannot clone Spack from file://.*none") as caught:
        install.checkout(repository, tmp_path / "clone", "Spack", lambda _: None)
    assert "\n" not in str(caught.value)
