"""The module trees of a site: what Spack generates from our templates, and the figures in them."""

from __future__ import annotations

import shutil
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.results.record import Results
from seatrial.stack import build, install, scope
from seatrial.stack import hashes as figures
from seatrial.stack.files import digest, fresh, replace
from seatrial.stack.folders import Places

KINDS = ("lmod", "tcl")


def refresh(places: Places, say: install.Say, *, force: bool = False) -> bool:
    """Write both trees anew where packages, templates or figures changed. Raises LabError."""
    stamp = places.folder / "modules" / "stamp"
    wanted = _inputs(places)
    if not force and stamp.is_file() and stamp.read_text() == wanted:
        return False
    say("writing the modules")
    for kind in KINDS:
        # By hand: Spack's --delete-tree would ask for its upstreams and the user's other trees.
        shutil.rmtree(places.module_root(kind), ignore_errors=True)
        arguments = ["module", kind, "refresh", "--yes-to-all"]
        install.spack(places, arguments, f"writing the {kind} modules", environment=True)
        if not any(places.module_root(kind).rglob("*")):
            raise LabError(f"Spack wrote no {kind} modules into {places.module_root(kind)}")
    stamp.write_text(wanted)
    return True


def _inputs(places: Places) -> str:
    files = [file for folder in (scope.TEMPLATES, templates(places)) for file in folder.rglob("*")]
    parts: list[str | bytes] = [build.inputs(places), places.lock.read_bytes()]
    parts += sorted(set(build.nodes(places)) - set(build.missing(places)))
    for file in sorted(files):
        if file.is_file():
            parts += [str(file), file.read_bytes()]
    return digest(parts)


def templates(places: Places) -> Path:
    """Where the templates look for a transport's figures."""
    return places.folder / "templates"


def take_figures(places: Places, results: Results) -> dict[str, str]:
    """Keep a trial's figures for the modules; returns them by transport."""
    found = figures.texts(results)
    partial = fresh(templates(places).with_suffix(".partial"))
    (partial / "figures").mkdir()
    for name, text in found.items():
        (partial / "figures" / f"{name}.txt").write_text(text)
    replace(partial, templates(places))
    return found
