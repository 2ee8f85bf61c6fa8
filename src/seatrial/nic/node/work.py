"""Applying a profile to the interfaces of a node, and restoring them. Keeps no state.

A *journal* is a dictionary with the state before and the settings that are wanted (see
:meth:`Work.prepare`). ``session`` writes it to disk before anything here changes an interface.
"""

from collections import Counter
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set

from . import changes, links, mtus, settings, values
from .actions import Action
from .errors import NicError, Refused, SettingRefused
from .nic import lacking

# A driver may clamp one setting because of another: a second round corrects it.
ROUNDS = 4

Journal = Dict[str, Any]

Basis = NamedTuple(
    "Basis",
    [
        ("versions", Optional[Dict[str, str]]),  # of what has read an earlier state; None: unknown
        ("ignored", List[str]),  # how the keys begin that were not compared then
        ("needed", List[str]),  # keys that a profile has set, so that they must be compared
    ],
)


class Work:
    """Changes the interfaces that ``nic`` gives access to, as far as ``guard`` allows."""

    def __init__(self, policy: Any, nic: Any, guard: Any) -> None:
        self.policy = policy
        self.nic = nic
        self.guard = guard
        #: sentences on what could not be compared, for the log
        self.warnings: List[str] = []

    def prepare(self, profile: Dict[str, Any]) -> Journal:
        """The state before and the settings wanted: all that applying and restoring need.

        Raises Refused if the guard refuses, or a driver lacks a setting.
        """
        wanted = dict(profile.get("interfaces", {}))
        self.guard.check(self.policy, profile)
        self.warnings += self.guard.warnings
        optional = profile.get("if_supported", [])
        losing = self._interfaces_losing_addresses(wanted)
        interfaces = {}
        skipped: Dict[str, List[str]] = {}
        for interface in sorted(losing.union(wanted)):
            before = self.nic.read(interface)
            settings_wanted = dict(wanted.get(interface, {}))
            dropped, missing = lacking(self.nic, interface, settings_wanted, before, optional)
            if missing:
                raise Refused("%s has no setting %s" % (interface, ", ".join(missing)))
            driver, module = settings_wanted.get("driver"), before.get("driver.module")
            if driver and driver["module"] != module:
                # A reload of another module would change nothing on this interface.
                raise Refused(
                    "%s has the driver %s, not %s" % (interface, module or "none", driver["module"])
                )
            for key in dropped:
                settings_wanted.pop(key)
            for key in settings_wanted:
                refuse = settings.of(key).refuse
                reason = refuse(before) if refuse else ""
                if reason:
                    raise Refused("%s has %s" % (interface, reason))
            if dropped:
                skipped[interface] = dropped
            interfaces[interface] = {
                "identity": self.nic.identity(interface),
                "versions": self.nic.versions(interface),
                "before": before,
                "wanted": settings_wanted,
            }
            if "mtu" in settings_wanted:
                interfaces[interface]["users"] = self.nic.users_of(interface)
            if "mtu" in settings_wanted or interface in losing:
                interfaces[interface]["ipv6"] = self.nic.ipv6_of(interface)
            if interface in losing:
                self._refuse_stacked(interface)
                interfaces[interface]["link"] = self.nic.link(interface)
        for bond in _bonds(interfaces):
            if self.nic.exists(bond["name"]):
                raise Refused("bond: there is an interface %s already" % bond["name"])
        of_node = self.nic.read_node()
        lacking_here = values.unsupported(profile.get("node", {}), of_node)
        if lacking_here:
            raise Refused("this node has no setting %s" % ", ".join(lacking_here))
        journal = {
            "interfaces": interfaces,
            "skipped": skipped,
            "ignored": list(self.nic.ignored),
            "node": {"before": of_node, "wanted": dict(profile.get("node", {}))},
        }
        self.drivers_and_bonds(journal)  # an error in it must be raised before the first change
        return journal

    def _interfaces_losing_addresses(self, wanted: Dict[str, Dict[str, Any]]) -> Set[str]:
        """Interfaces that lose their addresses for a time: bond members, and all of a driver."""
        interfaces: Set[str] = set()
        for of_interface in wanted.values():
            interfaces.update(of_interface.get("bond", {}).get("members", []))
            if "driver" in of_interface:
                interfaces.update(self.nic.interfaces_of(of_interface["driver"]["module"]))
        return interfaces

    def _refuse_stacked(self, interface: str) -> None:
        above = self.nic.above(interface)
        if above:
            raise Refused("%s carries %s, which a bond or a reload of its driver would remove"
                          % (interface, ", ".join(above)))  # fmt: skip

    def apply(self, journal: Journal, save: Callable[[], None]) -> None:
        """Apply the settings. ``save`` writes the journal again when hidden values are added to it.

        Raises SettingRefused naming the first setting that was not accepted.
        """
        parts = journal["interfaces"]
        first = self.drivers_and_bonds(journal)
        for action in first:
            self.nic.perform(action)
        # What was read for the journal holds until the first change, which may be of other
        # interfaces, too: the ports of a card can share settings.
        unchanged = not first
        for interface in _lowest_first(parts):
            part = parts[interface]
            wanted = _plain(part["wanted"])
            if "link" in part:
                kept = self._kept_over_reload(interface, part["before"], wanted)
                for bond in _bonds(parts):
                    if interface in bond["members"]:
                        kept["mtu"] = _mtu_of(bond, parts)
                wanted = dict(kept, **wanted)
            state = part["before"] if unchanged else self.nic.read(interface)
            seen = self._see_hidden(interface, wanted, state, part, save)
            if seen is not None:
                state, unchanged = seen, False
            actions = changes.to_apply(interface, self._target(wanted, state), state)
            for _ in range(ROUNDS):
                for action in actions:
                    self._perform_on(interface, action)
                unchanged = unchanged and not actions
                state = self.nic.read(interface)
                target = self._target(wanted, state)
                actions = changes.to_apply(interface, target, state)
                if not actions:
                    break
            left = values.differences(target, state)
            if left:
                raise SettingRefused(
                    "%s %s" % (interface, left[0].setting),
                    "set to %s, is %s"
                    % (left[0].wanted, values.shown(left[0].actual, left[0].setting)),
                )
        for action in changes.of_node(journal["node"]["wanted"], self.nic.read_node()):
            self.nic.perform(action)

    def _perform_on(self, interface: str, action: Action) -> None:
        try:
            self.nic.perform(action)
        except SettingRefused as error:
            raise SettingRefused("%s %s" % (interface, error.setting), error.why)

    def _kept_over_reload(
        self, interface: str, before: Dict[str, Any], wanted: Dict[str, Any]
    ) -> Dict[str, Any]:
        """Settings of the kernel that a reload loses and the profile does not set: as they were."""
        given = {settings.of(key).name for key in wanted}
        there = self.nic.read(interface)
        kept_values = {}
        for key, value in before.items():
            setting = settings.of(key)
            kept = setting.kept_over_reload and setting.name not in given
            if kept and value is not None and there.get(key) is not None:
                kept_values[key] = value
        return kept_values

    def _target(self, wanted: Dict[str, Any], state: Dict[str, Any]) -> Dict[str, Any]:
        """The settings wanted, for the queues after the change: their number may be wanted, too."""
        return values.spread(wanted, values.with_queues(state, wanted), self.nic.cpus())

    def _see_hidden(
        self,
        interface: str,
        wanted: Dict[str, Any],
        now: Dict[str, Any],
        part: Dict[str, Any],
        save: Callable[[], None],
    ) -> Optional[Dict[str, Any]]:
        """Record the values behind switches that are on: they are lost once others are set.

        Returns the state with these switches off, or None if there are none to turn off."""
        switches = values.switches_to_turn_off(wanted, now)
        if not switches:
            return None
        for action in changes.turn_off(interface, switches):
            self._perform_on(interface, action)
        state = self.nic.read(interface)
        part["hidden"] = values.hidden_values(state, switches)
        save()
        return state

    def drivers_and_bonds(self, journal: Journal) -> List[Action]:
        """Actions for driver reloads and bonds, which come before all settings."""
        parts = journal["interfaces"]
        actions: List[Action] = []
        for module, driver in _drivers(parts).items():
            actions += self._reload(parts, module, driver, driver.get("parameters", {}))
        for bond in _bonds(parts):
            of = {member: parts[member]["link"] for member in bond["members"]}
            actions += links.make_bond(bond, of, _mtu_of(bond, parts))
        return actions

    def plan(self, journal: Journal) -> List[Action]:
        """The actions of ``apply``, as far as they are known before.

        The number of interrupt lines and the values behind switches are not known: the plan may
        have actions that are not needed."""
        actions = self.drivers_and_bonds(journal)
        for interface in _lowest_first(journal["interfaces"]):
            part = journal["interfaces"][interface]
            wanted = _plain(part["wanted"])
            state = values.with_queues(part["before"], wanted)
            switches = values.switches_to_turn_off(wanted, state)
            if switches:
                actions += changes.turn_off(interface, switches)
                # What they hide is not known without touching them: as if it were different.
                state.update(dict.fromkeys(values.hidden_values(state, switches)))
                state.update(dict.fromkeys(switches, "off"))
            target = self._target(wanted, state)
            actions += changes.to_apply(interface, target, state)
            actions += changes.left_to_apply(interface, target, state)
        node = journal["node"]
        return actions + changes.of_node(node["wanted"], node["before"])

    def _reload(
        self, parts: Dict[str, Any], module: str, driver: Dict[str, Any], parameters: Dict[str, Any]
    ) -> List[Action]:
        seconds = float(driver.get("link_timeout_s", links.LINK_TIMEOUT_S))
        return links.reload_driver(module, parameters, self._links_of(parts, module), seconds)

    def _links_of(self, parts: Dict[str, Any], module: str) -> Dict[str, Any]:
        return {
            name: part["link"]
            for name, part in parts.items()
            if "link" in part and part["before"].get("driver.module") == module
        }

    # -- restoring

    def restore(self, journal: Journal) -> List[str]:
        """Restore all; returns sentences on what is not restored."""
        parts = journal["interfaces"]
        said: List[str] = []
        trouble: List[str] = []
        try:
            loaded = self._loaded(parts)
            self.perform_all(self.undo_drivers_and_bonds(journal), said)
            again = self._loaded(parts)
            for interface in sorted(loaded):
                if loaded[interface] == again.get(interface):
                    trouble.append("%s: its driver was not reloaded" % interface)
        except NicError as error:
            trouble.append(str(error))
        present = self.present_names(parts)
        for interface in _lowest_first(parts):
            part, name = parts[interface], present[interface]
            trouble += self.misnamed(interface, name)
            if name is None:
                continue
            basis = Basis(part.get("versions"), journal.get("ignored", []), _set_in(part))
            trouble += self.restore_interface(name, part["before"], basis, said, part.get("hidden"))
            if "link" in part:
                trouble += self._restore_link(name, part["link"], said)
        trouble += self._restore_mtus_of_users(parts, said)
        trouble += self._restore_ipv6(parts, said)
        # Members that a driver reload has freed no longer name a bond that could not be removed.
        for bond in _bonds(parts):
            if self.nic.exists(bond["name"]):
                trouble.append("bond: %s is still there" % bond["name"])
        node = journal["node"]["before"]
        self.perform_all(changes.of_node(node, self.nic.read_node()), said)
        for left in values.not_restored(node, self.nic.read_node()):
            trouble.append("%s is %s, was %s" % (left.setting, left.actual, left.wanted))
        return trouble + said if trouble else []

    def present_names(self, parts: Dict[str, Any]) -> Dict[str, Optional[str]]:
        """Name in the journal -> present name of the same interface; None where it is gone."""
        present = {}
        for interface, part in parts.items():
            permanent = part.get("link", {}).get("permanent")  # a journal of an earlier release
            known = {"permanent": permanent} if permanent else {}
            present[interface] = self.nic.find(dict(known, **part["identity"]))
        return present

    def misnamed(self, interface: str, name: Optional[str]) -> List[str]:
        """A sentence on an interface that has another present name than it had, or none."""
        if name == interface:
            return []
        if name is not None:
            return ["%s is called %s now: rename it, then seatrial-nic recover" % (interface, name)]
        if self.nic.exists(interface):
            return ["%s is another interface than before, and was not changed" % interface]
        return ["there is no interface %s" % interface]

    def undo_drivers_and_bonds(self, journal: Journal) -> List[Action]:
        parts = journal["interfaces"]
        actions: List[Action] = []
        present = self.present_names(parts) if _bonds(parts) else {}
        for bond in _bonds(parts):
            of = {present[m] or "": parts[m]["link"] for m in bond["members"] if present[m]}
            actions += links.remove_bond(dict(bond, members=sorted(of)), of)
        loaded = self._loaded(parts)
        for module, driver in _drivers(parts).items():
            if any(name in loaded for name in self._links_of(parts, module)):
                # As at boot: with what modprobe.d says.
                actions += self._reload(parts, module, driver, {})
        return actions

    def _loaded(self, parts: Dict[str, Any]) -> Dict[str, Any]:
        """Indices of the interfaces whose driver was reloaded since the journal was written.

        Each load gives new indices, also where no parameter can be read."""
        indices = {}
        for module in _drivers(parts):
            names = self._links_of(parts, module)
            now = {name: self.nic.identity(name)["ifindex"] for name in names}
            if any(now[name] != parts[name]["identity"]["ifindex"] for name in names):
                indices.update(now)
        return indices

    def _restore_mtus_of_users(self, parts: Dict[str, Any], said: List[str]) -> List[str]:
        """Sentences on interfaces whose MTU was cut with that of an interface of the profile.

        After all of these: what uses several of them can have the MTU of the smallest only."""
        users = users_in(parts)
        self.perform_all(mtus.restore_mtus(users), said)
        return [
            "%s: mtu is %s, was %s before" % different for different in mtus.different_mtus(users)
        ]

    def _restore_ipv6(self, parts: Dict[str, Any], said: List[str]) -> List[str]:
        """Sentences on MTUs of IPv6 that could not be restored, after the MTUs of interfaces."""
        trouble = []
        try:
            for record in ipv6_in(parts):
                differences = mtus.different_ipv6(record)
                self.perform_all([action for _, action in differences], said)
                if differences:
                    trouble += [text for text, _ in mtus.different_ipv6(record)]
        except NicError as error:
            trouble.append(str(error))
        return trouble

    def _restore_link(self, interface: str, link: Dict[str, Any], said: List[str]) -> List[str]:
        """Sentences on addresses and routes that could not be restored."""
        try:
            now = self.nic.link(interface)
            if links.differences(link, now):
                self.perform_all(links.restore("link", interface, link, now), said)
                now = self.nic.link(interface)
            return ["%s: %s" % (interface, text) for text in links.differences(link, now)]
        except NicError as error:
            return [str(error)]

    def restore_interface(
        self,
        interface: str,
        before: Dict[str, Any],
        basis: Basis,
        said: List[str],
        hidden: Optional[Dict[str, Any]] = None,
    ) -> List[str]:
        """Sentences on settings of an interface that could not be restored.

        ``hidden`` are the values that a switch such as adaptive moderation hid before.
        """
        try:
            if hidden:
                switches = {settings.switch_of(key): "off" for key in hidden}
                seen = dict(before, **hidden)
                seen.update(switches)
                # Also if the switch is on again: behind it may be the profile's values.
                trouble = self._restore_settings(interface, seen, basis, said)
                if trouble:
                    return trouble
            return self._restore_settings(interface, before, basis, said)
        except NicError as error:
            return [str(error)]

    def _restore_settings(
        self, interface: str, before: Dict[str, Any], basis: Basis, said: List[str]
    ) -> List[str]:
        """Sentences on settings that still differ in what was read after the last change."""
        # What the profile has set is restored also where another program sets it now.
        needed = tuple(basis.needed)
        ignored = [
            ignored_key
            for ignored_key in self._ignored(basis)
            if not any(k.startswith(ignored_key) for k in needed)
        ]
        for _ in range(ROUNDS):
            state, versions = self.nic.read(interface), self.nic.versions(interface)
            then, now, _ = values.comparable(
                before, state, ignored, versions != basis.versions, needed
            )
            actions = changes.to_restore(interface, then, now)
            if not actions:
                return self.different(interface, before, state, basis, versions, "before")
            self.perform_all(actions, said)
        return self.remaining(interface, before, basis, "before")

    def _ignored(self, basis: Basis) -> List[str]:
        """What is not compared: what was not then, and what is not now."""
        return [*basis.ignored, *self.nic.ignored]

    def remaining(
        self, interface: str, before: Dict[str, Any], basis: Basis, when: str
    ) -> List[str]:
        """Sentences on settings of an interface that differ from before."""
        now, versions = self.nic.read(interface), self.nic.versions(interface)
        return self.different(interface, before, now, basis, versions, when)

    def different(
        self,
        interface: str,
        before: Dict[str, Any],
        now: Dict[str, Any],
        basis: Basis,
        versions: Dict[str, str],
        when: str,
    ) -> List[str]:
        """Sentences on what differs between two states; ``versions`` are those of the later one.

        What only one of two versions knows is a warning."""
        across = versions != basis.versions
        then, now, unknown = values.comparable(
            before, now, self._ignored(basis), across, basis.needed
        )
        if unknown:
            self.warnings.append(
                "%s: not compared, because only one of two versions shows it (%s): %s"
                % (interface, _changed(basis.versions or {}, versions), ", ".join(unknown))
            )
        return describe(interface, values.not_restored(then, now), when)

    def perform_all(self, actions: List[Action], said: List[str]) -> None:
        """Perform all actions, also after one that fails: the verification finds what is left."""
        for action in actions:
            try:
                self.nic.perform(action)
            except SettingRefused as error:
                if str(error) not in said:
                    said.append(str(error))


