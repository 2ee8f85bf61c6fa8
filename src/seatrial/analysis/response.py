"""How applications respond to NIC profiles: performance under each over that under the base.

The response is the one of Celebioglu et al. (2004), figure 3. That to networks and to transports,
while all else is equal (``seatrial.analysis.axis``), is of the same rules. Runs whose path or
profile was not proven, reruns, which were made because a figure looked bad, and runs that other
programs disturbed are left out. The sample of a comparison is a block of runs
(``seatrial.analysis.conclusion``). A profile of which no run was undisturbed may be the best: then
there is no answer. Nor is there one if the runs under the best profile fail more often than under
another. Trials are pooled only if each has all the profiles (networks, transports) that are
compared, and of a trial the rounds that have all: otherwise what changed between two trials or
rounds would look like a response.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from seatrial.analysis.answer import OfTrial, answer
from seatrial.analysis.axis import PROFILE, SETTING, Axis, networks_of
from seatrial.analysis.conclusion import (
    Estimate,
    Inputs,
    Measured,
    Missing,
    nodes_by_option,
    unit_of,
)
from seatrial.analysis.decision import Decision, fault, gain
from seatrial.analysis.runs import failed
from seatrial.benchmarks.registry import registry
from seatrial.results.figures import Figure, case_errors, collect, is_disturbed, valid_runs
from seatrial.results.folder import Results
from seatrial.results.record import Case
from seatrial.results.statistics import Better, median

BASE = "default"
#: what a comparison keeps equal: check, variant, route, profile, nodes and hardware (of the axis)
Subject = tuple[str, str, str, str, int, str]


@dataclass(frozen=True)
class Response:
    """Of one application: the ratio of its performance with each option to that with ``base``.

    The options are profiles or those of another ``axis``. ``route``, ``profile``: what they share.
    ``hardware``: of networks, that of each. The base is the profile ``default`` or the first option
    of the trial; of another axis the one with the worst medians over all applications. ``ratios``
    has no ratio of the base itself. ``medians`` are in ``unit``. ``decision`` is among all options,
    and not between the base and the others.
    """

    application: str
    route: str
    nodes: int
    hardware: str
    metric: str
    unit: str
    base: str
    medians: Mapping[str, float]
    ratios: Mapping[str, Estimate]
    decision: Decision
    inputs: Inputs
    axis: Axis = PROFILE
    profile: str = ""
    without: tuple[str, ...] = ()  # further options that ran, and of which no run counts


@dataclass
class _Of:
    """The figure of a case in one trial: number of a block -> its runs; how many of how many runs
    failed; whether the trial is in virtual time."""

    figure: Figure
    by_block: dict[int, list[float]]
    lost: tuple[int, int]
    virtual_time: bool

    @property
    def blocks(self) -> list[float]:
        """The sample of each block."""
        return [median(values) for values in self.by_block.values()]

    def only(self, blocks: Set[int]) -> _Of:
        kept = {number: values for number, values in self.by_block.items() if number in blocks}
        return replace(self, by_block=kept)


@dataclass
class _Samples:
    unit: str
    better: Better
    blocks: list[float]
    runs: int = 0


def responses(
    trials: Sequence[Results], axis: Axis = PROFILE
) -> tuple[list[Response], list[Missing]]:
    """The response of each application of the trials, and what could not be compared.

    What single cases lack is said of the axis of profiles alone, which each case has.
    """
    if (
        axis != PROFILE
        and len({axis.option(run.case) for results in trials for run in results.runs}) < 2
    ):
        return [], []  # most sites have one network: nothing is collected for it
    measured: dict[Subject, dict[str, dict[str, _Of]]] = {}  # subject, trial, option
    disturbed: dict[Subject, set[str]] = {}  # options without an undisturbed run in some trial
    failures = failed(trials)
    tried: dict[tuple[str, Subject], set[str]] = defaultdict(set)  # trial and subject -> options
    used: dict[tuple[str, Case], list[Measured]] = defaultdict(list)
    missing = []
    for results in trials:
        # of a trial with a million figures, collect those of the applications alone
        runs = [run for run in results.runs if performance(run.case) and axis.option(run.case)]
        planned = [run for run in runs if not results.trial.is_rerun(run)]
        for run in planned:
            tried[results.trial.trial, _subject(axis, run.case, "")].add(axis.option(run.case))
        hardware = {run.case: axis.hardware(run) for run in valid_runs(planned)}
        quiet = [run for run in planned if not is_disturbed(run)]
        valid = [
            Measured(results.trial.trial, run, results.trial.virtual_time)
            for run in valid_runs(quiet)
        ]
        for each in valid:
            used[results.trial.trial, each.run.case].append(each)
        for case in hardware.keys() - {each.run.case for each in valid}:
            subject = _subject(axis, case, hardware[case])
            disturbed.setdefault(subject, set()).add(axis.option(case))
        for case, why in case_errors(results.trial, results.runs).items():
            if performance(case):
                takes = "a run without this error"
                # the name of the case is the subject: cases that failed alike are one sentence
                why = f"it{why.removeprefix(case.id)}".removeprefix("it: ")
                missing.append(Missing("runs", f"{case.id} in {results.trial.trial}", why, takes))
        for case, figures in collect(results.trial, quiet).items():
            figure = figures.get(performance(case), {}).get(None)
            if figure is None or not figure.values:
                continue
            if why := figure.fault or figure.doubt:
                missing.append(
                    Missing("response", f"{case.id} in {results.trial.trial}", why, "another run")
                )
                continue
            subject = _subject(axis, case, hardware[case])
            blocks: dict[int, list[float]] = defaultdict(list)
            for at, value in zip(figure.runs, figure.values, strict=True):
                blocks[valid[at].block[1]].append(value)
            of_trial = measured.setdefault(subject, {}).setdefault(results.trial.trial, {})
            lacking = failures[results.trial.trial, case]
            lost = (lacking, lacking + len(figure.values))
            of_trial[axis.option(case)] = _Of(
                figure, dict(blocks), lost, results.trial.virtual_time
            )
    if axis != PROFILE:
        missing = []
    behind = _behind(measured)
    result = []
    for subject, by_trial in measured.items():
        own_disturbed = disturbed.get(subject, set())
        response, not_compared = _response(axis, subject, by_trial, behind, own_disturbed, used)
        missing += not_compared
        if response:
            like = (*subject[:-1], "")
            others = set().union(*(tried[trial, like] for trial in response.inputs.trials))
            without = others - response.medians.keys() - own_disturbed
            result.append(replace(response, without=tuple(sorted(without))))
    return result, missing


def _subject(axis: Axis, case: Case, hardware: str) -> Subject:
    route, profile = axis.route(case), axis.profile(case)
    return case.check, case.variant, route, profile, case.nodes, hardware


def performance(case: Case) -> str:
    """The metric of an application's performance; "" for other benchmarks."""
    known = registry().get(case.check)
    return known.performance if known else ""


