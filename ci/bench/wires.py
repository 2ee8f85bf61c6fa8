"""How well the wires of a virtual lab agree with the textbook (``lab: wires`` and ``bus_MB_s``).

    .venv/bin/python ci/bench/wires.py

Starts five labs of four nodes with two igb cards, and prints, beside what follows from IEEE 802.3:

- one TCP connection over 1 Gbit/s and 100 Mbit/s, with frames of 1500 and 9000 bytes, with and
  without segmentation by the card (TSO);
- how much later a datagram of 16 to 1472 bytes arrives over 100 Mbit/s than over 1 Gbit/s, and
  through a switch than without one;
- three senders to one receiver through two lengths of queues: rates, and dropped frames;
- two cards of a node that send, or send and receive, with and without a host bus.

Needs root and a C compiler. Judges nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clocks import TIMEOUT_S, Clocks, build, running_lab

from seatrial.base.paths import CHECKOUT
from seatrial_lab.common.render import MUNGE_FOLDER
from seatrial_lab.virtual import wires
from seatrial_lab.virtual.engine import VirtualLab

SITE = """\
schema: 1
name: bench
lab:
  engine: virtual
  processors: own
  nics: {{igb: [igb, igb]}}
  wires: {{eth1: {eth1}, eth2: {eth2}}}
  bus_MB_s: {bus}
networks:
  mgmt: {{role: management, interface: eth0, subnet: 10.77.0.0/24}}
  eth1: {{role: test, interface: eth1, subnet: 10.77.1.0/24, switch_mtu: 9216}}
  eth2: {{role: test, interface: eth2, subnet: 10.77.2.0/24, switch_mtu: 9216}}
nodes:
  - {{names: "n[1-4]", class: igb, cores: 1}}
partitions:
  compute: {{nodes: "n[1-4]"}}
slurm: {{backend: squeue}}
nic: {{controllers: [10.77.0.254]}}
nic_profiles:
  default: {{description: as the driver starts them}}
transports: {{}}
benchmarks: {{}}
"""
#: around a frame: preamble, Ethernet header, checksum, gap; in it: IP, TCP, time stamps
FRAMING_B, HEADERS_B = 8 + 14 + 4 + 12, 20 + 20 + 12
PORT = 5201
GIGABIT, FAST = "{rate: 1 Gbit/s}", "{rate: 100 Mbit/s}"


def site_text(eth1: str = GIGABIT, eth2: str = GIGABIT, bus: str = "null") -> str:
    """Return a site of four nodes with two igb cards each, and these wires and buses.

    All such labs start from the same saved guest.
    """
    return SITE.format(eth1=eth1, eth2=eth2, bus=bus)


def switched(queue: str) -> str:
    """Return a wire through a switch."""
    return f"{{rate: 1 Gbit/s, delay_ns: 250, switch: {{queue: {queue}, latency_ns: 1000}}}}"


def payload_rate(rate: float, mtu: int) -> float:
    """Return the rate of TCP's payload on a wire of that rate, in the same unit."""
    return rate * (mtu - HEADERS_B) / (mtu + FRAMING_B)


def frame_ns(rate: float, payload: int) -> float:
    """Return the ns from the first to the last bit of a datagram, on a wire of ``rate`` bit/s."""
    frame = max(14 + 20 + 8 + payload, 60)
    return (8 + frame + 4) * 8 * 1e9 / rate


@dataclass(frozen=True)
class Stream:
    """A TCP connection: from one node to another, on an interface."""

    sender: str
    receiver: str
    interface: str = "eth1"


class Wires:
    """Measurements in a running lab."""

    def __init__(self, lab: VirtualLab, clocks: Clocks):
        self.lab, self.clocks = lab, clocks
        self.ports = iter(range(PORT, 65536))

    def root(self, node: str, *words: str) -> str:
        return self.lab.run(words, user="root", node=node, timeout=TIMEOUT_S, check=True).stdout

    def set_cards(self, mtu: int = 1500, tso: bool = True) -> None:
        """Set all cards of all nodes, and wait for their links."""
        for node in self.lab.spec.nodes:
            words = []
            for name in ("eth1", "eth2"):
                words += [
                    f"ip link set {name} mtu {mtu}",
                    f"ethtool -K {name} tso {'on' if tso else 'off'}",
                    f"ethtool -C {name} rx-usecs 20",
                    f"until [ $(cat /sys/class/net/{name}/operstate) = up ]; do sleep 0.1; done",
                ]
            self.root(node, "sh", "-ec", "\n".join(words))

    def run(self, streams: list[Stream]) -> list[tuple[float, int]]:
        """Run streams at once, for a second. Returns each one's Mbit/s and resent segments."""
        ports = [next(self.ports) for _ in streams]
        for stream, port in zip(streams, ports, strict=True):
            listens = f"until ss -ltn | grep -q ':{port} '; do sleep 0.01; done"
            self.root(stream.receiver, "sh", "-ec", f"iperf3 -s -1 -D -p {port}; {listens}")
        # Requests reach the guest one by one, while its clock may jump: they wait for each other.
        place = f"{MUNGE_FOLDER}/streams-{ports[0]}"  # a folder that all nodes share
        waits = f"until [ $(ls {place} | wc -l) = {len(streams)} ]; do sleep 0.001; done"
        self.root(streams[0].sender, "mkdir", place)
        commands = [
            f"touch {place}/{port}; {waits}; "
            f"exec iperf3 -c {self.clocks.address(stream.receiver, stream.interface)} -p {port} "
            "-t 1 -J"
            for stream, port in zip(streams, ports, strict=True)
        ]
        with ThreadPoolExecutor(len(streams)) as pool:
            texts = pool.map(
                lambda stream, command: self.root(stream.sender, "sh", "-ec", command),
                streams, commands,
            )  # fmt: skip
            ends = [json.loads(text)["end"] for text in texts]
        return [
            (end["sum_received"]["bits_per_second"] / 1e6, end["sum_sent"]["retransmits"])
            for end in ends
        ]

    def delays(self, interface: str) -> list[int]:
        """Return the mean one-way time of datagrams of SIZES bytes, in ns."""
        self.clocks.datagrams(5, 0, interface=interface)  # the nodes learn their addresses
        return [self.clocks.datagrams(200, 0, size, interface)["there_mean_ns"] for size in SIZES]


