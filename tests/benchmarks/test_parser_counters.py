"""Byte counters: their differences, and the reason that names the way of the traffic."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.benchmarks.parsing import ParseError
from seatrial.checks import counters
from seatrial.checks.counters import diff, kernel_volume, ports_not_in_use, prove
from seatrial.checks.evidence import combine
from seatrial.results.record import Counters, PathProof


def snapshot(node: str = "n1", time: float = 1.0, **bytes_: int) -> dict[str, Any]:
    """``eth1=5``: an interface with that many bytes each way; eth0 is the management network."""
    networks = {"eth0": "mgmt", "eth1": "test", "eth2": "test", "bond0": "test", "lo": "loopback"}
    return {
        "node": node,
        "boot_id": "b1",
        "time": time,
        "interfaces": {
            name: {
                "network": networks[name],
                "rx_bytes": count,
                "tx_bytes": count,
                "rx_packets": count // 100,
                "tx_packets": count // 100,
                "mtu": 1500,
                "driver": "veth",
            }
            for name, count in bytes_.items()
        },
        "interrupts": dict.fromkeys(bytes_),
    }


def read(*data: dict[str, Any]) -> list[counters.Snapshot]:
    return [counters.parse(one) for one in data]


def carried(node: str, **bytes_: int) -> list[Counters]:
    zero = dict.fromkeys(bytes_, 0)
    return diff(read(snapshot(node, **zero)), read(snapshot(node, 2.0, **bytes_)))


def test_difference() -> None:
    before, after = snapshot(eth0=10, eth1=1000), snapshot(time=2.0, eth0=30, eth1=5000)
    before["interrupts"]["eth1"], after["interrupts"]["eth1"] = 7, 19
    counted = diff(read(before), read(after))
    assert [(c.interface, c.rx_bytes, c.rx_packets, c.interrupts) for c in counted] == [
        ("eth0", 20, 0, None),
        ("eth1", 4000, 40, 12),
    ]


@given(st.integers(1, 2**63), st.integers(0, 2**63), st.sampled_from(counters.COUNTS))
def test_a_reset_counter_is_never_a_difference(before: int, less: int, key: str) -> None:
    old, new = snapshot(eth1=0), snapshot(time=2.0, eth1=0)
    old["interfaces"]["eth1"][key] = before
    new["interfaces"]["eth1"][key] = min(less, before - 1)
    with pytest.raises(ParseError, match=f"n1: eth1: {key} went from"):
        diff(read(old), read(new))


def test_missing_and_changed_interfaces() -> None:
    good = snapshot(eth1=1)
    with pytest.raises(ParseError, match="n2: no counters were taken after"):
        diff(read(good, snapshot("n2", eth1=1)), read(good))
    with pytest.raises(ParseError, match="n2: no counters were taken before"):
        diff(read(good), read(good, snapshot("n2", eth1=1)))
    with pytest.raises(ParseError, match="interface eth2 is missing after"):
        diff(read(snapshot(eth1=1, eth2=1)), read(good))
    with pytest.raises(ParseError, match="restarted"):
        diff(read(good), read({**good, "boot_id": "b2"}))
    with pytest.raises(ParseError, match="older"):
        diff(read(good), read({**good, "time": 0.5}))
    with pytest.raises(ParseError, match="twice"):
        diff(read(good, good), read(good))
    with pytest.raises(ParseError, match="at least one snapshot"):
        diff([], [])
    seen = {**good, "interrupts": {"eth1": 4}}
    with pytest.raises(ParseError, match="on one side"):
        diff(read(good), read(seen))
    with pytest.raises(ParseError, match="interrupts went from 4 to 3"):
        diff(read(seen), read({**good, "interrupts": {"eth1": 3}}))
    moved = snapshot(eth1=1)
    moved["interfaces"]["eth1"]["network"] = "other"
    with pytest.raises(ParseError, match="moved from test to other"):
        diff(read(good), read(moved))


@pytest.mark.parametrize(
    "change",
    [
        {"node": ""},
        {"boot_id": None},
        {"time": float("nan")},
        {"time": "1"},
        {"interfaces": {}},
        {"interfaces": {"eth1": 3}},
        {"interfaces": {"eth1": {"network": "test", "rx_bytes": 1}}},
        {"interrupts": {"eth1": -1}},
        {"interrupts": []},
    ],
)
def test_a_damaged_snapshot(change: dict[str, Any]) -> None:
    with pytest.raises(ParseError):
        read({**snapshot(eth1=1), **change})


@pytest.mark.parametrize("data", [None, 3, "{}", [], {}])
def test_a_snapshot_is_an_object(data: Any) -> None:
    with pytest.raises(ParseError):
        counters.parse(data)


def test_a_bond_counts_once() -> None:
    def bonded(time: float, slave: int, master: int) -> dict[str, Any]:
        data = snapshot(time=time, eth1=slave, eth2=slave, bond0=master)
        for name in ("eth1", "eth2"):
            data["interfaces"][name]["master"] = "bond0"
        return data

    counted = diff(read(bonded(1.0, 0, 0)), read(bonded(2.0, 50, 100)))
    assert [c.interface for c in counted] == ["bond0"]
    assert prove("test", 200, counted).crossed
    assert not prove("test", 201, counted).crossed


def test_crossed() -> None:
    taken = carried("n1", eth0=5, eth1=300) + carried("n2", eth0=5, eth1=300)
    proof = prove("test", 600, taken, program="NetPIPE", reported="btl tcp")
    assert proof.crossed
    assert proof.reason == ""
    assert proof.reported == "btl tcp"
    assert not prove("test", 601, taken).crossed
    assert prove("test", 601, taken, tolerance=0.01).crossed
    # Independent interfaces of one network share the load.
    assert prove("test", 600, carried("n1", eth1=150, eth2=150)).crossed


def test_the_management_network_was_used() -> None:
    good = carried("n1", eth0=0, eth1=280_000_000)
    bad = carried("n2", eth0=280_500_000, eth1=6_500)
    proof = prove("test", 559_000_000, good + bad, program="NetPIPE")
    assert not proof.crossed
    assert proof.reason == (
        "n2: eth1 carried 13 kB of the 559 MB that NetPIPE moved; "
        "eth0 (mgmt) carried 561 MB: the management network was used"
    )


def test_it_did_not_leave_the_node() -> None:
    shared = prove("test", 559_000_000, carried("n1", eth0=900, eth1=6_500), program="NetPIPE")
    assert shared.reason == (
        "n1: eth1 carried 13 kB of the 559 MB that NetPIPE moved; "
        "no other interface carried it: it did not leave the node: shared memory"
    )
    loop = prove("test", 1000, carried("n1", eth1=0, lo=600))
    assert loop.reason.endswith("lo carried 1.2 kB: it did not leave the node: loopback")


def test_partly_nowhere_and_nothing() -> None:
    partly = prove("test", 1000, carried("n1", eth1=400))
    assert partly.reason.endswith("no other interface carried the rest")
    none = prove("test", 1000, carried("n1", eth0=600))
    assert "it has no interface on the network test" in none.reason
    assert none.reason.endswith("the management network was used")
    assert not prove("test", 0, []).crossed
    nothing = prove("test", 0, carried("n1", eth1=0), program="EP")
    assert nothing.crossed
    assert nothing.reason == "EP moves no volume that could prove a path"


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=5), st.integers(1, 10**10))
def test_every_node_must_have_carried_the_volume(volumes: list[int], required: int) -> None:
    taken = [c for i, v in enumerate(volumes) for c in carried(f"n{i}", eth0=10**10, eth1=v)]
    proof = prove("test", required, taken)
    assert proof.crossed == all(2 * v >= required for v in volumes)
    assert bool(proof.reason) != proof.crossed


def test_arguments() -> None:
    with pytest.raises(ValueError, match="required_bytes"):
        prove("test", -1, [])
    with pytest.raises(ValueError, match="tolerance"):
        prove("test", 1, [], tolerance=1.0)


def with_port(moved: int, time: float = 1.0, kernel: int = 0, **changes: Any) -> dict[str, Any]:
    """A node whose RDMA port has counted ``moved`` units each way."""
    port = {
        "port": "mlx5_0:1", "state": "ACTIVE", "unit": 4, "rx": moved, "tx": moved,
        "rx_packets": moved // 100, "tx_packets": moved // 100,
        "source": "counters/port_rcv_data, port_xmit_data", "shared": False,
    }  # fmt: skip
    data = snapshot(time=time, eth1=kernel)
    data["interfaces"]["eth1"]["rdma"] = {**port, **changes}
    return data


def verbs(before: dict[str, Any], after: dict[str, Any], required: int = 8000) -> PathProof:
    counted = diff(read(before), read(after))
    return prove("test", required, counted, program="ib_write_bw", data_path="verbs")


def test_the_data_of_a_rdma_port_is_counted_in_words() -> None:
    proof = verbs(with_port(0), with_port(1000, 2.0))
    assert proof.crossed, proof.reason
    assert proof.counters[0].rdma is not None
    assert proof.counters[0].rdma.tx_bytes == 4000
    assert not verbs(with_port(0), with_port(999, 2.0)).crossed


def test_verbs_traffic_that_falls_back_to_tcp() -> None:
    proof = verbs(with_port(0), with_port(10, 2.0, kernel=9000))
    assert not proof.crossed
    assert proof.reason == (
        "n1: mlx5_0:1 carried 80 B of the 8 kB that ib_write_bw moved (counters/port_rcv_data, "
        "port_xmit_data); eth1 carried 18 kB through the kernel: TCP, not verbs"
    )


def test_rdma_traffic_on_shared_counters_is_not_tcp() -> None:
    """Soft RoCE: the interface counts the packets of the port, too."""
    before, after = with_port(0, shared=True), with_port(1000, 2.0, kernel=4500, shared=True)
    assert verbs(before, after).crossed
    kernel = prove("test", 8000, diff(read(before), read(after)), program="iperf3")
    assert not kernel.crossed
    less = with_port(1000, 2.0, kernel=3000, shared=True)  # an interface may count less
    shared = [c for c in diff(read(before), read(less)) if c.interface == "eth1"]
    assert kernel_volume(shared) == 0
    own = [with_port(0), with_port(1000, 2.0, kernel=4500)]
    assert prove("test", 8000, diff(read(own[0]), read(own[1]))).crossed


def test_a_rdma_counter_wraps() -> None:
    packets = {"rx_packets": 7, "tx_packets": 7}
    before = with_port(2**64 - 400, **packets)
    proof = verbs(before, with_port(600, 2.0, **packets))
    assert proof.crossed, proof.reason
    assert proof.counters[0].rdma is not None
    assert proof.counters[0].rdma.rx_bytes == 4000


def test_a_rdma_counter_that_was_reset_or_stands_at_its_end() -> None:
    packets = {"rx_packets": 7, "tx_packets": 7}
    with pytest.raises(ParseError, match="went from 5000 to 10: it was reset"):
        verbs(with_port(5000, **packets), with_port(10, 2.0, **packets))
    # no counter that is read wraps at 32 bits: this one is of 64
    with pytest.raises(ParseError, match="went from 4294966896 to 600: it was reset"):
        verbs(with_port(2**32 - 400, **packets), with_port(600, 2.0, **packets))
    with pytest.raises(ParseError, match="it stands at 4294967295, the end of a counter of 32"):
        verbs(with_port(5000, **packets), with_port(2**32 - 1, 2.0, **packets))


def test_a_rdma_port_that_is_not_in_use() -> None:
    with pytest.raises(ParseError, match="n1: eth1: RDMA port mlx5_0:1 is DOWN before the run"):
        verbs(with_port(0, state="DOWN"), with_port(0, 2.0))
    absent: dict[str, Any] = {"state": "", "unit": None, "source": ""}
    with pytest.raises(ParseError, match="RDMA port mlx5_0:1 is absent after the run"):
        verbs(with_port(0), with_port(0, 2.0, **absent))
    proof = verbs(snapshot(eth1=0), snapshot(time=2.0, eth1=9000))
    assert proof.reason.startswith("n1: it has no RDMA port on the network test")


def test_the_port_of_a_step_that_failed() -> None:
    record = {"before": with_port(0), "after": with_port(0, state="DOWN")}
    assert ports_not_in_use([record], "test") == "; n1: RDMA port mlx5_0:1 is DOWN"
    assert ports_not_in_use([record], "mgmt") == ""
    assert ports_not_in_use([{**record, "after": with_port(9)}], "test") == ""
    assert ports_not_in_use([{"before": snapshot(), "after": snapshot()}], "test") == ""


def test_a_kernel_path_does_not_need_the_rdma_port() -> None:
    before, after = with_port(0, state="DOWN"), with_port(0, 2.0, kernel=9000, state="DOWN")
    assert prove("test", 8000, diff(read(before), read(after), "kernel")).crossed


def test_a_port_that_counts_packets_only() -> None:
    """Soft RoCE of older kernels: its packets, and the bytes of the interface that it shares."""
    old = {"unit": None, "source": "hw_counters/rcvd_pkts, sent_pkts", "shared": True}
    proof = verbs(with_port(0, **old), with_port(1000, 2.0, kernel=5000, **old))
    assert proof.crossed
    doubt = (
        "n1: mlx5_0:1 counts packets, not bytes (hw_counters/rcvd_pkts, sent_pkts), and eth1 "
        "counts verbs and the kernel's traffic together: its bytes may be of either"
    )
    assert proof.reason == doubt
    combined = combine([proof, proof])
    assert combined is not None
    assert combined.reason == doubt
    readings = read(with_port(0, **old)), read(with_port(1000, 2.0, kernel=5000, **old))
    assert prove("test", 8000, diff(*readings, "kernel")).reason == doubt
    readings = read(with_port(0, **old)), read(with_port(0, 2.0, kernel=5000, **old))
    assert not prove("test", 8000, diff(*readings, "kernel")).reason
    proof = verbs(with_port(0, **old), with_port(1000, 2.0, kernel=100, **old))
    assert not proof.crossed
    assert "rcvd_pkts" in proof.reason
    assert not verbs(with_port(0, **old), with_port(0, 2.0, kernel=5000, **old)).crossed


def on_two_networks(before: dict, after: dict, of_other: Any) -> PathProof:
    """A proof of verbs on ``test`` beside another network's interface with the readings."""
    for one, values in zip((before, after), of_other, strict=True):
        one["interfaces"]["eth0"] = snapshot(eth0=0)["interfaces"]["eth0"] | values
    counted = diff(read(before), read(after), "verbs", "test")
    return prove("test", 8000, counted, program="ib_write_bw", data_path="verbs")


