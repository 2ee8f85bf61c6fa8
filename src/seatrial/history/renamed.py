"""Names that changed, old name -> the name of today, and records with the names of today.

This is the one place for such names.

Figures of an older trial belong to the series of today's names. Whoever renames a metric, a check
or a field of a record adds a line here. A change of these names rebuilds each index.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from seatrial.results.folder import Results
from seatrial.results.record import Case

METRICS = {
    "half_bandwidth_B": "n_half_B",
}
CHECKS = {
    "multi_stream": "tcp_streams",
    "pairs": "links",
    "stream": "tcp_stream",
}
#: fields of the records ``trial``, ``run`` and ``verdict``, and of what is in them
FIELDS = {
    "confirm": "reruns",
    "place": "location",
}


def todays_case(case: Case) -> Case:
    """The same case with the name of today for its check."""
    return replace(case, check=CHECKS.get(case.check, case.check))


def with_todays_names(results: Results) -> Results:
    """The same trial with the names of its series: today's for its checks and its metrics."""
    trial = results.trial
    runs = [
        run.model_copy(
            update={
                "case": todays_case(run.case),
                "metrics": [
                    replace(metric, metric=METRICS.get(metric.metric, metric.metric))
                    for metric in run.metrics
                ],
            }
        )
        for run in results.runs
    ]
    todays = trial.model_copy(update={"cases": [todays_case(case) for case in trial.cases]})
    return results.model_copy(update={"trial": todays, "runs": runs})


def todays_fields(value: Any) -> Any:
    """A record with the names of today for its fields."""
    if isinstance(value, dict):
        return {FIELDS.get(key, key): todays_fields(item) for key, item in value.items()}
    if isinstance(value, list):
        return [todays_fields(item) for item in value]
    return value
