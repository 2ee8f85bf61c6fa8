"""The chapter "What it means": its sentences, its tables and its pictures."""

from __future__ import annotations

import plotly.graph_objects as go
from lxml import html

from analysis_maker import (
    MYRINET_RECV,
    MYRINET_SEND,
    app,
    measured,
    npb_time,
    repeated,
    stream,
    trial,
)
from seatrial.analysis.trials import analyse
from seatrial.report.html import render
from seatrial.report.meaning import sections
from seatrial.report.meaning_figures import meaning_figures
from seatrial.results.record import Curve


def sentences(results) -> list[str]:
    made = sections(analyse([results]))
    return [f"{s.word}: {s.text} {s.basis} {s.change}" for one in made for s in one.sentences]


def one_of(results, *words) -> str:
    [match] = [s for s in sentences(results) if all(word in s for word in words)]
    return match


def test_the_best_profile_has_its_figure_and_interval():
    text = one_of(trial(repeated("npb", "is.S", default=100.0, jumbo=150.0)), "Use jumbo")
    assert text.startswith("best: Use jumbo for npb is.S (over openmpi-tcp, 2 nodes): ")
    assert "1.5 times (1.497 to 1.503) that of the next profile, default" in text
    assert "12 samples of 2 cases, trial t1" in text


def test_no_difference_says_how_large_one_could_be_and_points_to_the_cost():
    runs = [
        *repeated("npb", "ep.S", default=100.0, saving=100.0, slow=50.0),
        *(stream(p, 100 + i / 10, c, c, i) for p, c in
          (("default", 60.0), ("saving", 20.0), ("slow", 60.0)) for i in range(6)),
    ]  # fmt: skip
    for run in runs:  # one interface
        if run.path is None:
            run.path = runs[0].path
    text = one_of(trial(runs), "no difference")
    assert "do equally well" in text
    assert "default and saving differ by at most 0.25 %" in text
    assert "Worse: slow (default has 2 times (2 to 2.01) its performance)" in text
    assert "Choose by cost: a TCP stream under saving takes 0.33" in text


def test_too_few_repeats_say_how_many_it_takes():
    text = one_of(trial(repeated("npb", "is.S", 2, default=1.0, jumbo=9.0)), "measure more")
    assert "needs" not in text.partition(":")[0]
    assert "2 profiles need 4 repeats each" in text
    assert "which may be chance" in text
    assert "seatrial trial --repeats 4" in text


def test_applications_that_prefer_differently():
    runs = [
        *repeated("npb", "is.S", default=100.0, saving=50.0),
        *repeated("hpl", "atlas", default=100.0, saving=150.0),
    ]
    assert one_of(trial(runs), "No profile suits all applications")
    same = [
        *repeated("npb", "is.S", default=100.0, saving=50.0),
        *repeated("npb", "ep.S", default=100.0, saving=100.0),
    ]
    text = one_of(trial(same), "do not prefer differently")
    assert "default suits all" in text


def test_more_nodes_that_cost_time_and_missing_ones():
    runs = [npb_time("ft.A", p, t).run for p, t in ((2, 10.0), (4, 6.0), (8, 9.0))]
    text = one_of(trial(runs), "efficiency")
    assert "From 4 to 8 processes the run takes 1.5 times" in text
    assert "which is not certain: more nodes cost time" in text
    assert one_of(trial(runs[:1]), "No scaling", "one number of processes")


def test_thresholds_are_compared_with_the_eager_limit():
    facts = {"eager_limit_B": 10240, "eager_limit_source": "UCX_RNDV_THRESH=10k"}
    text = one_of(trial([measured(MYRINET_SEND, MYRINET_RECV, facts).run]), "MPI_Send")
    assert "eager limit, 10 KiB (UCX_RNDV_THRESH=10k), lies in the nearest of these steps" in text
    assert "a send waits for its receive" in text
    unknown = one_of(trial([measured(MYRINET_SEND, MYRINET_RECV).run]), "MPI_Send")
    assert "is not on record" in unknown


def test_pictures_are_valid_and_have_their_numbers():
    runs = [
        *repeated("npb", "is.S", default=100.0, jumbo=150.0),
        measured(MYRINET_SEND, MYRINET_RECV).run,
        *(npb_time("ft.A", p, 10 / p).run for p in (2, 4, 8)),
    ]
    made = meaning_figures(analyse([trial(runs)]))
    for figures in made.values():
        [figure] = figures
        go.Figure({"data": figure.data, "layout": figure.layout})
        assert figure.table.rows
    assert made["responses"][0].table.rows[0][1:3] == ["jumbo", "1.5"]


def test_the_page_has_the_chapter_before_the_judgements_and_escapes_names():
    runs = repeated("npb", "<script>x", default=1.0, **{"<b>": 2.0})
    page = html.document_fromstring(render(trial(runs)))
    titles = [one.get("id") for one in page.iter("h2")]
    assert titles.index("meaning") < titles.index("judgements")
    assert page.xpath('//nav//a[@href="#meaning"]')
    [chapter] = page.xpath('//section[@aria-labelledby="meaning"]')
    assert "<script>x" in chapter.text_content()
    assert not chapter.xpath(".//script|.//li/b")
    assert chapter.xpath('.//div[@data-figure="response-0"]')


def test_a_trial_without_figures_to_compare_has_no_chapter():
    run = app("npb", "is.S", "default", 1.0).model_copy(update={"metrics": [], "path": None})
    run.curves.append(Curve(name="x", y_name="latency", y_unit="us", points=[(1, 1)]))
    page = html.document_fromstring(render(trial([run.model_copy(update={"case": run.case})])))
    assert not page.xpath('//section[@aria-labelledby="meaning"]//table')
