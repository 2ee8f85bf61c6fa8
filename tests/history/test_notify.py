"""A message says what changed: once, in ten lines, through a command without a shell."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from history_support import BEGIN, LINKS, NETPIPE, make_night, runs_of
from seatrial.base.errors import InputError, LabError
from seatrial.base.paths import CHECKOUT
from seatrial.history import accept, notify
from seatrial.history.changes import findings, newest
from seatrial.history.index import INDEX_FILE, opened
from seatrial.report import HISTORY_FILE
from seatrial.report.message import LINES, WIDTH, headline, message
from seatrial.results.folder import RESULTS_FILE
from seatrial.results.requirements import Accepted
from seatrial.site.load import load_site

NOISE = (0.3, -0.2, 0.1, -0.4, 0.2, -0.1, 0.4, -0.3)


def night(trials: Path, number: int, factor: float = 1, kernel: str = "6.1", series: int = 1):
    """A trial with latencies of about 30 us times ``factor``, in so many cases."""
    runs = []
    for case in range(series):
        values = [30 * (1 + NOISE[(number + case + at) % 8] / 100) * factor for at in range(3)]
        netpipe = type(NETPIPE)(check="netpipe", transport=f"t{case}", nodes=2)
        runs += runs_of(netpipe, "latency_us", values, versions={"kernel": kernel})
    return make_night(trials, number, (1, 2, 3), runs=runs)


@pytest.fixture
def trials(tmp_path) -> Path:
    """Ten quiet nights."""
    for number in range(10):
        night(tmp_path / "trials", number)
    return tmp_path / "trials"


def news(trials: Path) -> notify.News:
    with opened(trials, print) as index:
        return notify.news(index, "lab", notify.read_sent(trials, print).get("lab"))


def send(trials: Path) -> str:
    """The text of the message of now, which is recorded as sent. "": nothing is new."""
    new = news(trials)
    notify.write_sent(trials, {"lab": new.after})
    return message(new, "see") if new.is_new else ""


def verdict(folder: Path, word: str) -> None:
    file = folder / RESULTS_FILE
    file.write_text(file.read_text().replace('"verdict":"accept"', f'"verdict":"{word}"'))


def test_a_change_is_sent_on_the_night_that_shows_it_and_not_again(trials):
    texts = [send(trials)]
    for number in range(10, 20):
        night(trials, number, 1.25, "6.12")
        texts.append(send(trials))
    (text,) = filter(None, texts)
    assert 1 <= texts.index(text) <= 3
    first, change, last = text.splitlines()
    assert first.startswith("lab: 1 change, verdict accept, trial lab-01")
    assert change.startswith("netpipe.t0.default.2n: latency_us: worse by 25 % (30")
    assert change.endswith(" us), since 2026-08-11; changed that night: kernel 6.1 -> 6.12")
    assert last == "see"
    night(trials, 20, 1.0, "6.12")
    night(trials, 21, 1.0, "6.12")
    night(trials, 22, 1.0, "6.12")
    better = send(trials)
    assert "latency_us: better by 20 %" in better
    assert "since 2026-08-21" in better


def two_series(trials: Path, number: int, latency: float = 1, half: float = 1) -> None:
    """A night of one case with two metrics, of which each has its factor."""
    runs = []
    for metric, factor in (("latency_us", latency), ("half_us", half)):
        values = [30 * (1 + NOISE[(number + at) % 8] / 100) * factor for at in range(3)]
        runs += runs_of(
            NETPIPE, metric, values, versions={"kernel": "6.12" if number > 9 else "6.1"}
        )
    make_night(trials, number, (1, 2, 3), runs=runs)


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize(
    ("first", "words"),
    [
        (0.75, "1 of 2 series worse by 50 %, 1 of 2 series better by 25 %"),
        (1.1, "2 of 2 series worse by 50 % at most"),
        (1.4, ""),
    ],
)
def test_a_finding_that_becomes_worse_is_sent_once_more(tmp_path, first, words, older):
    """A second metric follows the first after two nights. An older file of what was sent has only
    the identifiers."""
    texts = []
    for number in range(20):
        two_series(tmp_path, number, first if number > 9 else 1, 1.5 if number > 11 else 1)
        if number < 9:
            continue
        texts.append(send(tmp_path))
        file = tmp_path / notify.SENT_FILE
        if older:
            content = json.loads(file.read_text())
            content["sites"]["lab"]["findings"] = list(content["sites"]["lab"]["findings"])
            file.write_text(json.dumps(content))
    sent = list(filter(None, texts))
    with opened(tmp_path, print) as index:
        (finding,) = findings(index)
    assert len(finding.changes) == 2
    assert len({change.found.name for change in finding.changes}) == 2
    assert len(sent) == (2 if words else 1)
    if words:
        before = "as not worse" if first < 1 else "as worse by 10 %"
        assert words in sent[1]
        assert "(netpipe.tcp.default.2n: half_us 30" in sent[1]
        assert f"; sent before {before}, 1 worse series joined; changed that night" in sent[1]


def test_nights_without_a_message_are_sent_together(trials):
    assert send(trials) == ""
    for number in range(10, 16):
        night(trials, number, 1.25)
    assert "worse by 25 % (30 us -> 37.5 us), since 2026-08-11" in send(trials)
    assert send(trials) == ""


@pytest.mark.parametrize("harm", ["remove", "damage", "empty", "older"])
def test_without_the_file_no_old_change_is_sent_again(trials, harm):
    for number in range(10, 16):
        night(trials, number, 1.25)
    (trials / notify.SENT_FILE).unlink(missing_ok=True)
    assert send(trials) == ""  # the first message: the change is days old
    file = trials / notify.SENT_FILE
    if harm == "remove":
        file.unlink()
    else:
        file.write_text({"damage": "{", "empty": "", "older": '{"schema": 0}'}[harm])
    said: list[str] = []
    assert notify.read_sent(trials, said.append) == {}
    assert len(said) == (harm != "remove")
    (trials / INDEX_FILE).unlink()
    assert send(trials) == ""
    assert notify.read_sent(trials, said.append)["lab"].verdict == "accept"


@pytest.mark.parametrize("how", ["cut", "moved"])
def test_a_change_is_sent_when_the_trial_that_shows_it_becomes_readable(trials, tmp_path, how):
    """Both bad nights are lost when the next ones are read, and later complete."""
    assert send(trials) == ""
    places = [night(trials, number, 1.25) for number in (10, 11)]
    whole = [(place / RESULTS_FILE).read_text() for place in places]
    for place in places:
        (place / RESULTS_FILE).unlink() if how == "moved" else cut(place)
    assert ("not counted" in send(trials)) == (how == "cut")
    night(trials, 12, 1.25)
    assert "worse by" not in send(trials)
    for place, text in zip(places, whole, strict=True):
        (place / RESULTS_FILE).write_text(text)
    text = send(trials)
    assert "latency_us: worse by 25 % (30 us -> 37.5" in text
    assert "since 2026-08-11" in text
    night(trials, 13, 1.25)
    assert send(trials) == ""


def test_another_verdict_is_sent_once(trials):
    assert send(trials) == ""
    verdict(night(trials, 10), "reject")
    assert send(trials) == "lab: verdict reject (before: accept), trial lab-010\nsee\n"
    assert send(trials) == ""
    verdict(night(trials, 11), "reject")
    assert send(trials) == ""
    cut = night(trials, 12) / RESULTS_FILE
    cut.write_text("".join(cut.read_text().splitlines(keepends=True)[:-1]))
    assert send(trials).startswith("lab: verdict interrupted (before: reject)")
    night(trials, 13)
    assert send(trials).startswith("lab: verdict accept (before: interrupted)")


def test_a_trial_of_the_future_silences_nothing(trials):
    make_night(trials, 90, (30, 30), started=datetime.now(UTC) + timedelta(days=900))
    assert news(trials).trial.folder.name == "lab-009"
    send(trials)
    for number in range(10, 14):
        night(trials, number, 1.25)
    assert "worse by 25 % (30 us -> 37.5 us), since 2026-08-11" in send(trials)


def test_a_trial_of_the_past_is_said_once_and_changes_no_level(trials):
    """The battery of a machine is empty: six rejected nights at twice the latency are of 1970."""
    assert send(trials) == ""
    wrong = "a clock is wrong: the trial began on 1970-01-01"
    for number in range(10, 16):
        began = datetime(1970, 1, 1, 0, number, tzinfo=UTC)
        verdict(make_night(trials, number, (60.0, 61.0, 60.5), started=began), "reject")
        assert send(trials).splitlines()[:-1] == [
            "lab: 1 note, verdict accept, trial lab-009",
            f"note: lab-0{number}: verdict reject, in no change of level: {wrong}",
        ]
        assert send(trials) == ""
    with opened(trials, print) as index:
        assert findings(index) == []


def test_newest_trials_are_not_those_of_the_future(trials):
    began = datetime.now(UTC) + timedelta(days=900)
    make_night(trials, 90, (30, 30), started=began)
    for number in range(10, 13):
        night(trials, number, 1.25)
    with opened(trials, print) as index:
        (one,) = newest(index, 1)
    assert one.found.name == "lab-012"


def test_a_change_that_was_sent_and_is_withdrawn_is_said_once(trials):
    texts = []
    for number in range(10, 40):
        night(trials, number, 1.4 if number in (24, 25) else 1)
        texts.append(send(trials))
    worse, better, withdrawn = filter(None, texts)
    assert "worse by 40 %" in worse
    assert "better by 28 %" in better
    first, line, _, _ = withdrawn.splitlines()
    assert first == "lab: 2 notes, verdict accept, trial lab-031"
    assert line == (
        "note: netpipe.t0.default.2n: latency_us: the change of 2026-08-25, sent as worse by 40 %, "
        "is withdrawn: later trials are of the old level, or a trial that showed it does not count "
        "any more"
    )


def cut(folder: Path) -> Path:
    """Harm the results of a trial: its folder does not count."""
    file = folder / RESULTS_FILE
    file.write_text(file.read_text()[:-20])
    return folder


def test_a_folder_that_does_not_count_is_sent_once_with_its_reason(trials):
    assert send(trials) == ""
    place = cut(night(trials, 10))
    first, reason, last = send(trials).splitlines()
    assert first == "lab: 1 folder not counted, verdict accept, trial lab-009"
    assert reason.startswith(f"not counted: {place / RESULTS_FILE}:")
    assert last == "see"
    assert send(trials) == ""
    night(trials, 11)
    assert send(trials) == ""
    (trials / "copy").mkdir()
    shutil.copy(trials / "lab-011" / RESULTS_FILE, trials / "copy")
    assert send(trials).splitlines()[1] == "not counted: copy is a copy of lab-011"
    shutil.rmtree(place)
    assert send(trials) == ""
    cut(night(trials, 10))  # mended, and harmed again
    assert "lab: 1 folder not counted" in send(trials)


def test_many_folders_that_do_not_count_leave_room_for_what_changed(trials):
    send(trials)
    for number in range(10, 16):
        night(trials, number, 1.25)
    for number in range(16, 22):
        cut(night(trials, number))
    first, *rows, change, _ = send(trials).splitlines()
    assert first.startswith("lab: 1 change, 6 folders not counted, verdict accept, trial lab-015")
    assert str(trials / "lab-021") in rows[0]
    assert str(trials / "lab-020") in rows[1]
    assert rows[2:] == ["not counted: 4 more folders, which 'seatrial history' names"]
    assert "worse by 25 %" in change


def test_a_file_of_an_older_version_says_what_does_not_count(trials):
    send(trials)
    file = trials / notify.SENT_FILE
    content = json.loads(file.read_text())
    del content["sites"]["lab"]["not_counted"]
    file.write_text(json.dumps(content))
    assert send(trials) == ""
    cut(night(trials, 10))
    assert "1 folder not counted" in send(trials)


def test_other_sites_are_apart(trials):
    make_night(trials, 60, (1, 2), site="other")
    with opened(trials, print) as index:
        assert notify.news(index, "other", None).trial.name == "lab-060"
        with pytest.raises(InputError, match="no trial of the site harbour"):
            notify.news(index, "harbour", None)
    notify.write_sent(trials, {"other": news(trials).after})
    assert send(trials) == ""


def test_ten_lines_at_most_and_none_is_long(tmp_path):
    """Ten cases that change on ten nights, with long and hostile names."""
    trials = tmp_path
    for number in range(40):
        runs = []
        for case in range(10):
            step = 1.3 if number >= 12 + 2 * case else 1
            values = [
                30 * (1 + NOISE[(number * 3 + case + at) % 8] / 100) * step for at in range(3)
            ]
            other = type(LINKS)(check="links", transport=f"t{case}" + "x" * 80, nodes=3)
            odd = "\x1b[2J\r\nSubject: $(touch x) `id`"
            runs += runs_of(other, "latency_us", values, location=odd, versions={"kernel": "6.1"})
        make_night(trials, number, (1, 2, 3), runs=runs)
        if number == 9:
            send(trials)
    text = send(trials)
    lines = text.splitlines()
    assert len(lines) == LINES
    assert lines[0].startswith("lab: 10 changes")
    assert lines[-2] == "and 3 more changes"
    assert max(map(len, lines)) <= WIDTH
    assert not set(text) & set("\x1b\r")


# --- the command -------------------------------------------------------------------------


def program(folder: Path, text: str) -> list[str]:
    file = folder / "program.py"
    file.write_text(text)
    return [sys.executable, str(file)]


def test_the_text_is_the_standard_input_and_no_shell_reads_a_word(tmp_path):
    command = program(
        tmp_path, "import sys, pathlib\n"
        "pathlib.Path(sys.argv[1]).write_text(repr([sys.argv[2:], sys.stdin.read()]))\n",
    )  # fmt: skip
    odd = ["$(id)", "; touch x", "a b", "`id`", "*"]
    text = "é $(touch y)\n`id`\n"
    notify.send([*command, str(tmp_path / "got"), *odd], text)
    assert (tmp_path / "got").read_text() == repr([odd, text])
    assert sorted(one.name for one in tmp_path.iterdir()) == ["got", "program.py"]


def test_a_command_that_reads_nothing_or_leaves_a_process_does_not_block(tmp_path):
    notify.send(["true"], "x" * 1_000_000)
    script = "import subprocess; subprocess.Popen(['sleep', '30'])\n"
    began = datetime.now(UTC)
    notify.send(program(tmp_path, script), "x")
    assert datetime.now(UTC) - began < timedelta(seconds=25)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["/no/such/program"], "there is no program /no/such/program"),
        (["/etc"], "/etc: Permission denied"),
        (["sh", "-c", "echo one; echo no route >&2; exit 4"], "sh ended with 4: no route"),
        (["sleep", "30"], "sleep took longer than 0.2 s"),
    ],
)
def test_a_command_that_fails_is_an_error_with_its_reason(command, why, monkeypatch):
    monkeypatch.setattr(notify, "TIME_LIMIT_S", 0.2 if command[0] == "sleep" else 60)
    with pytest.raises(LabError, match=f"^the message was not sent: {why}$"):
        notify.send(command, "text")


@pytest.mark.root
def test_where_nothing_can_be_recorded_nothing_is_sent(trials):
    os.chown(trials, 1000, 1000)
    refused = pytest.raises(InputError, match="messages sent cannot be recorded")
    with refused, notify.sending(trials, print):
        pass
    assert not (trials / notify.LOCK_FILE).exists()


# --- the command line --------------------------------------------------------------------


@pytest.fixture
def site(tmp_path):
    """``site(*command)``: the file of a site with this command; ``got`` is its output."""

    def make(*command: str) -> Path:
        folder = tmp_path / "sites" / "lab"
        if not folder.exists():
            shutil.copytree(CHECKOUT / "site-configs" / "lab", folder)
        file = folder / "site.yaml"
        words = ", ".join(f'"{word}"' for word in command)
        text = (CHECKOUT / "site-configs" / "lab" / "site.yaml").read_text()
        file.write_text(text.replace("\ntrial:\n", f"\ntrial:\n  notify: [{words}]\n"))
        load_site.cache_clear()
        return file

    return make


def call(monkeypatch, capsys, *words):
    from seatrial.cli import main

    monkeypatch.setattr(sys, "argv", ["seatrial", "history", "notify", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, *capsys.readouterr()


def test_the_command_line_sends_once_and_a_failure_is_tried_again(
    trials, site, tmp_path, monkeypatch, capsys
):
    got = tmp_path / "got"
    append = program(tmp_path, f"import sys; open({str(got)!r}, 'a').write(sys.stdin.read())")
    words = ("--site", site(*append), "--trials", trials)
    code, said, _ = call(monkeypatch, capsys, *words)
    assert (code, said) == (0, "lab: nothing new since lab-009\n")
    verdict(night(trials, 10), "reject")
    code, said, _ = call(monkeypatch, capsys, *words, "--print")
    assert code == 0
    assert said.startswith("lab: verdict reject (before: accept), trial lab-010\n")
    assert said.endswith(f"\n./seatrial history --changes --trials {trials}\n")
    (trials / HISTORY_FILE).touch()
    site("/no/such/program")
    code, _, error = call(monkeypatch, capsys, *words)
    assert code == 4
    assert "the message was not sent" in error
    assert not got.exists()
    site(*append)
    sent = f"sent by {sys.executable}: lab: verdict reject (before: accept), trial lab-010\n"
    for line in (sent, "lab: nothing new since lab-010\n"):
        code, said, _ = call(monkeypatch, capsys, *words)
        assert (code, said) == (0, line)
    assert got.read_text().startswith("lab: verdict reject (before: accept), trial lab-010\n")
    assert got.read_text().splitlines()[1:] == [str(trials / HISTORY_FILE)]
    assert stat.S_IMODE((trials / notify.SENT_FILE).stat().st_mode) == 0o644


def test_what_is_informative_is_read_from_the_file_of_the_site_that_is_named(
    trials, site, monkeypatch, capsys
):
    file = site("true")
    rule = '{select: {}, metric: "*", reason: "no measure of quality"}'
    file.with_name("requirements.yaml").write_text(f"schema: 1\ninformative: [{rule}]\n")
    send(trials)
    for number in range(10, 16):
        night(trials, number, 1.25)
    words = ("--site", file, "--trials", trials, "--print")
    _, said, _ = call(monkeypatch, capsys, *words)
    assert "1 informative series changed" in said


def test_a_site_without_a_command_is_bad_input(trials, monkeypatch, capsys):
    code, _, error = call(monkeypatch, capsys, "--site", "lab", "--trials", trials)
    assert code == 3
    assert "site.yaml: trial.notify: no command for messages" in error


def test_the_headline_counts_what_is_new(trials):
    assert headline(news(trials)) == "lab: verdict accept, trial lab-009"
    assert BEGIN.year == 2026


def test_a_drift_that_goes_on_is_sent_again_as_it_grows_and_its_acceptance_does_not_cover_that(
    tmp_path,
):
    """A latency grows by 0.4 % each night from the twentieth on."""
    draw = np.random.default_rng(4)
    sent: list[tuple[int, str]] = []
    level = accepted = None
    for number in range(90):
        drift = 1 + 0.004 * max(0, number - 20)
        values = tuple(30 * drift * np.exp(0.005 * draw.normal(size=3)))
        make_night(tmp_path, number, values)
        if number >= 20 and number % 2 and (text := send(tmp_path)):
            sent.append((number, text))
        if number in (50, 52):
            with opened(tmp_path, print) as index:
                (finding,) = findings(index)
                level = accept.new_level(index, finding.id, "lab")
            assert level.newest == BEGIN + timedelta(days=number)
            accepted = Accepted(
                change=finding.id, by="J. Doe", when=level.newest.date(), newest=level.newest,
                reason="wanted",
            )  # fmt: skip
            assert accept.joined(finding, accepted) == []
    assert 4 <= len(sent) <= 8
    assert all("; sent before as worse by " in text for _, text in sent[1:])
    assert "series joined" not in sent[-1][1]
    with opened(tmp_path, print) as index:
        (finding,) = findings(index)
        shown = [bool(newest(index, count)) for count in (1, 15, 89)]
    assert finding.drift
    assert len(accept.joined(finding, accepted)) == 1
    assert shown[1:] == [True, True]
