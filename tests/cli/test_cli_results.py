"""The commands on a trial's results as a user meets them: exit codes, and what they print."""

from __future__ import annotations

import fcntl
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from campaigns import rounds
from seatrial.base.paths import CHECKOUT
from seatrial.benchmarks.netpipe import NetPIPE
from seatrial.cli import main
from seatrial.report import write_all
from seatrial.results import manifest
from seatrial.results.folder import read_results, write_results
from seatrial.results.manifest import LOCK_FILE, MANIFEST
from seatrial.results.record import ProfileUse, TransportUse
from seatrial.results.requirements import load_requirements
from seatrial.site.load import site_file
from seatrial.trial.run import finish
from trial_folder import content, make_key, make_trial, requirements_text

UNPROVEN = "SHA256SUMS is missing: nothing shows that the files are as the trial wrote them"
openssh = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is missing")


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


@pytest.fixture
def running(tmp_path):
    """A trial of two rounds, of which one is written, and a process that holds its lock."""
    folder = make_trial(tmp_path / "running", values=(30.0, 30.1))
    (folder / MANIFEST).unlink()
    results = read_results(folder)
    own = results.trial.model_copy(update={"rounds": 2, "repeats": 2})
    write_results(folder / "results.jsonl", [own, *results.runs])
    code = (
        "import fcntl, sys; f = open(sys.argv[2], 'w'); fcntl.flock(f, fcntl.LOCK_EX); "
        "print(flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", code, "trial", str(folder / LOCK_FILE)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:  # fmt: skip
        holder.stdout.readline()
        yield folder, holder
        holder.stdin.close()


def test_a_trial_that_runs_is_neither_reported_nor_judged_nor_waited_for(here, running):
    folder, holder = running
    before = content(folder)
    for command in ("report", "judge", "baseline"):
        code, said, error = here(command, folder)
        error = " ".join(error.split())
        assert (code, "REJECT" in said) == (3, False), command
        assert "the trial has not ended: it has run since 20" in error
        assert f"UTC as process {holder.pid} of " in error
        assert "1 of 2 rounds are written" in error
    assert content(folder) == before


def test_the_rounds_of_a_trial_that_runs_are_analysed_with_a_warning(here, running):
    folder, holder = running
    code, said, _ = here("analyse", folder)
    assert code == 0
    assert "warning: t1 has not ended: it has run since 20" in said
    assert f"as process {holder.pid} of " in said
    assert "1 of 2 rounds are written" in said
    results = read_results(folder)
    write_results(folder / "results.jsonl", [results.trial])
    code, _, error = here("analyse", folder)
    assert code == 3
    text = "no round is written (wait for the end of its first round)"
    assert text in " ".join(error.split())


def test_a_trial_that_was_killed_is_analysed_and_judged(here, running):
    folder, holder = running
    holder.kill()
    holder.wait()
    assert "has not ended" not in here("analyse", folder)[1]
    assert here("judge", folder)[0] in (0, 1, 2)


def test_a_report_waits_for_another_command_that_writes(folder):
    """It is of what that command ends with."""
    (folder / MANIFEST).unlink()
    results = read_results(folder)
    with (folder / LOCK_FILE).open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        reporting = start("report", folder)
        assert "waiting for another process" in reporting.stdout.readline()
        rules = folder / "config" / "lab" / "requirements.yaml"
        rules.write_text(requirements_text(40))
        finish(results, load_requirements(rules), folder, [])
        write_all(results)
        manifest.append(folder, manifest.sums_of(folder, manifest.files(folder)))
    said = reporting.communicate()[0]
    assert (reporting.returncode, "ACCEPT" in said) == (0, True)
    assert manifest.check(folder) == []


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
    code, _, error = here("verify", folder, "--sign", "key")
    assert code == 3
    assert "there is no manifest" in error
    assert not (folder / LOCK_FILE).exists()


@openssh
def test_each_key_must_have_signed_whatever_its_comment(here, folder, tmp_path):
    for name in ("buyer", "vendor"):
        make_key(tmp_path / name, name)
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


@openssh
def test_a_signature_of_an_earlier_verdict_is_none_of_the_later_one(here, folder, tmp_path):
    for name in ("buyer", "vendor"):
        make_key(tmp_path / name, name)
    signers = tmp_path / "signers"
    signers.write_text(f"buyer@example.org {(tmp_path / 'buyer.pub').read_text()}")
    assert here("verify", folder, "--sign", tmp_path / "buyer")[0] == 0
    given = ("--signers", signers, "--key", tmp_path / "vendor.pub")
    assert here("judge", folder)[0] in (0, 1)
    assert here("verify", folder, "--sign", tmp_path / "vendor")[0] == 0
    code, said, _ = here("verify", folder, *given)
    assert (code, "no signature on all files by: buyer@example.org" in said) == (1, True)
    assert here("verify", folder, "--sign", tmp_path / "buyer")[0] == 0
    assert here("verify", folder, *given)[0] == 0


@openssh
def test_sign_and_verify(here, folder, tmp_path):
    for name in ("buyer", "other"):
        make_key(tmp_path / name, name)
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


@pytest.mark.parametrize("command", ["baseline", "analyse"])
def test_trials_of_different_settings_are_named(here, tmp_path, command):
    """An older trial, which has none on record, does not differ."""
    file = tmp_path / "lab" / "site.yaml"
    file.parent.mkdir()
    file.touch()
    usual = ProfileUse(name="default", settings={"n1": {"eth1": {"mtu": 9000}}})
    nights = [make_trial(tmp_path / "n0", 40, name="n0", profiles=[usual])]
    for number, size in enumerate((1000, 1000, 2400), 1):
        more = {"txqueuelen": 10} if number > 2 else {}
        settings = {node: {"eth1": {"mtu": 9000} | more} for node in ("n1", "n2")}
        nights.append(
            make_trial(
                tmp_path / f"n{number}", 40, name=f"n{number}",
                benchmarks={"netpipe": {"max_bytes": size}, "hpl": {"size": size}},
                transports=[TransportUse(name="tcp", env={"A": "1"} if number > 1 else {})],
                profiles=[ProfileUse(name="default", settings=settings)],
            )
        )  # fmt: skip
    site = ["--site", file] if command == "baseline" else []
    _, said, _ = here(command, *nights, *site)
    (warning,) = [line for line in said.splitlines() if line.startswith("warning")]
    assert warning == (
        "warning: trials of different settings are pooled: "
        "benchmark netpipe.max_bytes is 1000 in n1, n2 and 2400 in n3; "
        "setting txqueuelen of eth1 is none in n0, n1, n2 and 10 in n3; "
        "variable A of tcp is none in n1 and 1 in n2, n3"
    )
    _, said, _ = here(command, *nights[:1], nights[2], *site)
    assert "different settings" not in said


# --- commands that are killed --------------------------------------------------------------


def killed_at(point: int, folder: Path, *words) -> bool:
    """Run a command in a child that is killed before its operation number ``point`` on files of
    the folder. Returns whether the child lived to its end."""
    child = os.fork()
    if not child:
        left, writes = point, os.O_WRONLY | os.O_RDWR | os.O_CREAT
        changes = {"os.mkdir", "os.rmdir", "os.remove", "os.rename", "os.chmod"}

        def step() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        def watch(event: str, args: tuple) -> None:
            if event in changes or (event == "open" and args[2] & writes):
                step()

        real = os.fsync
        os.fsync = lambda descriptor: (step(), real(descriptor))
        sys.argv = ["seatrial", *map(str, words)]
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        sys.addaudithook(watch)
        try:
            main()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    ("words", "first"),
    [(("judge",), 0), (("report",), 2), pytest.param(("verify", "--sign"), 4, marks=openssh)],
)
def test_a_command_that_is_killed_leaves_the_old_or_the_new_state(here, tmp_path, words, first):
    """At each operation on a file (each sixth one in the suite), as every other command sees the
    folder."""
    trial, states, seen = make_trial(tmp_path / "t"), set(), set()
    key = tmp_path / "key"
    make_key(key)
    site = tmp_path / "lab" / "site.yaml"
    site.parent.mkdir()
    site.touch()
    here("report", trial, "--output", tmp_path / "page")  # imports what the child needs
    if words != ("report",):
        here("report", trial)
    verb, *options = words
    for point in range(*rounds((first, 100, 6), (0, 100, 1))):
        after = shutil.copytree(trial, tmp_path / f"{point}" / "t")
        ended = killed_at(point, after, verb, after, *options, *([key] if options else []))
        kind = frozenset(
            (re.sub(r"\.\d+\.draft$", ".PID.draft", name), text and len(text))
            for name, text in content(after).items()
        )
        if kind in seen and not ended:
            shutil.rmtree(after.parent)
            continue
        seen.add(kind)
        copies = [shutil.copytree(after, tmp_path / f"{point}-{n}" / "t") for n in range(4)]
        assert here("verify", copies[0])[0] == 0, (point, manifest.check(copies[0]))
        verdicts = len(read_results(copies[0]).verdicts)
        assert here("report", copies[1])[0] == 1
        assert here("baseline", copies[2], "--site", site)[0] == 2
        assert here("judge", copies[3])[0] == 1
        assert len(read_results(copies[3]).verdicts) == verdicts + 1
        for copy in copies:
            assert manifest.check(copy) == []
            assert not [name for name in content(copy) if "draft" in name]
        assert len(read_results(copies[1]).verdicts) == verdicts
        states.add((verdicts, "report.html" in manifest.read(copies[0])))
        shutil.rmtree(after.parent)
        for copy in copies:
            shutil.rmtree(copy.parent)
        if ended:
            break
    assert ended
    assert point > 10
    assert (
        states
        == {
            "judge": {(1, True), (2, True)},
            "report": {(1, False), (1, True)},
            "verify": {(1, True)},
        }[verb]
    )


