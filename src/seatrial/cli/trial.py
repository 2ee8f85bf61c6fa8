"""``seatrial trial``, and the commands on its results: report, judge, verify, baseline."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from seatrial.base.errors import (
    EXIT_ACCEPTED,
    EXIT_INCOMPLETE,
    EXIT_REJECTED,
    InputError,
    LabError,
    Problem,
    explained,
    unexpected,
)
from seatrial.base.lock import locked
from seatrial.base.paths import TRIALS
from seatrial.checks.database import is_database
from seatrial.cli.provision import lab_for, provision_lab
from seatrial.cli.screen import open_console
from seatrial.cli.selection import (
    CheckOption,
    NetworkOption,
    ProfileOption,
    RepeatsOption,
    RerunsOption,
    RoundsOption,
    SiteOption,
    TransportOption,
    selection_of,
)
from seatrial.history import index
from seatrial.history.conditions import different_settings
from seatrial.history.series import KnownTrial, newest_of_sites
from seatrial.plan.check import check_bounds, check_site
from seatrial.plan.model import Plan
from seatrial.plan.resolve import plan_trial
from seatrial.report import HISTORY_FILE, REPORT_FILE, terminal, write_all
from seatrial.report.text import line
from seatrial.results import later, manifest, signature
from seatrial.results.baseline import Baseline, check_origin, make_baseline
from seatrial.results.later import REQUIREMENTS_FILE
from seatrial.results.manifest import LOCK_FILE, MANIFEST
from seatrial.results.pruned import read_pruned
from seatrial.results.record import RESULTS_FILE, Results, read_results, trial_of
from seatrial.results.requirements import Accepted, Requirements, load_requirements
from seatrial.results.running import is_running, progress
from seatrial.results.verdict import contradiction
from seatrial.results.wording import plural, some
from seatrial.site.load import configs_folder, load_with_lines, site_file, site_names
from seatrial.trial.host import version_with_commit
from seatrial.trial.run import run_trial
from seatrial.trial.session import Interrupted, noted_signals, obeyed_signals
from seatrial_lab.common.programs import check_root

out = open_console(highlight=False, soft_wrap=True)
VERDICT_CODES = {"accept": EXIT_ACCEPTED, "reject": EXIT_REJECTED, "incomplete": EXIT_INCOMPLETE}

TrialArgument = Annotated[
    Path | None, typer.Argument(help="Folder of a trial; default: the newest.")
]


#: one of ReFrame's test cases: NetPIPE %repeat=0 %num_nodes=2 /1a2b3c4d @lab:compute+openmpi-tcp
TEST = re.compile(r"(\w+) .*%repeat=(\d+) %num_nodes=(\d+) .*@\w[\w-]*:([\w-]+)\+([\w-]+)")
#: ReFrame's word for the end of a test -> what it says. ReFrame knows no reruns and no noise.
RESULTS = {
    "OK": "ran",
    "FAIL": "an error, or a figure has no bound or is outside it at first; verdict at the end",
    "ABORT": "aborted",
    "SKIP": "skipped",
}


def test_name(plan: Plan, name: str) -> str:
    """A test case of ReFrame in the words of the plan, with the variants that it runs."""
    match = TEST.match(name)
    if not match:
        return name
    short, repeat, nodes, partition, environment = match.groups()
    transport, network = plan.environments.get(environment, (environment, ""))
    by_partition = {plan.partition_name(profile): profile for profile in plan.profiles}
    profile = by_partition.get(partition, partition)
    variants = [
        case.variant
        for case in plan.cases
        if case.check.replace("_", "") == short.lower() and case.variant
        if (case.transport, case.network) == (transport, network)
        if (case.profile, case.nodes) == (profile, int(nodes))
    ]
    check = f"{short} ({', '.join(variants)})" if variants else short
    route = f"{transport}@{network}" if network else transport
    return f"{check}, {route}, {profile}, {nodes} nodes, {numbered(plan, int(repeat))}"


def numbered(plan: Plan, repeat: int) -> str:
    """The number of a run as people count it: ``repeat 1``, ``round 2, repeat 1``."""
    before, own = divmod(repeat, plan.repeats)
    if plan.rounds == 1 or before >= plan.rounds:
        return f"repeat {repeat + 1}"
    return f"round {before + 1}, repeat {own + 1}"


def say(text: str) -> None:
    """Print a line. The names in it are untrusted: they begin no line, and a terminal executes
    nothing of them."""
    out.print(line(text), markup=False)


class Bar:
    """Progress of a trial on the terminal; plain lines where it is not one."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), console=out, disable=not out.is_terminal,
        )  # fmt: skip
        self.task = self.bar.add_task("starting ReFrame", total=None)

    def __enter__(self) -> Bar:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def line(self, word: str, done: int, total: int, name: str) -> None:
        text = line(test_name(self.plan, name))
        if total:
            self.bar.update(self.task, completed=done, total=total)
        if out.is_terminal:
            self.bar.update(self.task, description=text[:60])
        elif total:
            say(f"  {done}/{total} {text}: {RESULTS.get(word, word)}")

    def said(self, text: str) -> None:
        say(text)


