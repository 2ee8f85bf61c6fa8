"""What may never be set, told from a root directory that is made up: each refusal says why."""

from __future__ import annotations

import ipaddress
import json
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.nic.node import namespaces, programs
from seatrial.nic.node.errors import Refused
from seatrial.nic.node.guard import Guard
from seatrial.nic.node.policy import Policy
from seatrial.nic.node.programs import Answer

SOCKETS = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"


def policy(**more: Any) -> Policy:
    data = {"schema": 1, "feature_prefix": "nic_", "state_folder": "/nowhere",
            "protected": ["eth0"], "nodes": {"n1": ["eth1", "eth2"]}, "profiles": {},
            **more}  # fmt: skip
    return Policy(data, hostname="n1")


def number(address: str) -> str:
    """An IPv4 address as this machine's kernel prints it in /proc/net."""
    return f"{struct.unpack('=I', socket.inet_aton(address))[0]:08X}"


def number_6(address: str) -> str:
    raw = socket.inet_pton(socket.AF_INET6, address)
    return "".join(f"{one:08X}" for one in struct.unpack("=4I", raw))


def route(interface: str, destination: str = "default", **more: Any) -> dict[str, Any]:
    """A route as ``ip -json`` shows it."""
    return {"dst": destination, "dev": interface, "flags": [], **more}


