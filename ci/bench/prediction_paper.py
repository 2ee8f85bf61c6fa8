"""FT and LU of the paper on communication models, simulated over the paper's own models.

    .venv/bin/python ci/bench/prediction_paper.py SOURCE

SOURCE: folder or archive of NPB 3.4. With SimGrid (libsimgrid-dev), gfortran and make; no lab. It
takes about 15 minutes of one core.

The network has half of the published send and receive times as half round trips (Tessera, tables 2
and 3). The speed of the nodes is such that FT of class A on 32 processes computes for the published
1.72 s. It prints the simulated times beside the published ones. The paper gives times of
communication as means over the processes, and of LU those of its blocking receives, which are 80 %
of its time of communication.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from seatrial.analysis.conclusion import Inputs
from seatrial.base.paths import CHECKOUT
from seatrial.benchmarks import npb
from seatrial.predict import programs, simulation
from seatrial.predict.calibration import Network, Part, Range, network

sys.path.insert(0, str(CHECKOUT / "tests"))
from analysis_maker import (
    ETHERNET_RECV,
    ETHERNET_SEND,
    MYRINET_RECV,
    MYRINET_SEND,
    SIZES,
    K,
)

NO_CALLS: dict[str, dict[float, float]] = {"send": {}, "isend": {}, "recv_ready": {}}
NOTHING = Part(0.0, 0.0)
UNKNOWN = Inputs((), (), 0)
#: a network that takes no time: what is left is computing
FREE = Network(
    [Range(0, NOTHING, NOTHING, NOTHING, Part(1e-9, 1e-13))], 1e9, (1.0, 1e9), {}, "none", UNKNOWN
)
#: the largest message that does not wait for its receive, in B
FABRICS = {
    "Ethernet": (ETHERNET_SEND, ETHERNET_RECV, 256 * K),
    "Myrinet": (MYRINET_SEND, MYRINET_RECV, 10 * K),
}
COMPUTING_S = 1.72  # of FT on 32
#: kernel, processes, fabric -> published time of communication in s
PUBLISHED = {
    ("ft.A", 32, "Ethernet"): 7.19, ("ft.A", 64, "Ethernet"): 10.32,
    ("lu.A", 16, "Ethernet"): 14.48 / 0.8, ("lu.A", 16, "Myrinet"): 49.99 / 0.8,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    given = parser.parse_args()
    fabrics = {}
    for name, (send, receive, eager) in FABRICS.items():
        half = {float(n): (send.at(n).us + receive.at(n).us) / 2 for n in SIZES}
        fabrics[name] = Network(*network(half, NO_CALLS, eager), {}, "Tessera", UNKNOWN)
    with tempfile.TemporaryDirectory(prefix="seatrial-bench-") as text:
        folder = Path(text)
        suite = programs.suite_in(given.source, folder)
        kernels = programs.Kernels(folder, no_archive, suite)

        def time_s(variant: str, ranks: int, over: Network, speed: float) -> float:
            command = kernels.command(variant, ranks)
            done = simulation.simulate(command, ranks, over, speed=speed, limit_s=3600)
            return npb.parse(done.output).value("time_s")

        # so slow that the two decimals of NPB's time are enough
        speed = 0.02
        speed *= time_s("ft.A", 32, FREE, speed) / COMPUTING_S
        print(f"speed of the paper's nodes: {speed:.3f} times this machine's")
        for (variant, ranks, name), published in PUBLISHED.items():
            computing = time_s(variant, ranks, FREE, speed)
            whole = time_s(variant, ranks, fabrics[name], speed)
            print(
                f"{variant} on {ranks}, {name}: computing {computing:.2f} s, communication "
                f"{whole - computing:.2f} s, published {published:.2f} s",
                flush=True,
            )


def no_archive() -> Path:
    raise AssertionError("all kernels are those of SOURCE")


if __name__ == "__main__":
    main()
