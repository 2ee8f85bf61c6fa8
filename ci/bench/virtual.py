"""What the virtual-time lab costs and how well its figures repeat.

    .venv/bin/python ci/bench/virtual.py [--site lab-virtual] [--times 3] [--profile 'igb-*'] ...

Starts the lab as often as asked, measuring the boot, and runs the selected cases that often.
Prints of each run the wall time, QEMU's processor time and how much of that it took for a second in
which one of the guest's processors was busy (10^9 instructions); wall and processor time of each
job of a case, and of each switch to a NIC profile (from the end of the last job: its Epilogs,
Slurm, the Prologs); and per case and metric the spread between the runs, (highest - lowest) / mean.
``--load N`` runs N busy processes beside it. Needs root, like the lab. It judges nothing:
requirements do that.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.site.load import site_file
from seatrial.trial.run import run_trial
from seatrial_lab.adapter import lab_of_site, machine_of
from seatrial_lab.virtual.engine import VirtualLab
from seatrial_lab.virtual.share import processes_of


class Cost(NamedTuple):
    """Wall time and QEMU's processor time in seconds."""

    wall_s: float
    cpu_s: float


class Stopwatch:
    """Takes the time of each job from a trial's progress: they run one after the other."""

    def __init__(self, lab: VirtualLab):
        self.lab = lab
        self.costs: dict[str, Cost] = {}
        self.profile = ""
        self._since = self._now()

    def _now(self) -> Cost:
        return Cost(time.monotonic(), cpu_s(self.lab))

    def line(self, word: str, done: int, total: int, name: str) -> None:
        if not total:  # it begins; what was before it is not its own
            return
        self._take(f"{name.split(' ')[0]} {name.rpartition('+')[2]} {self.profile}")

    def _take(self, what: str) -> None:
        """Record what was spent since the last call."""
        now = self._now()
        self.costs[what] = Cost(now.wall_s - self._since.wall_s, now.cpu_s - self._since.cpu_s)
        self._since = now

    def said(self, text: str) -> None:
        print(f"  {text}", file=sys.stderr)
        if found := re.match(r"NIC profile (\S+) on ", text):
            self.profile = found[1]
            self._take(f"switch to {self.profile}")


def cpu_s(lab: VirtualLab) -> float:
    """Processor time so far of the lab's processes, in seconds."""
    ticks = 0
    for pid in processes_of(lab.paths.run):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def clock_s(lab: VirtualLab) -> tuple[float, float]:
    """Seconds of the guest's clock since it was booted, and those in which its processors were not
    idle, in sum: an instruction takes a nanosecond of them, and nothing else takes any."""
    text = lab.run(["cat", "/proc/uptime", "/proc/stat"], timeout=600).stdout
    up, idle = map(float, text.split()[:2])
    return up, up * len(re.findall(r"^cpu\d", text, re.MULTILINE)) - idle


def spread(values: list[float]) -> float:
    """(highest - lowest) / mean, in per cent; 0 where all are 0."""
    mean = sum(values) / len(values)
    return 100 * (max(values) - min(values)) / abs(mean) if mean else 0.0


def measure(arguments: argparse.Namespace, output: Path) -> None:
    selection = Selection(
        tuple(arguments.check), tuple(arguments.transport), tuple(arguments.profile), repeats=1,
        reruns=0, networks=tuple(arguments.network),
    )  # fmt: skip
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    costs: dict[str, list[Cost]] = defaultdict(list)
    for number in range(arguments.times):
        lab = lab_of_site(arguments.site, arguments.instance)
        assert isinstance(lab, VirtualLab)
        try:
            begun = time.monotonic()
            lab.up()
            up_s, boot_cpu = time.monotonic() - begun, cpu_s(lab)
            lab.add_bind(output)
            (before, busy_before), begun = clock_s(lab), time.monotonic()
            watch = Stopwatch(lab)
            results = run_trial(
                plan_trial(site_file(arguments.site), selection),
                site_file(arguments.site),
                machine_of(lab),
                watch,
                output,
            )
            wall, own = time.monotonic() - begun, cpu_s(lab) - boot_cpu
            after, busy_after = clock_s(lab)
        finally:
            lab.down()
        print(
            f"run {number + 1}: boot {up_s:.1f} s wall, {boot_cpu:.1f} s CPU; "
            f"{len(results.runs)} cases {wall:.1f} s wall, {own:.1f} s CPU, "
            f"{after - before:.1f} s of the guest's clock, "
            f"{busy_after - busy_before:.1f} s of busy processors at "
            f"{own / (busy_after - busy_before):.2f} s of CPU each; "
            f"load {os.getloadavg()[0]:.1f}"
        )
        for job, cost in watch.costs.items():
            costs[job].append(cost)
        for run in results.runs:
            if run.outcome != "ran":
                print(f"  {run.case.id}: {run.outcome}: {run.reason}")
            for metric in run.metrics:
                name = f"{metric.metric}@{metric.location}" if metric.location else metric.metric
                found[run.case.id, name].append(metric.value)
    print(f"\n{'job':40} {'wall s':>8} {'CPU s':>8}  (medians)")
    for job, several in costs.items():
        wall_s, own_s = (statistics.median(one) for one in zip(*several, strict=True))
        print(f"{job:40} {wall_s:8.1f} {own_s:8.1f}")
    print(f"\n{'case':40} {'metric':34} {'first':>12} {'spread %':>9} runs")
    for (case, name), values in sorted(found.items()):
        print(f"{case:40} {name:34} {values[0]:12.4g} {spread(values):9.2f} {len(values)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", default="lab-virtual")
    parser.add_argument("--instance", default="bench_virtual")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--load", type=int, default=0, help="busy processes beside it")
    for name in ("check", "transport", "profile", "network"):
        parser.add_argument(f"--{name}", action="append", default=[])
    arguments = parser.parse_args()
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.load)
    ]
    try:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)  # the guest's users write below it
            measure(arguments, Path(folder))
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
