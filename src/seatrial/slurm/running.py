"""Whether a Slurm runs on this machine, for where it does not answer.

``scontrol`` may be missing in the PATH of sudo, and a configless node has no slurm.conf.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_DAEMONS = ("slurmd", "slurmctld")
_MOST_SYSTEM_UID = 999  # SYS_UID_MAX of login.defs; slurmctld seldom runs as root
#: where configless daemons keep the configuration (https://slurm.schedmd.com/configless_slurm.html);
#: the folders of the spool are SlurmdSpoolDir's default and those of the distributions
_CACHES = ("run/slurm/conf", "var/spool/slurm*/conf-cache", "var/spool/slurm*/*/conf-cache")

#: the end of what each command of Slurm writes on a machine that has no configuration
_NO_CONFIGURATION = "Could not establish a configuration source"


def complaint(errors: str) -> str:
    """What a command of Slurm wrote to standard error, in one line.

    Where it finds no configuration, it writes four lines about DNS. The cause is written instead.
    """
    if _NO_CONFIGURATION in errors:
        return (
            "this machine has no slurm.conf, and no DNS record names a slurmctld: use a login node "
            "of the cluster, or set SLURM_CONF if slurm.conf is elsewhere"
        )
    return " ".join(errors.split())


def daemons(proc: Path = Path("/proc")) -> Iterator[str]:
    """The daemons of Slurm that root or a system user runs here, and not in a container."""
    for process in sorted(proc.glob("[0-9]*")):
        with suppress(OSError):  # it has ended
            name = (process / "comm").read_text().strip()
            if name not in _DAEMONS or process.stat().st_uid > _MOST_SYSTEM_UID:
                continue
            with suppress(PermissionError):
                if (process / "ns/pid").readlink() != (proc / "self/ns/pid").readlink():
                    continue
            yield f"{name} runs here (process {process.name})"


def configless(root: Path = Path("/")) -> Iterator[str]:
    """The configurations that configless daemons got from slurmctld."""
    for pattern in _CACHES:
        for path in sorted(root.glob(pattern)):
            yield f"{path} is the configuration of a configless Slurm"
