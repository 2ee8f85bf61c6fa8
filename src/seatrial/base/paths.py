"""Where this checkout is."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
#: for PYTHONPATH, where a program of Seatrial runs without the virtual environment's packages
SOURCE = CHECKOUT / "src"
