"""Which error counters of the interfaces moved in a step, from the wrapper's readings.

The nodes record the counters (``node/wire.py``). Here they are only subtracted: the findings of the
trial name them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from seatrial.results.record import WireErrors

MOST_COUNTERS = 50  # of one interface: a job user can write the readings


def moved(nodes: Iterable[dict[str, Any]]) -> list[WireErrors]:
    """One for each interface of a step with a counter that increased."""
    errors = []
    for node in nodes:
        before, after = node["before"], node["after"]
        for name, now in after["interfaces"].items():
            was = before["interfaces"].get(name, {}).get("errors")
            counts = {
                counter: count - was[counter]
                for counter, count in now.get("errors", {}).items()
                if was and count > was.get(counter, count)
            }
            if counts:
                errors.append(
                    WireErrors(
                        node=after["node"],
                        interface=name,
                        counts=dict(list(counts.items())[:MOST_COUNTERS]),
                    )
                )
    return errors


def total(errors: Iterable[WireErrors]) -> list[WireErrors]:
    """The sum of several steps, one for each node and interface."""
    sums: dict[tuple[str, str], WireErrors] = {}
    for error in errors:
        key = (error.node, error.interface)
        if key not in sums:
            sums[key] = error.model_copy(deep=True)
            continue
        counts = sums[key].counts
        for counter, count in error.counts.items():
            counts[counter] = counts.get(counter, 0) + count
    return list(sums.values())