def test_tcp_on_another_network_in_place_of_verbs_is_named() -> None:
    values = [{"rx_bytes": 0, "tx_bytes": 0}, {"rx_bytes": 9000, "tx_bytes": 9000}]
    proof = on_two_networks(with_port(0), with_port(10, 2.0), values)
    assert not proof.crossed
    assert proof.reason.endswith("eth0 (mgmt) carried 18 kB: TCP over the management network")


def other_port(*counts: int, **changes: Any) -> list[dict]:
    rdma = with_port(0)["interfaces"]["eth1"]["rdma"] | {"port": "mlx5_1:1"} | changes
    return [{"network": "rail2", "rdma": {**rdma, "rx": count, "tx": count}} for count in counts]


def test_the_rdma_port_of_another_rail_that_carried_the_traffic_is_named() -> None:
    proof = on_two_networks(with_port(0), with_port(10, 2.0), other_port(0, 1000))
    assert proof.reason.endswith("mlx5_1:1 (rail2) carried 8 kB: the rail2 network was used")


def test_a_rdma_port_that_is_down_on_another_rail_is_no_error() -> None:
    down = other_port(0, 0, state="DOWN")
    proof = on_two_networks(with_port(0), with_port(1000, 2.0), down)
    assert proof.crossed, proof.reason


@pytest.mark.parametrize(
    "changes", [{"rx_packets": None}, {"tx_packets": None}, {"port": "mlx5_7:1"}, {"unit": None}]
)
def test_damaged_counters_of_a_rdma_port_are_an_error_of_the_proof(changes: dict) -> None:
    with pytest.raises(ParseError, match="n1: eth1: mlx5_"):
        verbs(with_port(0), with_port(1000, 2.0, **changes))


def test_a_kernel_path_does_not_need_the_counters_of_a_card_s_rdma_port() -> None:
    at_end: dict[str, Any] = {"rx_packets": 7, "tx_packets": 7}
    readings = with_port(2**32 - 1, **at_end), with_port(2**32 - 1, 2.0, kernel=9000, **at_end)
    before, after = map(read, readings)
    assert prove("test", 8000, diff(before, after, "kernel")).crossed
    shared = [with_port(2**32 - 1, at, shared=True, **at_end) for at in (1.0, 2.0)]
    with pytest.raises(ParseError, match="the end of a counter"):
        diff(read(shared[0]), read(shared[1]), "kernel")
