"""All conclusions from some trials of one site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seatrial.analysis import (
    communication,
    crossover,
    frame_sizes,
    groups,
    message_times,
    profile_cost,
    response,
    runs,
    scaling,
    several_pairs,
    value,
)
from seatrial.analysis.answer import Lost
from seatrial.analysis.axis import NETWORK, PROFILE, SETTING, TRANSPORT, Axis
from seatrial.analysis.conclusion import Missing
from seatrial.results.folder import Results


@dataclass(frozen=True)
class Analysis:
    """What the figures of ``trials`` mean, and what they do not show.

    ``responses``: to the profiles; ``others``: to networks, transports and settings.
    ``comparisons``: of each axis.
    """

    trials: tuple[str, ...]
    responses: list[response.Response]
    others: list[response.Response]
    costs: list[profile_cost.ProfileCosts]
    comparisons: list[crossover.Comparison]
    call_times: list[message_times.CallTimes]
    scalings: list[scaling.Scaling]
    shares: list[communication.Share]
    relations: list[communication.Relation]
    groups: groups.Groups | None
    pairs: list[several_pairs.SeveralPairs]
    sweeps: list[frame_sizes.Sweep]
    values: list[value.Value]
    gains: list[value.Gain]
    missing: list[Missing]
    features: Mapping[str, str]  # profile -> the node feature that requests it

    def responses_to(self, axis: Axis) -> list[response.Response]:
        return [one for one in (*self.responses, *self.others) if one.axis == axis]

    def comparisons_of(self, axis: Axis) -> list[crossover.Comparison]:
        return [comparison for comparison in self.comparisons if comparison.axis == axis]


def analyse(trials: Sequence[Results]) -> Analysis:
    """The conclusions from the valid runs of some trials, without reruns, disturbed runs and runs
    with a number that no measurement gives."""
    trials, not_used = runs.usable(trials)
    disturbed = runs.disturbed(trials)
    lost = Lost(runs.failed(trials), disturbed)
    measured = runs.measured(trials)
    of_applications, not_compared = response.responses(trials)
    others = {axis: response.responses(trials, axis) for axis in (NETWORK, TRANSPORT, SETTING)}
    models, not_modelled = message_times.models(measured)
    scalings, not_scaled = scaling.series(measured)
    shares = communication.shares(measured)
    of_runs, not_grouped = groups.grouped(measured)
    in_time = sorted(
        trials, key=lambda results: results.trial.started.timestamp()
    )  # the newest prices hold
    machines = [(results.trial.trial, results.trial.machine) for results in in_time]
    costs = machines[-1][1].costs if machines else []
    values, not_valued = value.values(measured, machines)
    return Analysis(
        tuple(results.trial.trial for results in trials),
        of_applications,
        [one for made, _ in others.values() for one in made],
        profile_cost.profile_costs(measured),
        [
            comparison
            for axis in (PROFILE, NETWORK, TRANSPORT)
            for comparison in crossover.comparisons(measured, axis, costs, lost)
        ],
        models,
        scalings,
        shares,
        communication.relations(shares, of_applications),
        of_runs,
        several_pairs.several_pairs(measured, lost),
        frame_sizes.sweeps(trials, measured, lost),
        values,
        value.gains([*of_applications, *others[NETWORK][0]], machines),
        [
            *not_used,
            *(runs.left_out(*of, *counts) for of, counts in disturbed.items()),
            *not_compared,
            *(m for _, own in others.values() for m in own),
            *not_modelled,
            *not_scaled,
            *not_grouped,
            *not_valued,
        ],
        {use.name: use.feature for results in trials for use in results.trial.profiles},
    )
