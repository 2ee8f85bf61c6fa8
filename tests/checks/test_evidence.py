"""The records of a job's files: complete, damaged and missing ones. No ReFrame, no Slurm."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from seatrial.benchmarks.limits import Known, Latency, Rate
from seatrial.benchmarks.parsing import Parsed, ParseError
from seatrial.checks import evidence
from seatrial.results.figures import is_valid
from seatrial.results.record import Counters, Metric, PathProof
from seatrial.stack.model import Package

LINE = "net\t100.5\t103.0\t0\t60\n"
STEP = SimpleNamespace(
    name="net",
    nodes=2,
    variant="",
    location=None,
    proves_path=True,
    may_lose_nodes=False,
    command=["net"],
    node_numbers=[],
)


def side(node, count, time=1.0):
    data = dict.fromkeys(("rx_bytes", "tx_bytes", "rx_packets", "tx_packets"), count)
    return {
        "node": node, "boot_id": "b", "time": time, "interrupts": {"eth1": None},
        "interfaces": {"eth1": {"network": "test", **data},
                       "eth0": {"network": "mgmt", **dict.fromkeys(data, 5)}},
    }  # fmt: skip


def node_file(folder, node, moved=1000, exit_code=0):
    data = {"step": "net", "before": side(node, 10), "after": side(node, 10 + moved, 2.0),
            "exit_code": exit_code, "mapped": []}  # fmt: skip
    (folder / f"net.{node}.json").write_text(json.dumps(data))


class FakeCheck:
    """A check with the attributes that ``collect`` uses."""

    own_benchmark = SimpleNamespace(
        proves_path=True,
        limits=(Latency("latency_us"),),
        of_several_steps=(),
        activity_metrics=False,
    )
    num_nodes = 2
    network, case_network = "test", ""
    planned_transport = SimpleNamespace(
        path_report=r"^via ", data_path="kernel", versions={}, packages={}
    )

    benchmark, transport, profile_name, repeat = "netpipe", "tcp", "default", 0
    interface, nodes_share_kernel = "eth1", False
    tested_interfaces = ("eth1", "eth2")
    line_MB_s = 0.0

    def __init__(self, parse=None):
        self._parse = parse

    def known(self, nodes):
        lines = {"eth1": Rate(self.line_MB_s, "a slow line")} if self.line_MB_s else {}
        return Known("eth1", lines)

    def parse(self, step, folder):
        if self._parse:
            raise self._parse
        metric = Metric(metric="latency_us", value=1, unit="us", better="lower")
        return Parsed(metrics=[metric], curves=[], facts={}, moved_bytes=1500)


@pytest.fixture
def job(tmp_path):
    (tmp_path / "steps.tsv").write_text(LINE)
    (tmp_path / "net.out").write_text("table\n")
    (tmp_path / "net.n1.0.report").write_text("hello\nvia eth1\n")
    for node in ("n1", "n2"):
        node_file(tmp_path, node)
    return tmp_path


def collected(job, parse=None):
    return evidence.collect(FakeCheck(parse), STEP, job)


def test_whole(job):
    result = collected(job)
    assert (result.reason, result.seconds) == ("", 2.5)
    assert result.benchmark_s == 1.0  # the program's; the rest is Slurm's and the verification's
    assert result.proof.crossed
    assert result.proof.reported == "via eth1"


class ThreeLinks(FakeCheck):
    """Links in rounds; the link of a node that another failed with is the node's."""

    def parse(self, step, folder):
        metrics = [
            Metric(metric="latency_us", value=1, unit="us", better="lower", location=location)
            for location in ("n1-n2", "n1>n3", "n2-n3", "n3>n2")
        ]
        reasons = {"n1-n3": "timed out", "n4": "it did not answer"}
        return Parsed(metrics=metrics, moved_bytes=900, unmeasured=reasons, absent=["n4"])