def _response(
    axis: Axis,
    subject: Subject,
    by_trial: Mapping[str, Mapping[str, _Of]],
    behind: Mapping[str, float],
    disturbed: Set[str],
    used: Mapping[tuple[str, Case], Sequence[Measured]],
) -> tuple[Response | None, list[Missing]]:
    check, variant, route, profile, nodes, hardware = subject
    name = f"{check} {variant}".rstrip()
    where = ", ".join(filter(None, [name, route, profile]))
    kind = "response" if axis == PROFILE else f"response to the {axis.name}"
    widest = max(by_trial.values(), key=len)
    options = list(widest)
    pooled = {
        trial: by_option
        for trial, by_option in by_trial.items()
        if by_option.keys() >= set(options)
    }
    lost = [
        Missing(
            kind,
            f"{where}, {option}",
            f"it was not measured in one trial with the other {axis.name}s",
            "a trial with all of them",
        )
        for option in dict.fromkeys(o for by_option in by_trial.values() for o in by_option)
        if option not in options
    ]
    if len(options) < 2:
        if axis != PROFILE:  # most sites have one network and one transport
            return None, lost
        why = f"it was measured under {options[0]} alone"
        takes = "runs under other profiles (benchmarks and trial.profiles in site.yaml)"
        return None, [*lost, Missing(kind, where, why, takes)]
    pooled = _of_whole_rounds(pooled, options)
    if not pooled:
        why = f"no round has an undisturbed run of each {axis.name}"
        return None, [*lost, Missing(kind, where, why, "a round with all of them")]
    of_options = [
        by_option[option].figure.case for by_option in pooled.values() for option in options
    ]
    if axis == SETTING and _of_one_axis(of_options):
        return None, lost
    samples: dict[str, _Samples] = {}
    cases: dict[Case, None] = {}
    for by_option in pooled.values():
        for option in options:
            figure = by_option[option].figure
            cases[figure.case] = None
            kept = samples.setdefault(option, _Samples(figure.unit, figure.better, []))
            kept.runs += sum(map(len, by_option[option].by_block.values()))
            kept.blocks += by_option[option].blocks
    runs = [
        run
        for trial, of_option in pooled.items()
        for option in options
        for run in used[trial, of_option[option].figure.case]
    ]
    units = {(sample.unit, sample.better) for sample in samples.values()}
    why = ""
    if len(units) > 1:
        why = f"its unit or its better direction differs between {axis.name}s or trials"
    if not hardware and not why:
        hardware, why = networks_of(sample.run for sample in runs)
    if why:
        return None, [*lost, Missing(kind, where, why, "records of one unit and hardware")]
    first = samples[options[0]]
    values = {option: sample.blocks for option, sample in samples.items()}
    base = BASE if BASE in values else options[0]
    if axis != PROFILE:
        base = max(options, key=lambda option: behind.get(option, 0.0))
    ratios = {}
    for option, own_values in values.items():
        if option != base:
            ratios[option] = gain(own_values, values[base], first.better, len(values))
    ran_on = nodes_by_option(runs, axis)
    of_trials = {
        trial: OfTrial(
            {option: of_option[option].blocks for option in options},
            ran_on.get(trial, {}),
            {option: of_option[option].lost for option in options},
            disturbed - values.keys(),
        )
        for trial, of_option in pooled.items()
    }
    decision = answer(of_trials, first.better, axis, unit_of(runs))
    inputs = Inputs(tuple(pooled), tuple(cases), sum(sample.runs for sample in samples.values()))
    return Response(
        name, route, nodes, hardware, next(iter(pooled.values()))[options[0]].figure.metric,
        first.unit, base, {o: median(v) for o, v in values.items()}, ratios,
        decision, inputs, axis, profile,
    ), lost  # fmt: skip


