"""What of a finding is accepted: what the trials until then showed, and no more."""

from __future__ import annotations

from datetime import timedelta

from history_support import BEGIN, NETPIPE, make_night, runs_of
from seatrial.history import accept
from seatrial.history.changes import findings
from seatrial.history.index import opened
from seatrial.results.requirements import Accepted

NOISE = (0.3, -0.2, 0.1, -0.4, 0.2)


def test_what_a_trial_shows_later_on_the_day_of_the_acceptance_is_not_accepted(tmp_path):
    """Each night has its trial at 22:00. A person accepts the first series in the morning."""
    for number in range(20):
        runs = []
        for metric, factor in (("latency_us", 1.25), ("half_us", 1.5)):
            begin = 10 if metric == "latency_us" else 12
            size = 30 * (factor if number >= begin else 1)
            values = [size * (1 + NOISE[(number + at) % 5] / 100) for at in range(3)]
            kernel = {"kernel": "6.12" if number >= 10 else "6.1"}
            runs += runs_of(NETPIPE, metric, values, versions=kernel)
        make_night(tmp_path, number, (1, 2, 3), runs=runs)
        with opened(tmp_path, print) as index:
            own = findings(index)
            if own and len(own[0].changes) == 1:
                level = accept.new_level(index, own[0].id, "lab")
                assert level.newest == BEGIN + timedelta(days=number)
    accepted = Accepted(
        change=own[0].id, by="J. Doe", reason="wanted", newest=level.newest,
        when=(level.newest + timedelta(hours=11)).date(),
    )  # fmt: skip
    (later,) = accept.joined(own[0], accepted)
    assert later.series.metric == "half_us"
    assert later.found.started.date() == accepted.when
    older = accepted.model_copy(update={"newest": None})
    assert accept.joined(own[0], older) == []
