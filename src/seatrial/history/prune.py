"""Removes the raw evidence of trials that are older than their site keeps it.

Results, judgements, reports, requirements and the manifest stay for ever, and with them each
verdict and each figure. Evidence is removed of a trial only if it is as in the manifest: the record
of the removal then is about files that nobody had changed.

The record (``seatrial.results.pruned``) is published before the first file is removed. A process
that is killed leaves a record and a part of the evidence; the next removal continues.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from seatrial.base.errors import LabError, explained
from seatrial.base.files import folder_below, write_whole
from seatrial.history.changes import findings
from seatrial.history.index import Index
from seatrial.history.series import KnownTrial, newest_of_sites
from seatrial.results import manifest
from seatrial.results.folder import JUDGEMENTS_FOLDER
from seatrial.results.later import REQUIREMENTS_FILE, read_file, user
from seatrial.results.pruned import PRUNED_FILE, Pruned, is_evidence, read_pruned
from seatrial.results.wording import plural
from seatrial.site.load import configs_folder, load_with_lines
from seatrial.site.model import Site, TrialDefaults

SITE_FILE = "site.yaml"
_WORD = re.compile(r"[^\W_]+")  # letters and digits
_TEXTS = (".yaml", ".yml", ".json", ".jsonl", ".md", ".txt")


@dataclass(frozen=True)
class Candidate:
    """A trial with raw evidence that is older than its site keeps it, or whose age is not known."""

    trial: KnownTrial
    days: int  # for which its site keeps evidence
    files: int  # of raw evidence
    size_b: int
    kept: str  # why its evidence stays nevertheless; "": it may be removed

    @property
    def name(self) -> str:
        return self.trial.folder.name


@dataclass(frozen=True)
class Survey:
    """What a removal would do in a folder of trials."""

    candidates: list[Candidate]  # oldest first
    younger: int  # trials whose evidence is younger than the site keeps it
    pruned: int  # trials without raw evidence

    @property
    def removable(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if not candidate.kept]


def survey(index: Index, days: int | None = None, now: datetime | None = None) -> Survey:
    """What may be removed. It changes nothing.

    ``days``: instead of ``trial.evidence_days`` of each site. ``now``: default is the clock.
    Raises InputError if the file of a site is wrong.
    """
    trials = index.trials()
    newest = newest_of_sites(trials)
    keep_days = {
        name: days if days is not None else days_of(trial) for name, trial in newest.items()
    }
    named = named_trials(trials, newest) | trials_of_changes(index)
    candidates = []
    younger = pruned = 0
    for trial in trials:
        kept_days = keep_days[trial.site]
        age = ((now or datetime.now(UTC)) - trial.started).days
        if age < kept_days and not trial.wrong_clock:
            younger += 1
        elif (files := list(evidence(trial.folder))) or is_unfinished(trial.folder):
            size_b = sum(size for _, size in files)
            kept = "the newest trial of its site" if trial is newest[trial.site] else ""
            kept = (
                trial.wrong_clock
                or kept
                or named.get(trial.folder.name, "")
                or reason_to_keep(trial)
            )
            candidates.append(Candidate(trial, kept_days, len(files), size_b, kept))
        else:
            pruned += 1
    return Survey(candidates, younger, pruned)


def days_of(trial: KnownTrial) -> int:
    """For how many days the site of a trial keeps evidence.

    By the site's file of today; if there is none, by the copy in the trial.
    """
    site = _site(trial)
    return site.trial.evidence_days if site else int(TrialDefaults().evidence_days)


def _site(trial: KnownTrial) -> Site | None:
    site_file = configs_folder() / trial.site / SITE_FILE
    if site_file.is_file():
        return load_with_lines(site_file)[0]
    copy = trial.folder / "config" / trial.site / SITE_FILE
    return load_with_lines(copy, read_file(copy, trial.folder))[0] if copy.is_file() else None


def trials_of_changes(index: Index) -> dict[str, str]:
    """Folder's name -> the change of level that names the trial: the last one before it, the first
    one with it, and the one that showed it."""
    return {
        trial.folder.name: f"named in the change {finding.id}"
        for finding in findings(index)
        for trial in (finding.last, finding.first, finding.found)
    }


def named_trials(trials: Sequence[KnownTrial], newest: Mapping[str, KnownTrial]) -> dict[str, str]:
    """Folder's name -> the text that names the trial, of those that a text names.

    The texts are the files of the sites (requirements, accepted changes, notes), the requirements
    of later judgements, and those that a judgement was given from elsewhere. ``newest``: the trial
    of each site whose copies count if the site has no file of today.
    """
    texts: list[tuple[Path, Path | None]] = []  # file, the trial's folder that it is below
    for site, trial in newest.items():
        texts += [(file, None) for file in _texts_in(configs_folder() / site)]
        if not (configs_folder() / site / SITE_FILE).is_file():
            texts += [(file, trial.folder) for file in _texts_in(trial.folder / "config" / site)]
    for source in trials:
        files = sorted((source.folder / JUDGEMENTS_FOLDER).glob(f"*/{REQUIREMENTS_FILE}"))
        texts += [(file, None) for file in files]
    names = _Names({name for trial in trials for name in (trial.folder.name, trial.name)})
    of_text: dict[str, set[str]] = {}  # many judgements have the same requirements
    where: dict[str, Path] = {}
    for file, below in texts:
        text = read_file(file, below).decode(errors="surrogateescape")
        if text not in of_text:
            of_text[text] = names.in_text(text)
        for name in of_text[text]:
            where.setdefault(name, file)
    named = {}
    for source in trials:
        if place := where.get(source.folder.name) or where.get(source.name):
            named[source.folder.name] = f"named in {place}"
    return named


def _texts_in(folder: Path) -> list[Path]:
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return [file for file in files if file.suffix in _TEXTS and file.is_file()]


class _Names:
    """Looks for the names of trials in texts.

    A name counts wherever no letter or digit is beside it, in upper or lower case: one that is
    taken for a name by mistake only keeps evidence. The time does not grow with the number of
    names, but for those without a letter or digit.
    """

    def __init__(self, names: set[str]):
        self.odd = {name for name in names if not _WORD.search(name)}
        self.of_core: dict[str, set[str]] = {}  # without what is before and after its words
        self.lengths: set[int] = set()  # in words
        for name in names - self.odd:
            words = list(_WORD.finditer(folded := name.casefold()))
            core = folded[words[0].start() : words[-1].end()]
            self.of_core.setdefault(core, set()).add(name)
            self.lengths.add(len(words))

    def in_text(self, text: str) -> set[str]:
        """The names that a text has."""
        result = {name for name in self.odd if name in text}
        text = text.casefold()
        words = [match.span() for match in _WORD.finditer(text)]
        for length in self.lengths:
            for (start, _), (_, end) in zip(words, words[length - 1 :], strict=False):
                result |= self.of_core.get(text[start:end], set())
        return result


def reason_to_keep(trial: KnownTrial) -> str:
    """Why the evidence of a trial stays whatever its age is; "" if it may go."""
    folder = trial.folder
    if trial.wrong_clock:
        return trial.wrong_clock  # it is of any age
    if folder.is_symlink():
        return f"it is a symbolic link to {folder.readlink()}, which is not followed"
    if not trial.verdict:
        return "it has no verdict"
    if not manifest.has_manifest(folder):
        return f"it has no {manifest.MANIFEST}: 'seatrial judge' writes one"
    if any(manifest.SIGNATURE.fullmatch(name) for name in os.listdir(folder)):  # noqa: PTH208
        return "it is signed"
    if exposed := manifest.exposure(folder):
        return f"{exposed.path}: {exposed.who}"
    if not os.access(folder, os.W_OK):
        return "this user cannot write to its folder"
    return ""


def evidence(folder: Path) -> Iterator[tuple[str, int]]:
    """The name and the size in bytes of each file of raw evidence in a trial's folder."""
    for file in sorted(folder.iterdir()):
        if is_evidence(file.name):
            yield file.name, file.lstat().st_size
    for top in _evidence_folders(folder):
        for root, _, names in os.walk(top):
            for name in names:
                path = Path(root) / name
                yield str(path.relative_to(folder)), path.lstat().st_size


