"""spack.lock and the prefixes that Spack gave its packages, as a graph to ask things of.

Reads the lock and the database of the install tree; starts nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seatrial.base.errors import LabError
from seatrial.stack import build
from seatrial.stack.folders import Places
from seatrial.stack.model import Package

Node = dict[str, Any]
#: of packages that exist once per BLAS
PER_BLAS = {"hpl": ("xhpl", "bin/xhpl"), "hpcc": ("hpcc", "bin/hpcc")}


class Graph:
    """spack.lock with the prefixes that Spack gave its nodes."""

    def __init__(self, places: Places) -> None:
        self.nodes = build.nodes(places)
        self.roots = [self.nodes[key] for key in build.roots(places)]
        self.places = build.prefixes(places)
        self.modules = places.modules

    def prefix(self, node: Node) -> Path:
        """Where a node is installed. Raises LabError where it is not."""
        if "external" in node:
            return Path(node["external"]["path"])
        try:
            return Path(self.places[node["hash"]])
        except KeyError:
            raise LabError(f"{node['name']}@{node['version']} is not built") from None

    def provider(self, node: Node, virtual: str) -> Node | None:
        """The node's direct dependency that is its MPI or BLAS; None where it has none."""
        for part in node.get("dependencies", ()):
            if virtual in part.get("parameters", {}).get("virtuals", ()):
                return self.nodes[part["hash"]]
        return None

    def find(self, node: Node, name: str) -> Node | None:
        for part in node.get("dependencies", ()):
            if part["name"] == name:
                return self.nodes[part["hash"]]
        return None

    def package(self, node: Node) -> Package:
        compiler = self.find(node, "gcc")
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
        """The module of a program, as environments/base/modules.yaml projects its name."""
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
