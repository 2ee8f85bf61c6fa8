"""Finds and reads a site's file: ``site-configs/<site>/site.yaml``."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from seatrial.base import yamlfile
from seatrial.base.errors import InputError, Problem
from seatrial.base.paths import CHECKOUT
from seatrial.base.suggest import suggest
from seatrial.site.model import Site
from seatrial.site.validate import site_problems


def configs_folder() -> Path:
    """The folder of the sites: $SEATRIAL_SITES, else ``site-configs`` of the checkout."""
    return Path(os.environ.get("SEATRIAL_SITES") or CHECKOUT / "site-configs")


def site_names() -> list[str]:
    return sorted(path.parent.name for path in configs_folder().glob("*/site.yaml"))


def site_file(name: str) -> Path:
    """The file of a site. ``name`` is its name, or a path to the file or to its folder.

    Raises InputError if there is no such site.
    """
    given = Path(name)
    if given.suffix in (".yaml", ".yml") and given.is_file():
        return given.resolve()
    if (given / "site.yaml").is_file() and "/" in name:
        return (given / "site.yaml").resolve()
    if given.suffix in (".yaml", ".yml"):
        raise InputError([Problem(given, None, "", "there is no such file")])
    file = configs_folder() / name / "site.yaml"
    if not file.is_file():
        raise InputError(
            [Problem(file, None, "", f"there is no site {name!r}", suggest(name, site_names()))]
        )
    return file


@lru_cache(maxsize=8)
def load_site(file: Path) -> Site:
    """Read and validate a site file. Raises InputError with all problems of the file."""
    return load_with_lines(file)[0]


def load_with_lines(file: Path, content: bytes | None = None) -> tuple[Site, yamlfile.Lines]:
    """The same as ``load_site``, with the line numbers of the fields.

    ``content`` is what is in the file, if the caller has read it.
    """
    site, lines = yamlfile.load(file, Site, content)
    problems = [lines.problem(*problem) for problem in site_problems(site)]
    if site.name != file.parent.name:
        message = f"{site.name!r} is not the folder's name, {file.parent.name}"
        problems.insert(0, lines.problem("name", message, f"name: {file.parent.name}"))
    if problems:
        raise InputError(problems)
    return site, lines
