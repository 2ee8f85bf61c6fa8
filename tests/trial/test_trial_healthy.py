"""A healthy lab is accepted, every transport proves its path, and the rest of what one trial shows.

One trial for all of this file: it is read from several sides.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from itertools import permutations
from pathlib import Path
from statistics import fmean

import pytest
import typer

from seatrial.base.errors import EXIT_ACCEPTED, EXIT_INCOMPLETE, EXIT_REJECTED
from seatrial.base.names import PSEUDO_TRANSPORTS
from seatrial.base.paths import CHECKOUT
from seatrial.cli.baseline import baseline
from seatrial.cli.judge import judge
from seatrial.cli.report import report
from seatrial.cli.trial_folders import VERDICT_CODES
from seatrial.history.index import opened
from seatrial.plan.model import read_plan
from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.results.folder import RESULTS_FILE, read_results, write_results
from seatrial.results.manifest import MANIFEST
from seatrial.results.requirements import load_requirements
from seatrial.stack import load_stack
from seatrial.trial.run import run_trial
from seatrial_lab.native.machine import LabMachine
from trial_support import MPI, SMALL, Silent, make_site, run_of

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.stack]
REFRAME = str(Path(sys.prefix) / "bin" / "reframe")
#: as the lab's own, but for figures that a busy machine cannot promise
REQUIREMENTS = """
schema: 1
requirements:
  - {select: {check: links}, metric: bandwidth_MB_s, basis: relative, peers: median, at_least: 0.01}
  - {select: {check: netpipe}, metric: latency_us, basis: contract, source: a test,
     at_most: 1000000, unit: us}
  - {select: {check: hpl}, metric: blas_as_declared, basis: contract, source: a test, at_least: 1,
     unit: of 1}
informative:
  - {select: {}, metric: "*", reason: a test}
