"""Runs a program on simulated nodes, by SimGrid's SMPI: compiler, platform file, smpirun.

The nodes are a star around one switch that blocks nothing, each with one rank and a full-duplex
link. SMPI measures the processor time of the program between its MPI calls on this machine, and
scales it by ``speed``. Tested with SimGrid 3.32 (Debian 12: libsimgrid-dev).

Collective operations have the algorithms that SMPI chooses for an MPI, but for MPI_Alltoallv
(``own_alltoallv``): SMPI's choice for Open MPI refuses numbers of ranks that are no power of two,
and that for MPICH starts four messages of a rank at a time, where MPICH starts 32.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.run import TAIL, run
from seatrial.predict.calibration import Network

INSTALL = "on Debian install libsimgrid-dev (apt-get install libsimgrid-dev); SimGrid >= 3.32"
PINGPONG = Path(__file__).with_name("pingpong.c")
COUNTER = Path(__file__).with_name("messages.c")
WAITALL = Path(__file__).with_name("waitall.c")
WARNINGS = ["-w", "-std=gnu17"]
#: algorithm of MPI_Alltoallv -> SMPI's name. ``linear`` starts all messages at once, ``pairwise``
#: has one partner after the other.
ALLTOALLV = {"linear": "ompi_basic_linear", "pairwise": "ring"}
#: SMPI's name of an MPI -> its own choice up to and with so many ranks. Open MPI 4.1: coll_tuned's
#: ompi_coll_tuned_alltoallv_intra_dec_fixed. MPICH 4: MPIR_CVAR_ALLTOALL_THROTTLE.
_CHOICES: dict[str, Sequence[tuple[float, str]]] = {
    "ompi": (
        (3, "pairwise"), (63, "linear"), (127, "pairwise"), (255, "linear"), (1023, "pairwise"),
        (math.inf, "linear"),
    ),
    "mpich": ((32, "linear"),),
}  # fmt: skip
#: other programs may take so much of the machine that a simulation waits for its processor time
_PATIENCE = 20
_TICK_S = 1.0
_OVER_LIMIT = 128 + signal.SIGXCPU  # the exit code of smpirun, a shell script
_UNIT_FLOPS = 1e9  # of this machine, per s of processor time: any number will do
_NO_TIME = 1e6  # a speed at which computing takes none
_TOTAL = re.compile(r"Simulated time: (\S+) seconds")
_MESSAGES = re.compile(r"^messages (\d+) (\d+) (\d+) (\d+)$", re.M)
_PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="cluster" prefix="n" suffix="" radical="1-{nodes}" speed="{speed:.9g}f"
           bw="{bandwidth:.9g}Bps" lat="{latency:.9g}s" sharing_policy="SPLITDUPLEX"/>
</platform>
"""


@dataclass(frozen=True)
class Messages:
    """What the program gave to MPI for one partner in one call, by all ranks, as messages.c counts:
    ``bytes`` of all, ``largest`` in B, and the bytes of messages ``beyond`` a size.
    """

    count: int
    bytes: int
    largest: int
    beyond: int


@dataclass(frozen=True)
class Simulated:
    """``seconds``: simulated time of the whole run, with the start and the end of the program.

    ``selector``: SMPI's name of the MPI. ``alltoallv``: the algorithm of MPI_Alltoallv; "": SMPI's
    choice. ``asked``: not the MPI's own. ``messages``: None if there were none, or nothing counts.
    """

    output: str
    seconds: float
    selector: str = "ompi"
    alltoallv: str = ""
    asked: bool = False
    messages: Messages | None = None


def require(program: str = "smpirun") -> str:
    """The path of a program of SimGrid. Raises LabError, with how to install it."""
    path = shutil.which(program)
    if path is None:
        raise LabError(f"SimGrid is not installed: there is no {program} in PATH; {INSTALL}")
    return path


def version() -> str:
    """Such as 3.32. Raises LabError."""
    text = run([require(), "--version"], "asking smpirun")
    match = re.search(r"SimGrid version (\S+)", text)
    return match[1] if match else "?"


def compile_c(sources: Sequence[Path], program: Path, *flags: str) -> Path:
    """Build a program in C for SMPI. Raises LabError."""
    command: list[str | Path] = [
        require("smpicc"),
        "-O3",
        *WARNINGS,
        *flags,
        *sources,
        "-o",
        program,
        "-lm",
    ]
    run(command, f"building {program.name} with smpicc")
    return program


def own_alltoallv(selector: str, ranks: int) -> str:
    """The algorithm of MPI_Alltoallv that an MPI chooses itself; "": left to SMPI."""
    return next((name for most, name in _CHOICES.get(selector, ()) if ranks <= most), "")


