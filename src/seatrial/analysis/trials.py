"""All conclusions from some trials of one site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seatrial.analysis import crossover, message_times, profile_cost, response, scaling
from seatrial.analysis.conclusion import Measured, Missing
from seatrial.results.figures import valid_runs
from seatrial.results.record import Results


@dataclass(frozen=True)
class Analysis:
    """What the figures of ``trials`` mean, and what they do not show."""

    trials: tuple[str, ...]
    responses: list[response.Response]
    costs: list[profile_cost.ProfileCosts]
    comparisons: list[crossover.Comparison]
    call_times: list[message_times.CallTimes]
    scalings: list[scaling.Scaling]
    missing: list[Missing]
    features: Mapping[str, str]  # profile -> the node feature that requests it


def analyse(trials: Sequence[Results]) -> Analysis:
    """The conclusions from the valid runs of some trials, without reruns."""
    measured = [
        Measured(one.trial.trial, run)
        for one in trials
        for run in valid_runs(one.runs)
        if not one.trial.is_rerun(run)
    ]
    of_applications, not_compared = response.responses(trials)
    models, not_modelled = message_times.models(measured)
    scalings, not_scaled = scaling.series(measured)
    return Analysis(
        tuple(one.trial.trial for one in trials),
        of_applications,
        profile_cost.profile_costs(measured),
        crossover.comparisons(measured),
        models,
        scalings,
        [*not_compared, *not_modelled, *not_scaled],
        {use.name: use.feature for one in trials for use in one.trial.profiles},
    )
