"""The policy of the nodes: the NIC profiles as JSON of flat settings, by node and interface.

Nodes have no YAML parser and not this package, so they read the site from the policy. ``declared``
is the part for one profile: a job compares its nodes with it. Both depend on the site file only.
This module reads no node and writes no file.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from seatrial.nic.inheritance import Resolved
from seatrial.nic.node.settings import SETTINGS, group_of
from seatrial.nic.profile import FEATURE_PREFIX, default_feature
from seatrial.site.model import Site
from seatrial.site.profiles import interfaces, lacking_networks, nodes_of, resolved, short

SCHEMA = 1


def compile_policy(site: Site) -> dict[str, Any]:
    """The content of the policy file, for a valid site (``seatrial.site.load``)."""
    policy: dict[str, Any] = {
        "schema": SCHEMA,
        "site": site.name,
        "feature_prefix": FEATURE_PREFIX,
        "state_folder": site.nic.state_folder,
        "scontrol": site.nic.scontrol,
        "controllers": site.nic.controllers,
        "protected": sorted(
            network.interface for network in site.networks.values() if network.role != "test"
        ),
        "nodes": _tests(site),
        "profiles": {name: _profile(site, resolved(site, name)) for name in site.nic_profiles},
    }
    return {**policy, "digest": digest(policy)}


def declared(site: Site, profile: str) -> dict[str, Any]:
    """The state of the nodes that a profile declares. Raises KeyError for an unknown profile."""
    whole = resolved(site, profile)
    flat = interfaces(site, whole)
    return {
        "profile": profile,
        "state_folder": site.nic.state_folder,
        "nodes": {short(node): flat for node in nodes_of(site, whole)},
        "node": whole.node_settings(),
        "if_supported": _optional(whole),
        "tests": _tests(site),
    }


def digest(policy: dict[str, Any]) -> str:
    """SHA-256, in hexadecimal, of a policy without its field ``digest``."""
    rest = {key: value for key, value in policy.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _tests(site: Site) -> dict[str, list[str]]:
    return {
        short(node): [site.networks[name].interface for name in site.test_networks
                      if name not in lacking]
        for node, lacking in lacking_networks(site).items()
    }  # fmt: skip


def _profile(site: Site, profile: Resolved) -> dict[str, Any]:
    feature = site.nic_profiles[profile.name].feature or default_feature(profile.name)
    return {
        "feature": feature,
        "description": profile.description,
        "nodes": [short(node) for node in nodes_of(site, profile)],
        "interfaces": interfaces(site, profile),
        "node": profile.node_settings(),
        "if_supported": _optional(profile),
    }


def _optional(profile: Resolved) -> list[str]:
    """Key groups of the settings that are skipped if a NIC does not support them."""
    return sorted(
        {group_of(setting.key) for setting in SETTINGS if setting.optional in profile.if_supported}
    )
