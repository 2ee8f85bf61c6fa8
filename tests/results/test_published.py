"""Published effects beside measured ones: what counts as agreement, what is said of the rest."""

from __future__ import annotations

import math

import pytest
from compare import MARK, MEASURED, PAGE, PICTURE, PUBLISHED
from figures import from_trials, read_measured, write_measured
from hypothesis import given
from hypothesis import strategies as st
from published import agreement, compare, load_published, measured_in
from side_by_side import LEGEND, markdown, picture

from seatrial.base.errors import InputError
from seatrial.results.folder import Results
from seatrial.results.record import Case, Curve, Metric, Run, Trial

FILE = """\
schema: 1
sources: {paper: "A paper, 2004"}
comparisons:
  - id: throttling
    finding: latency with and without throttling
    source: paper
    unit: us
    first: {name: throttled, published: 117,
      measured: {check: netpipe, profile: slow, metric: latency_us}}
    second: {name: not, published: 29,
      measured: {check: netpipe, profile: quick, metric: latency_us}}
    agrees: size
  - id: is
    finding: IS under a frugal driver
    source: paper
    ratio: 0.66
    first: {name: tg3,
      measured: {check: npb, variant: is.S, transport: a, profile: quick, metric: mops}}
    second: {name: bcm5700,
      measured: {check: npb, variant: is.S, transport: a, profile: slow, metric: mops}}
    agrees: direction
    why: a small class
"""


def run(check: str, profile: str, metric: str, value: float, repeat: int = 0, **case) -> Run:
    case = Case(check=check, profile=profile, nodes=2, **{"transport": "tcp", **case})
    metrics = [Metric(metric=metric, value=value, unit="", better="lower")]
    return Run(case=case, repeat=repeat, outcome="ran", metrics=metrics)


def trial(*runs: Run, site: str = "lab-virtual", name: str = "one") -> Results:
    head = Trial(trial=name, site=site, started="2026-11-23T12:00:00Z", seatrial="0")
    return Results(trial=head, runs=list(runs))


def loaded(tmp_path, text):
    file = tmp_path / "published.yaml"
    file.write_text(text)
    return load_published(file)


@pytest.fixture
def published(tmp_path):
    return loaded(tmp_path, FILE)


@pytest.fixture
def runs():
    return [
        run("netpipe", "slow", "latency_us", 140.0),
        run("netpipe", "slow", "latency_us", 144.0, repeat=1),
        run("netpipe", "quick", "latency_us", 22.0),
        run("npb", "quick", "mops", 10.0, variant="is.S", transport="a"),
        run("npb", "slow", "mops", 9.5, variant="is.S", transport="a"),
    ]


def test_effects_are_compared_as_ratios(published, runs):
    throttling, integer_sort = compare(published, measured_in(published, [trial(*runs)]))
    assert [one.median for one in throttling.measured] == [142.0, 22.0]
    assert throttling.agrees == "size"
    assert integer_sort.agrees == "direction"  # 5 per cent is no 34
    assert all(one.as_held for one in (throttling, integer_sort))
    text = markdown(published, [throttling, integer_sort], "# Side by side")
    row = (
        "| throttled 117, not 29 us (0.25 x) | throttled 142, not 22 us (0.15 x); 2 and 1 runs: "
        "0.15 to 0.16 x | lab-virtual | in size |"
    )
    assert row in text
    assert "bcm5700 is 0.66 x tg3" in text
    assert "- **IS under a frugal driver**: a small class" in text
    assert "below 3 %" in text
    assert "1 of the 4 figures have several runs. The largest run of a figure exceeds its " in text
    assert "by 2.9 % at most (latency_us of netpipe.tcp.slow.2n of lab-virtual)" in text
    assert "repeat within" not in text
    assert "2026-11-23 lab-virtual, one: 2 findings" in text
    drawn = picture([throttling, integer_sort])
    assert drawn.count("<circle") == 4 + len(LEGEND)
    assert "latency with and without throttling" in drawn


def test_what_agrees_in_some_runs_only_counts_as_the_worst_of_them(published, runs):
    runs.append(run("netpipe", "quick", "latency_us", 100.0, repeat=1))
    throttling, _ = compare(published, measured_in(published, [trial(*runs)]))
    assert throttling.ratio == pytest.approx(61 / 142)  # the median agrees in size
    assert (throttling.low, throttling.high) == pytest.approx((22 / 144, 100 / 140))
    assert throttling.agrees == "direction"


def test_what_was_not_measured_is_named_and_not_as_held(published, runs):
    runs = [one for one in runs if one.case.profile != "quick"]
    throttling, integer_sort = compare(published, measured_in(published, [trial(*runs)]))
    assert throttling.agrees == "unmeasured"
    assert throttling.missing == "latency_us of netpipe.tcp.quick.2n of lab-virtual"
    assert not throttling.as_held
    assert integer_sort.agrees == "unmeasured"


