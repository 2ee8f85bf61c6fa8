"""The head of a job template: what it runs, how it starts ranks, which values it takes.

Each template begins with a Jinja comment that holds YAML of this shape, so that a template is one
file. Nothing here knows a site or renders a template.
"""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from seatrial.base import yamlfile
from seatrial.base.errors import InputError
from seatrial.base.paths import CHECKOUT
from seatrial.base.suggest import suggest
from seatrial.base.yamlfile import InvalidValue

FOLDER = CHECKOUT / "slurm-templates" / "jobs"
SUFFIX = ".sbatch.j2"
_HEAD = re.compile(r"\A\{%#\n(.*?)^#%\}", re.S | re.M)
_TIME = re.compile(r"\d{1,6}(:\d{1,2}){0,2}|\d{1,4}-\d{1,2}(:\d{1,2}){0,2}")

Kind = Literal["communication-bound", "compute-bound", "latency-bound"]
Launcher = Literal["srun", "mpirun", "mpiexec"]
#: MPI -> what can start its programs, the default first
LAUNCHERS: dict[str, tuple[Launcher, ...]] = {
    "openmpi": ("srun", "mpirun"),
    "mpich": ("srun", "mpiexec"),
    "intelmpi": ("srun", "mpiexec"),
}


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Parameter(Model):
    """A value that a user sets by ``--set NAME=VALUE``.

    ``text`` is any text, ``words`` is split as a shell splits it (each word becomes one argument),
    ``time`` is a time limit in sbatch's syntax. ``program`` names the program of the site's stack
    that is the default; ``{other}`` in it stands for the value of the parameter ``other``.
    """

    type: Literal["text", "words", "integer", "number", "choice", "time"] = "text"
    help: str
    default: Any = None
    required: bool = False
    choices: list[str] = []
    least: float | None = None
    most: float | None = None
    program: str = ""

    @model_validator(mode="after")
    def _coherent(self) -> Parameter:
        if (self.type == "choice") != bool(self.choices):
            raise InvalidValue("choices belong to type choice", "give both or neither", "choices")
        return self

    def parse(self, name: str, text: str) -> Any:
        """The value in ``text``. Raises InputError that names the parameter."""
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            raise InputError(
                f"{name}: a NUL or bytes that are not UTF-8: no argument can hold these"
            )
        value = self._converted(name, text)
        if self.choices and value not in self.choices:
            raise InputError(
                f"{name}: {text!r} is not one of its values ({suggest(text, self.choices)})"
            )
        if isinstance(value, int | float):
            low, high = self.least, self.most
            if (low is not None and value < low) or (high is not None and value > high):
                span = f"{low:g} to {high:g}" if high is not None else f"{low:g} or more"
                raise InputError(f"{name}: {text} is out of range: {span}")
        return value

    def _converted(self, name: str, text: str) -> Any:
        try:
            if self.type == "integer":
                return int(text)
            if self.type == "number":
                value = float(text)
                if value != value or value in (float("inf"), float("-inf")):
                    raise ValueError
                return value
        except ValueError:
            what = "a whole number" if self.type == "integer" else "a number"
            raise InputError(f"{name}: {text!r} is not {what}") from None
        if self.type == "words":
            try:
                return shlex.split(text)
            except ValueError as error:
                hint = "quote it as for a shell"
                raise InputError(f"{name}: {text!r} cannot be split: {error} ({hint})") from None
        if self.type == "time" and not _TIME.fullmatch(text):
            raise InputError(
                f"{name}: {text!r} is not a time limit (write 30, 2:00:00 or 1-12:00:00)"
            )
        return text


#: the parameters of every template
COMMON: dict[str, Parameter] = {
    "job_name": Parameter(help="name of the job (default is the template's name)"),
    "time": Parameter(type="time", default="30:00", help="time limit, in sbatch's syntax"),
    "partition": Parameter(help="Slurm partition (default is that of the site's trials)"),
    "account": Parameter(default="", help="Slurm account to charge"),
    "mem": Parameter(
        default="",
        help="memory of each node, in sbatch's syntax (default is all of it for whole nodes, else "
        "the cluster's)",
    ),
    "distribution": Parameter(
        default="", help="order of ranks and CPUs, in sbatch's syntax (default is by the threads)"
    ),
    "cpus_per_rank": Parameter(type="integer", least=1, help="CPUs of each rank"),
    "log": Parameter(default="%x-%j.out", help="file for the job's output (%x name, %j id)"),
    "module": Parameter(help="environment module to load, or none (default is the stack's)"),
    "module_folder": Parameter(default="", help="folder to search for that module first"),
}


class Header(Model):
    """What a template says about itself."""

    description: str
    kind: Kind | None = Field(
        default=None, description="kind of its application, if always the same"
    )
    kinds: dict[str, Kind] = Field(
        default={}, description="value of the parameter 'by' -> kind of the application"
    )
    by: str = ""
    launchers: list[Launcher] = ["srun", "mpirun", "mpiexec"]
    nodes: int = 2
    ranks_per_node: int | None = Field(default=1, description="null: one for each core")
    fill: bool = Field(
        default=False, description="one rank for each socket, whose threads use all its cores"
    )
    exclusive: bool = Field(default=False, description="whole nodes, also without a NIC profile")
    parameters: dict[str, Parameter] = {}


class Template(Model):
    name: str
    header: Header

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Its own parameters, then those of all templates."""
        return {**self.header.parameters, **COMMON, **self.header.parameters}

    def launchers(self, mpi: str) -> list[Launcher]:
        """The launchers of an MPI ("": none) that the template can use, the default first."""
        return [
            launcher
            for launcher in LAUNCHERS.get(mpi, ("srun",))
            if launcher in self.header.launchers
        ]


@cache
def load_templates(folder: Path = FOLDER) -> dict[str, Template]:
    """The templates for users of a folder by name. Raises InputError where a head is wrong.

    A file whose name begins with ``_`` is a part of other templates, or is for Seatrial itself.
    """
    files = [file for file in sorted(folder.glob(f"*{SUFFIX}")) if not file.name.startswith("_")]
    return {template.name: template for template in map(read_template, files)}


@cache
def read_template(file: Path) -> Template:
    """The template in a file. Raises InputError where its head is wrong."""
    match = _HEAD.match(file.read_text())
    if not match:
        raise InputError(f"{file}: does not begin with a head: YAML between {{%# and #%}}")
    header, _ = yamlfile.loads(match[1], Header, file)
    return Template(name=file.name.removesuffix(SUFFIX), header=header)


def load_template(name: str, folder: Path = FOLDER) -> Template:
    """The template called ``name``. Raises InputError with a suggestion."""
    known = load_templates(folder)
    if name not in known:
        raise InputError(f"there is no job template {name!r} ({suggest(name, known)})")
    return known[name]
