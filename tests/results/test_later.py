"""A later judgement stands beside the earlier ones: nothing that was written changes."""

import contextlib
import errno
import os
import subprocess
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.base.errors import InputError, LabError
from seatrial.report import write_all
from seatrial.results import later, manifest
from seatrial.results.folder import read_lines, read_results
from seatrial.results.manifest import MANIFEST
from trial_folder import COMMAND, content, judge, make_trial, requirements_text


def looser(folder, at_most=40.0):
    file = folder / "looser.yaml"
    file.write_text(requirements_text(at_most))
    return file


def test_the_first_verdict_stays(tmp_path):
    folder = make_trial(tmp_path / "t")
    before = content(folder)
    first = read_results(folder)
    judge(folder, looser(tmp_path))
    now = content(folder)
    assert {name: now[name] for name in before if name != MANIFEST} == {
        name: text for name, text in before.items() if name != MANIFEST
    }
    assert now[MANIFEST].startswith(before[MANIFEST])
    results = read_results(folder)
    assert [(v.number, v.verdict) for v in results.verdicts] == [(1, "reject"), (2, "accept")]
    assert results.verdicts[0] == first.verdict
    assert [j.verdict for j in results.judgements] == ["pass"]
    assert results.verdict.ended == results.ended == first.verdict.ended
    assert read_results(folder, 1) == first
    assert read_results(folder / "results.jsonl") == first
    with pytest.raises(InputError, match="there is no judgement 3"):
        read_results(folder, 3)


def test_a_judgement_says_by_whom_and_by_which_requirements(tmp_path):
    folder = make_trial(tmp_path / "t")
    given_file = looser(tmp_path)
    judge(folder, given_file)
    first, later = read_results(folder).verdicts
    copy = folder / later.requirements
    assert copy.read_bytes() == given_file.read_bytes()
    assert later.requirements_sha256 == manifest.sha256(copy)
    assert later.command == COMMAND
    assert later.user == first.user != ""
    assert later.judged > first.judged
    assert first.requirements == "config/lab/requirements.yaml"
    assert first.requirements_sha256 == manifest.sha256(folder / first.requirements)


def test_it_says_by_which_requirements_it_judges_and_if_the_newest_verdict_has_others(tmp_path):
    folder, said = make_trial(tmp_path / "t"), []
    own, given_file = folder / "config" / "lab" / "requirements.yaml", looser(tmp_path)
    short, other = manifest.sha256(own)[:12], manifest.sha256(given_file)[:12]
    judge(folder, say=said.append)
    assert said == [f"judging by {own} (SHA-256 {short})"]
    said.clear()
    judge(folder, given_file, say=said.append)
    assert said == [
        f"judging by {given_file} (SHA-256 {other})",
        (
            f"verdict 2, the newest, is by other requirements: "
            f"{folder / 'judgements/2/requirements.yaml'} (SHA-256 {short})"
        ),
    ]
    said.clear()
    judge(folder, say=said.append)
    assert said == [
        f"judging by {own} (SHA-256 {short})",
        (
            f"verdict 3, the newest, is by other requirements: "
            f"{folder / 'judgements/3/requirements.yaml'} (SHA-256 {other})"
        ),
    ]
    said.clear()
    judge(folder, say=said.append)
    assert said == [f"judging by {own} (SHA-256 {short})"]


def test_changed_evidence_is_a_warning_and_a_note_of_the_verdict(tmp_path):
    folder, said = make_trial(tmp_path / "t"), []
    (folder / "cases" / "netpipe" / "r0" / "netpipe.out").write_text("1: 10.0 us\n")
    (folder / "cases" / "more.txt").touch()
    verdict = judge(folder, say=said.append).verdict
    changed = (
        "2 files of the trial, but not its results, are not as in SHA256SUMS: "
        "'seatrial verify' names them"
    )
    assert said[1:] == [f"warning: {changed}"]
    assert verdict.findings[-1] == f"note: {changed}"
    assert read_results(folder).verdict == verdict
    assert changed not in " ".join(read_results(folder, 1).verdict.findings)
    assert {str(one) for one in manifest.check(folder)} == {
        "changed: cases/netpipe/r0/netpipe.out", "added: cases/more.txt",
    }  # fmt: skip


