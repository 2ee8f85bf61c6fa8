"""Find and read a site: ``site-configs/<site>/site.yaml``."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from seatrial.base import yamlfile
from seatrial.base.errors import InputError, Problem
from seatrial.base.paths import CHECKOUT
from seatrial.base.suggest import suggest
from seatrial.site.model import Site
from seatrial.site.validate import disagreements


def configs_folder() -> Path:
    """Where sites are looked for: $SEATRIAL_SITES, else ``site-configs`` of the checkout."""
    return Path(os.environ.get("SEATRIAL_SITES") or CHECKOUT / "site-configs")


def site_names() -> list[str]:
    return sorted(path.parent.name for path in configs_folder().glob("*/site.yaml"))


def site_file(name: str) -> Path:
    """The file of the site called ``name``, which may also be a path to the file or its folder.

    Raises InputError where there is none.
    """
    given = Path(name)
    if given.suffix in (".yaml", ".yml") and given.is_file():
        return given.resolve()
    if (given / "site.yaml").is_file() and "/" in name:
        return (given / "site.yaml").resolve()
    file = configs_folder() / name / "site.yaml"
    if not file.is_file():
        raise InputError(
            [Problem(file, None, "", f"there is no site {name!r}", suggest(name, site_names()))]
        )
    return file


@lru_cache(maxsize=8)
def load_site(file: Path) -> Site:
    """Read and validate a site file.

    Raises InputError with every fault found: file, line, field, and what would be right.
    """
    site, lines = yamlfile.load(file, Site)
    faults = disagreements(site)
    if site.name != file.parent.name:
        wanted = f"the folder's name, {file.parent.name}"
        problem = Problem(file, lines.of("name"), "name", f"{site.name!r} is not {wanted}",
                          f"name: {file.parent.name}")  # fmt: skip
        raise InputError([problem, *_problems(file, lines, faults)])
    if faults:
        raise InputError(_problems(file, lines, faults))
    return site


def _problems(file: Path, lines: yamlfile.Lines, faults: list) -> list[Problem]:
    return [
        Problem(file, lines.near(fault.field), fault.field, fault.message, fault.correction)
        for fault in faults
    ]
