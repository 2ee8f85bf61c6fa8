"""Clauses of a contract: what was not tested never passes, and a waiver is not a pass."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from seatrial.base.errors import InputError
from seatrial.results.contract import margin
from seatrial.results.judge import judge
from seatrial.results.verdict import conclude
from trial_maker import (
    CONTRACT,
    IMB,
    NETPIPE,
    NOW,
    PAIRS,
    error_run,
    metric,
    requirements,
    run,
    runs_of,
    trial,
)

SECOND = CONTRACT.replace("netpipe", "imb").replace("tender 7", "tender 8")
WAIVER = """
waivers:
  - clause: tender 7
    by: J. Doe, University of X
    reason: firmware 4.2 is due in March
    expires: 2026-08-31
"""
LAST_DAY = datetime(2026, 8, 31, 23, 59, tzinfo=UTC)
NEXT_DAY = datetime(2026, 9, 1, 0, 0, tzinfo=UTC)


def concluded(the_trial, runs, entries=CONTRACT, rest="", judged=NOW):
    found = requirements(entries, rest)
    judgements = judge(the_trial, runs, found)
    return conclude(the_trial, runs, judgements, found, ended=NOW, judged=judged)


def statuses(result):
    return [clause.status for clause in result.clauses]


def test_a_clause_that_is_met_has_value_margin_and_source():
    result = concluded(trial(NETPIPE), runs_of(NETPIPE, [30, 30.3, 29.7]))
    (clause,) = result.clauses
    assert (result.verdict, clause.status) == ("accept", "met")
    assert (clause.source, clause.id) == ("tender 7", "requirements.yaml:3")
    assert (clause.value, clause.unit, clause.upper) == (30, "us", pytest.approx(33))
    assert clause.margin == pytest.approx(3 / 33)
    assert clause.case == NETPIPE
    assert clause.selects == "check netpipe"


def test_the_figure_of_a_clause_is_the_worst_of_its_figures():
    entries = CONTRACT.replace("netpipe", "links")
    values = {"n1-n2": 30.0, "n1-n3": 80.0, "n2-n3": 45.0}
    metrics = [metric(value, location=link) for link, value in values.items()]
    (clause,) = concluded(trial(PAIRS), [run(PAIRS, *metrics)], entries).clauses
    assert (clause.status, clause.judgements, clause.failed) == ("not met", 3, 2)
    assert (clause.value, clause.location) == (80, "n1-n3")
    assert clause.margin == pytest.approx(-47 / 33)


@pytest.mark.parametrize("entries", ["netpip", "net*pe2"])
def test_a_contract_that_selects_nothing_makes_the_trial_incomplete_and_is_the_first_finding(
    entries,
):
    both = CONTRACT + CONTRACT.replace("netpipe", entries).replace("tender 7", "tender 9, line 1")
    result = concluded(trial(NETPIPE), runs_of(NETPIPE, [30, 30, 30]), both)
    assert statuses(result) == ["met", "not tested"]
    assert result.verdict == "incomplete"
    assert result.findings[0].startswith(
        "a clause of the contract was not tested: tender 9, line 1 (requirements.yaml:11)"
    )
    assert f"check {entries}" in result.findings[0]


@pytest.mark.parametrize(
    ("select", "named"),
    [
        ("check: [netpipe, netpip]", "check 'netpip'"),
        ("check: netpipe, profile: [default, jumboo]", "profile 'jumboo'"),
        ("check: netpipe, transport: [tcp, 'mpich-*']", "transport 'mpich-*'"),
        ("check: netpipe, nodes: [2, 64]", "nodes '64'"),
        ("check: links, location: [n1-n2, n1-n9]", "location 'n1-n9'"),
    ],
)
def test_a_clause_of_which_a_part_selects_nothing_is_not_tested(select, named):
    entries = (
        f"\n  - {{select: {{{select}}}, metric: latency_us, basis: contract, source: tender 7, "
        "at_most: 50, unit: us}\n"
    )
    runs = [*runs_of(NETPIPE, [30, 30]), *runs_of(PAIRS, [30, 30], location="n1-n2")]
    rest = 'informative:\n  - {select: {}, metric: "*", reason: a test}\n'
    result = concluded(trial(NETPIPE, PAIRS), runs, entries, rest)
    (clause,) = result.clauses
    assert (result.verdict, clause.status, clause.hole) == ("incomplete", "not tested", True)
    assert named in clause.reason
    assert named in result.findings[0]


def test_clauses_that_share_a_line_are_told_apart():
    """A file of JSON may be one line."""
    waiver = f"waivers: [{{clause: A, by: b, reason: r, expires: {LAST_DAY.date()}}}]"
    clauses = ", ".join(
        f"{{select: {{check: {check}}}, metric: latency_us, basis: contract, source: {source}, "
        "at_most: 20, unit: us}"
        for check, source in (("netpipe", "A"), ("imb", "B"), ("hpl", "C"))
    )
    runs = [*runs_of(NETPIPE, [30, 30]), *runs_of(IMB, [30, 30])]
    result = concluded(trial(NETPIPE, IMB), runs, f" [{clauses}]", waiver)
    assert statuses(result) == ["waived", "not met", "not tested"]
    assert result.verdict == "reject"


def test_sixty_clauses_that_were_not_tested_are_all_named_in_the_first_finding():
    entries = CONTRACT.replace("check: netpipe", "check: imb")
    failing = [error_run(NETPIPE)]
    result = concluded(trial(NETPIPE), failing, entries * 60)
    assert statuses(result) == ["not tested"] * 60
    assert result.findings[0].startswith("60 clauses of the contract were not tested: no case of")
    for clause in result.clauses:
        assert f"({clause.id})" in result.findings[0]


def test_a_clause_is_not_met_while_one_of_its_cases_did_not_run():
    entries = CONTRACT.replace("{check: netpipe}", "{check: [netpipe, imb]}")
    result = concluded(trial(NETPIPE, IMB), runs_of(NETPIPE, [30, 30, 30]), entries)
    (clause,) = result.clauses
    assert (clause.status, clause.hole) == ("not tested", True)
    assert "1 of its 2 cases did not run as declared (imb.openmpi-tcp" in clause.reason
    assert result.verdict == "incomplete"


def test_a_clause_whose_metric_no_run_reports_is_not_tested():
    runs = [run(NETPIPE, metric(100, name="bandwidth_MB_s", unit="MB/s", better="higher"))]
    result = concluded(trial(NETPIPE), runs)
    assert statuses(result) == ["not tested"]
    assert "no run reported latency_us" in result.findings[0]


def test_a_failure_rejects_even_beside_clauses_that_were_not_tested():
    result = concluded(trial(NETPIPE), runs_of(NETPIPE, [60, 60, 60]), CONTRACT + SECOND)
    assert statuses(result) == ["not met", "not tested"]
    assert result.verdict == "reject"


# --- a part of the site's matrix ------------------------------------------------------------


def partial(*outside):
    return trial(NETPIPE, selection={"--check": ["netpipe"]}, outside=list(outside))


def test_an_accepted_part_says_of_what_and_lists_the_clauses_that_were_not_tested():
    result = concluded(partial(IMB), runs_of(NETPIPE, [30, 30, 30]), CONTRACT + SECOND)
    assert (result.verdict, result.scope) == ("accept", "--check netpipe: 1 of 2 cases")
    assert statuses(result) == ["met", "not tested"]
    (note,) = result.findings
    assert note.startswith("note: 1 clause was not tested")
    assert "--check netpipe" in note
    assert "tender 8 (requirements.yaml:11)" in note


def test_a_clause_of_which_the_selection_leaves_out_cases_is_met_in_part():
    jumbo = replace(NETPIPE, profile="jumbo")
    (clause,) = concluded(partial(jumbo), runs_of(NETPIPE, [30, 30, 30])).clauses
    assert (clause.status, clause.cases, clause.outside) == ("met in part", 1, 1)


def test_a_selection_does_not_excuse_a_contract_that_selects_nothing():
    entries = CONTRACT + SECOND.replace("imb", "imbb")
    result = concluded(partial(IMB), runs_of(NETPIPE, [30, 30, 30]), entries)
    assert result.verdict == "incomplete"
    assert "imbb" in result.findings[0]


def test_requirements_of_cases_that_the_selection_leaves_out_are_no_finding():
    baseline = SECOND.replace("basis: contract", "basis: baseline")
    result = concluded(partial(IMB), runs_of(NETPIPE, [30, 30, 30]), CONTRACT + baseline)
    assert (result.verdict, result.findings) == ("accept", [])


def test_a_selection_that_leaves_nothing_out_is_the_whole():
    assert concluded(partial(), runs_of(NETPIPE, [30, 30, 30])).scope == ""


# --- waivers --------------------------------------------------------------------------------


def test_a_waived_clause_is_no_pass_and_shows_the_failed_figure():
    result = concluded(trial(NETPIPE), runs_of(NETPIPE, [60, 60, 60]), rest=WAIVER, judged=LAST_DAY)
    (clause,) = result.clauses
    assert (result.verdict, clause.status) == ("accept", "waived")
    assert (clause.value, clause.waiver.by) == (60, "J. Doe, University of X")
    assert (result.counts["pass"], result.counts["fail"]) == (0, 1)
    (finding,) = result.findings
    assert "is waived by J. Doe, University of X until 2026-08-31" in finding
    assert "latency_us is 60 us" in finding


def test_a_waiver_does_not_cover_the_part_of_a_clause_that_was_not_tested():
    """A misspelt name in a list: its part of the contract was not judged at all."""
    lists = CONTRACT.replace("check: netpipe", "check: [netpipe, netpip]")
    result = concluded(trial(NETPIPE), runs_of(NETPIPE, [60, 60, 60]), lists, WAIVER, LAST_DAY)
    (clause,) = result.clauses
    assert (result.verdict, clause.status, clause.hole) == ("reject", "not tested", True)
    assert "'netpip'" in clause.reason


def test_fewer_reruns_than_the_site_has_are_a_part():
    runs = runs_of(NETPIPE, [30, 30])
    assert concluded(trial(NETPIPE, reruns=4, site_reruns=4), runs).scope == ""
    assert concluded(trial(NETPIPE, site_reruns=4), runs).scope == "at most 0 of 4 reruns"


def test_fewer_repeats_than_the_site_has_are_a_part():
    runs = runs_of(NETPIPE, [30])
    result = concluded(trial(NETPIPE, repeats=1, site_repeats=2), runs)
    assert (result.verdict, result.scope) == ("accept", "1 of 2 repeats")
    both = partial(IMB).model_copy(update={"site_repeats": 3})
    assert concluded(both, runs).scope == "--check netpipe: 1 of 2 cases, 1 of 3 repeats"
    assert concluded(trial(NETPIPE, site_rounds=5), runs).scope == "1 of 5 rounds"
    for site_repeats in (None, 1):
        assert concluded(trial(NETPIPE, repeats=1, site_repeats=site_repeats), runs).scope == ""


def test_a_clause_of_cases_that_the_stack_lacks_is_met_in_part():
    glob = CONTRACT.replace("check: netpipe", "check: 'n*'")
    lacks = [replace(NETPIPE, transport="openmpi-tcp"), replace(NETPIPE, transport="mpich")]
    result = concluded(trial(NETPIPE, lacking=lacks), runs_of(NETPIPE, [30, 30, 30]), glob)
    (clause,) = result.clauses
    assert (result.verdict, clause.status, clause.lacking) == ("accept", "met in part", 2)
    reason = "of its 3 cases the stack cannot run 2 (netpipe.openmpi-tcp.default.2n and others)"
    assert clause.reason == reason
    assert result.findings == [f"note: tender 7 (requirements.yaml:3) is met in part: {reason}"]
    assert result.scope == "1 clause with cases that the stack cannot run"
    waived = concluded(
        trial(NETPIPE, lacking=lacks), runs_of(NETPIPE, [60, 60, 60]), glob, WAIVER, LAST_DAY
    )
    assert (statuses(waived), waived.clauses[0].reason.endswith(reason)) == (["waived"], True)
    failed = concluded(trial(NETPIPE, lacking=lacks), runs_of(NETPIPE, [60, 60, 60]), glob)
    assert statuses(failed) == ["not met"]
    other = concluded(trial(NETPIPE, lacking=[IMB]), runs_of(NETPIPE, [30, 30, 30]), glob)
    assert statuses(other) == ["met"]


def test_a_waiver_of_an_inconclusive_clause_says_so():
    result = concluded(trial(NETPIPE), runs_of(NETPIPE, [20, 32, 60]), rest=WAIVER)
    assert statuses(result) == ["waived"]
    assert "without the waiver it is inconclusive: " in result.findings[0]


def test_a_waiver_out_of_date_leaves_the_clause_failed_and_is_named():
    result = concluded(trial(NETPIPE), runs_of(NETPIPE, [60, 60, 60]), rest=WAIVER, judged=NEXT_DAY)
    assert (result.verdict, statuses(result)) == ("reject", ["not met"])
    assert result.findings[0] == (
        "the waiver (requirements.yaml:13) of tender 7 (requirements.yaml:3) by J. Doe, "
        "University of X expired on 2026-08-31: the clause counts as not met"
    )


def test_a_waiver_does_not_cover_a_clause_that_was_not_tested():
    result = concluded(trial(IMB), runs_of(IMB, [30, 30]), CONTRACT, WAIVER)
    assert (result.verdict, statuses(result)) == ("incomplete", ["not tested"])


def test_a_waiver_of_one_clause_excuses_no_other_figure():
    entries = CONTRACT + CONTRACT.replace("tender 7", "tender 8")
    result = concluded(trial(NETPIPE), runs_of(NETPIPE, [60, 60, 60]), entries, WAIVER)
    assert (result.verdict, statuses(result)) == ("reject", ["waived", "not met"])


def test_a_waiver_excuses_what_fails_and_makes_up_for_nothing_else():
    """What passes under the waived clause stands for itself, not for a figure without a bound."""
    other = replace(NETPIPE, transport="openmpi-tcp")
    runs = runs_of(NETPIPE, [30, 30, 30])
    failed = runs_of(other, [60, 60, 60])
    entries = CONTRACT.replace("check: netpipe", "check: 'n*'")
    whole = concluded(trial(NETPIPE, other), [*runs, *failed], entries, WAIVER)
    assert (whole.verdict, statuses(whole)) == ("accept", ["waived"])
    unjudged = [
        one.model_copy(update={"metrics": [*one.metrics, metric(1, "other_us")]}) for one in failed
    ]
    result = concluded(trial(NETPIPE, other), [*runs, *unjudged], entries, WAIVER)
    assert (result.verdict, result.counts["missing"]) == ("incomplete", 1)


def test_a_waiver_of_a_clause_that_is_met_changes_nothing():
    result = concluded(trial(NETPIPE), runs_of(NETPIPE, [30, 30, 30]), rest=WAIVER)
    assert (result.verdict, statuses(result), result.findings) == ("accept", ["met"], [])


def problem(rest, entries=CONTRACT):
    with pytest.raises(InputError) as raised:
        requirements(entries, rest)
    (found,) = raised.value.problems
    return str(found)


def test_a_waiver_that_names_no_clause_is_an_error_with_line_field_and_correction():
    assert problem(WAIVER.replace("tender 7", "tender 77")) == (
        "requirements.yaml:13: waivers.0.clause: no contract has the source 'tender 77' "
        "(did you mean 'tender 7'?)"
    )


def test_a_waiver_names_a_contract_and_nothing_else():
    baseline = CONTRACT.replace("basis: contract", "basis: baseline")
    assert "no contract has the source 'tender 7'" in problem(WAIVER, baseline)


def test_a_waiver_of_several_clauses_is_an_error():
    other = CONTRACT.replace("latency_us", "other_us")
    assert "2 clauses have this source, and a waiver is of one" in problem(WAIVER, CONTRACT + other)
    metric_of_one = WAIVER.replace("    by:", "    metric: other_us\n    by:")
    assert len(requirements(CONTRACT + other, metric_of_one).waivers) == 1
    wrong = WAIVER.replace("    by:", "    metric: latency_ms\n    by:")
    text = problem(wrong, CONTRACT + other)
    assert "waivers.0.metric" in text
    assert "did you mean 'latency_us'?" in text


def test_a_clause_has_one_waiver():
    twice = WAIVER + WAIVER.split("waivers:\n")[1]
    assert "the clause has a waiver already: waivers.0" in problem(twice)


@pytest.mark.parametrize("field", ["by", "reason", "expires"])
def test_a_waiver_needs_name_reason_and_date(field):
    lines = [line for line in WAIVER.splitlines() if f"{field}:" not in line]
    assert f"waivers.0.{field}" in problem("\n".join(lines))


def test_the_date_of_a_waiver_is_a_date():
    assert "waivers.0.expires" in problem(WAIVER.replace("2026-08-31", "soon"))


@pytest.mark.parametrize("number", ["1806451200", "'1806451200'", "2027", "1.5"])
def test_a_number_is_not_a_date(number):
    assert "requirements.yaml:16: waivers.0.expires: a number is not a date" in problem(
        WAIVER.replace("2026-08-31", number)
    )


@pytest.mark.parametrize(
    ("field", "line", "value"), [("by", 14, "J. Doe, University of X"),
                                 ("reason", 15, "firmware 4.2 is due in March")]
)  # fmt: skip
def test_a_waiver_with_a_blank_name_or_reason_is_an_error(field, line, value):
    assert f"requirements.yaml:{line}: waivers.0.{field}: it is empty" in problem(
        WAIVER.replace(value, '"  "')
    )


# --- margins --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "bounds", "expected"),
    [
        (30, "at_most: 40", 0.25),
        (50, "at_most: 40", -0.25),
        (50, "at_least: 40", 0.25),
        (39, "at_most: 40, at_least: 30", 0.025),
        (0.5, "at_most: 0", -0.5),
    ],
)
def test_margin(value, bounds, expected):
    entry = f"""
  - {{select: {{}}, metric: latency_us, basis: contract, source: a, unit: us, {bounds}}}
"""
    (judgement,) = judge(trial(NETPIPE), runs_of(NETPIPE, [value]), requirements(entry))
    assert margin(judgement) == pytest.approx(expected)
