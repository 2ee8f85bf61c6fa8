"""What a profile does to the interfaces of a node, and undoing it. Remembers and decides nothing.

A *journal* is the dictionary that says what was found before and what is wanted (see
:meth:`Work.prepare`); ``session`` keeps it on disk before anything here changes an interface.
"""

from typing import Any, Callable, Dict, List, Optional

from . import changes, links, values
from .errors import NicError, Refused, SettingRefused

# A driver may clamp one setting because of another: a second look puts that right.
ROUNDS = 4

Journal = Dict[str, Any]


class Work:
    """Changes the interfaces that ``nic`` gives access to, as far as ``guard`` allows."""

    def __init__(self, policy: Any, nic: Any, guard: Any) -> None:
        self.policy = policy
        self.nic = nic
        self.guard = guard

    def prepare(self, profile: Dict[str, Any]) -> Journal:
        """What is there and what is wanted: all that is needed to apply a profile and to go back.

        Raises Refused where a guard or a driver without such a setting speaks against it.
        """
        wanted = dict(profile.get("interfaces", {}))
        self.guard.check(self.policy, profile)
        optional = profile.get("if_supported", [])
        interfaces = {}
        skipped: Dict[str, List[str]] = {}
        for interface in sorted(self._touched(wanted)):
            before = self.nic.read(interface)
            settings = dict(wanted.get(interface, {}))
            missing = self._missing(interface, settings, before)
            dropped = [key for key in missing if values.group_of(key) in optional]
            if len(dropped) < len(missing):
                lacking = [key for key in missing if key not in dropped]
                raise Refused("%s has no setting %s" % (interface, ", ".join(lacking)))
            for key in dropped:
                settings.pop(key)
            if "egress_bit_s" in settings and not str(before.get("qdisc")).startswith("default "):
                raise Refused(
                    "%s has a queueing discipline of its own (%s), which could not be put back "
                    "exactly" % (interface, before.get("qdisc"))
                )
            if dropped:
                skipped[interface] = dropped
            interfaces[interface] = {
                "identity": self.nic.identity(interface),
                "before": before,
                "wanted": settings,
            }
            if "driver" in settings or "bond" in settings or interface not in wanted:
                interfaces[interface]["link"] = self.nic.link(interface)
        return {
            "interfaces": interfaces,
            "skipped": skipped,
            "node": {"before": self.nic.read_node(), "wanted": dict(profile.get("node", {}))},
        }

    def _touched(self, wanted: Dict[str, Dict[str, Any]]) -> set:
        """All interfaces that a profile changes: also bond members, and those of one driver."""
        found = set(wanted)
        for settings in wanted.values():
            found.update(settings.get("bond", {}).get("members", []))
            if "driver" in settings:
                found.update(self.nic.interfaces_of(settings["driver"]["module"]))
        return found

    def _missing(
        self, interface: str, settings: Dict[str, Any], before: Dict[str, Any]
    ) -> List[str]:
        target = values.spread(settings, before, self.nic.cpus())
        missing = values.unsupported(target, before)
        fixed = self.nic.fixed(interface) if any(k.startswith("feature.") for k in target) else {}
        for key in sorted(target):
            if key in fixed and not values.same(key, target[key], fixed[key], False):
                missing.append(key)
        # What stands for all queues is missing where one of them lacks it.
        return [key for key in settings if key in missing or _covers(key, missing)]

    def carry_out(self, journal: Journal, save: Callable[[], None]) -> None:
        """Put the settings on. ``save`` keeps the journal, in which more is noted meanwhile.

        Raises SettingRefused naming the first setting that was not taken.
        """
        parts = journal["interfaces"]
        for action in self.structure(journal):
            self.nic.perform(action)
        for interface in sorted(parts):
            wanted = _plain(parts[interface]["wanted"])
            self._see_hidden(interface, wanted, parts[interface], save)
            for _ in range(ROUNDS):
                state = self.nic.read(interface)
                target = values.spread(wanted, state, self.nic.cpus())
                actions = changes.to_apply(interface, target, state)
                if not actions:
                    break
                for action in actions:
                    self.nic.perform(action)
            left = values.differences(target, self.nic.read(interface))
            if left:
                raise SettingRefused(
                    "%s %s" % (interface, left[0].setting),
                    "set to %s, found %s" % (left[0].wanted, values.shown(left[0].found)),
                )
        for action in changes.of_node(journal["node"]["wanted"], self.nic.read_node()):
            self.nic.perform(action)

    def _see_hidden(
        self, interface: str, wanted: Dict[str, Any], part: Dict[str, Any], save: Callable[[], None]
    ) -> None:
        """Note the static values behind adaptive moderation: they are lost once others are set."""
        sides = values.sides_to_still(wanted, part["before"])
        if sides:
            self.nic.perform(changes.still(interface, sides))
            part["hidden"] = values.static_values(self.nic.read(interface), sides)
            save()

    def structure(self, journal: Journal) -> List[changes.Action]:
        """Actions for driver reloads and bonds, which come before all settings."""
        parts = journal["interfaces"]
        actions: List[changes.Action] = []
        for module, driver in _drivers(parts).items():
            actions += self._reload(parts, module, driver, driver.get("parameters", {}))
        for bond in _bonds(parts):
            actions += links.make_bond(bond, {m: parts[m]["link"] for m in bond["members"]})
        return actions

    def _reload(
        self, parts: Dict[str, Any], module: str, driver: Dict[str, Any], parameters: Dict[str, Any]
    ) -> List[changes.Action]:
        seconds = float(driver.get("link_timeout_s", links.LINK_TIMEOUT_S))
        return links.reload_driver(module, parameters, self._links_of(parts, module), seconds)

    def _links_of(self, parts: Dict[str, Any], module: str) -> Dict[str, Any]:
        return {
            name: part["link"]
            for name, part in parts.items()
            if "link" in part and part["before"].get("driver.module") == module
        }

    # -- and back

    def put_back(self, journal: Journal) -> List[str]:
        """Sentences on what is not as it was; empty when all is."""
        parts = journal["interfaces"]
        said: List[str] = []
        self.try_all(self.unstructure(journal), said)
        trouble: List[str] = []
        for interface in sorted(parts):
            part = parts[interface]
            trouble += self.put_back_one(interface, part["before"], said, part.get("hidden"))
        node = journal["node"]["before"]
        self.try_all(changes.of_node(node, self.nic.read_node()), said)
        for left in values.to_put_back(node, self.nic.read_node()):
            trouble.append("%s is %s, was %s" % (left.setting, left.found, left.wanted))
        return trouble + said if trouble else []

    def unstructure(self, journal: Journal) -> List[changes.Action]:
        parts = journal["interfaces"]
        actions: List[changes.Action] = []
        for bond in _bonds(parts):
            actions += links.unmake_bond(bond, {m: parts[m]["link"] for m in bond["members"]})
        for module, driver in _drivers(parts).items():
            # As at boot: with what modprobe.d says.
            actions += self._reload(parts, module, driver, {})
        return actions

    def put_back_one(
        self,
        interface: str,
        before: Dict[str, Any],
        said: List[str],
        hidden: Optional[Dict[str, Any]] = None,
    ) -> List[str]:
        """Sentences on what of an interface could not be put back.

        ``hidden`` are the static values that adaptive moderation hid before.
        """
        try:
            if hidden:
                sides = {"coalesce.adaptive-%s" % key.split(".")[1][:2]: "off" for key in hidden}
                stilled = dict(before, **hidden)
                stilled.update(sides)
                if any(self.nic.read(interface).get(side) == "off" for side in sides):
                    self._approach(interface, stilled, said)
                    trouble = self.left(interface, stilled, "before")
                    if trouble:
                        return trouble
            self._approach(interface, before, said)
            return self.left(interface, before, "before")
        except NicError as error:
            return [str(error)]

    def _approach(self, interface: str, before: Dict[str, Any], said: List[str]) -> None:
        for _ in range(ROUNDS):
            actions = changes.to_restore(interface, before, self.nic.read(interface))
            if not actions:
                break
            self.try_all(actions, said)

    def left(self, interface: str, before: Dict[str, Any], when: str) -> List[str]:
        """Sentences on what of an interface is not as it was."""
        return [
            "%s: %s is %s, was %s %s"
            % (interface, one.setting, values.shown(one.found), values.shown(one.wanted), when)
            for one in values.to_put_back(before, self.nic.read(interface))
        ]

    def try_all(self, actions: List[changes.Action], said: List[str]) -> None:
        """Perform all, also those after one that fails: the verification tells what is left."""
        for action in actions:
            try:
                self.nic.perform(action)
            except SettingRefused as error:
                if str(error) not in said:
                    said.append(str(error))


def _plain(settings: Dict[str, Any]) -> Dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in ("driver", "bond")}


def _bonds(parts: Dict[str, Any]) -> List[Dict[str, Any]]:
    return [part["wanted"]["bond"] for _, part in sorted(parts.items()) if "bond" in part["wanted"]]


def _drivers(parts: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
    """module -> driver setting; one reload for all interfaces of a module."""
    found = {}
    for _, part in sorted(parts.items()):
        driver = part["wanted"].get("driver")
        if driver:
            found[driver["module"]] = driver
    return found


def _covers(setting: str, missing: List[str]) -> bool:
    prefix = values.SPREAD.get(setting)
    return bool(prefix) and any(key.startswith(prefix) for key in missing)  # type: ignore
