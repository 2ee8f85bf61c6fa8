"""Concretize a site's environment and build it; report each package and each failure.

Modules and the description of the stack are not written here.
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
from seatrial.base.say import Say
from seatrial.stack import install
from seatrial.stack.files import digest
from seatrial.stack.paths import Paths

_STARTED = re.compile(r"==> Installing \S+-(?P<hash>[a-z0-9]{32})\b")
_DONE = re.compile(r"==> (?P<name>\S+): Successfully installed (?P<full>\S+)")
#: Spack repeats each error at the end of its output, with the hash of the package.
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
    """the lines of Spack's error: each URL of a failed download with its reason; the failed
    command and Spack's excerpt of the build log"""
    log: str = ""
    """the package's build log; empty where the build did not start"""
    tail: list[str] = field(default_factory=list)
    """last lines of the build log, if the message has no excerpt of it"""

    def lines(self) -> list[str]:
        first, *rest = self.message
        lines = [f"{self.package}: {first}", *(f"    {line}" for line in rest)]
        if self.log:
            lines.append(f"  log: {self.log}")
        return [*lines, *(f"    {line}" for line in self.tail)]


@dataclass
class Outcome:
    """The result of a build."""

    built: dict[str, float] = field(default_factory=dict)
    """hash -> s that the installation took"""
    present: int = 0
    """number of packages that were installed before"""
    failures: list[Failure] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """packages that were not tried because a dependency failed"""
    seconds: float = 0.0
    started: dict[str, float] = field(default_factory=dict)
    """hash -> monotonic time in s at which the installation started"""
    log: Path | None = None
    """the output of ``spack install``; None if Spack was not started"""

    def summary(self) -> list[str]:
        """Lines for the terminal: the counts, then each failure."""
        counts = [
            f"{len(self.built)} built in {self.seconds:.0f} s",
            f"{self.present} installed before",
        ]
        if self.failures:
            counts.append(f"{len(self.failures)} failed")
        if self.left_out:
            counts.append(f"{len(self.left_out)} not tried")
        lines = [", ".join(counts)]
        for failure in self.failures:
            lines += failure.lines()
        if self.left_out:
            lines.append("not tried, because a dependency failed: " + " ".join(self.left_out))
        if self.failures:
            lines.append(f"complete output of Spack: {self.log}")
        return lines


def inputs_digest(paths: Paths) -> str:
    """Digest of the inputs of a concretization: environment, scopes, recipes, pins, Spack."""
    folders = [
        paths.scope,
        CHECKOUT / "spack-repo" / "spack_repo",
        CHECKOUT / "spack-repo" / "environments",
        *paths.scopes,
    ]
    files = [paths.environment / "spack.yaml", paths.pins]
    files += [paths.tools] if paths.tools.is_file() else []
    for folder in folders:
        files += sorted(
            file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts
        )
    parts: list[str | bytes] = [install.commit_of(paths.root)]
    for file in files:
        parts += [str(file), file.read_bytes()]
    return digest(parts)


def concretize(paths: Paths, say: Say, *, force: bool = False) -> float:
    """Bring spack.lock up to date. Returns the time in s, 0 if spack.lock was up to date."""
    stamp = paths.folder / "concretized"
    wanted = inputs_digest(paths)
    if not force and paths.lock.is_file() and stamp.is_file() and stamp.read_text() == wanted:
        return 0.0
    say("concretizing the environment")
    start = time.monotonic()
    install.spack(paths, ["concretize", "--force"], "concretizing", environment=True)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(wanted)
    return time.monotonic() - start


def nodes(paths: Paths) -> dict[str, dict[str, Any]]:
    """Hash -> node of spack.lock. Raises LabError if there is no spack.lock."""
    try:
        return json.loads(paths.lock.read_text())["concrete_specs"]
    except FileNotFoundError:
        raise LabError(
            f"there is no {paths.lock}: run `seatrial stack build --site {paths.site}`"
        ) from None


def roots(paths: Paths) -> list[str]:
    """Hashes of the root specs of spack.lock, in its order."""
    return [part["hash"] for part in json.loads(paths.lock.read_text())["roots"]]


def prefixes(paths: Paths) -> dict[str, str]:
    """Hash -> prefix of each installed package, from the database of the install tree."""
    file = paths.home / "opt" / ".spack-db" / "index.json"
    try:
        installs = json.loads(file.read_text())["database"]["installs"]
    except FileNotFoundError:
        return {}
    return {
        key: str(entry["path"])
        for key, entry in installs.items()
        if entry.get("installed") and entry.get("path")
    }


