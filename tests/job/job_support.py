"""What the tests of job templates share: a site of their own, a stack, the golden cases.

``python tests/job/job_support.py`` writes the golden files again; read the difference before you
commit it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from seatrial.base.yamlfile import load
from seatrial.job.plan import plan
from seatrial.job.render import render
from seatrial.job.request import Request, Surroundings
from seatrial.job.template import LAUNCHERS, load_template
from seatrial.results.requirements import load_requirements
from seatrial.site.model import Site
from seatrial.stack.model import Blas, Stack
from seatrial.stack.transports import TRANSPORTS
from seatrial_lab.software.describe import in_prefix

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
PREFIX = "/opt/seatrial/stack"
APPLICATION = {"program": "./ship", "arguments": "--cargo 'fresh fish'"}


def harbour() -> Site:
    return load(HERE / "harbour" / "site.yaml", Site)[0]


def stack() -> Stack:
    """The lab's stack as it would be in a folder that does not exist."""
    transports = {name: in_prefix(part, Path(PREFIX)) for name, part in TRANSPORTS.items()}
    return Stack(
        id="0", prefix=PREFIX, distribution="none", versions={}, origins={}, transports=transports,
        blas_libraries={"openblas": Blas(folder="/usr/lib/openblas", version="1", package="o")},
    )  # fmt: skip


def surroundings(with_stack: bool = True) -> Surroundings:
    if not with_stack:
        return Surroundings(harbour())
    requirements = load_requirements(HERE / "harbour" / "requirements.yaml")
    modules = {part.name: f"{PREFIX}/modules" for part in TRANSPORTS.values() if part.family}
    return Surroundings(harbour(), stack(), modules, requirements)


def planned(name: str, around: Surroundings | None = None, values=None, **options):
    request = Request(load_template(name), values=values or {}, **options)
    return plan(request, around or surroundings())


def rendered(name: str, around: Surroundings | None = None, values=None, **options) -> str:
    found = planned(name, around, values, **options)
    return render(found, ["seatrial", "job", "render", name, "--site", "harbour"])


#: golden file -> what it is rendered from
CASES: dict[str, dict] = {
    **{
        f"{mpi}-{launcher}": {
            "name": "mpi", "mpi": mpi, "launcher": launcher, "values": APPLICATION,
        }
        for mpi, launchers in LAUNCHERS.items()
        for launcher in launchers
    },
    "hybrid": {"name": "hybrid", "values": APPLICATION},
    "multirail": {"name": "multirail", "values": APPLICATION},
    "hpl": {"name": "hpl", "ranks_per_node": 2, "nodes": 3, "values": {"blas": "openblas"}},
    "npb": {"name": "npb", "nodes": 4},
    "osu": {"name": "osu"},
    "all-pairs": {"name": "all-pairs"},
    # ways through the templates that the defaults do not take
    "openmpi-srun-latency": {
        "name": "mpi",
        "kind": "latency-bound",
        "transport": "openmpi-ucx",
        "values": {**APPLICATION, "account": "fish", "job_name": "two words", "time": "1-0"},
    },
    "multirail-per-rank": {
        "name": "multirail",
        "transport": "mpich-ofi",
        "launcher": "mpiexec",
        "values": {**APPLICATION, "module": "mpich/5.0", "module_folder": "/opt/my modules"},
    },
    "hpl-xhpl": {
        "name": "hpl",
        "around": surroundings(with_stack=False),
        "launcher": "mpiexec",
        "values": {"program": "./xhpl", "rows": "1", "nb": "256", "node_memory_MiB": "512000"},
    },
    "npb-mpirun": {
        "name": "npb",
        "launcher": "mpirun",
        "profile": "default",
        "values": {"kernel": "bt", "program": "./bt.C.x", "module": "none"},
        "nodes": 2,
        "ranks_per_node": 2,
    },
    "all-pairs-latency": {
        "name": "all-pairs", "nodes": 3, "transport": "openmpi-tcp", "values": {"test": "latency"},
    },
}  # fmt: skip


def run_stubbed(
    text: str, folder: Path, stubs: dict[str, str], **env: str
) -> subprocess.CompletedProcess:
    """Run a job script where only ``stubs`` (name -> shell text) and basic tools are programs."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, body in stubs.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    script = folder / "job.sh"
    script.write_text(text)
    slurm = {
        "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "1", "SLURM_NTASKS": "4",
        "SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_NODELIST": "n[1-4]",
    }  # fmt: skip
    module = {"BASH_FUNC_module%%": "() { :; }"}
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "OUT": str(folder),
        **module,
        **slurm,
        **env,
    }
    return subprocess.run(
        [shutil.which("bash") or "bash", str(script)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


if __name__ == "__main__":
    for file in GOLDEN.glob("*.sbatch"):
        file.unlink()
    for case, options in CASES.items():
        (GOLDEN / f"{case}.sbatch").write_text(rendered(**options))
    os.system(f"git -C {HERE} --no-pager diff --stat -- golden")
