"""The switch ports that lldpd knows, for the evidence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial.nic.node import neighbours, programs
from seatrial.nic.node.store import Store

#: lldpd 1.0.16 of Debian 12, as `lldpctl -f json0` prints it: two namespaces joined by a veth pair
RECORDED = (Path(__file__).parent / "data" / "lldpctl.json").read_text()


def test_an_answer_of_lldpd():
    assert neighbours.of(RECORDED) == {"wv0": {"switch": "vm", "port": "wv1"}}


@pytest.mark.parametrize(
    "answer", ["", "{", "[]", '{"lldp": [{}]}', '{"lldp": [{"interface": [3]}]}', "[" * 100_000]
)
def test_an_answer_without_neighbours(answer):
    assert neighbours.of(answer) == {}


def test_the_words_of_a_switch_are_cut_to_plain_text():
    data = json.loads(RECORDED)
    (interface,) = data["lldp"][0]["interface"]
    interface["chassis"][0]["name"][0]["value"] = "\x1b[2Jsw\n" + "x" * 1000
    interface["port"][0]["descr"] = [{"value": ""}]
    del interface["port"][0]["id"]
    (known,) = neighbours.of(json.dumps(data)).values()
    assert known == {"switch": ("?[2Jsw?" + "x" * 1000)[:100]}


@pytest.fixture
def lldpd(tmp_path, monkeypatch):
    """A node whose lldpctl prints what the file ``answer`` has."""
    program = tmp_path / "lldpctl"
    program.write_text(f"#!/bin/sh\nexec cat {tmp_path}/answer\n")
    program.chmod(0o755)
    (tmp_path / "answer").write_text(RECORDED)
    (tmp_path / "socket").touch()
    monkeypatch.setattr(neighbours, "SOCKETS", (str(tmp_path / "socket"),))
    monkeypatch.setattr(programs, "find", lambda name: str(program))
    return tmp_path


def test_the_neighbours_are_written_once(lldpd):
    store = Store(str(lldpd / "state"))
    store.prepare()
    neighbours.record(store)
    file = lldpd / "state" / "neighbours.json"
    assert json.loads(file.read_text())["interfaces"] == {"wv0": {"switch": "vm", "port": "wv1"}}
    assert file.stat().st_mode & 0o777 == 0o644
    inode = file.stat().st_ino
    neighbours.record(store)
    assert file.stat().st_ino == inode  # nothing changed: nothing is written
    (lldpd / "answer").write_text(RECORDED.replace("wv1", "Ethernet1/7"))
    neighbours.record(store)
    assert json.loads(file.read_text())["interfaces"]["wv0"]["port"] == "Ethernet1/7"


def test_a_node_without_lldpd(tmp_path, monkeypatch):
    monkeypatch.setattr(neighbours, "SOCKETS", (str(tmp_path / "absent"),))
    neighbours.record(Store(str(tmp_path)))
    assert list(tmp_path.iterdir()) == []
