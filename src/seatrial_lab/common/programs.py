"""The machine's programs that a lab needs, and their versions. Installs nothing."""

from __future__ import annotations

import ctypes
import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial_lab.common.render import Version

# program: Debian package
_ALWAYS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sinfo": "slurm-client",
}
_ACCOUNTING = {
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def find(program: str) -> str | None:
    """Return a program's path in the system's PATH, not the caller's; None if it is missing."""
    return shutil.which(program, path=PATH)


@dataclass(frozen=True)
class Programs:
    """The installed Slurm: version, account and plugins."""

    slurm_version: Version
    slurm_text: str
    slurm_user: str
    pmix: bool


def check_root() -> None:
    """Raise LabError unless this process runs as root."""
    if os.geteuid() != 0:
        raise LabError("the lab makes namespaces and mounts: it must be run as root")


def check_machine(accounting: bool) -> None:
    """Raise LabError unless this process is root and every program of the lab is installed."""
    check_root()
    wanted = _ALWAYS | (_ACCOUNTING if accounting else {})
    missing = {package for program, package in wanted.items() if not find(program)}
    if missing:
        raise LabError(f"programs are missing: apt-get install {' '.join(sorted(missing))}")


@cache
def programs() -> Programs:
    """Return the facts of the installed Slurm. Raises LabError if it prints no version."""
    text = version_of("slurmctld", "-V")
    match = re.search(r"(\d+)\.(\d+)", text)
    if not match:
        raise LabError(f"slurmctld -V prints {text!r}: there is no version in it")
    users = {entry.pw_name for entry in pwd.getpwall()}
    return Programs(
        slurm_version=(int(match[1]), int(match[2])),
        slurm_text=text,
        slurm_user="slurm" if "slurm" in users else "root",
        pmix=_pmix_loads(),
    )


def version_of(program: str, option: str = "--version") -> str:
    """Return the first line of a program's version output; empty if the program is missing."""
    path = find(program)
    if not path:
        return ""
    answer = subprocess.run([path, option], capture_output=True, text=True, check=False)
    lines = (answer.stdout or answer.stderr).strip().splitlines()
    return lines[0].strip() if lines else ""


def _pmix_loads() -> bool:
    """Return whether Slurm's PMIx plugin loads: it opens libpmix.so, a file of libpmix-dev."""
    plugin = any(Path("/usr/lib").glob("*/slurm-wlm/mpi_pmix.so"))
    try:
        ctypes.CDLL("libpmix.so")
    except OSError:
        return False
    return plugin
