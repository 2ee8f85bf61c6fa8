"""The ``run`` records of a trial, from the files of a finished job.

The checks call this in ReFrame's process. Here outputs are parsed and paths are proven; nothing is
judged.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from seatrial.base.files import write_whole
from seatrial.benchmarks.benchmark import node_files
from seatrial.benchmarks.limits import bursts, mark, not_limited
from seatrial.benchmarks.parsing import Parsed, ParseError
from seatrial.checks import activity as activities
from seatrial.checks import counters, moderation, nic_proof, physics, rails, wire
from seatrial.results.locations import ARROW
from seatrial.results.record import BURSTS, Case, Counters, Metric, PathProof, Run
from seatrial.results.wording import plural, some
from seatrial.stack.model import Package

EVIDENCE_FILE = "evidence.json"
TIMED_OUT = 124, 137  # exit codes of timeout(1): at the limit, and after --kill-after
TAIL = 300


@dataclass
class StepEvidence:
    """The results of one step. ``reason``: why it is an error; empty: it is not.

    A step whose path is not proven, or with a figure beyond its physical limit, has both ``parsed``
    and a reason. ``not_limited``: sentences on metrics without a limit, because a fact is unknown.
    """

    step: Any
    selected: list[str] = field(default_factory=list)  # the names of the nodes that it selects
    seconds: float | None = None
    began: float | None = None  # s since the epoch
    parsed: Parsed | None = None
    phase: str = ""
    reason: str = ""
    proof: PathProof | None = None
    nodes: list[dict] = field(default_factory=list)
    not_limited: list[str] = field(default_factory=list)

    @property
    def benchmark_s(self) -> float:
        """Time of the program on the slowest node in s; of the whole step if that is not known.

        The rest of the step is its start and end by Slurm, and the verification of the NICs.
        """
        spans = [_span(node) for node in self.nodes]
        return max([span for span in spans if span is not None], default=self.seconds or 0.0)

    def fail(self, phase: str, reason: str) -> StepEvidence:
        self.phase, self.reason = phase, reason
        return self


def collect(check, step, folder: Path) -> StepEvidence:
    """Read one step's files, parse its output and prove its path, and look at its rail."""
    evidence = StepEvidence(step, selected_nodes(step, folder))
    title = f"step {step.name}"
    if evidence.selected:
        title += f" ({', '.join(evidence.selected)})"
    read_step(check, evidence, title, folder)
    if not (check.own_benchmark.proves_path and step.proves_path):
        return evidence
    network, interface = check.network, check.interface
    if step.may_lose_nodes and evidence.parsed and not evidence.phase:
        return leave_out(check, evidence, title)
    lost = rails.lost_links(evidence.nodes, network, interface)
    for other, name in beside(evidence):
        lost = lost or rails.lost_links(evidence.nodes, other, name)
    if lost:
        reason = evidence.reason.removeprefix(f"{title}: ").removeprefix(f"{title} ")
        return evidence.fail("link", "; ".join(filter(None, (f"{title}: {lost}", reason))))
    if evidence.phase in ("run", "path"):
        lacking = rails.without_interface(evidence.nodes, network, interface)
        hint = rails.exchanged(evidence.nodes, network, interface, check.tested_interfaces)
        evidence.reason = "; ".join(filter(None, (lacking, evidence.reason, hint)))
    return evidence


def beside(evidence: StepEvidence) -> list[tuple[str, str]]:
    """Each further network that the step used at once, with its interface."""
    if not evidence.parsed or not evidence.proof:
        return []
    places = {(c.network, c.interface): None for c in evidence.proof.counters}
    return [place for place in places if place[0] in evidence.parsed.moved_beside]


def leave_out(check, evidence: StepEvidence, title: str) -> StepEvidence:
    """Name the nodes whose rail was wrong in a step that goes on without them, and drop the figures
    of their links. The figures of the other links stay."""
    assert evidence.parsed is not None
    parsed, rail = evidence.parsed, (check.network, check.interface)
    wrong = {}
    for node in evidence.nodes:
        why = (
            rails.lost_links([node], *rail)
            or rails.without_interface([node], *rail)
            or rails.exchanged([node], *rail, check.tested_interfaces)
        )
        if why:
            wrong[str(node["after"]["node"])] = why
    if not wrong:
        return evidence
    names = [str(node["after"]["node"]) for node in evidence.nodes] + parsed.absent
    not_measured = {join.join(ends) for bad in wrong for other in names for join in ("-", ARROW)
           for ends in ((bad, other), (other, bad))}  # fmt: skip
    metrics = [metric for metric in parsed.metrics if metric.location not in not_measured]
    reasons = {at: why for at, why in parsed.unmeasured.items() if at not in not_measured}
    for name, why in wrong.items():
        reasons[name] = "; ".join(filter(None, (why, reasons.get(name))))
    evidence.parsed = replace(parsed, metrics=metrics, unmeasured=reasons)
    if not metrics:
        return evidence.fail("link", f"{title}: {'; '.join(wrong.values())}")
    return evidence