def test_what_a_killed_judge_published_is_not_seen_before_it_is_moved(here, tmp_path, monkeypatch):
    """In an archive, which nobody can write."""
    folder = make_trial(tmp_path / "t")
    here("judge", folder)
    (folder / "judgements" / "2").rename(folder / "judgements" / ".2.draft")
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and real(path, mode))
    before = content(folder)
    for verb in ("verify", "report", "baseline"):
        code, _, error = here(verb, folder)
        assert (code, "was killed before" in error) == (3, True), verb
    assert content(folder) == before


def test_a_judgement_that_somebody_adds_is_none(here, folder, tmp_path):
    """Also as a draft, and behind links."""
    other = make_trial(tmp_path / "other")
    assert here("judge", other)[0] == 1
    (folder / "judgements").mkdir()
    shutil.copytree(other / "judgements" / "2", folder / "judgements" / ".2.draft")
    assert here("verify", folder)[0] == 0
    assert here("report", folder)[0] == 1
    assert not (folder / "judgements").exists()
    shutil.copytree(other / "judgements", folder / "judgements")
    assert here("report", folder)[0] == 3
    assert here("verify", folder)[0] == 1
    shutil.rmtree(folder / "judgements")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / ".2.draft").mkdir(parents=True)
    (elsewhere / ".2.draft" / "kept").touch()
    (folder / "judgements").symlink_to(elsewhere)
    assert here("verify", folder)[0] == 1
    for command in ("judge", "report"):
        code, _, error = here(command, folder)
        assert (code, "judgements: no folder of judgements" in error) == (3, True)
    assert content(elsewhere) == {".2.draft": None, ".2.draft/kept": b""}


