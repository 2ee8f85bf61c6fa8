"""The NIC profiles of a trial for report.html: settings, jobs, verifications and costs.

The cost of a profile is interrupts and processor time, beside the bandwidth of the same stream.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from seatrial.report.figures import spread_text
from seatrial.report.text import duration, folded, number, profile_name
from seatrial.results.folder import Results
from seatrial.results.locations import natural
from seatrial.results.profile_notes import left_out
from seatrial.results.record import Allocation, ProfileUse, Run
from seatrial.results.wording import plural

#: metrics of the cost of a profile: they have a table of their own and no figure per node
COSTS = {
    "interrupts_per_s": "interrupts (1/s)",
    "net_rx_per_s": "NET_RX softirqs (1/s)",
    "softirq_percent": "CPU in softirq (% of a core)",
    "irq_percent": "CPU in irq (% of a core)",
}
_STREAM = {
    "bandwidth_MB_s": "bandwidth (MB/s)",
    "cpu_sender_percent": "CPU of the sender (%)",
    "cpu_receiver_percent": "CPU of the receiver (%)",
}


@dataclass
class ProfileView:
    """One row of the table of profiles: a profile with its verifications."""

    use: ProfileUse
    sets: list[str]  # "eth1: mtu 9000"
    switched: list[str]  # a sentence for each switch
    nodes: list[str] = field(default_factory=list)  # of all runs
    verified: list[str] = field(default_factory=list)  # nodes where every verification passed
    verifications: int = 0
    passed: int = 0  # verifications
    runs: int = 0
    duration: str = ""  # median duration of a verification
    wrong: list[str] = field(default_factory=list)  # reasons, the first few
    left_out: list[str] = field(default_factory=list)  # "eth1 feature.rx-fcs on n[1-4]"

    @property
    def proven(self) -> bool:
        return bool(self.nodes) and self.nodes == self.verified and not self.wrong


def profile_views(results: Results) -> list[ProfileView]:
    """A view of each profile on record, in the trial's order."""
    views = []
    for use in results.trial.profiles:
        runs = [run for run in results.runs if run.case.profile == use.name]
        views.append(_view(use, runs))
    return views


def _view(use: ProfileUse, runs: list[Run]) -> ProfileView:
    view = ProfileView(use, settings_text(use), [switch_text(each) for each in use.allocations])
    if not view.switched:
        view.switched = ["never" if use.name == "default" else "by each job"]
    view.runs = len(runs)
    proofs = [proof for run in runs for proof in run.nic_proofs]
    view.verifications, view.passed = len(proofs), sum(proof.ok for proof in proofs)
    nodes = {proof.node for proof in proofs} | {n for r in runs for n in r.job.nodes}
    view.nodes = sorted(nodes, key=natural)
    bad = {proof.node for proof in proofs if not proof.ok}
    seen = {proof.node for proof in proofs}
    view.verified = [node for node in view.nodes if node in seen - bad]
    times = [p.seconds for p in proofs if p.seconds is not None and math.isfinite(p.seconds)]
    view.duration = brief(statistics.median(times)) if times else ""
    reasons = [allocation.reason for allocation in use.allocations if allocation.reason]
    reasons += [run.reason for run in runs if run.phase == "profile"]
    view.wrong = list(dict.fromkeys(reasons))[:3]
    view.left_out = [
        f"{', '.join(settings)} on {folded(names)}"
        for (_, names), settings in left_out(runs).items()
    ]
    return view


def settings_text(use: ProfileUse) -> list[str]:
    """The settings of a profile, grouped by nodes with equal settings."""
    same: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node, interfaces in use.settings.items():
        for interface, settings in interfaces.items():
            same[interface, _flat(settings)].append(node)
    texts = []
    for (interface, text), nodes in same.items():
        where = "" if len(nodes) == len(use.settings) else f" on {folded(nodes)}"
        texts.append(f"{interface}{where}: {text}")
    if use.node_settings:
        texts.append(f"node: {_flat(use.node_settings)}")
    return texts


def _flat(settings: dict[str, Any]) -> str:
    return ", ".join(f"{key} {_value(value, key)}" for key, value in settings.items())


def _value(value: Any, key: str = "") -> str:
    if key == "egress_bit_s" and isinstance(value, int) and value % 10**6 == 0:
        return f"{value} ({value // 10**6} Mbit/s)"
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {_value(inner)}" for key, inner in value.items()) + ")"
    return str(value)


def switch_text(allocation: Allocation) -> str:
    """One switch of a profile: by which job, on how many nodes, and how long it took."""
    job = allocation.job
    if not job.id:
        return "not switched"
    text = f"by job {job.id}"
    if allocation.waited_s is None:
        return f"{text}: not in force"
    text += f" on {plural(len(job.nodes), 'node')}, for {plural(allocation.cases, 'run')}; in "
    text += f"force {brief(allocation.waited_s)} after its submission"
    if allocation.released_s is not None:
        text += f", undone {brief(allocation.released_s)} after its end"
    return text


def brief(seconds: float) -> str:
    """A short time: in milliseconds below a second."""
    return f"{1000 * seconds:.0f} ms" if 0 <= seconds < 1 else duration(seconds)


def cost_table(results: Results) -> tuple[list[str], list[list[str]]]:
    """Header and rows: bandwidth and cost of a TCP stream under each profile.

    A cell has median, minimum and maximum over both ends. Columns without a value are omitted.
    Without the check ``tcp_stream`` there are no rows.
    """
    names = {**_STREAM, **COSTS}
    measured: dict[str, dict[str, list[float]]] = {}
    for run in results.runs:
        if run.case.check != "tcp_stream":
            continue
        for metric in run.metrics:
            if metric.metric in names and math.isfinite(metric.value):
                row = measured.setdefault(profile_name(run.case), {})
                row.setdefault(metric.metric, []).append(metric.value)
    shown = [name for name in names if any(name in row for row in measured.values())]
    rows = [
        [profile, *(spread_text(row.get(name, [])) for name in shown)]
        for profile, row in measured.items()
    ]
    return ["profile", *(names[name] for name in shown)], rows


@dataclass(frozen=True)
class ActivityRow:
    step: str
    node: str
    cells: list[str]  # in the order of COSTS


def activity_rows(run: Run) -> list[ActivityRow]:
    """Interrupts and softirqs of a run, by step and node."""
    interfaces = run.path.interfaces if run.path else set()
    rows = []
    for activity in run.activity:
        counted = [
            rate
            for name, rate in activity.interrupts_per_s.items()
            if rate is not None and (name in interfaces or not interfaces)
        ]
        values = [
            sum(counted) if counted else None,
            activity.net_rx_per_s, activity.softirq_percent, activity.irq_percent,
        ]  # fmt: skip
        rows.append(ActivityRow(activity.step, activity.node, [number(value) for value in values]))
    return rows


def usual_states(runs: Iterable[Run]) -> dict[tuple[str, str], dict[str, Any]]:
    """(node, interface) -> settings under the default profile, from the first run that has them."""
    usual: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        if run.case.profile != "default":
            continue
        for node, interface, before in run.nic_before():
            usual.setdefault((node, interface), before)
    return usual


def declared_settings(results: Results) -> dict[tuple[str, str, str], set[str]]:
    """(profile, node, interface) -> names of the profile's settings there."""
    return {
        (use.name, node, interface): set(settings)
        for use in results.trial.profiles
        for node, interfaces in use.settings.items()
        for interface, settings in interfaces.items()
    }
