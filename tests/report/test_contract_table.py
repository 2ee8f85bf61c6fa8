"""The contract table in each format, and the report of a large trial."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
import synthetic
from lxml import etree, html
from rich.console import Console

from seatrial.base.paths import CHECKOUT
from seatrial.report.contract import rows
from seatrial.report.html import render, write_html
from seatrial.report.junit import write_junit
from seatrial.report.terminal import print_summary
from seatrial.results import manifest
from seatrial.results.record import Clause, Waiver

sys.path.append(str(CHECKOUT / "ci" / "bench"))  # for its made-up trial

from report import large_trial

LIMITS = {"id": "requirements.yaml:4", "metric": "latency_us", "statistic": "median", "unit": "us"}


def clause(status, source="annex B, line 4", **more):
    given = {"required": "at most 33 us", "selects": "check imb", **LIMITS, **more}
    return Clause(status=status, source=source, **given)


MET = clause("met", value=30.25, spread=0.1234, upper=33, margin=0.0833, judgements=1)
NOT_MET = clause("not met", "line 5", value=40, upper=33, margin=-0.2121, judgements=60, failed=7)
VOID = clause("not tested", "line 6", reason="no case of the site's matrix matches", hole=True)
LEFT_OUT = clause("not tested", "line 7", reason="the trial's selection leaves out all", outside=3)
WAIVER = Waiver(id="r:9", by="J. Doe", reason="firmware", expires=date(2031, 4, 1))
HOT = "imb.tcp.default.2n: latency_us is 44 us, above the upper limit of 33 us"
WAIVED = clause(
    "waived", "line 8", value=44, upper=33, margin=-1 / 3, waiver=WAIVER, reason=HOT, failed=1
)
DOUBT = "imb.tcp.default.2n: latency_us cannot be distinguished from the upper limit of 33 us"
OPEN = clause("inconclusive", "line 9", value=34, upper=33, reason=DOUBT, outside=2, cases=1)
WAIVED_OPEN = clause("waived", "line 10", value=34, upper=33, waiver=WAIVER, reason=DOUBT)
ALL = [MET, NOT_MET, VOID, LEFT_OUT, WAIVED]


def with_clauses(clauses, verdict="accept", scope=""):
    results = synthetic.one_node()
    changed = {"clauses": clauses, "verdict": verdict, "scope": scope}
    return results.model_copy(update={"verdict": results.verdict.model_copy(update=changed)})


def test_an_expired_waiver_is_called_so():
    failed = clause("not met", value=44, upper=33, waiver=WAIVER)
    results = with_clauses([failed], "reject")
    for judged, text in (
        (datetime(2031, 4, 1, 23, 59, tzinfo=UTC), "a waiver is on record, by J. Doe until 2031-"),
        (datetime(2031, 4, 2, tzinfo=UTC), "a waiver by J. Doe expired on 2031-04-01: firmware"),
    ):
        results.verdict = results.verdict.model_copy(update={"judged": judged})
        assert text in rows(results)[0].note


def words(element) -> str:
    return " ".join(element.text_content().split())


@pytest.fixture(scope="module")
def page():
    return html.document_fromstring(render(with_clauses(ALL, "reject")))


def test_the_signatures_of_a_later_verdict_name_its_requirements_and_the_first_stays_of_part():
    results = with_clauses([MET], "reject", scope="--check imb: 1 of 9 cases")
    first = results.verdict.model_copy(update={"verdict": "accept"})
    digest, name = "12ab" * 16, "judgements/2/requirements.yaml"
    later = {"number": 2, "requirements": name, "requirements_sha256": digest}
    changed = {"verdict": results.verdict.model_copy(update=later), "earlier": [first]}
    text = words(html.document_fromstring(render(results.model_copy(update=changed))))
    assert f"verdict 2, by {name} with SHA-256 {digest}, on the figures in results.jsonl" in text
    assert "recorded in results.jsonl" not in text
    assert "Verdict 1 (the trial's own): ACCEPT OF PART" in text


def test_the_table_leads_the_report_and_ends_in_lines_for_signatures(page):
    headings = [heading.get("id") for heading in page.xpath("//h2")]
    assert headings[0] == "contract"
    section = page.xpath("//section[@class='contract']")[0]
    lines = [words(line) for line in section.xpath(".//*[contains(@class, 'line')]")]
    assert lines == ["Name", "Date", "Signature"] * 2
    assert [words(party) for party in section.xpath(".//div[@class='parties']//b")] == [
        "Buyer",
        "Vendor",
    ]
    assert "Signed on the verdict REJECT of trial" in words(section)


def test_a_row_has_clause_required_measured_spread_margin_and_conclusion(page):
    rows = page.xpath("//table[contains(@class, 'clauses')]/tbody/tr")
    cells = [[words(cell) for cell in row] for row in rows]
    assert len(cells) == len(ALL)
    first, second, void, left_out, waived = cells
    assert first[0].startswith("annex B, line 4")
    assert first[1] == "latency_us at most 33 us"
    assert first[2].startswith("30.25 us")
    assert first[3:] == ["0.12 us", "+8.33 %", "✓ met"]
    assert second[4:] == ["-21.2 %", "✗ not met7 of 60 figures failed"]
    assert void[2:5] == ["–", "–", "–"]
    assert "not tested" in void[5]
    assert "no case of the site's matrix matches" in void[5]
    assert "leaves out all" in left_out[5]
    waiver = "waived by J. Doe until 2031-04-01: firmware; without the waiver it is"
    assert f"{waiver} not met: {HOT}" in waived[5]
    assert waived[2].startswith("44 us")


def test_a_margin_of_many_times_the_bound_is_not_shown_in_digits():
    wide = [MET.model_copy(update={"margin": margin}) for margin in (1596.88, -12.5, 10.0)]
    made = rows(with_clauses(wide, "accept"))
    assert [row.margin for row in made] == ["> +1000 %", "< -1000 %", "+1000 %"]


def test_a_row_says_why_a_clause_is_inconclusive_and_what_a_waiver_excuses():
    page = html.document_fromstring(render(with_clauses([OPEN, WAIVED_OPEN], "incomplete")))
    cells = page.xpath("//table[contains(@class, 'clauses')]/tbody/tr/td[last()]")
    assert [words(cell.find("small")) for cell in cells] == [
        f"{DOUBT}; the trial's selection leaves out 2 of its 3 cases",
        "waived by J. Doe until 2031-04-01: firmware; without the waiver it is inconclusive: "
        + DOUBT,
    ]


def test_a_row_says_how_many_runs_are_behind_its_value():
    """Its judgement has a sample of each."""
    results = with_clauses([])
    (judgement,) = results.judgements
    applied = replace(judgement.requirement, basis="contract")
    fields = {"case": judgement.case, "location": judgement.location, "value": judgement.value}
    one = clause("met", **{**fields, "id": applied.id, "required": applied.text, "judgements": 1})
    for samples, said in (([14.0], "median of 1 run, "), ([14.0] * 5, "median of 5 runs, ")):
        judged = replace(judgement, samples=samples, requirement=applied)
        verdict = results.verdict.model_copy(update={"clauses": [one]})
        update = {"judgements": [judged], "verdict": verdict}
        (row,) = rows(results.model_copy(update=update))
        assert row.worst_of == f"{said}n1 of {judgement.case.id}"
    several = one.model_copy(update={"judgements": 6, "failed": 1})
    update["verdict"] = results.verdict.model_copy(update={"clauses": [several]})
    (row,) = rows(results.model_copy(update=update))
    assert row.worst_of.startswith("median of 5 runs, worst of 1 failed figure, ")


def test_the_version_that_judged_is_beside_the_one_that_ran_the_trial():
    results = synthetic.one_node()
    judged = {"seatrial": "9.9 (abc)", "user": "jane"}
    results.verdict = results.verdict.model_copy(update=judged)
    page = html.document_fromstring(render(results))
    basics = {words(div[0]): words(div[1]) for div in page.xpath("//header//dl/div")}
    assert basics["Judged"].endswith(" by jane with seatrial 9.9 (abc)")
    pairs = {words(row[0]): words(row[1]) for row in page.xpath("//table[@class='pairs']//tr")}
    assert pairs["seatrial, of the trial"] == results.trial.seatrial
    assert pairs["seatrial, of the verdict"] == "9.9 (abc)"


def test_a_verdict_without_a_contract_has_lines_for_signatures_and_no_verdict_has_none(written):
    results = with_clauses([], scope="--check imb: 1 of 9 cases")
    page = html.document_fromstring(render(results))
    (signatures,) = page.xpath("//div[@class='signatures']")
    text = f"Signed on the verdict ACCEPT OF PART of trial {results.trial.trial} of site example"
    assert words(signatures).startswith(f"{text}, without a contract")
    assert len(signatures.xpath(".//*[contains(@class, 'line')]")) == 6
    _, folder = written("accepted")
    (signatures,) = html.parse(str(folder / "report.html")).xpath("//div[@class='signatures']")
    assert manifest.sha256(folder / "results.jsonl") in words(signatures)
    _, folder = written("cut_off")
    assert not html.parse(str(folder / "report.html")).xpath("//div[@class='signatures']")


def test_the_counts_of_the_clauses_are_in_the_headline(page):
    why = words(page.xpath("//p[@class='why']")[0])
    assert "Contract of 5 clauses: 1 not met, 2 not tested, 1 waived, 1 met." in why


@pytest.mark.parametrize(
    ("clauses", "scope", "word"),
    [
        ([MET], "", "ACCEPT"),
        ([MET, LEFT_OUT], "--check imb: 3 of 9 cases", "ACCEPT OF PART"),
        ([MET, WAIVED], "", "ACCEPT WITH WAIVERS"),
        ([WAIVED], "--check imb: 3 of 9 cases", "ACCEPT OF PART WITH WAIVERS"),
    ],
)
def test_an_acceptance_names_its_limits(clauses, scope, word):
    results = with_clauses(clauses, scope=scope)
    page = html.document_fromstring(render(results))
    assert words(page.xpath("//p[@class='word']")[0]) == f"✓ {word}"
    assert scope in words(page.xpath("//p[@class='why']")[0])
    assert shown(results).splitlines()[0].startswith(f"{word}  ")


def test_a_trial_without_a_contract_has_no_table():
    page = html.document_fromstring(render(with_clauses([])))
    assert not page.xpath("//*[@id='contract']")


def shown(results, width=200) -> str:
    out = io.StringIO()
    print_summary(results, Console(file=out, width=width))
    return out.getvalue()


def test_the_terminal_lists_each_clause_and_never_drops_one_that_is_not_met():
    text = shown(with_clauses(ALL, "reject"))
    line = ". met: annex B, line 4: latency_us at most 33 us, measured 30.25 us (margin +8.33 %)"
    assert line in text.splitlines()
    assert "X not met: line 5" in text
    assert "o not tested: line 6" in text
    assert "W waived: line 8" in text
    many = shown(with_clauses([*[MET] * 30, *[VOID] * 30], "incomplete"))
    assert many.count("o not tested: line 6") == 30
    assert "30 more clauses are met" in many


def test_junit_has_a_test_case_for_each_clause(tmp_path):
    write_junit(with_clauses(ALL, "reject"), tmp_path / "junit.xml")
    root = etree.parse(str(tmp_path / "junit.xml")).getroot()
    suite = root.find("testsuite[@name='contract']")
    tags = [[child.tag for child in case] for case in suite.findall("testcase")]
    assert tags == [[], ["failure"], ["error"], ["skipped"], ["skipped"]]
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == list("5112")


# --- print ----------------------------------------------------------------------------------


@pytest.mark.nightly(reason="a report that a browser prints")
def test_a_printed_report_has_every_figure_and_the_contract(written, tmp_path):
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium is installed: that every figure is printed was NOT checked")
    from pypdf import PdfReader

    _, folder = written("accepted")
    paper = tmp_path / "report.pdf"
    options = "--headless --no-sandbox --disable-gpu --no-pdf-header-footer"
    command = [program, *options.split(), f"--user-data-dir={tmp_path / 'chromium'}"]
    command += [f"--print-to-pdf={paper}", (folder / "report.html").as_uri()]
    subprocess.run(command, capture_output=True, timeout=500, check=True)
    text = " ".join(" ".join(page.extract_text() for page in PdfReader(paper).pages).split())
    page = html.document_fromstring((folder / "report.html").read_text(encoding="utf-8"))
    ids = page.xpath("//div[@data-figure]/@data-figure")
    assert len(ids) >= 9
    # Each title of an axis is drawn by the script; nothing else of a page writes it so.
    curves = [name for name in ids if name.startswith("curve-")]
    assert text.count("message size (B)") >= len(curves)
    for axis in ("HPL (GFLOPS)", "CPU use (%)", "interrupts (1/s)", "memory_MB_s (MB/s)"):
        assert axis in text


# --- a large trial --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large():
    return large_trial(1024, links_per_node=16)


def test_the_report_of_1024_nodes_is_small_and_shows_what_is_bad(large, tmp_path):
    write_html(large, tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 8e6
    page = html.document_fromstring((tmp_path / "report.html").read_text(encoding="utf-8"))
    for heading in page.xpath("//details[@class='linkmap']"):
        assert "All links of node0513 are worse" in words(heading)
        picture = heading.xpath(".//img/@src")[0]
        assert picture.startswith("data:image/png;base64,")
    assert words(page.xpath("//table[contains(@class, 'clauses')]//tr[3]/td[2]")[0])
    hrefs = {href[1:] for href in page.xpath("//@href") if href.startswith("#")}
    assert hrefs <= set(page.xpath("//@id"))
    listed = page.xpath("//table[contains(@class, 'judgements')]/tbody/tr")
    assert len(listed) < 2500
    assert f"{len(large.judgements) - len(listed)} in results.jsonl" in words(page)


def test_a_large_trial_has_no_chart_per_link(large):
    page = html.document_fromstring(render(large))
    figures = page.xpath("//figure[contains(@class, 'plot')]")
    assert 0 < len(figures) < 20
    assert "latency of 2000 links" in words(page)


def test_the_junit_of_a_large_trial_counts_what_it_does_not_list(large, tmp_path):
    write_junit(large, tmp_path / "junit.xml")
    assert (tmp_path / "junit.xml").stat().st_size < 2e6
    root = etree.parse(str(tmp_path / "junit.xml")).getroot()
    failed = sum(j.verdict == "fail" for j in large.judgements)
    assert 0 < len(root.findall(".//failure")) <= failed + 3
    assert "judgements more" in " ".join(case.get("name") for case in root.iter("testcase"))


def test_a_picture_needs_rows_of_one_length(tmp_path: Path):
    from seatrial.report.picture import data_uri

    with pytest.raises(ValueError, match="one length"):
        data_uri([b"\1\2", b"\1"], ["#000000"])