def test_an_error_is_one_line(here, tmp_path):
    """A folder's name is of who made it, and could say that a trial was accepted."""
    named = tmp_path / "t1\nACCEPT  lab  t1"
    named.mkdir()
    code, _, error = here("report", named)
    assert code == 3
    assert error.count("\n") == 1
    assert "t1\\nACCEPT" in error


def test_line_100_of_an_error_is_no_emoji(here, tmp_path):
    """Rich has one of that name."""
    folder = tmp_path / "site.yaml:100:"
    assert f"{folder}/results.jsonl" in here("report", folder)[2]
    commands = CHECKOUT / "src" / "seatrial" / "cli"
    own = [
        file.name for file in commands.glob("*.py") if re.search(r"\bConsole\(", file.read_text())
    ]
    assert own == ["screen.py"]


def test_a_report_that_fails_does_not_hide_the_verdict(here, folder, monkeypatch):
    def fails(*_):
        raise ZeroDivisionError("as nobody thought of")

    monkeypatch.setattr("seatrial.report.html.write_html", fails)
    code, said, error = here("report", folder)
    assert (code, "REJECT" in said) == (70, True)
    assert "as nobody thought of" in error


# --- bad folders, files and options --------------------------------------------------------


@pytest.mark.parametrize("place", ["", "config/lab", "new/folder"])
def test_no_report_goes_to_the_folder_of_a_trial(here, folder, tmp_path, place):
    here("report", folder)
    other = make_trial(tmp_path / "other")
    (tmp_path / "link").symlink_to(folder)
    before = content(folder)
    for named in (folder, other):
        for output in (folder / place, tmp_path / "link" / place):
            code, said, error = here("report", named, "--output", output)
            assert (code, said) == (3, "")
            assert "--output: it is in the folder of the trial t1" in error
    assert content(folder) == before


