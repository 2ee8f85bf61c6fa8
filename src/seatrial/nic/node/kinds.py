"""Kinds of values that a NIC setting takes. The checks for a site file are in ``nic/schema.py``."""

from typing import Dict, NamedTuple, Union


class Number(NamedTuple):
    """A whole number."""

    unit: str = ""
    least: int = 0
    most: int = 2**32 - 1
    power_of_two: bool = False
    #: the switch of the same setting that, while it is on, moves this value by itself
    behind: str = ""


class Switch(NamedTuple):
    """On or off."""

    behind: str = ""  # as of Number
    #: a driver that lacks the switch is the same as one that has it off
    absent_is_off: bool = False


class Form(NamedTuple):
    """A value with a check of its own: ``schema.FORMS`` has it by this name."""

    name: str
    text: str  # what a person writes, in a few words
    example: str = ""


#: of a setting that has several values: their names in a profile
Fields = Dict[str, Union[Number, Switch]]
Takes = Union[Number, Switch, Form, Fields]
