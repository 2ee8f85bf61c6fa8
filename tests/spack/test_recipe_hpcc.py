"""HPC Challenge's recipe: the choice of tests, a build's own settings, what its test accepts."""

from __future__ import annotations

import json

import pytest

from seatrial_lab.software.build import SELECT, wrapped_functions

needs_spack = pytest.mark.spack

SCRIPT = r"""
import json, os, sys
from pathlib import Path
from types import SimpleNamespace
import spack_repo.seatrial.packages.hpcc.package as hpcc

os.chdir(sys.argv[1])
Hpcc = hpcc.Hpcc

good = {"Success": "1", "CommWorldProcs": "2", "HPL_Tflops": "0.01", "StarDGEMM_Gflops": "9.5",
        "StarSTREAM_Triad": "-1"}
passed = "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=    0.0046 ...... PASSED\n"

def verdict(select=True, residual=passed, **changes):
    text = residual + "".join(f"{k}={v}\n" for k, v in {**good, **changes}.items())
    def run(ranks, program, extra_env):
        asked.update(extra_env)
        Path("hpccoutf.txt").write_text(text)
    stub = SimpleNamespace(
        prefix=SimpleNamespace(bin="/nowhere", share=SimpleNamespace(hpcc=".")), run_mpi=run,
        spec=SimpleNamespace(satisfies=lambda what: what == "+select" and select))
    try:
        Hpcc.test_hpl_and_dgemm(stub)
    except RuntimeError as error:
        return str(error)
    return "good"

asked = {}
Path("hpccinf.txt").write_text(sys.argv[3])
cases = {"good": verdict()}
written = Path("hpccinf.txt").read_text().splitlines()[10:12]
Path("hpccinf.txt").write_text(sys.argv[3])
for name, arguments in {
    "failed": {"residual": passed.replace("PASSED", "FAILED")},
    "success": {"Success": "0"},
    "ranks": {"CommWorldProcs": "1"},
    "rate": {"StarDGEMM_Gflops": "-1"},
    "all ran": {"StarSTREAM_Triad": "11.5"},
    "none chosen": {"select": False},
}.items():
    Path("hpccinf.txt").write_text(sys.argv[3])
    cases[name] = verdict(**arguments)

Path("hpccinf.txt").write_text(sys.argv[3].replace("Ps", "Bs"))
cases["other input"] = verdict()

def edit(self, spec, prefix):
    self.config["@LAINC@"] += " -Ithis"
hpcc.BuiltinHpcc.edit = edit
package = object.__new__(Hpcc)
Hpcc.edit(package, None, None)
print(json.dumps({
    "cases": cases, "asked": asked, "written": written,
    "wrapped": hpcc.wrapped_functions(sys.argv[2]),
    "mine": package.config["@LAINC@"], "shared": hpcc.BuiltinHpcc.config["@LAINC@"],
}))
"""
EXAMPLE = "\n" * 9 + "1  grids\n2    Ps\n2    Qs\n"


@pytest.fixture(scope="module")
def found(spack, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hpcc")
    script = folder / "script.py"
    script.write_text(SCRIPT)
    done = spack("python", str(script), str(folder), str(SELECT), EXAMPLE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@needs_spack
def test_two_ranks_that_passed_are_accepted(found):
    assert found["cases"]["good"] == "good"
    assert found["asked"]["HPCC_TESTS"] == "HPL,StarDGEMM"
    assert found["written"] == ["1            Ps", "2            Qs"]


@needs_spack
@pytest.mark.parametrize(
    ("case", "word"),
    [
        ("failed", "FAILED"),
        ("success", "Success=1"),
        ("ranks", "expected 2 ranks"),
        ("rate", "positive rate"),
        ("all ran", "HPCC_TESTS has no effect"),
        ("none chosen", "STREAM did not run"),
        ("other input", "line 11: expected Ps"),
    ],
)
def test_everything_else_is_refused(found, case, word):
    assert word in found["cases"][case]


@needs_spack
def test_select_stands_before_the_same_functions_as_in_the_lab(found):
    assert found["wrapped"] == wrapped_functions(SELECT.read_text())
    assert len(found["wrapped"]) == 16


@needs_spack
def test_a_build_keeps_its_settings_to_itself(found):
    assert found["mine"] == " -Ithis"
    assert found["shared"] == ""
