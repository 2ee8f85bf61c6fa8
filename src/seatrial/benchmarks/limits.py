"""Physical limits of figures: the line rate, a frame's time on the wire, the peak of the cores.

A benchmark declares its limits in ``Benchmark.limits``. ``beyond`` evaluates them with the facts of
a run (``Known``), which ``seatrial.checks.physics`` collects. A fact that is not known gives no
limit. A figure beyond a limit was not measured as declared, so its run is an error. Not here:
requirements of a site.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from seatrial.benchmarks.parsing import Parsed
from seatrial.nic.node.writers import SHAPER_QUEUE_MS
from seatrial.results.record import Metric

#: bytes of the shortest Ethernet frame with preamble and start delimiter (IEEE 802.3)
FRAME_B = 72
#: half a unit of the last digit of latencies, which the programs print with two decimals
ROUNDING_US = 0.005
#: facts of a run with a limit by the peak: GFLOPS of a core and their source; in a lab, the cores
#: of the machine, which all nodes share
CORE_PEAK, CORE_PEAK_SOURCE, SHARED_CORES = "core_peak_GFLOPS", "core_peak_source", "shared_cores"


@dataclass(frozen=True)
class Rate:
    """A rate and its source. Of an interface: 10^6 B/s in each direction. Of a core: GFLOPS.

    ``bucket``: bytes that a shaper lets through at once.
    """

    value: float
    source: str
    bucket: int = 0


@dataclass(frozen=True)
class Known:
    """The facts of a run that limits are computed from.

    ``lines``: interface -> line rate. ``shapers``: interface -> egress rate of the NIC profile.
    ``interface``: the interface under test. ``core``: the peak of a core in double precision.
    """

    interface: str = ""
    lines: Mapping[str, Rate] = field(default_factory=dict)
    shapers: Mapping[str, Rate] = field(default_factory=dict)
    core: Rate | None = None


class Limit:
    """A limit of the metrics whose names match a glob pattern."""

    def __init__(self, metric: str):
        self.metric = metric

    def beyond(self, metric: Metric, parsed: Parsed, known: Known) -> str:
        """Why the figure is impossible: figure, limit and its source; empty if it is possible."""
        raise NotImplementedError

    def unknown(self, known: Known) -> str:
        """The fact without which there is no limit; empty if it is known."""
        return ""


class OfLine(Limit):
    """A limit that follows from the line rate of the interface."""

    def unknown(self, known: Known) -> str:
        return "" if known.interface in known.lines else f"the line rate of {known.interface}"


class Bandwidth(OfLine):
    """Payload cannot be faster than the interface: its line rate, and a profile's egress rate.

    ``directions``: 2 if the figure is the sum of both directions. ``messages``: how many a rank
    sends, at least, before it awaits a reply.

    A shaper is a token bucket: what fits into the bucket leaves at the speed of the unshaped
    interface, and the bucket can be full again after each reply. So ``messages`` of s bytes need at
    least (messages x s - bucket) / egress rate. The curve of the metric has the sizes.
    """

    def __init__(self, metric: str, directions: int = 1, messages: int = 1):
        super().__init__(metric)
        self.directions, self.messages = directions, messages

    def beyond(self, metric: Metric, parsed: Parsed, known: Known) -> str:
        both = " in both directions" if self.directions > 1 else ""
        line, shaper = known.lines.get(known.interface), known.shapers.get(known.interface)
        if line and metric.value > self.directions * line.value:
            return above(metric, self.directions * line.value, line.source + both)
        for size, rate in _curve_of(metric, parsed) if shaper else ():
            sent = size * self.messages
            if not shaper or sent <= shaper.bucket:
                continue
            most = self.directions * shaper.value * sent / (sent - shaper.bucket)
            if rate > most:
                source = f"{shaper.source}{both}, at {size:.0f} B, bucket of {shaper.bucket} B"
                return above(replace(metric, value=rate), most, source)
        return ""

    def unknown(self, known: Known) -> str:
        return "" if known.interface in known.shapers else super().unknown(known)


class StreamBandwidth(OfLine):
    """The sum of streams, which send for ``seconds`` of the metric and await no reply.

    At most the bucket and the queue of the shaper come on top of the egress rate. ``directions``: 2
    if the figure is the sum of both directions.
    """

    def __init__(self, metric: str, directions: int = 1):
        super().__init__(metric)
        self.directions = directions

    def beyond(self, metric: Metric, parsed: Parsed, known: Known) -> str:
        names = sorted(set(parsed.facts.get("through", [known.interface])))
        for rates in (known.lines, known.shapers):
            used = [rates[name] for name in names if name in rates]
            if len(used) < len(names):
                continue
            most = self.directions * sum(rate.value for rate in used)
            source = " and ".join(dict.fromkeys(rate.source for rate in used))
            source += " in both directions" if self.directions > 1 else ""
            if rates is known.shapers and metric.seconds:
                bucket = self.directions * sum(rate.bucket for rate in used)
                extra = most * SHAPER_QUEUE_MS / 1000 + bucket / 1e6
                most += extra / metric.seconds
                source += f", with {extra:.3g} MB of its bucket and queue in {metric.seconds:.3g} s"
            if metric.value > most:
                return above(metric, most, source)
        return ""

    def unknown(self, known: Known) -> str:
        return "" if known.interface in known.shapers else super().unknown(known)


def _curve_of(metric: Metric, parsed: Parsed) -> list[tuple[float, float]]:
    """The (bytes, 10^6 B/s) points whose highest rate is the metric; empty if there are none."""
    for curve in parsed.curves:
        if curve.y_name == "bandwidth" and max(rate for _, rate in curve.points) == metric.value:
            return curve.points
    return []


def _times_of(metric: Metric, parsed: Parsed) -> list[tuple[float, float]]:
    """The (bytes, us) points of the curve that begins with the metric; empty if there is none."""
    for curve in parsed.curves:
        if curve.y_name == "latency" and curve.points and curve.points[0][1] == metric.value:
            return curve.points
    return []


class Latency(OfLine):
    """A message cannot arrive before its frame has left: the shortest frame at the line rate.

    The same holds for each size of the curve that begins with the figure, with the bits of the
    message alone (Sokolowski and Grosu's 32 us for 8 KiB at 100 Mbit/s are no round trip). An
    egress rate gives no limit: what fits into the bucket leaves at once.
    """

    def beyond(self, metric: Metric, parsed: Parsed, known: Known) -> str:
        line = known.lines.get(known.interface)
        if line is None:
            return ""
        least = FRAME_B / line.value - ROUNDING_US
        source = f"the time of a frame of {FRAME_B} B at {line.source}"
        if metric.value < least:
            return below(metric, least, source)
        for size, time in _times_of(metric, parsed):
            if time < size / line.value - ROUNDING_US:
                source = f"the time of {size:.0f} B at {line.source}"
                return below(replace(metric, value=time), size / line.value, source)
        return ""


class Transfer(OfLine):
    """A run cannot end before its volume has crossed the interface, in s (``moved_bytes``)."""

    def beyond(self, metric: Metric, parsed: Parsed, known: Known) -> str:
        line = known.lines.get(known.interface)
        if line is None:
            return ""
        # rx + tx bytes, and the interface carries both directions at the same time
        least = parsed.moved_bytes / 2 / line.value / 1e6
        source = f"{parsed.moved_bytes} B in both directions at {line.source}"
        return below(metric, least, source) if metric.value < least else ""


class Peak(Limit):
    """A rate of floating-point operations cannot exceed the peak of the cores.

    ``cores``: the fact of the output that says how many cores compute.
    """

    def __init__(self, metric: str, cores: str):
        super().__init__(metric)
        self.cores = cores

    def beyond(self, metric: Metric, parsed: Parsed, known: Known) -> str:
        if known.core is None:
            return ""
        cores = parsed.facts[self.cores]
        most = cores * known.core.value
        if metric.value <= most:
            return ""
        return above(metric, most, f"the peak of {cores} cores: {known.core.source}")

    def unknown(self, known: Known) -> str:
        return "" if known.core else "the peak of a core (clock with turbo, vector units)"


def above(metric: Metric, most: float, source: str) -> str:
    """The reason of a figure above its limit."""
    return _text(metric, most, "above", source)


def below(metric: Metric, least: float, source: str) -> str:
    """The reason of a figure below its limit."""
    return _text(metric, least, "below", source)


def _text(metric: Metric, limit: float, side: str, source: str) -> str:
    unit = metric.unit
    return (
        f"{metric.metric} is {metric.value:.6g} {unit}, {side} its physical limit of "
        f"{limit:.6g} {unit} ({source})"
    )


def mark(parsed: Parsed, limits: Sequence[Limit], known: Known) -> list[Metric]:
    """The metrics of an output, with the reason at each that is beyond a limit.

    A figure that is in doubt is not judged, and not marked.
    """
    return [
        metric
        if metric.doubt
        else replace(metric, impossible="; ".join(_reasons(metric, parsed, limits, known)))
        for metric in parsed.metrics
    ]


def _reasons(
    metric: Metric, parsed: Parsed, limits: Sequence[Limit], known: Known
) -> Iterator[str]:
    for limit in limits:
        if fnmatchcase(metric.metric, limit.metric):
            reason = limit.beyond(metric, parsed, known)
            if reason:
                yield reason


def bursts(metrics: Iterable[Metric], limits: Sequence[Limit], known: Known) -> list[str]:
    """A sentence for each name of a metric that has a bandwidth above the egress rate of the NIC
    profile, with the highest one: of messages that the bucket of the shaper lets through at once.
    No longer transfer is as fast."""
    shaper = known.shapers.get(known.interface)
    if shaper is None:
        return []
    rates = [
        (one.metric, one.directions * shaper.value) for one in limits if isinstance(one, Bandwidth)
    ]
    highest: dict[str, Metric] = {}
    for metric in metrics:
        above = (fnmatchcase(metric.metric, name) and metric.value > rate for name, rate in rates)
        if any(above) and not metric.impossible:
            earlier = highest.setdefault(metric.metric, metric)
            highest[metric.metric] = max(earlier, metric, key=lambda one: one.value)
    return [
        f"{metric.metric} is {metric.value:.4g} {metric.unit}, above {shaper.source} "
        f"({shaper.value:.4g} {metric.unit}): messages that fit into the bucket of the shaper "
        f"({shaper.bucket} B) leave at once"
        for metric in highest.values()
    ]


def not_limited(limits: Sequence[Limit], known: Known) -> list[str]:
    """A sentence for each fact that is not known, with the metrics that have no limit for it."""
    metrics: dict[str, list[str]] = {}
    for limit in limits:
        if fact := limit.unknown(known):
            metrics.setdefault(fact, []).append(limit.metric)
    return [
        f"no physical limit of {', '.join(dict.fromkeys(names))}: {fact} is not known"
        for fact, names in metrics.items()
    ]
