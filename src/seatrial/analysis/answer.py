"""The answer on some options that trials measured: the decision, unless something withholds it.

The rules are the same for the chapter "What it means" (``seatrial.analysis.response``) and for the
advice on a job (``seatrial.job.measured``). Samples are compared by ``seatrial.analysis.decision``.
An answer is withheld where the samples cannot support it, whatever they say: the trials contradict
each other, the runs of a leader fail more often, the options ran on different nodes, or other
programs disturbed the runs of an option, which may thus be the best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from seatrial.analysis.axis import Axis
from seatrial.analysis.conclusion import (
    Measured,
    Unit,
    blocks_of,
    different_nodes,
    same_nodes,
)
from seatrial.analysis.decision import Decision, decide, disagreement, failing, withheld
from seatrial.results.record import Case
from seatrial.results.statistics import Better

#: what runs take that are not disturbed
QUIET = "a trial while no other program uses the processors of the nodes"


@dataclass(frozen=True)
class OfTrial:
    """What a trial measured of each option: option -> its samples, its nodes, and how many of how
    many runs were lost. ``disturbed``: options whose runs other programs disturbed; they may have
    no samples."""

    samples: Mapping[str, Sequence[float]]
    nodes: Mapping[str, Set[str]] = field(default_factory=dict)
    lost: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    disturbed: Set[str] = frozenset()


@dataclass(frozen=True)
class Lost:
    """The planned runs of usable trials that no conclusion is made from; each by trial and case.

    ``failed``: how many failed. ``disturbed``: how many of how many runs other programs disturbed.
    """

    failed: Mapping[tuple[str, Case], int]
    disturbed: Mapping[tuple[str, Case], tuple[int, int]]

    def beside(
        self, samples: Mapping[str, Sequence[tuple[Measured, float]]], axis: Axis
    ) -> dict[str, OfTrial]:
        """Trial with all options -> what it measured, of the runs of each and their figures.

        ``samples``: name of an option -> its runs. A further option of the axis is disturbed if all
        runs of its case in the trial were.
        """
        runs = [sample for pairs in samples.values() for sample, _ in pairs]
        like = {_like(sample.run.case, axis) for sample in runs}
        made = {}
        for trial in dict.fromkeys(sample.trial for sample in runs):
            of_trial = {
                option: [pair for pair in pairs if pair[0].trial == trial]
                for option, pairs in samples.items()
            }
            if not all(of_trial.values()):
                continue
            nodes, lost = {}, {}
            for option, pairs in of_trial.items():
                nodes[option] = {node for sample, _ in pairs for node in sample.run.job.nodes}
                cases = {sample.run.case for sample, _ in pairs}
                failed = sum(self.failed.get((trial, case), 0) for case in cases)
                lost[option] = failed, failed + len(pairs)
            disturbed = {
                axis.option(case)
                for (of, case), (count, total) in self.disturbed.items()
                if of == trial and count == total and _like(case, axis) in like
            }
            made[trial] = OfTrial(
                {option: blocks_of(of_option) for option, of_option in of_trial.items()},
                nodes, lost, disturbed - {""},
            )  # fmt: skip
        return made


NOTHING_LOST = Lost({}, {})


def _like(case: Case, axis: Axis) -> tuple[str, str, str, str, int]:
    """What the cases of a comparison share."""
    return case.check, case.variant, axis.route(case), axis.profile(case), case.nodes


def answer(
    trials: Mapping[str, OfTrial],
    better: Better,
    axis: Axis,
    unit: Unit,
    lost: str = "failed",
    looks: int = 1,
) -> Decision:
    """The decision on the options of the first trial, which all trials have.

    ``lost``: what the runs did that are lost. ``looks``: among how many decisions the error of 5 %
    is divided.
    """
    options = list(next(iter(trials.values())).samples)
    apart = {
        trial: {option: of.samples[option] for option in options} for trial, of in trials.items()
    }
    pooled = {
        option: [x for blocks in apart.values() for x in blocks[option]] for option in options
    }
    made = decide(pooled, better, looks, unit, axis.name)
    why = disagreement(made, apart, better)
    made = withheld(made, why, "what differs between the trials, or a trial more")
    failed: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for of in trials.values():
        for option, (number, runs) in of.lost.items():
            failed[option] += number
            total[option] += runs
    why = failing(made, {o: (failed[o], total[o]) for o in options if total[o]}, lost)
    made = withheld(made, why, "runs that do not fail")
    nodes = {trial: {o: of.nodes[o] for o in options if of.nodes.get(o)}
             for trial, of in trials.items()}  # fmt: skip
    made = withheld(made, different_nodes(nodes, axis), same_nodes(axis))
    if disturbed := sorted({option for of in trials.values() for option in of.disturbed}):
        why = f"other programs disturbed the runs under {' and '.join(disturbed)}"
        made = withheld(made, why, QUIET)
    return made