@pytest.mark.parametrize("alone", [False, True])
def test_a_node_that_lost_its_link_does_not_cost_the_links_of_others(job, alone):
    node_file(job, "n3")
    for node in ("n1", "n2", "n3"):
        data = json.loads((job / f"net.{node}.json").read_text())
        data["before"]["interfaces"]["eth1"]["errors"] = {"carrier_down_count": 2}
        lost = 3 if node == "n3" or (alone and node == "n2") else 2
        data["after"]["interfaces"]["eth1"]["errors"] = {"carrier_down_count": lost}
        (job / f"net.{node}.json").write_text(json.dumps(data))
    step = SimpleNamespace(**{**vars(STEP), "nodes": 4, "may_lose_nodes": True})
    result = evidence.collect(ThreeLinks(), step, job)
    reason = "n3: eth1 (test) lost its link during the step, and is up again"
    if alone:
        assert result.phase == "link"
        assert reason in result.reason
        return
    assert (result.phase, result.reason) == ("", "")
    assert [metric.location for metric in result.parsed.metrics] == ["n1-n2"]
    assert result.parsed.unmeasured == {"n4": "it did not answer", "n3": reason}


@pytest.mark.parametrize(
    "text",
    ["", "other\t1\t2\t0\t60\n", "net\t1\t2\t0\n", "net\t1\t2\t0\t6", "net\tx\t2\t0\t60\n",
     "net\t1\t2\t\t60\n", "\x00\x00"],
)  # fmt: skip
def test_damaged_steps(job, text):
    (job / "steps.tsv").write_text(text)
    (job / "rfm_job.err").write_text("slurmstepd: error: no space left\n")
    result = collected(job)
    assert result.phase == "run"
    assert "the job ended before step net did" in result.reason
    assert "no space left" in result.reason
    (job / "steps.tsv").unlink()
    assert collected(job).reason == result.reason


def test_node_that_died_with_the_script_of_the_job(job):
    """The first node: the others wrote their records, and nobody the line of the step."""
    (job / "steps.tsv").unlink()
    (job / "job_nodes.txt").write_text("n1\nn2\n")
    (job / "net.n1.json").unlink()
    assert "the job ended before step net did: n1 wrote no record of it, 1 other node did" in (
        collected(job).reason
    )
    (job / "net.n2.json").unlink()
    assert "record" not in collected(job).reason


def test_whole_line_among_damaged_ones(job):
    (job / "steps.tsv").write_bytes(b"\xff\xfe\n" + LINE.encode() + b"late\t1")
    assert collected(job).reason == ""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("net\t0\t60.1\t124\t60\n", "ended after its limit of 60 s"),
        ("net\t0\t65.1\t137\t60\n", "ended after its limit of 60 s"),
        ("net\t0\t3\t137\t60\n", "was ended by SIGKILL"),  # not by the limit: perhaps out of memory
        ("net\t0\t3\t124\t60\n", "exited with code 124"),
        ("net\t0\t3\t3\t60\n", "exited with code 3"),
        ("net\t0\t3\t139\t60\n", "was ended by SIGSEGV"),
    ],
)
def test_how_a_step_ended(job, line, words):
    (job / "steps.tsv").write_text(line)
    (job / "net.err").write_text("last words\n")
    result = collected(job)
    assert result.phase == "run"
    assert words in result.reason
    assert "limit" in words or "last words" in result.reason


def test_lines_of_the_program_come_before_those_of_slurm(job):
    (job / "steps.tsv").write_text("net\t0\t3\t3\t60\n")
    (job / "net.err").write_text("out of luck\nsrun: error: n1: task 0: Exited\nsrun: Force\n")
    assert collected(job).reason.endswith("out of luck")


def test_the_node_that_failed_first_is_named(job):
    (job / "steps.tsv").write_text("net\t0\t3\t143\t60\n")
    node_file(job, "n1", exit_code=-15)
    node_file(job, "n2", exit_code=-11)
    assert "failed on n2, where it was ended by SIGSEGV" in collected(job).reason


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"step": "net"}', '{"step": "net", "before": 1, "after": {}, "mapped": []}',
     "\x00"],
)  # fmt: skip
def test_damaged_node_file_is_no_proof(job, text):
    (job / "net.n2.json").write_text(text)
    result = collected(job)
    assert result.phase == "path"
    assert "ran on 1 of 2 nodes (counters of: n1)" in result.reason
    (job / "net.n1.json").unlink()
    assert "counters of: none" in collected(job).reason


def test_a_node_more_than_planned_is_no_proof(job):
    data = json.loads((job / "net.n2.json").read_text())
    for when in ("before", "after"):
        data[when]["node"] = "n3"
    (job / "net.n3.json").write_text(json.dumps(data))
    assert "ran on 3 of 2 nodes (counters of: n1, n2, n3)" in collected(job).reason


