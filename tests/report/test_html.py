"""What a reader must find in report.html, and what must never be in it."""

from __future__ import annotations

import re
import time
from urllib.parse import unquote

import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import html

import trial_maker
from campaigns import rounds
from seatrial.analysis import trials
from seatrial.report import cases, profiles
from seatrial.report.html import render, write_html
from seatrial.results.folder import Results, read_results
from seatrial.results.judge import judge
from seatrial.results.record import Case, Clause
from seatrial.results.verdict import conclude
from trial_maker import IMB, NETPIPE, PAIRS

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "http://evil.example/x",
    "../../etc/passwd",
    "<!--",
    "]]>",
    "{{ 7 * 7 }}{% raw %}",
    "%{x} $x$ <b>bold</b> &lt;i&gt;",
    "a\x00b\x1b[31mred\u202etxt",
    "x" * 256,
]


def parse(page: str) -> html.HtmlElement:
    return html.document_fromstring(page)


def words(element: html.HtmlElement) -> str:
    return " ".join(element.text_content().split())


@pytest.fixture(scope="module")
def pages(written):
    cache = {}

    def get(name):
        if name not in cache:
            results, folder = written(name)
            cache[name] = results, parse((folder / "report.html").read_text(encoding="utf-8"))
        return cache[name]

    return get


