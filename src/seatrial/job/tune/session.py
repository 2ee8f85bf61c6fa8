"""The loop of a tune: submit a run, wait, read it, look at the samples, until it is enough."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seatrial.base.errors import InputError, LabError
from seatrial.base.lock import hold, open_lock
from seatrial.base.say import Say
from seatrial.job.request import Surroundings
from seatrial.job.submit import Run
from seatrial.job.tune import job as slurm
from seatrial.job.tune.answer import DATA_FILE, TEXT_FILE, Answer
from seatrial.job.tune.outcome import outcome
from seatrial.job.tune.record import (
    RECORD_FILE,
    Book,
    Candidate,
    Fault,
    Ran,
    Submitted,
    Submitting,
    Tuned,
)
from seatrial.job.tune.request import limit_h, script, write_declared
from seatrial.job.tune.study import LOOKS, Limits, Stop, Study
from seatrial.report.chapter import joined
from seatrial.report.text import quantity
from seatrial.results.wording import plural
from seatrial.trial.machine import Machine
from seatrial.trial.session import noted_signals

RUNS_FOLDER = "runs"
LOCK_FILE = ".lock"


@contextmanager
def opened(folder: Path) -> Iterator[Book]:
    """The record in a folder, which is made if it is missing, for one process at a time.

    Raises InputError if another process works in the folder, or it has other files; OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = {LOCK_FILE, RUNS_FOLDER, RECORD_FILE, DATA_FILE, TEXT_FILE}
    if others := sorted({path.name for path in folder.iterdir()} - known):
        raise InputError(
            f"--output {folder}: it has other files ({', '.join(others[:3])}); name a new folder, "
            "or that of a tune"
        )
    lock = folder / LOCK_FILE
    descriptor = open_lock(lock)
    try:
        try:
            hold(descriptor, lock, wait=False)
        except BlockingIOError:
            raise InputError(f"--output {folder}: another tune works in it") from None
        book = Book(folder)
        book.read()
        yield book
    finally:
        os.close(descriptor)


