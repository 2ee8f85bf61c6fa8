"""Whether a running Slurm is set up for a site's NIC profiles: what is missing, what to do.

Works on what ``scontrol show`` prints; asks nothing and changes nothing by itself.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from seatrial.slurm.layout import Layout
from seatrial.slurm.render import node_features

#: asks Slurm: the words after ``scontrol`` to what it printed
Ask = Callable[[list[str]], str]
#: what the node side itself may take: waiting for the node's lock, and for its job's processes
_LEAST_TIMEOUT_S = 60
_INFINITE = 65534


@dataclass(frozen=True)
class Finding:
    """``what`` was looked at, whether it is right, a sentence, and what to do where it is not."""

    what: str
    good: bool
    sentence: str
    fix: str = ""


def check(ask: Ask, policy: Mapping[str, Any], layout: Layout) -> list[Finding]:
    """All findings for a running Slurm, good ones too."""
    config = parse_config(ask(["show", "config"]))
    return [
        *_scripts(config, layout),
        *_flags(config),
        *_times(config),
        *_health(config, layout),
        *_submission(config, layout),
        *_alone(config, ask(["-o", "show", "partition"])),
        *_features(ask(["-o", "show", "node"]), policy),
    ]


def parse_config(text: str) -> dict[str, str]:
    """Keys and values of ``scontrol show config``; a list such as ``Prolog[0]`` as one value."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = re.match(r"\s*([A-Za-z]+)(?:\[\d+\])?\s*=\s*(.*?)\s*$", line)
        if match:
            key, value = match.groups()
            found[key] = f"{found[key]} {value}" if key in found else value
    return found


def parse_records(text: str) -> list[dict[str, str]]:
    """Records of ``scontrol -o show``, one a line."""
    lines = (re.findall(r"(\w+)=(\S*)", line) for line in text.splitlines())
    return [dict(pairs) for pairs in lines if pairs]


def _include(layout: Layout) -> str:
    return f"put at the end of slurm.conf: Include {layout.slurm_conf}"


def _scripts(config: Mapping[str, str], layout: Layout) -> Iterator[Finding]:
    chains = {
        "Prolog": "let its last line be: exec {ours}",
        "Epilog": 'let it begin with: "{ours}" || exit',
    }
    for what, chain in chains.items():
        ours = f"{layout.libexec}/{what.lower()}"
        # Both may be patterns.
        named = config.get(what, "(null)").split()
        if any(fnmatch.fnmatchcase(ours, one) for one in named):
            yield Finding(what, True, f"{what} is {ours}")
        elif named in ([], ["(null)"]):
            yield Finding(what, False, f"there is no {what}", _include(layout))
        else:
            yield Finding(
                what,
                False,
                f"{what} is {' '.join(named)}, not {ours}: Slurm runs ours only if yours calls it",
                f"{chain.format(ours=ours)} (if it does so already, all is well)",
            )
    user = config.get("SlurmdUser", "root(0)")
    if not user.startswith("root("):
        yield Finding(
            "SlurmdUser", False, f"slurmd is run by {user}, who may set no interface",
            "SlurmdUser=root",
        )  # fmt: skip


def _flags(config: Mapping[str, str]) -> Iterator[Finding]:
    flags = {flag.lower() for flag in re.split(r"[,\s]+", config.get("PrologFlags", ""))}
    reasons = {
        "Alloc": "a node without steps would run the Epilog and no Prolog",
        "Contain": "a node could not tell whether the job that a profile belongs to still runs",
        "DeferBatch": "a batch script would start when the first node has its profile, not all",
    }
    missing = [flag for flag in reasons if flag.lower() not in flags]
    if "contain" in flags and "Alloc" in missing:
        missing.remove("Alloc")  # implied
    for flag in missing:
        yield Finding(
            "PrologFlags", False, f"PrologFlags has no {flag}: {reasons[flag]}",
            "PrologFlags=Alloc,Contain,DeferBatch",
        )  # fmt: skip
    if not missing:
        yield Finding("PrologFlags", True, f"PrologFlags is {config['PrologFlags']}")


def _seconds(text: str) -> int | None:
    """Seconds, or None where Slurm waits for ever."""
    match = re.match(r"\d+", text)
    number = int(match[0]) if match else _INFINITE
    return None if number >= _INFINITE else number


