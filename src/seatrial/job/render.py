"""The text of a job script, from a plan and its template."""

from __future__ import annotations

import math
import shlex
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Environment, TemplateError

from seatrial.base.errors import InputError
from seatrial.base.templates import environment
from seatrial.benchmarks.hpl_input import grid
from seatrial.benchmarks.hpl_input import render as hpl_input
from seatrial.job import hpl, multirail
from seatrial.job.plan import Plan
from seatrial.job.template import FOLDER, SUFFIX


def render(plan: Plan, command: list[str], folder: Path = FOLDER) -> str:
    """The script. ``command`` is the command line that asked for it, for a comment at its head.

    Raises InputError where the template refuses a value, or is wrong itself.
    """
    file = plan.template.name + SUFFIX
    context: dict[str, Any] = {
        **plan.values,
        **{name: getattr(plan, name) for name in plan.__dataclass_fields__ if name != "values"},
        "values": plan.values,
        "description": plan.template.header.description,
        "ranks": plan.ranks,
        "job_name": plan.values["job_name"] or plan.template.name,
        "command": shlex.join(command),
    }
    try:
        return _environment(folder).get_template(file).render(context)
    except TemplateError as error:
        raise InputError(f"{folder}/{file}: {error}") from error


@cache
def _environment(folder: Path) -> Environment:
    """The templates of a folder, which are compiled once: a tune renders one for each run."""
    templates = environment(folder)
    templates.globals |= {
        "refuse": refuse,
        "hpl_grid": grid,
        "hpl_input": hpl_input,
        "hpl_problem": hpl.problem,
        "multirail_support": multirail.support,
        "stripe_variables": multirail.stripe_variables,
        "is_square": is_square,
        "is_power_of_two": is_power_of_two,
    }
    return templates


def refuse(reason: str) -> NoReturn:
    """For templates: the request cannot work, for the reason given."""
    raise InputError(reason)


def is_square(number: int) -> bool:
    return math.isqrt(number) ** 2 == number


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
