"""The software stack of the labs: from Debian and PyPI, on a machine that reaches nothing else.

For: knowing how each benchmark is run under each transport (``load_stack``), and bringing a
machine to that state (``seatrial.stack.provision``). The stack of a real site is Spack's and
not made here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from seatrial.stack.model import Blas, Stack, Transport, read

__all__ = ["STACK_FOLDER", "Blas", "Stack", "Transport", "load_stack", "read", "stack_folder"]

#: environment variable: a folder whose stack.json is used instead of the one of this checkout
STACK_FOLDER = "SEATRIAL_STACK"


def load_stack(site: Any = None) -> Stack:
    """The stack that a site's trials run with (the distribution's, where none is given).

    Raises LabError where it has not been provisioned.
    """
    return read(stack_folder())


def stack_folder() -> Path:
    """The folder of the stack: $SEATRIAL_STACK, else that of this checkout."""
    from seatrial.stack.provision import PREFIX

    return Path(os.environ.get(STACK_FOLDER) or PREFIX)
