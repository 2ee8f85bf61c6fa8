"""The paths of a lab's files and the names of its namespaces. Pure: creates nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

RUN_ROOT = Path("/run/seatrial")
# Not below /var/tmp: each node has its own /var/tmp, and all nodes share this folder.
DATA_ROOT = Path("/var/lib/seatrial")
CACHE_ROOT = Path("/var/cache/seatrial")
NETNS_ROOT = Path("/run/netns")
HOST_ETC = Path("/run/seatrial-host/etc")  # only inside a lab

SWITCH = "switch"


@dataclass(frozen=True)
class LabPaths:
    """The paths of one instance. ``down`` removes both ``run`` and ``data``."""

    instance: str

    @property
    def run(self) -> Path:
        """State of the running lab; not visible on its hosts."""
        return RUN_ROOT / self.instance

    @property
    def lock(self) -> Path:
        """Held while the lab starts, ends or changes."""
        return self.run / "lock"

    @property
    def engine(self) -> Path:
        """The name of the lab's engine. Written first and removed last."""
        return self.run / "engine"

    @property
    def state(self) -> Path:
        return self.run / "state.json"

    @property
    def data(self) -> Path:
        """Logs, spool, home and configuration; the hosts see it at the same path."""
        return DATA_ROOT / self.instance

    @property
    def etc(self) -> Path:
        """The folder that the nodes see as /etc."""
        return self.data / "etc"

    @property
    def home(self) -> Path:
        """The job user's HOME, shared by all nodes."""
        return self.data / "home"

    @property
    def controller_state(self) -> Path:
        """The state folder of slurmctld."""
        return self.data / "slurmctld"

    @property
    def munge_key(self) -> Path:
        return self.data / "munge" / "munge.key"

    @property
    def controller_ready(self) -> Path:
        """Exists once slurmctld listens. slurmd starts after it, because slurmd retries slowly."""
        return self.data / "controller-ready"

    def log(self, host: str, daemon: str = "") -> Path:
        """Return a host's log folder, or the log of one daemon in it."""
        folder = self.data / "log" / host
        return folder / f"{daemon}.log" if daemon else folder

    def node_config(self, host: str) -> Path:
        return self.run / "nodes" / f"{host}.json"

    def node_pid(self, host: str) -> Path:
        """Return the file with the process id and start time of a host's first process."""
        return self.run / "nodes" / f"{host}.pid"

    @property
    def netns_prefix(self) -> str:
        return f"seatrial-{self.instance}-"

    def netns(self, host: str) -> str:
        """Return the name of a host's (or the switch's) network namespace."""
        return f"{self.netns_prefix}{host}"

    def netns_path(self, host: str) -> Path:
        return NETNS_ROOT / self.netns(host)


def instance_of(site: str, instance: str | None = None) -> str:
    """Return a lab's name: ``instance``, else SEATRIAL_LAB_INSTANCE, else the site's name."""
    return named(instance) or of_site(site)


def of_site(site: str) -> str:
    """The name of a site's lab, unless the caller gives another one."""
    return site.replace("-", "_")


def named(instance: str | None) -> str:
    """Return the name that the caller gave a lab: ``instance``, else SEATRIAL_LAB_INSTANCE."""
    return instance or os.environ.get("SEATRIAL_LAB_INSTANCE", "")
