"""Detached signatures of a trial's manifest, by keys of OpenSSH (``ssh-keygen -Y``).

A signature covers the manifest as it was when it was made: its first lines, whose number is in the
signature's name. Later judgements add lines behind them. The tool is ssh-keygen, because OpenSSH is
on every cluster and most people there have a key. The format is that of PROTOCOL.sshsig of OpenSSH
(8.1, 2019).
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.base.errors import InputError, LabError, Problem
from seatrial.base.files import read_below, write_whole
from seatrial.results import manifest

LIMIT_B = 1 << 20  # largest signature that is read; a usual one has less than 2 kB
NO_SIGNATURE = "it is not one of this manifest"
NAMESPACE = "seatrial"  # a signature made for another purpose is none of a trial
#: key type and key in a line of allowed signers, behind names and options
_LISTED = re.compile(r"\s((?:sk-)?(?:ssh|ecdsa)-\S+)\s+(AAAA\S+)")
_KEY = re.compile(r'Good "\S+" signature .*?with (\S+) key (SHA256:\S+)')


@dataclass(frozen=True)
class Signature:
    """One signature beside a manifest, as far as it was checked."""

    file: str
    lines: int  # so many lines of the manifest are signed
    fault: str = ""  # why it is not good; empty if it is
    key: str = ""  # type and fingerprint, such as "ED25519 SHA256:..."
    signer: str = ""  # the name of the key in the list of signers
    listed: bool = True  # whether the key is in the list; True without a list

    def sentence(self, lines: int) -> str:
        """The result of the check; ``lines`` is the number of lines of the manifest."""
        who = f" of {self.signer}" if self.signer else ""
        key = f" with key {self.key}" if self.key else ""
        if self.fault:
            return f"signature {self.file}{key} is not good: {self.fault}"
        part = "all files" if self.lines == lines else f"the first {self.lines} of {lines} files"
        other = "" if self.listed else ", whose key is not listed,"
        return f"good signature{who}{key}{other} on {part} ({self.file})"


def sign(folder: Path, key: Path, data: bytes | None = None) -> Path:
    """Sign the manifest as it is; returns the new file.

    ``key`` is a private key of OpenSSH, or a public key whose private key an agent has. ``data`` is
    the content of the manifest, if the caller has compared the trial with it.
    Raises InputError if a file of the trial is not as in the manifest or the key cannot be used,
    LabError without ssh-keygen.
    """
    if data is None:
        data = manifest.content(folder)
        if differences := manifest.check(folder, data=data):
            problems = [
                Problem(folder / difference.name, None, "", difference.kind)
                for difference in differences
            ]
            text = "a changed trial is not signed"
            raise InputError([*problems, Problem(folder, None, "", text)])
    if not key.is_file():
        raise InputError([Problem(key, None, "", "no such key", "name a private key of OpenSSH")])
    done = _keygen("sign", "-f", str(key), data=data)
    if done.returncode:
        raise InputError([Problem(key, None, "", f"cannot sign: {_said(done)}")])
    lines = data.count(b"\n")
    names = (f"{lines}{f'-{n}' if n > 1 else ''}" for n in range(1, 1000))
    files = (folder / f"{manifest.MANIFEST}.{name}.sig" for name in names)
    file = next(file for file in files if not os.path.lexists(file))
    write_whole(file, done.stdout)
    return file


def check(
    folder: Path,
    signers: Path | None = None,
    keys: Sequence[Path] = (),
    data: bytes | None = None,
) -> list[Signature]:
    """Every signature in a trial's folder, by what it covers of the manifest.

    ``data`` is the content of the manifest, if the caller has compared the trial with it.
    ``signers`` is a list of allowed signers as in ssh-keygen(1), ``keys`` are public keys. Without
    either, any key is accepted. Raises InputError if one of these files cannot be
    used, LabError without ssh-keygen.
    """
    allowed = _allowed(signers, keys)
    data = manifest.content(folder) if data is None else data
    with tempfile.NamedTemporaryFile("w", prefix="signers-") as stream:
        stream.write(allowed)
        stream.flush()
        return _check(folder, data, Path(stream.name) if allowed else None)


def _check(folder: Path, data: bytes, signers: Path | None) -> list[Signature]:
    rows = data.splitlines(keepends=True)
    matches = filter(None, (manifest.SIGNATURE.fullmatch(f.name) for f in folder.iterdir()))
    signatures = []
    for match in sorted(matches, key=lambda match: (int(match["lines"]), match[0])):
        lines = int(match["lines"])
        covered = b"".join(rows[:lines]) if lines <= len(rows) else None
        signatures.append(_signature(folder, match[0], lines, covered, signers))
    return signatures


def _signature(
    folder: Path, file: str, lines: int, covered: bytes | None, signers: Path | None
) -> Signature:
    """``covered``: the lines of the manifest that it covers; None if there are fewer."""
    try:
        content = read_below(folder, Path(file), LIMIT_B)
    except OSError as error:
        return Signature(file, lines, f"it cannot be read: {error.strerror}")
    if covered is None:
        return Signature(file, lines, NO_SIGNATURE)
    with tempfile.NamedTemporaryFile(prefix="signature-") as stream:  # ssh-keygen reads it twice
        stream.write(content)
        stream.flush()
        done = _keygen("check-novalidate", "-s", stream.name, data=covered)
        good = _KEY.search(done.stdout.decode(errors="replace"))
        if done.returncode or not good:
            return Signature(file, lines, NO_SIGNATURE)
        signer = fault = ""
        if signers:
            signer, fault = _signer(signers, stream.name, covered)
    listed = bool(signer) or not signers
    return Signature(file, lines, fault, f"{good[1]} {good[2]}", signer, listed)


def absent(
    signatures: Sequence[Signature], lines: int, signers: Path | None, keys: Sequence[Path] = ()
) -> list[str]:
    """The names of the listed keys that no good signature of all ``lines`` is of.

    A certificate authority signs nothing itself, and is left out. Raises InputError as ``check``.
    """
    signed = {
        signature.key.split()[-1]
        for signature in signatures
        if not signature.fault and signature.lines == lines
    }
    names = []
    for line in _allowed(signers, keys).splitlines():
        key = None if line.lstrip().startswith("#") else _LISTED.search(line)
        options = line[: key.start()].split(maxsplit=1)[1:] if key else []
        authority = bool(options) and "cert-authority" in options[0]
        if key and not authority and _print_of(key[2]) not in signed:
            names.append(line.split()[0])
    return list(dict.fromkeys(names))


def _print_of(key: str) -> str:
    """The fingerprint of a public key as OpenSSH prints it; "" if the key is damaged."""
    try:
        data = base64.b64decode(key, validate=True)
    except ValueError:
        return ""
    return f"SHA256:{base64.b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')}"


def _allowed(signers: Path | None, keys: Sequence[Path]) -> str:
    """The list of signers and the keys as one list of allowed signers."""
    return (_text(signers) if signers else "") + "".join(map(_entry, keys))


def _text(signers: Path) -> str:
    correction = "write lines such as: buyer@example.org ssh-ed25519 AAAA..."
    try:
        text = signers.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            [Problem(signers, None, "", f"cannot be read: {error}", correction)]
        ) from None
    if not text.strip():
        raise InputError([Problem(signers, None, "", "the list of signers is empty", correction)])
    return f"{text}\n"


def _entry(key: Path) -> str:
    """The line of a list of signers for a public key."""
    words = key.read_text(errors="replace").split() if key.is_file() else []
    if (
        len(words) < 2
        or not _LISTED.fullmatch(f" {words[0]} {words[1]}")
        or not _print_of(words[1])
    ):
        text = "not a public key of OpenSSH"
        raise InputError([Problem(key, None, "", text, "name the file that ends in .pub")])
    name = re.sub(r"[^\w@.+-]", "_", words[2] if len(words) > 2 else key.name)
    return f"{name} {words[0]} {words[1]}\n"


def _signer(signers: Path, signature: str, covered: bytes) -> tuple[str, str]:
    """The name in the list, "" if it is not there; and why the signature is not good by it."""
    done = _keygen("find-principals", "-s", signature, "-f", str(signers))
    names = done.stdout.decode(errors="replace").split("\n")[0].split(",")
    if done.returncode or not names[0]:
        return "", ""
    done = _keygen("verify", "-s", signature, "-f", str(signers), "-I", names[0], data=covered)
    return names[0], "" if not done.returncode else _said(done)


def _keygen(verb: str, *words: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    namespace = [] if verb == "find-principals" else ["-n", NAMESPACE]
    try:
        # A terminal stays open to it, for the passphrase of a key.
        return subprocess.run(
            ["ssh-keygen", "-Y", verb, *namespace, *words],
            input=data, capture_output=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise LabError(
            "ssh-keygen is missing: signatures need OpenSSH 8.1 or later "
            "(openssh-client of Debian, openssh of RHEL)"
        ) from None


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    return (
        done.stderr.decode(errors="replace").strip() or f"ssh-keygen ended with {done.returncode}"
    )
