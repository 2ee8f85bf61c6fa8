"""Which BLAS a program was really linked with.

Not for choosing one: Spack does that. A linker that finds a system library first, or a loader
that follows the distribution's alternatives, replaces Spack's choice without a word, and the
figures are then those of another library.
"""

import os
import re
from pathlib import Path

from spack.package import Executable, InstallError


def check_blas(spec, program):
    """Raise InstallError unless ``program`` loads a library of the spec's BLAS.

    A static BLAS is part of the program, which then must not load any other.
    """
    text = Executable("ldd")(program, output=str)
    loaded = dict(re.findall(r"^\s*(\S+) => (\S+)", text, re.M))
    chosen = {os.path.realpath(lib) for lib in spec["blas"].libs if ".so" in lib}
    found = {name: path for name, path in loaded.items() if os.path.realpath(path) in chosen}
    if chosen and not found:
        raise InstallError(
            f"{Path(program).name} was to use {spec['blas'].name} "
            f"({', '.join(sorted(chosen))}), but the loader finds none of it",
            long_msg=text,
        )
    others = [name for name in loaded if re.match(r"lib(open)?blas\.|libblis|libacml", name)]
    if not chosen and others:
        raise InstallError(
            f"{Path(program).name} was to use the static {spec['blas'].name}, "
            f"but loads {', '.join(others)}",
            long_msg=text,
        )
