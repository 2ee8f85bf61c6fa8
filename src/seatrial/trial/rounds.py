"""A round of a trial: one run of ReFrame for each NIC profile, one after another on each machine.

Under the default profile each check has its own Slurm job. Every other profile is applied once in a
round, by one job that the trial holds while the checks run as steps in it.
``seatrial.trial.collect`` reads the files of a part.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from seatrial.base.say import Say, say_nothing
from seatrial.results.record import Allocation as AllocationRecord
from seatrial.results.record import Case, Job, Run
from seatrial.trial.allocation import Allocation, held
from seatrial.trial.collect import account_of, collect, job_facts
from seatrial.trial.machine import Machine
from seatrial.trial.reframe_run import Outcome, log_file, report_file, run_reframe
from seatrial.trial.session import Session


@dataclass
class Part:
    """The outcome of the cases of one profile in a round, and the machine that ran them.

    ``allocation`` is None if no job was held.
    """

    machine: Machine
    profile: str
    outcome: Outcome = field(default_factory=Outcome)
    allocation: Allocation | None = None

    @property
    def why_not(self) -> str:
        """Why cases did not run, or empty."""
        if self.allocation and self.outcome.lost:
            return f"NIC profile {self.profile} was not in force: {self.allocation.why}"
        return self.outcome.why_not

    @property
    def phase(self) -> str:
        """The phase in which a case that did not run failed."""
        return "profile" if self.outcome.lost or self.outcome.refused else "setup"


def run_round(session: Session, why_not: str = "") -> list[Part]:
    """Run all cases once, and return the parts in the order of the round.

    Each machine runs its share of the profiles, one after another. After a signal, at the trial's
    time limit, or if ReFrame runs nothing, the remaining parts do not run; ``why_not``: why none
    does. A profile whose held job did not start in an earlier round is not tried again: a Prolog
    that refuses a profile drains the nodes each time.
    """
    shares = session.shares()
    if len(shares) == 1:
        return run_share(*shares[0], why_not)
    # Signals reach the main thread only; the others see them in the list that all share.
    with ThreadPoolExecutor(len(shares)) as pool:
        running = [pool.submit(run_share, own, names, why_not) for own, names in shares]
        parts = [part for future in running for part in future.result()]
    return sorted(parts, key=lambda part: session.profiles.index(part.profile))


def run_share(session: Session, profiles: list[str], why_not: str) -> list[Part]:
    """Run the cases of these profiles on the session's machine."""
    parts = []
    for profile in profiles:
        if why_not:
            parts.append(Part(session.machine, profile, Outcome(why_not=why_not)))
            continue
        if refused := session.refused.get(profile):
            outcome = Outcome(why_not=refused, refused=True)
            parts.append(Part(session.machine, profile, outcome))
        # In virtual time, queries about jobs disturb the measurement. So the checks of the default
        # profile run in a held job, too.
        elif profile == "default" and not session.plan.virtual_time:
            parts.append(Part(session.machine, profile, run_reframe(session)))
        else:
            parts.append(run_in_held_job(session, profile))
        session.done[session.suffix(profile)] = session.jobs_of(profile)
        last = parts[-1].outcome
        if not last.refused:
            why_not = session.why_stop() or (last.why_not if last.broken else "")
    return parts


def run_in_held_job(session: Session, profile: str) -> Part:
    """Run the cases of a profile in one job that has the nodes of the largest case."""
    largest = max(session.of_profile(profile), key=lambda case: case.nodes)
    nodelist = session.nodelists.get(largest, [])
    with held(session, profile, largest.nodes, nodelist) as allocation:
        if allocation.reason:
            why_not = session.why_stop()
            outcome = Outcome(why_not=why_not, lost=not why_not)
            session.progress.said(why_not or f"NIC profile {profile}: {allocation.why}")
            if not (why_not or session.rerun):
                which = f"in round {session.round + 1}: {allocation.why}"
                session.refused[profile] = f"NIC profile {profile} was not in force {which}"
        else:
            session.progress.said(
                f"NIC profile {profile} on {','.join(allocation.job.nodes)}: job "
                f"{allocation.job.id}, ready after {allocation.waited_s:.1f} s"
            )
            outcome = run_reframe(session, profile, allocation)
    return Part(session.machine, profile, outcome, allocation)


def runs_of(session: Session, parts: list[Part], note: Say = say_nothing) -> list[Run]:
    """All runs of the round in the order of the plan. A case that did not run is an error.

    ``note`` gets a sentence on what was left out.
    """
    by_case: dict[tuple[Case, int], Run] = {}
    for part in parts:
        if part.allocation:
            part.allocation.read_node_reasons()
        runs = collect(
            session.folder, session.of_profile(part.profile), session.repeats,
            part.machine.run, part.why_not, report_file(session, part.profile), part.phase,
            held_job(part), log_file(session, part.profile), part.machine.take,
            session.plan.node_names, note,
        )  # fmt: skip
        for run in runs:
            run.round = session.block
            by_case[run.case, run.repeat] = run
    return [by_case[case, repeat] for repeat in session.repeats for case in session.cases]


def held_job(part: Part) -> Job | None:
    return part.allocation.job if part.allocation and part.allocation.job.id else None


def allocations(session: Session, parts: list[Part], runs: list[Run]) -> dict[str, list]:
    """Profile -> the records of its held jobs, with Slurm's account of each."""
    facts: dict[str, Job] = {}
    for machine in session.machines:
        jobs = [job.id for part in parts if part.machine is machine and (job := held_job(part))]
        facts |= job_facts(jobs, machine.run, first=True)
    result: dict[str, list[AllocationRecord]] = {}
    for part in parts:
        if part.allocation is None:
            continue
        allocation = part.allocation
        inside = [run for run in runs if allocation.job.id and run.job.id == allocation.job.id]
        result.setdefault(part.profile, []).append(
            AllocationRecord(
                job=account_of(allocation.job, facts),
                waited_s=allocation.waited_s,
                released_s=allocation.released_s,
                cases=len(inside),
                reason=allocation.why,
            )
        )
    return result
