"""QEMU's command line for a guest. Pure: starts nothing."""

from __future__ import annotations

from pathlib import Path

from seatrial_lab.virtual.frames import PORT
from seatrial_lab.virtual.packages import Base, data_options
from seatrial_lab.virtual.snapshot import BROKER_SOCKET, FAULTS_SOCKET
from seatrial_lab.virtual.spec import MODELS, SRIOV, Card, VirtualSpec

#: QEMU's machine type, with a version: a later QEMU emulates the same machine
MACHINE = "pc-q35-8.0"
KERNEL_OPTIONS = (
    "console=ttyS0", "quiet", "loglevel=2", "panic=-1", "mitigations=off", "nowatchdog",
    "ipv6.disable_ipv6=1", "random.trust_cpu=on", "tsc=reliable", "no_timer_check", "audit=0",
    "net.ifnames=0", "nokaslr", "cryptomgr.notests", "rcupdate.rcu_expedited=1", "selinux=0",
    "apparmor=0", "transparent_hugepage=never", "pci=noaer", "nosmap", "nosmep",
)  # fmt: skip
FUNCTIONS = 8  # functions of one PCI slot
PORT_SLOT = 0x10  # first slot of the root ports


def command(
    spec: VirtualSpec, base: Base, initramfs: Path, run: Path, emulator: Path | None = None
) -> list[str]:
    """Return QEMU's command line; ``run`` is the folder of its sockets and of the share.

    ``emulator`` is a QEMU with a clock for each processor, so that hosts have their own; None: all
    hosts share one processor.

    The guest reads all files of this machine and writes to the share, both with the permissions
    that QEMU has: see ``as_user``.
    """
    number = spec.guest_processors if emulator else 1
    clocks = f",percpu=on,window={spec.window_ns}" if emulator else ""
    options = (*KERNEL_OPTIONS, *(processor_options(spec) if emulator else ()))
    # A processor of several that waits with MWAIT runs: it has to wait with HLT.
    cpu = spec.cpu + (",-monitor" if emulator else "")
    # Else a thread of QEMU takes what the guest sends when this machine runs it.
    direct = ",ioeventfd=off" if emulator else ""
    return [
        str(emulator or base.qemu), *data_options(base),
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-machine", f"{MACHINE},usb=off,smm=off,vmport=off", "-cpu", cpu, "-smp", str(number),
        "-m", str(spec.memory_MiB),
        # One instruction is one nanosecond. If the processor idles, time jumps to the next event.
        "-accel", "tcg,tb-size=512", "-icount", f"shift=0,sleep=off{clocks}",
        "-rtc", "base=utc,clock=vm",
        "-kernel", str(base.kernel), "-initrd", str(initramfs), "-append", " ".join(options),
        "-serial", f"file:{run / 'console.log'}",
        *(word for name in (BROKER_SOCKET, FAULTS_SOCKET)
          for word in ("-qmp", f"unix:{run / name},server=on,wait=off")),
        *folder("root", Path("/"), readonly=True, options=direct),
        *folder("share", run / "share", readonly=False, options=direct),
        "-device", f"virtio-serial-pci{direct}",
        "-chardev", f"socket,id=line,path={run / 'line.sock'},server=on,wait=off",
        "-device", f"virtserialport,chardev=line,name={PORT}",
        *cards(spec, timed=emulator is not None),
    ]  # fmt: skip


def processor_options(spec: VirtualSpec) -> tuple[str, ...]:
    """Return kernel options that leave all processors but the first to the nodes."""
    # Where a node has several, the scheduler has to move programs among these: see guest/agent.py.
    isolated = (f"isolcpus=domain,1-{len(spec.lab.nodes)}",) if spec.lab.cpus == 1 else ()
    return (*isolated, "irqaffinity=0")


def as_user(spec: VirtualSpec, base: Base) -> list[str]:
    """Return options that make QEMU the job user once its files and sockets are open.

    So root in the guest is the job user on this machine. A process that changes its user is not
    traced by other processes of this user (PR_SET_DUMPABLE in prctl(2)).
    """
    user = f"{spec.lab.uid}:{spec.lab.gid}"
    return ["-run-with", f"user={user}"] if base.runs_with_user else ["-runas", user]


def folder(tag: str, path: Path, readonly: bool, options: str = "") -> list[str]:
    """Return options that export a folder of this machine to the guest (9p)."""
    only = ",readonly=on" if readonly else ""
    return [
        "-fsdev", f"local,id={tag},path={path},security_model=none,multidevs=remap{only}",
        "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}{options}",
    ]  # fmt: skip


def cards(spec: VirtualSpec, timed: bool = False) -> list[str]:
    """Return options for the NICs: each on its network's hub, SR-IOV cards on a root port.

    ``timed``: with their wires and buses, which only the QEMU of ``emulator`` has.
    """
    options: list[str] = []
    # Root ports have fixed slots: they come first, and QEMU gives the other cards what is left.
    numbered = sorted(enumerate(spec.cards), key=lambda each: each[1].model not in SRIOV)
    for place, (number, card) in enumerate(numbered):
        # One hub for each network and node class: a hub connects equal cards.
        address = spec.physical_address(card)
        device = f"{MODELS[card.model]},netdev={netdev(number)},mac={address},romfile="
        cable = cable_options(spec, card) if timed else ""
        options += ["-netdev", f"hubport,id={netdev(number)},hubid={card.network}{cable}"]
        if card.model in SRIOV:
            # By place: a slot without its function 0 is empty to the guest.
            slot, function = divmod(place, FUNCTIONS)
            port = (
                f"pcie-root-port,id=p{place},chassis={place + 1},multifunction=on,"
                f"addr={PORT_SLOT + slot:#x}.{function:#x}"
            )
            options += ["-device", port]
            device += f",bus=p{place}"
        options += ["-device", device]
    return options


def netdev(number: int) -> str:
    """Return QEMU's name of the cable of a card, by the card's place in the specification."""
    return f"n{number}"


def cable_options(spec: VirtualSpec, card: Card) -> str:
    """Return the options of a card's wire and bus (``emulator/hub-wire.c``)."""
    given: dict[str, object] = {}
    if card.wire:
        given |= {"rate": card.wire.rate, "delay": card.wire.delay_ns}
        if card.wire.queue_B is not None:
            given |= {"queue": card.wire.queue_B, "latency": card.wire.latency_ns}
    if spec.bus_B_s:
        bus = card.node if card.bus == 1 else f"{card.node}.{card.bus}"
        given |= {"bus": bus, "bus-rate": spec.bus_B_s}
    return "".join(f",{name}={value}" for name, value in given.items())
