"""Concretize a site's environment and build it, with a line for each package.

What fails is summed up with the end of its log. Knows nothing of modules or of trials.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.base.errors import LabError
from seatrial.base.paths import CHECKOUT
from seatrial.base.run import TAIL
from seatrial.stack import install
from seatrial.stack.files import digest
from seatrial.stack.folders import Places

_STARTED = re.compile(r"==> Installing \S+-(?P<hash>[a-z0-9]{32})\b")
_DONE = re.compile(r"==> (?P<name>\S+): Successfully installed (?P<full>\S+)")
#: The end of Spack's output repeats each error with the hash of its package.
_ERROR = re.compile(r"==> Error: (?:\S+-(?P<hash>[a-z0-9]{32}): )?(?P<text>.+)")
_NOT_INSTALLED = "Package was not installed"
_END_OF_ERROR = re.compile(r"==> |\[\+\] |See build log for details:")
_LOG = re.compile(r"^\s+(?P<file>/\S+spack-build-\S*out\S*)$")
_INDENTED_URL = re.compile(r"^\s+(?=\w+://)")
_EXCERPT = re.compile(r"\d+ (errors?|warnings?) found in build log:")


@dataclass
class Failure:
    """One package that was not built."""

    package: str
    message: list[str]
    """Spack's error as a whole: for a download each URL with its reason, for a build the command
    and Spack's excerpt of the build log"""
    log: str = ""
    """the package's build log; empty where its build did not begin"""
    tail: list[str] = field(default_factory=list)
    """last lines of the build log, where Spack's error has no excerpt of it"""

    def lines(self) -> list[str]:
        first, *rest = self.message
        lines = [f"{self.package}: {first}", *(f"    {line}" for line in rest)]
        if self.log:
            lines.append(f"  log: {self.log}")
        return [*lines, *(f"    {line}" for line in self.tail)]


@dataclass
class Outcome:
    """What a build did. ``built`` are package -> s."""

    built: dict[str, float] = field(default_factory=dict)
    present: int = 0
    failures: list[Failure] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """not tried, as something that they need failed"""
    seconds: float = 0.0
    started: dict[str, float] = field(default_factory=dict)
    """hash -> when its installation began"""
    log: Path | None = None
    """the output of ``spack install``; None where nothing was to be built"""

    def summary(self) -> list[str]:
        """For people: the counts, then each failure with why."""
        counts = [f"{len(self.built)} built in {self.seconds:.0f} s", f"{self.present} were there"]
        if self.failures:
            counts.append(f"{len(self.failures)} failed")
        if self.left_out:
            counts.append(f"{len(self.left_out)} not tried")
        found = [", ".join(counts)]
        for failure in self.failures:
            found += failure.lines()
        if self.left_out:
            found.append("not tried, as what they need failed: " + " ".join(self.left_out))
        if self.failures:
            found.append(f"all of Spack's output: {self.log}")
        return found


def inputs(places: Places) -> str:
    """Digest of all that a concretization depends on: environment, scopes, recipes, pins."""
    folders = [
        places.scope,
        CHECKOUT / "spack-repo" / "spack_repo",
        CHECKOUT / "spack-repo" / "environments",
        *places.scopes,
    ]
    files = [places.environment / "spack.yaml", places.pins]
    files += [places.tools] if places.tools.is_file() else []
    for folder in folders:
        files += sorted(
            file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts
        )
    parts: list[str | bytes] = [install.commit_of(places.root)]
    for file in files:
        parts += [str(file), file.read_bytes()]
    return digest(parts)


def concretize(places: Places, say: install.Say, *, force: bool = False) -> float:
    """Bring spack.lock up to date; seconds it took, 0 where there was nothing to do."""
    stamp = places.folder / "concretized"
    wanted = inputs(places)
    if not force and places.lock.is_file() and stamp.is_file() and stamp.read_text() == wanted:
        return 0.0
    say("concretizing the environment")
    start = time.monotonic()
    install.spack(places, ["concretize", "--force"], "concretizing", environment=True)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(wanted)
    return time.monotonic() - start


def nodes(places: Places) -> dict[str, dict[str, Any]]:
    """Hash -> node, of spack.lock. Raises LabError where there is none."""
    try:
        return json.loads(places.lock.read_text())["concrete_specs"]
    except FileNotFoundError:
        raise LabError(
            f"there is no {places.lock}: run `seatrial stack build --site {places.site}`"
        ) from None


def roots(places: Places) -> list[str]:
    """Hashes of the roots of spack.lock, in its order."""
    return [part["hash"] for part in json.loads(places.lock.read_text())["roots"]]


