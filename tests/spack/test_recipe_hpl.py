"""HPL's recipe: the BLAS of the spec and no other, and what its test accepts."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.spack

SCRIPT = r"""
import json, os, sys
from types import SimpleNamespace
from spack_repo.seatrial.blas import check_blas
from spack_repo.seatrial.packages.hpl.package import Hpl, only_this_blas

os.chdir(sys.argv[1])

row = "WR11C2R4         500    64     1     2               0.01             9.4140e+00\n"
residual = "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   5.77295963e-03 ...... %s\n"

def verdict(text):
    prefix = SimpleNamespace(bin="/nowhere")
    stub = SimpleNamespace(prefix=prefix, run_mpi=lambda *a, **k: text)
    try:
        Hpl.test_residual(stub)
    except RuntimeError as error:
        return str(error)
    return "good"

def blas(*libraries):
    spec = {"blas": SimpleNamespace(name="chosen", libs=list(libraries))}
    try:
        check_blas(spec, sys.executable)
    except Exception as error:
        return error.message
    return "good"

with open("configure", "w") as file:
    file.write("name1=OpenBLAS\nrout1=dgemm_\nlibs1=-lopenblas -lm\nlibs10=-lblas\n"
               "then :\n  hpl_blas_ok=yes;BLAS_LIBS=\"-lopenblas\"\n")
only_this_blas("configure", "-L/opt/atlas/lib -lsatlas")

loaded = [line.split()[2] for line in os.popen(f"ldd {sys.executable}") if " => /" in line]
print(json.dumps({
    "good": verdict(row + residual % "PASSED"),
    "failed": verdict(row + residual % "FAILED"),
    "silent": verdict(""),
    "no row": verdict(residual % "PASSED"),
    "worlds": verdict(2 * (row + residual % "PASSED")),
    "rate": verdict(row.replace("9.4140e+00", "0.0000e+00") + residual % "PASSED"),
    "configure": open("configure").read(),
    "same": blas(loaded[0]),
    "link to it": blas(os.path.realpath(loaded[0])),
    "another": blas("/opt/chosen/lib/libother.so"),
    "static": blas("/opt/chosen/lib/libother.a"),
    "input": os.path.getsize("HPL.dat") > 0,
}))
"""


@pytest.fixture(scope="module")
def found(spack, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hpl")
    script = folder / "script.py"
    script.write_text(SCRIPT)
    done = spack("python", str(script), str(folder))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_one_result_that_passed_is_accepted(found):
    assert found["good"] == "good"
    assert found["input"]


@pytest.mark.parametrize(
    ("case", "word"),
    [
        ("failed", "FAILED"),
        ("silent", "expected one result"),
        ("no row", "expected one result"),
        ("worlds", "expected one result"),
        ("rate", "positive rate"),
    ],
)
def test_everything_else_is_refused(found, case, word):
    assert word in found[case]


def test_configure_can_find_no_other_blas(found):
    """HPL's own order is OpenBLAS, ATLAS, MKL, ACML, ..., and the first that links is taken."""
    flags = "-L/opt/atlas/lib -lsatlas"
    lines = found["configure"].splitlines()
    assert lines[:4] == ["name1=OpenBLAS", "rout1=dgemm_", f"libs1={flags}", f"libs10={flags}"]
    assert lines[-1] == f'  hpl_blas_ok=yes;BLAS_LIBS="{flags}"'


def test_the_library_that_is_loaded_is_checked(found):
    assert found["same"] == found["link to it"] == "good"
    assert "was to use chosen (/opt/chosen/lib/libother.so), but" in found["another"]
    assert found["static"] == "good"
