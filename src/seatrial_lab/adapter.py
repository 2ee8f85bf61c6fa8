"""Select the engine for a site or for the name of a lab.

No other module knows which engines exist.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial.base.errors import InputError, LabError
from seatrial.base.say import Say, say_nothing
from seatrial.site.load import load_site, load_with_lines, site_file
from seatrial.site.model import Site
from seatrial.stack.files import digest
from seatrial.trial.host import available_MiB
from seatrial.trial.machine import Machine
from seatrial_lab.common import state
from seatrial_lab.common.paths import RUN_ROOT, instance_of
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.native import status as native_status
from seatrial_lab.native.engine import Lab as NativeLab
from seatrial_lab.native.machine import LabMachine
from seatrial_lab.native.site import spec_for_site
from seatrial_lab.protocol import Engine, Lab
from seatrial_lab.virtual import status as virtual_status
from seatrial_lab.virtual.engine import VirtualLab
from seatrial_lab.virtual.machine import VirtualMachine
from seatrial_lab.virtual.site import virtual_spec
from seatrial_lab.virtual.spec import VirtualSpec

JOBS_OF_GUEST = 10_000  # job ids between the first of one guest and the first of the next
FURTHER_NAME = 16  # characters of a lab's name in those of its further guests: 20 are the most


class Native:
    """The engine of labs whose nodes are namespaces."""

    def of_site(self, file: Path, site: Site, instance: str, accounting: bool) -> NativeLab:
        spec = spec_for_site(str(file), instance)
        return NativeLab(replace(spec, accounting=spec.accounting and accounting))

    def attach(self, instance: str) -> NativeLab:
        return NativeLab.attach(instance)

    def end(self, instance: str, progress: Say) -> bool:
        return NativeLab(LabSpec(instance=instance)).down(progress)

    def machine(self, lab: NativeLab) -> Machine:
        return LabMachine(lab)

    def status(self, instance: str) -> dict[str, Any]:
        return native_status.status(instance)


class Virtual:
    """The engine of labs whose nodes are in an emulated machine."""

    def of_site(self, file: Path, site: Site, instance: str, accounting: bool) -> VirtualLab:
        return VirtualLab(virtual_spec(site, instance))

    def attach(self, instance: str) -> VirtualLab:
        return VirtualLab.attach(instance)

    def end(self, instance: str, progress: Say) -> bool:
        return VirtualLab(VirtualSpec(LabSpec(instance=instance), ())).down(progress)

    def machine(self, lab: VirtualLab) -> Machine:
        return VirtualMachine(lab)

    def status(self, instance: str) -> dict[str, Any]:
        return virtual_status.status(instance)


NATIVE: Engine = Native()
VIRTUAL: Engine = Virtual()


def engine_of(instance: str) -> Engine:
    """Return the engine of the lab of that name; the native engine if there is no such lab."""
    return VIRTUAL if state.engine_of(instance) == VirtualLab.engine else NATIVE


def lab_of_site(name: str, instance: str | None = None, accounting: bool = True) -> Lab:
    """Return the lab of a site, started or not. Raises InputError."""
    file = site_file(name)
    site, lines = load_with_lines(file)
    engine = VIRTUAL if site.virtual else NATIVE
    try:
        return engine.of_site(file, site, instance_of(site.name, instance), accounting)
    except InputError as error:
        # What an engine cannot do is often a matter of several fields: then it names none.
        lab = "lab" if site.lab else ""
        raise InputError(
            [
                lines.problem(
                    problem.field or lab, problem.message or str(problem.file), problem.correction
                )
                for problem in error.problems
            ]
        ) from None


def guests_for(site: Site, profiles: int) -> int:
    """Return how many guests run a trial of a virtual lab: one for each processor that it may use,
    as one QEMU uses one, as far as they have memory and a NIC profile to run."""
    if site.lab is None or not site.virtual:
        return 1
    processors = len(os.sched_getaffinity(0))
    memory = available_MiB() // site.lab.memory_MiB
    return max(1, min(profiles, processors, memory))


def further_lab(name: str, number: int, instance: str | None = None) -> Lab:
    """Return guest ``number`` (2, 3 ...) of a virtual site, for the trial of its lab ``instance``.

    It is a lab of its own. Its job ids begin elsewhere, so that they are unique in the trial.
    """
    site = load_site(site_file(name))
    spec = virtual_spec(site, further_instance(instance_of(site.name, instance), number))
    first = f"FirstJobId={JOBS_OF_GUEST * (number - 1) + 1}"
    conf = (*spec.lab.extra_slurm_conf, first)
    return VirtualLab(replace(spec, lab=replace(spec.lab, extra_slurm_conf=conf)))


def further_instance(instance: str, number: int | str) -> str:
    """Return the name of a further guest of a lab."""
    if len(instance) > FURTHER_NAME:
        instance = f"{instance[: FURTHER_NAME - 5]}_{digest([instance])[:4]}"
    return f"{instance}_g{number}"


def attach(instance: str) -> Lab:
    """Return the running lab of that name. Raises LabError if there is none."""
    return engine_of(instance).attach(instance)


def end(instance: str, progress: Say = say_nothing) -> bool:
    """End the lab of that name, of either kind, and what a killed trial left of its further guests.

    Returns False if there is no such lab.
    """
    start = further_instance(instance, "")  # compared as text: the name may hold a pattern
    for left in RUN_ROOT.glob("*"):
        if not (left.name.startswith(start) and left.name.removeprefix(start).isdigit()):
            continue
        if state.engine_of(left.name) in ("", VirtualLab.engine):  # "": a part of one
            VIRTUAL.end(left.name, progress)
    return engine_of(instance).end(instance, progress)


def status(instance: str) -> dict[str, Any]:
    """Return the state of the lab of that name; ``seatrial_lab.native.status`` lists the keys."""
    return engine_of(instance).status(instance)


def checkout_of(instance: str) -> str:
    """Return the checkout that started the lab of that name; empty if that is not known.

    A lab whose state cannot be read must still be possible to end.
    """
    try:
        return str(attach(instance).spec.checkout)
    except (LabError, OSError, ValueError, KeyError, TypeError):
        return ""


def machine_of(lab: Lab) -> Machine:
    """Return the login node of a running lab, for a trial."""
    return engine_of(lab.spec.instance).machine(lab)
