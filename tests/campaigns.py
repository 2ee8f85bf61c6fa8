"""How long random campaigns are: short in `seatrial test`, long in ci/nightly."""

from __future__ import annotations

import os
from typing import TypeVar

#: environment variable: set where pytest has --nightly or --long, before tests are collected
NIGHTLY = "SEATRIAL_NIGHTLY"
T = TypeVar("T")


def rounds(short: T, nightly: T) -> T:
    """What a campaign tries, or how often: ``nightly`` with ``--nightly`` or ``--long``, else
    ``short``."""
    return nightly if os.environ.get(NIGHTLY) else short
