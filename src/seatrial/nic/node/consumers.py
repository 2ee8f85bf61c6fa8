"""What on this node holds a connection over an interface that it must not lose: network file
systems, Lustre's LNet, disks over the network, and kernel users of RDMA. Changes nothing.

A setting that takes the link down for a moment can make such a mount or disk fail or hang.
"""

import json
import os
import re
from typing import Iterable, Iterator, List, Optional, Set, Tuple

from . import programs
from .errors import Refused
from .routes import Routes
from .sockets import Sockets
from .tree import Tree

#: file systems of a network
FILE_SYSTEMS = ("nfs", "nfs4", "lustre", "cifs", "smb3", "ceph", "beegfs", "gpfs", "fuse.glusterfs",
                "pvfs2", "9p", "afs", "wekafs", "panfs")  # fmt: skip
#: those whose connections a program of root holds
PROGRAMS = {"gpfs": "mmfsd", "fuse.glusterfs": "glusterfs", "pvfs2": "pvfs2-client-core"}
#: files of those programs with the addresses of all nodes of the file system
MEMBER_FILES = {"gpfs": ("/var/mmfs/gen/mmsdrfs",)}
#: those whose servers the kernel shows: files, or folders with a folder for each mount
SERVER_FILES = {
    "beegfs": ("/proc/fs/beegfs/*/mgmt_nodes", "/proc/fs/beegfs/*/meta_nodes",
               "/proc/fs/beegfs/*/storage_nodes"),
    "afs": ("/proc/fs/afs/servers", "/proc/fs/afs/*/vlservers"),
}  # fmt: skip
#: ways of 9p that are no network
LOCAL_9P = ("virtio", "xen", "unix", "usbg")
NO_ADDRESS = ("0.0.0.0", "::")
IPV4 = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d{1,3}){3})(?![\d.])")
BRACKETED = re.compile(r"\[([0-9a-fA-F:.]+)\]")
ADDRESS_OPTION = re.compile(r"(?:^|,)(?:mount)?addr=([0-9a-fA-F:.]+)")
#: folders with LNet's own networks and its peers: of newer and older releases of Lustre
LNET = ("/sys/kernel/debug/lnet", "/proc/sys/lnet")
LNET_INTERFACE = re.compile(r"^ +\d+: *(\S+) *$", re.MULTILINE)
#: queue pairs that every RDMA port has
MANAGEMENT_PAIRS = ("SMI", "GSI")
#: the kernel's users of queue pairs that are the interface itself, and drivers' own pairs
KERNELS_OWN = ("ib_ipoib", "ib_core", "mlx4_ib", "mlx5_ib")

Consumer = Tuple[str, Set[str]]  # what it is, and the interfaces that it uses


