"""Install Spack and start it: Spack and the builtin packages at their pins, clingo from PyPI.

Writes ``.seatrial/spack/{spack,builtin,python,config}``. Packages are built by ``build``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.lock import locked
from seatrial.base.run import run
from seatrial.base.say import Say
from seatrial.stack.files import fresh, replace
from seatrial.stack.paths import Paths
from seatrial.stack.pins import Pins, Repository

#: time limit of a git command, s
GIT_TIMEOUT = 300
#: git asks for no password, and stops if it receives less than 1 kB/s for 20 s
_GIT_ENV = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
    "GIT_HTTP_LOW_SPEED_TIME": "20",
}


def prepare(paths: Paths, pins: Pins, say: Say) -> None:
    """Bring Spack, builtin packages and the concretizer to the pins. Raises LabError."""
    with locked(paths.home / "lock", say):
        _prepare(paths, pins, say)


def _prepare(paths: Paths, pins: Pins, say: Say) -> None:
    if paths.own_root:
        checkout(pins.spack, paths.root, "Spack", say)
    elif not paths.spack.is_file():
        raise LabError(f"there is no Spack in {paths.root}: {paths.spack} is missing")
    checkout(pins.builtin, paths.builtin, "the builtin packages", say)
    install_concretizer(paths.venv, pins.python, say)
    for folder in ("config", "cache"):
        (paths.home / folder).mkdir(parents=True, exist_ok=True)


def commit_of(folder: Path) -> str:
    """The commit that is checked out in a clone; empty if the folder is no clone."""
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if (folder / ".git").exists() and not done.returncode else ""


def checkout(repository: Repository, folder: Path, what: str, say: Say) -> None:
    """Clone a repository at its tag, and check that the tag is at the pinned commit.

    A clone at the pinned commit is kept; any other is replaced. Raises LabError if the clone fails
    or if the tag is at another commit.
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
            command, capture_output=True, text=True, check=False, timeout=GIT_TIMEOUT,
            stdin=subprocess.DEVNULL, env={**os.environ, **_GIT_ENV},
        )  # fmt: skip
        failure = done.stderr.strip().splitlines()[-1:] if done.returncode else []
        failed = done.returncode != 0
    except subprocess.TimeoutExpired:
        failed, failure = True, [f"no answer within {GIT_TIMEOUT} s"]
    except FileNotFoundError:
        failed, failure = True, ["git is missing"]
    if failed:
        fresh(partial).rmdir()
        reason = failure[0] if failure else "git gave no reason"
        raise LabError(
            f"cannot clone {what} from {repository.git}: {reason} "
            "(to use a Spack that the site has, set stack.root in site.yaml)"
        )
    commit = commit_of(partial)
    if commit != repository.commit:
        fresh(partial).rmdir()
        raise LabError(
            f"{repository.git}: the tag {repository.tag} is now at {commit}, and pins.yaml says "
            f"{repository.commit}: the tag was moved. Find out why before you change the pin"
        )
    replace(partial, folder)


def install_concretizer(venv: Path, pins: dict[str, str], say: Say) -> None:
    """Make a virtual environment with clingo, so that Spack bootstraps none. Raises LabError."""
    wanted = "\n".join(f"{name}=={version}" for name, version in sorted(pins.items()))
    stamp = venv / "seatrial-pins"
    if stamp.is_file() and stamp.read_text() == wanted and (venv / "bin/python").exists():
        return
    say("installing the concretizer from PyPI: " + wanted.replace("\n", " "))
    fresh(venv)
    run([sys.executable, "-I", "-m", "venv", venv], "making a virtual environment for Spack")
    run(
        [venv / "bin/python", "-I", "-m", "pip", "install", "-q", "--disable-pip-version-check",
         *wanted.split()],
        "installing clingo from PyPI",
    )  # fmt: skip
    stamp.write_text(wanted)


def version(paths: Paths) -> str:
    """The output of ``spack --version``. Raises LabError."""
    return spack(paths, ["--version"], "asking Spack for its version").strip()


def spack(paths: Paths, arguments: list[str], purpose: str, *, environment: bool = False) -> str:
    """The standard output of a Spack command. Raises LabError with the end of the output."""
    command = command_line(paths, arguments, environment=environment)
    return run(command, purpose, env=paths.variables())


def command_line(
    paths: Paths, arguments: list[str], *, environment: bool = False, options: Iterable[str] = ()
) -> list[str | Path]:
    """The words of a Spack command with the scopes of the site.

    ``environment`` adds the environment of the site; ``options`` go before the command.
    """
    scopes: list[str | Path] = [word for scope in paths.scopes for word in ("-C", scope)]
    where: list[str | Path] = ["-e", paths.environment] if environment else []
    return [paths.spack, *scopes, *options, *where, *arguments]
