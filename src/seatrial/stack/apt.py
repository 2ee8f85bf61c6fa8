"""Debian packages and upstream archives, by name, from the machine's own package sources.

Nothing is started by an installation: ``no_services`` keeps invoke-rc.d from it while apt runs.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.stack.files import sha256
from seatrial.stack.packages import SourceArchive
from seatrial.stack.run import run

POLICY = Path("/usr/sbin/policy-rc.d")
ETC_APT = Path("/etc/apt")
PERCENT = 20  #: how often progress is told
_MARK = "# Seatrial: no service may start while the lab's packages are installed."
_POLICY_TEXT = f"#!/bin/sh\n{_MARK}\nexit 101\n"


@contextmanager
def no_services(policy: Path = POLICY) -> Iterator[None]:
    """Forbid the start of services (Debian's policy-rc.d) until the block ends.

    A policy of the machine's own is set aside and put back, also after a failure; one that an
    earlier, killed run left behind is cleared first.
    """
    aside = policy.with_name(policy.name + ".before-seatrial")
    _put_back(policy, aside)
    if policy.exists() or policy.is_symlink():
        policy.rename(aside)
    policy.write_text(_POLICY_TEXT)
    policy.chmod(0o755)
    try:
        yield
    finally:
        _put_back(policy, aside)


def _put_back(policy: Path, aside: Path) -> None:
    if policy.is_file() and _MARK in policy.read_text(errors="replace"):
        policy.unlink()
    if aside.exists() or aside.is_symlink():
        aside.rename(policy)


def install(packages: Sequence[str], progress: Callable[[str], None] = lambda _: None) -> None:
    """Install Debian packages; no service is started and none removed. Raises LabError.

    ``progress`` is told at each fifth of the download and of the installation.
    """
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    # A foreign source that cannot be reached must not keep Debian's packages away.
    run(["apt-get", "-q", "update"], "apt-get update", env=env, accept_failure=True)
    command = [
        "apt-get", "-q", "-y", "install", "--no-install-recommends", "--no-remove",
        "-o", "Dpkg::Options::=--force-confold", *packages,
    ]  # fmt: skip
    purpose = f"installing {len(packages)} Debian packages"
    with no_services(), _status(purpose, progress) as descriptor:
        # What an interrupted installation left half done would make apt refuse the next one.
        finish = ["dpkg", "--force-confold", "--configure", "-a"]
        run(finish, "finishing an earlier installation", env=env, accept_failure=True)
        command[1:1] = ["-o", f"APT::Status-Fd={descriptor}", "-o", "DPkg::Lock::Timeout=300"]
        run(command, purpose, env=env, keep=(descriptor,))


@contextmanager
def _status(purpose: str, progress: Callable[[str], None]) -> Iterator[int]:
    """A descriptor for apt's status lines, which are ``kind:package:percent:text``."""
    read_end, write_end = os.pipe()

    def follow() -> None:
        told = {"dlstatus": 0.0, "pmstatus": 0.0}
        with open(read_end, errors="replace") as lines:  # noqa: PTH123 (a descriptor)
            for line in lines:
                fields = line.split(":", 3)
                if len(fields) == 4 and fields[0] in told:
                    with suppress(ValueError):
                        step = float(fields[2]) // PERCENT * PERCENT
                        if step > told[fields[0]]:
                            told[fields[0]] = step
                            what = "downloaded" if fields[0] == "dlstatus" else "done"
                            progress(f"{purpose}: {step:.0f} % {what}")

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    try:
        yield write_end
    finally:
        os.close(write_end)
        follower.join(timeout=5)


def configured(codename: str) -> list[str]:
    """``source_stanzas`` of a suite that the machine must have. Raises LabError."""
    stanzas = source_stanzas(codename)
    if not stanzas:
        raise LabError(f"no source of Debian {codename or '?'} is configured in {ETC_APT}")
    return stanzas


def own_lists(state: Path, stanzas: Sequence[str]) -> list[str]:
    """Options of apt that give it these sources, and lists of their packages in ``state``."""
    for folder in (state / "lists" / "partial", state / "parts"):
        folder.mkdir(parents=True, exist_ok=True)
    (state / "parts" / "seatrial.sources").write_text("\n\n".join(stanzas) + "\n")
    return [
        "-o", "Dir::Etc::sourcelist=/dev/null",
        "-o", f"Dir::Etc::sourceparts={state / 'parts'}",
        "-o", f"Dir::State::lists={state / 'lists'}",
        "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=",
        "-o", "APT::Sandbox::User=root",
    ]  # fmt: skip


def download_sources(archives: Sequence[SourceArchive], codename: str, into: Path) -> list[Path]:
    """The upstream archives of Debian source packages, in ``into``, each with its pinned hash.

    The machine's own list of sources stays as it is: a private list is derived from it.
    Raises LabError where a download fails or a hash differs.
    """
    state = into / "apt"
    options = own_lists(state, configured(codename))
    run(["apt-get", *options, "-q", "update"], "reading the list of Debian's source packages")
    names = [archive.package for archive in archives]
    command = ["apt-get", *options, "-q", "source", "--download-only", "--tar-only", *names]
    run(command, f"downloading the sources of {', '.join(names)}", cwd=into)
    shutil.rmtree(state)
    return [_checked(archive, into) for archive in archives]


def _checked(archive: SourceArchive, folder: Path) -> Path:
    found = sorted(folder.glob(f"{archive.package}_*.orig.tar.*"))
    for file in found:
        if sha256(file) == archive.sha256:
            return file
    names = ", ".join(file.name for file in found) or "nothing"
    raise LabError(
        f"Debian's source package {archive.package} is not the pinned version {archive.version} "
        f"(sha256 {archive.sha256}): apt delivered {names}"
    )


def source_stanzas(codename: str, etc: Path = ETC_APT) -> list[str]:
    """The machine's sources of one Debian suite, as deb822 stanzas of type deb-src."""
    stanzas: list[str] = []
    for file in sorted([etc / "sources.list", *(etc / "sources.list.d").glob("*")]):
        if file.suffix == ".sources":
            stanzas += _from_deb822(file.read_text(), codename)
        elif file.suffix == ".list" and file.is_file():
            stanzas += _from_one_line(file.read_text(), codename)
    return stanzas


def _from_deb822(text: str, codename: str) -> list[str]:
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.strip() and line[0] != "#"]
        fields: dict[str, str] = {}
        key = ""
        for line in lines:
            if line[0] in " \t":
                fields[key] += "\n" + line
            else:
                key, _, value = line.partition(":")
                key = key.strip().lower()
                fields[key] = value.strip()
        disabled = fields.get("enabled", "yes").lower() in ("no", "false")
        if codename in fields.get("suites", "").split() and not disabled:
            kept = {k: v for k, v in fields.items() if k not in ("types", "suites", "enabled")}
            stanza = {"types": "deb-src", "suites": codename, **kept}
            found.append("\n".join(f"{k.title()}: {v}" for k, v in stanza.items()))
    return found


def _from_one_line(text: str, codename: str) -> list[str]:
    found = []
    for line in text.splitlines():
        words = line.split("#", 1)[0].split()
        if len(words) < 4 or words[0] != "deb":
            continue
        options: list[str] = []
        if words[1].startswith("["):
            end = next(i for i, word in enumerate(words) if word.endswith("]"))
            options = " ".join(words[1 : end + 1]).strip("[] ").split()
            words = [words[0], *words[end + 1 :]]
        if words[2] != codename:
            continue
        stanza = [f"Types: deb-src\nURIs: {words[1]}\nSuites: {codename}"]
        stanza.append(f"Components: {' '.join(words[3:])}")
        for option in options:
            name, _, value = option.partition("=")
            if name.lower() in ("signed-by", "trusted"):
                stanza.append(f"{name.title()}: {value}")
        found.append("\n".join(stanza))
    return found
