"""Four ranks on two nodes of a lab, through a transport's module, as a user starts them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from seatrial_lab.native.engine import Lab

SOURCE = Path(__file__).parent / "exchange.c"
NODES = ("n1", "n2")
MESSAGE, ROUNDS = 1 << 20, 32
#: what the two ranks of a node send or receive in all, in bytes
VOLUME = 2 * MESSAGE * ROUNDS
#: what starting and ending the ranks may cost on any interface
START = VOLUME // 20


def carried(lab: Lab) -> dict[tuple[str, str], int]:
    """(Node, interface) -> bytes in and out so far. The loopback counts each byte twice."""
    counts = {}
    for node in NODES:
        text = lab.run(["cat", "/proc/net/dev"], user="root", node=node, check=True).stdout
        for name, words in re.findall(r"^ *([a-z0-9]+): *(.*)$", text, re.M):
            numbers = words.split()
            counts[node, name] = int(numbers[0]) + int(numbers[8])
    return counts


def compile_exchange(lab: Lab, use: str, transport: str, user: str | None = None) -> str:
    """Compile the program by the module's compiler; its path."""
    program = f"{lab.paths.home}/exchange-{transport}"
    script = f"{use} && module load {transport} && mpicc -O2 -o {program} {SOURCE}"
    lab.run(["bash", "-c", script], check=True, user=user, timeout=600)
    return program


def exchange(
    lab: Lab, use: str, transport: str, program: str, partner: int, user: str | None
) -> dict:
    """Run it; what each interface of the nodes carried meanwhile, in bytes.

    Two ranks are on each node. ``partner`` 1: a rank exchanges messages with the other rank of its
    node; 2: with a rank of the other node.
    """
    srun = ["srun", f"--nodelist={','.join(NODES)}", "--nodes=2", "--ntasks-per-node=2"]
    srun += ["--distribution=block", "--kill-on-bad-exit=1", "--time=2"]
    command = shlex.join([*srun, program, str(partner), str(MESSAGE), str(ROUNDS)])
    before = carried(lab)
    script = f"{use} && module load {transport} && {command}"
    done = lab.run(["bash", "-c", script], user=user, timeout=600)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert sorted(re.findall(r"^rank (\d) of 4 on (n\d): 0 wrong$", done.stdout, re.M)) == [
        ("0", "n1"), ("1", "n1"), ("2", "n2"), ("3", "n2"),
    ]  # fmt: skip
    return {place: count - before[place] for place, count in carried(lab).items()}


def assert_paths(
    lab: Lab, use: str, transport: str, program: str, within_node: str, user: str | None = None
) -> None:
    """Shared memory within a node, eth1 alone between nodes, by the counters of all interfaces.

    Where a transport says that it has no shared memory, the loopback must have carried the volume
    within a node: what it says is true.
    """
    moved = exchange(lab, use, transport, program, 1, user)
    for (node, interface), count in moved.items():
        looped = interface == "lo" and within_node != "shared memory"
        assert (count > VOLUME) if looped else (count < START), (node, interface, moved)
    moved = exchange(lab, use, transport, program, 2, user)
    for (node, interface), count in moved.items():
        # each of the two ranks of a node sends and receives the messages
        assert (count > 2 * VOLUME) if interface == "eth1" else (count < START), (node, moved)
