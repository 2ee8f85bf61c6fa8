import os
import threading
from datetime import date

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from campaigns import rounds
from seatrial.base.errors import InputError
from seatrial.results import baseline as baseline_module
from seatrial.results.baseline import Baseline, make_baseline
from seatrial.results.folder import Results
from seatrial.results.record import NO_OWN_PROCESSORS, Case
from seatrial.results.requirements import Accepted, load_requirements
from trial_maker import (
    CONTRACT,
    IMB,
    NETPIPE,
    PAIRS,
    metric,
    results,
    run,
    runs_of,
    trial,
    verdict,
)

# Laid out as no YAML library would write it.
SIGNED = """\
# Signed 2026-08-01.   Do not edit.
schema:   1
requirements:

  # annex B
  -   select:   {check: netpipe,   nodes:  2}     # two nodes
      metric: "latency_us"
      basis:  contract
      source: >
        tender 7,
        # not a comment
        line 4
      reference: 30.00
      upper: 1.0e-1
      unit: 'us'
  # after annex B
informative:   # context
  - {metric: "*_triad_*", reason: "no bound"}
"""


def write(path, *given_results, **kwargs):
    baseline = make_baseline(list(given_results), path, **kwargs)
    baseline.write()
    return baseline


def imb_results(*values, name="t1", **kwargs):
    return results(IMB, values, name=name, **kwargs)


def test_a_new_file(tmp_path):
    path = tmp_path / "requirements.yaml"
    baseline = write(path, imb_results(30.0, 30.2, 30.1))
    assert [str(change) for change in baseline.changes] == [
        (
            "added imb.openmpi-tcp.default.2n: latency_us: 30.1 us, at most 31.61 us, +5 % "
            "(3 samples of 1 trial)"
        )
    ]
    (rule,) = load_requirements(path).rules
    t = rule.threshold
    assert (t.reference, t.upper, t.lower, t.unit) == (30.1, 0.05, None, "us")
    assert t.basis == "baseline"
    assert path.stat().st_mode & 0o777 == 0o644


def test_bounds_follow_the_spread_and_the_direction(tmp_path):
    path = tmp_path / "requirements.yaml"
    values = [90, 95, 100, 105, 110]
    write(path, results(IMB, values, better="higher", name="t", unit="MB/s"))
    t = load_requirements(path).rules[0].threshold
    assert t.upper is None
    assert t.lower == pytest.approx(-3.5 * 5 * 1.4826 * 1.206 / 100, abs=1e-3)


def test_contract_stays_and_is_not_shadowed(tmp_path):
    path = tmp_path / "requirements.yaml"
    path.write_text(SIGNED)
    both = Results(
        trial=trial(NETPIPE, IMB), runs=runs_of(NETPIPE, [20] * 3) + runs_of(IMB, [50] * 3)
    )
    baseline = write(path, both)
    assert [change.action for change in baseline.changes] == ["skipped", "added"]
    assert (
        "contract at requirements.yaml:6 applies and stays as it is" in baseline.changes[0].message
    )
    text = path.read_text()
    head, tail = SIGNED.split("  # after annex B")
    assert text.startswith(head)
    assert text.endswith("  # after annex B" + tail)
    assert len(load_requirements(path).rules) == 2


def test_only_a_contract_means_no_change_at_all(tmp_path):
    path = tmp_path / "requirements.yaml"
    path.write_text(SIGNED)
    write(path, results(NETPIPE, [20] * 3))
    assert path.read_text() == SIGNED


def test_an_older_baseline_is_replaced_where_it_stands(tmp_path):
    path = tmp_path / "requirements.yaml"
    write(path, imb_results(30, 30, 30), results(PAIRS, [7, 7, 7], name="t2"))
    text = path.read_text().replace(
        "  - select: {check: links", "  # pairs\n  - select: {check: links"
    )
    path.write_text(text + "# the end\n")
    baseline = write(path, imb_results(40, 40, 40))
    assert baseline.changes[0].action == "replaced"
    rules = load_requirements(path).rules
    assert [rule.threshold.reference for rule in rules] == [40, 7]
    assert "  # pairs\n" in path.read_text()
    assert path.read_text().endswith("# the end\n")
    before = path.read_text()
    write(path, imb_results(40, 40, 40))
    assert path.read_text() == before