def trial(
    site: SiteOption = "lab",
    check: CheckOption = None,
    transport: TransportOption = None,
    network: NetworkOption = None,
    profile: ProfileOption = None,
    repeats: RepeatsOption = None,
    rounds: RoundsOption = None,
    reruns: RerunsOption = None,
    output: Annotated[
        Path, typer.Option(help="Folder for trials; default: trials/.", show_default=False)
    ] = TRIALS,
    keep_lab: Annotated[
        bool, typer.Option("--keep-lab", help="Leave the lab up after the trial.")
    ] = False,
) -> None:
    """Test a site: run its benchmarks, judge them, write the report.

    Without options it tests the site 'lab', a Slurm cluster of four nodes on this machine, and
    first installs the software of the lab. A glob pattern selects; give the option again for more.

    Example: seatrial trial --site harbour --check netpipe -t 'openmpi-*'
    """
    file = site_file(site)
    selection = selection_of(check, transport, network, profile, repeats, rounds, reruns)
    description = check_site(file, selection).site
    if description.lab:
        check_root()
        provision_lab(required=True)
    plan = plan_trial(file, selection)
    check_place(output)
    with (
        lab_for(description, file, output, keep_lab, plan) as (machine, *further),
        Bar(plan) as bar,
    ):
        results = run_trial(plan, file, machine, bar, output, further)
    terminal.print_summary(results, out)  # first: a report that fails does not hide the verdict
    try:
        with noted_signals() as signals, obeyed_signals(signals), held(results.folder):
            keep_report(results)
    except Interrupted as signal:
        raise LabError(
            f"interrupted by {signal} while the report was written: the results are in "
            f"{results.folder}; 'seatrial report {results.folder}' writes it"
        ) from None
    terminal.print_page(results, out)
    keep_history(output)
    raise typer.Exit(verdict_code(results))


