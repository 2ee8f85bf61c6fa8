"""``mpi_pairs``: several pairs of MPI ranks at once, each with a core and a rail of its own.

The program prints a table, which this module reads; the head of ``mpi_pairs.c``, in the Spack
recipe ``mpi-pairs``, describes the measurement. ``checks/node/pin.py`` puts each rank on its core
and rail. Under a NIC profile with a bond the pairs of its members use the bond.

``osu_mbw_mr`` has several pairs, too, in one direction: it reports their sum alone, and all its
ranks use one network. ``tcp_streams`` has several networks without MPI.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Annotated, Any

from pydantic import Field

from seatrial.base.fields import Name, Size
from seatrial.base.suggest import FieldProblem
from seatrial.benchmarks.benchmark import (
    NODE_PYTHON,
    Benchmark,
    DeclaredMetric,
    Job,
    Rail,
    Settings,
    SiteFacts,
    Step,
    output,
    too_many_cores,
    unknown_networks,
)
from seatrial.benchmarks.limits import Latency, StreamBandwidth
from seatrial.benchmarks.parsing import (
    Parsed,
    ParseError,
    higher,
    lower,
    matching_line,
    sealed_lines,
    whole,
)
from seatrial.results.record import Metric

PATTERNS = ("latency", "pingpong", "uni", "bi")
WITHIN = "-within"  # ends the variants inside one node; their metrics begin with ``within_``
LARGEST = 2**30
MOST_AT_ONCE = 1024

#: of pairs between two nodes
METRICS = {
    "latency_us": DeclaredMetric("us", "lower"),
    "pingpong_MB_s": DeclaredMetric("MB/s", "higher"),
    "uni_MB_s": DeclaredMetric("MB/s", "higher"),
    "bi_MB_s": DeclaredMetric("MB/s", "higher"),
    "slowest_pair_MB_s": DeclaredMetric("MB/s", "higher"),
}

_TITLE = re.compile(r"# mpi_pairs (\d+\.\d+): (\d+) pairs of ranks at once", re.ASCII)
_MPI = re.compile(r"# MPI: (.*)")
_MESSAGES = re.compile(r"# messages: 1 and (\d+) bytes, (\d+) at once", re.ASCII)
_REPETITIONS = re.compile(r"# repetitions: (\d+) of at least (\d+) ms and (\d+) rounds", re.ASCII)
_PAIR = re.compile(r"# pair (\d+): nodes (\S+) and (\S+), cores (-?\d+) and (-?\d+)", re.ASCII)
_HEADING = [
    "# Times in ns since the first pair's begin in the repetition.",
    "# pattern repetition pair rounds begin start end until",
]


class MPIPairsSettings(Settings):
    """Pairs of ranks at once: between two nodes over one or several networks, and inside one."""

    pairs: list[Annotated[int, Field(ge=1, le=64)]] = Field(
        default=[1, 2, 4], description="pairs at once between two nodes: ranks on each node"
    )
    pairs_within: list[Annotated[int, Field(ge=1, le=32)]] = Field(
        default=[1], description="pairs at once inside one node, over its memory"
    )
    networks: list[Name] = Field(
        min_length=1, description="of role test; the pairs use them in turn"
    )
    message_bytes: Annotated[Size, Field(ge=2, le=LARGEST)] = Field(
        default=4 << 20, description="large message"
    )
    window: int = Field(
        default=4, ge=1, le=MOST_AT_ONCE, description="large messages at once, of uni and bi"
    )
    repetitions: int = Field(default=10, ge=1, le=1000, description="of each pattern")
    repetition_ms: int = Field(default=100, ge=0, le=600_000, description="least time of each")
    share_cores: bool = Field(
        default=False, description="allow more ranks on a node than it has cores"
    )


@dataclass(frozen=True)
class _Row:
    """A pair in a repetition, in ns: it sends from ``begin``, and is measured from ``start``."""

    pattern: str
    repetition: int
    pair: int
    rounds: int
    begin: int
    start: int
    end: int
    until: int


class MPIPairs(Benchmark[MPIPairsSettings]):
    name = "mpi_pairs"
    Settings = MPIPairsSettings
    chooses = ("pairs", "pairs_within")
    program = "mpi_pairs"
    spans_networks = True
    limits = (
        Latency("latency_us"),
        StreamBandwidth("pingpong_MB_s"),
        StreamBandwidth("uni_MB_s"),
        StreamBandwidth("bi_MB_s", directions=2),
    )

    def variants(self) -> list[str]:
        settings = self.settings
        return [
            *(f"{count}-pairs" for count in settings.pairs),
            *(f"{count}-pairs{WITHIN}" for count in settings.pairs_within),
        ]

    def problems(self, site: SiteFacts) -> Iterator[FieldProblem]:
        settings = self.settings
        yield from unknown_networks(settings.networks, site)
        if settings.pairs and min(settings.nodes, default=2) < 2:
            yield FieldProblem("nodes", "pairs between two nodes need two", "2, or pairs: []")
        if not settings.share_cores:
            yield from too_many_cores("pairs", max(settings.pairs, default=0), site)
            yield from too_many_cores(
                "pairs_within", 2 * max(settings.pairs_within, default=0), site
            )

    def steps(self, job: Job) -> list[Step]:
        return [self._step(job, variant) for variant in self.variants()]

    def _step(self, job: Job, variant: str) -> Step:
        settings = self.settings
        count, within = _count(variant), variant.endswith(WITHIN)
        env = job.env
        rails = [
            {name: value for name, value in rail.env.items() if env.get(name) != value}
            for rail in ([] if within else self._rails(job))
        ]
        command = [
            *NODE_PYTHON, "pin.py", str(count), json.dumps(rails or [{}]),
            "SLURM_PROCID" if job.nodes_share_cores else "SLURM_LOCALID", "--",
            *job.program("mpi_pairs"), "-s", str(int(settings.message_bytes)),
            "-w", str(settings.window),
            "-t", str(settings.repetition_ms), "-r", str(settings.repetitions),
        ]  # fmt: skip
        return Step(
            f"mpi-pairs-{variant}",
            command,
            variant=variant,
            nodes=1 if within else 2,
            tasks_per_node=2 * count if within else count,
            env=dict(job.within_env) if within else {},
            proves_path=not within,
            overcommit=settings.share_cores,
        )

    def _rails(self, job: Job) -> list[Rail]:
        return [job.rails[name] for name in self.settings.networks]

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        settings = self.settings
        within = step.variant.endswith(WITHIN)
        parsed = parse(
            output(step, folder),
            pairs=_count(step.variant),
            size=int(settings.message_bytes),
            window=settings.window,
            repetitions=settings.repetitions,
            within=within,
        )
        if within:
            return replace(parsed, facts={**parsed.facts, "within_node": job.within_node})
        return over_rails(parsed, self._rails(job), job.interface)

    def metrics(self) -> dict[str, DeclaredMetric]:
        settings = self.settings
        named = {
            "": tuple(f"{count}-pairs" for count in settings.pairs),
            "within_": tuple(f"{count}-pairs{WITHIN}" for count in settings.pairs_within),
        }
        return {
            f"{prefix}{name}": metric._replace(variants=variants)
            for prefix, variants in named.items()
            if variants
            for name, metric in METRICS.items()
        }


def _count(variant: str) -> int:
    return int(variant.partition("-")[0])


def over_rails(parsed: Parsed, rails: Sequence[Rail], interface: str) -> Parsed:
    """The figures of pairs that used ``rails`` in turn, with the volume of each network.

    ``interface``: the one under test. The facts ``through`` and ``networks`` are of each pair,
    ``members`` is the number of the site's networks behind each interface: above 1 for a bond.
    """
    volumes = parsed.facts["pairs_moved_B"]
    used = [rails[pair % len(rails)] for pair in range(len(volumes))]
    moved: dict[str, int] = {}
    main = 0
    for rail, volume in zip(used, volumes, strict=True):
        if rail.interface == interface:
            main += volume
        else:
            moved[rail.network] = moved.get(rail.network, 0) + volume
    through = [rail.interface for rail in rails]
    facts = {
        **parsed.facts,
        "through": [rail.interface for rail in used],
        "networks": [rail.network for rail in used],
        "members": {name: through.count(name) for name in dict.fromkeys(through)},
    }
    return replace(parsed, facts=facts, moved_bytes=main, moved_beside=moved)


def parse(
    text: str, *, pairs: int, size: int, window: int, repetitions: int, within: bool = False
) -> Parsed:
    """Read the standard output of a run of ``pairs`` pairs with ``-s``, ``-w`` and ``-r``.

    Metrics, medians over the repetitions: ``latency_us``, half of the round trip of one byte, mean
    over the pairs; ``pingpong_MB_s``, ``uni_MB_s`` and ``bi_MB_s``, the sum over the pairs in 10^6
    B/s (of both directions for bi; a ping-pong is the size over half of its round trip);
    ``slowest_pair_MB_s``, of uni. With ``within`` their names begin with ``within_``.

    Facts: ``pairs_MB_s``, pattern -> median of each pair; ``scatter_percent``, pattern ->
    coefficient of variation of the sum over the repetitions; ``cores`` of each pair, -1 where a
    rank may use several; ``pairs_moved_B``, whose sum is ``moved_bytes``.

    Raises ParseError, also if a pair was measured while another did not send.
    """
    lines, first = sealed_lines(text, _TITLE, "'# mpi_pairs VERSION: COUNT pairs ...'")
    line = partial(matching_line, lines, first)
    title = line(0, _TITLE, "the title")
    library = line(1, _MPI, "'# MPI: NAME'")[1]
    messages = line(2, _MESSAGES, "'# messages: ...'")
    rule = line(3, _REPETITIONS, "'# repetitions: ...'")
    printed = [title[2], *messages.groups(), rule[1]]
    asked = [str(value) for value in (pairs, size, window, repetitions)]
    if printed != asked:
        raise ParseError(f"expected pairs, size, window and repetitions {asked}, found {printed}")
    places = [line(4 + i, _PAIR, f"'# pair {i}: ...'") for i in range(pairs)]
    _check_places(places, first + 4, within)
    at = 4 + pairs
    if lines[at : at + 2] != _HEADING:
        raise ParseError(f"expected the heading {_HEADING}", first + at)
    rows = lines[at + 2 :]
    if len(rows) != len(PATTERNS) * repetitions * pairs:
        due = len(PATTERNS) * repetitions * pairs
        raise ParseError(f"expected {due} rows, found {len(rows)}", first + at + 1)
    least = int(rule[2]) * 1_000_000, int(rule[3])
    table = [_row(text, first + at + 2 + number, least) for number, text in enumerate(rows)]
    keys = [
        (name, repetition, pair)
        for name in PATTERNS
        for repetition in range(repetitions)
        for pair in range(pairs)
    ]
    for number, (key, row) in enumerate(zip(keys, table, strict=True)):
        if (row.pattern, row.repetition, row.pair) != key:
            raise ParseError(f"expected the row of {key}", first + at + 2 + number)
    facts: dict[str, Any] = {
        "version": title[1], "mpi": library, "pairs": pairs, "message_B": size, "window": window,
        "repetitions": repetitions,
        "nodes": list(dict.fromkeys(match[i] for match in places for i in (2, 3))),
        "cores": [[int(match[4]), int(match[5])] for match in places],
        "pairs_MB_s": {}, "scatter_percent": {},
    }  # fmt: skip
    metrics: list[Metric] = []
    per_round = {
        "latency": 2, "pingpong": 2 * size, "uni": size * window, "bi": 2 * size * window,
    }  # fmt: skip
    for index, name in enumerate(PATTERNS):
        start = index * repetitions * pairs
        made = [
            table[start + number * pairs : start + (number + 1) * pairs]
            for number in range(repetitions)
        ]
        metrics += _of_pattern(name, made, per_round[name], facts, "within_" if within else "")
    volumes = [
        sum(row.rounds * per_round[row.pattern] for row in table if row.pair == pair)
        for pair in range(pairs)
    ]
    facts["pairs_moved_B"] = volumes
    return Parsed(metrics=metrics, facts=facts, moved_bytes=sum(volumes))


def _of_pattern(
    pattern: str, made: Sequence[Sequence[_Row]], volume: int, facts: dict[str, Any], prefix: str
) -> list[Metric]:
    """The metrics of the repetitions of a pattern, and its facts. ``volume``: bytes of a round."""
    for number, rows in enumerate(made):
        begun, left = max(row.begin for row in rows), min(row.until for row in rows)
        if any(row.start < begun or left < row.end for row in rows):
            raise ParseError(
                f"in repetition {number} of {pattern} a pair was measured while another did not "
                "send: the network never carried the sum"
            )
    if pattern == "latency":
        trips = [
            fmean((row.end - row.start) / row.rounds / 2000 for row in of_round)
            for of_round in made
        ]
        facts["scatter_percent"][pattern] = _scatter(trips)
        return [lower(f"{prefix}latency_us", median(trips), "us")]
    rates = [
        [1000 * volume * row.rounds / (row.end - row.start) for row in of_round]
        for of_round in made
    ]
    totals = [sum(in_round) for in_round in rates]
    of_pairs = [median(of_pair) for of_pair in zip(*rates, strict=True)]
    facts["pairs_MB_s"][pattern] = of_pairs
    facts["scatter_percent"][pattern] = _scatter(totals)
    seconds = min(row.end - row.start for of_round in made for row in of_round) / 1e9
    total = higher(f"{prefix}{pattern}_MB_s", median(totals), "MB/s")
    slowest = [higher(f"{prefix}slowest_pair_MB_s", min(of_pairs), "MB/s")]
    return [replace(total, seconds=seconds), *(slowest if pattern == "uni" else [])]


def _scatter(values: Sequence[float]) -> float | None:
    """Coefficient of variation in percent; None of one value."""
    return 100 * stdev(values) / fmean(values) if len(values) > 1 else None


def _check_places(places: Sequence[re.Match[str]], first: int, within: bool) -> None:
    for number, match in enumerate(places):
        if int(match[1]) != number:
            raise ParseError(f"expected pair {number}, found pair {match[1]}", first + number)
        if (match[2] == match[3]) != within:
            where = "one node" if within else "two nodes"
            raise ParseError(
                f"expected the ranks of pair {number} on {where}, found {match[2]} and {match[3]}",
                first + number,
            )


def _row(text: str, line: int, least: tuple[int, int]) -> _Row:
    """``least``: ns and rounds that each pair measures."""
    words = text.split(" ")
    if len(words) != 8:
        raise ParseError(f"expected a pattern and seven numbers, found {text!r}", line)
    row = _Row(words[0], *(whole(word, line, "a number") for word in words[1:]))
    if row.rounds < max(least[1], 1) or not row.begin <= row.start < row.end <= row.until:
        text = f"expected rounds, and begin <= start < end <= until, found {text!r}"
        raise ParseError(text, line)
    if row.end - row.start < least[0]:
        raise ParseError(f"expected at least {least[0]} ns, found {row.end - row.start}", line)
    return row
