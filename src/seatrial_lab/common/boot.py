"""The boot of each host of a native lab: its mounts and its daemons.

This module writes the configuration of ``nodeinit`` and starts it. ``nodeinit`` executes the steps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seatrial.base.errors import LabError
from seatrial.base.paths import SOURCE
from seatrial_lab.common import mounts, render
from seatrial_lab.common.network import tests
from seatrial_lab.common.paths import HOST_ETC, LabPaths
from seatrial_lab.common.programs import PATH, Programs, find
from seatrial_lab.common.spec import LOGIN, LabSpec

BOOT_TIMEOUT = 120  # seconds for one step; an idle machine needs about 1 s
# /run is among them: a daemon of the machine that listens there, such as a name
# service cache, must not answer the lab.
_COVERS = {"/dev/shm": "1777", "/run": "755", "/tmp": "1777", "/var/tmp": "1777"}

Step = dict[str, Any]


def _mkdir(path: str, user: str, mode: str = "755") -> Step:
    return {"mkdir": path, "user": user, "mode": mode}


def _run(spec: LabSpec, node: str, argv: Sequence[str], must: bool) -> Step:
    log = str(LabPaths(spec.instance).log(node, "boot"))
    return {"run": list(argv), "log": log, "timeout": BOOT_TIMEOUT, "must": must}


def slurmd_command() -> list[str]:
    """Return the command that starts a node's slurmd."""
    return [find("slurmd") or "slurmd", "-D"]


def _munge(spec: LabSpec, host: str) -> list[Step]:
    paths = LabPaths(spec.instance)
    folder = render.MUNGE_FOLDER
    return [
        _mkdir(folder, "munge"),
        {
            "daemon": "munged",
            "user": "munge",
            "log": str(paths.log(host, "munged")),
            "argv": [
                find("munged") or "munged",
                "--foreground",
                f"--socket={render.MUNGE_SOCKET}",
                f"--key-file={paths.munge_key}",
                f"--pid-file={folder}/munged.pid",
                f"--seed-file={folder}/munged.seed",
            ],
        },
    ]


def node_steps(spec: LabSpec, node: str) -> list[Step]:
    """Return the boot steps of a compute node."""
    paths = LabPaths(spec.instance)
    return [
        *_munge(spec, node),
        # A veth starts with all its queues in use; a NIC starts with few in use.
        *(
            _run(spec, node, [find("ethtool") or "ethtool", "-L", name, "rx", "1", "tx", "1"], True)
            for name in tests(spec).values()
        ),
        _mkdir(render.SLURM_FOLDER, "root"),
        *([_run(spec, node, spec.before_slurmd, False)] if spec.before_slurmd else []),
        {"wait_socket": render.MUNGE_SOCKET, "timeout": BOOT_TIMEOUT},
        {"wait_file": str(paths.controller_ready), "timeout": BOOT_TIMEOUT},
        {
            "daemon": "slurmd",
            "argv": slurmd_command(),
            "log": str(paths.log(node, "slurmd.out")),
        },
        {"wait_port": render.SLURMD_PORT, "timeout": BOOT_TIMEOUT},
    ]


def login_steps(spec: LabSpec, slurm_user: str, template: Path | None) -> list[Step]:
    """Return the boot steps of the login node.

    ``template`` is the MariaDB data folder that the lab copies; None starts no database.
    """
    paths = LabPaths(spec.instance)
    steps = [*_munge(spec, LOGIN), _mkdir(render.SLURM_FOLDER, slurm_user)]
    munge_up: Step = {"wait_socket": render.MUNGE_SOCKET, "timeout": BOOT_TIMEOUT}
    if template is not None:
        steps += [
            _mkdir(render.MYSQL_FOLDER, "mysql"),
            {"copy": [str(template), render.MYSQL_DATA]},
            {
                "daemon": "mariadbd",
                "argv": [
                    find("mariadbd") or "mariadbd",
                    "--defaults-file=/etc/seatrial-mariadb.cnf",
                ],
                "log": str(paths.log(LOGIN, "mariadbd")),
            },
            munge_up,
            {"wait_socket": render.MYSQL_SOCKET, "timeout": BOOT_TIMEOUT},
            {
                "daemon": "slurmdbd",
                "argv": [find("slurmdbd") or "slurmdbd", "-D"],
                "log": str(paths.log(LOGIN, "slurmdbd")),
            },
            # A new slurmctld exits at once if slurmdbd does not answer.
            {"wait_port": render.SLURMDBD_PORT, "timeout": BOOT_TIMEOUT},
        ]
    else:
        steps.append(munge_up)
    return [
        *steps,
        {
            "daemon": "slurmctld",
            "argv": [find("slurmctld") or "slurmctld", "-D"],
            "log": str(paths.log(LOGIN, "slurmctld")),
        },
        {"wait_port": render.SLURMCTLD_PORT, "timeout": BOOT_TIMEOUT},
        {"touch": str(paths.controller_ready)},
    ]


def write_config(
    spec: LabSpec, programs: Programs, host: str, template: Path | None = None
) -> Path:
    """Write the configuration of ``nodeinit`` for a host. Returns the path of the file."""
    paths = LabPaths(spec.instance)
    covers, binds = mounts.plan([*spec.visible_paths(), paths.data], _COVERS)
    binds += [["/etc", str(HOST_ETC)], [str(paths.etc), "/etc"]]
    if host == LOGIN and template is not None and mounts.covered_by(template, _folders(covers)):
        binds.append([str(template), str(template)])
    config = {
        "hostname": host,
        "netns": str(paths.netns_path(host)),
        "pid_file": str(paths.node_pid(host)),
        "covers": covers,
        "binds": binds,
        "freezer": host != LOGIN and render.needs_freezer(programs.slurm_version),
        "steps": login_steps(spec, programs.slurm_user, template)
        if host == LOGIN
        else node_steps(spec, host),
    }
    path = paths.node_config(host)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config, indent=1))
    return path


def _folders(covers: dict[str, str]) -> list[Path]:
    return [Path(folder) for folder in covers]


def start(spec: LabSpec, host: str, lock: int) -> subprocess.Popen[str]:
    """Start a host. The returned process ends when the host has booted.

    The process inherits the lab's lock. If ``up`` is killed, the next ``up`` waits for the process.
    """
    # -S: nodeinit needs no site-packages, and the search for it takes most of Python's start.
    return subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-S",
            "-m",
            "seatrial_lab.common.nodeinit",
            str(os.getpid()),
            str(LabPaths(spec.instance).node_config(host)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=(lock,),
        env={"PATH": PATH, "PYTHONPATH": str(SOURCE), "LANG": "C.UTF-8", "HOME": "/root"},
        cwd="/",
    )


def wait_booted(process: subprocess.Popen[str]) -> None:
    """Wait until a host has booted. Raises LabError with the reason if it does not boot."""
    try:
        _, reason = process.communicate(timeout=3 * BOOT_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise LabError("a node did not boot in time") from None
    if process.returncode:
        last = reason.strip().splitlines()[-1:] or [f"ended with {process.returncode}"]
        raise LabError(f"lab node {last[0]}")


def engine_environment() -> dict[str, str]:
    """Return the environment of the commands that the engine itself runs on a host."""
    return {"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/root", "TERM": os.environ.get("TERM", "")}
