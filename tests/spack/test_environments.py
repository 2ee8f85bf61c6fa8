"""Every environment of the repository concretizes, for a generic machine and for this one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from seatrial.base.paths import CHECKOUT
from seatrial.stack import build, graph

pytestmark = [pytest.mark.spack, pytest.mark.timeout(3600)]

ENVIRONMENTS = sorted(
    file.parent
    for pattern in ("site-configs/*/spack/spack.yaml", "spack-repo/environments/*/spack.yaml")
    for file in CHECKOUT.glob(pattern)
)
#: MPI libraries of each, by what Spack calls them
MPIS = {
    "lab-spack": {"openmpi", "mpich", "intel-oneapi-mpi"},
    "example-cluster": {"openmpi", "mpich", "intel-oneapi-mpi"},
}
#: user time, s, of one concretization: five times what it takes on an idle machine, as other work
#: in the same caches doubles it
MOST_S = 250


LONG = pytest.mark.nightly(reason="environments of Spack, concretized whole")


def name_of(folder: Path) -> str:
    return folder.parent.name if folder.name == "spack" else folder.name


@pytest.fixture(params=ENVIRONMENTS, ids=name_of)
def environment(request, spack, tmp_path: Path) -> tuple[str, Path]:
    """A copy of an environment, that no lock or cache is left beside the original."""
    folder = request.param
    text = (folder / "spack.yaml").read_text()
    for name in ("../../../", "../base"):
        place = (folder / name).resolve()
        text = text.replace(f"- {name}", f"- {place}{'/' if name.endswith('/') else ''}")
    repos = tmp_path / "repos"
    repos.mkdir()
    shutil.copy(spack.paths.scope / "repos.yaml", repos)
    text = text.replace("  include:\n", f"  include:\n  - {repos}\n", 1)
    (tmp_path / "spack.yaml").write_text(text)
    return name_of(folder), tmp_path


def test_there_are_environments():
    assert {name_of(folder) for folder in ENVIRONMENTS} == set(MPIS)


@LONG
@pytest.mark.parametrize("target", ["x86_64", "native"])
def test_environment_concretizes(environment, spack, target: str):
    name, folder = environment
    native = spack("arch", "-t").stdout.strip()
    wanted = native if target == "native" else target
    before = os.times().children_user
    done = spack("-c", f"packages:all:require:: ['target={wanted}']", "-e", str(folder),
                 "concretize", "--force")  # fmt: skip
    took = os.times().children_user - before
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    lock = json.loads((folder / "spack.lock").read_text())
    nodes = lock["concrete_specs"]
    roots = [nodes[root["hash"]] for root in lock["roots"]]
    built = [node for node in nodes.values() if "external" not in node]
    assert {graph.target_of(node) for node in built} == {wanted}
    mpis = {
        nodes[part["hash"]]["name"]
        for node in roots
        for part in node.get("dependencies", ())
        if "mpi" in part["parameters"].get("virtuals", ())
    }
    assert mpis == MPIS[name]
    for node in roots:
        if node["name"] == "mpi-transport":
            assert len(node["dependencies"]) == 1, build.label(node, nodes)
    ours = {node["name"] for node in roots if node["namespace"] == "seatrial"}
    assert {"netpipe", "npb", "llcbench", "hpcc", "mpi-transport"} <= ours
    assert took < MOST_S


def test_audit_finds_nothing(spack):
    recipes = (CHECKOUT / "spack-repo/spack_repo/seatrial/packages").glob("*/package.py")
    names = [file.parent.name.replace("_", "-") for file in recipes]
    done = spack("audit", "packages", *names)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_repository_is_found_from_its_git_root():
    text = (CHECKOUT / "spack-repo-index.yaml").read_text()
    assert "spack-repo/spack_repo/seatrial" in text
    listing = subprocess.run(
        ["git", "-C", str(CHECKOUT), "ls-files", "spack-repo-index.yaml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert listing.returncode or listing.stdout