class Root:
    """A root directory with the few files that the guard reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("eth0", "eth1", "eth2"):
            self.write(f"sys/class/net/{name}/mtu", "1500\n")
        self.routes = [route("eth0")]
        self.routes_6: list[dict[str, Any]] = []
        self.rules = [{"priority": 32766, "src": "all", "table": "main"}]
        self.addresses: dict[str, str] = {}
        self.vrfs: dict[str, list[dict[str, Any]]] = {}
        self.rdma: Answer = Answer(127, "", "rdma: No such file or directory")
        self.lnetctl: Answer = Answer(127, "", "lnetctl: No such file or directory")

    def run(self, argv: list[str], timeout: float = 0) -> Answer:
        """``ip`` of a node with these routes; test_routes.py has the real one."""
        if argv[0] in ("rdma", "lnetctl"):
            return self.rdma if argv[0] == "rdma" else self.lnetctl
        words = argv[2:]
        if words[:2] == ["route", "get"]:
            wanted = ipaddress.ip_address(words[3] if words[2] == "fibmatch" else words[2])
            rows = self.routes if wanted.version == 4 else self.routes_6
            if "vrf" in words:
                rows = self.vrfs[words[-1]]
            nets = [(ipaddress.ip_network(row["dst"]), row) for row in rows if "/" in row["dst"]]
            fitting = [(net.prefixlen, row) for net, row in nets if wanted in net]
            if not fitting:
                return Answer(2, "", "RTNETLINK answers: Network is unreachable")
            return Answer(0, json.dumps([max(fitting, key=lambda one: one[0])[1]]), "")
        rows = {
            "-4 route": self.routes,
            "-6 route": self.routes_6,
            "-4 rule": self.rules,
            "-6 rule": self.rules,
            "address show": [
                {"ifname": name, "addr_info": [{"local": address.partition("/")[0],
                                                "prefixlen": int(address.partition("/")[2])}]}
                for name, address in self.addresses.items()
            ],
            # Of type vrf: ip prints an empty object for each other interface.
            "link show": [{}, {}, *({"ifname": name} for name in self.vrfs)],
        }[" ".join(words[:2])]  # fmt: skip
        return Answer(0, json.dumps(rows), "")

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def stands_on(self, above: str, below: str) -> None:
        self.write(f"sys/class/net/{above}/mtu", "1500\n")
        (self.folder / f"sys/class/net/{below}/upper_{above}").symlink_to(f"../{above}")

    def drives(self, module: str, *interfaces: str) -> None:
        target = self.folder / "sys/module" / module
        target.mkdir(parents=True, exist_ok=True)
        for name in interfaces:
            driver = self.folder / "sys/class/net" / name / "device/driver"
            driver.mkdir(parents=True)
            (driver / "module").symlink_to(target)

    def sockets(self, *lines: str, file: str = "tcp") -> None:
        rows = "".join(f"{number}: {line}\n" for number, line in enumerate(lines))
        self.write("proc/net/" + file, SOCKETS + rows)

    def check(self, settings: dict[str, Any], *running: str, **more: Any) -> None:
        guard = Guard(str(self.folder), processes=dict.fromkeys(running, 1))
        profile = {"interfaces": settings}
        guard.check(policy(**more), profile)

    def refuses(self, settings: dict[str, Any], *running: str, **more: Any) -> str:
        with pytest.raises(Refused) as caught:
            self.check(settings, *running, **more)
        return str(caught.value)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    made = Root(tmp_path)
    monkeypatch.setattr(programs, "run", made.run)
    monkeypatch.setattr(namespaces, "_others", dict)
    return made


JUMBO = {"eth1": {"mtu": 9000}}


def test_an_interface_under_test_may_be_set(root: Root) -> None:
    root.check(JUMBO, "systemd", "slurmd")


def test_an_empty_root_is_no_reason_to_fail(root: Root, tmp_path: Path) -> None:
    Guard(str(tmp_path / "none"), processes={}).check(policy(), {"interfaces": JUMBO})


def test_routes_that_cannot_be_read_are_refused(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer, word in ((Answer(127, "", "ip: No such file"), "ip: No such file"),
                         (Answer(1, "", "x"), "route show table all failed"),
                         (Answer(0, "nonsense", ""), "not JSON")):  # fmt: skip
        monkeypatch.setattr(programs, "run", lambda argv, timeout=0, answer=answer: answer)
        assert word in root.refuses(JUMBO)


def test_not_under_test(root: Root) -> None:
    said = root.refuses({"eth7": {"mtu": 9000}})
    assert "eth7 is not under test on n1" in said
    assert "eth1, eth2" in said
    assert "under test: none" in root.refuses({"eth7": {"mtu": 9000}}, nodes={})


def test_protected_also_where_it_is_listed_as_under_test(root: Root) -> None:
    said = root.refuses({"eth0": {"mtu": 9000}}, nodes={"n1": ["eth0", "eth1"]})
    assert "eth0" in said
    assert "management" in said


def test_members_of_a_bond_count(root: Root) -> None:
    bond = {"name": "bond1", "mode": "balance-rr", "members": ["eth1", "eth7"]}
    assert "eth7 is not under test" in root.refuses({"eth1": {"bond": bond}})


@pytest.mark.parametrize("destination", ["default", "0.0.0.0/1", "128.0.0.0/1"])
def test_the_default_route(root: Root, destination: str) -> None:
    root.routes = [route("eth1", destination)]
    assert root.refuses(JUMBO) == "eth1 carries the node's default route"
    # A network of its own is none.
    root.routes = [route("eth1", "10.1.0.0/16")]
    root.check(JUMBO)


def test_the_default_route_of_ipv6(root: Root) -> None:
    root.routes_6 = [route("lo", type="unreachable")]
    root.check(JUMBO)
    root.routes_6.append(route("eth1"))
    assert root.refuses(JUMBO) == "eth1 carries the node's default route"


@pytest.mark.parametrize("chain", [("bond0",), ("vlan7",), ("bond0", "bond0.7", "br0")])
def test_the_default_route_through_what_stands_on_it(root: Root, chain: tuple[str, ...]) -> None:
    below = "eth1"
    for name in chain:
        root.stands_on(name, below)
        below = name
    root.check(JUMBO)
    root.routes = [route(below)]
    assert root.refuses(JUMBO) == f"eth1 carries the node's default route (by {below})"
    root.check({"eth2": {"mtu": 9000}})


def connection(local: str, port: int, peer: int, state: str = "01", uid: int = 0) -> str:
    write = number_6 if ":" in local else number
    far = write("fd00::9" if ":" in local else "10.9.9.9")
    return (f"{write(local)}:{port:04X} {far}:{peer:04X} {state} "
            f"00000000:00000000 00:00000000 00000000 {uid:5} 0 1234")  # fmt: skip


SLURM_ON_ETH1 = "eth1 carries Slurm's own traffic"


def test_slurms_own_traffic(root: Root) -> None:
    root.routes += [route("eth1", "10.1.0.0/16"), route("eth2", "10.2.0.0/16")]
    root.addresses = {"eth1": "10.1.0.5/16", "eth2": "10.2.0.5/16"}
    root.sockets(connection("10.1.0.5", 40000, 6817))
    assert root.refuses(JUMBO) == SLURM_ON_ETH1
    root.check({"eth2": {"mtu": 9000}})


@pytest.mark.parametrize(
    "rows",
    [
        [connection("10.1.0.5", 40000, 22)],
        [connection("10.1.0.5", 40000, 6817, uid=1000)],  # a user's own
        [connection("10.1.0.5", 40000, 6817, state="06")],  # over, so that nobody tells whose
        # Anybody can call a daemon of this node from that port.
        [connection("0.0.0.0", 6818, 0, "0A"), connection("10.1.0.5", 6818, 6817)],
    ],
    ids=["another service", "a user", "an old one", "called from there"],
)
def test_what_a_user_could_make_look_like_slurms_traffic(root: Root, rows: list[str]) -> None:
    """Else any user could have a node refuse its profiles, and drain."""
    root.addresses = {"eth1": "10.1.0.5/16"}
    root.routes += [route("eth1", "10.0.0.0/8")]
    root.sockets(*rows)
    root.check(JUMBO)


def test_slurm_with_ports_of_its_own_and_on_a_vlan(root: Root) -> None:
    root.stands_on("eth1.7", "eth1")
    root.addresses = {"eth1.7": "10.1.0.5/16"}
    root.sockets(connection("10.1.0.5", 40000, 7001))
    root.check(JUMBO)
    assert root.refuses(JUMBO, slurm_ports=[7000, 7001]) == SLURM_ON_ETH1 + " (by eth1.7)"


@pytest.mark.parametrize(
    "listener",
    [
        connection("10.1.0.6", 40000, 0, "0A", uid=1000),
        connection("0.0.0.0", 40000, 0, "0A", uid=1000),
        connection("127.0.0.1", 40000, 0, "0A"),  # root's, on another address
    ],
)
def test_who_listens_elsewhere_does_not_hide_slurms_connection(root: Root, listener: str) -> None:
    root.addresses = {"eth1": "10.1.0.5/16"}
    root.sockets(connection("10.1.0.5", 40000, 6817), listener)
    assert root.refuses(JUMBO) == SLURM_ON_ETH1
    root.sockets(connection("10.1.0.5", 40000, 6817), connection("10.1.0.5", 40000, 0, "0A"))
    root.check(JUMBO)
    root.sockets(connection("::ffff:10.1.0.5", 40000, 6817), file="tcp6")
    root.sockets(connection("0.0.0.0", 40000, 0, "0A"))
    root.check(JUMBO)


def test_slurm_over_ipv6(root: Root) -> None:
    """With EnableIPv6, also its IPv4 connections are listed there."""
    root.addresses = {"eth1": "10.1.0.5/16"}
    root.sockets(connection("::ffff:10.1.0.5", 40000, 6817), file="tcp6")
    assert root.refuses(JUMBO) == SLURM_ON_ETH1
    root.sockets(connection("fd00::1", 40000, 6817), file="tcp6")
    root.check(JUMBO)
    root.addresses = {"eth1": "fd00::1/64"}
    assert root.refuses(JUMBO) == SLURM_ON_ETH1
    root.check({"eth2": {"mtu": 9000}})


def test_the_way_of_a_connection_counts_not_only_its_address(root: Root) -> None:
    """The address is of eth2, and what is sent leaves by eth1."""
    root.addresses = {"eth2": "10.2.0.5/16"}
    root.routes += [route("eth1", "10.9.0.0/16")]
    root.sockets(connection("10.2.0.5", 40000, 6817))
    assert root.refuses(JUMBO) == SLURM_ON_ETH1


def test_the_way_to_a_controller(root: Root) -> None:
    """Also while no connection to it is open."""
    root.routes += [route("eth1", "10.9.0.0/16")]
    assert root.refuses(JUMBO, controllers=["10.9.9.9"]) == SLURM_ON_ETH1
    root.check(JUMBO, controllers=["10.8.8.8"])
    root.check({"eth2": {"mtu": 9000}}, controllers=["10.9.9.9"])


def test_the_way_to_a_controller_within_a_vrf(root: Root) -> None:
    """This machine's kernel has none."""
    root.vrfs = {"management": [route("eth1", "10.9.0.0/16")]}
    assert root.refuses(JUMBO, controllers=["10.9.9.9"]) == SLURM_ON_ETH1
    root.check({"eth2": {"mtu": 9000}}, controllers=["10.9.9.9"])
    root.routes.append(route("eth2", table="10"))
    said = root.refuses({"eth2": {"mtu": 9000}})
    assert said == "eth2 carries the node's default route of routing table 10"


