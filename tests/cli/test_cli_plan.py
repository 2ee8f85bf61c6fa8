"""``seatrial plan`` and ``seatrial site check`` as a user meets them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from plan_support import bare_stack
from seatrial.results.folder import write_results
from seatrial.results.record import Case, Job, Run, Trial, Verdict
from seatrial.site.load import load_site
from seatrial.stack import load_stack
from trial_support import make_site

REQUIREMENTS = """\
schema: 1
requirements:
  - {select: {check: tcp_stream}, metric: bandwidth_MB_s, basis: contract, source: line 4,
     at_least: 100, unit: MB/s}
  - {select: {check: netpipe}, metric: latency_us, basis: contract, source: line 5,
     at_most: 9, unit: us}
informative:
  - {select: {check: tcp_stream}, metric: ["*_per_s", softirq_percent, irq_percent], reason: r}
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    stack = bare_stack().model_copy(update={"prefix": str(tmp_path)})
    stack.transports["tcp"].programs = {"nptcp": ["nptcp"], "iperf3": ["iperf3"]}
    stack.save()
    monkeypatch.setenv("SEATRIAL_STACK", str(tmp_path))
    return make_site(
        tmp_path / "site", {"netpipe": {}, "tcp_stream": {}}, REQUIREMENTS,
        {"mpich-ofi": {}}, repeats=3, time_limit_s=600,
    )  # fmt: skip


def test_a_file_that_cannot_be_written_is_named(here, tmp_path):
    file = tmp_path / "none" / "file"
    script = ("job", "render", "mpi", "--set", "program=./a")
    for words, what in ((("site", "schema"), "the schema"), (script, "the job script")):
        code, _, error = here(*words, "--output", file)
        assert code == 3
        assert str(file) in error
        assert f"--output: {what} cannot be written" in error


def test_a_plan(here, site, tmp_path):
    code, text, _ = here("plan", "--site", site, "--output", tmp_path / "none")
    assert code == 0
    assert "3 cases, 9 runs with 3 of each" in text
    assert "expected time  at most" in text
    assert "trial limit    10 min" in text
    assert "2 of 2 clauses judge a case of this plan" in text
    assert "requirements.yaml:5 (line 5): latency_us at most 9 us" in text
    assert "2 cases: netpipe.mpich-ofi.default.2n, netpipe.tcp.default.2n" in text
    assert "without a requirement" in text
    assert "cpu_sender_percent of tcp_stream (1)" in text
    assert "softirq_percent" not in text


def test_a_plan_says_what_reruns_took(here, site, tmp_path):
    name = site.parent.name
    case = Case(check="netpipe", transport="tcp", nodes=2)
    begin = datetime(2026, 8, 1, tzinfo=UTC)
    trial = Trial(trial=f"{name}-1", site=name, started=begin, seatrial="0", cases=[case],
                  reruns=2)  # fmt: skip
    runs = [
        Run(case=case, repeat=repeat, outcome="ran", job=Job(
            started=begin, ended=begin + timedelta(seconds=60)))
        for repeat in range(2)
    ]  # fmt: skip
    end = begin + timedelta(seconds=240)
    verdict = Verdict(verdict="accept", counts={}, findings=[], ended=end)
    (tmp_path / "trials" / f"{name}-1").mkdir(parents=True)
    file = tmp_path / "trials" / f"{name}-1" / "results.jsonl"
    write_results(file, [trial, *runs, verdict])
    _, text, _ = here("plan", "--site", site, "--reruns", "2", "--output", tmp_path / "trials")
    assert "min without reruns, from 1 earlier trial" in text
    assert "reruns         2 min in the median of 1 earlier trial that ended" in text


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--rounds", "0"), "'--rounds': must be at least 1, found 0"),
        (("--rounds", "101"), "'--rounds': must be at most 100, found 101"),
        (("--repeats", "x"), "must be a whole number, found x"),
    ],
)
def test_a_number_that_is_wrong_is_named_in_plain_words(here, words, why):
    code, _, error = here("plan", *words)
    assert code == 3
    assert why in error


def test_site_check_takes_the_site_as_other_commands_do(here, site):
    for words in ((site,), ("--site", site), ("-s", site)):
        code, text, _ = here("site", "check", *words)
        assert (code, "no errors, 3 cases" in text) == (0, True), words


def test_a_plan_of_a_selection(here, site, tmp_path):
    words = ("--check", "tcp_*", "--repeats", "1", "--output", tmp_path / "none")
    code, text, _ = here("plan", "--site", site, *words)
    assert code == 0
    assert "1 case, 1 run with" in text
    assert "1 of 2 clauses" in text
    assert "not tested: the selection leaves out its cases" in text


def test_a_plan_of_rounds(here, site, tmp_path):
    words = ("--rounds", "4", "--output", tmp_path / "none")
    code, text, _ = here("plan", "--site", site, *words)
    assert code == 0
    assert "3 cases, 36 runs with 3 of each in each of 4 rounds" in text
    assert "trial limit    40 min (4 rounds of trial.time_limit_s)" in text
    code, _, error = here("plan", "--site", site, "--rounds", "0")
    assert code == 3
    assert "--rounds" in error


def test_nothing_to_plan(here, site):
    code, _, error = here("plan", "--site", site, "-c", "tcp_stream", "-t", "mpich-ofi")
    assert code == 3
    assert "nothing to run" in error


def test_a_trial_refuses_wrong_requirements(here, site):
    file = site.with_name("requirements.yaml")
    file.write_text(REQUIREMENTS.replace("latency_us", "latncy_us"))
    for words in (("trial", "--site", site), ("plan", "--site", site), ("site", "check", site)):
        code, _, error = here(*words)
        assert code == 3
        assert f"{file}:5: requirements.1.metric: 'latncy_us' is not a metric of netpipe" in error


def test_site_check_lists_what_contracts_judge(here, site):
    code, text, _ = here("site", "check", site)
    assert code == 0
    assert "no errors, 3 cases" in text
    assert "1 case: tcp_stream.tcp.default.2n" in text


def test_site_check_lists_waivers_and_what_the_stack_lacks(here, site, tmp_path):
    lines = [f"{{clause: line {n}, by: B, reason: r, expires: {y}-01-31}}" for n, y in
             ((4, 2999), (5, 2020))]  # fmt: skip
    text = REQUIREMENTS + "waivers:\n" + "".join(f"  - {line}\n" for line in lines)
    site.with_name("requirements.yaml").write_text(text)
    stack = load_stack(load_site(site))
    stack.transports["mpich-ofi"].programs = {}
    stack.save()
    code, text, _ = here("site", "check", site)
    assert code == 0
    assert "    waived by B until 2999-01-31: r (requirements.yaml:10)\n" in text
    assert "    not waived: the waiver by B expired on 2020-01-31: r (requirements" in text
    assert "    1 case: netpipe.tcp.default.2n\n" in text
    assert "    met in part: the stack has no program for netpipe.mpich-ofi.default.2n\n" in text


def test_a_plan_warns_of_limits_beyond_that_of_the_trial(here, site, tmp_path):
    warning = "warning: with jobs at their limits, the trial may exceed trial.time_limit_s"
    words = ("plan", "--site", site, "--output", tmp_path / "none")
    assert warning in here(*words)[1]
    assert warning not in here(*words, "--check", "netpipe", "--repeats", "1")[1]
