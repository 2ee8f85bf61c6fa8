"""What the virtual-time lab costs and how well its figures repeat.

    .venv/bin/python ci/bench/virtual.py [--site lab-virtual] [--times 3] [--profile 'igb-*'] ...

Starts the lab as often as asked, measuring the boot, runs the selected cases that often, and
prints per case and metric the spread between the runs, (highest - lowest) / mean, with the wall
time and QEMU's processor time. ``--load N`` runs N busy processes beside it. Needs root, like the
lab. It judges nothing: requirements do that.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from seatrial.lab.adapter import lab_of_site, machine_of
from seatrial.lab.virtual.engine import VirtualLab
from seatrial.lab.virtual.share import processes_of
from seatrial.site.load import site_file
from seatrial.trial.plan import Selection
from seatrial.trial.run import run_trial


class Silent:
    """Says nothing of a trial's progress but that it goes on."""

    def started(self, folder: Path, cases: int) -> None: ...
    def line(self, word: str, done: int, total: int, name: str) -> None: ...

    def said(self, text: str) -> None:
        print(f"  {text}", file=sys.stderr)


def cpu_s(lab: VirtualLab) -> float:
    """Processor time so far of the lab's processes, in seconds."""
    ticks = 0
    for pid in processes_of(lab.paths.run):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def uptime_s(lab: VirtualLab) -> float:
    """Seconds of the guest's clock."""
    return float(lab.run(["cat", "/proc/uptime"], timeout=60).stdout.split()[0])


def spread(values: list[float]) -> float:
    """(highest - lowest) / mean, in per cent; 0 where all are 0."""
    mean = sum(values) / len(values)
    return 100 * (max(values) - min(values)) / abs(mean) if mean else 0.0


def measure(arguments: argparse.Namespace, output: Path) -> None:
    selection = Selection(
        tuple(arguments.check), tuple(arguments.transport), tuple(arguments.profile), 1
    )
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(arguments.times):
        lab = lab_of_site(arguments.site, arguments.instance)
        assert isinstance(lab, VirtualLab)
        try:
            begun = time.monotonic()
            lab.up()
            up_s, boot_cpu = time.monotonic() - begun, cpu_s(lab)
            lab.add_bind(output)
            virtual, begun = uptime_s(lab), time.monotonic()
            results = run_trial(
                site_file(arguments.site), selection, machine_of(lab), Silent(), output
            )
            wall, own = time.monotonic() - begun, cpu_s(lab) - boot_cpu
            passed = uptime_s(lab) - virtual
        finally:
            lab.down()
        print(
            f"run {number + 1}: boot {up_s:.1f} s wall, {boot_cpu:.1f} s CPU; "
            f"{len(results.runs)} cases {wall:.1f} s wall, {own:.1f} s CPU, "
            f"{passed:.1f} s of the guest's clock; load {os.getloadavg()[0]:.1f}"
        )
        for run in results.runs:
            if run.outcome != "ran":
                print(f"  {run.case.id}: {run.outcome}: {run.reason}")
            for metric in run.metrics:
                name = f"{metric.metric}@{metric.place}" if metric.place else metric.metric
                found[run.case.id, name].append(metric.value)
    print(f"\n{'case':40} {'metric':34} {'first':>12} {'spread %':>9} runs")
    for (case, name), values in sorted(found.items()):
        print(f"{case:40} {name:34} {values[0]:12.4g} {spread(values):9.2f} {len(values)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", default="lab-virtual")
    parser.add_argument("--instance", default="bench_virtual")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--load", type=int, default=0, help="busy processes beside it")
    for name in ("check", "transport", "profile"):
        parser.add_argument(f"--{name}", action="append", default=[])
    arguments = parser.parse_args()
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.load)
    ]
    try:
        with tempfile.TemporaryDirectory() as folder:
            measure(arguments, Path(folder))
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
