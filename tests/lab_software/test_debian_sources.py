"""Sources are fetched by the machine's own list of package sources, which stays as it is."""

import pytest

from seatrial.base.errors import LabError
from seatrial_lab.software import debian_sources
from seatrial_lab.software.packages import SourceArchive

DEB822 = """\
# a comment
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://vendor.example/deb
Suites: nodistro
Components: main

Enabled: no
Types: deb
URIs: http://other.example/debian
Suites: bookworm
Components: main
"""
ONE_LINE = """\
deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib # own mirror
deb http://mirror.example/debian bookworm-updates main
#deb http://old.example/debian bookworm main
deb-src http://mirror.example/debian bookworm main
"""


def test_sources_are_derived_from_both_formats(tmp_path):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(DEB822)
    (tmp_path / "sources.list").write_text(ONE_LINE)
    one_line, deb822 = debian_sources.source_stanzas("bookworm", tmp_path)
    assert one_line.splitlines() == [
        "Types: deb-src", "URIs: http://mirror.example/debian", "Suites: bookworm",
        "Components: main contrib", "Signed-By: /k.gpg",
    ]  # fmt: skip
    assert deb822.splitlines() == [
        "Types: deb-src", "Suites: bookworm", "Uris: http://mirror.example/debian",
        "Components: main", "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg",
    ]  # fmt: skip
    assert (tmp_path / "sources.list").read_text() == ONE_LINE


def test_no_source_of_the_release_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(debian_sources, "source_stanzas", lambda codename: [])
    with pytest.raises(LabError, match="no source of Debian trixie"):
        debian_sources.download_sources([], "trixie", tmp_path)


def test_an_archive_that_is_not_the_pinned_one_is_refused(tmp_path):
    (tmp_path / "hpcc_1.6.0.orig.tar.gz").write_bytes(b"something else")
    pinned = SourceArchive("hpcc", "1.5.0", "0" * 64)
    with pytest.raises(LabError, match=r"pinned version 1\.5\.0 .* delivered hpcc_1\.6\.0"):
        debian_sources._checked(pinned, tmp_path)