def _times(config: Mapping[str, str]) -> Iterator[Finding]:
    # One setting, or since Slurm 24.05 one for each.
    names = [n for n in ("PrologTimeout", "EpilogTimeout") if n in config] or [
        "PrologEpilogTimeout"
    ]
    longest = 0
    for name in names:
        seconds = _seconds(config.get(name, ""))
        if seconds is None:
            yield Finding(
                name, False, f"{name} is infinite: a driver that hangs would hold jobs for ever",
                "PrologEpilogTimeout=120",
            )  # fmt: skip
        elif seconds < _LEAST_TIMEOUT_S:
            yield Finding(
                name, False,
                f"{name} is {seconds} s; the node side may take {_LEAST_TIMEOUT_S} s, and a Prolog "
                "that is killed drains its node",
                "PrologEpilogTimeout=120",
            )  # fmt: skip
        else:
            yield Finding(name, True, f"{name} is {seconds} s")
        longest = max(longest, seconds or 0)
    batch = _seconds(config.get("BatchStartTimeout", ""))
    if batch is not None and batch <= longest:
        yield Finding(
            "BatchStartTimeout", False,
            f"BatchStartTimeout is {batch} s: a job is taken for missing while its Prolog, which "
            f"may take {longest} s, still runs",
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
            "there is no HealthCheckProgram: what a dead job left is found only when the next job "
            "with a profile comes, or slurmd is started",
            _include(layout),
        )  # fmt: skip
        return
    if program == ours:
        yield Finding("HealthCheckProgram", True, f"HealthCheckProgram is {ours}")
    else:
        yield Finding(
            "HealthCheckProgram", False, f"HealthCheckProgram is {program}, not {ours}",
            f"let it call {ours} (if it does so already, all is well)",
        )  # fmt: skip
    interval = _seconds(config.get("HealthCheckInterval", "0"))
    if not interval:
        yield Finding(
            "HealthCheckInterval", False, "HealthCheckInterval is 0: it runs only as slurmd starts",
            f"HealthCheckInterval={layout.health_interval_s}",
        )  # fmt: skip
    states = config.get("HealthCheckNodeState", "ANY").upper()
    if not re.search(r"\bANY\b", states):
        yield Finding(
            "HealthCheckNodeState", False,
            f"HealthCheckNodeState is {states}: nodes in other states are not looked at",
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
        f"JobSubmitPlugins is {plugins}: jobs with a profile are not made exclusive, so a second "
        f"job can come to the node; {layout.job_submit} is not read",
        f"JobSubmitPlugins={wanted}",
    )  # fmt: skip


def _alone(config: Mapping[str, str], partitions: str) -> Iterator[Finding]:
    for part in parse_records(partitions):
        if re.fullmatch(r"FORCE(:[2-9]\d*|:1\d+)?", part.get("OverSubscribe", "")):
            yield Finding(
                "OverSubscribe", False,
                f"partition {part.get('PartitionName')} has OverSubscribe={part['OverSubscribe']}: "
                "no job is alone on its nodes there, so jobs with a profile are refused",
                "OverSubscribe=NO or YES in that partition, or another one for such jobs",
            )  # fmt: skip
    if re.search(r"GANG|SUSPEND", config.get("PreemptMode", "")):
        yield Finding(
            "PreemptMode", False,
            f"PreemptMode is {config['PreemptMode']}: a suspended job keeps its profile, and the "
            "Prolog of the job that takes its place refuses the node and so drains it",
            "PreemptMode=REQUEUE or CANCEL for partitions with profiles",
        )  # fmt: skip


def _features(nodes: str, policy: Mapping[str, Any]) -> Iterator[Finding]:
    has = {
        one["NodeName"]: set(one.get("AvailableFeatures", "").split(","))
        for one in parse_records(nodes)
        if "NodeName" in one
    }
    good = 0
    prefix = policy["feature_prefix"]
    for node, wanted in node_features(policy).items():
        if node not in has:
            yield Finding(
                "nodes", False, f"Slurm has no node {node}, which the site file names",
                "correct nodes: in the site file, or slurm.conf",
            )  # fmt: skip
            continue
        missing = [name for name in wanted if name not in has[node]]
        extra = sorted(name for name in has[node] if name.startswith(prefix) and name not in wanted)
        if missing:
            yield Finding(
                "features", False,
                f"{node} lacks {', '.join(missing)}: jobs with that profile never get it",
                f"add to its NodeName line: Feature={','.join(wanted)}",
            )  # fmt: skip
        if extra:
            yield Finding(
                "features", False,
                f"{node} has {', '.join(extra)}, a profile that does not fit it: the Prolog of a "
                "job that asks for it refuses the node and so drains it",
                f"take it out of its NodeName line: Feature={','.join(wanted)}",
            )  # fmt: skip
        good += not missing and not extra
    if good:
        yield Finding("features", True, f"{good} nodes have the features of their profiles")
