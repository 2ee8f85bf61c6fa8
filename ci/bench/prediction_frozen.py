"""Predictions to 64 nodes that are frozen before anything is measured, in the native lab.

    .venv/bin/python ci/bench/prediction_frozen.py freeze NAME
    git add docs/dev/predictions && git commit
    .venv/bin/python ci/bench/prediction_frozen.py measure NAME
    .venv/bin/python ci/bench/prediction_frozen.py table NAME
    .venv/bin/python ci/bench/prediction_frozen.py again NAME

As root, in a checkout whose `seatrial trial` has run once, with SimGrid (libsimgrid-dev). The lab
has 64 light nodes on slow wires, as that of prediction.py.

`freeze` measures the message times of two nodes (comms), predicts each case from them alone, and
writes docs/dev/predictions/NAME.json, and its SHA-256 to SHA256SUMS there. `measure` refuses unless
that file is committed as it was frozen and the model is the one that made it. It writes
NAME.measured.json. Neither overwrites a file: what was predicted and what was measured stays.
`again` predicts once more from the frozen network, without a lab, and writes nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from light import Place, make_site
from prediction import COMMS, RULES, TRANSPORT, common_tcp, slow_wires, waiting_library

from seatrial.analysis.conclusion import Inputs, Measured
from seatrial.base.paths import CHECKOUT
from seatrial.benchmarks import npb
from seatrial.predict import prediction as of
from seatrial.predict import programs, simulation
from seatrial.predict.calibration import Network, Part, Range
from seatrial.report import prediction as words
from seatrial.results.figures import valid_runs
from seatrial.stack import stack_folder
from seatrial_lab.common import network as lab_network

FOLDER = CHECKOUT / "docs/dev/predictions"
SUMS = FOLDER / "SHA256SUMS"
PATTERNS = Path(__file__).with_name("prediction_patterns.c")
#: what a prediction from a given trial depends on
MODEL = (
    "src/seatrial/analysis/message_times.py", "src/seatrial/predict/calibration.py",
    "src/seatrial/predict/simulation.py", "ci/bench/prediction_patterns.c",
)  # fmt: skip
NODES = (8, 64)
#: pattern, bytes, rounds: no case that was predicted before
CASES = (
    ("alltoall", 12_000, 8), ("alltoall", 1_500, 40), ("allreduce", 100_000, 10),
    ("allreduce", 8_000, 60), ("halo", 40_000, 20), ("halo", 200_000, 4), ("sweep", 3_000, 20),
)  # fmt: skip
#: the kernel's larger class, on the most nodes: class A was predicted before
IS_CLASS = "B"
#: of a run that fails; how long Slurm waits for its ranks, and for its end
STARTS, START_S, LONGEST_MIN = 6, 120, 4
NOTES = "frozen.jsonl"
Case = tuple[tuple[str, ...], int]  # words of the program, nodes


def cases() -> Iterator[Case]:
    for nodes in NODES:
        yield from (((name, str(size), str(rounds)), nodes) for name, size, rounds in CASES)
    yield ("is", str(NODES[-1]), IS_CLASS), NODES[-1]


def sum_of(*files: Path) -> str:
    made = hashlib.sha256()
    for file in files:
        made.update(file.read_bytes())
    return made.hexdigest()


def model() -> dict[str, str]:
    return {name: sum_of(CHECKOUT / name) for name in MODEL}


def seconds(case: Case, output: str) -> float:
    """The time that the program prints. Ends the program if it printed none."""
    wanted, nodes = case
    if wanted[0] == "is":
        return npb.parse(output).value("time_s")
    pattern, *numbers = wanted
    line = rf"^{pattern} {nodes} {' '.join(numbers)} ([0-9.]+)$"
    if not (found := re.search(line, output, re.M)):
        raise SystemExit(f"{' '.join(wanted)} on {nodes} nodes printed: {output[-2000:]}")
    return float(found[1])


def network_of(kept: Mapping[str, Any]) -> Network:
    """The network of a frozen file."""
    ranges = [
        Range(
            one["above"], *(Part(**one[name]) for name in ("send", "isend", "receive", "network"))
        )
        for one in kept["ranges"]
    ]
    half = {float(size): time_s for size, time_s in kept["half_round_trips"].items()}
    low, high = kept["measured"]
    return Network(ranges, kept["eager_B"], (low, high), half, kept["source"], Inputs((), (), 0))


def predicted(network: Network, chosen: Sequence[Case], limit_s: float) -> Iterator[float]:
    """The time of each case, in s."""
    with tempfile.TemporaryDirectory(prefix="seatrial-bench-") as text:
        folder = Path(text)
        patterns = simulation.compile_c([PATTERNS], folder / "patterns")
        kernels = programs.build_npb(stack_folder() / "sources" / "simgrid.tar.gz", folder)
        for case in chosen:
            wanted, nodes = case
            command: list[str | Path] = [patterns, *wanted]
            if wanted[0] == "is":
                command = [kernels["is"], *wanted[1:]]
            done = simulation.simulate(command, nodes, network, limit_s=limit_s)
            yield seconds(case, done.output)


def lab(given: argparse.Namespace, repeats: int) -> Place:
    site = make_site(
        given.folder / "frozen", NODES[-1], {"comms": COMMS}, RULES,
        {TRANSPORT: {"env": env(given)}}, repeats=repeats, time_limit_s=7200,
    )  # fmt: skip
    return Place(given.folder, site, given.instance, NOTES)


def env(given: argparse.Namespace) -> dict[str, str]:
    library = waiting_library(given.folder)
    return {"LD_PRELOAD": str(library), "OMPI_MCA_opal_event_include": "epoll"}


def freeze(given: argparse.Namespace) -> None:
    file = FOLDER / f"{given.name}.json"
    if file.exists():
        raise SystemExit(f"{file} exists: a frozen prediction is not made again")
    with lab(given, given.repeats) as place:
        common_tcp(place)
        slow_wires(place, given.rate, "fifo")
        results = place.trial()
    for run in results.runs:
        if run.outcome != "ran":
            raise SystemExit(f"{run.case.check} on {run.case.nodes} nodes: {run.reason}")
    own = [Measured(results.trial.trial, run) for run in valid_runs(results.runs)]
    with tempfile.TemporaryDirectory(prefix="seatrial-bench-") as text:
        pingpong = programs.build_pingpong(Path(text))
        made = of.calibrated(own, pingpong, lambda _: no_case, given.limit)
    said = list(words.calibration(made))
    chosen = list(cases())
    listed = []
    for (wanted, nodes), time_s in zip(
        chosen, predicted(made.network, chosen, given.limit), strict=True
    ):
        print(f"{' '.join(wanted)} on {nodes} nodes: {time_s:.4g} s", flush=True)
        listed.append({"program": list(wanted), "nodes": nodes, "predicted_s": time_s})
    kept = {
        "frozen": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": git("rev-parse", "HEAD"), "model": model(), "simgrid": simulation.version(),
        "rate": given.rate, "calibration": said, "cases": listed,
        "network": {**dataclasses.asdict(made.network), "inputs": results.trial.trial},
    }  # fmt: skip
    FOLDER.mkdir(exist_ok=True)
    file.write_text(json.dumps(kept, indent=1) + "\n")
    with SUMS.open("a") as stream:
        stream.write(f"{sum_of(file)}  {file.name}\n")
    print(f"{sum_of(file)}  {file}\ncommit both files before you measure")


def no_case(variant: str, nodes: int, speed: float) -> simulation.Simulated:
    raise AssertionError("the calibration has message times alone")


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", CHECKOUT, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def frozen(name: str) -> tuple[Path, dict[str, Any], str]:
    """The file, what it has, and the commit that added it. Ends the program if it is not as it was
    frozen, or not committed."""
    file = FOLDER / f"{name}.json"
    if not file.exists():
        raise SystemExit(f"{file} does not exist: 'freeze {name}' makes it")
    if f"{sum_of(file)}  {file.name}" not in SUMS.read_text().splitlines():
        raise SystemExit(f"{file} is not the file of which {SUMS} has the sum")
    commit = git("log", "--format=%H", "--", str(file))
    if not commit or git("status", "--porcelain", "--", str(file), str(SUMS)):
        raise SystemExit(
            f"{file} or {SUMS} is not committed: a prediction precedes its measurement"
        )
    if "\n" in commit:
        raise SystemExit(f"{file} was changed by a later commit: {commit.splitlines()[0]}")
    return file, json.loads(file.read_text()), commit


def changed(kept: Mapping[str, Any]) -> str:
    """Files of the model that are not those of a frozen prediction."""
    return ", ".join(path for path, made in model().items() if kept["model"].get(path) != made)


def measure(given: argparse.Namespace) -> None:
    file, kept, commit = frozen(given.name)
    target = file.with_suffix(".measured.json")
    if target.exists():
        raise SystemExit(f"{target} exists: what was measured stays; freeze another name")
    if other := changed(kept):
        raise SystemExit(f"{file} was made with another {other}: freeze another name")
    chosen = [(tuple(case["program"]), case["nodes"]) for case in kept["cases"]]
    # Every figure counts, also of a `measure` that did not come to its end.
    notes = Notes(given.folder / NOTES, sum_of(file))
    if not all(len(notes.times("slow", case)) >= given.repeats for case in chosen):
        measure_cases(given, kept["rate"], chosen, notes)
    made = {
        "measured": notes.begun(), "predictions_commit": commit, "predictions_sha256": notes.of,
        "cases": [
            {
                **one, "measured_s": notes.times("slow", case),
                "fast_wires_s": min(notes.times("fast", case), default=None),
                "failed_runs": len(notes.times("failed", case)),
            }
            for one, case in zip(kept["cases"], chosen, strict=True)
        ],
    }  # fmt: skip
    target.write_text(json.dumps(made, indent=1) + "\n")
    table(given)


def measure_cases(
    given: argparse.Namespace, rate: str, chosen: Sequence[Case], notes: Notes
) -> None:
    """What the notes do not have yet."""
    with lab(given, 1) as place:
        command = ["mpicc", "-O3", str(PATTERNS), "-o", str(given.folder / "patterns")]
        subprocess.run(command, check=True)
        common_tcp(place)
        for case in chosen:
            if case[1] == NODES[-1] and not notes.times("fast", case):
                notes.add("fast", case, run(place, given, case, notes))
        slow_wires(place, rate, "fifo")
        for repeat in range(given.repeats):
            for case in chosen:
                if len(notes.times("slow", case)) <= repeat:
                    notes.add("slow", case, run(place, given, case, notes))


class Notes:
    """What was measured, a line for each run, in a file that only grows. ``of``: the SHA-256 of the
    predictions."""

    def __init__(self, file: Path, of: str) -> None:
        self.file, self.of = file, of
        lines = file.read_text().splitlines() if file.exists() else []
        self.rows = [row for row in map(json.loads, lines) if row["of"] == of]

    def add(self, kind: str, case: Case, time_s: float, said: str = "") -> None:
        wanted, nodes = case
        now = datetime.now(UTC).isoformat(timespec="seconds")
        row = {"of": self.of, "at": now, "kind": kind, "program": list(wanted), "nodes": nodes,
               "s": time_s, "said": said}  # fmt: skip
        self.rows.append(row)
        with self.file.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        print(f"{kind}: {' '.join(wanted)} on {nodes} nodes: {time_s:.4g} s", flush=True)

    def times(self, kind: str, case: Case) -> list[float]:
        wanted = (kind, list(case[0]), case[1])
        return [
            row["s"] for row in self.rows if (row["kind"], row["program"], row["nodes"]) == wanted
        ]

    def begun(self) -> str:
        """When the first run ended."""
        return str(self.rows[0]["at"])


def run(place: Place, given: argparse.Namespace, case: Case, notes: Notes) -> float:
    """One run of a case in the lab, in s. Ends the program if another network had its bytes."""
    wanted, nodes = case
    program = (
        stack_folder() / "bench/openmpi/is" if wanted[0] == "is" else given.folder / "patterns"
    )
    arguments = " ".join(wanted[1:] if wanted[0] == "is" else wanted)
    exports = ",".join(f"{name}={value}" for name, value in env(given).items())
    script = (
        f"module load {TRANSPORT} && srun --nodes={nodes} --ntasks={nodes} --kill-on-bad-exit=1 "
        f"--export=ALL,{exports} --time={LONGEST_MIN} {program} {arguments}"
    )
    for _ in range(STARTS):
        before = carried(place)
        pmix = {"SLURM_PMIX_TIMEOUT": str(START_S)}
        done = place.lab.run(["bash", "-c", script], env=pmix, timeout=3600)
        if not done.returncode:
            break
        said = done.stdout + done.stderr
        # On a busy machine Slurm's PMIx does not connect all ranks now and then, or Open MPI's
        # ranks crash or wait for ever for one another's connections.
        notes.add("failed", case, 0.0, said[-3000:])
    else:
        raise SystemExit(f"{arguments} on {nodes} nodes failed {STARTS} times: {said[-3000:]}")
    moved, due = carried(place) - before, least_B(case, done.stdout)
    if moved < due:
        raise SystemExit(
            f"{arguments} on {nodes} nodes: {moved} B on the test network, not {due} B"
        )
    time.sleep(1)
    return seconds(case, done.stdout)


def least_B(case: Case, output: str) -> int:
    """What the first node sends and receives at least, in B: it is at a corner of a sweep."""
    wanted, nodes = case
    if wanted[0] == "is":
        return npb.parse(output).moved_bytes
    pattern, size, rounds = wanted[0], int(wanted[1]), int(wanted[2])
    messages = {"alltoall": 2 * (nodes - 1), "allreduce": 2, "halo": 8, "sweep": 4}[pattern]
    return messages * size * rounds


def carried(place: Place) -> int:
    """Bytes in and out of the first node on the test network so far."""
    node = place.lab.spec.nodes[0]
    text = place.lab.run(["cat", "/proc/net/dev"], user="root", node=node, check=True).stdout
    line = re.search(rf"^ *{lab_network.TEST}: *(.*)$", text, re.M)
    assert line, text
    numbers = line[1].split()
    return int(numbers[0]) + int(numbers[8])


def table(given: argparse.Namespace) -> None:
    file = FOLDER / f"{given.name}.measured.json"
    if not file.exists():
        raise SystemExit(f"{file} does not exist: 'measure {given.name}' makes it")
    print("| program | nodes | predicted | measured (range) | error | with fast wires |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case in json.loads(file.read_text())["cases"]:
        own = case["measured_s"]
        middle, fast = median(own), case["fast_wires_s"]
        print(
            f"| {' '.join(case['program'])} | {case['nodes']} | {case['predicted_s']:.3g} s "
            f"| {middle:.3g} s ({min(own):.3g} to {max(own):.3g}) "
            f"| {100 * (case['predicted_s'] / middle - 1):+.0f} % | "
            + (f"{fast:.2g} s |" if fast else "|")
        )


def again(given: argparse.Namespace) -> None:
    _, kept, _ = frozen(given.name)
    if other := changed(kept):
        print(f"changed since: {other}")
    chosen = [(tuple(case["program"]), case["nodes"]) for case in kept["cases"]]
    made = predicted(network_of(kept["network"]), chosen, given.limit)
    for case, time_s in zip(kept["cases"], made, strict=True):
        print(
            f"{' '.join(case['program'])} on {case['nodes']} nodes: {case['predicted_s']:.4g} s "
            f"frozen, {time_s:.4g} s now"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["freeze", "measure", "table", "again"])
    parser.add_argument("name", help="of the files, such as 2026-11-23")
    parser.add_argument("--rate", default="4mbit", help="of the wires, to freeze")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=3600, help="processor s of a simulation")
    parser.add_argument("--instance", default="bench_f")
    parser.add_argument("--folder", type=Path, default=CHECKOUT / ".seatrial/bench/prediction")
    given = parser.parse_args()
    if not re.fullmatch(r"[\w-]+", given.name):
        parser.error(f"{given.name!r} is no name of a file: write letters, digits and dashes")
    given.folder = given.folder.resolve()
    given.folder.mkdir(parents=True, exist_ok=True)
    {"freeze": freeze, "measure": measure, "table": table, "again": again}[given.what](given)


if __name__ == "__main__":
    main()
