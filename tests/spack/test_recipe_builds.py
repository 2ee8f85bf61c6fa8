"""Real builds of the recipes with two MPI libraries, and their stand-alone tests. Takes minutes.

Sources come from where Spack is configured to find them: upstream, or a mirror. Where they can't be
had, the tests are skipped.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spack, pytest.mark.timeout(3600)]

WITH_MPI = (
    "comms",
    "netpipe@3.7.2",
    "llcbench",
    "osu-micro-benchmarks@7.4",
    "intel-mpi-benchmarks@2021.11",
    "mpip",
    "mpi-pairs",
    "mpi-time",
)
WITHOUT_MPI = ("netperf", "iperf3@3.17.1")
#: test functions of all packages of an environment
TESTS = {
    "openmpi": {
        "Comms": ["test_times"],
        "Netpipe": ["test_mpi", "test_tcp"],
        "Llcbench": [
            *("test_allreduce", "test_alltoall", "test_bandwidth", "test_bidirectional"),
            *("test_broadcast", "test_gap", "test_reduce", "test_roundtrip"),
        ],
        "OsuMicroBenchmarks": [
            *("test_allreduce", "test_bandwidth", "test_latency", "test_multiple_pairs")
        ],
        "IntelMpiBenchmarks": ["test_allreduce", "test_pingpong", "test_threads"],
        "Mpip": ["test_profile"],
        "MpiPairs": ["test_pairs"],
        "MpiTime": ["test_times"],
        "Netperf": ["test_stream", "test_transactions"],
        "Iperf3": ["test_tcp", "test_udp"],
    },
}
TESTS["mpich"] = {
    name: tests for name, tests in TESTS["openmpi"].items() if name not in ("Netperf", "Iperf3")
}
#: the MPICH of PyPI, which the lab has too, has no Fortran, and mpiP asks for it
MPIS = {"openmpi": "openmpi", "mpich": "mpich netmod=ucx"}
#: the project's own shared configuration, without which a solve takes several times as long
SHARED = Path(__file__).resolve().parents[2] / "spack-repo" / "environments"
ENVIRONMENT = """\
spack:
  include: [{shared}/external-mpi, {shared}/base]
  concretizer: {{unify: true}}
  view: false
  packages: {{mpi: {{require: [{mpi}]}}}}
  specs: [{specs}]
"""

LONG = pytest.mark.nightly(reason="builds of every recipe from its source, with two MPI libraries")


@pytest.fixture(scope="module", params=sorted(MPIS))
def built(request, spack, mpi_scope, tmp_path_factory):
    """Name of the MPI, and `spack` in an environment of all packages, installed."""
    mpi = request.param
    specs = WITH_MPI + (WITHOUT_MPI if mpi == "openmpi" else ())
    folder = tmp_path_factory.mktemp(mpi)
    text = ENVIRONMENT.format(mpi=MPIS[mpi], specs=", ".join(specs), shared=SHARED)
    (folder / "spack.yaml").write_text(text)

    def inside(*words):
        results = f"config:test_stage:{folder / 'tests'}"  # else an alias is taken from then on
        done = spack("-C", str(mpi_scope), "-c", results, "-e", str(folder), *words)
        return done.returncode, done.stdout + done.stderr

    code, said = inside("concretize")
    assert code == 0, said[-5000:]
    code, said = inside("-c", "config:connect_timeout:10", "fetch", "--missing")
    if code and (package := unreachable(said)):
        pytest.skip(f"spack: the sources of {package} cannot be had from here")
    assert code == 0, said[-5000:]
    code, said = inside("install", "-j2")
    assert code == 0, said[-5000:]
    return mpi, inside


def unreachable(said: str) -> str:
    """The package whose sources no server gave; empty where upstream said that there are none,
    which is a fault of the recipe."""
    found = re.search(r"All fetchers failed for spack-stage-(\S+)-\w{32}\b", said)
    if not found:
        return ""
    lines = said[found.end() :].strip().splitlines()
    upstream = [line for line in lines if "/_source-cache/" not in line]  # else a mirror's
    gone = bool(upstream) and all(re.search(r"\b(404|410)\b", line) for line in upstream)
    return "" if gone else found[1]


#: of `spack fetch`, Spack 1.1.0
FAILED = """
==> Error: All fetchers failed for spack-stage-netpipe-5.1.4-deyjvoisefxecss35eioamwafpkadwst
    https://mirror.spack.io/_source-cache/archive/73/738a.tar.gz: DetailedURLError: GET \
https://mirror.spack.io/_source-cache/archive/73/738a.tar.gz errored with: {mirror}
    https://a.edu/NetPIPE-5.1.4.tar.gz: DetailedURLError: GET https://a.edu/NetPIPE-5.1.4.tar.gz \
errored with: {upstream}

"""
UNKNOWN, FORBIDDEN, GONE = (
    "[Errno -2] Name or service not known", "HTTP Error 403: Forbidden", "HTTP Error 404: Not Found"
)  # fmt: skip


@pytest.mark.parametrize(
    ("mirror", "upstream", "package"),
    [
        (UNKNOWN, UNKNOWN, "netpipe-5.1.4"),
        (GONE, FORBIDDEN, "netpipe-5.1.4"),
        (UNKNOWN, GONE, ""),
    ],
)
def test_only_sources_that_exist_can_be_out_of_reach(mirror: str, upstream: str, package: str):
    assert unreachable(FAILED.format(mirror=mirror, upstream=upstream)) == package
    assert not unreachable("==> Error: concretization failed")


@LONG
def test_every_stand_alone_test_of_every_package_passes(built):
    mpi, spack = built
    names = [spec.partition("@")[0] for spec in WITH_MPI]
    if mpi == "openmpi":
        names += [spec.partition("@")[0] for spec in WITHOUT_MPI]
    code, said = spack("test", "run", "--alias", f"seatrial-{mpi}", *names)
    _, results = spack("test", "results", "-l", f"seatrial-{mpi}")
    passed = set(re.findall(r"^(\w+::test_\w+) \.\. PASSED", results, re.M))
    due = {f"{name}::{test}" for name, tests in TESTS[mpi].items() for test in tests}
    assert passed == due, results[-5000:]
    assert code == 0, said[-2000:]


@LONG
def test_imb_is_optimised_and_has_threads(built):
    _, spack = built
    _, log = spack("logs", "intel-mpi-benchmarks")
    compiled = [line for line in log.splitlines() if re.search(r"/mpi\S+ .* -c ", line)]
    assert len(compiled) > 50
    assert not [line for line in compiled if "-O0" in line or "-Werror" in line]
    assert all(re.search(r" -O[23]\b", line) for line in compiled)
    assert [line for line in compiled if "MT/MT_benchmark" in line and "-fopenmp" in line]
