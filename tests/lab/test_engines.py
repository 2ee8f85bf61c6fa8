"""Two engines and one name: which of them may make, end and remove a lab, and what it removes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from test_mount_table import in_a_namespace

from labs import own_name
from seatrial.base.errors import LabError
from seatrial.site.load import load_site, site_file
from seatrial_lab import adapter
from seatrial_lab.common import leftovers, mount_table, processes, state
from seatrial_lab.common.paths import LabPaths
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.native import engine as native
from seatrial_lab.protocol import Lab
from seatrial_lab.virtual import engine as virtual
from seatrial_lab.virtual.spec import VirtualSpec

pytestmark = pytest.mark.root

LABS = {
    "native": lambda spec: native.Lab(spec),
    "virtual": lambda spec: virtual.VirtualLab(VirtualSpec(spec, ())),
}
OTHER = {"native": "virtual", "virtual": "native"}


@contextmanager
def in_run_root(what: str) -> Iterator[str]:
    """The name of a lab that has no processes; its files are removed after the block."""
    instance = own_name(what)
    try:
        yield instance
    finally:
        leftovers.remove(instance)


class Begun(Exception):
    """A start came as far as the first thing that needs programs."""


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch) -> Iterator[LabSpec]:
    """Of a lab whose start raises Begun, on any machine."""

    def begin(*_: object) -> None:
        raise Begun

    for module in (native, virtual):
        monkeypatch.setattr(module, "check_machine", lambda accounting: None)
    monkeypatch.setattr(native.Lab, "_start", begin)
    monkeypatch.setattr(virtual.VirtualLab, "_start", begin)
    spec = LabSpec(instance=own_name("engine"))
    try:
        yield spec
    finally:
        adapter.end(spec.instance)
        assert not LabPaths(spec.instance).run.exists()


def files_of(paths: LabPaths) -> list[str]:
    return sorted(str(path) for root in (paths.run, paths.data) for path in root.rglob("*"))


@pytest.mark.parametrize("owner", LABS)
def test_a_lab_of_the_other_engine_is_not_replaced(spec: LabSpec, owner: str) -> None:
    """Up or killed: its mark counts, not what else is there."""
    paths = LabPaths(spec.instance)
    with state.locked(spec.instance):
        state.claim(spec.instance, owner)
    for file in (paths.run / "nodes" / "login.pid", paths.data / "home" / "results"):
        file.parent.mkdir(parents=True)
        file.write_text("kept")
    before = files_of(paths)
    with pytest.raises(LabError, match=f"a {owner} one.*first seatrial lab down"):
        LABS[OTHER[owner]](spec).up()
    assert files_of(paths) == before
    with pytest.raises(Begun):
        LABS[owner](spec).up()
    assert adapter.end(spec.instance) is True
    with pytest.raises(Begun):
        LABS[OTHER[owner]](spec).up()


@pytest.mark.parametrize("owner", LABS)
def test_a_start_that_fails_leaves_the_name_to_both_engines(spec: LabSpec, owner: str) -> None:
    for engine in (owner, OTHER[owner], owner):
        with pytest.raises(Begun):
            LABS[engine](spec).up()


@pytest.mark.parametrize("engine", LABS)
def test_the_engine_is_the_first_that_a_lab_writes(
    spec: LabSpec, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what a killed installation left is cleared."""
    seen: list[object] = []
    lab: Lab = LABS[engine](spec)

    def look(*_: object) -> None:
        seen.append(sorted(path.name for path in lab.paths.run.iterdir()))
        seen.append(adapter.engine_of(spec.instance))
        raise Begun

    for module in (native, virtual):
        monkeypatch.setattr(module.apt, "remove_left", lambda: seen.append("apt"))
    monkeypatch.setattr(type(lab), "_start", look)
    with pytest.raises(Begun):
        lab.up()
    engines = {"native": adapter.NATIVE, "virtual": adapter.VIRTUAL}
    assert seen == ["apt", ["engine", "lock"], engines[engine]]


KILLED = """
import os, subprocess, sys, time
from functools import partial
from seatrial_lab.common import processes
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.virtual import engine, share
from seatrial_lab.virtual.spec import VirtualSpec

def start(lab, progress):
    share.make(lab.paths.run / "share")
    preexec = partial(processes.write_pid_file, lab.paths.run / share.QEMU_PID)
    qemu = subprocess.Popen(["sleep", "1000"], preexec_fn=preexec, stdout=-3, stderr=-3)
    print(qemu.pid, processes.start_time(qemu.pid), flush=True)
    os.kill(os.getpid(), 9)

engine.check_machine = lambda accounting: None
engine.VirtualLab._start = start
engine.VirtualLab(VirtualSpec(LabSpec(instance=sys.argv[1]), ())).up()
"""


