"""The virtual lab: start it, run commands in it, end it. ``faults`` plants faults in it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from seatrial.base.errors import LabError, LabGone
from seatrial.base.lock import locked
from seatrial.base.paths import CHECKOUT, SOURCE
from seatrial.base.say import Say, say_nothing
from seatrial.stack import apt
from seatrial_lab.common import access, leftovers, processes, state
from seatrial_lab.common.paths import LabPaths
from seatrial_lab.common.programs import PATH, check_machine, check_root, programs
from seatrial_lab.common.spec import LOGIN
from seatrial_lab.virtual import image, packages, plan, qemu, share, snapshot
from seatrial_lab.virtual.client import Busy, Connection, NoGuest, exit_code, serve
from seatrial_lab.virtual.emulator import build
from seatrial_lab.virtual.frames import ERROR, EXIT, OUTPUT
from seatrial_lab.virtual.spec import VirtualSpec

#: for the guest's boot and for Slurm in it, by this machine's clock; an idle machine needs a tenth
BOOT_TIMEOUT_S, READY_TIMEOUT_S = 900.0, 600.0
QUERY_TIMEOUT_S = 600.0  # for a command that is not measured
CONNECT_TIMEOUT_S = 60.0  # for the broker, which answers at once unless its machine is very busy
CACHE = CHECKOUT / ".seatrial" / "virtual"
LOCK_FILE = "lock"  # held while files of CACHE are made
SPEC_FILE = "virtual.json"
FAULTS_FILE = "faults.json"  # planted faults; without the file there are none


class VirtualLab:
    """One instance of the virtual lab. All methods raise ``LabError`` with the reason.

    The constructor starts nothing; :meth:`up` starts the lab.
    """

    engine = "virtual"

    def __init__(self, spec: VirtualSpec):
        self.virtual_spec = spec
        self.spec = spec.lab
        self.paths = LabPaths(spec.instance)

    @classmethod
    def attach(cls, instance: str) -> VirtualLab:
        """Return the running lab of that name, with the spec of its start."""
        try:
            text = (LabPaths(instance).run / SPEC_FILE).read_text()
        except FileNotFoundError:
            raise LabError(state.not_up(instance)) from None
        return cls(VirtualSpec.from_json(text))

    @property
    def socket(self) -> Path:
        return self.paths.run / "broker.sock"

    def is_up(self) -> bool:
        """Return whether the lab has started completely and its broker is alive."""
        return (self.paths.run / SPEC_FILE).exists() and self._broker() is not None

    def _broker(self) -> int | None:
        return processes.read_pid_file(self.paths.run / share.BROKER_PID)

    # -- up and down ---------------------------------------------------------

    def up(self, progress: Say = say_nothing) -> bool:
        """Start the lab, also after its guest has died. Returns False if it already runs."""
        check_machine(accounting=False)
        apt.remove_left()
        with state.locked(self.spec.instance, progress):
            state.claim(self.spec.instance, self.engine)
            if self.is_up():
                running = VirtualLab.attach(self.spec.instance).virtual_spec
                if differing := self.virtual_spec.differences(running):
                    raise LabError(state.differs(running.lab, differing))
                return False
            self._clear({self.paths.lock, self.paths.engine})
            try:
                self._start(progress)
            except BaseException:
                self._clear({self.paths.lock, *(self.paths.run / name for name in share.LOGS)})
                raise
            return True

    def _start(self, progress: Say) -> None:
        CACHE.mkdir(parents=True, exist_ok=True)
        with locked(CACHE / LOCK_FILE, progress):
            base = packages.provide(
                CACHE, self.virtual_spec.kernel, self.virtual_spec.drivers, progress
            )
            initramfs = image.initramfs(base, CACHE)
        emulator, no_emulator = self._emulator(progress)
        progress("files")
        run = self.paths.run
        run.chmod(0o711)  # the job user reaches broker.sock and bin, and lists nothing
        share.make(run / "share")
        config = plan.write(self.virtual_spec, programs(), emulator is not None)
        home = run / "home"
        home.mkdir()
        plan.chown_to_job_user(home, self.spec)
        argv = qemu.command(self.virtual_spec, base, initramfs, run, emulator)
        env = packages.environment(base)
        # Wires are not part of a saved guest: labs that differ in them share it.
        bare = qemu.command(self.virtual_spec.without_wires(), base, initramfs, run, emulator)
        name = snapshot.key(bare, run, (base.qemu_version, base.kernel_version, initramfs.name))
        with locked(CACHE / LOCK_FILE, progress):
            state_file = snapshot.provide(CACHE, argv, env, run, name, progress)
        given = {
            "argv": [*argv, *qemu.as_user(self.virtual_spec, base),
                     "-incoming", f"file:{state_file}", *(["-S"] if emulator else [])],
            "env": env,
            "go": f"{SOURCE} {config}",
            "paths": [str(path) for path in (*self.spec.visible_paths(), CACHE.resolve())],
            "user": self.spec.user, "uid": self.spec.uid, "gid": self.spec.gid,
            "hosts": list(self.spec.hosts),
        }  # fmt: skip
        (run / "qemu.json").write_text(json.dumps(given, indent=1))
        self._write_programs(run / "bin")
        progress("guest")
        self._start_broker()
        self._wait_booted(progress)
        progress("Slurm")
        self.wait_ready()
        facts = {"started_at": time.time(), "kernel": base.kernel_release,
                 "kernel_version": base.kernel_version,
                 "qemu": build.version() if emulator else base.qemu_version,
                 "processors": "own" if emulator else "shared",
                 "processors_of_node": self.spec.cpus,
                 **({"window_ns": self.virtual_spec.window_ns} if emulator else {}),
                 "no_own_processors": no_emulator}  # fmt: skip
        (run / "facts.json").write_text(json.dumps(facts))
        (run / SPEC_FILE).write_text(self.virtual_spec.to_json())

    def _emulator(self, progress: Say) -> tuple[Path | None, str]:
        """Return the QEMU with a clock for each processor, if the site wants it.

        If there is none, the reason is in the second place, and the hosts share a processor.
        """
        if not self.virtual_spec.own_processors:
            return None, ""
        try:
            return build.provide(CACHE, progress), ""
        except LabError as error:
            progress(f"one processor for all nodes: {error}")
            return None, str(error)

    def _write_programs(self, folder: Path) -> None:
        """Write programs with the names of Slurm's commands, which run these in the guest."""
        folder.mkdir()
        client = Path(__file__).with_name("client.py")
        start = " ".join(
            ["exec /usr/bin/python3 -IS", str(client), str(self.socket), self.spec.user,
             str(self.paths.home), PATH]
        )  # fmt: skip
        for name in ("srun", "sbatch", "squeue", "scancel", "sinfo", "sacct", "scontrol"):
            text = f'#!/bin/sh\n{start} {name} "$@"\n'
            if name == "scontrol":  # a plain list of nodes needs no call of Slurm
                text = text.replace(
                    "exec ",
                    'case "$1 $2 $3" in *"["*) ;;\n'
                    '"show hostnames "?*) echo "$3" | tr , "\\n"; exit ;;\nesac\nexec ',
                    1,
                )
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def _start_broker(self) -> None:
        run = self.paths.run
        with (run / "broker.log").open("wb") as log:
            subprocess.Popen(
                [sys.executable, "-P", "-S", "-m", "seatrial_lab.virtual.broker", str(run)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True,
                env={"PATH": PATH, "PYTHONPATH": str(SOURCE), "LANG": "C.UTF-8", "HOME": "/root"},
                preexec_fn=partial(processes.write_pid_file, run / share.BROKER_PID),
            )  # fmt: skip

    def _wait_booted(self, progress: Say) -> None:
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        booted = self.paths.run / "booted.json"
        while not booted.exists():
            if self._broker() is None:
                raise LabError(
                    f"the guest ended while it booted: {share.why_ended(self.paths.run)}"
                )
            if time.monotonic() > deadline:
                raise LabError(f"the guest has not booted after {BOOT_TIMEOUT_S:.0f} s: "
                               f"{share.why_ended(self.paths.run)}")  # fmt: skip
            time.sleep(0.02)
        facts = json.loads(booted.read_text())
        if not facts["ok"]:
            raise LabError(f"the guest did not boot: {facts['text']}")
        progress(f"booted after {facts['seconds']} s")

    def wait_ready(self) -> None:
        """Wait until Slurm can use all nodes. Raises LabError after READY_TIMEOUT_S."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        seen: dict[str, str] = {}
        while time.monotonic() < deadline:
            seen = self.node_states()
            if all(seen.get(node, "") in state.READY_STATES for node in self.spec.nodes):
                return
        states = ", ".join(f"{node} {seen.get(node, 'unknown')}" for node in self.spec.nodes)
        raise LabError(f"Slurm's nodes are not ready after {READY_TIMEOUT_S:.0f} s: {states}")

    def node_states(self) -> dict[str, str]:
        """Return Slurm's state of each node, in lower case. Raises LabError without a guest."""
        answer = self.run(
            ["sinfo", "-h", "-N", "-o", "%N %T"], user="root", timeout=QUERY_TIMEOUT_S
        )
        rows = (line.split() for line in answer.stdout.splitlines())
        return {row[0]: row[1] for row in rows if len(row) == 2}

    def facts(self) -> dict[str, Any]:
        """Return the lab's start time and the versions of QEMU and the guest's kernel.

        Raises LabError if it is not up, or another program has just ended it.
        """
        try:
            return json.loads((self.paths.run / "facts.json").read_text())
        except FileNotFoundError:
            raise LabError(state.not_up(self.spec.instance)) from None

    def faults(self) -> list[state.Fault]:
        """Return the faults planted in the running lab; none if it is not up."""
        try:
            faults = json.loads((self.paths.run / FAULTS_FILE).read_text())
        except FileNotFoundError:
            return []
        return [state.Fault(**fault) for fault in faults]

    @contextlib.contextmanager
    def control(self) -> Iterator[snapshot.QmpConnection]:
        """Yield QEMU's control socket, and hold the lab's lock. Raises LabError."""
        # QEMU serves one client at a time.
        with state.locked(self.spec.instance), socket.socket(socket.AF_UNIX) as connection:
            if not self.is_up():
                raise LabError(state.not_up(self.spec.instance))
            try:
                connection.connect(str(self.paths.run / snapshot.FAULTS_SOCKET))
                control = snapshot.QmpConnection(connection)
                with control.stream:  # QEMU serves the next client when both are closed
                    yield control
            except OSError as error:
                raise LabError(f"lab {self.spec.instance}: QEMU does not answer: {error}") from None

    def down(self, progress: Say = say_nothing) -> bool:
        """End the lab and remove all of its files. Returns False if there is no such lab."""
        check_root()
        if not self.paths.run.exists() and not self.paths.data.exists():
            return False
        with state.locked(self.spec.instance, progress):
            self._clear(set())
        return True

    def _clear(self, kept: set[Path]) -> None:
        ours = set(share.processes_of(self.paths.run))
        processes.kill_all(ours)
        if left := processes.wait_gone(ours, 10):
            raise LabError(f"processes of the lab do not end: {sorted(left)}")
        leftovers.remove(self.spec.instance, kept)

    # -- inside ----------------------------------------------------------------

    def connect(
        self, argv: Sequence[str], user: str | None = None, node: str = LOGIN,
        env: Mapping[str, str] | None = None, cwd: str | Path | None = None,
        timeout: float | None = None,
    ) -> Connection:  # fmt: skip
        """Start a command on a node. Raises LabGone if there is no guest, LabError if no such node.

        ``timeout``, in seconds, is of each wait for the broker. Raises TimeoutError.
        """
        if node not in self.spec.hosts:
            raise LabError(
                f"lab {self.spec.instance}: no node {node!r}: {', '.join(self.spec.hosts)}"
            )
        who = user or self.spec.user
        try:
            return Connection(
                str(self.socket), argv, access.environment(self.spec, who, env),
                str(cwd or ""), who, node, timeout,
            )  # fmt: skip
        except NoGuest as error:
            raise LabGone(f"lab {self.spec.instance} is not up: {error}") from None

    def run(
        self, argv: Sequence[str], user: str | None = None, node: str = LOGIN,
        env: Mapping[str, str] | None = None, cwd: str | Path | None = None,
        timeout: float | None = None, check: bool = False, stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run a command on a node to its end, as the native lab does.

        ``timeout`` is in seconds of this machine's clock, for all of the command. Raises LabError,
        in addition to the native lab's reasons, if the command queries Slurm while a step of a
        trial is measured.
        """
        shown = " ".join(str(word) for word in argv)
        answers: dict[bytes, list[bytes]] = {OUTPUT: [], ERROR: [], EXIT: []}
        size = 0
        deadline = None if timeout is None else time.monotonic() + timeout
        connection = None
        try:
            connection = self.connect(argv, user, node, env, cwd, timeout)
            if stdin:
                connection.send_input(stdin.encode())
            connection.send_input(b"")
            while not answers[EXIT]:
                connection.set_timeout(None if deadline is None else deadline - time.monotonic())
                for kind, content in connection.receive():
                    answers[kind].append(content)
                    size += len(content)
                if size > access.MAX_ANSWER_B:
                    raise LabError(
                        f"{node}: {shown}: more than {access.MAX_ANSWER_B} bytes of output"
                    )
            code = exit_code(answers[EXIT][0])
        except TimeoutError:
            raise LabError(f"{node}: {shown}: not done after {timeout} s") from None
        except Busy:
            raise LabError(f"{node}: {shown}: not while a step is measured") from None
        except NoGuest as error:
            raise LabGone(f"{node}: {shown}: {error}") from None
        except OSError as error:
            raise LabError(f"{node}: {shown}: {error}") from None
        finally:
            if connection is not None:
                connection.socket.close()
        out, err = (b"".join(answers[kind]).decode(errors="replace") for kind in (OUTPUT, ERROR))
        if check and code:
            detail = (err or out).strip()[-500:]
            raise LabError(f"{node}: {shown}: exit code {code}: {detail}")
        return subprocess.CompletedProcess(list(argv), code, out, err)

    def exec(self, argv: Sequence[str], user: str | None = None, node: str = LOGIN) -> None:
        """Run a command in the lab with this process's streams, and exit with its exit code."""
        try:
            connection = self.connect(
                argv or ["bash", "-l", "-i"], user, node, timeout=CONNECT_TIMEOUT_S
            )
            connection.set_timeout(None)
            code = serve(connection, stdin=True)
        except TimeoutError:
            raise LabError(f"the broker does not answer after {CONNECT_TIMEOUT_S:.0f} s") from None
        except (Busy, NoGuest, OSError) as error:
            raise LabError(str(error) or "not while a step is measured") from None
        sys.stdout.flush()
        os._exit(code)

    def add_bind(self, path: Path) -> None:
        """Make a folder of this machine visible at the same place on all hosts.

        The job user, and root in the guest, can do there what the job user can do on this machine.
        Raises LabError if the folder does not exist.
        """
        if not path.is_absolute() or not path.is_dir():
            raise LabError(f"{path} must be the absolute path of a folder that exists")
        with state.locked(self.spec.instance):
            name = share.add(self.paths.run / "share", path)
            if name is None:
                return
            command = ["sh", "-c", f'mkdir -p "$1" && mount --bind "{plan.SHARE}/$0" "$1"', name,
                       str(path)]  # fmt: skip
            for host in self.spec.hosts:
                self.run(
                    command, user="root", node=host, cwd="/", timeout=QUERY_TIMEOUT_S, check=True
                )
