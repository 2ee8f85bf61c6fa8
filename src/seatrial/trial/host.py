"""Facts about the machine and this checkout, for the record of a trial."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import seatrial
from seatrial.base.paths import CHECKOUT


def version_with_commit() -> str:
    """The version. In a git checkout also the commit, with a + for uncommitted changes."""
    try:
        described = subprocess.run(
            ["git", "-C", str(CHECKOUT), "describe", "--always", "--dirty=+", "--exclude=*"],
            capture_output=True, text=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return seatrial.__version__
    commit = described.stdout.strip()
    return f"{seatrial.__version__} ({commit})" if commit else seatrial.__version__


def host_facts() -> dict[str, Any]:
    """Kernel, processor, cores, memory (MiB) and operating system of this machine."""
    return {
        "kernel": platform.release(),
        "processor": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": os.cpu_count(),
        "memory_MiB": int(_field("/proc/meminfo", "MemTotal").split()[0]) // 1024,
        "operating system": _field("/etc/os-release", "PRETTY_NAME", "=").strip('"'),
        "load": round(os.getloadavg()[0], 2),
    }


def available_MiB() -> int:
    """The memory that programs can take without swapping."""
    return int(_field("/proc/meminfo", "MemAvailable").split()[0]) // 1024


def _field(file: str, name: str, separator: str = ":") -> str:
    for line in Path(file).read_text().splitlines():
        key, _, value = line.partition(separator)
        if key.strip() == name:
            return value.strip()
    return ""
