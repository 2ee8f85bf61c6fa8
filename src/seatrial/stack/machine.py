"""The machine the stack is installed on: which distribution, which packages, which user.

Asks; changes nothing.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

from seatrial.base.errors import LabError

OS_RELEASE = Path("/etc/os-release")


def os_release(file: Path = OS_RELEASE) -> dict[str, str]:
    """The fields of os-release(5); empty where the file is missing."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {key: value.strip().strip("\"'") for key, value in pairs}


def installed() -> dict[str, str]:
    """Package -> version, of every Debian package that is installed. Raises LabError."""
    query = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\n"]
    if not shutil.which("dpkg-query"):
        raise LabError("dpkg-query is missing: this is no Debian system")
    listing = subprocess.run(query, capture_output=True, text=True, check=False)
    if listing.returncode:
        raise LabError(f"dpkg-query failed: {listing.stderr.strip()}")
    words = (line.split() for line in listing.stdout.splitlines())
    return {w[1]: w[2] for w in words if len(w) == 3 and w[0] == "installed"}


def require_root(purpose: str) -> None:
    """Raises LabError unless this is root."""
    if os.geteuid() != 0:
        raise LabError(f"{purpose} needs root; run the command with sudo")


def library_folder() -> Path:
    """Where Debian puts this architecture's shared libraries."""
    return Path(f"/usr/lib/{platform.machine()}-linux-gnu")
