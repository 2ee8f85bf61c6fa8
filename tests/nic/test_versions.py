"""What an upgrade without a reboot changes, and what irqbalance does when it comes and goes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from place import Place, made_place
from test_session_cases import JOB, OTHER, Node, folder, node

from seatrial.nic.node import changes, evidence, readers, values
from seatrial.nic.node.errors import NicError, Refused, Unrestored

__all__ = ["folder", "node"]  # fixtures

#: journal and record of the boot that the node side wrote before it recorded versions
OLD_STATE = Path(__file__).with_name("state-before-versions")
NEW = {"coalesce.tx-aggr-time-usecs": 3, "feature.rx-udp-gro": "on"}


def upgrade(node: Node, **shown: Any) -> None:
    """ethtool is exchanged; the new one also shows ``shown``."""
    node.nic.ethtool = "6.7"
    node.nic.shown_by["6.7"] = {**NEW, **shown}


def test_an_upgrade_is_no_drift(node: Node) -> None:
    said: list[str] = []
    assert "was recorded" in node.session().recover(0.0)
    upgrade(node)
    session = node.session()
    session.tell = said.append
    assert session.recover(0.0) == "no profile is in force; the interfaces are as at boot"
    assert said == [
        (
            "eth1: not compared, because only one of two versions shows it (ethtool 6.1 -> 6.7): "
            "coalesce.tx-aggr-time-usecs, feature.rx-udp-gro"
        )
    ]
    # Said once: from now on they are compared.
    session.work.warnings.clear()
    session.recover(0.0)
    assert len(said) == 1
    node.nic.shown_by["6.7"]["coalesce.tx-aggr-time-usecs"] = 4
    with pytest.raises(Unrestored, match="tx-aggr-time-usecs is 4, was 3 at boot"):
        node.session().recover(0.0)


def test_without_another_version_a_new_value_is_drift(node: Node) -> None:
    node.session().recover(0.0)
    node.nic.shown_by["6.1"] = NEW
    with pytest.raises(Unrestored, match="tx-aggr-time-usecs is 3, was unsupported at boot"):
        node.session().recover(0.0)


@pytest.mark.parametrize("how", ["recover", "prolog"])
def test_a_change_of_what_both_versions_know_is_drift(node: Node, how: str) -> None:
    node.session().recover(0.0)
    upgrade(node)
    node.nic.raw["mtu"] = 4000
    with pytest.raises(NicError, match="no profile owns these settings: eth1: mtu is 4000"):
        node.session().recover(0.0) if how == "recover" else node.session().begin_job(JOB, "bulk")
    baseline = node.store.baseline()
    assert baseline
    assert baseline["interfaces"]["eth1"]["mtu"] == 1500
    assert baseline["versions"]["eth1"]["ethtool"] == "6.1"


def test_a_job_may_start_after_an_upgrade(node: Node) -> None:
    node.session().recover(0.0)
    upgrade(node)
    node.session().begin_job(JOB, "bulk")
    node.session().end_job(JOB, True)
    node.check_clean()


@pytest.mark.parametrize("direction", [("6.1", "6.7"), ("6.7", "6.1")])
def test_an_upgrade_and_a_downgrade_during_a_job(node: Node, direction: tuple[str, str]) -> None:
    node.nic.shown_by["6.7"] = NEW
    node.nic.ethtool = direction[0]
    node.session().begin_job(JOB, "bulk")
    node.nic.ethtool = direction[1]
    node.session().end_job(JOB, True)
    node.check_clean()


def test_what_a_profile_has_set_must_be_seen_to_be_restored(node: Node) -> None:
    """The new version does not show the ring any more: nobody knows whether it was restored."""
    node.session().begin_job(JOB, "bulk")
    upgrade(node)
    node.nic.hidden_by["6.7"] = {"ring.rx"}
    with pytest.raises(Unrestored, match=r"ring\.rx is unsupported, was 256 before"):
        node.session().end_job(JOB, True)
    assert node.store.journal() is not None


def test_a_journal_of_the_version_before_is_undone(node: Node) -> None:
    """Written by a release that recorded neither versions nor what it ignored."""
    node.session().begin_job(JOB, "bulk")
    for file in OLD_STATE.iterdir():
        shutil.copy(file, node.store.path(file.name))
    upgrade(node)
    node.nic.ignored = ("irq.",)
    node.session().end_job(JOB, True)
    node.check_clean()
    assert "as at boot" in node.session().recover(0.0)
    baseline = node.store.baseline()
    assert baseline
    assert baseline["versions"]["eth1"] == node.nic.versions("eth1")
    assert baseline["interfaces"]["eth1"]["feature.rx-udp-gro"] == "on"
    assert baseline["identities"]["eth1"] == node.nic.identity("eth1")


def test_a_damaged_journal_after_an_upgrade(node: Node) -> None:
    seen = node.nic.state()
    node.session().recover(0.0)
    node.session().begin_job(JOB, "bulk")
    for name in ("journal.json", "journal.bak.json"):
        Path(node.store.path(name)).write_text("x")
    upgrade(node)
    with pytest.raises(Unrestored, match="which was verified"):
        node.session().begin_job(OTHER, "default")
    assert node.nic.state() == seen


def test_a_full_disk_keeps_the_record(node: Node) -> None:
    node.session().recover(0.0)
    upgrade(node)
    node.store.full = True
    assert "as at boot" in node.session().recover(0.0)
    node.store.full = False
    node.session().recover(0.0)
    baseline = node.store.baseline()
    assert baseline
    assert baseline["versions"]["eth1"]["ethtool"] == "6.7"


def htb(**options: Any) -> dict[str, Any]:
    """What the readers make of tc's answer for a root discipline that somebody chose."""
    root = {"kind": "htb", "handle": "1:", "root": True, "options": {"r2q": 10, **options}}
    return readers.root_qdisc(json.dumps([root]))