@pytest.mark.parametrize(
    "text",
    [
        "schema: 1\n",
        "schema: 1",
        "schema: 1\nrequirements: []\n",
        "schema: 1\nrequirements: []   # none yet\ninformative: []\n",
        "schema: 1\nrequirements:\ndefaults: {statistic: worst}\n",
        "requirements:\n- {metric: x, basis: relative, at_most: 3, unit: us}\nschema: 1\n",
        "schema: 1\nrequirements:\n- metric: x\n  basis: relative\n  at_most: 3\n  unit: us",
        "  schema: 1\n  requirements:\n    -\n      {metric: x, basis: relative, at_most: 3, unit: u}",  # noqa: E501
        "schema: 1\r\nrequirements:\r\n- {metric: x, basis: relative,\r\n  at_most: 3, unit: u}\r\n",  # noqa: E501
    ],
)
def test_layouts(tmp_path, text):
    path = tmp_path / "requirements.yaml"
    path.write_bytes(text.encode())
    count = len(load_requirements(path).rules)
    write(path, imb_results(1, 1, 1))
    reqs = load_requirements(path)
    assert len(reqs.rules) == count + 1
    assert reqs.rules[-1].statistic == "median"
    assert ("\r\n" in text) == (b"\r\n" in path.read_bytes())


def test_a_list_in_brackets_is_refused(tmp_path):
    path = tmp_path / "requirements.yaml"
    text = "schema: 1\nrequirements: [{metric: x, basis: relative, at_most: 3, unit: us}]\n"
    path.write_text(text)
    with pytest.raises(InputError, match="brackets"):
        write(path, imb_results(1, 1, 1))
    assert path.read_text() == text


def skipped(tmp_path, *given_results, **kwargs):
    path = tmp_path / "requirements.yaml"
    (change,) = make_baseline(list(given_results), path, **kwargs).changes
    return change.message if change.action == "skipped" else ""


def test_what_is_refused(tmp_path):
    assert "2 samples, 1 more is needed" in skipped(tmp_path, imb_results(1, 1))
    assert skipped(tmp_path, imb_results(1, 1), allow_few=True) == ""
    assert (
        skipped(tmp_path, imb_results(1), imb_results(1, name="b"), imb_results(1, name="c")) == ""
    )
    assert "too noisy" in skipped(tmp_path, imb_results(1, 50, 100))
    assert "must be above zero" in skipped(tmp_path, imb_results(-1, -1, -1))
    assert "below zero" in skipped(tmp_path, imb_results(-1, -1, -1, unit="percent"))
    assert "differs" in skipped(
        tmp_path, imb_results(1, 1, 1), imb_results(1, 1, 1, name="b", unit="ms")
    )
    assert "not a finite number" in skipped(tmp_path, imb_results(1, 1, float("nan")))
    with pytest.raises(InputError, match="at least one"):
        make_baseline([], tmp_path / "r.yaml")
    with pytest.raises(InputError, match="t1 is named twice"):
        make_baseline([imb_results(1, 1), imb_results(1, 1)], tmp_path / "r.yaml")
    other = imb_results(1, 1, 1)
    other.trial.site = "elsewhere"
    with pytest.raises(InputError, match="different sites"):
        make_baseline([imb_results(1, 1, 1), other], tmp_path / "r.yaml")
    other = imb_results(1, 1, 1)
    other.trial.notes = [f"{NO_OWN_PROCESSORS}: cc is missing"]
    with pytest.raises(InputError, match="t1 is not of the lab of its site: all nodes share"):
        make_baseline([other], tmp_path / "r.yaml")


