"""The guest's first process: create the nodes, then run the commands that the broker sends.

Runs as ``python3 -P -S -m seatrial_lab.virtual.guest.agent CONFIG`` with only the standard library.
CONFIG is the JSON of ``seatrial_lab.virtual.plan``. The agent blocks in poll(2), so an idle guest
executes nothing. A node's first process is ``seatrial_lab.common.nodeinit``, forked from the agent:
the start of a new Python takes seconds in an emulated machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import resource
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from seatrial_lab.common import mounts, nodeinit
from seatrial_lab.virtual.frames import (
    CHUNK,
    ERROR,
    EXIT,
    FAILED,
    INPUT,
    OUTPUT,
    PORT,
    QUIET,
    READY,
    RUN,
    SIGNAL,
    Reader,
    frame,
)

MS_MOVE = 0x2000
RTMGRP_LINK = 1
MOST_UNREAD_B = 64 << 20  # input of a command that does not read it; more ends the command
QUIET_AFTER_MS = 500  # of the guest's clock; after it, an idle agent sends QUIET
IRQ = Path("/proc/irq")
#: cgroups of nodes with several processors
PROCESSOR_SETS = Path("/sys/fs/cgroup")
NAMESPACES = ("net", "uts", "ipc", "mnt", "pid", "time")


def find_port() -> str:
    """Return the device of the serial line to the host. Raises RuntimeError."""
    for folder in Path("/sys/class/virtio-ports").iterdir():
        if (folder / "name").read_text().strip() == PORT:
            return f"/dev/{folder.name}"
    raise RuntimeError(f"no serial port named {PORT}")


def log_progress(text: str) -> None:
    """Write a step of the boot to the console, with the guest's clock in seconds."""
    print(f"[{time.clock_gettime(time.CLOCK_BOOTTIME):12.6f}] agent: {text}", flush=True)


def run_program(*command: str, text: str | None = None) -> None:
    """Run a program. Raises RuntimeError with its error output if it fails."""
    answer = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise RuntimeError(f"{' '.join(command)}: {answer.stderr.strip()}")


def interface_names() -> dict[str, str]:
    """Return MAC address -> interface name of the interfaces with a device."""
    names = {}
    for folder in Path("/sys/class/net").iterdir():
        if (folder / "device").exists():
            names[(folder / "address").read_text().strip()] = folder.name
    return names


def no_interface(address: str, model: str) -> RuntimeError:
    """The error of a card without an interface, with what the kernel said last."""
    said = subprocess.run(["dmesg"], capture_output=True, text=True, check=False).stdout
    last = " | ".join(said.splitlines()[-5:])
    return RuntimeError(f"no interface has the address {address} ({model}); kernel: {last}")


def set_up(config: dict[str, Any]) -> None:
    """Set up the folders, shares, networks and daemons that all nodes share."""
    time.clock_settime(time.CLOCK_REALTIME, config["time"])
    # Replace the lab's data folder by a copy in the guest's memory.
    data = Path(config["data"])
    draft = Path("/run/seatrial-data")
    draft.mkdir()
    mounts.mount("tmpfs", str(draft), "tmpfs", 0, "mode=755")
    run_program("cp", "-a", str(data), str(draft / data.name))
    mounts.mount(str(draft), str(data.parent), "", MS_MOVE)
    log_progress("data")
    share = Path(config["share"])
    share.mkdir(parents=True, exist_ok=True)
    mounts.mount(
        "share", str(share), "9p", 0, "trans=virtio,version=9p2000.L,cache=none,msize=262144"
    )
    log_progress("shares")
    Path(config["nodes"]).mkdir(parents=True, exist_ok=True)
    for path, value in config["kernel"].items():
        Path(path).write_text(value)
    if any(card["rdma"] for card in config["cards"]):
        load_rdma()
    run_program("ip", "-batch", "-", text=config["namespaces"])
    for name, batch in config["batches"]:
        for path, value in config["node_sysctl"].items():
            run_program("ip", "netns", "exec", name, "tee", f"/proc/sys/{path}", text=value)
        run_program("ip", "-n", name, "-batch", "-", text=batch)
    log_progress("management network")
    for path in Path("/sys/devices/virtual/workqueue").glob("**/cpumask"):
        if config["processors"]:
            path.write_text("1")  # the login node's, for the kernel's work that has no processor
    make_processor_sets(config["processors"])
    create_virtual_functions(config["cards"])
    there = interface_names()
    for card in config["cards"]:
        if card["address"] not in there:
            raise no_interface(card["address"], card["model"])
    move_cards(config["cards"], config["processors"])
    for name, batch in config["card_batches"]:
        run_program("ip", "-n", name, "-batch", "-", text=batch)
    add_rdma_devices(config["cards"])
    log_progress("NICs")
    daemons: dict[str, tuple[subprocess.Popen[bytes], str]] = {}
    for step in config["steps"]:
        nodeinit.run_step(step, daemons)


