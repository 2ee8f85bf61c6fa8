"""Which runs of trials conclusions are made from, and which are left out, for what reason.

Left out are invalid runs, reruns, which were made because a figure looked bad, runs that other
programs disturbed, and runs with a number that no measurement gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from seatrial.analysis.answer import QUIET
from seatrial.analysis.conclusion import Measured, Missing, absurd
from seatrial.results.figures import DISTURBED_PERCENT, is_disturbed, valid_runs
from seatrial.results.folder import Results
from seatrial.results.record import Case, Run
from seatrial.results.wording import plural

#: phases in which an error is none of the program or its profile
_BEFORE_IT = ("setup", "submit")


def usable(trials: Sequence[Results]) -> tuple[list[Results], list[Missing]]:
    """The trials without the valid runs that have an absurd number, and what was left out."""
    made, missing = [], []
    for results in trials:
        faults = {id(run): why for run in valid_runs(results.runs) if (why := absurd(run))}
        if faults:
            lost = dict.fromkeys(
                (run.case, faults[id(run)]) for run in results.runs if id(run) in faults
            )
            for case, why in lost:
                subject, why = f"{case.id} in {results.trial.trial}", f"one is left out, as {why}"
                missing.append(Missing("usable runs", subject, why, "another run"))
            runs = [run for run in results.runs if id(run) not in faults]
            results = results.model_copy(update={"runs": runs})
        made.append(results)
    return made, missing


def measured(trials: Sequence[Results]) -> list[Measured]:
    """The valid runs of usable trials without reruns and disturbed runs, in the order of the plan:
    the first profile may be a base."""
    return [
        Measured(results.trial.trial, run, results.trial.virtual_time)
        for results in trials
        for run in _planned(results)
    ]


def _planned(results: Results) -> list[Run]:
    place = {case: i for i, case in enumerate(results.trial.cases)}
    planned = (
        run
        for run in valid_runs(results.runs)
        if not results.trial.is_rerun(run) and not is_disturbed(run)
    )
    return sorted(planned, key=lambda run: place.get(run.case, len(place)))


def disturbed(trials: Sequence[Results]) -> dict[tuple[str, Case], tuple[int, int]]:
    """Trials and cases with runs that other programs disturbed: how many of how many runs."""
    made: dict[tuple[str, Case], tuple[int, int]] = {}
    for results in trials:
        planned = [run for run in valid_runs(results.runs) if not results.trial.is_rerun(run)]
        total: Counter[Case] = Counter(run.case for run in planned)
        lost: Counter[Case] = Counter(run.case for run in planned if is_disturbed(run))
        made |= {(results.trial.trial, case): (count, total[case]) for case, count in lost.items()}
    return made


def failed(trials: Sequence[Results]) -> Counter[tuple[str, Case]]:
    """How many planned runs of each case of each trial failed, in the program or its profile."""
    return Counter(
        (results.trial.trial, run.case)
        for results in trials
        for run in results.runs
        if run.outcome != "ran" and run.phase not in _BEFORE_IT and not results.trial.is_rerun(run)
    )


def left_out(trial: str, case: Case, count: int, total: int) -> Missing:
    """The runs of a case that ``disturbed`` counts. The numbers are of the subject, so that the
    cases of which runs are left out are one sentence."""
    subject = f"{case.id} in {trial} ({count} of {plural(total, 'run')} left out)"
    why = f"it waited more than {DISTURBED_PERCENT:g} % of the time for a processor that other "
    why += "programs used"
    return Missing("undisturbed runs", subject, why, QUIET)
