"""Whether a trial still runs: its folder's lock is held, and it has no manifest yet.

A trial holds the lock until its manifest is written. A command that judges or reports a trial holds
it for a moment, too.
"""

from __future__ import annotations

import pwd
import shlex
from pathlib import Path

from seatrial.base.lock import holder, is_held
from seatrial.results import manifest
from seatrial.results.folder import Results
from seatrial.results.manifest import LOCK_FILE


def is_running(folder: Path) -> bool:
    """Whether a trial still writes to its folder. Of another machine or user it may not be known
    who holds the lock: then it counts as the trial."""
    file = folder / LOCK_FILE
    if manifest.has_manifest(folder) or not is_held(file):
        return False
    process = holder(file)
    return process is None or not (words := _command(process)) or "trial" in words


def progress(results: Results) -> str:
    """Since when a running trial runs, by whom, and what of it is written."""
    trial = results.trial
    process = holder(results.folder / LOCK_FILE)
    words = (_command(process) if process else []) or trial.command
    if "seatrial" in words:
        words = words[words.index("seatrial") :]
    by = f" as process {process}{_user(process)}" if process else ""
    written = len({run.round for run in results.runs if not trial.is_rerun(run)})
    what = f"{written} of {trial.rounds} rounds are written"
    if not written:
        what = "no round is written"
    elif written == trial.rounds:
        what = "all planned runs are written, and perhaps not yet their reruns"
    return f"it has run since {trial.started:%Y-%m-%d %H:%M} UTC{by} ({shlex.join(words)}); {what}"


def _user(process: int) -> str:
    """Such as `` of root``; "" if it is not known."""
    try:
        return f" of {pwd.getpwuid(Path(f'/proc/{process}').stat().st_uid).pw_name}"
    except (OSError, KeyError):
        return ""


def _command(process: int) -> list[str]:
    """The words of the command of a process; none if they cannot be read."""
    try:
        text = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return []
    return text.decode(errors="replace").rstrip("\0").split("\0")
