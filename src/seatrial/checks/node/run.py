"""Node side: run one rank of a benchmark, and record the node's counters before and after it.

    python3 -IS run.py STEP NETWORK=INTERFACE[,...] [--maps WORD] [--nic FILE PACKAGE WHEN]
        [--rdma NETWORK=DEVICE:PORT[,...]] -- PROGRAM [ARGUMENT ...]

Only the Python standard library is used: a node under test may have nothing else. The first rank of
each node writes STEP.NODE.json; all other ranks only execute the program. STEP may have a folder,
else it is the working folder. The exit code is that of the program.

With --nic the package PACKAGE (the node side of NIC profiles) compares the node's settings with the
NIC profile in FILE; WHEN is ``before``, ``after`` or ``both``. The results are nic-before.NODE.json
(of the first comparison) and nic-after.NODE.json (of the last), in the folder of STEP.

With --rdma the counters have those of the RDMA port of a network; %n is the node's name.
"""

import array
import contextlib
import fcntl
import importlib
import json
import os
import resource
import signal
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import wire
from names import node_name

SIOCGIFMTU = 0x8921
ETHTOOL_GDRVINFO = 0x3
POLICY = "/etc/seatrial/nic.json"  # the site's profiles, on nodes that have the node side
NET = "/sys/class/net"
RDMA = "/sys/class/infiniband"
#: files of the counters of an RDMA port, the best first: folder, files, bytes in a unit.
#: The kernel's Documentation/ABI/stable/sysfs-class-infiniband counts data in units of 4 bytes.
RDMA_DATA = (
    ("counters", "port_rcv_data", "port_xmit_data", 4),
    ("hw_counters", "rcvd_bytes", "sent_bytes", 1),
)
RDMA_PACKETS = (
    ("counters", "port_rcv_packets", "port_xmit_packets"),
    ("hw_counters", "rcvd_pkts", "sent_pkts"),
)
CPUFREQ = "/sys/devices/system/cpu/cpu0/cpufreq"
TURBO_DRIVERS = ("intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp")
FLAGS = ("hypervisor", "sse2", "avx", "fma", "avx512f")
COUNTERS = {"rx_bytes": 0, "rx_packets": 1, "tx_bytes": 8, "tx_packets": 9}  # of /proc/net/dev
MAPS_AT_S = (0.05, 0.15, 0.4, 1.0, 2.0, 4.0)


def read(path, default=""):
    try:
        with open(path) as stream:
            return stream.read()
    except OSError:
        return default


def driver(sock, interface):
    """Name, version, firmware and bus of the interface's driver, as in ``ethtool -i``."""
    info = array.array("B", struct.pack("I", ETHTOOL_GDRVINFO) + bytes(512))
    if not wire.ioctl(sock, interface, info):
        return {}
    data = info.tobytes()
    fields = (("driver", 4), ("version", 36), ("firmware", 68), ("bus", 100))
    return {name: data[at : at + 32].split(b"\0")[0].decode() for name, at in fields}


def processor():
    """Greatest clock of the first CPU in kHz, and the flags that decide its peak.

    The clock is None if the frequency driver may leave out the turbo, as acpi-cpufreq does.
    """
    flags = set()  # type: set[str]
    for line in read("/proc/cpuinfo").splitlines():
        if line.startswith("flags"):
            flags.update(line.partition(":")[2].split())
            break
    driver_name = read(CPUFREQ + "/scaling_driver").strip()
    text = read(CPUFREQ + "/cpuinfo_max_freq").strip()
    trusted = driver_name in TURBO_DRIVERS and text.isdigit()
    return {"max_kHz": int(text) if trusted else None, "flags": sorted(flags.intersection(FLAGS))}


def rdma_port(name):
    """State and counters of an RDMA port such as mlx5_0:1, as the kernel shows them.

    The state is empty if there is no such port. ``unit`` is None if the port counts no bytes.
    ``shared``: the device has a network interface as its parent, as soft RoCE has.
    """
    device, _, number = name.partition(":")
    folder = "%s/%s/ports/%s" % (RDMA, device, number)
    state = read(folder + "/state").partition(":")[2].strip()
    entry = {"port": name, "state": state, "unit": None, "rx": None, "tx": None, "source": ""}
    for place, receive, transmit, unit in RDMA_DATA:
        texts = [read("%s/%s/%s" % (folder, place, file)).strip() for file in (receive, transmit)]
        if all(text.isdigit() for text in texts):
            entry.update(rx=int(texts[0]), tx=int(texts[1]), unit=unit)
            entry["source"] = "%s/%s, %s" % (place, receive, transmit)
            break
    for place, receive, transmit in RDMA_PACKETS:
        texts = [read("%s/%s/%s" % (folder, place, file)).strip() for file in (receive, transmit)]
        if all(text.isdigit() for text in texts):
            entry.update(rx_packets=int(texts[0]), tx_packets=int(texts[1]))
            entry["source"] = entry["source"] or "%s/%s, %s" % (place, receive, transmit)
            break
    entry["shared"] = os.path.exists("%s/%s/parent" % (RDMA, device))
    return entry


