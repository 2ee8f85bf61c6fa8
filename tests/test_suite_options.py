"""Which tests the option --long selects."""

from __future__ import annotations

import re
import subprocess
import sys

from seatrial.base.paths import CHECKOUT

PLAIN = "test_no_ranks_is_an_error"
PROPERTY = "test_grid_uses_every_rank"
CAMPAIGN = "test_killed_at_random_moments"
MARKED = "test_a_node_shows_its_own_processors"


def test_long_selects_what_takes_longer_at_night() -> None:
    files = (
        "tests/benchmarks/test_hpl_input.py",
        "tests/nic/test_real_interfaces.py",
        "tests/lab_virtual/test_several_processors.py",
    )
    command = [sys.executable, "-P", "-m", "pytest", "--collect-only", "-q", "--long"]
    done = subprocess.run(
        [*command, *files], cwd=CHECKOUT, capture_output=True, text=True, timeout=900
    )
    names = set(re.findall(r"::(\w+)(?:\[.*)?$", done.stdout, re.MULTILINE))
    assert names & {PLAIN, PROPERTY, CAMPAIGN, MARKED} == {PROPERTY, CAMPAIGN, MARKED}


def test_a_campaign_names_rounds_in_its_own_file() -> None:
    """Otherwise --long does not find its tests."""
    tests = CHECKOUT / "tests"
    files = {str(file.relative_to(tests)): file.read_text() for file in tests.rglob("*.py")}
    lines = {name: re.findall(r"^(?:from|import) campaigns.*", text, re.M)
             for name, text in files.items()}  # fmt: skip
    others = {
        name for name, own in lines.items() if own and own != ["from campaigns import rounds"]
    }
    assert others == {"conftest.py"}
