"""The module trees of a site: Spack writes them from our templates, with a trial's figures."""

from __future__ import annotations

import shutil
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.files import write_whole
from seatrial.base.say import Say
from seatrial.stack import build, install, scope
from seatrial.stack.files import digest, fresh, replace
from seatrial.stack.paths import Paths

KINDS = ("lmod", "tcl")


def refresh(paths: Paths, say: Say, *, force: bool = False) -> bool:
    """Write both trees if packages, templates or figures changed; True if they were written.

    Raises LabError.
    """
    write_site(paths)
    stamp = paths.folder / "modules" / "stamp"
    key = _inputs_digest(paths)
    if not force and stamp.is_file() and stamp.read_text() == key:
        return False
    say("writing the modules")
    for kind in KINDS:
        # Not with Spack's --delete-tree, which asks for its upstreams and the user's other trees.
        shutil.rmtree(paths.module_root(kind), ignore_errors=True)
        arguments = ["module", kind, "refresh", "--yes-to-all"]
        install.spack(paths, arguments, f"writing the {kind} modules", environment=True)
        if not any(paths.module_root(kind).rglob("*")):
            raise LabError(f"Spack wrote no {kind} modules into {paths.module_root(kind)}")
    stamp.write_text(key)
    return True


def _inputs_digest(paths: Paths) -> str:
    folders = (scope.TEMPLATES, site_templates(paths))
    files = [file for folder in folders for file in folder.rglob("*")]
    parts: list[str | bytes] = [build.inputs_digest(paths), paths.lock.read_bytes()]
    parts += sorted(set(build.nodes(paths)) - set(build.missing(paths)))
    for file in sorted(files):
        if file.is_file():
            parts += [str(file), file.read_bytes()]
    return digest(parts)


def write_site(paths: Paths) -> None:
    """Write the template that gives the site's name and Slurm cluster to the others."""
    file = site_templates(paths) / "site.j2"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = f'{{% set site = "{paths.site}" %}}\n{{% set cluster = "{paths.cluster}" %}}\n'
    write_whole(file, text)


def site_templates(paths: Paths) -> Path:
    """The template folder of the site: its name, and the figures of its transports."""
    return paths.folder / "templates"


def save_figures(paths: Paths, texts: dict[str, str]) -> None:
    """Save the figures (transport -> text) for the next ``refresh``."""
    folder = site_templates(paths) / "figures"
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = fresh(folder.with_suffix(".partial"))
    for name, text in texts.items():
        (partial / f"{name}.txt").write_text(text)
    replace(partial, folder)
