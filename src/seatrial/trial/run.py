"""Runs one trial of a site: ReFrame through Slurm, then the evidence and the judgement.

After an interruption (Ctrl-C, a dead node, a full disk) the trial keeps the figures, names the
cases that did not run, and leaves no job and no lab.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from seatrial.base.errors import LabError, LabGone, SeatrialError, explained
from seatrial.base.lock import locked
from seatrial.plan.model import PART_FILE, PLAN_FILE, Plan, PlannedProfile, write
from seatrial.results import manifest
from seatrial.results.folder import RESULTS_FILE, Results, write_results
from seatrial.results.judge import judge
from seatrial.results.later import provenance, trial_requirements
from seatrial.results.manifest import LOCK_FILE
from seatrial.results.record import NO_OWN_PROCESSORS, Line, ProfileUse, TransportUse, Trial
from seatrial.results.requirements import Requirements, load_requirements
from seatrial.results.verdict import conclude
from seatrial.results.wording import plural, some
from seatrial.trial.allocation import RELEASE_S, polls
from seatrial.trial.host import host_facts, version_with_commit
from seatrial.trial.machine import Machine, Progress, jobs_of
from seatrial.trial.reframe_run import Outcome, database_folder
from seatrial.trial.rerun import cases_to_rerun, first_nodes
from seatrial.trial.rounds import Part, allocations, run_round, runs_of
from seatrial.trial.session import (
    Interrupted,
    Session,
    TimeLimit,
    noted_signals,
    obeyed_signals,
)

SETTINGS = '''"""ReFrame's configuration of this trial."""

from pathlib import Path

from seatrial.checks.configuration import settings

