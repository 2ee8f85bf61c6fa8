"""Finds the benchmarks: every module of this package that defines one."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

import seatrial.benchmarks
from seatrial.benchmarks.benchmark import Benchmark


@cache
def registry() -> dict[str, type[Benchmark[Any]]]:
    """Benchmark name -> class, ordered by name."""
    classes: dict[str, type[Benchmark[Any]]] = {}
    for module in pkgutil.iter_modules(seatrial.benchmarks.__path__):
        namespace = vars(importlib.import_module(f"seatrial.benchmarks.{module.name}"))
        for one in namespace.values():
            if (
                isinstance(one, type)
                and issubclass(one, Benchmark)
                and one.__module__ == namespace["__name__"]
                and one is not Benchmark
            ):
                assert one.name not in classes, f"two benchmarks are called {one.name}"
                classes[one.name] = one
    return dict(sorted(classes.items()))
