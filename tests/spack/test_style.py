"""spack-repo/ has the style that ``spack style`` asks of packages (its settings lie there)."""

import subprocess
import sys

import pytest

from seatrial.base.paths import CHECKOUT

REPO = CHECKOUT / "spack-repo"

TOOLS = {
    "isort": ["--check-only", "--diff"],
    "black": ["--check", "--diff", "--quiet"],
    "flake8": ["--config", ".flake8"],
}


@pytest.mark.parametrize("tool", TOOLS)
def test_spack_style(tool):
    run = subprocess.run(
        [sys.executable, "-m", tool, *TOOLS[tool], "."], cwd=REPO, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
