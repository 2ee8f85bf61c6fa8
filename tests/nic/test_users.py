"""What uses an interface whose MTU changes: in this network namespace, and in another one."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from place import NODE, Place, made_place
from test_links import JOB, Node, a_node

from seatrial.nic.node import mtus, namespaces, netlink, programs, readers
from seatrial.nic.node.errors import Unrestored

PROFILES: dict[str, Any] = {
    "default": {},
    "small": {"eth1": {"mtu": 1500}},
    "queue": {"eth1": {"txqueuelen": 50}},
}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """eth1 with an MTU of 9000; a macvlan on it, and one on that."""
    setup = (
        "ip link add eth1 mtu 9000 type veth peer name peer1; ip link add tap0 type veth;"
        "ip link add link eth1 name mv1 mtu 9000 type macvlan mode bridge;"
        "ip link add link eth1 name mv2 mtu 4000 type macvlan mode bridge"
    )
    with made_place(tmp_path, PROFILES, setup) as made:
        yield made


@pytest.mark.root
def test_the_mtus_of_users_come_back(place: Place) -> None:
    assert place.begin("small").returncode == 0
    assert [place.mtu(name) for name in ("eth1", "mv1", "mv2")] == [1500, 1500, 1500]
    place.ip("link", "set", "mv2", "name", "mv7")
    answer = place.end("small")
    assert answer.returncode == 0, answer.stderr
    assert [place.mtu(name) for name in ("eth1", "mv1", "mv7")] == [9000, 9000, 4000]


@pytest.mark.root
def test_a_user_that_is_gone_is_no_trouble(place: Place) -> None:
    assert place.begin("small").returncode == 0
    place.ip("link", "del", "mv1")
    assert place.end("small").returncode == 0
    assert place.mtu("eth1") == 9000


#: what the kernel changes with the MTU, and what it leaves alone
IPV6 = """
echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
ip link set eth1 up; ip link set peer1 up; ip link set mv1 up; ip link set lo up
ip link add link eth1 name mv3 mtu 9000 type macvlan mode bridge; ip link set mv3 up
ip address add 10.1.0.1/16 dev eth1; ip address add fd01::1/64 dev eth1
ip address add fd02::1/64 dev mv1
ip -6 route add fd05::/64 via fd01::9 dev eth1 mtu 8000 advmss 7000 pref high
ip -6 route add fd06::/64 via fd01::9 dev eth1 mtu lock 8000
ip -6 route add fd07::/64 via fd01::9 dev eth1 mtu 1400
ip -6 route add fd08::/64 via fd02::9 dev mv1 mtu 8000 table 77 metric 7 proto static
ip -6 route add fd09::/64 mtu 7000 nexthop via fd01::3 nexthop via fd01::4 dev eth1 weight 3
ip nexthop add id 7 via fd01::7 dev eth1; ip -6 route add fd0a::/64 mtu 7000 nhid 7
ip -6 route add fd0b::/64 via fd01::9 from fd01::/64 mtu 8000
ip -6 route add local fd0c::/64 dev eth1 mtu 8000 table 77
ip -6 route add fd0d::/64 via fd01::9 mtu 9000
ip -6 route add fd0e::/64 via fd01::9 mtu 6000 expires 5000
ip route add 10.2.0.0/16 via 10.1.0.9 mtu 8000
ip route add 10.3.0.0/16 via 10.1.0.9 mtu lock 8000
echo 7000 > /proc/sys/net/ipv6/conf/eth1/mtu
echo 6000 > /proc/sys/net/ipv6/conf/mv1/mtu
sleep 0.2
"""


def ipv6_of(place: Place) -> list[str]:
    """Routes, addresses and IPv6 MTUs."""
    shown = "; ".join(
        [
            "ip -oneline -4 route show table all",
            "ip -oneline -6 route show table all",
            "ip -oneline address show",
            "cd /proc/sys/net/ipv6/conf; for i in eth1 mv1 mv3; do echo $i $(cat $i/mtu); done",
        ]
    )
    text = subprocess.run(
        place.inside("sh", "-ec", shown), capture_output=True, text=True, check=True
    ).stdout
    text = re.sub(r"expires \d+sec| tentative", "", text)
    # The kernel adds its own when it comes to it.
    late = ("fe80:", " table local ")
    return sorted(line for line in text.splitlines() if not any(one in line for one in late))


@pytest.mark.root
@pytest.mark.parametrize("mtu", [1500, 9500])
def test_mtus_of_ipv6_come_back(place: Place, mtu: int) -> None:
    """Raised, the kernel cuts those above the old MTU when it comes back."""
    place.data["profiles"]["small"]["interfaces"] = {"eth1": {"mtu": mtu}}
    place.write()
    place.shell(IPV6)
    if mtu > 9000:
        place.shell("ip -6 route add fd0f::/64 via fd01::9 mtu 9400")
    before = ipv6_of(place)
    assert place.begin("small").returncode == 0
    assert ipv6_of(place) != before
    answer = place.end("small")
    assert answer.returncode == 0, answer.stderr
    assert ipv6_of(place) == before


@pytest.mark.root
def test_an_ipv6_mtu_that_cannot_be_restored_is_said(place: Place) -> None:
    """The kernel refuses a gateway that is in no network of the interface."""
    place.shell(IPV6)
    before = ipv6_of(place)
    assert place.begin("small").returncode == 0
    place.ip("-6", "route", "del", "fd01::/64", "dev", "eth1")
    answer = place.end("small")
    assert answer.returncode == 4
    assert "mtu of the IPv6 route fd09::/64 metric 1024" in answer.stderr
    assert "is 9000, was 7000 before" in answer.stderr
    assert "No route to host" in answer.stderr
    place.shell("ip -6 route add fd01::/64 dev eth1 proto kernel metric 256")
    assert place.run("recover").returncode == 0
    assert ipv6_of(place) == before


def test_a_route_of_a_renamed_interface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, index in (("mv7", 5), ("eth1", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ifindex").write_text(f"{index}\n")
    monkeypatch.setattr(readers, "SYSFS", str(tmp_path))
    monkeypatch.setattr(readers, "PROC", str(tmp_path))
    shown = "fd08::/64 via fd02::9 dev mv7 metric 7 expires 80sec mtu 9000 pref medium linkdown\n"
    monkeypatch.setattr(programs, "run", lambda argv: programs.Answer(0, shown, ""))
    line = "fd08::/64 via fd02::9 dev mv1 metric 7 expires 90 mtu 8000 pref medium"
    recorded = line.split()
    record = {"devices": [{"name": "mv1", "ifindex": 5, "mtu": 8000}], "routes": [recorded]}
    ((text, action),) = mtus.different_ipv6(record)
    assert text == (
        "mtu of the IPv6 route fd08::/64 via fd02::9 dev mv7 metric 7 pref medium is 9000, "
        "was 8000 before"
    )
    assert action.argv == ["ip", "-6", "route", "replace", *(
        "mv7" if word == "mv1" else word for word in recorded
    )]  # fmt: skip


@pytest.mark.root
def test_a_route_that_is_gone_is_no_trouble(place: Place) -> None:
    place.shell(IPV6)
    assert place.begin("small").returncode == 0
    place.ip("-6", "route", "del", "fd05::/64")
    assert place.end("small").returncode == 0
    assert not [line for line in ipv6_of(place) if line.startswith("fd05")]


@pytest.mark.root
def test_an_mtu_that_another_namespace_would_lose_is_refused(place: Place) -> None:
    """Also where the macvlan was made there, and its namespace has a name only."""
    other = f"seatrial-test-other-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", other], check=True)
    try:
        place.ip("link", "add", "link", "eth1", "name", "away", "netns", other, "type", "macvlan")
        answer = place.begin("small")
        assert answer.returncode == 2
        assert "eth1 is used by away (in " in answer.stderr
        assert "leave out mtu" in answer.stderr
        assert place.mtu("eth1") == 9000
        place.end("small")
        # A setting that cuts nothing there.
        answer = place.begin("queue")
        assert answer.returncode == 0, answer.stderr
        assert place.end("queue").returncode == 0
    finally:
        subprocess.run(["ip", "netns", "delete", other], check=True)
    assert place.begin("small").returncode == 0
    assert place.end("small").returncode == 0


@pytest.mark.root
def test_a_bridge_between_the_interface_and_the_other_namespace(place: Place) -> None:
    other = f"seatrial-test-other-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", other], check=True)
    try:
        place.shell(
            "ip link del mv1; ip link del mv2; ip link add br0 type bridge;"
            "ip link set eth1 master br0;"
            f"ip link add link br0 name away netns {other} type macvlan"
        )
        answer = place.begin("small")
        assert answer.returncode == 2
        assert "eth1 is used by away (in " in answer.stderr
        assert place.end("small").returncode == 0
    finally:
        subprocess.run(["ip", "netns", "delete", other], check=True)
    assert place.mtu("br0") == 9000
    assert place.begin("small").returncode == 0
    assert place.mtu("br0") == 1500
    assert place.end("small").returncode == 0
    assert place.mtu("br0") == 9000


@pytest.mark.root
def test_what_uses_an_interface_of_a_third_namespace_is_no_reason(place: Place) -> None:
    """It has the same index there as eth1 has here."""
    third, other = (f"seatrial-test-{word}-{os.getpid()}" for word in ("third", "other"))
    index = place.ip("-o", "link", "show", "eth1").split(":")[0]
    for name in (third, other):
        subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        words = f"link add eth1 index {index} type veth peer name peer1".split()
        subprocess.run(["ip", "-n", third, *words], check=True)
        words = f"link add link eth1 name away netns {other} type macvlan".split()
        subprocess.run(["ip", "-n", third, *words], check=True)
        answer = place.begin("small")
        assert answer.returncode == 0, answer.stderr
        assert place.end("small").returncode == 0
    finally:
        for name in (third, other):
            subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.mark.root
def test_an_interface_with_an_odd_name_in_the_namespace_of_any_user(place: Place) -> None:
    """Any user can make one in a namespace of his own. It must not drain the node."""
    script = "ip link add \"$(printf 'a\\001b')\" type veth && echo made && read x"
    command = ["unshare", "--net", "sh", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"made\n"
        answer = place.begin("small")
        process.communicate(b"\n")
    assert answer.returncode == 0, answer.stderr
    place.end("small")


#: sends a message to the netlink port of each process that may start next, again and again
SENDER = """
import os, socket, struct, sys, time
line = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
message = bytes.fromhex(sys.argv[1])
print("sends", flush=True)
end = time.monotonic() + 600
while time.monotonic() < end:
    first = int(open("/proc/loadavg").read().split()[-1])
    for pid in range(first - 40, first + 10):
        try:
            line.sendto(message, (pid, 0))
        except OSError:
            pass
