"""Parts of the virtual lab that need no guest."""

from __future__ import annotations

import dataclasses
import json
import lzma
import os
import re
import select
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_support import BASE, SMALL, write_site

from seatrial.base.errors import InputError, LabError
from seatrial.cli.site import check
from seatrial.site.load import load_site
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.virtual import client, cpio, faults, image, kernels, qemu, share, snapshot
from seatrial_lab.virtual.client import kind_of
from seatrial_lab.virtual.engine import VirtualLab
from seatrial_lab.virtual.frames import Reader, frame
from seatrial_lab.virtual.guest import agent
from seatrial_lab.virtual.machine import VirtualMachine
from seatrial_lab.virtual.qemu import PORT_SLOT
from seatrial_lab.virtual.site import virtual_spec
from seatrial_lab.virtual.spec import MODELS, Card, VirtualSpec


@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1), st.sampled_from("RISOEX"), st.binary())),
    st.integers(1, 50),
)
def test_frames_survive_any_cut(messages: list[tuple[int, str, bytes]], size: int) -> None:
    sent = [(number, kind.encode(), data) for number, kind, data in messages]
    stream = b"".join(frame(*one) for one in sent)
    reader = Reader()
    found = []
    for at in range(0, len(stream), size):
        found += reader.feed(stream[at : at + size])
    assert found == sent


def test_an_archive_is_what_cpio_reads(tmp_path: Path) -> None:
    made = cpio.Archive()
    made.file("bin/tool", b"#!/bin/sh\n", 0o755)
    made.link("bin/other", "tool")
    made.file("lib/odd", b"12345")
    if not shutil.which("cpio"):
        pytest.skip("cpio is missing: seatrial test installs it")
    subprocess.run(["cpio", "-id", "--quiet"], input=made.to_bytes(), cwd=tmp_path, check=True)
    assert (tmp_path / "bin/other").read_bytes() == b"#!/bin/sh\n"
    assert (tmp_path / "bin/tool").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "lib/odd").read_bytes() == b"12345"


def test_the_same_archive_has_the_same_bytes() -> None:
    one, two = cpio.Archive(), cpio.Archive()
    for made in (one, two):
        made.file("a/b", b"x")
    assert one.to_bytes() == two.to_bytes()


def test_a_module_is_loaded_after_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "modules.dep").write_text(
        "kernel/9p.ko: kernel/9pnet.ko kernel/fscache.ko kernel/netfs.ko\n"
        "kernel/9pnet.ko:\nkernel/fscache.ko: kernel/netfs.ko\nkernel/netfs.ko:\n"
    )
    (tmp_path / "modules.builtin").write_text("kernel/drivers/virtio/virtio-pci.ko\n")
    order = image.load_order(image.dependencies(tmp_path), ("virtio_pci", "9p", "9pnet"))
    assert order == ["kernel/netfs.ko", "kernel/fscache.ko", "kernel/9pnet.ko", "kernel/9p.ko"]
    with pytest.raises(LabError, match="no module igc"):
        image.load_order(image.dependencies(tmp_path), ("igc",))


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-cq"], input=data, capture_output=True, check=True).stdout


@pytest.mark.parametrize("compress", [lzma.compress, zstd])
def test_a_kernel_is_unpacked(compress: Callable[[bytes], bytes]) -> None:
    if compress is zstd and not shutil.which("zstd"):
        pytest.skip("zstd is missing")
    kernel = b"\x7fELF" + bytes(5000)
    payload = compress(kernel) + struct.pack("<I", len(kernel))
    head = bytearray(2 * 512)
    head[0x1F1] = 1
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", head, 0x248, 16, len(payload))
    assert kernels.uncompressed(bytes(head) + bytes(16) + payload) == kernel
    with pytest.raises(LabError, match="cannot be unpacked"):
        kernels.uncompressed(bytes(head) + bytes(16) + b"gzip?" * 40)
    with pytest.raises(LabError, match="image of 4 bytes has no boot header"):
        kernels.uncompressed(b"none")


def spec(tmp_path: Path, text: str = SMALL) -> VirtualSpec:
    return virtual_spec(load_site(write_site(tmp_path, text)), "t")