def prefixes(places: Places) -> dict[str, str]:
    """Hash -> prefix of everything that is installed. Raises LabError.

    Reads the database of the install tree, without starting Spack.
    """
    file = places.home / "opt" / ".spack-db" / "index.json"
    try:
        installs = json.loads(file.read_text())["database"]["installs"]
    except FileNotFoundError:
        return {}
    return {
        key: str(entry["path"])
        for key, entry in installs.items()
        if entry.get("installed") and entry.get("path")
    }


def missing(places: Places) -> list[str]:
    """Hashes of the lock that are not installed; external ones never are missing."""
    there = prefixes(places)
    return [
        key
        for key, node in nodes(places).items()
        if "external" not in node and not Path(there.get(key, "/nonexistent")).is_dir()
    ]


def label(node: dict[str, Any], graph: dict[str, dict[str, Any]]) -> str:
    """name@version, and for people the MPI and BLAS that tell it from the others."""
    found = f"{node['name']}@{node['version']}"
    if path := node.get("parameters", {}).get("transport"):
        found += f" transport={path}"
    for part in node.get("dependencies", ()):
        if {"mpi", "blas"} & set(part.get("parameters", {}).get("virtuals", ())):
            other = graph[part["hash"]]
            found += f" ^{other['name']}@{other['version']}"
    return found


def build(places: Places, say: install.Say, options: Iterable[str] = ()) -> Outcome:
    """Install what of spack.lock is missing. A failure stops only what needs the package."""
    graph = nodes(places)
    todo = missing(places)
    outcome = Outcome(present=sum("external" not in node for node in graph.values()) - len(todo))
    if not todo:
        return outcome
    say(f"building {len(todo)} packages")
    places.logs.mkdir(parents=True, exist_ok=True)
    outcome.log = log = places.logs / "install.log"
    start = time.monotonic()
    arguments = ["install", "--no-check-signature", "--only-concrete"]
    command = install.words(places, arguments, environment=True, options=options)
    with log.open("w") as kept:
        for line in _lines([str(word) for word in command], places.variables()):
            kept.write(line)
            kept.flush()
            _follow(line, graph, todo, outcome, say, start)
    outcome.seconds = time.monotonic() - start
    still = missing(places)
    failed = failures(log.read_text(errors="replace"), still, graph)
    outcome.failures = list(failed.values())
    outcome.left_out = [label(graph[key], graph) for key in still if key not in failed]
    if still and not failed:
        outcome.failures = [Failure("spack install", ["ended early"], "", last_lines(log))]
    return outcome


def _follow(
    line: str, graph: dict[str, dict[str, Any]], todo: list[str], outcome: Outcome,
    say: install.Say, start: float,
) -> None:  # fmt: skip
    """Tell of a package that is done. Dependencies and roots count alike."""
    if match := _STARTED.match(line):
        outcome.started[match["hash"]] = time.monotonic()
    elif match := _DONE.match(line):
        key = match["full"].rpartition("-")[2]
        if key in graph:
            name = label(graph[key], graph)
            took = time.monotonic() - outcome.started.get(key, start)
            outcome.built[key] = took
            say(f"{len(outcome.built)} of {len(todo)}: {name}, {took:.1f} s")


def _lines(command: list[str], env: dict[str, str]) -> Iterator[str]:
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        text=True, errors="replace", env={**os.environ, "LC_ALL": "C.UTF-8", **env},
    ) as child:  # fmt: skip
        assert child.stdout is not None
        try:
            yield from child.stdout
        except BaseException:
            child.terminate()
            raise


def failures(
    text: str, still: Container[str], graph: dict[str, dict[str, Any]]
) -> dict[str, Failure]:
    """Hash -> failure of each package of ``still`` that the output of ``spack install`` names."""
    found: dict[str, Failure] = {}
    current = ""  # the package whose installation began last
    failure: Failure | None = None  # the one whose error goes on
    for line in text.splitlines():
        if match := _STARTED.match(line):
            current = match["hash"]
        if match := _ERROR.match(line):
            if match["text"] == _NOT_INSTALLED:
                break
            key = match["hash"] or current
            failure = None
            if key in still and key not in found:
                failure = found[key] = Failure(label(graph[key], graph), [match["text"]])
        elif _END_OF_ERROR.match(line):
            failure = None
        elif (match := _LOG.match(line)) and current in found:
            found[current].log = match["file"]
        elif failure and line.strip():
            failure.message.append(_INDENTED_URL.sub("", line.removeprefix("    ").rstrip()))
    for failure in found.values():
        if not any(map(_EXCERPT.match, failure.message)):
            failure.tail = last_lines(failure.log)
    return found


def last_lines(file: str | Path, count: int = TAIL) -> list[str]:
    """The end of a log; empty where it cannot be read."""
    try:
        return Path(file).read_text(errors="replace").strip().splitlines()[-count:]
    except OSError:
        return []
