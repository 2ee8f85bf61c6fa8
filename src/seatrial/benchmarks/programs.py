"""Which programs of a stack each variant of a benchmark needs, and the command of each.

The names are those of ``Stack.programs``. Two stacks may differ in how a benchmark is cut: the
distribution's has one program per NPB kernel that is told ranks and class, and one hpcc that any
BLAS is put under; Spack's has a program per kernel and class, and one per BLAS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from seatrial.site.model import HPL, NPB, OSU, Benchmark, TCPStreams

Programs = Mapping[str, list[str]]
#: benchmarks of one program that is named as they are
SINGLE = ("netpipe", "imb", "mpbench")


def wanted(name: str, options: Benchmark) -> list[str]:
    """The variants of a benchmark that a site wants: ``is.S``, ``openblas``; [""] where it has
    none."""
    if isinstance(options, HPL):
        return list(options.blas)
    if isinstance(options, NPB):
        return [f"{kernel}.{options.problem_class}" for kernel in options.kernels]
    if isinstance(options, TCPStreams):
        return [f"{count}-streams" for count in options.streams]
    return [""]


def available(
    name: str, options: Benchmark, programs: Programs, blas: Iterable[str] = ()
) -> list[str]:
    """Those of the wanted variants whose programs are there. ``blas`` are those of the stack."""
    return [
        variant
        for variant in wanted(name, options)
        if _has(name, options, variant, programs, set(blas))
    ]


def _has(name: str, options: Benchmark, variant: str, programs: Programs, blas: set[str]) -> bool:
    if isinstance(options, HPL):
        return variant in blas and hpl(programs, variant) is not None
    if isinstance(options, NPB):
        return npb(programs, variant, 1) is not None
    if isinstance(options, OSU):
        return all(f"osu_{test}" in programs for test in options.tests)
    return name in SINGLE and name in programs


def npb(programs: Programs, variant: str, ranks: int) -> list[str] | None:
    """The command of an NPB kernel such as ``is.S``; None where it is not there."""
    if f"npb_{variant}" in programs:
        return list(programs[f"npb_{variant}"])
    kernel, _, problem_class = variant.partition(".")
    if f"npb_{kernel}" in programs:
        return [*programs[f"npb_{kernel}"], str(ranks), problem_class]
    return None


def hpl(programs: Programs, blas: str) -> dict[str, list[str]] | None:
    """The commands of HPL with a BLAS library; None where there is none.

    ``hpcc`` alone: it does HPL and DGEMM. With ``xhpl``: that is HPL, and hpcc is only asked for
    DGEMM.
    """
    if f"xhpl.{blas}" in programs and f"hpcc.{blas}" in programs:
        return {kind: list(programs[f"{kind}.{blas}"]) for kind in ("xhpl", "hpcc")}
    if f"hpcc.{blas}" in programs:
        return {"hpcc": list(programs[f"hpcc.{blas}"])}
    return {"hpcc": list(programs["hpcc"])} if "hpcc" in programs else None
