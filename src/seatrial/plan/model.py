"""The shape of a plan, and of the round that ReFrame is to run of it.

A trial writes both beside its ReFrame settings: ``plan.json`` once, ``round.json`` before each run
of ReFrame. Holds data and look-ups; what a site means is decided in ``seatrial.plan.resolve``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from seatrial.base.errors import LabError
from seatrial.base.files import write_whole
from seatrial.benchmarks.benchmark import Benchmark
from seatrial.benchmarks.registry import registry
from seatrial.results.record import Case
from seatrial.stack.model import Package

PLAN_FILE = "plan.json"
ROUND_FILE = "round.json"
DATABASE = "reframe"  # folder of ReFrame's results, beside the folders of the trials


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PlannedPartition(Model):
    """A Slurm partition: further sbatch options, and what it is."""

    options: list[str] = []
    description: str = ""


class PlannedProfile(Model):
    """A NIC profile: how a job asks for it, and what a job under it must find.

    ``feature`` is the Slurm node feature, empty for ``default``. ``declared`` is the state of the
    nodes' NICs (``seatrial.site.nic_policy.declared``). ``interfaces``: network -> the interface
    that carries it. ``transports`` may run under it; ``benchmarks`` are those that the trial runs.
    ``effects`` are sentences on where it has no effect.
    """

    description: str = ""
    feature: str = ""
    declared: dict[str, Any]
    interfaces: dict[str, str]
    transports: list[str]
    benchmarks: list[str]
    effects: list[str] = []


class Attachment(Model):
    """The network that a transport uses under some NIC profiles, and its environment there."""

    network: str
    interface: str
    env: dict[str, str]
    profiles: list[str]


class PlannedTransport(Model):
    """A transport: how Slurm starts it, its programs, and the benchmarks that run under it."""

    benchmarks: list[str]
    launcher: list[str] = []
    path_report: str = ""
    overcommit: dict[str, str] = {}
    programs: dict[str, list[str]] = {}
    versions: dict[str, str] = {}
    packages: dict[str, Package] = {}
    modules: list[str] = []
    attachments: list[Attachment]  # the first has the profile ``default``

    def under(self, profile: str) -> Attachment:
        """Where its messages go under a profile. Raises KeyError for an unknown profile."""
        for one in self.attachments:
            if profile in one.profiles:
                return one
        raise KeyError(profile)


class Plan(Model):
    """A trial: its cases, and all that ReFrame, the checks and Slurm's jobs need of the site."""

    site: str
    description: str = ""
    login: str = ""
    lab_cores: int | None = None  # processors that all nodes of a lab share; None: not a lab
    virtual_time: bool = False  # the nodes' clock counts instructions
    partitions: dict[str, PlannedPartition]
    partition: str  # the one that the trial uses
    backend: Literal["slurm", "squeue"]
    options: list[str] = []  # sbatch options of every job
    jobs_in_queue: int = 64
    own_interfaces: dict[str, str]  # network -> its own interface, whatever a profile makes of it
    profiles: dict[str, PlannedProfile]  # in the order of the site file
    transports: dict[str, PlannedTransport]
    benchmarks: dict[str, dict[str, Any]]  # name -> settings
    blas: dict[str, str] = {}  # library -> folder
    modules_system: str = "nomod"
    modulepath: list[str] = []
    stack: dict[str, Any] = {}  # what a trial's record says of it
    repeats: int
    reruns: int
    time_limit_s: int
    cases: list[Case]
    selection: dict[str, list[str]] = {}  # option -> patterns of the user
    outside: list[Case] = []  # cases of the site that the selection leaves out
    left_out: list[str] = []  # sentences on what the site wants and the stack cannot give

    def benchmark(self, name: str) -> Benchmark[Any]:
        """A benchmark with the site's settings. Raises KeyError where the site has none."""
        kind = registry()[name]
        return kind(kind.Settings.model_validate(self.benchmarks[name]))

    def partition_name(self, profile: str, partition: str = "") -> str:
        """ReFrame's name of a Slurm partition (the trial's) under a NIC profile."""
        name = partition or self.partition
        return name if profile == "default" else f"{name}_{profile}"


class CheckSelection(Model):
    """What ReFrame is to run of a check. ``nodelists``: ``transport.nodes`` -> where."""

    transports: list[str] = []
    nodes: list[int] = []
    nodelists: dict[str, str] = {}


class HeldJob(Model):
    """The job in which a trial holds nodes under a NIC profile."""

    id: str
    nodes: list[str]


class Round(Model):
    """One run of ReFrame in a trial: the cases of one NIC profile.

    ``checks`` None: all of the plan. ``job``: the steps run in it; None: each check has a job.
    ``suffix`` distinguishes the round's files in the trial's folder.
    """

    profile: str
    folder: str
    database: str
    repeats: list[int]
    suffix: str = ""
    checks: dict[str, CheckSelection] | None = None
    job: HeldJob | None = None

    def selects(self, check: str, transport: str) -> bool:
        return self.checks is None or transport in self._selection(check).transports

    def node_counts(self, check: str, usual: list[int]) -> list[int]:
        """The numbers of nodes to run a check on."""
        if self.checks is None:
            return usual
        return [count for count in usual if count in self._selection(check).nodes]

    def nodelist(self, check: str, transport: str, nodes: int) -> str:
        """The nodes that a check must run on; empty: those that Slurm chooses."""
        return self._selection(check).nodelists.get(f"{transport}.{nodes}", "")

    def held(self, profile: str) -> HeldJob | None:
        """The job that holds nodes under a profile."""
        return self.job if profile == self.profile else None

    def _selection(self, check: str) -> CheckSelection:
        return (self.checks or {}).get(check, CheckSelection())


def write(data: Plan | Round, file: Path) -> None:
    """Write a plan or a round, whole or not at all. Raises OSError."""
    write_whole(file, data.model_dump_json(indent=1) + "\n")


@lru_cache(maxsize=4)
def read_plan(file: Path) -> Plan:
    """The plan that a trial wrote. Raises LabError where it cannot be read."""
    try:
        return Plan.model_validate_json(file.read_text())
    except (OSError, ValueError) as error:
        raise LabError(f"{file}: not a plan of this version of Seatrial: {error}") from None


def read_round(folder: Path) -> Round | None:
    """The round beside a plan; None where none is under way. Raises LabError."""
    file = folder / ROUND_FILE
    try:
        return Round.model_validate_json(file.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise LabError(f"{file}: not a round of this version of Seatrial: {error}") from None
