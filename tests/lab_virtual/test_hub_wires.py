"""The times of frames on QEMU's wires, to the nanosecond: hubs without a guest, on a stepped clock.

Each port of a hub ends in a datagram socket in place of a card.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.base.lock import locked
from seatrial.base.say import say_nothing
from seatrial_lab.virtual import packages
from seatrial_lab.virtual.engine import CACHE, LOCK_FILE
from seatrial_lab.virtual.snapshot import QmpConnection, connect_to_qemu

pytestmark = [pytest.mark.root, pytest.mark.slurm]

GIGABIT = "rate=1000000000"
#: preamble and checksum of a frame, and the gap after it
AROUND_B, GAP_B = 12, 12
WAIT_S = 30.0


def bits_ns(size: int, rate: float = 1e9) -> int:
    """From the first to the last bit of a frame on a wire of ``rate`` bit/s."""
    return round((max(size, 60) + AROUND_B) * 8 * 1e9 / rate)


def frame(sender: int, receiver: int, size: int = 1514) -> bytes:
    """A frame from the card of one port to that of another."""
    addresses = bytes([2, 0, 0, 0, 0, receiver, 2, 0, 0, 0, 0, sender])
    return addresses + b"\x88\xb5" + b"x" * (size - 14)


class Hub:
    """QEMU with a hub, whose ports have the given options."""

    def __init__(
        self, program: Path, folder: Path, ports: list[str], machine: tuple[str, ...] = ("none",)
    ):
        self.now, self.sent = 0, [0] * len(ports)
        words: list[object] = [
            program, "-machine", *machine, "-accel", "qtest", "-nodefaults", "-display", "none",
            "-qtest", "stdio", "-qtest-log", "none", "-qmp", f"unix:{folder}/q,server=on,wait=off",
        ]  # fmt: skip
        self.cards = []
        ends = []
        for number, options in enumerate(ports):
            card, end = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
            for each in (card, end):
                each.bind(("127.0.0.1", 0))
            card.connect(end.getsockname())
            end.connect(card.getsockname())
            card.setblocking(False)
            self.cards.append(card)
            ends.append(end)
            # A machine with a card has it on the first port.
            end_of_port = f",netdev=s{number}" if number or machine == ("none",) else ""
            words += [
                "-netdev", f"dgram,id=s{number},local.type=fd,local.str={end.fileno()}",
                "-netdev", f"hubport,id=n{number},hubid=0{end_of_port},{options}",
            ]  # fmt: skip
        self.qemu = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, pass_fds=[end.fileno() for end in ends],
        )  # fmt: skip
        for end in ends:
            end.close()
        self.step(1)
        with connect_to_qemu(folder / "q", self.qemu) as connection:  # the stream keeps it open
            self.control = QmpConnection(connection)

    def end(self) -> None:
        self.qemu.kill()
        self.qemu.communicate()
        self.control.stream.close()
        for card in self.cards:
            card.close()

    def ports(self) -> list[dict[str, Any]]:
        return sorted(self.control.execute("x-query-hub-ports"), key=lambda row: row["id"])

    def test(self, command: str) -> str:
        """Run a command of QEMU's qtest; returns its answer."""
        assert self.qemu.stdin is not None
        assert self.qemu.stdout is not None
        self.qemu.stdin.write(f"{command}\n")
        self.qemu.stdin.flush()
        word, _, answer = self.qemu.stdout.readline().strip().partition(" ")
        assert word == "OK", self.qemu.stderr and self.qemu.stderr.read()
        return answer

    def step(self, ns: int) -> None:
        """Let time pass."""
        self.now += ns
        assert self.test(f"clock_step {ns}") == str(self.now)

    def send(self, sender: int, *frames: bytes, taken: int | None = None) -> None:
        """Give frames to a port, and wait until its card has sent them, or ``taken`` of them."""
        for each in frames:
            self.cards[sender].send(each)
        self.sent[sender] += len(frames) if taken is None else taken
        self.wait(lambda: self.ports()[sender]["sent"] == self.sent[sender])

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, self.ports()

    def received(self, card: int) -> list[bytes]:
        """What the card of a port has received and the test has not read."""
        frames = []
        while True:
            try:
                frames.append(self.cards[card].recv(70000))
            except BlockingIOError:
                return frames

    def arrives(self, card: int, ns: int, *frames: bytes) -> None:
        """After ``ns``, and no earlier, the card has received these frames, and no other."""
        self.step(ns - 1)
        assert self.received(card) == []
        self.step(1)
        assert self.received(card) == list(frames)


