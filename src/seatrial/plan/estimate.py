"""The jobs of a plan, their limits, and the time that they are expected to take.

The expected time is computed from the results of earlier trials of the site. A job that no earlier
trial ran counts with its limit. Reruns are not part of it: what they took in earlier trials stands
beside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from seatrial.base.errors import InputError
from seatrial.plan.model import Plan, job_limit_s
from seatrial.results.folder import RESULTS_FILE, read_lines
from seatrial.results.record import Case, Run, Trial, Verdict

MOST_TRIALS = 5  # earlier trials that are read, the newest first
Key = tuple[str, str, str, int]


@dataclass
class PlannedJob:
    """One job of a plan, or one part of the job that holds nodes under a NIC profile.

    ``steps``: number of steps. ``limit_s``: limit of the job. ``expected_s``: median duration in
    earlier trials; None: no earlier trial ran it.
    """

    check: str
    route: str  # transport, with its network where the site has several
    profile: str
    nodes: int
    steps: int
    limit_s: int
    expected_s: float | None = None

    @property
    def network(self) -> str:
        """The network of its cases; "" where the site has not several, or they have none."""
        return self.route.partition("@")[2]

    @property
    def key(self) -> Key:
        return self.check, self.route, self.profile, self.nodes

    @property
    def seconds(self) -> float:
        """The expected duration, else the limit."""
        return self.limit_s if self.expected_s is None else self.expected_s


@dataclass
class Earlier:
    """Durations in earlier trials of a site.

    ``durations``: job -> its durations in s. ``overhead``: duration of a trial over the sum of the
    durations of its jobs. It is below 1 if jobs run at the same time, and includes the start of
    ReFrame and the waiting in the queue. ``reruns``: time of the reruns of each trial in s.
    """

    trials: list[str] = field(default_factory=list)
    durations: dict[Key, list[float]] = field(default_factory=lambda: defaultdict(list))
    overheads: list[float] = field(default_factory=list)
    reruns: list[float] = field(default_factory=list)

    @property
    def overhead(self) -> float:
        return median(self.overheads) if self.overheads else 1.0


def jobs_of(plan: Plan) -> list[PlannedJob]:
    """The jobs of one repeat, in the order of the plan. The variants of a check share a job."""
    jobs: dict[Key, PlannedJob] = {}
    for case in plan.cases:
        key = _key(case)
        if key not in jobs:
            benchmark = plan.benchmark(case.check)
            steps = benchmark.steps(
                plan.job(case.transport, case.profile, case.nodes, case.network)
            )
            limit_s = job_limit_s(steps, benchmark.settings.time_limit_s)
            jobs[key] = PlannedJob(*key, len(steps), limit_s)
    return list(jobs.values())


def expect(jobs: Iterable[PlannedJob], earlier: Earlier) -> None:
    """Set the expected durations of jobs that earlier trials ran."""
    for job in jobs:
        durations = earlier.durations.get(job.key)
        job.expected_s = median(durations) if durations else None


def read_earlier(trials: Path, site: str) -> Earlier:
    """The newest trials of a site in a folder. A trial whose results cannot be read is left out."""
    earlier = Earlier()
    files = sorted(
        trials.glob(f"*/{RESULTS_FILE}"), key=lambda file: file.stat().st_mtime, reverse=True
    )
    for file in files:
        if len(earlier.trials) == MOST_TRIALS:
            break
        if file.parent.name.startswith(f"{site}-"):
            _read(file, site, earlier)
    return earlier


def _read(file: Path, site: str, earlier: Earlier) -> None:
    trial: Trial | None = None
    verdict: Verdict | None = None
    spans: dict[tuple[Key, int], list[Run]] = defaultdict(list)
    again: set[tuple[Key, int]] = set()  # of spans, those of reruns
    try:
        for line in read_lines(file):
            if isinstance(line, Trial):
                trial = line
                if trial.site != site:
                    return
            elif isinstance(line, Run) and line.outcome == "ran":
                spans[_key(line.case), line.repeat].append(line)
                if trial and trial.is_rerun(line):
                    again.add((_key(line.case), line.repeat))
            elif isinstance(line, Verdict):
                verdict = line
    except InputError:
        return
    durations = [(key, duration) for (key, _), runs in spans.items() if (duration := _span(runs))]
    if trial is None or not durations:
        return
    earlier.trials.append(trial.trial)
    for key, duration in durations:
        earlier.durations[key].append(duration)
    whole = sum(duration for _, duration in durations)
    if verdict:
        overhead = (verdict.ended - trial.started).total_seconds() / whole
        earlier.overheads.append(overhead)
        if trial.reruns:
            earlier.reruns.append(overhead * sum(_span(spans[key]) for key in again))


def _span(runs: list[Run]) -> float:
    """Time from the first start to the last end of a job's variants in s; 0 if it is not known."""
    starts = [run.job.started for run in runs if run.job.started]
    ends = [run.job.ended for run in runs if run.job.ended]
    return (max(ends) - min(starts)).total_seconds() if starts and ends else 0.0


def _key(case: Case) -> Key:
    return case.check, case.route, case.profile, case.nodes
