"""The initialised MariaDB data folder; each lab starts MariaDB on a copy of it.

mariadb-install-db takes longer than the rest of a lab's start. So the machine's
cache folder keeps one data folder per version of MariaDB, for all instances.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.lock import locked
from seatrial.base.say import Say, say_nothing
from seatrial_lab.common.etc import account
from seatrial_lab.common.paths import CACHE_ROOT
from seatrial_lab.common.programs import find, version_of


def template(say: Say = say_nothing) -> Path:
    """Return the data folder for the installed MariaDB; create it if missing. Raises LabError.

    ``say`` gets a line of text if another process creates it.
    """
    match = re.search(r"\d+\.\d+\.\d+", version_of("mariadbd"))
    version = match[0] if match else "unknown"
    ready = CACHE_ROOT / f"mariadb-{version}"
    with locked(CACHE_ROOT / "lock", say):
        if not ready.is_dir():
            _make(ready)
    return ready


def _make(ready: Path) -> None:
    draft = ready.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)  # left by a killed process
    draft.mkdir(mode=0o700)
    owner = account("mysql")
    os.chown(draft, owner.pw_uid, owner.pw_gid)
    answer = subprocess.run(
        [
            find("mariadb-install-db") or "mariadb-install-db",
            "--no-defaults",
            "--user=mysql",
            f"--datadir={draft}",
            "--skip-test-db",
            "--auth-root-authentication-method=socket",
            "--skip-name-resolve",
            "--skip-log-bin",
            "--innodb-log-file-size=4M",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode:
        raise LabError(f"mariadb-install-db: {(answer.stdout + answer.stderr).strip()[-500:]}")
    draft.rename(ready)
