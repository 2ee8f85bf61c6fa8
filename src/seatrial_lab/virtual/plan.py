"""The configuration of the guest's agent and of the hosts' first processes.

This module runs on this machine, before the guest starts, because the guest is slow: the agent
only mounts, moves NICs and starts daemons.
"""

from __future__ import annotations

import ipaddress
import json
import os
import time
from pathlib import Path
from typing import Any

from seatrial_lab.common import boot, etc, mounts, network, render
from seatrial_lab.common.paths import HOST_ETC, LabPaths
from seatrial_lab.common.programs import Programs, find
from seatrial_lab.common.spec import LOGIN, LabSpec
from seatrial_lab.virtual.spec import VirtualSpec

#: mount point in the guest of the folder that it may write to
SHARE = "/run/seatrial-share"
MUNGE_SHARED = "/run/seatrial-munge"
BOOT_TIMEOUT = 120  # seconds of the guest's clock
_COVERS = {"/dev/shm": "1777", "/run": "755", "/tmp": "1777", "/var/tmp": "1777"}
#: kernel settings against wake-ups, background packets and chance in the figures
KERNEL = {
    "/proc/sys/net/ipv4/neigh/default/gc_interval": "86400",
    "/proc/sys/kernel/randomize_va_space": "0",  # the same addresses each time
    "/proc/sys/kernel/sched_autogroup_enabled": "0",
    "/proc/sys/kernel/printk": "1 4 1 7",
    # hystart sometimes takes the delay of interrupt moderation for congestion and ends slow start
    # early. That connection then needs one interrupt more for each large message.
    "/sys/module/tcp_cubic/parameters/hystart": "0",
}
#: the same for each node's network namespace, which starts with the kernel's defaults
NODE_SYSCTL = {
    "net/ipv4/tcp_no_metrics_save": "1",  # a connection must not change the next one
}


def write(spec: VirtualSpec, programs: Programs, own_processors: bool = False) -> Path:
    """Write the data folder, which the guest copies. Returns the agent's configuration file.

    ``own_processors``: the guest has processors for each host.
    """
    lab = spec.lab
    paths = LabPaths(lab.instance)
    etc.write_data(lab, programs, private=False)
    guest = paths.data / "guest"
    guest.mkdir(exist_ok=True)
    hosts = []
    for host in lab.hosts:
        file = guest / f"{host}.json"
        config = host_config(spec, programs, host, own_processors)
        file.write_text(json.dumps(config, indent=1))
        hosts.append(str(file))
    place = guest / "agent.json"
    place.write_text(json.dumps(agent_config(spec, programs, hosts, own_processors), indent=1))
    return place


def agent_config(
    spec: VirtualSpec, programs: Programs, hosts: list[str], own_processors: bool
) -> dict[str, Any]:
    """Return the agent's configuration; see ``guest/agent.py``."""
    lab, paths = spec.lab, LabPaths(spec.instance)
    names = (network.SWITCH, *lab.hosts)
    nodes = list(dict.fromkeys(card.node for card in spec.cards))
    return {
        "data": str(paths.data),
        "time": time.time(),
        "nodes": str(paths.node_pid(LOGIN).parent),
        "share": SHARE,
        "kernel": KERNEL,
        "node_sysctl": NODE_SYSCTL,
        "namespaces": "".join(f"netns add {paths.netns(name)}\n" for name in names),
        "batches": [
            [paths.netns(network.SWITCH), switch_batch(lab)],
            *([paths.netns(host), management_batch(lab, host)] for host in lab.hosts),
        ],
        "cards": [
            {
                "address": spec.hardware_address(card),
                "physical": spec.physical_address(card),
                "model": card.model,
                "node": card.node,
                "netns": paths.netns(card.node),
                "interface": card.interface,
                "rdma": card.rdma,
            }
            for card in spec.cards
        ],
        "card_batches": [[paths.netns(node), card_batch(spec, node)] for node in nodes],
        "steps": [*private_steps(lab, programs), *munge_steps(lab)],
        "hosts": hosts,
        "processors": {host: spec.processors(host) for host in lab.hosts if own_processors},
    }


def switch_batch(lab: LabSpec) -> str:
    """Return ``ip`` commands for the switch of the management network."""
    lines = [
        "link set lo up",
        "link add mgmt type bridge forward_delay 0 stp_state 0 mcast_snooping 0",
        "link set mgmt up",
    ]
    for host in lab.hosts:
        port, inside = network.switch_port(host, "mgmt"), LabPaths(lab.instance).netns(host)
        lines.append(f"link add {port} type veth peer name {network.MGMT} netns {inside}")
        lines.append(f"link set {port} master mgmt up")
    return "\n".join(lines) + "\n"