def read_step(check, evidence: StepEvidence, title: str, folder: Path) -> StepEvidence:
    """Read one step's files, parse its output and prove its path. ``title`` begins a reason."""
    step = evidence.step
    line = step_line(folder, step.name)
    if line is None:
        text = silent_nodes(check, step, folder) + tail(folder, "rfm_job")
        return evidence.fail("run", f"the job ended before {title} did{text}")
    begin, end, code, limit = line
    evidence.began, evidence.seconds = begin, end - begin
    evidence.nodes = node_files(folder, step.name)
    whole = code == 0 or step.may_lose_nodes  # else the parser requires the end of the record
    if not whole and code in TIMED_OUT and evidence.seconds >= limit:
        of_site = "time_limit_s of its benchmark in site.yaml"
        text = f"{title} was ended after its limit of {limit:.0f} s ({of_site})"
        return evidence.fail("run", text)
    if not whole:
        how = ending(code, evidence.nodes)
        if check.planned_transport.data_path == "verbs":
            how += counters.ports_not_in_use(evidence.nodes, check.network)
        return evidence.fail("run", f"{title} {how}{tail(folder, step.name)}")
    try:
        evidence.parsed = check.parse(step, folder)
    except ParseError as error:
        return evidence.fail("sanity", f"{title}: {error}{tail(folder, step.name)}")
    except OSError as error:
        return evidence.fail("sanity", f"{title}: its output cannot be read: {error}")
    if check.own_benchmark.proves_path and step.proves_path:
        evidence.proof = prove(check, evidence, evidence.parsed.moved_bytes, folder)
        if not evidence.proof.crossed:
            return evidence.fail("path", f"{title}: {evidence.proof.reason}")
    limits, known = check.own_benchmark.limits, check.known(evidence.nodes)
    metrics = mark(evidence.parsed, limits, known)
    peak = physics.peak_facts(limits, known, evidence.nodes, shared=check.nodes_share_kernel)
    facts = {**evidence.parsed.facts, **peak}
    if burst := bursts(metrics, limits, known):
        facts[BURSTS] = burst
    evidence.parsed = replace(evidence.parsed, metrics=metrics, facts=facts)
    evidence.not_limited = not_limited(limits, known)
    reasons = dict.fromkeys(metric.impossible for metric in metrics if metric.impossible)
    if reasons:
        evidence.fail("limit", f"{title}: {'; '.join(reasons)}")
    return evidence


def selected_nodes(step, folder: Path) -> list[str]:
    """The names of the nodes that a step selects in its job; empty: all, or they are not known."""
    return _named(step.node_numbers, folder)


def _named(numbers: Iterable[int], folder: Path) -> list[str]:
    """The names of nodes by their numbers in the job; empty if they are not known."""
    try:
        names = (folder / "job_nodes.txt").read_text(errors="replace").split()
        return [names[number] for number in numbers]
    except (OSError, IndexError):
        return []


def silent_nodes(check, step, folder: Path) -> str:
    """Which nodes wrote no record of a step that did not end, if others did; else empty.

    The job's script runs on the first node, and is lost with it.
    """
    names = _named(nic_proof.node_numbers(step, check.num_nodes), folder)
    wrote = {str(node["after"]["node"]) for node in node_files(folder, step.name)}
    silent = [name for name in names if name not in wrote]
    if not silent or not wrote or not wrote < set(names):
        return ""
    return f": {some(silent)} wrote no record of it, {plural(len(wrote), 'other node')} did"


def common_node(steps: list[StepEvidence]) -> str:
    """A sentence on the one node that all failed steps have, and no other step; else empty."""
    failed = [set(step.selected) for step in steps if step.reason]
    others = [set(step.selected) for step in steps if not step.reason]
    if len(failed) < 2 or not all(failed):
        return ""
    suspects = set.intersection(*failed).difference(*others)
    if len(suspects) != 1:
        return ""
    (node,) = suspects
    return f"node {node} is common to all {len(failed)} failed steps"


def _span(node: dict) -> float | None:
    """Seconds between a node's readings before and after the step's program."""
    try:
        return max(0.0, float(node["after"]["time"]) - float(node["before"]["time"]))
    except (KeyError, TypeError, ValueError):
        return None