site_configuration = settings(Path(__file__).with_name("plan.json"))
'''
SILENT_S = 30  # that Slurm may not answer while remaining jobs are cancelled
RESERVE_FILE = ".reserve"
RESERVE_B = 1 << 20  # disk space for the results, reserved before the benchmarks run


def run_trial(
    plan: Plan,
    site_file: Path,
    machine: Machine,
    progress: Progress,
    trials: Path,
    further: Sequence[Machine] = (),
) -> Results:
    """Run the planned trial of a site, and write its folder below ``trials``.

    ``further``: machines like ``machine``, each with a Slurm and nodes of its own, whose job ids
    differ. They run a part of the profiles at the same time. Raises InputError if the site's
    requirements are wrong, LabError if ReFrame cannot start or the results cannot be written.
    """
    requirements = load_requirements(site_file.with_name("requirements.yaml"))
    try:
        trials.mkdir(parents=True, exist_ok=True)
        database_folder(trials, machine)  # before anything is run or written
        folder = new_folder(trials, plan.site)
        notes = notes_of([machine, *further])
        if any(note.startswith(NO_OWN_PROCESSORS) for note in notes):
            plan = plan.model_copy(update={"own_cores": None})
        config = write_config(folder, plan, site_file)
        copies = [write_copy(config, number) for number in range(2, 2 + len(further))]
        trial = Trial(
            trial=folder.name,
            site=plan.site,
            description=plan.description,
            started=datetime.now(UTC),
            seatrial=version_with_commit(),
            command=["seatrial", *sys.argv[1:]],
            stack=plan.stack,
            machine=plan.machine,
            host=host_facts() | machine.facts(),
            repeats=plan.repeats,
            rounds=plan.rounds,
            virtual_time=plan.virtual_time,
            site_repeats=plan.site_repeats,
            site_rounds=plan.site_rounds,
            site_reruns=plan.site_reruns,
            reruns=plan.reruns,
            cases=plan.cases,
            selection=plan.selection,
            outside=plan.outside,
            lacking=plan.lacking,
            unmeasured=plan.unmeasured,
            notes=[*plan.left_out, *notes, *effects(plan)],
            profiles=profile_uses(plan),
            transports=transport_uses(plan),
            benchmarks=benchmark_settings(plan),
        )
        results = Results(trial=trial, folder=folder)
        write_results(folder / RESULTS_FILE, [trial])
        reserve(folder)
        with locked(folder / LOCK_FILE, progress.said):
            pass  # a file system without locks is an error before anything runs
    except OSError as error:
        raise LabError(f"the trial cannot start: {explained(error)}") from None
    with locked(folder / LOCK_FILE, progress.said), noted_signals() as signals:
        session = Session(
            plan, folder, config, machine, progress, plan.cases, signals,
            TimeLimit(
                plan.time_limit_s, math.inf if plan.lab_cores is None else plan.time_limit_s
            ),
            further=tuple(zip(further, copies, strict=True)),
        )  # fmt: skip
        cases = plural(len(plan.cases), "case")
        progress.said(
            f"{cases}, {plural(len(plan.cases) * plan.runs_of_case, 'run')}, in "
            f"{plural(session.jobs, 'test')} of ReFrame: a test runs all variants of a check"
        )
        progress.said(f"evidence goes to {folder}")
        for note in trial.notes:  # such as a virtual lab without what its site wants
            progress.said(f"note: {note}")
        try:
            first = run_rounds(session, results)
            finish(results, requirements, folder, signals)
            if not first.broken:
                rerun(session, results, requirements)
        finally:
            config.with_name(PART_FILE).unlink(missing_ok=True)
            for copy in copies:
                shutil.rmtree(copy.parents[1], ignore_errors=True)
            sizes = take(folder, machine, progress)
        write_manifest(session, results, requirements, sizes)
    if first.broken:
        raise LabError("ReFrame did not run:\n" + "\n".join(first.tail[-15:]))
    return results


def take(folder: Path, machine: Machine, progress: Progress) -> dict[str, int]:
    """Make the whole folder the trial's own. If that fails, the verdict and the manifest are still
    written. Returns the sizes of the files of the jobs' user, as ``Machine``."""
    try:
        return machine.take(folder)
    except OSError as error:
        progress.said(f"warning: the user of the jobs can still change files in {folder}: {error}")
        return {}


def write_manifest(
    session: Session, results: Results, requirements: Requirements, sizes: Mapping[str, int]
) -> None:
    """Write the sums of all files. Files larger than in ``sizes`` are removed, with a note.

    A process that outlived its job may still write to its files. Raises LabError, also if a signal
    comes meanwhile; then the trial has no manifest, as one that was killed.
    """
    folder, before = session.folder, len(session.signals)

    def check_signals() -> None:
        if later := session.signals[before:]:
            raise InterruptedError(f"interrupted by {later[0]}; 'seatrial judge' writes one")

    try:
        names = manifest.files(folder)
        sums = manifest.sums_of(folder, names, sizes, check_signals)
        if grown := sorted(set(names) - sums.keys()):
            for name in grown:
                (folder / name).unlink()
            listed = some([ascii(name) for name in grown])
            text = f"evidence removed, because it grew after the jobs had ended: {listed}"
            session.progress.said(f"warning: {text}")
            results.trial.notes.append(text)
            finish(results, requirements, folder, session.signals)
            sums |= manifest.sums_of(folder, [RESULTS_FILE])
        manifest.append(folder, sums)
    except OSError as error:
        raise LabError(f"the results are kept, their manifest is not: {error}") from None


def run_rounds(session: Session, results: Results) -> Outcome:
    """Run all planned rounds, and add their runs to the results.

    Each round is written when it ends: a process that is killed later does not lose it.
    Returns the outcome of the first run of ReFrame. After a signal, at the time limit, or if
    ReFrame runs nothing, the cases of the remaining rounds are errors.
    """
    parts: list[Part] = []
    why_not = ""
    for number in range(session.plan.rounds):
        session.round = number
        if number:
            why_not = session.why_stop() or next(
                (part.why_not for part in parts if part.outcome.broken), ""
            )
            try:
                reserve(session.folder)
            except OSError as error:
                why_not = why_not or str(error)
        if session.plan.rounds > 1 and not why_not:
            session.progress.said(
                f"round {number + 1} of {session.plan.rounds}: {', '.join(session.profiles)}"
            )
        parts += run_cases(session, results, why_not)
        if number + 1 < session.plan.rounds:
            keep(session, results)
    return parts[0].outcome


def keep(session: Session, results: Results) -> None:
    """Write the runs so far. Where that fails, ``finish`` tries again."""
    try:
        write_results(session.folder / RESULTS_FILE, [results.trial, *results.runs])
    except OSError as error:
        session.progress.said(f"warning: the runs so far cannot be written: {error}")


def run_cases(session: Session, results: Results, why_not: str = "") -> list[Part]:
    """Run the session's cases once, and add their runs to the results.

    ``why_not``: why none runs.
    """
    parts: list[Part] = []
    try:
        parts.extend(run_round(session, why_not))
    finally:
        for machine in () if why_not else session.machines:
            if left := end_leftovers(session.folder, machine):
                results.trial.notes.append(left)
                session.progress.said(f"warning: {left}")
    (session.folder / RESERVE_FILE).unlink(missing_ok=True)
    results.trial.notes += [
        text for machine in session.machines for text in machine.losses(session.folder)
    ]
    runs = runs_of(session, parts, results.trial.notes.append)
    results.runs += runs
    held = allocations(session, parts, runs)
    for use in results.trial.profiles:
        use.allocations += held.get(use.name, [])
    return parts


def rerun(session: Session, results: Results, requirements: Requirements) -> None:
    """Run the cases again whose figures do not pass, up to ``reruns`` times.

    The results are judged and written after each rerun.
    """
    most = session.plan.reruns
    for number in range(1, most + 1):
        again = cases_to_rerun(results.trial, results.judgements, requirements)
        if not again:
            return
        parts: list[Part] = []
        if not (why_not := session.why_stop()):
            try:
                reserve(session.folder)
            except OSError as error:
                why_not = str(error)
        if not why_not:
            further = replace(
                session, cases=again, round=0, rerun=number, done={},
                nodelists=first_nodes(results.runs),
            )  # fmt: skip
            session.progress.said(
                f"rerun {number} of at most {most}: {plural(len(again), 'case')} with figures "
                "outside their bounds or in doubt, and those they are compared with, in "
                f"{plural(further.jobs, 'test')}"
            )
            parts = run_cases(further, results)
            if why_not := session.why_stop():
                # A rerun that was interrupted or did not start says nothing about the site.
                results.runs = [
                    run
                    for run in results.runs
                    if run.outcome == "ran" or run.repeat not in further.repeats
                ]
        if why_not:
            ids = ", ".join(case.id for case in again)
            text = f"fewer reruns than planned: {ids} ({why_not})"
            session.progress.said(text)
            results.trial.notes.append(text)
        finish(results, requirements, session.folder, session.signals)
        if why_not or any(part.why_not for part in parts):
            return


def profile_uses(plan: Plan) -> list[ProfileUse]:
    """The settings of each NIC profile of the cases, in the order of the site file."""
    return [
        ProfileUse(
            name=name,
            description=profile.description,
            feature=profile.feature,
            statements=profile.effects,
            settings={node: flat for node, flat in profile.declared["nodes"].items() if flat},
            node_settings=profile.declared["node"],
        )
        for name, profile in profiles_under_test(plan).items()
    ]


def transport_uses(plan: Plan) -> list[TransportUse]:
    """What the site declares of each transport of the cases, in the order of the site file."""
    used = {case.transport for case in plan.cases}
    every = [transport.declared for name, transport in plan.transports.items() if name in used]
    return [transport_use for transport_use in every if transport_use]


def benchmark_settings(plan: Plan) -> dict[str, dict[str, Any]]:
    """Benchmark of the cases -> the settings that decide how it measures."""
    used = {case.check for case in plan.cases}
    return {name: plan.benchmark(name).measured_with for name in plan.benchmarks if name in used}


def notes_of(machines: Sequence[Machine]) -> list[str]:
    """What the machines say of themselves, once, and that there are several."""
    notes = list(dict.fromkeys(text for machine in machines for text in machine.notes()))
    if len(machines) > 1:
        notes.append(
            f"{len(machines)} clusters of the same kind ran the NIC profiles, each a part of them, "
            "at the same time"
        )
    return notes


def effects(plan: Plan) -> list[str]:
    """Notes on transports that the profiles of the trial do not affect."""
    return [text for profile in profiles_under_test(plan).values() for text in profile.effects]


def profiles_under_test(plan: Plan) -> dict[str, PlannedProfile]:
    """The NIC profiles that the plan has cases of."""
    names = {case.profile for case in plan.cases}
    return {name: profile for name, profile in plan.profiles.items() if name in names}


def finish(results: Results, requirements: Requirements, folder: Path, signals: list[str]) -> None:
    """Write the runs, judge them, and write all results.

    A signal ends the judging, and joins ``signals``. Raises LabError then, or if the results cannot
    be written.
    """
    trial, file = results.trial, folder / RESULTS_FILE
    runs = plural(len(results.runs), "run")
    kept = f"its {runs} are in {file}; 'seatrial judge {folder}' judges them"
    try:
        write_results(file, [trial, *results.runs])
    except OSError as error:
        kept = f"its {runs} cannot be written: {error}"
    try:
        with obeyed_signals(signals):
            results.judgements = judge(trial, results.runs, requirements)
            verdict = conclude(trial, results.runs, results.judgements, requirements)
    except Interrupted as signal:
        raise LabError(
            f"interrupted by {signal} while the figures were judged: the trial has no verdict; "
            f"{kept}"
        ) from None
    copy = trial_requirements(results)
    results.verdict = verdict.model_copy(
        update=provenance(
            manifest.sha256(copy), str(copy.relative_to(folder)), trial.command, trial.seatrial
        )
    )
    lines: list[Line] = [trial, *results.runs, *results.judgements, results.verdict]
    try:
        write_results(file, lines)
    except OSError as error:
        word = results.verdict.verdict
        raise LabError(f"the verdict ({word}) cannot be written: {error}") from None


def reserve(folder: Path) -> None:
    """Reserve disk space for the results. It is freed before they are written."""
    file = folder / RESERVE_FILE
    with file.open("wb") as stream:
        try:
            os.posix_fallocate(stream.fileno(), 0, RESERVE_B)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise OSError(error.errno, error.strerror, str(file)) from None
            stream.write(bytes(RESERVE_B))  # a file system that cannot reserve, such as NFS
            stream.flush()
            os.fsync(stream.fileno())


def new_folder(trials: Path, site: str) -> Path:
    """Make a new folder for this trial. Raises LabError, OSError."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    for number in range(100):
        folder = trials / (f"{site}-{stamp}" + (f"-{number}" if number else ""))
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise LabError(f"{trials}: cannot make a folder for this trial")


def write_config(folder: Path, plan: Plan, site_file: Path) -> Path:
    """Write the plan and the site's files into the trial's folder. Returns ReFrame's settings file.

    The trial runs ``plan.json``. The site's files are copies for the record.
    """
    config = folder / "config" / plan.site
    config.mkdir(parents=True)
    for name in (site_file.name, "requirements.yaml"):
        shutil.copy(site_file.with_name(name), config / name)
    write(plan, config / PLAN_FILE)
    (config / "settings.py").write_text(SETTINGS)
    return config / "settings.py"


def write_copy(config: Path, number: int) -> Path:
    """Copy a configuration for another machine, until the trial ends. Returns its settings file.

    The file that says which part of the trial runs is beside the plan, so each machine needs both.
    """
    copy = config.parents[1].with_name(f"config-{number}") / config.parent.name
    shutil.copytree(config.parent, copy)
    return copy / config.name


def end_leftovers(folder: Path, machine: Machine) -> str:
    """Cancel the remaining jobs of this trial, and wait until they end, at most ``RELEASE_S``.

    There are some if ReFrame was killed or lost Slurm, and for a moment after each job whose Epilog
    still runs. Returns a sentence if Slurm does not answer in ``SILENT_S``; else "".
    """
    cancelled: set[str] = set()
    answered = time.monotonic()
    for _ in polls(machine, RELEASE_S):
        try:
            jobs = jobs_of(folder, machine)
            if not jobs:
                return ""
            if new := [job for job in jobs if job not in cancelled]:
                machine.run(["scancel", *new])
                cancelled.update(new)
            answered = time.monotonic()
        except LabGone:
            return ""
        except (OSError, subprocess.SubprocessError, SeatrialError) as error:
            if time.monotonic() - answered > SILENT_S:
                return f"jobs of the trial may still run, until their time limits: {error}"
    return ""
