"""Plant faults in a running native lab, and remove them.

The lab's state records each planted fault, so that ``status`` and the reports
of trials show it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from seatrial.base.errors import InputError, LabError
from seatrial_lab.common import access, boot, network, processes, state
from seatrial_lab.common.network import TEST
from seatrial_lab.native import cables, slowdown
from seatrial_lab.native.engine import Lab


@contextlib.contextmanager
def _planting(lab: Lab, node: str) -> Iterator[state.LabState]:
    """Hold the lab's lock; yields the state and saves it at the end."""
    if node not in lab.spec.nodes:
        raise InputError(f"no compute node {node!r}: {', '.join(lab.spec.nodes)}")
    with state.locked(lab.spec.instance):
        running = _running(lab)
        yield running
        running.save()


def _running(lab: Lab) -> state.LabState:
    running = state.load(lab.spec.instance)
    if running is None:
        raise LabError(state.not_up(lab.spec.instance))
    return running


def _record(running: state.LabState, kind: str, node: str, detail: str) -> None:
    """Record a fault, in the place of one of the same kind and, of links, the same cable."""
    _forget(running, kind, node, state.interface_of(detail))
    running.faults.append(state.Fault(kind, node, detail))


def _forget(running: state.LabState, kind: str, node: str, interface: str = TEST) -> None:
    running.faults = [
        f
        for f in running.faults
        if (f.kind, f.node, state.interface_of(f.detail)) != (kind, node, interface)
    ]


def _first(lab: Lab, node: str) -> int:
    pid = access.first_process(lab.spec, node)
    if pid is None:
        raise LabError(f"{node} is dead already: seatrial lab fault clear")
    return pid


def slow_link(
    lab: Lab,
    node: str,
    rate: str,
    interface: str = TEST,
    peer: str | None = None,
    only: str | None = None,
) -> None:
    """Limit a node's test link to ``rate`` (such as 100mbit) in each direction.

    ``peer``: only the traffic with that node. ``only``: only what the node ``sends`` or
    ``receives``.
    """
    cables.parse_rate(rate)
    if only not in (None, "sends", "receives"):
        raise InputError(f"direction {only!r} is not sends or receives")
    if peer is not None and (peer == node or peer not in lab.spec.nodes):
        raise InputError(f"no other compute node {peer!r}: {', '.join(lab.spec.nodes)}")
    _plant_link(lab, node, cables.detail_of(rate, peer, only), interface)


def cut_link(lab: Lab, node: str, interface: str = TEST) -> None:
    """Set a node's test cable down: the node's interface loses its carrier."""
    _plant_link(lab, node, "down", interface)


def cross_links(lab: Lab, node: str, interface: str) -> None:
    """Exchange a node's cables of eth1 and ``interface`` at the switches."""
    if interface == TEST:
        raise InputError(f"the cable of {TEST} cannot be exchanged with itself: name another rail")
    _plant_link(lab, node, cables.CROSSED, interface)


def _plant_link(lab: Lab, node: str, fault: str, interface: str) -> None:
    known = network.tests(lab.spec).values()
    if interface not in known:
        raise InputError(f"no cable of {interface!r}: {', '.join(known)}")
    detail = fault if interface == TEST else f"{fault}{state.ON}{interface}"
    with _planting(lab, node) as running:
        others = [f.detail for f in running.faults if (f.kind, f.node) == ("link", node)]
        for other in others:
            if (cables.CROSSED in other) != (fault == cables.CROSSED):
                raise InputError(f"{node} has the fault {other!r}: first seatrial lab fault clear")
        cables.plant(lab.spec, node, detail)
        _record(running, "link", node, detail)


def slow_cpu(lab: Lab, node: str, percent: float) -> None:
    """Limit a node to ``percent`` of its processor time, including its later jobs.

    100 % is the time of the processors that Slurm sees on the node, or of the
    machine's processors if these are fewer.
    """
    if not 1 <= percent < 100:
        raise InputError(f"percent {percent:g} is not between 1 and 99")
    with _planting(lab, node) as running:
        slowdown.slow_down(lab.spec.instance, node, _first(lab, node), percent, lab.spec.cpus)
        _record(running, "cpu", node, f"{percent:g} %")