def test_one_more_option_of_a_root_discipline_is_no_drift_across_versions(node: Node) -> None:
    node.nic.raw.update(htb())
    node.session().recover(0.0)
    upgrade(node, **htb(direct_qlen=1000))
    assert "as at boot" in node.session().recover(0.0)
    # From now on it is compared.
    upgrade(node, **htb(direct_qlen=2))
    with pytest.raises(Unrestored, match=r"eth1: qdisc\.direct_qlen is 2, was 1000 at boot; "):
        node.session().recover(0.0)


def test_an_option_of_a_root_discipline_that_differs_is_drift(node: Node) -> None:
    node.nic.raw.update(htb())
    node.session().recover(0.0)
    upgrade(node, **htb(r2q=11, direct_qlen=1000))
    with pytest.raises(Unrestored, match=r"settings: eth1: qdisc\.r2q is 11, was 10 at boot; "):
        node.session().recover(0.0)


def test_a_root_discipline_in_a_record_of_the_version_before(node: Node) -> None:
    """It has no keys of options: their values are not compared, the kind is."""
    node.nic.raw["qdisc"] = 'htb {"r2q": 10}'
    node.session().recover(0.0)
    upgrade(node, **htb(direct_qlen=1000))
    assert "as at boot" in node.session().recover(0.0)
    node.nic.ethtool = "6.8"
    node.nic.shown_by["6.8"] = {**NEW, "qdisc": "default mq"}
    with pytest.raises(Unrestored, match="eth1: qdisc is default mq, was htb "):
        node.session().recover(0.0)


def test_a_root_discipline_whose_option_differs_is_not_removed() -> None:
    assert changes.to_restore("eth1", htb(), htb(r2q=11)) == []
    limit = {"qdisc": "tbf {}", "qdisc.rate": 1}
    (action,) = changes.to_restore("eth1", {"qdisc": "default mq"}, limit)
    assert action.argv == ["tc", "qdisc", "del", "dev", "eth1", "root"]


@pytest.mark.parametrize(
    ("before", "now", "unknown"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, ["b"]),
        ({"a": 1, "b": None}, {"a": 1, "b": 0}, ["b"]),  # n/a is nothing known
        ({"a": 1, "b": 2}, {"a": 1}, ["b"]),
        ({"master": None}, {"master": "bond0"}, []),  # None says that there is none
        ({"b": None}, {}, []),
    ],
)
def test_what_only_one_version_knows(before: dict, now: dict, unknown: list[str]) -> None:
    then, later, names = values.comparable(before, now, (), across=True)
    assert names == unknown
    assert not set(unknown) & (set(then) | set(later))
    assert values.comparable(before, now, (), across=False) == (before, now, [])
    if unknown:
        assert values.comparable(before, now, (), True, needed=unknown)[2] == []


def test_the_versions_of_this_machine() -> None:
    versions = readers.program_versions()
    assert sorted(versions) == ["ethtool", "iproute2", "kernel", "seatrial"]
    assert all(versions.values())


# -- irqbalance


IRQS = {"irq.0": "0-1", "irq.1": "0-1"}


@pytest.fixture
def lines(node: Node) -> dict[str, Any]:
    """The interface has interrupt lines; whoever sets them here plays irqbalance."""
    made = dict(IRQS)
    node.nic.shown_by["6.1"] = made
    return made


def test_irqbalance_that_stops_is_no_drift(node: Node, lines: dict[str, Any]) -> None:
    node.nic.ignored = ("irq.",)  # it runs
    node.session().recover(0.0)
    lines["irq.0"] = "1"
    node.nic.ignored = ()
    assert "as at boot" in node.session().recover(0.0)
    # Also after a start and a stop, and for a job.
    node.session().begin_job(JOB, "bulk")
    node.nic.ignored = ("irq.",)
    node.session().end_job(JOB, True)
    lines["irq.1"] = "0"
    node.session().begin_job(OTHER, "jumbo")
    node.nic.ignored = ()
    lines["irq.0"] = "0"
    node.session().end_job(OTHER, True)
    assert "as at boot" in node.session().recover(0.0)


