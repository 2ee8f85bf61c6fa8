"""All conclusions from some trials of one site."""

from __future__ import annotations

from collections import Counter
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
    scaling,
    several_pairs,
    value,
)
from seatrial.analysis.axis import NETWORK, PROFILE, SETTING, TRANSPORT, Axis
from seatrial.analysis.conclusion import Measured, Missing, absurd
from seatrial.results.figures import DISTURBED_PERCENT, is_disturbed, valid_runs
from seatrial.results.record import Case, Results, Run
from seatrial.results.wording import plural


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
        return [one for one in self.comparisons if one.axis == axis]


def analyse(trials: Sequence[Results]) -> Analysis:
    """The conclusions from the valid runs of some trials, without reruns, disturbed runs and runs
    with a number that no measurement gives."""
    trials, not_used = _usable(trials)
    disturbed = _disturbed(trials)
    measured = [
        Measured(one.trial.trial, run, one.trial.virtual_time)
        for one in trials
        for run in _planned_runs(one)
    ]
    of_applications, not_compared = response.responses(trials)
    others = {axis: response.responses(trials, axis) for axis in (NETWORK, TRANSPORT, SETTING)}
    models, not_modelled = message_times.models(measured)
    scalings, not_scaled = scaling.series(measured)
    shares = communication.shares(measured)
    of_runs, not_grouped = groups.grouped(measured)
    in_time = sorted(
        trials, key=lambda one: one.trial.started.timestamp()
    )  # the newest prices hold
    machines = [(one.trial.trial, one.trial.machine) for one in in_time]
    costs = machines[-1][1].costs if machines else []
    values, not_valued = value.values(measured, machines)
    return Analysis(
        tuple(one.trial.trial for one in trials),
        of_applications,
        [one for made, _ in others.values() for one in made],
        profile_cost.profile_costs(measured),
        [
            comparison
            for axis in (PROFILE, NETWORK, TRANSPORT)
            for comparison in crossover.comparisons(measured, axis, costs, set(disturbed))
        ],
        models,
        scalings,
        shares,
        communication.relations(shares, of_applications),
        of_runs,
        several_pairs.several_pairs(measured),
        frame_sizes.sweeps(trials, measured),
        values,
        value.gains([*of_applications, *others[NETWORK][0]], machines),
        [
            *not_used,
            *map(_left_out, disturbed.items()),
            *not_compared,
            *(m for _, own in others.values() for m in own),
            *not_modelled,
            *not_scaled,
            *not_grouped,
            *not_valued,
        ],
        {use.name: use.feature for one in trials for use in one.trial.profiles},
    )


def _usable(trials: Sequence[Results]) -> tuple[list[Results], list[Missing]]:
    """The trials without the valid runs that have an absurd number, and what was left out."""
    made, missing = [], []
    for one in trials:
        faults = {id(run): why for run in valid_runs(one.runs) if (why := absurd(run))}
        if faults:
            lost = dict.fromkeys(
                (run.case, faults[id(run)]) for run in one.runs if id(run) in faults
            )
            for case, why in lost:
                subject, why = f"{case.id} in {one.trial.trial}", f"one is left out, as {why}"
                missing.append(Missing("usable runs", subject, why, "another run"))
            runs = [run for run in one.runs if id(run) not in faults]
            one = one.model_copy(update={"runs": runs})
        made.append(one)
    return made, missing


def _planned_runs(one: Results) -> list[Run]:
    """The valid runs without reruns and disturbed runs, in the order of the plan: the first profile
    may be a base."""
    place = {case: i for i, case in enumerate(one.trial.cases)}
    planned = (
        run for run in valid_runs(one.runs) if not one.trial.is_rerun(run) and not is_disturbed(run)
    )
    return sorted(planned, key=lambda run: place.get(run.case, len(place)))


def _disturbed(trials: Sequence[Results]) -> dict[tuple[str, Case], tuple[int, int]]:
    """Trials and cases with runs that other programs disturbed: how many of how many runs."""
    made: dict[tuple[str, Case], tuple[int, int]] = {}
    for one in trials:
        planned = [run for run in valid_runs(one.runs) if not one.trial.is_rerun(run)]
        total: Counter[Case] = Counter(run.case for run in planned)
        lost: Counter[Case] = Counter(run.case for run in planned if is_disturbed(run))
        made |= {(one.trial.trial, case): (count, total[case]) for case, count in lost.items()}
    return made


def _left_out(disturbed: tuple[tuple[str, Case], tuple[int, int]]) -> Missing:
    (trial, case), (count, total) = disturbed
    # the number is of the subject: cases of which runs are left out are one sentence
    subject = f"{case.id} in {trial} ({count} of {plural(total, 'run')} left out)"
    why = "it waited for a processor, that other programs used, for more than "
    why += f"{DISTURBED_PERCENT:g} % of the time"
    return Missing("undisturbed runs", subject, why, response.QUIET)
