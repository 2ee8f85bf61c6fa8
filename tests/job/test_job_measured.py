"""Profile, transport and network of a job by the site's own trials."""

from __future__ import annotations

import dataclasses
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from job_support import APPLICATION, planned, rendered, surroundings
from typer.testing import CliRunner

from seatrial.analysis.axis import SETTING
from seatrial.analysis.response import responses
from seatrial.base.errors import InputError
from seatrial.cli import app
from seatrial.job.measured import Application, SiteTrials, advise
from seatrial.results.folder import read_results, write_results
from seatrial.results.record import Activity, Case, Job, Metric, Run, Trial, Verdict

NIGHT = datetime(2026, 8, 1, 22, tzinfo=UTC)
JITTER = (1.0, 1.004, 0.997, 1.002, 0.998, 1.001)
IS = "npb", "is.W", "mops", "higher"
HPL = "hpl", "openblas", "hpl_GFLOPS", "higher"
EP = "npb", "ep.W", "mops", "higher"
OSU = "osu", "", "latency_us", "lower"


def night(
    trials: Path,
    number: int,
    *groups,
    repeats=6,
    site="harbour",
    waited=None,
    lost=None,
    nodes=None,
    facts=None,
    trial_repeats=1,
    versions=None,
    **fields,
) -> str:
    """A trial. A group: check, variant, metric, better, {(profile, transport, network): value}.
    ``waited``: profile -> per cent of the time for which its runs waited for a processor.
    ``lost``: profile -> number of its runs that failed.
    ``repeats``: runs of each case, in rounds of ``trial_repeats``."""
    runs = []
    for check, variant, metric, better, values in groups:
        for shift, ((profile, transport, network), value) in enumerate(values.items()):
            case = Case(check=check, variant=variant, transport=transport, profile=profile, nodes=2,
                        network=network)  # fmt: skip
            used = (nodes or {}).get(profile, ["n1", "n2"])
            runs += [
                Run(case=case, repeat=i, round=i // trial_repeats, outcome="ran",
                    job=Job(nodes=used), facts=facts or {}, versions=versions or {}, activity=[
                    Activity(step="run", node="n1", seconds=9,
                             waited_percent=(waited or {}).get(profile, 0.0))], metrics=[
                    Metric(metric=metric, value=value * JITTER[(i + shift) % 6], unit="u",
                           better=better)])
                for i in range(repeats - (lost or {}).get(profile, 0))
            ]  # fmt: skip
    name = f"{site}-{number:03}"
    started = NIGHT + timedelta(days=number)
    trial = Trial(trial=name, site=site, started=started, seatrial="0", repeats=trial_repeats,
                  rounds=repeats // trial_repeats, **fields)  # fmt: skip
    verdict = Verdict(verdict="accept", counts={}, findings=[], ended=started)
    (trials / name).mkdir(parents=True)
    write_results(trials / name / "results.jsonl", [trial, *runs, verdict])
    return name


@pytest.fixture
def around(tmp_path):
    trials = tmp_path / "trials"
    trials.mkdir()
    own = SiteTrials(trials, "harbour", lambda text: None)
    return dataclasses.replace(surroundings(), trials=own)


def is_of(**profiles):
    """NPB IS under profiles, over openmpi-tcp on rail1."""
    names = {name.replace("_", "-"): value for name, value in profiles.items()}
    return (*IS, {(name, "openmpi-tcp", "rail1"): value for name, value in names.items()})


def test_profile_transport_and_rail_are_those_of_the_best_option(around):
    options = {
        (profile, transport, rail): value * (1.5 if rail == "rail2" else 1)
        for rail in ("rail1", "rail2")
        for (profile, transport), value in {
            ("default", "openmpi-tcp"): 100.0,
            ("low-latency", "openmpi-tcp"): 110.0,
            ("default", "mpich-ofi"): 90.0,
            ("cpu-saving", "mpich-ofi"): 130.0,
        }.items()
    }
    name = night(around.trials.folder, 1, (*IS, options))
    plan = planned("npb", around)
    assert (plan.profile, plan.transport) == ("cpu-saving", "mpich-ofi")
    assert (plan.network, plan.interface) == ("rail2", "eth2")
    assert plan.constraint == "nic_cpu_saving"
    text = " ".join(rendered("npb", around).replace("\n#  ", "").split())
    assert "# NIC profile: cpu-saving: measured by the site's own trial, see below." in text
    assert f"Trial {name} of 2026-08-02; intervals of 95 %." in text
    assert re.search(
        r"# Measured: cpu-saving over mpich-ofi@rail2 is the best of 8 for npb is.W on 2 nodes: "
        r"195 u, 1.18\d* times \(1.1\d* to 1.\d+\) as good as the next, low-latency over "
        r"openmpi-tcp@rail2",
        text,
    )
    assert "docs/job-templates.md has the measurements" not in text
    assert "sends its messages through eth2 (network rail2) only" in text


def test_what_the_user_gives_narrows_what_is_compared(around):
    options = {
        ("default", "openmpi-tcp", ""): 100.0,
        ("low-latency", "openmpi-tcp", ""): 150.0,
        ("default", "mpich-ofi", ""): 210.0,
        ("cpu-saving", "mpich-ofi", ""): 190.0,
    }
    night(around.trials.folder, 1, (*IS, options))
    assert planned("npb", around).transport == "mpich-ofi"
    own = planned("npb", around, mpi="openmpi")
    assert (own.profile, own.transport) == ("low-latency", "openmpi-tcp")
    given = planned("npb", around, transport="openmpi-tcp")
    assert (given.profile, given.transport_why) == ("low-latency", "given by --transport.")
    profile = planned("npb", around, profile="default")
    assert (profile.transport, profile.profile_why) == ("mpich-ofi", "given by --profile.")
    assert profile.basis
    both = planned("npb", around, profile="cpu-saving", transport="openmpi-tcp")
    assert both.basis == ""  # nothing is left to choose


def test_the_literature_only_where_nothing_was_measured(around):
    plan = planned("npb", around)
    assert plan.profile == "low-latency"
    assert plan.profile_why.startswith("from the literature, as no trial of the site compares")
    assert plan.basis == ""
    night(around.trials.folder, 1, is_of(default=100.0))  # one profile: nothing is compared
    assert planned("npb", around, transport="openmpi-tcp").basis == ""
    night(around.trials.folder, 2, is_of(default=100.0, low_latency=101.0))
    plan = planned("npb", around, transport="openmpi-tcp")
    assert plan.profile == "default"
    assert "its trials show no difference, see below" in plan.profile_why
    assert "low-latency" in plan.basis
    assert "differ by at most" in plan.basis


def test_too_few_repeats_are_no_answer_and_give_the_default(around):
    night(around.trials.folder, 1, is_of(default=100.0, low_latency=200.0), repeats=3)
    plan = planned("npb", around, transport="openmpi-tcp")
    assert (plan.profile, plan.constraint) == ("default", "")
    assert "its trials do not decide, see below" in plan.profile_why
    assert "it takes 5 rounds (seatrial trial --rounds 5)" in plan.basis


def test_the_default_is_not_advised_where_it_is_certainly_worse(around):
    night(around.trials.folder, 1, is_of(default=100.0, low_latency=200.0, cpu_saving=200.5))
    plan = planned("npb", around, transport="openmpi-tcp")
    assert plan.profile in ("low-latency", "cpu-saving")
    assert plan.basis.startswith("no difference for npb is.W on 2 nodes")


def test_the_newest_trial_that_measured_enough_decides(around):
    trials = around.trials.folder
    night(trials, 1, is_of(default=100.0, low_latency=150.0))
    night(trials, 2, is_of(default=150.0, low_latency=100.0))
    night(trials, 3, is_of(default=100.0, low_latency=300.0), repeats=2)
    night(trials, 4, is_of(default=100.0, low_latency=300.0), notes=["fault planted on purpose: x"])
    night(trials, 5, is_of(default=100.0, low_latency=300.0), site="pier")
    (trials / "harbour-006").mkdir()
    (trials / "harbour-006" / "results.jsonl").write_text("gibberish")
    plan = planned("npb", around, transport="openmpi-tcp")
    assert plan.profile == "default"
    assert "harbour-002 of 2026-08-03" in plan.basis
    assert "default over openmpi-tcp@rail1 is the best" in plan.basis


def test_options_that_a_job_cannot_use_are_not_advised(around):
    night(around.trials.folder, 1, is_of(default=100.0, low_latency=110.0, old_only=900.0,
                                         removed=990.0))  # fmt: skip
    plan = planned("npb", around, transport="openmpi-tcp")
    assert plan.profile == "low-latency"  # old-only fits one node, removed is no profile any more


def test_an_own_program_is_advised_by_what_stands_for_its_kind(around):
    osu = (*OSU, {("default", "openmpi-tcp", ""): 30.0, ("cpu-saving", "openmpi-tcp", ""): 20.0})
    hpl = (*HPL, {("default", "openmpi-tcp", ""): 30.0, ("low-latency", "openmpi-tcp", ""): 20.0})
    night(around.trials.folder, 1, is_of(default=100.0, low_latency=150.0), hpl, osu)
    by_kind = {
        kind: planned("mpi", around, APPLICATION, kind=kind)
        for kind in ("communication-bound", "compute-bound", "latency-bound")
    }
    assert [plan.profile for plan in by_kind.values()] == ["low-latency", "default", "cpu-saving"]
    for kind, plan in by_kind.items():
        assert f"which stands for {kind} applications" in plan.basis
    assert planned("mpi", around, APPLICATION).basis == ""  # unknown kind
    assert "stands for" not in planned("npb", around).basis
    hpl_job = planned("hpl", around, {"blas": "openblas"})
    assert "stands for" not in hpl_job.basis
    assert hpl_job.profile == "default"
    atlas = planned("hpl", around, {"blas": "atlas"})
    assert "hpl openblas on 2 nodes, which stands for compute-bound" in atlas.basis


def words_of(text: str) -> str:
    """A script's remarks as one line."""
    return " ".join(text.replace("\n#  ", "").split())


def of_class(letter: str, **profiles):
    """NPB IS of a class under profiles, over openmpi-tcp on rail1."""
    check, _, *rest = is_of(**profiles)
    return check, f"is.{letter}", *rest


def test_a_parallel_fft_stands_for_ft_before_ep_does(around):
    ep = (*EP, {("default", "openmpi-tcp", ""): 100.0, ("low-latency", "openmpi-tcp", ""): 100.1})
    fft = ("hpcc", "mpifft", "mpifft_GFLOPS", "higher",
           {("default", "openmpi-tcp", ""): 1.0,
            ("low-latency", "openmpi-tcp", ""): 1.77})  # fmt: skip
    ft = {"kernel": "ft", "problem_class": "C", "program": "./x"}
    night(around.trials.folder, 1, ep)
    plan = planned("npb", around, ft, transport="openmpi-tcp")
    assert plan.profile == "default"
    assert (
        "npb ep.W on 2 nodes, which stands for compute-bound applications (another program than "
        "the job's, class W)"
    ) in plan.basis
    night(around.trials.folder, 2, ep, fft)
    plan = planned("npb", around, ft, transport="openmpi-tcp")
    assert plan.profile == "low-latency"
    assert (
        "hpcc mpifft on 2 nodes, which stands for a parallel FFT (another program than the job's)"
    ) in plan.basis
    other = planned("npb", around, {**ft, "kernel": "lu"}, transport="openmpi-tcp")
    assert "npb ep.W" in other.basis
    night(around.trials.folder, 3, ("npb", "ft.C", "mops", "higher", fft[-1]))
    own = planned("npb", around, ft, transport="openmpi-tcp")
    assert "npb ft.C on 2 nodes" in own.basis
    assert "another program" not in own.basis


def test_ep_stands_for_compute_bound_applications_where_hpl_was_not_measured(around):
    options = {("default", "openmpi-tcp", ""): 20.0, ("cpu-saving", "openmpi-tcp", ""): 30.0}
    night(around.trials.folder, 1, (*EP, options))
    plan = planned("mpi", around, APPLICATION, kind="compute-bound")
    assert plan.profile == "cpu-saving"
    assert "npb ep.W on 2 nodes, which stands for compute-bound applications" in plan.basis
    assert planned("mpi", around, APPLICATION, kind="communication-bound").basis == ""
    hpl = {("default", "openmpi-tcp", ""): 30.0, ("cpu-saving", "openmpi-tcp", ""): 20.0}
    night(around.trials.folder, 2, (*HPL, hpl))
    plan = planned("mpi", around, APPLICATION, kind="compute-bound")
    assert plan.profile == "default"
    assert "hpl openblas on 2 nodes, which stands for" in plan.basis


def test_the_class_of_the_job_decides_before_the_newest_trial(around):
    trials = around.trials.folder
    night(trials, 1, of_class("B", default=100.0, low_latency=150.0))
    night(trials, 2, of_class("S", default=150.0, low_latency=100.0))
    own = planned("npb", around, {"problem_class": "B"}, transport="openmpi-tcp")
    assert own.profile == "low-latency"
    assert "for npb is.B on 2 nodes" in own.basis
    assert "It measured another size" not in own.basis
    near = planned("npb", around, {"problem_class": "W"}, transport="openmpi-tcp")
    assert near.profile == "default"  # S is nearer to W than B is
    assert "class S (the job: W)" in near.basis


def test_a_job_of_another_size_is_told_so(around):
    values = of_class("S", default=100.0, low_latency=150.0)
    name = night(around.trials.folder, 1, values, facts={"processes": 2})
    text = words_of(rendered("npb", around, {"problem_class": "B"}, nodes=4))
    said = (
        f"Trial {name} of 2026-08-02; intervals of 95 %. It measured another size: class S (the "
        "job: B), 2 nodes (the job: 4), 2 ranks (the job: 8). The answer for the job may differ."
    )
    assert said in text
    hpl = (*HPL, {("default", "openmpi-tcp", ""): 30.0, ("low-latency", "openmpi-tcp", ""): 20.0})
    night(around.trials.folder, 2, hpl, facts={"N": 1000, "NB": 64, "P": 1, "Q": 2})
    script = rendered("hpl", around, {"blas": "openblas"}, ranks_per_node=1)
    order = re.search(r"N = (\d+) \(the job: (\d+)\)", words_of(script))
    assert order[1] == "1000"
    assert f"\n{order[2]} " in script  # the line of Ns in HPL's input
    assert "ranks (the job" not in words_of(script)


@pytest.mark.parametrize("facts", [{"N": True}, {"N": "7", "P": None, "processes": [2]}])
def test_a_size_that_is_not_on_record_is_no_difference(around, facts):
    hpl = (*HPL, {("default", "openmpi-tcp", ""): 30.0, ("low-latency", "openmpi-tcp", ""): 20.0})
    night(around.trials.folder, 1, hpl, facts=facts)
    assert "another size" not in planned("hpl", around, {"blas": "openblas"}, nodes=2).basis


def test_the_command_takes_a_folder_of_trials(tmp_path):
    night(tmp_path, 1, (*IS, {("default", "openmpi-tcp", ""): 100.0,
                              ("jumbo", "openmpi-tcp", ""): 150.0}), site="lab")  # fmt: skip
    words = ["job", "render", "npb", "--set", "program=./is", "--trials", str(tmp_path)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "#SBATCH --constraint=nic_jumbo" in done.output
    assert f"--trials {tmp_path}" in done.output
    words[-1] = str(tmp_path / "none")
    with pytest.raises(InputError, match="no such folder"):
        CliRunner().invoke(app, words, catch_exceptions=False)


def test_trials_that_cannot_be_read_are_said_and_do_not_stop_a_user(tmp_path, monkeypatch):
    said = []
    trials = SiteTrials(tmp_path, "harbour", said.append)

    def broken(*_):
        raise PermissionError("no")

    monkeypatch.setattr("seatrial.job.measured.opened", broken)
    assert trials.comparisons(Application("npb", "is.*", "mops")) == []
    assert "cannot be read" in said[0]


def test_a_disturbed_trial_advises_nothing_and_an_older_quiet_one_does(around):
    values = is_of(default=100.0, low_latency=60.0)
    night(around.trials.folder, 2, values, waited={"low-latency": 40.0})
    plan = planned("npb", around)
    assert plan.profile == "default"
    text = " ".join(rendered("npb", around).replace("\n#  ", "").split())
    assert "disturbed the runs under low-latency over openmpi-tcp@rail1" in text
    assert "is the best" not in text
    name = night(around.trials.folder, 1, is_of(default=100.0, low_latency=130.0))
    assert planned("npb", around).profile == "low-latency"
    assert name in rendered("npb", around)


def test_an_option_that_fails_more_often_is_not_advised(around):
    night(around.trials.folder, 1, is_of(default=100.0, low_latency=130.0), lost={"low-latency": 1})
    assert planned("npb", around).profile == "default"
    text = " ".join(rendered("npb", around).replace("\n#  ", "").split())
    assert "1 of 6 runs under low-latency over openmpi-tcp@rail1 failed or did not count" in text


def test_options_on_different_nodes_are_not_compared(around):
    values = is_of(default=100.0, low_latency=130.0)
    night(around.trials.folder, 1, values, nodes={"low-latency": ["n3", "n4"]})
    assert planned("npb", around).profile == "default"
    text = " ".join(rendered("npb", around).replace("\n#  ", "").split())
    assert "the setting cannot be told from the nodes, which differ (" in text


def test_the_repeats_of_a_round_are_one_sample(around):
    """Of three rounds of two repeats: three samples, and too few. In virtual time six."""
    trials = around.trials.folder
    options = is_of(default=100.0, jumbo=150.0)
    night(trials, 1, options, repeats=6, trial_repeats=2)
    (one,) = around.trials.comparisons(Application("npb", "is.*", "mops"))
    assert ({len(values) for values in one.samples.values()}, one.per) == ({3}, "round")
    assert set(one.runs.values()) == {6}
    night(trials, 2, options, repeats=6, trial_repeats=2, lost={"jumbo": 1})
    one = around.trials.comparisons(Application("npb", "is.*", "mops"))[0]
    assert {len(values) for values in one.samples.values()} == {3}
    night(trials, 3, options, repeats=6, trial_repeats=6, virtual_time=True)
    one = around.trials.comparisons(Application("npb", "is.*", "mops"))[0]
    assert ({len(values) for values in one.samples.values()}, one.per) == ({6}, "repeat")


def test_a_round_that_lacks_a_run_is_still_a_sample(around):
    """Of twelve runs in six rounds one failed."""
    night(around.trials.folder, 1, is_of(default=100.0, low_latency=200.0), repeats=12,
          trial_repeats=2, lost={"default": 1})  # fmt: skip
    [made] = around.trials.comparisons(Application("npb", "is.*", "mops"))
    assert {option.profile: len(own) for option, own in made.samples.items()} == {
        "default": 6, "low-latency": 6,
    }  # fmt: skip
    assert {option.profile: runs for option, runs in made.runs.items()} == {
        "default": 11, "low-latency": 12,
    }  # fmt: skip
    plan = planned("npb", around, transport="openmpi-tcp")
    assert "one round alone" not in plan.basis
    assert plan.profile == "low-latency"


def test_nights_of_one_round_are_pooled_until_there_are_enough(around):
    """A trial is at least one sample of each option, and the newest five are enough for two."""
    for number in range(1, 7):
        values = is_of(default=100.0 + number, low_latency=150.0 - number / 10)
        night(around.trials.folder, number, values, repeats=1)
    plan = planned("npb", around, transport="openmpi-tcp")
    assert plan.profile == "low-latency"
    text = " ".join(rendered("npb", around).replace("\n#  ", "").split())
    assert "Trials harbour-002 of 2026-08-03 to harbour-006 of 2026-08-07, 5 together" in text


def test_nights_that_differ_are_not_pooled(around):
    """In another version, on other options, disturbed, or of options on different nodes."""
    trials = around.trials.folder
    for number in range(0, 5):
        night(trials, number, is_of(default=100.0, low_latency=150.0), repeats=1)
    newest = Application("npb", "is.*", "mops")

    def rounds():
        return [len(advise(around.trials.comparisons(newest), lambda option: True, 2, newest)
                    .comparison.older) + 1]  # fmt: skip

    assert rounds() == [5]
    night(trials, 5, is_of(default=100.0, low_latency=150.0), repeats=1, versions={"mpi": "5"})
    assert rounds() == [1]
    night(trials, 6, is_of(default=100.0, low_latency=150.0, jumbo=120.0), repeats=1)
    assert rounds() == [1]
    night(trials, 7, is_of(default=100.0, low_latency=150.0), repeats=1,
          waited={"low-latency": 40.0})  # fmt: skip
    assert rounds() == [1]
    night(trials, 8, is_of(default=100.0, low_latency=150.0), repeats=1)
    assert rounds() == [5]  # without the fifth to the seventh
    night(trials, 9, is_of(default=100.0, low_latency=150.0), repeats=1,
          nodes={"low-latency": ["n3", "n4"]})  # fmt: skip
    advice = advise(around.trials.comparisons(newest), lambda option: True, 2, newest)
    assert "cannot be told from the nodes" in advice.decision.reason


@pytest.mark.parametrize("nodes", [{}, {"jumbo": ["n3", "n4"]}])
def test_the_chapter_of_the_trial_has_the_same_answer(around, nodes):
    """``SETTING`` of the analysis compares what a job chooses from."""
    values = {
        (profile, transport, "rail1"): value
        for profile, transport, value in (
            ("default", "openmpi-tcp", 100.0), ("jumbo", "openmpi-tcp", 140.0),
            ("default", "mpich-ofi", 101.0), ("jumbo", "mpich-ofi", 80.0),
        )
    }  # fmt: skip
    name = night(around.trials.folder, 1, (*IS, values), nodes=nodes)
    wanted = Application("npb", "is.*", "mops")
    advice = advise(around.trials.comparisons(wanted), lambda option: True, 2, wanted)
    [made], _ = responses([read_results(around.trials.folder / name)], SETTING)
    assert advice.first.name == "jumbo over openmpi-tcp@rail1"
    assert (advice.best is None) == bool(nodes)
    assert dataclasses.replace(made.decision, unit=advice.decision.unit) == advice.decision
