"""Set-up of a command before its work: the software of the lab, and the lab itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from seatrial.base import signals
from seatrial.base.errors import InputError, LabError
from seatrial.base.paths import PARQUET_LOCK
from seatrial.base.say import Say
from seatrial.cli.screen import out
from seatrial.plan.model import Plan
from seatrial.site.model import Site
from seatrial.stack.apt import install
from seatrial.stack.machine import installed
from seatrial.trial.machine import Machine, ThisMachine, check_slurm
from seatrial_lab.software import provision as software

if TYPE_CHECKING:
    from seatrial_lab.protocol import Lab


@contextmanager
def told_steps(console: Console, first: str) -> Iterator[Say]:
    """Yield what shows a step of a long command: beside a spinner on a terminal, else as a line.

    ``first`` is shown until the first step.
    """
    with console.status(first) as status:

        def tell(step: str) -> None:
            if console.is_terminal:
                status.update(escape(step[:100]))
            else:
                console.print(f"  {step}", markup=False)

        yield tell


def provision_lab(required: bool) -> None:
    """Print what the lab lacks, then install and build it. Does nothing if nothing is missing.

    If the installation fails, raises LabError if the software is ``required``; otherwise prints
    the same sentence and continues.
    """
    try:
        steps = software.plan()
        if steps.empty:
            return
        out.print("The lab needs, once on this machine:")
        for sentence in steps.lines():
            out.print(f"  {sentence}", markup=False)
        with told_steps(out, "preparing") as tell:
            software.provision(tell)
    except LabError as error:
        if required:
            raise
        out.print(f"without the lab's software: {error}", markup=False)


#: packages of the tests beside those of the lab: a browser for the report, a linter of job scripts,
#: the simulator of ``seatrial predict``, a Prometheus for exported figures
TEST_PACKAGES = (
    "chromium", "cpio", "fonts-dejavu-core", "gfortran", "libsimgrid-dev", "prometheus",
    "shellcheck",
)  # fmt: skip


def provision_tests() -> None:
    """Install what only tests need. Tests without theirs are skipped."""
    provision_pyarrow()
    missing = [name for name in TEST_PACKAGES if name not in installed()]
    if not missing:
        return
    if os.geteuid() != 0:
        out.print(f"without {', '.join(missing)}: installing Debian packages needs root")
        return
    out.print(f"The tests need, once: install {len(missing)} Debian packages: {' '.join(missing)}")
    try:
        install(missing, lambda line: out.print(f"  {line}", markup=False))
    except LabError as error:
        out.print(f"without {', '.join(missing)}: {error}", markup=False)


def provision_pyarrow() -> None:
    """Install pyarrow in the virtual environment, for tests of the export to Parquet."""
    if find_spec("pyarrow"):
        return
    out.print("The tests need, once: install pyarrow from PyPI")
    command = [sys.executable, "-I", "-m", "pip", "install", "-q", "--require-hashes", "-r"]
    done = subprocess.run(
        [*command, str(PARQUET_LOCK)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        out.print(f"without pyarrow: {last}", markup=False)


@contextmanager
def lab_for(
    site: Site, site_file: Path, output: Path, keep: bool, plan: Plan
) -> Iterator[list[Machine]]:
    """The machines that a trial of ``site`` runs on. Labs that this starts are ended afterwards.

    A virtual lab has further guests for the plan's NIC profiles, unless it was up: a fault may be
    planted in it. Raises LabError if a lab does not start, or the cluster's Slurm does not answer.
    """
    if site.lab is None:
        check_slurm(ThisMachine(), plan.partition, plan.backend)
        yield [ThisMachine()]
        return
    from seatrial_lab.adapter import further_lab, guests_for, lab_of_site, machine_of

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--output {output}: {error.strerror}") from None
    lab = lab_of_site(str(site_file))
    further: list[Lab] = []
    ended: list[Lab] = []  # a start that fails removes its parts, except the logs that it names
    with signals_as_interrupt(), _ending(ended):
        with told_steps(out, "starting the lab") as tell:
            started = lab.up(lambda step: tell(f"starting the lab: {step}"))
            if started and not keep:
                ended.append(lab)
            profiles = len({case.profile for case in plan.cases})
            most = guests_for(site, profiles) if started else 1
            for number in range(2, most + 1):
                machine = further_lab(str(site_file), number)
                try:
                    if machine.up(partial(_tell_guest, tell, number, most)):
                        further.append(machine)
                        ended.append(machine)
                except LabError as error:
                    out.print(f"the trial runs with fewer guests: {error}", markup=False)
                    break
        for machine in (lab, *further):
            machine.add_bind(output.resolve())
        yield [machine_of(one) for one in (lab, *further)]


@contextmanager
def _ending(labs: list[Lab]) -> Iterator[None]:
    """End the labs that the list has at the end of the block, the last one first."""
    try:
        yield
    finally:
        # Ignored, so that the programs which this starts are not interrupted either.
        with signals.handled(signals.ENDING, signal.SIG_IGN):
            for lab in reversed(labs):
                lab.down()


def _tell_guest(tell: Say, number: int, most: int, step: str) -> None:
    tell(f"starting guest {number} of {most}: {step}")


def signals_as_interrupt() -> AbstractContextManager[None]:
    """During the block a signal that ends programs is as Ctrl-C, and those after it are ignored.

    So a start that is ended removes its parts, all of them.
    """
    return signals.handled(signals.ENDING, _as_interrupt)


def _as_interrupt(*_: object) -> None:
    for number in signals.ENDING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
