"""A network namespace with a node's interfaces, in which the node's command runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from inside_namespace import LOOK

import seatrial.nic.node
from seatrial.nic.node.store import Store

NODE = Path(seatrial.nic.node.__file__).parent
#: as the launcher that is installed on nodes does
START = """
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, {!r})
from node.cli import main
sys.exit(main(sys.argv[1:]))
"""
COMMAND = [sys.executable, "-I", "-S", "-c", START.format(str(NODE.parent))]


class Place:
    """A network namespace with a node's interfaces, and the policy for them."""

    def __init__(self, name: str, folder: Path, profiles: dict[str, Any]) -> None:
        self.name = name
        self.folder = folder
        self.policy = folder / "nic.json"
        self.data: dict[str, Any] = {
            "schema": 1, "digest": "x", "feature_prefix": "nic_", "protected": [],
            "state_folder": str(folder / "state-%n"), "nodes": {"n1": ["eth1", "tap0"]},
            "profiles": {name: {"feature": f"nic_{name}", "nodes": ["n1"], "interfaces": wanted}
                         for name, wanted in profiles.items()},
        }  # fmt: skip
        self.write()
        # Slurm's daemon, as far as its name tells.
        self.slurmd = folder / "slurmd"
        shutil.copy("/bin/bash", self.slurmd)
        self.store = Store(str(folder / "state-n1"))
        self.job = 4_000_000_000

    def write(self) -> None:
        self.policy.write_text(json.dumps(self.data))

    def inside(self, *argv: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *argv]

    def look(self) -> str:
        answer = subprocess.run(
            self.inside("sh", "-c", LOOK), capture_output=True, text=True, check=True
        )
        return answer.stdout.strip()

    def command(
        self, *words: str, job: int = 0, profile: str = "", slurmd: bool = False, first: str = ""
    ) -> list[str]:
        """Run with nothing in its environment but what Slurm gives it. ``first``: lines of shell
        for the same mount namespace, which ends with the command."""
        given = ["SLURMD_NODENAME=n1"]
        if job:
            given += [f"SLURM_JOB_ID={job}", f"SLURM_JOB_CONSTRAINTS=nic_{profile}"]
        above = [str(self.slurmd), "-c", '"$@"; exit $?', "slurmd"] if slurmd else []
        return self.inside(
            "sh",
            "-ec",
            first + '\nexec "$@"',
            "sh",
            "env",
            "-i",
            *given,
            *above,
            *COMMAND,
            "--policy",
            str(self.policy),
            *words,
        )

    def run(self, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words, **more), capture_output=True, text=True, check=False, timeout=600
        )

    def begin(self, profile: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """The Prolog of a new job. A Prolog that starts within 10 ms of an Epilog of the same job
        is refused as late: Linux gives the start of a process in ticks of 10 ms."""
        self.job += 1
        return self.run("prolog", job=self.job, profile=profile, slurmd=True, **more)

    def end(self, profile: str) -> subprocess.CompletedProcess[str]:
        """The Epilog of the job that began last."""
        return self.run("epilog", job=self.job, profile=profile, slurmd=True)

    def ip(self, *words: str) -> str:
        """``ip`` in the namespace; what it prints."""
        return subprocess.run(
            self.inside("ip", *words), capture_output=True, text=True, check=True
        ).stdout

    def shell(self, text: str) -> None:
        subprocess.run(self.inside("sh", "-ec", text), check=True)

    def mtu(self, interface: str) -> int:
        return int(json.loads(self.ip("-json", "link", "show", "dev", interface))[0]["mtu"])

    def reason(self) -> str:
        return self.store.reason() or ""


@contextmanager
def made_place(folder: Path, profiles: dict[str, Any], setup: str) -> Iterator[Place]:
    """A place after the shell commands ``setup``; the namespace goes in any case."""
    name = f"seatrial-test-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        made = Place(name, folder, profiles)
        subprocess.run(made.inside("sh", "-ec", setup), check=True)
        yield made
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)
