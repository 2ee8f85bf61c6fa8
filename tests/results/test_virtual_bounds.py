"""Bounds from the spread of a figure over trials: ci/founding/virtual_bounds.py."""

from __future__ import annotations

import pytest
from virtual_bounds import Sample, bounded, usual_spread

ALIKE = [Sample(value, "percent") for value in (40.0, 41, 42, 40, 41, 42, 41)]


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        ((), False),
        ((41.0, 40.0), True),  # two of the three runs of that trial decide
        ((42.0, 80.0), False),
        ((71.0,), False),
    ],
)
def test_the_farthest_sample_counts_unless_reruns_refuted_it(
    again: tuple[float, ...], expected: bool
) -> None:
    samples = [*ALIKE, Sample(73.0, "percent", again)]
    assert bounded(samples) == expected
    assert (usual_spread(samples) < 0.05) == expected


def test_of_few_samples_each_counts() -> None:
    assert not bounded([*ALIKE[:6], Sample(73.0, "percent", (41.0, 40.0))])


@pytest.mark.parametrize(("count", "expected"), [(15, False), (16, True)])
def test_one_of_eight_samples_need_not_count(count: int, expected: bool) -> None:
    refuted = Sample(73.0, "percent", (41.0, 40.0))
    samples = [refuted, refuted, *(ALIKE * 2)[: count - 2]]
    assert bounded(samples) == expected
