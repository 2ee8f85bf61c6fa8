"""JUnit XML: the rules that Jenkins, GitLab and GitHub's readers share."""

from __future__ import annotations

from collections import Counter

import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from campaigns import rounds
from seatrial.report.junit import write_junit

# The common subset of the dialects as a schema: order, attributes, types. An `any` nowhere.
SCHEMA = """
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:attributeGroup name="counts">
    <xs:attribute name="name" type="xs:string" use="required"/>
    <xs:attribute name="tests" type="xs:nonNegativeInteger" use="required"/>
    <xs:attribute name="failures" type="xs:nonNegativeInteger" use="required"/>
    <xs:attribute name="errors" type="xs:nonNegativeInteger" use="required"/>
    <xs:attribute name="skipped" type="xs:nonNegativeInteger" use="required"/>
    <xs:attribute name="time" type="xs:decimal" use="required"/>
  </xs:attributeGroup>
  <xs:complexType name="problem"><xs:simpleContent><xs:extension base="xs:string">
    <xs:attribute name="type" type="xs:string" use="required"/>
    <xs:attribute name="message" type="xs:string" use="required"/>
  </xs:extension></xs:simpleContent></xs:complexType>
  <xs:element name="testsuites"><xs:complexType><xs:sequence>
    <xs:element name="testsuite" minOccurs="0" maxOccurs="unbounded"><xs:complexType><xs:sequence>
      <xs:element name="properties"><xs:complexType><xs:sequence>
        <xs:element name="property" maxOccurs="unbounded"><xs:complexType>
          <xs:attribute name="name" type="xs:string" use="required"/>
          <xs:attribute name="value" type="xs:string" use="required"/>
        </xs:complexType></xs:element>
      </xs:sequence></xs:complexType></xs:element>
      <xs:element name="testcase" maxOccurs="unbounded"><xs:complexType><xs:choice minOccurs="0">
          <xs:element name="failure" type="problem"/>
          <xs:element name="error" type="problem"/>
        </xs:choice>
        <xs:attribute name="classname" type="xs:string" use="required"/>
        <xs:attribute name="name" type="xs:string" use="required"/>
        <xs:attribute name="time" type="xs:decimal" use="required"/>
      </xs:complexType></xs:element>
    </xs:sequence><xs:attributeGroup ref="counts"/>
    <xs:attribute name="timestamp" type="xs:dateTime" use="required"/></xs:complexType></xs:element>
  </xs:sequence><xs:attributeGroup ref="counts"/></xs:complexType></xs:element>
</xs:schema>
"""
RULES = etree.XMLSchema(etree.fromstring(SCHEMA))


def read(path):
    root = etree.parse(str(path)).getroot()
    RULES.assertValid(root)
    for element in [root, *root.findall("testsuite")]:
        cases = element.findall(".//testcase")
        assert int(element.get("tests")) == len(cases)
        assert int(element.get("failures")) == len(element.findall(".//failure"))
        assert int(element.get("errors")) == len(element.findall(".//error"))
    return root


@pytest.mark.parametrize("name", sorted(synthetic.EXAMPLES))
def test_it_keeps_the_rules_and_holds_every_judgement(written, name):
    results, folder = written(name)
    root = read(folder / "junit.xml")
    judged = {judgement.case for judgement in results.judgements}
    bare = [case for case in dict.fromkeys(results.trial.cases) if case not in judged]
    assert len(root.findall(".//testcase")) == len(results.judgements) + len(bare)
    counts = Counter(judgement.verdict for judgement in results.judgements)
    assert int(root.get("failures")) == counts["fail"]
    not_good = len(results.judgements) - counts["pass"] - counts["fail"]
    assert int(root.get("errors")) == not_good + len(bare)
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


def test_no_trial_without_acceptance_is_green(tmp_path):
    results = synthetic.one_node()
    cut = results.model_copy(update={"verdict": None})  # all judged, all passed, then cut off
    write_junit(cut, tmp_path / "junit.xml")
    root = read(tmp_path / "junit.xml")
    assert int(root.get("errors")) == 1
    nothing = results.trial.model_copy(update={"cases": []})
    cut = cut.model_copy(update={"trial": nothing, "runs": [], "judgements": []})
    write_junit(cut, tmp_path / "junit.xml")
    assert int(read(tmp_path / "junit.xml").get("errors")) == 1


def test_time_is_that_of_the_jobs(written):
    results, folder = written("rejected")
    root = read(folder / "junit.xml")
    spent = sum((run.job.ended - run.job.started).total_seconds() for run in results.runs)
    assert float(root.get("time")) == pytest.approx(spent)


@settings(max_examples=rounds(20, 500))
@given(st.text(max_size=40))
def test_any_text_is_valid_xml(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "junit.xml"
    write_junit(synthetic.hostile(text), path)
    read(path)