"""


@pytest.mark.root
@pytest.mark.parametrize(
    "message",
    [b"\0" * 16, b"junk", struct.pack("=LHHLL", 16, 3, 0, 1, 0)],
    ids=["0", "junk", "end"],
)
def test_messages_of_the_user_of_a_namespace_are_not_believed(message: bytes) -> None:
    """A length of 0, half a header, and an end of the list before it has begun."""
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "unshare", "-Urn"]
    script = f"for i in $(seq 30); do ip link add type veth; done; exec {sys.executable} -c "
    words = [*nobody, "sh", "-c", script + '"$0" "$1"', SENDER, message.hex()]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            if process.stdout.readline() != b"sends\n":
                pytest.skip("this kernel lets no user make a namespace")
            path = f"/proc/{process.pid}/ns/net"
            # The port of a socket is the process's id where that is free.
            ask = (
                f"import sys; sys.path.insert(0, {str(NODE.parent)!r})\n"
                "from node import netlink\n"
                f"one = netlink.Namespace({path!r})\n"
                "import time; time.sleep(0.3)\n"
                "sys.stdout.write(str(len(list(one._ask(18, 0x300, bytes(16))))))"
            )
            for _ in range(5):
                answer = subprocess.run(
                    [sys.executable, "-c", ask], capture_output=True, text=True, timeout=900
                )
                assert (answer.returncode, answer.stdout) == (0, "61"), answer.stderr
        finally:
            process.kill()


@pytest.mark.root
@pytest.mark.parametrize("uid", [0, 65534])
def test_a_namespace_that_does_not_answer_in_time(
    uid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user can make his so large that a list of it takes long. Only he could lose something."""
    become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
    words = [*become, "unshare", "-Urn" if uid else "-n", "sh", "-c", "echo made; read x"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            if process.stdout.readline() != b"made\n":
                pytest.skip("this kernel lets no user make a namespace")
            path = f"/proc/{process.pid}/ns/net"
            assert namespaces._owner(path) == uid
            monkeypatch.setattr(namespaces, "_others", lambda: {1: path})
            assert namespaces.Elsewhere().users_of({"lo"}) == []
            monkeypatch.setattr(namespaces, "USERS_S", 0.0)
            monkeypatch.setattr(netlink, "TIMEOUT_S", 0.0)
            elsewhere = namespaces.Elsewhere()
            if uid:
                assert elsewhere.users_of({"lo"}) == []
                (said,) = elsewhere.unread
                assert f"what user {uid} has in the network namespace {path} is not known" in said
            else:
                with pytest.raises(namespaces.Refused, match=f"{path} cannot be read"):
                    elsewhere.users_of({"lo"})
        finally:
            process.kill()


def test_a_namespace_that_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net"
    path.touch()
    monkeypatch.setattr(namespaces, "_others", lambda: {1: str(path)})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(namespaces.Refused, match=f"{path} cannot be read: .*Invalid argument"):
        namespaces.Elsewhere().users_of({"eth1"})
    path.unlink()  # it ended meanwhile
    assert namespaces.Elsewhere().users_of({"eth1"}) == []


@pytest.mark.root
def test_no_program_is_started_for_a_namespace(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node has one for each container, and a Prolog is waited for."""

    def started(*_: object, **__: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr(programs, "run", started)
    path = f"/run/netns/{place.name}"
    namespace = netlink.Namespace(path)
    names = {interface.name: interface.kind for interface in namespace.interfaces()}
    namespace.close()
    assert names == {"eth1": "veth", "peer1": "veth", "tap0": "veth", "veth0": "veth",
                     "mv1": "macvlan", "mv2": "macvlan"}  # fmt: skip
    assert path in namespaces._others().values()
    assert namespaces.Elsewhere().users_of({"lo"}) == []


@pytest.fixture
def node() -> Iterator[Node]:
    with a_node() as made:
        yield made


@pytest.mark.parametrize("refused", [False, True])
def test_a_vlan_on_a_bond(node: Node, refused: bool) -> None:
    """This machine's kernel has neither. The fake ones cut the MTU as the kernel does."""
    for below, above in (("eth1", "bond7"), ("bond7", "bond7.5")):
        node.machine._new(above, bond=above == "bond7").mtu = 9000
        node.machine.cards[below].users = (above,)
        node.machine.cards[below].mtu = 9000
    node.machine.sync()
    node.session().begin_job(JOB, "x", {"interfaces": {"eth1": {"mtu": 1500}}})
    assert {node.machine.cards[name].mtu for name in ("eth1", "bond7", "bond7.5")} == {1500}
    if refused:
        node.machine.fails = {"ip link set dev bond7.5 mtu": "Invalid argument"}
        with pytest.raises(Unrestored, match=r"bond7\.5: mtu is 1500, was 9000 before"):
            node.session().end_job(JOB, True)
        node.machine.fails = {}
    node.session().end_job(JOB, True)
    assert {node.machine.cards[name].mtu for name in ("eth1", "bond7", "bond7.5")} == {9000}
