"""Random settings put on real interfaces and taken off again; run inside a network namespace.

``python inside_namespace.py FOLDER SEED CASES``. For each case it makes the interfaces differ from
how they boot, applies a random profile with the state machine, restores it, and compares what the
system's own programs print; in every fourth case a setting is refused. Prints one line of JSON for
each; ``error`` says what was not as it must be.
"""

from __future__ import annotations

import difflib
import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from seatrial.nic.node import links, readers, values
from seatrial.nic.node.errors import Refused
from seatrial.nic.node.nic import Nic
from seatrial.nic.node.owner import World, myself
from seatrial.nic.node.policy import Policy
from seatrial.nic.node.session import Job, Session
from seatrial.nic.node.store import Store

INTERFACES = ("eth1", "tap0")
JOB = Job("4000000001", "0", "0")

#: raw output of the system's own programs; the other end of the cable must not change either
LOOK = r"""
export LC_ALL=C PATH=/usr/sbin:/sbin:/usr/bin:/bin
for i in eth1 tap0 peer1; do
  for o in -k -c -g -l --show-priv-flags; do ethtool $o $i 2>&1; done
  ip -details link show dev $i; ip address show dev $i; ip route show table all dev $i
  tc -details qdisc show dev $i
  cd /sys/class/net/$i
  for f in gro_flush_timeout napi_defer_hard_irqs threaded tx_queue_len mtu flags \
      queues/*/*_cpus queues/*/rps_flow_cnt queues/*/xps_rxqs queues/*/tx_maxrate; do
    echo $f $(cat $f 2>/dev/null)
  done
done
cat /proc/sys/net/core/busy_poll /proc/sys/net/core/busy_read 2>&1 || true
"""


def look() -> str:
    return subprocess.run(
        ["sh", "-c", LOOK], capture_output=True, text=True, check=True
    ).stdout.strip()


