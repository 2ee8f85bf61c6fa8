"""The profiles that come with Seatrial: complete, documented, and as their sources say."""

from __future__ import annotations

import pytest

from seatrial.nic.inheritance import resolve
from seatrial.nic.library import ready_profiles

NAMES = [
    "default", "low-latency", "bulk", "jumbo", "cpu-saving", "e1000-no-throttle", "mtu-6000",
    "e1000-no-throttle-mtu-6000", "tg3-like", "bcm5700-like", "bcm5700-modified", "fast-ethernet",
    "gigabit",
]  # fmt: skip


def settings(name: str) -> dict:
    return resolve(name, ready_profiles()).settings("test")


def test_those_that_were_promised_are_there():
    assert list(ready_profiles()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_says_what_it_is_for_and_where_its_values_come_from(name):
    profile = ready_profiles()[name]
    assert profile.description
    assert len(profile.source) > 40


def test_the_eight_node_clusters_settings():
    driver = settings("e1000-no-throttle")["driver"]
    assert driver["module"] == "e1000"
    values = {key: set(text.split(",")) for key, text in driver["parameters"].items()}
    assert values == {"InterruptThrottleRate": {"0"}, "RxIntDelay": {"0"}, "RxAbsIntDelay": {"0"}}
    both = settings("e1000-no-throttle-mtu-6000")
    assert both == {"driver": driver, "mtu": 6000}
    assert settings("mtu-6000") == {"mtu": 6000}


def test_the_two_broadcom_drivers_differ_as_the_paper_found():
    """bcm5700 holds interrupts back longest; modified, it comes near tg3."""
    tg3, bcm, modified = (
        settings(name) for name in ("tg3-like", "bcm5700-like", "bcm5700-modified")
    )
    for key in ("coalesce.rx-usecs", "coalesce.rx-frames"):
        assert tg3[key] <= modified[key] < bcm[key]
    assert tg3["coalesce.rx-usecs"] == 20  # the kernel's own default
    for found in (tg3, bcm, modified):
        assert found["coalesce.adaptive-rx"] == "off"  # else the values would mean nothing


@pytest.mark.parametrize("name", ["tg3-like", "bcm5700-like", "bcm5700-modified"])
def test_values_that_no_paper_published_are_said_to_be_chosen(name):
    source = ready_profiles()[name].source
    assert "not published" in source or "no coalescing values" in source


def test_slower_fabrics_limit_the_sender():
    assert settings("fast-ethernet") == {"egress_bit_s": 100_000_000}
    assert settings("gigabit") == {"egress_bit_s": 1_000_000_000}


def test_latency_is_paid_with_interrupts_in_this_order():
    delays = [settings(name)["coalesce.rx-usecs"] for name in ("low-latency", "bulk", "cpu-saving")]
    assert delays == sorted(set(delays))
    assert delays[0] == 0


@pytest.mark.parametrize("kind", ["latency-bound", "communication-bound", "compute-bound"])
def test_every_kind_of_application_has_a_profile(kind):
    assert any(kind in (profile.suits or []) for profile in ready_profiles().values())
