"""Whatever a job user writes into the evidence of a run: no command fails of it, and none hangs."""

from __future__ import annotations

import importlib.util
import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from rich.console import Console

from campaigns import rounds
from hostile import altered, damaged
from seatrial.analysis.trials import analyse
from seatrial.base.errors import InputError
from seatrial.history.entry import read_entry
from seatrial.report import terminal, write_all
from seatrial.results import figures, folder, record
from seatrial.results import judge as judging
from seatrial.results.baseline import make_baseline
from seatrial.results.figures import collect
from seatrial.results.folder import RESULTS_FILE, Results, read_results, write_results
from seatrial.results.judge import judge
from seatrial.results.locations import Locations
from seatrial.results.record import Activity, Case, Metric, Run
from seatrial.results.verdict import conclude, contradiction
from seatrial.trial.collect import _json
from seatrial.trial.rerun import cases_to_rerun, first_nodes
from trial_maker import IMB, NETPIPE, PAIRS, metric, requirements, run, trial

LINKS = Case(check="links", transport="tcp", nodes=300)
#: fields of a run from which something is computed
FIGURES = ("metrics", "curves", "activity", "path", "job", "suspects", "unmeasured")
DEFECT = "a defect of Seatrial"
RULES = """
  - select: {check: netpipe}
    metric: latency_us
    basis: contract
    source: tender 7
    reference: 30.0
    upper: 0.10
    unit: us
  - select: {check: links}
    metric: "*"
    basis: relative
    peers: median
    at_most: 1.5
  - select: {check: imb}
    metric: "*latency_us"
    basis: relative
    relative_to: {check: netpipe, metric: latency_us, transport: tcp}
    at_most: 3.0
    statistic: best
"""


