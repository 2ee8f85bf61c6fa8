"""The paths of the Slurm side's files on nodes and controller, and its time limits."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from seatrial.base.errors import InputError

#: name of the node side's Python package on nodes
PACKAGE = "seatrial_nic"
# The paths are used in shell, slurm.conf, a systemd unit and Lua: no character special in any.
_FOLDER = re.compile(r"/[A-Za-z0-9._/-]*")


@dataclass(frozen=True)
class Layout:
    """Absolute paths of folders. Raises InputError for another path, or one that needs quoting.

    ``libexec``: the node side and Slurm's scripts. ``conf``: the policy, which jobs look for in
    the default place only. ``slurm``: the folder of slurm.conf. ``units``: systemd's units.
    ``python``: the interpreter of the nodes. ``state`` replaces the site's state folder; ``%n`` in
    it is the node's short name. Times are in s.
    """

    libexec: str = "/usr/libexec/seatrial"
    conf: str = "/etc/seatrial"
    slurm: str = "/etc/slurm"
    units: str = "/etc/systemd/system"
    python: str = "/usr/bin/python3"
    state: str | None = None
    health_interval_s: int = 60
    # More than the 40 s of waiting for the lock and two loads of a driver of 60 s each.
    prolog_timeout_s: int = 240
    batch_start_timeout_s: int = 300

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if isinstance(value, str):
                shape = value.replace("%n", "n") if each.name == "state" else value
                if not _FOLDER.fullmatch(shape) or ".." in PurePosixPath(shape).parts:
                    raise InputError(
                        f"{each.name} {value!r} is not an absolute path of letters, digits, . _ -"
                    )

    @property
    def command_s(self) -> int:
        """How long the node side's command may take in Prolog, Epilog and the unit.

        Slurm drains a node whose Prolog it kills, and nobody knows why. Python needs some seconds
        to start on a busy node."""
        return self.prolog_timeout_s - 10

    @property
    def policy(self) -> str:
        return f"{self.conf}/nic.json"

    @property
    def command(self) -> str:
        """The node side's launcher, which starts the version that it names."""
        return f"{self.libexec}/seatrial-nic"

    @property
    def versions(self) -> str:
        """The folder of the versions of the node side: package and policy. The launcher names the
        one that is in use."""
        return f"{self.libexec}/versions"

    @property
    def package_before(self) -> str:
        """The package of an installation that has no versions yet."""
        return f"{self.libexec}/{PACKAGE}"

    @property
    def slurm_conf(self) -> str:
        return f"{self.slurm}/seatrial-nic.conf"

    @property
    def job_submit(self) -> str:
        return f"{self.slurm}/job_submit.lua"

    @property
    def job_submit_beside(self) -> str:
        """The path of ours if the site has its own job_submit.lua."""
        return f"{self.slurm}/job_submit_seatrial.lua"

    @property
    def unit(self) -> str:
        return f"{self.units}/seatrial-nic-recover.service"