EXAMPLES = sorted(synthetic.EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_judgement_and_case_is_on_the_page(pages, name):
    results, page = pages(name)
    rows = page.xpath("//table[contains(@class,'judgements')]/tbody/tr")
    assert len(rows) == len(results.judgements)
    by_id = {row.get("id"): row for row in rows}
    for index, judgement in enumerate(results.judgements):
        row = by_id[f"j{index}"]
        text = row.text_content()
        assert row.get("data-verdict") == judgement.verdict
        assert judgement.case.id in text
        assert judgement.explanation in text
        assert judgement.metric in text
        if judgement.requirement:
            assert judgement.requirement.id in text
    cases = page.xpath("//details[contains(@class, 'case')]")
    planned = {case.id for case in results.trial.cases} | {run.case.id for run in results.runs}
    assert {words(case.find(".//h3")) for case in cases} == planned


@pytest.mark.parametrize("name", EXAMPLES)
def test_fragments_are_unique_and_lead_somewhere(pages, name):
    _, page = pages(name)
    ids = page.xpath("//@id")
    assert len(ids) == len(set(ids))
    assert {unquote(href[1:]) for href in page.xpath("//@href") if href[0] == "#"} <= set(ids)


@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_is_loaded_and_links_are_relative_and_exist(pages, written, name):
    _, folder = written(name)
    _, page = pages(name)
    assert (
        page.xpath("//@src | //@srcset | //link | //iframe | //object | //embed | //form/@action")
        == []
    )
    policy = page.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")[0]
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'sha256-" in policy
    assert "url(" not in page.xpath("string(//style)")
    links = [href for href in page.xpath("//@href") if not href.startswith("#")]
    for href in links:
        assert href.startswith("./")
        assert (folder / unquote(href)).exists()


def test_every_run_links_its_evidence_and_raw_files(pages):
    results, page = pages("rejected")
    links = {unquote(href) for href in page.xpath("//@href[ancestor::details]")}
    for run in results.runs:
        assert f"./{run.evidence}" in links
        assert f"./{run.evidence}/nic before#1.json" in links
    repeats = [heading.split(":")[0] for heading in page.xpath("//section[@class='run']/h4/text()")]
    assert set(repeats) == {f"Repeat {run.repeat + 1}" for run in results.runs}
    raw = set(page.xpath("//td[@class='links']/a/text()"))
    assert raw <= {f"{kind} {run.repeat + 1}" for run in results.runs for kind in ("raw", "path")}


def test_missing_evidence_is_said_to_be_missing(tmp_path):
    results = synthetic.one_node().model_copy(update={"folder": tmp_path})
    assert "did not exist when the report was written" in words(parse(render(results)))


@pytest.mark.parametrize(
    ("name", "word", "sentence"),
    [
        ("accepted", "ACCEPT", "All 341 judgements passed."),
        ("rejected", "REJECT", "8 failed"),
        ("incomplete", "INCOMPLETE", "6 planned cases did not run"),
        ("cut_off", "INCOMPLETE", "interrupted before its verdict: 11 of 58 cases had run"),
        ("empty", "INCOMPLETE", "interrupted before its verdict: 0 of 58 cases had run"),
    ],
)
def test_the_verdict_is_a_word_and_a_reason(pages, name, word, sentence):
    _, page = pages(name)
    assert words(page.xpath("//p[@class='word']")[0]).endswith(word)
    assert sentence in words(page.xpath("//p[@class='why']")[0])


def test_an_accept_that_its_records_contradict_is_pointed_out():
    results = synthetic.rejected()
    verdict = results.verdict.model_copy(update={"verdict": "accept"})
    page = parse(render(results.model_copy(update={"verdict": verdict})))
    assert "is accept, but of the judgements 8 failed" in words(page.xpath("//p[@class='why']")[0])


def test_a_planted_fault_is_beside_the_verdict():
    results = synthetic.rejected()
    results.trial.notes.append("fault planted on purpose: link n3: delay 150us")
    page = html.document_fromstring(render(results))
    [shown] = page.xpath(
        "//header[contains(@class, 'verdict')]/p[contains(@class, 'planted')]/text()"
    )
    assert shown == results.trial.notes[-1]


def test_findings_link_to_their_case(pages):
    _, page = pages("rejected")
    items = page.xpath("//section[@class='findings']//li")
    assert [a.get("href") for a in items[0].findall(".//a")] == [
        "#case-links.openmpi-tcp.default.4n"
    ]
    assert items[1].find(".//a").get("href") == "#case-nodes.none.default.4n"
    _, page = pages("incomplete")  # the third finding names no case, only words of one
    third = page.xpath("//section[@class='findings']//li")[2]
    assert third.findall(".//a") == []


RULES = """
  - {select: {check: netpipe}, metric: latency_us, basis: contract, source: line 1, at_most: 20,
     unit: us}
  - {select: {check: netpipe}, metric: latency_us, basis: contract, source: line 2, at_most: 60,
     unit: us}
  - {select: {check: imb}, metric: latency_us, basis: contract, source: line 3, at_most: 21,
     unit: us}
  - {select: {check: imp}, metric: latency_us, basis: contract, source: line 4, at_most: 21,
     unit: us}
  - {select: {check: links}, metric: latency_us, basis: relative, peers: median, at_most: 1.5}
  - {select: {check: osu_mbw_mr, transport: "*-ucx"}, metric: mbw_mr_bandwidth_MB_s,
     basis: relative, relative_to: {check: netpipe, transport: tcp, metric: bandwidth_MB_s},
     at_least: 0.5}
"""
WAIVED = """
waivers: [{clause: line 3, by: J. Doe, reason: firmware, expires: 2999-01-01}]
"""


def judged_report(rules=RULES, rest=WAIVED):
    """Figures that break, scatter about and meet bounds, judged as in a trial; and the page."""
    mbw_mr = Case(check="osu_mbw_mr", transport="openmpi-tcp", nodes=2)
    slow = {"n1-n3": 50, "n2-n3": 60, "n3-n4": 55}
    links = {f"n{a}-n{b}": 10.0 for a in range(1, 4) for b in range(a + 1, 5)} | slow
    runs = []
    for repeat in range(3):
        at_links = [trial_maker.metric(value, location=name) for name, value in links.items()]
        mbw = trial_maker.metric(900, "mbw_mr_bandwidth_MB_s", "MB/s", "higher")
        runs += [
            trial_maker.run(NETPIPE, trial_maker.metric(30 + repeat / 10), repeat=repeat),
            trial_maker.run(IMB, trial_maker.metric(20 + repeat), repeat=repeat),
            trial_maker.run(PAIRS, *at_links, repeat=repeat, nodes=["n1", "n2", "n3", "n4"]),
            trial_maker.run(mbw_mr, mbw, repeat=repeat),
        ]
    requirements = trial_maker.requirements(rules, rest)
    trial = trial_maker.trial(NETPIPE, IMB, PAIRS, mbw_mr, repeats=3)
    judgements = judge(trial, runs, requirements)
    verdict = conclude(trial, runs, judgements, requirements)
    results = Results(trial=trial, runs=runs, judgements=judgements, verdict=verdict)
    return parse(render(results))


def finding(page, text):
    """The words of the one finding with this text, and what its link leads to; None: no link."""
    items = page.xpath("//section[@class='findings']//li")
    (item,) = (item for item in items if text in words(item))
    links = item.findall(".//a")
    assert len(links) <= 1
    return words(item), page.get_element_by_id(links[0].get("href")[1:]) if links else None


def test_findings_link_to_what_they_are_about():
    page = judged_report()
    sentence, row = finding(
        page, "above the upper limit of 20 us of the contract (requirements.yaml:3)"
    )
    assert row.get("data-verdict") == "fail"
    assert words(row.find("td[last()-1]")) in sentence.removesuffix(" see the judgement")
    sentence, row = finding(page, "3 figures break the relative requirement")
    assert [words(cell) for cell in row[1:4]] == ["links.tcp.default.4n", "latency_us", "n2-n3"]
    assert words(row.find("td[last()-1]")) in sentence
    sentence, row = finding(page, "line 3 (requirements.yaml:7) is waived")
    assert words(row[0]) == "line 3requirements.yaml:7: check imb"
    sentence, row = finding(page, "a clause of the contract was not tested: line 4")
    assert words(row[0]) == "line 4requirements.yaml:9: check imp"
    _, case = finding(page, "node n3 is common to all 3 failing links")
    assert words(case.find(".//h3")) == "links.tcp.default.4n"
    _, case = finding(page, "no requirement applies to mbw_mr_bandwidth_MB_s")
    assert words(case.find(".//h3")) == "osu_mbw_mr.openmpi-tcp.default.2n"
    # It shares words with the case before, but nothing of the page is about it.
    assert finding(page, "the relative requirement requirements.yaml:12")[1] is None


def test_other_links_lead_to_the_judgement_that_they_are_about():
    page = judged_report()
    for clause in page.xpath("//table[contains(@class, 'clauses')]/tbody/tr[td//@href]"):
        row = page.get_element_by_id(clause.xpath(".//@href")[0][1:])
        assert words(clause.find("th/small")).split(": ")[0] in words(row)
        assert words(clause.xpath(".//a")[0]) in words(row)
    cells = page.xpath("//table[contains(@class, 'heat')]//td[a]")
    assert len(cells) == 12
    for cell in cells:
        row = page.get_element_by_id(cell.find("a").get("href")[1:])
        assert words(row[4]).startswith(words(cell).removeprefix("✗ ") + " us")
        assert (row.get("data-verdict") == "fail") == ("✗" in words(cell))
    # A figure that breaks one clause and meets another: the case links to what it breaks.
    case = page.get_element_by_id("case-netpipe.tcp.default.2n")
    link = case.xpath(".//table[caption='Figures']//a")[0]
    assert words(link) == "✗ fail"
    assert page.get_element_by_id(link.get("href")[1:]).get("data-verdict") == "fail"


def test_matrix_tells_by_word_and_symbol(pages):
    results, page = pages("incomplete")
    cells = page.xpath("//table[contains(@class,'matrix')]/tbody//td[a]")
    assert len(cells) == len(results.trial.cases)
    text = {words(cell) for cell in cells}
    assert text == {"!error", "?missing", "≈inconclusive", "○not run", "✓pass"}
    hover = page.xpath("//td[@class='error']/a/@title")[0]
    assert "2 of 2 runs in error" in hover
    head = page.xpath("//table[contains(@class,'matrix')]/thead//th")
    assert all(th.get("scope") in ("col", "colgroup") for th in head)


def test_contract_and_matrix_fit_a_window_of_700_pixels(browse, tmp_path):
    """A matrix of seventeen columns, with six transports of one column each."""
    results = synthetic.rejected()
    profiles = ["default", "jumbo", "no-offload", "gigabit", "multi-queue", "bulk"]
    columns = [("openmpi-tcp", profile) for profile in profiles[:5]]
    names = ["openmpi-ucx", "openmpi-ofi", "mpich-ucx", "mpich-ofi", "intelmpi-tcp", "none"]
    columns += [(name, "default") for name in names] + [("tcp", profile) for profile in profiles]
    results.runs, results.judgements = [], []
    results.trial.cases = [
        Case(check="node_compute", transport=transport, profile=profile, nodes=4)
        for transport, profile in columns
    ]
    results.verdict.findings = []
    results.verdict.clauses = [
        Clause(
            id="requirements.yaml:1234", source="tender 2026-17, annex B, line 4", statistic="p99",
            selects="check links, transport openmpi-tcp, profile multi-queue", unit="MB/s",
            metric="pingpong_1048576B_bandwidth_MB_s", required="at least 1234.5 MB/s",
            status="inconclusive", reason="its spread hides the answer", value=1234.5,
            spread=123.4, margin=-0.1234, case=results.trial.cases[4], location="n1-n2",
        )
    ]  # fmt: skip
    script = """<script>addEventListener("load", () => {
      for (const box of document.querySelectorAll(".scroll"))
        box.dataset.hidden = box.scrollWidth - box.clientWidth;
      for (const name of document.querySelectorAll("th[scope=colgroup]"))
        name.dataset.lines = [...name.querySelectorAll("span")].map(
          (one) => one.getClientRects().length).join();
    })</script></body>"""
    page = re.sub("<meta http-equiv=.Content-Security-Policy[^>]*>", "", render(results))
    (tmp_path / "x.html").write_text(page.replace("</body>", script))
    dom = html.document_fromstring(browse((tmp_path / "x.html").as_uri(), 700))
    for name in ("Contract", "Matrix of cases"):
        assert dom.xpath(f"//div[@aria-label='{name}']/@data-hidden") == ["0"], name
    assert set(dom.xpath("//th[@scope='colgroup']/@data-lines")) == {"1"}


def test_a_matrix_cell_hover_has_the_figure(pages):
    _, page = pages("rejected")
    hint = page.xpath("//table[contains(@class,'matrix')]//td[@class='fail']/a/@title")[0]
    assert "latency_us at n1-n3" in hint
    assert "required ≤" in hint


def test_link_map_shows_the_bad_node(pages):
    _, page = pages("rejected")
    heat = page.xpath("//details[@class='linkmap']")[0]
    assert "All links of n3 are worse" in words(heat)
    row = heat.xpath(".//tbody/tr[th='n3']")[0]
    assert all("✗" in words(td) for td in row.findall("td")[:-1] if words(td))
    assert [td.get("class") for td in row.findall("td")][-1] == "own h5"
    good = heat.xpath(".//tbody/tr[th='n1']/td/@class")
    assert good.count("h5") == 1


def test_the_numbers_of_every_figure_are_in_a_table(pages):
    _, page = pages("accepted")
    figures = page.xpath("//figure")
    assert len(figures) >= 9
    for figure in figures:
        assert figure.xpath(".//tbody/tr/td")
        assert all(th.get("scope") for th in figure.xpath(".//th"))
    titles = " ".join(words(f.find(".//h3")) for f in figures)
    for part in ("netpipe", "pingpong", "latency", "bandwidth", "HPL", "CPU use", "Interrupts"):
        assert part in titles
    hpl = page.xpath("//figure[@id='fig-hpl-4']")[0]
    assert "hpl_percent_of_dgemm" in words(hpl)


def test_case_details_hold_proof_and_state(pages):
    _, page = pages("incomplete")
    case = page.xpath("//details[@id='case-imb.mpich-ucx.default.2n']")[0]
    text = words(case)
    assert "did not cross the network data" in text
    assert "0.1111 % ✗ too little" in text
    assert "btl:tcp selected" in text
    row = page.xpath(
        "//details[@id='case-imb.openmpi-tcp.lowlat.2n']//tr[th='coalesce.rx-usecs']/td/text()"
    )
    assert row[:3] == ["20", "0", "20"]  # before, during, after


def test_what_the_site_declares_of_transports_and_the_settings_of_benchmarks(pages):
    _, page = pages("accepted")
    (table,) = page.xpath("//div[@aria-label='Transports as the site declares them']/table")
    (row,) = table.xpath("./tbody/tr")  # of openmpi-tcp it declares nothing
    cells = [words(one) for one in row]
    assert cells[0] == "openmpi-tcp-16kvariant of openmpi-tcp"
    assert cells[1] == "OMPI_MCA_btl_tcp_sndbuf=16384 OMPI_MCA_btl_tcp_rcvbuf=16384"
    assert cells[2] == "--hint=nomultithread"
    (settings,) = page.xpath("//table[caption='Settings of the benchmarks']")
    assert [words(one) for one in settings.xpath(".//tr")] == [
        "hpl.size2400", "hpl.block64", "hpl.grid_rowsnone",
    ]  # fmt: skip


def test_settings_left_on_a_node_are_pointed_out():
    results = synthetic.one_node()
    nic = {
        "n1": {"eth1": {"before": {"mtu": 1500}, "during": {"mtu": 9000}, "after": {"mtu": 9000}}}
    }
    run = results.runs[0].model_copy(update={"nic": nic})
    page = parse(render(results.model_copy(update={"runs": [run]})))
    assert "not restored" in words(page)


def test_headings_are_nested_and_tables_have_headers(pages):
    _, page = pages("incomplete")
    levels = [int(h.tag[1]) for h in page.xpath("//h1|//h2|//h3|//h4|//h5")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert page.xpath("//html/@lang") == ["en"]
    assert page.xpath("//table[not(.//th[@scope])]") == []


def assert_inert(page: str) -> None:
    """Nothing that a record said became markup, script or a link out of the folder."""
    document = parse(page)
    assert len(document.xpath("//script")) in (2, 3)
    assert not document.xpath("//img | //b[text()='bold'] | //i")
    assert not document.xpath("//@*[starts-with(name(), 'on')]")
    for href in document.xpath("//@href"):
        assert href.startswith(("#", "./"))
        assert ".." not in href.split("/")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", page)
    assert not document.xpath("//comment()")


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_records_stay_text(text):
    results = synthetic.hostile(text)
    page = render(results)
    assert_inert(page)
    assert len(parse(page).xpath("//table[contains(@class,'judgements')]/tbody/tr")) == 9


@settings(max_examples=rounds(8, 100))
@given(st.text(max_size=40))
def test_any_text_stays_text(text):
    assert_inert(render(synthetic.hostile(text)))


def test_cases_of_one_name_are_kept_apart():
    results = synthetic.one_node()
    twin = [
        Case(check="a-b", transport="t", nodes=1),
        Case(check="a", variant="b", transport="t", nodes=1),
    ]
    trial = results.trial.model_copy(update={"cases": twin})
    page = parse(render(Results(trial=trial)))
    ids = page.xpath("//details[@class='case']/@id")
    assert len(ids) == len(set(ids)) == 2


def test_not_a_number_is_written_as_such(pages):
    _, page = pages("weird")
    assert "not a number" in words(page.xpath("//tr[@id='j0']")[0])


def test_two_thousand_judgements_are_fast_and_not_large(tmp_path):
    results = synthetic.many(2000)
    assert len(results.judgements) == 2000
    started = time.process_time()
    write_html(results, tmp_path / "report.html")
    assert time.process_time() - started < 8  # of a processor; about 0.5 s on a desktop
    assert (tmp_path / "report.html").stat().st_size < 8e6


def test_it_reads_back_from_disk_the_same(written):
    results, folder = written("rejected")
    again = read_results(folder)
    assert render(again) == render(results)


def test_plotly_is_embedded_once_and_only_where_there_is_a_figure(written):
    with_figures = (written("accepted")[1] / "report.html").read_text(encoding="utf-8")
    without = (written("empty")[1] / "report.html").read_text(encoding="utf-8")
    assert with_figures.count('id="plotly-gz"') == 1
    assert 'id="plotly-gz"' not in without
    assert len(without) < 200_000


def fails(*_):
    raise ZeroDivisionError("<i>as nobody thought of</i>")


def test_a_part_that_fails_is_named_and_the_others_are_there(monkeypatch):
    """A chapter, and what the page has of each run."""
    results = synthetic.rejected()
    whole = parse(render(results))
    monkeypatch.setattr(trials, "analyse", fails)
    monkeypatch.setattr(cases, "counted", fails)
    monkeypatch.setattr(profiles, "cost_table", fails)
    page = parse(render(results))
    named = [words(one) for one in page.xpath("//p[contains(@class, 'notes')]")]
    text = "a defect of Seatrial, ZeroDivisionError: <i>as nobody thought of</i>"
    assert any(f"lacks a part: What it means: {text}" in one for one in named)
    assert any("lacks a part: costs of profiles: " in one for one in named)
    proven = [run for run in results.runs if run.path]
    assert sum("lacks a part: Counters of " in one for one in named) == len(proven) > 1
    for path in ("//p[@class='word']", "//table[contains(@class, 'judgements')]"):
        assert words(page.xpath(path)[0]) == words(whole.xpath(path)[0])
    assert not page.xpath("//i")


@pytest.mark.parametrize("target", ["elsewhere", "/"])
def test_evidence_behind_a_link_is_a_note(tmp_path, target):
    """A job user can make a link to any folder: its names are not for everybody."""
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "deep" / "secret").touch()
    trial = tmp_path / "trial"
    (trial / "cases" / "own").mkdir(parents=True)
    (trial / "cases" / "own" / "link").symlink_to(tmp_path / "elsewhere")
    (trial / "cases" / "own" / "file").touch()
    (trial / "cases" / "peek").symlink_to(tmp_path / target)
    base = synthetic.one_node()
    runs = [
        base.runs[0].model_copy(update={"evidence": f"cases/{name}"})
        for name in ("peek", "peek/deep", "own")
    ]
    page = render(base.model_copy(update={"runs": runs, "folder": trial}))
    assert "secret" not in page
    assert page.count("not a folder, or behind a symbolic link: not linked") == 2
    files = parse(page).xpath("//ul[@class='files']/li")
    assert [words(file) for file in files] == ["file"]


def test_a_folder_of_many_files_is_not_walked_to_its_end(tmp_path):
    (tmp_path / "cases" / "r0").mkdir(parents=True)
    for number in range(60):
        (tmp_path / "cases" / "r0" / f"f{number:02}").touch()
    run = synthetic.one_node().runs[0].model_copy(update={"evidence": "cases/r0"})
    links = cases.raw_files(run, tmp_path)
    assert [link.text for link in links[:2]] == ["f00", "f01"]
    assert [link.text for link in links[49:]] == ["f49", "and more in the folder"]