def test_a_failing_model_is_not_hidden(tmp_path):
    path = tmp_path / "requirements.yaml"
    path.write_text(
        "schema: 1\nrequirements:\n"
        "  - {select: {check: imb}, metric: latency_us, basis: relative, at_most: 20, unit: us}\n"
    )
    (bad,) = make_baseline([imb_results(30, 30, 30)], path).changes
    assert (bad.action, "fails the relative requirement at requirements.yaml:3" in bad.message) == (
        "skipped",
        True,
    )
    (good,) = make_baseline([imb_results(10, 10, 10)], path).changes
    assert "takes precedence over the relative requirement at requirements.yaml:3" in good.message


def looser(baseline) -> list[str]:
    return [line for line in baseline.summary() if "looser" in line]


def test_an_entry_looser_than_the_one_it_displaces_is_named_with_both_bounds(tmp_path):
    path = tmp_path / "requirements.yaml"
    assert looser(write(path, imb_results(30, 30, 30))) == []
    assert looser(write(path, imb_results(29, 29, 29))) == []  # tighter
    assert looser(write(path, imb_results(29, 29, 29))) == []  # the same
    assert looser(write(path, imb_results(40, 40, 40))) == [
        (
            "looser imb.openmpi-tcp.default.2n: latency_us: at most 30.45 us (requirements.yaml:4) "
            "becomes at most 42 us"
        )
    ]
    faster = results(PAIRS, [90, 90, 90], better="higher", name="t", unit="MB/s")
    slower = results(PAIRS, [80, 80, 80], better="higher", name="t", unit="MB/s")
    write(path, faster)
    assert looser(write(path, slower)) == [
        (
            "looser links.tcp.default.4n: latency_us: at least 85.5 MB/s (requirements.yaml:11) "
            "becomes at least 76 MB/s"
        )
    ]
    assert load_requirements(path).rules[1].threshold.bounds() == (76, None)


def test_a_baseline_looser_than_a_relative_or_wider_entry_is_named(tmp_path):
    """A relative bound is that of each trial: the tightest counts. A bound that is gone, too."""
    path = tmp_path / "requirements.yaml"
    path.write_text(
        "schema: 1\nrequirements:\n"
        "  - {select: {check: imb}, metric: latency_us, basis: relative, at_least: 0.5,"
        " at_most: 1.1, relative_to: {check: netpipe, transport: tcp, metric: latency_us}}\n"
    )

    def both(netpipe, imb, name):
        runs = runs_of(NETPIPE, [netpipe] * 3) + runs_of(IMB, [imb] * 3)
        return Results(trial=trial(NETPIPE, IMB, trial=name), runs=runs)

    two = [both(30, 32, "t1"), both(31, 32.5, "t2")]
    baseline = make_baseline(two, path)
    of = "0.5 x latency_us of netpipe.tcp and at most 1.1 x latency_us of netpipe.tcp"
    assert looser(baseline) == [
        (
            "looser imb.openmpi-tcp.default.2n: latency_us: at least 15.5 us (requirements.yaml:3: "
            f"at least {of}) becomes no bound 'at least', at most 33 us (requirements.yaml:3: "
            f"at least {of}) becomes at most 33.86 us"
        )
    ]


def test_many_looser_entries_are_counted(tmp_path):
    def links(value, count):
        metrics = [metric(value, location=f"n1-n{i}") for i in range(2, 2 + count)]
        return Results(trial=trial(PAIRS), runs=[run(PAIRS, *metrics) for _ in range(3)])

    for count, lines in ((10, 10), (11, 12)):
        path = tmp_path / f"{count}.yaml"
        write(path, links(10, count))
        said = looser(write(path, links(12, count)))
        assert len(said) == lines
    assert said[-1] == "11 new entries are looser than those that they displace"
    assert "at n1-n12: at most 10.5 us (11.yaml:" in said[-2]
    pooled = looser(make_baseline([links(14, 11)], path, locations="pooled"))
    assert pooled == [
        (
            "looser links.tcp.default.4n: latency_us at ?*: at most 12.6 us (11.yaml:4) "
            "becomes at most 14.7 us"
        )
    ]


def test_an_odd_trial_is_named(tmp_path):
    baseline = make_baseline(
        [imb_results(10, 10.1, 10, name=f"t{i}") for i in range(4)]
        + [imb_results(14, 14, 14, name="bad-night")],
        tmp_path / "r.yaml",
    )
    assert "widened for bad-night, whose median is 14" in baseline.changes[0].message


