"""``seatrial verify``."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from seatrial.base.errors import EXIT_REJECTED, InputError, LabError
from seatrial.cli.screen import out, say
from seatrial.cli.trial_folders import TrialArgument, held, newest
from seatrial.results import manifest, signature
from seatrial.results.folder import RESULTS_FILE, read_results
from seatrial.results.manifest import LOCK_FILE, MANIFEST
from seatrial.results.pruned import read_pruned
from seatrial.results.wording import plural


def verify(
    folder: TrialArgument = None,
    signers: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Whose signatures count: allowed signers of OpenSSH."),
    ] = None,
    key: Annotated[
        list[Path] | None,
        typer.Option(metavar="PUB", help="A public key that must have signed; may be repeated."),
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option(metavar="KEY", help="First sign the trial; a private key of OpenSSH."),
    ] = None,
) -> None:
    """Check or sign a trial: its SHA-256 sums and signatures.

    Exit code 1: a file was changed, removed or added, or a signature is not good. With --signers
    also 1: none of them signed all files; with --key: one of them did not.

    Example: seatrial verify trials/lab-20261120-120000 --signers allowed_signers
    """
    named = newest(folder)
    place = named.parent if named.name == RESULTS_FILE and not named.is_dir() else named
    manifest.check_present(place)
    # Without a lock file nobody has judged the trial here: to check it makes none.
    writes = sign or os.path.lexists(place / LOCK_FILE)
    with held(place) if writes else nullcontext():
        data = manifest.content(place)  # once: somebody may exchange it meanwhile
        if differences := manifest.check(place, data=data):
            for difference in differences:
                say(str(difference))
            say(f"{plural(len(differences), 'difference')} from {place / MANIFEST}")
            raise typer.Exit(EXIT_REJECTED)
        if sign:
            sign_trial(place, sign, data)
        listed = list(manifest.read(place, data))
        record = read_pruned(place)
        gone = [name for name in listed if record and not os.path.lexists(place / name)]
        say(f"{len(listed) - len(gone)} files are as in {place / MANIFEST}")
        if record:
            say(str(record))
        try:
            good = check_signatures(place, data, signers, key or [])
        except OSError as error:
            raise InputError(f"the signatures cannot be checked: {error}") from None
    raise typer.Exit(0 if good else EXIT_REJECTED)


def sign_trial(place: Path, key: Path, data: bytes) -> None:
    """Sign a trial and print what was signed. The caller holds the trial's lock.

    ``data`` is the manifest, with which the caller has compared the trial. Raises InputError,
    LabError.
    """
    if os.geteuid() == 0:
        manifest.check_own(place)
    verdicts = read_results(place).verdicts
    try:
        signature.sign(place, key, data)
    except OSError as error:
        raise LabError(f"the signature cannot be kept: {error}") from None
    words = (f"verdict {verdict.number}, {verdict.word}" for verdict in verdicts)
    say(f"signed: {'; '.join(words) or 'a trial without a verdict'}")


def check_signatures(place: Path, data: bytes, signers: Path | None, keys: list[Path]) -> bool:
    """Print the result for each signature, what is not signed, and who did not sign.

    ``data``: the manifest. Returns whether the signatures are good and sufficient.
    """
    listed = list(manifest.read(place, data))
    signatures = signature.check(place, signers, keys, data)
    if not (signatures or signers or keys):
        return True
    for one in signatures:
        say(one.sentence(len(listed)))
    good = all(not one.fault for one in signatures)
    if not (signers or keys):
        out.print("whose keys these are was not checked: give --signers or --key")
        return good
    covered = max((one.lines for one in signatures if one.listed and not one.fault), default=0)
    for name in listed[covered:] if covered else ["any file"]:
        say(f"not signed: {name}")
    if absent := signature.absent(signatures, len(listed), signers, keys):
        say(f"no signature on all files by: {', '.join(absent)}")
    required = signature.absent(signatures, len(listed), None, keys) if keys else []
    if signers and keys:  # a signature of one of the keys is none of the list's signers
        signatures = signature.check(place, signers, data=data)
    somebody = any(one.listed and not one.fault and one.lines >= len(listed) for one in signatures)
    return good and covered >= len(listed) and not required and somebody
