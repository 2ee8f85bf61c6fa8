"""The input file of hpcc (hpccinf.txt) and of xhpl (HPL.dat): a matrix on a grid of ranks.

Format: HPL.dat of HPL (hpl/www/tuning.html of HPL 2.0), then the lines of PTRANS (README of HPC
Challenge 1.5.0), which xhpl ignores. The programs find a value by the number of its line. The
template explains each line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from seatrial.base.errors import InputError
from seatrial.base.paths import CHECKOUT
from seatrial.base.suggest import FieldProblem

#: for str.format; hpcc reads at most 80 characters of a line. The tests of the recipe use it, too.
HPL_DAT = CHECKOUT / "spack-repo/spack_repo/seatrial/packages/hpl/HPL.dat"
_PTRANS = """\
--           (a separator)
0            further problem sizes of PTRANS
1000
0            further block sizes of PTRANS
32
"""


def render(n: int, nb: int, p: int, q: int, solves: int = 1) -> str:
    """Text of hpccinf.txt: order ``n``, blocks of ``nb``, ``p`` x ``q`` ranks, ``solves`` times.

    Raises InputError for values that hpcc rejects or silently changes.
    """
    for name, value in (("N", n), ("NB", nb), ("P", p), ("Q", q), ("solves", solves)):
        if value < 1:
            raise InputError(f"hpcc: {name} is {value}; it must be 1 or more")
    if nb > n:
        raise InputError(f"hpcc: the block size {nb} is larger than the matrix ({n})")
    orders = " ".join([str(n)] * solves)
    return HPL_DAT.read_text().format(problems=solves, n=orders, nb=nb, p=p, q=q) + _PTRANS


def too_large_block(block: int, size: int) -> Iterator[FieldProblem]:
    """The problem of a site whose blocks are larger than the matrix, which `render` refuses."""
    if block > size:
        yield FieldProblem("block", f"{block} is larger than size, {size}", "a smaller block")


def in_folder(step: str, program: list[str], file: str, text: str) -> tuple[list[str], list[str]]:
    """The command of a step that runs in a folder of its own with an input file, and its set-up.

    hpcc and xhpl read their input from the current folder, and hpcc writes its output there.
    """
    script = 'cd "$1" && shift && exec "$@"'
    setup = [f"mkdir -p {step}", f"cat >{step}/{file} <<'EOF'\n{text}EOF"]
    return ["/bin/sh", "-c", script, "sh", step, *program], setup


def grid(ranks: int, rows: int | None = None) -> tuple[int, int]:
    """P and Q with P * Q = ranks: P is ``rows``, or P <= Q as close to square as possible.

    HPL's FAQ advises few rows on Ethernet (netlib.org/benchmark/hpl/faqs.html): with several rows
    each column of the matrix needs an exchange between them. Raises InputError for fewer than one
    rank, and for rows that do not divide the ranks.
    """
    if ranks < 1:
        raise InputError(f"hpcc: {ranks} ranks; it must be 1 or more")
    if rows is not None:
        if rows < 1 or ranks % rows:
            raise InputError(f"hpcc: {ranks} ranks do not fill a grid of {rows} rows")
        return rows, ranks // rows
    p = next(p for p in range(math.isqrt(ranks), 0, -1) if ranks % p == 0)
    return p, ranks // p
