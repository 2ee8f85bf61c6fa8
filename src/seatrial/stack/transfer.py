"""For machines without internet: the sources of a matrix, or its binaries, in a folder."""

from __future__ import annotations

from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.run import run
from seatrial.stack import build, install, scope
from seatrial.stack.folders import Places

MIRROR = "seatrial-mirror"
CACHE = "seatrial-cache"


def mirror(places: Places, folder: Path, say: install.Say) -> int:
    """Put the source archives of all that spack.lock builds into a folder; how many files.

    Raises LabError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    say(f"writing the sources into {folder}")
    arguments = ["mirror", "create", "--all", "--directory", str(folder)]
    command = install.words(places, arguments, environment=True)
    run(command, "writing the source mirror", env=places.variables())
    return sum(1 for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def cache(places: Places, folder: Path, say: install.Say) -> int:
    """Put the binaries of all that is installed into a folder, unsigned; how many packages.

    Raises LabError where the environment is not built.
    """
    if absent := build.missing(places):
        graph = build.nodes(places)
        names = ", ".join(build.label(graph[key], graph) for key in absent[:5])
        raise LabError(
            f"{len(absent)} packages are not built ({names} ...): "
            f"run `seatrial stack build --site {places.site}`"
        )
    folder.mkdir(parents=True, exist_ok=True)
    say(f"writing the binaries into {folder}")
    # externals are not in a cache: the machine that uses it must have them at the same place
    arguments = ["buildcache", "push", "--unsigned", "--update-index", f"file://{folder}"]
    install.spack(places, arguments, "writing the build cache", environment=True)
    graph = build.nodes(places)
    return sum("external" not in node for node in graph.values())


def options(places: Places, mirror: Path | None, cache: Path | None) -> list[str]:
    """Options before Spack's command that make it look in these folders first.

    They name a scope that is written for it, of this one command.
    """
    entries: dict[str, dict[str, object]] = {}
    if mirror:
        entries[MIRROR] = {"url": mirror.resolve().as_uri(), "source": True, "binary": False}
    if cache:
        url = cache.resolve().as_uri()
        entries[CACHE] = {"url": url, "source": False, "binary": True, "signed": False}
    if not entries:
        return []
    folder = places.folder / "transfer"
    scope.write_section(folder / "mirrors.yaml", {"mirrors": entries})
    return ["-C", str(folder)]