def test_requirements_that_a_link_replaces_meanwhile_give_away_nothing(tmp_path, monkeypatch):
    """What was hashed is what judges and what is copied."""
    folder = make_trial(tmp_path / "t")
    own, secret = folder / "config" / "lab" / "requirements.yaml", tmp_path / "secret"
    secret.write_text("of root")
    before, check = own.read_bytes(), later.check_unchanged

    def exchange(*arguments):
        check(*arguments)
        own.unlink()
        own.symlink_to(secret)

    monkeypatch.setattr(later, "check_unchanged", exchange)
    judge(folder)
    assert (folder / "judgements/2/requirements.yaml").read_bytes() == before


def test_requirements_that_were_exchanged_for_a_while_do_not_judge(tmp_path, monkeypatch):
    folder, check = make_trial(tmp_path / "t"), manifest.check
    own = folder / "config" / "lab" / "requirements.yaml"
    before = own.read_bytes()
    own.write_text(requirements_text(40))

    def put_back(*arguments, **options):
        own.write_bytes(before)
        return check(*arguments, **options)

    monkeypatch.setattr(manifest, "check", put_back)
    with pytest.raises(InputError, match="it was changed since the manifest was written"):
        judge(folder)


def test_a_judgement_is_not_written_through_a_link(tmp_path, monkeypatch):
    """The folder of the judgements is exchanged while root judges."""
    folder, elsewhere = make_trial(tmp_path / "t"), tmp_path / "elsewhere"
    (elsewhere / ".2.draft").mkdir(parents=True)
    judged = later.judge

    def exchange(*arguments):
        (folder / "judgements").rename(tmp_path / "aside")
        (folder / "judgements").symlink_to(elsewhere)
        return judged(*arguments)

    monkeypatch.setattr(later, "judge", exchange)
    with pytest.raises(LabError, match="the judgement cannot be kept"):
        judge(folder)
    assert content(elsewhere) == {".2.draft": None}


def test_a_report_is_not_written_through_a_link(tmp_path):
    folder, elsewhere = make_trial(tmp_path / "t"), tmp_path / "elsewhere"
    (elsewhere / ".2.draft").mkdir(parents=True)

    def report(results, draft):
        (folder / "judgements").rename(tmp_path / "aside")
        (folder / "judgements").symlink_to(elsewhere)
        write_all(results, draft)

    with pytest.raises(LabError, match="the judgement cannot be kept"):
        judge(folder, report=report)
    assert content(elsewhere) == {".2.draft": None}


def test_each_file_is_read_once(tmp_path, monkeypatch):
    """The evidence of a large site has many gigabytes."""
    folder = make_trial(tmp_path / "t")
    read = Counter()
    sum_below = manifest._sum_below

    def count(place, name, *rest):
        read[str(Path(place, name).relative_to(folder))] += 1
        return sum_below(place, name, *rest)

    monkeypatch.setattr(manifest, "_sum_below", count)
    judge(folder)
    evidence = [name for name in manifest.read(folder) if name.startswith(("cases/", "results"))]
    assert evidence
    assert {name: read[name] for name in evidence} == dict.fromkeys(evidence, 1)


def test_a_missing_manifest_is_a_warning_and_a_note_of_each_verdict_after_it(tmp_path):
    folder, said = make_trial(tmp_path / "t"), []
    (folder / MANIFEST).unlink()
    file = folder / "results.jsonl"
    file.write_text(file.read_text().replace("30.1", "10.1"))
    unproven = "nothing shows that the files are as the trial wrote them"
    verdict = judge(folder, say=said.append).verdict
    assert said[1:] == [f"warning: SHA256SUMS is missing: {unproven}"]
    assert verdict.findings[-1] == f"note: SHA256SUMS is missing: {unproven}"
    assert manifest.check(folder) == []
    for number in (3, 4):
        assert judge(folder).verdict.number == number
        findings = read_results(folder).verdict.findings
        assert findings[-1] == f"note: SHA256SUMS was missing at verdict 2: {unproven}"
        assert len(findings) == len(verdict.findings)


