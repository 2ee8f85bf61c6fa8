"""The list of benchmarks: the subclasses of ``Benchmark`` in the modules of this package."""

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
        for kind in namespace.values():
            if (
                isinstance(kind, type)
                and issubclass(kind, Benchmark)
                and kind.__module__ == namespace["__name__"]
                and kind is not Benchmark
            ):
                assert kind.name not in classes, f"two benchmarks have the name {kind.name}"
                classes[kind.name] = kind
    return dict(sorted(classes.items()))