@pytest.mark.parametrize("reading", [5, {"errors": []}, {"errors": None}, {"errors": {"a": "9"}}])
def test_a_reading_that_a_job_user_wrote_is_no_proof(job, reading):
    data = json.loads((job / "net.n2.json").read_text())
    data["after"]["interfaces"]["eth1"] = reading
    (job / "net.n2.json").write_text(json.dumps(data))
    assert "ran on 1 of 2 nodes (counters of: n1)" in collected(job).reason


def test_node_file_cut_off_anywhere(job):
    """All truncations, and random bytes: an error or a proof, never an exception."""
    whole = (job / "net.n2.json").read_bytes()
    for end in range(0, len(whole), 7):
        (job / "net.n2.json").write_bytes(whole[:end])
        assert collected(job).phase == "path"
    chance = random.Random(1)
    for _ in range(100):
        text = bytearray(whole)
        text[chance.randrange(len(text))] = chance.randrange(256)
        (job / "net.n2.json").write_bytes(bytes(text))
        assert collected(job).phase in ("", "path")


def test_too_little_on_the_network(job):
    node_file(job, "n2", moved=100)
    result = collected(job)
    assert result.phase == "path"
    assert "n2" in result.reason


def test_each_network_that_was_used_at_once_needs_its_volume(job):
    class TwoRails(FakeCheck):
        beside = 10

        def parse(self, step, folder):
            return replace(super().parse(step, folder), moved_beside={"mgmt": self.beside})

    check = TwoRails()
    result = evidence.collect(check, STEP, job)
    assert result.phase == "path"
    assert "eth0 carried 0 B of the 10 B that net moved" in result.reason
    check.beside = 0
    assert evidence.collect(check, STEP, job).proof.network == "test"


def test_a_lost_link_of_a_network_that_was_used_at_once(job):
    class TwoRails(FakeCheck):
        def parse(self, step, folder):
            parsed = super().parse(step, folder)
            return replace(parsed, moved_bytes=0, moved_beside={"mgmt": 10})

    for node in ("n1", "n2"):
        read = json.loads((job / f"net.{node}.json").read_text())
        read["after"]["interfaces"]["eth0"]["rx_bytes"] += 20
        (job / f"net.{node}.json").write_text(json.dumps(read))
    result = evidence.collect(TwoRails(), STEP, job)
    assert (result.reason, result.proof.network) == ("", "mgmt")
    read["after"]["interfaces"]["eth0"]["link"] = "down"
    (job / "net.n2.json").write_text(json.dumps(read))
    result = evidence.collect(TwoRails(), STEP, job)
    assert (result.phase, result.reason) == ("link", "step net: n2: eth0 (mgmt) has no link")


@pytest.mark.parametrize("error", [ParseError("no table"), FileNotFoundError("net.err")])
def test_output_that_cannot_be_parsed(job, error):
    result = collected(job, error)
    assert result.phase == "sanity"
    assert str(error) in result.reason


def test_an_impossible_figure_is_an_error_and_stays_in_the_record(job, monkeypatch):
    monkeypatch.setattr(FakeCheck, "line_MB_s", 12.5)
    result = collected(job)
    assert result.phase == "limit"
    run = evidence.make_run(FakeCheck(), "", [result])
    assert (run.outcome, run.phase) == ("error", "limit")
    assert run.reason == (
        "step net: latency_us is 1 us, below its physical limit of 5.755 us "
        "(the time of a frame of 72 B at a slow line)"
    )
    (metric,) = run.metrics
    assert (metric.value, metric.impossible) == (1, run.reason.removeprefix("step net: "))
    assert not is_valid(run)


def test_a_figure_without_a_limit_says_so_once(job):
    run = evidence.make_run(FakeCheck(), "", [collected(job)])
    assert run.outcome == "ran"
    sentence = "no physical limit of latency_us: the line rate of eth1 is not known"
    assert run.facts["not limited"] == [sentence]


@pytest.mark.parametrize(
    ("steps", "location", "of_several", "expected"),
    [
        (1, None, (), ""),
        (2, None, (), "net"),
        (2, None, ("latency_us",), ""),
        (2, "nodes", (), ""),
    ],
)
def test_a_figure_of_a_run_of_several_steps_names_its_step(
    job, monkeypatch, steps, location, of_several, expected
):
    monkeypatch.setattr(FakeCheck.own_benchmark, "of_several_steps", of_several)
    step = SimpleNamespace(**{**vars(STEP), "location": location})
    run = evidence.make_run(FakeCheck(), "", [evidence.collect(FakeCheck(), step, job)] * steps)
    (metric,) = run.metrics
    assert metric.step == expected