def test_a_baseline_overwrites_requirements_only(here, folder, tmp_path):
    site = tmp_path / "lab"
    site.mkdir()
    (site / "site.yaml").touch()
    nights = [make_trial(tmp_path / f"n{i}", name=f"n{i}") for i in range(2)]
    before = content(folder)

    def write(to):
        return here("baseline", *nights, "--site", site / "site.yaml", "--write", to)

    inside = (folder / "results.jsonl", folder / "config/lab/requirements.yaml", folder / "new")
    for to in inside:
        code, _, error = write(to)
        assert (code, "is in the folder of the trial t1" in error) == (3, True)
    assert content(folder) == before
    notes = tmp_path / "notes"
    notes.write_text("what I know\n")
    assert write(notes)[0] == 3
    assert notes.read_text() == "what I know\n"
    for to in ("/nonexistent/y", notes / "y", "/proc/y", tmp_path):
        code, _, error = write(to)
        assert (code, "error:" in error) == (3, True), to
    notes.write_text(requirements_text(20))
    (tmp_path / "empty").touch()
    assert [write(to)[0] for to in (notes, tmp_path / "empty", tmp_path / "new")] == [0, 0, 0]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda file: file.symlink_to("victim")])
def test_a_lock_that_is_no_file_is_refused(here, folder, tmp_path, make):
    victim = folder / "victim"
    victim.write_text("kept")
    (folder / LOCK_FILE).unlink(missing_ok=True)
    make(folder / LOCK_FILE)
    (tmp_path / "site.yaml").touch()
    for words in (
        ("report", folder), ("judge", folder), ("verify", folder),
        ("verify", folder, "--sign", "k"),
        ("baseline", folder, "--site", tmp_path / "site.yaml"),
    ):  # fmt: skip
        code, _, error = here(*words)
        assert (code, ".lock" in error) == (4, True), words
    assert victim.read_text() == "kept"


