"""How long random campaigns are: short in `seatrial test`, long in ci/nightly."""

from __future__ import annotations

import os

#: environment variable: set where pytest has the option --nightly, before tests are collected
NIGHTLY = "SEATRIAL_NIGHTLY"


def rounds(short: int, nightly: int) -> int:
    """The length of a campaign: ``nightly`` under ``pytest --nightly``, else ``short``."""
    return nightly if os.environ.get(NIGHTLY) else short
