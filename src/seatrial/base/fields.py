"""Kinds of values that several parts of a site file have: names, node lists, sizes, rates.

Each says in a sentence what is wrong with a value. Nothing here knows of the file as a whole.
"""

from __future__ import annotations

import ipaddress
import re
from fractions import Fraction
from typing import Annotated, Literal

from ClusterShell.NodeSet import NodeSet, NodeSetException
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from seatrial.base.yamlfile import InvalidValue

NAME = r"^[a-z][a-z0-9_-]*$"  # what ReFrame takes as a name
INTERFACE = r"^[A-Za-z0-9._-]{1,15}$"  # IFNAMSIZ is 16 with the closing NUL
SIZE_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
RATE_UNITS = {"": 1, "kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9, "bit/s": 1}
CPUS = 8192  # the most that a Linux kernel is built for


def _nodeset(text: str) -> str:
    try:
        if not NodeSet(text):
            raise InvalidValue("names no node", "write for example n[1-4]")
    except NodeSetException as error:
        raise InvalidValue(
            f"not a node list: {error}", "write for example n[1-4] or n1,n3"
        ) from None
    return text


def _subnet(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise InvalidValue(f"not a network: {error}", "write for example 10.1.0.0/16") from None
    return text


def _address(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError as error:
        raise InvalidValue(f"not an IP address: {error}", "write for example 10.1.0.1") from None
    return text


def parse_size(text: str | int) -> int:
    """Bytes in ``text``: a whole number, or one with B, KiB, MiB or GiB behind it.

    Raises InvalidValue, a ValueError.
    """
    match = re.fullmatch(r"(\d+)\s*(B|KiB|MiB|GiB)?", str(text).strip())
    if not match:
        raise InvalidValue(
            "not a size", "write a whole number of bytes, or for example 64 KiB or 4 MiB"
        )
    return int(match[1]) * SIZE_UNITS[match[2] or ""]


def parse_rate(text: str | int) -> int:
    """Bits per second in ``text``: a whole number, or one with kbit/s, Mbit/s or Gbit/s behind it.

    Raises InvalidValue, a ValueError.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(bit/s|kbit/s|Mbit/s|Gbit/s)?", str(text).strip())
    if not match:
        raise InvalidValue("not a rate", "write for example 1 Gbit/s or 100 Mbit/s")
    rate = Fraction(match[1]) * RATE_UNITS[match[2] or ""]
    # The kernel keeps bytes per second: any other number would not be read back as it was set.
    if rate <= 0 or rate.denominator != 1 or rate % 8:
        raise InvalidValue("not a whole number of bytes per second", "write for example 100 Mbit/s")
    return int(rate)


def parse_cpus(text: str | int) -> str:
    """A CPU list in the kernel's own form: sorted, neighbours as ranges, e.g. ``0-3,8``.

    Raises InvalidValue, a ValueError.
    """
    found: set[int] = set()
    for part in re.split(r"\s*,\s*", str(text).strip()):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last >= CPUS:
            raise InvalidValue(f"{part!r} is not a CPU list", "write for example 0-3 or 0,2")
        found.update(range(first, last + 1))
    return ",".join(_ranges(sorted(found)))


def _ranges(numbers: list[int]) -> list[str]:
    starts = [n for n in numbers if n - 1 not in set(numbers)]
    ends = [n for n in numbers if n + 1 not in set(numbers)]
    return [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]


def _cpus_or(*words: str):
    def check(value: str) -> str:
        return value if value in words else parse_cpus(value)

    return check


def matching(pattern: str, what: str, correction: str) -> tuple[AfterValidator, WithJsonSchema]:
    """For ``Annotated[str, *matching(...)]``: text of a form, and a sentence where it is not."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise InvalidValue(f"{text!r} is not {what}", correction)
        return text

    return AfterValidator(check), WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"})


def at_least(count: int, correction: str) -> tuple[AfterValidator, WithJsonSchema]:
    """For ``Annotated[list[str], *at_least(...)]``: a list that is not too short."""

    def check(given: list[str]) -> list[str]:
        if len(given) < count:
            raise InvalidValue(f"it has {len(given)} entries, and needs {count}", correction)
        return given

    texts = {"type": "array", "items": {"type": "string"}, "minItems": count}
    return AfterValidator(check), WithJsonSchema(texts)


def _switch(value: object) -> object:
    """YAML 1.2 leaves ``on`` and ``off`` words."""
    return {"on": True, "off": False}.get(value, value) if isinstance(value, str) else value


def _text(value: object) -> object:
    """One CPU is a number in YAML."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Name = Annotated[str, Field(pattern=NAME)]
Interface = Annotated[str, Field(pattern=INTERFACE)]
NodeList = Annotated[str, AfterValidator(_nodeset)]
Subnet = Annotated[str, AfterValidator(_subnet)]
Address = Annotated[str, AfterValidator(_address)]
Size = Annotated[str | int, AfterValidator(parse_size)]
Rate = Annotated[str | int, AfterValidator(parse_rate)]
Switch = Annotated[
    bool, BeforeValidator(_switch, json_schema_input_type=bool | Literal["on", "off"])
]
#: of packet steering: also every CPU, or none (steering off)
QueueCpus = Annotated[
    str, BeforeValidator(_text, json_schema_input_type=str | int),
    AfterValidator(_cpus_or("all", "none")),
]  # fmt: skip
#: of interrupt lines: also line i to CPU i
LineCpus = Annotated[
    str, BeforeValidator(_text, json_schema_input_type=str | int),
    AfterValidator(_cpus_or("spread")),
]  # fmt: skip


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True)