def test_places(tmp_path):
    def links(*values):
        metrics = [metric(v, location=f"n1-n{i}") for i, v in enumerate(values, 2)]
        return Results(
            trial=trial(PAIRS), runs=[run(PAIRS, *metrics, repeat=repeat) for repeat in range(3)]
        )

    path = tmp_path / "requirements.yaml"
    write(path, links(10, 11))
    assert [r.threshold.select.location for r in load_requirements(path).rules] == [
        "n1-n2",
        "n1-n3",
    ]
    write(path, links(10, 11), locations="pooled")
    (rule,) = load_requirements(path).rules
    assert rule.threshold.select.location == "?*"
    given_links = links(10, 11)
    assert verdict(given_links.trial, given_links.runs, load_requirements(path)).verdict == "accept"
    write(path, links(10, 11))
    assert [r.threshold.select.location for r in load_requirements(path).rules] == [
        "n1-n2",
        "n1-n3",
    ]


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path):
    path = tmp_path / "requirements.yaml"
    path.write_text(SIGNED)
    baseline = make_baseline([imb_results(1, 1, 1)], path)
    path.write_text(SIGNED + "# edited\n")
    with pytest.raises(InputError, match="was changed"):
        baseline.write()
    assert path.read_text() == SIGNED + "# edited\n"


def test_two_commands_do_not_overwrite_what_the_other_wrote(tmp_path, monkeypatch):
    path = tmp_path / "r.yaml"
    first, second = (make_baseline([imb_results(*own)], path) for own in ((4,) * 3, (5,) * 3))
    said: list[str] = []

    def write_second():
        try:
            second.write()
        except InputError as error:
            said.append(str(error))

    other = threading.Thread(target=write_second)
    write_whole = baseline_module.write_whole

    def beside(*words):
        if not other.ident:
            other.start()
            other.join(0.5)  # without a lock it writes now
        write_whole(*words)

    monkeypatch.setattr(baseline_module, "write_whole", beside)
    first.write()
    other.join()
    assert len(said) == 1
    assert "the file was changed while the baseline was made" in said[0]
    assert path.read_text() == first.text
    assert list(tmp_path.iterdir()) == [path]  # no lock stays


def test_another_target_leaves_the_original(tmp_path):
    path, other = tmp_path / "requirements.yaml", tmp_path / "proposed.yaml"
    path.write_text(SIGNED)
    assert make_baseline([imb_results(1, 1, 1)], path).write(other) == other
    assert path.read_text() == SIGNED
    assert len(load_requirements(other).rules) == 2
    with pytest.raises(FileNotFoundError):
        make_baseline([imb_results(1, 1, 1)], path).write(tmp_path / "missing" / "r.yaml")
    assert not (tmp_path / "missing").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "requirements.yaml"
    path.write_text(SIGNED)
    baseline = make_baseline([imb_results(1, 1, 1)], path)
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        baseline.write()
    assert path.read_text() == SIGNED
    assert [p.name for p in tmp_path.iterdir()] == ["requirements.yaml"]


def test_names_that_look_like_patterns_select_themselves_only(tmp_path):
    path = tmp_path / "requirements.yaml"
    write(path, results(Case(check="a*", transport="tcp", nodes=2), [1, 1, 1]))
    reqs = load_requirements(path)
    assert reqs.applying(Case(check="a*", transport="tcp", nodes=2), "latency_us")
    assert not reqs.applying(Case(check="ab", transport="tcp", nodes=2), "latency_us")


@pytest.mark.root
def test_root_writes_through_nothing_of_another_user(tmp_path):
    """In a sticky folder such as /tmp somebody else may have made the file, or a link."""
    path = tmp_path / "requirements.yaml"
    made = make_baseline([results(NETPIPE, [30, 31, 32])], path)
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o1777)
    victim = tmp_path / "victim.yaml"
    (public / "link.yaml").symlink_to(victim)
    os.chown(public / "link.yaml", 65534, 65534, follow_symlinks=False)
    with pytest.raises(InputError, match=rf"link\.yaml: --write: .* link to {victim}, which is"):
        made.write(public / "link.yaml")
    with pytest.raises(InputError, match="public: --write: everybody can write to it, and could"):
        made.write(public / "new.yaml")
    assert not victim.exists()
    assert not (public / "new.yaml").exists()
    made.write(victim)
    assert load_requirements(victim).rules


