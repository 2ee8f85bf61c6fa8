"""The transports as the checks use them, read from the recipes' table.

The table is ``spack-repo/spack_repo/seatrial/transports.py``: the recipe mpi-transport reads it
inside Spack, so that a user's module and a check take the same path between nodes.
Added here are those that are no MPI's.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping
from typing import Any

from seatrial.base.paths import CHECKOUT
from seatrial.stack.model import Transport

_TABLE = runpy.run_path(str(CHECKOUT / "spack-repo/spack_repo/seatrial/transports.py"))
#: Spack's name of an MPI -> its name in a transport's
MPI_NAMES: dict[str, str] = _TABLE["MPI_NAMES"]
fill: Callable[[Mapping[str, str], Mapping[str, str]], dict[str, str]] = _TABLE["fill"]
bound: Callable[[dict[str, str], str], dict[str, str]] = _TABLE["bound"]
UCX_VERBS: tuple[str, ...] = _TABLE["UCX_VERBS"]
UCX_DEVICES: str = _TABLE["UCX_DEVICES"]
with_shared_memory: Callable[[str], str] = _TABLE["with_shared_memory"]
pmi2_library: Callable[[], str] = _TABLE["pmi2_library"]
#: transports that only Spack can build: Debian and PyPI have no MPICH with the older device ch3
SPACK_ONLY = ("mpich-sock",)
#: groups of a transport's variables whose placeholders the fabric fills in
GROUPS = ("env", "check_env", "within_env", "lab_env")

#: Not MPI: sockets or verbs between two nodes, and each node by itself (Open MPI starts it).
WITHOUT_MPI = {
    "tcp": Transport(
        name="tcp",
        description="TCP sockets, no MPI",
        family="",
        launcher=["--mpi=none"],
        features=["tcp"],
    ),
    "verbs": Transport(
        name="verbs",
        description="RDMA verbs, no MPI",
        family="",
        launcher=["--mpi=none"],
        features=["verbs"],
    ),
    "none": Transport(
        name="none",
        description="on each node by itself; Open MPI only starts the program",
        family="",
        launcher=["--mpi=pmix"],
        env={"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self"},
    ),
}


def transports(variants: Mapping[str, Any] | None = None) -> dict[str, Transport]:
    """All transports by name, for a fabric that the recipe's ``variants`` describe; TCP without.

    ``{pmi2_library}`` is left in ``env``, and in ``bind`` and ``report`` what ``Transport`` says.
    """
    variants = variants or {}
    words = _TABLE["words"](**{key: variants[key] for key in _TABLE["CHOICES"] if key in variants})
    parts = {}
    for name, part in _TABLE["TRANSPORTS"].items():
        fields: dict[str, Any] = dict(part)
        fields |= {group: fill(fields.get(group, {}), words) for group in GROUPS}
        parts[name] = Transport(
            name=name,
            launcher=[f"--mpi={fields.pop('slurm_mpi')}"],
            **fields,
        )
    return parts | WITHOUT_MPI


TRANSPORTS = transports()
