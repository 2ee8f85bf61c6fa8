"""Easyconfigs: what they say of the sources is what the Spack recipes say; EasyBuild accepts them.

Nothing is built.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.base.paths import CHECKOUT

EASYCONFIGS = sorted((CHECKOUT / "easybuild").glob("*.eb"))
RECIPES = CHECKOUT / "spack-repo" / "spack_repo" / "seatrial" / "packages"
#: EasyBuild's name of a package -> Spack's, where they differ in more than case
SPACK_NAMES = {"IMB": "intel-mpi-benchmarks", "iperf": "iperf3"}
#: easyconfigs that EasyBuild itself has
UPSTREAM = {"hpl": "HPL-2.3-foss-2025b.eb"}
#: programs without a release of their own: the source is one C file beside the recipe
NO_ARCHIVE = {"comms", "mpi-pairs", "mpi-time"}
#: recipes that are not of a benchmark
NO_BENCHMARK = {"acml", "mpi-transport"}
EASYBUILD = "5.4.1"
#: kept between runs: 60 MB from PyPI
HOME = CHECKOUT / ".seatrial" / f"easybuild-{EASYBUILD}"
LMOD = Path("/usr/share/lmod/lmod/libexec/lmod")
WITH_EASYBUILD = pytest.mark.nightly(reason="easyconfigs in EasyBuild, which PyPI has")


def literals(tree: ast.Module | ast.ClassDef) -> dict[str, Any]:
    """Name -> value of each assignment of a literal."""
    values = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                values[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return values


def easyconfig(file: Path) -> dict[str, Any]:
    """The literal parameters of an easyconfig; ``sha256`` and ``url`` are its source's."""
    values = literals(ast.parse(file.read_text()))
    [source] = values["sources"]
    [folder] = values["source_urls"]
    checksum = values["checksums"][0]
    sha256 = checksum[source] if isinstance(checksum, dict) else checksum
    return {**values, "sha256": sha256, "url": folder + source}


def spack_name(config: dict[str, Any]) -> str:
    return SPACK_NAMES.get(config["name"], config["name"].lower())


def stated(recipe: Path) -> dict[str, str]:
    """Version -> sha256 of a recipe's own text, without those it inherits from builtin."""
    found = {}
    for node in ast.walk(ast.parse(recipe.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "version":
            words = {word.arg: word.value for word in node.keywords}
            if "sha256" in words:
                version = ast.literal_eval(node.args[0])
                found[version] = ast.literal_eval(words["sha256"])
    return found


@pytest.mark.parametrize("file", EASYCONFIGS, ids=lambda file: file.stem)
def test_file_name_follows_easybuilds_rule(file):
    config = easyconfig(file)
    toolchain = config["toolchain"]
    parts = (config["name"], config["version"], toolchain["name"], toolchain["version"])
    assert file.stem == "-".join(parts)
    assert re.fullmatch("[0-9a-f]{64}", config["sha256"])


def test_every_benchmark_has_one():
    configs = [spack_name(easyconfig(file)) for file in EASYCONFIGS]
    recipes = {file.parent.name.replace("_", "-") for file in RECIPES.glob("*/package.py")}
    assert sorted([*configs, *UPSTREAM]) == sorted(recipes - NO_BENCHMARK - NO_ARCHIVE)


def test_versions_and_checksums_are_those_of_our_recipes():
    compared = []
    for config in map(easyconfig, EASYCONFIGS):
        name = spack_name(config)
        versions = stated(RECIPES / name.replace("-", "_") / "package.py")
        if versions:
            assert versions.get(config["version"]) == config["sha256"], name
            compared.append(name)
    assert {"netpipe", "llcbench", "npb", "intel-mpi-benchmarks"} <= set(compared)


SPACK = """
import json, sys
import spack.repo
from spack.version import Version
for name, version in json.loads(sys.argv[1]):
    recipe = spack.repo.PATH.get_pkg_class("seatrial." + name)
    version = Version(version)
    instance = object.__new__(recipe)
    url = recipe.versions[version].get("url") or recipe.url_for_version(instance, version)
    print(json.dumps([name, recipe.versions[version]["sha256"], url]))
"""


@pytest.mark.spack
def test_checksums_and_addresses_are_what_spack_says(spack, tmp_path):
    configs = {spack_name(config): config for config in map(easyconfig, EASYCONFIGS)}
    script = tmp_path / "recipes.py"
    script.write_text(SPACK)
    asked = json.dumps([[name, config["version"]] for name, config in configs.items()])
    done = spack("python", str(script), asked)
    assert done.returncode == 0, done.stdout + done.stderr
    said = {name: rest for name, *rest in map(json.loads, done.stdout.splitlines())}
    assert said == {name: [config["sha256"], config["url"]] for name, config in configs.items()}


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


@WITH_EASYBUILD
def test_easybuild_finds_all_dependencies(eb, tmp_path):
    words = [*EASYCONFIGS, *UPSTREAM.values()]
    done = eb(tmp_path, *words, "--dry-run", f"--robot={CHECKOUT / 'easybuild'}")
    assert done.returncode == 0, done.stdout + done.stderr
    planned = {line.split()[3] for line in done.stdout.splitlines() if line.startswith(" * [ ]")}
    assert {str(file) for file in EASYCONFIGS} <= planned
    assert set(UPSTREAM.values()) <= {Path(file).name for file in planned}
    assert any("gompi-2025b.eb" in line for line in planned)  # found by itself


@WITH_EASYBUILD
def test_easybuild_accepts_style_and_checksums(eb, tmp_path):
    done = eb(tmp_path, *EASYCONFIGS, "--check-contrib")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All contribution checks PASSed!" in done.stdout


@WITH_EASYBUILD
def test_easybuild_refuses_a_missing_dependency(eb, tmp_path):
    """The dry run can fail: what it accepts above is not accepted in any case."""
    [source] = [file for file in EASYCONFIGS if file.name.startswith("netperf-")]
    broken = tmp_path / source.name
    broken.write_text(source.read_text().replace("('binutils', '2.44')", "('binutils', '0.1')"))
    done = eb(tmp_path, broken, "--dry-run", "--robot")
    assert done.returncode != 0
    assert "binutils/0.1" in done.stdout + done.stderr
