"""A stack that has every program under every transport, to plan a site before its stack is built.

It is data only: its commands cannot run. ``seatrial.plan`` compares it with the real stack.
"""

from __future__ import annotations

from collections.abc import Iterable

from seatrial.benchmarks.registry import registry
from seatrial.stack.describe import PROGRAMS, SOCKETS
from seatrial.stack.model import Blas, Stack, Transport
from seatrial.stack.transports import TRANSPORTS, WITHOUT_MPI

KERNELS = ("is", "ep", "cg", "mg", "ft", "lu", "bt", "sp")  # of NPB


def complete_stack(transports: Iterable[str], blas: Iterable[str]) -> Stack:
    """The complete stack for these transports and BLAS libraries."""
    packages = (*PROGRAMS.values(), *SOCKETS.values())
    names = [name for package in packages for name in package]
    # a benchmark whose program only the labs build has no recipe
    names += [kind.program for kind in registry().values() if kind.program]
    names += ["hpcc", "hpcc_all", *(f"npb_{kernel}" for kernel in KERNELS)]
    programs = {name: [name] for name in names}
    return Stack(
        id="", prefix="", distribution="", versions={}, origins={},
        transports={
            name: TRANSPORTS.get(name, _unknown(name)).model_copy(update={"programs": programs})
            for name in (*transports, *WITHOUT_MPI)
        },
        blas_libraries={name: Blas(folder=name, version="", package=name) for name in blas},
    )  # fmt: skip


def _unknown(name: str) -> Transport:
    return Transport(name=name, description="", family="mpich")
