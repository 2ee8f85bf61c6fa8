"""Run one trial of a site: ReFrame through Slurm, then evidence, judgement and report.

Whatever happens on the way (Ctrl-C, a dead node, a full disk), what was measured is kept,
what was not is named, and the lab is left as it was found.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from ruamel.yaml import YAML

from seatrial.base.errors import InputError, LabError, SeatrialError
from seatrial.checks.configuration import feature_of
from seatrial.results.judge import conclude, judge
from seatrial.results.record import (
    RESULTS_FILE,
    Case,
    ProfileUse,
    Results,
    Trial,
    write_results,
)
from seatrial.results.requirements import Requirements, load_requirements
from seatrial.site.effects import statements
from seatrial.site.load import load_site
from seatrial.site.model import Site
from seatrial.site.nic_policy import declared
from seatrial.site.profiles import resolved
from seatrial.stack import Stack, load_stack
from seatrial.trial.host import host_facts, version_with_commit
from seatrial.trial.machine import Machine, Progress
from seatrial.trial.plan import Selection, not_offered, planned, select
from seatrial.trial.rerun import doubtful, first_nodes
from seatrial.trial.rounds import Round, allocations, run_rounds, runs_of
from seatrial.trial.session import Session, noted_signals

SETTINGS = '''"""ReFrame's configuration of this trial."""

from pathlib import Path

from seatrial.checks.configuration import settings

