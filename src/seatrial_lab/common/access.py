"""Run commands on a host of a native lab: enter its namespaces with nsenter.

The virtual lab uses only :func:`environment` of this module.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial.base.errors import LabError
from seatrial_lab.common.etc import module_path
from seatrial_lab.common.paths import LabPaths
from seatrial_lab.common.processes import of_group, read_pid_file, wait_gone
from seatrial_lab.common.programs import PATH, find
from seatrial_lab.common.spec import LabSpec

_TIME = Path("/proc/self/ns/time")  # since Linux 5.6
#: of output and error output of a command together: more ends it, so that it cannot fill the memory
MAX_ANSWER_B = 64 << 20
_CHUNK = 65536
_KILLED_S = 5.0  # a process that waits for a device ends later
_LMOD_INIT = Path("/usr/share/lmod/lmod/init/bash")


def first_process(spec: LabSpec, host: str) -> int | None:
    """Return the process id, on this machine, of a host's process 1; None if the host is dead.

    Raises LabError if the lab has no such host.
    """
    if host not in spec.hosts:
        raise LabError(f"lab {spec.instance}: no node {host!r}: {', '.join(spec.hosts)}")
    return read_pid_file(LabPaths(spec.instance).node_pid(host))


def node_command(
    spec: LabSpec, host: str, user: str, argv: Sequence[str], cwd: str | Path | None = None
) -> list[str]:
    """Return the command that runs ``argv`` as ``user`` on ``host``.

    ``cwd`` is the user's HOME by default. Raises LabError if the host is dead.
    """
    pid = first_process(spec, host)
    if pid is None:
        raise LabError(f"lab {spec.instance}: {host} is not running: seatrial lab up")
    command = [find("nsenter") or "nsenter", "--target", str(pid)]
    command += ["--net", "--uts", "--ipc", "--mount", "--pid"]
    command += [*(["--time"] if _TIME.exists() else []), "--"]
    if user == spec.user:
        ids = ["--reuid", str(spec.uid), "--regid", str(spec.gid)]
        command += [find("setpriv") or "setpriv", *ids, "--init-groups", "--"]
    elif user != "root":
        ids = ["--reuid", user, "--regid", user]
        command += [find("setpriv") or "setpriv", *ids, "--init-groups", "--"]
    # env enters the folder after the change of user, so the user's permissions apply.
    folder = str(cwd or _home(spec, user))
    return [*command, "env", "--default-signal=INT,QUIT", "-C", folder, "--", *argv]


def _home(spec: LabSpec, user: str) -> str:
    return str(LabPaths(spec.instance).home) if user == spec.user else "/root"


def environment(spec: LabSpec, user: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a command in the lab.

    The command inherits TERM from the caller and no other variable.
    """
    result = {
        "PATH": PATH,
        "HOME": _home(spec, user),
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "MODULEPATH": ":".join(module_path(spec)),
    }
    if "TERM" in os.environ:
        result["TERM"] = os.environ["TERM"]
    if _LMOD_INIT.is_file():
        # Job scripts get the ``module`` command, as from a login profile.
        result["BASH_ENV"] = str(_LMOD_INIT)
    result.update(extra or {})
    return result


def popen(
    spec: LabSpec,
    argv: Sequence[str],
    user: str,
    node: str,
    env: Mapping[str, str] | None,
    cwd: str | Path | None,
    **options: Any,
) -> subprocess.Popen[Any]:
    """Start a command in the lab; ``options`` are those of ``subprocess.Popen``."""
    return subprocess.Popen(
        node_command(spec, node, user, argv, cwd),
        env=environment(spec, user, env),
        cwd="/",
        **options,
    )


def run(
    spec: LabSpec,
    argv: Sequence[str],
    user: str,
    node: str,
    env: Mapping[str, str] | None,
    cwd: str | Path | None,
    timeout: float | None,
    check: bool,
    stdin: str | None,
) -> subprocess.CompletedProcess[str]:
    """Run a command in the lab to its end and return its exit code and output.

    Raises LabError if the command takes longer than ``timeout`` seconds, if its output is larger
    than MAX_ANSWER_B or, with ``check``, if its exit code is not 0. The first two kill the process
    group of the command. Output that arrives after the end of the command is not read.
    """
    process = popen(
        spec,
        argv,
        user,
        node,
        env,
        cwd,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        # A process group of its own: nsenter's child survives the death of nsenter.
        start_new_session=True,
    )
    shown = " ".join(str(word) for word in argv)
    try:
        answers = _answers(process, (stdin or "").encode(), timeout)
    except TimeoutError:
        raise LabError(f"{node}: {shown}: not done after {timeout} s") from None
    except BufferError as error:
        raise LabError(f"{node}: {shown}: {error}") from None
    finally:
        _end(process)
    out, err = (answer.decode(errors="replace") for answer in answers)
    if check and process.returncode:
        detail = (err or out).strip()[-500:]
        raise LabError(f"{node}: {shown}: exit code {process.returncode}: {detail}")
    return subprocess.CompletedProcess(list(argv), process.returncode, out, err)


def _answers(
    process: subprocess.Popen[bytes], stdin: bytes, timeout: float | None
) -> tuple[bytes, bytes]:
    """Return a process's output and error output once it has ended.

    The end of the process counts, not that of its pipes: another process of the job user can hold
    these for ever. Raises TimeoutError and BufferError (more than MAX_ANSWER_B).
    """
    deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
    assert process.stdout
    assert process.stderr
    answers = {stream.fileno(): bytearray() for stream in (process.stdout, process.stderr)}
    unsent = memoryview(stdin)
    end = os.pidfd_open(process.pid)
    with contextlib.ExitStack() as opened, selectors.DefaultSelector() as selector:
        opened.callback(os.close, end)
        for descriptor in (end, *answers):
            selector.register(descriptor, selectors.EVENT_READ)
        for descriptor in answers:
            os.set_blocking(descriptor, False)
        if process.stdin:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE)
        ended = False
        while not ended:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            for key, _ in selector.select(None if timeout is None else left):
                if key.fd == end:
                    ended = True
                elif key.fd in answers:
                    if _read_available(key.fd, answers, _CHUNK):
                        selector.unregister(key.fd)
                elif process.stdin:
                    try:
                        unsent = unsent[os.write(key.fd, unsent[:_CHUNK]) :]
                    except BrokenPipeError:
                        unsent = unsent[:0]
                    if not unsent:
                        selector.unregister(process.stdin)
                        process.stdin.close()
        for descriptor in answers:
            _read_available(descriptor, answers, MAX_ANSWER_B)
    out, err = answers.values()
    return bytes(out), bytes(err)


def _read_available(descriptor: int, answers: dict[int, bytearray], most: int) -> bool:
    """Read what is in a pipe, up to ``most`` bytes. Returns whether this was its end."""
    until = len(answers[descriptor]) + most
    with contextlib.suppress(BlockingIOError):
        while len(answers[descriptor]) < until:
            data = os.read(descriptor, _CHUNK)
            if not data:
                return True
            answers[descriptor] += data
            if sum(map(len, answers.values())) > MAX_ANSWER_B:
                raise BufferError(f"more than {MAX_ANSWER_B} bytes of output")
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of a command that has not ended, and close its pipes."""
    if process.poll() is None:
        # The process group no longer exists if the command ended meanwhile.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_KILLED_S)
        # On a busy machine, the processes of the group die later than their leader.
        wait_gone(of_group(process.pid), _KILLED_S)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            stream.close()
