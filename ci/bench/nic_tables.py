"""What NIC profiles cost, as tables for the terminal."""

from __future__ import annotations

from statistics import median

import nic_jobs
import nic_node
from nic_trial import Switches
from rich.console import Console
from rich.table import Table

START_GOAL_S = 0.1
ADDED_GOAL_S = 0.3
NOTHING = "-"


def ms(values: list[float]) -> str:
    """Milliseconds: the median, and the range where there are several."""
    if not values:
        return NOTHING
    text = f"{median(values) * 1e3:.0f}"
    if len(values) > 1:
        text += f" ({min(values) * 1e3:.0f} to {max(values) * 1e3:.0f})"
    return text


def kept(value: float, goal: float) -> str:
    return "kept" if value < goal else "MISSED"


def show_node(out: Console, fixed: nic_node.Scenario, scenarios: list[nic_node.Scenario]) -> None:
    table = Table("", "ms", "CPU, ms", title="One node: what no setting changes")
    for name in fixed.times:
        table.add_row(name, ms(fixed.times[name]), ms(fixed.cpu[name]))
    out.print(table)
    start = median(fixed.times[nic_node.START])
    goal = f"{START_GOAL_S * 1e3:.0f} ms: {kept(start, START_GOAL_S)}"
    out.print(f"start of the node side: {start * 1e3:.0f} ms (goal: under {goal})")
    verbs = Table(
        "interfaces: settings", "commands", *nic_node.VERBS,
        title="One node: each verb, ms (Python's start included)",
    )  # fmt: skip
    for one in scenarios:
        cells = [ms(one.times[verb]) for verb in nic_node.VERBS]
        verbs.add_row(one.name, str(one.commands), *cells)
    out.print(verbs)
    growth = Table(
        "interfaces: settings", "apply, ratio", "restore, ratio", "apply, CPU ms",
        "restore, CPU ms", title="One node: growth, over one interface with one setting",
    )  # fmt: skip
    first = scenarios[0]
    for one in scenarios:
        ratios = [
            f"{median(one.times[verb]) / median(first.times[verb]):.2f}"
            for verb in ("apply", "restore")
        ]
        cpu = [ms(one.cpu[verb]) for verb in ("apply", "restore")]
        growth.add_row(one.name, *ratios, *cpu)
    out.print(growth)


def show_start(out: Console, series: list[nic_jobs.Series]) -> None:
    """Ways of starting a job on one node; the first is what the others are compared with."""
    table = Table(
        "job on one node", "allocation to first line, ms", "ratio", "added, ms",
        "sbatch to first line, ms", "srun to first line, ms",
        title="Start of a job (its end of Prolog included)",
    )  # fmt: skip
    base = median(series[0].allocated)
    for one in series:
        start = median(one.allocated)
        table.add_row(
            one.way.name, ms(one.allocated), f"{start / base:.2f}",
            f"{(start - base) * 1e3:+.0f}", ms(one.submitted), ms(one.srun),
        )  # fmt: skip
    out.print(table)
    own = Table(
        "job on one node", "applied, ms", "restored, ms", "CPU of Prolog and Epilog, ms",
        title="What the node itself noted (without Python's start)",
    )  # fmt: skip
    for one in series:
        own.add_row(one.way.name, ms(one.applied), ms(one.restored), ms(one.cpu))
    out.print(own)
    for one in series[1:]:
        added = median(one.allocated) - base
        out.print(
            f"{one.way.name}: {added:+.3f} s of a job start (goal: under {ADDED_GOAL_S} s: "
            f"{kept(added, ADDED_GOAL_S)})",
            markup=False,
        )
    out.print("From sbatch on there is up to 1 s of chance: Slurm schedules at whole seconds.")


def show_growth(out: Console, title: str, what: str, series: list[nic_jobs.Series]) -> None:
    """``what`` is the attribute that grows: ``nodes`` or ``jobs``. Last is from the first
    allocation to the first line of the last job."""
    table = Table(
        what, "way", "allocation to first line, ms", "added, ms", "until all run, ms",
        "applied, ms", "CPU per node, ms", title=title,
    )  # fmt: skip
    for size in dict.fromkeys(getattr(one, what) for one in series):
        group = [one for one in series if getattr(one, what) == size]
        base = median(group[0].allocated)
        for one in group:
            table.add_row(
                str(size), one.way.name, ms(one.allocated),
                f"{(median(one.allocated) - base) * 1e3:+.0f}", ms(one.last), ms(one.applied),
                ms(one.cpu),
            )  # fmt: skip
        table.add_section()
    out.print(table)


def show_trial(out: Console, switches: list[Switches]) -> None:
    table = Table(
        "profile", "checks run", "applied, by node", "restored, by node",
        title="Switches of profiles in one trial",
    )  # fmt: skip
    for one in switches:
        table.add_row(
            one.profile, str(one.runs),
            *(", ".join(f"{node} {times}" for node, times in counts.items()) or NOTHING
              for counts in (one.applied, one.restored)),
        )  # fmt: skip
    out.print(table)
    counts = [times for one in switches for times in one.applied.values()]
    verdict = "kept" if counts and all(times <= 1 for times in counts) else "MISSED"
    out.print(f"goal: one switch per profile, node and trial: {verdict}")
