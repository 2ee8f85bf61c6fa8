"""Which cases a trial runs again, because what it measured of them breaks a bound.

One figure in some hundred is beyond its bound by chance. Where that is so often that the trial of
a large matrix rejects a healthy site, the site may ask for further runs (``trial.reruns``) of the
cases that are not passed, and of those they are compared with. They are judged by all their runs:
none is thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from seatrial.results.judge import out_of_bounds
from seatrial.results.record import Case, Judgement, Run, Trial
from seatrial.results.requirements import Requirements

DOUBTFUL = ("fail", "inconclusive")
#: Of ``worst`` and ``p99`` one sample alone decides: a further one confirms nothing.
STATISTICS = ("median", "majority", "best")


def doubtful(
    trial: Trial, judgements: Sequence[Judgement], requirements: Requirements
) -> list[Case]:
    """The trial's cases, in their order, whose figures fail or cannot be decided, where further
    runs may still change that; with them those that are compared with such a case or it with them,
    and all that run in the same job. Not those that ended in error: their verdict stands."""
    relative = {
        rule.id: rule.threshold.relative_to
        for rule in requirements.rules
        if rule.threshold.relative_to
    }
    found = {
        _job(one.case) for one in judgements if one.verdict in DOUBTFUL and _is_open(one, trial)
    }
    pairs = {
        (_job(one.case), _job(other.case(one.case)))
        for one in judgements
        if one.requirement and (other := relative.get(one.requirement.id))
    }
    found |= {job for pair in pairs if found & set(pair) for job in pair}
    found -= {_job(one.case) for one in judgements if one.verdict == "error" and not one.metric}
    # ReFrame gets the transports and the numbers of nodes of a check, and runs all combinations.
    sizes = {(check, profile, nodes) for check, profile, _, nodes in found}
    transports = {(check, profile, transport) for check, profile, transport, _ in found}
    return [
        case
        for case in trial.cases
        if (case.check, case.profile, case.nodes) in sizes
        if (case.check, case.profile, case.transport) in transports
    ]


def _is_open(one: Judgement, trial: Trial) -> bool:
    """Whether further runs may change a verdict: not where most samples are beyond for good.
    A quieter minute may decide what other programs have disturbed."""
    if one.statistic not in STATISTICS or (one.lower is None and one.upper is None):
        return False
    if one.verdict == "inconclusive" and one.disturbed:
        return True
    return 2 * len(out_of_bounds(one)) <= max(trial.repeats + trial.reruns, len(one.samples))


def first_nodes(runs: Iterable[Run]) -> dict[Case, list[str]]:
    """Case -> the nodes of its first run. A rerun must see the fault where it was seen first."""
    found: dict[Case, list[str]] = {}
    for run in sorted(runs, key=lambda run: run.repeat):
        if run.job.nodes:
            found.setdefault(run.case, run.job.nodes)
    return found


def _job(case: Case) -> tuple[str, str, str, int]:
    return case.check, case.profile, case.transport, case.nodes