def test_a_site_becomes_a_lab_with_cards(tmp_path: Path) -> None:
    made = spec(tmp_path)
    assert [(card.node, card.interface, card.model) for card in made.cards] == [
        ("n1", "eth1", "igb"), ("n2", "eth1", "igb"),
    ]  # fmt: skip
    assert made.address(made.cards[1]) == "10.76.1.2/24"
    assert VirtualSpec.from_json(made.to_json()) == made


def test_nodes_of_two_classes_are_on_two_wires(tmp_path: Path) -> None:
    text = SMALL.replace("{igb: [igb]}", "{igb: [igb], old: [e1000]}").replace(
        '  - {names: "n[1-2]", class: igb, cores: 1}\n',
        '  - {names: "n1", class: igb, cores: 1}\n  - {names: "n2", class: old, cores: 1}\n',
    )
    one, two = spec(tmp_path, text).cards
    assert one.network != two.network
    assert (one.model, two.model) == ("igb", "e1000")


VIRTUAL = "virtual, nics: {igb: [igb]}"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("nics: {igb: [igb]}", "nics: {}", "one NIC model is needed"),
        ("{igb: [igb]}", "{igb: [igb, igb]}", "of the 1 test networks, not 2"),
        ("class: igb, cores: 1", "class: igb, cores: 2", "own up to 4"),
        ("{igb: [igb]}", "{igb: [ixgbe]}", "nics"),
        (
            "engine: virtual",
            "engine: virtual, accounting: true",
            ":3: lab.accounting: .* no slurmdbd",
        ),
        ("engine: virtual", "engine: native", ":3: lab.nics: a native lab has no NIC models"),
        (VIRTUAL, "native, memory_MiB: 2048", ":3: lab.memory_MiB: a native lab has this machine"),
        (VIRTUAL, "native, processors: own", ":3: lab.processors: a native lab has this machine"),
        (VIRTUAL, "native, window_ns: 500", ":3: lab.window_ns: a native lab has no virtual time"),
        (VIRTUAL, "native, bus_MB_s: 264", ":3: lab.bus_MB_s: the nodes of a native lab have no"),
        ('n[1-2]"', 'n[1-15]"', "15 NICs of igb and igb-vf are more than 14"),
    ],
)
def test_what_cannot_be_a_virtual_lab_is_said(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        spec(tmp_path, SMALL.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("{igb: [igb]}", "{igb: [igb, igb]}", ":3: lab.nics.igb: one NIC model is needed"),
        (
            "{igb: [igb]}",
            "{igbx: [igb]}",
            ":3: lab.nics.igbx: no node has the class 'igbx' (did you mean 'igb'?)",
        ),
        (
            "class: igb, cores: 1",
            "class: igb, cores: 2",
            ":8: nodes.0.cores: 2 cores are too many (at most 1 in this lab; with lab.processors",
        ),
        (
            'n[1-2]", class: igb, cores: 1',
            'n[1-2]", class: igb, cores: 1}\n  - {names: n3, class: igb, cores: 2',
            ":9: nodes.1.cores: 2 is not that of n[1-2], 1 (the same in all)",
        ),
        (
            'n[1-2]", class: igb',
            'n[1-2]", class: igb, cores: 1}\n  - {names: n3, class: igb, memory_MiB: 2048',
            ":9: nodes.1.memory_MiB: 2048 is not that of n[1-2]",
        ),
        ('n[1-2]"', 'n[1-15]"', ":7: nodes: 15 NICs of igb and igb-vf are more than 14"),
        ("virtual,", "virtual, kernel: /none,", ":3: lab.kernel: there is no folder /none"),
        ("virtual,", "virtual, kernel: /etc,", ":3: lab.kernel: kernel /etc: "),
        ("virtual,", "virtual, drivers: [/a.ko],", ":3: lab.drivers.0: driver /a.ko: No such file"),
        ("virtual,", "virtual, drivers: [KO],", ":3: lab.drivers.0: driver KO is no kernel module"),
        ("virtual,", "virtual, drivers: [OK, OK],", ":3: lab.drivers.1: driver OK: igb has a file"),
        (
            "virtual,",
            "virtual, processors: own, wires: {test: {rate: 1e9, switch: {queue: 9253}}},",
            ":3: lab.wires.test.switch.queue: 9253 B hold no frame of this network: at least",
        ),
    ],
)
def test_site_check_names_the_line_of_what_no_lab_can_have(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    modules = {"KO": tmp_path / "garbage.ko", "OK": tmp_path / "igb.ko"}
    modules["KO"].write_bytes(b"no module")
    modules["OK"].write_bytes(b"\0vermagic=6.1.0 SMP\0")
    for name, path in modules.items():
        new, words = (text.replace(name, str(path)) for text in (new, words))
    file = write_site(tmp_path, SMALL.replace(old, new))
    with pytest.raises(InputError, match=re.escape(f"{file}{words}")):
        check([str(file)])


@given(st.lists(st.sampled_from(sorted(MODELS)), min_size=1, max_size=14))
def test_cards_in_any_order_are_seen_by_the_guest(models: list[str]) -> None:
    """A slot is scanned only if it has function 0, and a port has one card."""
    lab = LabSpec(instance="t", nodes=("a",))
    cards = [Card("a", f"eth{n}", model, n, "10.1.0.0/24") for n, model in enumerate(models)]
    words = qemu.cards(VirtualSpec(lab, tuple(cards)))
    ports = [word for word in words if word.startswith("pcie-root-port,")]
    places = [int(w, 16) * 8 + int(f, 16) for w, f in re.findall(r"addr=(\w+)\.(\w+)", str(ports))]
    assert places == [PORT_SLOT * 8 + number for number in range(len(ports))]
    devices = [word for word in words if "netdev=" in word]
    assert sorted(w.partition("netdev=n")[2].partition(",")[0] for w in devices) == sorted(
        str(number) for number in range(len(models))
    )
    buses = re.findall(r"bus=p(\d+)", str(devices))
    assert sorted(buses) == sorted(re.findall(r"id=p(\d+)", str(ports)))
    # QEMU gives plain cards the slots that are free when it reads their options.
    assert "pcie-root-port" not in str(words[words.index(devices[len(ports) - 1]) :])


def test_each_card_is_on_its_hub_and_sriov_cards_have_a_port_of_their_own() -> None:
    lab = LabSpec(instance="t", nodes=("a", "b"))
    cards = (
        Card("a", "eth1", "igb", 0, "10.1.0.0/24"),
        Card("b", "eth1", "e1000", 3, "10.1.0.0/24"),
    )
    words = qemu.cards(VirtualSpec(lab, cards))
    assert "hubport,id=n0,hubid=0" in words
    assert "hubport,id=n1,hubid=3" in words
    assert any(word.startswith("igb,") and word.endswith("bus=p0") for word in words)
    assert any(word.startswith("e1000-82545em,netdev=n1") for word in words)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("1:10.0.2+ds-2+deb13u1~bpo12+1", ["-run-with", "user=2000:2000"]),
        ("1:9.1.0+ds-1", ["-run-with", "user=2000:2000"]),
        ("1:8.2.4+ds-1", ["-runas", "2000:2000"]),
    ],
)
def test_the_guest_has_the_permissions_of_the_job_user(version: str, words: list[str]) -> None:
    base = replace(BASE, qemu_version=version)
    lab = VirtualSpec(LabSpec(instance="t", nodes=("a",)), ())
    assert qemu.as_user(lab, base) == words
    shared = [word for word in qemu.command(lab, base, Path("i"), Path("/r")) if "fsdev" in word]
    assert all("security_model=none" in word for word in shared if word.startswith("local"))