def ending(code: int, nodes: list[dict]) -> str:
    """How a failed step ended: by the exit codes on its nodes, else by that of srun.

    When one rank fails, srun ends the others by SIGTERM and may report their code.
    """
    codes = {node["after"]["node"]: node.get("exit_code") for node in nodes}
    for name, exit_code in codes.items():
        if isinstance(exit_code, int) and exit_code not in (0, -signal.SIGTERM, 143):
            return f"failed on {name}, where it {_how(exit_code)}"
    return _how(code)


def _how(code: int) -> str:
    """An exit code of a shell, or of Python's ``waitstatus_to_exitcode``, in words."""
    try:
        return f"was ended by {signal.Signals(-code if code < 0 else code - 128).name}"
    except ValueError:
        return f"exited with code {code}"


def step_line(folder: Path, name: str) -> tuple[float, float, int, float] | None:
    """Begin and end (s since the epoch), exit code, limit (s) of a step; None: it did not end.

    A damaged line, as on a full disk, is ignored.
    """
    try:
        text = (folder / "steps.tsv").read_text(errors="replace")
    except OSError:
        return None
    for line in text.splitlines(keepends=True):
        words = line.split("\t")
        if len(words) == 5 and words[0] == name and words[4].endswith("\n"):
            try:
                return float(words[1]), float(words[2]), int(words[3]), float(words[4])
            except ValueError:
                return None
    return None


def tail(folder: Path, name: str) -> str:
    """The last lines of the output of a step or of the job's script, for a reason.

    Lines of Slurm are used only if there are no others.
    """
    last: list[str] = []
    for suffix in (".err", ".out"):
        with contextlib.suppress(OSError):
            text = (folder / f"{name}{suffix}").read_text(errors="replace")[-TAIL * 10 :]
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            of_program = [line for line in lines if not line.startswith(("srun: ", "slurmstepd"))]
            if of_program:
                return ": ..." + " | ".join(of_program[-3:])[-TAIL:]
            last = last or lines
    return ": ..." + " | ".join(last[-3:])[-TAIL:] if last else ""


def prove(check, evidence: StepEvidence, required: int, folder: Path) -> PathProof:
    """Compare the counters of the nodes with the required volume in bytes."""
    step, nodes, network = evidence.step, evidence.nodes, check.network
    data_path = check.planned_transport.data_path
    absent = evidence.parsed.absent if evidence.parsed else []
    expected = (step.nodes or check.num_nodes) - len(absent)
    nodes = [node for node in nodes if node["after"]["node"] not in absent]
    if len(nodes) != expected:
        names = ", ".join(node["after"]["node"] for node in nodes) or "none"
        return PathProof(
            network=network, data_path=data_path, required_bytes=required, counters=[],
            crossed=False,
            reason=f"ran on {len(nodes)} of {expected} nodes (counters of: {names}): traffic "
            "within a node, by shared memory or loopback, does not cross the network under test",
        )  # fmt: skip
    reported = reported_path(check, step, folder)
    try:
        before = [counters.parse(node["before"]) for node in nodes]
        after = [counters.parse(node["after"]) for node in nodes]
        counted = counters.diff(before, after, data_path, network)
    except ParseError as error:
        return PathProof(
            network=network, data_path=data_path, required_bytes=required, counters=[],
            crossed=False, reason=str(error), reported=reported,
        )  # fmt: skip
    due = {network: required, **(evidence.parsed.moved_beside if evidence.parsed else {})}
    proofs = [
        counters.prove(
            name, volume, counted, program=step.name, reported=reported, data_path=data_path
        )
        for name, volume in due.items()
    ]
    wrong = [proof for proof in proofs if not proof.crossed]
    return next(iter(wrong or [proof for proof in proofs if proof.required_bytes] or proofs))


def reported_path(check, step, folder: Path) -> str:
    """The line in which the MPI names its path; empty if there is none."""
    pattern = check.planned_transport.path_report
    if not pattern:
        return ""
    reports = sorted(folder.glob(f"{step.name}.*.report"))
    for file in (*reports, folder / f"{step.name}.err", folder / f"{step.name}.out"):
        if file.exists():
            for line in file.read_text(errors="replace").splitlines():
                if re.search(pattern, line):
                    return line.strip()[:300]
    return ""


