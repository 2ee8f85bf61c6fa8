"""Download upstream archives of Debian source packages from the machine's package sources.

It changes neither the machine's package sources nor its package lists.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.files import sha256
from seatrial.base.run import run
from seatrial_lab.software.packages import SourceArchive

ETC_APT = Path("/etc/apt")


def required_stanzas(codename: str) -> list[str]:
    """Return ``source_stanzas`` of a suite. Raises LabError if the machine has none."""
    stanzas = source_stanzas(codename)
    if not stanzas:
        raise LabError(f"no source of Debian {codename or '?'} is configured in {ETC_APT}")
    return stanzas


def private_list_options(state: Path, stanzas: Sequence[str]) -> list[str]:
    """Return options for apt to use these sources, with its package lists in ``state``."""
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
    """Download the upstream archives of Debian source packages to ``into``; return their paths.

    apt uses a private list of sources, derived from the machine's list. Raises LabError if a
    download fails or if the hash of a file is not the pinned hash.
    """
    state = into / "apt"
    options = private_list_options(state, required_stanzas(codename))
    run(["apt-get", *options, "-q", "update"], "reading the list of Debian's source packages")
    names = [archive.package for archive in archives]
    command = ["apt-get", *options, "-q", "source", "--download-only", "--tar-only", *names]
    run(command, f"downloading the sources of {', '.join(names)}", cwd=into)
    shutil.rmtree(state)
    return [_checked(archive, into) for archive in archives]


def _checked(archive: SourceArchive, folder: Path) -> Path:
    files = sorted(folder.glob(f"{archive.package}_*.orig.tar.*"))
    for file in files:
        if sha256(file) == archive.sha256:
            return file
    names = ", ".join(file.name for file in files) or "nothing"
    raise LabError(
        f"Debian's source package {archive.package} is not the pinned version {archive.version} "
        f"(sha256 {archive.sha256}): apt delivered {names}"
    )


def source_stanzas(codename: str, etc: Path = ETC_APT) -> list[str]:
    """Return the machine's sources of a Debian suite, as deb822 stanzas of type deb-src."""
    stanzas: list[str] = []
    for file in sorted([etc / "sources.list", *(etc / "sources.list.d").glob("*")]):
        if file.suffix == ".sources":
            stanzas += _from_deb822(file.read_text(), codename)
        elif file.suffix == ".list" and file.is_file():
            stanzas += _from_one_line(file.read_text(), codename)
    return stanzas


def _from_deb822(text: str, codename: str) -> list[str]:
    stanzas = []
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
            stanzas.append("\n".join(f"{k.title()}: {v}" for k, v in stanza.items()))
    return stanzas


def _from_one_line(text: str, codename: str) -> list[str]:
    stanzas = []
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
        stanzas.append("\n".join(stanza))
    return stanzas
