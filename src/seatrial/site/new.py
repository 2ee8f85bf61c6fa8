"""The commented files of a new site, which ``seatrial site new`` writes."""

from __future__ import annotations

from pathlib import Path

from seatrial.base import yamlfile
from seatrial.base.errors import InputError
from seatrial.base.templates import environment
from seatrial.site.model import Site
from seatrial.site.validate import site_problems

TEMPLATES = Path(__file__).parent / "templates"
FILES = ("site.yaml", "requirements.yaml", "settings.py")


def write_starting_point(folder: Path, name: str, nodes: str, interface: str) -> Path:
    """Write the files of a new site into ``folder`` and return it.

    Raises InputError if the folder exists or a value is invalid. Then no file is left.
    """
    if folder.exists():
        raise InputError(f"{folder} exists already; choose another name, or edit its files")
    templates = environment(TEMPLATES)
    folder.mkdir(parents=True)
    try:
        for file in FILES:
            text = templates.get_template(f"{file}.j2").render(
                name=name, nodes=nodes, interface=interface
            )
            (folder / file).write_text(text)
        site, _ = yamlfile.load(folder / "site.yaml", Site)
        problems = site_problems(site)
        if problems:
            raise InputError("; ".join(f"{one.field}: {one.message}" for one in problems))
    except BaseException:
        for file in FILES:
            (folder / file).unlink(missing_ok=True)
        folder.rmdir()
        raise
    return folder
