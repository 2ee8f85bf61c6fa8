"""The folders of this checkout."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
#: the tests of ReFrame, one file for each check
CHECKS = CHECKOUT / "reframe-checks"
#: where trials are written, unless the command names another folder
TRIALS = CHECKOUT / "trials"
#: for the PYTHONPATH of a program that runs outside the virtual environment
SOURCE = CHECKOUT / "src"
#: pyarrow, which only the export to Parquet needs
PARQUET_LOCK = CHECKOUT / "requirements-parquet.lock"
