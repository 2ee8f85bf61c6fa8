"""Lmod modulefiles of the transports, for the users of a lab.

Their content comes from the description of the stack. All labs share them: each has the test
network on the same interface, and the same name of the cluster.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from seatrial.base.paths import CHECKOUT
from seatrial.stack.files import fresh, replace
from seatrial.stack.model import Stack, Transport
from seatrial_lab.common.network import TEST
from seatrial_lab.common.render import CLUSTER

#: this folder, and that of the templates which Spack's modules include
TEMPLATES = (Path(__file__).parent, CHECKOUT / "spack-repo" / "templates")
SEARCH_PATHS = ("LD_LIBRARY_PATH", "PYTHONPATH", "PATH", "FI_PROVIDER_PATH")


def render(transport: Transport) -> str:
    """Return the text of a transport's modulefile (Lua)."""
    settings = [("SLURM_MPI_TYPE", transport.launcher[0].removeprefix("--mpi="))]
    paths = []
    for name, value in transport.env.items():
        if name in SEARCH_PATHS:
            # prepend_path puts the last folder first
            paths += [(name, folder) for folder in reversed(value.split(":"))]
        else:
            settings.append((name, _quoted(value)))
    if transport.compilers:
        paths.append(("PATH", transport.compilers))
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("module.lua.j2").render(
        transport=transport.name,
        part=transport,
        site="lab",
        cluster=CLUSTER,
        interface=TEST,
        rdma_port="",
        programs={name: shlex.join(words) for name, words in transport.programs.items()},
        settings=settings,
        paths=paths,
    )


def texts(stack: Stack) -> dict[str, str]:
    """The name and the text of one modulefile per MPI transport."""
    return {f"{name}.lua": render(stack.transport(name, TEST)) for name in stack.names()}


def current(stack: Stack, folder: Path) -> bool:
    """Whether the folder holds these modulefiles and no other file."""
    return texts(stack) == {file.name: file.read_text() for file in folder.glob("*")}


def write(stack: Stack, folder: Path) -> None:
    """Write the modulefiles. The new folder replaces the old one."""
    partial = fresh(folder.with_name(folder.name + ".partial"))
    for name, text in texts(stack).items():
        (partial / name).write_text(text)
    replace(partial, folder)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
