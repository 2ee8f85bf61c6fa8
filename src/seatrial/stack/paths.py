"""The files and folders of a site's Spack stack.

Nothing is written here.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from seatrial.base.errors import InputError, LabError, Problem
from seatrial.base.paths import CHECKOUT
from seatrial.site.model import Site

#: environment variable: the Spack to use if the site names none
ROOT = "SEATRIAL_SPACK"
#: the folder of Seatrial's own Spack and of everything that Spack installs
HOME = CHECKOUT / ".seatrial" / "spack"
GITHUB = "https://github.com/spack/spack"
ENVIRONMENT = "spack"  #: folder beside site.yaml


@dataclass(frozen=True)
class Paths:
    """Files and folders of the Spack stack of one site."""

    site: str
    site_file: Path
    environment: Path
    root: Path
    own_root: bool
    """whether Seatrial clones ``root``, and may replace it"""
    scopes: tuple[Path, ...] = ()
    home: Path = HOME
    modules: str = "lmod"
    cluster: str = ""
    """ClusterName of the site's slurm.conf, for the modules; empty: unknown"""

    @property
    def spack(self) -> Path:
        return self.root / "bin" / "spack"

    @property
    def venv(self) -> Path:
        """The virtual environment with clingo, for SPACK_PYTHON."""
        return self.home / "python"

    @property
    def builtin(self) -> Path:
        return self.home / "builtin"

    @property
    def folder(self) -> Path:
        """Folder of what is written for this site: scope, modules, stack.json."""
        return self.home / "sites" / self.site

    @property
    def scope(self) -> Path:
        """The Spack configuration of this machine, which the environment includes."""
        return self.folder / "scope"

    @property
    def tools(self) -> Path:
        """packages.yaml with the build tools of the distribution, for all sites."""
        return self.home / "config" / "packages.yaml"

    @property
    def externals(self) -> Path:
        return self.folder / "externals"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def pins(self) -> Path:
        return self.environment / "pins.yaml"

    @property
    def lock(self) -> Path:
        return self.environment / "spack.lock"

    @property
    def portable_lock(self) -> Path:
        return self.environment / "matrix.lock"

    def module_root(self, kind: str) -> Path:
        return self.folder / "modules" / kind

    def variables(self) -> dict[str, str]:
        """Environment variables of every Spack command.

        Spack reads the settings of the system (/etc/spack), not those of the user (~/.spack).
        Without byte code each command would compile 600 modules again.
        """
        return {
            "PYTHONDONTWRITEBYTECODE": "",
            "SPACK_PYTHON": str(self.venv / "bin" / "python"),
            "SPACK_USER_CONFIG_PATH": str(self.home / "config"),
            "SPACK_USER_CACHE_PATH": str(self.home / "cache"),
            "SPACK_SKIP_MODULES": "1",
        }


def check_spack(home: Path | None = None) -> None:
    """Raises LabError if there is no Spack here and GitHub does not answer within 10 s."""
    given = os.environ.get(ROOT)
    if given and (Path(given) / "bin" / "spack").is_file():
        return
    if ((home or HOME) / "spack" / "bin" / "spack").is_file():
        return
    command = ["git", "ls-remote", "--exit-code", GITHUB, "HEAD"]
    env = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(command, capture_output=True, env=env, timeout=10, check=False)
        reached = done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        reached = False
    if not reached:
        raise LabError(f"there is no Spack in {home or HOME}, and {GITHUB} cannot be reached")


def site_paths(site: Site, site_file: Path, home: Path | None = None) -> Paths:
    """The files and folders of a site with ``stack: {source: spack}``.

    Raises InputError if the site has another source, no environment, or a scope that is missing.
    """
    file = site_file.resolve()
    if site.stack.source != "spack":
        problem = Problem(
            file, None, "stack.source", f"the stack of {site.name} is {site.stack.source}'s",
            "source: spack, or `seatrial stack provision`",
        )  # fmt: skip
        raise InputError([problem])
    environment = file.parent / (site.stack.environment or ENVIRONMENT)
    if not (environment / "spack.yaml").is_file():
        problem = Problem(
            file, None, "stack.environment", f"there is no {environment / 'spack.yaml'}",
            "write one (docs/maintain-the-stack.md), or name its folder",
        )  # fmt: skip
        raise InputError([problem])
    home = home or HOME
    given = site.stack.root or os.environ.get(ROOT)
    scopes = tuple((file.parent / scope).resolve() for scope in site.stack.scopes)
    for index, scope in enumerate(scopes):
        if not scope.is_dir():
            raise InputError(
                [Problem(file, None, f"stack.scopes.{index}", f"there is no folder {scope}")]
            )
    return Paths(
        site=site.name,
        site_file=file,
        environment=environment.resolve(),
        root=Path(given) if given else home / "spack",
        own_root=not given,
        scopes=scopes,
        home=home,
        modules=site.stack.modules,
        cluster=site.slurm.cluster or "",
    )