def load_rdma() -> None:
    """Load soft RoCE. Each RDMA device is visible in one network namespace only."""
    # Jobs of a cluster with RDMA may lock all memory: RDMA registers what it sends and receives.
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    run_program("modprobe", "ib_core", "netns_mode=0")
    for module in ("ib_uverbs", "rdma_rxe"):
        run_program("modprobe", module)


def add_rdma_devices(cards: list[dict[str, str]]) -> None:
    """Create the soft RoCE devices of the cards and move each to the namespace of its node.

    The kernel finds the card in the caller's namespace, and creates the device in the first one.
    """
    for card in cards:
        if card["rdma"]:
            link = ("link", "add", card["rdma"], "type", "rxe", "netdev", card["interface"])
            run_program("ip", "netns", "exec", card["netns"], "rdma", *link)
            run_program("rdma", "dev", "set", card["rdma"], "netns", card["netns"])


def create_virtual_functions(cards: list[dict[str, str]]) -> None:
    """Create the virtual functions (SR-IOV) of the cards whose function a node gets.

    The driver of the functions loads last: it reads the MAC address that the card has then.
    """
    there = interface_names()
    virtual = [card for card in cards if card["physical"] != card["address"]]
    for card in virtual:
        name = there.get(card["physical"])
        if name is None:
            raise no_interface(card["physical"], card["model"])
        run_program("ip", "link", "set", name, "up")
        Path(f"/sys/class/net/{name}/device/sriov_numvfs").write_text("1")
        run_program("ip", "link", "set", name, "vf", "0", "mac", card["address"])
    if virtual:
        run_program("modprobe", "igbvf")


def move_cards(cards: list[dict[str, str]], processors: dict[str, list[int]]) -> None:
    """Move cards from the guest to their nodes, at boot and after the reload of a driver."""
    there = interface_names()
    for card in cards if processors else []:
        if name := there.get(card["address"]):
            # The driver has made a queue for each processor of the guest; the node has few of them.
            if card["model"] == "igb":
                run_program("ethtool", "-L", name, "combined", "1")
            card["device"] = os.path.realpath(f"/sys/class/net/{name}/device")
    lines = [
        f"link set {there[card['address']]} netns {card['netns']} name {card['interface']}\n"
        for card in cards
        if card["address"] in there
    ]
    if lines:
        run_program("ip", "-batch", "-", text="".join(lines))


def interrupts_of(device: str) -> list[str]:
    """Return the numbers of the interrupts of a card; of virtio, of the device that it is in."""
    for place in (Path(device), Path(device).parent):
        if (place / "msi_irqs").is_dir():
            return [each.name for each in (place / "msi_irqs").iterdir()]
    line = Path(device) / "irq"
    return [line.read_text().strip()] if line.exists() else []


def pin_interrupts(cards: list[dict[str, str]], processors: dict[str, list[int]]) -> None:
    """Let the interrupts of the cards, and so their soft interrupts, run on their node.

    They run on its first processor, but for those that a NIC profile has moved to another one of
    the node.
    """
    for card in cards:
        of_node = processors[card["node"]]
        mask = sum(1 << processor for processor in of_node)
        for number in interrupts_of(card.get("device", "")):
            affinity = IRQ / number / "smp_affinity"
            with contextlib.suppress(OSError):  # the driver has just released it
                if int(affinity.read_text().replace(",", ""), 16) & ~mask:
                    affinity.with_name("smp_affinity_list").write_text(str(of_node[0]))


