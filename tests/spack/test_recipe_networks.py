"""Recipes of comms, mpi_pairs, NetPIPE, LLCbench, OSU, IMB, mpiP, mpi_time, netperf and iperf3."""

from __future__ import annotations

import json

import pytest

from spack_support import REFUSED_SPECS

pytestmark = pytest.mark.spack

PACKAGES = (
    "comms",
    "netpipe",
    "llcbench",
    "osu-micro-benchmarks",
    "intel-mpi-benchmarks",
    "mpip",
    "mpi-pairs",
    "mpi-time",
    "netperf",
    "iperf3",
)

SCRIPT = """
import inspect, json
import spack.repo
from spack.spec import Spec
from spack.version import Version

def recipe(name):
    return spack.repo.PATH.get_pkg_class("seatrial." + name)

class Asked:
    '''A spec as far as configure_args looks at it: variants that are on, and the MPI.'''
    def __init__(self, **variants):
        self.on = variants
        self.variants = {name: type("V", (), {"value": value}) for name, value in variants.items()}
    def satisfies(self, text):
        if text.startswith("platform="):
            return text == "platform=linux"
        return bool(self.on[text[1:]]) == (text[0] == "+")
    def __getitem__(self, name):
        return type("Dependency", (), {"mpicc": "/m/mpicc", "mpicxx": "/m/mpicxx",
                                       "mpif77": "/m/mpif77", "prefix": "/" + name})

def arguments(name, **variants):
    package = object.__new__(recipe(name))
    package.__dict__["spec"] = Asked(**variants)
    return sorted(package.configure_args())

MPIP = dict(bfd=False, demangling=False, libunwind=False, mpi_io=True, mpi_rma=True, mpi_nbc=True,
            setjmp=False, maxargs="32", stackdepth="8", internal_stackdepth="3")
said = {
    "mpip": arguments("mpip", **MPIP),
    "mpip with all": arguments("mpip", **dict(MPIP, bfd=True, demangling=True, libunwind=True)),
    "mpip without io": arguments("mpip", **dict(MPIP, libunwind=True, mpi_io=False)),
    "mpip setjmp": arguments("mpip", **dict(MPIP, libunwind=True, setjmp=True)),
    "netperf": arguments("netperf"),
}
for name in NAMES:
    package = recipe(name)
    tests = [test for test, _ in inspect.getmembers(package, inspect.isfunction)
             if test.startswith("test_")]
    said[name + " class"] = {
        "tests": tests, "maintainers": list(package.maintainers), "doc": package.__doc__,
        "licenses": list(package.licenses.values()),
        "preferred": [str(v) for v, a in package.versions.items() if a.get("preferred")],
        "newest": str(max(v for v in package.versions if not v.isdevelop())),
    }
netpipe = recipe("netpipe")
said["urls"] = [object.__new__(netpipe).url_for_version(Version(v)) for v in ("3.7.2", "5.1.4")]
print("RESULT" + json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(spack, tmp_path_factory):
    script = tmp_path_factory.mktemp("recipes") / "script.py"
    script.write_text(SCRIPT.replace("NAMES", repr(PACKAGES)))
    done = spack("python", str(script))
    assert done.returncode == 0, done.stdout + done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    return json.loads(line.removeprefix("RESULT"))


@pytest.mark.parametrize("package", PACKAGES)
def test_each_says_what_it_is_and_has_a_test(said, package):
    facts = said[f"{package} class"]
    assert facts["tests"]
    assert "seatrial-developers" in facts["maintainers"]
    assert facts["licenses"]
    assert len(facts["doc"].split()) > 40


@pytest.mark.parametrize(
    ("package", "origin"),
    [
        ("comms", "Tessera"),
        ("netpipe", "Tweak your Interconnect"),
        ("llcbench", "Sokolowski"),
        ("osu-micro-benchmarks", "Strazdins"),
        ("intel-mpi-benchmarks", "PMB 2.2.1"),
        ("mpip", "Vetter"),
        ("mpi-pairs", "Strazdins"),
        ("mpi-time", "Celebioglu"),
        ("netperf", "Celebioglu"),
        ("iperf3", "None of the founding papers"),
    ],
)
def test_the_docstring_names_where_it_comes_from(said, package, origin):
    assert origin in said[f"{package} class"]["doc"]


def test_the_version_that_the_checks_read_is_the_default(said):
    assert said["netpipe class"]["preferred"] == ["3.7.2"]
    assert said["intel-mpi-benchmarks class"]["newest"] == "2021.11"
    assert said["osu-micro-benchmarks class"]["newest"] == "7.5.2"


def test_netpipes_archives_are_at_two_places(said):
    old, new = said["urls"]
    assert old == "http://bitspjoule.org/netpipe/code/NetPIPE-3.7.2.tar.gz"
    assert new == "https://netpipe.cs.ksu.edu/download/NetPIPE-5.1.4.tar.gz"


def test_what_is_off_in_mpip_is_off_in_its_configure(said):
    compilers = ["--with-cc=/m/mpicc", "--with-cxx=/m/mpicxx", "--with-f77=/m/mpif77"]
    sizes = ["--enable-maxargs=32", "--enable-stackdepth=8"]
    off = ["--disable-bfd", "--disable-demangling", "--disable-libunwind"]
    # glibc's backtrace() has one frame more than libunwind's.
    assert said["mpip"] == sorted([*compilers, *sizes, *off, "--enable-internal-stackdepth=4"])
    assert said["mpip with all"] == sorted([*compilers, *sizes, "--enable-internal-stackdepth=3"])
    assert {"--disable-mpi-io", "--disable-bfd"} <= set(said["mpip without io"])
    assert "--disable-libunwind" not in said["mpip without io"]
    assert {"--enable-setjmp", "--disable-libunwind"} <= set(said["mpip setjmp"])


def test_netperf_reads_the_processor_time_from_proc(said):
    assert said["netperf"] == ["--enable-cpuutil=procstat"]


@REFUSED_SPECS
@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("netpipe@3.7.2 ~mpi ~tcp", "nothing to build"),
        ("netpipe@5.1.4 ~mpi ~tcp ~ib", "nothing to build"),
    ],
)
def test_netpipe_without_a_module_is_refused(spack, spec, reason):
    done = spack("spec", spec)
    assert done.returncode != 0
    assert reason in done.stdout + done.stderr
