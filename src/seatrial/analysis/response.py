"""How applications respond to NIC profiles: performance under each over that under the base.

The response is the one of seed 000, figure 3. Runs whose path or profile was not proven, reruns,
which were made because a figure looked bad, and runs that other programs disturbed are left out.
The sample of a comparison is a block of runs (``seatrial.analysis.conclusion``). A
profile of which no run was undisturbed may be the best: then there is no answer. Nor is there one
if the runs under the best profile fail more often than under another. Trials are pooled only if
each has all the profiles that are compared: otherwise what changed between two trials would look
like a response.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from seatrial.analysis.conclusion import (
    SAME_NODES,
    Estimate,
    Inputs,
    Measured,
    Missing,
    by_block,
    other_nodes,
    unit_of,
)
from seatrial.analysis.decision import Decision, decide, disagreement, failing, gain, withheld
from seatrial.benchmarks.registry import registry
from seatrial.results.figures import Figure, case_errors, collect, is_disturbed, valid_runs
from seatrial.results.record import Case, Results
from seatrial.results.statistics import Better, median

BASE = "default"
#: phases in which an error is none of the program or its profile
_BEFORE_IT = ("setup", "submit")
#: what runs take that are not disturbed
QUIET = "a trial while no other program uses the processors of the nodes"

#: what a comparison keeps equal: check, variant, route, nodes, and the network with its driver
Subject = tuple[str, str, str, int, str]


@dataclass(frozen=True)
class Response:
    """Of one application: the ratio of its performance under each profile to that under ``base``.

    ``ratios`` has no ratio of the base itself. ``medians`` are in ``unit``. ``decision`` is among
    all profiles, and not between the base and the others.
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


@dataclass
class _Of:
    """The figure of a case in one trial, with the sample of each block."""

    figure: Figure
    blocks: list[float]


@dataclass
class _Samples:
    unit: str
    better: Better
    values: list[float]  # of all runs
    blocks: list[float]
    runs: int = 0  # with those that failed
    failed: int = 0


def responses(trials: Sequence[Results]) -> tuple[list[Response], list[Missing]]:
    """The response of each application of the trials, and what could not be compared."""
    measured: dict[Subject, dict[str, dict[str, _Of]]] = {}  # subject, trial, profile
    disturbed: dict[Subject, set[str]] = {}  # profiles without an undisturbed run in some trial
    failed: Counter[tuple[str, Case]] = Counter()
    used: dict[tuple[str, Case], list[Measured]] = defaultdict(list)
    missing = []
    for one in trials:
        # of a trial with a million figures, collect those of the applications alone
        runs = [run for run in one.runs if performance(run.case)]
        planned = [run for run in runs if not one.trial.is_rerun(run)]
        hardware = {run.case: run.hardware for run in valid_runs(planned)}
        failed.update(
            (one.trial.trial, run.case)
            for run in planned
            if run.outcome != "ran" and run.phase not in _BEFORE_IT
        )
        quiet = [run for run in planned if not is_disturbed(run)]
        valid = [
            Measured(one.trial.trial, run, one.trial.virtual_time) for run in valid_runs(quiet)
        ]
        for each in valid:
            used[one.trial.trial, each.run.case].append(each)
        for case in hardware.keys() - {each.run.case for each in valid}:
            disturbed.setdefault(_subject(case, hardware[case]), set()).add(case.profile)
        for case, why in case_errors(one.trial, one.runs).items():
            if performance(case):
                takes = "a run without this error"
                # the name of the case is the subject: cases that failed alike are one sentence
                why = f"it{why.removeprefix(case.id)}".removeprefix("it: ")
                missing.append(Missing("runs", f"{case.id} in {one.trial.trial}", why, takes))
        for case, figures in collect(one.trial, quiet).items():
            figure = figures.get(performance(case), {}).get(None)
            if figure is None or not figure.values:
                continue
            if why := figure.fault or figure.doubt:
                missing.append(
                    Missing("response", f"{case.id} in {one.trial.trial}", why, "another run")
                )
                continue
            subject = _subject(case, hardware[case])
            blocks = by_block(
                (valid[at].block, value)
                for at, value in zip(figure.runs, figure.values, strict=True)
            )
            of_trial = measured.setdefault(subject, {}).setdefault(one.trial.trial, {})
            of_trial[case.profile] = _Of(figure, blocks)
    result = []
    for subject, by_trial in measured.items():
        response, lost = _response(subject, by_trial, disturbed.get(subject, set()), failed, used)
        missing += lost
        if response:
            result.append(response)
    return result, missing


