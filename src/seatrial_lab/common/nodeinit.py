"""The first process of a lab node: create the namespaces, start the daemons, reap.

It does not know sites or Slurm: ``boot`` and ``virtual.plan`` write its configuration.

Runs as ``python -P -S -m seatrial_lab.common.nodeinit PARENT CONFIG`` with only the
standard library. PARENT is the process id of its parent. CONFIG is JSON:
``hostname``, ``netns`` (path), ``pid_file``, ``covers`` ({folder: mode in
octal}), ``binds`` ([[source, target], ...]), ``freezer`` (bool), ``steps`` (see
:func:`run_step`) and optionally ``processors``, the only ones that the node shows as its own.

The started process waits until the node has booted, prints its error, if any,
and exits. Its child is process 1 of the node and stays. If the started process
is killed before the node has booted, the node dies too.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from seatrial_lab.common import mounts
from seatrial_lab.common.processes import write_pid_file

CLONE_NEWTIME = 0x00000080
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
STATE_LISTEN = "0A"
SECRET_B = 128


def die_with_parent(on: bool = True) -> None:
    """Set SIGKILL as this process's signal on the death of its parent; ``on=False`` sets none."""
    mounts.check(mounts.LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL) if on else 0), "prctl")


def reader_is_gone(pipe: int) -> bool:
    """Return whether the read end of a pipe is closed."""
    poller = select.poll()
    poller.register(pipe, 0)
    return any(events & select.POLLERR for _, events in poller.poll(0))


def enter_netns(path: str) -> None:
    """Move this process into a named network namespace."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    mounts.check(mounts.LIBC.setns(descriptor, CLONE_NEWNET), f"setns {path}")
    os.close(descriptor)


def start_clock() -> None:
    """Start the node's boot clock at 0 for its children: Slurm detects a reboot by it.

    Without time namespaces in the kernel, the node shows the machine's boot time.
    """
    if mounts.LIBC.unshare(CLONE_NEWTIME):
        return
    clocks = {"monotonic": time.CLOCK_MONOTONIC, "boottime": time.CLOCK_BOOTTIME}
    with contextlib.suppress(OSError):
        lines = []
        for name, clock in clocks.items():
            # A negative offset is whole seconds and nanoseconds above them.
            seconds, nanoseconds = divmod(-time.clock_gettime_ns(clock), 10**9)
            lines.append(f"{name} {seconds} {nanoseconds}\n")
        Path("/proc/self/timens_offsets").write_text("".join(lines))


def set_up_mounts(config: dict[str, Any]) -> None:
    """Mount the node's file systems. Raises OSError with the name of the failed call."""
    mounts.mount("none", "/", "", mounts.MS_REC | mounts.MS_SLAVE)
    # A copy of a netns mount keeps the namespace of another lab alive.
    mounts.detach("/run/netns")
    # Open the sources before a cover hides them.
    trees = [(mounts.open_tree(source), target) for source, target in config["binds"]]
    for folder, mode in config["covers"].items():
        mounts.mount("tmpfs", folder, "tmpfs", mounts.MS_NOSUID, f"mode={mode}")
    for tree, target in trees:
        mounts.attach_tree(tree, target)
    mounts.mount("proc", "/proc", "proc", mounts.MS_NOSUID | mounts.MS_NODEV | mounts.MS_NOEXEC)
    # sysfs shows the interfaces of the network namespace of its mount.
    mounts.mount("sysfs", "/sys", "sysfs", mounts.MS_NOSUID | mounts.MS_NODEV | mounts.MS_NOEXEC)
    mount_boot_id()
    if config.get("processors"):
        mount_processors(config["processors"])
    if config["freezer"]:
        mounts.mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, "mode=755")
        freezer = Path("/sys/fs/cgroup/freezer")
        freezer.mkdir()
        mounts.mount("cgroup", str(freezer), "cgroup", 0, "freezer")


def mount_boot_id() -> None:
    """Give this boot of the node its own boot id.

    Programs that keep state on a node's disk detect a restart of the node by it.
    """
    file = Path("/run/seatrial-boot-id")
    file.write_text(Path("/proc/sys/kernel/random/uuid").read_text())
    file.chmod(0o444)
    mounts.mount(str(file), "/proc/sys/kernel/random/boot_id", "", mounts.MS_BIND)


def mount_processors(numbers: list[int]) -> None:
    """Show these processors of the machine alone as online: consecutive numbers.

    Programs count processors by this file, and an IRQ affinity of a NIC profile is of them.
    """
    file = Path("/run/seatrial-processors")
    first, last = numbers[0], numbers[-1]
    file.write_text(f"{first}\n" if first == last else f"{first}-{last}\n")
    file.chmod(0o444)
    mounts.mount(str(file), "/sys/devices/system/cpu/online", "", mounts.MS_BIND)


def is_listening(port: int) -> bool:
    """Return whether a TCP port of this namespace has a listener, without a connection to it."""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[1].endswith(wanted) and fields[3] == STATE_LISTEN:
                    return True
    return False


def _tail(path: str) -> str:
    with contextlib.suppress(OSError):
        lines = Path(path).read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-4:])
    return ""


