"""External MPI libraries: folders of symlinks, and the section that declares them."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.base.errors import LabError
from seatrial.stack import externals, wheels
from seatrial.stack.wheels import External


@pytest.mark.parametrize(
    ("debian", "version"),
    [
        ("4.1.4-3+b1", "4.1.4"),
        ("1:2.39.5-0+deb12u3", "2.39.5"),
        ("0.3.21+ds-4", "0.3.21"),
        ("3.10.3-13", "3.10.3"),
        ("5.0.7-1", "5.0.7"),
    ],
)
def test_upstream_version(debian: str, version: str):
    assert externals.upstream(debian) == version


@pytest.fixture
def binaries(tmp_path: Path) -> Path:
    """A /usr/bin as Debian's, with two MPI libraries: MPICH has no mpic++.mpich."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in externals.PROGRAMS:
        (folder / f"{name}.openmpi").touch()
        if name != "mpic++":
            (folder / f"{name}.mpich").touch()
    return folder


@pytest.mark.parametrize("flavour", ["openmpi", "mpich"])
def test_every_name_leads_to_its_own_mpi(binaries: Path, flavour: str):
    found = externals.programs(flavour, binaries)
    assert {Path(name).name for name in found} == set(externals.PROGRAMS)
    assert {file.suffix for file in found.values()} == {f".{flavour}"}


def test_mpich_has_mpicxx_for_the_missing_name(binaries: Path):
    assert externals.programs("mpich", binaries)["bin/mpic++"].name == "mpicxx.mpich"


def test_links_are_made_once_and_renewed_when_they_differ(binaries: Path, tmp_path: Path):
    prefix = tmp_path / "prefix"
    part = External("openmpi", "openmpi@4", "prefix", externals.programs("openmpi", binaries))
    externals._link(part, prefix)
    first = prefix.stat().st_ino
    externals._link(part, prefix)
    assert prefix.stat().st_ino == first
    other = External("mpich", "mpich@4", "prefix", externals.programs("mpich", binaries))
    externals._link(other, prefix)
    assert (prefix / "bin/mpicc").readlink().name == "mpicc.mpich"


def test_a_missing_file_is_named(tmp_path: Path):
    part = External("openmpi", "openmpi@4", "p", {"lib": tmp_path / "gone"})
    with pytest.raises(LabError, match=r"gone is missing; openmpi@4 needs it"):
        externals._link(part, tmp_path / "p")


def test_two_externals_of_one_package_are_both_declared(tmp_path: Path):
    parts = [
        External("mpich", "mpich@4.0.2 netmod=ucx", "mpich"),
        External("mpich", "mpich@5.0.2 netmod=ofi", "mpich-pypi"),
        External("ucx", "ucx@1.13.1", "/usr"),
    ]
    section = externals.declared(parts, tmp_path)
    assert section["mpich"] == {
        "buildable": False,
        "externals": [
            {"spec": "mpich@4.0.2 netmod=ucx", "prefix": f"{tmp_path}/mpich"},
            {"spec": "mpich@5.0.2 netmod=ofi", "prefix": f"{tmp_path}/mpich-pypi"},
        ],
    }
    assert section["ucx"]["externals"][0]["prefix"] == "/usr"


def test_a_prefix_is_put_into_scripts_and_not_into_programs(tmp_path: Path):
    home = Path("/opt/impi")
    (tmp_path / "mpicc").write_text("#!/bin/sh\nprefix=I_MPI_SUBSTITUTE_INSTALLDIR\n")
    (tmp_path / "hydra").write_bytes(b"\x7fELF I_MPI_SUBSTITUTE_INSTALLDIR")
    for name in ("mpicc", "hydra"):
        wheels._fill(tmp_path / name, home)
    assert "prefix=/opt/impi" in (tmp_path / "mpicc").read_text()
    assert b"I_MPI_SUBSTITUTE" in (tmp_path / "hydra").read_bytes()