def difference(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return "; ".join(" ".join(line.split()) for line in list(lines)[2:40])


class OpenGuard:
    warnings = []  # noqa: RUF012

    def check(self, policy: Any, profile: Any) -> None: ...


class LivingWorld(World):
    """As if this process itself were slurmd."""

    def __init__(self) -> None:
        super().__init__()
        self.slurmd = myself()


def changeable(interface: str) -> list[str]:
    text = subprocess.run(["ethtool", "-k", interface], capture_output=True, text=True).stdout
    fixed = readers.fixed_features(text)
    state = readers.features(text)
    # Not those that were asked for in vain already.
    found = [key for key in state if key not in fixed and " " not in state[key]]
    # Those that ethtool only sums up, and one that the kernel may take back.
    return sorted(set(found) - set(values.DERIVED_FEATURES) - {"feature.hw-tc-offload"})


def settings_of(chance: random.Random, interface: str) -> dict[str, Any]:
    """A random part of all that the interface has."""
    most = max(os.cpu_count() or 1, 1)
    cpus = chance.choice(["all", "none", "0", f"0-{most - 1}"])
    possible: dict[str, Any] = {
        "mtu": chance.choice([1280, 1500, 4000, 9000]),
        "txqueuelen": chance.choice([0, 1, 500, 1000, 5000]),
        "rps_cpus": cpus,
        "rps_flow_cnt": chance.choice([0, 32, 256]),
        "sysfs.napi_defer_hard_irqs": chance.choice([0, 2, 10]),
        "sysfs.gro_flush_timeout": chance.choice([0, 20000]),
        "egress_bit_s": chance.choice([10**7, 10**9, 25 * 10**9]),
    }
    if interface == "eth1":
        possible["channels.rx"] = chance.choice([1, 2, 4])
        possible["channels.tx"] = chance.choice([1, 2, 4])
        possible["xps_cpus"] = cpus
    else:
        possible["coalesce.rx-frames"] = chance.choice([0, 1, 16, 64])
    for key in chance.sample(changeable(interface), 3):
        possible[key] = chance.choice(["on", "off"])
    return {key: possible[key] for key in sorted(possible) if chance.random() < 0.5}


def disturb(chance: random.Random) -> None:
    """Another state to go back to than that at boot."""
    for interface in INTERFACES:
        commands = [
            f"ip link set {interface} mtu {chance.choice([1500, 2000, 8000])}",
            f"ip link set {interface} txqueuelen {chance.choice([100, 1000])}",
            f"echo {chance.choice([0, 1])} > /sys/class/net/{interface}/queues/rx-0/rps_cpus",
        ]
        name = chance.choice(changeable(interface)).partition(".")[2]
        commands.append(f"ethtool -K {interface} {name} {chance.choice(['on', 'off'])}")
        if interface == "eth1":
            count = chance.choice([1, 2, 4])
            commands.append(f"ethtool -L eth1 rx {count} tx {count}")
        else:
            commands.append(f"ethtool -C tap0 rx-frames {chance.choice([0, 8])}")
        for command in chance.sample(commands, chance.randint(0, len(commands))):
            subprocess.run(["sh", "-c", command], capture_output=True, check=False)


def case(folder: Path, chance: random.Random, broken: bool) -> dict[str, Any]:
    disturb(chance)
    wanted = {name: settings_of(chance, name) for name in INTERFACES}
    if broken:
        # What is found out only when it is set, so that there is something to roll back.
        wanted["tap0"]["mtu"] = 70000
    data = {"schema": 1, "feature_prefix": "nic_", "state_folder": str(folder), "protected": [],
            "nodes": {"n1": list(INTERFACES)},
            "profiles": {"x": {"feature": "nic_x", "nodes": ["n1"],
                               "interfaces": wanted}}}  # fmt: skip
    nic, said = Nic(), ""
    session = Session(Policy(data, hostname="n1"), Store(str(folder)), nic, LivingWorld(),
                      OpenGuard())  # fmt: skip
    found: dict[str, Any] = {"wanted": wanted, "error": "", "refused": ""}
    before = look()
    try:
        session.begin_job(JOB, "x")
    except Refused as error:
        said = found["refused"] = str(error)
        if look() != before:
            found["error"] = "after a refusal: " + difference(before, look())
    else:
        for name in INTERFACES:
            state = nic.read(name)
            target = values.spread(wanted[name], state, nic.cpus())
            left = values.differences(target, state)
            if left:
                found["error"] = f"{name}: applied, but {left}"
    found["changed"] = look() != before
    session.end_job(JOB, True)
    session.end_job(JOB, True)
    after = look()
    if after != before:
        found["error"] += f" restored, but {difference(before, after)}"
    if session.store.journal() is not None:
        found["error"] += " a journal is left"
    # Some features can be asked for, and the kernel does not grant them.
    if broken > bool(said) or (said and not broken and "feature." not in said):
        found["error"] += f" refused: {said!r}"
    return found


#: an interface with everything that addresses and routes can have
FURNISH = """
set -e
ip -4 address flush dev eth1
ip address add 10.77.0.1/24 broadcast + dev eth1
ip address add 10.77.0.9/24 label eth1:x dev eth1
ip address add 10.76.0.1 peer 10.76.0.2/32 scope link dev eth1
ip address add 10.75.0.1/24 valid_lft 5000 preferred_lft 4000 metric 7 noprefixroute dev eth1
ip address add fd77::1/64 dev eth1
ip address add fd76::1/64 nodad metric 9 dev eth1
ip route add 10.70.0.0/16 via 10.77.0.2 dev eth1 metric 5 mtu 1400
ip route add 10.66.0.0/16 via 10.77.0.2 dev eth1 mtu lock 1400 window lock 3000 advmss 1300
ip route add 10.69.0.0/16 via 10.99.0.2 dev eth1 onlink proto static src 10.77.0.9
ip route add 10.68.0.0/16 via inet6 fd77::2 dev eth1
ip route add 10.67.0.0/16 via 10.77.0.2 dev eth1 table 123
ip route add default via 10.77.0.2 dev eth1
ip -6 route add fd66::/64 via fd77::2 dev eth1 metric 512
ip -6 route add fd64::/64 via fd77::2 dev eth1 mtu lock 1400 hoplimit 9
ip -6 route add fd65::/64 dev eth1 table 123
"""


def wait_for_addresses() -> None:
    """Until no IPv6 address is tentative: on a busy machine the kernel takes its time to say so."""
    deadline = time.monotonic() + 300
    while "tentative" in subprocess.run(["ip", "address"], capture_output=True, text=True).stdout:
        assert time.monotonic() < deadline, "an IPv6 address is tentative for 300 s"
        time.sleep(0.01)


def link(how: str) -> str:
    """Take an interface's addresses and routes, put them back; what is different then."""
    subprocess.run(["sh", "-c", FURNISH], check=True)
    nic = Nic()
    # As it shows up again, a route over both families among them.
    shown = "ip address show dev eth1; ip route show table all; ip -6 route show table all"
    looks = []
    for _ in range(2):
        wait_for_addresses()
        text = subprocess.run(["sh", "-c", shown], capture_output=True, text=True).stdout
        looks.append(sorted(re.sub(r"valid_lft \d+sec preferred_lft \d+sec", "", text).split("\n")))
        if len(looks) == 1:
            then = nic.link("eth1")
            subprocess.run(["sh", "-ec", how], check=True)
            lost = nic.link("eth1")
            if not links.differences(then, lost):
                return "nothing was lost"
            for action in links.restore("link", "eth1", then, lost):
                nic.perform(action)
    return difference("\n".join(looks[0]), "\n".join(looks[1])) + "; ".join(
        links.differences(then, nic.link("eth1"))
    )


if __name__ == "__main__":
    if sys.argv[1] == "link":
        print(link(sys.argv[2]))
        sys.exit()
    chance = random.Random(int(sys.argv[2]))
    for number in range(int(sys.argv[3])):
        broken = number % 4 == 3
        print(json.dumps(case(Path(sys.argv[1]) / str(number), chance, broken)), flush=True)
