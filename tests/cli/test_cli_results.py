"""The commands on a trial's results as a user meets them: exit codes, and what they print."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.report import write_all
from seatrial.results import manifest
from seatrial.results.manifest import LOCK_FILE, MANIFEST
from seatrial.results.record import read_results
from seatrial.results.requirements import load_requirements
from seatrial.site.load import site_file
from seatrial.trial.run import finish
from trial_folder import content, make_trial, requirements_text

UNPROVEN = "SHA256SUMS is missing: nothing shows that the files are as the trial wrote them"


@pytest.fixture
def folder(tmp_path):
    return make_trial(tmp_path / "t1")


def start(*words) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "seatrial", *(str(word) for word in words)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def test_report_and_junit_show_both_verdicts_and_say_which_is_which(here, folder, tmp_path):
    looser = tmp_path / "looser.yaml"
    looser.write_text(requirements_text(40))
    code, said, _ = here("judge", folder, "--requirements", looser)
    assert code == 0
    assert "Verdict 1 (the trial's own): REJECT" in said
    assert "Verdict 2 (judged later, shown here): ACCEPT" in said
    page = (folder / "judgements/2/report.html").read_text()
    assert "(the trial&#39;s own): REJECT" in page
    assert "(judged later, shown here): ACCEPT" in page
    junit = (folder / "judgements/2/junit.xml").read_text()
    assert "(the trial's own): REJECT" in junit
    assert manifest.check(folder) == []


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ("upper: 10, reference: 20, unit: us", "requirements.2.upper: 10 allows +1000%"),
        ("at_least: 1, unit: us", "requirements.2.at_least: lower values of latency_us are better"),
        ("at_most: 1, unit: MB/s", "requirements.2.unit: latency_us is measured in us"),
    ],
)
def test_a_bound_that_decides_nothing_judges_nothing(here, tmp_path, bound, said):
    folder = make_trial(tmp_path / "t1", site=site_file("lab"))
    other = tmp_path / "other.yaml"
    entry = "select: {check: netpipe}, metric: latency_us, basis: contract, source:"
    void = "select: {check: no_such_check}, metric: m, basis: contract, source: v, at_most: 1"
    other.write_text(
        f"{requirements_text(40)}  - {{{void}, unit: us}}\n  - {{{entry} u, {bound}}}\n"
    )
    before = content(folder)
    code, _, error = here("judge", folder, "--requirements", other)
    assert code == 3
    assert f"other.yaml:5: {said}" in " ".join(error.split())
    assert "no_such_check" not in error  # which is a matter of the verdict
    assert content(folder) == before
    other.write_text(f"{requirements_text(40)}  - {{{void}, unit: us}}\n")
    assert here("judge", folder, "--requirements", other)[0] == 2


def test_without_a_manifest_the_trials_own_bounds_are_checked(here, tmp_path):
    folder = make_trial(tmp_path / "t1", site=site_file("lab"))
    own = folder / "config" / "lab" / "requirements.yaml"
    own.write_text(own.read_text().replace("at_most: 20", "reference: 20, upper: 1000"))
    (folder / MANIFEST).unlink()
    code, _, error = here("judge", folder)
    assert (code, "1000 allows +100000%" in " ".join(error.split())) == (3, True)
    (folder / "config" / "lab" / "site.yaml").unlink()  # such a bound is wrong for any metric
    assert here("judge", folder)[0] == 3


def test_report_ends_with_the_code_of_the_verdict(here, folder, tmp_path):
    assert here("report", folder)[0] == 1
    assert manifest.check(folder) == []  # the report was added to the manifest
    assert "report.html" in manifest.read(folder)
    before = content(folder)
    assert here("report", folder)[0] == 1
    assert content(folder) == before  # and is not written again
    code, said, _ = here("report", folder, "--output", tmp_path / "again")
    assert code == 1
    assert str(tmp_path / "again" / "report.html") in said
    assert (tmp_path / "again" / "junit.xml").exists()
    assert content(folder) == before
    rows = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "results.jsonl").write_text("".join(rows[:3]))
    assert here("report", cut)[0] == 2


def test_a_report_without_a_manifest_has_a_warning(here, folder, tmp_path):
    assert UNPROVEN not in here("report", folder)[1]
    (folder / MANIFEST).unlink()
    forged(folder / "results.jsonl", ("30.1", "30.2"))
    for more, page in (([], folder), (["--output", tmp_path / "page"], tmp_path / "page")):
        code, said, _ = here("report", folder, *more)
        assert (code, said.count(f"warning: {UNPROVEN}")) == (1, 1)
        assert UNPROVEN in (page / "report.html").read_text()


def forged(file, *replaced):
    """Change a file of results as an editor does."""
    text = file.read_text()
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)


def test_a_report_is_of_results_as_in_the_manifest(here, folder, tmp_path):
    looser = tmp_path / "looser.yaml"
    looser.write_text(requirements_text(40))
    other = make_trial(tmp_path / "other")
    assert here("judge", other, "--requirements", looser)[0] == 0
    shutil.copytree(other / "judgements", folder / "judgements")
    for more in ([], ["--output", tmp_path / "page"]):
        code, said, error = here("report", folder, *more)
        assert (code, said) == (3, "")
        assert "judgements/2/judgement.jsonl: it was added since the manifest was written" in error
        assert "seatrial verify" in error
    assert not (tmp_path / "page").exists()
    shutil.rmtree(folder / "judgements")
    assert here("report", folder)[0] == 1
    forged(folder / "results.jsonl", ('"verdict":"reject"', '"verdict":"accept"'))
    for named in (folder, folder / "results.jsonl"):
        code, said, error = here("report", named)
        assert (code, said) == (3, "")
        assert "results.jsonl: it was changed since the manifest was written" in error
    shutil.rmtree(other / "judgements")
    code, _, error = here("report", other)
    assert code == 3
    assert "judgements/2/judgement.jsonl: it was removed since" in error


@pytest.mark.parametrize(
    ("replaced", "why"),
    [
        ([], "1 judgement: fail; tender 7 (requirements.yaml:3): not met"),
        ([('"verdict":"fail"', '"verdict":"pass"')], "tender 7 (requirements.yaml:3): not met"),
        ([('"status":"not met"', '"status":"met"')], "1 judgement: fail"),
        ([('"outcome":"ran"', '"outcome":"error"'), ('"status":"not met"', '"status":"met"'),
          ('"verdict":"fail"', '"verdict":"pass"')], "2 of 2 runs failed"),
    ],
)  # fmt: skip
def test_an_acceptance_that_the_records_contradict_is_not_reported(here, folder, replaced, why):
    (folder / MANIFEST).unlink()
    change = ('"record":"verdict","verdict":"reject"', '"record":"verdict","verdict":"accept"')
    forged(folder / "results.jsonl", change, *replaced)
    code, said, error = here("report", folder)
    assert (code, said) == (3, "")
    assert "the recorded verdict is accept, but the records contradict it" in error
    assert why in " ".join(error.split())
    assert not (folder / "report.html").exists()


def test_a_report_during_a_trial_is_of_what_the_trial_ends_with(folder):
    """It waits for the trial, whose reruns write other results, and whose end a manifest."""
    (folder / MANIFEST).unlink()
    results = read_results(folder)
    with (folder / LOCK_FILE).open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        reporting = start("report", folder)
        assert "waiting for another process" in reporting.stdout.readline()
        rules = folder / "config" / "lab" / "requirements.yaml"
        rules.write_text(requirements_text(40))
        finish(results, load_requirements(rules), folder)
        manifest.extend(folder, [*manifest.files(folder), *map(str, make_pages(results))])
    said = reporting.communicate()[0]
    assert (reporting.returncode, "ACCEPT" in said) == (0, True)
    assert manifest.check(folder) == []


def make_pages(results):
    """The report as a trial writes it at its end; the names relative to its folder."""
    return [path.relative_to(results.folder) for path in write_all(results)]


def test_a_report_of_an_archive_that_cannot_be_written_goes_elsewhere(
    here, folder, tmp_path, monkeypatch
):
    real = os.access

    def access(path, mode, **kwargs):
        of_folder = Path(path).is_relative_to(folder)
        return not (of_folder and mode == os.W_OK) and real(path, mode, **kwargs)

    monkeypatch.setattr(os, "access", access)
    assert here("report", folder, "--output", tmp_path / "page")[0] == 1
    assert (tmp_path / "page" / "report.html").exists()
    assert not (folder / LOCK_FILE).exists()


def test_verify_of_no_folder_says_so(here, tmp_path):
    code, _, error = here("verify", tmp_path / "none")
    assert code == 3
    assert "none: no such folder (name a trial's folder)" in " ".join(error.split())


def test_verify_names_what_was_changed(here, folder):
    code, said, _ = here("verify", folder)
    assert code == 0
    assert "files are as in" in said
    (folder / "results.jsonl").write_text("{}\n")
    code, said, _ = here("verify", folder)
    assert code == 1
    assert "changed: results.jsonl" in said
    (folder / MANIFEST).unlink()
    code, _, error = here("verify", folder)
    assert code == 3
    assert "there is no manifest" in error


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is missing")
def test_each_key_must_have_signed_whatever_its_comment(here, folder, tmp_path):
    for name in ("buyer", "vendor"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", tmp_path / name],
            check=True,
        )
    assert here("verify", folder, "--sign", tmp_path / "buyer")[0] == 0
    buyer, vendor = tmp_path / "buyer.pub", tmp_path / "vendor.pub"
    words = vendor.read_text().split()
    for comment in ("#vendor", "cert-authority", "a,b", "two words"):
        vendor.write_text(f"{words[0]} {words[1]} {comment}\n")
        assert here("verify", folder, "--key", buyer, "--key", vendor)[0] == 1
    for other in ("hello world", f"{words[0]} AAAAxyz", "---- BEGIN SSH2 PUBLIC KEY ----\nAAAA"):
        vendor.write_text(other)
        assert here("verify", folder, "--key", buyer, "--key", vendor)[0] == 3
    signers = tmp_path / "signers"
    signers.write_text(f"vendor@example.com {words[0]} {words[1]}\n")
    assert here("verify", folder, "--signers", signers, "--key", buyer)[0] == 1
    signers.write_text(f"vendor@example.com {words[0]} {words[1]} cert-authority\n")
    assert "no signature on all files by: vendor" in here("verify", folder, "--signers", signers)[1]


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is missing")
def test_sign_and_verify(here, folder, tmp_path):
    for name in ("buyer", "other"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", tmp_path / name],
            check=True,
        )
    buyer, other = tmp_path / "buyer.pub", tmp_path / "other.pub"
    code, said, _ = here("verify", folder, "--key", buyer)
    assert (code, "not signed" in said) == (1, True)
    code, said, _ = here("verify", folder, "--sign", tmp_path / "buyer")
    assert (code, "signed: verdict 1, REJECT\n" in said) == (0, True)
    code, said, _ = here("verify", folder)
    assert (code, "whose keys these are was not checked" in said) == (0, True)
    assert here("verify", folder, "--key", buyer)[0] == 0
    signers = tmp_path / "signers"
    signers.write_text(f"buyer@example.org {buyer.read_text()}")
    code, said, _ = here("verify", folder, "--signers", signers)
    assert (code, "good signature of buyer@example.org" in said) == (0, True)
    code, said, _ = here("verify", folder, "--key", other)
    assert (code, ", whose key is not listed, on all files" in said) == (1, True)
    assert "no signature on all files by: other\n" in said
    with signers.open("a") as stream:
        stream.write(f"vendor@example.com {other.read_text()}")
    code, said, _ = here("verify", folder, "--signers", signers)
    assert (code, "no signature on all files by: vendor@example.com\n" in said) == (0, True)
    assert here("verify", folder, "--key", buyer, "--key", other)[0] == 1
    assert here("verify", folder, "--sign", tmp_path / "other")[0] == 0
    assert here("verify", folder, "--key", buyer, "--key", other)[0] == 0
    code, said, _ = here("verify", folder, "--key", buyer)  # signed by another, too
    assert (code, said.count("good signature"), said.count("not listed")) == (0, 2, 1)
    assert "no signature" not in here("verify", folder, "--signers", signers)[1]
    here("judge", folder)
    code, said, _ = here("verify", folder, "--key", buyer)
    assert code == 1
    assert "good signature" in said
    assert "not signed: judgements/2/judgement.jsonl" in said
    code, said, _ = here("verify", folder, "--sign", tmp_path / "buyer", "--signers", signers)
    assert (code, "signed: verdict 1, REJECT; verdict 2, REJECT\n" in said) == (0, True)
    assert "no signature on all files by: vendor@example.com\n" in said  # of verdict 2
    (folder / "results.jsonl").write_text("{}")
    assert here("verify", folder, "--sign", tmp_path / "buyer")[0] == 1
    assert len(list(folder.glob("*.sig"))) == 3


def test_two_judges_at_once_lose_nothing(folder):
    with (folder / LOCK_FILE).open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        judges = [start("judge", folder) for _ in range(2)]
        assert [judge.stdout.readline() for judge in judges] == [
            f"waiting for another process that holds {folder / LOCK_FILE}\n"
        ] * 2
        assert read_results(folder).verdict.number == 1
    assert [(judge.communicate()[0] and judge.returncode) for judge in judges] == [1, 1]
    assert [v.number for v in read_results(folder).verdicts] == [1, 2, 3]
    assert manifest.check(folder) == []


def test_baseline_pools_trials_and_says_what_is_lacking(here, tmp_path):
    site = tmp_path / "lab"
    site.mkdir()
    file = site / "site.yaml"
    file.touch()  # only the requirements beside it count
    nights = [
        make_trial(tmp_path / f"n{i}", 40, values=(30 + i, 30.1), name=f"n{i}") for i in range(3)
    ]
    (site / "requirements.yaml").write_text("schema: 1\nrequirements: []\n")
    code, said, _ = here("baseline", nights[0], "--site", file)
    assert code == 2
    lacking = "skipped 1 figure of 1 case: 2 samples, 1 more is needed; name further trials"
    assert said.splitlines() == [f"{lacking} (netpipe.tcp.default.2n)", "nothing was written"]
    assert (site / "requirements.yaml").read_text() == "schema: 1\nrequirements: []\n"
    code, said, _ = here("baseline", *nights, "--site", file)
    assert code == 0
    assert "(6 samples of 3 trials)" in said
    assert "6 samples of 3 trials" in (site / "requirements.yaml").read_text()
    code, _, error = here("baseline", nights[0], nights[0], "--site", file)
    assert (code, "n0 is named twice" in error) == (3, True)


def test_a_baseline_is_of_trials_as_in_their_manifests(here, tmp_path):
    site = tmp_path / "lab"
    site.mkdir()
    (site / "site.yaml").touch()
    nights = [make_trial(tmp_path / f"n{i}", name=f"n{i}") for i in range(2)]
    forged(nights[1] / "results.jsonl", ("30.1", "10.1"))
    for second in (nights[1], nights[1] / "results.jsonl"):
        code, said, error = here("baseline", nights[0], second, "--site", site / "site.yaml")
        assert (code, said) == (3, "")
        assert "n1/results.jsonl: it was changed since the manifest was written" in error
    assert not (site / "requirements.yaml").exists()


def test_a_baseline_is_of_trials_of_its_site(here, tmp_path):
    nights = [make_trial(tmp_path / f"n{i}", 40, name=f"n{i}") for i in range(2)]
    forged(nights[1] / "results.jsonl", ('"site":"lab"', '"site":"mine"'))
    (nights[1] / MANIFEST).unlink()
    file = tmp_path / "lab" / "site.yaml"
    file.parent.mkdir()
    file.touch()
    code, said, error = here("baseline", *nights, "--site", file)
    assert (code, said) == (3, "")
    assert "n1/results.jsonl: site: a trial of site 'mine', and the baseline is of" in error
    assert "site 'lab' (name trials of 'lab', or give --site mine)" in " ".join(error.split())
    assert not file.with_name("requirements.yaml").exists()


def test_a_baseline_names_trials_that_are_doubtful(here, tmp_path):
    file = tmp_path / "lab" / "site.yaml"
    file.parent.mkdir()
    file.touch()
    good = make_trial(tmp_path / "n1", 40, name="n1")
    rejected = make_trial(tmp_path / "n2", name="n2")
    fault = "fault planted on purpose: link n2: rate 1gbit"
    planted = make_trial(tmp_path / "n3", 40, name="n3", notes=[fault])
    without = make_trial(tmp_path / "n4", 40, name="n4")
    (without / MANIFEST).unlink()
    code, said, _ = here("baseline", good, rejected, planted, without, "--site", file)
    assert code == 0
    assert [line for line in said.splitlines() if line.startswith("warning")] == [
        "warning: n2: its verdict is reject",
        f"warning: n3: {fault}",
        f"warning: n4: {UNPROVEN}",
    ]
