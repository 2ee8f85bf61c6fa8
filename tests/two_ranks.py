"""Two ranks on one node or two of a lab, through a transport's module, as a user starts them.

Not four ranks on two nodes: with the distribution's MPIs these end badly now and then, which is not
the module's fault (docs/dev/stack.md).
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from seatrial.stack import wire_up
from seatrial_lab.native.engine import Lab

SOURCE = Path(__file__).parent / "exchange.c"
NODES = ("n1", "n2")
#: as the first lines of a script: for steps over PMIx
WIRE_UP = wire_up.SCRIPT.read_text()
MESSAGE, ROUNDS = 1 << 20, 32
#: what a rank sends and receives in all, in bytes
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
    lab: Lab, use: str, transport: str, program: str, nodes: tuple[str, ...], user: str | None
) -> dict:
    """Run it with two ranks; what each interface carried meanwhile, in bytes."""
    srun = ["srun", f"--nodelist={','.join(nodes)}", f"--nodes={len(nodes)}", "--ntasks=2"]
    srun += ["--kill-on-bad-exit=1", "--time=2"]
    command = shlex.join([*srun, program, str(MESSAGE), str(ROUNDS)])
    before = carried(lab)
    script = f"{WIRE_UP}{use} && module load {transport} && {command}"
    done = lab.run(["bash", "-c", script], user=user, timeout=600)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    ranks = re.findall(r"^rank (\d) of 2 on (n\d): 0 wrong$", done.stdout, re.M)
    assert sorted(ranks) == [("0", nodes[0]), ("1", nodes[-1])]
    return {place: count - before[place] for place, count in carried(lab).items()}


def assert_paths(
    lab: Lab, use: str, transport: str, program: str, within_node: str, user: str | None = None
) -> None:
    """Shared memory within a node, eth1 alone between nodes, by the counters of all interfaces.

    Where a transport says that it has no shared memory, the loopback must have carried the volume
    within a node: what it says is true.
    """
    moved = exchange(lab, use, transport, program, NODES[:1], user)
    for (node, interface), count in moved.items():
        looped = (node, interface) == (NODES[0], "lo") and within_node != "shared memory"
        # what one rank sends over the loopback, the other receives
        assert (count > 2 * VOLUME) if looped else (count < START), (node, interface, moved)
    moved = exchange(lab, use, transport, program, NODES, user)
    for (node, interface), count in moved.items():
        assert (count > VOLUME) if interface == "eth1" else (count < START), (node, moved)
