"""The native lab: start it, run commands in it, end it.

``faults`` plants faults in a running lab; ``status`` reports its state.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from seatrial.base.errors import LabError
from seatrial.base.say import Say, say_nothing
from seatrial.stack import apt
from seatrial_lab.common import access, boot, etc, leftovers, network, processes, state
from seatrial_lab.common.paths import LabPaths
from seatrial_lab.common.programs import check_machine, check_root, programs
from seatrial_lab.common.spec import LOGIN, LabSpec
from seatrial_lab.native import binds, cables, database, slowdown, terminal

_READY_TIMEOUT = 30.0


class Lab:
    """One instance of the native lab. All methods raise ``LabError`` with the reason.

    The constructor starts nothing; :meth:`up` starts the lab. ``Lab.attach``
    returns the object of a running lab.
    """

    engine = "native"

    def __init__(self, spec: LabSpec):
        self.spec = spec
        self.paths = LabPaths(spec.instance)

    @classmethod
    def attach(cls, instance: str = "lab") -> Lab:
        """Return the running lab of that name, with the spec of its start."""
        running = state.load(instance)
        if running is None:
            raise LabError(state.not_up(instance))
        return cls(running.spec)

    def is_up(self) -> bool:
        """Return whether the lab has started completely and its login node is alive."""
        return state.load(self.spec.instance) is not None and self.is_alive(LOGIN)

    def is_alive(self, host: str) -> bool:
        """Return whether a host's first process is alive."""
        return access.first_process(self.spec, host) is not None

    # -- up and down ---------------------------------------------------------

    def up(self, progress: Say = say_nothing) -> bool:
        """Start the lab. Returns False if it already runs, after a restart of its dead nodes.

        First remove the processes and files of an interrupted start.
        """
        check_machine(self.spec.accounting)
        apt.remove_left()
        with state.locked(self.spec.instance, progress) as lock:
            state.claim(self.spec.instance, self.engine)
            running = state.load(self.spec.instance)
            if running is not None and self._daemons_live(running.spec):
                if differing := self.spec.differences(running.spec):
                    raise LabError(state.differs(running.spec, differing))
                self._repair(running, lock, progress)
                return False
            self._clear({self.paths.lock, self.paths.engine}, progress)
            try:
                self._start(lock, progress)
            except BaseException:
                self._clear({self.paths.lock, self.paths.data / "log"}, progress)
                raise
            return True

    def _daemons_live(self, spec: LabSpec) -> bool:
        pid = access.first_process(spec, LOGIN)
        return pid is not None and "slurmctld" in processes.names_in_node(pid)

    def _start(self, lock: int, progress: Say) -> None:
        installed = programs()
        template = None
        if self.spec.accounting:
            progress("database template")
            template = database.template(progress)
        progress("files")
        for path in self.spec.visible_paths():
            if not path.exists():
                raise LabError(f"{path} does not exist: the lab cannot mount it")
        etc.write_data(self.spec, installed)
        for host in self.spec.hosts:
            boot.write_config(self.spec, installed, host, template)
        progress("network")
        network.make(self.spec, keep=(lock,), say=progress)
        progress("nodes")
        self._boot(self.spec.hosts, lock)
        progress("Slurm")
        self.wait_ready(self.spec.nodes)
        self._check_checkout()
        state.LabState(self.spec, time.time()).save()

    def _boot(self, hosts: Sequence[str], lock: int) -> None:
        started = [boot.start(self.spec, host, lock) for host in hosts]
        try:
            for process in started:
                boot.wait_booted(process)
            for host in hosts:
                first = access.first_process(self.spec, host)
                if first is not None:
                    slowdown.prioritise(self.spec.instance, host, first)
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                    process.communicate()

    def wait_ready(self, nodes: Sequence[str]) -> None:
        """Wait until Slurm can use these nodes. Raises LabError after 30 s."""
        deadline = time.monotonic() + _READY_TIMEOUT
        seen: dict[str, str] = {}
        while time.monotonic() < deadline:
            seen = self.node_states()
            if all(seen.get(node, "") in state.READY_STATES for node in nodes):
                return
            time.sleep(0.02)
        states = ", ".join(f"{node} {seen.get(node, 'unknown')}" for node in nodes)
        raise LabError(
            f"Slurm's nodes are not ready after {_READY_TIMEOUT:.0f} s: {states}; "
            f"logs in {self.paths.data}/log"
        )

    def faults(self) -> list[state.Fault]:
        """Return the faults planted in the running lab; none if it is not up."""
        running = state.load(self.spec.instance)
        return running.faults if running else []

    def node_states(self) -> dict[str, str]:
        """Return Slurm's state of each node, in lower case; ``*`` at its end: no answer.

        Raises LabError if no command can start in the lab.
        """
        answer = self.run(["sinfo", "-h", "-N", "-o", "%N %T"], user="root", timeout=120)
        if answer.returncode in (126, 127):  # exit codes of nsenter and env: sinfo did not start
            raise LabError(f"sinfo does not start in the lab: {answer.stderr.strip()}")
        rows = (line.split() for line in answer.stdout.splitlines())
        return {row[0]: row[1] for row in rows if len(row) == 2}

    def _check_checkout(self) -> None:
        checkout = str(self.spec.checkout)
        test = ["test", "-r", checkout, "-a", "-x", checkout]
        if self.run(test, cwd="/", timeout=_READY_TIMEOUT).returncode:
            raise LabError(
                f"{checkout} cannot be read by the lab's user {self.spec.user}: chmod -R o+rX it"
            )

    def _repair(self, running: state.LabState, lock: int, progress: Say) -> None:
        etc.write_etc(self.spec, programs())
        dead = [node for node in self.spec.nodes if not self.is_alive(node)]
        if dead:
            progress(f"restarting {', '.join(dead)}")
            self.revive(dead, lock)
            running.faults = [f for f in running.faults if f.kind != "node" or f.node not in dead]
            running.save()

    def revive(self, nodes: Sequence[str], lock: int) -> None:
        """Boot dead nodes with new interfaces. The caller holds the lock."""
        running = state.load(self.spec.instance)
        for node in nodes:
            network.replug(self.spec, node)
        # A fault of a cable stays when its node restarts.
        for fault in running.faults if running else []:
            if fault.kind == "link" and fault.node in nodes:
                cables.plant(self.spec, fault.node, fault.detail)
        self._boot(nodes, lock)
        self.wait_ready(nodes)

    def down(self, progress: Say = say_nothing) -> bool:
        """End the lab and remove all of its files. Returns False if there is no such lab.

        This also removes the processes and files of a killed ``up`` or ``down``.
        """
        check_root()
        there = self.paths.run.exists() or self.paths.data.exists()
        if not there and not network.namespaces(self.spec.instance):
            return False
        with state.locked(self.spec.instance, progress):
            self._clear(set(), progress)
        return True

    def _clear(self, kept: set[Path], progress: Say) -> None:
        """Remove processes, then namespaces, then files. Each step works on an incomplete lab."""
        inside = [
            identity
            for name in network.namespaces(self.spec.instance)
            if (identity := processes.namespace_id(network.NETNS_ROOT / name))
        ]
        deadline = time.monotonic() + 20
        while True:
            left = set(processes.in_namespaces("net", inside)) - processes.own_ancestry()
            left |= set(processes.nodeinit_processes(str(self.paths.run / "nodes") + "/"))
            if not left:
                break
            if time.monotonic() > deadline:
                raise LabError(f"processes of the lab do not end: {sorted(left)}")
            processes.kill_all(left)
            processes.wait_gone(left, 1)
        network.remove(self.spec.instance, progress)
        slowdown.remove_all(self.spec.instance)
        leftovers.remove(self.spec.instance, kept)

    # -- inside ----------------------------------------------------------------

    def run(
        self,
        argv: Sequence[str],
        user: str | None = None,
        node: str = LOGIN,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        timeout: float | None = None,
        check: bool = False,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a node to its end and return its exit code and output as text.

        ``user`` is the job user by default. ``env`` is added to the lab's own
        environment. ``cwd`` is the user's HOME by default. ``timeout`` is in
        seconds. Raises LabError on a timeout, on a dead node and, with
        ``check``, on an exit code other than 0.
        """
        return access.run(
            self.spec, argv, user or self.spec.user, node, env, cwd, timeout, check, stdin
        )

    def popen(
        self,
        argv: Sequence[str],
        user: str | None = None,
        node: str = LOGIN,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """Start a command on a node; ``options`` are those of ``subprocess.Popen``.

        To end the command, start it with ``start_new_session=True`` and kill its
        process group: the returned process is nsenter, not the command.
        """
        return access.popen(self.spec, argv, user or self.spec.user, node, env, cwd, **options)

    def exec(self, argv: Sequence[str], user: str | None = None, node: str = LOGIN) -> NoReturn:
        """Run a command in the lab, with no command a login shell, and exit with its exit code.

        The command does not get the caller's terminal, but one of its own.
        """
        who = user or self.spec.user
        command = access.node_command(self.spec, node, who, argv or ["bash", "-l"])
        sys.exit(terminal.run(command, access.environment(self.spec, who)))

    def add_bind(self, path: Path) -> None:
        """Make a path of the machine visible on all running hosts, at the same place.

        The path's permissions decide who may write there. Raises LabError if the
        path does not exist.
        """
        with state.locked(self.spec.instance):
            pids = (access.first_process(self.spec, host) for host in self.spec.hosts)
            binds.add(path, [pid for pid in pids if pid is not None])