class Session:
    """One command's work on a tune. ``say`` gets lines for people, ``show`` what happens now."""

    def __init__(
        self, folder: Path, book: Book, around: Surroundings, machine: Machine, sbatch: Run,
        limits: Limits, say: Say, show: Say,
    ):  # fmt: skip
        assert book.tuned
        self.tuned: Tuned = book.tuned
        self.folder, self.book, self.around = folder, book, around
        self.machine, self.sbatch, self.limits = machine, sbatch, limits
        self.say, self.show = say, show
        self.runs = folder / RUNS_FOLDER
        self.begun = time.monotonic()
        self.signals: list[str] = []

    @property
    def study(self) -> Study:
        return Study(self.tuned, self.book.runs, self.book.looks)

    @property
    def left_s(self) -> float:
        return self.limits.seconds - (time.monotonic() - self.begun)

    def work(self) -> Answer:
        """Run until it is enough, and write the answer. Raises LabError if Slurm fails, OSError."""
        self.runs.mkdir(exist_ok=True)
        write_declared(self.tuned, self.around, self.runs)
        with noted_signals() as self.signals:
            for number, (candidate, job) in sorted(self.book.open.items()):
                self._resume(number, candidate, job)
            stop = self._loop()
        answer = Answer(self.book, stop, self.folder)
        answer.write()
        return answer

    def _loop(self) -> Stop:
        while True:
            if self.signals:
                return Stop(f"interrupted by {self.signals[0]}")
            study = self.study
            if study.due():
                self._look()
                continue
            step = study.next(self.limits, limit_h(self.tuned), self.left_s)
            if isinstance(step, Stop):
                self._last_look(step)
                return step
            self._run(step)

    def _look(self) -> None:
        look = self.study.look()
        self.book.add(look)
        more = len(self.book.looks) < LOOKS and look.answer == "measure more"
        text = f"after {plural(look.runs, 'run')}: {look.answer}"
        if more:
            study = self.study
            left = sum(study.target - len(study.samples(candidate)) for candidate in study.running)
            names = f"all {len(self.tuned.candidates)} candidates"
            if len(study.running) < len(self.tuned.candidates):
                names = joined([candidate.name for candidate in study.running])
            text += f", as {study.decision().reason}; {names} run on, to the next look "
            text += f"after {plural(look.runs + left, 'run')}"
        self.say(text)

    def _last_look(self, stop: Stop) -> None:
        """At a limit: a look in place of the next one, if there are runs that it could be of."""
        study = self.study
        seen = self.book.looks[-1].runs if self.book.looks else 0
        new = any(not run.fault for run in self.book.runs[seen:])
        counts = [len(study.samples(candidate)) for candidate in study.running]
        enough = len(counts) > 1 and min(counts) >= study.least
        if new and enough and not stop.final and len(self.book.looks) < LOOKS:
            self._look()

    # -- one run

    def _name(self, number: int) -> str:
        return f"tune-{self.tuned.id}-{number}"

    def _place(self, number: int) -> Path:
        return self.runs / f"{number:04}"

    def _run(self, candidate: Candidate) -> None:
        number = self.book.next_number
        folder = self._place(number)
        folder.mkdir()
        text = script(self.tuned, candidate, self.around, folder, self._name(number))
        (folder / "job.sh").write_text(text)
        self.book.add(Submitting(number=number, candidate=candidate))
        try:
            job = slurm.submit(text, self.sbatch)
        except slurm.Refused as refused:
            why = f"sbatch refused its job: {refused}"
            self._end(Ran(number=number, candidate=candidate, fault="slurm", reason=why,
                          node_hours=0.0))  # fmt: skip
            raise LabError(
                f"{why}. What was measured is kept: seatrial job tune --output {self.folder}"
            ) from None
        self.book.add(Submitted(number=number, job=job))
        self._finish(number, candidate, job)

    def _resume(self, number: int, candidate: Candidate, job: str) -> None:
        """Take over a run of a command that was killed: its job may still run."""
        if not job:
            jobs = slurm.jobs_called(self._name(number), self.machine)
            job = jobs[0] if jobs else ""
        if job:
            self.say(f"run {number} is taken over: job {job}")
            self._finish(number, candidate, job)
            return
        why = "the command was killed when it submitted the job, and Slurm knows none"
        # Slurm forgets a job after a while: the node hours may have been used.
        cost = limit_h(self.tuned) if (self._place(number) / "exit").exists() else 0.0
        self._end(Ran(number=number, candidate=candidate, fault="interrupted", reason=why,
                      node_hours=cost))  # fmt: skip

    def _finish(self, number: int, candidate: Candidate, job: str) -> None:
        head = f"run {number}, {candidate.name}, job {job}"
        end = slurm.wait(job, self.machine, self._why_stop, lambda s: self.show(f"{head}: {s}"))
        chosen, folder = self.tuned.chosen(candidate), self._place(number)
        ran = outcome(self.tuned, chosen, number, job, end, folder, limit_h(self.tuned))
        # A job whose script did not begin: its Prolog failed, which drains nodes.
        lost = ran.fault in ("refused", "slurm") and not (folder / "job.out").exists()
        if lost and (nodes := slurm.drained(job, ran.nodes, self.machine)):
            ran.fault, ran.reason = "refused", f"{ran.reason}; {nodes}"
        self._end(ran)

    def _end(self, ran: Ran) -> None:
        self.book.add(ran)
        result = f"not counted: {ran.reason}" if ran.fault else quantity(ran.value, self.tuned.unit)
        job = f" (job {ran.job})" if ran.job else ""
        self.say(f"run {ran.number}{job}, {ran.candidate.name}: {result}")

    def _why_stop(self) -> Fault:
        if self.signals:
            return "interrupted"
        return "limit" if self.left_s <= 0 else ""
