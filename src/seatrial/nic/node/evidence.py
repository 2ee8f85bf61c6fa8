"""Compare a node with a profile, from inside a job, without privileges. Changes nothing."""

from typing import Any, Dict, List

from . import owner, values
from .errors import NicError
from .nic import Nic, lacking, of_this_node
from .store import Damaged, Store


def collect(
    declared: Dict[str, Any], hostname: str, job: Any = None, nic: Any = None
) -> Dict[str, Any]:
    """Compare a node with what was declared (``seatrial.site.nic_policy.declared``).

    ``job`` is the id of the job that must own the profile; None: whichever does. Raises nothing:
    what goes wrong is the ``reason``, and ``ok`` is False then.
    """
    nic = nic or of_this_node(Nic(), owner.names())
    profile = declared["profile"]
    evidence = {"profile": profile, "ok": False, "reason": "", "owner": None, "interfaces": {}}
    reasons: List[str] = []
    wanted = declared.get("nodes", {}).get(hostname)
    if wanted is None:
        evidence["reason"] = "NIC profile %s is not for node %s" % (profile, hostname)
        return evidence
    optional = declared.get("if_supported", [])
    for interface in declared.get("tests", {}).get(hostname, sorted(wanted)):
        try:
            state = nic.read(interface)
            of_interface = wanted.get(interface, {})
            left_out: List[str] = []
            if optional:  # as the Prolog does
                left_out, _ = lacking(nic, interface, of_interface, state, optional)
            kept = {key: value for key, value in of_interface.items() if key not in left_out}
            different = _different(kept, state, nic)
        except NicError as error:
            reasons.append(str(error))
            continue
        evidence["interfaces"][interface] = {"state": state, "differences": different}
        if left_out:
            evidence["interfaces"][interface]["left_out"] = left_out
        for one in different:
            actual = values.shown(one["actual"], one["setting"])
            words = (interface, one["setting"], actual, one["wanted"])
            reasons.append("%s %s is %s, not %s" % words)
    node = nic.read_node()
    for difference in values.differences(declared.get("node", {}), node):
        reasons.append(
            "%s is %s, not %s"
            % (difference.setting, values.shown(difference.actual), difference.wanted)
        )
    reasons += _owned(declared, hostname, profile, job, evidence)
    if profile == "default" and evidence["owner"] is None:
        reasons += _drifted(declared, hostname, evidence["interfaces"], nic)
    evidence["ok"] = not reasons
    evidence["reason"] = "; ".join(reasons)
    return evidence


def _different(wanted: Dict[str, Any], state: Dict[str, Any], nic: Any) -> List[Dict[str, Any]]:
    plain = {key: value for key, value in wanted.items() if key not in ("driver", "bond")}
    target = values.spread(plain, state, nic.cpus())
    differences = []
    for difference in values.differences(target, state):
        differences.append(
            {
                "setting": difference.setting,
                "wanted": difference.wanted,
                "actual": difference.actual,
            }
        )
    driver = wanted.get("driver")
    if driver:
        if state.get("driver.module") != driver["module"]:
            module = state.get("driver.module")
            differences.append({"setting": "driver", "wanted": driver["module"], "actual": module})
        for name, value in driver.get("parameters", {}).items():
            now = state.get("driver.parameter." + name)
            # Many parameters can be given but not read: the journal is then the only evidence.
            if now is not None and not values.same_parameter(value, now):
                differences.append(
                    {"setting": "driver.parameter." + name, "wanted": value, "actual": now}
                )
    bond = wanted.get("bond")
    if bond and state.get("master") != bond["name"]:
        differences.append(
            {"setting": "bond", "wanted": bond["name"], "actual": state.get("master")}
        )
    return differences


def _drifted(
    declared: Dict[str, Any], hostname: str, interfaces: Dict[str, Any], nic: Any
) -> List[str]:
    """Without a profile the interfaces must be as at boot, where the node has a record of that."""
    folder = declared.get("state_folder", "").replace("%n", hostname)
    baseline = Store(folder).baseline() if folder else None
    if not baseline or baseline["boot_id"] != owner.boot_id():
        return []
    reasons = []
    for interface in sorted(interfaces):
        state = interfaces[interface]["state"]
        before = baseline["interfaces"].get(interface, state)
        across = nic.versions(interface) != baseline.get("versions", {}).get(interface)
        ignored = [*baseline.get("ignored", []), *nic.ignored]
        then, now, _ = values.comparable(before, state, ignored, across)
        for difference in values.not_restored(then, now):
            interfaces[interface]["differences"].append(
                {
                    "setting": difference.setting,
                    "wanted": difference.wanted,
                    "actual": difference.actual,
                }
            )
            reasons.append(
                "%s %s is %s, was %s at boot, and no profile owns that"
                % (
                    interface,
                    difference.setting,
                    values.shown(difference.actual, difference.setting),
                    values.shown(difference.wanted, difference.setting),
                )
            )
    return reasons


def _owned(
    declared: Dict[str, Any], hostname: str, profile: str, job: Any, evidence: Dict[str, Any]
) -> List[str]:
    """Sentences on what the journal lacks."""
    folder = declared.get("state_folder", "").replace("%n", hostname)
    try:
        journal = Store(folder).journal() if folder else None
    except (Damaged, OSError):
        return ["the journal of NIC profiles in %s cannot be read" % folder]
    if journal is not None:
        if journal["boot_id"] != owner.boot_id():
            journal = None
        else:
            evidence["owner"] = {key: journal[key] for key in ("job", "profile", "phase")}
    if journal is None:
        if profile == "default":
            return []
        return [
            "no NIC profile is in force: was it asked for by --constraint, is the Prolog there?"
        ]
    if journal["profile"] != profile:
        return ["NIC profile %s is in force for %s" % (journal["profile"], owner.owner_of(journal))]
    if job is not None and journal["job"] != str(job):
        return [
            "NIC profile %s is in force for %s, not for this job"
            % (profile, owner.owner_of(journal))
        ]
    if journal["phase"] != "applied":
        return ["NIC profile %s is being applied" % profile]
    return []
