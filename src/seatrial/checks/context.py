"""The plan and the part of a trial that a check runs in, from ReFrame's runtime.

The derived configuration (``seatrial.checks.configuration``) puts the path of the plan, or of the
site, and the NIC profile into the partition's extras.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import reframe.core.runtime as runtime
from reframe.core.exceptions import ConfigError

from seatrial.benchmarks.benchmark import Job
from seatrial.plan.model import (
    Attachment,
    HeldJob,
    Part,
    Plan,
    PlannedProfile,
    PlannedTransport,
    read_part,
)
from seatrial.plan.resolve import plan_of
from seatrial.results.record import Case, Metric
from seatrial.results.requirements import Requirements, load_requirements


@cache
def _file() -> Path:
    for partition in runtime.runtime().system.partitions:
        if "plan" in partition.extras:
            return Path(partition.extras["plan"])
    raise ConfigError(
        "no system of the configuration is a Seatrial site: "
        "reframe -C site-configs/<site>/settings.py"
    )


def plan() -> Plan:
    return plan_of(_file())


@cache
def current_part() -> Part | None:
    """The part of the trial that runs now; None if ReFrame was started without a trial."""
    return read_part(_file().parent)


def repeats() -> list[int]:
    """The numbers of each case's repeats."""
    now = current_part()
    return now.repeats if now else list(range(plan().repeats))


def node_counts(benchmark: str) -> list[int]:
    """The numbers of nodes that a benchmark runs on; empty if the site does not have it."""
    settings = plan().benchmarks.get(benchmark)
    if settings is None:
        return []
    now = current_part()
    return now.node_counts(benchmark, settings["nodes"]) if now else list(settings["nodes"])


def variants(benchmark: str) -> list[tuple[str, ...]]:
    """The variants of a benchmark, as the one value of a test's parameter."""
    return [tuple(plan().benchmark(benchmark).variants())] if node_counts(benchmark) else []


def nodelist(check) -> str:
    """The nodes that a check must run on; empty: Slurm chooses."""
    now = current_part()
    environment = check.current_environ.name
    return now.nodelist(check.benchmark, environment, check.num_nodes) if now else ""


def profile_name(check) -> str:
    return check.current_partition.extras["profile"]


def profile(check) -> PlannedProfile:
    return plan().profiles[profile_name(check)]


def transport_name(check) -> str:
    return plan().environments[check.current_environ.name][0]


def network(check) -> str:
    """The field ``network`` of the check's cases: empty if the site has not several."""
    return plan().environments[check.current_environ.name][1]


def transport(check) -> PlannedTransport:
    return plan().transports[transport_name(check)]


def attachment(check) -> Attachment:
    """The network and interface under test."""
    return transport(check).under(profile_name(check), network(check))


def held_job(check) -> HeldJob | None:
    """The job that the trial holds for this partition; None: each check is a job."""
    now = current_part()
    return now.held(profile_name(check)) if now else None


def job(check) -> Job:
    """The job of a check, as its benchmark sees it."""
    return plan().job(transport_name(check), profile_name(check), check.num_nodes, network(check))


@cache
def _requirements() -> Requirements:
    return load_requirements(_file().with_name("requirements.yaml"))


def reference(case: Case, metric: Metric, informative: bool = False) -> tuple | None:
    """ReFrame's reference for a figure: (value, lower, upper, unit); None: no requirement.

    A requirement relative to another case needs the complete trial (``seatrial.results.judge``);
    ReFrame gets a reference without bounds.
    """
    if informative:
        return (0, None, None, metric.unit)
    rules = _requirements()
    absolute = rules.reframe_reference(case, metric.metric, metric.location)
    if absolute:
        return absolute
    judged_later = rules.applying(case, metric.metric, metric.location)
    if judged_later or rules.is_informative(case, metric.metric, metric.location):
        return (0, None, None, metric.unit)
    return None
