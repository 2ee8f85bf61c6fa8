"""Checks the files of a site together: site.yaml, requirements.yaml and the software stack.

Used before a trial and by ``seatrial site check``. It runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ClusterShell.NodeSet import NodeSet

from seatrial.base.errors import InputError, LabError, Problem
from seatrial.base.suggest import suggest
from seatrial.base.yamlfile import Lines
from seatrial.plan.data_path import data_path_problems
from seatrial.plan.matrix import Matrix
from seatrial.plan.model import Plan
from seatrial.plan.requirement_problems import bound_problems, judged, problems, suspect_problems
from seatrial.plan.resolve import resolve, unmeasured
from seatrial.plan.selection import Selection, select
from seatrial.results.record import Case
from seatrial.results.requirements import Requirements, load_requirements
from seatrial.site.effects import statements
from seatrial.site.load import load_with_lines
from seatrial.site.model import Site
from seatrial.site.profiles import short
from seatrial.stack import Stack, load_stack
from seatrial.stack.complete import complete_stack
from seatrial.stack.transports import SPACK_ONLY, TRANSPORTS


@dataclass
class CheckedSite:
    """A site whose files are right, and the plan of a trial of it.

    ``stack_missing``: a sentence on why the stack could not be read; then the plan assumes that it
    has every program. ``judged``: contract id -> the cases of the plan that it judges.
    ``lacking``: contract id -> selected cases that it cannot judge, because the stack has no
    program for them. ``untested``: id of a contract without a case -> the reason.
    """

    site: Site
    plan: Plan
    requirements: Requirements
    matrix: Matrix
    stack_missing: str = ""
    judged: dict[str, list[Case]] = field(default_factory=dict)
    lacking: dict[str, list[Case]] = field(default_factory=dict)
    untested: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def figures(self) -> Iterator[tuple[Case, str, str | None]]:
        """Case, metric and a location of each figure that the plan's cases report.

        Of the locations of a metric the first stands for all.
        """
        for case in self.plan.cases:
            for name, declared in self.matrix.metrics_of(case).items():
                if declared.optional:
                    continue
                yield case, name, self.matrix.places(declared).first


def check_site(file: Path, selection: Selection | None = None) -> CheckedSite:
    """Check a site's files, and plan a trial of the selection.

    Raises InputError with all problems of both files, or if the selection is wrong.
    """
    errors: list[Problem] = []
    site, requirements = None, None
    try:
        site, lines = load_with_lines(file)
    except InputError as error:
        errors += error.problems
    try:
        requirements = load_requirements(file.with_name("requirements.yaml"))
    except InputError as error:
        errors += error.problems
    if site is None or requirements is None:
        raise InputError(errors)
    stack, missing = _stack(site)
    errors += [*_transports(site, lines, stack), *_backend(site, lines)]
    complete = _complete(site)
    matrix = _matrix(site, complete)
    errors += problems(requirements, matrix)
    links = getattr(site.benchmarks, "links", None)
    if links and links.suspect_factor:
        errors += suspect_problems(links.suspect_factor, requirements, matrix.cases)
    if errors:
        raise InputError(errors)
    selected = select(site, selection or Selection())
    plan = resolve(selected, stack or complete)
    checked = CheckedSite(
        site, plan, requirements, matrix, missing, judged(requirements, plan, matrix),
        notes=[*plan.left_out, *statements(site)],
    )  # fmt: skip
    cases = set(plan.cases)
    plan.outside = [case for case in resolve(site, stack or complete).cases if case not in cases]
    checked.notes += unmeasured(plan, site)
    _explain_untested(checked, resolve(selected, complete), resolve(site, complete))
    return checked


def check_bounds(site: Site | None, rules: Requirements) -> None:
    """Check the bounds and units of requirements against the metrics of a site, if it is known.

    Raises InputError with all problems.
    """
    matrix = Matrix([], {}, [])
    if site:
        matrix = _matrix(site, _complete(site))
    if wrong := bound_problems(rules, matrix):
        raise InputError(wrong)


def _matrix(site: Site, complete: Stack) -> Matrix:
    every = select(site, Selection(profiles=("*",), transports=("*",)))
    return Matrix.of(resolve(every, complete), _nodes(site))


def _explain_untested(checked: CheckedSite, selected: Plan, default: Plan) -> None:
    """Find out why clauses do not judge cases.

    ``selected``, ``default``: the plans with a complete stack, with the user's selection and
    without.
    """
    with_stack = judged(checked.requirements, selected, checked.matrix)
    without_selection = judged(checked.requirements, default, checked.matrix)
    possible = judged(checked.requirements, checked.matrix, checked.matrix)
    for id, cases in checked.judged.items():
        checked.lacking[id] = [case for case in with_stack[id] if case not in cases]
        if cases:
            continue
        if with_stack[id]:
            reason = f"the stack has no program for {abbreviated(with_stack[id])}"
        elif without_selection[id]:
            reason = "the selection leaves out its cases"
        else:
            reason = "trial.profiles and trial.transports leave out its cases"
            for key in ("profile", "transport"):
                names = set(checked.matrix.values(key, possible[id]))
                if not names & set(checked.matrix.values(key, default.cases)):
                    reason = f"trial.{key}s leaves out {', '.join(sorted(names))}"
        checked.untested[id] = reason


def _stack(site: Site) -> tuple[Stack | None, str]:
    try:
        return load_stack(site), ""
    except LabError as error:
        return None, f"{error}; this plan assumes a stack with every program"


def _backend(site: Site, lines: Lines) -> Iterator[Problem]:
    """A native lab without sacct, which ReFrame's back end asks for the states of jobs.

    Not for a virtual lab, whose checks all run in held jobs.
    """
    lab = site.lab
    if lab and lab.engine == "native" and not lab.accounting and site.slurm.backend == "slurm":
        message = "slurm, which is the default, needs accounting, which this lab does not have"
        yield lines.problem("slurm.backend", message, "squeue, or lab.accounting: true")


def _transports(site: Site, lines: Lines, stack: Stack | None) -> Iterator[Problem]:
    """Transports that the stack lacks; before it is built, those that no such stack can have.

    And settings of transports that do not fit their data path.
    """
    if stack:
        known, which = list(stack.transports), "the stack"
    elif site.stack.source == "spack":
        known, which = list(TRANSPORTS), "a stack"
    else:
        known = [name for name in TRANSPORTS if name not in SPACK_ONLY]
        which = "a stack of the distribution"
    for name, transport in site.transports.items():
        base = site.base_of(name)
        if base not in known:
            field = f"transports.{name}.base" if transport.base else f"transports.{name}"
            message, correction = f"{which} has no transport {base!r}", suggest(base, known)
            for of_stack in known:
                if not transport.base and name.startswith(f"{of_stack}-"):
                    correction = f"if it is a variant of {of_stack}, add base: {of_stack}"
            yield lines.problem(field, message, correction)
            continue
        if transport.base and name in known:
            message = f"{which} has a transport {name!r} of its own"
            yield lines.problem(f"transports.{name}", message, "rename it, or leave base out")
        part = stack.transport(base, check=True) if stack else TRANSPORTS[base]
        env = {**part.env, **part.check_env, **transport.env}
        for problem in data_path_problems(site, name, env, part.bind):
            yield lines.problem(*problem)


def _complete(site: Site) -> Stack:
    hpl = getattr(site.benchmarks, "hpl", None)
    return complete_stack(map(site.base_of, site.transports), list(hpl.blas) if hpl else [])


def _nodes(site: Site) -> list[str]:
    """Short names of the nodes of the trials."""
    return [short(node) for node in NodeSet(site.partitions[site.trial_partition].nodes)]


def abbreviated(cases: list[Case], most: int = 3) -> str:
    """The ids of some cases, and how many more there are."""
    ids = ", ".join(case.id for case in cases[:most])
    rest = len(cases) - most
    return f"{ids} and {rest} more" if rest > 0 else ids
