"""Whole tunes with a Slurm of the tests: what counts, what a kill leaves, what the answer says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job_support import run_stubbed, surroundings
from tune_support import AROUND, NODES, FakeSlurm, Job, Killed, candidate, leave, session, wish

from hostile import HOSTILE
from seatrial.base.errors import InputError, LabError
from seatrial.job.tune import job as slurm
from seatrial.job.tune.answer import Answer
from seatrial.job.tune.job import End
from seatrial.job.tune.outcome import crossing, figure, outcome, output
from seatrial.job.tune.record import Book, Ran
from seatrial.job.tune.request import mpi_family, script, tuned_of, write_declared
from seatrial.job.tune.session import opened
from seatrial.job.tune.study import Limits, Stop, Study
from seatrial.results.record import Counters
from seatrial.site.model import Transport
from seatrial.trial.allocation import QueueEntry

FASTER = {"default": 3.0, "low-latency": 1.0, "cpu-saving": 2.0}


def by_profile(profile, number):
    return Job(seconds=FASTER[profile] * (1 + number % 5 / 200))


def alike(profile, number):
    return Job(seconds=1 + number % 7 / 500)


# -- answers


def test_the_fastest_profile_is_the_answer(tmp_path):
    answer = session(tmp_path, FakeSlurm(tmp_path, by_profile)).work()
    data = json.loads((tmp_path / "answer.json").read_text())
    assert data["answer"] == "best"
    assert data["use"] == {"profile": "low-latency", "transport": "tcp"}
    assert data["worse"] == ["default over tcp", "cpu-saving over tcp"]
    text = (tmp_path / "answer.txt").read_text()
    assert text == answer.text()
    flat = " ".join(text.split())
    assert (
        "best: use NIC profile low-latency with transport tcp for sleep 1 (2 nodes, 2 ranks)"
        in flat
    )
    assert re.search(r"wall time 1\.\d+ s, [12]\.\d+ times \(.* to .*\) as good as the next", flat)
    assert "sbatch --constraint=nic_low_latency --exclusive, transport tcp" in flat
    assert "--profile low-latency --transport tcp" in flat
    assert "Left out: old-only over tcp: --nodes: 2, but" in flat
    counts = {len(one["samples"]) for one in data["candidates"]}
    assert counts == {Study(answer.tuned, [], []).least}
    assert max(map(len, text.splitlines())) <= 200


def test_a_program_that_profiles_do_not_change_gets_the_sites_default(tmp_path):
    quiet = session(tmp_path, FakeSlurm(tmp_path, lambda *_: alike(*_))).work()
    assert quiet.decision.answer == "no difference"
    assert quiet.choice == candidate("default")
    assert "use default over tcp, the site's default" in " ".join(quiet.text().split())


def test_a_limit_of_node_hours_ends_it_with_what_it_takes(tmp_path):
    limit = 0.5  # each run may take 2 nodes x 11 min, and takes 2 x 30 s
    answer = session(tmp_path, FakeSlurm(tmp_path, alike), Limits(limit, 1e6)).work()
    assert answer.decision.answer == "measure more"
    assert answer.study.node_hours <= limit
    assert answer.study.node_hours > limit - 0.4
    text = " ".join(answer.text().split())
    assert "each candidate needs 6 runs that count" in text
    assert "It takes about 6 runs of each candidate" in text
    assert answer.choice is None
    assert f"seatrial job tune --output {tmp_path}" in text
    assert "Stopped: the limit of 0.5 node hours" in text


def test_a_limit_after_the_first_look_is_a_look(tmp_path):
    noisy = FakeSlurm(tmp_path, lambda profile, number: Job(seconds=1 + (number * 37 % 29) / 30))
    first = session(tmp_path, noisy, Limits(0.75, 1e6)).work()
    assert first.study.looks
    seen = len(first.study.looks)
    again = session(tmp_path, noisy, Limits(1.0, 1e6)).work()
    assert len(again.study.looks) > seen
    assert len(again.study.runs) > len(first.study.runs)


# -- what does not count


def one_outcome(tmp_path, job, end=None, **options):
    tuned = tuned_of(wish(tmp_path, **options), AROUND)
    chosen = tuned.candidates[0]
    folder = tmp_path / "0001"
    folder.mkdir()
    leave(folder, job)
    ended = end or End(QueueEntry(job.state, nodes=list(job.nodes), used_s=30.0))
    return outcome(tuned, chosen, 1, "17", ended, folder, 0.5)


@pytest.mark.parametrize(
    ("job", "options", "fault", "words"),
    [
        (Job(), {}, "", ""),
        (Job(code=3, output=b"no input file\n"), {}, "program", "exited with code 3: ...no input"),
        (Job(code=139), {}, "program", "ended by SIGSEGV"),
        (Job(code=124, seconds=600), {}, "timeout", "after 600 s, the limit of a run"),
        (Job(code=137, seconds=600), {}, "timeout", "after 600 s"),
        (Job(code=137, seconds=20), {}, "program", "by SIGKILL"),  # out of memory, for example
        (Job(state="TIMEOUT"), {}, "timeout", "600 s"),
        (Job(proof={"ok": False, "reason": "eth1 mtu is 15, not 9000"}), {}, "profile", "is 15"),
        (Job(nodes=NODES[:1]), {}, "profile", "only 1 of 2 nodes recorded their NIC settings"),
        (Job(mapped=["/usr/lib/libmpi.so.40.30.4"]), {}, "transport", "libmpi.so.40.30.4, which"),
        (Job(), {"figure": "rate ([0-9.]+)", "better": "higher"}, "figure", "does not match"),
        (Job(seconds=-5), {}, "figure", "the clock of a node jumped"),
    ],
)  # fmt: skip
def test_what_counts_and_why_not(tmp_path, job, options, fault, words):
    ran = one_outcome(tmp_path, job, **options)
    assert ran.fault == fault, ran.reason
    assert words in ran.reason
    assert (ran.value is None) == bool(fault)
    assert ran.node_hours == pytest.approx(2 * 30 / 3600)


def test_a_job_that_left_nothing_is_an_error_and_costs_what_it_could_have_taken(tmp_path):
    tuned = tuned_of(wish(tmp_path), AROUND)
    gone = End(QueueEntry(slurm.GONE))
    ran = outcome(tuned, tuned.candidates[0], 1, "17", gone, tmp_path / "none", 0.5)
    assert (ran.fault, ran.node_hours) == ("slurm", 0.5)
    assert "no longer knows" in ran.reason


@pytest.mark.parametrize(
    ("pattern", "text", "value"),
    [
        ("GFLOPS: ([0-9.e+-]+)", b"GFLOPS: 1.5\nGFLOPS: 2.5e+1\n", 25.0),
        ("^[0-9]+$", b"a\n12\n", 12.0),
        ("rate=(.*)", b"rate=zero", "'zero' in its output is not a number"),
        ("rate=(.*)", b"rate=nan", "must be above zero"),
        ("rate=(.*)", b"rate=-1", "must be above zero"),
        ("rate=(x)?", b"rate=", "'' in its output is not a number"),
        ("rate", b"\xff\x00\x1b[2Jother", "does not match"),
        ("t=([0-9]+)", b"\xff\xfe\x00t=7\x1b]0;x\x07", 7.0),
        ("r=(.*)", b"r=\x1b[2J\xff", "'\ufffd[2J\ufffd' in its output"),
    ],
)  # fmt: skip
def test_the_figure_is_the_last_number_that_matches(pattern, text, value):
    found, why = figure(pattern, text)
    if isinstance(value, float):
        assert (found, why) == (value, "")
    else:
        assert found is None
        assert value in why


def counted(network, count, node="n1", **more):
    return Counters(node=node, interface=f"if-{network}", network=network, rx_bytes=count,
                    tx_bytes=0, rx_packets=1, tx_packets=1, **more)  # fmt: skip


@pytest.mark.parametrize(
    ("test", "mgmt", "crossed"),
    [(10**7, 10**5, True), (10**5, 10**7, False), (1000, 2000, None), (10**7, 10**7, False)],
)
def test_the_path_is_that_of_most_bytes(test, mgmt, crossed):
    said, why = crossing([counted("test", test), counted("mgmt", mgmt)], "test", "kernel")
    assert said is crossed
    assert bool(why) == (crossed is False)
    both = [counted("test", 10**9), counted("test", test, "n2"), counted("mgmt", mgmt, "n2")]
    assert crossing(both, "test", "kernel")[0] is (True if crossed is None else crossed)


def test_tcp_on_the_interface_is_another_path_than_verbs():
    rdma = {"port": "m:1", "rx_bytes": 10**6, "tx_bytes": 0, "rx_packets": 9, "tx_packets": 0,
            "source": "counters"}  # fmt: skip
    assert crossing([counted("test", 1000, rdma=rdma)], "test", "verbs")[0] is True
    assert crossing([counted("test", 10**7, rdma=rdma)], "test", "verbs")[0] is False
    assert crossing([counted("test", 10**7)], "test", "verbs")[0] is False


def test_a_port_that_counts_packets_only_proves_no_bytes():
    rdma = {"port": "m:1", "rx_bytes": None, "tx_bytes": None, "rx_packets": 10**6,
            "tx_packets": 0, "source": "counters"}  # fmt: skip
    assert crossing([counted("test", 1000, rdma=rdma)], "test", "verbs")[0] is None
    shared = {**rdma, "shared": True}  # soft RoCE: the interface counts the port's traffic, too
    assert crossing([counted("test", 10**7, rdma=shared)], "test", "verbs")[0] is False
    shared.update(rx_bytes=10**7, tx_bytes=0)
    assert crossing([counted("test", 10**7, rdma=shared)], "test", "verbs")[0] is True


def test_runs_that_fail_are_said_and_not_counted(tmp_path):
    def broken(profile, number):
        return Job(code=2, output=b"\x1b[2Jout of tea\n") if profile == "cpu-saving" else \
            by_profile(profile, number)  # fmt: skip

    answer = session(tmp_path, FakeSlurm(tmp_path, broken)).work()
    assert answer.decision.answer == "best"
    text = " ".join(answer.text().split())
    assert re.search(r"Not counted: 2 runs \(\d+, \d+\), cpu-saving over tcp: it exited", text)
    assert "\x1b" not in text
    assert "out of tea" in text
    row = next(one for one in answer.data()["candidates"] if one["profile"] == "cpu-saving")
    assert row["samples"] == []
    assert "exited with code 2" in row["out"]
    assert answer.doubt == ""  # it is not compared


def test_a_candidate_that_fails_more_often_is_not_called_the_best_without_a_word(tmp_path):
    failed = []

    def sometimes(profile, number):
        if profile == "low-latency" and not failed:
            failed.append(number)
            return Job(code=2)
        return by_profile(profile, number)

    answer = session(tmp_path, FakeSlurm(tmp_path, sometimes)).work()
    text = " ".join(answer.text().split())
    assert text.startswith("best where it succeeds: use NIC profile low-latency")
    assert re.search(
        r"But 1 of \d+ runs under low-latency over tcp failed, of \S+ over tcp 0 of", text
    )
    assert answer.data()["doubt"].startswith("1 of ")


def test_a_figure_is_printed_with_the_unit_that_the_user_gives(tmp_path):
    def rates(profile, number):
        return Job(output=f"rate {10 / by_profile(profile, number).seconds:.4f}\n".encode())

    options = {"figure": "rate ([0-9.]+)", "better": "higher", "unit": "ns/day"}
    answer = session(tmp_path, FakeSlurm(tmp_path, rates), **options).work()
    assert answer.decision.answer == "best"
    assert re.search(r": figure \d\.\d+ ns/day, ", " ".join(answer.text().split()))
    assert answer.data()["unit"] == "ns/day"


def test_candidates_that_are_left_out_alike_are_one_line(tmp_path):
    left_out = {f"{name} over {transport}": "not allowed" for name in "ab" for transport in "st"}
    tuned = tuned_of(wish(tmp_path), AROUND)
    tuned = tuned.model_copy(update={"left_out": {**left_out, "c over s": "no effect"}})
    assert tuned.left_out_lines() == [
        "a, b over s: not allowed", "a, b over t: not allowed", "c over s: no effect",
    ]  # fmt: skip


@pytest.mark.parametrize("state", ["PENDING", "CANCELLED"])
def test_a_refused_profile_is_not_tried_again(tmp_path, state):
    """Slurm holds a job whose Prolog failed, or cancels it, by its configuration."""
    nodes = () if state == "PENDING" else NODES

    def refused(profile, number):
        if profile != "low-latency":
            return by_profile(profile, number)
        why = f"seatrial: job {100 + number - 1}: eth1 has no setting coalesce.rx-usecs"
        why = why if state == "PENDING" else "Prolog error"
        fake.nodes = f"n1|drained|{why}\nn2|drained|{why}\nn3|drained|a broken fan\n"
        return Job(state=state, nodes=nodes)

    fake = FakeSlurm(tmp_path, refused)
    answer = session(tmp_path, fake).work()
    assert answer.decision.leaders[0] == "cpu-saving over tcp"
    assert [run.candidate.profile for run in answer.failed] == ["low-latency"]
    assert [run.fault for run in answer.failed] == ["refused"]
    assert len(fake.cancelled) == (state == "PENDING")
    text = " ".join(answer.text().split())
    assert "n1 is drained: " in text
    assert ("eth1 has no setting" if state == "PENDING" else "Prolog error") in text
    assert "broken fan" not in text


def test_nothing_runs_at_all(tmp_path):
    answer = session(tmp_path, FakeSlurm(tmp_path, lambda *_: Job(code=127))).work()
    assert answer.decision.answer == "measure more"
    assert len(answer.study.runs) == 3
    text = " ".join(answer.text().split())
    assert "no run succeeded" in text
    assert "no run counts: the last one exited with code 127" in text
    assert text.count("exited with code 127") == 2  # once for the three runs
    assert "Proven" not in answer.text()


# -- what is interrupted


@settings(max_examples=5)
@given(kills=st.lists(st.integers(0, 25), max_size=6))
def test_a_killed_tune_continues_and_counts_nothing_twice(tmp_path_factory, kills):
    """Killed after any command to Slurm, also between a submission and its answer."""
    folder = tmp_path_factory.mktemp("tune")
    fake = FakeSlurm(folder, by_profile)
    for kill in kills:
        fake.kill_after = kill
        try:
            session(folder, fake).work()
        except Killed:
            continue
    fake.kill_after = None
    answer = session(folder, fake).work()
    numbers = [run.number for run in answer.study.runs]
    assert len(numbers) == len(set(numbers))
    assert sorted(fake.started) == sorted(set(fake.started))  # and nothing runs twice
    assert answer.decision.answer == "best"
    for run in answer.study.runs:  # a value is that of its own run
        if not run.fault:
            assert run.value == pytest.approx(by_profile(run.candidate.profile, run.number).seconds)
    assert {run.job for run in answer.study.runs if run.job} <= set(fake.jobs)
    lost = set(fake.jobs) - {run.job for run in answer.study.runs}
    assert not lost
    assert answer.study.node_hours >= len(fake.jobs) * 2 * 30 / 3600 - 1e-9


def test_ctrl_c_cancels_its_job_and_keeps_what_was_measured(tmp_path):
    class Interrupted(FakeSlurm):
        def run(self, argv):
            done = super().run(argv)
            if argv[0] == "squeue" and len(self.jobs) == 4 and not self.cancelled:
                os.kill(os.getpid(), signal.SIGINT)
                done.stdout = done.stdout.replace("COMPLETED", "RUNNING")
            return done

    fake = Interrupted(tmp_path, by_profile)
    own = session(tmp_path, fake)
    answer = own.work()
    assert own.signals
    assert fake.cancelled == ["103"]
    assert [run.fault for run in answer.study.runs] == ["", "", "", "interrupted"]
    text = answer.text()
    assert text.startswith("measure more: ")
    assert "Stopped: interrupted by Ctrl-C" in text
    again = session(tmp_path, FakeSlurm(tmp_path, by_profile)).work()
    assert again.decision.answer == "best"
    assert [run.number for run in again.study.runs][:4] == [1, 2, 3, 4]


def test_sbatch_that_refuses_later_ends_the_command_and_not_the_tune(tmp_path):
    fake = FakeSlurm(tmp_path, by_profile)
    good, fake_sbatch = fake.sbatch, 0

    def sbatch(argv, script):
        nonlocal fake_sbatch
        fake_sbatch += 1
        if fake_sbatch == 3:
            text = "sbatch: error: QOSMaxSubmitJobPerUserLimit"
            return subprocess.CompletedProcess(argv, 1, "", text)
        return good(argv, script)

    fake.sbatch = sbatch
    with pytest.raises(LabError, match=r"QOSMaxSubmitJobPerUserLimit.*job tune --output"):
        session(tmp_path, fake).work()
    assert session(tmp_path, fake).work().decision.answer == "best"


def test_one_command_at_a_time(tmp_path):
    with opened(tmp_path / "t"), pytest.raises(InputError, match="another tune works in it"), \
            opened(tmp_path / "t"):  # fmt: skip
        pass
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InputError, match=r"it has other files \(.*thesis.tex"), opened(tmp_path):
        pass


def test_a_line_that_a_kill_cut_off_is_removed_and_other_damage_is_named(tmp_path):
    session(tmp_path, FakeSlurm(tmp_path, by_profile)).work()
    file = tmp_path / "record.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"record":"run","numb')
    book = Book(tmp_path)
    book.read()
    assert len(book.runs) == len({run.number for run in book.runs}) > 10
    assert file.read_bytes() == whole
    lines = whole.splitlines(keepends=True)
    for damage, words in (
        ([*lines[:3], b"gibberish\n", *lines[3:]], r"record.jsonl:4: .*begin again"),
        ([*lines, lines[3]], "counts twice"),
        ([*lines, lines[1]], "is there already"),
        (lines[1:], "the first line is not the request"),
        ([lines[0].replace(b'"schema":1', b'"schema":2')], "another version"),
    ):
        file.write_bytes(b"".join(damage))
        with pytest.raises(InputError, match=words):
            Book(tmp_path).read()


# -- requests and scripts


@pytest.mark.parametrize(
    ("library", "family"),
    [
        ("libmpi.so.40 => /lib/libmpi.so.40", "openmpi"),
        ("/usr/lib/x86_64-linux-gnu/libmpich.so.12.2.0", "mpich"),
        ("/opt/intel/libmpi.so.12.0.0", "mpich"),
        ("libmpi_mpifh.so.40", ""),  # beside libmpi.so.40
        ("libempire.so.1", ""),
        ("", ""),
    ],
)
def test_the_mpi_of_a_program_is_seen_by_its_libraries(library, family):
    assert mpi_family(library) == family


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"program": []}, "PROGRAM is missing"),
        ({"program": ["./nothing"]}, "there is no such program"),
        ({"program": ["a\udcff"]}, "not UTF-8"),
        ({"figure": "("}, "--figure.*no regular expression"),
        ({"profiles": ["nope"]}, "no such profile"),
        ({"profiles": ["default"]}, "nothing to compare: only default over tcp"),
        ({"transports": ["nope*"]}, "has none such"),
        ({"nodes": 9}, "--nodes: 9"),
        ({"settings": {"program": "x"}}, "--set program: not a value of job tune"),
        ({"run_limit_s": 0}, "--run-limit: 0"),
    ],
)
def test_bad_requests(tmp_path, options, words):
    with pytest.raises(InputError, match=words):
        tuned_of(wish(tmp_path, **options), AROUND)


def test_transports_are_those_of_the_programs_mpi(tmp_path, monkeypatch):
    from seatrial.job.tune import request

    monkeypatch.setattr(request, "family_of", lambda program, cwd: "openmpi")
    tuned = tuned_of(wish(tmp_path), AROUND)
    assert {one.candidate.transport for one in tuned.candidates} == {"openmpi-tcp", "openmpi-ucx"}
    assert "verbs are polled" in tuned.left_out["low-latency over openmpi-ucx"]
    with pytest.raises(InputError, match="linked with openmpi, and cannot run over mpich-ofi"):
        tuned_of(wish(tmp_path, transports=["mpich-ofi"]), AROUND)


def test_variants_of_a_transport_are_of_its_mpi(tmp_path, monkeypatch):
    from seatrial.job.tune import request

    monkeypatch.setattr(request, "family_of", lambda program, cwd: "openmpi")
    around = surroundings()
    around.site.transports["openmpi-tcp-small"] = Transport(base="openmpi-tcp")
    tuned = tuned_of(wish(tmp_path), around)
    names = {one.candidate.transport for one in tuned.candidates}
    assert names == {"openmpi-tcp", "openmpi-tcp-small", "openmpi-ucx"}
    small = next(one for one in tuned.candidates if one.candidate.transport == "openmpi-tcp-small")
    book = Book(tmp_path)
    book.add(tuned)
    said = Answer(book, Stop("time"), tmp_path)._how(small.candidate)
    words = "transport openmpi-tcp with env and options of openmpi-tcp-small in site.yaml; a new"
    assert words in said[0]


@settings(max_examples=8, deadline=None)
@given(word=HOSTILE)
def test_the_program_gets_exactly_its_arguments(tmp_path_factory, word):
    folder = tmp_path_factory.mktemp("tune it's %j")
    runs = folder / "runs"
    (runs / "0001").mkdir(parents=True)
    program = ["/bin/echo", word, "two words", "$(id)", "-n"]
    tuned = tuned_of(wish(folder, program=program), AROUND)
    write_declared(tuned, AROUND, runs)
    text = script(tuned, tuned.candidates[0].candidate, AROUND, runs / "0001", "tune-x-1")
    assert f'#SBATCH --output="{runs}/0001/job.out"'.replace("%", "%%") in text
    stub = 'printf "%s\\0" "$@" >"$OUT/arguments"; exit 5'
    done = run_stubbed(text, folder, {"srun": stub})
    assert done.returncode == 5, done.stderr
    got = (folder / "arguments").read_bytes().decode().split("\0")[:-1]
    assert got[got.index("--") + 1 :] == program
    assert (runs / "0001" / "exit").read_text().startswith("5 ")


def test_of_a_gigabyte_of_output_the_beginning_and_the_end_are_kept(tmp_path):
    runs = tmp_path / "runs"
    (runs / "0001").mkdir(parents=True)
    tuned = tuned_of(wish(tmp_path, figure="rate ([0-9]+)", better="higher"), AROUND)
    write_declared(tuned, AROUND, runs)
    text = script(tuned, tuned.candidates[0].candidate, AROUND, runs / "0001", "tune-x-1")
    stub = "echo first; head -c 30000000 /dev/urandom; echo; echo rate 12; echo last >&2"
    done = run_stubbed(text, tmp_path, {"srun": stub})
    assert done.returncode == 0, done.stderr
    kept = sum(file.stat().st_size for file in (runs / "0001").iterdir())
    assert kept < 300_000
    assert figure(tuned.figure, output(runs / "0001")) == (12.0, "")
    assert output(runs / "0001").startswith(b"first\n")
    assert output(runs / "0001").endswith(b"last\n")


def test_a_run_that_hangs_is_ended(tmp_path):
    runs = tmp_path / "runs"
    (runs / "0001").mkdir(parents=True)
    tuned = tuned_of(wish(tmp_path, run_limit_s=1), AROUND)
    write_declared(tuned, AROUND, runs)
    text = script(tuned, tuned.candidates[0].candidate, AROUND, runs / "0001", "tune-x-1")
    done = run_stubbed(text, tmp_path, {"srun": "exec sleep 60"})
    assert done.returncode == 124
    assert (runs / "0001" / "exit").read_text().split()[0] == "124"


def test_the_lines_of_a_record_are_on_the_disk_before_the_next_command(tmp_path):
    fake = FakeSlurm(tmp_path, by_profile)
    own = session(tmp_path, fake)
    good = fake.sbatch

    def sbatch(argv, script):
        book = Book(tmp_path)
        book.read()
        assert list(book.open) == [len(fake.started) + 1]
        return good(argv, script)

    own.sbatch = sbatch
    own.work()
    assert isinstance(own.book.runs[0], Ran)
