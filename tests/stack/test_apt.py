"""No service may start during an installation; the machine's own files stay as they are."""

import stat
import subprocess
import sys
from contextlib import contextmanager

import pytest

from seatrial.stack import apt


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


INSTALLATION = """
import os, sys
from pathlib import Path
from seatrial.stack import apt
with apt.no_services(Path(sys.argv[1])):
    print("begun", flush=True)
    sys.stdin.read()
    os.kill(os.getpid(), 9)
"""


@contextmanager
def installation(policy):
    """In another process; it is killed at the end of the block."""
    command = [sys.executable, "-c", INSTALLATION, str(policy)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"begun\n"
        yield


def install_again(policy):
    with apt.no_services(policy):
        pass


@pytest.mark.root
@pytest.mark.parametrize("clear", [install_again, apt.remove_left])
@pytest.mark.parametrize("own", ["#!/bin/sh\nexit 0\n", None])
def test_what_a_killed_run_left_is_cleared(tmp_path, own, clear):
    policy = tmp_path / "policy-rc.d"
    if own:
        policy.write_text(own)
    with installation(policy):
        pass
    assert "101" in policy.read_text()
    clear(policy)
    assert (policy.read_text() if policy.exists() else None) == own
    assert len(list(tmp_path.iterdir())) == bool(own)


@pytest.mark.root
def test_the_policy_of_an_installation_that_runs_stays(tmp_path):
    policy = tmp_path / "policy-rc.d"
    with installation(policy):
        apt.remove_left(policy)
        assert "101" in policy.read_text()


@pytest.mark.root
def test_the_machines_own_policy_is_not_what_was_left(tmp_path):
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    apt.remove_left(policy)
    assert policy.read_text() == "#!/bin/sh\nexit 101\n"
    assert [file.name for file in tmp_path.iterdir()] == ["policy-rc.d"]
