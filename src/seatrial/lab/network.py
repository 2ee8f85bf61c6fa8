"""The lab's network: two bridges in a namespace of their own, a cable per node and network.

The machine's root namespace gets no interface at any time: both ends of every
cable are made in the switch's namespace and one is put into the node's. The
``ip`` program does it in a few batches: making 10 cables takes it less time
than importing a netlink library.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from seatrial.errors import LabError
from seatrial.lab import mounts
from seatrial.lab.paths import NETNS_ROOT, RUN_ROOT, SWITCH, LabPaths
from seatrial.lab.programs import find
from seatrial.lab.spec import LOGIN, LabSpec

MGMT = "eth0"
TEST = "eth1"
_BIND_MARK = RUN_ROOT / ".netns-bind"


def switch_port(node: str, network: str = "test") -> str:
    """The switch's end of a node's cable (``mgmt`` or ``test``)."""
    return f"{node}-{network}"


def ip(*arguments: str, batch: str | None = None, keep: tuple[int, ...] = ()) -> None:
    """Run ``ip``; with ``batch``, that text is its input. Raises LabError with its message.

    ``keep`` are descriptors the program inherits: the lab's lock, so that a
    program that outlives a killed ``up`` is waited for.
    """
    run_program("ip", *arguments, batch=batch, keep=keep)


def run_program(
    program: str, *arguments: str, batch: str | None = None, keep: tuple[int, ...] = ()
) -> None:
    """Run a system program for its effect. Raises LabError with its message."""
    command = [find(program) or program, *arguments]
    answer = subprocess.run(
        command, input=batch or "", capture_output=True, text=True, check=False, pass_fds=keep
    )
    if answer.returncode:
        raise LabError(f"{' '.join([program, *arguments])}: {answer.stderr.strip()}")


@contextlib.contextmanager
def _registry() -> Iterator[None]:
    """Only one lab at a time changes the machine's list of named namespaces."""
    RUN_ROOT.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(RUN_ROOT, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_mount(path: Path) -> bool:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return any(line.split()[1] == str(path) for line in lines)


def make(spec: LabSpec, keep: tuple[int, ...] = ()) -> None:
    """Make the namespaces, bridges and cables of a lab. Raises LabError."""
    paths = LabPaths(spec.instance)
    with _registry():
        if not _is_mount(NETNS_ROOT):
            # ``ip`` mounts this folder upon itself at first use: to be undone by the last lab.
            _BIND_MARK.write_text("folder\n" if not NETNS_ROOT.exists() else "mount\n")
        names = "".join(f"netns add {paths.netns(host)}\n" for host in (SWITCH, *spec.hosts))
        ip("-batch", "-", batch=names, keep=keep)
    ip("-n", paths.netns(SWITCH), "-batch", "-", batch=switch_batch(spec), keep=keep)
    for host in spec.hosts:
        ip("-n", paths.netns(host), "-batch", "-", batch=host_batch(spec, host), keep=keep)


def switch_batch(spec: LabSpec) -> str:
    """``ip`` commands, one per line, for the switch's namespace."""
    paths = LabPaths(spec.instance)
    lines = ["link set lo up"]
    for network in ("mgmt", "test"):
        mtu = f" mtu {spec.test_mtu}" if network == "test" else ""
        lines += [
            # No spanning tree, no learning of multicast groups: nothing may delay a frame.
            f"link add {network}{mtu} type bridge forward_delay 0 stp_state 0 mcast_snooping 0",
            f"link set {network} addrgenmode none up",
        ]
        for host in spec.hosts if network == "mgmt" else spec.nodes:
            port = switch_port(host, network)
            inner = MGMT if network == "mgmt" else TEST
            lines += [
                f"link add {port}{mtu} type veth peer name {inner}{mtu} netns {paths.netns(host)}",
                f"link set {port} master {network} addrgenmode none up",
            ]
    return "\n".join(lines) + "\n"


def host_batch(spec: LabSpec, host: str) -> str:
    """``ip`` commands, one per line, for the namespace of a node or the login node."""
    interfaces = [(MGMT, spec.mgmt_address(host), spec.mgmt_subnet)]
    if host != LOGIN:
        interfaces.append((TEST, spec.test_address(host), spec.test_subnet))
    lines = ["link set lo up"]
    for name, address, subnet in interfaces:
        length = ipaddress.IPv4Network(subnet).prefixlen
        lines += [
            # No IPv6 on the wire: its chatter would show up in the byte counters.
            f"link set {name} addrgenmode none",
            f"addr add {address}/{length} dev {name}",
            f"link set {name} up",
        ]
    return "\n".join(lines) + "\n"


def namespaces(instance: str) -> list[str]:
    """Names of the instance's network namespaces that exist now, complete or not."""
    pattern = re.compile(re.escape(LabPaths(instance).netns_prefix) + r"[a-z][a-z0-9-]*")
    try:
        return sorted(e.name for e in NETNS_ROOT.iterdir() if pattern.fullmatch(e.name))
    except FileNotFoundError:
        return []


def remove(instance: str) -> None:
    """Remove the instance's network namespaces, and with them all interfaces."""
    with _registry():
        for name in namespaces(instance):
            path = NETNS_ROOT / name
            mounts.detach(str(path))
            path.unlink(missing_ok=True)
        if _BIND_MARK.exists() and not any(NETNS_ROOT.iterdir()):
            made = _BIND_MARK.read_text().strip()
            # Not lazily: a namespace that someone adds just now must keep the mount.
            if mounts.LIBC.umount2(str(NETNS_ROOT).encode(), 0) == 0 and made == "folder":
                with contextlib.suppress(OSError):
                    NETNS_ROOT.rmdir()
            _BIND_MARK.unlink()