def test_a_figure_is_of_its_site_and_of_the_last_trial_that_has_it(published, runs):
    figure = next(published.figures())
    other = trial(*runs, site="lab-virtual-apps", name="other")
    later = trial(run("netpipe", "slow", "latency_us", 130.0), name="later")
    without = trial(runs[2], name="without")
    assert from_trials(figure, [other]) is None
    found = from_trials(figure, [trial(*runs), later, without, other])
    assert (found.values, found.trial, found.day) == ((130.0,), "later", "2026-11-23")


def test_figures_are_kept_when_their_trial_is_gone(tmp_path, published, runs):
    found = measured_in(published, [trial(*runs)])
    write_measured(tmp_path / "measured.jsonl", found.values())
    assert read_measured(tmp_path / "measured.jsonl") == found
    assert read_measured(tmp_path / "no file") == {}
    (tmp_path / "measured.jsonl").write_text('{"figure": 1}\n')
    with pytest.raises(InputError, match=r"measured.jsonl:1"):
        read_measured(tmp_path / "measured.jsonl")


def test_the_page_and_its_picture_are_those_of_the_kept_figures():
    published = load_published(PUBLISHED)
    outcomes = compare(published, read_measured(MEASURED))
    above, mark, below = PAGE.read_text().partition(MARK)
    assert markdown(published, outcomes, above + mark) == above + mark + below, "run compare.py"
    assert picture(outcomes) == PICTURE.read_text()


SIZES = """\
schema: 1
sources: {paper: "A paper, 2004"}
comparisons:
  - id: parting
    finding: from where on the second network is faster
    source: paper
    sizes: {rule: parting, from_B: 8192, to_B: 10240}
    first: {name: Fast, measured: {check: mpbench, profile: fast, curve: mpbench gap}}
    second: {name: Gigabit, measured: {check: mpbench, profile: gigabit, curve: mpbench gap}}
    agrees: size
  - id: knee
    finding: where the first network rises
    source: paper
    sizes: {rule: knee, from_B: 8192, to_B: 16384}
    first: {name: Fast, measured: {check: mpbench, profile: fast, curve: mpbench gap}}
    agrees: size
  - id: large
    finding: a large message
    source: paper
    ratio: 0.2
    first: {name: Fast, measured: {check: mpbench, profile: fast, curve: mpbench gap, at_B: 65536}}
    second:
      {name: Gigabit, measured: {check: mpbench, profile: gigabit, curve: mpbench gap, at_B: 65536}}
    agrees: size
"""


def gaps(profile: str, limit: int, rate_MB_s: float, unit: str = "us") -> Run:
    """A send of 10 us up to a size in B, and as long as its bytes need from then on."""
    sizes = [2**i for i in range(2, 17)]
    times = [10.0 if n <= limit else 10 + n / rate_MB_s for n in sizes]
    points = [(n, t if unit == "us" else n / t) for n, t in zip(sizes, times, strict=True)]
    case = Case(check="mpbench", profile=profile, nodes=2, transport="tcp")
    curve = Curve(name="mpbench gap", y_name="any", y_unit=unit, points=points)
    return Run(case=case, outcome="ran", curves=[curve])


@pytest.mark.parametrize("unit", ["us", "MB/s"])  # a rate stands for the time of a message
@pytest.mark.parametrize(
    ("limit", "agrees", "text"),
    [(8192, "size", "between 8192 and 16384 B"), (1024, "direction", "between 1024 and 2048 B")],
)
def test_sizes_are_compared_with_sizes(tmp_path, limit, agrees, text, unit):
    published = loaded(tmp_path, SIZES)
    own = trial(gaps("fast", limit, 12.5, unit), gaps("gigabit", limit, 125, unit))
    part, knee, large = compare(published, measured_in(published, [own]))
    assert (part.agrees, knee.agrees) == (agrees, agrees)
    assert large.ratio == pytest.approx((10 + 65536 / 125) / (10 + 65536 / 12.5))
    page = markdown(published, [part, knee, large], "#")
    assert f"| between 8192 and 10240 B | {text} | lab-virtual | " in page
    assert picture([part, knee, large]).count("<circle") == 2 + len(LEGEND)


def test_curves_that_cross_before_they_part_part_where_they_do(tmp_path):
    published = loaded(tmp_path, SIZES)
    fast, gigabit = gaps("fast", 16384, 12.5), gaps("gigabit", 16384, 125)
    fast.curves[0].points = [
        (n, t * (0.7 if 64 < n < 16384 else 1)) for n, t in fast.curves[0].points
    ]
    part = compare(published, measured_in(published, [trial(fast, gigabit)]))[0]
    assert (part.sizes, part.agrees) == ((16384, 32768), "direction")


