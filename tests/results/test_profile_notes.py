"""Notes on NIC profiles: what a profile does not do in a trial that it may pass."""

from __future__ import annotations

from dataclasses import replace

from seatrial.results.profile_notes import notes
from seatrial.results.record import (
    BURSTS,
    Case,
    Counters,
    Job,
    NicProof,
    PathProof,
    ProfileUse,
    Run,
    Trial,
)
from trial_maker import trial

CASE = Case(check="netpipe", transport="tcp", profile="rail", nodes=2)


def use(**settings: dict) -> ProfileUse:
    return ProfileUse(name="rail", settings={"n1": settings, "n2": settings})


def of(*uses: ProfileUse) -> Trial:
    return trial(profiles=list(uses))


def run(interface: str = "eth1", **fields: object) -> Run:
    counters = [
        Counters(node=node, interface=name, network=network, rx_bytes=9, tx_bytes=9, rx_packets=1,
                 tx_packets=1)
        for node in ("n1", "n2") for name, network in ((interface, "test"), ("eth0", "mgmt"))
    ]  # fmt: skip
    path = PathProof(network="test", required_bytes=9, counters=counters, crossed=True)
    job = Job(id="7", nodes=["n1", "n2"])
    return Run(**{"case": CASE, "outcome": "ran", "path": path, "job": job, **fields})


def test_a_profile_that_sets_nothing_where_it_was_measured() -> None:
    sets = use(eth2={"mtu": 9000})
    assert list(notes(of(sets), [run("eth2")])) == []
    (note,) = notes(of(sets), [run(), run()])
    assert note == (
        "note: NIC profile rail sets nothing on eth1, on which it was measured: netpipe.tcp.rail.2n"
    )
    # What it sets for the node, or a bond, counts; and nothing is expected of the default.
    of_node = sets.model_copy(update={"node_settings": {"sysctl.net.core.busy_poll": 50}})
    assert list(notes(of(of_node), [run()])) == []
    bonded = use(eth2={"bond": {"name": "bond0", "members": ["eth1", "eth2"]}})
    assert list(notes(of(bonded), [run("bond0")])) == []
    default = ProfileUse(name="default")
    own = replace(CASE, profile="default")
    assert list(notes(of(default), [run(case=own)])) == []


def test_settings_that_nodes_lack_are_named_together() -> None:
    def proof(node: str, *left: str) -> NicProof:
        return NicProof(node=node, when="before", ok=True, left_out=list(left))

    runs = [
        run(nic_proofs=[proof("n2", "eth1 vfs", "eth1 ring.rx"), proof("n10", "eth1 vfs")]),
        run(nic_proofs=[proof("n2", "eth1 vfs", "eth1 ring.rx")]),
    ]
    found = list(notes(of(use(eth1={"vfs": 2})), runs))
    assert found == [
        "note: NIC profile rail leaves out what n2, n10 cannot have (if_supported): eth1 vfs",
        "note: NIC profile rail leaves out what n2 cannot have (if_supported): eth1 ring.rx",
    ]


def test_a_profile_of_which_nothing_is_left_sets_nothing() -> None:
    def proof(node: str) -> NicProof:
        return NicProof(node=node, when="before", ok=True, left_out=["eth1 vfs", "odd"])

    both = [proof("n1"), proof("n2")]
    found = list(notes(of(use(eth1={"vfs": 2})), [run(nic_proofs=both)]))
    assert any("sets nothing on eth1, on which it was measured" in note for note in found)
    found = list(notes(of(use(eth1={"vfs": 2, "mtu": 9000})), [run(nic_proofs=both)]))
    assert not any("sets nothing" in note for note in found)


def test_a_bandwidth_above_the_rate_of_the_profile_is_noted_once_a_case() -> None:
    said = ["bandwidth_MB_s is 313.7 MB/s, above the egress rate of profile rail"]
    runs = [run(facts={BURSTS: said}), run(facts={BURSTS: said}), run(facts={BURSTS: 5})]
    found = list(notes(of(use(eth1={"egress_bit_s": 10**9})), runs))
    assert found == [f"note: netpipe.tcp.rail.2n: {said[0]}"]
