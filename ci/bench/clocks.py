"""How well the clocks agree in a virtual lab whose nodes have a processor each.

    .venv/bin/python ci/bench/clocks.py [--messages 1000000] [--window 1000 --window 100]

Starts a lab of three nodes for each window (how far a processor may be ahead of another, in ns), a
guest restored from a saved one as always, and runs ``clocks.c`` in it: messages through memory
between processors that spin, clocks read on two processors under one lock, messages through pipes
between processors that sleep, datagrams through two igb cards at two settings of interrupt
moderation, datagrams and inter-processor interrupts from two processors to one that spins, files of
this machine, timers beside idle and beside busy processors, ``rep`` instructions, and reads of a
device's clock. Prints each figure by window. "early" counts messages and interrupts that arrived
before they were sent, readings that were before the last one of the other processor, and times of a
timer before its deadline; only processors that spin on each other's memory may show any, and none
by more than the window and a translation block. Needs root and a C compiler. Judges nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from seatrial.base.paths import CHECKOUT
from seatrial.site.load import load_site
from seatrial_lab.virtual.engine import VirtualLab
from seatrial_lab.virtual.machine import processors_note
from seatrial_lab.virtual.site import virtual_spec
from seatrial_lab.virtual.spec import WINDOW_NS

#: three nodes with an igb card each
SITE = """\
schema: 1
name: bench
lab: {engine: virtual, processors: own, nics: {igb: [igb]}}
networks:
  mgmt: {role: management, interface: eth0, subnet: 10.79.0.0/24}
  test: {role: test, interface: eth1, subnet: 10.79.1.0/24, switch_mtu: 9216}
nodes:
  - {names: "n[1-3]", class: igb, cores: 1}
partitions:
  compute: {nodes: "n[1-3]"}
slurm: {backend: squeue}
nic: {controllers: [10.79.0.254]}
nic_profiles:
  default: {description: as the driver starts them}
