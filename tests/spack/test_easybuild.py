"""Easyconfigs: made from the table, the table as the Spack recipes have it, EasyBuild's view."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.base.errors import InputError
from seatrial.stack import easyconfigs

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "easybuild"
RECIPES = ROOT / "spack-repo" / "spack_repo" / "seatrial" / "packages"
EASYBUILD = "5.4.1"
#: kept between runs: 60 MB from PyPI
HOME = ROOT / ".seatrial" / f"easybuild-{EASYBUILD}"
LMOD = Path("/usr/share/lmod/lmod/libexec/lmod")


def stated(recipe: Path) -> dict[str, str]:
    """Version -> sha256 as the recipe's own text has them; builtin's are not in it."""
    found = {}
    for node in ast.walk(ast.parse(recipe.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "version":
            words = {word.arg: ast.literal_eval(word.value) for word in node.keywords}
            if "sha256" in words:
                found[ast.literal_eval(node.args[0])] = words["sha256"]
    return found


def test_the_committed_files_are_what_the_table_makes():
    made = easyconfigs.render(easyconfigs.load_table())
    found = {path.name: path.read_text() for path in COMMITTED.glob("*.eb")}
    assert found == made, "run: python -m seatrial.stack.easyconfigs easybuild"


def test_every_benchmark_package_has_one():
    table = easyconfigs.load_table()["packages"]
    # ACML and the transports are no benchmarks; EasyBuild's own BLAS libraries come with foss.
    others = {"acml", "mpi-transport"}
    recipes = {path.name.replace("_", "-") for path in RECIPES.iterdir() if path.is_dir()}
    assert set(table) == recipes - others - {"--pycache--"}


def test_versions_and_checksums_are_those_of_our_recipes():
    compared = []
    for name, package in easyconfigs.load_table()["packages"].items():
        versions = stated(RECIPES / name.replace("-", "_") / "package.py")
        if versions:
            assert versions.get(package["version"]) == package["sha256"], name
            compared.append(name)
    assert {"netpipe", "llcbench", "npb", "intel-mpi-benchmarks"} <= set(compared)


SPACK = """
import json, sys
import spack.repo
from spack.version import Version
for name, package in json.load(open(sys.argv[1]))["packages"].items():
    recipe = spack.repo.PATH.get_pkg_class("seatrial." + name)
    version = Version(package["version"])
    instance = object.__new__(recipe)
    url = recipe.versions[version].get("url") or recipe.url_for_version(instance, version)
    print(json.dumps([name, recipe.versions[version]["sha256"], url]))
"""


@pytest.mark.spack
def test_all_of_the_table_is_what_spack_says(spack, tmp_path):
    script = tmp_path / "table.py"
    script.write_text(SPACK)
    done = spack("python", str(script), str(easyconfigs.TABLE))
    assert done.returncode == 0, done.stdout + done.stderr
    table = easyconfigs.load_table()["packages"]
    said = {name: rest for name, *rest in map(json.loads, done.stdout.splitlines())}
    assert said == {name: [value["sha256"], value["url"]] for name, value in table.items()}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("sha256", "13dac884", "packages.netpipe.sha256: expected 64 hexadecimal digits"),
        ("toolchain", "intel", "expected gompi, foss or GCCcore, found intel"),
        ("version", None, "packages.netpipe.version: expected a text"),
    ],
)
def test_what_is_wrong_in_the_table_is_named(tmp_path, field, value, message):
    table = json.loads(easyconfigs.TABLE.read_text())
    table["packages"]["netpipe"][field] = value
    path = tmp_path / "versions.json"
    path.write_text(json.dumps(table))
    with pytest.raises(InputError, match=message):
        easyconfigs.load_table(path)


def test_files_of_older_versions_go(tmp_path):
    (tmp_path / "NetPIPE-3.7.1-gompi-2024a.eb").write_text("")
    (tmp_path / "README.md").write_text("kept")
    easyconfigs.write(tmp_path, {"NetPIPE-3.7.2-gompi-2025b.eb": "new"})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "NetPIPE-3.7.2-gompi-2025b.eb",
        "README.md",
    ]


@pytest.fixture(scope="session")
def eb():
    """Runs EasyBuild, in a virtual environment of its own."""
    if not LMOD.exists():
        pytest.skip("easybuild: needs a modules tool (Debian's package lmod)")
    program = HOME / "bin" / "eb"
    if not program.exists():
        commands = [
            [sys.executable, "-m", "venv", HOME],
            [HOME / "bin" / "pip", "install", "-q", f"easybuild=={EASYBUILD}", "pycodestyle"],
        ]
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                shutil.rmtree(HOME, ignore_errors=True)
                pytest.skip(f"easybuild: PyPI's {EASYBUILD} could not be had: {done.stderr[-200:]}")

    def run(folder, *words):
        environment = {
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LMOD_CMD": str(LMOD),
            "EASYBUILD_MODULES_TOOL": "Lmod",
            "EASYBUILD_PREFIX": str(folder / "prefix"),
            "EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES": "1",
        }
        shell = f'. {LMOD.parents[1]}/init/bash; exec "$@"'
        return subprocess.run(
            ["bash", "-c", shell, "bash", program, *words],
            env=environment,
            capture_output=True,
            text=True,
            cwd=folder,
        )

    return run


def test_easybuild_finds_all_dependencies(eb, tmp_path):
    files = sorted(COMMITTED.glob("*.eb"))
    done = eb(tmp_path, *files, "--dry-run", f"--robot={COMMITTED}")
    assert done.returncode == 0, done.stdout + done.stderr
    planned = {line.split()[3] for line in done.stdout.splitlines() if line.startswith(" * [ ]")}
    assert {str(path) for path in files} <= planned
    assert any("gompi-2025b.eb" in line for line in planned)  # found by itself


def test_easybuild_accepts_style_and_checksums(eb, tmp_path):
    done = eb(tmp_path, *sorted(COMMITTED.glob("*.eb")), "--check-contrib")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All contribution checks PASSed!" in done.stdout


def test_easybuild_refuses_a_missing_dependency(eb, tmp_path):
    """The dry run can fail: what it accepts above is not accepted in any case."""
    [source] = COMMITTED.glob("netperf-*.eb")
    broken = tmp_path / source.name
    broken.write_text(source.read_text().replace("('binutils', '2.44')", "('binutils', '0.1')"))
    done = eb(tmp_path, broken, "--dry-run", "--robot")
    assert done.returncode != 0
    assert "binutils/0.1" in done.stdout + done.stderr