def _subject(case: Case, hardware: str) -> Subject:
    return case.check, case.variant, case.route, case.nodes, hardware


def performance(case: Case) -> str:
    """The metric of an application's performance; "" for other benchmarks."""
    known = registry().get(case.check)
    return known.performance if known else ""


def _response(
    subject: Subject,
    by_trial: Mapping[str, Mapping[str, _Of]],
    disturbed: Set[str],
    failed: Mapping[tuple[str, Case], int],
    used: Mapping[tuple[str, Case], Sequence[Measured]],
) -> tuple[Response | None, list[Missing]]:
    check, variant, route, nodes, hardware = subject
    name = f"{check} {variant}".rstrip()
    widest = max(by_trial.values(), key=len)
    profiles = list(widest)
    pooled = {trial: own for trial, own in by_trial.items() if own.keys() >= set(profiles)}
    lost = [
        Missing(
            "response",
            f"{name}, {route}, {profile}",
            "it was not measured in one trial with the other profiles",
            "a trial with all of them",
        )
        for profile in dict.fromkeys(p for own in by_trial.values() for p in own)
        if profile not in profiles
    ]
    if len(profiles) < 2:
        why = f"it was measured under {profiles[0]} alone"
        takes = "runs under other profiles (benchmarks and trial.profiles in site.yaml)"
        return None, [*lost, Missing("response", f"{name}, {route}", why, takes)]
    samples: dict[str, _Samples] = {}
    cases: dict[Case, None] = {}
    for trial, own in pooled.items():
        for profile in profiles:
            figure = own[profile].figure
            cases[figure.case] = None
            kept = samples.setdefault(profile, _Samples(figure.unit, figure.better, [], []))
            kept.values += figure.values
            kept.blocks += own[profile].blocks
            lacking = failed.get((trial, figure.case), 0)
            kept.runs += len(figure.values) + lacking
            kept.failed += lacking
    units = {(one.unit, one.better) for one in samples.values()}
    if len(units) > 1:
        why = "its unit or its better direction differs between profiles or trials"
        return None, [*lost, Missing("response", f"{name}, {route}", why, "records of one unit")]
    first = samples[profiles[0]]
    runs = [
        run
        for trial, own in pooled.items()
        for p in profiles
        for run in used[trial, own[p].figure.case]
    ]
    values = {profile: one.blocks for profile, one in samples.items()}
    base = BASE if BASE in values else profiles[0]
    ratios = {}
    for profile, own_values in values.items():
        if profile != base:
            ratios[profile] = gain(own_values, values[base], first.better, len(values))
    decision = decide(values, first.better, unit=unit_of(runs))
    apart = {trial: {p: own[p].blocks for p in profiles} for trial, own in pooled.items()}
    why = disagreement(decision, apart, first.better)
    decision = withheld(decision, why, "what differs between the trials, or a trial more")
    why = failing(decision, {profile: (one.failed, one.runs) for profile, one in samples.items()})
    decision = withheld(decision, why, "runs that do not fail")
    decision = withheld(decision, other_nodes(runs), SAME_NODES)
    if alone := sorted(disturbed - values.keys()):
        why = f"other programs disturbed each run under {' and '.join(alone)}"
        decision = withheld(decision, why, QUIET)
    inputs = Inputs(tuple(pooled), tuple(cases), sum(len(one.values) for one in samples.values()))
    return Response(
        name, route, nodes, hardware, next(iter(pooled.values()))[profiles[0]].figure.metric,
        first.unit, base, {p: median(v) for p, v in values.items()}, ratios,
        decision, inputs,
    ), lost  # fmt: skip
