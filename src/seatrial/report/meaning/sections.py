"""The order of the parts."""

from __future__ import annotations

from seatrial.analysis.axis import NETWORK, PROFILE, SETTING, TRANSPORT
from seatrial.analysis.trials import Analysis
from seatrial.report.chapter import Section
from seatrial.report.meaning import (
    calls,
    costs,
    frames,
    groups,
    missing,
    pairs,
    responses,
    scaling,
    shares,
    short,
    sizes,
    values,
)


def sections(analysis: Analysis) -> list[Section]:
    """The sections that have something to say, in the order of a reader's questions."""
    made = [
        responses.section(analysis),
        shares.section(analysis.relations, analysis.shares),
        costs.section(analysis.costs),
        sizes.section(PROFILE, analysis.comparisons_of(PROFILE)),
        *(
            part
            for axis in (NETWORK, TRANSPORT, SETTING)
            for part in responses.of_axis(analysis, axis)
        ),
        calls.section(analysis.call_times),
        scaling.section(analysis.scalings),
        frames.section(analysis.sweeps),
        pairs.section(analysis.pairs),
        groups.section(analysis.groups),
        values.section(analysis.values, analysis.gains),
        missing.section(analysis),
    ]
    made = [section.with_shared_words() for section in made if section.sentences]
    return [short.section(analysis).with_shared_words(), *made] if made else []