transports: {}
benchmarks: {}
"""
PORT = "5999"
TRACING = "/sys/kernel/tracing"
#: interrupts between processors: name, function that sends it (x86, "native_" before it), event
KINDS = (
    ("signals", "smp_send_reschedule", "reschedule_entry"),
    ("barriers", "send_call_func_single_ipi", "call_function_single_entry"),
)
#: longer than the widest window that a test has; each thread sends one in twice that time
STALE_NS = 150_000
TRACE_ON = "\n".join([
    "mountpoint -q . || mount -t tracefs tracefs .", "cd .",
    "echo x86-tsc >trace_clock", "echo 20000 >buffer_size_kb",
    *(f"echo 'p:{name} native_{name} target=%di:s32' >>kprobe_events" for _, name, _ in KINDS),
    "echo 1 >events/kprobes/enable",
    *(f"echo 1 >events/irq_vectors/{event}/enable" for *_, event in KINDS),
])  # fmt: skip
TRACE_OFF = """\
echo 0 >events/enable
echo >kprobe_events
echo >trace
"""
#: processor, time, event, and the processor that is interrupted where one is sent
TRACED = re.compile(r"^.*\[(\d+)\] \S+ +(\d+): (\w+): (?:.* target=(\d+)|.*)$", re.MULTILINE)
TIMEOUT_S = 3600.0


@contextmanager
def running_lab(
    text: str, folder: Path, instance: str, window_ns: int = WINDOW_NS
) -> Iterator[VirtualLab]:
    """Start the lab of a site named bench, with a folder that its guest sees, and end it.

    The window may be wider than a site can ask for. Ends the program if its nodes share a
    processor.
    """
    place = Path(tempfile.mkdtemp(dir=folder)) / "bench"
    place.mkdir()
    (place / "site.yaml").write_text(text)
    (place / "requirements.yaml").write_text("schema: 1\nrequirements: []\n")
    spec = virtual_spec(load_site(place / "site.yaml"), instance)
    lab = VirtualLab(replace(spec, window_ns=window_ns))
    try:
        lab.up()
        if lab.facts()["processors"] != "own":
            raise SystemExit(processors_note(lab.facts()))
        lab.add_bind(folder)
        yield lab
    finally:
        lab.down()


def build(folder: Path) -> Path:
    """Compile ``clocks.c``; the guest reads the program from this machine."""
    program = folder / "clocks"
    source = Path(__file__).with_name("clocks.c")
    subprocess.run(["cc", "-O2", "-pthread", "-o", program, source], check=True)
    return program


class Clocks:
    """The tests of ``clocks.c`` in a running lab."""

    def __init__(self, lab: VirtualLab, program: Path):
        self.lab, self.program = lab, str(program)

    def run(self, *arguments: object, node: str = "login") -> dict[str, int]:
        """Run one test as root and return its figures. Raises LabError."""
        words = [self.program, *map(str, arguments)]
        answer = self.lab.run(words, user="root", node=node, timeout=TIMEOUT_S, check=True)
        return {name: int(value) for name, value in map(str.split, answer.stdout.splitlines())}

    def address(self, node: str, interface: str) -> str:
        """Return the address of a node's card."""
        spec = self.lab.virtual_spec
        (card,) = [one for one in spec.cards if (one.node, one.interface) == (node, interface)]
        return spec.address(card).partition("/")[0]

    def datagrams(
        self, number: int, rx_usecs: int, size: int = 16, interface: str = "eth1"
    ) -> dict[str, int]:
        """Send datagrams of ``size`` bytes from the first node to the second, and back, with that
        moderation."""
        first, second = self.lab.spec.nodes[:2]
        for node in (first, second):
            words = ["ethtool", "-C", interface, "rx-usecs", str(rx_usecs)]
            self.lab.run(words, user="root", node=node, timeout=TIMEOUT_S, check=True)
        address = self.address(second, interface)
        server = threading.Thread(target=self.run, args=("serve", PORT), kwargs={"node": second})
        server.start()
        time.sleep(1)
        try:
            return self.run("send", address, PORT, number, size, node=first)
        finally:
            server.join()

    def streams(self, number: int, apart_ns: int) -> dict[str, int]:
        """Send that many datagrams from each of two nodes to the third, whose processor spins."""
        *senders, receiver = self.lab.spec.nodes
        address = self.address(receiver, "eth1")
        with ThreadPoolExecutor() as threads:
            collected = threads.submit(self.run, "collect", PORT, len(senders), node=receiver)
            time.sleep(1)
            streams = [
                threads.submit(self.run, "stream", address, PORT, number, apart_ns, node=sender)
                for sender in senders
            ]
            for stream in streams:
                stream.result()
            return collected.result()

    def interrupts(self, number: int) -> dict[str, int]:
        """Interrupt a processor that spins, as often from each of two others; the kernel traces it.

        ``NAME_early`` are those that were taken before they were sent, by ``NAME_earliest_ns`` at
        most.
        """
        receiver = len(self.lab.spec.nodes)
        self._trace(TRACE_ON)
        try:
            self.run("interrupt", 1, 2, receiver, number, 2 * STALE_NS)
            return interrupt_figures(self._trace("cat trace"), receiver)
        finally:
            self._trace(TRACE_OFF)

    def files(self, number: int) -> dict[str, int]:
        """Make that many files on this machine and look at each in the guest."""
        with tempfile.TemporaryDirectory(dir=Path(self.program).parent) as folder:
            Path(folder).chmod(0o755)
            for file in range(number):
                Path(folder, f"{file}").touch()
            return self.run("list", folder)

    def _trace(self, script: str) -> str:
        words = ["sh", "-ec", f"cd {TRACING}\n{script}"]
        return self.lab.run(words, user="root", timeout=TIMEOUT_S, check=True).stdout

    def beside_busy(self, *arguments: object) -> dict[str, int]:
        """Run a test while the second node's processor is busy."""
        busy = self.lab.connect(
            ["sh", "-c", "while :; do :; done"], user="root", node=self.lab.spec.nodes[1]
        )
        try:
            return self.run(*arguments)
        finally:
            busy.socket.close()


