"""Settings compared: what is the same, hidden, lacking in a driver, or said of each queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.nic.node import values
from seatrial.nic.node.cpus import cpu_mask, cpu_set
from seatrial.nic.node.errors import Refused
from seatrial.nic.node.settings import group_of

CPUS = st.sets(st.integers(0, 300), min_size=1)


def as_list(cpus: set[int]) -> str:
    """As the kernel prints it: 0-3,8."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][-1] == cpu - 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


@given(CPUS)
def test_lists_of_cpus_there_and_back(cpus: set[int]) -> None:
    assert cpu_set(as_list(cpus)) == cpus
    assert cpu_set(",".join(map(str, cpus))) == cpus


@pytest.mark.parametrize("group", ["coalesce", "pause"])
def test_a_value_behind_a_switch_that_is_on_is_not_in_force(group: str) -> None:
    """Whether the profile names the switch or not: the driver moves the value by itself."""
    key, switch = {
        "coalesce": ("coalesce.rx-usecs", "coalesce.adaptive-rx"),
        "pause": ("pause.rx", "pause.autoneg"),
    }[group]
    found = values.differences({key: 125}, {key: 125, switch: "on"})
    assert found == [(switch, "off", "on")]
    assert values.differences({key: 125}, {key: 125, switch: "off"}) == []
    assert values.differences({key: 125}, {key: 125, switch: None}) == []
    assert values.differences({key: 125, switch: "on"}, {key: 9, switch: "on"}) == []


@pytest.mark.parametrize(
    ("wanted", "actual", "same"),
    [
        (1, "Y", True), ("1", "Y", True), ("0", "Y", False), ("on", "Y", False), ("y", "Y", True),
        ("0x10", "16", True), ("0,0", "0", True), ("3000,3000", "3000,3000", True),
        ("8000", "3000", False), ("010", "010", True), ("auto", "auto", True), ("auto", "1", False),
    ],
)  # fmt: skip
def test_a_parameter_is_as_wanted_however_the_kernel_prints_it(
    wanted: int | str, actual: str, same: bool
) -> None:
    assert values.same_parameter(wanted, actual) is same


NO, ASKED = "off", "off [requested on]"


@pytest.mark.parametrize(
    ("feature", "parts", "on"),
    [
        # With tx_checksum off the kernel does not grant these, whoever asks.
        ("tcp-segmentation-offload", {"tx-tcp-segmentation": ASKED, "tx-tcp6-segmentation": ASKED,
                                      "tx-tcp-accecn-segmentation": "on"}, False),
        ("tcp-segmentation-offload", {"tx-tcp-segmentation": NO,
                                      "tx-tcp-accecn-segmentation": "on"}, False),
        ("tx-checksumming", {"tx-checksum-ip-generic": NO, "tx-checksum-sctp": "on"}, False),
        ("scatter-gather", {"tx-scatter-gather": ASKED, "tx-scatter-gather-fraglist": "on"}, False),
        # Of a bridge or a bond above a card that lacks the other one; a card without IPv6.
        ("scatter-gather", {"tx-scatter-gather": "on", "tx-scatter-gather-fraglist": ASKED}, True),
        ("tcp-segmentation-offload", {"tx-tcp-segmentation": "on", "tx-tcp6-segmentation": NO,
                                      "tx-tcp-mangleid-segmentation": ASKED}, True),
        ("tx-checksumming", {"tx-checksum-ipv4": "on", "tx-checksum-ipv6": NO}, True),
        ("scatter-gather", {}, True),
    ],
)  # fmt: skip
def test_a_sum_of_features_is_on_where_tcp_has_it(
    feature: str, parts: dict[str, str], on: bool
) -> None:
    """ethtool's sum is on in all of these states."""
    state = {f"feature.{name}": value for name, value in {feature: "on", **parts}.items()}
    found = values.differences({f"feature.{feature}": "on"}, state)
    assert found == ([] if on else [(f"feature.{feature}", "on", "off")])
    assert len(values.differences({f"feature.{feature}": "off"}, state)) == 1
    assert values.not_restored(state, state) == []


@given(st.sets(st.integers(0, 300)))
def test_masks_of_cpus(cpus: set[int]) -> None:
    mask = cpu_mask(cpus)
    groups = mask.split(",")
    assert all(len(group) == 8 for group in groups[1:])
    number = int(mask.replace(",", ""), 16)
    assert {cpu for cpu in range(301) if number >> cpu & 1} == cpus


