"""JUnit XML for CI servers, valid by the schema of Apache Ant that ReFrame has, too.

It has a suite per check and a test case per judgement, and the suite ``contract`` with a test case
per clause. A failed bound is a ``failure``. Any other judgement that did not pass is an ``error``
with the verdict as its type, so that no server counts it as passed. A clause that is waived, or
that the user's selection leaves out, is ``skipped``.

The figure of each judgement, also of those that passed, is a property of its suite: the schema has
no place for it in a test case.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Collection, Sequence
from datetime import UTC
from pathlib import Path

from seatrial.base.files import write_whole
from seatrial.base.memory import no_collections
from seatrial.report import contract
from seatrial.report.judgements import Rest, listing
from seatrial.report.summary import CaseView, Headline, gather, headline, verdict_history
from seatrial.report.text import bound, clean, comparable, number, quantity
from seatrial.results.folder import Results
from seatrial.results.record import Case, Judgement


@no_collections()
def write_junit(results: Results, path: Path) -> None:
    """Write ``path`` atomically, in UTF-8."""
    views = gather(results)
    head = headline(results, views)
    rows = contract.rows(results)
    listed = listing(results)
    waived = {
        (row.clause.id, row.clause.required): row.note
        for row in rows
        if row.clause.status == "waived"
    }
    rest_of: dict[Case, list[Rest]] = {}
    for rest in listed.rest:
        rest_of.setdefault(rest.case, []).append(rest)
    suites: dict[str, ET.Element] = {}
    for view in views.values():
        suite = suites.get(view.case.check)
        if suite is None:
            suite = suites[view.case.check] = _suite(view.case.check, results, head)
        _add_case(suite, view, waived, listed.shown, rest_of.get(view.case, []))
        _add_figures(suite, view, listed.shown)
    root = ET.Element("testsuites")
    if rows:
        root.append(_contract(rows, results, head))
    root.extend(suites.values())
    if head.key != "accept" and not root.findall(".//failure") and not root.findall(".//error"):
        # Interrupted before any judgement: without this element the file would report success.
        suite = _suite("trial", results, head)
        case = ET.SubElement(suite, "testcase", _names("trial", "verdict", 0.0))
        _problem(case, "error", head.key, head.why)
        root.append(suite)
    for number_of_suite, suite in enumerate(root):
        suite.set("id", str(number_of_suite))
        _count(suite, suite.findall("testcase"))
        ET.SubElement(suite, "system-out").text = clean(head.why)
        ET.SubElement(suite, "system-err")
    ET.indent(root)
    text = ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"
    write_whole(path, text, below=results.above(path))


def _suite(check: str, results: Results, head: Headline) -> ET.Element:
    started = comparable(results.trial.started).astimezone(UTC)
    attributes = {
        "name": clean(check).strip() or "-",
        "package": clean(f"seatrial.{results.trial.site}"),
        "hostname": clean(str(results.trial.host.get("name", ""))).strip() or "localhost",
        "timestamp": f"{started:%Y-%m-%dT%H:%M:%S}",  # UTC: the schema forbids an offset
    }
    suite = ET.Element("testsuite", attributes)
    properties = ET.SubElement(suite, "properties")
    facts = {
        "site": results.trial.site,
        "verdict": results.verdict.verdict if results.verdict else "none (interrupted)",
        "scope": results.verdict.scope if results.verdict else "",
        "trial": results.trial.trial,
        "seatrial": results.trial.seatrial,
        "seatrial of the verdict": results.verdict.seatrial if results.verdict else "",
        "stack": str(results.trial.stack.get("source", "")),
        "why": head.why,
    }
    history = verdict_history(results)
    facts |= {f"verdict {number}": text for number, text in enumerate(history, 1)}
    for name, value in facts.items():
        ET.SubElement(properties, "property", {"name": name, "value": clean(value)})
    return suite


def _add_figures(suite: ET.Element, view: CaseView, shown: Collection[int]) -> None:
    """Add a property for each figure: ``figure CASE: METRIC at LOCATION`` with its value.

    The value is a number in the unit of the metric's name. Several requirements judge one figure,
    which is written once for each statistic.
    """
    properties = suite.find("properties")
    assert properties is not None
    figures = {}
    for index, judgement in view.judgements:
        if index in shown and judgement.value is not None:
            statistic = "" if judgement.statistic == "median" else f", {judgement.statistic}"
            name = f"figure {view.case.id}: {_figure_name(judgement)}{statistic}"
            figures[clean(name)] = repr(judgement.value)
    for name, value in figures.items():
        ET.SubElement(properties, "property", {"name": name, "value": value})


def _figure_name(judgement: Judgement) -> str:
    name = judgement.metric or "whole case"
    return f"{name} at {judgement.location}" if judgement.location else name


def _contract(rows: list[contract.Row], results: Results, head: Headline) -> ET.Element:
    suite = _suite("contract", results, head)
    for row in rows:
        clause = row.clause
        case = ET.SubElement(
            suite, "testcase", _names("contract", f"{clause.source} {clause.id}", 0)
        )
        text = f"{clause.metric} {clause.required}: {row.measured}, margin {row.margin}; {row.note}"
        if clause.status == "not met":
            _problem(case, "failure", "fail", text, clause.reason)
        elif clause.hole or clause.status == "inconclusive":  # the note has the reason
            _problem(case, "error", clause.status, text)
        elif clause.status != "met":
            ET.SubElement(case, "skipped", {"message": clean(f"{clause.status}: {text}")})
    return suite


def _names(classname: str, name: str, seconds: float) -> dict[str, str]:
    return {"classname": clean(classname), "name": clean(name), "time": f"{seconds:.3f}"}


def _problem(case: ET.Element, tag: str, kind: str, text: str, more: str = "") -> None:
    element = ET.SubElement(case, tag, {"type": kind, "message": clean(text)})
    element.text = clean(f"{text}\n{more}".rstrip())


def _add_case(
    suite: ET.Element,
    view: CaseView,
    waived: dict[tuple[str, str], str],
    shown: Collection[int],
    others: Sequence[Rest],
) -> None:
    """Add the judgements of a case; of very many, the worst, and one test case for the others.

    ``waived``: what is said of a waived clause, by its key. ``shown``: the indices of the
    judgements that are listed.
    """
    classname = view.case.id
    # The time of the jobs is that of the whole case: the first element has it, for correct sums.
    seconds = view.seconds
    if not view.judgements:
        case = ET.SubElement(suite, "testcase", _names(classname, "whole case", seconds))
        reasons = "; ".join(run.reason for run in view.runs if run.reason)
        _problem(case, "error", view.status.key, reasons or view.status.meaning)
        return
    evidence = "\n".join(f"evidence: {run.evidence}" for run in view.runs if run.evidence)
    for rest in others:
        name = f"{rest.metric}: {rest.text}"
        case = ET.SubElement(suite, "testcase", _names(classname, name, 0))
        if rest.verdict != "pass":
            tag = "failure" if rest.verdict == "fail" else "error"
            _problem(case, tag, rest.verdict, rest.text)
    for index, judgement in view.judgements:
        if index not in shown:
            continue
        case = ET.SubElement(suite, "testcase", _names(classname, _figure_name(judgement), seconds))
        seconds = 0.0
        if judgement.verdict == "pass":
            continue
        applied = judgement.requirement
        note = waived.get((applied.id, applied.text)) if applied else None
        if note and judgement.verdict in ("fail", "inconclusive"):
            text = f"{judgement.verdict}, waived: {judgement.explanation}; {note}"
            ET.SubElement(case, "skipped", {"message": clean(text)})
            continue
        tag = "failure" if judgement.verdict == "fail" else "error"
        more = f"{_figures(judgement)}\n{evidence}"
        _problem(case, tag, judgement.verdict, judgement.explanation, more)


def _figures(judgement: Judgement) -> str:
    if not judgement.metric:
        return ""
    samples = ", ".join(number(sample) for sample in judgement.samples)
    where = f" ({judgement.requirement.id})" if judgement.requirement else ""
    value = quantity(judgement.value, judgement.unit)
    return (
        f"{judgement.statistic}: {value}; required: {bound(judgement)}{where}; samples: {samples}"
    )


def _count(element: ET.Element, cases: list[ET.Element]) -> None:
    element.set("tests", str(len(cases)))
    element.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    element.set("errors", str(sum(case.find("error") is not None for case in cases)))
    element.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    element.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")
