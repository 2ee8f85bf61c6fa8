"""Which candidate runs next, when the samples are looked at, and when it is enough.

Everything is a function of the record, so that an interrupted tune continues as if it had not
stopped. Nothing here starts a job.

Candidates are interleaved: of those that are compared, one with the fewest samples runs next, in an
order of each round that is drawn by chance. So what changes with the time of day, or with the load
of the cluster, meets all of them.

The samples are looked at no more than ``LOOKS`` times: when each candidate has the fewest repeats
that an answer needs, then at twice, four times and eight times that, and at a limit in place of the
next of these. The error of 5 % is divided among the looks (``seatrial.analysis.decision``): with a
look after each run, and a stop at the first difference, a difference by chance is likely. After a
look only the candidates at the top run on; the others keep their samples.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.analysis.decision import Decision, decide, least_repeats
from seatrial.job.tune.record import Candidate, Look, Ran, Tuned

LOOKS = 4
#: a candidate that fails so often in succession does not run again; one more for each ten runs that
#: count, as some programs fail now and then
MOST_FAILURES = 2
MOST_LOST = 3  # runs in succession that Slurm ended, after which there is no other
#: as many first runs, over each transport, that fail by themselves: it is not the candidate
FIRST_FAILURES = 3
#: faults that are no fault of the candidate
NOT_ITS_OWN = ("limit", "interrupted", "slurm")
#: faults that the program or the options of the tune most likely have, whatever the candidate
BY_ITSELF = ("program", "timeout", "figure")


@dataclass(frozen=True)
class Limits:
    """When to stop: node hours of the whole tune, seconds of this command."""

    node_hours: float
    seconds: float


@dataclass(frozen=True)
class Stop:
    """No run follows. ``final``: more time or node hours would change nothing."""

    why: str
    final: bool = False


class Study:
    """What the lines of a record mean for what comes next."""

    def __init__(self, tuned: Tuned, runs: Sequence[Ran], looks: Sequence[Look]):
        self.tuned, self.runs, self.looks = tuned, runs, looks
        self.all = [candidate.candidate for candidate in tuned.candidates]

    # -- what there is

    def samples(self, candidate: Candidate) -> list[float]:
        return [
            run.value
            for run in self.runs
            if run.candidate == candidate and not run.fault and run.value is not None
        ]

    @property
    def node_hours(self) -> float:
        return sum(run.node_hours for run in self.runs)

    @property
    def out(self) -> dict[Candidate, str]:
        """Candidate -> why it does not run again, and is not compared."""
        dropped: dict[Candidate, str] = {}
        for candidate in self.all:
            of_candidate = [run for run in self.runs if run.candidate == candidate]
            of_candidate = [run for run in of_candidate if run.fault not in NOT_ITS_OWN]
            most = MOST_FAILURES + len(self.samples(candidate)) // 10
            last = of_candidate[-most:]
            if len(last) == most and all(run.fault for run in last):
                dropped[candidate] = last[-1].reason
        for run in self.runs:
            if run.fault == "refused":  # a Prolog that refuses a profile drains nodes: never again
                same = [
                    candidate
                    for candidate in self.all
                    if candidate.profile == run.candidate.profile
                ]
            elif run.fault == "transport":
                same = [
                    candidate
                    for candidate in self.all
                    if candidate.transport == run.candidate.transport
                ]
            else:
                continue
            dropped |= {candidate: run.reason for candidate in same if candidate not in dropped}
        return dropped

    @property
    def compared(self) -> list[Candidate]:
        """The candidates that are not out."""
        out = self.out
        return [candidate for candidate in self.all if candidate not in out]

    @property
    def running(self) -> list[Candidate]:
        """The candidates that run on: those at the top of the last look."""
        leaders = self.looks[-1].leaders if self.looks else []
        top = [candidate for candidate in self.compared if candidate.name in leaders]
        return top if len(top) > 1 else self.compared

    @property
    def least(self) -> int:
        """The repeats of each candidate at the first look."""
        return least_repeats(len(self.all), LOOKS)

    @property
    def target(self) -> int:
        """The repeats at the next look."""
        return int(self.least * 2 ** len(self.looks))

    # -- what comes next

    def due(self) -> bool:
        """Whether the next look is due."""
        running = self.running
        return (
            len(self.looks) < LOOKS
            and len(running) > 1
            and all(len(self.samples(candidate)) >= self.target for candidate in running)
        )

    def decision(self) -> Decision:
        """The decision on the samples as they are."""
        named = {candidate.name: self.samples(candidate) for candidate in self.compared}
        return decide(named, self.tuned.better, LOOKS)

    def look(self) -> Look:
        made = self.decision()
        return Look(runs=len(self.runs), answer=made.answer, leaders=list(made.leaders))

    def next(self, limits: Limits, reserve: float, left_s: float) -> Candidate | Stop:
        """The candidate to run now. ``reserve``: the most node hours that its run can take;
        ``left_s``: seconds that are left of the limit of time."""
        if self.looks and self.looks[-1].answer != "measure more":
            return Stop("the answer is certain enough", final=True)
        if len(self.looks) >= LOOKS:
            return Stop(f"it has been looked at {LOOKS} times", final=True)
        if why := self._hopeless():
            return Stop(why, final=True)
        if self.node_hours + reserve > limits.node_hours:
            return Stop(f"the limit of {limits.node_hours:g} node hours")
        if left_s <= self.longest_s:
            return Stop(f"the limit of {limits.seconds / 60:g} minutes")
        counts = {candidate: len(self.samples(candidate)) for candidate in self.running}
        fewest = min(counts.values())
        tries = Counter(run.candidate for run in self.runs)
        return min(
            (candidate for candidate, count in counts.items() if count == fewest),
            key=lambda candidate: (tries[candidate], self._order(candidate, fewest)),
        )

    @property
    def longest_s(self) -> float:
        """Seconds of the longest run so far."""
        return max((run.wall_s or 0.0 for run in self.runs), default=0.0)

    def _hopeless(self) -> str:
        if len(self.compared) < 2:
            return "fewer than two candidates can be compared"
        tried = {run.candidate for run in self.runs if run.fault not in NOT_ITS_OWN}
        if tried >= set(self.compared) and all(run.fault for run in self.runs):
            return "each candidate was tried, and no run succeeded"
        of_candidates = [run for run in self.runs if run.fault not in NOT_ITS_OWN]
        if len(of_candidates) >= FIRST_FAILURES and all(
            run.fault in BY_ITSELF for run in of_candidates
        ):
            over = {run.candidate.transport for run in of_candidates}
            if over >= {candidate.transport for candidate in self.compared}:
                return f"the first {len(of_candidates)} runs failed, over each transport"
        last = self.runs[-MOST_LOST:]
        if len(last) == MOST_LOST and all(run.fault == "slurm" for run in last):
            return f"Slurm ended {MOST_LOST} runs in succession: {last[-1].reason}"
        return ""

    def _order(self, candidate: Candidate, turn: int) -> bytes:
        """The place of a candidate in a round: by chance, but the same for the same tune."""
        return hashlib.sha256(f"{self.tuned.id} {turn} {candidate.name}".encode()).digest()
