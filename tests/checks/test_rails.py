"""What the readings of the nodes say on a rail: lost links, exchanged cables, no interface."""

from __future__ import annotations

from seatrial.checks import rails


def node(name, **interfaces):
    """A node's readings. ``eth1=(tx, rx)`` packets; a third: losses of the link and its state."""
    before, after = {}, {}
    for number, (interface, (tx, rx, *link)) in enumerate(interfaces.items(), 1):
        common = {"network": f"rail{number}"}
        before[interface] = {
            **common, "tx_packets": 5, "rx_packets": 5, "link": "up",
            "errors": {"carrier_down_count": 2},
        }  # fmt: skip
        lost, state = link or (0, "up")
        after[interface] = {
            **common, "tx_packets": 5 + tx, "rx_packets": 5 + rx, "link": state,
            "errors": {"carrier_down_count": 2 + lost},
        }  # fmt: skip
    return {
        "before": {"node": name, "interfaces": before},
        "after": {"node": name, "interfaces": after},
    }


BOTH = ("eth1", "eth2")


def test_a_healthy_step_says_nothing():
    nodes = [node("n1", eth1=(900, 800), eth2=(0, 0)), node("n2", eth1=(800, 900), eth2=(3, 4))]
    assert rails.lost_links(nodes, "rail1", "eth1") == ""
    assert rails.exchanged(nodes, "rail1", "eth1", BOTH) == ""
    assert rails.without_interface(nodes, "rail1", "eth1") == ""


def test_a_lost_link_names_node_interface_and_network():
    nodes = [node("n1", eth1=(9, 9)), node("n3", eth1=(9, 9, 1, "down"))]
    assert rails.lost_links(nodes, "rail1", "eth1") == (
        "n3: eth1 (rail1) lost its link during the step, and is down"
    )
    nodes = [node("n3", eth1=(9, 9, 2, "up"))]
    assert "n3: eth1 (rail1) lost its link 2 times" in rails.lost_links(nodes, "rail1", "eth1")
    assert "is up again" in rails.lost_links(nodes, "rail1", "eth1")
    nodes = [node("n3", eth1=(9, 9, 0, "down"))]
    assert rails.lost_links(nodes, "rail1", "eth1") == "n3: eth1 (rail1) has no link"


def test_a_lost_link_of_another_rail_is_not_that_of_this_one():
    nodes = [node("n1", eth1=(9, 9), eth2=(0, 0, 1, "down"))]
    assert rails.lost_links(nodes, "rail1", "eth1") == ""


def test_exchanged_cables_name_both_rails():
    nodes = [node("n1", eth1=(900, 0), eth2=(1, 800)), node("n2", eth1=(800, 1), eth2=(1, 900))]
    text = rails.exchanged(nodes, "rail1", "eth1", BOTH)
    assert "n1 and n2 sent on eth1 (rail1) and n1 and n2 received on eth2 (rail2)" in text


def test_frames_of_a_connection_that_failed_show_it_too():
    nodes = [node("n1", eth1=(4, 0), eth2=(2, 4)), node("n2", eth1=(4, 0), eth2=(2, 4))]
    assert "exchanged" in rails.exchanged(nodes, "rail1", "eth1", BOTH)


def test_frames_of_one_end_are_enough():
    """What a real connection without an answer leaves: no frame of n1, whose cables are wrong."""
    nodes = [node("n1", eth1=(0, 0), eth2=(0, 10)), node("n2", eth1=(10, 0), eth2=(0, 0))]
    assert rails.exchanged(nodes, "rail1", "eth1", BOTH).startswith(
        "n2 sent on eth1 (rail1) and n1 received on eth2 (rail2): "
    )


def test_broadcasts_of_other_nodes_do_not_hide_it():
    """Recorded on a lab with exchanged cables of n1, where each connection of n1 failed."""
    nodes = [node("n1", eth1=(12, 2), eth2=(0, 18))]
    assert rails.exchanged(nodes, "rail1", "eth1", BOTH).startswith(
        "n1 sent on eth1 (rail1) and n1 received on eth2 (rail2): "
    )


def test_a_peer_that_does_not_answer_is_no_exchange():
    nodes = [node("n1", eth1=(0, 0), eth2=(0, 0)), node("n2", eth1=(10, 0), eth2=(90, 80))]
    assert rails.exchanged(nodes, "rail1", "eth1", BOTH) == ""


def test_a_node_without_the_interface_is_named():
    nodes = [node("n1", eth1=(9, 9), eth2=(9, 9)), node("n2", eth1=(9, 9))]
    text = rails.without_interface(nodes, "rail2", "eth2")
    assert text == "n2: no interface eth2 of network rail2"
    assert rails.exchanged(nodes, "rail2", "eth2", BOTH) == ""
    assert rails.lost_links(nodes, "rail2", "eth2") == ""


def test_readings_of_a_wrong_kind_are_no_exception():
    odd = node("n1", eth1=(9, 9))
    odd["after"]["interfaces"]["eth1"]["errors"] = ["x"]
    odd["before"]["interfaces"]["eth1"]["tx_packets"] = "x"
    rails.lost_links([odd], "rail1", "eth1")
    rails.exchanged([odd], "rail1", "eth1", BOTH)
