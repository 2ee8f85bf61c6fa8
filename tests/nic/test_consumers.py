"""Storage and RDMA that a setting would interrupt, and the daemons that would undo one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from place import Place, made_place
from test_guard import JUMBO, Root, number, root, route

from seatrial.nic.node import owner
from seatrial.nic.node.daemons import Daemons
from seatrial.nic.node.programs import Answer

__all__ = ["root"]  # a fixture

MOUNT = "36 28 0:42 / {} rw,relatime shared:1 - {} {} {}\n"
#: that may be set whatever the interface carries
HARMLESS = {"eth1": {"coalesce.rx-usecs": 0, "txqueuelen": 50, "rps_cpus": "all"}}


def mounted(*mounts: tuple[str, str, str, str]) -> Callable[[Root], None]:
    def make(root: Root) -> None:
        root.write("proc/1/mountinfo", "".join(MOUNT.format(*mount) for mount in mounts))

    return make


def files(**texts: str) -> Callable[[Root], None]:
    def make(root: Root) -> None:
        for path, text in texts.items():
            root.write(path, text)

    return make


def lnet(root: Root) -> None:
    root.write("sys/module/lnet/refcnt", "3\n")
    root.write("sys/kernel/debug/lnet/nis", "nid status alive refs peer rtr max tx min\n"
               "10.1.0.5@tcp up -1 1 8 0 256 256 256\n")  # fmt: skip
    root.addresses = {"eth1": "10.1.0.5/24"}


def lnet_by_lnetctl(root: Root) -> None:
    root.write("sys/module/lnet/refcnt", "3\n")
    text = "      - nid: 10.1.0.5@tcp\n        interfaces:\n            0: eth1\n"
    root.lnetctl = Answer(0, text, "")


def roce(kind: str, user: str, uid: str = "", pid: int | None = 0) -> Callable[[Root], None]:
    """``uid``: of the process that has the queue pair; empty: the kernel has it.

    Rows as ``rdma -json`` prints them: those of the kernel have pid 0 or none, and no brackets.
    """

    def make(root: Root) -> None:
        root.write("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "eth1\n")
        rows = [{"ifname": "mlx5_0", "port": 1, "lqpn": 1, "type": "GSI", "pid": 0,
                 "comm": "ib_core"},
                {"ifname": "mlx5_9", "port": 1, "lqpn": 9, "type": "RC", "pid": 0,
                 "comm": "other"},
                {"ifname": "mlx5_0", "port": 1, "lqpn": 2, "type": kind, "comm": user}]  # fmt: skip
        if uid or pid is not None:
            rows[-1]["pid"] = 88 if uid else pid
        if uid:
            root.write("proc/88/status", f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        root.rdma = Answer(0, json.dumps(rows), "")

    return make


def connected(kind: str, program: str, options: str = "rw", **more: str) -> Callable[[Root], None]:
    """A mount, and a program of root with a connection to 10.5.0.9."""

    def make(root: Root) -> None:
        mounted(("/m", kind, "name", options))(root)
        root.write("proc/77/comm", program[:15] + "\n")
        root.write("proc/77/status", f"Name:\tx\nUid:\t{more.get('uid', '0')}\t0\t0\t0\n")
        (root.folder / "proc/77/fd").mkdir()
        for at, target in enumerate([more.get("device", "/dev/null"), "socket:[4711]"]):
            (root.folder / f"proc/77/fd/{at}").symlink_to(target)
        rows = [("10.5.0.9", "01", 4711), ("10.6.0.9", "01", 4712), ("10.6.0.8", "06", 4711)]
        if more.get("listens"):
            rows.append(("0.0.0.0", "0A", 4713))
        root.sockets(
            *(
                f"{number('10.1.0.5')}:0400 {number(peer)}:04A7 {state} 0:0 0:0 0 0 0 {inode}"
                for peer, state, inode in rows
            )
        )
        if "members" in more:
            root.write("var/mmfs/gen/mmsdrfs", more["members"])

    return make


def beegfs(root: Root) -> None:
    mounted(("/b", "beegfs", "beegfs_nodev", "rw,cfgFile=/etc/beegfs/beegfs-client.conf"))(root)
    root.write("proc/fs/beegfs/1-2-n1/storage_nodes",
               "st1 [ID: 1]\n   Connections: TCP: 2 (10.5.0.9:8003);\n")  # fmt: skip


#: as afs_proc_servers_show prints them
SERVERS_OF_KAFS = """UUID                                 REF ACT CELL
00000000-0000-0000-0000-000000000001   3   1 example.org
  - ALIST v=1 rsp=0 f=0 ap=1
    [0]+10.5.0.9:7000 rtt=0 err=0 p=0
