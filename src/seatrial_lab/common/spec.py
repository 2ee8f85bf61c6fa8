"""The specification of a lab: the only input of an engine.

``native.site`` and ``virtual.site`` convert a site's description to a
:class:`LabSpec`. An engine does not know sites.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import itertools
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.base.errors import InputError
from seatrial.base.paths import CHECKOUT

LOGIN = "login"

# No dash: ``seatrial-<instance>-<node>`` has dashes between its fields, and a lab "a"
# must not own a namespace of a lab "a-b".
_INSTANCE = re.compile(r"[a-z][a-z0-9_]{0,19}")
# ``<node>-mgmt`` is an interface name, and the kernel limits it to 15 characters.
_NODE = re.compile(r"[a-z][a-z0-9-]{0,9}")
_INTERFACE = re.compile(r"[a-z][a-z0-9]{0,14}")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


def _default_licenses() -> str:
    return f"cores:{os.cpu_count() or 1}"


@dataclass(frozen=True)
class LabSpec:
    """One lab. Raises ``InputError`` if a field is not valid.

    ``cpus`` and ``memory_mb`` (MiB) are per node and as Slurm sees them; the
    machine may have fewer. ``binds`` are absolute paths that every node shows at
    the same path; their file permissions decide who may write. ``features`` maps
    a node to its Slurm features. ``slurm_files`` maps a file name to its text;
    the file is next to slurm.conf (for instance ``job_submit.lua``). The first
    of ``partitions`` is the default; each holds all nodes. ``modulepath`` goes
    before the distribution's module folders.

    ``test_mtu`` is the MTU of a node's eth1 at boot, ``switch_mtu`` the MTU of
    the test switch (both in bytes of payload). ``rails`` are the subnets of
    further test networks, alike, on eth2 and so on. ``taps`` are further interfaces
    of each node, without carrier or address. ``files`` maps paths relative to
    the instance's data folder to texts; files below ``etc`` there are in the
    nodes' /etc. ``epilog`` is Slurm's Epilog; it is None if ``extra_slurm_conf``
    or a file that it includes sets Epilog. ``before_slurmd`` is a command that
    root runs on a node before each start of slurmd; a failure is only written to
    the node's log.
    """

    instance: str = "lab"
    nodes: tuple[str, ...] = ("n1", "n2", "n3", "n4")
    cpus: int = 2
    memory_mb: int = 2048
    mgmt_subnet: str = "10.73.0.0/24"
    test_subnet: str = "10.73.1.0/24"
    test_mtu: int = 1500
    switch_mtu: int = 9216
    rails: tuple[str, ...] = ()
    taps: tuple[str, ...] = ()
    user: str = "sailor"
    uid: int = 2000
    gid: int = 2000
    checkout: Path = CHECKOUT
    binds: tuple[Path, ...] = ()
    extra_slurm_conf: tuple[str, ...] = ()
    slurm_files: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    epilog: str | None = "/bin/true"
    before_slurmd: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ("main",)
    features: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    licenses: str | None = field(default_factory=_default_licenses)
    accounting: bool = True
    modulepath: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        faults = list(self._faults())
        if faults:
            raise InputError("lab: " + "; ".join(faults))

    def _faults(self) -> Any:
        if not _INSTANCE.fullmatch(self.instance):
            yield f"instance {self.instance!r} is not 1 to 20 of a-z, 0-9 and _"
        if not self.nodes:
            yield "there are no nodes"
        for node in self.nodes:
            if not _NODE.fullmatch(node) or node in (LOGIN, "switch"):
                yield f"node name {node!r} is not 1 to 10 of a-z, 0-9 and -, or is taken"
        if len(set(self.nodes)) != len(self.nodes):
            yield "two nodes have one name"
        if not _USER.fullmatch(self.user) or self.user == "root":
            yield f"user {self.user!r} is no name for an ordinary user"
        if self.uid <= 0 or self.gid <= 0:
            yield "uid and gid must be above 0"
        if self.cpus < 1 or self.memory_mb < 1:
            yield "cpus and memory_mb must be above 0"
        if not 576 <= self.test_mtu <= 65535:
            yield f"test_mtu {self.test_mtu} is not between 576 and 65535"
        if not self.test_mtu <= self.switch_mtu <= 65535:
            yield f"switch_mtu {self.switch_mtu} is not between test_mtu and 65535"
        for name in self.taps:
            if not _INTERFACE.fullmatch(name) or re.fullmatch(r"lo|eth\d+", name):
                yield f"tap {name!r} is no interface name, or is taken"
        for name in self.files:
            if Path(name).is_absolute() or ".." in Path(name).parts:
                yield f"file {name!r} is not below the lab's data folder"
        if not self.partitions:
            yield "there are no partitions"
        for node in self.features:
            if node not in self.nodes:
                yield f"features name an unknown node {node!r}"
        for path in (self.checkout, *self.binds):
            if not path.is_absolute():
                yield f"{path} is not an absolute path"
        networks: dict[str, ipaddress.IPv4Network] = {}
        subnets = {"mgmt_subnet": self.mgmt_subnet, "test_subnet": self.test_subnet}
        subnets |= {f"rails.{number}": text for number, text in enumerate(self.rails)}
        for name, text in subnets.items():
            try:
                network = ipaddress.IPv4Network(text)
            except ValueError as error:
                yield f"{name}: {error}"
                continue
            networks[name] = network
            if network.num_addresses < len(self.nodes) + 3:
                yield f"{name} {text} is too small for {len(self.nodes)} nodes and the login node"
        for first, other in itertools.combinations(networks, 2):
            if networks[first].overlaps(networks[other]):
                yield f"{first} and {other} overlap"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The login node, then the compute nodes."""
        return (LOGIN, *self.nodes)

    def mgmt_address(self, host: str) -> str:
        """Return the IPv4 address of a host's eth0, without prefix length."""
        network = ipaddress.IPv4Network(self.mgmt_subnet)
        if host == LOGIN:
            return str(network.broadcast_address - 1)
        return str(network.network_address + 1 + self._index(host))

    def test_address(self, node: str, subnet: str = "") -> str:
        """Return a compute node's IPv4 address in a test subnet, by default that of its eth1.

        It has no prefix length.
        """
        network = ipaddress.IPv4Network(subnet or self.test_subnet)
        return str(network.network_address + 1 + self._index(node))

    def _index(self, node: str) -> int:
        if node not in self.nodes:
            raise InputError(f"lab {self.instance}: no node {node!r}: {', '.join(self.nodes)}")
        return self.nodes.index(node)

    def visible_paths(self) -> tuple[Path, ...]:
        """Return all paths that hosts must show at the same place, existing or not.

        The current Python is among them: checks run with it in the lab, and it
        may be below a home folder that is closed to the job user.
        """
        folders = (self.checkout, *self.binds)
        python = (Path(sys.prefix), Path(sys.base_prefix))
        return tuple(dict.fromkeys((*folders, *python)))

    def to_json(self) -> str:
        """Return this spec as JSON text, for :meth:`from_json`."""
        return json.dumps(dataclasses.asdict(self), default=str, sort_keys=True)

    def differences(self, other: LabSpec) -> list[str]:
        """Return the names of the fields in which two specs differ."""
        names = (each.name for each in dataclasses.fields(self))
        return [name for name in names if getattr(self, name) != getattr(other, name)]

    @classmethod
    def from_json(cls, text: str) -> LabSpec:
        """Return the spec from the text of :meth:`to_json`."""
        data = json.loads(text)
        for each in dataclasses.fields(cls):
            if str(each.type).startswith("tuple"):
                data[each.name] = tuple(data[each.name])
        data["checkout"] = Path(data["checkout"])
        data["binds"] = tuple(Path(p) for p in data["binds"])
        data["features"] = {node: tuple(names) for node, names in data["features"].items()}
        return cls(**data)


def default_spec(instance: str = "lab") -> LabSpec:
    """Return the spec of four nodes with accounting, for this checkout."""
    return LabSpec(instance=instance)
