"""What a build says of its failures, from recorded output of ``spack install`` (Spack 1.1.0).

``golden/install-failures.log`` is of six small packages: no-answer and no-host cannot be
downloaded, wrong-checksum has another sha256 than its recipe says, no-compile has an error in its C
source, python-error one in its recipe, and needs depends on wrong-checksum.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seatrial.stack import build
from seatrial.stack.build import Outcome

OUTPUT = (Path(__file__).parent / "golden" / "install-failures.log").read_text()
MIRROR = f"https://mirror.spack.io/_source-cache/archive/00/{'0' * 64}.tar.gz"
UNKNOWN = "errored with: [Errno -2] Name or service not known"

#: name, version and hash of each package that is installed or skipped
SPECS = re.findall(r"(?:Installing|Skipping build of) (\S+)-(\S+)-([a-z0-9]{32})", OUTPUT)
GRAPH = {key: {"name": name, "version": version} for name, version, key in SPECS}
MISSING = [
    key
    for name, version, key in SPECS
    if f"Successfully installed {name}-{version}-{key}" not in OUTPUT
]


@pytest.fixture(scope="module")
def failures():
    """Package -> failure."""
    return {each.package: each for each in build.failures(OUTPUT, MISSING, GRAPH).values()}


def test_what_failed_by_itself_is_a_failure(failures):
    failed = ["no-answer", "no-compile", "no-host", "python-error", "wrong-checksum"]
    assert sorted(failures) == [f"{name}@1.0" for name in failed]


@pytest.mark.parametrize(
    ("name", "address", "reason"),
    [
        ("no-answer", "http://127.0.0.1:9/no-answer-1.0.tar.gz",
         "URLError: <urlopen error [Errno 111] Connection refused>"),
        ("no-host", "https://nohost.invalid/no-host-1.0.tar.gz",
         f"DetailedURLError: GET https://nohost.invalid/no-host-1.0.tar.gz {UNKNOWN}"),
    ],
    ids=["no-answer", "no-host"],
)  # fmt: skip
def test_a_download_names_each_address_and_its_reason(failures, name, address, reason):
    failure = failures[f"{name}@1.0"]
    assert failure.message[0].startswith("FetchError: All fetchers failed")
    assert failure.message[1:] == [
        f"{MIRROR}: DetailedURLError: GET {MIRROR} {UNKNOWN}",
        f"{address}: {reason}",
    ]
    assert failure.log == ""


def test_a_checksum_names_both_and_the_file(failures):
    first, second = failures["wrong-checksum@1.0"].message
    assert first.startswith("ChecksumError: sha256 checksum failed for /srv/stack/")
    assert f"Expected {'0' * 64} but got 55753b5c" in second
    assert second.endswith("URL = file:///srv/stack/sources/wrong-checksum-1.0.tar.gz")


def test_a_compile_error_has_command_excerpt_and_log(failures):
    failure = failures["no-compile@1.0"]
    assert failure.message[:4] == [
        "ProcessError: Command exited with status 2:",
        "'/usr/bin/make' '-j2'",
        "2 errors found in build log:",
        "  >> 6     cable.c:3:12: error: 'cable' undeclared (first use in this function)",
    ]
    assert failure.message[-1] == "  >> 10    make: *** [Makefile:2: all] Error 1"
    assert re.fullmatch(
        r"/srv/stack/\S+/spack-stage-no-compile\S+/spack-build-out.txt", failure.log
    )


def test_an_error_of_a_recipe_has_its_line(failures):
    failure = failures["python-error@1.0"]
    assert failure.message[0] == "KeyError: 'cable'"
    assert failure.message[-1].split(maxsplit=2) == [">>", "14", '{}["cable"]']
    assert "spack-stage-python-error" in failure.log


def test_the_end_of_the_log_is_shown_where_spack_has_no_excerpt(tmp_path):
    output = OUTPUT.replace("/srv/stack/site/stage", str(tmp_path))
    for file in re.findall(r"^  (\S+/spack-build-out.txt)$", output, re.MULTILINE):
        Path(file).parent.mkdir(parents=True)
        Path(file).write_text("the last line\n")
    tails = {f.package: f.tail for f in build.failures(output, MISSING, GRAPH).values()}
    assert {name for name, tail in tails.items() if tail} == {"python-error@1.0"}
    assert tails["python-error@1.0"] == ["the last line"]


def test_an_error_without_its_own_line_is_taken_from_the_end(failures):
    """Spack repeats each error at the end, with the package's hash."""
    start = OUTPUT.index("==> Error: no-answer-1.0-")
    repeated = build.failures(OUTPUT[start:], MISSING, GRAPH)
    assert {f.package: f.message[0] for f in repeated.values()} == {
        name: f.message[0] for name, f in failures.items() if name != "wrong-checksum@1.0"
    }


def test_the_summary_ends_with_what_was_not_tried_and_all_output(failures):
    log = Path("/srv/stack/install.log")
    lines = Outcome(failures=list(failures.values()), left_out=["needs@1.0"], log=log).summary()
    assert lines[0] == "0 built in 0 s, 0 installed before, 5 failed, 1 not tried"
    assert lines[-2:] == [
        "not tried, because a dependency failed: needs@1.0",
        "complete output of Spack: /srv/stack/install.log",
    ]
