"""What ci/bench/clocks.py finds in a trace of a guest's kernel, which its lab recorded."""

from __future__ import annotations

import sys

import pytest

from seatrial.base.paths import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "ci/bench"))
from clocks import STALE_NS, interrupt_figures

TRACE = """\
# tracer: nop
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
     migration/0-16      [000] d..3. 2331678843408: smp_send_reschedule: (native_smp_send_reschedule+0x0/0x40) target=3
          <idle>-0       [003] dnh1. 2331678844308: reschedule_entry: vector=253
     migration/0-16      [000] d..3. 2331679020008: smp_send_reschedule: (native_smp_send_reschedule+0x0/0x40) target=2
          <idle>-0       [002] dnh1. 2331679020907: reschedule_entry: vector=253
          clocks-276     [002] ...1. 2331679070922: send_call_func_single_ipi: (native_send_call_func_single_ipi+0x0/0x20) target=3
          clocks-274     [003] d.h.. 2331679072135: call_function_single_entry: vector=251
          clocks-275     [001] d..2. 2331679147404: smp_send_reschedule: (native_smp_send_reschedule+0x0/0x40) target=3
          clocks-274     [003] d.h.. 2331679148298: reschedule_entry: vector=253
"""  # noqa: E501
SENT, TAKEN = 2331679147404, 2331679148298  # the last one


def test_each_interrupt_is_paired_with_the_message_that_sent_it() -> None:
    assert interrupt_figures(TRACE, 3) == {
        "signals_number": 2, "signals_early": 0, "signals_earliest_ns": 0, "signals_unsent": 0,
        "barriers_number": 1, "barriers_early": 0, "barriers_earliest_ns": 0, "barriers_unsent": 0,
    }  # fmt: skip


@pytest.mark.parametrize("before", [1, 745, 99_000])
def test_one_that_is_taken_before_it_was_sent_is_early(before: int) -> None:
    seen = interrupt_figures(TRACE.replace(str(TAKEN), str(SENT - before)), 3)
    assert (seen["signals_early"], seen["signals_earliest_ns"]) == (1, before)
    assert seen["signals_unsent"] == 0


def test_two_that_are_taken_as_one_hide_no_early_one() -> None:
    """The kernel sends some as well, which the receiver takes together with another."""
    later = TAKEN + 2 * STALE_NS
    more = (
        f"  clocks-2  [001] d..2. {TAKEN - 10}: smp_send_reschedule: (x) target=3\n"
        f"  clocks-2  [003] d.h.. {later - 50_000}: reschedule_entry: vector=253\n"
        f"  clocks-2  [001] d..2. {later}: smp_send_reschedule: (x) target=3\n"
    )
    seen = interrupt_figures(TRACE + more, 3)
    assert (seen["signals_early"], seen["signals_earliest_ns"]) == (1, 50_000)


def test_one_that_nobody_sent_is_not_paired_with_a_later_one() -> None:
    lines = [line for line in TRACE.splitlines() if str(SENT) not in line]
    later = TAKEN + 2 * STALE_NS
    lines += [
        f"  clocks-2  [001] d..2. {later}: smp_send_reschedule: (x) target=3",
        f"  clocks-2  [003] d.h.. {later + 900}: reschedule_entry: vector=253",
    ]
    seen = interrupt_figures("\n".join(lines), 3)
    assert (seen["signals_number"], seen["signals_unsent"], seen["signals_early"]) == (3, 1, 0)
