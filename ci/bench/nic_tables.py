"""What NIC profiles cost, as tables for the terminal."""

from __future__ import annotations

import os
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
    for scenario in scenarios:
        cells = [ms(scenario.times[verb]) for verb in nic_node.VERBS]
        verbs.add_row(scenario.name, str(scenario.commands), *cells)
    out.print(verbs)
    growth = Table(
        "interfaces: settings", "apply, ratio", "restore, ratio", "apply, CPU ms",
        "restore, CPU ms", title="One node: growth, over one interface with one setting",
    )  # fmt: skip
    first = scenarios[0]
    for scenario in scenarios:
        ratios = [
            f"{median(scenario.times[verb]) / median(first.times[verb]):.2f}"
            for verb in ("apply", "restore")
        ]
        cpu = [ms(scenario.cpu[verb]) for verb in ("apply", "restore")]
        growth.add_row(scenario.name, *ratios, *cpu)
    out.print(growth)


def show_start(out: Console, series: list[nic_jobs.Series]) -> None:
    """Ways of starting a job on one node; the first is what the others are compared with."""
    table = Table(
        "job on one node", "allocation to first line, ms", "ratio", "added, ms",
        "srun to first line, ms", "added, ms", "sbatch to first line, ms",
        title="Start of a job",
    )  # fmt: skip
    base = series[0]
    for one in series:
        table.add_row(
            one.way.name, ms(one.allocated),
            f"{median(one.allocated) / median(base.allocated):.2f}",
            added_ms(one.allocated, base.allocated), ms(one.srun), added_ms(one.srun, base.srun),
            ms(one.submitted),
        )  # fmt: skip
    out.print(table)
    own = Table(
        "job on one node", "applied, ms", "restored, ms", "CPU of Prolog, ms", "CPU of Epilog, ms",
        title="What the node noted itself (without Python's start), and CPU time",
    )  # fmt: skip
    for one in series:
        cells = [
            ms(values) for values in (one.applied, one.restored, one.prolog_cpu, one.epilog_cpu)
        ]
        own.add_row(one.way.name, *cells)
    out.print(own)
    for one in series[1:]:
        added = median(one.allocated) - median(base.allocated)
        seen = median(one.srun) - median(base.srun)
        out.print(
            f"{one.way.name}: {added:+.3f} s from allocation to first line (goal: under "
            f"{ADDED_GOAL_S} s: {kept(added, ADDED_GOAL_S)}), {seen:+.3f} s as srun's caller sees "
            f"it ({kept(seen, ADDED_GOAL_S)})",
            markup=False,
        )
    out.print(
        "srun waits longer than the Prolog takes: it asks again after 0.1 to 0.2 s, then after "
        "twice that. From sbatch on there is up to 1 s of chance: Slurm schedules at whole seconds."
    )


def added_ms(values: list[float], base: list[float]) -> str:
    return f"{(median(values) - median(base)) * 1e3:+.0f}" if values else NOTHING


def show_growth(out: Console, title: str, what: str, series: list[nic_jobs.Series]) -> None:
    """``what`` is the attribute that grows: ``nodes`` or ``jobs``. CPU time over cores is the least
    that so many Prologs at once can take on this machine."""
    several = ["until all run, ms"] if what == "jobs" else []
    table = Table(
        what, "way", "allocation to first line, ms", "added, ms", *several,
        "Prologs' CPU / cores, ms", "applied, ms", "CPU per node of Prolog, Epilog, ms",
        title=title,
    )  # fmt: skip
    cores = os.cpu_count() or 1
    for size in dict.fromkeys(getattr(one, what) for one in series):
        group = [one for one in series if getattr(one, what) == size]
        for one in group:
            prolog, epilog = median(one.prolog_cpu) * 1e3, median(one.epilog_cpu) * 1e3
            table.add_row(
                str(size), one.way.name, ms(one.allocated),
                added_ms(one.allocated, group[0].allocated), *([ms(one.last)] if several else []),
                f"{max(prolog, prolog * one.jobs * one.nodes / cores):.0f}", ms(one.applied),
                f"{prolog:.0f}, {epilog:.0f}",
            )  # fmt: skip
        table.add_section()
    out.print(table)


def show_trial(out: Console, switches: list[Switches]) -> None:
    table = Table(
        "profile", "checks run", "applied, by node", "restored, by node",
        title="Switches of profiles in one trial",
    )  # fmt: skip
    for switch in switches:
        table.add_row(
            switch.profile, str(switch.runs),
            *(", ".join(f"{node} {times}" for node, times in counts.items()) or NOTHING
              for counts in (switch.applied, switch.restored)),
        )  # fmt: skip
    out.print(table)
    counts = [times for one in switches for times in one.applied.values()]
    verdict = "kept" if counts and all(times <= 1 for times in counts) else "MISSED"
    out.print(f"goal: one switch per profile, node and trial: {verdict}")
