"""Where a lab keeps its things, and what its namespaces are called."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

RUN_ROOT = Path("/run/seatrial")
# Not below /var/tmp: that is private to each node, and this is shared by all.
DATA_ROOT = Path("/var/lib/seatrial")
CACHE_ROOT = Path("/var/cache/seatrial")
NETNS_ROOT = Path("/run/netns")
HOST_ETC = Path("/run/seatrial-host/etc")  # only inside a lab

SWITCH = "switch"


@dataclass(frozen=True)
class LabPaths:
    """The paths of one instance. Both folders are gone when the lab is down."""

    instance: str

    @property
    def run(self) -> Path:
        """State of the running lab; not visible inside it."""
        return RUN_ROOT / self.instance

    @property
    def state(self) -> Path:
        return self.run / "state.json"

    @property
    def data(self) -> Path:
        """Logs, spool, home and configuration; the same path inside the lab."""
        return DATA_ROOT / self.instance

    @property
    def etc(self) -> Path:
        """What the nodes see as /etc."""
        return self.data / "etc"

    @property
    def home(self) -> Path:
        """The job user's HOME, shared by all nodes."""
        return self.data / "home"

    @property
    def munge_key(self) -> Path:
        return self.data / "munge" / "munge.key"

    @property
    def controller_ready(self) -> Path:
        """Exists once slurmctld listens: slurmd waits for it, for it retries slowly."""
        return self.data / "controller-ready"

    def log(self, host: str, daemon: str = "") -> Path:
        """A host's log folder, or one daemon's log in it."""
        folder = self.data / "log" / host
        return folder / f"{daemon}.log" if daemon else folder

    def node_config(self, host: str) -> Path:
        return self.run / "nodes" / f"{host}.json"

    def node_pid(self, host: str) -> Path:
        """Process id and start time of a host's first process, as this machine sees it."""
        return self.run / "nodes" / f"{host}.pid"

    @property
    def netns_prefix(self) -> str:
        return f"seatrial-{self.instance}-"

    def netns(self, host: str) -> str:
        """The name of a host's (or the switch's) network namespace."""
        return f"{self.netns_prefix}{host}"

    def netns_path(self, host: str) -> Path:
        return NETNS_ROOT / self.netns(host)


def instance_of(site: str, instance: str | None = None) -> str:
    """The name of the lab of a site: the one given, else the environment's, else the site's."""
    return instance or os.environ.get("SEATRIAL_LAB_INSTANCE") or site.replace("-", "_")
