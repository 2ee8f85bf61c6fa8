"""What ethtool, tc and sysfs print, recorded from real drivers, into flat settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.nic.node import readers

TAP = """Coalesce parameters for t0:
Adaptive RX: n/a  TX: n/a
stats-block-usecs: n/a
sample-interval: n/a
pkt-rate-low: n/a
pkt-rate-high: n/a

rx-usecs: n/a
rx-frames: 8
rx-usecs-irq: n/a
rx-frames-irq: n/a

CQE mode RX: n/a  TX: n/a

"""
ADAPTIVE = """Coalesce parameters for ens1f0:
Adaptive RX: on  TX: off
rx-usecs: 50
tx-usecs: 0
a-line-of-a-newer-ethtool: 12
Some Heading:
CQE mode RX: off  TX: n/a
"""
CHANNELS = """Channel parameters for v0:
Pre-set maximums:
RX:		2
TX:		2
Other:		n/a
Combined:	n/a
Current hardware settings:
RX:		1
TX:		1
Other:		n/a
Combined:	n/a
"""
RINGS = """Ring parameters for eth0:
Pre-set maximums:
RX:			4096
RX Mini:		n/a
RX Jumbo:		n/a
TX:			4096
Current hardware settings:
RX:			256
RX Mini:		n/a
RX Jumbo:		n/a
TX:			256
RX Buf Len:		n/a
TX Push:	off
"""
#: e1000 of Linux 6.1 by ethtool 6.1, whose other end sends no pause frames
PAUSE = """Pause parameters for eth1:
Autonegotiate:	on
RX:		on
TX:		off

"""
#: lines that ethtool 6.1 adds where the driver says what the other end takes (netlink/pause.c)
AGREED = """RX negotiated: off
TX negotiated: on
"""
FEATURES = """Features for t0:
rx-checksumming: off [fixed]
tx-checksumming: off
	tx-checksum-ipv4: off [fixed]
	tx-checksum-ip-generic: off [requested on]
tcp-segmentation-offload: off
	tx-tcp-segmentation: off [requested on]
scatter-gather: on
	tx-scatter-gather: on [fixed]
	tx-scatter-gather-fraglist: off [fixed]
