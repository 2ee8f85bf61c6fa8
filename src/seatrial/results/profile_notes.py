"""Notes of a verdict on NIC profiles: what a profile does not do in a trial that it may pass.

A setting that a node does without, an interface that the profile does not set, and a bandwidth that
its egress rate does not limit. None of them decides a verdict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from seatrial.results.locations import natural
from seatrial.results.record import BURSTS, Run, Trial
from seatrial.results.wording import some


def notes(trial: Trial, runs: Sequence[Run]) -> Iterator[str]:
    for sentences in (_left_out(runs), _sets_nothing(trial, runs), _bursts(runs)):
        yield from (f"note: {sentence}" for sentence in sentences)


def left_out(runs: Iterable[Run]) -> dict[tuple[str, tuple[str, ...]], list[str]]:
    """(profile, nodes) -> the settings that these nodes lack and the profile does without
    (``if_supported``), each with its interface."""
    nodes: dict[tuple[str, str], set[str]] = defaultdict(set)
    for run in runs:
        for proof in run.nic_proofs:
            for setting in proof.left_out:
                nodes[run.case.profile, setting].add(proof.node)
    together: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (profile, setting), names in nodes.items():
        together[profile, tuple(sorted(names, key=natural))].append(setting)
    return together


def _left_out(runs: Iterable[Run]) -> list[str]:
    return [
        f"NIC profile {profile} leaves out what {some(names)} cannot have (if_supported): "
        f"{some(settings)}"
        for (profile, names), settings in left_out(runs).items()
    ]


def _sets_nothing(trial: Trial, runs: Iterable[Run]) -> list[str]:
    """Notes on runs that were measured on an interface that their NIC profile does not set, or of
    whose settings it left out all."""
    uses = {use.name: use for use in trial.profiles}
    cases: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for run in runs:
        use = uses.get(run.case.profile)
        if use is None or use.name == "default" or use.node_settings or not run.path:
            continue
        gone = {(p.node, *setting.split(" ", 1)) for p in run.nic_proofs for setting in p.left_out}
        of_nodes = [
            {
                name: [key for key in settings if (node, name, key) not in gone]
                for name, settings in use.settings.get(node, {}).items()
            }
            for node in run.job.nodes
        ]
        on = run.path.interfaces
        bonded = any("bond" in settings for node in of_nodes for settings in node.values())
        if on and not bonded and not any(node.get(name) for node in of_nodes for name in on):
            cases[use.name, ", ".join(sorted(on, key=natural))][run.case.id] = None
    return [
        f"NIC profile {profile} sets nothing on {interfaces}, on which it was measured: "
        f"{some(list(ids))}"
        for (profile, interfaces), ids in cases.items()
    ]


def _bursts(runs: Iterable[Run]) -> list[str]:
    """One note for each case."""
    sentences: dict[str, str] = {}
    for run in runs:
        said = run.facts.get(BURSTS)
        if isinstance(said, list) and said and isinstance(said[0], str):
            sentences.setdefault(run.case.id, f"{run.case.id}: {said[0][:300]}")
    return list(sentences.values())
