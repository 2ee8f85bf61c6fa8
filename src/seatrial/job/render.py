"""From a plan to the text of the job script."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError

from seatrial.base.errors import InputError
from seatrial.benchmarks.hpldat import grid
from seatrial.job import hpl, rails, reasons, script
from seatrial.job.header import FOLDER, SUFFIX
from seatrial.job.plan import Plan


def render(plan: Plan, command: list[str], folder: Path = FOLDER) -> str:
    """The script. ``command`` is the command line that asked for it, for its first comment.

    Raises InputError where the template refuses a value, or is wrong itself.
    """
    context: dict[str, Any] = {
        **plan.values,
        **{name: getattr(plan, name) for name in plan.__dataclass_fields__ if name != "values"},
        "name": plan.template.name,
        "description": plan.template.header.description,
        "parameters": plan.template.parameters,
        "ranks": plan.ranks,
        "command": shlex.join(command),
        "reasons": reasons,
    }
    context["job_name"] = plan.values["job_name"] or plan.template.name
    try:
        return _render(plan, context, folder)
    except TemplateError as error:
        raise InputError(f"{folder}/{plan.template.name}{SUFFIX}: {error}") from error


def _render(plan: Plan, context: dict[str, Any], folder: Path) -> str:
    return script.render(
        folder,
        plan.template.name + SUFFIX,
        context,
        refuse=refuse,
        grid=grid,
        hpl_order=hpl.order,
        hpl_block=hpl.block,
        rails_way=rails.way,
        rails_stripe=rails.stripe,
        is_square=is_square,
        is_power_of_two=is_power_of_two,
    )


def refuse(reason: str) -> NoReturn:
    """For templates: what was asked for cannot work, in a sentence."""
    raise InputError(reason)


def is_square(number: int) -> bool:
    return math.isqrt(number) ** 2 == number


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
