"""What was measured, as tables for the terminal."""

from __future__ import annotations

from statistics import median
from typing import Any

import timeline
from rich.console import Console
from rich.table import Table


def spread(values: list[float], digits: int = 2) -> str:
    """The median, and the range where there are several."""
    text = f"{median(values):.{digits}f}"
    if len(values) > 1:
        text += f" ({min(values):.{digits}f} to {max(values):.{digits}f})"
    return text


def show_trial(out: Console, trial: dict[str, Any]) -> None:
    measured = trial["measured"]
    table = Table("seatrial trial", "s", title="A whole trial of the lab")
    for name, seconds in trial["parts_s"].items():
        table.add_row(name, f"{seconds:.2f}")
    table.add_section()
    table.add_row("the whole command", f"{trial['command_s']:.2f}")
    out.print(table)
    out.print(
        f"{measured.checks} jobs, {measured.steps} benchmarks: critical path "
        f"{measured.union_s:.2f} s (programs alone {measured.programs_s:.2f} s)"
    )
    out.print(
        f"ReFrame's run / critical path: {measured.ratio:.3f}; the whole command / critical path: "
        f"{trial['command_s'] / measured.union_s:.3f} (goal: 1.15)"
    )
    show_gaps(out, {"trial": [measured]})


def show_gaps(out: Console, ways: dict[str, list[timeline.Measured]]) -> None:
    table = Table("no benchmark ran, s", *ways, title="Where the rest of the time went (medians)")
    for part in timeline.PARTS:
        row = [median(run.gaps_s.get(part, 0.0) for run in runs) for runs in ways.values()]
        if any(row):
            table.add_row(part, *(f"{seconds:.2f}" for seconds in row))
    table.add_section()
    launch = [median(run.union_s - run.programs_s for run in runs) for runs in ways.values()]
    table.add_row("(inside steps: srun's launch)", *(f"{seconds:.2f}" for seconds in launch))
    out.print(table)


def show_ways(out: Console, ways: dict[str, list[timeline.Measured]]) -> None:
    table = Table(
        "way", "wall, s", "critical path, s", "ratio", "cost per check, s", "load",
        title="The same cases in several ways",
    )  # fmt: skip
    for name, runs in ways.items():
        table.add_row(
            name,
            spread([run.wall_s for run in runs]),
            spread([run.union_s for run in runs]),
            spread([run.ratio for run in runs], 3),
            spread([run.per_check_s for run in runs], 3),
            spread([run.load for run in runs], 1),
        )
    out.print(table)
    failed = sum(run.failed_steps for runs in ways.values() for run in runs)
    if failed:
        out.print(f"{failed} benchmarks exited with an error: their times count all the same")


def show_backends(out: Console, found: dict[str, Any]) -> None:
    table = Table("", *found, title="ReFrame's back ends")
    entries = list(found.values())
    table.add_row("lab up, s", *(spread(entry["lab_up_s"]) for entry in entries))
    table.add_row("ratio", *(spread([r.ratio for r in e["runs"]], 3) for e in entries))
    table.add_row(
        "cost per check, s", *(spread([r.per_check_s for r in e["runs"]], 3) for e in entries)
    )
    known = [{fact["how"]: fact for fact in entry.get("knows", [])} for entry in entries]
    for how in sorted({how for facts in known for how in facts}):
        cells = [facts.get(how, {}) for facts in known]
        table.add_row(
            f"job with {how}",
            *(
                f"{cell.get('state', '?')}, exit code {cell.get('exit_code', '?')}"
                for cell in cells
            ),
        )
    out.print(table)
