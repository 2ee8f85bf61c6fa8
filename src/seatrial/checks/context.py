"""What a check may know of the site it runs on, fetched through ReFrame's runtime.

The derived configuration (``seatrial.checks.configuration``) puts the site file's path and the
profile into the partition's extras, and the stack's data into the environment's.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import reframe.core.runtime as runtime
from reframe.core.backends import getlauncher

from seatrial.checks.configuration import FIRST_REPEAT, REPEATS, only
from seatrial.results.record import Case, Metric
from seatrial.results.requirements import Requirements, load_requirements
from seatrial.site.load import load_site
from seatrial.site.model import Site


@cache
def site_file() -> Path:
    for partition in runtime.runtime().system.partitions:
        if "site_file" in partition.extras:
            return Path(partition.extras["site_file"])
    raise RuntimeError(
        "these checks need a configuration derived from a site: reframe -C site-configs/<site>"
    )


def site() -> Site:
    return load_site(site_file())


def repeats() -> range:
    """The numbers of each case's repeats, as many as $SEATRIAL_REPEATS or else the site says."""
    first = int(os.environ.get(FIRST_REPEAT) or 0)
    return range(first, first + int(os.environ.get(REPEATS) or site().trial.repeats))


def node_counts(benchmark: str) -> list[int]:
    """The numbers of nodes that the site wants a benchmark run on; empty where it has none."""
    settings = getattr(site().benchmarks, benchmark)
    return only(benchmark, "nodes", list(settings.nodes)) if settings else []


def profile(check) -> str:
    return check.current_partition.extras["profile"]


def allocation(check) -> dict | None:
    """The job that the trial holds for this partition (``job``, ``nodes``); None: each check's
    own."""
    return check.current_partition.extras.get("allocation")


def versions(check) -> dict[str, str]:
    return dict(check.current_environ.extras.get("versions", {}))


def local_launcher():
    """The launcher of the script's own last line, which only ends it: the steps call srun."""
    return getlauncher("local")()


@cache
def _requirements() -> Requirements:
    return load_requirements(site_file().with_name("requirements.yaml"))


def reference(case: Case, metric: Metric) -> tuple | None:
    """ReFrame's reference for a figure: (value, lower, upper, unit); None where none is required.

    A requirement relative to another case can only be judged when the trial is complete
    (``seatrial.results.judge``): ReFrame is given a reference without bounds for it.
    """
    rules = _requirements()
    absolute = rules.reframe_reference(case, metric.metric, metric.location)
    if absolute:
        return absolute
    judged_later = rules.applying(case, metric.metric, metric.location)
    if judged_later or rules.is_informative(case, metric.metric, metric.location):
        return (0, None, None, metric.unit)
    return None