def check_place(output: Path) -> None:
    """Refuse a folder for trials that another user could exchange while root writes to it.

    Raises InputError.
    """
    if os.geteuid() == 0 and (one := manifest.exposure(output)):
        text = f"{one.who}, and could lead what root writes in {output} to another folder"
        raise InputError([Problem(one.path, None, "--output", text, "name a folder of root")])


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of a trial, and complete or undo what a killed command began in it.

    It waits for a command that judges or reports the trial, and not for the trial itself. Nothing
    changes in a folder that cannot be written, as in an archive, or that another user could
    exchange meanwhile. Raises LabError, InputError.
    """
    file = folder / LOCK_FILE
    is_writable = os.access(file if os.path.lexists(file) else folder, os.W_OK)
    if not is_writable or manifest.exposure(folder):
        manifest.check_settled(folder)
        yield
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(file, partial(_wait, folder)))
            manifest.settle(folder)
        except OSError as error:
            raise LabError(f"the trial cannot be locked: {explained(error)}") from None
        yield


def _wait(folder: Path, why: str) -> None:
    """Say what a command waits for. Raises InputError if it is the end of the trial: that may take
    hours."""
    if is_running(folder):
        text = f"the trial has not ended: {progress(read_results(folder))}"
        correction = "wait for its end, or 'seatrial analyse' for the rounds that are written"
        raise InputError([Problem(folder, None, "", text, correction)])
    say(why)


def keep_report(results: Results) -> None:
    """Write the report beside the results and add it to the manifest, unless it is there.

    The caller holds the trial's lock. Raises InputError as ``manifest.check_own``, LabError.
    """
    has_manifest = manifest.has_manifest(results.folder)
    own = str((results.output / REPORT_FILE).relative_to(results.folder))
    if has_manifest and own in manifest.read(results.folder):
        say("the report is in the manifest and stays as it is; --output writes a new one elsewhere")
        return
    manifest.check_own(results.folder)
    try:
        if has_manifest:
            number = results.verdict.number if results.verdict else 1
            with manifest.publishing(results.folder, number) as draft:
                write_all(results, draft)
        else:
            write_all(results)
    except OSError as error:
        raise LabError(f"the results are kept, the report is not: {error}") from None


def verdict_code(results: Results) -> int:
    """The exit code of the verdict; a trial that was interrupted before it is incomplete."""
    return VERDICT_CODES[results.verdict.verdict] if results.verdict else EXIT_INCOMPLETE


def newest(folder: Path | None) -> Path:
    """The folder given, or the newest trial. Raises InputError where there is none."""
    if folder:
        return folder
    results_files = sorted(
        # The job user of a lab writes to the folder of ReFrame's database.
        (file for file in TRIALS.glob(f"*/{RESULTS_FILE}") if not is_database(file.parent)),
        key=lambda path: path.stat().st_mtime,
    )
    if not results_files:
        raise InputError(f"{TRIALS} has no trial: run seatrial trial, or name a folder")
    return results_files[-1].parent


def trial_folder(named: Path) -> Path:
    """The folder of a trial that is named by itself or by its results. Raises InputError."""
    folder = named.parent if named.name == RESULTS_FILE else named
    if not (folder / RESULTS_FILE).is_file():
        text, correction = "no such results file", "name a trial's folder, or its results.jsonl"
        raise InputError([Problem(folder / RESULTS_FILE, None, "", text, correction)])
    return folder


def report(
    folder: TrialArgument = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for the report; default: the trial's.", show_default=False),
    ] = None,
) -> None:
    """Print the summary of a trial, and write its report.

    A report in the manifest stays as it is. --output writes a new one elsewhere. A trial whose
    results or judgements are not as in its manifest is bad input: see seatrial verify.

    Example: seatrial report trials/lab-20261120-1200
    """
    named = newest(folder)
    place = trial_folder(named)
    if output:
        check_outside(output, "--output")
    with held(place):
        # A running trial holds the lock, and writes other results and a manifest before it ends.
        later.check_unchanged(place)
        results = read_results(named)
        if why := contradiction(results):
            text = f"the recorded verdict is accept, but the records contradict it: {why}"
            correction = "'seatrial judge' judges the figures again"
            raise InputError([Problem(results.folder, None, "verdict", text, correction)])
        unproven = later.without_manifest(results)
        if unproven and results.verdict:
            say(f"warning: {unproven}")
            results.verdict.findings.append(f"note: {unproven}")  # for the page and the summary
        if lacking := results.trial.lacking_in_record:
            say(f"note: {lacking}")
        terminal.print_summary(results, out)  # first: see ``trial``
        if output:
            report_elsewhere(results, output)
        else:
            keep_report(results)
    terminal.print_page(results, out, output)
    raise typer.Exit(verdict_code(results))


def report_elsewhere(results: Results, output: Path) -> None:
    """Raises InputError if the report cannot be written to the folder of --output."""
    with writing(output, "--output", "the report"):
        output.mkdir(parents=True, exist_ok=True)
        write_all(results, output)


@contextmanager
def writing(file: Path, option: str, what: str) -> Iterator[None]:
    """Raise InputError if the block cannot write ``file``, the value of ``option``."""
    try:
        yield
    except OSError as error:
        text = f"{what} cannot be written: {error}"
        raise InputError([Problem(file, None, option, text, "name another")]) from None


def check_outside(path: Path, option: str) -> None:
    """Refuse to write to a path in the folder of a trial, which is evidence. Raises InputError."""
    if trial := trial_of(path):
        text = f"it is in the folder of the trial {trial.name}, whose files stay as they are"
        raise InputError([Problem(path, None, option, text, "name a path elsewhere")])


def keep_history(trials: Path) -> None:
    """Bring the index and the page over all trials in step.

    What cannot be written is a warning: it changes no trial.
    """
    try:
        index.update(trials, say)
        if not manifest.exposure(trials):
            with index.opened(trials, say) as known:
                write_page(known, trials / HISTORY_FILE, {})
    except (OSError, InputError, LabError) as error:
        say(f"warning: {HISTORY_FILE} was not written, the next trial does it: {error}")
    except Exception as error:
        say(f"warning: {HISTORY_FILE} was not written: {unexpected(error)}")


def write_page(known: index.Index, page: Path, patterns: dict[str, list[str]]) -> None:
    """Write the page of all trials, with what was accepted. Raises OSError."""
    from seatrial.report.history_page import write_history  # its libraries are slow to import

    write_history(known, page, requirements_of_sites(known.trials()), **patterns)


def requirements_of_sites(trials: Sequence[KnownTrial]) -> dict[str, Requirements]:
    """Site -> its requirements, of the sites that the trials are of.

    Of a site that is elsewhere than the others, they are those that its newest trial kept.
    """
    newest = newest_of_sites(trials)
    return {
        site: requirements_of(site, site_requirements(site), newest[site].folder)
        for site in sorted(newest)
    }


def site_requirements(site: str) -> Path | None:
    """The file of a site among the others, which need not exist; None if the site is elsewhere."""
    return site_file(site).with_name(REQUIREMENTS_FILE) if site in site_names() else None


def requirements_of(site: str, file: Path | None, trial: Path | None = None) -> Requirements:
    """What a site accepted and what it calls informative. ``trial``: whose copy counts if there is
    no ``file``."""
    try:
        if file:
            return load_requirements(file) if file.exists() else Requirements()
        copy = trial / "config" / site / REQUIREMENTS_FILE if trial else None
        if copy and copy.exists():
            return load_requirements(copy, later.read_file(copy, trial))
        return Requirements()
    except InputError as error:
        text = "what was accepted and what is informative"
        say(f"note: {text} at site {site} is not known: {error.problems[0]}")
        return Requirements()


def judge_again(
    folder: TrialArgument = None,
    requirements: Annotated[
        Path | None, typer.Option(help="File; default: the requirements of the trial.")
    ] = None,
) -> None:
    """Judge a trial again, against its own or other requirements. Earlier verdicts stay.

    Example: seatrial judge --requirements site-configs/harbour/requirements.yaml
    """
    place = trial_folder(newest(folder))
    manifest.check_own(place)
    command, version = ["seatrial", *sys.argv[1:]], version_with_commit()
    check_against_site(place, requirements)
    try:
        with locked(place / LOCK_FILE, partial(_wait, place)):
            results = later.judge_again(place, requirements, command, version, write_all, say)
    except OSError as error:
        raise LabError(f"the trial cannot be judged: {explained(error)}") from None
    terminal.print_summary(results, out)
    terminal.print_page(results, out)
    raise typer.Exit(verdict_code(results))


def check_against_site(place: Path, requirements: Path | None) -> None:
    """Refuse bounds by which no figure of the trial's site can be judged. Raises InputError.

    Those of the trial were checked before it ran, if its manifest says that they are the same.
    """
    copies = sorted(place.glob("config/*/site.yaml"))
    own = sorted(place.glob("config/*/requirements.yaml"))
    file = requirements or (own[0] if own and not manifest.has_manifest(place) else None)
    if file is None:
        return
    rules = load_requirements(file, later.read_file(file, None if requirements else place))
    site = None
    if copies:
        site, _ = load_with_lines(copies[0], later.read_file(copies[0], place))
    else:
        say(f"note: {place} has no copy of its site.yaml: bounds are not checked against it")
    check_bounds(site, rules)


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

    Example: seatrial verify trials/lab-20261120-1200 --signers allowed_signers
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
    words = (f"verdict {one.number}, {one.word}" for one in verdicts)
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
    somebody = any(one.listed and not one.fault for one in signatures)
    return good and covered >= len(listed) and not required and somebody


def baseline(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of trials, whose samples are pooled; default: the newest."),
    ] = None,
    site: SiteOption = "lab",
    write: Annotated[
        Path | None, typer.Option(help="File to write; default: requirements.yaml of the site.")
    ] = None,
    accept: Annotated[
        str | None,
        typer.Option(metavar="CHANGE", help="Take the level since a change of the history."),
    ] = None,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why the new level is right; with --accept.")
    ] = "",
    by: Annotated[str, typer.Option(metavar="NAME", help="Who accepts; default: this user.")] = "",
    trials: Annotated[
        Path, typer.Option(help="Folder of the history; default: trials/.", show_default=False)
    ] = TRIALS,
) -> None:
    """Write requirements from the figures of trials. Contracts stay as they are.

    Each figure needs three samples: name several trials, as of three nights. Exit code 2: nothing
    was written. A warning names each trial that was rejected or ran with a planted fault. --accept
    takes what 'seatrial history --changes' names, and records who accepted it, when and why.

    Example: seatrial baseline --site harbour trials/harbour-*
    """
    existing = site_file(site).with_name("requirements.yaml")
    check_outside(write or existing, "--write" if write else "--site")
    if accept:
        if folders:
            raise InputError("--accept takes the trials of the history: name no trial")
        if not reason.strip():
            raise InputError("--accept needs --reason: why the new level is right")
        made = accepted_baseline(existing, trials, accept, by or later.user(), reason)
    elif reason or by:
        raise InputError("--reason and --by are of --accept")
    else:
        made = make_baseline(sources(folders or [newest(None)], existing.parent.name), existing)
    for sentence in made.summary():
        say(sentence)
    if not made.written:
        out.print("nothing was written")
        raise typer.Exit(EXIT_INCOMPLETE)
    try:
        written = made.write(write)
    except OSError as error:
        raise InputError(f"the requirements cannot be written: {error}") from None
    count = len(made.written)
    say(f"{count} {'entry' if count == 1 else 'entries'} in {written}")
    if accept and (why := unseen_acceptance(existing.parent.name, existing, written)):
        say(f"note: {why}")


def sources(folders: Sequence[Path], site: str) -> list[Results]:
    """The results that a baseline is made of, with a line for each that is doubtful."""
    results = [unchanged(folder) for folder in folders]
    check_sources(results, site)
    return results


def unchanged(named: Path) -> Results:
    """The results of a trial whose files are those of its manifest. Raises InputError."""
    folder = trial_folder(named)
    with held(folder):
        later.check_unchanged(folder)
        return read_results(folder)


def pooled(trials: Sequence[Path] | None) -> list[Results]:
    """The results of trials of one site, by default of the newest, with a line for each doubt.

    Of a trial that still runs they are the rounds that are written. Raises InputError.
    """
    results = [_so_far(folder) or unchanged(folder) for folder in trials or [newest(None)]]
    check_origin(results)
    for one in results:
        for reason in [*one.trial.planted, *filter(None, [later.without_manifest(one)])]:
            say(f"warning: {one.trial.trial}: {reason}")
        if lacking := one.trial.lacking_in_record:
            say(f"note: {one.trial.trial}: {lacking}")
    _warn_of_settings(results)
    return results


def _warn_of_settings(results: Sequence[Results]) -> None:
    if differing := different_settings(results):
        say(f"warning: trials of different settings are pooled: {some(differing, '; ')}")


def _so_far(named: Path) -> Results | None:
    """What is written of a trial that still runs, with a warning; None of any other. Raises
    InputError if no round is written."""
    folder = trial_folder(named)
    if not is_running(folder):
        return None
    results = read_results(folder)
    if not results.runs:
        text = f"the trial has not ended: {progress(results)}"
        raise InputError([Problem(folder, None, "", text, "wait for the end of its first round")])
    say(f"warning: {results.trial.trial} has not ended: {progress(results)}")
    return results


def accepted_baseline(file: Path, trials: Path, change: str, by: str, reason: str) -> Baseline:
    """The baseline with the new level of a change, and a line for each doubt about it."""
    from seatrial.history.accept import joined, new_level  # numpy: only this needs it
    from seatrial.history.renamed import with_todays_names
    from seatrial.report.changes import circumstances, courses, doubts, headline, when

    site = file.parent.name
    own = load_requirements(file) if file.exists() else Requirements()
    with index.opened(trials, say) as known:
        level = new_level(known, change, site, own)
    say(f"accepting {headline(level.finding)}")
    say(f"since {when(level.finding)}; {circumstances(level.finding)}")
    if level.ended:
        say(f"not accepted, because a later change followed: {some(level.ended)}")
    for doubt in doubts(level):
        say(f"warning: {doubt}")
    accepted = Accepted(
        change=level.finding.id, by=by, when=datetime.now(UTC).date(), reason=reason.strip(),
        newest=level.newest,
    )  # fmt: skip
    results = [with_todays_names(one) for one in sources(level.folders, site)]
    before = own.acceptance(level.finding.id)
    again = bool(before and joined(level.finding, before))
    return make_baseline(
        results, file, only=level.figures, courses=courses(level), accepted=accepted, again=again
    )


def unseen_acceptance(site: str, existing: Path, written: Path) -> str:
    """Why the history does not see an acceptance in the file ``written``, or not yet; else ""."""
    read = site_requirements(site) or existing
    if written.resolve() != read.resolve():
        return f"'seatrial history' does not see this acceptance: it reads {read}"
    if not site_requirements(site):
        return (
            f"{site} is not in {configs_folder()}: 'seatrial history' sees this acceptance from "
            "the site's next trial on, which keeps a copy of the file"
        )
    return ""


def check_sources(results: list[Results], site: str) -> None:
    """Refuse trials of another site, and print a line for each reason why some are doubtful.

    Raises InputError with all trials of other sites.
    """
    problems = [
        Problem(
            one.folder / RESULTS_FILE, None, "site",
            f"a trial of site {one.trial.site!r}, and the baseline is of site {site!r}",
            f"name trials of {site!r}, or give --site {one.trial.site}",
        )
        for one in results
        if one.trial.site != site
    ]  # fmt: skip
    if problems:
        raise InputError(problems)
    names: dict[str, list[str]] = {}
    for one in results:
        reasons = ["its verdict is reject"] if verdict_code(one) == EXIT_REJECTED else []
        reasons += [*one.trial.planted, *filter(None, [later.without_manifest(one)])]
        if reasons:
            names.setdefault("; ".join(reasons), []).append(one.trial.trial)
    for why, own in names.items():
        say(f"warning: {some(own)}: {why}")
    _warn_of_settings(results)
