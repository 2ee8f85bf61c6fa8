"""Figures of an index for other programs: OpenMetrics text, CSV and Parquet.

**OpenMetrics.** All figures are one metric, ``seatrial_figure``, with the name and the unit of the
figure as labels: a value is the number that the report shows, and not one in Prometheus's base
units. With all trials each sample has the time of the begin of its trial, for ``promtool tsdb
create-blocks-from openmetrics``. With the newest trials only there are no times: node_exporter's
textfile collector refuses them.

**CSV and Parquet** have a row for each figure of each trial, in the order of the trials.

Times are UTC. A name that is not valid UTF-8 is written with escapes (``\\udcff``).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from seatrial.base.errors import InputError
from seatrial.base.files import replacing
from seatrial.base.paths import PARQUET_LOCK
from seatrial.history.conditions import NODES, is_of_case, is_setting, plain_name
from seatrial.history.index import Index
from seatrial.history.series import KnownTrial, Point, Series, SeriesKey, newest_of_sites
from seatrial.results import statistics

VERDICTS = ("accept", "reject", "incomplete", "none")  # none: the trial was interrupted
_LONGEST = 120  # characters of the value of a condition as a label; the rest is a checksum
_AT_ONCE = 10_000  # rows of a group of Parquet
_COLUMNS = (
    "trial", "site", "began", "verdict", "check", "variant", "transport", "network", "profile",
    "nodes", "location", "metric", "unit", "better", "value", "spread", "samples", "conditions",
    "notes",
)  # fmt: skip
Patterns = Mapping[str, Sequence[str]]


def export(
    index: Index, style: str, file: Path, patterns: Patterns | None = None, newest: bool = False
) -> int:
    """Write the figures of an index to ``file``, which is replaced as a whole.

    ``style``: openmetrics, csv or parquet. ``patterns`` as in ``Index.series``. ``newest``: only
    the newest trial of each site. Returns the number of figures. Raises InputError if pyarrow is
    missing, OSError.
    """
    trials = index.trials()
    if newest:
        trials = list(newest_of_sites(trials).values())
    writers: dict[str, Callable[[BinaryIO], int]] = {
        "openmetrics": lambda stream: _openmetrics(
            stream, index, trials, dict(patterns or {}), newest
        ),
        "csv": lambda stream: _csv(stream, _rows(index, trials, patterns or {})),
        "parquet": lambda stream: _parquet(stream, _rows(index, trials, patterns or {})),
    }
    if style == "parquet":
        _pyarrow()  # before a file is made
    with replacing(file) as stream:
        return writers[style](stream)


# --- rows ------------------------------------------------------------------------------


def _rows(
    index: Index, trials: Sequence[KnownTrial], patterns: Patterns
) -> Iterator[dict[str, Any]]:
    """A row for each figure: a value for each of ``_COLUMNS``."""
    wanted = {one.key: one for one in index.series(**patterns)}
    for key, _, point in index.points_of(trials):
        if series := wanted.get(key):
            yield {
                "trial": _text(point.trial.folder.name),
                "site": _text(series.site),
                "began": point.trial.started,
                "verdict": point.trial.verdict or "none",
                **_names(series),
                "nodes": series.case.nodes,
                "value": point.value,
                "spread": statistics.spread(point.samples),
                "samples": point.samples,
                "conditions": {_text(k): _text(v) for k, v in sorted(point.conditions.items())},
                "notes": _text("; ".join(point.trial.marks)),
            }


def _names(series: Series) -> dict[str, str]:
    """What distinguishes a series within its site, and its unit."""
    names = {**asdict(series.case), "location": series.location, "metric": series.metric}
    names |= {"unit": series.unit, "better": series.better}
    return {name: _text(str(value)) for name, value in names.items()}


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _csv(stream: BinaryIO, rows: Iterable[dict[str, Any]]) -> int:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    count = 0
    for row in rows:
        writer.writerow(
            {
                **row,
                "began": row["began"].isoformat(),
                "samples": " ".join(map(repr, row["samples"])),
                "conditions": json.dumps(row["conditions"], ensure_ascii=False),
            }
        )
        count += 1
    text.detach()
    return count


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "Parquet needs pyarrow, which is not installed: "
            f".venv/bin/pip install --require-hashes -r {PARQUET_LOCK.name}"
        ) from None
    return pyarrow


def _parquet(stream: BinaryIO, rows: Iterator[dict[str, Any]]) -> int:
    arrow = _pyarrow()
    special = {
        "began": arrow.timestamp("us", tz="UTC"),
        "nodes": arrow.int32(),
        "value": arrow.float64(),
        "spread": arrow.float64(),
        "samples": arrow.list_(arrow.float64()),
        "conditions": arrow.map_(arrow.string(), arrow.string()),
    }
    schema = arrow.schema([(name, special.get(name, arrow.string())) for name in _COLUMNS])
    count = 0
    with arrow.parquet.ParquetWriter(stream, schema) as writer:
        while some := list(islice(rows, _AT_ONCE)):
            count += len(some)
            for row in some:
                row["conditions"] = list(row["conditions"].items())
            writer.write_table(arrow.Table.from_pylist(some, schema))
    return count


# --- OpenMetrics -------------------------------------------------------------------------


class _Samples:
    """Writes metrics with their samples.

    OpenMetrics wants the samples of a series side by side, and at times that increase.
    """

    def __init__(self, stream: BinaryIO, with_times: bool):
        self.stream, self.with_times = stream, with_times

    def metric(self, name: str, help_text: str) -> None:
        self.stream.write(f"# HELP {name} {help_text}\n# TYPE {name} gauge\n".encode())

    def series(
        self, name: str, labels: Mapping[str, str], values: Iterable[tuple[datetime, float]]
    ) -> int:
        """Write the values of one series, in the order of their times. Returns their number."""
        inner = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
        count, last = 0, -math.inf
        for time, value in values:
            # Of two trials that began at the same time Prometheus would refuse one.
            last = max(round(time.timestamp() * 1000), last + 1)
            end = f" {last / 1000:.3f}" if self.with_times else ""
            self.stream.write(f"{name}{{{inner}}} {_number(value)}{end}\n".encode())
            count += 1
        return count


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else "+Inf" if value > 0 else "-Inf"


def _openmetrics(
    stream: BinaryIO, index: Index, trials: Sequence[KnownTrial], patterns: Patterns, newest: bool
) -> int:
    samples = _Samples(stream, with_times=not newest)
    count = 0
    with tempfile.TemporaryFile() as held:  # the samples of a metric are side by side
        spreads = _Samples(held, with_times=not newest)
        samples.metric(
            "seatrial_figure",
            "A figure, the median of the planned repeats, in the unit of the label.",
        )
        spreads.metric("seatrial_figure_spread", "Robust standard deviation of the repeats.")
        points_of = _points_of(index, trials, newest)
        for series in index.series(**patterns):
            points, labels = points_of(series), _labels(series)
            values = ((point.trial.started, point.value) for point in points)
            count += samples.series("seatrial_figure", labels, values)
            both = ((p.trial.started, statistics.spread(p.samples)) for p in points)
            known = ((time, value) for time, value in both if value is not None)
            spreads.series("seatrial_figure_spread", labels, known)
        held.seek(0)
        shutil.copyfileobj(held, stream)
    _of_trials(samples, index, trials)
    stream.write(b"# EOF\n")
    return count


def _points_of(
    index: Index, trials: Sequence[KnownTrial], newest: bool
) -> Callable[[Series], list[Point]]:
    """A function that returns the points of a series: of all trials, or of a few newest ones."""
    if not newest:
        return index.points
    points: dict[SeriesKey, list[Point]] = {}
    for key, _, point in index.points_of(trials):
        points.setdefault(key, []).append(point)
    return lambda series: points.get(series.key, [])


def _labels(series: Series) -> dict[str, str]:
    return {"site": _text(series.site), "case": _text(series.case.id), **_names(series)}


def _of_trials(samples: _Samples, index: Index, trials: Sequence[KnownTrial]) -> None:
    sites: dict[str, list[KnownTrial]] = {}
    for trial in trials:
        sites.setdefault(trial.site, []).append(trial)
    samples.metric("seatrial_trial_verdict", "1 for the verdict of the trial, else 0.")
    for site, of_site in sites.items():
        for verdict in VERDICTS:
            labels = {"site": _text(site), "verdict": verdict}
            values = [
                (trial.started, float((trial.verdict or "none") == verdict)) for trial in of_site
            ]
            samples.series("seatrial_trial_verdict", labels, values)
    samples.metric("seatrial_trial_figures", "Number of figures of the trial.")
    for site, of_site in sites.items():
        counts = [(trial.started, float(trial.figures)) for trial in of_site]
        samples.series("seatrial_trial_figures", {"site": _text(site)}, counts)
    samples.metric("seatrial_trial_unproven", "1 if the trial has no SHA256SUMS, else 0.")
    for site, of_site in sites.items():
        marks = [(trial.started, float(not trial.proven)) for trial in of_site]
        samples.series("seatrial_trial_unproven", {"site": _text(site)}, marks)
    samples.metric("seatrial_trial_start_timestamp_seconds", "Begin of the trial, Unix time.")
    for site, of_site in sites.items():
        times = [(trial.started, trial.started.timestamp()) for trial in of_site]
        samples.series("seatrial_trial_start_timestamp_seconds", {"site": _text(site)}, times)
    conditions = _conditions(index, trials)
    for name, help_text, keys in (
        ("condition", "1 for each version that a case of the trial had.", ("condition", "value")),
        ("setting", "1 for each setting that a NIC profile of the trial declared.",
         ("profile", "setting", "value")),
    ):  # fmt: skip
        samples.metric(f"seatrial_{name}_info", help_text)
        for site, of_site in sites.items():
            of_labels: dict[tuple[str, ...], list[tuple[datetime, float]]] = {}
            for trial in of_site:
                for words in conditions.get(trial.id, ()):
                    if len(words) == len(keys):
                        of_labels.setdefault(words, []).append((trial.started, 1.0))
            for words, at in sorted(of_labels.items()):
                labels = {"site": _text(site), **dict(zip(keys, words, strict=True))}
                samples.series(f"seatrial_{name}_info", labels, at)


def _conditions(index: Index, trials: Sequence[KnownTrial]) -> dict[int, set[tuple[str, ...]]]:
    """Trial's number -> labels of its conditions: condition and value, or profile ("": it is of a
    transport or a benchmark), setting and value. The nodes differ between the cases of a trial, and
    say nothing of the trial."""
    profiles = {series.case.id: series.case.profile for series in index.series()}
    result: dict[int, set[tuple[str, ...]]] = {}
    for (trial, case), conditions in index.conditions([one.id for one in trials]).items():
        labels = result.setdefault(trial, set())
        for name, value in conditions.items():
            words = (_text(plain_name(name)), _short(_text(value)))
            if is_setting(name):
                profile = "" if is_of_case(name) else profiles.get(case)
                labels.update([] if profile is None else [(_text(profile), *words)])
            elif name != NODES:
                labels.add(words)
    return result


def _short(value: str) -> str:
    """A value that fits a label. Of two that differ, the results do."""
    if len(value) <= _LONGEST:
        return value
    return f"{value[:_LONGEST]}... ({hashlib.sha256(value.encode()).hexdigest()[:12]})"