def test_the_other_network_faster_is_no_agreement(tmp_path):
    published = loaded(tmp_path, SIZES)
    own = trial(gaps("fast", 8192, 125), gaps("gigabit", 8192, 12.5))
    assert compare(published, measured_in(published, [own]))[0].agrees == "no"


@pytest.mark.parametrize(
    ("there", "here", "agrees"),
    [
        (0.25, 0.16, "size"), (0.25, 0.6, "direction"), (0.25, 0.8, "direction"),
        (0.25, 1.5, "no"), (0.25, 0.99, "no"), (1.0, 1.02, "size"), (1.0, 1.2, "no"),
        (1.34, 1.31, "size"), (4.0, 0.25, "no"),
    ],
)  # fmt: skip
def test_agreement(there, here, agrees):
    assert agreement(there, here) == agrees


SPECIAL = """\
  - id: set
    finding: bandwidth of two speeds
    source: paper
    ratio: 4
    by_construction: the profiles set the rates
    first: {name: slow, measured: {check: netpipe, profile: quick, metric: latency_us}}
    second: {name: quick, measured: {check: netpipe, profile: slow, metric: latency_us}}
    agrees: size
  - id: behind
    finding: IS is far behind
    source: paper
    direction: down
    first: {name: quick,
      measured: {check: npb, variant: is.S, transport: a, profile: quick, metric: mops}}
    second: {name: slow,
      measured: {check: npb, variant: is.S, transport: a, profile: slow, metric: mops}}
    agrees: direction
    why: no figure is given
  - id: bus
    finding: pairs over a bus
    source: paper
    published: 107 and 105 MB/s
    not_comparable: the lab has no bus
  - id: setting
    finding: a setting without a figure
    source: paper
    published: no figure
    not_comparable: the paper does not set it
    first: {name: off, measured: {check: netpipe, profile: quick, metric: latency_us}}
    second: {name: on, measured: {check: netpipe, profile: slow, metric: latency_us}}
"""


def test_the_honest_count(tmp_path, runs):
    published = loaded(tmp_path, FILE + SPECIAL)
    outcomes = compare(published, measured_in(published, [trial(*runs)]))
    assert [outcome.word for outcome in outcomes] == [
        "size", "direction", "by construction", "direction", "not comparable", "not comparable",
    ]  # fmt: skip
    assert all(outcome.as_held for outcome in outcomes)
    text = markdown(published, outcomes, "# Side by side")
    assert (
        "Comparable findings: 3. Their size is published: 2; here agree in size: 1; in direction "
        "only: 1; not: 0. Only their direction is published: 1; here agree: 1; not: 0. Not "
        "counted: 1 by construction, 2 not comparable." in text
    )
    assert "| pairs over a bus | 107 and 105 MB/s | – | – | not comparable |" in text
    shown = "off 22, on 142 (6.45 x); 1 and 2 runs: 6.36 to 6.55 x | lab-virtual | not comparable |"
    assert f"| a setting without a figure | no figure | {shown}" in text
    assert "| slow is lower than quick |" in text
    assert "- **pairs over a bus**: the lab has no bus" in text
    assert "- **bandwidth of two speeds**: the profiles set the rates" in text


def test_an_effect_the_other_way_is_not_the_published_direction(tmp_path, runs):
    published = loaded(tmp_path, FILE + SPECIAL.replace("direction: down", "direction: up"))
    assert compare(published, measured_in(published, [trial(*runs)]))[3].agrees == "no"


@given(st.floats(0.05, 20), st.floats(0.05, 20))
def test_agreement_is_the_same_for_the_inverse_and_for_both_exchanged(there, here):
    assert (
        agreement(there, here) == agreement(1 / there, 1 / here)
        or any(math.isclose(abs(math.log(r)), math.log(1.03), rel_tol=1e-9) for r in (there, here))
        or math.isclose(abs(math.log(here)), abs(math.log(there)) * 2, rel_tol=1e-9)
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("    ratio: 0.66\n", "", "the published figures are missing"),
        ("    why: a small class\n", "", "agrees: direction without a why"),
        ("    source: paper\n    ratio", "    source: papre\n    ratio", "no source 'papre'"),
        ("published: 29", "published: fast", "published"),
        ("    ratio: 0.66\n", "    not_comparable: x\n", "not comparable, but with an effect"),
        ("metric: latency_us}", "metric: latency_us, curve: c}", "a metric or a curve"),
        ("metric: latency_us}", "metric: latency_us, at_B: 4}", "at_B is for a curve"),
        ("metric: latency_us}", "curve: netpipe}", "compared of whole curves"),
        ("    agrees: direction\n    why: a small class\n", "", "agrees is missing"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path, old, new, words):
    file = tmp_path / "published.yaml"
    file.write_text(FILE.replace(old, new, 1))
    with pytest.raises(InputError, match=words) as error:
        load_published(file)
    assert "published.yaml:" in str(error.value)
