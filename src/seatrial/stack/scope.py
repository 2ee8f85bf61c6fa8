"""The Spack configuration scope of this machine, which a site's environment includes.

It has the folders of packages, modules and repositories, the build tools, and the external MPI
libraries. Settings that are the same on every machine are in ``spack-repo/environments`` and in
the environment itself.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from seatrial.base.errors import LabError
from seatrial.base.files import replacing, write_whole
from seatrial.base.lock import locked
from seatrial.base.paths import CHECKOUT
from seatrial.base.run import run
from seatrial.base.say import Say
from seatrial.site.model import Stack
from seatrial.stack import apt, externals, install, machine
from seatrial.stack.paths import Paths

#: Spack's name of a build tool that is taken from the distribution -> its program
TOOLS = {
    "gcc": "gcc", "gmake": "make", "perl": "perl", "python": "python3", "pkgconf": "pkg-config",
    "m4": "m4", "autoconf": "autoconf", "automake": "automake", "libtool": "libtoolize",
    "diffutils": "diff", "findutils": "find", "binutils": "ld", "cmake": "cmake", "tar": "tar",
    "gettext": "gettext",
}  # fmt: skip
#: Spack's name of a language -> the compiler to install if Spack finds none
COMPILERS = {"c": "gcc", "cxx": "g++", "fortran": "gfortran"}
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
NOTE = "# Written by `seatrial stack build`: do not edit.\n"
OURS = CHECKOUT / "spack-repo" / "spack_repo" / "seatrial"
TEMPLATES = CHECKOUT / "spack-repo" / "templates"


def write(paths: Paths, stack: Stack, say: Say) -> list[str]:
    """Write the scope. Returns the specs of the external packages. Raises LabError."""
    with locked(paths.folder / "scope.lock", say):
        return _write_all(paths, stack, say)


def _write_all(paths: Paths, stack: Stack, say: Say) -> list[str]:
    write_section(paths.scope / "config.yaml", {"config": config(paths)})
    write_section(
        paths.scope / "modules.yaml", {"modules": {"default": {"roots": module_roots(paths)}}}
    )
    builtin = paths.builtin / "repos" / "spack_repo" / "builtin"
    # "builtin::" replaces the repository that Spack would clone. The first repository of the list
    # has priority.
    text = f"{NOTE}repos:\n  seatrial: {OURS}\n  builtin:: {builtin}\n"
    _write(paths.scope / "repos.yaml", text)
    _write(paths.home / "config" / "repos.yaml", text)  # for commands without an environment
    _install_debian_packages(stack.debian_packages, say)
    find_tools(paths, say)
    pypi = dict(part.split("==") for part in stack.pypi_packages)
    return externals.write(paths.externals, paths.scope, pypi, say)


def config(paths: Paths) -> dict[str, Any]:
    """The ``config`` section: folders and number of build jobs."""
    return {
        "install_tree": {"root": str(paths.home / "opt")},
        "source_cache": str(paths.home / "sources"),
        "build_stage": [str(paths.home / "stage")],
        "template_dirs": [
            str(paths.folder / "templates"),
            str(TEMPLATES),
            "$spack/share/spack/templates",
        ],
        "build_jobs": len(os.sched_getaffinity(0)),
    }


def module_roots(paths: Paths) -> dict[str, str]:
    """The ``roots`` of the ``modules`` section."""
    return {kind: str(paths.module_root(kind)) for kind in ("lmod", "tcl")}


def new_tools(paths: Paths) -> list[str]:
    """The build tools to search for: at first all, later those that were installed since."""
    file = paths.tools
    known = YAML(typ="safe").load(file)["packages"] if file.exists() else {}
    return [
        name
        for name, program in TOOLS.items()
        if name not in known and (not known or shutil.which(program, path=SYSTEM_PATH))
    ]


def find_tools(paths: Paths, say: Say) -> None:
    """Declare the distribution's build tools in the user scope of Seatrial's Spack.

    Raises LabError if there is no compiler of C, C++ or Fortran.
    """
    names = new_tools(paths)
    if not names:
        return
    file = paths.tools
    say("looking for compilers and build tools")
    command = install.command_line(paths, ["external", "find", "--scope", "user", *names])
    # the distribution's tools, not those of the shell that starts this command
    env = {**paths.variables(), "PATH": SYSTEM_PATH}
    run(command, "looking for build tools", env=env)
    compiled = languages(paths)
    if missing := [program for name, program in COMPILERS.items() if name not in compiled]:
        file.unlink(missing_ok=True)  # so that the next build looks again
        programs = " and ".join(missing)
        raise LabError(
            f"Spack found no {programs} in {SYSTEM_PATH}: install {programs}, "
            "or declare another compiler in a scope of the site (stack.scopes)"
        )


def languages(paths: Paths) -> set[str]:
    """The languages (c, cxx, fortran) for which a scope of the site declares a compiler."""
    arguments = ["config", "get", "packages"]
    text = install.spack(paths, arguments, "asking Spack for its compilers")
    packages = YAML(typ="safe").load(text)["packages"]
    return {
        language
        for package in packages.values()
        for external in package.get("externals", ())
        for language in external.get("extra_attributes", {}).get("compilers", {})
    }


def _install_debian_packages(packages: list[str], say: Say) -> None:
    installed = machine.installed() if packages else {}
    if missing := [name for name in packages if name not in installed]:
        machine.require_root("installing the Debian packages " + " ".join(missing))
        say(f"installing {len(missing)} Debian packages")
        apt.install(missing, say)


def write_section(file: Path, content: dict[str, Any]) -> None:
    """Write one section of Spack's configuration into a file of a scope."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as stream:
        stream.write(NOTE.encode())
        YAML().dump(content, stream)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text)