"""


def kafs(root: Root) -> None:
    mounted(("/afs", "afs", "#example.org:root.cell.", "rw"))(root)
    # Any user's socket has a peer there.
    root.write(
        "proc/net/rxrpc/peers", "Proto Local Remote Use\nUDP   0.0.0.0:7001 10.7.0.9:7000 1\n"
    )
    root.write("proc/fs/afs/servers", SERVERS_OF_KAFS)


CARRIED: dict[str, tuple[Callable[[Root], None], str]] = {
    "nfs": (mounted(("/home", "nfs4", "s:/home", "rw,vers=4.2,addr=10.5.0.9,clientaddr=10.1.0.5")),
            "the nfs4 mount /home from 10.5.0.9"),
    "nfs over IPv6": (mounted(("/home", "nfs", "srv:/home", "rw,addr=fd05::9")),
                      "the nfs mount /home from fd05::9"),
    "parallel nfs": (files(**{"proc/fs/nfsfs/servers": "NV SERVER   PORT USE HOSTNAME\n"
                                                       "v4 0a050009  801   1 ds1\n"}),
                     "the NFS server 10.5.0.9"),
    "cifs": (mounted(("/w", "cifs", "//srv/w", "rw,addr=10.5.0.9")), "the cifs mount /w"),
    "ceph": (mounted(("/c", "ceph", "10.5.0.8:6789,10.5.0.9:6789:/", "rw")), "the ceph mount /c"),
    "lustre": (mounted(("/l", "lustre", "10.5.0.8@tcp:10.5.0.9@tcp:/fs", "rw")),
               "the lustre mount /l from 10.5.0.8"),
    "beegfs": (beegfs, "the beegfs mount /b from 10.5.0.9"),
    "gpfs": (connected("gpfs", "mmfsd"), "the gpfs mount /m from 10.5.0.9"),
    "gpfs of a member that has connected": (
        connected("gpfs", "mmfsd", listens="yes", members="20_MEMBER_NODE::1:1:n1:10.5.0.9:n1::"),
        "the gpfs mount /m from 10.5.0.9",
    ),
    "rdma of root": (roce("RC", "mmfsd", uid="0"), "mmfsd on RDMA device mlx5_0"),
    "glusterfs": (connected("fuse.glusterfs", "glusterfs", "rw,user_id=0"),
                  "the fuse.glusterfs mount /m from 10.5.0.9"),
    "orangefs": (connected("pvfs2", "pvfs2-client-core"), "the pvfs2 mount /m from 10.5.0.9"),
    "a FUSE without a kind": (connected("fuse", "x", "rw,user_id=0", device="/dev/fuse"),
                              "the fuse mount /m from 10.5.0.9"),
    "another FUSE": (connected("fuse.x", "x", "rw,user_id=0,group_id=0", device="/dev/fuse"),
                     "the fuse.x mount /m from 10.5.0.9"),
    "9p": (mounted(("/9", "9p", "10.5.0.9", "rw,trans=tcp,port=564")), "the 9p mount /9"),
    "kafs": (kafs, "the afs mount /afs from 10.5.0.9"),
    "weka": (mounted(("/w", "wekafs", "10.5.0.8,10.5.0.9/fs", "rw")), "the wekafs mount /w"),
    "lnet": (lnet, "Lustre's network, by 10.1.0.5"),
    "lnetctl": (lnet_by_lnetctl, "Lustre's network"),
    "iscsi": (files(**{"sys/class/iscsi_connection/connection1:0/address": "10.5.0.9\n"}),
              "an iSCSI disk of 10.5.0.9"),
    "nvme": (files(**{"sys/class/nvme/nvme1/address": "traddr=10.5.0.9,trsvcid=4420\n",
                      "sys/class/nvme/nvme1/transport": "tcp\n"}), "the NVMe disk nvme1"),
    "rdma": (roce("RC", "ko2iblnd"), "ko2iblnd on RDMA device mlx5_0"),
    "rdma without pid": (roce("RC", "ib_srp", pid=None), "ib_srp on RDMA device mlx5_0"),
}  # fmt: skip


@pytest.mark.parametrize("what", CARRIED)
def test_what_an_interface_carries_is_not_interrupted(root: Root, what: str) -> None:
    make, words = CARRIED[what]
    root.routes += [route("eth1", "10.5.0.0/16")]
    root.routes_6 += [route("eth1", "fd05::/16")]
    root.check(JUMBO)
    make(root)
    for key, name in (("mtu", "mtu"), ("ring.rx", "ring.rx"), ("channels.combined", "channels")):
        said = root.refuses({"eth1": {key: 1}})
        assert said.startswith(f"eth1 carries {words}"), said
        assert name in said
    root.check(HARMLESS)
    root.check({"eth2": {"mtu": 9000}})


def test_a_driver_and_a_bond_interrupt_others_too(root: Root) -> None:
    CARRIED["nfs"][0](root)
    root.routes += [route("eth2", "10.5.0.0/16")]
    bond = {"name": "bond1", "mode": "balance-rr", "members": ["eth1", "eth2"]}
    assert "eth2 carries the nfs4 mount" in root.refuses({"eth1": {"bond": bond}})
    root.check({"eth1": {"driver": {"module": "e1000e"}}})
    root.drives("e1000e", "eth1", "eth2")
    assert "eth2 carries the nfs4 mount" in root.refuses({"eth1": {"driver": {"module": "e1000e"}}})


@pytest.mark.parametrize(
    "make",
    [
        mounted(("/home", "nfs4", "srv:/home", "rw,addr=10.6.0.9")),  # by another interface
        mounted(("/home", "ext4", "/dev/sda1", "rw,addr=10.5.0.9")),
        mounted(("/u", "fuse.sshfs", "u@10.5.0.9:/", "rw,user_id=1000")),  # of a user
        files(**{"sys/class/nvme/nvme0/address": "0000:01:00.0\n",
                 "sys/class/nvme/nvme0/transport": "pcie\n"}),
        mounted(("/9", "9p", "share", "rw,trans=virtio")),
        connected("fuse.x", "x", "rw,user_id=1000", device="/dev/fuse"),
        mounted(("/m", "fuse.glusterfs", "10.5.0.9:/v", "rw,user_id=1000")),  # a name of his choice
        mounted(("/m", "fuse.glusterfs", "x", "rw,user_id=1000,group_id=0")),
        # Python takes more characters for blanks and ends of lines than the kernel escapes.
        mounted(("/m", "fuse.glusterfs", "10.5.0.9\u2003user_id=0\r", "rw,user_id=1000")),
        mounted(("/m", "fuse.glusterfs", "x\x1cuser_id=0\x85", "rw,user_id=1000")),
        connected("fuse.x", "x", "rw,user_id=0"),  # it serves none
        connected("fuse", "x", "rw,user_id=1000", device="/dev/fuse"),
        # Anybody on the network can connect to it.
        connected("fuse.x", "x", "rw,user_id=0", device="/dev/fuse", listens="yes"),
        roce("RC", "ib_write_bw", uid="1000"),
        connected("fuse.x", "x", "rw,user_id=0", device="/dev/fuse", uid="1000"),
        roce("RC", "[ko2iblnd]", uid="1000"),
        roce("UD", "ib_ipoib"),
        roce("REG_UMR", "mlx5_ib", pid=None),
        roce("SMI", "ib_core"),
    ],
    ids=["another way", "a disk", "a user's", "a local disk", "virtio", "FUSE of a user",
         "glusterfs of a user", "glusterfs of a user without an address",
         "a blank of Unicode in a source", "an end of a line of Unicode in a source", "no FUSE",
         "a FUSE of a user without a kind",
         "a connection from elsewhere to FUSE of root", "a queue pair of a user",
         "FUSE by a user", "a queue pair of a user with a name of the kernel", "IPoIB",
         "a queue pair of the driver", "management"],
)  # fmt: skip
def test_what_does_not_count(root: Root, make: Callable[[Root], None]) -> None:
    root.routes += [route("eth1", "10.5.0.0/16"), route("eth2", "10.6.0.0/16")]
    make(root)
    root.check(JUMBO)


@pytest.mark.parametrize(
    "make",
    [
        mounted(("/m", "beegfs", "beegfs_nodev", "rw")),
        connected("gpfs", "another"),
        connected("gpfs", "mmfsd", uid="1000"),
        connected("gpfs", "mmfsd", listens="yes", members="20_MEMBER_NODE::1:1:n1:10.8.0.9:n1::"),
        mounted(("/m", "fuse.glusterfs", "srv:/vol", "rw,user_id=0")),
        mounted(("/m", "9p", "fds", "rw,trans=fd,rfd=3,wfd=4")),
        mounted(("/m", "afs", "AFS", "rw")),
        mounted(("/m", "wekafs", "srv/fs", "rw")),
    ],
    ids=[
        "beegfs",
        "gpfs",
        "gpfs of a user",
        "gpfs of no member",
        "glusterfs",
        "9p",
        "openafs",
        "weka",
    ],
)
def test_servers_that_nothing_shows_are_refused(root: Root, make: Callable[[Root], None]) -> None:
    make(root)
    said = root.refuses(JUMBO)
    assert "mount /m cannot be known: leave out settings that can take a link down" in said
    root.check(HARMLESS)


def test_what_cannot_be_read_is_refused(root: Root) -> None:
    root.write("sys/module/lnet/refcnt", "3\n")
    assert "mount debugfs, or install lnetctl" in root.refuses(JUMBO)
    lnet_by_lnetctl(root)
    root.check({"eth2": {"mtu": 9000}})
    root.write("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "eth2\n")
    said = root.refuses({"eth2": {"mtu": 9000}})
    assert "what uses RDMA device mlx5_0 cannot be read: install rdma" in said
    root.check({"eth2": {"coalesce.rx-usecs": 0}})


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    setup = (
        "for i in eth1 tap0; do ip link add $i type veth peer name p$i; ip link set $i up; "
        "ip link set p$i up; done; ip address add 10.1.0.1/16 dev eth1"
    )
    profiles = {"default": {}, "jumbo": JUMBO, "queue": {"eth1": {"txqueuelen": 9}}}
    with made_place(tmp_path, profiles, setup) as made:
        yield made


@pytest.mark.root
def test_a_real_mount_over_a_real_interface(place: Place, tmp_path: Path) -> None:
    """The mount table is the process's own: one line of it is made with a bind mount."""
    table = tmp_path / "mountinfo"
    table.write_text(MOUNT.format("/home", "nfs4", "srv:/home", "rw,addr=10.1.0.9"))

    def prolog(profile: str) -> Any:
        first = f"mount --bind {table} /proc/1/mountinfo"
        answer = place.begin(profile, first=first)
        place.end(profile)
        return answer

    answer = prolog("jumbo")
    assert answer.returncode == 2
    assert "eth1 carries the nfs4 mount /home from 10.1.0.9: mtu can take its link down" in (
        answer.stderr
    )
    assert prolog("queue").returncode == 0
    table.write_text(MOUNT.format("/home", "nfs4", "srv:/home", "rw,addr=10.2.0.9"))
    assert prolog("jumbo").returncode == 0


