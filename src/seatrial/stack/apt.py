"""Installing Debian packages.

Nothing is started by an installation: ``no_services`` keeps invoke-rc.d from it while apt runs.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from seatrial.base.lock import locked
from seatrial.base.run import run
from seatrial.base.say import Say, say_nothing

POLICY = Path("/usr/sbin/policy-rc.d")
PERCENT = 20  #: progress is reported after each so many per cent
_MARK = "# Seatrial: no service may start while the lab's packages are installed."
_POLICY_TEXT = f"#!/bin/sh\n{_MARK}\nexit 101\n"


@contextmanager
def no_services(policy: Path = POLICY, progress: Say = say_nothing) -> Iterator[int]:
    """Forbid the start of services (Debian's policy-rc.d) until the block ends.

    A policy of the machine's own is set aside and put back, also after a failure; one that an
    earlier, killed run left behind is cleared first. One process at a time does this: yields the
    descriptor of the lock, for a program that may go on when this process is killed.
    """
    with locked(_lock(policy), progress) as lock:
        _put_back(policy)
        if policy.exists() or policy.is_symlink():
            policy.rename(_aside(policy))
        policy.write_text(_POLICY_TEXT)
        policy.chmod(0o755)
        try:
            yield lock
        finally:
            _put_back(policy)
            _lock(policy).unlink()


def remove_left(policy: Path = POLICY) -> None:
    """Clear what a killed installation left: with it, no package can start its service.

    Does nothing while an installation runs, and for a user who is not root. Raises OSError.
    """
    if os.geteuid() or not (_is_ours(policy) or _aside(policy).exists()):
        return

    def leave(_: str) -> None:
        raise BlockingIOError(errno.EAGAIN, "an installation runs")

    with suppress(BlockingIOError), locked(_lock(policy), leave):
        _put_back(policy)
        _lock(policy).unlink()


def _lock(policy: Path) -> Path:
    return policy.with_name(policy.name + ".seatrial-lock")


def _aside(policy: Path) -> Path:
    return policy.with_name(policy.name + ".before-seatrial")


def _is_ours(policy: Path) -> bool:
    return policy.is_file() and _MARK in policy.read_text(errors="replace")


def _put_back(policy: Path) -> None:
    aside = _aside(policy)
    if _is_ours(policy):
        policy.unlink()
    if aside.exists() or aside.is_symlink():
        aside.rename(policy)


def install(packages: Sequence[str], progress: Say = say_nothing) -> None:
    """Install Debian packages; no service is started and none removed. Raises LabError.

    ``progress`` is called with a line after each ``PERCENT`` of download and installation.
    """
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    # A foreign source that cannot be reached must not keep Debian's packages away.
    run(["apt-get", "-q", "update"], "apt-get update", env=env, accept_failure=True)
    command = [
        "apt-get", "-q", "-y", "install", "--no-install-recommends", "--no-remove",
        "-o", "Dpkg::Options::=--force-confold", *packages,
    ]  # fmt: skip
    purpose = f"installing {len(packages)} Debian packages"
    with no_services(POLICY, progress) as lock, _status(purpose, progress) as descriptor:
        # What an interrupted installation left half done would make apt refuse the next one.
        finish = ["dpkg", "--force-confold", "--configure", "-a"]
        run(finish, "finishing an earlier installation", env=env, accept_failure=True)
        command[1:1] = ["-o", f"APT::Status-Fd={descriptor}", "-o", "DPkg::Lock::Timeout=300"]
        run(command, purpose, env=env, keep=(descriptor, lock))


@contextmanager
def _status(purpose: str, progress: Say) -> Iterator[int]:
    """A descriptor for apt's status lines, which are ``kind:package:percent:text``."""
    read_end, write_end = os.pipe()

    def follow() -> None:
        reported = {"dlstatus": 0.0, "pmstatus": 0.0}
        with open(read_end, errors="replace") as lines:  # noqa: PTH123 (a descriptor)
            for line in lines:
                fields = line.split(":", 3)
                if len(fields) == 4 and fields[0] in reported:
                    with suppress(ValueError):
                        step = float(fields[2]) // PERCENT * PERCENT
                        if step > reported[fields[0]]:
                            reported[fields[0]] = step
                            what = "downloaded" if fields[0] == "dlstatus" else "done"
                            progress(f"{purpose}: {step:.0f} % {what}")

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    try:
        yield write_end
    finally:
        os.close(write_end)
        follower.join(timeout=5)
