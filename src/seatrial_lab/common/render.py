"""The text of a lab's configuration files. Pure functions, no I/O; ``etc`` writes the files."""

from __future__ import annotations

from seatrial_lab.common.paths import LabPaths
from seatrial_lab.common.spec import LOGIN, LabSpec

CLUSTER = "seatrial"
DATABASE = "slurm_acct_db"
MYSQL_FOLDER = "/run/mysqld"
MYSQL_SOCKET = f"{MYSQL_FOLDER}/mysqld.sock"
MYSQL_DATA = f"{MYSQL_FOLDER}/data"
MUNGE_FOLDER = "/run/munge"
MUNGE_SOCKET = f"{MUNGE_FOLDER}/munge.socket.2"
SLURM_FOLDER = "/run/slurm"
SLURMCTLD_PORT = 6817
SLURMD_PORT = 6818
SLURMDBD_PORT = 6819
#: timeouts grow by one share for each so many nodes; fewer than twice as many have the shortest
PATIENT_NODES = 32
#: shares at most: MessageTimeout is 60 s then
MOST_PATIENCE = 10

Version = tuple[int, int]


def needs_freezer(version: Version) -> bool:
    """Return whether slurmd of this version needs a cgroup hierarchy.

    ``CgroupPlugin=disabled`` exists since 24.05. Earlier versions search for a
    cgroup hierarchy even if nothing uses it.
    """
    return version < (24, 5)


def cgroup_conf(version: Version) -> str:
    """Return cgroup.conf for a Slurm version."""
    return f"CgroupPlugin={'cgroup/v1' if needs_freezer(version) else 'disabled'}\n"


