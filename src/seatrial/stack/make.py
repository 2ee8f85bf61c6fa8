"""The steps of ``seatrial stack build``: prepare, concretize, build, write modules, describe."""

from __future__ import annotations

from pathlib import Path

from seatrial.base.lock import locked
from seatrial.base.say import Say
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
from seatrial.stack.model import FILE, Stack
from seatrial.stack.paths import Paths, site_paths


def prepare(site: Site, site_file: Path, say: Say) -> Paths:
    """Bring Spack, scope and spack.lock of a site up to date. Raises InputError and LabError."""
    paths = site_paths(site, site_file)
    versions = pins.read(paths.pins)
    paths.folder.mkdir(parents=True, exist_ok=True)
    with locked(paths.folder / "lock", say):
        key = _key(paths, site)
        stamp = paths.folder / "prepared"
        if not stamp.is_file() or stamp.read_text() != key:
            install.prepare(paths, versions, say)
            scope.write(paths, site.stack, say)
            stamp.write_text(_key(paths, site))
        build.concretize(paths, say)
    return paths


def _key(paths: Paths, site: Site) -> str:
    """Digest of the inputs of ``prepare``.

    They are the pins, the site, the commits of Spack and builtin, the written scope, the code that
    writes it, and the build tools that were installed since.
    """
    scope_files = sorted(paths.scope.glob("*.yaml"))
    scope_files += [Path(part.__file__ or "") for part in (scope, externals, wheels)]
    parts: list[str | bytes] = [paths.pins.read_bytes(), site.stack.model_dump_json()]
    parts += [install.commit_of(paths.root), install.commit_of(paths.builtin)]
    parts += [str((paths.venv / "bin/python").exists())]
    parts += scope.new_tools(paths)
    parts += [file.read_bytes() for file in scope_files]
    return digest(parts)


def build_stack(
    site: Site, site_file: Path, say: Say, *,
    mirror: Path | None = None, cache: Path | None = None,
) -> tuple[Outcome, Stack | None]:  # fmt: skip
    """Build the missing packages, write the modules, and describe the stack.

    If packages failed, the stack is described without their programs; it is None if no root is
    installed. Raises InputError and LabError.
    """
    paths = prepare(site, site_file, say)
    with locked(paths.folder / "lock", say):
        outcome = build.build(paths, say, transfer.options(paths, mirror, cache))
        if outcome.failures and set(build.roots(paths)) <= set(build.missing(paths)):
            return outcome, None
        modules.refresh(paths, say)
        stack = describe.describe(paths, pins.read(paths.pins))
        file = paths.folder / FILE
        if not file.is_file() or file.read_text() != stack.model_dump_json(indent=1) + "\n":
            stack.save()
    return outcome, stack
