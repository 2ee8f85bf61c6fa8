"""``seatrial plan``: the cases, jobs, time and clauses of a trial, without running it."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.table import Table

from seatrial.base.paths import TRIALS
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
from seatrial.plan.check import CheckedSite, abbreviated, check_site
from seatrial.plan.estimate import Earlier, PlannedJob, expect, jobs_of, read_earlier
from seatrial.plan.resolve import require_cases, unmeasured
from seatrial.results.contract import is_in_force
from seatrial.results.wording import plural
from seatrial.site.load import site_file

out = open_console(highlight=False, soft_wrap=True, markup=False)


def plan(
    site: SiteOption = "lab",
    check: CheckOption = None,
    transport: TransportOption = None,
    network: NetworkOption = None,
    profile: ProfileOption = None,
    repeats: RepeatsOption = None,
    rounds: RoundsOption = None,
    reruns: RerunsOption = None,
    output: Annotated[
        Path, typer.Option(help="Folder of earlier trials; default: trials/.", show_default=False)
    ] = TRIALS,
) -> None:
    """Show the jobs, time and clauses of a trial, without running it.

    Example: seatrial plan --site harbour --check netpipe --repeats 1
    """
    selection = selection_of(check, transport, network, profile, repeats, rounds, reruns)
    checked = check_site(site_file(site), selection)
    require_cases(checked.plan)
    jobs = jobs_of(checked.plan)
    earlier = read_earlier(output, checked.plan.site)
    expect(jobs, earlier)
    print_scope(checked)
    print_jobs(checked, jobs)
    print_time(checked, jobs, earlier)
    out.print()
    print_clauses(checked)
    print_missing(checked)


def print_scope(checked: CheckedSite) -> None:
    """The size of the matrix, and what is left out of it."""
    plan = checked.plan
    runs = len(plan.cases) * plan.runs_of_case
    each = f"{plan.repeats} of each"
    if plan.rounds > 1:
        each += f" in each of {plan.rounds} rounds"
    reruns = f", up to {plan.reruns} reruns of a case that breaks a bound" if plan.reruns else ""
    out.print(
        f"site {plan.site}, partition {plan.partition}: {plural(len(plan.cases), 'case')}, "
        f"{plural(runs, 'run')} with {each}{reruns}"
    )
    if checked.stack_missing:
        out.print(f"note: {checked.stack_missing}")
    for note in (*plan.left_out, *unmeasured(plan, checked.site)):
        out.print(f"note: {note}")


def print_jobs(checked: CheckedSite, jobs: list[PlannedJob]) -> None:
    """A line for each NIC profile."""
    rounds, repeats = checked.plan.rounds, checked.plan.runs_of_case
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("NIC profile")
    for heading in ("cases", "jobs", "nodes", "expected node hours", "at most"):
        table.add_column(heading, justify="right")
    rows: list[tuple[str, int, int, int, float, float]] = []
    for profile, of_profile in by_profile(jobs).items():
        held = profile != "default" or checked.plan.virtual_time
        nodes = max(job.nodes for job in of_profile)
        width = {job.key: nodes if held else job.nodes for job in of_profile}
        expected = sum(width[job.key] * job.seconds for job in of_profile) * repeats / 3600
        limit = sum(width[job.key] * job.limit_s for job in of_profile) * repeats / 3600
        cases = sum(case.profile == profile for case in checked.plan.cases)
        rows.append(
            (profile, cases, rounds if held else len(of_profile) * repeats, nodes, expected, limit)
        )
    _, all_cases, counts, widths, hours, limits = zip(*rows, strict=True)
    total = ("total", sum(all_cases), sum(counts), max(widths), sum(hours), sum(limits))
    for name, cases, submitted, nodes, expected, limit in (*rows, total):
        table.add_row(
            name, str(cases), str(submitted), str(nodes), f"{expected:.2f}", f"{limit:.2f}"
        )
    out.print()
    out.print(table)
    networks = Counter(case.network for case in checked.plan.cases)
    if set(networks) - {""}:
        parts = []
        for name, count in networks.items():
            node_s = sum(job.seconds * job.nodes for job in jobs if job.network == name)
            where = f"{name} " if name else "without a network of their own "
            parts.append(
                f"{where}{plural(count, 'case')}, {node_s * repeats / 3600:.2f} node hours"
            )
        out.print(f"by network: {'; '.join(parts)}")


def by_profile(jobs: list[PlannedJob]) -> dict[str, list[PlannedJob]]:
    groups: dict[str, list[PlannedJob]] = defaultdict(list)
    for job in jobs:
        groups[job.profile].append(job)
    return dict(sorted(groups.items(), key=lambda group: group[0] != "default"))


def print_time(checked: CheckedSite, jobs: list[PlannedJob], earlier: Earlier) -> None:
    """Expected wall time with its source, and the limits."""
    plan = checked.plan
    measured = [job for job in jobs if job.expected_s is not None]
    known = sum(job.seconds for job in measured) * plan.runs_of_case * earlier.overhead
    unknown = sum(job.limit_s for job in jobs if job.expected_s is None) * plan.runs_of_case
    limit = sum(job.limit_s for job in jobs) * plan.runs_of_case
    out.print()
    if measured:
        trials = f"{plural(len(earlier.trials), 'earlier trial')}, newest {earlier.trials[0]}"
        source = f"from {trials}, with the time in the queue as there"
        if len(measured) < len(jobs):
            source += f"; {len(jobs) - len(measured)} of {len(jobs)} jobs were in none of them"
            source += f" and may add {duration(unknown)}"
        out.print(f"expected time  {duration(known)} without reruns, {source}")
        if plan.reruns and earlier.reruns:
            took = median(earlier.reruns)
            of = f"{plural(len(earlier.reruns), 'earlier trial')} that ended"
            text = f"{duration(took)} in the median of {of}" if took else f"none in most of {of}"
            out.print(f"reruns         {text}")
    else:
        out.print(
            f"expected time  at most {duration(limit)}, from the limits: no trial of this site in "
            "the folder has these jobs"
        )
    out.print(f"job limits     {duration(limit)}, one job after another, without reruns")
    of_rounds = f"{plan.rounds} rounds of " if plan.rounds > 1 else ""
    out.print(
        f"trial limit    {duration(plan.time_limit_s)} ({of_rounds}trial.time_limit_s), "
        "without the time in Slurm's queue"
    )
    if known > plan.time_limit_s:
        out.print("warning: the expected time is longer than trial.time_limit_s")
    elif known + unknown > plan.time_limit_s:
        out.print("warning: with jobs at their limits, the trial may exceed trial.time_limit_s")


def duration(seconds: float) -> str:
    """A duration in the two largest units."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def print_clauses(checked: CheckedSite, prefix: str = "") -> None:
    """The cases that each clause judges, and the clauses that judge none."""
    clauses = checked.requirements.contract
    if not clauses:
        out.print(f"{prefix}no clause (basis: contract) in requirements.yaml")
        return
    out.print()
    tested = sum(bool(checked.judged[rule.id]) for rule in clauses)
    out.print(f"{prefix}{tested} of {len(clauses)} clauses judge a case of this plan:")
    for rule in clauses:
        cases = checked.judged[rule.id]
        t = rule.threshold
        out.print(f"  {rule.id} ({t.source}): {t.metric} {rule.text()}")
        if cases:
            out.print(f"    {plural(len(cases), 'case')}: {abbreviated(cases)}")
        else:
            out.print(f"    not tested: {checked.untested[rule.id]}")
        if cases and (lacking := checked.lacking[rule.id]):
            out.print(f"    met in part: the stack has no program for {abbreviated(lacking)}")
        if waiver := checked.requirements.waivers.get(rule.key):
            in_force = is_in_force(waiver, datetime.now(UTC).date())
            text = f"waived by {waiver.by} until {waiver.expires}"
            if not in_force:
                text = f"not waived: the waiver by {waiver.by} expired on {waiver.expires}"
            out.print(f"    {text}: {waiver.reason} ({waiver.id})")


def print_missing(checked: CheckedSite) -> None:
    """Metrics without a requirement, which make a trial incomplete."""
    requirements = checked.requirements
    missing: dict[tuple[str, str], int] = defaultdict(int)
    for case, name, location in checked.figures():
        if not requirements.applying(case, name, location) and not requirements.is_informative(
            case, name, location
        ):
            missing[case.check, name] += 1
    if not missing:
        return
    named = [f"{name} of {check} ({count})" for (check, name), count in missing.items()]
    more = f" and {len(named) - 8} more" if len(named) > 8 else ""
    out.print()
    out.print(
        "without a requirement, so the trial is incomplete (number of cases): "
        f"{', '.join(named[:8])}{more}"
    )
