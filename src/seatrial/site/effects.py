"""Notes on NIC profiles for ``site check`` and for trials: what has no effect, or another one.

A transport whose data path is verbs or libfabric is polled from user space. It uses no interrupts,
queues or segmentation of the kernel, so most settings have no effect on it. They still affect TCP
and storage on the same card.
"""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.base.names import PLAIN_SOCKETS
from seatrial.nic.inheritance import Resolved
from seatrial.nic.modes import modes
from seatrial.nic.node.settings import BY_NAME, Setting, of
from seatrial.site.model import Site
from seatrial.site.profiles import is_tested, networks_set, rails_of, resolved


def statements(site: Site) -> list[str]:
    """The notes on all profiles of the site, in the order of the file."""
    return [sentence for name in site.nic_profiles for sentence in effects_of(site, name)]


def effects_of(site: Site, profile: str) -> list[str]:
    """The notes on one profile. Networks with equal notes have one."""
    notes = [] if profile == "default" else _of_profile(site, resolved(site, profile))
    return list(dict.fromkeys(notes))


def _of_profile(site: Site, profile: Resolved) -> Iterator[str]:
    networks = networks_set(site, profile)
    said = {mode: None for network in networks for mode in modes(profile.settings(network))}
    yield from (f"profile {profile.name}: {sentence}" for sentence in said)
    unset: dict[str, list[str]] = {}
    for transport in (*site.transports, PLAIN_SOCKETS):
        if not is_tested(site, profile.name, transport):
            continue
        of_site = site.transports.get(transport)
        path = of_site.data_path if of_site else "kernel"
        notes: dict[str, list[str]] = {}
        for network in rails_of(site, transport, profile.name):
            if not (profile.sets(network) and network in networks):
                unset.setdefault(network, []).append(transport)
            elif path != "kernel":
                notes[network] = list(_bypassed(site, profile, transport, network, path))
        differ = len({tuple(note) for note in notes.values()}) > 1
        for network, sentences in notes.items():
            yield from (
                f"{sentence} (network {network})" if differ else sentence for sentence in sentences
            )
    for network, transports in unset.items():
        yield (
            f"profile {profile.name}: sets nothing on network {network}, on which it is tested "
            f"({', '.join(transports)})"
        )


def _bypassed(
    site: Site, profile: Resolved, transport: str, network: str, path: str
) -> Iterator[str]:
    settings = _settings(profile, network)
    effective = [
        setting for setting in settings if site.networks[network].fabric in setting.data_paths
    ]
    idle = [setting for setting in settings if setting not in effective]
    if idle:
        only = "no setting does"
        if effective:
            only = f"only {_list(effective)} {'do' if _many(effective) else 'does'}"
        yield (
            f"profile {profile.name}: {_list(idle)} {'do' if _many(idle) else 'does'} not affect "
            f"transport {transport}, whose data path ({path}) is polled from user space; {only}"
        )
    if path in profile.ignored_by:
        yield f"profile {profile.name}, transport {transport}: {profile.ignored_by[path]}"


def _settings(profile: Resolved, network: str) -> list[Setting]:
    """The settings that the profile gives to a network's interface and to the node."""
    keys = [*profile.settings(network), *profile.node_settings()]
    names = dict.fromkeys(of(key).name for key in keys)
    return [BY_NAME[name] for name in (*names, *(["bonding"] if profile.bond() else []))]


def _words(settings: list[Setting]) -> list[str]:
    return list(dict.fromkeys(setting.words or setting.name for setting in settings))


def _list(settings: list[Setting]) -> str:
    words = _words(settings)
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _many(settings: list[Setting]) -> bool:
    words = _words(settings)
    plural = words[0].endswith("s") and not words[0].isupper()
    return len(words) > 1 or plural
