"""A native lab of many light nodes for a program of this folder: its site, and its trials."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from seatrial.base.paths import CHECKOUT
from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.results.folder import Results
from seatrial.site.load import load_site
from seatrial.trial.run import run_trial
from seatrial_lab.native.engine import Lab
from seatrial_lab.native.machine import LabMachine
from seatrial_lab.native.site import lab_spec


class Silent:
    def line(self, word: str, done: int, total: int, name: str) -> None: ...

    def said(self, text: str) -> None: ...


def make_site(
    folder: Path,
    count: int,
    benchmarks: dict[str, Any],
    requirements: str,
    transports: dict[str, Any] | None = None,
    **trial: Any,
) -> Path:
    """A site like the lab of so many light nodes, in a new folder; returns its file.

    ``transports``: all that it has; None means the lab's.
    """
    source = CHECKOUT / "site-configs" / "lab"
    yaml = YAML()
    site = yaml.load((source / "site.yaml").read_text())
    names = f"n[1-{count}]"
    site["name"] = folder.name
    site["lab"]["accounting"] = False
    site["slurm"]["backend"] = "squeue"
    site["nodes"] = [{"names": names, "cores": 2, "memory_MiB": 256}]
    site["partitions"] = {"compute": {"nodes": names}}
    site["nic_profiles"] = {"default": site["nic_profiles"]["default"]}
    if transports is not None:
        site["transports"] = transports
        del site["jobs"]  # names the lab's transports
    site["benchmarks"] = benchmarks
    site["trial"] = {"repeats": 1, "time_limit_s": 3600, **trial}
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    with (folder / "site.yaml").open("w") as stream:
        yaml.dump(site, stream)
    (folder / "requirements.yaml").write_text(requirements)
    (folder / "settings.py").write_text((source / "settings.py").read_text())
    return folder / "site.yaml"


class Place:
    """The lab of a site file, and the folder of its trials. ``notes``: the file of ``note``."""

    def __init__(self, folder: Path, file: Path, instance: str, notes: str) -> None:
        self.folder, self.file, self.notes = folder, file, notes
        self.lab = Lab(lab_spec(load_site(file), instance))
        self.count = len(self.lab.spec.nodes)

    def __enter__(self) -> Place:
        begun = time.monotonic()
        self.lab.up()
        self.lab.add_bind(self.folder)
        print(f"{self.count} nodes up in {time.monotonic() - begun:.0f} s", flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.lab.down()

    def trial(self, file: Path | None = None) -> Results:
        """A trial of the site, or of another one of the same nodes."""
        file = file or self.file
        plan = plan_trial(file, Selection())
        return run_trial(plan, file, LabMachine(self.lab), Silent(), self.folder / "trials")

    def note(self, **what: object) -> None:
        with (self.folder / self.notes).open("a") as stream:
            stream.write(json.dumps(what) + "\n")
