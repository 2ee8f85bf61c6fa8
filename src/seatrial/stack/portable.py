"""``matrix.lock``: what an environment resolved to, without anything of one machine.

Spack's own spack.lock names the folders of external packages, and hashes them into every spec
above: it is good for one machine only. This one holds a line per package with version, variants
and what it depends on; no folder, hash, operating system or target. It is compared, not fed back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seatrial.stack import build
from seatrial.stack.folders import Places

HEADER = "# What the environment resolved to. Written by `seatrial stack lock`: do not edit."
#: variants that say where a package comes from, not what it is
_NOT_VARIANTS = ("cflags", "cppflags", "cxxflags", "fflags", "ldflags", "ldlibs")


def lines(places: Places) -> list[str]:
    """A line per package of spack.lock, sorted; external ones are marked. Raises LabError."""
    graph = build.nodes(places)
    return sorted({_line(node, graph) for node in graph.values()})


def _line(node: dict[str, Any], graph: dict[str, dict[str, Any]]) -> str:
    words = [f"{node['name']}@{node['version']}"]
    for name, value in sorted(node.get("parameters", {}).items()):
        if name in _NOT_VARIANTS:
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


def write(places: Places) -> Path:
    """Write ``matrix.lock`` beside the environment. Raises LabError."""
    partial = places.portable_lock.with_suffix(".partial")
    partial.write_text("\n".join([HEADER, *lines(places)]) + "\n")
    partial.replace(places.portable_lock)
    return places.portable_lock


def differences(places: Places) -> list[str]:
    """What is not as ``matrix.lock`` says: ``-`` was expected, ``+`` is there instead.

    Empty where they agree, or where nothing was written yet. Raises LabError.
    """
    if not places.portable_lock.is_file():
        return []
    text = places.portable_lock.read_text().splitlines()
    expected = {line for line in text if line and not line.startswith("#")}
    found = set(lines(places))
    gone = [f"- {line}" for line in sorted(expected - found)]
    return gone + [f"+ {line}" for line in sorted(found - expected)]