def missing(paths: Paths) -> list[str]:
    """Hashes of the packages of spack.lock that are not installed. An external is never missing."""
    installed = prefixes(paths)
    return [
        key
        for key, node in nodes(paths).items()
        if "external" not in node and not Path(installed.get(key, "/nonexistent")).is_dir()
    ]


def label(node: dict[str, Any], graph: dict[str, dict[str, Any]]) -> str:
    """name@version of a package, with its transport, MPI and BLAS."""
    text = f"{node['name']}@{node['version']}"
    if path := node.get("parameters", {}).get("transport"):
        text += f" transport={path}"
    for part in node.get("dependencies", ()):
        if {"mpi", "blas"} & set(part.get("parameters", {}).get("virtuals", ())):
            other = graph[part["hash"]]
            text += f" ^{other['name']}@{other['version']}"
    return text


def build(paths: Paths, say: Say, options: Iterable[str] = ()) -> Outcome:
    """Install the missing packages of spack.lock.

    A failure stops only the packages that depend on the failed one. ``options`` are Spack's, before
    the command.
    """
    graph = nodes(paths)
    todo = missing(paths)
    outcome = Outcome(present=sum("external" not in node for node in graph.values()) - len(todo))
    if not todo:
        return outcome
    say(f"building {len(todo)} packages")
    paths.logs.mkdir(parents=True, exist_ok=True)
    outcome.log = log = paths.logs / "install.log"
    start = time.monotonic()
    arguments = ["install", "--no-check-signature", "--only-concrete"]
    command = install.command_line(paths, arguments, environment=True, options=options)
    with log.open("w") as kept:
        for line in _output_lines([str(word) for word in command], paths.variables()):
            kept.write(line)
            kept.flush()
            _record(line, graph, len(todo), outcome, say)
    outcome.seconds = time.monotonic() - start
    absent = missing(paths)
    failed = failures(log.read_text(errors="replace"), absent, graph)
    outcome.failures = list(failed.values())
    outcome.left_out = [label(graph[key], graph) for key in absent if key not in failed]
    if absent and not failed:
        outcome.failures = [Failure("spack install", ["ended early"], "", last_lines(log))]
    return outcome


def _record(
    line: str, graph: dict[str, dict[str, Any]], count: int, outcome: Outcome, say: Say
) -> None:
    """Note the start or the end of an installation, and report the end."""
    if match := _STARTED.match(line):
        outcome.started[match["hash"]] = time.monotonic()
    elif match := _DONE.match(line):
        key = match["full"].rpartition("-")[2]
        if key in graph:
            name = label(graph[key], graph)
            now = time.monotonic()
            took = now - outcome.started.get(key, now)
            outcome.built[key] = took
            say(f"{len(outcome.built)} of {count}: {name}, {took:.1f} s")


def _output_lines(command: list[str], env: dict[str, str]) -> Iterator[str]:
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
    text: str, absent: Container[str], graph: dict[str, dict[str, Any]]
) -> dict[str, Failure]:
    """Hash -> failure of each package of ``absent`` for which Spack reports an error.

    ``text`` is the output of ``spack install``.
    """
    failed: dict[str, Failure] = {}
    current = ""  # the package that Spack installs
    failure: Failure | None = None  # the one whose message continues
    for line in text.splitlines():
        if match := _STARTED.match(line):
            current = match["hash"]
        if match := _ERROR.match(line):
            if match["text"] == _NOT_INSTALLED:
                break
            key = match["hash"] or current
            failure = None
            if key in absent and key not in failed:
                failure = failed[key] = Failure(label(graph[key], graph), [match["text"]])
        elif _END_OF_ERROR.match(line):
            failure = None
        elif (match := _LOG.match(line)) and current in failed:
            failed[current].log = match["file"]
        elif failure and line.strip():
            failure.message.append(_INDENTED_URL.sub("", line.removeprefix("    ").rstrip()))
    for failure in failed.values():
        if not any(map(_EXCERPT.match, failure.message)):
            failure.tail = last_lines(failure.log)
    return failed


def last_lines(file: str | Path, count: int = TAIL) -> list[str]:
    """The end of a log; empty if the log cannot be read."""
    try:
        return Path(file).read_text(errors="replace").strip().splitlines()[-count:]
    except OSError:
        return []
