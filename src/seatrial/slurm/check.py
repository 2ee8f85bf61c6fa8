"""Checks whether a running Slurm is configured for a site's NIC profiles.

It reads the output of ``scontrol show``, names what is missing and how to correct it, and changes
nothing.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from seatrial.base.files import read_below
from seatrial.slurm.layout import Layout
from seatrial.slurm.render import node_features

#: arguments of ``scontrol`` -> its output
Ask = Callable[[list[str]], str]
_INFINITE = 65534
_LARGEST = 16 << 20  # bytes of a file of slurm.conf, or of a program that may call ours


@dataclass(frozen=True)
class Finding:
    """The result of one check: the subject, whether it is right, a sentence, and the correction."""

    what: str
    good: bool
    sentence: str
    fix: str = ""


def check(ask: Ask, policy: Mapping[str, Any], layout: Layout) -> list[Finding]:
    """All findings for a running Slurm, also the good ones."""
    config = parse_config(ask(["show", "config"]))
    return [
        *_scripts(config, layout),
        *_flags(config),
        *_times(config, layout),
        *_health(config, layout),
        *_submission(config, layout),
        *_alone(config, ask(["-o", "show", "partition"])),
        *_features(ask(["-o", "show", "node"]), policy),
        *_controllers(config, policy),
    ]


def parse_config(text: str) -> dict[str, str]:
    """Keys and values of ``scontrol show config``; a list such as ``Prolog[0]`` as one value."""
    config: dict[str, str] = {}
    for line in text.splitlines():
        match = re.match(r"\s*([A-Za-z]+)(?:\[\d+\])?\s*=\s*(.*?)\s*$", line)
        if match:
            key, value = match.groups()
            config[key] = f"{config[key]} {value}" if key in config else value
    return config


def parse_records(text: str) -> list[dict[str, str]]:
    """The records of ``scontrol -o show``, one per line."""
    lines = (re.findall(r"(\w+)=(\S*)", line) for line in text.splitlines())
    return [dict(pairs) for pairs in lines if pairs]


def names_ours(config: Mapping[str, str], layout: Layout) -> list[str]:
    """The keys of a Slurm's configuration whose programs are ours, or call ours."""
    keys = ("Prolog", "Epilog", "HealthCheckProgram")
    return [
        key
        for key in keys
        if any(
            _is_ours(word, Path("/"), layout, program=True) for word in config.get(key, "").split()
        )
    ]


def _text(program: str) -> str:
    try:
        return _read(Path(program))
    except (OSError, ValueError):
        return ""


def _read(file: Path) -> str:
    real = file.resolve()
    return read_below(real.parent, Path(real.name), _LARGEST).decode(errors="replace")


@dataclass(frozen=True)
class Mention:
    """A line of slurm.conf, or of a file that it includes, with one of our files."""

    file: Path
    number: int
    line: str


