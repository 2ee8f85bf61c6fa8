"""A stack that is only data, and plans made with it."""

from __future__ import annotations

from seatrial.stack.model import Blas, Stack, Transport

MPI = ["openmpi-tcp", "openmpi-ucx", "openmpi-ofi", "mpich-ucx", "mpich-ofi", "intelmpi-tcp"]
MPI_PROGRAMS = ("netpipe", "imb", "osu_latency", "hpcc", "npb_is", "npb_ep")


def bare_stack() -> Stack:
    """A stack that has everything but IMB under openmpi-ofi and the BLAS library atlas."""
    transports = {
        name: Transport(
            name=name,
            description="",
            family="mpich",
            programs={
                program: ["true"]
                for program in MPI_PROGRAMS
                if (name, program) != ("openmpi-ofi", "imb")
            },
        )
        for name in MPI
    }
    for name in ("tcp", "none"):
        transports[name] = Transport(name=name, description="", family="")
    blas = {name: Blas(folder="/", version="1", package=name) for name in ("blis", "openblas")}
    return Stack(
        id="x", prefix="/x", distribution="d", versions={}, origins={},
        transports=transports, blas_libraries=blas,
    )  # fmt: skip
