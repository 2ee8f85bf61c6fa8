"""The base class of the checks: steps in one allocation, path proof, evidence, references.

A check (``reframe-checks/``) names its benchmark, whose module has the steps and the parser.
Nothing here names a system, a profile, a transport or a threshold: these are in the plan.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import reframe as rfm
import reframe.utility.sanity as sn
from pydantic import RootModel, ValidationError
from reframe.core.backends import getlauncher
from reframe.core.builtins import parameter, run_after, run_before, sanity_function, variable
from reframe.core.exceptions import ReframeSyntaxError

from seatrial.base import yamlfile
from seatrial.base.errors import InputError, Problem
from seatrial.benchmarks.benchmark import NODE_PYTHON, Benchmark, Step
from seatrial.benchmarks.limits import Known
from seatrial.benchmarks.parsing import Parsed
from seatrial.benchmarks.registry import registry
from seatrial.checks import context, nic_proof, physics
from seatrial.checks.evidence import collect, packages_of, write_evidence
from seatrial.plan.model import HeldJob, PlannedTransport, job_limit_s
from seatrial.results.record import Metric, Run
from seatrial.stack import wire_up

NODE_FILES = Path(__file__).parent / "node"
#: options of srun for a step that goes on when a node or its program ends; job.sh ends it
LOSSY = ("--kill-on-bad-exit=0", "--wait=0", "--no-kill")
NODE_VARIABLE = "SEATRIAL_NODE_"  # of node/job.sh, with the number of a node: its name


class _Replaced(RootModel[dict[str, Any]]):
    """Any mapping, in YAML."""


def site_test(cls: Any) -> Any:
    """Register a check with ReFrame where the site has its benchmark (a class decorator).

    ReFrame's own decorator warns of each check that has a parameter without a value.
    """
    return rfm.simple_test(cls) if context.node_counts(cls.benchmark) else cls


class Check(rfm.RunOnlyRegressionTest):
    """Base of all checks. A subclass names its ``benchmark``.

    The steps are srun commands before an executable that does nothing, because ReFrame launches
    one command in a job. Here one allocation runs many steps (all message sizes, all links), and
    each may fail without the others.
    """

    #: the name of the benchmark, which is its key in the site's ``benchmarks``
    benchmark = variable(str, value="")
    tags = {"acceptance"}
    #: settings of the benchmark that replace those of the site: ``-S 'NetPIPE.settings={...}'``
    settings = variable(str, value="")
    #: number of this repeat; Slurm starts lower ones first, so that the cases alternate
    repeat = parameter(context.repeats(), loggable=True)

    #: what was run, once the figures are read; a dry run has none
    runs: Sequence[Run] = ()
    sourcesdir = str(NODE_FILES)
    executable = "true"
    local = False
    require_reference = True
    exclusive_access = True
    maintainers = ["the Seatrial developers"]

    # -- the benchmark and the plan

    @cached_property
    def own_benchmark(self) -> Benchmark:
        """The benchmark with the settings of this check. Raises ReframeSyntaxError."""
        try:
            return context.plan().benchmark(self.benchmark, self.own_settings)
        except ValidationError as error:
            model = registry()[self.benchmark].Settings
            raise self._wrong_settings(yamlfile.problems_of(error, model)) from None

    @cached_property
    def own_settings(self) -> dict[str, Any]:
        """The settings that the command line replaces. Raises ReframeSyntaxError."""
        if not self.settings.strip():
            return {}
        try:
            return yamlfile.loads(self.settings, _Replaced)[0].root
        except InputError as error:
            raise self._wrong_settings(error.problems) from None

    def _wrong_settings(self, problems: Sequence[Problem]) -> ReframeSyntaxError:
        option = f"-S {type(self).__name__}.settings={self.settings}: "
        texts = (
            str(replace(problem, file="", line=None)).removeprefix(": ") for problem in problems
        )
        return ReframeSyntaxError(option + "; ".join(texts))

    @property
    def transport(self) -> str:
        return context.transport_name(self)

    @property
    def planned_transport(self) -> PlannedTransport:
        return context.transport(self)

    @property
    def profile_name(self) -> str:
        return context.profile_name(self)

    @property
    def network(self) -> str:
        """The network under test."""
        return context.attachment(self).network

    @property
    def case_network(self) -> str:
        """The network as the cases name it: empty if the site does not measure several."""
        return context.network(self)

    @property
    def interface(self) -> str:
        """The interface under test: that of the network, or a bond of the profile."""
        return context.attachment(self).interface

    @property
    def tested_interfaces(self) -> list[str]:
        """The interfaces of all networks under test, on any node."""
        of_nodes = context.profile(self).declared["tests"].values()
        return list(dict.fromkeys(name for names in of_nodes for name in names))

    @property
    def nodes_share_kernel(self) -> bool:
        """Whether all nodes are on one machine; each of them then shows all its processors."""
        return context.plan().lab_cores is not None

    def known(self, nodes: list[dict[str, Any]]) -> Known:
        """The facts of the run that physical limits are computed from."""
        return physics.known(
            context.plan(), self.transport, self.profile_name, nodes, self.case_network
        )

    def parse(self, step: Step, folder: Path) -> Parsed:
        """The figures of one step, from the files in ``folder``. Raises ParseError."""
        return self.own_benchmark.parse(step, folder, context.job(self))

    # -- the job

    @run_after("setup")
    def set_job(self):
        benchmark, plan = self.own_benchmark, context.plan()
        if self.num_tasks == 0:  # type: ignore[has-type]
            # As in ReFrame: as many nodes as --flex-alloc-nodes selects.
            self.job.num_tasks_per_node = 1
            self.num_nodes = self.job.guess_num_tasks()
        steps = benchmark.steps(context.job(self))
        self.step_list = steps
        self.step_limit_s = benchmark.settings.time_limit_s
        tasks = max(1 if step.overcommit else step.tasks_per_node for step in steps)
        self.num_tasks = self.num_nodes * tasks
        self.num_tasks_per_node = tasks
        self.num_cpus_per_task = 1
        if self.time_limit is None:  # type: ignore[has-type]
            self.time_limit = job_limit_s(steps, self.step_limit_s)
        if any(step.may_lose_nodes for step in steps):
            self.job.options.append("--no-kill")
        self.job.options += [f"--nice={100 * context.repeats().index(self.repeat)}", *plan.options]
        nodes = context.nodelist(self)
        if nodes and not context.held_job(self):
            self.job.options.append(f"--nodelist={nodes}")
        self.keep_files = ["*.out", "*.err", "*.json", "*.jsonl", "*.sh", "steps.tsv"]

    def srun(self, step: Step) -> list[str]:
        """The command that starts one step: launcher, then the node-side wrapper, then program."""
        nodes = step.nodes or self.num_nodes
        interfaces = context.profile(self).interfaces
        networks = ",".join(f"{name}={interface}" for name, interface in interfaces.items())
        held = context.held_job(self)
        launcher = [
            "srun", f"--nodes={nodes}", f"--ntasks={nodes * step.tasks_per_node}",
            f"--ntasks-per-node={step.tasks_per_node}",
            *(LOSSY if step.may_lose_nodes else ("--kill-on-bad-exit=1", "--wait=5")),
            # The step before has ended, but its node daemons may not have said so yet.
            "--overlap", *(["--overcommit"] if step.overcommit else []),
        ]  # fmt: skip
        if held:
            launcher.append(f"--jobid={held.id}")
        if step.node_numbers or held or nodes < self.num_nodes:
            # Slurm must not choose the nodes: the last step on a node verifies its NIC settings.
            numbers = nic_proof.node_numbers(step, self.num_nodes)
            names = ",".join(f"${NODE_VARIABLE}{number}" for number in numbers)
            launcher.append(f"--nodelist={names}")
        launcher += self.planned_transport.launcher
        wrapper = [*NODE_PYTHON, "run.py", step.name, networks]
        if context.plan().rdma_ports:
            ports = context.plan().rdma_ports.items()
            wrapper += ["--rdma", ",".join(f"{name}={port}" for name, port in ports)]
        if step.maps:
            wrapper += ["--maps", step.maps]
        when = nic_proof.occasions(self.step_list, self.num_nodes).get(step.name)
        if when:
            wrapper += nic_proof.wrapper_options(when)
        return [*launcher, *wrapper, "--", *step.command]

    def overcommit(self, step: Step) -> dict[str, str]:
        """Variables that let waiting ranks sleep if a lab has more ranks than cores."""
        nodes = step.nodes or self.num_nodes
        if context.plan().has_too_few_cores(nodes, step.tasks_per_node):
            return self.planned_transport.overcommit
        return {}

    def not_wired_up(self, step: Step) -> Sequence[str]:
        """Variables of ``wire_up.SCRIPT`` that the step must not have."""
        held = context.held_job(self)
        nodes = len(held.nodes) if held else self.num_nodes
        launcher, given = self.planned_transport.launcher, context.attachment(self).env
        unsuited = wire_up.unsuited(launcher, step.nodes or self.num_nodes, nodes)
        return [name for name in unsuited if name not in given]

    def modules_of(self, step: Step) -> list[str]:
        """The modules of a step's programs.

        Empty if the transport has no module: the modules of programs are in its module path.
        """
        if not self.current_environ.modules:
            return []
        return [package.module for package in packages_of(self, step) if package.module]

    @run_before("run")
    def write_steps(self):
        nic_proof.write_declared(context.profile(self).declared, Path(self.stagedir))
        held = context.held_job(self)
        self.prerun_cmds = [
            *(allocation_variables(held, self.num_nodes) if held else []),
            "source ./job.sh",
        ]
        if wire_up.over_pmix(self.planned_transport.launcher):
            self.prerun_cmds += wire_up.SCRIPT.read_text().splitlines()
        loaded: list[str] = []
        for step in self.step_list:
            modules = self.modules_of(step)
            if modules and modules != loaded:
                names = " ".join(quote(module) for module in modules)
                self.prerun_cmds.append(f"module load {names} || exit 1")
                loaded = modules
            self.prerun_cmds += step.setup
            command = self.srun(step)
            env = {**self.overcommit(step), **step.env}
            unset = self.not_wired_up(step)
            if env or unset:
                options = [word for name in unset for word in ("-u", name)]
                command = ["env", *options, *(f"{k}={v}" for k, v in env.items()), *command]
            words = [step.name, str(step.limit_s or self.step_limit_s), *command]
            function = "seatrial_lossy_step " if step.may_lose_nodes else "seatrial_step "
            self.prerun_cmds.append(function + " ".join(quote(word) for word in words))
        # Of the script's last line, which runs ``true``: the steps call srun.
        self.job.launcher = getlauncher("local")()

    # -- the results

    @sanity_function
    def assert_measured(self):
        """Parse every step, prove its path, write evidence.json. Fails if a run is an error."""
        folder = Path(self.stagedir)
        steps = [collect(self, step, folder) for step in self.step_list]
        self.runs = write_evidence(self, steps, folder)
        failed = [run for run in self.runs if run.outcome == "error"]
        reasons = "; ".join(f"{run.case.id}: {run.reason}" for run in failed)
        return sn.assert_true(not failed, msg=reasons.replace("{", "{{").replace("}", "}}"))

    @run_before("performance")
    def set_figures(self):
        """Give the figures to ReFrame, with the references of the site's requirements."""
        several = len({run.case.variant for run in self.runs}) > 1
        references = {}
        for run in self.runs:
            for metric in run.metrics:
                name = figure_name(run, metric, several)
                value = sn.defer(metric.value)
                self.perf_variables[name] = sn.make_performance_function(value, metric.unit)
                # The site's requirements are for the site's settings.
                changed = bool(self.own_settings)
                reference = context.reference(run.case, metric, informative=changed)
                if reference:
                    references[name] = reference
        self.reference = {"*": references}


def allocation_variables(held: HeldJob, nodes: int) -> list[str]:
    """Shell lines that set Slurm's variables in a script that is a part of a held job.

    The script uses the first ``nodes`` nodes of the job.
    """
    return [
        f"export SLURM_JOB_ID={shlex.quote(held.id)}",
        f"export SLURM_JOB_NODELIST={shlex.quote(','.join(held.nodes[:nodes]))}",
    ]


def figure_name(run: Run, metric: Metric, several: bool) -> str:
    """ReFrame's name of a figure: variant.metric@location. ``several``: with the variant."""
    name = f"{run.case.variant}.{metric.metric}" if several else metric.metric
    return f"{name}@{metric.location}" if metric.location else name


def quote(word: str) -> str:
    """Quote for the shell, except that the variables of the job's nodes are expanded."""
    if word.startswith(f"--nodelist=${NODE_VARIABLE}"):
        return f'"{word}"'
    return shlex.quote(word)