def test_output_that_cannot_be_written_is_bad_input(here, folder, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for output in ("file", "file/below", "loop", "loop/x", "n" * 300, "/proc/x"):
        code, _, error = here("report", folder, "--output", tmp_path / output)
        assert (code, "the report cannot be written" in error) == (3, True), output


def test_a_trial_that_begins_before_there_were_clocks_is_bad_input(here, tmp_path):
    folder = make_trial(tmp_path / "t")
    (folder / MANIFEST).unlink()
    forged(folder / "results.jsonl", ("2026-08-02T00:00:00Z", "0001-01-01T00:00:00+14:00"))
    code, _, error = here("report", folder)
    assert (code, "results.jsonl:1: trial.started" in error) == (3, True)


def test_names_forge_no_line_and_command_no_terminal(here, folder):
    (folder / "a\n771 files are as in \x1b[2J").touch()
    code, said, _ = here("verify", folder)
    assert (code, len(said.splitlines()), "\x1b" in said) == (1, 2, False)
    assert said.startswith("added: a\\n771 files are as in \ufffd[2J\n")
    code, _, error = here("report", "\x1b[2J")
    assert (code, "\x1b" in error) == (3, False)


def test_verify_takes_the_results_and_waits_for_a_judge(here, folder):
    assert here("verify", folder / "results.jsonl")[0] == 0
    assert not (folder / LOCK_FILE).exists()
    with (folder / LOCK_FILE).open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        (folder / "judgements" / ".2.draft").mkdir(parents=True)
        (folder / "judgements" / ".2.draft" / "judgement.jsonl").touch()
        checking = start("verify", folder)
        assert "waiting for another process" in checking.stdout.readline()
    assert (checking.communicate()[0].count("added"), checking.returncode) == (0, 0)
    (folder / "results.jsonl").unlink()
    assert "removed: results.jsonl" in here("verify", folder / "results.jsonl")[1]


def test_a_signature_that_is_no_file_is_a_difference(here, folder):
    os.mkfifo(folder / "SHA256SUMS.3.sig")
    code, said, _ = here("verify", folder)
    assert (code, "added: SHA256SUMS.3.sig (not a regular file)" in said) == (1, True)


@openssh
def test_a_manifest_that_is_exchanged_meanwhile_has_no_good_signature(
    here, folder, tmp_path, monkeypatch
):
    key = make_key(tmp_path / "buyer")
    assert here("verify", folder, "--sign", key)[0] == 0
    signed, file = (folder / MANIFEST).read_bytes(), folder / "results.jsonl"
    old = manifest.sha256(file)
    file.write_text(file.read_text().replace("reject", "accept"))
    forged = signed.replace(old.encode(), manifest.sha256(file).encode())
    (folder / MANIFEST).write_bytes(forged)
    check = manifest.check

    def exchange(*arguments, **options):
        differences = check(*arguments, **options)
        (folder / MANIFEST).write_bytes(signed)
        return differences

    monkeypatch.setattr(manifest, "check", exchange)
    code, said, _ = here("verify", folder, "--key", tmp_path / "buyer.pub")
    assert (code, "good signature" in said) == (1, False)


@pytest.mark.parametrize(
    "name",
    ["judgements/2/judgement.jsonl", "config/lab/requirements.yaml", "config/aa/site.yaml",
     "results.jsonl", MANIFEST],
)  # fmt: skip
def test_a_pipe_in_a_trial_blocks_no_command(here, tmp_path, name):
    """As in an archive that somebody sent. Who opens a pipe waits for its other end."""
    folder = make_trial(tmp_path / "t1")
    (folder / MANIFEST).unlink()
    pipe = folder / name
    pipe.unlink(missing_ok=True)
    pipe.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(pipe)
    requirements = tmp_path / "requirements.yaml"
    requirements.write_text(requirements_text(40))
    site = shutil.copytree(site_file("lab").parent, tmp_path / "lab") / "site.yaml"
    codes = {}
    signal.alarm(60)
    try:
        for words in (
            ("judge", folder), ("judge", folder, "--requirements", requirements),
            ("report", folder, "--output", tmp_path / "out"), ("baseline", folder, "-s", site),
            ("verify", folder),
        ):  # fmt: skip
            codes[words[0], len(words)] = here(*words)[0]
    finally:
        signal.alarm(0)
    assert codes["judge", 2] == 3
    if "config" not in name:
        assert set(codes.values()) == {3}


@pytest.mark.root
def test_root_writes_to_no_trial_that_another_user_can_exchange(here, tmp_path):
    """A user of a cluster judges own trials; root reads them, and judges a copy."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        folder = make_trial(place / "home" / "t")
        before = content(folder)
        for path in (place / "home", folder):
            shutil.chown(path, 2000)
            for command in ("judge", "report"):
                code, _, error = here(command, folder)
                assert (code, f"{path}: user 2000 owns it" in error) == (3, True)
                assert "cp -r" in error
                assert content(folder) == before
            shutil.chown(path, 0)
        (folder / "judgements").mkdir()
        for mode, word in ((0o757, "everybody"), (0o775, "its group")):
            (folder / "judgements").chmod(mode)
            code, _, error = here("judge", folder)
            assert (code, f"judgements: {word} can write to it" in error) == (3, True)
        (folder / "judgements").rmdir()
        shutil.chown(folder, 2000)
        assert here("report", folder, "--output", place / "out")[0] == 1
        assert here("verify", folder)[0] == 0
        subprocess.run(["cp", "-r", folder, place / "copy"], check=True)
        assert here("judge", place / "copy")[0] == 1


#: Root without the right to what is another user's: nobody else may enter the checkout.
UNPRIVILEGED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
#: Python that calls seatrial with each list of words, and prints exit codes and standard errors.
CALLS = """
import contextlib, io, json, sys
from seatrial.cli import main

answers, commands = [], json.loads(sys.argv[1])
for words in commands:
    sys.argv[1:] = words
    error = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(error):
        try:
            main()
        except SystemExit as end:
            answers.append((end.code, error.getvalue()))
print(json.dumps(answers))
"""


@openssh
@pytest.mark.root
def test_what_a_user_may_not_read_or_write_is_an_error(tmp_path):
    """None of them is a verdict."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        folder = make_trial(place / "t")
        make_key(place / "k")
        (place / "site.yaml").touch()
        (place / "k.pub").chmod(0)
        for owned in (folder, place):
            shutil.chown(owned, 65534)

        def call(*commands) -> list[tuple[int, str]]:
            words = json.dumps([[str(word) for word in command] for command in commands])
            done = subprocess.run(
                [*UNPRIVILEGED, sys.executable, "-c", CALLS, words],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            answers = [(code, error) for code, error in json.loads(done.stdout)]
            assert not any("Traceback" in error for _, error in answers)
            return answers

        signed, checked, reported = call(
            ("verify", folder, "--sign", place / "k"),
            ("verify", folder, "--key", place / "k.pub"),
            ("report", folder, "--output", place / "new"),
        )
        assert (signed[0], "user 65534 owns it" in signed[1]) == (3, True)
        assert (checked[0], reported[0]) == (3, 3)
        for file in ("results.jsonl", MANIFEST):
            (folder / file).chmod(0)
            *others, checked = call(
                ("report", folder), ("baseline", folder, "--site", place / "site.yaml"),
                ("verify", folder),
            )  # fmt: skip
            for code, error in others:
                assert (code in (3, 4), file in error) == (True, True)
            assert checked[0] == (1 if file == "results.jsonl" else 3)
            (folder / file).chmod(0o644)


@pytest.mark.root
@openssh
def test_nothing_is_signed_on_a_full_disk(here, tmp_path):
    place, key = tmp_path / "small", tmp_path / "key"
    place.mkdir()
    make_key(key)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", place], check=True)
    try:
        folder = make_trial(place / "t")
        (folder / LOCK_FILE).touch()
        with (place / "filler").open("wb", buffering=0) as stream, suppress(OSError):
            while stream.write(bytes(4096)):
                pass
        before = content(folder)
        code, _, error = here("verify", folder, "--sign", key)
        assert (code, "No space left" in error) == (4, True)
        assert content(folder) == before
        assert here("verify", folder)[0] == 0
    finally:
        subprocess.run(["umount", place], check=True)


def test_an_unexpected_error_is_no_verdict(here, folder, monkeypatch):
    for error, wanted in ((ZeroDivisionError, 70), (MemoryError, 70), (OSError("a disk"), 4)):

        def fail(*_, error=error):
            raise error

        monkeypatch.setattr(manifest, "check_present", fail)
        code, _, said = here("verify", folder)
        assert (code, "Traceback" in said) == (wanted, wanted == 70)


def test_an_interrupted_command_says_so(here, folder, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(manifest, "check_present", interrupt)
    code, _, said = here("verify", folder)
    assert (code, said.strip().splitlines()[-1]) == (130, "interrupted")


def test_an_error_in_a_method_of_a_benchmark_names_its_line(here, monkeypatch):
    def metrics(self):
        return self.names_that_are_not_there

    # as in the file of a benchmark that was added
    own = metrics.__code__.replace(co_filename=inspect.getfile(NetPIPE), co_firstlineno=4711)
    monkeypatch.setattr(metrics, "__code__", own)
    monkeypatch.setattr(NetPIPE, "metrics", metrics)
    code, _, said = here("plan", "--site", "lab")
    assert code == 70
    assert "netpipe.py:4712: a defect of Seatrial (please report the lines above" in said


def test_a_program_that_no_stack_has_is_an_error_in_the_benchmark(here, monkeypatch):
    monkeypatch.setattr(NetPIPE, "steps", lambda self, job: job.program("netpip"))
    code, _, said = here("plan", "--site", "lab")
    assert code == 3
    place = re.escape(f"{__file__}:")
    message = r"the stack has no program 'netpip' for [\w-]+ \(did you mean 'netpipe'\?\)"
    assert re.search(rf"^error: {place}\d+: {message}$", said, re.MULTILINE), said


def test_output_that_nobody_reads_is_no_verdict(folder):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "seatrial", "report", folder], stdout=writing,
        stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(writing)
    assert done.returncode == 141


def test_analyse_says_what_several_trials_mean_and_refuses_one_named_twice(here, tmp_path):
    folders = [make_trial(tmp_path / name, name=name) for name in ("t1", "t2")]
    code, said, _ = here("analyse", *folders)
    assert code == 0
    assert "What is not known" in said or "nothing to conclude" in said
    code, _, error = here("analyse", folders[0], folders[0])
    assert code == 3
    assert "is named twice" in error
    (folders[1] / "results.jsonl").write_text("{}\n")
    code, _, error = here("analyse", folders[1])
    assert code == 3
    assert "results.jsonl" in error
