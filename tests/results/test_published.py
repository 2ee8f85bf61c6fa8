"""Published effects beside measured ones: what counts as agreement, what is said of the rest."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published import agreement, compare, load_published, parts_at
from side_by_side import markdown, picture

from seatrial.base.errors import InputError
from seatrial.results.record import Case, Curve, Metric, Results, Run

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
  - id: parting
    finding: where the networks part
    source: paper
    parting: {check: netpipe, curve: netpipe, first: slow, second: quick,
      published_B: [8192, 10240]}
    agrees: "no"
    why: only told
"""


def run(check: str, profile: str, metric: str, value: float, repeat: int = 0, **case) -> Run:
    case = Case(check=check, profile=profile, nodes=2, **{"transport": "tcp", **case})
    metrics = [Metric(metric=metric, value=value, unit="", better="lower")]
    factor = 10 if profile == "slow" else 1
    points = [(float(2**k), 100.0 + (factor if k >= 13 else 1) * 2**k / 100) for k in range(20)]
    curves = [Curve(name="netpipe", y_name="latency", y_unit="us", points=points)]
    return Run(case=case, repeat=repeat, outcome="ran", metrics=metrics, curves=curves)


@pytest.fixture
def published(tmp_path):
    file = tmp_path / "published.yaml"
    file.write_text(FILE)
    return load_published(file)


@pytest.fixture
def trials():
    runs = [
        run("netpipe", "slow", "latency_us", 140.0),
        run("netpipe", "slow", "latency_us", 144.0, repeat=1),
        run("netpipe", "quick", "latency_us", 22.0),
        run("npb", "quick", "mops", 10.0, variant="is.S", transport="a"),
        run("npb", "slow", "mops", 9.5, variant="is.S", transport="a"),
    ]
    return [Results.model_construct(runs=runs)]


def test_effects_are_compared_as_ratios(published, trials):
    throttling, integer_sort, parting = compare(published, trials)
    assert (throttling.first, throttling.second) == (142.0, 22.0)  # the median of the repeats
    assert throttling.agrees == "size"
    assert integer_sort.agrees == "direction"  # 5 per cent is no 34
    assert parting.ratio == 8192
    assert parting.agrees == "size"
    assert all(one.as_held for one in (throttling, integer_sort, parting))
    text = markdown(published, [throttling, integer_sort, parting], "# Side by side")
    assert (
        "| throttled 117, not 29 us (0.25 x) | throttled 142, not 22 us (0.15 x) | in size |"
        in text
    )
    assert "bcm5700 is 0.66 x tg3" in text
    assert "- **IS under a frugal driver**: a small class" in text
    drawn = picture([throttling, integer_sort, parting])
    assert drawn.count("<circle") == 4  # a parting is no effect
    assert "latency with and without throttling" in drawn


def test_what_was_not_measured_is_named_and_not_as_held(published, trials):
    trials[0].runs[:] = [one for one in trials[0].runs if one.case.profile != "quick"]
    throttling, integer_sort, parting = compare(published, trials)
    assert throttling.agrees == "unmeasured"
    assert throttling.missing == "latency_us of netpipe.tcp.quick.2n"
    assert not throttling.as_held
    assert integer_sort.agrees == parting.agrees == "unmeasured"


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


def test_figures_that_repeat_show_smaller_effects():
    assert agreement(1.041, 1.019) == "no"
    assert agreement(1.041, 1.019, no_effect=0.002) == "direction"
    assert agreement(1.0, 1.02, no_effect=0.002) == "size"  # nothing was published to be exact


@given(st.floats(0.05, 20), st.floats(0.05, 20))
def test_agreement_is_the_same_for_the_inverse_and_for_both_exchanged(there, here):
    assert (
        agreement(there, here) == agreement(1 / there, 1 / here)
        or any(math.isclose(abs(math.log(r)), math.log(1.03), rel_tol=1e-9) for r in (there, here))
        or math.isclose(abs(math.log(here)), abs(math.log(there)) * 2, rel_tol=1e-9)
    )


def test_curves_part_where_they_stay_apart():
    first = {1.0: 10.0, 2.0: 40.0, 4.0: 10.0, 8.0: 30.0, 16.0: 60.0}
    second = dict.fromkeys(first, 10.0)
    assert parts_at(first, second, 1.5) == 8.0
    assert parts_at(second, first, 1.5) is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("    ratio: 0.66\n", "", "the published figures are missing"),
        ("    why: a small class\n", "", "agrees: direction without a why"),
        ("    source: paper\n    ratio", "    source: papre\n    ratio", "no source 'papre'"),
        ("published: 29", "published: fast", "published"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path, old, new, words):
    file = tmp_path / "published.yaml"
    file.write_text(FILE.replace(old, new, 1))
    with pytest.raises(InputError, match=words) as error:
        load_published(file)
    assert "published.yaml:" in str(error.value)
