"""The programs that are predicted, built for SMPI: NPB's IS and EP, and the ping-pong.

The source of IS and EP is that of the labs' stack: the C programs of SimGrid's source distribution.
SimGrid's EP computes a part of its loop only, extrapolates, and has one memory for all ranks; here
it computes all in memory of its own, so that its verification holds.
"""

from __future__ import annotations

from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.predict.simulation import PINGPONG, compile_c
from seatrial.stack.files import unpack_tar

KERNELS = ("is", "ep")
#: of ep.c: what it has, how often, and what it gets
_EDITS = (
    ("SMPI_SAMPLE_GLOBAL(k = 1, k <= np, k++, 0.25 * np, 0.03){", 1, "for (k = 1; k <= np; k++) {"),
    ("SMPI_SHARED_MALLOC", 2, "malloc"),
    ("SMPI_SHARED_FREE", 2, "free"),
    # thousands of operations under the heading Mop/s
    ("/tm/1000;", 1, "/tm/1000000.0;"),
)


def build_npb(archive: Path, folder: Path) -> dict[str, Path]:
    """Kernel -> program, which takes the number of ranks and the class. Raises LabError."""
    source = unpack_tar(archive, folder, "examples/smpi/NAS") / "examples/smpi/NAS"
    file = source / "ep.c"
    text = file.read_text()
    for old, count, new in _EDITS:
        if text.count(old) != count:
            raise LabError(
                f"ep.c is not the version this was written for: {old!r} occurs {text.count(old)} "
                f"times and not {count}"
            )
        text = text.replace(old, new)
    file.write_text(text)
    return {
        kernel: compile_c([source / f"{kernel}.c", source / "nas_common.c"], folder / kernel)
        for kernel in KERNELS
    }


def build_pingpong(folder: Path) -> Path:
    """Raises LabError."""
    return compile_c([PINGPONG], folder / "pingpong")
