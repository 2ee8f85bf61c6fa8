"""Which cases a trial runs once more, because what it measured of them breaks a bound.

One figure in some hundred is beyond its bound by chance. Where that is so often that the trial of
a large matrix rejects a healthy site, the site may ask for further runs (``trial.confirm``) of the
cases that are not passed, and of those they are compared with. They are judged by all their runs:
none is thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from seatrial.results.record import Case, Judgement
from seatrial.results.requirements import Requirements

DOUBTFUL = ("fail", "undecidable")


def doubtful(
    cases: Sequence[Case], judgements: Iterable[Judgement], requirements: Requirements
) -> list[Case]:
    """The cases, in their order, whose figures fail or cannot be decided; and with them those that
    a requirement compares such a figure with, and all that run in the same job."""
    relative = {
        rule.id: rule.threshold.relative_to
        for rule in requirements.rules
        if rule.threshold.relative_to
    }
    found = set()
    for judgement in judgements:
        if judgement.verdict not in DOUBTFUL or not judgement.metric:
            continue
        found.add(_job(judgement.case))
        other = relative.get(judgement.requirement.id) if judgement.requirement else None
        if other:
            found.add(_job(other.case(judgement.case)))
    # Of a check, ReFrame is told the transports and the numbers of nodes, and runs all pairs.
    sizes = {(check, profile, nodes) for check, profile, _, nodes in found}
    transports = {(check, profile, transport) for check, profile, transport, _ in found}
    return [
        case
        for case in cases
        if (case.check, case.profile, case.nodes) in sizes
        if (case.check, case.profile, case.transport) in transports
    ]


def _job(case: Case) -> tuple[str, str, str, int]:
    return case.check, case.profile, case.transport, case.nodes
