"""Run commands on a host of a native lab: enter its namespaces with nsenter.

The virtual lab uses only :func:`environment` of this module.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial.base.errors import LabError
from seatrial_lab.common.etc import module_path
from seatrial_lab.common.paths import LabPaths
from seatrial_lab.common.processes import read_pid_file
from seatrial_lab.common.programs import PATH, find
from seatrial_lab.common.spec import LabSpec

_TIME = Path("/proc/self/ns/time")  # since Linux 5.6
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

    Raises LabError if the command takes longer than ``timeout`` seconds or, with ``check``,
    if its exit code is not 0. A timeout kills the process group of the command.
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
        text=True,
        errors="replace",
        # A process group of its own: nsenter's child survives the death of nsenter.
        start_new_session=True,
    )
    shown = " ".join(str(word) for word in argv)
    try:
        out, err = process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        _end_group(process)
        raise LabError(f"{node}: {shown}: not done after {timeout} s") from None
    except BaseException:
        _end_group(process)
        raise
    if check and process.returncode:
        detail = (err or out).strip()[-500:]
        raise LabError(f"{node}: {shown}: exit code {process.returncode}: {detail}")
    return subprocess.CompletedProcess(list(argv), process.returncode, out, err)


def _end_group(process: subprocess.Popen[Any]) -> None:
    # The process group no longer exists if the command ended meanwhile.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
