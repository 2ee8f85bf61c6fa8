"""The stack as the rest of Seatrial sees it, and as ``stack.json`` in its prefix holds it.

Holds data and look-ups; builds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from seatrial.base.errors import InputError, LabError
from seatrial.base.files import write_whole

FILE = "stack.json"


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Package(Model):
    """What Spack installed and a program is from."""

    name: str
    version: str
    spec: str = Field(description="as `spack find` writes it, with compiler, target and MPI")
    hash: str = Field(description="Spack's hash of the whole graph, 32 characters")
    prefix: str
    module: str = Field(default="", description="what `module load` is given after the transport")


class Transport(Model):
    """An MPI and the path its messages take: how to run a program that way.

    ``env`` is what a user's module sets. ``check_env``, ``lab_env``, ``bind``, ``report`` and
    ``overcommit`` are environment variables, too. Values of ``bind`` hold ``{interface}`` and
    ``{subnet}`` until ``Stack.transport`` fills them in. Values of ``report`` may hold
    ``{report_file}`` or ``{report_fd}``, a file for what the MPI says, or its descriptor: whoever
    starts the rank puts it in.
    """

    name: str
    description: str
    family: Literal["openmpi", "mpich", ""] = Field(description="which MPI ABI; none: no MPI")
    launcher: list[str] = Field(default=[], description="srun options")
    within_node: str = Field(
        default="shared memory", description="how messages travel between the ranks of a node"
    )
    env: dict[str, str] = {}
    check_env: dict[str, str] = Field(
        default={}, description="for checks only, in place of env: all messages take the path"
    )
    within_env: dict[str, str] = Field(
        default={}, description="for a check's ranks on one node, in place of check_env"
    )
    lab_env: dict[str, str] = Field(default={}, description="for checks in labs only")
    bind: dict[str, str] = Field(default={}, description="tie it to the network under test")
    report: dict[str, str] = Field(default={}, description="make the MPI name its path")
    path_report: str = Field(default="", description="regular expression of that line")
    overcommit: dict[str, str] = Field(
        default={}, description="further variables where ranks outnumber cores"
    )
    programs: dict[str, list[str]] = Field(default={}, description="name -> command")
    lacks: dict[str, str] = Field(default={}, description="benchmark -> why it has no program")
    compilers: str = Field(default="", description="folder of mpicc; none: the system's or none")
    features: list[str] = []
    versions: dict[str, str] = Field(default={}, description="of all that a run of it involves")
    modules: list[str] = Field(
        default=[], description="what `module load` is given, in this order; none: no modules"
    )
    packages: dict[str, Package] = Field(
        default={}, description="program -> what it is from, where Spack made it"
    )


class Blas(Model):
    """One BLAS library: the folder of its libblas.so.3, for LD_LIBRARY_PATH.

    Spack's programs are linked with one BLAS (``xhpl.<blas>``): there the folder only says where
    it is.
    """

    folder: str
    version: str
    package: str = Field(description="the distribution's package, or Spack's spec")
    hash: str = Field(default="", description="Spack's hash; none: not of Spack")


class SpackFacts(Model):
    """Which Spack made a stack, and from what."""

    version: str
    commit: str
    root: str
    builtin_version: str
    builtin_commit: str
    environment: str = Field(description="folder of spack.yaml")
    target: str = Field(description="microarchitecture that it was built for")
    lock: str = Field(description="sha256 of spack.lock")


class Stack(Model):
    """Everything that was provisioned."""

    source: Literal["distribution", "spack"] = "distribution"
    id: str = Field(description="hash of the recipe and of what it was built from")
    prefix: str
    distribution: str
    versions: dict[str, str]
    origins: dict[str, str] = Field(description="benchmark -> where its program is from")
    transports: dict[str, Transport]
    blas_libraries: dict[str, Blas]
    modulepath: list[str] = Field(default=[], description="folders for MODULEPATH")
    spack: SpackFacts | None = None

    def names(self) -> list[str]:
        """The transports that carry MPI."""
        return [name for name, part in self.transports.items() if part.family]

    def programs(self, transport: str) -> dict[str, list[str]]:
        """Program name -> command, under a transport. Raises InputError."""
        return dict(self._part(transport).programs)

    def transport(
        self,
        name: str,
        interface: str = "",
        subnet: str = "",
        *,
        check: bool = False,
        lab: bool = False,
    ) -> Transport:
        """A transport with everything it needs in ``env``.

        With an interface (and its subnet) the transport is tied to that network. With ``check``
        all messages take its path, also within a node, and the MPI prints which path it chose;
        with ``lab`` its nodes share a few cores. Raises InputError for a name that the stack does
        not have.
        """
        part = self._part(name)
        env = dict(part.env)
        if interface:
            network = {"interface": interface, "subnet": subnet}
            env |= {key: value.format_map(network) for key, value in part.bind.items()}
        if check:
            env |= {**part.check_env, **part.report}
        if lab:
            env |= part.lab_env
        return part.model_copy(update={"env": env})

    def with_variants(self, bases: Mapping[str, str]) -> Stack:
        """The stack with further transports. ``bases``: name -> transport that it is a copy of.

        Raises InputError for a base that the stack does not have.
        """
        further = {name: self._part(base).model_copy(update={"name": name})
                   for name, base in bases.items()}  # fmt: skip
        return self.model_copy(update={"transports": {**self.transports, **further}})

    def blas(self) -> dict[str, str]:
        """BLAS name -> folder of its libblas.so.3."""
        return {name: library.folder for name, library in self.blas_libraries.items()}

    def save(self) -> None:
        """Write ``stack.json`` into the prefix, whole or not at all."""
        file = Path(self.prefix) / FILE
        write_whole(file, self.model_dump_json(indent=1) + "\n")

    def _part(self, name: str) -> Transport:
        try:
            return self.transports[name]
        except KeyError:
            known = ", ".join(self.transports)
            raise InputError(f"the stack has no transport {name!r}; it has {known}") from None


def read(prefix: Path) -> Stack:
    """The stack in a prefix. Raises LabError where there is none, or not one of this version."""
    file = prefix / FILE
    try:
        return Stack.model_validate_json(file.read_text())
    except FileNotFoundError:
        raise LabError(f"there is no stack in {prefix}: run `seatrial stack provision`") from None
    except ValueError as error:
        raise LabError(
            f"{file} is not of this version of Seatrial: run `seatrial stack provision` ({error})"
        ) from None
