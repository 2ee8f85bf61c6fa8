"""Sentences on where a profile has no effect: said in a trial's notes and by ``site check``.

On RoCE, InfiniBand, EFA and Slingshot a transport whose data path is verbs or libfabric is polled
from user space: no interrupt, no kernel queue and no segmentation is in its way, so that settings
of these change nothing for it, though they do for TCP and storage on the same card.
"""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.base.names import PLAIN_SOCKETS
from seatrial.nic.fit import measured_on, networks_set, resolved, tried
from seatrial.nic.flat import GROUPS, group_of
from seatrial.nic.resolve import Resolved
from seatrial.site.model import Site

#: the card itself is set, loaded anew or divided: possibly felt on every data path
OF_THE_CARD = ("driver", "virtual_functions", "private_flags")
#: fabrics on which the interface's MTU also bounds the packets of the other data paths
MTU_REACHES = ("ethernet", "roce")
WORDS = {
    "busy_poll_us": "busy polling",
    "busy_read_us": "busy polling",
    "irq_affinity": "IRQ affinity",
    "rps_cpus": "RPS",
    "rps_flow_cnt": "RPS",
    "xps_cpus": "XPS",
    "egress_rate": "the egress rate",
    "private_flags": "private flags",
    "virtual_functions": "virtual functions",
    "napi_defer_hard_irqs": "NAPI settings",
    "gro_flush_timeout_ns": "NAPI settings",
    "napi_threaded": "NAPI settings",
    "driver": "driver parameters",
}


def statements(site: Site) -> list[str]:
    """What a reader of figures must know of the site's profiles, in the order of the file."""
    return [
        sentence
        for name in site.nic_profiles
        if name != "default"
        for sentence in _of_profile(site, resolved(site, name))
    ]


def _of_profile(site: Site, profile: Resolved) -> Iterator[str]:
    networks = networks_set(site, profile)
    for transport in (*site.transports, PLAIN_SOCKETS):
        if not tried(site, profile.name, transport):
            continue
        network = measured_on(site, transport, profile.name)
        if network not in networks:
            if transport in site.transports or len(site.transports) == 0:
                yield (
                    f"profile {profile.name}: sets nothing on network {network}, on which "
                    f"transport {transport} is tested"
                )
            continue
        own = site.transports.get(transport)
        path = own.data_path if own else "kernel"
        if path != "kernel":
            yield from _bypassed(site, profile, transport, network, path)


def _bypassed(
    site: Site, profile: Resolved, transport: str, network: str, path: str
) -> Iterator[str]:
    groups = _groups(profile, network)
    reaching = [*OF_THE_CARD]
    if site.networks[network].fabric in MTU_REACHES:
        reaching.append("mtu")
    idle = [group for group in groups if group not in reaching]
    if idle:
        rest = [group for group in groups if group in reaching]
        only = f"only {_list(rest)} {'do' if _many(rest) else 'does'}" if rest else "nothing does"
        yield (
            f"profile {profile.name}: {_list(idle)} {'do' if _many(idle) else 'does'} not reach "
            f"transport {transport}, whose data path ({path}) is polled from user space; {only}"
        )
    if path in profile.ignored_by:
        yield f"profile {profile.name}, transport {transport}: {profile.ignored_by[path]}"


def _groups(profile: Resolved, network: str) -> list[str]:
    keys = [*profile.settings(network), *profile.node_settings()]
    found = {group_of(key) for key in keys} | ({"bonding"} if profile.bond() else set())
    return [group for group in GROUPS if group in found]


def _words(groups: list[str]) -> list[str]:
    return list(dict.fromkeys(WORDS.get(group, group) for group in groups))


def _list(groups: list[str]) -> str:
    words = _words(groups)
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _many(groups: list[str]) -> bool:
    words = _words(groups)
    plural = words[0].endswith("s") and words[0] not in ("RPS", "XPS")
    return len(words) > 1 or plural