def write_evidence(check, steps: list[StepEvidence], folder: Path) -> list[Run]:
    """One ``run`` record per variant, written to evidence.json; returns them."""
    runs = []
    records = nic_proof.read_records(folder)
    for variant in dict.fromkeys(evidence.step.variant for evidence in steps):
        of_variant = [evidence for evidence in steps if evidence.step.variant == variant]
        run = make_run(check, variant, of_variant)
        run.nic = nic_states(steps, nic_proof.states(records))
        run.nic_proofs = nic_proof.proofs(records)
        lost = {node for step in steps if step.parsed for node in step.parsed.absent}
        hold_against_profile(run, check, lost)
        runs.append(run)
    text = json.dumps([run.model_dump(mode="json", by_alias=True) for run in runs], indent=1)
    write_whole(folder / EVIDENCE_FILE, text)
    return runs


def hold_against_profile(run: Run, check, lost: Collection[str] = ()) -> None:
    """Make the run an error if a node did not have, or did not record, the settings of its profile,
    or if a setting has no effect.

    Wrong settings come before another error, because they may be its cause. A missing record comes
    after it, because it may be its effect. The figures are dropped. ``lost``: the nodes that the
    step went on without; a record of one of them does not stand for that of another node.
    """
    profile = run.case.profile
    wrong = nic_proof.fault(profile, run.nic_proofs)
    if wrong:
        run.reason = "; ".join(part for part in (wrong, run.reason) if part)
    elif run.outcome == "ran":
        numbers = {
            number
            for step in check.step_list
            for number in nic_proof.node_numbers(step, check.num_nodes)
        }
        proofs = [proof for proof in run.nic_proofs if proof.node not in lost]
        wrong = nic_proof.missing(profile, proofs, len(numbers) - len(lost))
        wrong = run.reason = wrong or moderation.fault(run, check.interface)
    if wrong:
        run.outcome, run.phase = "error", "profile"
        run.metrics, run.curves = [], []


def with_place(check, metric: Metric, location: str | None, step: str) -> Metric:
    """The metric with the location of its step, or with the step itself if it has none."""
    location = metric.location or location
    of_several = metric.metric in check.own_benchmark.of_several_steps
    return replace(metric, location=location, step="" if location or of_several else step)


def make_run(check, variant: str, steps: list[StepEvidence]) -> Run:
    case = Case(
        check=check.benchmark, variant=variant, transport=check.transport,
        network=check.case_network, profile=check.profile_name, nodes=check.num_nodes,
    )  # fmt: skip
    failed = [evidence for evidence in steps if evidence.reason]
    run = Run(case=case, repeat=check.repeat, outcome="error" if failed else "ran")
    if failed:
        run.phase = failed[0].phase
        reasons = [common_node(steps), *(evidence.reason for evidence in failed)]
        run.reason = "; ".join(reason for reason in reasons if reason)
    for evidence in steps:
        parsed = evidence.parsed
        if parsed is None:
            continue
        if evidence.phase in ("", "limit"):
            names = "-".join(node["after"]["node"] for node in evidence.nodes)
            location = names if evidence.step.location == "nodes" else None
            run.metrics += [
                with_place(check, metric, location, evidence.step.name if len(steps) > 1 else "")
                for metric in parsed.metrics
            ]
            run.curves += [
                curve.model_copy(update={"name": f"{curve.name} {location}"}) if location else curve
                for curve in parsed.curves
            ]
        run.facts.update(parsed.facts)
        run.suspects += parsed.suspects
        run.unmeasured.update(parsed.unmeasured)
        if evidence.not_limited:
            run.facts["not limited"] = evidence.not_limited
        activity = activities.of_step(evidence.step.name, evidence.nodes, check.nodes_share_kernel)
        run.activity += activity
        if check.own_benchmark.activity_metrics and not evidence.reason:
            run.metrics += activities.metrics(activity, check.interface)
    run.metrics = best_of(run.metrics)
    run.wire_errors = wire.total(
        error for evidence in steps for error in wire.moved(evidence.nodes)
    )
    run.path = combine([evidence.proof for evidence in steps if evidence.proof])
    run.job.benchmark_s = sum(evidence.benchmark_s for evidence in steps)
    set_times(run, steps)
    run.versions = {
        **check.planned_transport.versions,
        **packages_used(check, steps),
        **driver_versions(steps),
    }
    return run


def packages_used(check, steps: list[StepEvidence]) -> dict[str, str]:
    """Package name -> ``version/hash`` of the Spack packages whose programs the steps ran."""
    return {
        package.name: f"{package.version}/{package.hash}"
        for evidence in steps
        for package in packages_of(check, evidence.step)
    }


def packages_of(check, step) -> list[Package]:
    """The packages of a Spack stack whose files are in a step's command, each once."""
    packages = {
        package.hash: package
        for package in check.planned_transport.packages.values()
        if any(word.startswith(package.prefix + "/") for word in step.command)
    }
    return list(packages.values())


