"""Hand a rendered script to sbatch: on this machine, or on the login node of a lab."""

from __future__ import annotations

import shutil
import subprocess

from seatrial.base.errors import LabError
from seatrial.site.model import Site
from seatrial_lab.adapter import lab_spec
from seatrial_lab.native.engine import Lab

TIMEOUT_S = 60


def submit(site: Site, text: str, options: list[str], instance: str | None = None) -> str:
    """Run sbatch with the script on its standard input; returns what sbatch said.

    ``instance`` is the lab's, where the site is one. Raises LabError with sbatch's reason.
    """
    command = ["sbatch", *options]
    if site.lab:
        lab = Lab.attach(instance or lab_spec(site).instance)
        done = lab.run(command, stdin=text, timeout=TIMEOUT_S)
    else:
        program = shutil.which("sbatch")
        if program is None:
            raise LabError(
                f"there is no sbatch here: submit from a login node of {site.name}, or write the "
                "script to a file (seatrial job render --output) and take it there"
            )
        try:
            done = subprocess.run(
                [program, *options], input=text, capture_output=True, text=True, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"sbatch did not answer within {TIMEOUT_S} s") from None
    said = (done.stdout + done.stderr).strip()
    if done.returncode:
        raise LabError(f"sbatch refused the job (exit code {done.returncode}): {said}")
    return said
