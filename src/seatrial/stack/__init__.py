"""The software stack of a site: how each benchmark runs under each transport (``load_stack``).

Two sources write it, as a ``stack.json`` that ``model`` describes: Spack, by the other modules of
this package, for real sites and for labs that ask for it; Debian and PyPI, by
``seatrial_lab.software``, for labs on machines that reach only package registries.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from seatrial.base.paths import CHECKOUT
from seatrial.stack.model import Blas, Stack, Transport, read

__all__ = [
    "PREFIX",
    "STACK_FOLDER",
    "Blas",
    "Stack",
    "Transport",
    "load_stack",
    "read",
    "stack_folder",
]

#: where a checkout has the labs' software
PREFIX = CHECKOUT / ".seatrial" / "stack"
#: environment variable: a folder whose stack.json is used instead of the one of this checkout
STACK_FOLDER = "SEATRIAL_STACK"


def load_stack(site: Any = None) -> Stack:
    """The stack of a site; without a site, the labs' from Debian and PyPI.

    Raises LabError where it has not been provisioned, or built.
    """
    if of_spack(site) and not os.environ.get(STACK_FOLDER):
        from seatrial.stack.describe import load

        return load(site.name)
    return read(stack_folder())


def of_spack(site: Any) -> bool:
    """Whether a site's stack is Spack's."""
    return site is not None and site.stack.source == "spack"


def stack_folder(site: Any = None) -> Path:
    """The folder of the stack: $SEATRIAL_STACK, else that of this checkout."""
    given = os.environ.get(STACK_FOLDER)
    if of_spack(site) and not given:
        from seatrial.stack.paths import HOME

        return HOME / "sites" / str(site.name)
    return Path(given or PREFIX)
