"""The text of the configuration files and of the network's commands."""

from __future__ import annotations

import pytest

from seatrial.base.errors import InputError
from seatrial_lab.common import network, render
from seatrial_lab.common.boot import login_steps, node_steps
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.native import cables


def conf(pmix: bool = True, **settings: object) -> list[str]:
    return render.slurm_conf(LabSpec(**settings), "slurm", pmix).splitlines()  # type: ignore[arg-type]


def test_every_node_has_a_line_with_its_features() -> None:
    nodes = [line for line in conf(features={"n2": ("a", "b")}) if line.startswith("NodeName=")]
    assert len(nodes) == 4
    assert "CPUs=2 " in nodes[0]
    assert nodes[1].endswith("Feature=a,b")
    assert "Feature" not in nodes[0]


def test_first_partition_is_the_default() -> None:
    parts = [line for line in conf(partitions=("p", "q")) if line.startswith("PartitionName=")]
    assert "PartitionName=p Nodes=n1,n2,n3,n4 Default=YES" in parts[0]
    assert "Default=NO" in parts[1]


def test_options_come_and_go() -> None:
    assert "MpiDefault=pmix" in conf()
    assert "MpiDefault=pmix" not in conf(pmix=False)
    assert not [line for line in conf(accounting=False) if "Acct" in line or "Accounting" in line]
    assert not [line for line in conf(licenses=None) if line.startswith("Licenses")]
    assert "Licenses=cores:8" in conf(licenses="cores:8")


def test_an_epilog_can_be_left_to_an_included_file() -> None:
    assert "Epilog=/bin/true" in conf()
    assert not [line for line in conf(epilog=None) if line.startswith("Epilog")]


def test_extra_lines_come_last_so_that_they_win() -> None:
    assert conf(extra_slurm_conf=("PrologFlags=Alloc", "KillWait=9"))[-2:] == [
        "PrologFlags=Alloc",
        "KillWait=9",
    ]


def values_of(count: int) -> dict[str, str]:
    nodes = tuple(f"n{number}" for number in range(1, count + 1))
    subnets = {"mgmt_subnet": "10.73.0.0/20", "test_subnet": "10.74.0.0/20"}
    return dict(line.split("=", 1) for line in conf(nodes=nodes, **subnets) if "=" in line)


@pytest.mark.parametrize("count", [4, 63])
def test_a_dead_node_is_noticed_within_half_a_minute(count: int) -> None:
    values = values_of(count)
    # Measured: a third of SlurmdTimeout to the next ping, 2.5 MessageTimeouts to give up.
    assert int(values["SlurmdTimeout"]) / 3 + 2.5 * int(values["MessageTimeout"]) < 25


@pytest.mark.parametrize(("count", "times"), [(64, 2), (240, 7), (1000, 10)])
def test_many_nodes_have_more_time_to_answer(count: int, times: int) -> None:
    few, many = values_of(4), values_of(count)
    for name in ("SlurmdTimeout", "MessageTimeout", "TCPTimeout", "UnkillableStepTimeout"):
        assert int(many[name]) == times * int(few[name])


@pytest.mark.parametrize(
    ("version", "plugin"), [((22, 5), "cgroup/v1"), ((24, 5), "disabled"), ((24, 11), "disabled")]
)
def test_cgroup_plugin_follows_the_version(version: tuple[int, int], plugin: str) -> None:
    assert render.cgroup_conf(version) == f"CgroupPlugin={plugin}\n"
    assert render.needs_freezer(version) == (plugin != "disabled")


def test_the_job_user_replaces_a_namesake_and_comes_first() -> None:
    machine = "root:x:0:0::/root:/bin/sh\nsailor:x:7:7::/:/bin/false\n"
    lines = render.passwd_file(LabSpec(), machine).splitlines()
    assert lines[0].startswith("sailor:x:2000:2000:")
    assert lines[1:] == ["root:x:0:0::/root:/bin/sh"]


def test_hosts_have_a_name_per_network() -> None:
    text = render.hosts_file(LabSpec())
    assert "10.73.0.3 n3\n" in text
    assert "10.73.1.3 n3-test\n" in text
    assert "login-test" not in text


def test_no_cable_passes_through_the_machines_own_namespace() -> None:
    lines = network.switch_batch(LabSpec(test_mtu=4000, switch_mtu=9000)).splitlines()
    cables = [line for line in lines if "type veth" in line]
    assert len(cables) == 5 + 4
    assert all(line.split()[-2] == "netns" for line in cables)
    ends = [line.split(" peer ") for line in cables if "mtu" in line]
    assert len(ends) == 4
    assert all("mtu 9000" in mine and "mtu 4000" in theirs for mine, theirs in ends)


def test_each_interface_has_an_address_of_its_own() -> None:
    lines = network.switch_batch(LabSpec()).splitlines()
    lines += [x for n in LabSpec().nodes for x in
              network.host_batch(LabSpec(taps=("tap0",)), n).splitlines()]  # fmt: skip
    found = [line.split(" address ")[1].split()[0] for line in lines if " address " in line]
    assert len(set(found)) == len(found) == 5 + 4 + 4


def test_login_has_no_test_interface() -> None:
    assert "eth1" not in network.host_batch(LabSpec(), "login")
    assert "addr add 10.73.1.2/24 dev eth1" in network.host_batch(LabSpec(), "n2")


def test_daemons_start_in_the_order_they_need_each_other(tmp_path) -> None:
    def daemons(steps: list[dict]) -> list[str]:
        return [step["daemon"] for step in steps if "daemon" in step]

    spec = LabSpec()
    with_database = daemons(login_steps(spec, "slurm", tmp_path))
    assert with_database == ["munged", "mariadbd", "slurmdbd", "slurmctld"]
    assert daemons(login_steps(spec, "slurm", None)) == ["munged", "slurmctld"]
    assert daemons(node_steps(spec, "n1")) == ["munged", "slurmd"]


@pytest.mark.parametrize(
    ("text", "bits"), [("100mbit", 10**8), ("1.5Gbit", 1_500_000_000), ("64kbit", 64_000)]
)
def test_rates(text: str, bits: int) -> None:
    assert cables.parse_rate(text) == bits


@pytest.mark.parametrize("text", ["", "100", "100mb", "0mbit", "-1mbit", "1kbit", "fast"])
def test_bad_rates(text: str) -> None:
    with pytest.raises(InputError, match="rate"):
        cables.parse_rate(text)


def test_a_bucket_holds_some_frames_at_any_rate() -> None:
    assert cables.burst_bytes(10**4, 1500) >= 4 * 1518
    assert cables.burst_bytes(10**10, 1500) == 1_250_000
    assert cables.burst_bytes(10**4, 1500, 9216) >= 9234
