"""What the Spack tests share: Spack itself at the pins, and environments of a test's own.

Needed is a clone in .seatrial/spack, or $SEATRIAL_SPACK, or github.com; the root conftest skips
the tests where all are missing.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from seatrial.base.paths import CHECKOUT
from seatrial.site.load import load_site, site_file
from seatrial.site.model import Site
from seatrial.stack import install, pins, scope
from seatrial.stack.paths import Paths, site_paths

SITE = "lab-spack"
ENVIRONMENTS = CHECKOUT / "spack-repo" / "environments"


@dataclass(frozen=True)
class Spack:
    """Spack at the pins. Called with words of a command; packages go to a store of the tests."""

    paths: Paths
    site: Site
    store: Path

    def __call__(self, *words: str, timeout: int = 3000) -> subprocess.CompletedProcess[str]:
        """A Spack command and what it said; the caller looks at its return code."""
        # Not the machine's stage: Spack takes what an earlier run left there as fetched.
        own = ("-c", f"config:install_tree:root:{self.store}",
               "-c", f"config:build_stage:{self.store.parent / 'stage'}")  # fmt: skip
        return subprocess.run(
            [str(self.paths.spack), *own, *words],
            env={**os.environ, **self.paths.variables()},
            capture_output=True, text=True, check=False, timeout=timeout,
        )  # fmt: skip

    def environment(self, folder: Path, specs: list[str], *lines: str) -> Paths:
        """A small environment with the lab's configuration, and a home of its own for what is
        installed."""
        environment = folder / "environment"
        environment.mkdir(parents=True)
        mine = dataclasses.replace(self.paths, environment=environment, site="test", home=folder)
        for name in ("python", "builtin", "config", "cache"):
            (folder / name).symlink_to(self.paths.home / name)
        shutil.copytree(self.paths.scope, mine.scope)
        scope.write_section(mine.scope / "config.yaml", {"config": scope.config(mine)})
        roots = {"default": {"roots": scope.module_roots(mine)}}
        scope.write_section(mine.scope / "modules.yaml", {"modules": roots})
        includes = [mine.scope, ENVIRONMENTS / "external-mpi", ENVIRONMENTS / "base"]
        text = ["spack:", "  view: false", "  include:", *(f"  - {path}" for path in includes)]
        text += [f"  {line}" for line in lines]
        text += ["  specs:", *(f"  - {spec}" for spec in specs)]
        (environment / "spack.yaml").write_text("\n".join(text) + "\n")
        shutil.copy(self.paths.pins, environment)
        return mine


@pytest.fixture(scope="session")
def spack(tmp_path_factory) -> Spack:
    """Spack, brought to the pins of the lab's environment."""
    file = site_file(SITE)
    site = load_site(file)
    found = site_paths(site, file)
    install.prepare(found, pins.read(found.pins), print)
    scope.write(found, site.stack, print)
    return Spack(found, site, tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="session")
def mpi_scope(spack: Spack, tmp_path_factory) -> Path:
    """A folder for Spack's -C that declares the external MPI libraries of the lab."""
    folder = tmp_path_factory.mktemp("mpi-scope")
    shutil.copy(spack.paths.scope / "packages.yaml", folder)
    return folder


@pytest.fixture(scope="session")
def shared(mpi_scope: Path, tmp_path_factory) -> list[str]:
    """Options of Spack: what the project's environments share, with which a solution takes a fifth
    of the time, and the external MPI libraries of the lab. No modules are written."""
    folder = tmp_path_factory.mktemp("shared")
    for name in ("concretizer.yaml", "packages.yaml"):
        shutil.copy(ENVIRONMENTS / "base" / name, folder)
    scopes = (folder, ENVIRONMENTS / "external-mpi", mpi_scope)
    return [word for scope in scopes for word in ("-C", str(scope))]
