"""The dependency graph of spack.lock, with the prefix of each installed package.

Spack is not started.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seatrial.base.errors import LabError
from seatrial.stack import build
from seatrial.stack.model import Package
from seatrial.stack.paths import Paths

Node = dict[str, Any]
#: package that is built once per BLAS -> name and path of its program
PER_BLAS = {"hpl": ("xhpl", "bin/xhpl"), "hpcc": ("hpcc", "bin/hpcc")}


class Graph:
    """The nodes of spack.lock. ``prefixes`` maps the hash of an installed node to its prefix."""

    def __init__(self, paths: Paths) -> None:
        self.nodes = build.nodes(paths)
        self.roots = [self.nodes[key] for key in build.roots(paths)]
        self.prefixes = build.prefixes(paths)
        self.modules = paths.modules

    def prefix(self, node: Node) -> Path:
        """The prefix of a node. Raises LabError if the node is not installed."""
        if "external" in node:
            return Path(node["external"]["path"])
        try:
            return Path(self.prefixes[node["hash"]])
        except KeyError:
            raise LabError(f"{node['name']}@{node['version']} is not built") from None

    def provider(self, node: Node, virtual: str) -> Node | None:
        """The direct dependency that provides ``mpi`` or ``blas``, or None."""
        for part in node.get("dependencies", ()):
            if virtual in part.get("parameters", {}).get("virtuals", ()):
                return self.nodes[part["hash"]]
        return None

    def dependency(self, node: Node, name: str) -> Node | None:
        """The direct dependency of this name, or None."""
        for part in node.get("dependencies", ()):
            if part["name"] == name:
                return self.nodes[part["hash"]]
        return None

    def package(self, node: Node) -> Package:
        """The package of a node. Raises LabError if the node is not installed."""
        compiler = self.dependency(node, "gcc")
        words = [f"{node['name']}@{node['version']}"]
        words += [f"%gcc@{compiler['version']}"] if compiler else []
        words.append(f"target={target_of(node)}")
        for virtual in ("mpi", "blas"):
            other = self.provider(node, virtual)
            words += [f"^{other['name']}@{other['version']}"] if other else []
        return Package(
            name=node["name"],
            version=node["version"],
            spec=" ".join(words),
            hash=node["hash"],
            prefix=str(self.prefix(node)),
            module=self.module(node),
        )

    def module(self, node: Node) -> str:
        """The name of a program's module, by the projections of environments/base/modules.yaml."""
        parts = [node["version"]]
        mpi, blas = self.provider(node, "mpi"), self.provider(node, "blas")
        if mpi and self.modules == "tcl":  # one flat tree
            parts += [mpi["name"], mpi["version"]]
        if blas and node["name"] in PER_BLAS:
            parts.append(blas["name"])
        return f"{node['name']}/{'-'.join(parts)}"


def target_of(node: Node) -> str:
    target = node["arch"]["target"]
    return str(target["name"] if isinstance(target, dict) else target)
