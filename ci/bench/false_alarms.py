"""How often a trial of a sound native lab is accepted, and each planted fault found, under load.

    .venv/bin/python ci/bench/false_alarms.py FOLDER [--trials 40] [--faults 10] [--loads 0-8]

As root, in a checkout whose `seatrial trial` has run once. FOLDER keeps the trials and one line of
each in `campaign.jsonl`: what is there is not run again. The load is made of processes that
compute, which this starts and ends. Exit code 1: a sound lab was rejected, less than 95 % of its
trials were accepted, or a planted fault was not found.

A short matrix is tried: all links under two profiles, each node, and NPB under a transport that
yields and two that spin. A fault's trial has the check that must find it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import ways
from ruamel.yaml import YAML

from seatrial.base.paths import CHECKOUT
from seatrial.results.folder import Results, read_results
from seatrial_lab.native import faults
from seatrial_lab.native.engine import Lab
from seatrial_lab.native.site import spec_for_site

HEALTHY = (
    *("-c", "links", "-c", "npb", "-c", "node_compute", "-p", "default", "-p", "no-offload"),
    *("-t", "tcp", "-t", "none", "-t", "openmpi-tcp", "-t", "mpich-ofi", "-t", "intelmpi-tcp"),
)
LINKS = ("-c", "links", "-p", "default")
ONE_JOB = (*LINKS, "--repeats", "1", "--reruns", "0")  # others would wait for the dead node
NODES = ("-c", "node_compute", "-p", "default")
STEP_LIMIT_S = 10  # of a pair: each of a node whose link is cut waits for it
NODES_OF_LAB = [f"n{number}" for number in range(1, 5)]
TRIAL_LIMIT_S = 600  # a job whose first node dies, with its script, runs to its own limit of 390 s
ACCEPTED = 0.95
BURN = "import ctypes\nctypes.CDLL(None).prctl(1, 9)\nwhile True: pass"  # ends with its parent


@dataclass(frozen=True)
class Kind:
    """A fault: how it is planted, which checks are tried, and which verdicts find it."""

    plant: Callable[[Lab, str], None]
    checks: tuple[str, ...]
    verdicts: tuple[str, ...] = ("reject",)
    while_running: bool = False


KINDS = {
    "slow link": Kind(lambda lab, node: faults.slow_link(lab, node, "100mbit"), LINKS),
    "slow cpu": Kind(lambda lab, node: faults.slow_cpu(lab, node, 20), NODES),
    # These prevent measurements, and nothing that was measured is beyond a bound.
    "cut link": Kind(faults.cut_link, LINKS, ("incomplete",)),
    "killed node": Kind(faults.kill_node, ONE_JOB, ("incomplete",), while_running=True),
    # The step on the node goes on, and Slurm gives the node up after a while: all is measured, or
    # what is not is that node's.
    "killed slurmd": Kind(
        faults.kill_slurmd, ONE_JOB, ("accept", "incomplete"), while_running=True
    ),
}


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that compute, while the block runs."""
    own = [
        subprocess.Popen([sys.executable, "-c", BURN], start_new_session=True)
        for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in own:
            process.kill()
            process.wait()


class Campaign:
    """The trials of one folder, in one lab."""

    def __init__(self, folder: Path, instance: str) -> None:
        self.lines = folder / "campaign.jsonl"
        self.done: list[dict] = []
        if self.lines.exists():
            self.done = [json.loads(line) for line in self.lines.read_text().splitlines()]
        self.site = folder / "lab" / "site.yaml"
        write_site(self.site)
        self.folder = folder
        self.lab = Lab(spec_for_site(str(self.site), instance))

    def trial(self, kind: str, number: int, processes: int) -> None:
        """Run one trial and note what came of it; nothing where that was noted before."""
        if any((one["kind"], one["number"]) == (kind, number) for one in self.done):
            return
        fault, node = KINDS.get(kind), f"n{1 + number % 4}"
        before, began = os.getloadavg()[0], time.monotonic()
        with load(processes):
            try:
                if fault:
                    self.lab.up()
                    if not fault.while_running:
                        fault.plant(self.lab, node)
                results = self._run(fault, node)
            finally:
                if fault:
                    faults.clear(self.lab)
        line = {
            "kind": kind,
            "number": number,
            "processes": processes,
            "load_average": [round(before, 1), round(os.getloadavg()[0], 1)],
            "seconds": round(time.monotonic() - began),
            "node": node if fault else "",
            **summary(results),
            "found": is_found(kind, node, results) if fault else None,
        }
        with self.lines.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
        self.done.append(line)
        print(json.dumps({key: line[key] for key in list(line)[:12]}), flush=True)

    def _run(self, fault: Kind | None, node: str) -> Results:
        command = [sys.executable, "-I", "-m", "seatrial", "trial", "--site", str(self.site)]
        command += ["--keep-lab", "--output", str(self.folder / "trials")]
        command += fault.checks if fault else HEALTHY
        known = self._trials()
        env = {**os.environ, "SEATRIAL_LAB_INSTANCE": self.lab.spec.instance}
        with (self.folder / "last.out").open("w") as said:
            child = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=said,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                if fault and fault.while_running:
                    self._wait_for_a_job(child)
                    fault.plant(self.lab, node)
                code = child.wait()
            except BaseException:
                ways.end_group(child)
                raise
        new = self._trials() - known
        if code > 2 or len(new) != 1:
            text = (self.folder / "last.out").read_text()
            raise SystemExit(f"seatrial trial ended with {code}: {text}")
        return read_results(new.pop())

    def _trials(self) -> set[Path]:
        return set((self.folder / "trials").glob("*/results.jsonl"))

    def _wait_for_a_job(self, child: subprocess.Popen) -> None:
        """Until a job has a running step besides its batch script."""
        while child.poll() is None:
            steps = self.lab.run(["squeue", "-h", "-s", "-o", "%i"], user="root").stdout.split()
            if any(step.rpartition(".")[2].isdigit() for step in steps):
                return
            time.sleep(0.1)
        raise SystemExit((self.folder / "last.out").read_text())


def write_site(file: Path) -> None:
    """The site `lab` with limits that a trial with a cut link does not take minutes to reach."""
    source = CHECKOUT / "site-configs" / "lab"
    file.parent.mkdir(parents=True, exist_ok=True)
    for name in ("requirements.yaml", "settings.py"):
        shutil.copy(source / name, file.parent / name)
    yaml = YAML()
    site = yaml.load((source / "site.yaml").read_text())
    site["benchmarks"]["links"]["time_limit_s"] = STEP_LIMIT_S
    site["trial"]["time_limit_s"] = TRIAL_LIMIT_S
    with file.open("w") as stream:
        yaml.dump(site, stream)


def summary(results: Results) -> dict:
    """The verdict, how much was run again, and the sentences to read first."""
    assert results.verdict
    again = [run for run in results.runs if results.trial.is_rerun(run)]
    return {
        "verdict": results.verdict.verdict,
        "times_again": len({run.repeat for run in again}),
        "runs_again": len(again),
        "trial": results.trial.trial,
        "findings": results.verdict.findings,
    }


def is_found(kind: str, node: str, results: Results) -> bool:
    """Whether the verdict is the fault's, its place is named, and no other is."""
    assert results.verdict
    if results.verdict.verdict not in KINDS[kind].verdicts:
        return False
    failed = {j.location for j in results.judgements if j.verdict == "fail"}
    if kind == "slow link":
        pairs = [pair for pair in permutations(NODES_OF_LAB, 2) if node in pair]
        own = {"-".join(sorted(pair)) for pair in pairs} | {">".join(pair) for pair in pairs}
        named = any(f"node {node} is common" in text for text in results.verdict.findings)
        return named and failed == own
    if kind == "slow cpu":
        return failed == {node}
    if kind == "killed node" and node == NODES_OF_LAB[0]:  # with the script of the job
        return all(f"{node} wrote no record" in run.reason for run in results.runs)
    if kind in ("cut link", "killed node"):
        return not failed and all(set(run.unmeasured) == {node} for run in results.runs)
    return not failed and all(set(run.unmeasured) <= {node} for run in results.runs)


def table(done: list[dict]) -> str:
    """Counts, a line a kind of trial."""
    head = ("kind", "trials", "accept", "reject", "incomplete", "with reruns", "runs again",
            "found", "median s", "load average")  # fmt: skip
    rows: list[tuple[str, ...]] = [head]
    for kind in ("healthy", *KINDS):
        own = [one for one in done if one["kind"] == kind]
        if not own:
            continue
        verdicts = [one["verdict"] for one in own]
        loads = [value for one in own for value in one["load_average"]]
        seconds = sorted(one["seconds"] for one in own)
        found = [one["found"] for one in own]
        counts = [str(verdicts.count(word)) for word in ("accept", "reject", "incomplete")]
        rows.append(
            (
                kind,
                str(len(own)),
                *counts,
                str(sum(one["times_again"] > 0 for one in own)),
                str(sum(one["runs_again"] for one in own)),
                "-" if kind == "healthy" else f"{found.count(True)} of {len(own)}",
                str(seconds[len(seconds) // 2]),
                f"{min(loads)} to {max(loads)}",
            )
        )
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def is_good(done: list[dict]) -> bool:
    healthy = [one["verdict"] for one in done if one["kind"] == "healthy"]
    accepted = healthy.count("accept") >= ACCEPTED * len(healthy)
    return accepted and "reject" not in healthy and all(one["found"] is not False for one in done)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, default=40, help="of a sound lab")
    parser.add_argument("--faults", type=int, default=10, help="trials of each fault")
    parser.add_argument("--loads", default="0-8", help="least and most processes of load")
    parser.add_argument("--instance", default="alarms", help="name of the lab")
    options = parser.parse_args()
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)  # also where the shell had it ignored
    least, most = (int(word) for word in options.loads.split("-"))
    options.folder.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(options.folder.resolve(), options.instance)
    steps = [("healthy", number) for number in range(options.trials)]
    steps += [(kind, number) for number in range(options.faults) for kind in KINDS]
    try:
        for kind, number in steps:
            campaign.trial(kind, number, least + number % (most - least + 1))
    finally:
        with ways.uninterrupted():
            campaign.lab.down()
    print(table(campaign.done))
    return 0 if is_good(campaign.done) else 1


if __name__ == "__main__":
    sys.exit(main())
