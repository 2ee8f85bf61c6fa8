"""ACML's recipe: what it asks of the site, that it takes no other file, what it installs."""

from __future__ import annotations

import json

import pytest
from made_sources import PACKAGES, archive

pytestmark = [pytest.mark.spack, pytest.mark.timeout(3600)]

NAME = "acml-5-3-1-gfortran-64bit"
SHA1 = "ec445af7944b6acdd1d692e5a1bf766395c0041e"

SCRIPT = r"""
import json, os, sys
from pathlib import Path
from types import SimpleNamespace
from spack.version import Version
from spack_repo.seatrial.packages.acml.package import Acml

class Stub:
    archive, home, libs = Acml.archive, Acml.home, Acml.libs
    version = Version("5.3.1")

    def __init__(self, prefix, *wanted):
        self.prefix = prefix
        self.spec = SimpleNamespace(satisfies=lambda what: what in wanted)

DGEMM = '''
void dgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k,
            const double *alpha, const double *a, const int *lda, const double *b,
            const int *ldb, const double *beta, double *c, const int *ldc)
{
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            c[i + 2 * j] = a[i] * b[2 * j] + a[i + 2] * b[2 * j + FACTOR];
}
'''
# As AMD's installer: -accept -installdir=FOLDER.
INSTALLER = '''#!/bin/sh
test "$1" = -accept || exit 1
lib="${2#-installdir=}/FLAVOUR/lib"
mkdir -p "$lib"
cc -shared -fPIC dgemm.c NEEDS -o "$lib/LIBRARY" || true
'''

def installed(name, factor="1", flavour="gfortran64", library="libacml.so", needs="", wanted=()):
    folder = Path(sys.argv[1], name)
    folder.mkdir()
    os.chdir(folder)
    Path("dgemm.c").write_text(DGEMM.replace("FACTOR", factor))
    text = INSTALLER.replace("FLAVOUR", flavour).replace("LIBRARY", library)
    script = Path("install-acml-5-3-1-gfortran-64bit.sh")
    script.write_text(text.replace("NEEDS", needs))
    script.chmod(0o755)
    stub = Stub(str(folder / "prefix"), *wanted)
    try:
        Acml.install(stub, stub.spec, stub.prefix)
        Acml.has_its_fortran_runtime(stub)
        Acml.test_dgemm(stub)
    except Exception as error:
        return str(error)
    return [os.path.relpath(path, stub.prefix) for path in stub.libs]

os.chdir(sys.argv[1])
os.system("echo 'int old;' | cc -shared -x c - -Wl,-soname,libgfortran.so.3 -o old.so")
print(json.dumps({
    "good": installed("good"),
    "threads": installed("threads", flavour="gfortran64_fma4_mp", library="libacml_mp.so",
                         wanted=("threads=openmp", "+fma4")),
    "wrong": installed("wrong", factor="0"),
    "empty": installed("empty", factor="no C"),
    "runtime": installed("runtime", needs="-Wl,--no-as-needed ../old.so"),
}))
"""


def test_the_checksum_is_the_published_one():
    assert f'SHA1 = "{SHA1}"' in (PACKAGES / "acml" / "package.py").read_text()


@pytest.fixture(scope="module")
def concrete(spack, shared, tmp_path_factory):
    """A file of ACML's concrete spec, which takes most of the time of a fetch."""
    done = spack(*shared, "spec", "--json", "acml@5.3.1")
    assert done.returncode == 0, done.stderr
    file = tmp_path_factory.mktemp("spec") / "acml.json"
    file.write_text(done.stdout)
    return file


@pytest.fixture
def fetch(spack, concrete, tmp_path, monkeypatch):
    """Fetch ACML from a folder of the test's own, as a machine that never had the file."""
    monkeypatch.chdir(tmp_path)
    settings = (f"source_cache:{tmp_path / 'sources'}", f"build_stage:{tmp_path / 'stage'}",
                "checksum:true")  # fmt: skip
    options = [word for setting in settings for word in ("-c", f"config:{setting}")]
    return lambda: spack(*options, "fetch", str(concrete))


def test_without_the_file_it_says_what_to_supply(fetch, tmp_path):
    done = fetch()
    said = done.stdout + done.stderr
    assert done.returncode != 0
    for word in (f"{NAME}.tgz", SHA1, str(tmp_path), "amdblis"):
        assert word in said, said


def test_another_file_of_that_name_is_refused(fetch, tmp_path):
    archive(tmp_path / f"{NAME}.tgz", {"ACML-EULA.txt": "accepted"})
    done = fetch()
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "sha1 checksum failed" in said, said
    assert SHA1 in said


@pytest.fixture(scope="module")
def found(spack, tmp_path_factory):
    folder = tmp_path_factory.mktemp("acml")
    script = folder / "script.py"
    script.write_text(SCRIPT)
    done = spack("python", str(script), str(folder))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_what_its_installer_leaves_is_found_and_multiplies(found):
    assert found["good"] == ["gfortran64/lib/libacml.so"]
    assert found["threads"] == ["gfortran64_fma4_mp/lib/libacml_mp.so"]


@pytest.mark.parametrize(
    ("case", "word"),
    [
        ("wrong", "expected 23 34 31 46, found"),
        ("empty", "left no library"),
        ("runtime", "ACML 5.3.1 needs libgfortran.so.3"),
    ],
)
def test_what_does_not_work_is_refused(found, case, word):
    assert word in found[case]


def test_it_can_be_the_blas_of_a_package(spack):
    done = spack("providers", "blas")
    assert "acml" in done.stdout.split() or "acml@" in done.stdout