def proof(crossed=True, node="n1", volume=10, interrupts: int | None = 1, reported=""):
    counted = Counters(
        node=node, interface="eth1", network="test", rx_bytes=volume, tx_bytes=volume,
        rx_packets=1, tx_packets=1, interrupts=interrupts,
    )  # fmt: skip
    return PathProof(network="test", required_bytes=volume, counters=[counted], crossed=crossed,
                     reason="" if crossed else f"not on {node}", reported=reported)  # fmt: skip


def test_combine():
    assert evidence.combine([]) is None
    whole = evidence.combine([proof(), proof(volume=5, reported="via"), proof(node="n2")])
    assert whole.crossed
    assert whole.required_bytes == 25
    assert whole.reported == "via"
    first, second = whole.counters
    assert (first.node, first.rx_bytes, first.interrupts) == ("n1", 15, 2)
    assert (second.node, second.rx_bytes) == ("n2", 10)
    bad = evidence.combine([proof(), proof(crossed=False, node="n2")])
    assert (bad.crossed, bad.reason) == (False, "not on n2")


def test_best_of():
    def metric(value, better, location=None):
        return Metric(metric="m", value=value, unit="u", better=better, location=location)

    lower = [metric(v, "lower") for v in (3, 1, 2)]
    higher = [metric(v, "higher", "n1") for v in (3, 1, 4)]
    assert [m.value for m in evidence.best_of(lower + higher)] == [1, 4]


def test_versions_name_what_differs_between_the_nodes():
    def node(version, firmware=None):
        eth1 = {"driver": "igb", "version": version, "firmware": firmware}
        return {"after": {"kernel": "6.1", "interfaces": {"eth1": eth1, "lo": {}}}}

    steps = [
        evidence.StepEvidence(STEP, nodes=[node("5.1", "1.2"), node("5.2")]),
        evidence.StepEvidence(STEP, nodes=[node("5.1", "1.2"), node(["5"])]),  # by a job user
    ]
    assert evidence.driver_versions(steps) == {
        "kernel": "6.1", "driver of eth1": "igb 5.1, igb 5.2, igb ['5']", "firmware of eth1": "1.2",
    }  # fmt: skip
    assert evidence.driver_versions([]) == {}


def test_hashes_of_the_packages_of_the_steps():
    packages = {
        name: Package(name=name, version="1", spec="", hash=digest, prefix=f"/opt/{name}-1")
        for name, digest in (("npb", "abc"), ("npbx", "def"))
    }
    check = SimpleNamespace(planned_transport=SimpleNamespace(packages=packages))
    step = SimpleNamespace(command=["/usr/bin/env", "A=1", "/opt/npb-1/bin/is.S.x"])
    assert evidence.packages_used(check, [evidence.StepEvidence(step)]) == {"npb": "1/abc"}


def failed_steps(*pairs, passed=()):
    """The evidence of steps between the numbered nodes; those of ``passed`` have no reason."""
    return [
        evidence.StepEvidence(STEP, [f"n{number}" for number in pair], reason=reason)
        for group, reason in ((pairs, "failed"), (passed, ""))
        for pair in group
    ]


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        (
            failed_steps((1, 2), (1, 3), (1, 4), passed=[(2, 3), (2, 4), (3, 4)]),
            "node n1 is common to all 3 failed steps",
        ),
        (failed_steps((1, 2), passed=[(2, 3)]), ""),  # either of two nodes
        (failed_steps((1, 2), (1, 3), passed=[(1, 4)]), ""),  # n1 works elsewhere
        (failed_steps((1, 2), (3, 4)), ""),
        (failed_steps((), ()), ""),  # all nodes of the job
    ],
)
def test_the_node_that_all_failed_steps_have(steps, sentence):
    assert evidence.common_node(steps) == sentence


def test_a_failed_step_names_the_nodes_that_it_selects(job):
    (job / "job_nodes.txt").write_text("n7\nn8\nn9\n")
    (job / "steps.tsv").write_text("net\t100.5\t160.6\t124\t60\n")
    step = SimpleNamespace(**{**vars(STEP), "node_numbers": [0, 2]})
    result = evidence.collect(FakeCheck(), step, job)
    assert result.reason.startswith(
        "step net (n7, n9) was ended after its limit of 60 s (time_limit_s"
    )
