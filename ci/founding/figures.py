"""The lab's figures that published ones stand beside: read from trials, and kept.

Trials are large and go; ``measured.jsonl`` beside ``published.yaml`` keeps what the page needs of
them: one line for each figure, with the values of all runs, the trial and its day. A later trial
replaces the figures that it has.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from seatrial.base.errors import InputError, Problem
from seatrial.base.files import replacing
from seatrial.base.yamlfile import InvalidValue
from seatrial.results.folder import Results
from seatrial.results.record import Case, Run

Finite = Annotated[float, Field(allow_inf_nan=False)]
Points = tuple[tuple[Finite, Finite], ...]


class Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Figure(Entry):
    """A figure of a trial of a site: a metric, a curve, or a curve at one message size."""

    site: str = "lab-virtual"
    check: str
    variant: str = ""
    transport: str = "tcp"
    network: str = ""
    profile: str
    nodes: int = 2
    metric: str = ""
    curve: str = ""
    at_B: int | None = Field(default=None, description="message size of a curve")

    @model_validator(mode="after")
    def _one_thing(self) -> Figure:
        if bool(self.metric) == bool(self.curve):
            raise InvalidValue("a figure is a metric or a curve", "give metric, or curve")
        if self.at_B is not None and not self.curve:
            raise InvalidValue("a metric has no message size", "at_B is for a curve")
        return self

    @property
    def case(self) -> Case:
        return Case(
            check=self.check, variant=self.variant, transport=self.transport,
            network=self.network, profile=self.profile, nodes=self.nodes,
        )  # fmt: skip

    @property
    def whole(self) -> Figure:
        """The curve of which this figure is one size, or the figure itself."""
        return self.model_copy(update={"at_B": None})

    def __str__(self) -> str:
        return f"{self.metric or self.curve} of {self.case.id} of {self.site}"


class Measured(Entry):
    """A figure with its values, one for each run (and location), or its curves likewise."""

    figure: Figure
    values: tuple[Finite, ...] = ()
    curves: tuple[Points, ...] = ()
    trial: str = Field(description="the trial, or why there is none")
    day: str = Field(description="YYYY-MM-DD, of the trial's begin")

    @property
    def median(self) -> float:
        """Raises ValueError if it has no value."""
        return statistics.median(self.values)

    def at(self, size: int) -> Measured:
        """The values of the curves at a message size; none where it was not measured."""
        values = tuple(dict(points)[size] for points in self.curves if size in dict(points))
        return self.model_copy(update={"values": values, "curves": ()})

    def curve(self) -> dict[float, float]:
        """Message size -> median over the runs, of the sizes that all runs have."""
        runs = [dict(points) for points in self.curves]
        sizes = set.intersection(*(set(run) for run in runs)) if runs else set()
        return {size: statistics.median(run[size] for run in runs) for size in sorted(sizes)}


def from_trials(figure: Figure, trials: Iterable[Results]) -> Measured | None:
    """A figure (no ``at_B``) of the last trial of its site that has it; None: none has."""
    for results in reversed(list(trials)):
        runs = [run for run in results.runs if run.case == figure.case and run.outcome == "ran"]
        values = [
            metric.value for run in runs for metric in run.metrics if metric.metric == figure.metric
        ]
        curves = [points for run in runs for points in _curves(figure, run)]
        if results.trial.site == figure.site and (values or curves):
            return Measured(
                figure=figure, values=tuple(values), curves=tuple(curves),
                trial=results.trial.trial, day=results.trial.started.date().isoformat(),
            )  # fmt: skip
    return None


def _curves(figure: Figure, run: Run) -> list[Points]:
    """Times in us by message size. A bandwidth in MB/s becomes the time of a message at that rate;
    it does not count where a curve of times has the same name."""
    named = [curve for curve in run.curves if curve.name == figure.curve]
    times = [tuple(curve.points) for curve in named if curve.y_unit == "us"]
    rates = [curve.points for curve in named if curve.y_unit == "MB/s"]
    return times or [tuple((size, size / rate) for size, rate in points) for points in rates]


def read_measured(path: Path) -> dict[Figure, Measured]:
    """The kept figures; none if there is no file. Raises InputError with file and line."""
    kept: dict[Figure, Measured] = {}
    lines = path.read_text().splitlines() if path.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            figure = Measured.model_validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"]))
            raise InputError([Problem(path, number, field, first["msg"])]) from None
        kept[figure.figure] = figure
    return kept


def write_measured(path: Path, measured: Iterable[Measured]) -> None:
    """One line for each, in the order of their figures' names. Raises OSError."""
    lines = sorted(
        (str(figure.figure), figure.model_dump_json(exclude_defaults=True)) for figure in measured
    )
    with replacing(path) as stream:
        stream.write("".join(f"{line}\n" for _, line in lines).encode())
