"""What all checks share: steps of one allocation, path proof, evidence, references.

A check (``reframe-checks/``) says which steps it runs and how their output is parsed;
everything else is here. Nothing here names a system, a profile, a transport or a
threshold: these come from the site through ReFrame's partition and environment.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, run_after, run_before, sanity_function, variable

from seatrial.benchmarks import programs
from seatrial.benchmarks.parsing import Parsed
from seatrial.checks import context, nic_proof, wire_up
from seatrial.checks.configuration import nodelist
from seatrial.checks.evidence import collect, packages_of, write_evidence
from seatrial.results.record import Metric, Run
from seatrial.site.profiles import carrying, measured_on

NODE_FILES = Path(__file__).parent / "node"
NODE_PYTHON = ["/usr/bin/python3", "-IS"]
MARGIN_S = 30  # of a job's time limit over the sum of its steps' limits
PORT = 5700


@dataclass
class Step:
    """One run of a program inside the job's allocation.

    ``command`` is run by ``tasks_per_node`` ranks on each of ``nodes`` nodes (all of the
    job's where None). ``variant`` names the case it belongs to, where a check has several.
    ``maps`` is a word: files so named that the program has mapped are noted.
    """

    name: str
    command: list[str]
    variant: str = ""
    nodes: int | None = None
    tasks_per_node: int = 1
    nodelist: str = ""
    env: dict[str, str] = field(default_factory=dict)
    maps: str = ""
    location: str | None = None  # "nodes": its figures belong to the nodes it ran on
    setup: list[str] = field(default_factory=list)  # shell lines run before it
    proves_path: bool = True  # it moves a volume that the counters must show


class Check(rfm.RunOnlyRegressionTest):
    """Base of all checks. A subclass sets ``benchmark`` and defines steps() and parse()."""

    #: the field of the site's ``benchmarks`` that this check belongs to
    benchmark = variable(str, value="")
    #: number of this repeat; Slurm starts lower ones first, which interleaves the cases
    repeat = parameter(context.repeats(), loggable=True)
    #: the benchmark reports the volume it moved, so the counters must show it
    proves_path = variable(bool, value=True)
    #: interrupts and softirqs are figures of this check, and not only noted beside its figures
    tells_activity = variable(bool, value=False)

    sourcesdir = str(NODE_FILES)
    executable = "true"
    local = False
    require_reference = True
    exclusive_access = True
    maintainers = ["the Seatrial developers"]

    # -- what a subclass provides

    def steps(self) -> list[Step]:
        """The steps of one job, in order."""
        raise NotImplementedError

    def parse(self, step: Step, folder: Path) -> Parsed:
        """Figures of one step, from the files in ``folder``. Raises ParseError."""
        raise NotImplementedError

    # -- what the site and the stack say

    @property
    def settings(self):
        """The site's parameters of this benchmark."""
        return getattr(context.site().benchmarks, self.benchmark)

    @property
    def transport(self) -> str:
        return self.current_environ.name

    @property
    def network(self) -> str:
        """The network under test: the transport's own, else the NIC profile's, else the site's."""
        return measured_on(context.site(), self.transport, context.profile(self))

    @property
    def interface(self) -> str:
        """The interface under test: that of the network, or the bond that the profile makes."""
        return self.carriers[self.network]

    @property
    def carriers(self) -> dict[str, str]:
        """Network -> interface that carries it under the NIC profile."""
        return carrying(context.site(), context.profile(self))

    @property
    def nodes_share_kernel(self) -> bool:
        """Whether all nodes are of one machine, whose processors each of them shows as its own."""
        return context.site().lab is not None

    @property
    def programs(self) -> dict[str, list[str]]:
        """Program name -> the command by which the transport's stack runs it."""
        return self.current_environ.extras["programs"]

    def program(self, name: str) -> list[str]:
        """The command by which the transport's stack runs a program."""
        return list(self.programs[name])

    def variants(self) -> list[str]:
        """The benchmark's variants that the site wants and the stack has the programs of."""
        blas = self.current_environ.extras["blas"]
        return programs.available(self.benchmark, self.settings, self.programs, blas)

    # -- the job

    @run_after("setup")
    def set_job(self):
        steps = self.steps()
        self.step_list = steps
        site = context.site()
        tasks = max(step.tasks_per_node for step in steps)
        self.num_tasks = self.num_nodes * tasks
        self.num_tasks_per_node = tasks
        self.num_cpus_per_task = 1
        self.time_limit = len(steps) * self.settings.time_limit_s + MARGIN_S
        self.job.options += [f"--nice={100 * self.repeat}", *site.slurm.options]
        nodes = nodelist(self.benchmark, self.transport, self.num_nodes)
        if nodes and not context.allocation(self):
            self.job.options.append(f"--nodelist={nodes}")
        self.keep_files = ["*.out", "*.err", "*.json", "*.sh", "steps.tsv"]

    def srun(self, step: Step) -> list[str]:
        """The command that starts one step: launcher, then the node-side wrapper, then program."""
        nodes = step.nodes or self.num_nodes
        networks = ",".join(f"{name}={interface}" for name, interface in self.carriers.items())
        held = context.allocation(self)
        launcher = [
            "srun", f"--nodes={nodes}", f"--ntasks={nodes * step.tasks_per_node}",
            f"--ntasks-per-node={step.tasks_per_node}", "--kill-on-bad-exit=1", "--wait=5",
            # The step before has ended, but its node daemons may not have said so yet.
            "--overlap",
        ]  # fmt: skip
        if held:
            launcher.append(f"--jobid={held['job']}")
        if step.nodelist or held or nodes < self.num_nodes:
            # Which nodes is said here and not left to Slurm: the last look at a node's settings
            # is in the last step that runs on it.
            numbers = nic_proof.node_numbers(step, self.num_nodes)
            names = ",".join(f"$SEATRIAL_NODE_{number}" for number in numbers)
            launcher.append(f"--nodelist={names}")
        launcher += self.current_environ.extras["launcher"]
        wrapper = [*NODE_PYTHON, "run.py", step.name, networks]
        if step.maps:
            wrapper += ["--maps", step.maps]
        when = nic_proof.occasions(self.step_list, self.num_nodes).get(step.name)
        if when:
            wrapper += nic_proof.wrapper_options(when)
        return [*launcher, *wrapper, "--", *step.command]

    def overcommit(self, step: Step) -> dict[str, str]:
        """What makes waiting ranks sleep where a lab's nodes have more ranks than it has cores."""
        ranks = (step.nodes or self.num_nodes) * step.tasks_per_node
        lab = context.site().lab
        if lab and ranks > lab.cores:
            return dict(self.current_environ.extras["overcommit"])
        return {}

    def wire_up(self, step: Step) -> dict[str, str]:
        """What lets a step's ranks start."""
        held = context.allocation(self)
        nodes = len(held["nodes"]) if held else self.num_nodes
        launcher = self.current_environ.extras["launcher"]
        return wire_up.variables(launcher, step.nodes or self.num_nodes, nodes)

    def pair(self, step: str, server: list[str], client: list[str], port: int) -> list[str]:
        """Command for a step of two ranks: a server, and a client that is told its address."""
        return [
            *NODE_PYTHON, "pair.py", step, self.interface, str(port),
            *server, "--", *client,
        ]  # fmt: skip

    def modules_of(self, step: Step) -> list[str]:
        """The modules of a step's programs; none where its transport is no module either, for they
        are found behind it."""
        if not self.current_environ.modules:
            return []
        return [package["module"] for package in packages_of(self, step) if package["module"]]

    @run_before("run")
    def write_steps(self):
        nic_proof.write_declared(context.profile(self), Path(self.stagedir))
        held = context.allocation(self)
        self.prerun_cmds = [
            *(allocation_variables(held, self.num_nodes) if held else []),
            "source ./job.sh",
        ]
        loaded: list[str] = []
        for step in self.step_list:
            modules = self.modules_of(step)
            if modules and modules != loaded:
                named = " ".join(quote(module) for module in modules)
                self.prerun_cmds.append(f"module load {named} || exit 1")
                loaded = modules
            self.prerun_cmds += step.setup
            command = self.srun(step)
            env = {**self.wire_up(step), **self.overcommit(step), **step.env}
            if env:
                command = ["env", *(f"{k}={v}" for k, v in env.items()), *command]
            words = [step.name, str(self.settings.time_limit_s), *command]
            self.prerun_cmds.append("seatrial_step " + " ".join(quote(word) for word in words))
        self.job.launcher = context.local_launcher()

    # -- what came of it

    @sanity_function
    def assert_measured(self):
        """Parse every step, prove its path, write evidence.json; fail where any of it failed."""
        folder = Path(self.stagedir)
        steps = [collect(self, step, folder) for step in self.step_list]
        self.runs = write_evidence(self, steps, folder)
        failed = [run for run in self.runs if run.outcome == "error"]
        reasons = "; ".join(f"{run.case.id}: {run.reason}" for run in failed)
        return sn.assert_true(not failed, msg=reasons.replace("{", "{{").replace("}", "}}"))

    @run_before("performance")
    def set_figures(self):
        """Hand the figures to ReFrame, with the references that the site's requirements give."""
        several = len({run.case.variant for run in self.runs}) > 1
        references = {}
        for run in self.runs:
            for metric in run.metrics:
                name = figure_name(run, metric, several)
                value = sn.defer(metric.value)
                self.perf_variables[name] = sn.make_performance_function(value, metric.unit)
                reference = context.reference(run.case, metric)
                if reference:
                    references[name] = reference
        self.reference = {"*": references}


def allocation_variables(held: dict, nodes: int) -> list[str]:
    """Shell lines that stand in for Slurm's environment in a script that is no job of its own.

    It uses the first ``nodes`` of the nodes that the trial holds.
    """
    return [
        f"export SLURM_JOB_ID={shlex.quote(held['job'])}",
        f"export SLURM_JOB_NODELIST={shlex.quote(','.join(held['nodes'][:nodes]))}",
    ]


def text_of(step: Step, folder: Path) -> str:
    """Standard output, then standard error of a step (NetPIPE writes its table to the latter)."""
    files = (folder / f"{step.name}.out", folder / f"{step.name}.err")
    return "\n".join(file.read_text(errors="replace") for file in files)


def figure_name(run: Run, metric: Metric, several: bool) -> str:
    """ReFrame's name of a figure: variant.metric@location, without the parts that there are not."""
    name = f"{run.case.variant}.{metric.metric}" if several else metric.metric
    return f"{name}@{metric.location}" if metric.location else name


def quote(word: str) -> str:
    """Quote for the shell, but let a variable of the job that a step refers to be expanded."""
    if word.startswith("--nodelist=$SEATRIAL_NODE_"):
        return f'"{word}"'
    return shlex.quote(word)