def tuned(root: Root, active: str, **profiles: str) -> None:
    root.write("etc/tuned/active_profile", active + "\n")
    for name, text in profiles.items():
        root.write(f"usr/lib/tuned/{name}/tuned.conf", text)


@pytest.mark.parametrize(
    ("active", "named"),
    [
        ("nets", "nets"),
        ("typed", "typed"),
        ("one", "nets"),
        ("several", "nets"),
        ("plain one", "nets"),
        ("plain", None),
        ("circle", None),
    ],
)
def test_tuned(root: Root, active: str, named: str | None) -> None:
    tuned(
        root, active,
        nets="[main]\nsummary=x\n[net]\ndevices_udev_regex=.*\n",
        typed="[cards]\ntype=net\ncoalesce=rx-usecs 3\n",
        one="[main]\ninclude=nets\n",
        several="[main]\ninclude = plain, nets\n",
        plain="[main]\nsummary=[net] is not here\n[sysctl]\nnet.core.busy_poll=1\n",
        circle="[main]\ninclude=circle\n",
    )  # fmt: skip
    root.check(JUMBO)  # not running
    root.check({"eth1": {"rps_cpus": "all"}}, "tuned")  # nothing that it would set
    if named is None:
        root.check(JUMBO, "tuned")
    else:
        assert f"tuned runs, and its profile {named} sets" in root.refuses(JUMBO, "tuned")


