"""What each host does when it boots: its mounts and its daemons, as nodeinit's configuration."""

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
from seatrial_lab.common.network import TEST
from seatrial_lab.common.paths import HOST_ETC, LabPaths
from seatrial_lab.common.programs import PATH, Programs, find
from seatrial_lab.common.spec import LOGIN, LabSpec

BOOT_TIMEOUT = 120  # s, of a step; an idle machine takes a hundredth
# /run as well: what listens there on the machine (a name service cache, say)
# must not answer the lab.
_COVERS = {"/dev/shm": "1777", "/run": "755", "/tmp": "1777", "/var/tmp": "1777"}

Step = dict[str, Any]


def _mkdir(path: str, user: str, mode: str = "755") -> Step:
    return {"mkdir": path, "user": user, "mode": mode}


def _run(spec: LabSpec, node: str, argv: Sequence[str], must: bool) -> Step:
    log = str(LabPaths(spec.instance).log(node, "boot"))
    return {"run": list(argv), "log": log, "timeout": BOOT_TIMEOUT, "must": must}


def slurmd_command() -> list[str]:
    """How a node's slurmd is started."""
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
    """The boot of a compute node."""
    paths = LabPaths(spec.instance)
    return [
        *_munge(spec, node),
        # Stated numbers of queues are all used at first, and a NIC at its default uses few.
        _run(spec, node, [find("ethtool") or "ethtool", "-L", TEST, "rx", "1", "tx", "1"], True),
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
    """The boot of the login node; ``template`` is MariaDB's data folder to start from."""
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
            # Without its database a new slurmctld gives up at once.
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
    """Write nodeinit's configuration for a host; returns the file."""
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
    """Start a host's first process; it ends when the host has booted.

    It inherits the lab's lock, so that one whose ``up`` was killed is waited for.
    """
    # -S: nothing of site-packages is needed, and finding it takes most of Python's start.
    return subprocess.Popen(
        [
            sys.executable,
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


def finish(process: subprocess.Popen[str]) -> None:
    """Wait until a host has booted. Raises LabError with its reason if it did not."""
    try:
        _, reason = process.communicate(timeout=3 * BOOT_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise LabError("a node did not boot in time") from None
    if process.returncode:
        last = reason.strip().splitlines()[-1:] or [f"ended with {process.returncode}"]
        raise LabError(f"lab node {last[0]}")


def controlling_environment() -> dict[str, str]:
    """The environment of commands that the engine itself runs inside."""
    return {"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/root", "TERM": os.environ.get("TERM", "")}