def run_step(step: dict[str, Any], daemons: dict[str, tuple[subprocess.Popen[bytes], str]]) -> None:
    """Execute one step of the boot. Raises RuntimeError if it fails or takes too long.

    A step has one of the keys ``mkdir`` (with ``user``, ``mode``), ``copy``
    (``[source, target]``), ``secret`` (a new file of random bytes for ``user``),
    ``daemon`` (a name, with ``argv``, ``log`` and optionally ``user``), ``run`` (a
    command, with ``log``, ``timeout`` in seconds and ``must``: whether a failure
    fails the boot), ``touch`` (a file), ``wait_socket``, ``wait_file`` (a path) or
    ``wait_port``. Each wait has a ``timeout`` in seconds.
    """
    if "mkdir" in step:
        path = Path(step["mkdir"])
        path.mkdir(parents=True, exist_ok=True)
        owner = pwd.getpwnam(step["user"])
        os.chown(path, owner.pw_uid, owner.pw_gid)
        path.chmod(int(step["mode"], 8))
    elif "copy" in step:
        source, target = step["copy"]
        shutil.copytree(source, target, copy_function=_copy_owned)
        _own_like(source, target)
        for folder in Path(source).iterdir():
            if folder.is_dir():
                _own_like(str(folder), str(Path(target) / folder.name))
    elif "secret" in step:
        owner = pwd.getpwnam(step["user"])
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(step["secret"], flags, 0o400), "wb") as stream:
            stream.write(os.urandom(SECRET_B))
            os.fchown(stream.fileno(), owner.pw_uid, owner.pw_gid)
    elif "daemon" in step:
        options: dict[str, Any] = {}
        if "user" in step:
            owner = pwd.getpwnam(step["user"])
            options = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        with Path(step["log"]).open("ab") as log:
            process = subprocess.Popen(
                step["argv"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                **options,
            )
        daemons[step["daemon"]] = (process, step["log"])
    elif "run" in step:
        _run(step)
    elif "touch" in step:
        Path(step["touch"]).touch()
    else:
        _wait(step, daemons)


def _run(step: dict[str, Any]) -> None:
    with Path(step["log"]).open("ab") as log:
        try:
            code = subprocess.call(
                step["run"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                timeout=step["timeout"],
            )
            how = f"ended with {code}"
        except (OSError, subprocess.TimeoutExpired) as error:
            code, how = 1, str(error)
        if code:
            log.write(f"{step['run'][0]}: {how}\n".encode())
    if code and step["must"]:
        raise RuntimeError(f"{' '.join(step['run'])}: {how}: {_tail(step['log'])}")


def _copy_owned(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    _own_like(source, target)


def _own_like(source: str, target: str) -> None:
    status = Path(source).stat()
    os.chown(target, status.st_uid, status.st_gid)


def _wait(step: dict[str, Any], daemons: dict[str, tuple[subprocess.Popen[bytes], str]]) -> None:
    deadline = time.monotonic() + step["timeout"]
    while True:
        if "wait_socket" in step:
            what, done = step["wait_socket"], Path(step["wait_socket"]).is_socket()
        elif "wait_file" in step:
            what, done = step["wait_file"], Path(step["wait_file"]).exists()
        else:
            what, done = f"port {step['wait_port']}", is_listening(step["wait_port"])
        if done:
            return
        for name, (process, log) in daemons.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with {process.returncode}: {_tail(log)}")
        if time.monotonic() > deadline:
            logs = "; ".join(f"{name}: {_tail(log)}" for name, (_, log) in daemons.items())
            raise RuntimeError(f"{what} did not appear in {step['timeout']} s; {logs}")
        time.sleep(0.02)


def be_init(config: dict[str, Any], report: int) -> None:
    """Process 1 of the node: boot, write ``ok`` or an error to ``report``, then reap for ever."""
    try:
        os.setsid()
        flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC
        mounts.check(mounts.LIBC.unshare(flags), "unshare")
        set_up_mounts(config)
        socket.sethostname(config["hostname"])
        os.chdir("/")
        os.umask(0o022)
        # Close the descriptors of the parent: the lab's lock is among them.
        null = os.open("/dev/null", os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.closerange(3, report)
        os.closerange(report + 1, 4096)
        os.set_inheritable(report, False)
        daemons: dict[str, tuple[subprocess.Popen[bytes], str]] = {}
        for step in config["steps"]:
            run_step(step, daemons)
        die_with_parent(False)
    except Exception as error:
        os.write(report, f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    os.write(report, b"ok")
    os.close(report)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.2)


def main(arguments: list[str]) -> int:
    """Boot one node. Returns 0 if it is up, else 1 with the reason on stderr."""
    die_with_parent()
    if os.getppid() != int(arguments[0]):
        return 1  # the parent died before PR_SET_PDEATHSIG was set
    config = json.loads(Path(arguments[1]).read_text())
    enter_netns(config["netns"])
    read_end, write_end = os.pipe()
    mounts.check(mounts.LIBC.unshare(CLONE_NEWPID), "unshare pid")
    start_clock()
    child = os.fork()
    if child == 0:
        try:
            os.close(read_end)
            die_with_parent()
            if reader_is_gone(write_end):
                os._exit(1)
            be_init(config, write_end)
        finally:
            os._exit(1)
    os.close(write_end)
    write_pid_file(Path(config["pid_file"]), child)
    answer = b""
    while chunk := os.read(read_end, 65536):
        answer += chunk
    if answer == b"ok":
        return 0
    reason = answer.decode(errors="replace") or "its first process ended while booting"
    print(f"{config['hostname']}: {reason}", file=sys.stderr)
    return 1


# Load the library now: new mounts can hide its file.
ctypes.CDLL(None)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
