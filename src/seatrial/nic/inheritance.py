"""A profile with the settings and fields that it inherits from its bases.

For each interface, the settings of the farthest base come first, then those of each nearer one; of
each profile, the general settings before those of the interface's network. The later value wins, so
that a profile's own value always wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from seatrial.nic.flatten import Flat, overlay
from seatrial.nic.library import ready_profiles
from seatrial.nic.node.settings import of
from seatrial.nic.profile import READY, NicProfile


class NoSuchBase(Exception):
    """``name`` has a base that is no profile."""

    def __init__(self, name: str, base: str):
        super().__init__(f"profile {name!r} has the base {base!r}, which is no profile")
        self.name, self.base = name, base


class Cycle(Exception):
    """Profiles that are each other's base: ``names`` begins and ends with the same one."""

    def __init__(self, names: list[str]):
        super().__init__(" -> ".join(names))
        self.names = names


@dataclass(frozen=True)
class Resolved:
    """A profile with what it inherits. ``chain`` has the farthest base first."""

    name: str
    chain: tuple[NicProfile, ...]
    description: str = ""
    source: str = ""
    networks: tuple[str, ...] | None = None
    node_classes: tuple[str, ...] | None = None
    transports: tuple[str, ...] = ("*",)
    suits: tuple[str, ...] = ()
    if_supported: tuple[str, ...] = ()
    ignored_by: dict[str, str] = field(default_factory=dict)

    def settings(self, network: str) -> Flat:
        """Flat settings of the interface of a network, without a bond and the node's own."""
        flat: Flat = {}
        for profile in self.chain:
            overlay(flat, profile)
            if profile.per_network and network in profile.per_network:
                overlay(flat, profile.per_network[network])
        return {key: flat[key] for key in sorted(flat) if of(key).per_network}

    def node_settings(self) -> Flat:
        """Flat settings of the node as a whole."""
        return {key: value for key, value in self._general().items() if of(key).of_node}

    def bond(self) -> dict | None:
        bond = self._general().get("bond")
        return bond if isinstance(bond, dict) else None

    def sets(self, *networks: str) -> bool:
        """Whether it sets anything: on an interface of these networks, a node as a whole, or by a
        bond."""
        return bool(any(map(self.settings, networks)) or self.node_settings() or self.bond())

    def _general(self) -> Flat:
        flat: Flat = {}
        for profile in self.chain:
            overlay(flat, profile)
        return {key: flat[key] for key in sorted(flat)}


def chain(name: str, profiles: Mapping[str, NicProfile]) -> list[tuple[str, NicProfile]]:
    """The profile ``name`` and its bases, farthest first, with their names.

    Raises NoSuchBase, Cycle, and KeyError where ``name`` itself is unknown.
    """
    ancestors = [(name, profiles[name])]
    while base := ancestors[-1][1].base:
        names = [ancestor for ancestor, _ in ancestors]
        # A ready profile's base is a ready one: inside their file the prefix is left out.
        if names[-1].startswith(READY) and not base.startswith(READY):
            base = READY + base
        if base in names:
            raise Cycle([*names[names.index(base) :], base])
        source: Mapping[str, NicProfile] = profiles
        key = base
        if base.startswith(READY):
            source, key = ready_profiles(), base[len(READY) :]
        if key not in source:
            raise NoSuchBase(names[-1], base)
        ancestors.append((base, source[key]))
    return ancestors[::-1]


def resolve(name: str, profiles: Mapping[str, NicProfile]) -> Resolved:
    """The profile ``name`` with what it inherits. Raises as ``chain`` does."""
    line = [profile for _, profile in chain(name, profiles)]
    return Resolved(
        name=name,
        chain=tuple(line),
        description=_last(line, "description") or "",
        source=_last(line, "source") or "",
        networks=_tuple(_last(line, "networks")),
        node_classes=_tuple(_last(line, "node_classes")),
        transports=_tuple(_last(line, "transports")) or ("*",),
        suits=_tuple(_last(line, "suits")) or (),
        if_supported=_tuple(_last(line, "if_supported")) or (),
        ignored_by={
            key: text
            for nic_profile in line
            for key, text in (nic_profile.ignored_by or {}).items()
        },
    )


def _last(line: list[NicProfile], name: str):
    """The nearest value that is given; an explicit null removes the base's value."""
    for profile in reversed(line):
        if name in profile.model_fields_set:
            return getattr(profile, name)
    return None


def _tuple(value: list[str] | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)
