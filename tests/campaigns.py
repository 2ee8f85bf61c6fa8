"""How long random campaigns are: short in `seatrial test`, long in ci/nightly."""

from __future__ import annotations

import os

#: environment variable: set where pytest has --nightly or --long, before tests are collected
NIGHTLY = "SEATRIAL_NIGHTLY"


def rounds(short: int, nightly: int) -> int:
    """The length of a campaign: ``nightly`` with ``--nightly`` or ``--long``, else ``short``."""
    return nightly if os.environ.get(NIGHTLY) else short
