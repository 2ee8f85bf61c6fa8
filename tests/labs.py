"""Labs that tests share. Their names have the id of the process that started them, so labs of a
killed session are known: its end, or the next session, removes them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from seatrial_lab.adapter import end
from seatrial_lab.common import processes, state
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.native.engine import Lab


def own_name(what: str = "") -> str:
    """Name of an instance of this process."""
    return f"t{os.getpid()}" + (f"_{what}" if what else "")


def clear_dead_sessions() -> None:
    """Remove the labs of processes that are no more."""
    for name in state.instances():
        owner = re.fullmatch(r"[tv](\d+)(_.*)?", name)
        if owner and not processes.is_alive(int(owner[1])):
            end(name)


@contextmanager
def running(spec: LabSpec) -> Iterator[Lab]:
    """The lab of a specification, up for the block."""
    clear_dead_sessions()
    lab = Lab(spec)
    try:
        lab.up()
        yield lab
    finally:
        lab.down()


def plain() -> LabSpec:
    """A lab without NIC profiles, with what the tests in it need."""
    features = {
        name: ("nic_low_latency", "nic_cpu_saving", *more)
        for name, more in {"n1": ("fast",), "n2": (), "n3": (), "n4": ("nic_old_only",)}.items()
    }
    return LabSpec(
        instance=own_name(), partitions=("compute",), features=features, modulepath=("/opt/mods",)
    )
