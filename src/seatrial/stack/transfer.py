"""Source mirrors and build caches, for machines without internet."""

from __future__ import annotations

from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.run import run
from seatrial.base.say import Say
from seatrial.stack import build, install, scope
from seatrial.stack.paths import Paths

MIRROR = "seatrial-mirror"
CACHE = "seatrial-cache"


def mirror(paths: Paths, folder: Path, say: Say) -> int:
    """Write the source archives of all packages of spack.lock into a folder.

    Returns the number of files. Raises LabError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    say(f"writing the sources into {folder}")
    arguments = ["mirror", "create", "--all", "--directory", str(folder)]
    command = install.command_line(paths, arguments, environment=True)
    run(command, "writing the source mirror", env=paths.variables())
    return sum(1 for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def cache(paths: Paths, folder: Path, say: Say) -> int:
    """Write the binaries of all packages of spack.lock into a folder, unsigned.

    Returns the number of packages. Raises LabError if a package is not built.
    """
    if absent := build.missing(paths):
        graph = build.nodes(paths)
        names = ", ".join(build.label(graph[key], graph) for key in absent[:5])
        raise LabError(
            f"{len(absent)} packages are not built ({names} ...): "
            f"run `seatrial stack build --site {paths.site}`"
        )
    folder.mkdir(parents=True, exist_ok=True)
    say(f"writing the binaries into {folder}")
    # A cache has no externals: the machine that uses it must have them at the same prefix.
    arguments = ["buildcache", "push", "--unsigned", "--update-index", f"file://{folder}"]
    install.spack(paths, arguments, "writing the build cache", environment=True)
    graph = build.nodes(paths)
    return sum("external" not in node for node in graph.values())


def options(paths: Paths, mirror: Path | None, cache: Path | None) -> list[str]:
    """Options for a Spack command that make it search these folders first.

    Writes the configuration scope that they name.
    """
    entries: dict[str, dict[str, object]] = {}
    if mirror:
        entries[MIRROR] = {"url": mirror.resolve().as_uri(), "source": True, "binary": False}
    if cache:
        url = cache.resolve().as_uri()
        entries[CACHE] = {"url": url, "source": False, "binary": True, "signed": False}
    if not entries:
        return []
    folder = paths.folder / "transfer"
    scope.write_section(folder / "mirrors.yaml", {"mirrors": entries})
    return ["-C", str(folder)]
