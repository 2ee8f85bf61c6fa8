"""OSU's ``osu_mbw_mr``: the bandwidth and the message rate of several pairs of ranks at once.

It is not part of ``osu`` because it has other settings, and because the OSU programs of the native
lab, which are in Python, have no such test. ``osu.parse`` reads the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import Field

from seatrial.base.fields import Size
from seatrial.base.suggest import FieldProblem
from seatrial.benchmarks import osu
from seatrial.benchmarks.benchmark import (
    Benchmark,
    DeclaredMetric,
    Job,
    Settings,
    SeveralNodes,
    SiteFacts,
    Step,
    output,
    too_many_cores,
)
from seatrial.benchmarks.limits import Bandwidth
from seatrial.benchmarks.parsing import Parsed, ParseError

_HEADER = re.compile(r"# \[ pairs: (\d+) \] \[ window size: (\d+) \]", re.ASCII)


class MultiPairSettings(Settings):
    """Bandwidth and message rate of pairs of ranks, each with one rank on either node."""

    nodes: SeveralNodes = [2]
    pairs: int = Field(default=2, ge=1, description="pairs at once: ranks on each node")
    max_bytes: Size = Field(default=1 << 20, description="largest message")
    iterations: int = Field(default=100, ge=10, description="of each size")
    window: int = Field(default=64, ge=1, description="messages in flight between two replies")


class MultiPair(Benchmark[MultiPairSettings]):
    name = "osu_mbw_mr"
    Settings = MultiPairSettings
    program = "osu_mbw_mr"
    # The sum of all pairs, which share the interface.
    limits = (Bandwidth("mbw_mr_MB_s"),)

    def steps(self, job: Job) -> list[Step]:
        settings = self.settings
        options = [
            "-p", str(settings.pairs), "-W", str(settings.window), "-m", str(settings.max_bytes),
            "-i", str(settings.iterations), "-x", str(max(1, settings.iterations // 10)),
        ]  # fmt: skip
        command = [*job.program("osu_mbw_mr"), *options]
        return [Step("osu-mbw-mr", command, nodes=2, tasks_per_node=settings.pairs)]

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        return parse(output(step, folder), self.settings)

    def metrics(self) -> dict[str, DeclaredMetric]:
        return osu.declared("mbw_mr", int(self.settings.max_bytes))

    def problems(self, site: SiteFacts) -> Iterator[FieldProblem]:
        yield from too_many_cores("pairs", self.settings.pairs, site)


def parse(text: str, settings: MultiPairSettings) -> Parsed:
    """Read the standard output of a run with ``settings``.

    Metrics and curves are those of ``osu.parse``. ``moved_bytes`` = pairs x window x iterations x
    the sum of the sizes in bytes; the source is ``osu_mbw_mr.c`` of version 7.5, whose ``-i`` holds
    for small and large messages.

    Raises ParseError, also if the program ran with other pairs or another window.
    """
    printed = [match.groups() for match in map(_HEADER.fullmatch, text.splitlines()) if match]
    expected = [(str(settings.pairs), str(settings.window))]
    if printed != expected:
        raise ParseError(f"expected pairs and window {expected[0]}, found {printed}")
    parsed = osu.parse(
        text,
        largest=int(settings.max_bytes),
        iterations=(settings.iterations, settings.iterations),
        window=settings.window,
    )
    facts = {**parsed.facts, "pairs": settings.pairs, "window": settings.window}
    return replace(parsed, facts=facts, moved_bytes=settings.pairs * parsed.moved_bytes)