# -- daemons


def managed(root: Root, text: str, **network: str) -> None:
    root.write("sys/class/net/eth1/ifindex", "3\n")
    root.write("run/systemd/netif/links/3", text)
    for name, content in network.items():
        root.write(f"etc/systemd/network/{name}", content)


def test_systemd_networkd(root: Root) -> None:
    state = "ADMIN_STATE=configured\nNETWORK_FILE=/etc/systemd/network/rail\n"
    reload = {"eth1": {"driver": {"module": "e1000e"}}}
    managed(root, state, rail="[Match]\nName=eth1\n[Network]\nDHCP=yes\n")
    root.check(reload)  # it does not run
    said = root.refuses(reload, "systemd-networkd")
    assert "systemd-networkd manages eth1 (/etc/systemd/network/rail)" in said
    assert "Unmanaged=yes" in said
    # It sets an MTU only where it was told to.
    root.check(JUMBO, "systemd-networkd")
    managed(root, state, rail="[Match]\nName=eth1\n[Link]\nMTUBytes=1500\n")
    assert "take MTUBytes= out" in root.refuses(JUMBO, "systemd-networkd")
    managed(root, state + 'NETWORK_FILE_DROPINS="/etc/systemd/network/more"\n',
            rail="[Match]\nName=eth1\n", more="[Link]\nMTUBytes = 1500\n")  # fmt: skip
    assert "systemd-networkd manages eth1" in root.refuses(JUMBO, "systemd-networkd")
    root.check({"eth1": {"ring.rx": 512}}, "systemd-networkd")
    managed(root, "ADMIN_STATE=unmanaged\n")
    root.check(reload, "systemd-networkd")


