"""Download pinned files from PyPI with pip: wheels and source distributions, with sha256.

It installs nothing into a Python.
"""

from __future__ import annotations

import sys
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.run import run

HERE = Path(__file__).parent
WHEELS = HERE / "pypi.lock.txt"
SOURCES = HERE / "pypi-sources.lock.txt"


def pins(lock: Path) -> dict[str, str]:
    """Return name -> version of the projects in a lock file."""
    lines = [line.split()[0] for line in lock.read_text().splitlines() if line and line[0] != "#"]
    return dict(line.split("==") for line in lines)


def requirement(lock: Path, name: str) -> str:
    """Return the line of a lock file that pins a project."""
    return next(line for line in lock.read_text().splitlines() if line.startswith(f"{name}=="))


def download_wheel(name: str, into: Path, python: str, lock: Path = WHEELS) -> Path:
    """Return the pinned wheel of a project for CPython ``python``, e.g. 3.11. Raises LabError."""
    return _download(
        lock, name, into, ["--only-binary", ":all:", "--python-version", python], "*.whl"
    )


def download_source(name: str, into: Path) -> Path:
    """Return the pinned source distribution of a project, not built. Raises LabError.

    pip reads the metadata of a source distribution with setuptools of Seatrial's own environment:
    a temporary one would take some seconds. Only the archive is kept, and its hash is pinned.
    """
    options = ["--no-binary", name, "--no-build-isolation"]
    return _download(SOURCES, name, into, options, "*.tar.gz")


def _download(lock: Path, name: str, into: Path, options: list[str], pattern: str) -> Path:
    into.mkdir(parents=True, exist_ok=True)
    wanted = into / f"{name}.lock"
    wanted.write_text(requirement(lock, name) + "\n")
    command: list[str | Path] = [
        sys.executable, "-I", "-m", "pip", "download", "-q", "--disable-pip-version-check",
        "--no-cache-dir", "--no-deps", "--require-hashes", "-d", into, *options, "-r", wanted,
    ]  # fmt: skip
    run(command, f"downloading {name} from PyPI")
    stem = name.replace("-", "_")
    for file in into.glob(pattern):
        if file.name.startswith((f"{stem}-", f"{name}-")):
            return file
    raise LabError(f"pip downloaded no file of {name}")
