"""``matrix.lock``: the concretized environment, in a form that does not depend on the machine.

spack.lock has the prefixes of external packages, and the hash of each spec depends on them: it is
valid on one machine only. matrix.lock has one line per package: version, variants and
dependencies; no prefix, hash, operating system or target. It is only compared; Spack does not read
it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seatrial.base.files import write_whole
from seatrial.stack import build
from seatrial.stack.paths import Paths

HEADER = "# The concretized environment. Written by `seatrial stack lock`: do not edit."
#: parameters of a spec that are compiler flags, not variants
_FLAGS = ("cflags", "cppflags", "cxxflags", "fflags", "ldflags", "ldlibs")


def lines(paths: Paths) -> list[str]:
    """One line per package of spack.lock, sorted. Raises LabError if there is no spack.lock."""
    graph = build.nodes(paths)
    return sorted({_line(node, graph) for node in graph.values()})


def _line(node: dict[str, Any], graph: dict[str, dict[str, Any]]) -> str:
    words = [f"{node['name']}@{node['version']}"]
    for name, value in sorted(node.get("parameters", {}).items()):
        if name in _FLAGS:
            words += [f"{name}={' '.join(value)}"] if value else []
        elif isinstance(value, bool):
            words.append(f"{'+' if value else '~'}{name}")
        elif isinstance(value, list):
            words.append(f"{name}={','.join(map(str, value))}")
        else:
            words.append(f"{name}={value}")
    for part in sorted(node.get("dependencies", ()), key=lambda part: part["name"]):
        words.append(f"^{part['name']}@{graph[part['hash']]['version']}")
    if "external" in node:
        words.append("(external)")
    return " ".join(words)


def write(paths: Paths) -> Path:
    """Write ``matrix.lock`` beside the environment. Raises LabError."""
    write_whole(paths.portable_lock, "\n".join([HEADER, *lines(paths)]) + "\n")
    return paths.portable_lock


def differences(paths: Paths) -> list[str]:
    """The lines that differ: ``-`` is only in ``matrix.lock``, ``+`` only in spack.lock.

    Empty if there is no ``matrix.lock``. Raises LabError if there is no spack.lock.
    """
    if not paths.portable_lock.is_file():
        return []
    text = paths.portable_lock.read_text().splitlines()
    expected = {line for line in text if line and not line.startswith("#")}
    actual = set(lines(paths))
    removed = [f"- {line}" for line in sorted(expected - actual)]
    return removed + [f"+ {line}" for line in sorted(actual - expected)]