# --- properties ----------------------------------------------------------------------------

quick = settings(
    max_examples=rounds(25, 500), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
names = st.text("abc-.*[]?_ ':#{}é\"\\1", min_size=1, max_size=8)


@st.composite
def sets(draw):
    """Samples of some trials about one level, steady or noisy, with an odd one at times."""
    level = draw(st.sampled_from([0.0, 1e-3, 1.0, 33.3, 1e6]))
    scatter = draw(st.sampled_from([0.0, 0.01, 0.1, 0.3]))
    sample = st.floats(1 - scatter, 1 + scatter) | st.just(1.0)
    samples = st.lists(sample.map(lambda x: x * level), min_size=1, max_size=7)
    return draw(st.lists(samples, min_size=1, max_size=5))


@quick
@given(sets(), st.sampled_from(["lower", "higher"]), names, names, names)
def test_a_baseline_accepts_what_it_was_made_of(tmp_path, trials, better, check, name, unit):
    case = Case(check=check, variant="v*", transport="tcp", nodes=2)
    given_results = [
        Results(
            trial=trial(case, trial=f"t{i}"),
            runs=[run(case, metric(v, name, unit, better), repeat=r) for r, v in enumerate(values)],
        )
        for i, values in enumerate(trials)
    ]
    path = tmp_path / "requirements.yaml"
    path.unlink(missing_ok=True)
    baseline: Baseline = write(path, *given_results, allow_few=True)
    assume(baseline.changes[0].action != "skipped")
    reqs = load_requirements(path)
    for r in given_results:
        assert verdict(r.trial, r.runs, reqs).verdict == "accept"


comment = st.sampled_from(["", "  # why\n", "\n", "\n# column 0\n\n", "      # deep\n"])


@quick
@given(st.lists(st.tuples(st.booleans(), comment), min_size=1, max_size=6), st.booleans())
def test_contracts_survive_byte_for_byte(tmp_path, items, final_newline):
    """Contracts between older baselines, some replaced and some not, with comments anywhere."""
    path = tmp_path / "requirements.yaml"
    text = "schema: 1\nrequirements:\n"
    contracts = []
    for i, (is_contract, note) in enumerate(items):
        if is_contract:
            block = CONTRACT.strip("\n").replace("netpipe", f"'c{i}'  ") + "\n"
            contracts.append(block)
        else:
            block = (
                f'  - select: {{check: b{i}, variant: "", transport: tcp, profile: default, '
                'nodes: 2, location: ""}\n'
                "    metric: latency_us\n    basis: baseline\n    reference: 1\n"
                "    upper: 0.1\n    unit: us\n"
            )
        text += block + note
    if not final_newline:
        text = text.rstrip("\n")
        contracts = [c.rstrip("\n") for c in contracts]
    path.write_text(text)
    names = ["new", *(f"{'c' if c else 'b'}{i}" for i, (c, _) in enumerate(items))]
    cases = [Case(check=name, transport="tcp", nodes=2) for name in names]
    runs = [r for case in cases for r in runs_of(case, [10, 10, 10])]
    baseline = write(path, Results(trial=trial(*cases), runs=runs))
    edited = path.read_text()
    position = 0
    for block in contracts:
        position = edited.index(block, position)
    rules = load_requirements(path).rules
    kinds = [rule.threshold.basis for rule in rules[: len(items)]]
    assert kinds == ["contract" if c else "baseline" for c, _ in items]
    assert all(r.threshold.reference == 10 for r in rules if r.threshold.basis == "baseline")
    assert [n for _, n in items if "#" in n] == [] or edited.count("#") == text.count("#")
    replaced = sum(change.action == "replaced" for change in baseline.changes)
    assert replaced == sum(not c for c, _ in items)


ACCEPTED = Accepted(
    change="2026-11-03-5f2a", by="J. Doe", when=date(2026, 11, 23), reason='the "new" cable'
)


def accept(path, *given, only, accepted=ACCEPTED):
    return write(path, *given, only=only, accepted=accepted)


def test_a_bound_far_from_its_level_is_named_unless_it_was_as_far_before(tmp_path):
    path = tmp_path / "requirements.yaml"
    name = "imb.openmpi-tcp.default.2n: latency_us"

    def wide(*values):
        return [line for line in write(path, imb_results(*values)).summary() if "wide" in line]

    assert wide(30, 30, 30) == []
    assert wide(30, 34, 38) == [
        f"wide {name}: its bound is 48.6 % from the level, until now 5 %: the figures scatter"
    ]
    assert wide(30, 34, 38) == []  # as far as before
    assert wide(30, 33, 36) == []  # nearer
    path.unlink()
    path.write_text(
        "schema: 1\nrequirements:\n  - {select: {check: imb}, metric: latency_us, basis: baseline, "
        "at_most: 100, unit: us}\n"
    )
    assert wide(30, 34, 38) == [
        f"wide {name}: its bound is 48.6 % from the level: the figures scatter"
    ]


def test_an_accepted_level_is_of_the_figures_of_its_change_only(tmp_path):
    path = tmp_path / "requirements.yaml"
    slow = [
        Results(
            trial=trial(PAIRS, trial=name),
            runs=[
                run(PAIRS, metric(value, location="n1-n2"), metric(50, location="n1-n3"), repeat=at)
                for at, value in enumerate((36, 36.1, 36.2))
            ],
            folder=tmp_path / name,
        )
        for name in ("t1", "t2")
    ]
    write(path, slow[0], locations="pooled")
    key = (PAIRS, "latency_us", "n1-n2")
    baseline = accept(path, *slow, only={key: {tmp_path / "t2"}})
    assert [(change.action, change.location) for change in baseline.changes] == [("added", "n1-n2")]
    requirements = load_requirements(path)
    pooled, new = (rule.threshold for rule in requirements.rules)
    assert pooled.select.location == "?*"
    assert new.select.location == "n1-n2"
    assert new.reference == 36.1
    assert new.source.startswith("3 samples of 1 trial, ")
    assert new.source.endswith('accepted 2026-11-23 by J. Doe: the "new" cable (2026-11-03-5f2a)')
    assert requirements.accepted == (ACCEPTED,)


def test_what_was_accepted_is_kept_in_any_layout(tmp_path):
    path = tmp_path / "requirements.yaml"
    path.write_text(SIGNED)
    key = {(IMB, "latency_us", None): {tmp_path / "t1"}}
    given_results = imb_results(30, 30.1, 30.2).model_copy(update={"folder": tmp_path / "t1"})
    accept(path, given_results, only=key)
    later = ACCEPTED.model_copy(update={"change": "2026-12-01-abcd", "reason": "yes: # no"})
    accept(path, given_results, only=key, accepted=later)
    assert load_requirements(path).accepted == (ACCEPTED, later)
    assert path.read_text().startswith(SIGNED.split("  # after annex B")[0])
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"was accepted on 2026-11-23 by J\. Doe"):
        accept(path, given_results, only=key)
    nothing = make_baseline(
        [given_results], path, only={}, accepted=later.model_copy(update={"change": "x"})
    )
    assert (nothing.text.encode(), nothing.written) == (before, [])


@pytest.mark.parametrize("field", ["by", "reason", "change"])
def test_an_acceptance_has_words(tmp_path, field):
    path = tmp_path / "requirements.yaml"
    entry = {"change": "c", "by": "b", "when": "2026-11-23", "reason": "r", field: '" "'}
    rows = [f"{key}: {value}" for key, value in entry.items()]
    path.write_text("schema: 1\naccepted:\n  - " + "\n    ".join(rows) + "\n")
    with pytest.raises(InputError, match=rf"accepted\.0\.{field}: it is empty"):
        load_requirements(path)
