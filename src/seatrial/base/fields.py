"""Types of fields in a site file: names, node lists, sizes, rates, CPU lists.

A type validates one value. Rules about several fields are in ``seatrial.site``.
"""

from __future__ import annotations

import ipaddress
import re
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from seatrial.base.nodelists import node_set
from seatrial.base.yamlfile import InvalidValue

NAME = r"[a-z][a-z0-9_-]{0,63}"  # ReFrame accepts these names; several are in a folder's name
NAME_RULE = "a lower-case letter, then lower-case letters, digits, _ and -, at most 64 characters"
_HOST = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"  # as in slurm.conf
INTERFACE = r"[A-Za-z0-9._-]{1,15}"  # IFNAMSIZ is 16 with the terminating NUL
SIZE_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
RATE_UNITS = {"": 1, "kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9, "bit/s": 1}
CPUS = 8192  # largest NR_CPUS of Linux


def _nodeset(text: str) -> str:
    correction = "write for example n[1-4] or n1,n3"
    try:
        nodes = node_set(text)
    except ValueError as error:
        raise InvalidValue(str(error), correction) from None
    if not nodes:
        raise InvalidValue("names no node", correction)
    if wrong := next((name for name in nodes if not re.fullmatch(_HOST, name, re.ASCII)), None):
        raise InvalidValue(f"{wrong!r} is not the name of a node", correction)
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
    """Bytes in ``text``: a whole number, with or without the unit B, KiB, MiB or GiB.

    Raises InvalidValue, a ValueError.
    """
    match = re.fullmatch(r"(\d+)\s*(B|KiB|MiB|GiB)?", str(text).strip())
    if not match:
        raise InvalidValue(
            f"'{text}' is not a size",
            "write a whole number of bytes, or for example 64 KiB or 4 MiB",
        )
    return int(match[1]) * SIZE_UNITS[match[2] or ""]


def parse_rate(text: str | int) -> int:
    """Bits per second in ``text``: a number, with or without the unit kbit/s, Mbit/s or Gbit/s.

    At least 1 Mbit/s: a smaller one is a forgotten unit. Raises InvalidValue, a ValueError.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(bit/s|kbit/s|Mbit/s|Gbit/s)?", str(text).strip())
    if not match:
        raise InvalidValue(f"'{text}' is not a rate", "write for example 1 Gbit/s or 100 Mbit/s")
    rate = Fraction(match[1]) * RATE_UNITS[match[2] or ""]
    # The kernel stores bytes per second. It would return another number than the one that was set.
    if rate <= 0:
        raise InvalidValue("a rate is above 0", "write for example 100 Mbit/s")
    if rate.denominator != 1 or rate % 8:
        what = f"{rate} bit/s is not a whole number of bytes per second"
        raise InvalidValue(what, "write for example 100 Mbit/s")
    if rate < RATE_UNITS["Mbit/s"]:
        what = f"{rate} bit/s is below 1 Mbit/s"
        raise InvalidValue(what, "write the number with its unit, for example 1 Gbit/s")
    return int(rate)


def parse_cpus(text: str | int) -> str:
    """A CPU list in the form of the kernel: sorted, with ranges, for example ``0-3,8``.

    Raises InvalidValue, a ValueError.
    """
    cpus: set[int] = set()
    for part in re.split(r"\s*,\s*", str(text).strip()):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last >= CPUS:
            raise InvalidValue(f"{part!r} is not a CPU list", "write for example 0-3 or 0,2")
        cpus.update(range(first, last + 1))
    return ",".join(_ranges(sorted(cpus)))


def _ranges(numbers: list[int]) -> list[str]:
    starts = [n for n in numbers if n - 1 not in set(numbers)]
    ends = [n for n in numbers if n + 1 not in set(numbers)]
    return [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]


def _cpus_or(*words: str):
    def check(value: str) -> str:
        return value if value in words else parse_cpus(value)

    return check


def text_of(pattern: str, what: str, correction: str) -> tuple[AfterValidator, WithJsonSchema]:
    """For ``Annotated[str, *text_of(...)]``: a text that matches a regular expression."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise InvalidValue(f"{text!r} is not {what}", correction)
        return text

    return AfterValidator(check), WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"})


def at_least(count: int, correction: str) -> tuple[AfterValidator, WithJsonSchema]:
    """For ``Annotated[list[str], *at_least(...)]``: a list of at least ``count`` entries."""

    def check(given: list[str]) -> list[str]:
        if len(given) < count:
            raise InvalidValue(f"it has {len(given)} entries, but needs {count}", correction)
        return given

    texts = {"type": "array", "items": {"type": "string"}, "minItems": count}
    return AfterValidator(check), WithJsonSchema(texts)


def _switch(value: object) -> object:
    """In YAML 1.2 ``on`` and ``off`` are strings."""
    return {"on": True, "off": False}.get(value, value) if isinstance(value, str) else value


def _text(value: object) -> object:
    """In YAML a list of one CPU is a number."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Name = Annotated[str, *text_of(NAME, "a name", NAME_RULE)]
Interface = Annotated[str, *text_of(INTERFACE, "an interface", "write for example eth1")]
#: an option of sbatch or srun: a line break would begin a command in a job script
Option = Annotated[
    str,
    *text_of(
        r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]+",
        "an option on one line",
        "write for example --exclusive",
    ),
]
NodeList = Annotated[str, AfterValidator(_nodeset)]
Subnet = Annotated[str, AfterValidator(_subnet)]
Address = Annotated[str, AfterValidator(_address)]
Size = Annotated[str | int, AfterValidator(parse_size)]
Rate = Annotated[str | int, AfterValidator(parse_rate)]
Switch = Annotated[
    bool, BeforeValidator(_switch, json_schema_input_type=bool | Literal["on", "off"])
]
#: CPUs of packet steering: a list, ``all``, or ``none`` (off)
QueueCpus = Annotated[
    str, BeforeValidator(_text, json_schema_input_type=str | int),
    AfterValidator(_cpus_or("all", "none")),
]  # fmt: skip
#: CPUs of interrupt lines: a list, or ``spread`` (line i to CPU i)
LineCpus = Annotated[
    str, BeforeValidator(_text, json_schema_input_type=str | int),
    AfterValidator(_cpus_or("spread")),
]  # fmt: skip


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Pydantic takes true for 1, so ``solves: yes`` would be a number."""
        if isinstance(value, bool) and info.field_name:
            kind = cls.model_fields[info.field_name].annotation
            kinds = {*get_args(kind), kind}
            if kinds & {int, float} and bool not in kinds:
                raise InvalidValue(f"{str(value).lower()} is not a number", "write a number")
        return value
