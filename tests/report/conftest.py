"""Fixtures for the report's tests: synthetic trials, written once, and a headless browser."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests/ has no packages; `synthetic` is beside this

import synthetic

from seatrial.report import write_all
from seatrial.results.folder import Results


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Results, Path]]:
    """``written(name)``: an example of `synthetic` on disk, with its report, made once."""
    made: dict[str, tuple[Results, Path]] = {}

    def get(name: str) -> tuple[Results, Path]:
        if name not in made:
            folder = tmp_path_factory.mktemp("trial") / name
            results = synthetic.on_disk(synthetic.EXAMPLES[name](), folder)
            write_all(results)
            made[name] = (results, folder)
        return made[name]

    return get


@pytest.fixture(scope="session")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """``browse(url)``: the page's DOM after its scripts ran, in a Chromium without a network and
    of ``width`` pixels.

    Skips, and says so in pytest's summary, only where no Chromium is installed.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium is installed: that the figures are drawn was NOT checked")

    def run(url: str, width: int = 1400) -> str:
        profile = tmp_path_factory.mktemp("chromium")
        options = "--headless --no-sandbox --disable-gpu --disable-background-networking"
        options += " --disable-component-update --disable-sync --no-first-run"
        # Whatever a page should ask of the network goes to a port where nobody listens.
        options += " --proxy-server=127.0.0.1:9 --virtual-time-budget=30000"
        options += f" --window-size={width},900"
        done = subprocess.run(
            [program, *options.split(), f"--user-data-dir={profile}", "--dump-dom", url],
            capture_output=True,
            text=True,
            timeout=250,  # a hang; on a busy machine a browser takes a minute
            check=True,
        )
        return done.stdout

    return run
