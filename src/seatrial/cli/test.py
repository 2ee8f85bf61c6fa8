"""``seatrial test``: the project's own tests, on a machine where nothing was installed by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Annotated

import typer

from seatrial.base.paths import CHECKOUT
from seatrial.cli.provision import provision_lab, provision_tests

#: one more than there are cores: tests with a lab wait for much of their time
WORKERS = min((os.cpu_count() or 1) + 1, 6)
#: tests that share a lab stay together, in the order of the root conftest: the longest first
PARALLEL = (f"--numprocesses={WORKERS}", "--dist=loadgroup", "--no-loadscope-reorder")


def test(
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Passed on to pytest.", show_default=False)
    ] = None,
    provision: Annotated[
        bool, typer.Option(help="First install what the lab's tests need (root only).")
    ] = True,
) -> None:
    """Run the tests. Further arguments go to pytest, for example: seatrial test -- -k parser."""
    if provision:
        provision_lab(required=False)
        provision_tests()
    command = [sys.executable, "-m", "pytest", *PARALLEL, *(arguments or [])]
    raise typer.Exit(subprocess.call(command, cwd=CHECKOUT))