def test_a_saved_guest_is_known_by_its_machine_and_not_by_its_instance() -> None:
    one = snapshot.key(["qemu", "-qmp", "unix:/run/a/q", "-m", "1"], Path("/run/a"), ("10",))
    same = snapshot.key(["qemu", "-qmp", "unix:/run/b/q", "-m", "1"], Path("/run/b"), ("10",))
    other = snapshot.key(["qemu", "-qmp", "unix:/run/a/q", "-m", "2"], Path("/run/a"), ("10",))
    newer = snapshot.key(["qemu", "-qmp", "unix:/run/a/q", "-m", "1"], Path("/run/a"), ("11",))
    assert one == same
    assert len({one, other, newer}) == 3


@pytest.mark.parametrize("damage", [b"", b"stat", b"other"])
def test_a_damaged_saved_guest_is_saved_again(
    damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves: list[Path] = []

    def save(argv: list[str], env: object, run: Path, file: Path) -> None:
        saves.append(file)
        file.write_bytes(b"state")

    monkeypatch.setattr(snapshot, "_save", save)
    said: list[str] = []
    (tmp_path / "guest-other.new").touch()  # of a start that was killed

    def provide() -> Path:
        return snapshot.provide(tmp_path, [], {}, tmp_path, "a", said.append)

    file = provide()
    assert provide() == file
    assert len(saves) == len(said) == 1
    file.write_bytes(damage)
    file.with_suffix(".sha256").write_bytes(b"\xff\xfe")
    provide()
    assert file.read_bytes() == b"state"
    assert len(saves) == 2
    assert said[1].startswith("guest-a.state is damaged: ")
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.parametrize("suffix", [".state", ".sha256"])
def test_a_folder_in_the_place_of_a_saved_guest_is_replaced(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "_save", lambda argv, env, run, file: file.write_bytes(b"state"))
    (tmp_path / f"guest-a{suffix}" / "folder").mkdir(parents=True)
    file = snapshot.provide(tmp_path, [], {}, tmp_path, "a", lambda _: None)
    assert file.read_bytes() == b"state"


def test_a_guest_that_cannot_be_saved_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(argv: list[str], env: object, run: Path, file: Path) -> None:
        file.write_bytes(b"sta")
        raise KeyboardInterrupt

    monkeypatch.setattr(snapshot, "_save", save)
    with pytest.raises(KeyboardInterrupt):
        snapshot.provide(tmp_path, [], {}, tmp_path, "a", lambda _: None)
    assert not list(tmp_path.iterdir())


def test_what_is_measured_and_what_only_looks() -> None:
    assert kind_of(["srun", "-N2"]) == "step"
    assert kind_of(["/usr/bin/squeue"]) == "query"
    assert kind_of(["scancel", "3"]) == ""


def test_a_pause_between_queries_is_of_the_guests_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And as long as a Prolog takes at least: a query costs more than an idle guest's seconds."""
    machine = VirtualMachine(VirtualLab(virtual_spec(load_site(write_site(tmp_path)), "t")))
    asked: list[list[str]] = []
    slept: list[float] = []
    monkeypatch.setattr(machine.lab, "run", lambda argv, timeout: asked.append(argv))
    monkeypatch.setattr(time, "sleep", slept.append)
    machine.pause(0.1)
    machine.pause(9)
    assert (asked, slept) == ([["sleep", "3"], ["sleep", "9"]], [])

    def gone(argv: list[str], timeout: float) -> None:
        raise LabError("lab t is not up")

    monkeypatch.setattr(machine.lab, "run", gone)
    machine.pause(0.1)
    assert slept == [0.1]


def test_a_spec_of_unknown_cards_is_refused() -> None:
    lab = LabSpec(instance="t", nodes=("a",))
    with pytest.raises(InputError, match="no NIC model"):
        VirtualSpec(lab, (Card("a", "eth1", "ixgbe", 0, "10.1.0.0/24"),))
    with pytest.raises(InputError, match="unknown node"):
        VirtualSpec(lab, (Card("b", "eth1", "igb", 0, "10.1.0.0/24"),))


def test_the_schema_of_the_spec_is_plain_json(tmp_path: Path) -> None:
    assert json.loads(spec(tmp_path).to_json())["memory_MiB"] == 4096


def test_the_stand_in_for_slurms_commands_needs_only_the_standard_library(tmp_path: Path) -> None:
    command = ["/usr/bin/python3", "-IS", client.__file__, str(tmp_path / "gone")]
    command += ["nobody", "/", "/bin", "srun"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        69,
        f"srun: {tmp_path}/gone: No such file or directory\n",
    )


@pytest.mark.parametrize("content", [b"x", b"", b"-1", b"9" * 5000, b"1234"])
def test_exit_code_that_is_none(content):
    with pytest.raises(client.NoGuest, match="the guest sent the exit code"):
        client.exit_code(content)
    assert client.exit_code(b"137") == 137


RDMA = SMALL.replace("interface: eth1,", "interface: eth1, device: 'rxe_%n:1',").replace(
    "engine: virtual", "engine: virtual, kernel: trixie-backports"
)


def test_a_network_with_a_device_gives_each_node_its_rdma_device(tmp_path: Path) -> None:
    made = spec(tmp_path, RDMA)
    assert [card.rdma for card in made.cards] == ["rxe_n1", "rxe_n2"]
    assert made.kernel == "trixie-backports"
    assert VirtualSpec.from_json(made.to_json()) == made
    other = dataclasses.replace(made, memory_MiB=1, lab=dataclasses.replace(made.lab, cpus=4))
    assert made.differences(made) == []
    assert made.differences(other) == ["cpus", "memory_MiB"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rxe_%n:1", "rxe0:1", "each RDMA device needs its own name"),
        ("rxe_%n:1", "rxe0", "an RDMA device and its port"),
        ("trixie-backports", "Linux_7.3", "a Debian suite"),
    ],
)
def test_a_device_or_kernel_that_cannot_be_is_said(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        spec(tmp_path, RDMA.replace(old, new))


def test_a_command_that_does_not_read_its_input_holds_nobody_up():
    """A pipe has room for 64 KiB. The rest waits until the command reads on."""
    inputs = os.pipe()
    command = agent.Command.__new__(agent.Command)
    command.pid, command.input, command.awaited = os.getpid(), inputs[1], None
    command.unread, command.input_ends = b"", False
    os.set_blocking(inputs[1], False)
    poller = agent.Agent.__new__(agent.Agent)
    poller.poll = select.poll()
    data = os.urandom(500_000)
    command.feed(data)  # would wait here for ever
    poller.await_room(command)
    command.feed(b"")
    read = b""
    while command.input is not None:
        read += os.read(inputs[0], 1 << 16)
        for descriptor, _ in poller.poll.poll(1000):
            assert descriptor == command.awaited
            command.pass_on()
            poller.await_room(command)
    while piece := os.read(inputs[0], 1 << 16):
        read += piece
    os.close(inputs[0])
    assert read == data
    assert poller.poll.poll(0) == []


@pytest.mark.parametrize(("text", "delay_us"), [("500us", 500), ("2ms", 2000), (" 1000MS ", 10**6)])
def test_a_delay(text: str, delay_us: int) -> None:
    assert faults.parse_delay(text) == delay_us


@pytest.mark.parametrize("text", ["", "2", "0us", "1001ms", "2s", "-2ms", "1.5ms", "2ms 3ms"])
def test_what_is_no_delay(text: str) -> None:
    with pytest.raises(InputError, match="is not like 500us or 2ms, above zero and at most 1000ms"):
        faults.parse_delay(text)


def test_a_lab_that_another_program_has_ended_is_named(tmp_path: Path) -> None:
    lab = VirtualLab(virtual_spec(load_site(write_site(tmp_path)), "ended"))
    with pytest.raises(LabError, match="the lab 'ended' is not up; start it with"):
        lab.facts()


def test_a_qemu_that_ends_while_its_guest_boots_is_named_with_its_log(tmp_path: Path) -> None:
    line, end = socket.socketpair()
    line.send(b"unread")  # so that the end of the other side is an error and no empty message
    end.close()
    (tmp_path / "qemu.log").write_text("could not load initrd\n")
    with pytest.raises(
        LabError, match=r"ended while it booted: could not load initrd \(.*qemu.log"
    ):
        snapshot._wait_for_drivers(line, tmp_path)
    line.close()


PANIC = """\
[ 1.0] igb: probe
[ 1.1] BUG: kernel NULL pointer dereference
[ 1.2] R13: 0
[ 1.3] RIP: 0010:igb_probe+0x6e/0x90 [igb]
[ 1.4] </TASK>
[ 1.5] Kernel panic - not syncing: Fatal exception
[ 1.6] Kernel Offset: disabled
"""
REFUSED = """\
[ 1.0] igb 0000:01:00.0: my probe gives up
init: [ 1.0] igb 0000:01:00.0: my probe gives up
init: no driver has taken the network card 0000:01:00.0
[ 1.2] reboot: Power down
"""


@pytest.mark.parametrize(
    ("console", "lines"),
    [(PANIC, (1, 3, 5)), (REFUSED, (1, 2)), ("one\ntwo\nthree\nfour\n", (1, 2, 3))],
)
def test_the_logs_say_why_a_guest_has_ended(
    tmp_path: Path, console: str, lines: tuple[int, ...]
) -> None:
    expected = " | ".join(console.splitlines()[number] for number in lines)
    (tmp_path / "console.log").write_text(console)
    (tmp_path / "qemu.log").write_text("qemu: warning: TCG doesn't support requested feature: x\n")
    assert share.why_ended(tmp_path) == f"{expected} ({tmp_path}/console.log)"


def test_logs_that_are_empty_are_named(tmp_path: Path) -> None:
    assert share.why_ended(tmp_path) == f"its logs in {tmp_path} are empty"