def irq_numbers(interface):
    """The interrupt lines of the interface's device; empty if it has none (veth, tap, a bond)."""
    folder = os.path.realpath("%s/%s/device" % (NET, interface))
    if os.path.basename(folder).startswith("virtio"):
        folder = os.path.dirname(folder)  # the lines belong to the card
    try:
        return set(os.listdir(folder + "/msi_irqs"))
    except OSError:
        line = read(folder + "/irq").strip()
        return {line} - {"", "0"}


def interrupts(interface, table):
    """Interrupts of the interface since boot, from the lines of /proc/interrupts in ``table`` that
    have its numbers, or its name if it has none; None: there are no such lines. A bond has those of
    its members."""
    members = read("%s/%s/bonding/slaves" % (NET, interface)).split()
    if members:
        counts = [interrupts(member, table) for member in members]
        return None if None in counts else sum(counts)
    numbers = irq_numbers(interface)
    # The table is the machine's in each network namespace, and another one may have a card of this
    # name. So a veth has no line here, and the name counts only where the card has no numbers.
    by_name = not numbers and os.path.exists("%s/%s/device" % (NET, interface))
    total = None
    for words in table:
        named = words[-1] == interface or words[-1].startswith((interface + "-", interface + ":"))
        if (by_name and named) or words[0][:-1] in numbers:
            total = total or 0
            for word in words[1:]:
                if not word.isdigit():
                    break
                total += int(word)
    return total


def cpu_times():
    """USER_HZ ticks of all CPUs: user, nice, system, idle, iowait, irq, softirq, steal."""
    for line in read("/proc/stat").splitlines():
        if line.startswith("cpu "):
            return [int(word) for word in line.split()[1:9]]
    return []


def used_s():
    """Processor time in seconds of the step's processes on this node, with those that have ended.

    They are this process, its children, and all other processes of the node's slurmstepd. None if
    the other ranks are not visible.
    """
    parent = os.getppid()
    if not read("/proc/%d/stat" % parent) or not os.path.exists("/proc/thread-self/children"):
        return None
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return seconds + ticks_below(parent, os.getpid()) / os.sysconf("SC_CLK_TCK")


def ticks_below(pid, left_out):
    """USER_HZ ticks of a process and its descendants, without the one that is left out.

    Children are read first: if one ends meanwhile, the time of its parent has its time.
    """
    total, lists = 0, "/proc/%d/task" % pid
    for thread in os.listdir(lists) if os.path.isdir(lists) else ():
        for child in read("%s/%s/children" % (lists, thread)).split():
            if int(child) != left_out:
                total += ticks_below(int(child), left_out)
    return total + sum(map(int, read("/proc/%d/stat" % pid).rpartition(")")[2].split()[11:15]))


def waited_s(pid, step):
    """Seconds for which a process that has ended, and its child (pair.py), waited for a processor.

    None if the kernel does not count them.
    """
    numbers = read("/proc/%d/schedstat" % pid).split()
    of_child = read("%s.%s.waited" % (step, os.environ.get("SLURM_PROCID", "0")), "0")
    return (int(numbers[1]) + int(of_child)) / 1e9 if len(numbers) > 1 else None


def softirqs():
    """Number of softirqs of each kind since boot, of all CPUs; empty if it is not known."""
    counts = {}
    for line in read("/proc/softirqs").splitlines()[1:]:
        words = line.split()
        if words and words[0].endswith(":"):
            counts[words[0][:-1]] = sum(int(word) for word in words[1:] if word.isdigit())
    return counts


def state_folder():
    """Where the node side of NIC profiles keeps its state; empty: the node has none."""
    try:
        folder = json.loads(read(POLICY, "{}")).get("state_folder", "")
    except (ValueError, AttributeError):
        return ""
    return folder.replace("%n", node_name())


def snapshot(networks, ports):
    counted = {}
    for line in read("/proc/net/dev").splitlines()[2:]:
        name, _, numbers = line.partition(":")
        counted[name.strip()] = [int(word) for word in numbers.split()]
    state = {}
    neighbours = wire.neighbours(state_folder())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for network, interface in networks.items():
            if interface not in counted:
                continue
            numbers = counted[interface]
            entry = {key: numbers[at] for key, at in COUNTERS.items()}
            request = fcntl.ioctl(sock, SIOCGIFMTU, struct.pack("16si12x", interface.encode(), 0))
            entry.update(network=network, mtu=struct.unpack("16si12x", request)[1])
            entry.update(driver(sock, interface))
            entry.update(wire.facts(sock, interface), errors=wire.errors(sock, interface))
            neighbour = neighbours.get(interface)
            if neighbour:
                entry["neighbour"] = neighbour
            if network in ports:
                entry["rdma"] = rdma_port(ports[network])
            state[interface] = entry
    lines = [line.split() for line in read("/proc/interrupts").splitlines()[1:]]
    table = [words for words in lines if words]
    return {
        "node": node_name(),
        "kernel": os.uname().release,
        "boot_id": read("/proc/sys/kernel/random/boot_id").strip(),
        "time": time.time(),
        "interfaces": state,
        "interrupts": {name: interrupts(name, table) for name in state},
        "cpu_ticks": cpu_times(),
        "cpus": os.cpu_count(),
        "used_s": used_s(),
        "ticks_per_s": os.sysconf("SC_CLK_TCK"),
        "softirqs": softirqs(),
    }