generic-receive-offload: on
"""


def test_what_a_driver_lacks_is_none_and_not_zero() -> None:
    found = readers.coalescing(TAP)
    assert found["coalesce.rx-frames"] == 8
    assert found["coalesce.rx-usecs"] is None
    assert found["coalesce.adaptive-rx"] is None
    assert found["coalesce.cqe-mode-tx"] is None


def test_adaptive_moderation_and_lines_of_a_newer_ethtool() -> None:
    found = readers.coalescing(ADAPTIVE)
    assert found["coalesce.adaptive-rx"] == "on"
    assert found["coalesce.adaptive-tx"] == "off"
    assert found["coalesce.rx-usecs"] == 50
    assert found["coalesce.tx-usecs"] == 0
    assert found["coalesce.a-line-of-a-newer-ethtool"] == 12


def test_channels_and_rings_are_what_is_set_not_what_is_possible() -> None:
    assert readers.current_part(CHANNELS, "channels") == {
        "channels.rx": 1, "channels.tx": 1, "channels.other": None, "channels.combined": None,
    }  # fmt: skip
    rings = readers.current_part(RINGS, "ring")
    assert rings["ring.rx"] == 256
    assert rings["ring.rx-mini"] is None
    assert rings["ring.tx-push"] == "off"


@pytest.mark.parametrize("text", [PAUSE, PAUSE.rstrip("\n") + "\n" + AGREED])
def test_flow_control_is_what_is_set_not_what_was_agreed_on(text: str) -> None:
    assert readers.pause(text) == {"pause.autoneg": "on", "pause.rx": "on", "pause.tx": "off"}


def test_a_driver_without_flow_control_prints_nothing() -> None:
    """virtio_net: the error goes to standard error."""
    assert readers.pause("") == {}


def test_features_say_what_was_asked_for() -> None:
    found = readers.features(FEATURES)
    assert found["feature.tx-checksum-ip-generic"] == "off [requested on]"
    assert found["feature.generic-receive-offload"] == "on"
    assert readers.fixed_features(FEATURES) == {
        "feature.rx-checksumming": "off", "feature.tx-checksum-ipv4": "off",
        "feature.scatter-gather": "on", "feature.tx-scatter-gather": "on",
        "feature.tx-scatter-gather-fraglist": "off",
    }  # fmt: skip


def qdisc(*entries: dict) -> dict:
    return readers.root_qdisc(json.dumps(entries))


def test_root_queueing_disciplines() -> None:
    default = {"kind": "noqueue", "handle": "0:", "root": True, "refcnt": 2, "options": {}}
    limit = {"kind": "tbf", "handle": "809d:", "root": True, "refcnt": 3,
             "options": {"rate": 125000000, "burst": 262125, "lat": 50000}}  # fmt: skip
    own = {"kind": "htb", "handle": "1:", "root": True, "options": {"r2q": 10}}
    assert qdisc(default) == {"qdisc": "default noqueue", "egress_bit_s": None}
    assert qdisc(limit)["egress_bit_s"] == 10**9
    assert qdisc(limit) == qdisc({**limit, "handle": "8001:"})
    assert qdisc(own)["qdisc"].startswith("htb ")
    assert (qdisc(limit)["qdisc.rate"], qdisc(own)["qdisc.r2q"]) == (125000000, 10)
    nested = {"map": [1, 2], "fp": {"0": "E"}, "direct_packets_stat": 7}
    leaves = qdisc({**own, "options": nested})
    del leaves["qdisc"], leaves["egress_bit_s"]
    assert leaves == {"qdisc.map.0": 1, "qdisc.map.1": 2, "qdisc.fp.0": "E"}
    assert qdisc(own)["egress_bit_s"] is None
    # Some disciplines are the kernel's own only while nobody has chosen them.
    assert qdisc({**own, "kind": "fq_codel"})["qdisc"].startswith("fq_codel ")


@given(st.text(alphabet="abRXT:-_ \t\n0123456789n/aof[]", max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    parsers = (readers.coalescing, readers.rings, readers.features, readers.private_flags,
               readers.pause)  # fmt: skip
    for found in (parse(text) for parse in parsers):
        assert all("." in key for key in found)
    readers.root_qdisc(text)


def test_private_flags() -> None:
    text = "Private flags for eth1:\nrx_cqe_moder   : on\nlink-down-on-close: off\n"
    assert readers.private_flags(text) == {
        "private.rx_cqe_moder": "on", "private.link-down-on-close": "off",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "ours"), [("eth1", True), ("eth1-TxRx-0", True), ("eth10", False)]
)
def test_interrupt_lines_named_after_an_interface(
    name: str, ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        "           CPU0",
        f" 24:       7  PCI-MSI 512-edge      {name}",
        "NMI: 0 Non-maskable",
    ]
    (tmp_path / "interrupts").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(readers, "PROC", str(tmp_path))
    monkeypatch.setattr(readers, "SYSFS", str(tmp_path))
    assert readers.irq_numbers("eth1") == {}  # a veth, and a card of its name on the machine
    (tmp_path / "eth1/device").mkdir(parents=True)
    assert readers.irq_numbers("eth1") == ({0: "24"} if ours else {})


def test_lines_are_known_by_the_vectors_of_their_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that comes later may have a lower number than others."""
    hwirqs = {"40": 12 << 19 | 0, "41": 12 << 19 | 1, "25": 12 << 19 | 3}
    device = tmp_path / "eth1/device/msi_irqs"
    device.mkdir(parents=True)
    for irq in hwirqs:
        (device / irq).touch()
    monkeypatch.setattr(readers, "SYSFS", str(tmp_path))
    monkeypatch.setattr(readers, "IRQ_VECTOR", str(tmp_path / "%s.hwirq"))
    assert readers.irq_numbers("eth1") == {0: "25", 1: "40", 2: "41"}
    for irq, hwirq in hwirqs.items():
        (tmp_path / f"{irq}.hwirq").write_text(f"{hwirq}\n")
    assert readers.irq_numbers("eth1") == {0: "40", 1: "41", 3: "25"}


def test_a_virtual_function_without_throttling_is_read_as_it_is_set() -> None:
    """igbvf of Linux 6.1 answers 1 after rx-usecs 0, and refuses 1."""
    state = {"driver.module": "igbvf", "coalesce.rx-usecs": 1}
    readers.as_given(state)
    assert state["coalesce.rx-usecs"] == 0
    for untouched in (
        {"driver.module": "igbvf", "coalesce.rx-usecs": 125},
        {"driver.module": "igb", "coalesce.rx-usecs": 1},
        {"driver.module": None, "coalesce.rx-usecs": 1},
    ):
        before = dict(untouched)
        readers.as_given(untouched)
        assert untouched == before
