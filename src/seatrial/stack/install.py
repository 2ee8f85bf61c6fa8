"""Spack itself: cloned at the pinned tag where the site has none, with clingo from PyPI.

Makes ``.seatrial/spack/{spack,builtin,python,config}``. It builds no package.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.run import run
from seatrial.stack.files import fresh, replace
from seatrial.stack.folders import Places
from seatrial.stack.lock import locked
from seatrial.stack.pins import Pins, Repository

Say = Callable[[str], None]
#: s that a git command may be without an answer of its host
PATIENCE = 300
#: asks nobody for a password; gives up where under 1 kB/s come for 20 s
_GIT_ENV = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
    "GIT_HTTP_LOW_SPEED_TIME": "20",
}


def prepare(places: Places, pins: Pins, say: Say) -> None:
    """Bring Spack, builtin packages and the concretizer to the pins. Raises LabError."""
    with locked(places.home / "lock", say):
        _prepare(places, pins, say)


def _prepare(places: Places, pins: Pins, say: Say) -> None:
    if places.own_root:
        checkout(pins.spack, places.root, "Spack", say)
    elif not places.spack.is_file():
        raise LabError(f"there is no Spack in {places.root}: {places.spack} is missing")
    checkout(pins.builtin, places.builtin, "the builtin packages", say)
    concretizer(places.venv, pins.python, say)
    for folder in ("config", "cache"):
        (places.home / folder).mkdir(parents=True, exist_ok=True)


def commit_of(folder: Path) -> str:
    """The commit that a clone is at; empty where it is none."""
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if (folder / ".git").exists() and not done.returncode else ""


def checkout(repository: Repository, folder: Path, what: str, say: Say) -> None:
    """Clone a repository at its tag, and see that the tag is still at the pinned commit.

    A clone that is right is left alone; any other is replaced. Raises LabError.
    """
    if commit_of(folder) == repository.commit:
        return
    say(f"cloning {what} {repository.tag}")
    partial = fresh(folder.with_name(folder.name + ".partial"))
    command = [
        "git", "-c", "advice.detachedHead=false", "clone", "-q", "--depth", "1",
        "--branch", repository.tag, repository.git, str(partial),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE,
            stdin=subprocess.DEVNULL, env={**os.environ, **_GIT_ENV},
        )  # fmt: skip
        failure = done.stderr.strip().splitlines()[-1:] if done.returncode else []
        failed = done.returncode != 0
    except subprocess.TimeoutExpired:
        failed, failure = True, [f"no answer within {PATIENCE} s"]
    except FileNotFoundError:
        failed, failure = True, ["git is missing"]
    if failed:
        fresh(partial).rmdir()
        reason = failure[0] if failure else "git gave no reason"
        raise LabError(
            f"cannot clone {what} from {repository.git}: {reason} (with a Spack of the site's own, "
            "set stack.root in site.yaml)"
        )
    found = commit_of(partial)
    if found != repository.commit:
        fresh(partial).rmdir()
        raise LabError(
            f"{repository.git}: the tag {repository.tag} is now at {found}, and pins.yaml says "
            f"{repository.commit}: somebody moved it. Look at why before you change the pin"
        )
    replace(partial, folder)


def concretizer(venv: Path, pins: dict[str, str], say: Say) -> None:
    """A Python that has clingo, so that Spack downloads none. Raises LabError."""
    wanted = "\n".join(f"{name}=={version}" for name, version in sorted(pins.items()))
    stamp = venv / "seatrial-pins"
    if stamp.is_file() and stamp.read_text() == wanted and (venv / "bin/python").exists():
        return
    say("installing the concretizer from PyPI: " + wanted.replace("\n", " "))
    fresh(venv)
    run([sys.executable, "-m", "venv", venv], "making a virtual environment for Spack")
    run(
        [venv / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check",
         *wanted.split()],
        "installing clingo from PyPI",
    )  # fmt: skip
    stamp.write_text(wanted)


def version(places: Places) -> str:
    """As ``spack --version`` says it. Raises LabError."""
    return spack(places, ["--version"], "asking Spack for its version").strip()


def spack(places: Places, arguments: list[str], purpose: str, *, environment: bool = False) -> str:
    """Standard output of a Spack command. Raises LabError with the end of its output."""
    return run(words(places, arguments, environment=environment), purpose, env=places.variables())


def words(
    places: Places, arguments: list[str], *, environment: bool = False, options: Iterable[str] = ()
) -> list[str | Path]:
    """A Spack command with the site's scopes and, with ``environment``, its environment.

    ``options`` are those that stand before the command.
    """
    scopes: list[str | Path] = [word for scope in places.scopes for word in ("-C", scope)]
    where: list[str | Path] = ["-e", places.environment] if environment else []
    return [places.spack, *scopes, *options, *where, *arguments]
