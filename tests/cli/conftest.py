"""The command line, called in the process of the test."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from seatrial.cli import main

Call = Callable[..., tuple[object, str, str]]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """``here(*words)``: exit code, standard output, standard error of ``seatrial`` called so."""

    def run(*words: object) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["seatrial", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return run