site_configuration = settings(Path(__file__).with_name("site.yaml"))
'''
RESERVE_FILE = ".reserve"
RESERVE_B = 1 << 20  # kept free, so that a disk that fills up still takes the results


def run_trial(
    site_file: Path,
    selection: Selection,
    machine: Machine,
    progress: Progress,
    trials: Path,
) -> Results:
    """Run the trial and write its folder below ``trials``; returns what was found.

    Raises InputError for a wrong site or selection, LabError where ReFrame cannot start or the
    results cannot be written.
    """
    site, stack, cases = prepare(site_file, selection)
    requirements = load_requirements(site_file.with_name("requirements.yaml"))
    left_out = list(not_offered(site, stack))
    try:
        folder = new_folder(trials, site.name)
        config = write_config(folder, site, site_file)
        trial = Trial(
            trial=folder.name,
            site=site.name,
            description=site.description,
            started=datetime.now(UTC),
            seatrial=version_with_commit(),
            command=["seatrial", *sys.argv[1:]],
            stack=stack.model_dump(include={"source", "id", "distribution", "versions", "origins"}),
            host=host_facts(),
            repeats=site.trial.repeats,
            reruns=site.trial.reruns,
            cases=cases,
            notes=[*left_out, *machine.notes(), *statements_on(site, cases)],
            profiles=profile_uses(site, cases),
        )
        results = Results(trial=trial, folder=folder)
        write_results(folder / RESULTS_FILE, [trial])
        reserve(folder)
    except OSError as error:
        raise LabError(f"the trial cannot begin: {error}") from None
    with noted_signals() as signals:
        machine.own(folder)
        session = Session(
            site, folder, config, machine, progress, cases, signals,
            deadline=time.monotonic() + site.trial.time_limit_s,
        )  # fmt: skip
        progress.started(folder, len(cases) * site.trial.repeats)
        try:
            rounds = attempt(session, results)
            finish(results, requirements, folder)
            if not rounds[0].outcome.broken:
                rerun(session, results, requirements)
        finally:
            machine.disown(folder)
    if rounds[0].outcome.broken:
        raise LabError("ReFrame did not run:\n" + "\n".join(rounds[0].outcome.tail[-15:]))
    return results


def attempt(session: Session, results: Results) -> list[Round]:
    """Run the session's cases, and add what they left to the results."""
    rounds: list[Round] = []
    try:
        rounds.extend(run_rounds(session))
    finally:
        cancel_leftovers(session.folder, session.machine)
    (session.folder / RESERVE_FILE).unlink(missing_ok=True)
    runs = runs_of(session, rounds)
    results.runs += runs
    held = allocations(session, rounds, runs)
    for use in results.trial.profiles:
        use.allocations += held.get(use.name, [])
    return rounds


def rerun(session: Session, results: Results, requirements: Requirements) -> None:
    """Run cases once more while not all their figures pass, as often as the site says.

    The results are judged and written after each time, whatever becomes of what follows.
    """
    most = session.site.trial.reruns
    jobs = session.jobs
    for number in range(1, most + 1):
        again = doubtful(results.trial, results.judgements, requirements)
        if not again:
            return
        rounds: list[Round] = []
        if not (why_not := session.why_stop()):
            try:
                reserve(session.folder)
            except OSError as error:
                why_not = str(error)
        if not why_not:
            are = "case is" if len(again) == 1 else "cases are"
            session.progress.said(
                f"{len(again)} {are} run again, since figures do not pass: "
                f"{number} of at most {most}"
            )
            further = replace(
                session, cases=again, rerun=number, jobs_before=jobs, jobs_done=jobs,
                nodelists=first_nodes(results.runs),
            )  # fmt: skip
            jobs = further.jobs
            rounds = attempt(further, results)
            if why_not := session.why_stop():
                # What was cut off, or never begun, says nothing of the site.
                results.runs = [
                    run
                    for run in results.runs
                    if run.outcome == "ran" or run.repeat not in further.repeats
                ]
        if why_not:
            ids = ", ".join(case.id for case in again)
            text = f"not run again as often as planned: {ids} ({why_not})"
            session.progress.said(text)
            results.trial.notes.append(text)
        finish(results, requirements, session.folder)
        if why_not or any(one.why_not for one in rounds):
            return


def profile_uses(site: Site, cases: list[Case]) -> list[ProfileUse]:
    """What each NIC profile of the cases sets, in the order of the site file."""
    tried = {case.profile for case in cases}
    sentences = statements(site)
    found = []
    for name in site.nic_profiles:
        if name not in tried:
            continue
        wanted = declared(site, name)
        found.append(
            ProfileUse(
                name=name,
                description=resolved(site, name).description,
                feature=feature_of(site, name) or "",
                statements=[text for text in sentences if of_profile(text, name)],
                settings={node: flat for node, flat in wanted["nodes"].items() if flat},
                node_settings=wanted["node"],
            )
        )
    return found


def statements_on(site: Site, cases: list[Case]) -> list[str]:
    """Where the profiles that are tried have no effect: never left out in silence."""
    tried = {case.profile for case in cases}
    return [text for text in statements(site) if any(of_profile(text, name) for name in tried)]


def of_profile(statement: str, name: str) -> bool:
    return statement.startswith((f"profile {name}:", f"profile {name},"))


def prepare(site_file: Path, selection: Selection) -> tuple[Site, Stack, list[Case]]:
    """The site as it is to be tried, the stack, and the cases.

    Raises InputError where there is none, LabError where there is no stack.
    """
    site = select(load_site(site_file), selection)
    stack = load_stack(site)
    cases = planned(site, stack)
    if not cases:
        nothing = "nothing to run: the selection, the site and the stack share no case"
        raise InputError("; ".join([nothing, *not_offered(site, stack)]))
    return site, stack, cases


def finish(results: Results, requirements: Requirements, folder: Path) -> None:
    """Judge, conclude and write; also used to judge a trial anew."""
    results.judgements = judge(results.trial, results.runs, requirements)
    results.verdict = conclude(results.trial, results.runs, results.judgements, requirements)
    lines = [results.trial, *results.runs, *results.judgements, results.verdict]
    try:
        write_results(folder / RESULTS_FILE, lines)
    except OSError as error:
        raise LabError(f"the verdict ({results.verdict.verdict}) cannot be kept: {error}") from None


def reserve(folder: Path) -> None:
    """Take a little of the disk now, to be given back when the results are written."""
    with (folder / RESERVE_FILE).open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, RESERVE_B)


def new_folder(trials: Path, site: str) -> Path:
    """A folder of its own for this trial; never one that exists."""
    trials.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    for number in range(100):
        folder = trials / (f"{site}-{stamp}" + (f"-{number}" if number else ""))
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise LabError(f"{trials}: cannot make a folder for this trial")


def write_config(folder: Path, site: Site, site_file: Path) -> Path:
    """The site as it is tried, beside its requirements, in the trial's folder: provenance, and
    what the checks read."""
    config = folder / "config" / site.name
    config.mkdir(parents=True)
    yaml = YAML()
    with (config / "site.yaml").open("w") as stream:
        yaml.dump(plain(site), stream)
    shutil.copy(site_file.with_name("requirements.yaml"), config / "requirements.yaml")
    (config / "settings.py").write_text(SETTINGS)
    return config / "settings.py"


def plain(site: Site) -> dict:
    """A site as its file would have it, with the defaults filled in.

    Not those of the stack, of which some are only right for Spack's, nor those of NIC profiles:
    what is not given there is the base's, and a null takes it away.
    """
    data = site.model_dump(mode="json", by_alias=True, exclude_none=True)
    data["stack"] = site.stack.model_dump(mode="json", exclude_unset=True)
    for name, profile in site.nic_profiles.items():
        data["nic_profiles"][name] = profile.model_dump(
            mode="json", by_alias=True, exclude_unset=True
        )
    return data


def cancel_leftovers(folder: Path, machine: Machine) -> None:
    """Cancel jobs of this trial that ReFrame left: it was killed, or could not reach Slurm."""
    with contextlib.suppress(OSError, subprocess.SubprocessError, SeatrialError):
        found = machine.run(["squeue", "--me", "--noheader", "--format=%i|%Z"]).stdout
        rows = [line.partition("|") for line in found.splitlines()]
        jobs = [job for job, _, work in rows if Path(work).is_relative_to(folder)]
        if jobs:
            machine.run(["scancel", *jobs])
