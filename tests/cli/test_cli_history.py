"""``seatrial history`` as a user meets it."""

from __future__ import annotations

import re

import pytest

from history_support import LINKS, NETPIPE, make_night, runs_of
from seatrial.cli.trial import out
from seatrial.results.record import RESULTS_FILE


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    # The console of the command line reads COLUMNS when it is made.
    monkeypatch.setattr(out, "_width", 200)


@pytest.fixture
def trials(tmp_path):
    for number, kernel in enumerate(["6.1", "6.1", "6.12"]):
        runs = [
            *runs_of(
                NETPIPE, "latency_us", (30 + number, 32 + number), versions={"kernel": kernel}
            ),
            *runs_of(LINKS, "stream_MB_s", (900, 901), "MB/s", "higher", "n1>n2"),
        ]
        make_night(tmp_path, number, (1, 2), runs=runs)
    return tmp_path


def test_without_a_selection_it_shows_the_trials(here, trials):
    half = trials / "lab-001" / RESULTS_FILE
    half.write_bytes(half.read_bytes()[:-40])
    code, said, _ = here("history", "--trials", trials, "--last", 1)
    assert code == 0
    lines = said.splitlines()
    row = re.fullmatch(r"2026-08-03 22:00 +lab +accept +2 +lab-002 *", lines[-4])
    assert row
    assert lines[-3] == "2 trials, of which the newest 1 are shown"
    assert lines[-2] == "2 series of figures; a selection shows them"
    assert lines[-1].startswith(f"not counted: {half}:")


def test_one_series_shows_what_changed_at_each_point(here, trials):
    code, said, _ = here("history", "--trials", trials, "-c", "netpipe")
    assert code == 0
    title, heading, *rows = said.splitlines()
    assert title == f"{NETPIPE.id}: latency_us, us, lower is better"
    words = "began (UTC) median spread samples trial changed since the row above"
    assert heading.split() == words.split()
    assert [row.split()[2:6] for row in rows] == [
        ["31", "1.8", "2", "lab-000"],
        ["32", "1.8", "2", "lab-001"],
        ["33", "1.8", "2", "lab-002"],
    ]
    assert rows[2].rstrip().endswith("kernel 6.1 -> 6.12")
    assert "->" not in rows[0] + rows[1]


def test_several_series_show_their_range(here, trials):
    _, said, _ = here("history", "--trials", trials, "-c", "*")
    rows = [line.split() for line in said.splitlines()[1:]]
    assert rows == [
        f"{LINKS.id}: stream_MB_s at n1>n2 3 900.5 MB/s 900.5 900.5 900.5".split(),
        f"{NETPIPE.id}: latency_us 3 33 us 32 31 33".split(),
    ]


def test_many_series_are_named(here, tmp_path):
    runs = [run for n in range(30) for run in runs_of(LINKS, "x_us", (1,), location=f"n{n:02}")]
    make_night(tmp_path, 0, (1,), runs=runs)
    _, said, _ = here("history", "--trials", tmp_path, "--metric", "x_*")
    *names, end = said.splitlines()
    assert names == [f"{LINKS.id}: x_us at n{n:02}" for n in range(30)]
    assert end == "30 series; a selection of at most 20 shows their figures"


def test_what_matches_nothing_says_how_to_name_all(here, trials):
    code, said, _ = here("history", "--trials", trials, "-c", "netpip")
    assert code == 0
    assert said == "no series matches: 'seatrial history -c \"*\"' names all\n"


def test_names_cannot_control_the_terminal(here, tmp_path):
    metric = "\x1b[2Jx\n_us [bold]"
    make_night(tmp_path, 0, runs=runs_of(NETPIPE, metric, (1,), versions={"kernel": "\x1b[1m"}))
    make_night(tmp_path, 1, runs=runs_of(NETPIPE, metric, (1,), versions={"kernel": "6"}))
    _, said, _ = here("history", "--trials", tmp_path, "-c", "*")
    assert "\x1b" not in said
    assert "[bold]" in said
    assert len(said.splitlines()) == 4


def test_wrong_folder(here, tmp_path):
    code, _, said = here("history", "--trials", tmp_path / "none")
    assert code == 3
    assert f"{tmp_path}/none: no such folder (name the folder that holds the trials)" in said


@pytest.fixture
def slower(tmp_path):
    """Five nights with each of two kernels; NetPIPE is slower with the second."""
    for number in range(10):
        factor = 1.3 if number >= 5 else 1
        versions = {"kernel": "6.12" if number >= 5 else "6.1"}
        values = [factor * (30 + 0.01 * number), factor * 30.1]
        runs = [
            *runs_of(NETPIPE, "latency_us", values, versions=versions),
            *runs_of(NETPIPE, "<b>_us", (30 + 0.01 * (number % 5), 30.1), versions=versions),
        ]
        make_night(tmp_path / "trials", number, (1, 2), runs=runs)
    return tmp_path / "trials"


def test_compare_says_what_is_worse_and_what_else_differs(here, slower, tmp_path):
    page = tmp_path / "page.html"
    code, said, _ = here(
        "compare", "kernel=6.1", "kernel=6.12", "--trials", slower, "--page", page
    )  # fmt: skip
    assert code == 1
    lines = said.splitlines()
    assert lines[0] == "A: kernel=6.1: 5 trials, lab-000 to lab-004"
    assert lines[2] == "of 2 series: 1 worse, 0 better, 0 can't tell, 1 same"
    row = re.split(r"  +", lines[4].strip())
    assert row[0] == "worse"
    assert float(row[1]) == pytest.approx(1.3, rel=0.01)
    assert row[-1] == f"{NETPIPE.id}: latency_us"
    assert "chosen: kernel: 6.1 -> 6.12" in lines
    html = page.read_text()
    assert f"{NETPIPE.id}: latency_us" in html
    assert "<b>_us" not in html
    assert "&lt;b&gt;_us" in html
    assert html.count("<tr>") == 2 + 2 + 3  # groups; conditions and series with their headings
    assert "http" not in html.replace("http-equiv", "")


def test_compare_ends_with_0_if_nothing_is_worse_and_2_if_nothing_can_be_told(here, slower):
    code, said, _ = here("compare", "kernel=6.12", "kernel=6.1", "--trials", slower)
    assert code == 0
    assert "1 better" in said
    code, said, _ = here("compare", "lab-000", "lab-001", "--trials", slower)
    assert code == 2
    assert "note: so few figures cannot show a difference" in said


def test_compare_refuses_a_page_in_a_trial_and_a_wrong_group(here, slower):
    inside = slower / "lab-000" / "page.html"
    code, _, said = here("compare", "lab-000", "lab-001", "--trials", slower, "--page", inside)
    assert code == 3
    assert "it is in the folder of the trial lab-000" in said
    assert not inside.exists()
    code, _, said = here("compare", "lab-0", "lab-001", "--trials", slower)
    assert code == 3
    assert "no trial has this name" in said


@pytest.mark.parametrize("margin", ["0", "1", "-0.1", "nan"])
def test_compare_refuses_a_margin_that_is_no_fraction(here, slower, margin):
    code, _, said = here("compare", "a", "b", "--trials", slower, f"--margin={margin}")
    assert code == 3
    assert "--margin: " in said
