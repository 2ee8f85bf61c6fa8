"""Renders the text of every file of the Slurm side from a site's policy.

A missing value is an error, and each value is quoted for the language of the file
(``seatrial.base.templates``).
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from ClusterShell.NodeSet import NodeSet
from jinja2 import Environment

from seatrial.base.errors import InputError
from seatrial.base.paths import CHECKOUT
from seatrial.base.templates import environment
from seatrial.slurm.layout import PACKAGE, Layout

TEMPLATES = CHECKOUT / "slurm-templates"
NODE_SIDE = Path(__file__).resolve().parents[1] / "nic" / "node"
#: a later installation may replace files with this text
MARKER = "Installed by seatrial slurm install: it replaces this file, so edits are lost."
#: file in a version of the node side that has the marker, because the modules have none
INSTALLED = ".installed"
#: the policy in a version of the node side
POLICY = "nic.json"
Where = Literal["nodes", "controller", "both"]
_FEATURE = re.compile(r"[A-Za-z0-9_.=]+")


@dataclass(frozen=True)
class File:
    """One file of the installation: absolute path, text, mode, machines and purpose."""

    path: str
    text: str
    mode: int
    where: Where
    purpose: str


def render(policy: Mapping[str, Any], layout: Layout) -> list[File]:
    """All files for a policy (see ``seatrial.site.nic_policy``), with the node side.

    Raises InputError if a profile's feature is not valid in Slurm.
    """
    profiles = [(profile["feature"], name) for name, profile in policy["profiles"].items()]
    for feature, name in profiles:
        if not _FEATURE.fullmatch(feature):
            raise InputError(f"NIC profile {name}: {feature!r} is not a valid Slurm feature")
    policy_text = json.dumps(policy, indent=1, sort_keys=True) + "\n"
    version, inside = _version(policy_text, layout)
    values = {
        "marker": MARKER,
        "site": policy["site"],
        "prefix": policy["feature_prefix"],
        "profiles": profiles,
        "features": [
            (str(nodes), ",".join(names)) for nodes, names in folded(node_features(policy))
        ],
        "state_folder": policy["state_folder"],
        "state_root": _state_root(policy["state_folder"]),
        "libexec": layout.libexec,
        "command": layout.command,
        "version": version,
        "python": layout.python,
        "conf_file": layout.slurm_conf,
        "lua_file": layout.job_submit,
        "lua_beside": layout.job_submit_beside,
        "health_interval_s": layout.health_interval_s,
        "prolog_timeout_s": layout.prolog_timeout_s,
        "command_s": layout.command_s,
        "batch_start_timeout_s": layout.batch_start_timeout_s,
    }

    def made(template: str, path: str, mode: int, where: Where, purpose: str) -> File:
        return File(
            path, _environment().get_template(template).render(values), mode, where, purpose
        )

    libexec = layout.libexec
    return [
        *inside,
        File(layout.policy, policy_text, 0o644, "nodes", "profiles of the site, for jobs to read"),
        # It names the version. With it, all that Slurm and systemd start changes in one step.
        made("seatrial-nic.j2", layout.command, 0o755, "nodes", "the node side's command"),
        made("prolog.j2", f"{libexec}/prolog", 0o755, "nodes", "Slurm's Prolog"),
        made("epilog.j2", f"{libexec}/epilog", 0o755, "nodes", "Slurm's Epilog"),
        made("health.j2", f"{libexec}/health", 0o755, "nodes", "Slurm's HealthCheckProgram"),
        made(
            "seatrial-nic-recover.service.j2", layout.unit, 0o644, "nodes", "recovers before slurmd"
        ),
        made("seatrial-nic.conf.j2", layout.slurm_conf, 0o644, "both", "piece of slurm.conf"),
        made(
            "job_submit.lua.j2",
            layout.job_submit,
            0o644,
            "controller",
            "checks jobs when submitted",
        ),
    ]


def _version(policy: str, layout: Layout) -> tuple[str, list[File]]:
    """The name of this version of the node side, which is a digest of its content, and its files:
    the package and the policy, so that both change together."""
    texts = {INSTALLED: f"{MARKER}\n", POLICY: policy}
    texts |= {f"{PACKAGE}/{path.name}": path.read_text() for path in _sources()}
    name = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:16]
    files = [
        File(f"{layout.versions}/{name}/{inner}", text, 0o644, "nodes", "the node side")
        for inner, text in texts.items()
    ]
    return name, files


def _sources() -> list[Path]:
    return sorted(NODE_SIDE.glob("*.py"))


def node_features(policy: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Short name of a node -> the Slurm features of the profiles that fit it."""
    return {
        node: tuple(
            profile["feature"]
            for profile in policy["profiles"].values()
            if node in profile.get("nodes", ())
        )
        for node in policy["nodes"]
    }


def folded(features: Mapping[str, tuple[str, ...]]) -> list[tuple[NodeSet, tuple[str, ...]]]:
    """Groups of nodes with the same features, so that a large site has few lines."""
    groups: dict[tuple[str, ...], NodeSet] = {}
    for node, names in features.items():
        groups.setdefault(names, NodeSet()).add(node)
    return [(nodes, names) for names, nodes in groups.items() if names]


def _state_root(folder: str) -> str:
    """The state folder, or the folder of the state folders of all nodes."""
    head, node, _ = folder.partition("%n")
    return str(PurePosixPath(f"{head}n").parent) if node else folder


def find_state(folder: str) -> str:
    """Lines of shell that set ``state`` to a state folder. They start no program."""
    if "%n" not in folder:
        return f"state={shlex.quote(folder)}"
    pieces = [shlex.quote(piece) if piece else "" for piece in folder.split("%n")]
    return "\n".join(
        [
            "node=${SLURMD_NODENAME-}",
            '[ "$node" ] || { read -r node </proc/sys/kernel/hostname; node=${node%%.*}; }',
            "state=" + '"$node"'.join(pieces),
        ]
    )


@cache
def _environment() -> Environment:
    return environment(TEMPLATES, find_state=find_state)
