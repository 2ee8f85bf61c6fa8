"""The guides: links resolve, and the files, names and commands that they mention exist."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from seatrial.base.paths import CHECKOUT
from seatrial.benchmarks.benchmark import Job
from seatrial.benchmarks.parsing import ParseError
from seatrial.benchmarks.registry import registry
from seatrial.cli import app

GUIDES = sorted(
    [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md")],
    key=lambda path: path.relative_to(CHECKOUT).as_posix(),
)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
#: a file or a folder of the repository, as it stands in a code span
IN_REPOSITORY = re.compile(
    r"(?:src|tests|docs|ci|reframe-checks|site-configs|slurm-templates|spack-repo|easybuild)"
    r"/[\w./*-]*"
)


def named(path: Path) -> str:
    return path.relative_to(CHECKOUT).as_posix()


def prose(path: Path) -> str:
    return FENCED.sub("", path.read_text())


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", GUIDES, ids=named)
def test_links_resolve(page):
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{named(page)}: {link}"
        if anchor:
            assert anchor in anchors(file), f"{named(page)}: {link}"


@pytest.mark.parametrize("page", GUIDES, ids=named)
def test_files_of_the_repository_exist(page):
    for code in CODE.findall(prose(page)):
        for word in code.split():
            # harbour, mysite, mylab, NAME and ring are what a reader makes
            if not IN_REPOSITORY.fullmatch(word) or re.search(
                r"harbour|mysite|mylab|NAME|ring\.py", word
            ):
                continue
            assert list(CHECKOUT.glob(word.rstrip("/"))), f"{named(page)}: `{code}`"


def leaves(group: object, words: tuple[str, ...] = ()):
    for name, one in getattr(group, "commands", {}).items():
        yield (*words, name), one
        yield from leaves(one, (*words, name))


@pytest.mark.parametrize("page", GUIDES, ids=named)
def test_commands_parse(page):
    """Each command line of a guide has the options of the command line."""
    known = dict(leaves(typer.main.get_command(app)))
    for block in FENCED.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            match = re.match(r"(?:\./)?seatrial (.*)", line)
            if not match or re.search(r"\.\.\.|<", line):
                continue
            words = shlex.split(match[1].split("|")[0], comments=True)
            if not words or words[0].startswith("-"):
                continue
            depth = max((n for n in (1, 2, 3) if tuple(words[:n]) in known), default=0)
            assert depth, f"{named(page)}: {line}"
            command = known[tuple(words[:depth])]
            if not hasattr(command, "commands"):
                command.make_context("seatrial", words[depth:])


ADD = CHECKOUT / "docs/add-a-benchmark.md"


def symbols(file: Path) -> set[str]:
    """Classes, functions, methods and variables that a Python file defines or imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def test_add_a_benchmark_names_what_exists():
    """Each name in a code span of that guide is defined in a Python file that the guide names."""
    spans = set(CODE.findall(prose(ADD)))
    paths = {word for code in spans for word in code.split() if IN_REPOSITORY.fullmatch(word)}
    files = [CHECKOUT / path for path in paths if path.endswith(".py") and "ring" not in path]
    assert len(files) >= 9
    defined = set().union(*map(symbols, files))
    keys = {
        "comms",
        "osu_mbw_mr",
        "ring",
        "ring.c",
        "site.yaml",
        "benchmarks:",
        "specs",
        "relative_to",
        "informative",
        "nodes: 2",
        '#define VERSION "1.0"',
    }
    keys |= {"--check", "seatrial.benchmarks.registry.registry"}
    for span in spans - paths - keys:
        assert span.split(" = ")[0] in defined, f"`{span}`"
    for name in ("comms", "osu_mbw_mr"):
        assert name in registry()
    site = yaml.safe_load((CHECKOUT / "site-configs/lab/site.yaml").read_text())
    assert "comms" in site["benchmarks"]


def test_the_module_of_that_guide_works(tmp_path):
    """Its Python code is a benchmark: it has steps, and its parser refuses what is cut off."""
    code = re.findall(r"^```python\n(.*?)^```$", ADD.read_text(), re.MULTILINE | re.DOTALL)
    module: dict[str, Any] = {}
    exec(compile(code[0], "ring.py", "exec", dont_inherit=True), module)
    ring = module["Ring"](module["RingSettings"](size="2 KiB"))
    job = Job(nodes=4, transport="openmpi-tcp", programs={"ring": ["/opt/ring"]})
    (step,) = ring.steps(job)
    assert step.command == ["/opt/ring", "2048"]
    line = "ring: 2048 B, 100 rounds, 71.25 us\n"
    (tmp_path / "ring.out").write_text(line)
    parsed = ring.parse(step, tmp_path, job)
    assert parsed.value("latency_us") == 71.25
    assert parsed.moved_bytes == 2 * 2048 * 100
    for damaged in (line[:-1], line * 2, line.replace("100", "1e2"), line.replace("71.25", "nan")):
        with pytest.raises(ParseError):
            module["parse"](damaged)
    ast.parse(code[1])
    (program,) = re.findall(r"^```c\n(.*?)^```$", ADD.read_text(), re.MULTILINE | re.DOTALL)
    (printed,) = re.findall(r' printf\("(.*?)\\n"', program)
    assert module["parse"](printed % (2048, 100, 71.25) + "\n").value("latency_us") == 71.25
