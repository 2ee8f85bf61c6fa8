"""The models of NIC settings as a person writes them, built from the table ``node/settings.py``.

A field that is ``null`` stays as the node boots, whatever the base profile says. ``flatten`` has
the keys of the same settings on nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, create_model

from seatrial.base.fields import (
    Interface,
    LineCpus,
    Model,
    QueueCpus,
    Rate,
    Switch,
    at_least,
    text_of,
)
from seatrial.base.suggest import suggest
from seatrial.base.yamlfile import InvalidValue
from seatrial.nic.node import kinds
from seatrial.nic.node.kinds import Form, Number, Takes
from seatrial.nic.node.settings import BY_NAME, Setting

#: short names of offloads, and the names that ``ethtool -k`` prints
OFFLOADS = {
    "rx": "rx-checksumming",
    "rx_checksum": "rx-checksumming",
    "tx": "tx-checksumming",
    "tx_checksum": "tx-checksumming",
    "sg": "scatter-gather",
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "lro": "large-receive-offload",
    "rxvlan": "rx-vlan-offload",
    "rx_vlan": "rx-vlan-offload",
    "txvlan": "tx-vlan-offload",
    "tx_vlan": "tx-vlan-offload",
    "ntuple": "ntuple-filters",
    "rxhash": "receive-hashing",
    "rx_hash": "receive-hashing",
}
UNDASHED = ("loopback", "highdma")  # the kernel's only names of features without a dash


def offload(name: str) -> str:
    """The name that ``ethtool -k`` prints for an offload, from it or a short name.

    Raises InvalidValue, a ValueError.
    """
    if name in OFFLOADS:
        return OFFLOADS[name]
    if name in UNDASHED or re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name):
        return name
    names = [*OFFLOADS, *UNDASHED]
    raise InvalidValue(f"unknown offload {name!r}", suggest(name, names), name)


def _offloads(given: dict[str, Switch | None]) -> dict[str, Switch | None]:
    seen: dict[str, str] = {}
    for name in given:
        long = offload(name)
        if long in seen:
            raise InvalidValue(
                f"{name} and {seen[long]} are one and the same", "keep one of them", name
            )
        seen[long] = name
    return given


def _private_flags(given: dict[str, Switch | None]) -> dict[str, Switch | None]:
    for name in given:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]{0,30}", name):
            raise InvalidValue(
                f"{name!r} is not a flag's name",
                "write it as ethtool --show-priv-flags prints it",
                name,
            )
    return given


def _parameters(given: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
    for name, value in given.items():
        if not re.fullmatch(r"[A-Za-z0-9_]+", name):
            raise InvalidValue(f"{name!r} is not a parameter's name", "see modinfo -p MODULE", name)
        if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9_.,:/+-]*", value):
            raise InvalidValue(
                "blanks and quotes cannot be in a value", "write for example 0,0", name
            )
    return given


def _power_of_two(count: int | None) -> int | None:
    if count and count & (count - 1):
        # The kernel rounds up, and would read back another number than the one set.
        raise InvalidValue(f"{count} is not a power of two", f"write {1 << count.bit_length()}")
    return count


def _module(given: str) -> str:
    return given.replace("-", "_")  # modprobe takes both, and the kernel names it so


class Driver(Model):
    """Parameters that a kernel module takes only when it is loaded: it is reloaded."""

    module: Annotated[
        str,
        *text_of(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,54}", "a module", "see lsmod"),
        AfterValidator(_module),
    ] = Field(examples=["e1000e"])
    parameters: Annotated[dict[str, str | int | bool], AfterValidator(_parameters)] = {}
    link_timeout_s: int = Field(
        default=30, ge=1, le=60, description="how long the link may take to be up again"
    )
    allow_shared: Switch = Field(
        default=False,
        description="reload although other interfaces have the driver too, which lose their link",
    )


class Bonding(Model):
    """Several interfaces as one. Without it they are independent, each in its own network."""

    name: Interface = Field(default="bond0", description="of the interface that is made")
    mode: Literal[
        "balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb",
        "balance-alb",
    ]  # fmt: skip
    members: Annotated[list[Interface], *at_least(2, "write for example members: [eth1, eth2]")] = (
        Field(examples=["[eth1, eth2]"])
    )
    miimon_ms: int = Field(default=100, ge=0, le=60_000, description="how often to look at links")


#: types of the values that have a check of their own, by the name of their ``Form``
FORMS: dict[str, Any] = {
    "driver": Driver,
    "bonding": Bonding,
    "offloads": Annotated[dict[str, Switch | None], AfterValidator(_offloads)],
    "private_flags": Annotated[dict[str, Switch | None], AfterValidator(_private_flags)],
    "line_cpus": LineCpus,
    "queue_cpus": QueueCpus,
    "rate": Rate,
}


def _type_of(name: str, takes: Takes) -> Any:
    """The type of a setting's value, of which the table says what it takes."""
    if isinstance(takes, dict):
        fields: dict[str, Any] = {
            one: (_type_of(one, kind) | None, Field(default=None, description=_unit(kind)))
            for one, kind in takes.items()
        }
        title = name.title().replace("_", "")
        return create_model(title, __base__=Model, __doc__=BY_NAME[name].about, **fields)
    if isinstance(takes, Number):
        count = Annotated[int, Field(ge=takes.least, le=takes.most)]
        return Annotated[count, AfterValidator(_power_of_two)] if takes.power_of_two else count
    return Switch if isinstance(takes, kinds.Switch) else FORMS[takes.name]


def _unit(takes: Takes) -> str | None:
    return takes.unit or None if isinstance(takes, Number) else None


def _fields(settings: Iterable[Setting]) -> Any:
    """Fields of a model, as ``create_model`` takes them."""
    return {
        setting.name: (
            _type_of(setting.name, setting.takes) | None,
            Field(
                default=None, description=_description(setting), examples=_examples(setting.takes)
            ),
        )
        for setting in settings
    }


def _description(setting: Setting) -> str:
    unit = _unit(setting.takes)
    return f"{setting.about} ({unit})" if unit else setting.about


def _examples(takes: Takes) -> list[str] | None:
    if isinstance(takes, Number) and takes.least:
        return [str(takes.least)]
    return [takes.example] if isinstance(takes, Form) and takes.example else None


if TYPE_CHECKING:

    class Settings(Model):
        """The fields come from the table. Declared here is what code reads by its name."""

    class ProfileSettings(Settings):
        bonding: Bonding | None = None

else:
    Settings = create_model(
        "Settings",
        __base__=Model,
        __doc__="Settings of one interface.",
        **_fields(setting for setting in BY_NAME.values() if setting.per_network),
    )
    ProfileSettings = create_model(
        "ProfileSettings",
        __base__=Settings,
        __doc__="Settings of a profile: those of each interface, and those of the node as a whole.",
        **_fields(setting for setting in BY_NAME.values() if not setting.per_network),
    )
