"""The list of benchmarks: the subclasses of ``Benchmark`` in the modules of this package."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import seatrial.benchmarks
from seatrial.base.errors import InputError, Problem, place_of
from seatrial.base.names import PSEUDO_TRANSPORTS
from seatrial.base.paths import CHECKS
from seatrial.benchmarks.benchmark import Benchmark, Settings

#: what the class of a benchmark must define -> how
_NEEDED = {
    "name": 'add the key of site.yaml, such as name = "ring"',
    "Settings": "add the class of its settings, such as Settings = RingSettings",
    "steps": "define it: it returns the steps of a job",
    "parse": "define it: it reads the output of a step",
    "metrics": "define it: it declares the metrics",
}


@cache
def registry() -> dict[str, type[Benchmark[Any]]]:
    """Benchmark name -> class, ordered by name.

    Raises InputError where a class is incomplete, or with the line of a module that Python refuses.
    """
    names = (module.name for module in pkgutil.iter_modules(seatrial.benchmarks.__path__))
    return benchmarks_of(map(_imported, names))


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"seatrial.benchmarks.{name}")
    except InputError:
        raise
    except Exception as error:
        file = Path(seatrial.benchmarks.__path__[0], f"{name}.py")
        if isinstance(error, SyntaxError):
            where, line, said = Path(error.filename or ""), error.lineno, error.msg
        else:
            (where, line), said = place_of(error), str(error)
        if where != file:  # of another module of Seatrial: the traceback says more
            raise
        text = f"{type(error).__name__}: {said}"
        raise InputError([Problem(file, line, "", text, "correct this module")]) from None


def benchmarks_of(modules: Iterable[ModuleType]) -> dict[str, type[Benchmark[Any]]]:
    """The benchmarks that modules define: name -> class, ordered by name.

    Raises InputError with all classes that lack a part, or have the name of another benchmark.
    """
    classes: dict[str, type[Benchmark[Any]]] = {}
    problems = []
    for module in modules:
        for kind in vars(module).values():
            if not _is_own(kind, module) or kind in classes.values():
                continue
            problems += [_problem(kind, *fault) for fault in _faults(kind)]
            if not _is_name(kind):
                continue
            if kind.name in classes:
                other = Path(inspect.getfile(classes[kind.name])).name
                problems.append(_problem(kind, f"{other} has the name {kind.name!r}", "rename one"))
            classes[kind.name] = kind
    if problems:
        raise InputError(problems)
    return dict(sorted(classes.items()))


def check_file(name: str) -> Path:
    """The file of a benchmark's check, which ReFrame loads. It need not exist."""
    return CHECKS / f"{name}.py"


def _is_own(kind: Any, module: ModuleType) -> bool:
    return (
        isinstance(kind, type)
        and issubclass(kind, Benchmark)
        and kind.__module__ == module.__name__
        and kind is not Benchmark
        and not kind.__name__.startswith("_")  # what several benchmarks have in common
    )


def _is_name(kind: type) -> bool:
    name = getattr(kind, "name", None)
    return isinstance(name, str) and name.isidentifier()


def _defines(kind: type, part: str) -> bool:
    return getattr(kind, part, None) is not getattr(Benchmark, part, None)


def _faults(kind: type[Benchmark[Any]]) -> Iterator[tuple[str, str]]:
    """What is wrong with the class of a benchmark: the message and the correction."""
    for part, correction in _NEEDED.items():
        if not _defines(kind, part):
            yield f"no {part}", correction
    if _defines(kind, "name") and not _is_name(kind):
        yield f"name is {kind.name!r}", _NEEDED["name"]
    pseudo = kind.pseudo_transport
    if pseudo and pseudo not in PSEUDO_TRANSPORTS:
        names = ", ".join(PSEUDO_TRANSPORTS)
        yield f"pseudo_transport is {pseudo!r}", f"one of those in seatrial.base.names: {names}"
    settings = getattr(kind, "Settings", Settings)
    if not isinstance(settings, type) or not issubclass(settings, Settings):
        yield (
            f"Settings is {settings!r}",
            "a class derived from seatrial.benchmarks.benchmark.Settings",
        )
    if not pseudo and not kind.program and not _defines(kind, "has_program"):
        yield "no program", 'add its name in a stack, such as program = "ring", or has_program'


def _problem(kind: type, message: str, correction: str) -> Problem:
    file, line = inspect.getfile(kind), inspect.getsourcelines(kind)[1]
    return Problem(file, line, kind.__name__, message, correction)