def _set_in(part: Dict[str, Any]) -> List[str]:
    """Keys of the state before that the profile has set, and switches that it has turned off."""
    wanted, before = part["wanted"], part["before"]
    concerned = {*wanted, *values.switches_to_turn_off(_plain(wanted), before)}
    return [key for key in before if key in concerned or settings.of(key).key in concerned]


def _changed(then: Dict[str, str], now: Dict[str, str]) -> str:
    """``ethtool 6.1 -> 6.7`` for each version that differs."""
    return ", ".join(
        "%s %s -> %s" % (name, then.get(name, "unknown"), now[name])
        for name in sorted(now)
        if then.get(name) != now[name]
    )


def _lowest_first(parts: Dict[str, Any]) -> List[str]:
    """The interfaces of a journal, each after those that it uses: a VLAN cannot have a larger MTU
    than its interface."""
    below = Counter(user["name"] for user in users_in(parts))
    return sorted(parts, key=lambda name: (below[name], name))


def users_in(parts: Dict[str, Any]) -> List[Dict[str, Any]]:
    """What uses the interfaces of a journal whose MTU the profile sets (``mtus.users_of``)."""
    return [user for part in parts.values() for user in part.get("users", [])]


def ipv6_in(parts: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The IPv6 MTUs of a journal (``mtus.ipv6_of``); an earlier release recorded none."""
    return [part["ipv6"] for part in parts.values() if "ipv6" in part]


def describe(interface: str, differences: List[values.Difference], when: str) -> List[str]:
    """``eth1: mtu is 1400, was 1500 at boot`` for each difference."""
    return [
        "%s: %s is %s, was %s %s"
        % (
            interface,
            difference.setting,
            values.shown(difference.actual, difference.setting),
            values.shown(difference.wanted, difference.setting),
            when,
        )
        for difference in differences
    ]


def _plain(wanted: Dict[str, Any]) -> Dict[str, Any]:
    return {key: value for key, value in wanted.items() if key not in ("driver", "bond")}


def _bonds(parts: Dict[str, Any]) -> List[Dict[str, Any]]:
    return [part["wanted"]["bond"] for _, part in sorted(parts.items()) if "bond" in part["wanted"]]


def _mtu_of(bond: Dict[str, Any], parts: Dict[str, Any]) -> Any:
    """A bond has its first member's MTU, and all other members have it as well."""
    first = parts[bond["members"][0]]
    return first["wanted"].get("mtu", first["before"].get("mtu"))


def _drivers(parts: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
    """module -> driver setting; one reload for all interfaces of a module."""
    drivers = {}
    for _, part in sorted(parts.items()):
        driver = part["wanted"].get("driver")
        if driver:
            drivers[driver["module"]] = driver
    return drivers