def test_irqbalance_that_came_later_and_went_again(node: Node, lines: dict[str, Any]) -> None:
    node.session().recover(0.0)
    node.nic.ignored = ("irq.",)
    node.session().recover(0.0)
    lines["irq.0"] = "1"
    node.nic.ignored = ()
    assert "as at boot" in node.session().recover(0.0)


def test_a_record_without_the_lines_is_of_the_version_before(
    node: Node, lines: dict[str, Any]
) -> None:
    """It left out what irqbalance set, and did not say so."""
    node.session().recover(0.0)
    for file in OLD_STATE.glob("baseline.json"):
        shutil.copy(file, node.store.path(file.name))
    assert "as at boot" in node.session().recover(0.0)


def test_lines_that_nobody_moves_are_compared(node: Node, lines: dict[str, Any]) -> None:
    node.session().recover(0.0)
    lines["irq.0"] = "1"
    with pytest.raises(Unrestored, match=r"irq\.0 is 1, was 0-1 at boot"):
        node.session().recover(0.0)
    node.store.remove("reason")
    with pytest.raises(Refused, match=r"irq\.0 is 1"):
        node.session().begin_job(JOB, "jumbo")


def test_a_line_that_the_driver_adds_is_no_drift(node: Node, lines: dict[str, Any]) -> None:
    """mlx5 makes the line of a vector when somebody first uses it, and keeps it."""
    node.session().recover(0.0)
    lines["irq.2"] = "0-1"
    assert "as at boot" in node.session().recover(0.0)
    node.session().begin_job(JOB, "jumbo")
    lines["irq.3"] = "1"
    node.session().end_job(JOB, True)
    assert node.store.journal() is None
    assert "as at boot" in node.session().recover(0.0)
    del lines["irq.1"]
    assert "as at boot" in node.session().recover(0.0)
    lines["irq.0"] = "1"
    with pytest.raises(Unrestored, match=r"irq\.0 is 1, was 0-1 at boot"):
        node.session().recover(0.0)


def test_pinned_lines_are_restored_although_irqbalance_runs_now(
    node: Node, lines: dict[str, Any]
) -> None:
    real = node.nic._write

    def write(action: Any) -> None:
        if "/irq/" in (action.path or ""):
            lines["irq." + action.path.split("/")[-2]] = action.text
        else:
            real(action)

    node.nic._write = write  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "irq_numbers", lambda interface: {0: "0", 1: "1"})
        node.session().begin_job(JOB, "x", {"interfaces": {"eth1": {"irq_affinity": "1"}}})
        assert lines == {"irq.0": "1", "irq.1": "1"}
        node.nic.ignored = ("irq.",)
        node.session().end_job(JOB, True)
    assert lines == IRQS


@pytest.mark.parametrize("ignored", [[], ["irq."]])
def test_a_job_without_a_profile_compares_the_same(
    node: Node, lines: dict[str, Any], ignored: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    node.nic.ignored = tuple(ignored)
    node.session().recover(0.0)
    node.nic.ignored = ()
    lines["irq.0"] = "1"
    monkeypatch.setattr(evidence.owner, "boot_id", lambda: "boot-1")
    declared = {"profile": "default", "state_folder": node.store.folder, "nodes": {"n1": {}},
                "tests": {"n1": ["eth1"]}}  # fmt: skip
    found = evidence.collect(declared, "n1", nic=node.nic)
    assert found["ok"] is bool(ignored)
    upgrade(node, **IRQS)
    assert evidence.collect(declared, "n1", nic=node.nic)["ok"]


# -- a real ethtool


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    setup = "ip link add eth1 type veth peer name peer1; ip tuntap add dev tap0 mode tap"
    profiles = {"default": {}, "frames": {"tap0": {"coalesce.rx-frames": 16}}}
    with made_place(tmp_path, profiles, setup) as made:
        yield made


@pytest.mark.root
@pytest.mark.parametrize(("version", "code"), [("ethtool version 99.1", 0), ("", 2)])
def test_an_ethtool_that_prints_one_line_more(
    place: Place, tmp_path: Path, version: str, code: int
) -> None:
    """As it is at a site: mounted over the other one. Without another version it is drift."""
    job: dict[str, Any] = {"profile": "frames", "slurmd": True}
    assert place.run("prolog", job=4_000_000_001, **job).returncode == 0
    real, newer = tmp_path / "ethtool", tmp_path / "newer"
    shutil.copy("/usr/sbin/ethtool", real)
    newer.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && [ "{version}" ] && echo "{version}" && exit\n'
        f'{real} "$@" || exit\n[ "$1" != -c ] || echo "tx-aggr-time-usecs:\t7"\n'
    )
    newer.chmod(0o755)
    job["first"] = f"mount --bind {newer} /usr/sbin/ethtool"
    assert (place.run("epilog", job=4_000_000_001, **job).returncode == 0) is (code == 0)
    if code:
        assert "tx-aggr-time-usecs is 7, was unsupported before" in place.reason()
        return
    answer = place.run("prolog", job=4_000_000_002, **job)
    assert answer.returncode == 0, answer.stderr
    assert place.run("epilog", job=4_000_000_002, **job).returncode == 0
