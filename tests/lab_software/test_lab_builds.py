"""What the labs build: each source is pinned, and an edit of it is refused where it changed."""

import re

import pytest

from seatrial.base.errors import LabError
from seatrial.base.paths import CHECKOUT
from seatrial_lab.software import build, pypi
from seatrial_lab.software.packages import SOURCES


def test_every_pin_has_a_hash():
    for lock in (pypi.WHEELS, pypi.SOURCES):
        for name in pypi.pins(lock):
            assert "--hash=sha256:" in pypi.requirement(lock, name)


def test_netpipe_is_the_version_of_the_recipe():
    recipe = CHECKOUT / "spack-repo/spack_repo/seatrial/packages/netpipe/package.py"
    source = SOURCES["netpipe"]
    pinned = rf'"{re.escape(source.version)}",\s+sha256="{source.sha256}"'
    assert re.search(pinned, recipe.read_text())


def test_all_of_hpccs_tests_can_be_chosen():
    names = build.wrapped_functions(build.SELECT.read_text())
    assert len(names) == 16
    assert {"HPL_main", "PTRANS", "main_bench_lat_bw", "HPCC_SingleDGEMM"} <= set(names)


def test_an_edit_of_a_source_that_changed_is_refused(tmp_path):
    file = tmp_path / "ep.c"
    file.write_text("Mops = x/tm/1000; y/tm/1000;")
    with pytest.raises(LabError, match=r"ep\.c is not the version"):
        build._edit(file, "/tm/1000;", "/tm/1000000.0;")
