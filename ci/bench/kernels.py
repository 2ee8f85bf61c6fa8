"""Latency of a virtual lab's NICs under several kernels and builds of a driver.

    .venv/bin/python ci/bench/kernels.py [--site lab-virtual-4] [--usecs 0,3,125]
        [--kernel SUITE_OR_FOLDER] ... [--driver FILE.ko] ... [--series 5] [--round-trips 20]

Starts the lab of the site once for each ``--kernel`` (default: of the machine), and once more
for each ``--driver``, with the first kernel. Between the first two nodes it runs NetPIPE over TCP
with 64 bytes, after ``ethtool -C eth1 rx-usecs``, ``--series`` times. Prints the median and the
range of the latency, in us, and what was loaded. No trial is run and nothing is judged: a kernel
takes one to two minutes, and up to four if its guest is booted. Needs root, like the lab.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
from pathlib import Path

from seatrial.base.errors import SeatrialError
from seatrial_lab.adapter import lab_of_site
from seatrial_lab.virtual.engine import VirtualLab
from seatrial_lab.virtual.kernels import read_driver

#: NetPIPE's two ends
RECEIVER = "for i in $(seq $2); do NPtcp -u 64 -l 64 -p 0 -n $1 -o /dev/null >/dev/null 2>&1; done"
SENDER = """\
cd /tmp
for i in $(seq $3); do
    sleep 1 # until the receiver listens: of the guest's clock
    NPtcp -h $1 -u 64 -l 64 -p 0 -n $2 -o np.out >/dev/null 2>&1
    cat np.out
done
"""


def latencies(lab: VirtualLab, usecs: int, series: int, times: int) -> list[float]:
    """Half the round trip of 64 bytes in us, of each series, under a moderation."""
    spec = lab.virtual_spec
    one, two = lab.spec.nodes[:2]
    for node in (one, two):
        setting = ["ethtool", "-C", "eth1", "rx-usecs", str(usecs)]
        lab.run(setting, user="root", node=node, timeout=600)  # 80: it has that value
    address = spec.address(next(card for card in spec.cards if card.node == two)).partition("/")[0]
    receiver = lab.connect(["sh", "-c", RECEIVER, "sh", str(times), str(series)], node=two)
    done = lab.run(
        ["sh", "-c", SENDER, "sh", address, str(times), str(series)],
        node=one, timeout=1800, check=True,
    )  # fmt: skip
    receiver.socket.close()
    return [float(line.split()[2]) * 1e6 for line in done.stdout.splitlines()]


def measure(arguments: argparse.Namespace, kernel: str, drivers: tuple[str, ...]) -> None:
    lab = lab_of_site(arguments.site, arguments.instance)
    assert isinstance(lab, VirtualLab)
    spec = dataclasses.replace(lab.virtual_spec, kernel=kernel, drivers=drivers)
    lab = VirtualLab(spec)
    try:
        begun = time.monotonic()
        lab.up()
        facts = lab.facts()
        print(f"\n{facts['kernel_version']}: up after {time.monotonic() - begun:.0f} s")
        if facts["processors"] != "own" and spec.own_processors:
            print(f"all nodes share a processor: {facts['no_own_processors']}")
        for usecs in map(int, arguments.usecs.split(",")):
            found = latencies(lab, usecs, arguments.series, arguments.round_trips)
            print(
                f"rx-usecs {usecs:3}: median {statistics.median(found):7.2f} us, "
                f"{min(found):.2f} to {max(found):.2f} in {len(found)} series",
                flush=True,
            )
    finally:
        lab.down()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", default="lab-virtual-4")
    parser.add_argument("--instance", default="bench_kernels", help="name of the lab")
    parser.add_argument("--usecs", default="0,3,125", help="values of rx-usecs")
    parser.add_argument(
        "--kernel", action="append", default=[], help="Debian suite, or folder of a kernel"
    )
    parser.add_argument("--driver", action="append", default=[], help="file of a module")
    parser.add_argument("--series", type=int, default=5, help="series of NetPIPE")
    parser.add_argument("--round-trips", type=int, default=20, help="of a series")
    arguments = parser.parse_args()
    kernels = arguments.kernel or [""]
    try:
        for driver in arguments.driver:
            read_driver(Path(driver))
        for kernel in kernels:
            measure(arguments, kernel, ())
        for driver in arguments.driver:
            measure(arguments, kernels[0], (driver,))
    except SeatrialError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