@given(CPUS, st.integers(0, 3))
def test_the_same_cpus_written_otherwise(cpus: set[int], groups: int) -> None:
    padded = "00000000," * groups + cpu_mask(cpus)
    assert values.same("rps.rx-0", cpu_mask(cpus), padded, exact=True)
    one_by_one = ",".join(str(cpu) for cpu in sorted(cpus, reverse=True))
    assert values.same("irq.0", as_list(cpus), one_by_one, exact=True)
    assert not values.same("irq.0", as_list(cpus), as_list(cpus | {999}), exact=True)


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,,2", "1;2", "1\n", "9" * 9, "0x1"])
def test_what_is_no_list_of_cpus(text: str) -> None:
    if text != "1\n":  # a line's end is stripped with blanks
        with pytest.raises(ValueError, match="list of CPUs"):
            cpu_set(text)


def test_unsupported_is_not_zero() -> None:
    assert values.differences({"coalesce.rx-usecs": 0}, {"coalesce.rx-usecs": None}) == [
        ("coalesce.rx-usecs", 0, None)
    ]
    assert values.unsupported({"coalesce.rx-usecs": 0}, {}) == ["coalesce.rx-usecs"]
    assert values.unsupported({"coalesce.rx-usecs": 0}, {"coalesce.rx-usecs": 0}) == []
    assert [one.setting for one in values.not_restored({"mtu": 0}, {"mtu": None})] == ["mtu"]
    assert values.shown(None) == "unsupported"
    assert values.shown(0) == "0"


def test_no_moderation_is_as_good_as_moderation_off() -> None:
    wanted = {"coalesce.adaptive-rx": "off", "coalesce.cqe-mode-rx": "off"}
    assert values.unsupported(wanted, {}) == []
    assert values.differences(wanted, {}) == []
    assert values.unsupported({"coalesce.adaptive-rx": "on"}, {}) == ["coalesce.adaptive-rx"]


def test_what_adaptive_moderation_moves_is_not_compared() -> None:
    before = {"coalesce.adaptive-rx": "on", "coalesce.rx-usecs": 50, "coalesce.tx-usecs": 1}
    now = {"coalesce.adaptive-rx": "on", "coalesce.rx-usecs": 8, "coalesce.tx-usecs": 2}
    assert [one.setting for one in values.not_restored(before, now)] == ["coalesce.tx-usecs"]
    off = {**now, "coalesce.adaptive-rx": "off"}
    assert values.not_restored({**before, "coalesce.tx-usecs": 2}, off)[0].wanted == "on"


def test_values_for_low_and_high_rates_are_settings_while_it_is_on() -> None:
    before = {"coalesce.adaptive-rx": "on", "coalesce.rx-usecs-low": 1, "coalesce.pkt-rate-low": 2}
    now = {"coalesce.adaptive-rx": "on", "coalesce.rx-usecs-low": 9, "coalesce.pkt-rate-low": 3}
    assert len(values.not_restored(before, now)) == 2
    assert len(values.differences(before, now)) == 2


BOTH_ON = {"coalesce.adaptive-rx": "on", "coalesce.adaptive-tx": "on"}


@pytest.mark.parametrize(
    ("wanted", "sides"),
    [
        ({"mtu": 9000}, []),
        ({"coalesce.rx-usecs": 0}, ["rx"]),
        ({"coalesce.rx-frames-irq": 0, "coalesce.tx-frames": 1}, ["rx", "tx"]),
        ({"coalesce.adaptive-tx": "off"}, ["tx"]),
        # These need it on, or have nothing to do with it.
        ({"coalesce.rx-usecs-low": 3}, []),
        ({"coalesce.cqe-mode-rx": "on"}, []),
        ({"coalesce.stats-block-usecs": 1}, []),
        ({"coalesce.adaptive-rx": "on", "coalesce.rx-usecs": 3}, []),
    ],
)
def test_where_adaptive_moderation_must_be_off_to_see_what_it_hides(
    wanted: dict, sides: list[str]
) -> None:
    names = ["coalesce.adaptive-" + side for side in sides]
    assert values.switches_to_turn_off(wanted, BOTH_ON) == names
    assert values.switches_to_turn_off(wanted, {}) == []


def test_static_values_of_one_side() -> None:
    state = {**BOTH_ON, "coalesce.rx-usecs": 3, "coalesce.rx-frames": None, "coalesce.tx-usecs": 4,
             "coalesce.rx-usecs-low": 5}  # fmt: skip
    assert values.hidden_values(state, ["coalesce.adaptive-rx"]) == {"coalesce.rx-usecs": 3}


def test_features_that_were_asked_for_and_did_not_come() -> None:
    now = {"feature.tx-x": "off [requested on]"}
    assert values.differences({"feature.tx-x": "off"}, now) == []
    assert values.differences({"feature.tx-x": "on"}, now)
    assert values.not_restored({"feature.tx-x": "off"}, now)