"""


@pytest.fixture(scope="module")
def sound(trial_lab, workplace):
    """The results of the trial."""
    trial_lab.add_bind(workplace)
    benchmarks = {name: SMALL[name] for name in ("netpipe", "hpl", "tcp_stream", "links")}
    benchmarks["hpl"] = {**benchmarks["hpl"], "transports": ["mpich-ofi"]}
    file = make_site(workplace / "sound", benchmarks, REQUIREMENTS)

    trials = workplace / "sound-trials"
    return run_trial(plan_trial(file, Selection()), file, LabMachine(trial_lab), Silent(), trials)


def test_healthy_lab_is_accepted(sound):
    assert [run.reason for run in sound.runs if run.outcome == "error"] == []
    assert sound.verdict.verdict == "accept", sound.verdict.findings
    assert sound.verdict.counts["pass"] >= len(MPI) + 1
    planned = {case.id for case in sound.trial.cases}
    assert {run.case.id for run in sound.runs} == planned
    assert read_results(sound.folder).verdict == sound.verdict


def test_it_records_what_the_site_declares_of_transports_and_benchmarks(sound):
    trial = read_results(sound.folder).trial
    plan = read_plan(next(sound.folder.rglob("plan.json")))
    used = {case.transport for case in trial.cases} - {*PSEUDO_TRANSPORTS}
    assert {use.name for use in trial.transports} == used
    for use in trial.transports:
        assert use == plan.transports[use.name].declared
        assert plan.transports[use.name].under("default").env.items() >= use.env.items()
    assert trial.benchmarks.keys() == {case.check for case in trial.cases}
    assert trial.benchmarks["netpipe"] == {
        "max_bytes": 1024, "repetitions": 10, "perturbation_bytes": 0,
    }  # fmt: skip


def test_metrics_are_those_that_the_benchmarks_declare(sound):
    plan = read_plan(next(sound.folder.rglob("plan.json")))
    for run in sound.runs:
        declared = plan.benchmark(run.case.check).metrics()
        for metric in run.metrics:
            own = declared[metric.metric]
            marks = {"-": "link", ">": "direction"}
            place = metric.location or ""
            found = [kind for mark, kind in marks.items() if mark in place]
            kind = (found or ["node"])[0] if place else ""
            assert (metric.unit, kind) == (own.unit, own.location), metric
        missing = {name for name, one in declared.items() if not one.optional}
        # veth has no interrupts
        assert missing - {one.metric for one in run.metrics} <= {"interrupts_per_s"}


@pytest.mark.parametrize("transport", MPI)
def test_each_transport_proves_its_path(sound, transport, real_part):
    proof = run_of(sound, "netpipe", transport).path
    assert proof.crossed
    assert proof.network == "test"
    assert re.search(real_part(transport).path_report, proof.reported)
    for counter in proof.counters:
        carried = counter.rx_bytes + counter.tx_bytes
        if counter.network == "test":
            assert carried >= proof.required_bytes > 0
        else:
            assert carried < proof.required_bytes / 2 + 100_000


@pytest.fixture(scope="module")
def real_part():
    return load_stack().transport


def test_plain_sockets_prove_their_path_too(sound):
    for check in ("netpipe", "tcp_stream", "links"):
        assert run_of(sound, check, "tcp").path.crossed
    pairs = run_of(sound, "links", "tcp")
    places = {metric.location for metric in pairs.metrics if metric.metric == "latency_us"}
    assert places == {"n1-n2", "n1-n3", "n1-n4", "n2-n3", "n2-n4", "n3-n4"}
    directions = {metric.location for metric in pairs.metrics if metric.metric == "stream_MB_s"}
    assert directions == {">".join(ends) for place in places
                          for ends in permutations(place.split("-"))}  # fmt: skip


def test_evidence_is_kept_once(sound):
    run = run_of(sound, "netpipe", "mpich-ofi")
    folder = sound.folder / run.evidence
    for name in ("rfm_job.sh", "netpipe.out", "netpipe.n1.json", "netpipe.n2.json", "steps.tsv"):
        assert (folder / name).stat().st_size, name
    assert not (sound.folder / "stage").exists()
    assert not (sound.folder / "output").exists()
    assert not list(sound.folder.glob(".reserve"))
    assert run.job.state == "COMPLETED"
    assert run.job.nodes == ["n1", "n2"]
    assert run.job.benchmark_s > 0
    assert run.versions
    assert run.nic["n1"]["eth1"]["before"]["mtu"] == 1500


@pytest.mark.parametrize(("transport", "expected"), [("openmpi-tcp", True), ("mpich-ofi", False)])
def test_steps_over_pmix_start_with_the_variables_that_suit_slurm(sound, transport, expected):
    script = sound.folder / run_of(sound, "netpipe", transport).evidence / "rfm_job.sh"
    assert ("export SLURM_PMIX_" in script.read_text()) == expected


def test_jobs_run_as_a_normal_user(sound, trial_lab):
    ids = ",".join({run.job.id for run in sound.runs})
    users = trial_lab.run(["sacct", "-X", "-n", "-P", "-j", ids, "-o", "user"], user="root").stdout
    assert set(users.split()) == {trial_lab.spec.user}
    # what the lab's user wrote is given back to who started the trial
    assert {path.stat().st_uid for path in sound.folder.rglob("*")} == {0}


def rules(folder, text):
    file = folder / "other.yaml"
    file.write_text("schema: 1\n" + text)
    return file


INFORMATIVE = 'informative:\n  - {select: {}, metric: "*", reason: a test}\n'


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (INFORMATIVE, EXIT_INCOMPLETE),  # nothing was required, so nothing was accepted
        (
            "requirements:\n  - {select: {check: netpipe}, metric: latency_us, basis: contract, "
            "source: t, at_most: 1000000, unit: us}\n" + INFORMATIVE,
            EXIT_ACCEPTED,
        ),
        (
            # A figure that no load can excuse.
            "requirements:\n  - {select: {check: hpl}, metric: blas_as_declared, basis: contract, "
            "source: t, at_least: 0, at_most: 0, unit: of 1}\n" + INFORMATIVE,
            EXIT_REJECTED,
        ),
        ("requirements: []\n", EXIT_INCOMPLETE),
    ],
)
def test_judge_again_and_report(sound, tmp_path, text, code):
    try:
        with pytest.raises(typer.Exit) as ended:
            judge(sound.folder, rules(tmp_path, text))
        assert ended.value.exit_code == code
        assert VERDICT_CODES[read_results(sound.folder).verdict.verdict] == code
        with pytest.raises(typer.Exit) as ended:
            report(sound.folder, tmp_path / "report")
        assert ended.value.exit_code == code
        assert (tmp_path / "report" / "report.html").stat().st_size > 10_000
        assert len(read_results(sound.folder).runs) == len(sound.runs)  # figures are untouched
    finally:
        with pytest.raises(typer.Exit):
            judge(sound.folder, None)


def test_baseline_accepts_the_trial_it_is_made_of(try_site, place):
    """Contracts stay as they are; the trial passes what is written from its own figures."""
    contract = """  - select: {check: netpipe}
    metric: latency_us
    basis: contract
    source: a test
    at_most: 1000000
    unit: us
