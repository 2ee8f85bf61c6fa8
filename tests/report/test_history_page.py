"""``history.html``: complete, self-contained, and safe with hostile names."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from datetime import date

import pytest
from lxml import html

from history_support import BEGIN, NETPIPE, make_night, runs_of, sealed
from seatrial.history.changes import findings
from seatrial.history.index import opened
from seatrial.report import history_page
from seatrial.report.history_page import write_history
from seatrial.report.html import render
from seatrial.results.folder import Results, read_results
from seatrial.results.record import Case, ProfileUse
from seatrial.results.requirements import Accepted, Document, Informative, Requirements

HOSTILE = '</script><img src="http://evil.example/x" onerror=alert(1)>'
LINKS = Case(check="links", transport="tcp", nodes=4, profile="jumbo")


@pytest.fixture
def trials(tmp_path):
    """Ten nights; from the seventh on one link and NetPIPE are slower, with another driver."""
    for number in range(10):
        slow, driver = (1.2, "igb 5.2") if number >= 6 else (1.0, "igb 5.1")
        versions = {"driver of eth1": driver}
        runs = runs_of(NETPIPE, "latency_us", [slow * (30 + at / 10) for at in range(3)],
                       versions=versions)  # fmt: skip
        for link, factor in (("n1-n2", 1.0), ("n1-n3", slow), (HOSTILE, 1.0)):
            runs += runs_of(LINKS, "latency_us", [factor * (50 + at / 10) for at in range(3)],
                            location=link, versions=versions)  # fmt: skip
        sealed(make_night(tmp_path, number, (1, 2, 3), runs=runs))
    (tmp_path / "lab-004" / "report.html").write_text("x")
    return tmp_path


def page_of(trials, requirements=None, **patterns):
    file = trials / "history.html"
    with opened(trials, print) as index:
        write_history(index, file, requirements or {}, **patterns)
    text = file.read_text()
    return text, html.document_fromstring(text)


def words(elements) -> list[str]:
    return [" ".join(element.text_content().split()) for element in elements]


def test_it_needs_no_other_file_and_allows_its_own_script_only(trials):
    text, page = page_of(trials)
    assert not page.xpath("//link | //img | //iframe | //@src | //@onerror")
    assert not re.search(r"url\(|@import", text)
    (policy,) = page.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    *_, script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")


def test_every_link_leads_somewhere(trials):
    _, page = page_of(trials)
    targets = set(page.xpath("//@id"))
    links = page.xpath("//a/@href")
    inner = [link[1:] for link in links if link.startswith("#")]
    assert len(inner) >= 5
    assert set(inner) <= targets
    assert [link for link in links if not link.startswith("#")] == ["./lab-004/report.html"]


def test_what_changed_is_first_and_marked_in_the_charts(trials):
    _, page = page_of(trials)
    with opened(trials, print) as index:
        (finding,) = findings(index)
    (article,) = page.xpath("//article")
    assert article.get("id") == f"c-{finding.id}"
    (head,) = words(article.xpath(".//h3"))
    what = "the whole site: 2 of 4 series worse by 20 % at most"
    assert head == f"worse {what} {finding.id}"
    assert "changed that night: driver of eth1 igb 5.1 -> igb 5.2" in article.text_content()
    charts = {one.xpath(".//button")[0].text: one for one in page.xpath("//figure")}
    assert set(charts) == {"n1-n2", "n1-n3", HOSTILE, "latency_us"}
    for name, chart in charts.items():
        changed = name in ("n1-n3", "latency_us")
        assert len(chart.xpath(".//*[@class='worse']")) == changed
        assert len(chart.xpath(".//*[@class='version']")) == 1
        assert ("data-changed" in chart.attrib) == changed
        (line,) = chart.xpath(".//polyline/@points")
        assert len(line.split()) == 10
    assert words(page.xpath("//table[@class='data']/tbody/tr/*")) == [
        "2026-08-07", "driver of eth1 igb 5.1 -> igb 5.2 (2 cases)"
    ]  # fmt: skip


def test_the_calendar_has_the_worst_verdict_of_each_day(trials):
    make_night(trials, 3, folder="second", trial="second", started=BEGIN.replace(day=4, hour=23))
    lines = (trials / "second" / "results.jsonl").read_text().replace('"accept"', '"reject"')
    (trials / "second" / "results.jsonl").write_text(lines)
    sealed(trials / "second")
    sealed(make_night(trials, 31))
    _, page = page_of(trials)
    rows = page.xpath("//table[contains(@class, 'calendar')]/tbody/tr")
    assert words(rows)[0].startswith("2026-09")
    cells = [row.xpath("td/@class") for row in rows]
    assert [len(row) for row in cells] == [31, 31]
    assert cells[1][2:8] == ["pass", "fail", "pass", "pass", "pass changed", "pass"]
    assert cells[0] == ["pass", *["blank"] * 30]
    (title,) = page.xpath("//td[@class='fail']//@title")
    assert title.splitlines() == [
        "2026-08-04 22:00 accept: lab-003",
        "2026-08-04 23:00 reject: second",
    ]


def test_the_script_has_the_figures_of_each_chart(trials):
    _, page = page_of(trials)
    ((site,),) = (json.loads(one.text) for one in page.xpath("//script[@id='data']"))
    assert len(site["nights"]) == 10
    assert site["nights"][0] == [0, "2026-08-01 22:00", "lab-000", "accept"]
    assert site["versions"] == {"6": ["driver of eth1 igb 5.1 -> igb 5.2 (2 cases)"]}
    assert set(site["series"]) == set(page.xpath("//figure/@id"))
    numbers, values, unit = site["series"]["s0-3"]
    assert (numbers, values[0], values[-1], unit) == (0, 30.1, 36.12, "us")


def test_a_trial_without_sums_is_marked_and_so_are_its_points(trials):
    _, page = page_of(trials)
    assert not page.xpath("//*[contains(@class, 'unproven')]")
    assert "SHA256SUMS" not in page.text_content()
    (trials / "lab-002" / "SHA256SUMS").unlink()
    _, page = page_of(trials)
    (cell,) = page.xpath("//td[contains(@class, 'unproven')]//@title")
    assert cell == "2026-08-03 22:00 accept: lab-002\nno SHA256SUMS"
    for chart in page.xpath("//figure"):
        ((x, y),) = (
            one.removeprefix("M").removesuffix("h0").split()
            for one in chart.xpath(".//*[@class='unproven']/@d")
        )
        assert f"{x},{y}" == chart.xpath(".//polyline/@points")[0].split()[2]
    ((site,),) = (json.loads(one.text) for one in page.xpath("//script[@id='data']"))
    assert [night[3] for night in site["nights"]][1:4] == [
        "accept", "accept; no SHA256SUMS", "accept",
    ]  # fmt: skip
    why = "no SHA256SUMS: nothing shows that the files are as the trial wrote them"
    assert [why in text for text in words(page.xpath("//ul[contains(@class, 'legend')]"))] == [
        True, True,
    ]  # fmt: skip


def test_a_finding_of_many_series_has_its_essence_in_five_lines(tmp_path):
    """The largest change for the worse and for the better; the others are folded."""
    for number in range(10):
        factor = 1.0 if number < 6 else 1.2
        runs = [
            run for at in range(60) for f in [factor ** (1 + at / 1000 if at else -1)]
            for run in runs_of(LINKS, f"metric{at}_us", [f * (50 + at / 10) for at in range(3)],
                               versions={"driver of eth1": f"igb {factor}"})
        ]  # fmt: skip
        make_night(tmp_path, number, (1, 2, 3), runs=runs)
    _, page = page_of(tmp_path)
    (article,) = page.xpath("//article")
    (folded,) = article.xpath(".//details")
    assert "open" not in folded.attrib
    shown = article.xpath("./h3 | ./p | ./ul/li")
    assert len(shown) <= 5
    first, last = words(article.xpath("./ul/li"))
    assert "metric59_us" in first
    assert "metric0_us" in last
    assert words(folded.xpath("./summary")) == [
        "58 more series, of 60 that were compared; the trials"
    ]
    assert "(lab-006, after lab-005)" in folded.text_content()
    listed = words(folded.xpath(".//li"))
    assert len(listed) == 48 + 1
    assert listed[-1].startswith("and 10 more: ")


def test_a_worse_series_makes_a_badge_red_and_informative_ones_are_last(tmp_path):
    """One series is worse, one better, and the largest change is of an informative one."""
    for number in range(12):
        new = number >= 7
        runs = [
            run for metric, factor in (("latency_us", 1.2), ("time_us", 0.8), ("half_us", 3.0))
            for run in runs_of(NETPIPE, metric, [(factor if new else 1) * (30 + at / 10)
                                                 for at in range(3)])
        ]  # fmt: skip
        make_night(tmp_path, number, (1, 2, 3), runs=runs)
    document = Document.model_validate(
        {"schema": 1, "informative": [{"select": {}, "metric": "half_us", "reason": "no quality"}]}
    )
    own = {"lab": Requirements(informative=tuple(document.informative))}
    _, page = page_of(tmp_path, own)
    (article,) = page.xpath("//article")
    (badge,) = article.xpath(".//h3/span")
    assert (badge.get("class"), badge.text) == ("badge fail", "worse and better")
    (head,) = words(article.xpath("./h3"))
    assert "1 of 3 series worse by 20 %, 1 of 3 series better by 20 %, 1 of 3 informative" in head
    listed = words(article.xpath(".//li"))
    metrics = ("latency_us", "time_us", "half_us")
    assert all(metric in one for metric, one in zip(metrics, listed, strict=True))
    _, page = page_of(tmp_path, own, metric=["time_us"])
    (head,) = words(page.xpath("//article/h3"))
    assert "worse and better the whole site: 1 of 3 series worse by 20 %" in head
    assert "; 1 of 3 series shown " in head
    (one,) = words(page.xpath("//article//li"))
    assert "time_us" in one
    _, page = page_of(
        tmp_path, {"lab": Requirements(informative=tuple(
            one.model_copy(update={"metric": "*"}) for one in document.informative))},
    )  # fmt: skip
    (badge,) = page.xpath("//article//h3/span")
    assert (badge.get("class"), badge.text) == ("badge unjudged", "informative")


def test_the_largest_figures_are_numbers_in_the_script(tmp_path):
    for number in range(2):
        runs = runs_of(NETPIPE, "latency_us", [1.7976931348623157e308])
        make_night(tmp_path, number, (1,), runs=runs)
    _, page = page_of(tmp_path)
    ((site,),) = (json.loads(one.text) for one in page.xpath("//script[@id='data']"))
    assert [values for _, values, _ in site["series"].values()] == [[1.7976931348623157e308] * 2]


def test_who_accepted_a_change_is_said(trials):
    with opened(trials, print) as index:
        (finding,) = findings(index)
    one = Accepted(change=finding.id, by=HOSTILE, when=date(2026, 8, 12), reason="it is <wanted>")
    _, page = page_of(trials, {"lab": Requirements(accepted=(one,))})
    text = words(page.xpath("//article"))[0]
    assert f"accepted on 2026-08-12 by {HOSTILE}: it is <wanted>" in text


def test_a_selection_and_a_limit_are_said(trials, monkeypatch):
    _, page = page_of(trials, metric=["latency_us"], location=["n1-*"])
    assert len(page.xpath("//figure")) == 2
    monkeypatch.setattr(history_page, "SERIES", 1)
    monkeypatch.setattr(history_page, "NIGHTS", 5)
    _, page = page_of(trials)
    (name,) = words(page.xpath("//figure//button"))
    assert name in ("n1-n3", "latency_us")
    assert "3 more series are not drawn" in page.text_content()
    assert "5 trials from 2026-08-06" in page.text_content()


def test_gaps_one_trial_and_none(tmp_path):
    _, page = page_of(tmp_path)
    assert "There is no trial that can be read." in page.text_content()
    make_night(tmp_path, 0)
    _, page = page_of(tmp_path)
    (dot,) = page.xpath("//figure//*[@class='dot']/@d")
    assert dot.startswith("M500 ")
    assert "1 trial of 2026-08-01: 1 accept. 1 series, no change of level." in page.text_content()
    assert words(page.xpath("//p[@class='empty']")) == [
        "No change of level can be seen before trial 5."
    ]
    assert page.xpath("//section[@class='one']/@style") == ["--begin: '2026-08-01'; --end: ''"]
    make_night(tmp_path, 100)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "results.jsonl").write_text("{")
    text, page = page_of(tmp_path)
    assert page.xpath("//figure//polyline/@points")[0].startswith("0,")
    assert "half/results.jsonl" in text
    assert words(page.xpath("//a[@href='#not-counted']")) == ["1 folder not counted"]


def test_five_trials_can_show_a_change_and_fewer_cannot(tmp_path):
    for number in range(5):
        make_night(tmp_path, number, [(1.5 if number > 1 else 1) * (30 + at) for at in range(3)])
        _, page = page_of(tmp_path)
        assert bool(page.xpath("//article")) == (number == 4)


def test_a_chart_has_its_first_and_last_day_and_the_days_between_when_it_is_large(trials):
    _, page = page_of(trials)
    (style,) = page.xpath("//section[@style]/@style")
    assert style == "--begin: '2026-08-01'; --end: '2026-08-10'"
    ((site,),) = (json.loads(one.text) for one in page.xpath("//script[@id='data']"))
    (first, _), (last, _) = site["grid"]
    assert [day for _, day in site["grid"]] == ["2026-08-03", "2026-08-10"]
    assert {f"M{first} 0V300M{last} 0V300"} == set(page.xpath("//figure//*[@class='grid']/@d"))


def test_versions_and_settings_have_marks_of_their_own(tmp_path):
    """The driver changes on the third night, a setting on the fifth, both nodes on the seventh."""
    for number in range(9):
        usecs = "10" if number < 4 else "20"
        runs = runs_of(
            LINKS, "latency_us", (30, 31), location="n1-n2",
            versions={"driver of eth1": "igb 5.1" if number < 2 else "igb 5.2"},
        )  # fmt: skip
        for run in runs:
            run.job.nodes = ["n1", "n2"] if number < 6 else ["n3", "n4"]
        use = ProfileUse(name="jumbo", settings={"n1": {"eth1": {"coalesce": {"rx": usecs}}}})
        make_night(tmp_path, number, (1, 2), runs=runs, profiles=[use])
    _, page = page_of(tmp_path)
    (chart,) = page.xpath("//figure")
    assert chart.xpath(".//*[@class='version']/@d") == ["M250 300v-45"]
    assert chart.xpath(".//*[@class='setting']/@d") == ["M500 0v45M750 0v45"]


def test_a_series_that_is_not_judged_has_a_mark_of_its_own(trials):
    rule = Informative(metric="latency_us", reason="x")
    _, page = page_of(trials, {"lab": Requirements(informative=(rule,))})
    assert not page.xpath("//figure//*[@class='worse']")
    assert len(page.xpath("//figure//*[@class='informative']")) == 2
    assert "changed, and is not judged" in words(page.xpath("//ul[contains(@class, 'key')]"))[0]


def test_a_report_links_the_page_if_there_is_one(trials):
    results: Results = read_results(trials / "lab-004")
    assert "history.html" not in render(results)
    page_of(trials)
    for base, href in ((".", "./../history.html"), ("../..", "./../../../history.html")):
        page = html.document_fromstring(render(results, base))
        assert page.xpath("//nav//a[contains(text(), 'History')]/@href") == [href]
