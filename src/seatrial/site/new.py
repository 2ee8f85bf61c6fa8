"""The commented starting point that ``seatrial site new`` writes."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from seatrial.base import yamlfile
from seatrial.base.errors import InputError
from seatrial.site.model import Site
from seatrial.site.validate import disagreements

TEMPLATES = Path(__file__).parent / "templates"
FILES = ("site.yaml", "requirements.yaml", "settings.py")


def write_starting_point(folder: Path, name: str, nodes: str, interface: str) -> Path:
    """Write the files of a new site into ``folder``, which must not exist; returns it.

    Raises InputError where the folder exists or a value cannot be; nothing is left then.
    """
    if folder.exists():
        raise InputError(f"{folder} exists already; choose another name, or edit what is there")
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, keep_trailing_newline=True
    )
    folder.mkdir(parents=True)
    try:
        for file in FILES:
            text = environment.get_template(f"{file}.j2").render(
                name=name, nodes=nodes, interface=interface
            )
            (folder / file).write_text(text)
        site, _ = yamlfile.load(folder / "site.yaml", Site)
        faults = disagreements(site)
        if faults:
            raise InputError("; ".join(f"{f.field}: {f.message}" for f in faults))
    except BaseException:
        for file in FILES:
            (folder / file).unlink(missing_ok=True)
        folder.rmdir()
        raise
    return folder
