"""A real Prometheus answers with the exported figures, and to the queries of the dashboard.

It runs on loopback, with a port of its own, and ends with the tests. Grafana itself is not run.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from history_support import LINKS, NETPIPE, make_night, runs_of
from prometheus_server import START_S, Server, key, make_blocks, running
from seatrial.base.paths import CHECKOUT
from seatrial.history.export import export
from seatrial.history.index import opened
from seatrial.results import statistics
from seatrial.results.record import ProfileUse

pytestmark = pytest.mark.prometheus

DASHBOARD = CHECKOUT / "ci" / "pipelines" / "grafana-dashboard.json"
NIGHTS = 20
FROM = datetime.now(UTC).replace(hour=1, minute=0, second=0, microsecond=0) - timedelta(days=NIGHTS)
ODD = 'n1 "quoted" \\ and\na line é'


@dataclass
class Nights(Server):
    """A Prometheus, and the trials whose figures it has."""

    trials: Path

    def instant(self, expression: str, at: datetime | None = None) -> list[dict[str, Any]]:
        return super().instant(expression, at or FROM + timedelta(days=NIGHTS - 1, hours=1))


def make_trials(folder: Path) -> None:
    for number in range(NIGHTS):
        kernel = "6.1" if number < 15 else "6.12"
        factor = 1 if number < 15 else 1.25
        runs = [
            *runs_of(NETPIPE, "latency_us", [(29.7 + number / 7) * factor, 31.3 * factor],
                     versions={"kernel": kernel}),
            *runs_of(LINKS, "stream_MB_s", [117.3 - number / 3], "MB/s", "higher", "n1>n2"),
            *runs_of(LINKS, "stream_MB_s", [1e-9 * number], "MB/s", "higher", ODD),
        ]  # fmt: skip
        usecs = {"coalesce.rx-usecs": 125 if number < 15 else 50, "label": ODD}
        node = {"eth1": {"mtu": 1500, **usecs}}
        profiles = [
            ProfileUse(name="default", settings={"n1": node, "n2": node}),
            ProfileUse(name="jumbo", settings={"n1": {"eth1": {"mtu": 9000}}}),
        ]
        make_night(folder, number, (1, 2), runs=runs, started=FROM + timedelta(days=number),
                   profiles=profiles)  # fmt: skip


@contextlib.contextmanager
def pages(folder: Path) -> Iterator[int]:
    """A web server of the files of a folder, as node_exporter would be; its port."""

    class Quiet(SimpleHTTPRequestHandler):
        extensions_map = {".prom": "text/plain; version=0.0.4"}  # noqa: RUF012

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nights]:
    """Prometheus with all nights by backfill, which also scrapes the newest night."""
    folder = tmp_path_factory.mktemp("prometheus")
    trials, data, web = folder / "trials", folder / "data", folder / "web"
    make_trials(trials)
    web.mkdir()
    with opened(trials, print) as index:
        export(index, "openmetrics", folder / "all.om")
        export(index, "openmetrics", web / "seatrial.prom", newest=True)
    make_blocks(folder / "all.om", data)
    with pages(web) as port:
        config = (
            "scrape_configs:\n  - {job_name: node, scrape_interval: 1s, metrics_path: "
            f"/seatrial.prom, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}\n"
        )
        with running(folder, data, config) as url:
            yield Nights(url, trials)


def test_promtool_accepts_the_newest_figures(tmp_path):
    make_trials(tmp_path / "trials")
    with opened(tmp_path / "trials", print) as index:
        export(index, "openmetrics", tmp_path / "new.prom", newest=True)
    text = (tmp_path / "new.prom").read_bytes()
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def series_of(server: Nights):
    with opened(server.trials, print) as index:
        return {
            (one.case.id, one.metric, one.location): index.points(one) for one in index.series()
        }


def test_it_answers_with_the_same_figures_at_the_same_times(server):
    for name, value_of in (
        ("seatrial_figure", lambda point: point.value),
        ("seatrial_figure_spread", lambda point: statistics.spread(point.samples)),
    ):
        answer = server.instant(f'{name}{{job=""}}[{NIGHTS + 1}d]')
        got = {
            key(one["metric"]): [(time, float(value)) for time, value in one["values"]]
            for one in answer
        }
        expected = {
            name: [(p.trial.started.timestamp(), value_of(p)) for p in points]
            for name, points in series_of(server).items()
            if value_of(points[0]) is not None
        }
        assert got == expected
        assert len(expected) == (3 if name == "seatrial_figure" else 1)


def test_labels_are_those_of_the_case(server):
    (one,) = server.instant('last_over_time(seatrial_figure{metric="latency_us",job=""}[1d])')
    assert one["metric"] == {
        "__name__": "seatrial_figure",
        "site": "lab", "case": NETPIPE.id, "check": "netpipe", "transport": "tcp",
        "profile": "default", "nodes": "2", "metric": "latency_us", "unit": "us", "better": "lower",
    }  # fmt: skip


def test_it_scrapes_the_newest_figures(server):
    deadline = time.monotonic() + START_S
    while True:
        answer = server.instant('seatrial_figure{job="node"}', datetime.now(UTC))
        if answer or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    got = {key(one["metric"]): float(one["value"][1]) for one in answer}
    assert got == {name: points[-1].value for name, points in series_of(server).items()}


# --- the dashboard -----------------------------------------------------------------------


def dashboard() -> dict[str, Any]:
    return json.loads(DASHBOARD.read_text())


def filled(text: str) -> str:
    """A query with the values of the variables, as Grafana fills them in: all cases of a site."""
    values = {"site": "lab"}
    for one in dashboard()["templating"]["list"]:
        if one["type"] == "textbox":
            values[one["name"]] = one["query"]
        elif one.get("includeAll"):
            values[one["name"]] = one["allValue"]
    return re.sub(r"\$(\w+)", lambda match: values[match[1]], text).replace(
        "seatrial_figure{", 'seatrial_figure{job="",'
    )


def queries() -> list[tuple[str, str]]:
    board = dashboard()
    marks = [(one["name"], one["expr"]) for one in board["annotations"]["list"]]
    return marks + [(p["title"], t["expr"]) for p in board["panels"] for t in p["targets"]]


@pytest.mark.parametrize(("title", "expression"), queries(), ids=lambda text: text[:30])
def test_each_query_of_the_dashboard_has_an_answer(server, title, expression):
    end = FROM + timedelta(days=NIGHTS - 1, hours=1)
    words = {"start": (FROM + timedelta(days=1)).timestamp(), "end": end.timestamp(), "step": 21600}
    answer = server.ask("query_range", query=filled(expression), **words)["result"]
    assert answer, f"{title}: no answer to {filled(expression)}"


def test_the_answers_of_the_dashboard_are_right(server):
    expressions = dict(queries())
    figures = server.instant(filled(expressions["Figures"]))
    assert {key(figure["metric"]): float(figure["value"][1]) for figure in figures} == {
        name: points[-1].value for name, points in series_of(server).items()
    }
    (verdict,) = server.instant(filled(expressions["Verdict of the newest trial"]))
    assert verdict["metric"]["verdict"] == "accept"
    worst = server.instant(
        filled(expressions["Worst changes against the mean of the $window before"])
    )
    ratios = {key(one["metric"]): float(one["value"][1]) for one in worst}
    for name, points in series_of(server).items():
        values = [point.value for point in points]
        # the mean of the 14 days before the night before, by 26 hours
        before = values[-16:-2]
        ratio = values[-1] / (sum(before) / len(before))
        worse = ratio if name[1] == "latency_us" else 1 / ratio
        assert ratios[name] == pytest.approx(worse)
    at = FROM + timedelta(days=15, hours=1)
    marks = server.instant(filled(expressions["New versions"]), at)
    assert [(mark["metric"]["condition"], mark["metric"]["value"]) for mark in marks] == [
        ("kernel", "6.12")
    ]
    assert server.instant(filled(expressions["New versions"]), at - timedelta(days=1)) == []
    marks = server.instant(filled(expressions["New settings"]), at)
    labels = "profile", "setting", "value"
    assert [tuple(mark["metric"][name] for name in labels) for mark in marks] == [
        ("default", "coalesce.rx-usecs of eth1", "50")
    ]
    assert server.instant(filled(expressions["New settings"]), at - timedelta(days=1)) == []
    newest = server.instant(filled(expressions["Settings"]))
    assert {tuple(one["metric"][name] for name in labels) for one in newest} == {
        ("default", "coalesce.rx-usecs of eth1", "50"), ("default", "label of eth1", ODD),
        ("default", "mtu of eth1", "1500"), ("jumbo", "mtu of eth1", "9000"),
    }  # fmt: skip


def test_the_variables_of_the_dashboard_have_values(server):
    answers = {}
    for one in dashboard()["templating"]["list"]:
        if one["type"] != "query":
            continue
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", one["query"])
        assert match, one["query"]
        words = {"match[]": filled(match[1]), "start": FROM.timestamp()}
        answers[one["name"]] = server.ask(f"label/{match[2]}/values", **words)
    series = series_of(server)
    assert answers == {
        "site": ["lab"],
        "case": sorted({case for case, _, _ in series}),
        "metric": sorted({metric for _, metric, _ in series}),
        "location": sorted({location for _, _, location in series if location}),
    }


def test_the_dashboard_can_be_imported():
    """What an import needs: panels that do not overlap, with identifiers and a chosen source."""
    board = dashboard()
    cells = [
        (x, y)
        for panel in board["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    variables = [one["name"] for one in board["templating"]["list"]]
    used = set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text())) - {"__all"}
    assert used == set(variables)
