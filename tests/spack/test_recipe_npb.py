"""NPB's recipe: what it builds, that it notices what did not build, what its test accepts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_sources import checksum, mirror

from seatrial.predict import programs
from spack_support import REFUSED_SPECS
from suite_maker import FILES

pytestmark = [
    pytest.mark.spack, pytest.mark.timeout(3600),
    pytest.mark.nightly(reason="builds of NPB by its recipe"),
]  # fmt: skip

#: NPB's makefiles, except that a program is a text, and CG does not build.
MAKEFILE = """\
include config/make.def
define RULE
$(1):
	{ echo '$(1) $$(CLASS)'; cat config/make.def; } > $$(BINDIR)/$(1).$$(CLASS).x
	chmod +x $$(BINDIR)/$(1).$$(CLASS).x
endef
$(foreach name,is ep mg,$(eval $(call RULE,$(name))))
cg:
	@echo "cg.f90: error"; exit 1
"""
CLEAN = "clean:\n\t@true\n"
TREE = {
    "NPB3.4.3/NPB3.4-MPI/Makefile": MAKEFILE,
    "NPB3.4.3/NPB3.4-MPI/config/README": "",
    **{f"NPB3.4.3/NPB3.4-MPI/{name}/Makefile": CLEAN for name in ("IS", "EP", "MG", "CG")},
}


def install(spack, shared, folder, spec):
    options = mirror(folder, checksum("npb", "3.4.3"), "tar.gz", TREE)
    return spack(*shared, *options, "install", "--fresh", "--no-cache", spec)


def test_every_program_that_was_asked_for_is_there(spack, shared, tmp_path):
    spec = "npb@3.4.3 names=is,ep classes=S,W fflags=-O1"
    done = install(spack, shared, tmp_path, spec)
    assert done.returncode == 0, done.stdout + done.stderr
    prefix = spack("location", "-i", spec).stdout.strip()
    programs = Path(prefix, "bin")
    assert sorted(path.name for path in programs.iterdir()) == [
        *("ep.S.x", "ep.W.x", "is.S.x", "is.W.x")
    ]
    made = (programs / "ep.W.x").read_text().splitlines()
    lines = dict(line.split(" = ", 1) for line in made if " = " in line)
    assert lines["FFLAGS"].split()[0] == "-O1"
    assert "-O3" not in lines["FFLAGS"]
    assert lines["CFLAGS"] == "-O3"


def test_a_kernel_that_does_not_build_fails_the_installation(spack, shared, tmp_path):
    done = install(spack, shared, tmp_path, "npb@3.4.3 names=is,cg,mg classes=S")
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "1 programs were asked for and not built: cg.S.x" in said, said


def test_what_spack_stages_is_a_source_for_predictions(spack, shared, tmp_path):
    tree = {f"NPB3.4.3/{programs.SUITE}/{name}": text for name, text in FILES.items()}
    options = mirror(tmp_path, checksum("npb", "3.4.3"), "tar.gz", tree)
    words = programs.STAGE.replace("FOLDER", str(tmp_path / "staged")).split()[1:]
    done = spack(*shared, *options, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    suite = programs.suite_in(tmp_path / "staged", tmp_path)
    assert (suite / "FT/ft.f90").read_text() == FILES["FT/ft.f90"]


@REFUSED_SPECS
def test_programs_that_do_not_exist_are_refused(spack):
    done = spack("spec", "npb@3.4.3 names=dt classes=S,C")
    assert done.returncode != 0
    assert "no result to check beyond B" in done.stdout + done.stderr


SCRIPT = """
import json
from pathlib import Path
import spack.concretize, spack.error
from spack_repo.seatrial.packages.npb.package import Npb, check_result

class Stub:
    usable, programs = Npb.usable, Npb.programs
    version = "3.3.1"
    def __init__(self, names, nprocs):
        value = lambda v: type("V", (), {"value": v})
        self.spec = type("S", (), {"satisfies": lambda self, _: True, "variants": {
            "names": value(names), "classes": value(("S",)), "nprocs": value(nprocs)}})()

def programs(names, *nprocs):
    try:
        return [(name, arguments) for _, _, name, arguments in Stub(names, nprocs).programs()]
    except spack.error.SpackError as error:
        return error.message

def verdict(text, ranks=2):
    try:
        check_result(text, "ep.S.x", "S", ranks)
    except RuntimeError as error:
        return str(error)
    return "good"

good = "\\n Class           =                        S\\n"
good += " Active processes=                        2\\n"
good += " Verification    =               SUCCESSFUL\\n"
print(json.dumps({
    "square": [name for name, _ in programs(("bt",), "1,2,4,8,16")],
    "power": [name for name, _ in programs(("cg",), "1", "3", "4", "6")],
    "any": programs(("ep",), "3"),
    "dt": programs(("dt",), "3"),
    "none": programs(("sp",), "2"),
    "good": verdict(good),
    "wrong": verdict(good.replace("SUCCESSFUL", "UNSUCCESSFUL")),
    "silent": verdict(""),
    "worlds": verdict(good.replace("2", "1") * 2),
    "one rank": verdict(good.replace("2", "1")),
    "class": verdict(good.replace("S\\n", "W\\n")),
}))
"""


def test_numbers_of_ranks_and_verdicts(spack, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = spack("python", str(script))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["square"] == ["bt.S.1", "bt.S.4", "bt.S.16"]
    assert found["power"] == ["cg.S.1", "cg.S.4"]
    assert found["any"] == [["ep.S.3", ["CLASS=S", "NPROCS=3"]]]
    assert found["dt"] == [["dt.S.x", ["CLASS=S"]]]
    assert found["none"] == "NPB 3.3.1: none of nprocs=2 can run sp, which needs a square"
    assert found["good"] == "good"
    assert "UNSUCCESSFUL" in found["wrong"]
    assert "nothing" in found["silent"]
    assert "once SUCCESSFUL" in found["worlds"]
    assert "expected 2 active processes" in found["one rank"]
    assert "expected class S" in found["class"]
