"""The models of a plan, and of the part of a trial that one run of ReFrame executes.

A trial writes both beside its ReFrame settings: ``plan.json`` once, ``part.json`` before each run
of ReFrame. ``seatrial.plan.resolve`` makes a plan from a site.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from seatrial.base.errors import LabError
from seatrial.base.files import write_whole
from seatrial.base.names import RAIL
from seatrial.benchmarks.benchmark import Benchmark, Job, Rail, Step
from seatrial.benchmarks.registry import registry
from seatrial.nic.profile import DataPath
from seatrial.results.record import Case, Machine, TransportUse
from seatrial.stack.model import Package

PLAN_FILE = "plan.json"
PART_FILE = "part.json"


#: of a job's time limit over the sum of the limits of its steps, in s
MARGIN_S = 30


def job_limit_s(steps: Iterable[Step], step_limit_s: int) -> int:
    """The time limit of a job with these steps, in s; ``step_limit_s`` is that of most steps."""
    return sum(step.limit_s or step_limit_s for step in steps) + MARGIN_S


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PlannedPartition(Model):
    """A Slurm partition: its sbatch options and description."""

    options: list[str] = []
    description: str = ""


class PlannedProfile(Model):
    """A NIC profile: how a job requests it, and the state that a job under it verifies.

    ``feature`` is the Slurm node feature, empty for ``default``. ``declared`` is the state of the
    nodes' NICs (``seatrial.site.nic_policy.declared``). ``interfaces``: network -> the interface
    that carries it. ``transports``: the transports that may run under it. ``benchmarks``: the
    benchmarks that the trial runs under it. ``effects``: notes on transports that it does not
    affect.
    """

    description: str = ""
    feature: str = ""
    declared: dict[str, Any]
    interfaces: dict[str, str]
    transports: list[str]
    benchmarks: list[str]
    effects: list[str] = []


def environment_name(case: Case) -> str:
    """ReFrame's name of the environment that a case runs in: its transport on its network."""
    return f"{case.transport}{RAIL}{case.network}" if case.network else case.transport


class Attachment(Model):
    """A network that a transport uses under some NIC profiles, and its environment there."""

    network: str
    interface: str
    env: dict[str, str]
    profiles: list[str]


class PlannedTransport(Model):
    """A transport: its srun options, its programs, and the benchmarks that run under it.

    ``declared`` is the site's part of ``launcher`` and of the environments; None: a pseudo
    transport.
    """

    declared: TransportUse | None = None
    benchmarks: list[str]
    launcher: list[str] = []
    path_report: str = ""
    data_path: DataPath = "kernel"
    overcommit: dict[str, str] = {}
    programs: dict[str, list[str]] = {}
    versions: dict[str, str] = {}
    packages: dict[str, Package] = {}
    modules: list[str] = []
    attachments: list[Attachment]  # the first has the profile ``default``
    used_at_once: list[Attachment] = []  # the networks that a benchmark spans
    within_env: dict[str, str] = {}
    within_node: str = ""

    def under(self, profile: str, network: str = "") -> Attachment:
        """Its environment under a profile on a network; "": on its first.

        Raises KeyError if there is none.
        """
        for attachment in self.attachments:
            if profile in attachment.profiles and network in ("", attachment.network):
                return attachment
        raise KeyError(f"{profile} {network}".rstrip())


