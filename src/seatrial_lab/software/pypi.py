"""Pinned files from PyPI, by pip: wheels and source distributions, each with its sha256."""

from __future__ import annotations

import sys
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.run import run

HERE = Path(__file__).parent
WHEELS = HERE / "pypi.lock.txt"
SOURCES = HERE / "pypi-sources.lock.txt"


def pins(lock: Path) -> dict[str, str]:
    """Name -> version, of a lock file."""
    lines = [line.split()[0] for line in lock.read_text().splitlines() if line and line[0] != "#"]
    return dict(line.split("==") for line in lines)


def requirement(lock: Path, name: str) -> str:
    """The line of a lock file that pins a project."""
    return next(line for line in lock.read_text().splitlines() if line.startswith(f"{name}=="))


def download_wheel(name: str, into: Path, python: str) -> Path:
    """The pinned wheel of a project for CPython ``python`` such as 3.11. Raises LabError."""
    return _download(
        WHEELS, name, into, ["--only-binary", ":all:", "--python-version", python], "*.whl"
    )


def download_source(name: str, into: Path) -> Path:
    """The pinned source distribution of a project; nothing of it is built. Raises LabError.

    pip insists on a source distribution's metadata and for that may install build tools into a
    throw-away environment; what is kept is only the archive, whose hash is pinned.
    """
    return _download(SOURCES, name, into, ["--no-binary", name], "*.tar.gz")


def _download(lock: Path, name: str, into: Path, options: list[str], pattern: str) -> Path:
    into.mkdir(parents=True, exist_ok=True)
    wanted = into / f"{name}.lock"
    wanted.write_text(requirement(lock, name) + "\n")
    command: list[str | Path] = [
        sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check",
        "--no-cache-dir", "--no-deps", "--require-hashes", "-d", into, *options, "-r", wanted,
    ]  # fmt: skip
    run(command, f"downloading {name} from PyPI")
    stem = name.replace("-", "_")
    for file in into.glob(pattern):
        if file.name.startswith((f"{stem}-", f"{name}-")):
            return file
    raise LabError(f"pip downloaded no file of {name}")
