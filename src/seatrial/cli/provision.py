"""Set-up that a verb does before its work: the lab's software, and the lab itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from seatrial.base.errors import InputError, LabError
from seatrial.site.model import Site
from seatrial.stack.apt import install
from seatrial.stack.machine import installed
from seatrial.trial.machine import Machine, ThisMachine
from seatrial_lab.software.provision import plan, provision

out = Console(highlight=False, soft_wrap=True)


def provision_lab(required: bool) -> None:
    """Install and build what the lab needs, after saying so; nothing where it is all there.

    Raises LabError, naming what is missing, where it cannot be had and is ``required``;
    otherwise says the same sentence and goes on.
    """
    try:
        steps = plan()
        if steps.empty:
            return
        out.print("The lab needs, once on this machine:")
        for sentence in steps.lines():
            out.print(f"  {sentence}", markup=False)
        with out.status("preparing") as status:

            def tell(line: str) -> None:
                if out.is_terminal:
                    status.update(line[:100])
                else:
                    out.print(f"  {line}", markup=False)

            provision(tell)
    except LabError as error:
        if required:
            raise
        out.print(f"without the lab's software: {error}", markup=False)


#: what tests use beside the lab: a browser that looks at the report, a reader of job scripts
TEST_PACKAGES = ("chromium", "cpio", "fonts-dejavu-core", "shellcheck")


def provision_tests() -> None:
    """Install what only tests need, where root can; a test that misses it says so."""
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


@contextmanager
def lab_for(site: Site, site_file: Path, output: Path, keep: bool) -> Iterator[Machine]:
    """The machine that a trial of ``site`` runs on; a lab that this starts is ended again."""
    if site.lab is None:
        yield ThisMachine()
        return
    from seatrial_lab.adapter import lab_of_site, machine_of

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--output {output}: {error.strerror}") from None
    lab = lab_of_site(str(site_file))
    others = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, _as_interrupt) for number in others}
    started = False  # a start that fails clears up after itself, but for the logs it names
    try:
        with out.status("starting the lab") as status:
            started = lab.up(lambda line: status.update(line))
        lab.add_bind(output.resolve())
        yield machine_of(lab)
    finally:
        if started and not keep:
            # Ignored, not noted: the programs that this starts must not be interrupted either.
            for number in (signal.SIGINT, *others):
                before.setdefault(number, signal.getsignal(number))
                signal.signal(number, signal.SIG_IGN)
            lab.down()
        for number, handler in before.items():
            signal.signal(number, handler)


def _as_interrupt(*_: object) -> None:
    raise KeyboardInterrupt
