"""The network of a native lab: bridges in a namespace, and one cable per node and network.

A cable is a veth pair. A test bridge has an MTU of its own, greater than the
MTU that the nodes boot with. If two nodes set a greater MTU, the bridge passes
their frames.

The machine's root namespace never gets an interface: both ends of each cable
are created in the switch's namespace, and one end moves to the node. The
``ip`` program does this in a few batches: it creates 10 cables in less time
than the import of a netlink library takes.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager

from seatrial.base.errors import LabError
from seatrial.base.lock import locked
from seatrial.base.say import Say, say_nothing
from seatrial_lab.common import mounts
from seatrial_lab.common.mount_table import mounted
from seatrial_lab.common.paths import NETNS_ROOT, RUN_ROOT, SWITCH, LabPaths
from seatrial_lab.common.programs import find
from seatrial_lab.common.spec import LOGIN, LabSpec

MGMT = "eth0"
TEST = "eth1"
#: queues of a node's test interfaces in each direction; the node boots with one in use
QUEUES = 2
#: In a lab of more hosts, each knows the others' hardware addresses from the start. All namespaces
#: share the kernel's neighbour table of 1024 entries (``gc_thresh3``), and when each of 64 nodes
#: has talked to each other, packets are lost. Permanent entries do not count there.
FEW_HOSTS = 16
_BIND_MARK = RUN_ROOT / ".netns-bind"


def tests(spec: LabSpec) -> dict[str, str]:
    """Return the lab's names of the test networks, which their bridges have -> the interface.

    The names are short, because a port has the name of a node and of a network.
    """
    return {"test": TEST} | {
        f"net{number}": f"eth{number}" for number, _ in enumerate(spec.rails, 2)
    }


def test_subnets(spec: LabSpec) -> dict[str, str]:
    """Return the interfaces of the test networks -> the subnet."""
    return dict(zip(tests(spec).values(), (spec.test_subnet, *spec.rails), strict=True))


def switch_port(node: str, network: str = "test") -> str:
    """Return the name of the switch's port for a node on a network (``mgmt``, ``test`` ...)."""
    return f"{node}-{network}"


def ip(*arguments: str, batch: str | None = None, keep: tuple[int, ...] = ()) -> None:
    """Run ``ip``; ``batch`` is its standard input. Raises LabError with its message.

    ``keep`` are descriptors that the program inherits. Pass the lab's lock: if
    ``up`` is killed, the next ``up`` waits for the program.
    """
    run_program("ip", *arguments, batch=batch, keep=keep)


def run_program(
    program: str, *arguments: str, batch: str | None = None, keep: tuple[int, ...] = ()
) -> None:
    """Run a system program. Raises LabError with its message if it fails."""
    command = [find(program) or program, *arguments]
    answer = subprocess.run(
        command, input=batch or "", capture_output=True, text=True, check=False, pass_fds=keep
    )
    if answer.returncode:
        raise LabError(f"{' '.join([program, *arguments])}: {answer.stderr.strip()}")


def _registry(say: Say = say_nothing) -> AbstractContextManager[int]:
    """Hold the lock on the machine's list of named namespaces, which all labs share."""
    return locked(RUN_ROOT / ".lock", say)


def remove_registry() -> None:
    """Remove RUN_ROOT, and the lock in it, if there is nothing else in it."""
    with _registry():
        if [entry.name for entry in RUN_ROOT.iterdir()] == [".lock"]:
            (RUN_ROOT / ".lock").unlink()
            with contextlib.suppress(OSError):  # a lab may start now
                RUN_ROOT.rmdir()


def make(spec: LabSpec, keep: tuple[int, ...] = (), say: Say = say_nothing) -> None:
    """Make the namespaces, bridges and cables of a lab. Raises LabError.

    ``say`` gets a line of text if another lab is made or removed meanwhile.
    """
    paths = LabPaths(spec.instance)
    with _registry(say):
        if all(mount.place != NETNS_ROOT for mount in mounted()):
            # ``ip`` bind-mounts this folder on itself at first use. The last lab undoes that.
            _BIND_MARK.write_text("folder\n" if not NETNS_ROOT.exists() else "mount\n")
        names = "".join(f"netns add {paths.netns(host)}\n" for host in (SWITCH, *spec.hosts))
        ip("-batch", "-", batch=names, keep=keep)
    ip("-n", paths.netns(SWITCH), "-batch", "-", batch=switch_batch(spec), keep=keep)
    for host in spec.hosts:
        ip("-n", paths.netns(host), "-batch", "-", batch=host_batch(spec, host), keep=keep)


def switch_batch(spec: LabSpec) -> str:
    """Return ``ip`` commands, one per line, for the switch's namespace."""
    lines = ["link set lo up"]
    for network in ("mgmt", *tests(spec)):
        mtu = "" if network == "mgmt" else f" mtu {spec.switch_mtu}"
        lines += [
            # No spanning tree and no multicast snooping: they can delay frames.
            f"link add {network}{mtu} type bridge forward_delay 0 stp_state 0 mcast_snooping 0",
            f"link set {network} addrgenmode none up",
        ]
    lines += [line for host in spec.hosts for line in _cables(spec, host)]
    return "\n".join(lines) + "\n"