def mentions(root: Path, layout: Layout) -> tuple[list[Mention], list[str]]:
    """The lines of slurm.conf below ``root`` that name our files, and what could not be read.

    It follows Include, relative to the folder of slurm.conf and with ``%c`` for ClusterName, as
    slurm.conf(5) says. A program of the site that calls ours counts as ours.
    """
    folder = Path(layout.slurm)
    todo, seen = [folder / "slurm.conf"], set[Path]()
    named: list[Mention] = []
    unread: list[str] = []
    cluster = ""
    while todo:
        path = todo.pop(0)
        if path in seen:
            continue
        seen.add(path)
        file = root / str(path).lstrip("/")
        try:
            text = _read(file)
        except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, Python < 3.13
            unread.append(f"{file}: {getattr(error, 'strerror', None) or error}")
            continue
        lines = list(_logical_lines(text))
        for _, line in lines:
            if match := re.match(r'\s*ClusterName\s*=\s*"?([^\s"]+)', line, re.IGNORECASE):
                cluster = match[1]
        for number, line in lines:
            include = re.match(r"\s*Include\s+\"?([^\s\"]+)", line, re.IGNORECASE)
            words = re.split(r"[\s=,:\"']+", line)
            if include:
                # Slurm uses a cluster's name in lower case, older versions as it is written.
                names = (include[1].replace("%c", name) for name in (cluster, cluster.lower()))
                paths = [_normal(folder / name) for name in names]
                below = (path for path in paths if (root / str(path).lstrip("/")).exists())
                included = next(below, paths[-1])
                words.append(str(included))
                todo.append(included)
            program = bool(re.match(r"\s*(Prolog|Epilog|HealthCheckProgram)", line, re.IGNORECASE))
            paths_named = (word for word in words if "/" in word or include)
            if any(_is_ours(word, root, layout, program) for word in paths_named):
                named.append(Mention(file, number, line.strip()))
                todo = [one for one in todo if one.name != Path(layout.slurm_conf).name]
    return named, unread


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line without its comment; a backslash continues a line."""
    begin, whole = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        active = re.split(r"(?<!\\)#", line, maxsplit=1)[0].rstrip()
        begin = begin or number
        if active.endswith("\\"):
            whole += active[:-1]
            continue
        yield begin, whole + active
        begin, whole = 0, ""
    if whole:
        yield begin, whole


def _normal(path: Path | str) -> Path:
    """Without ``..``, ``.`` and double slashes, also at the begin."""
    return Path("/", os.path.normpath(path).lstrip("/"))


def _is_ours(word: str, root: Path, layout: Layout, program: bool) -> bool:
    """Whether a path of slurm.conf, or a pattern of paths, is one of our files.

    Also whether it calls one, if it is a program: a log only reports them.
    """
    if PurePosixPath(word).name == PurePosixPath(layout.slurm_conf).name:
        return True
    if not word.startswith("/"):
        return False
    path = _normal(word)
    libexec = _normal(layout.libexec)
    scripts = [str(libexec / name) for name in ("prolog", "epilog", "health", "seatrial-nic")]
    if libexec in path.parents or any(fnmatch.fnmatchcase(script, str(path)) for script in scripts):
        return True
    file = root / str(path).lstrip("/")
    real, folder = file.resolve(), (root / str(libexec).lstrip("/")).resolve()
    return folder in real.parents or (program and f"{libexec}/" in _text(str(file)))


def _include(layout: Layout) -> str:
    return f"add at the end of slurm.conf: Include {layout.slurm_conf}"


def _controllers(config: Mapping[str, str], policy: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the guard of the nodes knows the way to each slurmctld: its connections are short."""
    what, known = "SlurmctldHost", list(policy.get("controllers", []))
    hosts = config.get(what, "").replace("(null)", "").split()
    addresses = [match[1] for host in hosts if (match := re.search(r"\((.+)\)", host))]
    missing = [address for address in addresses if address not in known]
    if missing or len(known) < max(1, len(hosts)):
        need = f"the addresses of {', '.join(hosts)}" if hosts else "the address of each slurmctld"
        yield Finding(
            what, False,
            f"nic: controllers: of the site file has {', '.join(known) or 'no address'}: a node "
            "does not know all interfaces that lead to slurmctld, and could change one",
            f"write {', '.join(missing) or need} into nic: controllers:, install again",
        )  # fmt: skip
    else:
        yield Finding(what, True, f"nic: controllers: has {', '.join(known)}")


