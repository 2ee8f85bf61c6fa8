"""Whether the interrupts that were counted fit the interval that the card reports.

A driver or a program can report a coalescing value that the card does not follow. Only drivers of
Intel's cards are checked: theirs is a least interval between the interrupts of one vector
(InterruptThrottleRate of e1000 and e1000e, ITR or EITR in the datasheets of 82574, 82576, 82599 and
XL710). Other drivers interrupt earlier after a number of frames, so a rate shows nothing.
"""

from __future__ import annotations

import math
from typing import Any

from seatrial.nic.modes import MODES, RX
from seatrial.results.record import Run

DRIVERS = frozenset(
    ["e1000", "e1000e", "fm10k", "i40e", "iavf", "ice", "igb", "igbvf", "igc", "ixgbe", "ixgbevf"]
)
#: vectors of a driver that does not report its channels: one to receive, one to send
USUAL_VECTORS = 2
#: A card that follows the value stays at or below 1.01 times the rate that it allows (igb of the
#: virtual lab, 8053 of 8000 per second). QEMU's e1000e follows it roughly, up to 2.4 times.
TOLERANCE = 4.0


def fault(run: Run, interface: str) -> str:
    """Why a coalescing value of the interface has no effect; empty if nothing shows that."""
    for activity in run.activity:
        rate = activity.interrupts_per_s.get(interface)
        states = run.nic.get(activity.node, {}).get(interface, {})
        if rate is None or not states:
            continue
        most = max(_allowed(states.get(when)) for when in ("before", "after"))
        if rate > TOLERANCE * most:
            us = states["after"][RX]
            return (
                f"{activity.node}: {interface} reports {RX} {us}, which allows at most "
                f"{most:.0f} interrupts per second, but step {activity.step} had {rate:.0f}: the "
                "value "
                "has no effect"
            )
    return ""


def _allowed(state: Any) -> float:
    """Interrupts per second of all vectors of an interface; infinite: the state has no limit."""
    if not isinstance(state, dict) or state.get("coalesce.adaptive-rx") == "on":
        return math.inf
    driver, us = str(state.get("driver")), state.get(RX)
    if driver not in DRIVERS or not isinstance(us, int) or us <= 0:
        return math.inf
    if us in MODES.get(driver, {}).get(RX, {}):
        return math.inf
    counts = [state.get(f"channels.{kind}") for kind in ("combined", "rx", "tx")]
    vectors = sum(count for count in counts if isinstance(count, int)) or USUAL_VECTORS
    return vectors * 1e6 / us
