"""No service may start during an installation; the machine's own files stay as they are."""

import stat
import subprocess

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
