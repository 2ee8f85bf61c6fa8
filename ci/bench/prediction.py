"""Predictions of NPB IS against measurements that they do not know, in the native lab.

    .venv/bin/python ci/bench/prediction.py [--nodes 16 32 64] [--class A] [--rate 4mbit]

As root, in a checkout whose `seatrial trial` has run once, with SimGrid (libsimgrid-dev). Trials
and `prediction.jsonl`, one line for each case, go to --folder (default .seatrial/bench/prediction).

The wires are slow on purpose: a node sends and receives no faster than --rate. So the time of a run
is that of its messages, although all nodes share the cores of one machine. A trial measures the
message times of two nodes (comms) and IS on --known and --nodes. The prediction gets the message
times and the cases on --known; those on --nodes are predicted and then compared. For each it
prints the measured median with its range, the prediction, its error, and the error that the
prediction states. The same case in the same lab with fast wires shows how much of the time the
machine can be to blame for: processors, kernel and bridge together.

Exit code 1: an error is above the one that is stated, and above --most percent.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from light import Place, make_site

from seatrial.analysis.conclusion import Measured
from seatrial.base.paths import CHECKOUT
from seatrial.predict import prediction as of
from seatrial.predict import programs
from seatrial.report import prediction as words
from seatrial.results.figures import valid_runs
from seatrial.results.folder import Results
from seatrial.stack import stack_folder
from seatrial_lab.common import network
from seatrial_lab.common.paths import SWITCH, LabPaths
from seatrial_lab.native.cables import parse_rate

RULES = "schema: 1\ninformative:\n  - {select: {}, metric: '*', reason: a measurement}\n"
TRANSPORT = "openmpi-tcp"
#: comms: up to the messages of IS on the fewest nodes that are predicted, and more
COMMS = {"nodes": [2], "max_bytes": "512 KiB", "sizes_per_decade": 3, "repetitions": 5,
         "warmup": 1, "time_limit_s": 1200}  # fmt: skip
BUCKET_B = 3100  # of the shapers: two frames
NODE_QUEUE_B = 8 << 20  # nothing is lost: a node's own processes wait
PORT_QUEUE_B = 1 << 20  # a port of the switch has the memory of a common one
#: below the shaper two classes without a limit of their own: IPv4 packets below 128 B, then others
SMALL_FIRST = (
    "qdisc add dev {} parent 1:1 handle 2: htb default 20",
    "class add dev {} parent 2: classid 2:1 htb rate 10gbit",
    "class add dev {} parent 2:1 classid 2:10 htb rate 5gbit ceil 10gbit prio 0",
    "class add dev {} parent 2:1 classid 2:20 htb rate 5gbit ceil 10gbit prio 1",
    "filter add dev {} parent 2: protocol ip prio 1 u32 match u16 0 0xff80 at 2 flowid 2:10",
)


def slow_wires(place: Place, rate: str, queue: str) -> None:
    """Limit what each node sends and what it receives.

    The queue of a node is ``fifo``, or ``small-first``: small packets are sent first, as by
    fq_codel, the default of most distributions. In a FIFO acknowledgements wait behind the node's
    own data, and TCP leaves a part of both directions idle.
    """
    paths = LabPaths(place.lab.spec.instance)
    for node in place.lab.spec.nodes:
        inside, switch = paths.netns(node), paths.netns(SWITCH)
        shape(inside, network.TEST, rate, NODE_QUEUE_B)
        shape(switch, network.switch_port(node), rate, PORT_QUEUE_B)
        for command in SMALL_FIRST if queue == "small-first" else ():
            network.run_program("tc", "-n", inside, *command.format(network.TEST).split())


def shape(space: str, interface: str, rate: str, queue_B: int) -> None:
    network.run_program(
        "tc", "-n", space, "qdisc", "replace", "dev", interface, "root", "handle", "1:",
        "tbf", "rate", rate, "burst", f"{BUCKET_B}b", "limit", f"{queue_B}b",
    )  # fmt: skip


def common_tcp(place: Place) -> None:
    """Reno's congestion control, the one that every kernel allows in a namespace: the kernel's own
    may be bbr, which stops each connection now and then to probe the round trip."""
    for node in place.lab.spec.nodes:
        place.lab.run(
            ["sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno"], user="root", node=node,
            check=True, timeout=60,
        )  # fmt: skip


def waiting_library(folder: Path) -> Path:
    """Open MPI's waiting in the kernel, for the ranks' LD_PRELOAD."""
    library = folder / "waits.so"
    source = Path(__file__).with_name("prediction_waits.c")
    subprocess.run(
        ["gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", source, "-o", library], check=True
    )
    library.chmod(0o755)
    return library


def times_of(results: Results) -> dict[int, list[float]]:
    """Number of nodes -> times of IS in s. Ends the program where a run failed."""
    for run in results.runs:
        if run.outcome != "ran":
            raise SystemExit(f"{run.case.check} on {run.case.nodes} nodes: {run.reason}")
    own = [Measured(results.trial.trial, run) for run in valid_runs(results.runs)]
    return {nodes: times for (_, nodes), times in of.cases_of_npb(own)[0].items()}


def predicted(
    results: Results, known: Sequence[int], nodes: Sequence[int], problem_class: str, limit_s: float
) -> list[tuple[of.Prediction, float | None]]:
    """Predictions with the largest error that they state, from the cases on ``known`` alone."""
    own = [
        Measured(results.trial.trial, run)
        for run in valid_runs(results.runs)
        if run.case.check == "comms" or run.case.nodes in known
    ]
    with tempfile.TemporaryDirectory(prefix="seatrial-bench-") as text:
        folder = Path(text)
        kernels = programs.Kernels(folder, lambda: stack_folder() / "sources" / "simgrid.tar.gz")
        counter = programs.build_counter(folder)
        run = of.runner(kernels.command, "ompi", limit_s, counter=counter)
        chosen = of.selected(own, TRANSPORT, "default")
        made = of.calibrated(chosen, programs.build_pingpong(folder), run, limit_s)
        for line in words.calibration(made):
            print(line)
        simulate_one = run(made.network)
        compared = of.compare(made, chosen, "is", simulate_one)
        for line in words.comparisons(compared):
            print(line, flush=True)
        worst = words.worst(compared)
        predictions = []
        for count in nodes:
            begun = time.monotonic()
            prediction = of.predict(made, compared, "is", problem_class, count, simulate_one)
            print(f"simulated {count} nodes in {time.monotonic() - begun:.0f} s", flush=True)
            predictions.append((prediction, worst))
        return predictions


def keys_MB_s(problem_class: str, nodes: int, seconds: float) -> float:
    """The keys that all nodes together send to others in ten iterations of IS, 4 B each."""
    keys = 2 ** {"S": 16, "W": 20, "A": 23, "B": 25, "C": 27}[problem_class]
    return 10 * 4 * keys * (nodes - 1) / nodes / seconds / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--known", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--nodes", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--class", dest="problem_class", choices=list("SWABC"), default="A")
    parser.add_argument("--rate", default="4mbit")
    parser.add_argument("--queue", choices=["fifo", "small-first"], default="fifo")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--most", type=float, default=20, metavar="PERCENT")
    parser.add_argument(
        "--limit", type=float, default=3600, help="processor seconds of one simulation"
    )
    parser.add_argument("--folder", type=Path, default=CHECKOUT / ".seatrial/bench/prediction")
    given = parser.parse_args()
    parse_rate(given.rate)
    folder, largest = given.folder, max(*given.known, *given.nodes)
    folder.mkdir(parents=True, exist_ok=True)
    env = {"LD_PRELOAD": str(waiting_library(folder)), "OMPI_MCA_opal_event_include": "epoll"}
    npb = {"kernels": ["is"], "problem_class": given.problem_class, "time_limit_s": 1800}
    common = (RULES, {TRANSPORT: {"env": env}})
    counts = sorted({*given.known, *given.nodes})
    slow_site = make_site(
        folder / "slow", largest, {"comms": COMMS, "npb": {"nodes": counts, **npb}}, *common,
        repeats=given.repeats, time_limit_s=7200,
    )  # fmt: skip
    fast_site = make_site(
        folder / "fast", largest, {"npb": {"nodes": sorted(given.nodes), **npb}}, *common
    )
    with Place(folder, slow_site, "bench_p", "prediction.jsonl") as place:
        common_tcp(place)
        fast = times_of(place.trial(fast_site))
        slow_wires(place, given.rate, given.queue)
        results = place.trial()
    slow = times_of(results)
    made = predicted(results, given.known, given.nodes, given.problem_class, given.limit)
    is_good = True
    print(f"NPB IS, class {given.problem_class}, wires of {given.rate}, {given.queue}:")
    print("nodes  measured s (range)          predicted s  error  stated  fast wires s  MB/s  fast")
    for prediction, stated in made:
        own, best = slow[prediction.nodes], min(fast[prediction.nodes])
        middle = median(own)
        error = prediction.time_s / middle - 1
        is_good &= abs(error) <= max(stated or 0.0, given.most / 100)
        rates = [keys_MB_s(given.problem_class, prediction.nodes, s) for s in (middle, best)]
        measured = f"{middle:.3f} ({min(own):.3f} to {max(own):.3f})"
        said = "unknown" if stated is None else f"{100 * stated:.0f} %"
        print(
            f"{prediction.nodes:5d}  {measured:26s} {prediction.time_s:12.3f} {100 * error:+5.1f} "
            "% "
            f"{said:>7s} {best:13.3f} {rates[0]:5.1f} {rates[1]:5.1f}"
        )
        place.note(
            nodes=prediction.nodes, problem_class=given.problem_class, rate=given.rate,
            queue=given.queue, measured=own, predicted=prediction.time_s, error=error,
            stated=stated, flaws=list(prediction.flaws), fast=fast[prediction.nodes],
            trial=str(results.folder),
        )  # fmt: skip
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
