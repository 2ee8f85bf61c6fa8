"""One change of a node, as data: a program to run, a file to write, or something to wait for.

Nothing is changed here. ``nic.Nic.perform`` carries an action out; a dry run prints ``text_of``.
"""

import shlex
from typing import Any, List, NamedTuple, Optional

from . import programs

Action = NamedTuple(
    "Action",
    [
        ("setting", str),  # what it sets, for the message if it is refused
        ("argv", Optional[List[str]]),  # a program, or
        ("path", Optional[str]),  # a file of the kernel and what is written to it, or
        ("text", str),
        ("wait_s", float),  # how long it may take
        ("until", str),  # what to wait for: the interface ``text`` is "there", or has its "link"
        ("address", str),  # permanent MAC address by which the interface is known, if it has one
    ],
)


def command(setting: str, *argv: str) -> Action:
    """Run a program."""
    return Action(setting, list(argv), None, "", programs.TIMEOUT_S, "", "")


def write(setting: str, path: str, value: Any) -> Action:
    """Write a file of the kernel."""
    return Action(setting, None, path, str(value), 0.0, "", "")


def wait(setting: str, interface: str, seconds: float, address: str = "") -> Action:
    """Wait for an interface. If it appears under another name, it gets its name back."""
    return Action(setting, None, None, interface, seconds, "there", address)


def wait_for_link(setting: str, interface: str, seconds: float) -> Action:
    """Wait until an interface has a link."""
    return Action(setting, None, None, interface, seconds, "link", "")


def text_of(action: Action) -> str:
    """The action as a line of shell."""
    if action.argv is not None:
        argv = [programs.find(action.argv[0]), *action.argv[1:]]
        return " ".join(shlex.quote(word) for word in argv)
    if action.path is not None:
        return "echo %s > %s" % (shlex.quote(action.text), shlex.quote(action.path))
    what = {"there": "is there", "link": "has a link"}[action.until]
    known = ", known by its MAC address %s" % action.address if action.address else ""
    return "# wait up to %g s until %s %s%s" % (action.wait_s, action.text, what, known)
