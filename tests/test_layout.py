"""The packages of ``seatrial`` import one another in one direction."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.base.paths import CHECKOUT

SOURCE = CHECKOUT / "src"
#: a package imports only those before it
ORDER = (
    "base", "nic", "results", "benchmarks", "analysis", "site", "stack", "plan", "slurm", "checks",
    "trial", "history", "predict", "report", "job", "cli",
)  # fmt: skip


def imported(file: Path) -> Iterator[list[str]]:
    """The modules of ``seatrial`` and ``seatrial_lab`` that a file imports, in parts."""
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom):
            above = file.relative_to(SOURCE).parts[: -node.level] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.partition(".")[0] in ("seatrial", "seatrial_lab"):
                yield name.split(".")


def test_the_order_names_all_packages() -> None:
    packages = {path.parent.name for path in (SOURCE / "seatrial").glob("*/__init__.py")}
    assert packages == set(ORDER)


@pytest.mark.parametrize("package", ORDER)
def test_a_package_imports_only_those_before_it(package: str) -> None:
    allowed = ORDER[: ORDER.index(package) + 1]
    for file in (SOURCE / "seatrial" / package).rglob("*.py"):
        for top, *rest in imported(file):
            if top == "seatrial_lab":
                assert package == "cli", f"{file} imports {top}"
            elif rest and rest[0] in ORDER:
                assert rest[0] in allowed, f"{file} imports {top}.{rest[0]}"


#: part of the labs -> the parts that it imports beside its own; the adapter imports them all
LABS = {
    "common": set(),
    "native": {"common", "protocol"},
    "virtual": {"common", "protocol", "software"},
    "software": {"common"},
}


@pytest.mark.parametrize("part", LABS)
def test_a_part_of_the_labs_imports_only_those_below_it(part: str) -> None:
    for file in (SOURCE / "seatrial_lab" / part).rglob("*.py"):
        for top, *rest in imported(file):
            if top == "seatrial_lab" and rest:
                assert rest[0] in LABS[part] | {part}, f"{file} imports {'.'.join(rest)}"


def test_no_lab_imports_the_command_line() -> None:
    for file in (SOURCE / "seatrial_lab").rglob("*.py"):
        assert ["seatrial", "cli"] not in [names[:2] for names in imported(file)], file


def test_files_of_tests_have_different_names() -> None:
    """pytest imports each by its name alone."""
    names = Counter(path.name for path in (CHECKOUT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
