"""Memory, for code that makes a million objects."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    """Switch the cyclic garbage collector off, for code that makes no cycles or whose objects stay.

    It walks through all objects again each time that a quarter is added.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def release_free_memory() -> None:
    """Return freed memory to the kernel (malloc_trim(3) of glibc; elsewhere nothing happens).

    A parser's temporary memory comes from malloc, Python's small objects do not: without this, the
    process keeps both.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