def set_times(run: Run, steps: list[StepEvidence]) -> None:
    """Set begin, end and nodes of the run. Slurm's accounting replaces them if the job has no other
    runs."""
    begins = [evidence.began for evidence in steps if evidence.began is not None]
    ends = [
        evidence.began + evidence.seconds
        for evidence in steps
        if evidence.began is not None and evidence.seconds is not None
    ]
    if begins:
        run.job.started = datetime.fromtimestamp(min(begins)).astimezone()
    if ends:
        run.job.ended = datetime.fromtimestamp(max(ends)).astimezone()
    run.job.nodes = sorted({node["after"]["node"] for evidence in steps for node in evidence.nodes})


def best_of(metrics: list[Metric]) -> list[Metric]:
    """One figure for each metric and location: the best if a job has several."""
    best: dict[tuple[str, str | None], Metric] = {}
    for metric in metrics:
        key = (metric.metric, metric.location)
        previous = best.get(key)
        if previous is None or (metric.value > previous.value) == (metric.better == "higher"):
            best[key] = metric
    return list(best.values())


def combine(proofs: Iterable[PathProof]) -> PathProof | None:
    """The proof of several steps: the sum of their volumes; all must have crossed."""
    proofs = list(proofs)
    if not proofs:
        return None
    failed = [proof for proof in proofs if not proof.crossed]
    named = failed or [proof for proof in proofs if proof.required_bytes]
    total: dict[tuple[str, str], Counters] = {}
    for counted in (counter for proof in proofs for counter in proof.counters):
        key = (counted.node, counted.interface)
        if key not in total:
            total[key] = counted.model_copy()
            continue
        summed = total[key]
        for name in counters.COUNTS:
            setattr(summed, name, getattr(summed, name) + getattr(counted, name))
        if summed.interrupts is not None and counted.interrupts is not None:
            summed.interrupts += counted.interrupts
        if summed.rdma is not None and counted.rdma is not None:
            summed.rdma = counters.summed(summed.rdma, counted.rdma)
    return PathProof(
        network=proofs[0].network,
        data_path=proofs[0].data_path,
        required_bytes=sum(proof.required_bytes for proof in proofs),
        counters=list(total.values()),
        crossed=all(proof.crossed for proof in proofs),
        reason="; ".join(dict.fromkeys(proof.reason for proof in named if proof.reason)),
        reported=next((proof.reported for proof in proofs if proof.reported), ""),
    )


STATE_FIELDS = (
    *("network", "mtu", "driver", "version", "firmware", "bus"),
    *("link", "speed_Mbit_s", "duplex", "fec", "neighbour"),
    *("current_pcie_speed", "current_pcie_width", "max_pcie_speed", "max_pcie_width"),
)


def nic_states(
    steps: list[StepEvidence], settings: dict[tuple[str, str, str], dict[str, Any]]
) -> dict[str, Any]:
    """node -> interface -> before (the first step), after (the last) -> properties and settings.

    ``settings``: the settings in force by (node, interface, before or after).
    """
    states: dict[str, Any] = {}
    for evidence in steps:
        for node in evidence.nodes:
            for when in ("before", "after"):
                for interface, data in node[when]["interfaces"].items():
                    entry = states.setdefault(node[when]["node"], {}).setdefault(interface, {})
                    known = {key: data[key] for key in STATE_FIELDS if key in data}
                    if kernel := node[when].get("kernel"):  # the history names the nodes with it
                        known["kernel"] = str(kernel)
                    if when == "before":
                        entry.setdefault("before", known)
                    else:
                        entry["after"] = known
    for (name, interface, when), state in settings.items():
        entry = states.setdefault(name, {}).setdefault(interface, {})
        entry[when] = {**entry.get(when, {}), **state}
    return states


def driver_versions(steps: list[StepEvidence]) -> dict[str, str]:
    """Kernel, drivers and firmware. If the nodes differ, a value names all: one node with another
    driver than the others must be seen."""
    versions: dict[str, set[str]] = defaultdict(set)
    for evidence in steps:
        for node in evidence.nodes:
            if node["after"].get("kernel"):
                versions["kernel"].add(str(node["after"]["kernel"]))
            for interface, data in node["after"]["interfaces"].items():
                name = " ".join(str(data[key]) for key in ("driver", "version") if data.get(key))
                if name:
                    versions[f"driver of {interface}"].add(name)
                if data.get("firmware"):
                    versions[f"firmware of {interface}"].add(str(data["firmware"]))
    return {name: ", ".join(sorted(values)) for name, values in versions.items()}
