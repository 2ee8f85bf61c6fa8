"""Kernels of NPB on up to eight virtual nodes: measured, and predicted from message times and EP.

    .venv/bin/python ci/bench/prediction_npb.py SOURCE [--class S] [--kernels ft cg lu]

As root, in a checkout whose `seatrial trial` has run once, with SimGrid (libsimgrid-dev), gfortran
and make. SOURCE: folder or archive of NPB 3.4. Trials go to --folder (default
.seatrial/bench/prediction_npb).

The nodes are those of `site-configs/lab-virtual-8`: each has a processor of its own, in virtual
time, and a port of a switch of 1 Gbit/s. So neither the number of nodes nor the load of the machine
is in a measured time, as it is in the native lab, whose nodes share the processors of the machine.
The kernels are built by Open MPI's compilers, and run by a trial like those of any stack.

One trial measures the message times of two nodes (comms), EP, and the kernels on 1, 2, 4 and 8
nodes, under each profile. `seatrial predict` then prints each measured case beside its prediction.
--trial predicts from a trial that was measured before.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ruamel.yaml import YAML

from seatrial.base.paths import CHECKOUT
from seatrial.predict.programs import make_kernel, suite_in
from seatrial.stack import STACK_FOLDER, stack_folder

BASE = CHECKOUT / "site-configs/lab-virtual-8"
RULES = "schema: 1\ninformative:\n  - {select: {}, metric: '*', reason: a measurement}\n"
TRANSPORT = "openmpi-tcp"
EP = "ep"  # for the speed of the nodes


def make_stack(folder: Path, suite: Path, kernels: list[str], problem_class: str) -> Path:
    """A folder with the labs' stack and the kernels in addition."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = json.loads((stack_folder() / "stack.json").read_text())
    for kernel in (EP, *kernels):
        built = make_kernel(suite, kernel, problem_class, "mpif90", "mpicc")
        program = folder / built.name
        shutil.copy(built, program)
        program.chmod(0o755)
        kept["transports"][TRANSPORT]["programs"][f"npb_{kernel}.{problem_class}"] = [str(program)]
    kept["origins"]["npb"] = f"NPB of {suite}"
    kept["id"] += "-npb"
    (folder / "stack.json").write_text(json.dumps(kept))
    return folder


def make_site(folder: Path, given: argparse.Namespace) -> Path:
    yaml = YAML()
    site = yaml.load((BASE / "site.yaml").read_text())
    site["name"] = folder.name
    common = {"profiles": given.profiles, "time_limit_s": 3600}
    site["benchmarks"] = {
        "comms": {"max_bytes": "1 MiB", "repetitions": 10, "warmup": 2, **common},
        "npb": {
            "nodes": given.nodes, "kernels": [EP, *given.kernels],
            "problem_class": given.problem_class, **common,
        },
    }  # fmt: skip
    site["trial"] |= {
        "repeats": given.repeats, "profiles": given.profiles, "time_limit_s": 14400,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "site.yaml").open("w") as stream:
        yaml.dump(site, stream)
    (folder / "requirements.yaml").write_text(RULES)
    return folder


def measure(given: argparse.Namespace) -> Path:
    """The folder of a new trial. Ends the program if it has none."""
    folder = given.folder / f"lab-virtual-npb-{given.problem_class.lower()}"
    copy = folder / "source"
    shutil.rmtree(copy, ignore_errors=True)
    suite = shutil.copytree(suite_in(given.source, copy), copy / "suite")
    stack = make_stack(folder / "stack", suite, given.kernels, given.problem_class)
    site, trials = make_site(folder / folder.name, given), folder / "trials"
    before = set(trials.glob("*/results.jsonl"))
    command = [CHECKOUT / "seatrial", "trial", "--site", site, "--output", trials]
    code = subprocess.run(command, env={**os.environ, STACK_FOLDER: str(stack)}, check=False)
    made = sorted(set(trials.glob("*/results.jsonl")) - before)
    if not made:
        raise SystemExit(f"the trial ended with {code.returncode}, and has no results")
    return made[-1].parent


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("--class", dest="problem_class", choices=list("SWABC"), default="S")
    parser.add_argument("--kernels", nargs="+", default=["ft", "cg", "lu"])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--profiles", nargs="+", default=["igb-off", "igb-125"])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--trial", type=Path)
    parser.add_argument("--folder", type=Path, default=CHECKOUT / ".seatrial/bench/prediction_npb")
    given = parser.parse_args()
    given.folder = given.folder.resolve()
    trial = given.trial or measure(given)
    failed = False
    for profile in given.profiles:
        for kernel in given.kernels:
            command = [
                CHECKOUT / "seatrial", "predict", trial, "--benchmark", f"npb-{kernel}",
                "--class", given.problem_class, "--profile", profile, "--nodes", "16",
                "--source", given.source,
            ]  # fmt: skip
            print(f"== {kernel} under {profile}", flush=True)
            failed |= subprocess.run(command, check=False).returncode != 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