Start = Callable[..., Hub]


@pytest.fixture
def hub(built_qemu: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts a hub; it ends with the test."""
    hubs = []

    def start(*ports: str) -> Hub:
        hubs.append(Hub(built_qemu, tmp_path, list(ports)))
        return hubs[-1]

    yield start
    for each in hubs:
        each.end()


@pytest.mark.parametrize("rate", [10**8, 10**9, 10**10])
@pytest.mark.parametrize("size", [14, 60, 61, 1514, 9014])
def test_a_frame_arrives_with_its_last_bit(hub: Start, rate: int, size: int) -> None:
    wire = hub(f"rate={rate},delay=500", f"rate={rate},delay=500")
    wire.send(0, frame(0, 1, size))
    wire.arrives(1, 500 + bits_ns(size, rate), frame(0, 1, size))
    assert wire.received(0) == []


def test_a_frame_waits_for_the_one_before_it_and_for_the_gap(hub: Start) -> None:
    wire = hub(GIGABIT, GIGABIT)
    wire.send(0, frame(0, 1), frame(0, 1, 100), frame(0, 1))
    wire.arrives(1, bits_ns(1514), frame(0, 1))
    wire.arrives(1, GAP_B * 8 + bits_ns(100), frame(0, 1, 100))
    wire.send(1, frame(1, 0))  # the other direction is free
    wire.arrives(1, GAP_B * 8 + bits_ns(1514), frame(0, 1))
    assert wire.received(0) == [frame(1, 0)]


def test_frames_go_where_their_address_is(hub: Start) -> None:
    wire = hub(*[GIGABIT] * 4)
    wire.send(0, frame(0, 1))
    wire.arrives(1, bits_ns(1514), frame(0, 1))
    assert wire.received(2) == wire.received(3) == [frame(0, 1)]  # nobody knew card 1
    wire.send(1, frame(1, 0))
    wire.arrives(0, bits_ns(1514), frame(1, 0))
    wire.send(0, frame(0, 1))
    wire.arrives(1, bits_ns(1514), frame(0, 1))
    assert wire.received(2) == wire.received(3) == []
    wire.send(3, frame(0, 9, 60))  # the card has moved
    wire.step(bits_ns(60) + GAP_B * 8)  # card 1 has just received a frame
    for card in (0, 1, 2):
        assert wire.received(card) == [frame(0, 9, 60)]
    wire.send(1, frame(1, 0))
    wire.arrives(3, bits_ns(1514), frame(1, 0))
    assert wire.received(0) == []


def test_frames_of_two_senders_line_up_without_a_switch(hub: Start) -> None:
    wire = hub(*[GIGABIT] * 3)
    wire.send(0, frame(0, 9, 60))
    wire.step(10**6)
    for card in (1, 2):
        wire.received(card)
    wire.send(1, frame(1, 0))
    wire.step(1000)
    wire.send(2, frame(2, 0))
    wire.arrives(0, bits_ns(1514) - 1000, frame(1, 0))
    wire.arrives(0, GAP_B * 8 + bits_ns(1514), frame(2, 0))


def test_a_switch_stores_a_frame_before_it_forwards_it(hub: Start) -> None:
    wire = hub(*[f"{GIGABIT},delay=50,queue=65536,latency=2000"] * 2)
    wire.send(0, frame(0, 1))
    wire.arrives(1, 2 * (bits_ns(1514) + 50) + 2000, frame(0, 1))


def test_a_switch_drops_what_its_queue_does_not_hold(hub: Start) -> None:
    wire = hub(*[f"{GIGABIT},queue=3100"] * 4)
    wire.send(0, frame(0, 9, 60))
    wire.step(10**6)
    for sender in (1, 2, 3):
        wire.received(sender)
        wire.send(sender, *[frame(sender, 0)] * 2)
    # Of the first three one leaves, and two wait: 3028 bytes. Of the others one finds room.
    wire.step(10**6)
    assert [each[11] for each in wire.received(0)] == [1, 2, 3, 1]
    assert [row["dropped"] for row in wire.ports()] == [2, 0, 0, 0]
    assert [row["received"] for row in wire.ports()] == [4, 1, 1, 1]
    assert wire.ports()[0]["peak"] == 3028


def test_a_card_waits_for_room_in_its_memory(hub: Start) -> None:
    """40 KiB of frames with their framing, of which the last may begin below the limit."""
    wire = hub(GIGABIT, GIGABIT)
    taken = -(-40 * 1024 // 1538)
    wire.send(0, *[frame(0, 1)] * 60, taken=taken)
    time.sleep(0.1)
    assert wire.ports()[0]["sent"] == taken
    wire.sent[0] += 1
    wire.step(1538 * 8)
    wire.wait(lambda: wire.ports()[0]["sent"] == taken + 1)
    while wire.ports()[0]["sent"] < 60:
        wire.step(1538 * 8)
    wire.step(10**6)
    assert len(wire.received(1)) == 60


def test_cards_take_turns_on_a_bus(hub: Start) -> None:
    """Two cards that send over a bus that is slower than either wire, with descriptors."""
    shared = f"{GIGABIT},bus=a,bus-rate=100000000"
    wire = hub(shared, shared, GIGABIT, GIGABIT)
    for card in (2, 3):
        wire.send(card, frame(card, 9, 60))
        wire.step(10**6)
    for card in range(4):
        wire.received(card)
    cost = (1514 + 32) * 10
    wire.send(0, frame(0, 2), frame(0, 2), taken=1)
    wire.send(1, frame(1, 3))
    wire.arrives(2, cost + bits_ns(1514), frame(0, 2))
    wire.arrives(3, cost, frame(1, 3))
    wire.arrives(2, cost, frame(0, 2))


def test_what_the_bus_is_too_slow_for_is_missed(hub: Start) -> None:
    """The card's memory holds 64 KiB of frames that wait for the bus."""
    wire = hub(f"{GIGABIT},bus=a,bus-rate=1000000", GIGABIT, GIGABIT)
    for _ in range(3):
        for sender in (1, 2):
            wire.send(sender, *[frame(sender, 0)] * 20)
        wire.step(10**6)
    (row, *_) = wire.ports()
    assert row["received"] + row["missed"] < 120
    assert row["missed"] == 120 - 65536 // 1514 - row["received"]
    wire.step(10**9)
    assert len(wire.received(0)) == 120 - row["missed"]


MEMORY = 0xE0000000  # where the card's registers are
RING, FRAMES_AT = 0x100000, 0x200000  # in the machine's memory
TCTL, TARC0 = 0x400, 0x3840
#: model -> the first transmit queue's registers
QUEUES = {"e1000-82545em": 0x3800, "e1000e": 0x3800, "igb": 0xE000}


class Card(Hub):
    """A machine with a card on the first of two ports, and a driver's ring of 64 descriptors."""

    def __init__(self, program: Path, folder: Path, model: str):
        with locked(CACHE / LOCK_FILE, say_nothing):
            options = packages.data_options(packages.provide(CACHE))
        card = f"{model},netdev=n0,addr=3,romfile=,mac=02:00:00:00:00:00"
        machine = ("q35", *options, "-m", "64", "-device", card)
        super().__init__(program, folder, [GIGABIT, GIGABIT], machine)
        self.model = model
        for register, value in ((0x10, MEMORY), (4, 6)):  # its place; memory and bus master
            self.test(f"outl 0xcf8 {1 << 31 | 3 << 11 | register:#x}")
            self.test(f"outl 0xcfc {value:#x}")
        self.set(TCTL, 2)
        self.use(QUEUES[model], RING)
        if model == "e1000e":
            self.set(TARC0, 1 << 10)

    def use(self, queue: int, ring: int) -> None:
        """Give the card an empty ring for the queue with these registers, and use that one."""
        self.queue, self.ring, self.added = queue, ring, 0
        for offset, value in ((0, ring), (4, 0), (8, 64 * 16)):
            self.set(queue + offset, value)
        self.set(queue + 0x28, 1 << 25)  # the queue is enabled

    def set(self, register: int, value: int) -> None:
        self.test(f"writel {MEMORY + register:#x} {value:#x}")

    def add(self, *words: int) -> None:
        """Add a descriptor to the ring: an address and two words."""
        at = self.ring + 16 * self.added
        self.test(f"write {at:#x} 16 0x{struct.pack('<QII', *words).hex()}")
        self.added += 1

    def place(self, content: bytes, number: int = 0) -> int:
        """Put a packet into the machine's memory; returns its address."""
        place = FRAMES_AT + 2048 * number
        self.test(f"write {place:#x} {len(content)} 0x{content.hex()}")
        return place

    def start(self) -> None:
        """Tell the card where the ring ends."""
        self.set(self.queue + 0x18, self.added)

    def read(self) -> int:
        """How many descriptors the card has read."""
        return int(self.test(f"readl {MEMORY + self.queue + 0x10:#x}"), 16)


@pytest.mark.parametrize("model", QUEUES)
def test_a_card_reads_no_more_frames_than_it_has_room_for(
    built_qemu: Path, tmp_path: Path, model: str
) -> None:
    card = Card(built_qemu, tmp_path, model)
    try:
        frames = [frame(0, 1, 1514)[:-1] + bytes([number]) for number in range(60)]
        for number, each in enumerate(frames):
            # End of packet, checksum; igb: a data descriptor
            flags, size = (0x23300000, 1514 << 14) if model == "igb" else (0x03000000, 0)
            card.add(card.place(each, number), flags | len(each), size)
        begun = card.now
        card.start()
        room = -(-40 * 1024 // 1538)
        assert card.read() == room
        for number, each in enumerate(frames):
            card.arrives(1, begun + bits_ns(1514) + number * 1538 * 8 - card.now, each)
            # One more for each that has left the card, as soon as less than 40 KiB are in it.
            assert card.read() in (min(room + number, 60), min(room + number + 1, 60))
        assert card.ports()[0]["sent"] == 60
    finally:
        card.end()


def test_queues_of_a_card_take_turns_on_a_busy_wire(built_qemu: Path, tmp_path: Path) -> None:
    card = Card(built_qemu, tmp_path, "igb")
    try:
        for queue, ring, number in ((0xE000, RING, 60), (0xE040, RING + 1024, 20)):
            content = frame(0, 1, 1514)[:-1] + bytes([queue & 0xFF])
            place = card.place(content, queue >> 6 & 1)
            card.use(queue, ring)
            for _ in range(number):
                card.add(place, 0x23300000 | len(content), len(content) << 14)
            card.start()
        order = []
        for _ in range(81):
            card.step(1538 * 8)
            order += [each[-1] for each in card.received(1)]
        room = -(-40 * 1024 // 1538)  # the first queue has filled the card
        assert order[:room] == [0] * room
        assert order[room : room + 40] == [0, 0x40] * 20
        assert order[room + 40 :] == [0] * (80 - 40 - room)
    finally:
        card.end()


def test_segments_of_a_large_packet_are_frames_of_their_own(
    built_qemu: Path, tmp_path: Path
) -> None:
    """TCP of 40 segments in one packet (TSO): each has the bytes of framing on the wire."""
    number, payload = 40, 1460
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40 + number * payload, 0, 0, 64, 6, 0,
                     bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))  # fmt: skip
    tcp = struct.pack(">HHIIBBHHH", 1, 2, 0, 0, 5 << 4, 0x10, 999, 0, 0)
    packet = frame(0, 1, 14)[:12] + b"\x08\x00" + ip + tcp + b"x" * (number * payload)
    card = Card(built_qemu, tmp_path, "igb")
    try:
        # The context: lengths of the Ethernet and IP headers; TCP over IPv4, segment, TCP's header
        card.add(14 << 9 | 20, 0x20200C00, payload << 16 | 20 << 8)
        card.add(card.place(packet), 0xAB300000 | len(packet), (number * payload) << 14 | 0x300)
        begun = card.now
        card.start()
        assert card.read() == 2
        for segment in range(number):
            card.step(begun + bits_ns(1514) + segment * 1538 * 8 - card.now - 1)
            assert card.received(1) == []
            card.step(1)
            (each,) = card.received(1)
            assert len(each) == 1514
            assert struct.unpack(">I", each[38:42]) == (segment * payload,)  # TCP's number
    finally:
        card.end()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("rate=0", "above 0"),
        ("delay=5", "need a rate"),
        ("queue=5", "need a rate"),
        (f"{GIGABIT},latency=5", "needs a queue"),
        ("bus=a", "need each other"),
        ("bus-rate=5", "need each other"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    built_qemu: Path, options: str, reason: str
) -> None:
    answer = subprocess.run(
        [built_qemu, "-machine", "none", "-nodefaults", "-display", "none", "-netdev",
         f"hubport,id=n,hubid=0,{options}"],
        capture_output=True, text=True, timeout=WAIT_S,
    )  # fmt: skip
    assert answer.returncode == 1
    assert reason in answer.stderr


def test_ports_of_a_bus_have_one_rate(built_qemu: Path) -> None:
    words = [built_qemu, "-machine", "none", "-nodefaults", "-display", "none"]
    for number in (1, 2):
        words += ["-netdev", f"hubport,id=n{number},hubid=0,bus=a,bus-rate={number}"]
    answer = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S)
    assert answer.returncode == 1
    assert "bus 'a' has another bus-rate" in answer.stderr
