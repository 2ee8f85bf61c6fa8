"""The input file of hpcc: HPL and hpcc find each value by its line number."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.base.errors import InputError
from seatrial.benchmarks.benchmark import Job
from seatrial.benchmarks.hpcc import HPCC, HPCCSettings
from seatrial.benchmarks.hpl import HPL, MOST_SOLVES, HPLSettings
from seatrial.benchmarks.hpl_input import grid, render


def test_values_are_on_the_lines_where_hpl_reads_them():
    lines = render(1000, 64, 2, 3).splitlines()
    first = {number: lines[number - 1].split()[0] for number in (5, 6, 7, 8, 10, 11, 12, 13, 31)}
    assert first == {
        5: "1", 6: "1000", 7: "1", 8: "64", 10: "1", 11: "2", 12: "3", 13: "16.0", 31: "8",
    }  # fmt: skip


def test_a_problem_is_solved_as_often_as_is_wanted():
    lines = render(1000, 64, 2, 3, 3).splitlines()
    assert (lines[4].split()[0], lines[5].split()) == ("3", ["1000", "1000", "1000", "N"])
    assert lines[6:] == render(1000, 64, 2, 3).splitlines()[6:]


def test_ptrans_follows_the_separator_and_adds_no_problems():
    lines = render(1000, 64, 1, 2).splitlines()
    assert len(lines) == 36
    assert [line.split()[0] for line in lines[32:]] == ["0", "1000", "0", "32"]


@given(
    st.integers(1, 10**7), st.integers(1, 512), st.integers(1, 99_999), st.integers(1, 99_999),
    st.integers(1, MOST_SOLVES),
)  # fmt: skip
def test_no_line_is_longer_than_hpcc_reads(n, nb, p, q, solves):
    text = render(max(n, nb), nb, p, q, solves)
    assert max(map(len, text.splitlines())) < 80
    assert text.endswith("\n")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((0, 1, 1, 1), "N is 0"),
        ((100, 0, 1, 1), "NB is 0"),
        ((100, 8, -1, 1), "P is -1"),
        ((100, 8, 1, 0), "Q is 0"),
        ((100, 101, 1, 1), "block size 101 is larger"),
        ((100, 8, 1, 1, 0), "solves is 0"),
    ],
)
def test_values_that_hpcc_rejects_are_errors(wrong, message):
    with pytest.raises(InputError, match=message):
        render(*wrong)


@pytest.mark.parametrize(
    ("ranks", "expected"), [(1, (1, 1)), (2, (1, 2)), (4, (2, 2)), (7, (1, 7)), (12, (3, 4))]
)
def test_grid_is_as_square_as_possible(ranks, expected):
    assert grid(ranks) == expected


@given(st.integers(1, 5000))
def test_grid_uses_every_rank(ranks):
    p, q = grid(ranks)
    assert p * q == ranks
    assert p <= math.isqrt(ranks) <= q


@pytest.mark.parametrize(("rows", "expected"), [(1, (1, 8)), (2, (2, 4)), (8, (8, 1))])
def test_rows_of_the_grid_can_be_given(rows, expected):
    assert grid(8, rows) == expected


@pytest.mark.parametrize("rows", [0, 3, 16])
def test_rows_that_do_not_divide_the_ranks_are_an_error(rows):
    with pytest.raises(InputError, match=f"8 ranks do not fill a grid of {rows} rows"):
        grid(8, rows)


def test_no_ranks_is_an_error():
    with pytest.raises(InputError, match="0 ranks"):
        grid(0)


class Site:
    node_cores = 2
    node_memory_MiB = 100


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, ""),
        ({"nodes": [2, 4], "ranks_per_node": 2, "grid_rows": 4}, ""),
        (
            {"nodes": [2, 3], "ranks_per_node": 2, "grid_rows": 4},
            "grid_rows: 6 ranks do not fill a grid of 4 rows: a divisor of 2",
        ),
        ({"nodes": [1, 2], "grid_rows": 2}, "grid_rows: 1 ranks do not fill a grid of 2 rows: 1"),
        (
            {"ranks_per_node": 4},
            (
                "ranks_per_node: it needs 4 cores on each node, but nodes have 2: "
                "at most 2 cores for a node"
            ),
        ),
        (
            {"size": 100, "block": 128},
            "block: 128 is larger than size, 100: a smaller block",
        ),
        (
            {"size": 6000},
            (
                "size: the matrix of order 6000 has 274 MiB, but 2 nodes have 200 MiB: "
                "at most 4579, which is 80% of the memory"
            ),
        ),
    ],
)
def test_settings_that_the_site_cannot_run_are_named(changed, expected):
    problems = HPL(HPLSettings.model_validate(changed)).problems(Site())
    said = [f"{problem.field}: {problem.message}: {problem.correction}" for problem in problems]
    assert said == ([expected] if expected else [])


def test_hpcc_names_a_block_that_is_larger_than_the_matrix():
    settings = HPCCSettings.model_validate({"size": 100, "block": 128})
    assert [problem.field for problem in HPCC(settings).problems(Site())] == ["block"]


@pytest.mark.parametrize(("rows", "expected"), [(None, ("2", "4")), (1, ("1", "8"))])
def test_the_step_writes_the_grid_of_the_settings(rows, expected):
    settings = HPLSettings(
        nodes=[4], ranks_per_node=2, grid_rows=rows, blas=["openblas"], dgemm_calls=0
    )
    job = Job(4, "openmpi-tcp", {"hpcc": ["hpcc"]}, blas={"openblas": "/b"})
    [step] = HPL(settings).steps(job)
    lines = step.setup[1].splitlines()[1:]  # the first one is the shell's
    assert (lines[10].split()[0], lines[11].split()[0]) == expected


def test_hpl_solves_as_often_as_the_settings_say_but_once_for_its_share_in_mpi():
    settings = HPLSettings(blas=["openblas"], dgemm_calls=0, solves=3, mpi_time=["*"])
    programs = {"hpcc": ["hpcc"], "mpi_time": ["mpi_time.so"]}
    job = Job(2, "openmpi-tcp", programs, blas={"openblas": "/b"})
    measured, timed = HPL(settings).steps(job)
    assert [one.setup[1].splitlines()[5].split()[0] for one in (measured, timed)] == ["3", "1"]