def is_unfinished(folder: Path) -> bool:
    """Whether a removal was killed when all files but not all folders were gone."""
    return (folder / PRUNED_FILE).exists() and any(_evidence_folders(folder))


def _evidence_folders(folder: Path) -> list[Path]:
    return [
        path
        for path in sorted(folder.iterdir())
        if is_evidence(f"{path.name}/") and path.is_dir() and not path.is_symlink()
    ]


def remove(candidate: Candidate, command: Sequence[str], version: str) -> str:
    """Remove the evidence of a trial. The caller holds the trial's lock.

    ``command`` and ``version`` are those of Seatrial, for the record. Returns why nothing was
    removed; "" if the evidence has gone. Raises InputError if the folder or its manifest cannot be
    used, LabError if a file cannot be removed.
    """
    folder = candidate.trial.folder
    manifest.check_own(folder)
    if reason := reason_to_keep(candidate.trial):
        return reason
    if differences := manifest.check(folder):
        number = plural(len(differences), "file")
        return f"{number} not as in {manifest.MANIFEST}: 'seatrial verify {folder}' names them"
    files = dict(evidence(folder))
    try:
        if read_pruned(folder) is None:
            record = Pruned(
                pruned=datetime.now(UTC), user=user(), command=list(command), seatrial=version,
                days=candidate.days, files=len(files), bytes=sum(files.values()),
            )  # fmt: skip
            with manifest.publishing(folder, 1) as draft:
                text = record.model_dump_json(by_alias=True, indent=1) + "\n"
                write_whole(draft / PRUNED_FILE, text, below=folder)
        for name in files:
            path = Path(name)
            with folder_below(folder, path.parent) as parent:
                os.unlink(path.name, dir_fd=parent)
        _remove_empty_folders(folder)
    except OSError as error:
        raise LabError(f"the evidence cannot be removed: {explained(error)}") from None
    return ""


def _remove_empty_folders(folder: Path) -> None:
    for top in _evidence_folders(folder):
        for root, _, _ in os.walk(top, topdown=False):
            path = Path(root).relative_to(folder)
            with suppress(OSError), folder_below(folder, path.parent) as parent:
                os.rmdir(path.name, dir_fd=parent)