def _cables(spec: LabSpec, host: str) -> Iterator[str]:
    """Yield ``ip`` commands for the switch's namespace that connect a host."""
    netns = LabPaths(spec.instance).netns(host)
    inner = {"mgmt": MGMT} if host == LOGIN else {"mgmt": MGMT, **tests(spec)}
    for number, (network, interface) in enumerate(inner.items()):
        mine = theirs = ""
        if network != "mgmt":
            mine = f" mtu {spec.switch_mtu}"
            # The kernel's default is one queue for each processor of the machine.
            theirs = f" mtu {spec.test_mtu} numtxqueues {QUEUES} numrxqueues {QUEUES}"
        address = _hardware_address(spec, host, number)
        port = switch_port(host, network)
        yield (
            f"link add {port}{mine} type veth"
            f" peer name {interface} address {address}{theirs} netns {netns}"
        )
        yield f"link set {port} master {network} addrgenmode none up"


def _hardware_address(spec: LabSpec, host: str, number: int) -> str:
    """Return the MAC address of a host's interface; a reboot of the host does not change it."""
    index = spec.hosts.index(host)
    return f"02:73:{number:02x}:00:{index >> 8:02x}:{index & 255:02x}"


def replug(spec: LabSpec, host: str) -> None:
    """Create a dead host's namespace and cables again, as after a cold start. Raises LabError.

    All settings of its interfaces, and all interfaces created on the host, are lost.
    """
    paths = LabPaths(spec.instance)
    switch = paths.netns(SWITCH)
    for network in ("mgmt", *tests(spec)):
        with contextlib.suppress(LabError):  # a host without a cable on this network
            ip("-n", switch, "link", "del", switch_port(host, network))
    with _registry():
        with contextlib.suppress(LabError):
            ip("netns", "del", paths.netns(host))
        ip("netns", "add", paths.netns(host))
    ip("-n", switch, "-batch", "-", batch="\n".join(_cables(spec, host)) + "\n")
    ip("-n", paths.netns(host), "-batch", "-", batch=host_batch(spec, host))


def host_batch(spec: LabSpec, host: str) -> str:
    """Return ``ip`` commands, one per line, for the namespace of a node or the login node."""
    interfaces = [(MGMT, spec.mgmt_address(host), spec.mgmt_subnet)]
    if host != LOGIN:
        interfaces += [
            (name, spec.test_address(host, subnet), subnet)
            for name, subnet in test_subnets(spec).items()
        ]
    lines = ["link set lo up"]
    for name, address, subnet in interfaces:
        length = ipaddress.IPv4Network(subnet).prefixlen
        lines += [
            # No IPv6: its background traffic would change the byte counters.
            f"link set {name} addrgenmode none",
            f"addr add {address}/{length} dev {name}",
            f"link set {name} up",
        ]
    if len(spec.hosts) > FEW_HOSTS:
        lines += _neighbours(spec, host)
    for number, name in enumerate(spec.taps if host != LOGIN else (), 2 + len(spec.rails)):
        address = _hardware_address(spec, host, number)
        lines += [
            f"tuntap add dev {name} mode tap",
            f"link set {name} address {address} addrgenmode none up",
        ]
    return "\n".join(lines) + "\n"


def _neighbours(spec: LabSpec, host: str) -> Iterator[str]:
    """Yield ``ip`` commands that tell a host the hardware addresses of all others."""
    for other in spec.hosts:
        if other == host:
            continue
        known = [(MGMT, spec.mgmt_address(other), 0)]
        if LOGIN not in (host, other):
            known += [
                (name, spec.test_address(other, subnet), number)
                for number, (name, subnet) in enumerate(test_subnets(spec).items(), 1)
            ]
        for name, address, number in known:
            hardware = _hardware_address(spec, other, number)
            yield f"neigh add {address} lladdr {hardware} dev {name} nud permanent"


def namespaces(instance: str) -> list[str]:
    """Return the names of the instance's network namespaces that exist, complete or not."""
    pattern = re.compile(re.escape(LabPaths(instance).netns_prefix) + r"[a-z][a-z0-9-]*")
    try:
        return sorted(e.name for e in NETNS_ROOT.iterdir() if pattern.fullmatch(e.name))
    except FileNotFoundError:
        return []


def remove(instance: str, say: Say = say_nothing) -> None:
    """Remove the instance's network namespaces and with them all its interfaces.

    ``say`` as in :func:`make`.
    """
    with _registry(say):
        for name in namespaces(instance):
            path = NETNS_ROOT / name
            mounts.detach(str(path))
            path.unlink(missing_ok=True)
        if _BIND_MARK.exists() and not any(NETNS_ROOT.iterdir()):
            made = _BIND_MARK.read_text().strip()
            # Not lazily: another program may add a namespace now, and that one needs the mount.
            if mounts.LIBC.umount2(str(NETNS_ROOT).encode(), 0) == 0 and made == "folder":
                with contextlib.suppress(OSError):
                    NETNS_ROOT.rmdir()
            _BIND_MARK.unlink()
