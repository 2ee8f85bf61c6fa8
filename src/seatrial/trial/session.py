"""The state that the ReFrame runs of one trial share: plan, folder, signals and time limit."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from seatrial.base.signals import ENDING, handled
from seatrial.plan.model import Plan
from seatrial.results.record import Case
from seatrial.trial.machine import Machine, Progress


@dataclass
class TimeLimit:
    """The time limit of a trial. The time in which all its jobs wait in the queue does not count.

    ``seconds``: the limit. The callers that query Slurm report whether the jobs wait. At most
    ``most_queued_s`` do not count: the jobs of a lab are another user's, who can let one wait for
    ever.
    """

    seconds: float
    most_queued_s: float = math.inf
    started: float = field(default_factory=time.monotonic)
    _queued_s: float = 0.0
    _waits_since: float | None = None

    def note(self, waiting: bool) -> None:
        """Note the result of a query: whether the trial has jobs, and all are pending."""
        now, since = time.monotonic(), self._waits_since
        if since is not None:
            self._queued_s += now - since
        self._waits_since = now if waiting else None

    @property
    def queued_s(self) -> float:
        """Time in the queue up to now, as far as it does not count."""
        since = self._waits_since
        waits = 0.0 if since is None else time.monotonic() - since
        return min(self._queued_s + waits, self.most_queued_s)

    @property
    def left_s(self) -> float:
        return self.seconds - (time.monotonic() - self.started - self.queued_s)


@dataclass
class Session:
    """One trial while it runs, on one of its machines. Rounds, reruns and machines share ``limit``.

    ``round`` is the number of the round, from 0. ``rerun`` is 0 for the planned repeats, and 1, 2
    ... for the reruns of cases whose figures broke a bound. ``refused``: NIC profile -> why no
    later round tries it again. ``further``: the machines that run a part of the profiles at the
    same time, each with its own configuration of ReFrame. ``done``: suffix of a run of ReFrame ->
    how many of its test cases have ended.
    """

    plan: Plan
    folder: Path
    config: Path  # ReFrame's configuration
    machine: Machine
    progress: Progress
    cases: list[Case] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    limit: TimeLimit = field(default_factory=lambda: TimeLimit(0.0))
    further: tuple[tuple[Machine, Path], ...] = ()
    done: dict[str, int] = field(default_factory=dict)
    round: int = 0
    rerun: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    nodelists: dict[Case, list[str]] = field(default_factory=dict)  # nodes that a case must run on

    @property
    def repeats(self) -> range:
        """The numbers of the repeats, which count through all rounds. Reruns continue the count."""
        if not self.rerun:
            first = self.round * self.plan.repeats
            return range(first, first + self.plan.repeats)
        last = self.plan.runs_of_case + self.rerun
        return range(last - 1, last)

    @property
    def block(self) -> int:
        """The field ``round`` of its runs."""
        return self.plan.rounds + self.rerun - 1 if self.rerun else self.round

    @property
    def machines(self) -> list[Machine]:
        """All machines of the trial."""
        return [self.machine, *(machine for machine, _ in self.further)]

    def shares(self) -> list[tuple[Session, list[str]]]:
        """The profiles of the round that each machine runs, in turn: the first has the first.

        The same profiles have the same machine in each trial, so their figures can be compared. A
        rerun has the machine of the first round: a fault of one machine is not on the others.
        """
        sessions = [self, *(replace(self, machine=m, config=config) for m, config in self.further)]
        order = self.profiles
        if self.rerun:
            order = replace(self, cases=self.plan.cases, round=0, rerun=0).profiles
        return [
            (session, [name for name in self.profiles if name in order[at :: len(sessions)]])
            for at, session in enumerate(sessions)
        ]

    @property
    def jobs_done(self) -> int:
        """Number of ReFrame's test cases that have ended, or did not run."""
        return sum(self.done.values())

    @property
    def jobs(self) -> int:
        """Number of ReFrame's test cases in all rounds. The variants of a check share one."""
        in_round = sum(self.jobs_of(profile) for profile in self.profiles)
        return in_round * (1 if self.rerun else self.plan.rounds)

    @property
    def profiles(self) -> list[str]:
        """The NIC profiles of the cases in the order of this round.

        The first round has the default first and then the site's order. Round n begins with the
        n-th profile and goes on from there; each second round goes backwards. So each profile is
        early and late, and has different ones before it.
        """
        used = {case.profile for case in self.cases}
        names = ["default", *self.plan.profiles]
        known = [name for name in dict.fromkeys(names) if name in used]
        step = -1 if self.round % 2 else 1
        return [known[(self.round + step * at) % len(known)] for at in range(len(known))]

    def of_profile(self, profile: str) -> list[Case]:
        return [case for case in self.cases if case.profile == profile]

    def jobs_of(self, profile: str) -> int:
        scripts = {(case.check, case.route, case.nodes) for case in self.of_profile(profile)}
        return len(scripts) * len(self.repeats)

    def suffix(self, profile: str = "default") -> str:
        """The part of a file name that distinguishes the files of a profile in a round."""
        again = f"-round{self.round + 1}" if self.round else ""
        again = f"-rerun{self.rerun}" if self.rerun else again
        return again if profile == "default" else f"{again}-{profile}"

    def why_stop(self) -> str:
        """Why the trial must end now; empty while it may continue."""
        if self.signals:
            return f"the trial was interrupted by {self.signals[0]}"
        if self.limit.left_s < 0:
            queued = round(self.limit.queued_s)
            besides = f", not counting {queued} s in the queue" if queued else ""
            return f"the trial reached its time limit of {self.plan.time_limit_s} s{besides}"
        return ""


class Interrupted(KeyboardInterrupt):
    """A signal came where signals are obeyed. No handler of errors may take it for one."""


@contextmanager
def obeyed_signals(noted: list[str]) -> Iterator[None]:
    """Let a signal end the block with Interrupted, within ``noted_signals``, whose list it joins.

    For work that writes nothing, and whose time depends on what the jobs left.
    """
    with _handled(noted, Interrupted):
        yield


@contextmanager
def noted_signals() -> Iterator[list[str]]:
    """Collect the names of signals that would end this process, and ignore the signals.

    So no write is interrupted. Callers that wait must read the list. Outside of the main thread the
    list stays empty.
    """
    noted: list[str] = []
    with _handled(noted):
        yield noted


def _handled(
    noted: list[str], error: type[BaseException] | None = None
) -> AbstractContextManager[None]:
    """Add the names of signals to a list, and raise ``error`` at each if there is one."""

    def note(number: int, _: object) -> None:
        noted.append("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)
        if error:
            raise error(noted[-1])

    return handled(ENDING, note)