def interrupt_figures(trace: str, processor: int) -> dict[str, int]:
    """Return by kind how many interrupts a processor took, and how many before they were sent.

    Each kind is sent by one thread, which waits until it is taken, and seldom by the kernel. So an
    interrupt is the oldest that was sent and not yet taken; one that was sent ``STALE_NS`` before
    has been taken together with another. ``NAME_unsent`` were taken although the trace has none
    that was sent within that time.
    """
    stamps: dict[str, list[int]] = {name: [] for _, *names in KINDS for name in names}
    for cpu, stamp, event, target in TRACED.findall(trace):
        if event in stamps and int(target or cpu) == processor:
            stamps[event].append(int(stamp))
    result: dict[str, int] = {}
    for name, function, event in KINDS:
        waiting = deque(sorted(stamps[function]))
        early, unsent = [], 0
        for stamp in sorted(stamps[event]):
            while waiting and waiting[0] < stamp - STALE_NS:
                waiting.popleft()
            if not waiting or waiting[0] > stamp + STALE_NS:
                unsent += 1
            elif (begun := waiting.popleft()) > stamp:
                early.append(begun - stamp)
        result |= {
            f"{name}_number": len(stamps[event]),
            f"{name}_early": len(early),
            f"{name}_earliest_ns": max(early, default=0),
            f"{name}_unsent": unsent,
        }
    return result


def figures(clocks: Clocks, messages: int) -> dict[str, int]:
    """Return all figures of a lab by name."""
    fewer, least = max(1000, messages // 5), max(200, messages // 100)
    tests: dict[str, Callable[[], dict[str, int]]] = {
        "rep": lambda: clocks.run("repeat", 1_000_000),
        "device": lambda: clocks.run("devices", 1, fewer),
        "spin": lambda: clocks.run("spin", 1, 2, messages),
        "wake": lambda: clocks.run("wake", 1, 2, fewer),
        "lock": lambda: clocks.run("lock", 1, 2, messages),
        "streams": lambda: clocks.streams(fewer, 50_000),
        "interrupts": lambda: clocks.interrupts(min(fewer, 20_000)),
        "files": lambda: clocks.files(1000),
        "timer": lambda: clocks.run("timer", 1, 100_000, least),
        "timer beside busy": lambda: clocks.beside_busy("timer", 1, 100_000, least),
        "timer after idle": lambda: clocks.run("timer", 1, 1_000_000_000, 20),
        "datagrams rx-usecs 0": lambda: clocks.datagrams(fewer, 0),
        "datagrams rx-usecs 125": lambda: clocks.datagrams(least, 125),
    }
    result: dict[str, int] = {}
    for test, run in tests.items():
        begun = time.monotonic()
        result |= {f"{test}: {name}": value for name, value in run().items()}
        print(f"  {test}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--window", type=int, action="append", help="in ns; default: 1000 and 100")
    arguments = parser.parse_args()
    windows = arguments.window or [WINDOW_NS, WINDOW_NS // 10]
    columns: list[dict[str, int]] = []
    # The guest sees the checkout, and not /tmp of this machine.
    with tempfile.TemporaryDirectory(dir=CHECKOUT / ".seatrial") as folder:
        Path(folder).chmod(0o755)
        program = build(Path(folder))
        for window in windows:
            with running_lab(SITE, Path(folder), f"clk{os.getpid()}", window) as lab:
                columns.append(figures(Clocks(lab, program), arguments.messages))
    print(f"{'window, ns':44}" + "".join(f"{window:>12}" for window in windows))
    for name in columns[0]:
        print(f"{name:44}" + "".join(f"{column[name]:>12}" for column in columns))


if __name__ == "__main__":
    main()