def slurm_conf(spec: LabSpec, slurm_user: str, pmix: bool) -> str:
    """Return slurm.conf. ``pmix`` is whether Slurm's PMIx plugin loads on this machine."""
    paths = LabPaths(spec.instance)
    # A step starts on all nodes at once, which share the machine's processors: 240 nodes on two
    # did not answer within 6 s.
    patience = min(max(1, len(spec.nodes) // PATIENT_NODES), MOST_PATIENCE)
    lines = [
        f"ClusterName={CLUSTER}",
        f"SlurmctldHost={LOGIN}",
        f"SlurmUser={slurm_user}",
        f"SlurmctldPort={SLURMCTLD_PORT}",
        f"SlurmdPort={SLURMD_PORT}",
        f"StateSaveLocation={paths.data}/slurmctld",
        f"SlurmdSpoolDir={paths.data}/spool/%n",
        f"SlurmctldPidFile={SLURM_FOLDER}/slurmctld.pid",
        f"SlurmdPidFile={SLURM_FOLDER}/slurmd.pid",
        f"SlurmdLogFile={paths.data}/log/%n/slurmd.log",
        f"AuthInfo=socket={MUNGE_SOCKET}",
        "ProctrackType=proctrack/linuxproc",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        # A node may have more processors or memory than the machine.
        "SlurmdParameters=config_overrides",
        "LaunchParameters=use_interactive_step",
        "SchedulerType=sched/backfill",
        # The defaults wait seconds before a job starts, to spare a busy controller.
        "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1",
        "ReturnToService=2",
        "JobRequeue=0",
        "SlurmctldTimeout=30",
        # slurmctld must detect a dead node of a small lab within 30 s. It retries a silent node for
        # 2.5 times MessageTimeout, which exceeds SlurmdTimeout.
        f"SlurmdTimeout={12 * patience}",
        f"MessageTimeout={6 * patience}",
        f"TCPTimeout={2 * patience}",
        "KillWait=5",
        f"UnkillableStepTimeout={30 * patience}",
        "InactiveLimit=0",
        "Waittime=0",
        "MinJobAge=600",
        "TmpFS=/tmp",
    ]
    if spec.epilog:
        # The end of an epilog makes slurmctld schedule at once. Without an epilog, the next job
        # waits for the scheduler's next interval, in whole seconds (0.29 s a job).
        lines.append(f"Epilog={spec.epilog}")
    if pmix:
        lines.append("MpiDefault=pmix")
    if spec.licenses:
        lines.append(f"Licenses={spec.licenses}")
    if spec.accounting:
        lines += [
            "AccountingStorageType=accounting_storage/slurmdbd",
            f"AccountingStorageHost={LOGIN}",
            f"AccountingStoragePort={SLURMDBD_PORT}",
            "JobAcctGatherType=jobacct_gather/linux",
            # Sample at the end of a step only: a periodic sampler disturbs the measurement.
            "JobAcctGatherFrequency=0",
        ]
    for node in spec.nodes:
        features = spec.features.get(node, ())
        lines.append(
            f"NodeName={node} NodeAddr={spec.mgmt_address(node)} CPUs={spec.cpus}"
            f" Boards=1 SocketsPerBoard=1 CoresPerSocket={spec.cpus} ThreadsPerCore=1"
            f" RealMemory={spec.memory_mb} State=UNKNOWN"
            + (f" Feature={','.join(features)}" if features else "")
        )
    for position, partition in enumerate(spec.partitions):
        lines.append(
            f"PartitionName={partition} Nodes={','.join(spec.nodes)}"
            f" Default={'NO' if position else 'YES'} MaxTime=INFINITE State=UP"
        )
    lines += spec.extra_slurm_conf
    return "\n".join(lines) + "\n"


def slurmdbd_conf(slurm_user: str) -> str:
    """Return slurmdbd.conf. slurmdbd uses MariaDB's default socket and no password."""
    return "\n".join(
        [
            f"DbdHost={LOGIN}",
            f"DbdPort={SLURMDBD_PORT}",
            f"SlurmUser={slurm_user}",
            f"AuthInfo=socket={MUNGE_SOCKET}",
            f"PidFile={SLURM_FOLDER}/slurmdbd.pid",
            "StorageType=accounting_storage/mysql",
            "StorageHost=localhost",
            f"StorageUser={slurm_user}",
            f"StorageLoc={DATABASE}",
            "",
        ]
    )


def mariadb_conf() -> str:
    """Return MariaDB's option file: small buffers, socket only, no durability.

    The data folder is in memory and ends with the lab, so durability has no use.
    """
    return "\n".join(
        [
            "[mariadbd]",
            "user=mysql",
            f"datadir={MYSQL_DATA}",
            f"socket={MYSQL_SOCKET}",
            f"pid-file={MYSQL_FOLDER}/mariadbd.pid",
            "init-file=/etc/seatrial-mariadb-init.sql",
            "skip-networking",
            "skip-log-bin",
            "skip-name-resolve",
            "performance-schema=0",
            "innodb-buffer-pool-size=64M",
            "innodb-log-file-size=4M",
            "innodb-log-buffer-size=2M",
            "innodb-flush-log-at-trx-commit=0",
            "innodb-use-native-aio=0",
            "innodb-lock-wait-timeout=900",
            "innodb-buffer-pool-dump-at-shutdown=0",
            "innodb-buffer-pool-load-at-startup=0",
            "key-buffer-size=1M",
            "aria-pagecache-buffer-size=8M",
            "max-connections=32",
            "",
        ]
    )


def mariadb_init_sql(slurm_user: str) -> str:
    """Return the SQL that MariaDB runs at each start: create Slurm's account and database.

    slurmdbd would create the database itself, after a first connection that fails. With
    libmariadb 3.4.10 (Debian 13's 11.8.9) no query works on the connection that follows: "Number
    of columns in result (=1) set exceeds maximum allowed number of columns (=0)".
    """
    return (
        f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"
        f"CREATE OR REPLACE USER '{slurm_user}'@'localhost' IDENTIFIED VIA unix_socket;\n"
        f"GRANT ALL ON {DATABASE}.* TO '{slurm_user}'@'localhost';\n"
    )


def hosts_file(spec: LabSpec) -> str:
    """Return /etc/hosts: ``<host>`` on the management, ``<node>-test`` on the test network."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    lines += [f"{spec.mgmt_address(host)} {host}" for host in spec.hosts]
    lines += [f"{spec.test_address(node)} {node}-test" for node in spec.nodes]
    return "\n".join(lines) + "\n"


def passwd_file(spec: LabSpec, machine: str) -> str:
    """Return /etc/passwd: the job user, then the machine's accounts of other names."""
    home = LabPaths(spec.instance).home
    ours = f"{spec.user}:x:{spec.uid}:{spec.gid}:Seatrial job user:{home}:/bin/bash"
    return _with_first(ours, spec.user, machine)


def group_file(spec: LabSpec, machine: str) -> str:
    """Return /etc/group: the job user's group, then the machine's groups of other names."""
    return _with_first(f"{spec.user}:x:{spec.gid}:", spec.user, machine)


def _with_first(ours: str, name: str, machine: str) -> str:
    others = [line for line in machine.splitlines() if line.partition(":")[0] != name]
    return "\n".join([ours, *others]) + "\n"