def test_a_clock_that_was_set_back_revives_no_waiver(tmp_path, monkeypatch):
    folder = make_trial(tmp_path / "t1")
    judge(folder)

    class Earlier(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) - timedelta(days=60)

    monkeypatch.setattr(later, "datetime", Earlier)
    before = content(folder)
    with pytest.raises(InputError, match="the clock of this machine is before the last judgement"):
        judge(folder)
    assert content(folder) == before


def test_a_trial_without_a_verdict_keeps_its_end(tmp_path):
    """It was killed: it has neither a verdict nor a manifest, and gets both by being judged."""
    folder = make_trial(tmp_path / "t")
    rows = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join(rows[:3]))
    (folder / MANIFEST).unlink()
    results = judge(folder)
    assert "SHA256SUMS" not in " ".join(results.verdict.findings)
    assert results.verdict.ended == results.trial.started
    assert [v.number for v in read_results(folder).verdicts] == [2]
    assert manifest.check(folder) == []


@given(st.lists(st.floats(1, 100), min_size=1, max_size=3))
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_judgement_changes_what_was_written(tmp_path_factory, bounds):
    folder = make_trial(tmp_path_factory.mktemp("trial") / "t")
    for number, bound in enumerate(bounds, 2):
        before = content(folder)
        judge(folder, looser(folder.parent, bound))
        after = content(folder)
        lines = before.pop(MANIFEST)
        assert before.items() <= after.items()
        assert after[MANIFEST].startswith(lines)
        assert manifest.check(folder) == []
        assert read_results(folder).verdict.number == number


def test_changed_measurements_are_not_judged(tmp_path):
    folder = make_trial(tmp_path / "t")
    file = folder / "results.jsonl"
    file.write_text(file.read_text().replace("30.1", "10.1"))
    before = content(folder)
    with pytest.raises(InputError, match=r"results\.jsonl: it was changed"):
        judge(folder)
    assert content(folder) == before


def test_changed_requirements_of_the_trial_are_not_its_own(tmp_path):
    folder = make_trial(tmp_path / "t")
    own = folder / "config" / "lab" / "requirements.yaml"
    own.write_text(requirements_text(40))
    with pytest.raises(InputError, match=r"requirements\.yaml: it was changed"):
        judge(folder)
    assert judge(folder, own).verdict.number == 2


def test_a_trial_with_a_changed_later_judgement_is_not_judged(tmp_path):
    folder = make_trial(tmp_path / "t")
    judge(folder, looser(tmp_path))
    file = folder / "judgements" / "2" / "judgement.jsonl"
    file.write_text(file.read_text().replace("accept", "reject"))
    with pytest.raises(InputError, match=r"2/judgement\.jsonl: it was changed"):
        judge(folder)


def test_a_folder_that_is_not_a_judgement_is_not_read(tmp_path):
    folder = make_trial(tmp_path / "t")
    judge(folder, looser(tmp_path))
    (folder / "judgements" / "2").rename(folder / "judgements" / "02")
    assert read_results(folder).verdict.number == 1


def test_wrong_requirements_leave_the_trial_as_it_was(tmp_path):
    folder = make_trial(tmp_path / "t")
    wrong = looser(tmp_path)
    wrong.write_text(wrong.read_text().replace("at_most", "at_mots"))
    before = content(folder)
    with pytest.raises(InputError, match=r"looser\.yaml:3"):
        judge(folder, wrong)
    assert content(folder) == before


def test_a_disk_that_is_full_at_any_write_leaves_the_trial_as_it_was(tmp_path, monkeypatch):
    folder = make_trial(tmp_path / "t")
    before = content(folder)
    real_fsync = os.fsync
    left = 0

    def take(call, *args):
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return call(*args)

    monkeypatch.setattr(os, "fsync", lambda fd: take(real_fsync, fd))
    # The copy, the judgements and the manifest.
    for room in range(3):
        left = room
        with pytest.raises(LabError, match="No space left"):
            judge(folder)
        assert content(folder) == before
    left = 3
    judge(folder)
    assert read_results(folder).verdict.number == 2
    assert manifest.check(folder) == []


