"""``seatrial test``: the tests of Seatrial itself, with the installation of what they need."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from seatrial.base.paths import CHECKOUT
from seatrial.cli.provision import provision_lab, provision_tests

#: two more than there are cores: tests with a lab wait for two thirds of their time
WORKERS = min((os.cpu_count() or 1) + 2, 6)


def test(
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Arguments of pytest.", show_default=False)
    ] = None,
    provision: Annotated[bool, typer.Option(help="Install what the tests need (as root).")] = True,
) -> None:
    """Run the tests of Seatrial.

    Example: seatrial test -- tests/nic -k parser
    """
    if provision:
        provision_lab(required=False)
        provision_tests()
    command = [sys.executable, "-P", "-m", "pytest", f"--numprocesses={WORKERS}"]
    # With it each of the hundreds of processes that the tests start compiles Seatrial for itself.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # In its place: a signal to this process is one to pytest, whose fixtures end their labs.
    os.chdir(CHECKOUT)
    os.execv(sys.executable, [*command, *(arguments or [])])
