"""Node side: the rate of a rank's matrix product (DGEMM) while all ranks of the step do the same.

    python3 -IS dgemm.py STEP FOLDER ORDER [CALLS]

FOLDER has the BLAS library. Matrices of two orders are multiplied, ORDER and a smaller one, each
CALLS times, or for at least WINDOW_S and LEAST_CALLS times, after a first call, which starts the
threads of the library and is not counted. Single calls are timed: a short one is undisturbed by
other programs more often.
The rank writes STEP.RANK.dgemm.json: the library, and of each order the rates of all calls in
GFLOPS (10^9 operations per second, 2 N^3 for a call).
"""

import array
import ctypes
import json
import os
import random
import sys
import time

SMALL = 256
WINDOW_S = 0.2
LEAST_CALLS = 8
MOST_CALLS = 1000


def library(folder):
    """The BLAS library in a folder, and its file: the first with the symbol ``dgemm_``."""
    try:
        names = [name for name in os.listdir(folder) if name.startswith("lib") and ".so" in name]
    except OSError as error:
        sys.exit("dgemm.py: %s: %s" % (folder, error.strerror))
    for name in sorted(names, key=lambda name: (not name.startswith("libblas.so"), name)):
        file = os.path.realpath(os.path.join(folder, name))
        try:
            blas = ctypes.CDLL(file)
            blas.dgemm_  # noqa: B018 (raises AttributeError)
        except (OSError, AttributeError):
            continue
        return blas, file
    sys.exit("dgemm.py: no library in %s has the function dgemm_" % folder)


def matrix(order):
    """A matrix of random numbers: some processors multiply zeros with a higher clock."""
    row = array.array("d", [random.random() - 0.5 for _ in range(min(order * order, 10007))])
    values = (row * (order * order // len(row) + 1))[: order * order]
    return (ctypes.c_double * (order * order)).from_buffer(values)


def rates(blas, order, calls):
    """The rates of calls with matrices of an order. ``calls``: how many; 0: as many as the
    window has."""
    least, most = (calls, calls) if calls else (LEAST_CALLS, MOST_CALLS)
    a, b, c = matrix(order), matrix(order), matrix(order)
    no, n = ctypes.c_char(b"N"), ctypes.c_int(order)
    one, zero = ctypes.c_double(1.0), ctypes.c_double(0.0)
    words = [no, no, n, n, n, one, a, n, b, n, zero, c, n]
    pointers = [ctypes.byref(word) for word in words]
    blas.dgemm_(*pointers)
    measured = []  # type: list[float]
    end = time.monotonic() + WINDOW_S
    while len(measured) < least or (time.monotonic() < end and len(measured) < most):
        start = time.perf_counter()
        blas.dgemm_(*pointers)
        measured.append(2e-9 * order**3 / (time.perf_counter() - start))
    return measured


def main(argv):
    step, folder, order = argv[0], argv[1], int(argv[2])
    calls = int(argv[3]) if argv[3:] else 0
    blas, file = library(folder)
    sizes = sorted({min(SMALL, order), order})
    result = {"library": file, "GFLOPS": {str(size): rates(blas, size, calls) for size in sizes}}
    name = "%s.%s.dgemm.json" % (step, os.environ.get("SLURM_PROCID", "0"))
    with open(name + ".partial", "w") as stream:
        json.dump(result, stream)
    os.replace(name + ".partial", name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
