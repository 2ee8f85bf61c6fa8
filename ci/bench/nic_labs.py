"""The labs in which the cost of NIC profiles is measured, next to labs that have none of it.

They differ in slurm.conf and in nothing else, so that a difference between them is what Seatrial's
Prolog and Epilog cost. None has slurmdbd, which would only take time of the same two cores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ways
from ruamel.yaml import YAML

from seatrial_lab.common import access, processes
from seatrial_lab.common.slurm_files import lab_layout
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.native.engine import Lab
from seatrial_lab.native.site import spec_for_site

BARE, FLAGS, INSTALLED = "bare", "flags", "nic"
#: what each lab is for
LABS = {
    BARE: "no Prolog, Epilog=/bin/true",
    FLAGS: "Prolog and Epilog are /bin/true, with the PrologFlags that profiles need",
    INSTALLED: "as seatrial slurm install leaves it",
}


def sized_site(original: Path, folder: Path, count: int) -> Path:
    """A copy of a site whose lab has ``count`` nodes and no accounting; its file."""
    yaml = YAML()
    data = yaml.load(original.read_text())
    names = f"n[1-{count}]"
    data["nodes"] = [{**data["nodes"][0], "names": names}]
    for partition in data["partitions"].values():
        partition["nodes"] = names
    data["lab"]["accounting"] = False
    data["slurm"]["backend"] = "squeue"
    target = folder / data["name"]
    target.mkdir(parents=True)
    for file in original.parent.glob("*.yaml"):
        (target / file.name).write_text(file.read_text())
    with (target / "site.yaml").open("w") as stream:
        yaml.dump(data, stream)
    return target / "site.yaml"


def spec_of(kind: str, site_file: Path, instance: str, binds: tuple[Path, ...] = ()) -> LabSpec:
    """The lab of a site, of one of the kinds above."""
    name = f"{instance}_{kind}"
    spec = spec_for_site(str(site_file), name, binds)
    layout = lab_layout(name)
    piece = next(
        (text for path, text in spec.files.items() if layout.slurm_conf.endswith(path)), ""
    )
    if not piece:
        raise ValueError(f"{site_file}: the site has no NIC profile but default")
    lines = [*spec.extra_slurm_conf, *ways.slurm_lines(name)]
    if kind == INSTALLED:
        # The nodes share the cores: the check of all of them at once would fall on one start of
        # a job in some and not on others. Its own time is measured apart.
        interval = f"HealthCheckInterval={layout.health_interval_s}"
        files = {path: text.replace(interval, "HealthCheckInterval=0")
                 for path, text in spec.files.items()}  # fmt: skip
        return dataclasses.replace(spec, files=files, extra_slurm_conf=tuple(lines))
    lines = [line for line in lines if not line.startswith("Include ")]
    if kind == FLAGS:
        lines += [line for line in piece.splitlines() if line.startswith("PrologFlags=")]
        lines.append("Prolog=/bin/true")
    return dataclasses.replace(
        spec,
        files={},
        features={},
        before_slurmd=(),
        epilog="/bin/true",
        extra_slurm_conf=tuple(lines),
    )


@contextmanager
def running(spec: LabSpec) -> Iterator[Lab]:
    """A lab that is down again whatever happens."""
    lab = Lab(spec)
    try:
        lab.up()
        yield lab
    finally:
        with ways.uninterrupted():
            lab.down()


def slurmd_of(lab: Lab, node: str) -> int:
    """The process id of a node's slurmd. Raises ValueError where there is none."""
    first = access.first_process(lab.spec, node)
    names = processes.in_node(first) if first else {}
    for pid, name in names.items():
        if name == "slurmd":
            return pid
    raise ValueError(f"{node} of lab {lab.spec.instance} has no slurmd")