def management_batch(lab: LabSpec, host: str) -> str:
    """Return ``ip`` commands for a host's interface of the management network."""
    length = ipaddress.IPv4Network(lab.mgmt_subnet).prefixlen
    return (
        "link set lo up\n"
        f"addr add {lab.mgmt_address(host)}/{length} dev {network.MGMT}\n"
        f"link set {network.MGMT} up\n"
    )


def card_batch(spec: VirtualSpec, node: str) -> str:
    """Return ``ip`` commands for a node's NICs."""
    lines = []
    for card in spec.cards:
        if card.node == node:
            lines += [
                f"link set {card.interface} mtu {card.mtu}",
                f"addr add {spec.address(card)} dev {card.interface}",
                f"link set {card.interface} up",
            ]
    return "\n".join(lines) + "\n"


def private_steps(lab: LabSpec, programs: Programs) -> list[dict[str, Any]]:
    """Return the steps that make what only a daemon may read. The guest makes it, because QEMU
    reads this machine's files as the job user."""
    paths = LabPaths(lab.instance)
    return [
        {"mkdir": str(paths.controller_state), "user": programs.slurm_user, "mode": "700"},
        {"mkdir": str(paths.munge_key.parent), "user": "munge", "mode": "700"},
        {"secret": str(paths.munge_key), "user": "munge"},
    ]


def munge_steps(lab: LabSpec) -> list[dict[str, Any]]:
    """Return the steps of the one munged of all hosts, which share its socket."""
    paths = LabPaths(lab.instance)
    socket = f"{MUNGE_SHARED}/{Path(render.MUNGE_SOCKET).name}"
    return [
        {"mkdir": MUNGE_SHARED, "user": "munge", "mode": "755"},
        {
            "daemon": "munged",
            "user": "munge",
            "log": str(paths.log(LOGIN, "munged")),
            "argv": [
                find("munged") or "munged", "--foreground", f"--socket={socket}",
                f"--key-file={paths.munge_key}", f"--pid-file={MUNGE_SHARED}/munged.pid",
                f"--seed-file={MUNGE_SHARED}/munged.seed", "--num-threads=1",
            ],
        },
        {"wait_socket": socket, "timeout": BOOT_TIMEOUT},
    ]  # fmt: skip


def host_config(
    spec: VirtualSpec, programs: Programs, host: str, own_processors: bool
) -> dict[str, Any]:
    """Return the configuration of a host's first process (``seatrial_lab.common.nodeinit``)."""
    lab, paths = spec.lab, LabPaths(spec.instance)
    covers, binds = mounts.plan([*lab.visible_paths(), paths.data], _COVERS)
    binds += [["/etc", str(HOST_ETC)], [str(paths.etc), "/etc"]]
    binds += [[MUNGE_SHARED, render.MUNGE_FOLDER], [SHARE, SHARE]]
    return {
        "hostname": host,
        "netns": str(paths.netns_path(host)),
        "pid_file": str(paths.node_pid(host)),
        "covers": covers,
        "binds": binds,
        "processors": spec.processors(host) if own_processors else [],
        "freezer": host != LOGIN and render.needs_freezer(programs.slurm_version),
        "steps": login_steps(lab, programs) if host == LOGIN else node_steps(lab, host),
    }


def login_steps(lab: LabSpec, programs: Programs) -> list[dict[str, Any]]:
    paths = LabPaths(lab.instance)
    return [
        {"mkdir": render.SLURM_FOLDER, "user": programs.slurm_user, "mode": "755"},
        {
            "daemon": "slurmctld",
            "argv": [find("slurmctld") or "slurmctld", "-D"],
            "log": str(paths.log(LOGIN, "slurmctld")),
        },
        {"wait_port": render.SLURMCTLD_PORT, "timeout": BOOT_TIMEOUT},
        {"touch": str(paths.controller_ready)},
    ]


def node_steps(lab: LabSpec, node: str) -> list[dict[str, Any]]:
    """Return the boot steps of a node, without NIC recovery: its NICs are new with the guest."""
    paths = LabPaths(lab.instance)
    return [
        {"mkdir": render.SLURM_FOLDER, "user": "root", "mode": "755"},
        {"wait_file": str(paths.controller_ready), "timeout": BOOT_TIMEOUT},
        {
            "daemon": "slurmd",
            "argv": boot.slurmd_command(),
            "log": str(paths.log(node, "slurmd.out")),
        },
        {"wait_port": render.SLURMD_PORT, "timeout": BOOT_TIMEOUT},
    ]


def chown_to_job_user(folder: Path, lab: LabSpec) -> None:
    """Make the job user the owner of a folder."""
    os.chown(folder, lab.uid, lab.gid)
