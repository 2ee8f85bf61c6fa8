"""Published effects beside measured ones: what counts as agreement, what is said of the rest."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published import agreement, compare, load_published
from side_by_side import markdown, picture

from seatrial.base.errors import InputError
from seatrial.results.record import Case, Metric, Results, Run

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
    throttling, integer_sort = compare(published, trials)
    assert (throttling.first, throttling.second) == (142.0, 22.0)  # the median of the repeats
    assert throttling.agrees == "size"
    assert integer_sort.agrees == "direction"  # 5 per cent is no 34
    assert all(one.as_held for one in (throttling, integer_sort))
    text = markdown(published, [throttling, integer_sort], "# Side by side")
    assert (
        "| throttled 117, not 29 us (0.25 x) | throttled 142, not 22 us (0.15 x) | in size |"
        in text
    )
    assert "bcm5700 is 0.66 x tg3" in text
    assert "- **IS under a frugal driver**: a small class" in text
    drawn = picture([throttling, integer_sort])
    assert drawn.count("<circle") == 4
    assert "latency with and without throttling" in drawn


def test_what_was_not_measured_is_named_and_not_as_held(published, trials):
    trials[0].runs[:] = [one for one in trials[0].runs if one.case.profile != "quick"]
    throttling, integer_sort = compare(published, trials)
    assert throttling.agrees == "unmeasured"
    assert throttling.missing == "latency_us of netpipe.tcp.quick.2n"
    assert not throttling.as_held
    assert integer_sort.agrees == "unmeasured"


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
"""


def test_the_honest_count(tmp_path, trials):
    file = tmp_path / "published.yaml"
    file.write_text(FILE + SPECIAL)
    published = load_published(file)
    outcomes = compare(published, trials)
    assert [one.word for one in outcomes] == [
        "size", "direction", "by construction", "direction", "not comparable",
    ]  # fmt: skip
    assert all(one.as_held for one in outcomes)
    text = markdown(published, outcomes, "# Side by side")
    assert (
        "Of 3 comparable findings 1 agree in size, 2 in direction only, and 0 do not agree. Not "
        "counted: 1 agree by construction, 1 are not comparable." in text
    )
    assert "| pairs over a bus | 107 and 105 MB/s | – | not comparable |" in text
    assert "| slow is lower |" in text
    assert "- **pairs over a bus**: the lab has no bus" in text
    assert "- **bandwidth of two speeds**: the profiles set the rates" in text


def test_an_effect_the_other_way_is_not_the_published_direction(tmp_path, trials):
    file = tmp_path / "published.yaml"
    file.write_text(FILE + SPECIAL.replace("direction: down", "direction: up"))
    assert compare(load_published(file), trials)[3].agrees == "no"


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
        ("    ratio: 0.66\n", "    not_comparable: x\n", "give published alone"),
        ("    agrees: direction\n    why: a small class\n", "", "agrees is missing"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path, old, new, words):
    file = tmp_path / "published.yaml"
    file.write_text(FILE.replace(old, new, 1))
    with pytest.raises(InputError, match=words) as error:
        load_published(file)
    assert "published.yaml:" in str(error.value)