def profile_evidence(declared, package, when, place):
    """Record whether this node has the settings of the NIC profile in the file ``declared``.

    All errors are recorded: a verification that fails must not end the benchmark, and must not
    pass.
    """
    node = node_name()
    name = os.path.join(place, "nic-%s.%s.json" % (when, node))
    if when == "before" and os.path.exists(name):
        return
    start = time.monotonic()
    try:
        folder, module = os.path.split(package)
        sys.path.insert(0, folder)
        try:
            evidence = importlib.import_module(module + ".evidence")
        finally:
            sys.path.remove(folder)
        with open(declared) as stream:
            expected = json.load(stream)
        # The installation on the node may have the journal in another folder.
        expected["state_folder"] = state_folder() or expected["state_folder"]
        record = evidence.collect(expected, node, os.environ.get("SLURM_JOB_ID"))
    except Exception as error:
        reason = "%s: its NIC settings cannot be read: %s" % (node, type(error).__name__)
        reason = "%s: %s" % (reason, error)
        record = {"ok": False, "reason": reason, "interfaces": {}}
    record.update(node=node, when=when, seconds=time.monotonic() - start)
    write_json(name, record)


def write_json(name, data):
    with open(name + ".partial", "w") as stream:
        json.dump(data, stream)
    os.replace(name + ".partial", name)


def mapped(pid, word):
    """Files that the process or its children have mapped and whose names contain one of the words
    in ``word``, which are separated by commas."""
    files, parts = set(), word.split(",")
    pids = [str(pid), *read("/proc/%d/task/%d/children" % (pid, pid)).split()]
    for number in pids:
        for line in read("/proc/%s/maps" % number).splitlines():
            words = line.split(None, 5)
            name = os.path.basename(words[5]) if len(words) == 6 else ""
            if any(part in name for part in parts):
                files.add(words[5].strip())
    return sorted(files)


def reports(step):
    """Replace {report_file} and {report_fd} in the environment by a file of this rank, and {node}
    by the node's name.

    There the MPI names its path without lines in the program's output.
    """
    name = "%s.%s.%s.report" % (
        step,
        node_name(),
        os.environ.get("SLURM_PROCID", "0"),
    )
    for key, value in list(os.environ.items()):
        if "{report_fd}" in value:
            number = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.set_inheritable(number, True)
            value = value.replace("{report_fd}", str(number))
        value = value.replace("{node}", node_name())
        os.environ[key] = value.replace("{report_file}", os.path.abspath(name))


def forward(pid, number):
    # A program that has already ended has its own exit code.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait(pid, word, passed_on):
    """Wait until the child has ended; it is not reaped. Passes on signals, which are blocked.

    Returns the mapped files of ``word``.
    """
    files = []  # type: list[str]
    start = time.monotonic()
    looks = [start + at for at in MAPS_AT_S] if word else []
    while not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
        now = time.monotonic()
        if looks and now >= looks[0]:
            files = mapped(pid, word) or files
            del looks[0]
        else:
            left = looks[0] - now if looks else 3600
            received = signal.sigtimedwait({signal.SIGCHLD, *passed_on}, left)
            if received and received.si_signo in passed_on:
                forward(pid, received.si_signo)
    return files


def main(argv):
    split = argv.index("--")
    options, command = argv[2:split], argv[split + 1 :]
    step, networks = argv[0], dict(item.split("=", 1) for item in argv[1].split(","))
    word = options[options.index("--maps") + 1] if "--maps" in options else ""
    at = options.index("--nic") + 1 if "--nic" in options else 0
    declared, package, when = options[at : at + 3] if at else ("", "", "")
    ports = {}
    if "--rdma" in options:
        text = options[options.index("--rdma") + 1].replace("%n", node_name())
        ports = dict(item.split("=", 1) for item in text.split(","))
    reports(step)
    if os.environ.get("SLURM_LOCALID", "0") != "0":
        os.execvp(command[0], command)
    if when in ("before", "both"):
        profile_evidence(declared, package, "before", os.path.dirname(step))
    # Blocked until they can be passed on: else the program may run longer than this process.
    passed_on = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *passed_on})
    before = snapshot(networks, ports)
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, *passed_on})
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print("run.py: %s: %s" % (command[0], error.strerror), file=sys.stderr)
            os._exit(127)
    files = wait(pid, word, passed_on)
    waited = waited_s(pid, step)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    after = snapshot(networks, ports)
    record = {"step": step, "before": before, "after": after, "exit_code": code, "mapped": files}
    record.update(waited_s=waited, processor=processor())
    write_json("%s.%s.json" % (step, after["node"]), record)
    if when in ("after", "both"):
        profile_evidence(declared, package, "after", os.path.dirname(step))
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
