"""``seatrial history`` as a user meets it."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from history_support import LINKS, NETPIPE, make_night, runs_of, sealed, with_evidence
from seatrial.cli import history_page
from seatrial.cli.history_page import keep_history
from seatrial.cli.screen import out
from seatrial.history import notify
from seatrial.history.index import opened
from seatrial.results.folder import RESULTS_FILE
from seatrial.results.record import TransportUse
from seatrial.results.requirements import load_requirements
from trial_folder import make_trial


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
        sealed(make_night(tmp_path, number, (1, 2), runs=runs))
    return tmp_path


def test_without_a_selection_it_shows_the_trials(here, trials):
    half = trials / "lab-001" / RESULTS_FILE
    half.write_bytes(half.read_bytes()[:-40])
    code, said, _ = here("history", "--trials", trials, "--last", 1)
    assert code == 0
    lines = said.splitlines()
    row = re.fullmatch(r"2026-08-03 22:00 +lab +accept +2 +lab-002 *", lines[-4])
    assert row
    assert lines[-3] == "2 trials, of which the newest is shown"
    assert lines[-2] == "2 series of figures; a selection shows them"
    assert lines[-1].startswith(f"not counted: {half}:")


def test_an_acceptance_names_its_limits(here, tmp_path):
    make_trial(tmp_path / "half", 40, site_repeats=4, repeats=2)
    _, said, _ = here("history", "--trials", tmp_path)
    assert re.search(r"^2026-08-02 00:00 +lab +accept of part +1 +half", said, re.MULTILINE), said


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


def test_a_row_names_no_setting_that_the_trial_before_does_not_record(here, tmp_path):
    for number in range(3):
        recorded = {"netpipe": {"max_bytes": 1024 * number}} if number else {}
        env = {"BUFFER": "1"} if number > 1 else {}
        transports = [TransportUse(name="tcp", env=env)] if number else []
        make_night(tmp_path, number, benchmarks=recorded, transports=transports)
    _, said, _ = here("history", "--trials", tmp_path, "-c", "netpipe")
    *_, first, second, _ = said.splitlines()
    assert "->" not in first
    assert second.rstrip().endswith(
        "benchmark netpipe.max_bytes 1024 -> 2048, variable BUFFER of tcp none -> 1"
    )


def test_a_trial_and_a_point_without_sums_are_marked(here, trials):
    why = "no SHA256SUMS: nothing shows that the files are as the trial wrote them"
    assert "SHA256SUMS" not in here("history", "--trials", trials)[1]
    (trials / "lab-001" / "SHA256SUMS").unlink()
    for selection in ((), ("-c", "netpipe")):
        lines = here("history", "--trials", trials, *selection)[1].splitlines()
        (row,) = (line for line in lines if "lab-001" in line)
        assert row.endswith("no SHA256SUMS")
        assert [line.rstrip() for line in lines].count(why) == 1
    assert why not in here("history", "--trials", trials, "--last", 1)[1]


def test_several_series_show_their_range(here, trials):
    _, said, _ = here("history", "--trials", trials, "-c", "*")
    rows = [line.split() for line in said.splitlines()[1:]]
    assert rows == [
        f"3 900.5 MB/s 900.5 900.5 900.5 {LINKS.id}: stream_MB_s at n1>n2".split(),
        f"3 33 us 32 31 33 {NETPIPE.id}: latency_us".split(),
    ]


def test_many_series_are_named(here, tmp_path):
    runs = [run for n in range(30) for run in runs_of(LINKS, "x_us", (1,), location=f"n{n:02}")]
    make_night(tmp_path, 0, (1,), runs=runs)
    _, said, _ = here("history", "--trials", tmp_path, "--metric", "x_*")
    *names, end = said.splitlines()
    assert names == [f"{LINKS.id}: x_us at n{n:02}" for n in range(30)]
    assert end == "30 series; a selection of at most 20 shows their figures"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("-c", "netpip"), "--check netpip: no series has such a check; did you mean 'netpipe'?"),
        (("--changes", "-c", "x"), "--check x: no series has such a check; known here: "),
        (
            ("--metric", "latency_u["),
            "latency_u[: '[' without ']'; a bracket itself is written [[]",
        ),
        (
            ("-c", "netpipe", "-p", "jumbo"),
            "no series matches: 'seatrial history -c \"*\"' names all",
        ),
    ],
)
def test_what_matches_nothing_is_named(here, trials, words, text):
    make_night(trials, 70, runs=runs_of(LINKS, "latency_us", (1,)))
    code, said, error = here("history", "--trials", trials, *words)
    assert (code, said) == (3, "")
    assert error.startswith(f"error: {text}")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--changes",),
        ("--page", "page.html"),
        ("export", "--format", "csv", "--output", "figures.csv"),
    ],
)
def test_what_matches_nothing_writes_nothing(here, trials, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    code, said, error = here("history", *words, "--trials", trials, "-c", "netpip")
    assert (code, said) == (3, "")
    assert "--check netpip: no series has such a check; did you mean 'netpipe'?" in error
    assert not [one for name in words if (one := tmp_path / name).exists()]


def test_one_site_of_several(here, trials):
    for number in range(3):
        make_night(trials, number, site="lab-two", trial=f"lab-two-{number}")
    code, said, _ = here("history", "--trials", trials, "--site", "lab-two")
    assert code == 0
    assert "3 trials\n1 series of figures" in said
    assert "lab-00" not in said
    assert "lab-two" not in here("history", "--trials", trials, "--site", "lab")[1]
    code, said, _ = here("history", "--trials", trials, "--site", "lab", "--changes")
    assert (code, said) == (0, "0 changes of level shown by the newest 3 trials\n")
    for other in ("lab*", "harbour"):
        code, _, error = here("history", "--trials", trials, "--site", other)
        assert code == 3
        assert f"has no trial of the site {other!r} (" in error


def test_the_folder_of_a_trial_is_no_folder_of_trials(here, trials):
    before = sorted(one.name for one in (trials / "lab-001").iterdir())
    code, _, error = here("history", "--trials", trials / "lab-001")
    assert code == 3
    assert "it is in the folder of the trial lab-001" in error
    assert f"(name the folder that holds the trials, {trials})" in error
    assert sorted(one.name for one in (trials / "lab-001").iterdir()) == before


def test_names_cannot_control_the_terminal(here, tmp_path):
    metric = "\x1b[2Jx\n_us [bold]"
    for number, kernel in enumerate(["\x1b[1m", "6"]):
        runs = runs_of(NETPIPE, metric, (1,), versions={"kernel": kernel})
        sealed(make_night(tmp_path, number, runs=runs))
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


def test_prune_lists_first_and_removes_only_when_asked_to(here, tmp_path):
    folders = [with_evidence(make_night(tmp_path, number)) for number in range(3)]
    (folders[1] / "cases" / "empty").write_text("no longer empty")
    code, said, _ = here("history", "prune", "--trials", tmp_path, "--days", 0)
    assert code == 0
    assert all((folder / "reframe.out").exists() for folder in folders)
    _, first, second, third, counts, total, hint = said.splitlines()
    assert first.split() == ["lab-000", "8", "0.0", "MB", "older", "than", "0", "days"]
    assert second.startswith("lab-001")
    assert third.rstrip().endswith("kept: the newest trial of its site")
    assert counts == "0 trials younger, 0 without raw evidence"
    assert total == "to remove: raw evidence of 2 trials, 0.0 MB"
    assert hint == "the same command with --remove removes it"

    code, said, _ = here("history", "prune", "--trials", tmp_path, "--days", 0, "--remove")
    assert code == 1
    lines = said.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["trial", "lab-000", "lab-001", "lab-002"]
    assert lines.index("lab-000: removed") > lines.index(
        "removing: raw evidence of 2 trials, 0.0 MB"
    )
    assert "lab-001: kept: 1 file not as in SHA256SUMS" in said
    assert not (folders[0] / "reframe.out").exists()
    assert (folders[1] / "reframe.out").exists()

    code, said, _ = here("verify", folders[0])
    assert code == 0
    first, second = said.splitlines()
    assert first == f"5 files are as in {folders[0] / 'SHA256SUMS'}"
    assert re.fullmatch(r"pruned 2\d{3}-\d\d-\d\d \d\d:\d\d UTC by \S.*: 8 files of raw .*", second)
    assert second.endswith("0.0 MB, kept for 0 days")


def test_an_option_before_a_command_is_refused(here, trials):
    code, _, error = here("history", "--trials", trials, "prune")
    assert code == 3
    assert "--trials: it does nothing before 'prune'" in error


def test_export_writes_a_file_and_says_how_many_figures(here, trials, tmp_path):
    file = tmp_path / "figures.csv"
    words = ("history", "export", "--trials", trials, "--output")
    code, said, _ = here(*words, file, "--format", "csv", "-c", "netpipe")
    assert (code, said) == (0, f"3 figures of {trials}: {file}\n")
    assert len(file.read_text().splitlines()) == 4
    code, said, _ = here(*words, file, "--format", "openmetrics", "--newest")
    assert (code, said) == (0, f"2 figures of {trials}: {file}\n")
    code, _, error = here(*words, file, "--format", "xml")
    assert code == 3
    assert "xml" in error
    assert "openmetrics" in error
    code, _, error = here(*words, trials / "lab-001" / "x.csv", "--format", "csv")
    assert code == 3
    assert "it is in the folder of the trial lab-001" in error
    code, _, error = here(*words, tmp_path / "none" / "x.csv", "--format", "csv")
    assert code == 3
    assert "the figures cannot be written" in error


@pytest.fixture
def changed(tmp_path, monkeypatch):
    """Nights of site ``lab``, with a baseline of 30 us; since the seventh it is 36 us."""
    monkeypatch.setenv("SEATRIAL_SITES", str(tmp_path / "sites"))
    site = tmp_path / "sites" / "lab"
    site.mkdir(parents=True)
    (site / "site.yaml").write_text("name: lab\n")
    (site / "requirements.yaml").write_text(
        "schema: 1\nrequirements:\n"
        "  # of the first week\n"
        "  - select: {check: netpipe, variant: '', transport: tcp, profile: default, nodes: 2, "
        "location: ''}\n"
        "    metric: latency_us\n    basis: baseline\n    source: six trials\n"
        "    reference: 30\n    upper: 0.05\n    unit: us\n"
        "  - {select: {check: links}, metric: stream_MB_s, basis: contract, source: tender 7, "
        "at_least: 100, unit: MB/s}\n"
    )
    for number in range(10):
        slow, driver = (1.2, "igb 5.2") if number >= 6 else (1.0, "igb 5.1")
        values = [slow * (30 + 0.1 * (number % 3) + 0.1 * repeat) for repeat in range(3)]
        runs = runs_of(NETPIPE, "latency_us", values, versions={"driver of eth1": driver})
        slower = [value / slow**2 for value in (900, 901, 902)]
        runs += runs_of(
            LINKS, "stream_MB_s", slower, "MB/s", "higher", "n1>n2",
            versions={"driver of eth1": driver},
        )  # fmt: skip
        make_night(tmp_path / "trials", number, (1, 2, 3), runs=runs)
    return tmp_path / "trials"


def finding_of(said: str) -> str:
    return re.match(r"(2026-08-07-[0-9a-f]{4}): ", said)[1]


def test_changes_are_shown_with_what_changed_that_night(here, changed):
    code, said, _ = here("history", "--trials", changed, "--changes")
    assert code == 1
    lines = said.splitlines()
    finding_of(said)
    assert lines[0].endswith(": the whole site: 2 of 2 series worse by 31 % at most")
    assert lines[1] == (
        "    since 2026-08-07 (lab-006, after lab-005), shown by lab-008; "
        "changed that night: driver of eth1 igb 5.1 -> igb 5.2"
    )
    assert "links.tcp.jumbo.3n: stream_MB_s at n1>n2 from 901 MB/s (" in lines[2]
    assert lines[-1] == "1 change of level shown by the newest 10 trials"


def test_changes_have_exit_code_0_if_the_newest_trials_show_none(here, changed):
    code, said, _ = here("history", "--trials", changed, "--changes", "--last", 1)
    assert (code, said) == (0, "0 changes of level shown by the newest 1 trial\n")


def test_an_accepted_change_is_the_baseline_and_says_who_and_why(here, changed):
    name = finding_of(here("history", "--trials", changed, "--changes")[1])
    words = ("baseline", "--trials", changed, "--accept", name[:-1])
    code, said, _ = here(*words, "--reason", 'igb 5.2 is "wanted": yes', "--by", "J. Doe")
    assert code == 0
    assert said.startswith(f"accepting {name}: the whole site: 2 of 2 series worse")
    assert "replaced netpipe.tcp.default.2n: latency_us: 36.24 us" in said
    assert "skipped 1 figure of 1 case: the contract at requirements.yaml:11 applies" in said
    assert "looser netpipe.tcp.default.2n: latency_us: at most 31.5 us" in said

    requirements = load_requirements(changed.parent / "sites/lab/requirements.yaml")
    (one,) = requirements.accepted
    assert (one.change, one.by, one.reason) == (name, "J. Doe", 'igb 5.2 is "wanted": yes')
    assert one.when == datetime.now(UTC).date()
    baseline, contract = (rule.threshold for rule in requirements.rules)
    assert baseline.reference == pytest.approx(36.24)
    assert baseline.source.startswith("12 samples of 4 trials, spread ")
    assert f'accepted {one.when} by J. Doe: igb 5.2 is "wanted": yes ({name})' in baseline.source
    assert contract.basis == "contract"
    assert "# of the first week" in requirements.file.read_text()

    code, said, _ = here("history", "--trials", changed, "--changes")
    assert code == 0
    assert f'    accepted on {one.when} by J. Doe: igb 5.2 is "wanted": yes' in said.splitlines()
    before = requirements.file.read_bytes()
    code, _, error = here(*words, "--reason", "again")
    assert code == 3
    assert f"{name} was accepted on {one.when} by J. Doe" in error
    assert requirements.file.read_bytes() == before


def test_the_new_level_of_a_check_and_a_metric_that_were_renamed_is_that_of_todays_names(
    here, changed, tmp_path
):
    trials = tmp_path / "renamed"
    for number in range(10):
        case = replace(LINKS, check="pairs") if number < 8 else LINKS
        by = 1.2 if number >= 6 else 1
        values = [by * (30 + 0.1 * ((number + at) % 3)) for at in range(3)]
        metric = "half_bandwidth_B" if number < 9 else "n_half_B"
        runs = [*runs_of(case, "latency_us", values), *runs_of(case, metric, values, "B")]
        make_night(trials, number, (1, 2, 3), runs=runs)
    name = here("history", "--trials", trials, "--changes")[1].partition(": ")[0]
    code, said, _ = here("baseline", "--trials", trials, "--accept", name, "--reason", "x")
    assert code == 0
    added = [line for line in said.splitlines() if line.startswith("added")]
    assert [line.partition(", ")[0] for line in added] == [
        "added links.tcp.jumbo.3n: latency_us: 36.12 us",
        "added links.tcp.jumbo.3n: n_half_B: 36.12 B",
    ]
    assert all("(12 samples of 4 trials)" in line for line in added)


def nights_of_links(trials, factor):
    """Ten nights of three links. Since the seventh, ``factor(link)`` is that of latency, and of the
    bandwidth, which is better then."""
    for number in range(10):
        runs = []
        for link in ("n1-n2", "n1-n3", "n2-n3"):
            by = factor(link) if number >= 6 else 1
            values = [by * (30 + 0.1 * ((number + at) % 3)) for at in range(3)]
            runs += runs_of(LINKS, "latency_us", values, location=link)
            values = [by * (900 + (number + at) % 3) for at in range(3)]
            runs += runs_of(LINKS, "bandwidth_MB_s", values, "MB/s", "higher", link)
        make_night(trials, number, (1, 2, 3), runs=runs)


def test_what_may_be_the_level_of_a_fault_is_said_before_it_is_accepted(here, changed, tmp_path):
    trials = tmp_path / "links"
    nights_of_links(trials, lambda link: 1.2 if "n3" in link else 1)
    name = here("history", "--trials", trials, "--changes")[1].partition(": ")[0]
    code, said, _ = here("baseline", "--trials", trials, "--accept", name, "--reason", "x")
    assert code == 0
    lines = said.splitlines()
    case = "links.tcp.jumbo.3n"
    assert lines[0].startswith(f"accepting {name}: node n3: 2 series worse by 20 % at most")
    assert lines[1].startswith("since 2026-08-07 (lab-006, after lab-005), shown by lab-00")
    assert [line.removeprefix("warning: ") for line in lines[2:7]] == [
        "the level is of node n3 only: if that has a fault, the fault passes from now on",
        f"{case}: bandwidth_MB_s: only 2 of 3 locations have the new level, and not n1-n2",
        f"{case}: latency_us: only 2 of 3 locations have the new level, and not n1-n2",
        f"2 series worse by more than 5 %, by 20 % at most: {case}: latency_us at n1-n3",
        (
            "2 series better by 20 % at most, beside those that are worse: "
            "if the cause is removed, they fail"
        ),
    ]
    assert re.search(
        r"added links\.tcp\.jumbo\.3n: latency_us at n1-n3: 36\.12 us, at most 37\.93 us, \+5 % "
        r"\(12 samples of 4 trials\); before 30\.1 us: worse by 20 %", said
    )  # fmt: skip


def test_a_level_of_all_locations_that_is_better_raises_no_doubt(here, changed, tmp_path):
    trials = tmp_path / "links"
    nights_of_links(trials, lambda _: 1.2)
    name = here("history", "--trials", trials, "--changes", "--metric", "b*")[1].partition(": ")[0]
    informative = "informative:\n  - {select: {}, metric: latency_us, reason: x}\n"
    (changed.parent / "sites/lab/requirements.yaml").write_text("schema: 1\n" + informative)
    code, said, _ = here("baseline", "--trials", trials, "--accept", name, "--reason", "x")
    assert code == 0
    warnings = [line for line in said.splitlines() if line.startswith("warning")]
    assert all("SHA256SUMS" in warning for warning in warnings)
    assert len(warnings) == 1  # and one line for all of the trials
    assert said.count("; before 901 MB/s: better by 20 %") == 3


def test_the_history_sees_an_acceptance_of_a_site_elsewhere_or_the_command_says_so(
    here, changed, tmp_path
):
    """The site is none of those of SEATRIAL_SITES. A trial keeps a copy of its requirements."""
    elsewhere = tmp_path / "elsewhere" / "lab"
    shutil.move(tmp_path / "sites" / "lab", elsewhere)
    changes = ("history", "--trials", changed, "--changes")
    name = finding_of(here(*changes)[1])
    words = ("baseline", "--trials", changed, "--accept", name, "--reason", "wanted", "--site")
    code, said, _ = here(*words, elsewhere)
    assert code == 0
    assert said.splitlines()[-1] == (
        f"note: lab is not in {tmp_path / 'sites'}: 'seatrial history' sees this acceptance from "
        "the site's next trial on, which keeps a copy of the file"
    )
    assert here(*changes)[0] == 1
    copy = changed / "lab-009" / "config" / "lab"
    copy.mkdir(parents=True)
    shutil.copy(elsewhere / "requirements.yaml", copy)
    code, said, _ = here(*changes)
    assert code == 0
    assert ": wanted\n" in said
    shutil.copytree(elsewhere, tmp_path / "sites" / "lab")
    own = tmp_path / "sites" / "lab" / "requirements.yaml"
    own.write_text("schema: 1\n")
    assert here(*changes)[0] == 1
    (elsewhere / "requirements.yaml").write_text("schema: 1\n")
    unseen = f"note: 'seatrial history' does not see this acceptance: it reads {own}\n"
    assert here(*words, elsewhere)[1].endswith(unseen)
    assert here(*words, "lab", "--write", tmp_path / "new.yaml")[1].endswith(unseen)
    assert "note: " not in here(*words, "lab")[1]


def test_a_series_that_becomes_worse_after_that_is_not_accepted(here, changed):
    """The finding was accepted on the day before the trial that showed it, as far as it was known.
    Accepted again, it is accepted as a whole."""
    name = finding_of(here("history", "--trials", changed, "--changes")[1])
    file = changed.parent / "sites/lab/requirements.yaml"
    shown_on = datetime(2026, 8, 9, tzinfo=UTC).date()  # both series, by lab-008
    text = file.read_text()
    for when, later in ((shown_on, False), (shown_on - timedelta(days=1), True)):
        file.write_text(
            f"{text}accepted:\n  - {{change: {name}, by: J. Doe, when: {when}, reason: wanted}}\n"
        )
        code, said, _ = here("history", "--trials", changed, "--changes")
        assert code == later
        assert f"accepted on {when} by J. Doe: wanted" in said
        assert ("; but 2 series of it became worse later" in said) == later
    code, said, _ = here("baseline", "--trials", changed, "--accept", name, "--reason", "also")
    assert code == 0
    assert [one.reason for one in load_requirements(file).accepted] == ["wanted", "also"]
    code, said, _ = here("history", "--trials", changed, "--changes")
    assert code == 0
    assert ": also\n" in said
    assert here("baseline", "--trials", changed, "--accept", name, "--reason", "no")[0] == 3


def test_the_exit_code_of_a_selection_is_of_its_series_and_any_of_them_accepts(here, changed):
    words = ("history", "--trials", changed, "--changes")
    name = finding_of(here(*words)[1])
    for selection in (("-c", "links"), ("--metric", "latency_us")):
        code, said, _ = here(*words, *selection)
        assert (code, finding_of(said)) == (1, name)
        assert "1 of 2 series shown" in said
    file = changed.parent / "sites/lab/requirements.yaml"
    entry = "informative:\n  - {select: {}, metric: '*', reason: no measure of quality}\n"
    file.write_text(file.read_text() + entry)  # requirements of both metrics go before it
    assert here(*words)[0] == 1
    file.write_text("schema: 1\n" + entry)
    code, said, _ = here(*words)
    assert code == 0
    assert ": the whole site: 2 of 2 informative series changed\n" in said
    file.write_text("schema: 2\n")
    code, said, _ = here(*words)
    assert code == 1
    assert said.count("note: what was accepted and what is informative at site lab is not") == 1


def test_an_accepted_level_that_is_withdrawn_is_said_until_the_baseline_is_mended(
    here, changed, tmp_path
):
    """Two nights are bad and their level is accepted; all later ones are good."""
    trials, file = tmp_path / "others", changed.parent / "sites/lab/requirements.yaml"

    def nights(begin: int, end: int, factor: float) -> None:
        for number in range(begin, end):
            make_night(
                trials, number, [30 * factor * (1 + at / 1000) for at in (-2, number % 5, 3)]
            )

    nights(0, 26, 1)
    nights(26, 28, 1.4)
    name = here("history", "--trials", trials, "--changes")[1].partition(":")[0]
    words = ("baseline", "--trials", trials, "--reason", "x", "--by", "J. Doe", "--accept", name)
    assert here(*words)[0] == 0
    nights(28, 36, 1)
    note = f"note: {name} was accepted on "
    code, said, _ = here("history", "--trials", trials, "--changes")
    assert code == 0
    (line,) = [row for row in said.splitlines() if row.startswith(note)]
    assert "by J. Doe, and is no change any more: later trials are of the old level; " in line
    assert line.endswith("; still in force at the accepted one: 1 baseline requirement")
    with opened(trials, print) as index:
        assert notify.news(index, "lab", None, load_requirements(file)).notes == [line[6:]]
    assert (
        here("baseline", *(trials / f"lab-0{at}" for at in range(30, 36)), "--site", "lab")[0] == 0
    )
    assert note not in here("history", "--trials", trials, "--changes")[1]


def test_a_level_that_has_ended_is_not_accepted(here, changed):
    for number in range(10, 14):
        values = [30.0, 30.1, 30.2]
        runs = runs_of(NETPIPE, "latency_us", values)
        runs += runs_of(LINKS, "stream_MB_s", (900, 901, 902), "MB/s", "higher", "n1>n2")
        make_night(changed, number, (1, 2, 3), runs=runs)
    name = finding_of(here("history", "--trials", changed, "--changes")[1])
    words = ("baseline", "--trials", changed, "--reason", "x", "--accept")
    code, _, error = here(*words, name)
    assert code == 3
    assert f"{name} has no level to accept: a later change followed" in error
    code, _, error = here(*words, "2026")
    assert code == 3
    assert "several changes begin so: " in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--accept", "2026-01-01-abcd", "--reason", "x"), "2026-01-01-abcd: no such change"),
        (("--accept", "2026"), "--accept needs --reason"),
        (("--accept", "2026", "--reason", " "), "--accept needs --reason"),
        (("--reason", "x"), "--reason and --by are of --accept"),
        (("lab-001", "--accept", "2026", "--reason", "x"), "name no trial"),
    ],
)
def test_what_cannot_be_accepted_changes_nothing(here, changed, words, message):
    file = changed.parent / "sites/lab/requirements.yaml"
    before = file.read_bytes()
    code, _, error = here("baseline", "--trials", changed, *words)
    assert code == 3
    assert message in error
    assert file.read_bytes() == before


def test_the_page_is_written_where_it_may_be(here, changed, tmp_path):
    page = tmp_path / "page.html"
    code, said, _ = here("history", "--trials", changed, "--page", page, "-c", "netpipe")
    assert (code, said) == (0, f"page: {page}\n")
    assert page.read_text().count("<figure ") == 1
    code, _, error = here("history", "--trials", changed, "--page", tmp_path / "none" / "x.html")
    assert code == 3
    assert "the page cannot be written" in error
    code, _, error = here("history", "--trials", changed, "--page", changed / "lab-001" / "x.html")
    assert code == 3
    assert "it is in the folder of the trial lab-001" in error


def test_after_a_trial_the_index_and_the_page_are_in_step(changed, capsys):
    keep_history(changed)
    assert "lab-009" in (changed / "history.html").read_text()
    make_night(changed, 10)
    (changed / "history.html").unlink()
    (changed / "history.html").mkdir()
    capsys.readouterr()
    keep_history(changed)
    assert "warning: history.html was not written" in capsys.readouterr().out


def test_a_defect_of_the_page_does_not_end_a_trial(changed, capsys, monkeypatch):
    def fails(*_):
        raise ZeroDivisionError("by a figure")

    monkeypatch.setattr(history_page, "write_page", fails)
    keep_history(changed)
    said = " ".join(capsys.readouterr().out.split())
    assert "warning: history.html was not written: a defect of Seatrial" in said
    assert "by a figure" in said


def test_trials_whose_clock_was_wrong_are_listed_and_no_newest_ones(here, tmp_path, changed):
    early = datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    make_night(changed, 90, (60.0, 61.0), started=early)
    make_night(changed, 91, (60.0, 61.0), started=datetime.now(UTC) + timedelta(days=900))
    _, said, _ = here("history", "--trials", changed, "--last", 2)
    rows = [row for row in said.splitlines() if " lab-0" in row]
    assert [re.search(r"lab-0\d\d", row)[0] for row in rows] == [
        "lab-090", "lab-091", "lab-008", "lab-009"
    ]  # fmt: skip
    assert "a clock is wrong: the trial began on 1970-01-01" in rows[0]
    assert "12 trials, of which the newest 2 are shown, and 2 whose clock was wrong\n" in said
    _, said, _ = here("history", "--trials", changed, "--changes", "--last", 2)
    assert "; changed that night: driver of eth1 igb 5.1 -> igb 5.2\n" in said
    assert "not counted, because a clock was wrong: lab-090, lab-091\n" in said
    assert said.endswith("1 change of level shown by the newest 2 trials\n")
    file = tmp_path / "newest.om"
    words = ("--format", "openmetrics", "--newest", "--output", file)
    assert here("history", "export", "--trials", changed, *words)[0] == 0
    (began,) = re.findall(
        r"^seatrial_trial_start_timestamp_seconds\{.*\} (.*)$", file.read_text(), re.M
    )
    assert datetime.fromtimestamp(float(began), UTC).date().isoformat() == "2026-08-10"
    page = tmp_path / "history.html"
    assert here("history", "--trials", changed, "--page", page)[0] == 0
    assert "lab-090: verdict accept, in no change of level: a clock is wrong" in page.read_text()
