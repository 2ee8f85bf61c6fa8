"""The lab's network: two bridges in a namespace of their own, a cable per node and network.

The test bridge is a switch with its own frame size, greater than what the
nodes boot with: an MTU that is set on two nodes carries frames of that size.

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

from seatrial.base.errors import LabError
from seatrial_lab.common import mounts
from seatrial_lab.common.paths import NETNS_ROOT, RUN_ROOT, SWITCH, LabPaths
from seatrial_lab.common.programs import find
from seatrial_lab.common.spec import LOGIN, LabSpec

MGMT = "eth0"
TEST = "eth1"
#: queues of a node's eth1 in each direction; it boots with one in use
QUEUES = 2
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
    lines = ["link set lo up"]
    for network in ("mgmt", "test"):
        mtu = f" mtu {spec.switch_mtu}" if network == "test" else ""
        lines += [
            # No spanning tree, no learning of multicast groups: nothing may delay a frame.
            f"link add {network}{mtu} type bridge forward_delay 0 stp_state 0 mcast_snooping 0",
            f"link set {network} addrgenmode none up",
        ]
    lines += [line for host in spec.hosts for line in _cables(spec, host)]
    return "\n".join(lines) + "\n"


def _cables(spec: LabSpec, host: str) -> Iterator[str]:
    """``ip`` commands for the switch's namespace that plug a host in."""
    netns = LabPaths(spec.instance).netns(host)
    inner = {"mgmt": MGMT} if host == LOGIN else {"mgmt": MGMT, "test": TEST}
    for number, (network, interface) in enumerate(inner.items()):
        mine = theirs = ""
        if network == "test":
            mine = f" mtu {spec.switch_mtu}"
            # Stated, because the kernel would give as many queues as the machine has processors.
            theirs = f" mtu {spec.test_mtu} numtxqueues {QUEUES} numrxqueues {QUEUES}"
        address = _hardware_address(spec, host, number)
        port = switch_port(host, network)
        yield (
            f"link add {port}{mine} type veth"
            f" peer name {interface} address {address}{theirs} netns {netns}"
        )
        yield f"link set {port} master {network} addrgenmode none up"


def _hardware_address(spec: LabSpec, host: str, number: int) -> str:
    """Of a host's interface of that number: the same after a reboot, as a NIC's own is."""
    index = spec.hosts.index(host)
    return f"02:73:{number:02x}:00:{index >> 8:02x}:{index & 255:02x}"


def replug(spec: LabSpec, host: str) -> None:
    """Give a dead host a new namespace and new cables, as after a cold start. Raises LabError.

    Whatever was set on its interfaces, or made beside them, is gone.
    """
    paths = LabPaths(spec.instance)
    switch = paths.netns(SWITCH)
    for network in ("mgmt", "test"):
        with contextlib.suppress(LabError):  # one that was not plugged in
            ip("-n", switch, "link", "del", switch_port(host, network))
    with _registry():
        with contextlib.suppress(LabError):
            ip("netns", "del", paths.netns(host))
        ip("netns", "add", paths.netns(host))
    ip("-n", switch, "-batch", "-", batch="\n".join(_cables(spec, host)) + "\n")
    ip("-n", paths.netns(host), "-batch", "-", batch=host_batch(spec, host))


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
    for number, name in enumerate(spec.taps if host != LOGIN else (), 2):
        address = _hardware_address(spec, host, number)
        lines += [
            f"tuntap add dev {name} mode tap",
            f"link set {name} address {address} addrgenmode none up",
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
