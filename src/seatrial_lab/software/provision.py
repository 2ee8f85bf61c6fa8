"""Install and build the labs' software on a Debian machine.

``provision`` installs Debian packages, fetches pinned files from PyPI, builds the benchmarks, and
writes ``stack.json`` and the modulefiles. It does not use sites or Slurm's configuration.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.lock import locked
from seatrial.base.say import Say
from seatrial.stack import PREFIX, apt, machine
from seatrial.stack.model import FILE, Stack, read
from seatrial_lab.software import modules, pypi
from seatrial_lab.software.describe import describe
from seatrial_lab.software.packages import SOURCES, supported_release
from seatrial_lab.software.steps import Step, carry_out, is_done, steps


@dataclass(frozen=True)
class Plan:
    """The actions that ``provision`` will execute."""

    prefix: Path
    distribution: str
    packages: list[str]
    """Debian packages that are missing"""
    pins: dict[str, str]
    """PyPI project -> version of the files to fetch"""
    steps: list[Step]
    """missing or outdated downloads and builds"""
    current: bool
    """whether ``stack.json`` and the modulefiles describe the present state"""

    @property
    def empty(self) -> bool:
        return not self.packages and not self.steps and self.current

    def lines(self) -> list[str]:
        """Return one line of text for each action."""
        lines = []
        if self.packages:
            lines.append(f"install {len(self.packages)} Debian packages: {' '.join(self.packages)}")
        if self.pins:
            pinned = " ".join(f"{name}=={version}" for name, version in self.pins.items())
            lines.append(f"fetch from PyPI: {pinned}")
        if any(step.name == "source-debian" for step in self.steps):
            lines.append(f"fetch from Debian: sources of {', '.join(SOURCES)}")
        if builds := [step.what for step in self.steps if step.verb == "build"]:
            lines.append(f"build {', '.join(builds)}")
        if lines or not self.current:
            lines.append(f"write {self.prefix / FILE} and the modulefiles")
        return lines


def plan(prefix: Path = PREFIX) -> Plan:
    """Return the actions of ``provision``. Raises LabError on an unsupported system."""
    version, release = supported_release()
    installed = machine.installed()
    missing = [name for name in release.packages if name not in installed]
    stamps = prefix / "stamps"
    todo = [s for s in steps(prefix, release, installed) if not is_done(s, stamps)]
    pins = {**pypi.pins(pypi.WHEELS), **pypi.pins(pypi.SOURCES)}
    wanted = {"mpich": "mpich", "intelmpi": "impi-rt", "mpi4py": "mpi4py"}
    names = {wanted.get(step.name, step.name.removeprefix("source-")) for step in todo}
    current = False
    if not missing and not todo:
        try:
            stack = read(prefix)
            current = stack.id == describe(prefix, version, release, installed).id
            current = current and modules.current(stack, prefix / "modules")
        except LabError:
            current = False
    return Plan(
        prefix=prefix,
        distribution=f"Debian {version}",
        packages=missing,
        pins={name: pin for name, pin in pins.items() if name in names},
        steps=todo,
        current=current,
    )


def provision(progress: Say, prefix: Path = PREFIX) -> Stack:
    """Install and build the missing parts of the stack. Return its description.

    ``progress`` gets a line of text before and after each long step. Root is necessary only if
    Debian packages are missing. Raises LabError.
    """
    apt.remove_left()
    wanted = plan(prefix)
    if wanted.empty:
        return read(prefix)
    if wanted.packages:
        machine.require_root(
            "installing the Debian packages " + " ".join(wanted.packages),
        )
    prefix.mkdir(parents=True, exist_ok=True)
    old_mask = os.umask(0o022)  # ordinary users run these programs
    try:
        with locked(prefix / "lock", progress):
            return _provision(progress, prefix)
    finally:
        os.umask(old_mask)


def _provision(progress: Say, prefix: Path) -> Stack:
    version, release = supported_release()
    missing = plan(prefix).packages
    if missing:
        progress(f"installing {len(missing)} Debian packages")
        apt.install(missing, progress)
    installed = machine.installed()
    work = prefix / "work"
    try:
        for step in steps(prefix, release, installed):
            if not is_done(step, prefix / "stamps"):
                start = time.monotonic()
                progress(f"{step.verb}ing {step.what}")
                carry_out(step, prefix / "stamps", work)
                progress(f"{step.what}: done in {time.monotonic() - start:.1f} s")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    stack = describe(prefix, version, release, installed)
    modules.write(stack, prefix / "modules")
    _compile_python(prefix)
    stack.save()
    return stack


def _compile_python(prefix: Path) -> None:
    """Byte-compile mpi4py: the job user, who imports it, cannot write in ``prefix``."""
    for folder in ("python", "osu"):
        command = ["/usr/bin/python3", "-I", "-m", "compileall", "-q", str(prefix / folder)]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
