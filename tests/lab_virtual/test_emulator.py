"""QEMU with a clock for each processor: its build and command line, and a lab without it."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest
from virtual_support import BASE, OWN, PROGRAMS, SMALL, write_site

from seatrial.base.errors import InputError, LabError
from seatrial.base.files import sha256
from seatrial.results.record import NO_OWN_PROCESSORS
from seatrial.site.load import load_site
from seatrial_lab.virtual import plan, qemu
from seatrial_lab.virtual.cache import sum_file
from seatrial_lab.virtual.emulator import build
from seatrial_lab.virtual.engine import VirtualLab
from seatrial_lab.virtual.guest import agent
from seatrial_lab.virtual.machine import processors_note
from seatrial_lab.virtual.site import virtual_spec
from seatrial_lab.virtual.spec import VirtualSpec


@pytest.fixture
def spec(tmp_path: Path) -> VirtualSpec:
    return virtual_spec(load_site(write_site(tmp_path, OWN)), "t")


def program(folder: Path, version: str) -> Path:
    """A saved program that says this version."""
    place = build.saved(folder)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\necho 'QEMU emulator version {version}'\n")
    place.chmod(0o755)
    sum_file(place).write_text(sha256(place))
    return place


def test_a_saved_build_is_used_again_and_the_oldest_goes(tmp_path: Path) -> None:
    for age, name in enumerate(("emulator-before", "emulator-oldest")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    place = program(tmp_path, f"10.0.2 (seatrial-{build.key()})")
    assert build.provide(tmp_path, lambda _: None) == place
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {place.parent.name, "emulator-before", build.LOCK_FILE}


def test_one_process_builds_and_others_use_what_it_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Event()
    built = []

    def build_one(*_: object) -> None:
        place = program(tmp_path, f"10.0.2 (seatrial-{build.key()})")
        built.append(place)
        if len(built) == 1:
            assert waits.wait(60)

    monkeypatch.setattr(build, "_build", build_one)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(build.provide, tmp_path, lambda _: None)
        while not (built or first.done()):
            time.sleep(0.01)
        said: list[str] = []

        def say(text: str) -> None:
            said.append(text)
            waits.set()

        second = pool.submit(build.provide, tmp_path, say)
        assert first.result(60) == second.result(60) == build.saved(tmp_path)
    assert len(built) == 1
    assert said == [f"waiting for another process that holds {tmp_path / build.LOCK_FILE}"]


@dataclass
class OtherVersions:
    """apt whose lists have other versions of QEMU only."""

    failed_update: str

    def run(self, *_: str) -> str:
        return "Package: qemu\nVersion: 1:9.2.0\n"


def test_a_source_that_a_release_no_longer_has_is_no_failure_of_its_mirror(tmp_path: Path) -> None:
    with pytest.raises(build.NoSource, match=r"has the source of QEMU 10\.0\.2"):
        build._source(OtherVersions(""), tmp_path)
    with pytest.raises(LabError, match="could not resolve") as caught:
        build._source(OtherVersions("\napt: could not resolve"), tmp_path)
    assert not isinstance(caught.value, build.NoSource)


def not_executable(place: Path) -> None:
    place.chmod(0o644)


def empty(place: Path) -> None:
    place.write_text("")


def another_version(place: Path) -> None:
    place.write_text("#!/bin/sh\necho 'QEMU emulator version 9.1.0 (Debian)'\n")


def a_few_bytes(place: Path) -> None:
    """It still says its version."""
    place.write_text(place.read_text() + "\n")


def without_sum(place: Path) -> None:
    sum_file(place).unlink()


def a_folder(place: Path) -> None:
    place.unlink()
    place.mkdir()


@pytest.mark.parametrize(
    "damage", [not_executable, empty, another_version, a_few_bytes, without_sum, a_folder]
)
def test_a_damaged_saved_build_is_built_again(
    damage: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = f"10.0.2 (seatrial-{build.key()})"
    damage(program(tmp_path, good))
    built = []
    monkeypatch.setattr(build, "_build", lambda *_: built.append(program(tmp_path, good)))
    (tmp_path / build.WORK).mkdir()  # of a build that was killed
    place = build.provide(tmp_path, lambda _: None)
    build._check(place)
    assert built == [place]
    assert not (tmp_path / build.WORK).exists()


def test_a_build_that_is_another_program_is_refused(tmp_path: Path) -> None:
    place = program(tmp_path, "10.0.2 (Debian 1:10.0.2)")
    with pytest.raises(LabError, match=r"is not QEMU 10\.0\.2 with clocks"):
        build._check(place)


def test_a_full_disk_is_a_reason_not_to_have_the_emulator(
    spec: VirtualSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "emulator.work"))

    monkeypatch.setattr("seatrial_lab.virtual.engine.CACHE", tmp_path)
    monkeypatch.setattr(build, "_build", no_space)
    emulator, reason = VirtualLab(spec)._emulator(lambda _: None)
    assert emulator is None
    assert reason.startswith("QEMU cannot be built: [Errno 28] No space left on device")


def test_without_a_compiler_the_nodes_share_a_processor(
    spec: VirtualSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial_lab.virtual.engine.CACHE", tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    said: list[str] = []
    emulator, reason = VirtualLab(spec)._emulator(said.append)
    assert emulator is None
    assert reason == "cc is missing: apt-get install gcc"
    assert said == [f"one processor for all nodes: {reason}"]
    note = processors_note({"processors": "shared", "no_own_processors": reason})
    assert note == f"{NO_OWN_PROCESSORS}: {reason}"  # the judge knows it by its beginning


@pytest.mark.parametrize(
    ("ninja", "why"),
    [
        (
            "echo '[1/2] cc a.o'; echo 'FAILED: a.o'; echo 'a.c:1: error: no b'; echo end; exit 1",
            "a.c:1: error: no b",
        ),
        ("echo '[1/2] cc a.o'; kill -KILL $$", "ninja ended by signal 9 (Killed)"),
        ("echo 'ninja: build stopped: interrupted'; exit 130", "ninja: build stopped: interrupted"),
        ("exit 1", "ninja ended with code 1 and wrote nothing"),
    ],
)
def test_a_build_that_fails_says_why_in_the_first_line(
    tmp_path: Path, ninja: str, why: str
) -> None:
    """Status and report have the first line alone."""
    program = tmp_path / "ninja"
    program.write_text(f"#!/bin/sh\n{ninja}\n")
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with pytest.raises(LabError) as error:
        build._compile(tmp_path, env, lambda _: None)
    note = processors_note({"processors": "shared", "no_own_processors": str(error.value)})
    assert note == f"{NO_OWN_PROCESSORS}: building QEMU failed: {why}"


def test_the_key_follows_each_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copytree(build.HERE, tmp_path / "copy")
    monkeypatch.setattr(build, "HERE", tmp_path / "copy")
    keys = {build.key()}
    for name in (*build.FILES, *(patch.name for patch in build.PATCHES), build.WHEELS.name):
        with (tmp_path / "copy" / name).open("a") as file:
            file.write("\n")
        keys.add(build.key())
    assert len(keys) == len(build.FILES) + len(build.PATCHES) + 2


def test_each_host_has_a_processor(spec: VirtualSpec) -> None:
    words = qemu.command(spec, BASE, Path("i"), Path("/r"), Path("/e/qemu"))
    assert words[0] == "/e/qemu"
    assert words[words.index("-smp") + 1] == "3"
    assert "percpu=on" in words[words.index("-icount") + 1]
    assert "isolcpus=domain,1-2" in words[words.index("-append") + 1]
    config = plan.agent_config(spec, PROGRAMS, [], own_processors=True)
    assert config["processors"] == {"login": [0], "n1": [1], "n2": [2]}
    assert [card["node"] for card in config["cards"]] == ["n1", "n2"]


def test_one_processor_is_the_default_and_as_before(spec: VirtualSpec, tmp_path: Path) -> None:
    shared = virtual_spec(load_site(write_site(tmp_path / "s", SMALL)), "t")
    assert not shared.own_processors
    words = qemu.command(spec, BASE, Path("i"), Path("/r"))
    assert words == qemu.command(shared, BASE, Path("i"), Path("/r"))
    assert words[words.index("-smp") + 1] == "1"
    assert not any("percpu" in word or "isolcpus" in word for word in words)
    assert plan.agent_config(spec, PROGRAMS, [], own_processors=False)["processors"] == {}


def test_a_native_lab_has_no_processors_of_its_own(tmp_path: Path) -> None:
    text = OWN.replace("engine: virtual,", "engine: native,").replace(", nics: {igb: [igb]}", "")
    with pytest.raises(InputError, match=r"this machine's processors"):
        load_site(write_site(tmp_path, text))


@pytest.mark.parametrize("layout", ["card", "card/virtio1", "line"])
def test_interrupts_are_those_of_the_card(tmp_path: Path, layout: str) -> None:
    device = tmp_path / layout
    device.mkdir(parents=True)
    if layout == "line":
        (device / "irq").write_text("21\n")
        assert agent.interrupts_of(str(device)) == ["21"]
        return
    for number in ("33", "34"):
        (tmp_path / "card/msi_irqs").mkdir(exist_ok=True)
        (tmp_path / "card/msi_irqs" / number).touch()
    assert sorted(agent.interrupts_of(str(device))) == ["33", "34"]