"""
    file = make_site(
        place / "site",
        {"netpipe": {**SMALL["netpipe"], "repetitions": 300}},
        f"schema: 1\nrequirements:\n{contract}",
        repeats=3,
    )
    results = try_site(file, transports=("tcp",))
    assert [run.repeat for run in results.runs] == [0, 1, 2]
    assert results.verdict.verdict == "incomplete"  # bandwidth has no requirement yet
    steady(results)
    written = place / "requirements.yaml"
    baseline([results.folder], str(file), written)
    assert contract in written.read_text()
    assert file.with_name("requirements.yaml").read_text().endswith(contract)
    rules = load_requirements(written).rules
    assert {rule.threshold.basis for rule in rules} == {"contract", "baseline"}
    with pytest.raises(typer.Exit) as ended:
        judge(results.folder, written)
    judged = {j.metric: j.verdict for j in read_results(results.folder).judgements}
    assert set(judged.values()) == {"pass"}
    assert {"latency_us", "bandwidth_MB_s"} <= set(judged)
    assert ended.value.exit_code == EXIT_ACCEPTED


def steady(results):
    """Give each repeat the first one's figures, 1 % apart, in the file.

    A busy machine makes figures too noisy for a baseline, which then rightly writes none; how
    noisy is not what this test is about.
    """
    first = {metric.metric: metric.value for metric in results.runs[0].metrics}
    for run in results.runs:
        for metric in run.metrics:
            metric.value = first[metric.metric] * (1 + 0.01 * run.repeat)
    lines = [results.trial, *results.runs, *results.judgements, results.verdict]
    write_results(results.folder / RESULTS_FILE, lines)
    (results.folder / MANIFEST).unlink()  # a changed trial would not be judged


def test_plain_reframe_runs_without_our_command_line(trial_lab, workplace):
    """A ReFrame user needs nothing of ours but the configuration; its database works too."""
    trial_lab.add_bind(workplace)
    site = make_site(workplace / "plain", {"netpipe": SMALL["netpipe"]}, REQUIREMENTS)
    reframe = [
        REFRAME, "-C", str(site.with_name("settings.py")),
        "-c", str(CHECKOUT / "reframe-checks"),
    ]  # fmt: skip
    home = trial_lab.paths.home

    def run(*options):
        done = trial_lab.run([*reframe, *options], cwd=home, timeout=600)
        return done.returncode, done.stdout + done.stderr

    code, said = run("-r", "-n", "NetPIPE", "-p", "mpich-ofi", "--performance-report")
    assert code == 0, said[-3000:]
    assert re.search(r"PASSED.*Ran 1/1 test case", said), said[-3000:]
    assert "latency_us" in said
    code, said = run("--list-stored-sessions")
    assert code == 0
    assert re.search(r"[0-9a-f]{8}-[0-9a-f]{4}", said), said
    code, said = run("--performance-compare=now-1d:now/now-1d:now/mean:/+result")
    assert code == 0, said[-2000:]
    assert "latency_us" in said

    # The performance log has the figures of the database, in ReFrame's default format.
    (row,) = perflog(next((home / "perflogs" / "plain").rglob("NetPIPE.log")))
    code, said = run("--describe-stored-testcases=now-1d:now")
    (case,) = json.loads(said[said.index("[") : said.rindex("]") + 1])
    stored = {key.rpartition(":")[2]: value for key, value in case["perfvalues"].items()}
    assert set(stored) == {"latency_us", "bandwidth_MB_s", "n_half_B"}
    for name, (value, _, _, _, unit, *_) in stored.items():
        assert float(row[f"{name}_value"]) == pytest.approx(value)
        assert row[f"{name}_unit"] == unit
    assert row["result"] == "pass"


def perflog(file: Path) -> list[dict[str, str]]:
    """The rows of a performance log, as tools other than ReFrame read it: by its header."""
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="|"))


def test_number_of_nodes_is_that_of_flexible_allocation(trial_lab, workplace):
    trial_lab.add_bind(workplace)
    site = make_site(workplace / "flexible", {"links": SMALL["links"]}, REQUIREMENTS)
    done = trial_lab.run(
        [REFRAME, "-C", str(site.with_name("settings.py")), "-c", str(CHECKOUT / "reframe-checks"),
         "-r", "-n", "Links", "-S", "Links.num_tasks=0", "--flex-alloc-nodes=3",
         "--performance-report"],
        cwd=trial_lab.paths.home, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    links = set(re.findall(r"latency_us@(n\d-n\d)", done.stdout))
    assert len(links) == 3, done.stdout[-3000:]


def test_reframes_database_has_the_same_means_as_the_history(sound, trial_lab):
    settings = sound.folder / "config" / sound.trial.site / "settings.py"
    trial = f'?trial=="{sound.folder.name}" and rerun=="0"'
    done = trial_lab.run(
        [REFRAME, "-C", str(settings), "--table-format=csv",
         f"--performance-compare={trial}/{trial}/mean:benchmark,num_nodes,sysenv,pvar,punit/"],
        cwd=trial_lab.paths.home, timeout=600,  # as the job user, who ran ReFrame
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout[done.stdout.index("benchmark,") :].splitlines()
    names = ("benchmark", "num_nodes", "sysenv", "pvar", "punit")
    stored = {
        tuple(row[name] for name in names): float(row["pval (mean) (lhs)"])
        for row in csv.DictReader(lines)
        if row["pvar"]
    }

    def key(case, metric, location, unit):
        at = f"@{location}" if location else ""
        system = f"{sound.trial.site}:compute+{case.transport}"
        return case.check, str(case.nodes), system, f"{metric}{at}", unit

    # What a busy machine makes doubtful is a figure for ReFrame, and none for the history.
    doubtful = {
        key(run.case, metric.metric, metric.location, metric.unit)
        for run in sound.runs
        for metric in run.metrics
        if metric.doubt and not sound.trial.is_rerun(run)
    }
    means = {}
    with opened(sound.folder.parent, print) as index:
        for series in index.series():
            (point,) = index.points(series)
            name = key(series.case, series.metric, series.location, series.unit)
            means[name] = pytest.approx(fmean(point.samples))
    assert len(means) > 20
    assert stored.keys() >= doubtful
    assert {name: mean for name, mean in stored.items() if name not in doubtful} == means