def _of_whole_rounds(
    by_trial: Mapping[str, Mapping[str, _Of]], options: Sequence[str]
) -> dict[str, Mapping[str, _Of]]:
    """Without the rounds that have not all options, and the trials that have no other one.

    If an option lost the rounds in which the cluster was slow, it would look faster than the
    others. In virtual time nothing changes between the runs.
    """
    made: dict[str, Mapping[str, _Of]] = {}
    for trial, by_option in by_trial.items():
        if by_option[options[0]].virtual_time:
            made[trial] = by_option
        elif whole := set.intersection(*(set(by_option[option].by_block) for option in options)):
            made[trial] = {option: by_option[option].only(whole) for option in options}
    return made


def _of_one_axis(cases: Sequence[Case]) -> bool:
    """Whether settings differ in one thing alone, so that the answer on its axis is theirs."""
    differ = [len(set(values)) > 1 for values in zip(
        *((case.profile, case.transport, case.network) for case in cases), strict=True
    )]  # fmt: skip
    return sum(differ) < 2


def _behind(measured: Mapping[Subject, Mapping[str, Mapping[str, _Of]]]) -> dict[str, float]:
    """Option -> how far it is behind the best one, a sum of logarithms over all applications.

    So all have one base, and an application to which the options are alike does not decide it.
    """
    sums: dict[str, float] = defaultdict(float)
    for by_trial in measured.values():
        for by_option in by_trial.values():
            medians = {option: median(of.blocks) for option, of in by_option.items()}
            if any(fault([value]) for value in medians.values()):
                continue
            sign = 1 if next(iter(by_option.values())).figure.better == "higher" else -1
            best = max(sign * math.log(value) for value in medians.values())
            for option, value in medians.items():
                sums[option] += best - sign * math.log(value)
    return sums