def test_an_administrators_profile_of_tuned_hides_the_one_that_came_with_it(root: Root) -> None:
    tuned(root, "nets", nets="[net]\n")
    root.write("etc/tuned/nets/tuned.conf", "[main]\n")
    root.check(JUMBO, "tuned")


def test_networkmanager(root: Root) -> None:
    root.write("sys/class/net/eth1/ifindex", "3\n")
    root.check(JUMBO, "NetworkManager")
    root.write("run/NetworkManager/devices/3", "[device]\nmanaged=true\n")
    root.check(JUMBO)  # left over from one that has ended
    said = root.refuses(JUMBO, "NetworkManager")
    assert "NetworkManager manages eth1" in said
    assert "nmcli device set eth1 managed no" in said
    root.write("run/NetworkManager/devices/3", "[device]\nmanaged=false\n")
    root.check(JUMBO, "NetworkManager")
    root.check({"eth2": {"mtu": 9000}}, "NetworkManager")


def test_irqbalance_only_where_interrupts_are_pinned(root: Root) -> None:
    root.check(JUMBO, "irqbalance")
    root.check({"eth1": {"irq_affinity": "0"}})
    assert "irqbalance runs" in root.refuses({"eth1": {"irq_affinity": "0"}}, "irqbalance")


def test_virtual_functions_that_there_are_stay(root: Root) -> None:
    """Of the host or of containers: their addresses, VLANs and rates would be lost."""
    root.check({"eth1": {"vfs": 4}})
    root.write("sys/class/net/eth1/device/sriov_numvfs", "8\n")
    said = root.refuses({"eth1": {"vfs": 4}})
    assert said.startswith("eth1 has 8 virtual functions, which vfs would remove with all that")
    root.check({"eth1": {"vfs": 8, "mtu": 9000}})
    root.drives("e1000e", "eth2")
    assert "which driver would remove" in root.refuses(driver())
    root.write("sys/class/net/eth1/device/sriov_numvfs", "0\n")
    root.check({"eth1": {"vfs": 4}})
    root.check(driver())
    root.write("sys/class/net/eth2/device/sriov_numvfs", "2\n")
    assert root.refuses(driver()).startswith("eth2 has 2 virtual functions")
    root.check({"eth1": {"vfs": 4}})


