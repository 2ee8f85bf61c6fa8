"""From a site to its built, described stack with modules: the steps of ``seatrial stack build``."""

from __future__ import annotations

from pathlib import Path

from seatrial.site.model import Site
from seatrial.stack import (
    build,
    describe,
    externals,
    install,
    modules,
    pins,
    scope,
    transfer,
    wheels,
)
from seatrial.stack.build import Outcome
from seatrial.stack.files import digest
from seatrial.stack.folders import Places, places
from seatrial.stack.lock import locked
from seatrial.stack.model import FILE, Stack


def prepare(site: Site, site_file: Path, say: install.Say) -> Places:
    """Spack, scope and lock of a site, all up to date. Raises InputError and LabError."""
    found = places(site, site_file)
    wanted = pins.read(found.pins)
    found.folder.mkdir(parents=True, exist_ok=True)
    with locked(found.folder / "lock", say):
        key = _key(found, site)
        stamp = found.folder / "prepared"
        if not stamp.is_file() or stamp.read_text() != key:
            install.prepare(found, wanted, say)
            scope.write(found, site.stack, say)
            stamp.write_text(_key(found, site))
        build.concretize(found, say)
    return found


def _key(found: Places, site: Site) -> str:
    """Changes with whatever ``prepare`` depends on: pins, site, Spack's commit, own scope, the code
    that writes it, and build tools that have come since."""
    scope_files = sorted(found.scope.glob("*.yaml"))
    scope_files += [Path(part.__file__ or "") for part in (scope, externals, wheels)]
    parts: list[str | bytes] = [found.pins.read_bytes(), site.stack.model_dump_json()]
    parts += [install.commit_of(found.root), install.commit_of(found.builtin)]
    parts += [str((found.venv / "bin/python").exists())]
    parts += scope.new_tools(found)
    parts += [file.read_bytes() for file in scope_files]
    return digest(parts)


def make(
    site: Site, site_file: Path, say: install.Say, *,
    mirror: Path | None = None, cache: Path | None = None,
) -> tuple[Outcome, Stack | None]:  # fmt: skip
    """Build what is missing, write the modules, and describe the stack.

    The stack is described also where some packages failed: their programs are left out; it is
    None where nothing could be described. Raises InputError and LabError.
    """
    found = prepare(site, site_file, say)
    with locked(found.folder / "lock", say):
        outcome = build.build(found, say, transfer.options(found, mirror, cache))
        if outcome.failures and set(build.roots(found)) <= set(build.missing(found)):
            return outcome, None
        modules.refresh(found, say)
        stack = describe.describe(found, pins.read(found.pins))
        file = found.folder / FILE
        if not file.is_file() or file.read_text() != stack.model_dump_json(indent=1) + "\n":
            stack.save()
    return outcome, stack
