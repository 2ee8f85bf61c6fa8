"""Groups of runs: the published ones, what is refused, and what is left out."""

from __future__ import annotations

import numpy as np
import pytest

from analysis_maker import app, mpi_fact
from seatrial.analysis.conclusion import Measured
from seatrial.analysis.groups import FEATURES, grouped, groups

#: seed 004, table 4: runs, then rate, volume and frequency of the centre
PUBLISHED = (
    (51, (1.00, 35.55, 2310.75)),
    (39, (2.78, 298.32, 50486.8)),
    (3, (52.12, 87.63, 1823.0)),
)
NAMES = ("CG EP FT IS and most MG", "BT LU", "MG on Myrinet with 32 64 128 processes")


def around(scatter, seed):
    generator = np.random.default_rng(seed)
    rows, names = [], []
    for (count, centre), name in zip(PUBLISHED, NAMES, strict=True):
        rows += [tuple(centre * np.exp(generator.normal(0, scatter, 3))) for _ in range(count)]
        names += [name] * count
    order = generator.permutation(len(rows))
    return [names[i] for i in order], [rows[i] for i in order]


@pytest.mark.parametrize("seed", range(3))
def test_the_published_centres_are_the_groups_of_runs_around_them(seed):
    made = groups(*around(0.08, seed))
    assert [(g.runs, list(g.members)) for g in made.groups] == [
        (count, [name]) for (count, _), name in zip(PUBLISHED, NAMES, strict=True)
    ]
    for group, (_, centre) in zip(made.groups, PUBLISHED, strict=True):
        for name, value in zip(FEATURES, centre, strict=True):
            assert group.centre[name] == pytest.approx(value, rel=0.2)
    assert made.silhouette > 0.6
    assert groups(*around(0.08, seed)) == made  # a fixed seed


def test_what_is_refused():
    with pytest.raises(ValueError, match="5 runs are too few, 6 are needed"):
        groups(["x"] * 5, [(1.0, 2.0, 3.0)] * 5)
    with pytest.raises(ValueError, match="all runs communicate alike"):
        groups(["x"] * 9, [(1.0, 2.0, 3.0)] * 9)


def test_runs_of_one_cloud_are_no_groups():
    for seed in range(20):
        rows = [tuple(row) for row in np.random.default_rng(seed).normal(10, 1, (30, 3))]
        with pytest.raises(ValueError, match="no groups are apart"):
            groups(["x"] * 30, rows)


def test_a_constant_feature_is_dropped():
    rows = [(1.0 + i % 2 + 0.01 * i, 5.0, 10.0 * (i % 2) + i * 0.01) for i in range(12)]
    made = groups([f"run {i % 2}" for i in range(12)], rows)
    assert made.constant == ["volume_MB"]
    assert [list(g.members) for g in made.groups] in (
        [["run 0"], ["run 1"]],
        [["run 1"], ["run 0"]],
    )


def test_runs_without_time_in_mpi_are_listed_and_those_without_the_library_do_not_count():
    def run(i, mpi_s):
        one = app("npb", f"k{i % 2}.S", "default", 1.0, i)
        one.facts["mpi"] = {
            **mpi_fact(mpi_s / 2), "bytes": 1000 * (1 + 99 * (i % 2)) + i, "calls": 10 * (1 + i % 2)
        }  # fmt: skip
        return Measured("t1", one)

    none, missing = grouped([Measured("t1", app("npb", "is.S", "default", 1.0))])
    assert none is None
    assert missing == []
    made, missing = grouped([*(run(i, 0.1) for i in range(8)), run(9, 0.0)])
    assert missing == []
    assert made.excluded == ["npb k1.S, openmpi-tcp, default, 2 nodes"]
    assert sorted(g.runs for g in made.groups) == [4, 4]
    none, [lost] = grouped([run(i, 0.1) for i in range(3)])
    assert none is None
    assert "3 runs are too few" in lost.reason