def test_interfaces_never_up_have_no_queueing_discipline_yet() -> None:
    assert values.not_restored({"qdisc": "default noop"}, {"qdisc": "default mq"}) == []
    assert values.not_restored({"qdisc": "default noop"}, {"qdisc": "tbf {}"})
    assert values.not_restored({"qdisc": "default mq"}, {"qdisc": "default fq"})


def test_a_bond_that_is_left_over_is_seen_and_what_follows_is_not_said_twice() -> None:
    assert values.not_restored({"master": None}, {"master": "bond1"})
    assert values.not_restored({"egress_bit_s": None}, {"egress_bit_s": 8}) == []


def test_rates_are_whole_bytes() -> None:
    assert values.differences({"egress_bit_s": 10**9 + 7}, {"egress_bit_s": 10**9}) == []
    assert values.differences({"egress_bit_s": 10**9 + 8}, {"egress_bit_s": 10**9})


QUEUES = {"rps.rx-0": "0", "rps.rx-1": "0", "rps.rx-10": "0", "rps.rx-2": "0", "xps.tx-0": None}


def test_what_is_for_all_queues_is_for_each_of_them() -> None:
    found = values.spread({"rps_cpus": "all", "mtu": 9}, QUEUES, [0, 1, 4])
    assert found == {
        "mtu": 9, "rps.rx-0": "13", "rps.rx-1": "13", "rps.rx-2": "13", "rps.rx-10": "13",
    }  # fmt: skip
    assert values.spread({"rps_cpus": "none"}, QUEUES, [0])["rps.rx-1"] == "0"
    assert values.spread({"rps_cpus": "1-9"}, QUEUES, [0, 1, 4])["rps.rx-1"] == "12"
    # A queue that has no such file is none.
    assert values.spread({"xps_cpus": "all"}, QUEUES, [0]) == {"xps_cpus": "all"}
    assert values.unsupported({"xps_cpus": "all"}, QUEUES) == ["xps_cpus"]


def test_spread_interrupts_in_the_order_of_their_lines() -> None:
    lines = {f"irq.{index}": "0-3" for index in (10, 2, 0, 1)}
    found = values.spread({"irq_affinity": "spread"}, lines, [0, 2, 5])
    assert found == {"irq.0": "0", "irq.1": "2", "irq.2": "5", "irq.10": "0"}
    assert values.spread({"irq_affinity": "2-9"}, lines, [0, 2, 5])["irq.1"] == "2,5"
    assert values.spread({"rps_flow_cnt": 64}, {"rps_flows.rx-0": "0"}, [0]) == {
        "rps_flows.rx-0": "64"
    }


def test_masks_kept_from_before_a_reload_are_masks_and_each_of_its_queue() -> None:
    before = {"rps.rx-0": "0000,00000000", "rps.rx-1": "0", "rps_flows.rx-1": "64"}
    after = {"rps.rx-0": "0", "rps.rx-1": "3", "rps_flows.rx-0": "0", "rps_flows.rx-1": "0"}
    assert values.spread(before, after, [1, 2]) == before


def test_queues_that_there_will_be() -> None:
    two = {"channels.combined": 2, "rps.rx-0": "1", "rps.rx-1": "2", "xps.tx-0": None}
    assert values.with_queues(two, {"channels.combined": 1}) == {
        "channels.combined": 2, "rps.rx-0": "1", "xps.tx-0": None,
    }  # fmt: skip
    more = values.with_queues(two, {"channels.combined": 3})
    assert more == {**two, "rps.rx-2": ""}
    assert values.with_queues(two, {"mtu": 1}) == two
    assert "rps.rx-2" in values.with_queues(two, {"channels.rx": 1})


@pytest.mark.parametrize("cpus", ["7", "x", "2-1"])
@pytest.mark.parametrize("setting", ["rps_cpus", "irq_affinity"])
def test_cpus_that_the_node_does_not_have(setting: str, cpus: str) -> None:
    """A mask of nothing would switch steering off, which is not what was asked for."""
    with pytest.raises(Refused, match=setting):
        values.spread({setting: cpus}, {"rps.rx-0": "0", "irq.0": "0"}, [0, 1])


@pytest.mark.parametrize(
    ("key", "group"),
    [("coalesce.rx-usecs", "coalesce"), ("rps.rx-0", "rps_cpus"), ("xps_cpus", "xps_cpus"),
     ("irq.3", "irq_affinity"), ("rps_flows.rx-1", "rps_flow_cnt"), ("mtu", "mtu")],
)  # fmt: skip
def test_groups_as_if_supported_names_them(key: str, group: str) -> None:
    assert group_of(key) == group
