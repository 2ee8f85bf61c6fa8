"""The size of an HPL problem: order N and block size NB.

The grid of ranks and the input file are those of ``seatrial.benchmarks.hpl_input``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from seatrial.base.errors import InputError

MIB = 1 << 20
#: NB to begin with, by BLAS. HPL's FAQ: between 32 and 256, a small multiple of the block size of
#: the BLAS. Intel gives 192 for its MKL on AVX2, 384 on AVX-512. Only measuring finds the best.
BLOCKS = {"atlas": 128, "blis": 192, "openblas": 192, "mkl": 192, "reference": 64}


def block(blas: str) -> int:
    """NB for a BLAS; 192 for a BLAS that ``BLOCKS`` does not have."""
    return BLOCKS.get(blas, 192)


def order(memory_MiB: int, nodes: int, fraction: float, nb: int) -> int:
    """N, the largest multiple of ``nb`` whose matrix fits into a fraction of all memory.

    N = nb * floor(sqrt(fraction * nodes * memory / 8 B) / nb): the matrix has N^2 doubles, and
    HPL's memory is essentially that of the matrix, of which 80 % "is a good guess" (HPL FAQ, "What
    problem size N should I run", netlib.org/benchmark/hpl/faqs.html). ``memory_MiB`` is of one
    node. Raises InputError where not even one block fits.
    """
    numbers = fraction * nodes * memory_MiB * MIB / 8
    n = math.isqrt(int(numbers)) // nb * nb
    if n < nb:
        raise InputError(
            f"hpl: {fraction:g} of {nodes} x {memory_MiB} MiB holds no block of {nb} x {nb} "
            "(raise memory_fraction or lower nb)"
        )
    return n


def problem(values: Mapping[str, Any], memory_MiB: int, nodes: int) -> tuple[int, int]:
    """N and NB by the values of the template; ``memory_MiB`` is that of a node in site.yaml.

    Raises InputError as :func:`order`.
    """
    nb = values["nb"] or block(values["blas"])
    memory = values["node_memory_MiB"] or memory_MiB
    return order(memory, nodes, values["memory_fraction"], nb), nb
