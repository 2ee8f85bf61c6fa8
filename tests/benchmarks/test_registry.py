"""The list of benchmarks: what the class of a benchmark lacks is said with its file and line."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import ValidationError

from seatrial.base.errors import InputError
from seatrial.base.paths import CHECKOUT, CHECKS
from seatrial.benchmarks.benchmark import Settings
from seatrial.benchmarks.registry import benchmarks_of, registry

WHOLE = """
from seatrial.benchmarks.benchmark import Benchmark, Settings

class RingSettings(Settings):
    pass

class Ring(Benchmark[RingSettings]):
    name = "ring"
    Settings = RingSettings
    program = "ring"
    def steps(self, job): ...
    def parse(self, step, folder, job): ...
    def metrics(self): ...
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """``module(text, name)``: a module of that text."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(text: str, name: str = "made_up_ring") -> ModuleType:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    return make


def test_a_whole_class_is_a_benchmark(module) -> None:
    assert list(benchmarks_of([module(f"{WHOLE}\nAlias = Ring\n")])) == ["ring"]


def test_what_benchmarks_have_in_common_is_none(module) -> None:
    base = WHOLE.replace("class Ring(", "class _Base(").replace('    name = "ring"\n', "")
    both = "".join(f"\nclass {name}(_Base):\n    name = '{name.lower()}'\n" for name in ("A", "B"))
    assert list(benchmarks_of([module(base + both)])) == ["a", "b"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('    name = "ring"\n', "", "no name (add the key of site.yaml"),
        ("    Settings = RingSettings\n", "", "no Settings (add the class"),
        ("    def steps(self, job): ...\n", "", "no steps (define it"),
        ("    def parse(self, step, folder, job): ...\n", "", "no parse (define it"),
        ("    def metrics(self): ...\n", "", "no metrics (define it"),
        ('name = "ring"', "name = 5", "name is 5 (add the key"),
        ("Settings = RingSettings", "Settings = 7", "Settings is 7 (a class"),
        ('    program = "ring"\n', "", "no program (add its name in a stack"),
        ('    program = "ring"\n', '    pseudo_transport = "sockets"\n', "is 'sockets' (one of"),
        (
            "class RingSettings(Settings)",
            "class RingSettings",
            "RingSettings'> (a class derived from",
        ),
    ],
)
def test_what_a_class_lacks_is_said(module, old: str, new: str, message: str) -> None:
    assert old in WHOLE
    made = module(WHOLE.replace(old, new))
    with pytest.raises(InputError) as error:
        benchmarks_of([made])
    (problem,) = error.value.problems
    assert str(problem).startswith(f"{made.__file__}:7: Ring: ")
    assert message in str(problem)


def test_two_benchmarks_of_one_name(module) -> None:
    other = module(WHOLE.replace("Ring(", "Circle("), "made_up_circle")
    with pytest.raises(InputError, match=r"Circle: made_up_ring\.py has the name 'ring'"):
        benchmarks_of([module(WHOLE), other])


def test_an_error_in_a_benchmark_is_no_verdict(tmp_path: Path) -> None:
    """Neither of the classes, nor of Python: 1 would be a reject."""
    source = tmp_path / "src"
    (source / "seatrial").mkdir(parents=True)
    for entry in (CHECKOUT / "src" / "seatrial").iterdir():
        if entry.name not in ("benchmarks", "__pycache__"):
            (source / "seatrial" / entry.name).symlink_to(entry)
    (source / "seatrial_lab").symlink_to(CHECKOUT / "src" / "seatrial_lab")
    benchmarks = source / "seatrial" / "benchmarks"
    benchmarks.mkdir()
    for entry in (CHECKOUT / "src" / "seatrial" / "benchmarks").glob("*.py"):
        shutil.copy(entry, benchmarks)  # a link would have the user's own ring.py written to
    start = f"import sys; sys.path.insert(0, {str(source)!r}); import runpy; "
    start += "sys.argv = ['seatrial', 'site', 'list']; "
    start += "runpy.run_module('seatrial', run_name='__main__', alter_sys=True)"
    for text, code, words in (
        (WHOLE.replace('    program = "ring"\n', ""), 3, "ring.py:7: Ring: no program"),
        ("raise SystemExit(1)\n", 70, "SystemExit: 1"),
        ("import no_such_module\n", 3, "ring.py:1: ModuleNotFoundError: No module named 'no_such"),
        ("\nclass Ring(:\n", 3, "ring.py:2: SyntaxError: invalid syntax (correct this module)"),
        ("def f():\n    1 / 0\n\nf()\n", 3, "ring.py:2: ZeroDivisionError: division by zero"),
        ("from shutil import move\n\nmove(1, 2)\n", 3, "ring.py:3: TypeError: rename: src"),
        (
            "from seatrial.benchmarks import parsing as p\np.whole(1, 2, '')\n",
            70,
            ": a defect of S",
        ),
    ):
        (benchmarks / "ring.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-P", "-c", start], capture_output=True, text=True, check=False
        )
        assert (done.returncode, words in done.stderr) == (code, True), done.stderr


def test_each_benchmark_has_a_check_and_each_check_a_benchmark() -> None:
    assert list(registry()) == sorted(file.stem for file in CHECKS.glob("*.py"))


#: lists that decide how a benchmark measures
HOW = {("links", "cores"), ("tcp_streams", "networks"), ("mpi_pairs", "networks")}


@pytest.mark.parametrize("name", registry())
def test_settings_that_choose_what_is_measured_are_no_settings_of_a_measurement(name):
    kind = registry()[name]
    needed = {"networks": ["test"]} if kind.spans_networks else {}
    own = kind(kind.Settings.model_validate(needed))
    assert set(kind.chooses) <= kind.Settings.model_fields.keys() - Settings.model_fields.keys()
    measured_with = own.measured_with
    assert not measured_with.keys() & {"nodes", "transports", "profiles", "time_limit_s"}
    lists = {key for key, value in measured_with.items() if isinstance(value, list)}
    assert {(name, key) for key in lists} <= HOW


@pytest.mark.parametrize(
    "name",
    ["netpipe", "tcp_stream", "tcp_streams", "comms", "osu", "osu_mbw_mr", "imb", "mpbench",
     "perftest", "links"],
)  # fmt: skip
def test_what_runs_between_two_nodes_refuses_one(name: str) -> None:
    settings = registry()[name].Settings
    assert settings(nodes=[2], networks=["a"]).nodes == [2]
    with pytest.raises(ValidationError, match="greater than or equal to 2"):
        settings(nodes=[2, 1], networks=["a"])
