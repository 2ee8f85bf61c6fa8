"""Selects the cases that a trial runs again because their figures break a bound.

About one figure in a hundred breaks its bound by chance, so a trial of a large matrix could reject
a healthy site. With ``trial.reruns`` the cases that do not pass run again, together with the cases
that they are compared with. All runs of a case together decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from seatrial.results.judge import out_of_bounds
from seatrial.results.record import Case, Judgement, Run, Trial
from seatrial.results.requirements import Requirements

DOUBTFUL = ("fail", "inconclusive")
#: For ``worst`` and ``p99`` a single sample decides, so a rerun cannot change the verdict.
STATISTICS = ("median", "majority", "best")


def cases_to_rerun(
    trial: Trial, judgements: Sequence[Judgement], requirements: Requirements
) -> list[Case]:
    """The cases to run again, in the order of the trial.

    These are the cases with a figure that fails or is inconclusive and that a rerun may still
    change, the cases that a requirement compares with them, and all cases of the same jobs. A case
    in error does not run again.
    """
    relative = {
        rule.id: rule.threshold.relative_to
        for rule in requirements.rules
        if rule.threshold.relative_to
    }
    jobs = {
        _job(judgement.case)
        for judgement in judgements
        if judgement.verdict in DOUBTFUL and _is_open(judgement, trial)
    }
    pairs = {
        (_job(judgement.case), _job(other.case(judgement.case)))
        for judgement in judgements
        if judgement.requirement and (other := relative.get(judgement.requirement.id))
    }
    jobs |= {job for pair in pairs if jobs & set(pair) for job in pair}
    jobs -= {
        _job(judgement.case)
        for judgement in judgements
        if judgement.verdict == "error" and not judgement.metric
    }
    # ReFrame gets the environments and the node counts of a check, and runs all combinations.
    sizes = {(check, profile, nodes) for check, profile, _, nodes in jobs}
    routes = {(check, profile, route) for check, profile, route, _ in jobs}
    return [
        case
        for case in trial.cases
        if (case.check, case.profile, case.nodes) in sizes
        if (case.check, case.profile, case.route) in routes
    ]


def _is_open(judgement: Judgement, trial: Trial) -> bool:
    """Whether reruns may change a verdict.

    They cannot if too many samples break the bound. A figure that other programs disturbed may pass
    when they end. A figure in doubt has no bounds yet, and one run without a doubt decides.
    """
    if judgement.in_doubt:
        return True
    if judgement.statistic not in STATISTICS or (
        judgement.lower is None and judgement.upper is None
    ):
        return False
    if judgement.verdict == "inconclusive" and judgement.disturbed:
        return True
    return 2 * len(out_of_bounds(judgement)) <= max(
        trial.runs_of_case + trial.reruns, len(judgement.samples)
    )


def first_nodes(runs: Iterable[Run]) -> dict[Case, list[str]]:
    """Case -> the nodes of its first run. A rerun uses the same nodes, where the fault may be."""
    nodes: dict[Case, list[str]] = {}
    for run in sorted(runs, key=lambda run: run.repeat):
        if run.job.nodes:
            nodes.setdefault(run.case, run.job.nodes)
    return nodes


def _job(case: Case) -> tuple[str, str, str, int]:
    return case.check, case.profile, case.route, case.nodes