def _scripts(config: Mapping[str, str], layout: Layout) -> Iterator[Finding]:
    chains = {
        "Prolog": "make its last line: exec {ours}",
        "Epilog": 'make its first line: "{ours}" || exit',
    }
    for what, chain in chains.items():
        ours = f"{layout.libexec}/{what.lower()}"
        # Slurm accepts glob patterns for both.
        configured = config.get(what, "(null)").split()
        if any(fnmatch.fnmatchcase(ours, pattern) for pattern in configured):
            yield Finding(what, True, f"{what} is {ours}")
        elif configured in ([], ["(null)"]):
            yield Finding(what, False, f"there is no {what}", _include(layout))
        else:
            yield Finding(
                what,
                False,
                f"{what} is {' '.join(configured)}, not {ours}: Slurm runs ours only if yours "
                "calls it",
                f"{chain.format(ours=ours)} (no change is needed if it does so already)",
            )
    user = config.get("SlurmdUser", "root(0)")
    if not user.startswith("root("):
        yield Finding(
            "SlurmdUser", False, f"slurmd runs as {user}, which may not configure interfaces",
            "SlurmdUser=root",
        )  # fmt: skip


def _flags(config: Mapping[str, str]) -> Iterator[Finding]:
    flags = {flag.lower() for flag in re.split(r"[,\s]+", config.get("PrologFlags", ""))}
    reasons = {
        "Alloc": "a node without steps would run the Epilog but not the Prolog",
        "Contain": "a node could not know whether the job of a profile still runs",
        "DeferBatch": "a batch script would start when the first node has its profile, not all",
    }
    missing = [flag for flag in reasons if flag.lower() not in flags]
    if "contain" in flags and "Alloc" in missing:
        missing.remove("Alloc")  # Contain implies Alloc
    for flag in missing:
        yield Finding(
            "PrologFlags", False, f"PrologFlags has no {flag}: {reasons[flag]}",
            "PrologFlags=Alloc,Contain,DeferBatch",
        )  # fmt: skip
    if not missing:
        yield Finding("PrologFlags", True, f"PrologFlags is {config['PrologFlags']}")


def _seconds(text: str) -> int | None:
    """Seconds, or None for no limit."""
    match = re.match(r"\d+", text)
    number = int(match[0]) if match else _INFINITE
    return None if number >= _INFINITE else number


def _times(config: Mapping[str, str], layout: Layout) -> Iterator[Finding]:
    # Before Slurm 24.05 there is one setting for both.
    names = [n for n in ("PrologTimeout", "EpilogTimeout") if n in config] or [
        "PrologEpilogTimeout"
    ]
    longest = 0
    for name in names:
        seconds = _seconds(config.get(name, ""))
        if seconds is None:
            yield Finding(
                name, False, f"{name} is infinite: a driver that hangs would block jobs forever",
                f"PrologEpilogTimeout={layout.prolog_timeout_s}",
            )  # fmt: skip
        elif seconds < layout.prolog_timeout_s:
            yield Finding(
                name, False,
                f"{name} is {seconds} s; the node side may take {layout.command_s} s, and Slurm "
                "drains a node whose Prolog is killed",
                f"PrologEpilogTimeout={layout.prolog_timeout_s}",
            )  # fmt: skip
        else:
            yield Finding(name, True, f"{name} is {seconds} s")
        longest = max(longest, seconds or 0)
    batch = _seconds(config.get("BatchStartTimeout", ""))
    if batch is not None and batch <= longest:
        yield Finding(
            "BatchStartTimeout", False,
            f"BatchStartTimeout is {batch} s: Slurm would treat a job as missing while its Prolog "
            f"runs, which may take {longest} s",
            f"BatchStartTimeout={longest + 60}",
        )  # fmt: skip
    else:
        yield Finding("BatchStartTimeout", True, f"BatchStartTimeout is {batch} s")


