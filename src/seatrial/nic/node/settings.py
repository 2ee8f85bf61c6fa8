"""The table of NIC settings: one entry for each, in the order in which they are applied.

To add a setting, add an entry. A new kind of reading needs a function in ``readers``, a new kind of
writing one in ``writers``. From the table come the fields of a profile (``nic/schema.py``) and what
is wrong with them, their keys on nodes (``nic/flatten.py``), reading, applying and restoring, what
the guard refuses, the sentences on data paths that a setting does not reach, and the list in
``docs/write-a-nic-profile.md``. This file runs on nodes: standard library only.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from . import compare, cpus, readers, writers
from .kinds import Fields, Form, Number, Switch, Takes

State = Dict[str, Any]

#: daemons that set the same, and undo it; the guard has a check for each
NETWORK_DAEMONS = ("tuned", "NetworkManager")
#: also addresses and bonds, which a network manager makes again when a link appears
LINK_DAEMONS = (*NETWORK_DAEMONS, "systemd-networkd")
IRQ_DAEMONS = ("irqbalance",)
#: fabrics of a site, for ``data_paths``
ALL_FABRICS = ("ethernet", "infiniband", "roce", "slingshot", "efa")
ALWAYS, ON_SOME_DRIVERS = "always", "on some drivers"


def own_discipline(state: State) -> str:
    """Why a rate limit cannot be put on an interface; empty where it can."""
    if str(state.get("qdisc")).startswith("default "):
        return ""
    return "a queueing discipline of its own (%s), which could not be restored exactly" % (
        state.get("qdisc"),
    )


class Setting(NamedTuple):
    """One entry. Only ``name``, ``key``, ``takes``, ``about`` and ``command`` are always given."""

    #: field of a profile; empty for a part of the state that only restoring sets
    name: str
    #: on nodes: in the policy, the journal and the evidence. One that ends in ``.`` is the
    #: beginning of the keys of several values: ``ring.`` of ``ring.rx``
    key: str
    #: kind of value, or the kind of each of several values by name
    takes: Takes
    #: what it does, for the documentation
    about: str
    #: program or file that it stands for, for the documentation
    command: str
    #: reads it from an interface: gets the interface and ``state_key``
    read: Optional[readers.Reader] = None
    #: gives the actions that set it
    write: Optional[writers.Writer] = None
    #: key of a state, where it is another one: ``rps.rx-`` of ``rps.rx-0``, ``rps.rx-1`` ...
    in_state: str = ""
    #: value of one queue or interrupt line, from the profile's value for all of them
    spread: Optional[Callable[[str, Any, int, List[int]], str]] = None
    #: whether two values are the same
    same: Callable[[Any, Any, bool], bool] = compare.equal
    #: a state of None says that it is not set, not that the driver lacks it
    none_is_unset: bool = False
    #: the driver makes more of its keys, and removes some, when it needs them
    comes_and_goes: bool = False
    #: drivers show another value of it without a link
    needs_link: bool = False
    #: word of ``if_supported`` by which a profile may do without it
    optional: str = ""
    #: whether the interfaces of a profile may have different values of it
    per_network: bool = True

    # -- danger
    #: daemons beside which the guard refuses it
    rivals: Tuple[str, ...] = ()
    #: when it takes the link down
    link_down: str = ""
    #: lost when the driver is reloaded, though it is not the driver's: it is then set again
    kept_over_reload: bool = False
    #: why the state of an interface forbids it; empty where it does not
    refuse: Optional[Callable[[State], str]] = None

    # -- effect
    #: fabrics on which also a data path in user space (verbs, libfabric) is subject to it
    data_paths: Tuple[str, ...] = ()
    #: what sentences call it; its name where this is empty
    words: str = ""

    @property
    def state_key(self) -> str:
        return self.in_state or self.key

    @property
    def of_node(self) -> bool:
        """Whether it holds for the node as a whole."""
        return self.key.startswith("sysctl.")

    def has(self, key: str) -> bool:
        """Whether a key of a policy or of a state belongs to it."""
        return of(key) is self


#: each driver has a limit of its own, of some milliseconds; more than a second is a slip
LONGEST_US = 1_000_000
COALESCING: Fields = {
    "adaptive_rx": Switch(absent_is_off=True),
    "adaptive_tx": Switch(absent_is_off=True),
    "rx_usecs": Number("us", most=LONGEST_US, behind="adaptive_rx"),
    "rx_frames": Number("frames", behind="adaptive_rx"),
    "rx_usecs_irq": Number("us", most=LONGEST_US, behind="adaptive_rx"),
    "rx_frames_irq": Number("frames", behind="adaptive_rx"),
    "tx_usecs": Number("us", most=LONGEST_US, behind="adaptive_tx"),
    "tx_frames": Number("frames", behind="adaptive_tx"),
    "tx_usecs_irq": Number("us", most=LONGEST_US, behind="adaptive_tx"),
    "tx_frames_irq": Number("frames", behind="adaptive_tx"),
    "stats_block_usecs": Number("us"),
    "sample_interval": Number("s"),
    "pkt_rate_low": Number("packets/s"),
    "rx_usecs_low": Number("us", most=LONGEST_US),
    "rx_frames_low": Number("frames"),
    "tx_usecs_low": Number("us", most=LONGEST_US),
    "tx_frames_low": Number("frames"),
    "pkt_rate_high": Number("packets/s"),
    "rx_usecs_high": Number("us", most=LONGEST_US),
    "rx_frames_high": Number("frames"),
    "tx_usecs_high": Number("us", most=LONGEST_US),
    "tx_frames_high": Number("frames"),
    "cqe_mode_rx": Switch(absent_is_off=True),
    "cqe_mode_tx": Switch(absent_is_off=True),
}
FLOW_CONTROL: Fields = {
    "autoneg": Switch(),
    "rx": Switch(behind="autoneg"),
    "tx": Switch(behind="autoneg"),
}
INT_MAX = 2**31 - 1

SETTINGS: Tuple[Setting, ...] = (
    Setting(
        name="driver",
        key="driver",
        takes=Form("driver", "`module`, `parameters`, `link_timeout_s`, `allow_shared`"),
        about="parameters that a kernel module takes only when it is loaded: it is reloaded",
        command="modprobe -r M; modprobe M p=v",
        read=readers.driver,
        in_state="driver.",
        none_is_unset=True,
        rivals=LINK_DAEMONS,
        link_down=ALWAYS,
        data_paths=ALL_FABRICS,
        words="driver parameters",
    ),
    Setting(
        name="bonding",
        key="bond",
        takes=Form("bonding", "`mode`, `members`, `miimon_ms`, `name`"),
        about="several interfaces as one, which has the addresses of its first member",
        command="ip link add type bond",
        read=readers.master,
        in_state="master",
        none_is_unset=True,
        per_network=False,
        rivals=LINK_DAEMONS,
        link_down=ALWAYS,
    ),
    Setting(
        name="txqueuelen",
        key="txqueuelen",
        takes=Number("packets"),
        about="packets that may wait to be sent",
        command="ip link set I txqueuelen",
        read=readers.file("tx_queue_len"),
        write=writers.ip_link,
        rivals=NETWORK_DAEMONS,
        kept_over_reload=True,
    ),
    Setting(
        name="",
        key="qdisc",
        takes=Form("text", ""),
        about="the root queueing discipline, which a rate limit replaces",
        command="tc qdisc",
        read=readers.queueing_discipline,
        in_state="qdisc.",
        write=writers.default_discipline,
        same=compare.same_discipline,
    ),
    Setting(
        name="virtual_functions",
        key="vfs",
        takes=Number(most=65535),
        about="SR-IOV functions to make",
        command="/sys/class/net/I/device/sriov_numvfs",
        read=readers.file("device/sriov_numvfs"),
        write=writers.virtual_functions,
        optional="virtual_functions",
        rivals=NETWORK_DAEMONS,
        link_down=ALWAYS,
        data_paths=ALL_FABRICS,
        words="virtual functions",
    ),
    Setting(
        name="channels",
        key="channels.",
        takes={"rx": Number(), "tx": Number(), "other": Number(), "combined": Number()},
        about="queues, each with its interrupt line",
        command="ethtool -L",
        read=readers.ethtool("-l", readers.channels),
        write=writers.ethtool("-L"),
        optional="channels",
        rivals=NETWORK_DAEMONS,
        link_down=ON_SOME_DRIVERS,
    ),
    Setting(
        name="rings",
        key="ring.",
        takes={
            "rx": Number(least=1),
            "rx_mini": Number(),
            "rx_jumbo": Number(),
            "tx": Number(least=1),
        },
        about="descriptors; more of them take longer bursts",
        command="ethtool -G",
        read=readers.ethtool("-g", readers.rings),
        write=writers.ethtool("-G"),
        optional="rings",
        rivals=NETWORK_DAEMONS,
        link_down=ON_SOME_DRIVERS,
    ),
    Setting(
        name="private_flags",
        key="private.",
        takes=Form("private_flags", "flags by name: on or off"),
        about="switches of one driver",
        command="ethtool --set-priv-flags",
        read=readers.ethtool("--show-priv-flags", readers.private_flags),
        write=writers.ethtool("--set-priv-flags"),
        optional="private_flags",
        rivals=NETWORK_DAEMONS,
        data_paths=ALL_FABRICS,
        words="private flags",
    ),
    Setting(
        name="mtu",
        key="mtu",
        takes=Number("bytes", least=1280, most=65535),
        about="largest payload of a frame; below 1280 the kernel removes IPv6 addresses",
        command="ip link set I mtu",
        read=readers.file("mtu"),
        # Before the offloads: segmentation is limited by the MTU on some drivers, and a larger MTU
        # may need an offload off. The order of rising and falling is the same.
        write=writers.ip_link,
        rivals=LINK_DAEMONS,
        link_down=ON_SOME_DRIVERS,
        kept_over_reload=True,
        data_paths=("ethernet", "roce"),
    ),
    Setting(
        name="offloads",
        key="feature.",
        takes=Form("offloads", "tso, gso, gro, lro ... or a name of ethtool -k: on or off"),
        about="what the card or the kernel joins, cuts and checks",
        command="ethtool -K",
        read=readers.ethtool("-k", readers.features),
        write=writers.offloads,
        same=compare.same_feature,
        optional="offloads",
        rivals=NETWORK_DAEMONS,
    ),
    Setting(
        name="coalescing",
        key="coalesce.",
        takes=COALESCING,
        about="how long, or for how many frames, an interrupt is held back: latency against CPU "
              "time. With adaptive_rx or adaptive_tx the driver chooses by itself",
        command="ethtool -C",
        read=readers.ethtool("-c", readers.coalescing),
        write=writers.behind_switches("-C", COALESCING),
        optional="coalescing",
        rivals=NETWORK_DAEMONS,
    ),
    Setting(
        name="flow_control",
        key="pause.",
        takes=FLOW_CONTROL,
        about="pause frames: a full receiver stops the sender. With autoneg the two ends of the "
        "cable agree on rx and tx",
        command="ethtool -A",
        read=readers.flow_control,
        needs_link=True,
        write=writers.behind_switches("-A", FLOW_CONTROL, waits_for_link=True),
        optional="flow_control",
        rivals=NETWORK_DAEMONS,
        link_down=ON_SOME_DRIVERS,
        data_paths=("ethernet", "roce"),
        words="flow control",
    ),
    Setting(
        name="irq_affinity",
        key="irq_affinity",
        takes=Form("line_cpus", "CPU list, or spread: line i to CPU i"),
        about="CPUs of all interrupt lines",
        command="/proc/irq/N/smp_affinity_list",
        read=readers.interrupts,
        write=writers.interrupts,
        in_state="irq.",
        comes_and_goes=True,
        spread=cpus.line_cpus,
        same=compare.same_list,
        optional="irq_affinity",
        rivals=IRQ_DAEMONS,
        words="IRQ affinity",
    ),
    Setting(
        name="rps_cpus",
        key="rps_cpus",
        takes=Form("queue_cpus", "CPU list, all or none"),
        about="CPUs that handle received frames",
        command="/sys/class/net/I/queues/rx-*/rps_cpus",
        read=readers.queue_file("rps_cpus"),
        write=writers.queue_file("rps_cpus"),
        in_state="rps.rx-",
        spread=cpus.queue_mask,
        same=compare.same_mask,
        optional="rps_cpus",
        kept_over_reload=True,
        words="RPS",
    ),
    Setting(
        name="rps_flow_cnt",
        key="rps_flow_cnt",
        takes=Number("flows", power_of_two=True),
        about="flows remembered for each queue; idle while the node's "
              "net.core.rps_sock_flow_entries is 0",
        command="/sys/class/net/I/queues/rx-*/rps_flow_cnt",
        read=readers.queue_file("rps_flow_cnt"),
        write=writers.queue_file("rps_flow_cnt"),
        in_state="rps_flows.rx-",
        spread=cpus.plain,
        optional="rps_flow_cnt",
        kept_over_reload=True,
        words="RPS",
    ),
    Setting(
        name="gro_flush_timeout_ns",
        key="sysfs.gro_flush_timeout",
        takes=Number("ns"),
        about="a timer polls the queue again after this time; alone it delays GRO",
        command="/sys/class/net/I/gro_flush_timeout",
        read=readers.file("gro_flush_timeout"),
        write=writers.file("gro_flush_timeout"),
        optional="napi",
        kept_over_reload=True,
        words="NAPI settings",
    ),
    Setting(
        name="napi_defer_hard_irqs",
        key="sysfs.napi_defer_hard_irqs",
        takes=Number("polls", most=INT_MAX),
        about="empty polls before interrupts are enabled again; needs gro_flush_timeout_ns",
        command="/sys/class/net/I/napi_defer_hard_irqs",
        read=readers.file("napi_defer_hard_irqs"),
        write=writers.file("napi_defer_hard_irqs"),
        optional="napi",
        kept_over_reload=True,
        words="NAPI settings",
    ),
    Setting(
        name="napi_threaded",
        key="sysfs.threaded",
        takes=Switch(),
        about="poll in kernel threads, which the scheduler sees",
        command="/sys/class/net/I/threaded",
        read=readers.file("threaded"),
        write=writers.file("threaded"),
        optional="napi",
        kept_over_reload=True,
        words="NAPI settings",
    ),
    Setting(
        name="xps_cpus",
        key="xps_cpus",
        takes=Form("queue_cpus", "CPU list, all or none"),
        about="CPUs that may send on a queue",
        command="/sys/class/net/I/queues/tx-*/xps_cpus",
        read=readers.queue_file("xps_cpus"),
        write=writers.queue_file("xps_cpus"),
        in_state="xps.tx-",
        spread=cpus.queue_mask,
        same=compare.same_mask,
        optional="xps_cpus",
        kept_over_reload=True,
        words="XPS",
    ),
    Setting(
        name="egress_rate",
        key="egress_bit_s",
        takes=Form("rate", "a rate", "1 Gbit/s"),
        about="limit on sending",
        command="tc qdisc ... tbf",
        # Read with the queueing discipline. The last one: the burst depends on the MTU.
        write=writers.shaper,
        same=compare.same_rate,
        none_is_unset=True,
        refuse=own_discipline,
        words="the egress rate",
    ),
    Setting(
        name="busy_poll_us",
        key="sysctl.net.core.busy_poll",
        takes=Number("us", most=INT_MAX),
        about="how long poll and select spin before they sleep",
        command="sysctl net.core.busy_poll",
        read=readers.sysctl,
        write=writers.sysctl,
        per_network=False,
        words="busy polling",
    ),
    Setting(
        name="busy_read_us",
        key="sysctl.net.core.busy_read",
        takes=Number("us", most=INT_MAX),
        about="how long a read of a socket spins before it sleeps",
        command="sysctl net.core.busy_read",
        read=readers.sysctl,
        write=writers.sysctl,
        per_network=False,
        words="busy polling",
    ),
)  # fmt: skip

#: the settings of a profile, by the name of their field
BY_NAME = {setting.name: setting for setting in SETTINGS if setting.name}
#: for a key without an entry, such as one in the journal of a newer release
UNKNOWN = Setting("", "", Form("text", ""), "", "")


def _dashed(name: str) -> str:
    return name.replace("_", "-")


_KINDS = {
    setting.key + _dashed(name): (setting, kind)
    for setting in SETTINGS
    if isinstance(setting.takes, dict)
    for name, kind in setting.takes.items()
}
_SWITCH_OF = {
    key: setting.key + _dashed(kind.behind)
    for key, (setting, kind) in _KINDS.items()
    if kind.behind
}
#: keys of the values that a switch hides while it is on, in the order of the table
SWITCHED = tuple(_SWITCH_OF)
#: keys of these switches
SWITCHES = frozenset(_SWITCH_OF.values())
_ABSENT_IS_OFF = frozenset(
    key for key, (_, kind) in _KINDS.items() if isinstance(kind, Switch) and kind.absent_is_off
)
_WHOLE_KEYS = {
    key: setting
    for setting in SETTINGS
    for key in (setting.key, setting.state_key)
    if not key.endswith((".", "-"))
}
_FIRST_WORDS = {
    key.partition(".")[0]: setting
    for setting in SETTINGS
    for key in (setting.key, setting.state_key)
    if key.endswith((".", "-"))
}


def of(key: str) -> Setting:
    """The setting that a key of a policy or of a state belongs to; else UNKNOWN."""
    return _WHOLE_KEYS.get(key) or _FIRST_WORDS.get(key.partition(".")[0]) or UNKNOWN


def group_of(key: str) -> str:
    """``coalesce`` for ``coalesce.rx-usecs``: how a policy's ``if_supported`` names it."""
    return (of(key).key or key).partition(".")[0]


def switch_of(key: str) -> str:
    """The switch that, while it is on, hides a value: its key, or nothing."""
    return _SWITCH_OF.get(key, "")


def is_off(key: str, wanted: Any) -> bool:
    """Whether ``off`` is wanted of a switch that is off where a driver lacks it."""
    return wanted == "off" and key in _ABSENT_IS_OFF


def queue_prefixes(side: str) -> List[str]:
    """Beginnings of the keys of each queue of a side, rx or tx."""
    return [setting.in_state for setting in SETTINGS if setting.in_state.endswith("." + side + "-")]