@contextmanager
def wired(text: str, folder: Path, instance: str = "") -> Iterator[Wires]:
    """Start a lab of a site, with a folder that its guest sees, and end it."""
    with running_lab(text, folder, instance or f"wir{os.getpid()}") as lab:
        yield Wires(lab, Clocks(lab, build(folder)))


SIZES = (16, 64, 256, 1024, 1472)


def speeds(folder: Path) -> None:
    seen: dict[str, list[int]] = {}
    with wired(site_text(GIGABIT, FAST), folder) as lab:
        print(f"{'wire':14}{'MTU':>6}{'TSO':>5}{'Mbit/s':>10}{'textbook':>10}{'resent':>8}")
        for mtu, tso in ((1500, True), (1500, False), (9000, True)):
            lab.set_cards(mtu, tso)
            for interface, rate in (("eth1", 1000), ("eth2", 100)):
                ((got, resent),) = lab.run([Stream("n1", "n2", interface)])
                print(
                    f"{f'{rate} Mbit/s':14}{mtu:6}{'on' if tso else 'off':>5}{got:10.2f}"
                    f"{payload_rate(rate, mtu):10.2f}{resent:8}", flush=True,
                )  # fmt: skip
        lab.set_cards()
        seen["1 Gbit/s"], seen["100 Mbit/s"] = lab.delays("eth1"), lab.delays("eth2")
    with wired(site_text(switched("32 KiB"), switched("4 MiB")), folder) as lab:
        seen["1 Gbit/s, switch"] = lab.delays("eth1")
        print_delays(seen)
        incast(lab)


def print_delays(seen: dict[str, list[int]]) -> None:
    print(f"\n{'one way, ns, by bytes':28}" + "".join(f"{size:>9}" for size in SIZES))
    for name, row in seen.items():
        print(f"{name:28}" + "".join(f"{value:>9}" for value in row))
    gigabit = [frame_ns(1e9, size) for size in SIZES]
    fast = [frame_ns(1e8, size) for size in SIZES]
    expected = {
        "100 Mbit/s": [b - a for a, b in zip(gigabit, fast, strict=True)],
        # Stored once more, two cables of 250 ns, and the switch itself.
        "1 Gbit/s, switch": [value + 2 * 250 + 1000 for value in gigabit],
    }
    for name, values in expected.items():
        more = [b - a for a, b in zip(seen["1 Gbit/s"], seen[name], strict=True)]
        print(f"{f'{name}: more':28}" + "".join(f"{value:>9}" for value in more))
        print(f"{'  textbook':28}" + "".join(f"{value:>9.0f}" for value in values), flush=True)


def incast(lab: Wires) -> None:
    lab.set_cards()
    print(f"\n{'3 to 1, queue':14}{'Mbit/s':>10}{'resent':>8}{'dropped':>9}{'most queued, B':>16}")
    for queue, interface in (("32 KiB", "eth1"), ("4 MiB", "eth2")):
        got = lab.run([Stream(f"n{sender}", "n1", interface) for sender in (2, 3, 4)])
        (row,) = [
            row
            for row in wires.counters(lab.lab)
            if (row["node"], row["interface"]) == ("n1", interface)
        ]
        print(
            f"{queue:14}{sum(rate for rate, _ in got):10.1f}{sum(again for _, again in got):8}"
            f"{row['dropped']:9}{row['queue_peak_B']:16}", flush=True,
        )  # fmt: skip


def buses(folder: Path) -> None:
    print(f"\n{'bus':12}{'streams':9}{'Mbit/s of each':>22}{'MB/s':>8}{'missed':>8}")
    for name, bus in (("none", "null"), ("264 MB/s", "264"), ("132 MB/s", "132")):
        with wired(site_text(bus=bus), folder) as lab:
            lab.set_cards(mtu=9000)
            there = [Stream("n1", "n2"), Stream("n1", "n2", "eth2")]
            back = [Stream("n2", "n1"), Stream("n2", "n1", "eth2")]
            for chosen in (there[:1], there, [*there, *back]):
                got = lab.run(chosen)
                missed = sum(row["missed"] for row in wires.counters(lab.lab))
                each = " ".join(f"{rate:.0f}" for rate, _ in got)
                together = sum(rate for rate, _ in got) / 8
                print(f"{name:12}{len(chosen):<9}{each:>22}{together:8.1f}{missed:8}", flush=True)


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    # The guest sees the checkout, and not /tmp of this machine.
    with tempfile.TemporaryDirectory(dir=CHECKOUT / ".seatrial") as folder:
        Path(folder).chmod(0o755)
        speeds(Path(folder))
        buses(Path(folder))


if __name__ == "__main__":
    main()
