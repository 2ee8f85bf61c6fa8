"""The Spack configuration of this machine that a site's environment includes.

Where packages and modules are installed, where builtin is, which build tools there are, and the
external MPI libraries. Everything that is the same on every machine is in
``spack-repo/environments`` and in the environment itself.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from seatrial.base.errors import LabError
from seatrial.base.paths import CHECKOUT
from seatrial.base.run import run
from seatrial.site.model import Stack
from seatrial.stack import apt, externals, install, machine
from seatrial.stack.folders import Places
from seatrial.stack.lock import locked

#: what recipes need to build with and every distribution has; a package manager's, not Spack's
#: -> the program by which one sees that it is there
TOOLS = {
    "gcc": "gcc", "gmake": "make", "perl": "perl", "python": "python3", "pkgconf": "pkg-config",
    "m4": "m4", "autoconf": "autoconf", "automake": "automake", "libtool": "libtoolize",
    "diffutils": "diff", "findutils": "find", "binutils": "ld", "cmake": "cmake", "tar": "tar",
    "gettext": "gettext",
}  # fmt: skip
#: language, as Spack names it -> the program to install where Spack has no compiler of it
COMPILERS = {"c": "gcc", "cxx": "g++", "fortran": "gfortran"}
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
NOTE = "# Written by `seatrial stack build`: do not edit.\n"
OURS = CHECKOUT / "spack-repo" / "spack_repo" / "seatrial"
TEMPLATES = CHECKOUT / "spack-repo" / "templates"


def write(places: Places, stack: Stack, say: install.Say) -> list[str]:
    """Write the scope. Returns the specs of the externals. Raises LabError."""
    with locked(places.folder / "scope.lock", say):
        return _write_all(places, stack, say)


def _write_all(places: Places, stack: Stack, say: install.Say) -> list[str]:
    write_section(places.scope / "config.yaml", {"config": config(places)})
    write_section(
        places.scope / "modules.yaml", {"modules": {"default": {"roots": module_roots(places)}}}
    )
    builtin = places.builtin / "repos" / "spack_repo" / "builtin"
    # The clone that is there already takes the place of the one that Spack would make; the
    # first repository wins, and this scope is before the one that has ours.
    text = f"{NOTE}repos:\n  seatrial: {OURS}\n  builtin:: {builtin}\n"
    _write(places.scope / "repos.yaml", text)
    _write(places.home / "config" / "repos.yaml", text)  # for commands without an environment
    _debian(stack.debian_packages, say)
    find_tools(places, say)
    pypi = dict(part.split("==") for part in stack.pypi_packages)
    return externals.write(places.externals, places.scope, pypi, say)


def config(places: Places) -> dict[str, Any]:
    return {
        "install_tree": {"root": str(places.home / "opt")},
        "source_cache": str(places.home / "sources"),
        "build_stage": [str(places.home / "stage")],
        "template_dirs": [
            str(places.folder / "templates"),
            str(TEMPLATES),
            "$spack/share/spack/templates",
        ],
        "build_jobs": len(os.sched_getaffinity(0)),
    }


def module_roots(places: Places) -> dict[str, str]:
    return {kind: str(places.module_root(kind)) for kind in ("lmod", "tcl")}


def new_tools(places: Places) -> list[str]:
    """Build tools that are not known yet: of the first look all, later those that have come."""
    file = places.tools
    known = YAML(typ="safe").load(file)["packages"] if file.exists() else {}
    return [
        name
        for name, program in TOOLS.items()
        if name not in known and (not known or shutil.which(program, path=SYSTEM_PATH))
    ]


def find_tools(places: Places, say: install.Say) -> None:
    """The distribution's build tools, in the scope that Seatrial's Spack has for its user."""
    names = new_tools(places)
    if not names:
        return
    file = places.tools
    say("looking for compilers and build tools")
    command = install.words(places, ["external", "find", "--scope", "user", *names])
    # the distribution's, not those of whatever environment this happens to be started in
    env = {**places.variables(), "PATH": SYSTEM_PATH}
    run(command, "looking for build tools", env=env)
    compiled = languages(places)
    if missing := [program for name, program in COMPILERS.items() if name not in compiled]:
        file.unlink(missing_ok=True)  # so that the next build looks again
        programs = " and ".join(missing)
        raise LabError(
            f"Spack found no {programs} in {SYSTEM_PATH}, and no other compiler in its place: "
            f"install {programs}, or declare a compiler in a scope of the site (stack.scopes)"
        )


def languages(places: Places) -> set[str]:
    """The languages that Spack has a compiler of, in all scopes: c, cxx, fortran."""
    arguments = ["config", "get", "packages"]
    text = install.spack(places, arguments, "asking Spack for its compilers")
    packages = YAML(typ="safe").load(text)["packages"]
    return {
        language
        for package in packages.values()
        for external in package.get("externals", ())
        for language in external.get("extra_attributes", {}).get("compilers", {})
    }


def _debian(packages: list[str], say: install.Say) -> None:
    installed = machine.installed() if packages else {}
    if missing := [name for name in packages if name not in installed]:
        machine.require_root("installing the Debian packages " + " ".join(missing))
        say(f"installing {len(missing)} Debian packages")
        apt.install(missing, say)


def write_section(file: Path, content: dict[str, Any]) -> None:
    """One section of Spack's configuration, as a file of a scope."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".partial").open("w") as stream:
        stream.write(NOTE)
        YAML().dump(content, stream)
    file.with_suffix(".partial").replace(file)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_suffix(".partial").write_text(text)
    file.with_suffix(".partial").replace(file)