def kill_node(lab: Lab, node: str) -> None:
    """Kill all processes of a node at once, as a power cut does."""
    with _planting(lab, node) as running:
        pid = _first(lab, node)
        # First the cables: a dead node does not refuse connections, it does not answer.
        for name in ("mgmt", *network.tests(lab.spec)):
            cables.set_port(lab.spec, node, name, "down")
        inside = list(processes.in_node(pid))
        processes.kill_all([pid])
        if left := processes.wait_gone(inside, 10):
            raise LabError(f"{node}: processes do not end: {left}")
        for kind in ("cpu", "slurmd"):
            _forget(running, kind, node)
        _record(running, "node", node, "killed")
    slowdown.remove_quota(lab.spec.instance, node)


def kill_slurmd(lab: Lab, node: str) -> None:
    """Send SIGKILL to a node's slurmd. The node and its job steps continue."""
    with _planting(lab, node) as running:
        first = _first(lab, node)
        daemons = [p for p, name in processes.in_node(first).items() if name == "slurmd"]
        if not daemons:
            raise LabError(f"{node} has no slurmd running")
        processes.kill_all(daemons)
        processes.wait_gone(daemons, 10)
        _record(running, "slurmd", node, "killed")


def start_slurmd(lab: Lab, node: str) -> None:
    """Start a node's killed slurmd. Does nothing if slurmd runs."""
    with _planting(lab, node) as running:
        _start_slurmd(lab, node)
        _forget(running, "slurmd", node)


def _start_slurmd(lab: Lab, node: str) -> None:
    if "slurmd" in processes.names_in_node(_first(lab, node)):
        return
    log = lab.paths.log(node, "slurmd.out")
    if lab.spec.before_slurmd:
        # As at boot: on a real node the service manager runs it before each start of slurmd.
        boot_log = lab.paths.log(node, "boot")
        lab.run(
            ["sh", "-c", f'exec "$@" >>{boot_log} 2>&1', "sh", *lab.spec.before_slurmd],
            user="root",
            node=node,
            env=boot.engine_environment(),
            cwd="/",
            timeout=boot.BOOT_TIMEOUT,
        )
    # The shell ends at once, and the node's first process becomes the parent of slurmd.
    script = f'"$@" >>{log} 2>&1 </dev/null &'
    lab.run(
        ["setsid", "sh", "-c", script, "sh", *boot.slurmd_command()],
        user="root",
        node=node,
        env=boot.engine_environment(),
        cwd="/",
        timeout=boot.BOOT_TIMEOUT,
        check=True,
    )
    # nsenter started slurmd from outside the node, so it is not in the node's cgroup yet.
    slowdown.prioritise(lab.spec.instance, node, _first(lab, node))


def clear(lab: Lab, node: str | None = None) -> list[state.Fault]:
    """Remove all planted faults, or the faults of one node. Returns the removed faults.

    Dead nodes boot again. Slurm can use them when this function returns.
    """
    if node is not None and node not in lab.spec.nodes:
        raise InputError(f"no compute node {node!r}: {', '.join(lab.spec.nodes)}")
    with state.locked(lab.spec.instance) as lock:
        running = _running(lab)
        chosen = [f for f in running.faults if node in (None, f.node)]
        for fault in chosen:
            if fault.kind == "link":
                cables.clear(lab.spec, fault.node, fault.detail)
            elif fault.kind == "cpu":
                slowdown.remove_quota(lab.spec.instance, fault.node)
            elif fault.kind == "slurmd":
                _start_slurmd(lab, fault.node)
            running.faults.remove(fault)
        dead = [n for n in lab.spec.nodes if not lab.is_alive(n)]
        lab.revive([n for n in dead if node in (None, n)], lock)
        lab.wait_ready(sorted({f.node for f in chosen}))
        running.save()
    return chosen