def install_modprobe() -> None:
    """Replace modprobe by ``modprobe.sh``, which calls the real program."""
    program = Path("/usr/sbin/modprobe")
    if not program.exists():
        return
    folder = Path("/usr/lib/seatrial")
    folder.mkdir(parents=True)
    (folder / "modprobe").symlink_to(program.resolve())
    program.unlink()
    program.write_text((Path(__file__).parent / "modprobe.sh").read_text())
    program.chmod(0o755)


def link_event_socket(netns: str = "") -> socket.socket:
    """Return a socket that receives the kernel's events of interfaces (rtnetlink), of this network
    namespace or of the one with that name."""
    if netns:
        namespace = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        other = os.open(f"/run/netns/{netns}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            mounts.check(mounts.LIBC.setns(other, 0), f"setns {netns}")
            return link_event_socket()
        finally:
            mounts.check(mounts.LIBC.setns(namespace, 0), "setns back")
            os.close(namespace)
            os.close(other)
    events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    events.bind((0, RTMGRP_LINK))
    events.setblocking(False)
    return events


def drain_events(events: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while events.recv(65536):
            pass


def make_processor_sets(processors: dict[str, list[int]]) -> None:
    """Give each host with several processors a set of them, for ``run_on_node``.

    The kernel's scheduler moves programs among the processors of a set, and no others run there.
    Raises RuntimeError with the kernel's reason.
    """
    several = {host: of_host for host, of_host in processors.items() if len(of_host) > 1}
    if not several:
        return
    mounts.mount("cgroup2", str(PROCESSOR_SETS), "cgroup2", 0, "")
    (PROCESSOR_SETS / "cgroup.subtree_control").write_text("+cpuset")
    for host, of_host in several.items():
        folder = PROCESSOR_SETS / host
        folder.mkdir()
        (folder / "cpuset.cpus").write_text(",".join(map(str, of_host)))
        partition = folder / "cpuset.cpus.partition"
        partition.write_text("root")
        if (state := partition.read_text().strip()) != "root":
            raise RuntimeError(f"{host}: the kernel makes no set of its processors: {state}")


def boot_hosts(files: list[str], processors: dict[str, list[int]]) -> None:
    """Start all hosts of the cluster and wait until they are up. Raises RuntimeError."""
    starters = {}
    for file in files:
        parent = os.getpid()
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            os.dup2(write_end, 2)
            code = 1
            try:
                run_on_node(Path(file).stem, processors)
                code = nodeinit.main([str(parent), file])
            except Exception as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(code)
        os.close(write_end)
        starters[pid] = (file, read_end)
    reasons = []
    for pid, (file, read_end) in starters.items():
        with open(read_end, errors="replace") as stream:  # noqa: PTH123 (a descriptor)
            words = stream.read().strip()
        if os.waitpid(pid, 0)[1]:
            reasons.append(words or f"{file}: its first process ended")
    if reasons:
        raise RuntimeError("; ".join(reasons))


def run_on_node(host: str, processors: dict[str, list[int]]) -> None:
    """Keep this process, and what it starts, on the processors of a host, if it has its own."""
    if processors:
        if len(processors[host]) > 1:
            (PROCESSOR_SETS / host / "cgroup.procs").write_text(str(os.getpid()))
        os.sched_setaffinity(0, processors[host])


class Command:
    """A command of the broker that runs on a node."""

    def __init__(
        self, number: int, request: dict[str, Any], nodes: Path, processors: dict[str, list[int]]
    ):
        self.number = number
        first = int((nodes / f"{request['node']}.pid").read_text().split()[0])
        inputs, outputs, errors = os.pipe(), os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 126
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for descriptor, end in enumerate((inputs[0], outputs[1], errors[1])):
                    os.dup2(end, descriptor)
                os.closerange(3, 4096)
                run_on_node(request["node"], processors)
                code = enter(first, request)
            except Exception as error:
                os.write(2, f"{request['argv'][0]}: {error}\n".encode())
            os._exit(code)
        for end in (inputs[0], outputs[1], errors[1]):
            os.close(end)
        self.input: int | None = inputs[1]
        os.set_blocking(inputs[1], False)
        self.unread = b""  # input that the pipe of the command has no room for
        self.awaited: int | None = None  # the pipe, while the agent's poll has it
        self.input_ends = False
        self.streams = {outputs[0]: OUTPUT, errors[0]: ERROR}
        self.code: int | None = None

    def feed(self, data: bytes) -> None:
        """Pass input on as far as the command reads it; empty data end it. Never waits."""
        self.input_ends |= not data
        self.unread += data
        if len(self.unread) > MOST_UNREAD_B:
            os.kill(self.pid, signal.SIGTERM)
            self.close_input()
        self.pass_on()

    def pass_on(self) -> None:
        if self.input is None:
            return
        try:
            while self.unread:
                self.unread = self.unread[os.write(self.input, self.unread) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.close_input()
        if self.input_ends:
            self.close_input()

    def close_input(self) -> None:
        if self.input is not None:
            os.close(self.input)
        self.input, self.unread = None, b""

    @property
    def done(self) -> bool:
        return self.code is not None and not self.streams


def enter(first: int, request: dict[str, Any]) -> int:
    """Run the command of ``request`` in a node's namespaces. Returns its exit code."""
    os.setsid()
    places = [(name, f"/proc/{first}/ns/{name}") for name in NAMESPACES]
    descriptors = [(name, os.open(place, os.O_RDONLY | os.O_CLOEXEC)) for name, place in places]
    for name, descriptor in descriptors:
        mounts.check(mounts.LIBC.setns(descriptor, 0), f"setns {name}")
    # setns changes the pid namespace of children only.
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        try:
            account = pwd.getpwnam(request["user"])
            os.initgroups(account.pw_name, account.pw_gid)
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
            os.umask(0o022)
            os.chdir(request["cwd"] or account.pw_dir)
            os.execvpe(request["argv"][0], request["argv"], request["env"])
        except OSError as error:
            os.write(2, f"{request['argv'][0]}: {error}\n".encode())
        os._exit(127)
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(pid, number))
    signal.signal(signal.SIGINT, lambda number, _: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return 128 - code if code < 0 else code


class Agent:
    """Runs the broker's commands, and reaps."""

    def __init__(
        self,
        line: int,
        nodes: Path,
        cards: list[dict[str, str]],
        processors: dict[str, list[int]],
    ):
        self.line, self.nodes, self.cards, self.processors = line, nodes, cards, processors
        self.link_events = link_event_socket()
        # A driver has new interrupts each time that its interface starts.
        self.card_events = {
            link_event_socket(netns): [card for card in cards if card["netns"] == netns]
            for netns in {card["netns"] for card in cards if processors}
        }
        pin_interrupts(cards if processors else [], processors)
        self.commands: dict[int, Command] = {}
        self.reader = Reader()
        self.last = 0
        self.quiet_sent = False
        self.poll = select.poll()
        self.wakeup, wakeup_end = os.pipe()
        os.set_blocking(wakeup_end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
        self.poll.register(line, select.POLLIN)
        self.poll.register(self.wakeup, select.POLLIN)
        self.poll.register(self.link_events, select.POLLIN)
        for events in self.card_events:
            self.poll.register(events, select.POLLIN)

    def send(self, number: int, kind: bytes, data: bytes = b"") -> None:
        message = frame(number, kind, data)
        while message:
            message = message[os.write(self.line, message) :]

    def serve(self) -> None:
        """Handle events for ever."""
        while True:
            # After QUIET, wait for events without a timeout.
            idle = not self.commands and not self.quiet_sent
            events = self.poll.poll(QUIET_AFTER_MS if idle else None)
            if not events and idle:
                self.quiet_sent = True
                self.send(self.last, QUIET)
            for descriptor, _ in events:
                self.handle(descriptor)
            self.reap()

    def handle(self, descriptor: int) -> None:
        if descriptor == self.line:
            for each in self.reader.feed(os.read(self.line, CHUNK)):
                self.handle_frame(*each)
        elif descriptor == self.link_events.fileno():
            drain_events(self.link_events)
            move_cards(self.cards, self.processors)
        elif descriptor == self.wakeup:
            os.read(self.wakeup, 4096)
        elif events := [each for each in self.card_events if each.fileno() == descriptor]:
            drain_events(events[0])
            pin_interrupts(self.card_events[events[0]], self.processors)
        else:
            for command in self.commands.values():
                if descriptor == command.awaited:
                    command.pass_on()
                    self.await_room(command)
                    break
                if descriptor in command.streams:
                    self.forward_output(command, descriptor)
                    break

    def await_room(self, command: Command) -> None:
        """Have the poll say when the command reads on, while there is input for it."""
        wanted = command.input if command.unread else None
        if command.awaited != wanted:
            if command.awaited is not None:
                self.poll.unregister(command.awaited)
            if wanted is not None:
                self.poll.register(wanted, select.POLLOUT)
            command.awaited = wanted

    def forward_output(self, command: Command, descriptor: int) -> None:
        data = os.read(descriptor, CHUNK)
        if data:
            self.send(command.number, command.streams[descriptor], data)
            return
        self.poll.unregister(descriptor)
        os.close(descriptor)
        del command.streams[descriptor]

    def handle_frame(self, number: int, kind: bytes, data: bytes) -> None:
        if kind == RUN:
            self.last, self.quiet_sent = number, False
            try:
                command = Command(number, json.loads(data), self.nodes, self.processors)
            except Exception as error:
                self.send(number, ERROR, f"{type(error).__name__}: {error}\n".encode())
                self.send(number, EXIT, b"126")
                return
            self.commands[number] = command
            for descriptor in command.streams:
                self.poll.register(descriptor, select.POLLIN | select.POLLHUP)
        elif number in self.commands:
            command = self.commands[number]
            if kind == INPUT:
                command.feed(data)
                self.await_room(command)
            elif kind == SIGNAL:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(command.pid, int(data))

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid = 0
            if not pid:
                break
            for command in self.commands.values():
                if command.pid == pid:
                    code = os.waitstatus_to_exitcode(status)
                    command.code = 128 - code if code < 0 else code
        for number, command in list(self.commands.items()):
            if command.code is not None:
                # A child of the command may hold its output open: do not wait for the child.
                for descriptor in list(command.streams):
                    self.drain(command, descriptor)
                command.close_input()
                self.await_room(command)
                del self.commands[number]
                self.send(number, EXIT, str(command.code).encode())

    def drain(self, command: Command, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(descriptor, CHUNK):
                self.send(command.number, command.streams[descriptor], data)
        self.poll.unregister(descriptor)
        os.close(descriptor)
        del command.streams[descriptor]


def main(arguments: list[str]) -> None:
    """Boot the cluster and run commands. A failed boot is reported and ends the guest."""
    line = os.open(find_port(), os.O_RDWR | os.O_CLOEXEC)
    try:
        log_progress("started")
        config = json.loads(Path(arguments[0]).read_text())
        set_up(config)
        log_progress("hosts")
        install_modprobe()
        boot_hosts(config["hosts"], config["processors"])
        log_progress("booted")
        agent = Agent(line, Path(config["nodes"]), config["cards"], config["processors"])
        agent.send(0, READY, f"{time.clock_gettime(time.CLOCK_BOOTTIME):.3f}".encode())
        agent.serve()
    except BaseException as error:
        with contextlib.suppress(OSError):
            traceback.print_exc()
            os.write(line, frame(0, FAILED, f"{type(error).__name__}: {error}".encode()))
            time.sleep(1)
    power_off()


def power_off() -> None:
    """Power the guest off. The kernel panics if its first process exits."""
    Path("/proc/sysrq-trigger").write_text("o")
    time.sleep(10)


if __name__ == "__main__":
    main(sys.argv[1:])