def test_networkd_is_known_by_the_owner_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not run as root, and the name alone could be any user's program."""
    folder = tmp_path / "run/systemd/netif"
    assert Daemons(str(tmp_path)).processes.get("systemd-networkd") is None
    folder.mkdir(parents=True)
    own = str(folder.stat().st_uid)
    monkeypatch.setattr(owner, "_pids", lambda: iter(["71", "72"]))
    monkeypatch.setattr(owner, "_stat", lambda pid: owner.Stat("systemd-network", 1, 5, False))
    monkeypatch.setattr(owner, "_uid", lambda pid: {"71": "4711", "72": own}[pid])
    assert Daemons(str(tmp_path)).processes["systemd-networkd"] == 72
    monkeypatch.setattr(owner, "_uid", lambda pid: "4711")
    assert "systemd-networkd" not in Daemons(str(tmp_path)).processes


@pytest.mark.parametrize(
    ("devices", "refused"),
    [("", True), ("devices=!eth1", False), ("devices=!eth2", True), ("devices=eth1", True),
     ("devices=eth2, ib*", False), ("devices = *, !eth*", False)],
)  # fmt: skip
def test_tuned_leaves_out_what_its_profile_says(root: Root, devices: str, refused: bool) -> None:
    root.write("etc/tuned/active_profile", "hpc\n")
    root.write("etc/tuned/hpc/tuned.conf", f"[main]\nsummary=x\n[net]\n{devices}\nmtu=9000\n[vm]\n")
    if refused:
        assert "write devices=!eth1 in its [net] section" in root.refuses(JUMBO, "tuned")
    else:
        root.check(JUMBO, "tuned")