def synthetic() -> Any:
    """The made-up trials of the report's tests, which have every kind of record."""
    file = Path(__file__).parents[1] / "report" / "synthetic.py"
    spec = importlib.util.spec_from_file_location("synthetic_of_report", file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def whole() -> Results:
    """Two runs of each check of a made-up trial, small enough to be changed many times."""
    results: Results = synthetic().incomplete()
    runs: dict[Case, Run] = {}
    for one in results.runs:
        alike = [case for case in runs if case.check == one.case.check]
        if one.outcome == "ran" and one.case not in runs and len(alike) < 2:
            curves = [c.model_copy(update={"points": c.points[:6]}) for c in one.curves[:3]]
            # Most values of a whole run are states of NICs, of which nothing is computed.
            update = {
                "curves": curves, "metrics": one.metrics[:8], "activity": one.activity[:4],
                "nic": dict(list(one.nic.items())[:1]) if len(runs) == 0 else {},
                "nic_proofs": one.nic_proofs[:1],
            }  # fmt: skip
            runs[one.case] = one.model_copy(update=update)
    trial = results.trial.model_copy(update={"cases": list(runs), "reruns": 1})
    return Results(trial=trial, runs=list(runs.values()))


@settings(max_examples=rounds(10, 3000), derandomize=True, database=None, deadline=None)
@given(data=st.data())
def test_nothing_fails_of_hostile_evidence(
    tmp_path_factory: pytest.TempPathFactory, whole: Results, data: st.DataObject
) -> None:
    """Judging, its findings, the report, the analysis, the history and a baseline."""
    folder = tmp_path_factory.mktemp("hostile")
    runs = [*whole.runs]
    for at, one in enumerate(runs):
        before = json.loads(one.model_dump_json())
        figures_of = {name: before[name] for name in FIGURES if before[name]}
        after = {**before, **data.draw(altered(figures_of))}
        if data.draw(st.integers(0, 3)) == 0:
            text = data.draw(damaged(before))
        else:
            text = json.dumps(after)
        try:
            runs[at] = Run.model_validate(_json(text.encode()))
        except (ValueError, RecursionError):
            event("refused")
    rules, file = requirements(RULES), folder / "requirements.yaml"
    judgements = judge(whole.trial, runs, rules)
    verdict = conclude(whole.trial, runs, judgements, rules)
    said = [*verdict.findings, *(judgement.explanation for judgement in judgements)]
    assert not [text for text in said if DEFECT in text]
    cases_to_rerun(whole.trial, judgements, rules)
    first_nodes(runs)
    write_results(folder / RESULTS_FILE, [whole.trial, *runs, *judgements, verdict])
    results = read_results(folder)
    contradiction(results)
    terminal.print_summary(results, Console(file=io.StringIO()))
    terminal.print_analysis(analyse([results]), Console(file=io.StringIO()))
    read_entry(folder)
    if data.draw(st.integers(0, 3)) == 0:
        page, _ = write_all(results)
        assert DEFECT not in page.read_text()
    try:
        make_baseline([results], file, allow_few=True)
    except InputError:
        event("no baseline")


def test_a_location_of_hyphens_takes_no_memory() -> None:
    """It has 65536 splits, each of as many characters."""
    runs = [run(PAIRS, metric(1.0), nodes=["n-1", "n-2"])]
    locations = Locations(runs)
    tracemalloc.start()
    assert locations.ends("-" * (1 << 16)) == ()
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()
    assert locations.ends("n-1-n-2") == ("n-1", "n-2")


def test_the_steps_of_a_run_are_summed_once_for_each_location(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    groups_on = figures._Waits._groups_on

    def counted(self: Any, wanted: frozenset[str]) -> Any:
        asked.append(wanted)
        return groups_on(self, wanted)

    monkeypatch.setattr(figures._Waits, "_groups_on", counted)
    names = [f"m{number}" for number in range(500)]
    one = run(NETPIPE, *(metric(1.0, name) for name in names))
    one.activity = [
        Activity(step=name, node=f"n{number}", seconds=2.0, waited_percent=number / 10)
        for number, name in enumerate(names)
    ]
    one.metrics[3].seconds = 1.0
    own = collect(trial(NETPIPE), [one])[NETPIPE]
    assert len(asked) == 1
    (wait,) = own["m0"][None].waits
    assert wait
    assert (wait.percent, wait.node, wait.part) == (49.9, "n499", figures.PART_OF_STEP)
    (wait,) = own["m3"][None].waits
    assert wait
    assert (wait.node, wait.part) == ("n499", 0.5)


@pytest.mark.nightly(reason="figures of all links of 300 nodes")
def test_300_nodes_with_all_links_are_within_the_bounds() -> None:
    """90,000 directions, with the waits of each pair, and each link with a reason."""
    nodes = [f"n{number}" for number in range(300)]
    pairs = [(a, b) for a in nodes for b in nodes if a != b]
    metrics = [
        Metric(metric="stream_MB_s", value=1.0, unit="MB/s", better="higher", location=f"{a}>{b}")
        for a, b in pairs
    ]
    activity = [Activity(step=f"{a}-{b}", node=a, seconds=1.0) for a, b in pairs]
    unmeasured = {f"{a}>{b}": "no link" for a, b in pairs}
    one = Run(case=LINKS, outcome="ran", metrics=metrics, activity=activity, unmeasured=unmeasured)
    again = Run.model_validate(_json(one.model_dump_json().encode()))
    assert (len(again.metrics), len(again.unmeasured)) == (len(pairs), len(pairs))
    assert 6 * len(pairs) < record.MOST_OF_LOCATION * LINKS.nodes**2  # of metrics for a direction


@pytest.mark.parametrize(
    ("field", "values", "why"),
    [
        ("metrics", [vars_of] * 1200, "metrics has more than 1128 entries, for 2 nodes")
        for vars_of in [{"metric": "m", "value": 1.0, "unit": "us", "better": "lower"}]
    ]
    + [
        ("activity", [{"step": "s", "node": "n1", "seconds": 0.0}], "greater than 0"),
        ("activity", [{"step": "s", "node": "n" * 300, "seconds": 1.0}], "at most 256 characters"),
        ("job", {"ended": "0001-08-01T00:00:00"}, "it is not a time from 1900 to 9998"),
        (
            "metrics",
            [{"metric": "m", "value": 1.0, "unit": "us", "better": "lower", "location": "-" * 600}],
            "at most 513 characters",
        ),
    ],
)
def test_what_no_run_has_is_refused(field: str, values: Any, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Run.model_validate({"case": NETPIPE, "outcome": "ran", field: values})


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_peers_of_which_none_can_be_judged(value: float) -> None:
    runs = [run(PAIRS, *(metric(value, location=at) for at in ("n1-n2", "n1-n3", "n2-n3")))]
    rules = requirements(RULES)
    judgements = judge(trial(PAIRS), runs, rules)
    assert {judgement.verdict for judgement in judgements} == {"error"}
    assert not [judgement for judgement in judgements if DEFECT in judgement.explanation]


def fail_at(case: Case, of: Callable[..., Any]) -> Callable[..., Any]:
    def failing(*args: Any) -> Any:
        if any(
            getattr(one, "case", None) == case
            for arg in args
            for one in (arg if isinstance(arg, list) else [arg])
        ):
            raise ZeroDivisionError("as nobody thought of")
        return of(*args)

    return failing


@pytest.mark.parametrize(("module", "name"), [(judging, "_of_metric"), (judging, "collect")])
def test_an_unexpected_error_is_one_of_its_case(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    """Its clauses are not met, and the other cases have their verdicts."""
    monkeypatch.setattr(module, name, fail_at(NETPIPE, getattr(module, name)))
    runs = [run(NETPIPE, metric(30.0)), run(IMB, metric(31.0, "m", "MB/s", "higher"))]
    the_trial, rules = trial(NETPIPE, IMB), requirements(RULES)
    judgements = judge(the_trial, runs, rules)
    assert {judgement.verdict for judgement in judgements if judgement.case == NETPIPE} == {"error"}
    assert "missing" in {judgement.verdict for judgement in judgements if judgement.case == IMB}
    text = f"{NETPIPE.id} cannot be judged: {DEFECT}, ZeroDivisionError: as nobody thought of"
    assert judgements[0].explanation.startswith(text)
    verdict = conclude(the_trial, runs, judgements, rules)
    assert verdict.verdict == "incomplete"
    assert [clause.status for clause in verdict.clauses] != ["met"]
    assert [finding for finding in verdict.findings if text in finding]


def test_a_line_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "LINE_LIMIT_B", 2000)
    file = tmp_path / RESULTS_FILE
    write_results(file, [trial(NETPIPE)])
    with file.open("a") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(InputError, match=r"results\.jsonl:2: the line has 2000 bytes or more"):
        read_results(tmp_path)