def driver(**more: Any) -> dict[str, Any]:
    return {"eth1": {"driver": {"module": "e1000e", "parameters": {}, **more}}}


def test_a_card_of_the_driver_in_another_network_namespace(root: Root) -> None:
    root.drives("e1000e", "eth1")
    device = "sys/module/e1000e/drivers/pci:e1000e/0000:01:00.0"
    for at, interface in enumerate(("eth1", "")):
        place = f"{device[:-1]}{at}"
        root.write(f"{place}/class", "0x020000\n")
        (root.folder / place / "net" / interface).mkdir(parents=True)
        if interface:
            root.check(driver())
    said = root.refuses(driver())
    assert "the interface of its device 0000:01:00.1 is in another network namespace" in said
    (root.folder / "sys/module/e1000e/drivers/pci:e1000e/bind").touch()


def test_a_partition_of_infiniband_stands_on_its_interface(root: Root) -> None:
    for number, (name, below) in enumerate((("eth1", 1), ("eth1.8001", 1), ("eth2", 3)), 1):
        root.write(f"sys/class/net/{name}/type", "32\n")
        root.write(f"sys/class/net/{name}/ifindex", f"{number}\n")
        root.write(f"sys/class/net/{name}/iflink", f"{below}\n")
    root.check(JUMBO)
    root.routes = [route("eth1.8001")]
    assert "carries the node's default route (by eth1.8001)" in root.refuses(JUMBO)
    root.write("sys/class/net/eth1.8001/type", "1\n")  # as the other end of a veth
    root.check(JUMBO)


Setup = Callable[[Root], None]


def route_on_eth3(root: Root) -> None:
    root.routes = [route("eth3")]


@pytest.mark.parametrize(
    ("interfaces", "more", "setup", "named"),
    [
        (("eth1", "eth2"), {}, None, ""),
        (("eth1", "eth3"), {}, None, "eth3 is not under test"),
        (("eth1", "eth3"), {"allow_shared": True}, None, ""),
        (("eth1", "eth0"), {"allow_shared": True}, None, "eth0 is not under test"),
        (("eth1", "eth3"), {"allow_shared": True}, route_on_eth3, "eth3 carries the node's"),
    ],
)  # fmt: skip
def test_a_driver_that_others_have_too(
    root: Root, interfaces: tuple[str, ...], more: dict, setup: Setup | None, named: str
) -> None:
    root.drives("e1000e", *interfaces)
    root.drives("igb", "eth9")
    if setup:
        setup(root)
    if not named:
        root.check(driver(**more))
        return
    said = root.refuses(driver(**more))
    assert said.startswith("driver e1000e cannot be reloaded: ")
    assert named in said