def simulate(
    command: Sequence[str | Path],
    nodes: int,
    network: Network,
    *,
    speed: float = 1.0,
    selector: str = "ompi",
    alltoallv: str = "",
    counter: tuple[Path, float] | None = None,
    limit_s: float = 3600,
    progress: Callable[[float], None] = lambda _: None,
) -> Simulated:
    """Run a program of SMPI on so many nodes, one rank each.

    ``speed``: of a node's core over that of this machine. ``selector``: the MPI whose algorithms
    collective operations have; ``alltoallv``: another one of ``ALLTOALLV``. ``counter``: the
    library of ``COUNTER``, and the size in B beyond which bytes are counted. ``progress`` is called
    every second with the processor time so far, in s. Raises LabError if it fails, takes more
    processor time than ``limit_s``, or has not ended in twenty times as long.
    """
    launcher = require()
    default = own_alltoallv(selector, nodes)
    algorithm = alltoallv or default
    name = Path(command[0]).name
    with tempfile.TemporaryDirectory(prefix="seatrial-predict-") as text:
        folder = Path(text)
        (folder / "platform.xml").write_text(
            _PLATFORM.format(
                nodes=nodes, speed=speed * _UNIT_FLOPS, bandwidth=network.bandwidth_B_s,
                latency=network.latency_s / 2,  # a route has two links
            )
        )  # fmt: skip
        (folder / "hosts").write_text("".join(f"n{i}\n" for i in range(1, nodes + 1)))
        options = {
            **network.options(),
            "smpi/host-speed": f"{_UNIT_FLOPS:.9g}f",
            # SMPI's reduction of Open MPI does not run on one rank
            "smpi/coll-selector": selector if nodes > 1 else "default",
            **({"smpi/alltoallv": ALLTOALLV[algorithm]} if algorithm else {}),
            "smpi/display-timing": "yes",
            "smpi/tmpdir": text,
        }
        words = [
            "sh", "-c", f'ulimit -S -t {math.ceil(limit_s)} && exec "$@"', "sh",
            launcher, "-np", str(nodes), "-platform", "platform.xml", "-hostfile", "hosts",
            *(f"--cfg={key}:{value}" for key, value in options.items()),
            *map(str, command),
        ]  # fmt: skip
        env = {**os.environ, "LC_ALL": "C.UTF-8"}
        if counter:
            env |= {"LD_PRELOAD": str(counter[0]), "SEATRIAL_BEYOND_B": f"{counter[1]:.0f}"}
        # A process group of its own: smpirun is a script, and its child must end with it.
        with subprocess.Popen(
            words, cwd=folder, env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                output, errors = _wait(process, _PATIENCE * limit_s, progress)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise LabError(
                        f"simulating {name} on {nodes} nodes did not use {limit_s:g} s of a "
                        f"processor in {_PATIENCE * limit_s:g} s: the machine is busy, or the "
                        "program waits for something"
                    ) from None
                raise
    if process.returncode == _OVER_LIMIT:
        raise LabError(_too_long(name, nodes, limit_s, algorithm))
    total = _TOTAL.search(errors) or _TOTAL.search(output)
    if process.returncode or total is None:
        lines = [x for x in (output + errors).splitlines() if "xbt_cfg/INFO" not in x and x.strip()]
        tail = "\n".join(lines[-TAIL:])
        raise LabError(
            f"simulating {name} on {nodes} nodes failed (smpirun ended with "
            f"{process.returncode}):\n{tail}"
        )
    counted = _MESSAGES.search(errors)
    messages = Messages(*map(int, counted.groups())) if counted else None
    return Simulated(output, float(total[1]), selector, algorithm, algorithm != default, messages)


def _wait(
    process: subprocess.Popen[str], most_s: float, progress: Callable[[float], None]
) -> tuple[str, str]:
    """Output and errors of a process. Raises subprocess.TimeoutExpired."""
    end = time.monotonic() + most_s
    while True:
        try:
            return process.communicate(timeout=min(_TICK_S, max(0.0, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= end:
                raise
            progress(_processor_s(process.pid))


def _processor_s(group: int) -> float:
    """Processor time of the processes of a group that have not ended, in s."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            # proc(5): the name, in brackets, may have spaces; then come state, ppid and pgrp
            fields = file.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _too_long(name: str, nodes: int, limit_s: float, alltoallv: str) -> str:
    text = (
        f"simulating {name} on {nodes} nodes took longer than {limit_s:g} s of a processor: fewer "
        f"nodes, a smaller class, or a larger limit, such as --limit {10 * math.ceil(limit_s)}"
    )
    if alltoallv == "linear":
        text += (
            f". MPI_Alltoallv starts all its {nodes * (nodes - 1)} messages at once on so many "
            "nodes, and SimGrid searches a list of all at the end of each. --alltoallv pairwise is "
            "simulated in seconds, but the MPI takes it only if it is set to"
        )
    return text


def half_round_trips(
    program: Path, network: Network, sizes: Sequence[float], limit_s: float
) -> dict[float, float]:
    """Size in B -> half a simulated round trip in s. Raises LabError."""
    command: list[str | Path] = [program, *(f"{size:.0f}" for size in sizes)]
    done = simulate(command, 2, network, speed=_NO_TIME, limit_s=limit_s)
    rows = [line.split() for line in done.output.splitlines()]
    made = {float(row[0]): float(row[1]) for row in rows if len(row) == 2}
    if sorted(made) != sorted(float(f"{size:.0f}") for size in sizes):
        raise LabError(f"the simulated ping-pong printed {len(made)} of {len(sizes)} sizes")
    return made
