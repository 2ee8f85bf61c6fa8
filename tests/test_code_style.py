"""Style and types of all of the project's Python, as a commit must have them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from seatrial.base.paths import CHECKOUT

TOOLS = {
    "ruff": ["check", "."],
    "ruff format": ["format", "--check", "."],
    "mypy": [],
}


@pytest.mark.parametrize("tool", TOOLS)
def test_style_and_types(tool: str) -> None:
    command = [sys.executable, "-m", tool.split()[0], *TOOLS[tool]]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
