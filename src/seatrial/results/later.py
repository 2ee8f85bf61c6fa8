"""A later judgement of a trial: a new record beside the earlier ones, which stay as they are.

Its folder, ``judgements/2`` and so on, holds a copy of the requirements, the judgements and the
verdict, and the report. It is complete, with its lines in the manifest, or it does not exist:
``manifest.publishing`` puts it in its place.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from seatrial.base.errors import InputError, LabError, Problem
from seatrial.base.files import read_below, write_whole
from seatrial.base.say import Say
from seatrial.results import manifest
from seatrial.results.folder import (
    JUDGEMENT_FILE,
    JUDGEMENTS_FOLDER,
    RESULTS_FILE,
    Results,
    judgement_folder,
    later_judgements,
    read_results,
    write_results,
)
from seatrial.results.judge import judge
from seatrial.results.requirements import load_requirements
from seatrial.results.verdict import conclude
from seatrial.results.wording import plural

#: by which the clocks of two machines may differ
CLOCK_TOLERANCE = timedelta(minutes=10)
REQUIREMENTS_FILE = "requirements.yaml"
UNPROVEN = "nothing shows that the files are as the trial wrote them"
REQUIREMENTS_LIMIT_B = 64 << 20  # largest file that is read; an entry has about 200 bytes
SHORT = 12  # digits of a SHA-256 sum that tell two files apart for a reader
_JUDGEMENT_NAME = re.compile(rf"{JUDGEMENTS_FOLDER}/[1-9][0-9]*/{re.escape(JUDGEMENT_FILE)}")


def judge_again(
    folder: Path,
    requirements: Path | None,
    command: Sequence[str],
    version: str,
    write_report: Callable[[Results, Path], object],
    say: Say,
) -> Results:
    """Judge the trial in ``folder`` once more; ``requirements`` defaults to those of the trial.

    ``write_report`` writes the report on the results into a folder. ``say`` gets a sentence on the
    requirements, and one on files that are not as in the manifest, or on its absence. The caller
    holds the trial's lock. Raises InputError if the requirements are wrong, if the results are not
    those that the trial wrote, or as ``manifest.check_own``, and LabError if the new judgement
    cannot be kept. The trial is then as before.
    """
    manifest.check_own(folder)
    manifest.settle(folder)
    results = read_results(folder)
    given = requirements or trial_requirements(results)
    content = read_file(given, None if requirements else folder)
    digest = hashlib.sha256(content).hexdigest()
    differences = manifest.check(folder) if manifest.has_manifest(folder) else []
    check_unchanged(folder, None if requirements else (given, digest), differences)
    _check_clock(results)
    load_requirements(given, content)  # the errors name the file that the user gave
    for sentence in _on_requirements(given, digest, results):
        say(sentence)
    number = max([1, *later_judgements(folder)]) + 1
    while os.path.lexists(target := judgement_folder(folder, number)):
        number += 1  # something else has the name
    ended = results.ended or results.trial.started
    changed, unproven = _on_other_files(differences), without_manifest(results)
    for sentence in filter(None, (changed, unproven)):
        say(f"warning: {sentence}")
    try:
        with manifest.publishing(folder, number) as draft:
            copy = draft / REQUIREMENTS_FILE
            write_whole(copy, content, below=folder)
            rules = load_requirements(copy, content)
            judgements = judge(results.trial, results.runs, rules)
            verdict = conclude(results.trial, results.runs, judgements, rules, ended=ended)
            known_as = str(target.relative_to(folder) / REQUIREMENTS_FILE)
            update = {"number": number, **provenance(digest, known_as, command, version)}
            causes = (changed, unproven, _unproven_before(results))
            notes = [f"note: {text}" for text in causes if text]
            update["findings"] = [*verdict.findings, *notes]
            later = Results(
                trial=results.trial, runs=results.runs, judgements=judgements, folder=folder,
                verdict=verdict.model_copy(update=update), earlier=results.verdicts,
            )  # fmt: skip
            assert later.verdict
            write_results(draft / JUDGEMENT_FILE, [*judgements, later.verdict], below=folder)
            write_report(later, draft)
    except OSError as error:
        raise LabError(f"the judgement cannot be kept, the trial is as before: {error}") from None
    return later


def _check_clock(results: Results) -> None:
    """Raise InputError if this machine's clock is before the trial or its last judgement.

    The day of a judgement decides whether a waiver is in force.
    """
    last = max(
        [verdict.judged or verdict.ended for verdict in results.verdicts],
        default=results.trial.started,
    )
    if datetime.now(UTC) < last - CLOCK_TOLERANCE:
        text = f"the clock of this machine is before the last judgement, {last:%Y-%m-%d %H:%M} UTC"
        raise InputError([Problem(results.folder, None, "", text, "set the clock")])


def trial_requirements(results: Results) -> Path:
    """The requirements that the trial was run with."""
    return results.folder / "config" / results.trial.site / REQUIREMENTS_FILE


def read_file(file: Path, trial: Path | None = None) -> bytes:
    """The content of a regular file; if it is in the folder of a ``trial``, through no link below.

    Raises InputError if it cannot be read or is larger than requirements are.
    """
    try:
        if trial is None:
            real = Path(os.path.realpath(file))
            return read_below(real.parent, Path(real.name), REQUIREMENTS_LIMIT_B)
        return read_below(trial, file.relative_to(trial), REQUIREMENTS_LIMIT_B)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        problem = Problem(file, None, "", f"cannot be read: {reason or error}")
        raise InputError([problem]) from None


def _on_requirements(given: Path, digest: str, results: Results) -> Iterator[str]:
    """Which requirements judge, and whether they are those of the newest verdict."""
    yield f"judging by {given} (SHA-256 {digest[:SHORT]})"
    newest = results.verdict
    if newest and newest.requirements_sha256 not in ("", digest):
        yield (
            f"verdict {newest.number}, the newest, is by other requirements: "
            f"{results.folder / newest.requirements} "
            f"(SHA-256 {newest.requirements_sha256[:SHORT]})"
        )


def _on_other_files(differences: Sequence[manifest.Difference]) -> str:
    """How many files are not as in the manifest; "" if none or there is no manifest.

    ``check_unchanged`` has refused a trial whose results differ: the others are evidence.
    """
    if not differences:
        return ""
    return (
        f"{plural(len(differences), 'file')} of the trial, but not its results, "
        f"{'is' if len(differences) == 1 else 'are'} not as in {manifest.MANIFEST}: "
        "'seatrial verify' names them"
    )


def without_manifest(results: Results) -> str:
    """A sentence if a trial has a verdict but no manifest; "" if not.

    A trial that has ended has a manifest, and a trial that was killed gets one when it is judged.
    """
    if not results.verdict or manifest.has_manifest(results.folder):
        return ""
    return f"{manifest.MANIFEST} is missing: {UNPROVEN}"


def _unproven_before(results: Results) -> str:
    """A sentence if an earlier verdict was made without a manifest, which wrote one; "" if not."""
    for verdict in results.verdicts:
        if any(finding.endswith(UNPROVEN) for finding in verdict.findings):
            return f"{manifest.MANIFEST} was missing at verdict {verdict.number}: {UNPROVEN}"
    return ""


def provenance(digest: str, known_as: str, command: Sequence[str], version: str) -> dict[str, Any]:
    """The fields of a verdict that say who judged, when, with what, and by which requirements.

    ``digest`` is the SHA-256 sum of the requirements, ``known_as`` the name of the copy, relative
    to the trial's folder.
    """
    return {
        "judged": datetime.now(UTC),
        "user": user(),
        "command": list(command),
        "seatrial": version,
        "requirements": known_as,
        "requirements_sha256": digest,
    }


def user() -> str:
    """The user of this process; with sudo, also the user who called it."""
    number = os.getuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:
        name = str(number)
    caller = os.environ.get("SUDO_USER", "")
    return f"{name} (sudo of {caller})" if caller and caller != name else name


def check_unchanged(
    folder: Path,
    requirements: tuple[Path, str] | None = None,
    known: Sequence[manifest.Difference] | None = None,
) -> None:
    """Compare the measurements and the judgements of a trial with its manifest, if it has one.

    ``requirements`` are those of the trial and the sum of what was read, if they are those to
    judge by: changed ones are a matter of ``--requirements``. ``known``: all differences, if the
    caller has read all files already; else only these files are read. Raises InputError with all
    files that were changed, added or removed: such a trial is neither judged nor reported.
    """
    if not manifest.has_manifest(folder):
        return
    listed = manifest.read(folder)
    later = [judgement_folder(folder, n) / JUDGEMENT_FILE for n in later_judgements(folder)]
    names = [str(file.relative_to(folder)) for file in (folder / RESULTS_FILE, *later)]
    names += [name for name in listed if _JUDGEMENT_NAME.fullmatch(name) and name not in names]
    differences = manifest.check(folder, names) if known is None else known
    kinds = {difference.name: difference.kind for difference in differences}
    if requirements:
        file, digest = requirements
        names.append(name := str(file.relative_to(folder)))
        if listed.get(name, digest) != digest:  # also if it was exchanged after the comparison
            kinds.setdefault(name, "changed")
    problems = []
    for name in names:
        if name in kinds:
            text = (
                f"it was {kinds[name]} since the manifest was written: such a trial is not evidence"
            )
            correction = "'seatrial verify' names all that was changed"
            problems.append(Problem(folder / name, None, "", text, correction))
    if problems:
        raise InputError(problems)