def test_the_qemu_of_a_killed_start_is_ended(spec: LabSpec) -> None:
    """Killed while it boots the guest that it saves; QEMU is root then."""
    command = [sys.executable, "-c", KILLED, spec.instance]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid, started = map(int, done.stdout.split())
    try:
        assert processes.is_alive(pid, started)
        assert adapter.status(spec.instance)["state"] == "broken"
        assert adapter.end(spec.instance) is True
        assert not processes.is_alive(pid, started)
        assert not LabPaths(spec.instance).run.exists()
        assert adapter.status(spec.instance)["state"] == "down"
    finally:
        if processes.is_alive(pid, started):
            processes.kill_all([pid])


BOUND = """
from seatrial_lab.common.paths import LabPaths
from seatrial_lab.virtual import share
instance, trial = sys.argv[1], Path(sys.argv[2])
paths = LabPaths(instance)
share.make(paths.run / "share")
share.add(paths.run / "share", trial)
home = paths.data / "home"
home.mkdir(parents=True)
bind(trial, home)
leftovers.remove(instance)
print(paths.run.exists(), paths.data.exists(), (trial / "results.jsonl").read_text())
"""


def test_the_content_of_a_bound_folder_stays() -> None:
    """Bound on the same file system, where rm does not stop at a mount."""
    with in_run_root("bound") as instance:
        trial = LabPaths(instance).run.with_name(instance + "-trial")
        trial.mkdir(parents=True)
        (trial / "results.jsonl").write_text("kept")
        try:
            assert in_a_namespace(BOUND, instance, trial) == "False False kept\n"
        finally:
            (trial / "results.jsonl").unlink(missing_ok=True)
            trial.rmdir()


def test_nothing_is_removed_where_a_mount_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_run_root("left") as instance:
        paths = LabPaths(instance)
        (paths.run / "share").mkdir(parents=True)
        (paths.data / "home").mkdir(parents=True)
        row = mount_table.Mount(paths.data / "home", "fuse", "rw")
        monkeypatch.setattr(mount_table, "mounted", lambda: [row])
        before = files_of(paths)
        with pytest.raises(LabError, match="home is mounted"):
            leftovers.remove(instance)
        assert files_of(paths) == before
        monkeypatch.undo()
        leftovers.remove(instance)
        assert not paths.run.exists()
        assert not paths.data.exists()


def test_the_end_of_a_lab_ends_the_further_guests_of_a_killed_trial(spec: LabSpec) -> None:
    others = [adapter.further_instance(name, 2) for name in (spec.instance, f"z{spec.instance}")]
    try:
        for instance in (spec.instance, *others):
            with state.locked(instance):
                state.claim(instance, "virtual")
        assert adapter.end(spec.instance)
        assert [LabPaths(one).run.exists() for one in (spec.instance, *others)] == [
            False, False, True,
        ]  # fmt: skip
    finally:
        for instance in others:
            leftovers.remove(instance)


@pytest.mark.parametrize(("ending", "engine"), [("gpu", "virtual"), ("2", "native")])
def test_the_end_of_a_lab_ends_no_other_lab(spec: LabSpec, ending: str, engine: str) -> None:
    """One whose name only begins like that of a further guest, or one of the other kind."""
    other = spec.instance + "_g" + ending
    try:
        with state.locked(other):
            state.claim(other, engine)
        adapter.end(spec.instance)
        assert LabPaths(other).run.exists()
    finally:
        leftovers.remove(other)


@pytest.mark.parametrize(
    ("site", "processors", "memory", "profiles", "guests"),
    [
        ("lab-virtual", 2, 20_000, 21, 2),
        ("lab-virtual", 16, 200_000, 3, 3),  # no more than profiles
        ("lab-virtual", 16, 9_000, 21, 2),  # nor than fit into the memory
        ("lab-virtual", 2, 1_000, 21, 1),
        ("lab", 16, 200_000, 21, 1),  # its figures need an idle machine
    ],
)
def test_guests_of_a_trial(
    monkeypatch: pytest.MonkeyPatch,
    site: str, processors: int, memory: int, profiles: int, guests: int,
) -> None:  # fmt: skip
    """lab-virtual's guest has 4 GiB."""
    monkeypatch.setattr(adapter.os, "sched_getaffinity", lambda _: set(range(processors)))
    monkeypatch.setattr(adapter, "available_MiB", lambda: memory)
    assert adapter.guests_for(load_site(site_file(site)), profiles) == guests


def test_job_ids_of_a_further_guest_begin_elsewhere() -> None:
    """And its name is within the limit, whatever that of the lab."""
    first = adapter.lab_of_site("lab-virtual", "lab_virtual_of_a_nam")
    second = adapter.further_lab("lab-virtual", 2, "lab_virtual_of_a_nam")
    ids = [line for line in second.spec.extra_slurm_conf if line.startswith("FirstJobId")]
    assert ids == ["FirstJobId=10001"]
    assert len(second.spec.instance) <= 20
    assert first.spec.nodes == second.spec.nodes


def test_long_names_have_further_guests_of_their_own() -> None:
    names = [adapter.further_instance(f"lab_virtual_seeda_{number}", 2) for number in (1, 2)]
    assert len({*names}) == 2