@pytest.mark.root
def test_a_disk_that_is_full(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", place], check=True)
    try:
        folder = make_trial(place / "t")
        filler = place / "filler"
        with filler.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
            while stream.write(bytes(4096)):
                pass
        assert os.statvfs(place).f_bavail == 0
        before = content(folder)
        with pytest.raises(LabError, match=r"the trial is as before.*No space left"):
            judge(folder)
        assert content(folder) == before
        filler.unlink()
        assert judge(folder).verdict.number == 2
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_report_that_cannot_be_made_leaves_the_trial_as_it_was(tmp_path):
    folder = make_trial(tmp_path / "t")
    before = content(folder)

    def fail(results, place):
        (place / "report.html").write_text("half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        judge(folder, report=fail)
    assert content(folder) == before


@pytest.mark.nightly(reason="results of a million lines")
def test_a_damaged_line_among_a_million_is_named(tmp_path):
    folder = make_trial(tmp_path / "t")
    rows = (folder / "results.jsonl").read_bytes().splitlines(keepends=True)
    judgement = (
        b'{"record":"judgement","case":{"check":"a","transport":"b","nodes":2},"metric":"m",'
        b'"verdict":"pass","explanation":""}\n'
    )
    file = tmp_path / "results.jsonl"
    with file.open("wb") as stream:
        stream.write(rows[0] + judgement * 900_000)
        stream.write(judgement.replace(b"nodes", b"n\xffdes") + judgement * 99_998)
    with pytest.raises(InputError) as error:
        for _ in read_lines(file):
            pass
    assert error.value.problems[0].line == 900_002
    for old, new, field in ((b'"m"', b"5", "metric"), (b"pass", b"good", "verdict")):
        file.write_bytes(rows[0] + judgement.replace(old, new))
        with pytest.raises(InputError, match=rf"results\.jsonl:2: judgement\.{field}"):
            read_results(file)


def line_error(file, text, folder=None) -> str:
    file.write_text(text)
    with pytest.raises(InputError) as error:
        read_results(folder or file)
    (problem,) = error.value.problems
    return str(problem).removeprefix(str(file))


def test_an_unknown_kind_of_line_is_an_error_unless_the_schema_is_newer(tmp_path):
    folder = make_trial(tmp_path / "t")
    text = (folder / "results.jsonl").read_text()
    file = tmp_path / "results.jsonl"
    misspelt = text.replace('"record":"judgement"', '"record":"judgment"')
    assert line_error(file, misspelt) == (
        ":4: record: there is no record of the kind 'judgment' (did you mean 'judgement'?)"
    )
    assert line_error(file, text.replace("\n", "\n\n", 1)) == ":2: the line is empty"
    file.write_text(misspelt.replace('"schema":1', '"schema":2'))
    assert read_results(file).judgements == []


def test_a_second_verdict_or_trial_line_is_an_error(tmp_path):
    folder = make_trial(tmp_path / "t")
    text = (folder / "results.jsonl").read_text()
    rows = text.splitlines(keepends=True)
    file = tmp_path / "results.jsonl"
    second = text + rows[-1].replace("reject", "accept")
    assert line_error(file, second) == (
        ":6: record: a second 'verdict' line: the first is line 5 (a file has one)"
    )
    assert ":6: record: a second 'trial' line" in line_error(file, text + rows[0])


@pytest.mark.parametrize("kind", ["trial", "run"])
def test_a_later_judgement_holds_no_measurements(tmp_path, kind):
    """Runs that somebody adds beside a judgement would count as runs of the trial."""
    folder = make_trial(tmp_path / "t")
    judge(folder, looser(tmp_path))
    rows = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    file = folder / "judgements" / "2" / "judgement.jsonl"
    smuggled = next(row for row in rows if f'"record":"{kind}"' in row)
    file.write_text(smuggled + file.read_text())
    assert line_error(file, file.read_text(), folder) == (
        f":1: record: a '{kind}' line does not belong in this file "
        "(only judgement and verdict lines do)"
    )
