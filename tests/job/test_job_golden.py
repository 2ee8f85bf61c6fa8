"""Every template against the script of a golden file, which somebody has read.

After an intended change: ``python tests/job/job_support.py``, and read the difference.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest
from job_support import CASES, GOLDEN, rendered

from seatrial.job.template import load_templates


@pytest.mark.parametrize("case", CASES)
def test_script_is_as_it_was(case):
    assert rendered(**CASES[case]) == (GOLDEN / f"{case}.sbatch").read_text()


def test_every_template_has_a_golden_file_and_every_file_a_case():
    assert {case["name"] for case in CASES.values()} == set(load_templates())
    assert {file.stem for file in GOLDEN.glob("*.sbatch")} == set(CASES)


def test_scripts_are_bash():
    for file in GOLDEN.glob("*.sbatch"):
        subprocess.run(["bash", "-n", file], check=True)


def test_shellcheck_finds_nothing():
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is missing: seatrial test installs it")
    done = subprocess.run(
        ["shellcheck", *GOLDEN.glob("*.sbatch")], capture_output=True, text=True, timeout=600
    )
    assert done.stdout == ""
