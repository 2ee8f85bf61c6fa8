"""No service may start during an installation; the machine's own files stay as they are."""

import stat
import subprocess

import pytest

from seatrial.base.errors import LabError
from seatrial.stack import apt
from seatrial.stack.packages import SourceArchive


def test_services_are_denied_and_the_policy_is_removed(tmp_path):
    policy = tmp_path / "policy-rc.d"
    with apt.no_services(policy):
        assert subprocess.run([policy, "munge", "start"]).returncode == 101
    assert list(tmp_path.iterdir()) == []


def test_the_machines_own_policy_comes_back_also_after_a_failure(tmp_path):
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 0\n")
    policy.chmod(0o755)

    def fail():
        with apt.no_services(policy):
            assert "101" in policy.read_text()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert policy.read_text() == "#!/bin/sh\nexit 0\n"
    assert stat.S_IMODE(policy.stat().st_mode) == 0o755
    assert [file.name for file in tmp_path.iterdir()] == ["policy-rc.d"]


@pytest.mark.parametrize("own", ["#!/bin/sh\nexit 0\n", None])
def test_what_a_killed_run_left_is_cleared(tmp_path, own):
    policy = tmp_path / "policy-rc.d"
    if own:
        policy.write_text(own)
    killed = apt.no_services(policy)
    killed.__enter__()
    with apt.no_services(policy):
        pass
    assert (policy.read_text() if policy.exists() else None) == own
    assert len(list(tmp_path.iterdir())) == bool(own)


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
    one_line, deb822 = apt.source_stanzas("bookworm", tmp_path)
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
    monkeypatch.setattr(apt, "source_stanzas", lambda codename: [])
    with pytest.raises(LabError, match="no source of Debian trixie"):
        apt.download_sources([], "trixie", tmp_path)


def test_an_archive_that_is_not_the_pinned_one_is_refused(tmp_path):
    (tmp_path / "hpcc_1.6.0.orig.tar.gz").write_bytes(b"something else")
    pinned = SourceArchive("hpcc", "1.5.0", "0" * 64)
    with pytest.raises(LabError, match=r"pinned version 1\.5\.0 .* delivered hpcc_1\.6\.0"):
        apt._checked(pinned, tmp_path)
