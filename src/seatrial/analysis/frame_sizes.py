"""The MTU, crossed with interrupt throttling: which one pays, and whether throttling changes that.

The profiles of one sweep differ in MTU and coalescing alone, as the trial has their settings. The
question is that of the value cluster, whose best MTU was 6000, inside the range, without
throttling.

An MTU is the best where it leads all others by more than the repeats spread; else there is a
plateau of those that are as good, if the intervals allow no difference that counts. What leads its
neighbours alone may be one of two maxima. The interaction is a ratio of ratios, the gain of an MTU
under one throttling over its gain under the other: 1 means that each can be chosen by itself. Its
samples are the gains of single repeats, which a trial interleaves; the interval is by ranks
(``seatrial.analysis.decision.ratio``).

The MTU of the path is proven where the counters of a run have more bytes per frame than the next
lower MTU allows, and no more than a frame of this MTU has. Where they have more, as on veth and
virtio, they count segments of up to 64 KiB, before these are cut into frames: nothing is proven.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from seatrial.analysis.answer import NOTHING_LOST, Lost, answer
from seatrial.analysis.axis import PROFILE
from seatrial.analysis.conclusion import (
    Estimate,
    Inputs,
    Measured,
    Unit,
    blocks_of,
    comparable,
    inputs_of,
    unit_of,
)
from seatrial.analysis.decision import SMALLEST, fault, gain, least_repeats, ratio
from seatrial.analysis.profile_cost import CPU, cpu_time
from seatrial.analysis.response import performance
from seatrial.benchmarks.tcp_stream import TCPStream
from seatrial.results import statistics
from seatrial.results.folder import Results
from seatrial.results.record import ProfileUse, Run
from seatrial.results.statistics import Better

MTU = "mtu"
COALESCING = "coalesce."  # begins the names of settings of interrupt throttling
STEP = 1500  # B; an optimum between MTUs that are further apart is not seen
ETHERNET_B = 22  # header 14, a VLAN's tag 4, checksum 4; drivers count with or without the last two
NOT_SEEN = "no frames of that size in the counters"
NOT_OF_THE_WIRE = "the counters do not count frames of the wire"

Settings = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Optimum:
    """The MTUs of which none is worse than the best, under one throttling.

    ``top``: the one with the best median. ``as_good``: with ``top`` all that it does not lead,
    ascending. ``apart``: the largest difference of ``top`` and one of these that the intervals
    allow, a fraction. ``known``: whether ``top`` is alone, or no difference that counts is
    possible; else ``reason``. ``gain``: performance of the best over that of the smallest MTU.
    ``spread``: the fraction that a lead must exceed.
    """

    throttling: str
    medians: Mapping[int, float]
    top: int
    as_good: tuple[int, ...]
    gain: Estimate
    spread: float | None
    apart: float
    known: bool
    reason: str = ""

    @property
    def best(self) -> bool:
        return self.known and len(self.as_good) == 1

    @property
    def first(self) -> int:
        return self.as_good[0]

    @property
    def last(self) -> int:
        return self.as_good[-1]

    @property
    def inside(self) -> bool:
        """Whether both larger and smaller MTUs were measured, and are worse."""
        return min(self.medians) < self.first and self.last < max(self.medians)

    @property
    def whole(self) -> bool:
        """Whether all between the first and the last are as good."""
        between = [mtu for mtu in self.medians if self.first <= mtu <= self.last]
        return len(between) == len(self.as_good)

    @property
    def widest_step(self) -> int:
        return max((b - a for a, b in pairwise(sorted(self.medians))), default=0)


@dataclass(frozen=True)
class Interaction:
    """Gain of ``mtu`` over ``base`` under ``throttled`` over the same under ``plain``."""

    mtu: int
    base: int
    throttled: str
    plain: str
    ratio: Estimate


@dataclass(frozen=True)
class Frames:
    """What the counters show of one MTU: the most bytes per frame of an interface and a direction,
    and why they do not prove the MTU; "" where they do."""

    seen: float
    unproven: str = ""


@dataclass(frozen=True)
class Sweep:
    """One figure over MTU and throttling. ``frames``: by throttling and MTU."""

    name: str
    metric: str
    unit: str
    better: Better
    route: str
    nodes: int
    hardware: str
    optima: tuple[Optimum, ...]
    interactions: tuple[Interaction, ...]
    frames: Mapping[tuple[str, int], Frames]
    repeats: int  # samples of each; ``sample``: what one is
    inputs: Inputs
    sample: Unit = "repeat"
    withheld: str = ""  # why its runs say nothing


@dataclass(frozen=True)
class _Setting:
    """What a profile sets: MTU, coalescing, and all else."""

    mtu: int
    coalescing: Settings
    rest: Settings


def sweeps(
    trials: Sequence[Results], measured: Iterable[Measured], lost: Lost = NOTHING_LOST
) -> list[Sweep]:
    """A sweep of each figure that was measured with several MTUs and all else equal."""
    used = {
        (results.trial.trial, use.name): use for results in trials for use in results.trial.profiles
    }
    groups: dict[tuple[Any, ...], dict[_Setting, list[tuple[Measured, float]]]] = {}
    frames: dict[tuple[str, _Setting], float] = {}
    for sample in measured:
        setting = _setting(used.get((sample.trial, sample.run.case.profile)), sample.run)
        if setting is None:
            continue
        hardware = sample.run.hardware
        seen = max(_bytes_per_frame(sample.run), default=0.0)
        frames[hardware, setting] = max(seen, frames.get((hardware, setting), 0.0))
        for name, metric, unit, better, value in _figures(sample.run):
            case = sample.run.case
            key = (name, metric, unit, better, case.route, case.nodes, hardware, setting.rest)
            groups.setdefault(key, {}).setdefault(setting, []).append((sample, value))
    made = (
        _sweep(key, group, {s: b for (where, s), b in frames.items() if where == key[6]}, lost)
        for key, group in groups.items()
    )
    return [sweep for sweep in made if sweep]


def _setting(use: ProfileUse | None, run: Run) -> _Setting | None:
    """What the profile of a run sets on the network under test; None if that is not known."""
    if use is None or run.path is None:
        return None
    declared: dict[str, Any] = {}
    mtus = set()
    for node, name, before in run.nic_before():
        if before.get("network") == run.path.network:
            mtus.add(before.get("mtu"))
            declared |= use.settings.get(node, {}).get(name, {})
    (mtu,) = mtus if len(mtus) == 1 else (None,)
    if not isinstance(mtu, int):
        return None
    others = {k: v for k, v in (declared | use.node_settings).items() if k != MTU}
    items = sorted((name, repr(value)) for name, value in others.items())
    return _Setting(
        mtu,
        tuple(item for item in items if item[0].startswith(COALESCING)),
        tuple(item for item in items if not item[0].startswith(COALESCING)),
    )


def _figures(run: Run) -> Iterable[tuple[str, str, str, Better, float]]:
    """Name, metric, unit, better direction and value of the figures that a sweep is made of."""
    case = run.case
    name = f"{case.check} {case.variant}".rstrip()
    wanted = "bandwidth_MB_s" if case.check == TCPStream.name else performance(case)
    for metric in run.metrics if wanted else ():
        if metric.metric == wanted and metric.location is None and not fault([metric.value]):
            yield name, metric.metric, metric.unit, metric.better, metric.value
    for value in cpu_time(run) if case.check == TCPStream.name else ():
        if value > 0:
            yield name, CPU, "ms/MB", "lower", value


def _bytes_per_frame(run: Run) -> list[float]:
    counters = run.path.counters if run.path else []
    return [
        count / packets
        for counter in counters
        if run.path and counter.network == run.path.network
        for count, packets in (
            (counter.rx_bytes, counter.rx_packets), (counter.tx_bytes, counter.tx_packets),
        )
        if packets > 0
    ]  # fmt: skip


def throttling_name(coalescing: Settings) -> str:
    """Such as ``rx-usecs 125``."""
    words = [f"{name.removeprefix(COALESCING)} {value}" for name, value in coalescing]
    return ", ".join(words) or "the driver's throttling"


def _sweep(
    key: tuple[Any, ...],
    samples_of: Mapping[_Setting, Sequence[tuple[Measured, float]]],
    frames: Mapping[_Setting, float],
    lost: Lost,
) -> Sweep | None:
    """None if no throttling was measured with several MTUs."""
    name, metric, unit, better, route, nodes, hardware, rest = key
    complete = _of_several_mtus(_of_whole_trials(samples_of))
    if not complete:
        return None
    grid: dict[str, dict[int, list[float]]] = defaultdict(dict)
    for setting, samples in complete.items():
        grid[throttling_name(setting.coalescing)][setting.mtu] = blocks_of(samples)
    sizes = sorted({setting.mtu for setting in complete})
    shown = {
        (throttling_name(setting.coalescing), setting.mtu): _proof(sizes, setting.mtu, seen)
        for setting, seen in frames.items()
        if setting.rest == rest and setting in complete
    }
    runs = [one for samples in complete.values() for one, _ in samples]
    sample = unit_of(runs)
    repeats = min(len(values) for by_mtu in grid.values() for values in by_mtu.values())
    optima = (optimum(level, by_mtu, better, sample) for level, by_mtu in grid.items())
    why = _withheld(complete, better, sample, lost)
    if why:
        optima = (replace(best, known=False, reason=why) for best in optima)
    return Sweep(
        name, metric, unit, better, route, nodes, hardware, tuple(optima),
        tuple(interactions(grid, better)), shown, repeats, inputs_of(runs, len(runs)),
        sample, why,
    )  # fmt: skip


def _withheld(
    samples_of: Mapping[_Setting, Sequence[tuple[Measured, float]]],
    better: Better,
    unit: Unit,
    lost: Lost,
) -> str:
    """Why the runs of the settings say nothing of the best one, or ""."""
    samples = {
        f"MTU {setting.mtu}, {throttling_name(setting.coalescing)}": list(pairs)
        for setting, pairs in samples_of.items()
    }
    decision = answer(lost.beside(samples, PROFILE), better, PROFILE, unit)
    return decision.reason if decision.takes else ""


def _of_several_mtus(
    samples_of: Mapping[_Setting, list[tuple[Measured, float]]],
) -> dict[_Setting, list[tuple[Measured, float]]]:
    """Without the throttlings that were measured with one MTU."""
    sizes: dict[Settings, set[int]] = defaultdict(set)
    for setting in samples_of:
        sizes[setting.coalescing].add(setting.mtu)
    return {s: samples for s, samples in samples_of.items() if len(sizes[s.coalescing]) > 1}


def _of_whole_trials(
    samples_of: Mapping[_Setting, Sequence[tuple[Measured, float]]],
) -> dict[_Setting, list[tuple[Measured, float]]]:
    """The samples of the trials and rounds that have all settings of the trial with the most."""
    kept = comparable(
        {setting: [sample for sample, _ in samples] for setting, samples in samples_of.items()}
    )
    whole = {id(sample) for runs in kept.values() for sample in runs}
    return {
        setting: [sample for sample in samples_of[setting] if id(sample[0]) in whole]
        for setting in kept
    }


def _proof(sizes: Sequence[int], mtu: int, seen: float) -> Frames:
    smaller = max((size for size in sizes if size < mtu), default=0)
    if seen > mtu + ETHERNET_B:
        return Frames(seen, NOT_OF_THE_WIRE)
    return Frames(seen, "" if smaller + ETHERNET_B < seen else NOT_SEEN)


def optimum(
    throttling: str, by_mtu: Mapping[int, Sequence[float]], better: Better, unit: Unit = "repeat"
) -> Optimum:
    """The best MTU or the plateau around it, of samples of at least two MTUs above zero.

    ``unit``: what a sample is.
    """
    sign = 1 if better == "higher" else -1
    sizes = sorted(by_mtu)
    medians = {mtu: statistics.median(by_mtu[mtu]) for mtu in sizes}
    top = max(sizes, key=lambda mtu: sign * medians[mtu])
    spreads = [statistics.spread([math.log(value) for value in by_mtu[mtu]]) for mtu in sizes]
    known = [one for one in spreads if one is not None]
    spread = max(known) if len(known) == len(spreads) else None
    ahead = {m: gain(by_mtu[top], by_mtu[m], better, len(sizes)) for m in sizes if m != top}
    over_least = ahead.get(sizes[0], Estimate(1.0, 1.0, 1.0))
    repeats, need = min(map(len, by_mtu.values())), least_repeats(len(sizes))
    as_good = tuple(
        mtu
        for mtu in sizes
        if mtu == top
        or spread is None
        or ahead[mtu].low <= 1
        or (medians[top] / medians[mtu]) ** sign - 1 <= spread
    )
    others = [ahead[mtu] for mtu in as_good if mtu != top]
    apart = max((max(e.high, 1 / e.low if e.low > 0 else math.inf) - 1 for e in others), default=0)
    why = ""
    if spread is None:
        once = "once" if unit == "repeat" else "in one round"
        why = f"each was measured {once}, so the spread is not known"
    elif repeats < need:
        why = f"{len(sizes)} MTUs need {need} {unit}s each, and there are {repeats}"
    elif apart > 2 * max(SMALLEST, spread):
        why = f"the {unit}s scatter too much to see a difference that counts"
    return Optimum(throttling, medians, top, as_good, over_least, spread, apart, not why, why)


def interactions(
    grid: Mapping[str, Mapping[int, Sequence[float]]], better: Better
) -> Iterable[Interaction]:
    """Of the first throttling and each other one, for each MTU that both have, over the least.

    The intervals hold together.
    """
    levels = list(grid)
    if len(levels) < 2:
        return
    plain = levels[0]
    for throttled in levels[1:]:
        sizes = sorted(grid[plain].keys() & grid[throttled].keys())
        for mtu in sizes[1:]:
            gains = {
                level: [
                    (a / b) ** (1 if better == "higher" else -1)
                    for a, b in zip(grid[level][mtu], grid[level][sizes[0]], strict=False)
                ]
                for level in (plain, throttled)
            }
            # all MTUs but the least, of all levels but the first
            compared = (len(sizes) - 1) * (len(levels) - 1)
            estimate = ratio(gains[throttled], gains[plain], compared + 1)
            yield Interaction(mtu, sizes[0], throttled, plain, estimate)