class Plan(Model):
    """A trial: its cases, and all that ReFrame, the checks and Slurm's jobs need of the site."""

    site: str
    description: str = ""
    lab_cores: int | None = None  # processors that all nodes of a lab share; None: not a lab
    own_cores: int | None = None  # processors of each node of a lab; None: they share ``lab_cores``
    virtual_time: bool = False  # the nodes' clock counts instructions
    partitions: dict[str, PlannedPartition]
    partition: str  # the one that the trial uses
    backend: Literal["slurm", "squeue"]
    options: list[str] = []  # sbatch options of every job
    jobs_in_queue: int = 64
    own_interfaces: dict[str, str]  # network -> its own interface, also if a bond replaces it
    rdma_ports: dict[str, str] = {}  # network -> RDMA device and port, as mlx5_0:1; %n: the node
    line_rates: dict[str, int] = {}  # network -> bit/s, of the networks whose rate the site has
    profiles: dict[str, PlannedProfile]  # in the order of the site file
    transports: dict[str, PlannedTransport]
    benchmarks: dict[str, dict[str, Any]]  # name -> settings
    blas: dict[str, str] = {}  # library -> folder
    modules_system: str = "nomod"
    modulepath: list[str] = []
    stack: dict[str, Any] = {}  # for the record of the trial
    machine: Machine = Machine()
    repeats: int  # of each case in a round
    rounds: int = 1
    reruns: int
    # of the site, where the user may have chosen others
    site_repeats: int | None = None
    site_rounds: int | None = None
    site_reruns: int | None = None
    round_limit_s: int  # of each round, without the time in Slurm's queue
    cases: list[Case]
    selection: dict[str, list[str]] = {}  # option -> patterns of the user
    outside: list[Case] = []  # cases of the site that the selection leaves out
    lacking: list[Case] = []  # cases of the site that the stack cannot run
    left_out: list[str] = []  # notes on benchmarks of the site that the stack does not have
    unmeasured: list[str] = []  # sentences on networks of role test without a case

    def benchmark(self, name: str, changed: Mapping[str, Any] | None = None) -> Benchmark[Any]:
        """A benchmark with the site's settings, some of them ``changed``.

        Raises KeyError where the site has none, ValidationError where a change is wrong.
        """
        kind = registry()[name]
        return kind(kind.Settings.model_validate({**self.benchmarks[name], **(changed or {})}))

    @property
    def runs_of_case(self) -> int:
        """The planned runs of each case, without reruns."""
        return self.repeats * self.rounds

    @property
    def time_limit_s(self) -> int:
        """Of the whole trial, without the time in Slurm's queue."""
        return self.round_limit_s * self.rounds

    @cached_property
    def environments(self) -> dict[str, tuple[str, str]]:
        """ReFrame's name of an environment -> its transport and network."""
        names = {environment_name(case): (case.transport, case.network) for case in self.cases}
        return {name: (name, "") for name in self.transports} | names

    @cached_property
    def node_names(self) -> frozenset[str]:
        """The short names of the site's nodes, as the jobs report them."""
        return frozenset(
            name
            for profile in self.profiles.values()
            for key in ("nodes", "tests")
            for name in profile.declared.get(key, ())
        )

    def job(self, transport: str, profile: str, nodes: int, network: str = "") -> Job:
        """A job as its benchmark sees it. Raises KeyError for an unknown transport or profile."""
        part = self.transports[transport]
        attachment = part.under(profile, network)
        attachments = [one for one in part.used_at_once if profile in one.profiles]
        rails = {one.network: Rail(one.network, one.interface, one.env) for one in attachments}
        for one in attachments:  # a profile has one bond
            if one.interface != self.own_interfaces[one.network]:
                members = self.own_interfaces.keys() - self.profiles[profile].interfaces.keys()
                rails |= dict.fromkeys(members, rails[one.network])
        return Job(
            nodes=nodes,
            transport=transport,
            programs=part.programs,
            interface=attachment.interface,
            own_interfaces=self.own_interfaces,
            rdma_port=self.rdma_ports.get(attachment.network, ""),
            blas=self.blas,
            env=attachment.env,
            rails=rails,
            within_env=part.within_env,
            within_node=part.within_node,
            nodes_share_cores=self.lab_cores is not None,
        )

    def has_too_few_cores(self, nodes: int, ranks_per_node: int) -> bool:
        """Whether ranks of a step share processors of a lab, so that those that wait must sleep."""
        if self.own_cores is not None:
            return ranks_per_node > self.own_cores
        return self.lab_cores is not None and nodes * ranks_per_node > self.lab_cores

    def partition_name(self, profile: str, partition: str = "") -> str:
        """ReFrame's name of a Slurm partition (the trial's) under a NIC profile."""
        name = partition or self.partition
        return name if profile == "default" else f"{name}_{profile}"


class CheckSelection(Model):
    """The part of a check to run.

    ``environments`` are those of ReFrame. ``nodelists``: ``environment.nodes`` -> the nodes to run
    on.
    """

    environments: list[str] = []
    nodes: list[int] = []
    nodelists: dict[str, str] = {}


class HeldJob(Model):
    """The job in which a trial holds nodes under a NIC profile."""

    id: str
    nodes: list[str]


class Part(Model):
    """One run of ReFrame in a trial: the cases of one NIC profile in one round.

    ``checks`` None: all of the plan. ``job``: the steps run in it; None: each check has a job.
    ``suffix`` distinguishes the part's files in the trial's folder.
    """

    profile: str
    folder: str
    database: str
    repeats: list[int]
    suffix: str = ""
    checks: dict[str, CheckSelection] | None = None
    job: HeldJob | None = None

    def selects(self, check: str, environment: str) -> bool:
        return self.checks is None or environment in self._selection(check).environments

    def node_counts(self, check: str, usual: list[int]) -> list[int]:
        """The node counts that a check runs on."""
        if self.checks is None:
            return usual
        return [count for count in usual if count in self._selection(check).nodes]

    def nodelist(self, check: str, environment: str, nodes: int) -> str:
        """The nodes that a check must run on; empty: Slurm chooses."""
        return self._selection(check).nodelists.get(f"{environment}.{nodes}", "")

    def held(self, profile: str) -> HeldJob | None:
        """The job that holds nodes under a profile."""
        return self.job if profile == self.profile else None

    def _selection(self, check: str) -> CheckSelection:
        return (self.checks or {}).get(check, CheckSelection())


def write(data: Plan | Part, file: Path) -> None:
    """Write a plan or a part in one atomic step. Raises OSError."""
    write_whole(file, data.model_dump_json(indent=1) + "\n")


@lru_cache(maxsize=4)
def read_plan(file: Path) -> Plan:
    """The plan that a trial wrote. Raises LabError if it cannot be read."""
    try:
        return Plan.model_validate_json(file.read_text())
    except (OSError, ValueError) as error:
        raise LabError(f"{file}: not a plan of this version of Seatrial: {error}") from None


def read_part(folder: Path) -> Part | None:
    """The part beside a plan; None if none runs. Raises LabError if it cannot be read."""
    file = folder / PART_FILE
    try:
        return Part.model_validate_json(file.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise LabError(f"{file}: not a part of this version of Seatrial: {error}") from None
