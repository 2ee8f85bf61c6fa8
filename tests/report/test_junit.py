"""JUnit XML: the rules that Jenkins, GitLab and GitHub's readers share."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import reframe
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from campaigns import rounds
from seatrial.report.junit import write_junit

# The schema of Apache Ant's JUnit task, as ReFrame installs it.
RULES = etree.XMLSchema(etree.parse(str(Path(reframe.__file__).parent / "schemas" / "junit.xsd")))


def read(path):
    root = etree.parse(str(path)).getroot()
    RULES.assertValid(root)
    for number, element in enumerate(root):
        cases = element.findall("testcase")
        assert element.get("id") == str(number)
        assert int(element.get("skipped")) == len(element.findall(".//skipped"))
        assert int(element.get("tests")) == len(cases)
        assert int(element.get("failures")) == len(element.findall(".//failure"))
        assert int(element.get("errors")) == len(element.findall(".//error"))
    return root


def total(root, name):
    return sum(float(suite.get(name)) for suite in root)


@pytest.mark.parametrize("name", sorted(synthetic.EXAMPLES))
def test_it_keeps_the_rules_and_holds_every_judgement(written, name):
    results, folder = written(name)
    root = read(folder / "junit.xml")
    judged = {judgement.case for judgement in results.judgements}
    bare = [case for case in dict.fromkeys(results.trial.cases) if case not in judged]
    assert len(root.findall(".//testcase")) == len(results.judgements) + len(bare)
    counts = Counter(judgement.verdict for judgement in results.judgements)
    assert total(root, "failures") == counts["fail"]
    not_good = len(results.judgements) - counts["pass"] - counts["fail"]
    assert total(root, "errors") == not_good + len(bare)
    names = {suite.get("name") for suite in root}
    assert names == {case.check for case in results.trial.cases}


def test_verdicts_become_failures_and_typed_errors(written):
    root = read(written("incomplete")[1] / "junit.xml")
    types = Counter(error.get("type") for error in root.iter("error"))
    assert types == {"error": 4, "missing": 6, "inconclusive": 1, "notrun": 6}
    root = read(written("rejected")[1] / "junit.xml")
    failure = next(root.iter("failure"))
    assert "n1-n3" in failure.getparent().get("name")
    assert "requirements.yaml:" in failure.text
    assert "evidence: evidence/links" in failure.text


def test_properties_name_site_and_verdict(written):
    root = read(written("rejected")[1] / "junit.xml")
    for suite in root:
        found = {p.get("name"): p.get("value") for p in suite.find("properties")}
        assert found["site"] == "example"
        assert found["verdict"] == "reject"


def test_each_figure_is_a_property_of_its_suite_with_its_value(written):
    results, folder = written("rejected")
    root = read(folder / "junit.xml")
    values = {
        p.get("name"): (suite.get("name"), float(p.get("value")))
        for suite in root
        for p in suite.find("properties")
        if p.get("name").startswith("figure ")
    }
    expected = {}
    for judgement in results.judgements:
        if judgement.value is not None:
            at = f" at {judgement.location}" if judgement.location else ""
            statistic = "" if judgement.statistic == "median" else f", {judgement.statistic}"
            name = f"figure {judgement.case.id}: {judgement.metric}{at}{statistic}"
            expected[name] = (judgement.case.check, judgement.value)
    assert values == expected
    assert {one.verdict for one in results.judgements if one.value is not None} >= {"pass", "fail"}


def test_no_trial_without_acceptance_is_green(tmp_path):
    results = synthetic.one_node()
    cut = results.model_copy(update={"verdict": None})  # all judged, all passed, then cut off
    write_junit(cut, tmp_path / "junit.xml")
    root = read(tmp_path / "junit.xml")
    assert total(root, "errors") == 1
    nothing = results.trial.model_copy(update={"cases": []})
    cut = cut.model_copy(update={"trial": nothing, "runs": [], "judgements": []})
    write_junit(cut, tmp_path / "junit.xml")
    assert total(read(tmp_path / "junit.xml"), "errors") == 1


def test_time_is_that_of_the_jobs(written):
    results, folder = written("rejected")
    root = read(folder / "junit.xml")
    spent = sum((run.job.ended - run.job.started).total_seconds() for run in results.runs)
    assert total(root, "time") == pytest.approx(spent)


@settings(max_examples=rounds(20, 500))
@given(st.text(max_size=40))
def test_any_text_is_valid_xml(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "junit.xml"
    write_junit(synthetic.hostile(text), path)
    read(path)