def _health(config: Mapping[str, str], layout: Layout) -> Iterator[Finding]:
    ours = f"{layout.libexec}/health"
    program = config.get("HealthCheckProgram", "(null)")
    if program == "(null)":
        yield Finding(
            "HealthCheckProgram", False,
            "there is no HealthCheckProgram: the settings of a dead job stay until the next job "
            "with a profile starts, or slurmd starts",
            _include(layout),
        )  # fmt: skip
        return
    if program == ours:
        yield Finding("HealthCheckProgram", True, f"HealthCheckProgram is {ours}")
    else:
        yield Finding(
            "HealthCheckProgram", False, f"HealthCheckProgram is {program}, not {ours}",
            f"call {ours} in it (no change is needed if it does so already)",
        )  # fmt: skip
    interval = _seconds(config.get("HealthCheckInterval", "0"))
    if not interval:
        yield Finding(
            "HealthCheckInterval", False,
            "HealthCheckInterval is 0: the health check runs only when slurmd starts",
            f"HealthCheckInterval={layout.health_interval_s}",
        )  # fmt: skip
    states = config.get("HealthCheckNodeState", "ANY").upper()
    if not re.search(r"\bANY\b", states):
        yield Finding(
            "HealthCheckNodeState", False,
            f"HealthCheckNodeState is {states}: nodes in other states are not checked",
            "HealthCheckNodeState=ANY",
        )  # fmt: skip


def _submission(config: Mapping[str, str], layout: Layout) -> Iterator[Finding]:
    plugins = config.get("JobSubmitPlugins", "(null)")
    if "lua" in re.split(r"[,\s]+", plugins):
        yield Finding("JobSubmitPlugins", True, f"JobSubmitPlugins is {plugins}")
        return
    wanted = "lua" if plugins == "(null)" else f"{plugins},lua"
    yield Finding(
        "JobSubmitPlugins", False,
        f"JobSubmitPlugins is {plugins}, so Slurm does not read {layout.job_submit}: jobs with a "
        "profile are not exclusive, and a second job may share their nodes",
        f"JobSubmitPlugins={wanted}",
    )  # fmt: skip


def _alone(config: Mapping[str, str], partitions: str) -> Iterator[Finding]:
    for part in parse_records(partitions):
        if re.fullmatch(r"FORCE(:[2-9]\d*|:1\d+)?", part.get("OverSubscribe", "")):
            yield Finding(
                "OverSubscribe", False,
                f"partition {part.get('PartitionName')} has OverSubscribe={part['OverSubscribe']}: "
                "its nodes are always shared, so jobs with a profile are refused",
                "OverSubscribe=NO or YES in that partition, or another partition for such jobs",
            )  # fmt: skip
    if re.search(r"GANG|SUSPEND", config.get("PreemptMode", "")):
        yield Finding(
            "PreemptMode", False,
            f"PreemptMode is {config['PreemptMode']}: a suspended job keeps its profile, so the "
            "Prolog of the next job refuses the node, and Slurm drains it",
            "PreemptMode=REQUEUE or CANCEL for partitions with profiles",
        )  # fmt: skip


def _features(nodes: str, policy: Mapping[str, Any]) -> Iterator[Finding]:
    has = {
        node["NodeName"]: set(node.get("AvailableFeatures", "").split(","))
        for node in parse_records(nodes)
        if "NodeName" in node
    }
    good = 0
    prefix = policy["feature_prefix"]
    for node, wanted in node_features(policy).items():
        if node not in has:
            yield Finding(
                "nodes", False, f"Slurm has no node {node}, but the site file has",
                "correct nodes: in the site file, or slurm.conf",
            )  # fmt: skip
            continue
        missing = [name for name in wanted if name not in has[node]]
        extra = sorted(name for name in has[node] if name.startswith(prefix) and name not in wanted)
        if missing:
            yield Finding(
                "features", False,
                f"{node} lacks {', '.join(missing)}: jobs with that profile never run on it",
                f"add to its NodeName line: Feature={','.join(wanted)}",
            )  # fmt: skip
        if extra:
            yield Finding(
                "features", False,
                f"{node} has {', '.join(extra)}, a profile that does not fit it: the Prolog of a "
                "job with this profile refuses the node, and Slurm drains it",
                f"remove it from its NodeName line: Feature={','.join(wanted)}",
            )  # fmt: skip
        good += not missing and not extra
    if good:
        yield Finding("features", True, f"{good} nodes have the features of their profiles")
