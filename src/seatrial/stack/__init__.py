"""The software stack of the labs: from Debian and PyPI, on a machine that reaches nothing else.

For: knowing how each benchmark is run under each transport (``load_stack``), and bringing a
machine to that state (``seatrial.stack.provision``). The stack of a real site is Spack's and
not made here.
"""

from __future__ import annotations

from typing import Any

from seatrial.stack.model import Blas, Stack, Transport, read

__all__ = ["Blas", "Stack", "Transport", "load_stack", "read"]


def load_stack(site: Any = None) -> Stack:
    """The stack that a site's trials run with (the distribution's, where none is given).

    Raises LabError where it has not been provisioned.
    """
    from seatrial.stack.provision import PREFIX

    return read(PREFIX)
