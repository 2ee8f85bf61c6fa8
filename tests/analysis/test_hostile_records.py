"""Numbers that a job user may write into the evidence of a run: a word, and no conclusion."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis_maker import (
    MYRINET_RECV,
    MYRINET_SEND,
    app,
    measured,
    mpi_fact,
    npb_time,
    repeated,
    stream,
    trial,
    with_shares,
)
from campaigns import rounds
from hostile import ODD_NUMBERS, paths_of, replaced
from seatrial.analysis.conclusion import absurd
from seatrial.analysis.trials import analyse
from seatrial.report.meaning.sections import sections
from seatrial.results.record import Case, Curve, Run

HUGE = [10**400, -(10**400), 1e300, 1e-300, 1e200, 1e-200, 1e31, 1e-31, 1e29, 1e-29, 2**63]
#: of a record, what the analysis computes with
COMPUTED = ("metrics", "curves", "facts")


def netpipe(profile: str, factor: float, repeat: int) -> Run:
    points = [(float(2**k), factor * (10 + 2**k / 100) * (1 + repeat / 1000)) for k in range(16)]
    curve = Curve(name="netpipe", y_name="latency", y_unit="us", points=points)
    case = Case(check="netpipe", transport="tcp", profile=profile, nodes=2)
    return Run(case=case, repeat=repeat, round=repeat, outcome="ran", curves=[curve])


def runs() -> list[Run]:
    """At least two runs of what each method of the analysis is of."""
    facts = {"eager_limit_B": 10_240, "repetitions": 300}
    made = [
        *with_shares("is.S", 0.5, default=100.0, jumbo=150.0)[::3],
        *repeated("npb", "ep.S", 2, default=100.0, jumbo=101.0),
        *(npb_time("ft.A", p, 1 + 40 / p).run for p in (2, 4, 8, 16) for _ in range(2)),
        *(netpipe(p, f, r) for p, f in (("default", 1.0), ("jumbo", 2.0)) for r in range(2)),
        *(measured(MYRINET_SEND, MYRINET_RECV, facts).run for _ in range(2)),
        *(stream(p, 100.0, 50.0, 50.0, r) for p in ("default", "jumbo") for r in range(2)),
    ]
    for number, scale in enumerate((1, 1.1, 1.2, 90, 91, 92)):  # two groups of three cases
        one = app("npb", f"cg.{'SWABCD'[number]}", "default", 100.0)
        one.facts["mpi"] = mpi_fact(0.5) | {"bytes": int(3000 * scale), "calls": int(40 * scale)}
        made.append(one)
    for repeat in range(2):
        made.append(app("hpl", "", "default", 10.0, repeat))
        made[-1].facts.update(N=2000, mpi=mpi_fact(0.2, performance=9.9))
    return [
        Run.model_validate(one.model_dump() | {"repeat": number}) for number, one in enumerate(made)
    ]


def said(results) -> list[str]:
    return [
        f"{s.word}: {s.text} {s.basis} {s.change}"
        for part in sections(analyse([results]))
        for s in part.sentences
    ]


RUNS = runs()


def test_the_made_up_trial_has_all_kinds_of_conclusions():
    made = analyse([trial(RUNS)])
    for name in ("responses", "comparisons", "call_times", "scalings", "shares", "groups", "costs"):
        assert getattr(made, name), name
    assert not [one for one in made.missing if one.what == "usable runs"]


@settings(max_examples=rounds(15, 3000), derandomize=True, database=None, deadline=None)
@given(data=st.data())
def test_no_number_of_a_record_ends_in_a_traceback_or_in_an_infinite_figure(data):
    changed = list(RUNS)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed) - 1))
        record = json.loads(changed[at].model_dump_json())
        own = {name: record[name] for name in COMPUTED if record[name]}
        numbers = [
            path
            for path in paths_of(own)
            if isinstance(_at(own, path), int | float) and not isinstance(_at(own, path), bool)
        ]
        path = data.draw(st.sampled_from(numbers))
        own = replaced(own, path, data.draw(st.sampled_from(HUGE + ODD_NUMBERS)))
        try:
            changed[at] = Run.model_validate({**record, **own})
        except ValueError:  # it is refused when it is read
            continue
    with np.errstate(over="raise", invalid="raise"):
        texts = said(trial(changed))
    assert not [t for t in texts if re.search(r"infinite|not a number|e[+-][1-9]\d\d", t)]


def _at(value, path):
    for part in path:
        value = value[part]
    return value


@pytest.mark.parametrize(
    ("check", "change", "word"),
    [
        ("comms", lambda r: r.curves[0].points.__setitem__(3, (100.0, 1e300)), "a point of comms"),
        ("hpl", lambda r: r.facts.update(N=10**200), "the fact N is beyond 1e+30"),
        ("netpipe", lambda r: r.curves[0].points.__setitem__(1, (4.0, 1e-300)), "less than 1e-30"),
        ("npb", lambda r: r.facts["mpi"].update(calls=10**400), "the fact mpi.calls is beyond"),
        ("npb", lambda r: r.facts["mpi"].update(bytes=10**400), "the fact mpi.bytes is beyond"),
        ("npb", lambda r: setattr(r.metrics[0], "value", float("nan")), "mops is no number"),
    ],
)
def test_a_run_with_an_absurd_number_is_left_out_with_the_reason(check, change, word):
    changed = [run.model_copy(deep=True) for run in RUNS]
    own = next(one for one in changed if one.case.check == check)
    change(own)
    assert word in absurd(own)
    [text] = [text for text in said(trial(changed)) if "usable runs" in text]
    assert text.startswith(f"not known: No complete set of usable runs of {own.case.id} in t1: ")
    assert word in text
