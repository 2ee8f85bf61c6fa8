"""Where the files of the Slurm side lie on nodes and controller, and the times they work with."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from seatrial.base.errors import InputError

# They stand in shell, slurm.conf, a unit and Lua: no sign that means something in any of these.
_FOLDER = re.compile(r"/[A-Za-z0-9._/-]*")


@dataclass(frozen=True)
class Layout:
    """Absolute folders. Raises InputError for one that is not, or that needs quoting.

    ``libexec`` has the node side and Slurm's scripts, ``conf`` the policy, ``slurm`` is Slurm's
    own (where slurm.conf is), ``units`` systemd's. ``python`` is the nodes' interpreter.
    ``state`` replaces the site's state folder; ``%n`` in it is the node's short name. Times in s.
    """

    libexec: str = "/usr/libexec/seatrial"
    conf: str = "/etc/seatrial"
    slurm: str = "/etc/slurm"
    units: str = "/etc/systemd/system"
    python: str = "/usr/bin/python3"
    state: str | None = None
    health_interval_s: int = 60
    # Beyond the 40 s that the node side waits for the lock, and two loads of a driver (60 s each).
    prolog_timeout_s: int = 240
    batch_start_timeout_s: int = 300

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if isinstance(value, str):
                shape = value.replace("%n", "n") if each.name == "state" else value
                if not _FOLDER.fullmatch(shape) or ".." in PurePosixPath(shape).parts:
                    raise InputError(
                        f"{each.name} {value!r} is no absolute path of letters, digits and . _ -"
                    )

    @property
    def policy(self) -> str:
        return f"{self.conf}/nic.json"

    @property
    def command(self) -> str:
        """The node side's launcher."""
        return f"{self.libexec}/seatrial-nic"

    @property
    def package(self) -> str:
        """The node side itself, a Python package."""
        return f"{self.libexec}/seatrial_nic"

    @property
    def slurm_conf(self) -> str:
        return f"{self.slurm}/seatrial-nic.conf"

    @property
    def job_submit(self) -> str:
        return f"{self.slurm}/job_submit.lua"

    @property
    def job_submit_beside(self) -> str:
        """Where ours goes when the site has its own job_submit.lua."""
        return f"{self.slurm}/job_submit_seatrial.lua"

    @property
    def unit(self) -> str:
        return f"{self.units}/seatrial-nic-recover.service"