class Consumers(Tree):
    """Looks below ``root`` (for tests; the node's own ``/``)."""

    def __init__(self, root: str, routes: Routes) -> None:
        super().__init__(root)
        self.routes = routes
        self.sockets = Sockets(root)
        self._all: Optional[List[Consumer]] = None

    def of(self, family: Set[str]) -> List[str]:
        """What uses one of these interfaces, in words. Raises Refused where that cannot be read."""
        if self._all is None:
            self._all = [*self._mounts(), *self._nfs_servers(), *self._lnet(), *self._disks()]
        users = [what for what, interfaces in self._all if interfaces & family]
        return list(dict.fromkeys(users + list(self._rdma(family))))

    # -- storage

    def _mounts(self) -> Iterator[Consumer]:
        # Slurm can give the Prolog mounts of its own.
        texts = (self.text("/proc/%s/mountinfo" % pid) for pid in ("1", "self"))
        mounts = dict.fromkeys(mount for text in texts for mount in programs.mounts(text))
        for _, folder, kind, source, options in mounts:
            for address in self._servers(folder, kind, source, options):
                yield "the %s mount %s from %s" % (kind, folder, address), self._ways(address)

    def _servers(self, folder: str, kind: str, source: str, options: str) -> List[str]:
        """Addresses of the servers of a mount. Raises Refused if nothing shows them."""
        is_fuse = kind == "fuse" or kind.startswith("fuse.")
        if is_fuse and "user_id=0" not in options.split(","):
            return []  # any user's, who chooses the kind and the source, too
        if kind not in FILE_SYSTEMS:
            return self.sockets.peers_of_fuse() if is_fuse else []
        if kind == "9p" and any("trans=" + way in options.split(",") for way in LOCAL_9P):
            return []
        servers = _addresses(kind, source, options)
        if kind in PROGRAMS:
            members = set(IPV4.findall("\n".join(self._texts(MEMBER_FILES.get(kind, ())))))
            servers += self.sockets.peers_of(PROGRAMS[kind], members)
        text = "\n".join(self._texts(SERVER_FILES.get(kind, ())))
        servers += IPV4.findall(text) + BRACKETED.findall(text)
        if not servers and kind != "lustre":  # LNet has its own
            raise Refused(
                "the servers of the %s mount %s cannot be known: leave out settings that can take "
                "a link down, or unmount it" % (kind, folder)
            )
        return [server for server in dict.fromkeys(servers) if server not in NO_ADDRESS]

    def _texts(self, patterns: Iterable[str]) -> Iterator[str]:
        for pattern in patterns:
            folder, star, file = pattern.partition("/*/")
            names = self.names(folder) if star else [""]
            for name in names:
                yield self.text("%s/%s/%s" % (folder, name, file) if star else pattern)

    def _nfs_servers(self) -> Iterator[Consumer]:
        """Servers of parallel NFS have no mount of their own."""
        for line in self.text("/proc/fs/nfsfs/servers").splitlines()[1:]:
            words = line.split()
            number = words[1] if len(words) > 1 else ""
            if re.match(r"^[0-9a-f]{8}\Z", number):
                address = ".".join(str(byte) for byte in bytes.fromhex(number))
            elif re.match(r"^[0-9a-f]{32}\Z", number):
                address = ":".join(number[at : at + 4] for at in range(0, 32, 4))
            else:
                continue
            yield "the NFS server %s" % address, self._ways(address)

    def _lnet(self) -> Iterator[Consumer]:
        if not os.path.isdir(self.path("/sys/module/lnet")):
            return
        texts = [self.text(folder + file) for folder in LNET for file in ("/nis", "/peers")]
        if any(texts):
            for address in dict.fromkeys(IPV4.findall("\n".join(texts))):
                yield "Lustre's network, by %s" % address, self._ways(address)
            return
        answer = programs.run(["lnetctl", "net", "show"])
        if answer.code:
            raise Refused("Lustre's network (LNet) is loaded, and its interfaces cannot be read: "
                          "mount debugfs, or install lnetctl")  # fmt: skip
        yield "Lustre's network", set(LNET_INTERFACE.findall(answer.out))

    def _disks(self) -> Iterator[Consumer]:
        folder = "/sys/class/iscsi_connection"
        for name in self.names(folder):
            for file in ("address", "persistent_address"):
                address = self.text("%s/%s/%s" % (folder, name, file))
                if address and not address.startswith("<"):
                    yield "an iSCSI disk of %s" % address, self._ways(address)
        folder = "/sys/class/nvme"
        for name in self.names(folder):
            fields = dict(
                pair.partition("=")[::2]
                for pair in self.text("%s/%s/address" % (folder, name)).split(",")
            )
            if "traddr" in fields and self.text("%s/%s/transport" % (folder, name)) != "pcie":
                yield (
                    "the NVMe disk %s of %s" % (name, fields["traddr"]),
                    self._ways(fields["traddr"]),
                )

    def _ways(self, address: str) -> Set[str]:
        return self.routes.to(address) | self.routes.having(address)

    # -- RDMA

    def _rdma(self, family: Set[str]) -> Iterator[str]:
        """Programs of root and kernel modules with queue pairs on the RDMA devices of the
        interfaces. Those of users are processes like those that use its TCP connections.

        A name says nothing: a user chooses that of a process, and in JSON those of the kernel have
        no brackets (``print_comm`` of iproute2's ``rdma/res.c``). They have no process.
        """
        devices = {device for name in family for device in self._devices_of(name)}
        if not devices:
            return
        answer = programs.run(["rdma", "-json", "resource", "show", "qp"])
        try:
            rows = json.loads(answer.out or "[]")
        except ValueError:
            rows = None
        if answer.code or not isinstance(rows, list):
            raise Refused("what uses RDMA device %s cannot be read: install rdma (iproute2): %s"
                          % (sorted(devices)[0], answer.err.strip()))  # fmt: skip
        for row in rows:
            if row.get("ifname") not in devices:
                continue
            user, pid = str(row.get("comm", "")).strip("[]"), row.get("pid") or 0
            kind = row.get("type", row.get("qp-type"))  # the latter since iproute2 6.13
            if not pid and (kind in MANAGEMENT_PAIRS or user in KERNELS_OWN):
                continue
            if not pid or self.sockets.is_of_root(str(pid)):
                yield "%s on RDMA device %s" % (user or "a program", row["ifname"])

    def _devices_of(self, interface: str) -> List[str]:
        """RDMA devices of the same card port (``gid_attrs`` of each port), or of the same card."""
        folder = "/sys/class/infiniband"
        devices = set(self.names("/sys/class/net/%s/device/infiniband" % interface))
        for device in self.names(folder):
            for port in self.names("%s/%s/ports" % (folder, device)):
                ports = "%s/%s/ports/%s/gid_attrs/ndevs" % (folder, device, port)
                if any(self.text("%s/%s" % (ports, n)) == interface for n in self.names(ports)):
                    devices.add(device)
        return sorted(devices)


def _addresses(kind: str, source: str, options: str) -> List[str]:
    """Addresses of the servers of a mount, from its source and options."""
    text = options if kind.startswith("nfs") else source + "," + options
    given = ADDRESS_OPTION.findall(options)
    if not kind.startswith("nfs"):
        given += IPV4.findall(text) + BRACKETED.findall(text)
    return list(dict.fromkeys(given))
