"""Findings on cables, negotiated links and slots."""

from __future__ import annotations

from seatrial.results.record import WireErrors
from seatrial.results.wire import findings
from trial_maker import NETPIPE, metric, run


def measured(states, errors=()):
    made = run(NETPIPE, metric(9.0))
    made.nic = {node: {"eth1": {"before": state, "after": state}} for node, state in states.items()}
    made.wire_errors = list(errors)
    return made


def link(**facts):
    return {"network": "test", "driver": "mlx5_core", **facts}


def test_a_counter_that_moved_names_the_interface_and_its_switch_port():
    neighbour = {"switch": "leaf3", "port": "Ethernet1/7"}
    errors = [WireErrors(node="n2", interface="eth1", counts={"rx_crc_errors_phy": 12})]
    runs = [
        measured({"n1": link(), "n2": link(neighbour=neighbour)}, errors),
        measured({"n1": link(), "n2": link(neighbour=neighbour)}, errors),
    ]
    (sentence,) = findings(runs)
    assert sentence == (
        f"n2: errors were counted on eth1 during 1 case ({NETPIPE.id}): rx_crc_errors_phy +24: "
        "check its cable, its transceiver and port Ethernet1/7 of leaf3 (LLDP)"
    )


def test_without_lldp_the_switch_port_has_no_name():
    errors = [WireErrors(node="n2", interface="eth1", counts={"carrier_down_count": 1})]
    (sentence,) = findings([measured({"n2": link()}, errors)])
    assert sentence.endswith("check its cable, its transceiver and its switch port")


def test_a_link_that_is_another_one_after_a_run():
    made = measured({"n1": link(speed_Mbit_s=100000), "n2": link(speed_Mbit_s=100000)})
    made.nic["n2"]["eth1"]["after"] = link(speed_Mbit_s=25000)
    (sentence,) = findings([made, made])
    assert sentence == (
        f"n2: eth1 went from 100000 to 25000 Mbit/s during 1 case ({NETPIPE.id}): check its cable, "
        "its transceiver and its slot"
    )
    down = measured({"n1": link(speed_Mbit_s=100000)})
    down.nic["n1"]["eth1"]["after"] = link(link="down")  # the case is in error by that
    assert findings([down]) == []


def test_a_node_with_another_speed_or_fec():
    states = {f"n{number}": link(speed_Mbit_s=100000, fec="RS") for number in range(1, 5)}
    states["n3"] = link(speed_Mbit_s=25000, fec="off")
    speed, fec = findings([measured(states)])
    assert speed == (
        "the links of network test differ: 25000 Mbit/s on eth1 of n3; 100000 Mbit/s on eth1 of "
        "n1, eth1 of n2, eth1 of n4"
    )
    assert "off FEC on eth1 of n3; RS FEC on" in fec


def test_cards_of_different_drivers_are_not_compared():
    states = {"n1": link(speed_Mbit_s=1000), "n2": {**link(speed_Mbit_s=10000), "driver": "igb"}}
    assert findings([measured(states)]) == []


def test_a_card_in_a_narrow_slot():
    slot = {"current_pcie_speed": "8.0 GT/s PCIe", "max_pcie_speed": "16.0 GT/s PCIe"}
    slot |= {"current_pcie_width": "4", "max_pcie_width": "16"}
    (sentence,) = findings([measured({"n1": link(**slot)})])
    assert sentence == (
        "note: the PCIe link of eth1 of n1 runs at 8.0 GT/s PCIe x4, and the card can do "
        "16.0 GT/s PCIe x16"
    )


def test_states_that_are_no_objects():
    damaged = measured({"n1": link()})
    damaged.nic = {"n1": "x", "n2": {"eth1": "y"}, "n3": {"eth1": {"before": []}}}
    assert findings([damaged]) == []


def two_rails(switches):
    """A run of nodes whose eth1 (rail1) and eth2 (rail2) are on these switches."""
    made = run(NETPIPE, metric(9.0))
    made.nic = {
        node: {
            f"eth{number}": {"before": {"network": f"rail{number}", "neighbour": {"switch": name}}}
            for number, name in enumerate(names, 1)
        }
        for node, names in switches.items()
    }
    return made


def test_rails_whose_switches_are_exchanged_name_both():
    right = {f"n{number}": ("leaf1", "leaf2") for number in range(1, 5)}
    assert findings([two_rails(right)]) == []
    one, other = findings([two_rails({**right, "n3": ("leaf2", "leaf1")})])
    assert one.startswith("n3: eth1 of network rail1 is cabled to leaf2 (LLDP), on which network")
    assert "rail2 is; the others of rail1 are on leaf1" in one
    assert other.startswith("n3: eth2 of network rail2 is cabled to leaf1")


def test_rails_that_share_switches_or_have_many_are_not_named():
    shared = {f"n{number}": ("leaf1", "leaf1") for number in range(1, 5)}
    assert findings([two_rails(shared)]) == []
    own = {f"n{number}": (f"a{number}", f"b{number}") for number in range(1, 5)}
    assert findings([two_rails(own)]) == []
