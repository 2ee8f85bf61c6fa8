"""The commented files of a new site, which ``seatrial site new`` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ClusterShell.NodeSet import NodeSet
from pydantic import TypeAdapter, ValidationError

from seatrial.base import yamlfile
from seatrial.base.errors import InputError
from seatrial.base.fields import NAME_RULE, Interface, Name, NodeList
from seatrial.base.templates import environment
from seatrial.benchmarks.registry import registry
from seatrial.site.model import Site
from seatrial.site.validate import site_problems

TEMPLATES = Path(__file__).parent / "templates"
FILES = ("site.yaml", "requirements.yaml", "settings.py")


def write_starting_point(folder: Path, name: str, nodes: str, interface: str) -> Path:
    """Write the files of a new site into ``folder`` and return it.

    Raises InputError if the folder exists or a value is invalid. Then no file is left.
    """
    _check("NAME", Name, name, f"{name!r} is not a site name: {NAME_RULE}")
    _check("--nodes", NodeList, nodes)
    _check("--interface", Interface, interface)
    if (count := len(NodeSet(nodes))) < 2:
        raise InputError(f"--nodes {nodes!r} is one node; a network has two (such as node[1-4])")
    if folder.exists():
        raise InputError(f"{folder} exists already; choose another name, or edit its files")
    templates = environment(TEMPLATES)
    folder.mkdir(parents=True)
    try:
        for file in FILES:
            text = templates.get_template(f"{file}.j2").render(
                name=name,
                nodes=nodes,
                count=count,
                interface=interface,
                benchmarks=list(registry()),
            )
            (folder / file).write_text(text)
        try:
            site, _ = yamlfile.load(folder / "site.yaml", Site)
            wrong = [(problem.field, problem.message) for problem in site_problems(site)]
        except InputError as error:
            wrong = [(problem.field, problem.message) for problem in error.problems]
        if wrong:
            raise InputError("; ".join(f"{field}: {message}" for field, message in wrong))
    except BaseException:
        for file in FILES:
            (folder / file).unlink(missing_ok=True)
        folder.rmdir()
        raise
    return folder


def _check(option: str, kind: Any, given: str, sentence: str = "") -> None:
    """Raise InputError if a value is invalid. The file that would hold it does not exist yet."""
    try:
        TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        cause = error.errors()[0]["ctx"]["error"]
        assert isinstance(cause, yamlfile.InvalidValue)
        message, correction, _ = cause.parts[0]
        shown = option if repr(given) in message else f"{option} {given!r}"
        raise InputError(sentence or f"{shown}: {message} ({correction})") from None
