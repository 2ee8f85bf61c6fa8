"""The owner of a NIC profile, and whether it is alive: read from the node's processes.

Slurm's commands must not be called in a Prolog or Epilog. With ``PrologFlags=Contain`` each node
of a job has an extern slurmstepd for the whole life of the job, so the processes are sufficient.
"""

import os
import re
import time
from typing import Any, Dict, Iterator, NamedTuple, Optional

from . import programs

PROC = "/proc"
CLOCK_BOOTTIME = 7
SLURM_DAEMONS = ("slurmd", "slurmstepd")
#: between the end of a Prolog and the start of the extern step, with room for a busy node
GRACE_S = 180.0
#: the job of a profile that a person applied
BY_HAND = "by hand"

Process = NamedTuple("Process", [("pid", int), ("started", int)])


KERNEL_THREAD = 0x00200000  # PF_KTHREAD of linux/sched.h

Stat = NamedTuple(
    "Stat", [("name", str), ("parent", int), ("started", int), ("is_kernel_thread", bool)]
)


def _stat(pid: Any) -> Optional[Stat]:
    """A living process; ``started`` is in clock ticks since boot. None: there is none."""
    try:
        with open("%s/%s/stat" % (PROC, pid), errors="replace", newline="\n") as stream:
            text = stream.read()
    except OSError:
        return None
    # The name may hold spaces and brackets.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    if len(fields) < 20 or fields[0] in "ZX":
        return None
    flags = int(fields[6])
    name = head.partition("(")[2]
    return Stat(name, int(fields[1]), int(fields[19]), bool(flags & KERNEL_THREAD))


def is_alive(process: Optional[Process]) -> bool:
    if process is None:
        return False
    stat = _stat(process.pid)
    return stat is not None and stat.started == process.started


def myself() -> Process:
    pid = os.getpid()
    stat = _stat("self")
    return Process(pid, stat.started if stat else 0)


def slurmd_above() -> Optional[Process]:
    """The Slurm daemon that started this process, at once or through scripts; None: orphaned."""
    pid = os.getppid()
    for _ in range(64):
        stat = _stat(pid) if pid > 0 else None
        if stat is None:
            return None
        if stat.name in SLURM_DAEMONS:
            return Process(pid, stat.started)
        pid = stat.parent
    return None


def boottime() -> float:
    """Seconds since boot, suspended time included; the clock of processes' start times."""
    return time.clock_gettime(CLOCK_BOOTTIME)


def started_s(process: Process) -> float:
    """When a process started, in seconds since boot, rounded down to a clock tick (10 ms)."""
    return process.started / float(os.sysconf("SC_CLK_TCK"))


def boot_id() -> str:
    try:
        with open(PROC + "/sys/kernel/random/boot_id") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def cluster() -> str:
    """The cluster of this Prolog or Epilog, as part of a file's name; empty: slurmd names none.

    Two slurmds of a node that belong to different clusters may give jobs the same id."""
    return re.sub("[^A-Za-z0-9_.-]", "_", os.environ.get("SLURM_CLUSTER_NAME", ""))[:64]


def is_of_job(journal: Dict[str, Any], job: str, cluster: str) -> bool:
    """Whether a journal is of a job. One of an earlier release names no cluster: it is of any."""
    clusters = {journal.get("cluster"), cluster} - {None, ""}
    return bool(journal["job"] == job) and len(clusters) < 2


def owner_of(journal: Dict[str, Any]) -> str:
    """``job 7``, or who applied a profile by hand."""
    return "root (by hand)" if journal["job"] == BY_HAND else "job %s" % journal["job"]


def _pids() -> Iterator[str]:
    for name in os.listdir(PROC):
        if name.isdigit():
            yield name


def _of_root(pid: str) -> bool:
    """Whether a process belongs to root, or to who runs this (a test)."""
    return _uid(pid) in ("0", str(os.getuid()))


def _uid(pid: str) -> str:
    return programs.real_uid("%s/%s" % (PROC, pid))


def _program(pid: str) -> str:
    """Name of the file that a process runs, also one that an upgrade has replaced.

    A program that runs as root for its user keeps the title which that user gave it.
    """
    try:
        path = os.readlink("%s/%s/exe" % (PROC, pid))
    except OSError:
        return ""
    return os.path.basename(path).partition(" (deleted)")[0]


def steps() -> Iterator[str]:
    """Job ids of the slurmstepd processes of this node: ``slurmstepd: [123.batch]``.

    Anybody can give a process this title, and would keep a profile in force by it. Nor is the title
    of another user's process read: that user can make the read wait for ever (a page fault in a
    file of FUSE holds the lock that it takes).
    """
    for pid in _pids():
        # Distributions add to the file's name: slurmstepd-wlm.
        if not (_of_root(pid) and _program(pid).startswith("slurmstepd")):
            continue
        try:
            with open("%s/%s/cmdline" % (PROC, pid), "rb") as stream:
                title = stream.read(200).split(b"\0")[0].decode("ascii", "replace")
        except OSError:
            continue
        job = title[len("slurmstepd: [") :].partition(".")[0]
        if title.startswith("slurmstepd: [") and job.isdigit() and "." in title:
            yield job


def has_steps(job: str) -> bool:
    return any(step == job for step in steps())


def names() -> Dict[str, int]:
    """Names of root's processes, with the id of one of each.

    Threads of the kernel are left out: some have the name of an interface, which any user can
    choose in a namespace of his own (the workqueue of a bond, before Linux 6.9).
    """
    first_pids: Dict[str, int] = {}
    for pid in _pids():
        stat = _stat(pid)
        if stat and not stat.is_kernel_thread and _of_root(pid):
            first_pids.setdefault(stat.name, int(pid))
    return first_pids


def run_by_owner_of(path: str, program: str) -> int:
    """The id of a process of this name that belongs to the owner of a file, or 0.

    For a daemon that does not run as root. The kernel keeps 15 characters of a name."""
    try:
        uid = str(os.stat(path).st_uid)
    except OSError:
        return 0
    for pid in _pids():
        stat = _stat(pid)
        if stat and stat.name == program[:15] and _uid(pid) == uid:
            return int(pid)
    return 0


class World:
    """Clock, boot and processes of the node; one object for each command."""

    def __init__(self) -> None:
        self.me = myself()
        self.slurmd = slurmd_above()
        self.started = started_s(self.me)

    def now(self) -> float:
        return boottime()

    def boot_id(self) -> str:
        return boot_id()

    def alive(self, process: Any) -> bool:
        return bool(process) and is_alive(Process(*process))

    def has_steps(self, job: str) -> bool:
        return has_steps(job)

    def any_steps(self) -> Optional[str]:
        """A job that has steps here, or None."""
        return next(steps(), None)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
