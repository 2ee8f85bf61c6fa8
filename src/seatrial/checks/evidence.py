"""From the files of a finished job to the ``run`` records of a trial.

Used by the checks, inside ReFrame's process. It parses and proves; it judges nothing.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from seatrial.base.files import write_whole
from seatrial.benchmarks.benchmark import node_files
from seatrial.benchmarks.parsing import Parsed, ParseError
from seatrial.checks import activity as activities
from seatrial.checks import counters, nic_proof
from seatrial.results.record import Case, Counters, Metric, PathProof, Run
from seatrial.stack.model import Package

EVIDENCE_FILE = "evidence.json"
TIMED_OUT = 124, 137  # exit codes of timeout(1): its own, and after --kill-after
TAIL = 300


@dataclass
class StepEvidence:
    """What one step left behind. ``reason`` is why it is an error, empty where it is none.

    A step whose path is not proven has both ``parsed`` and a reason.
    """

    step: Any
    seconds: float | None = None
    began: float | None = None  # s since the epoch
    parsed: Parsed | None = None
    phase: str = ""
    reason: str = ""
    proof: PathProof | None = None
    nodes: list[dict] = field(default_factory=list)

    @property
    def benchmark_s(self) -> float:
        """Time of the program itself, by the node where it took longest; else of the whole step.

        The rest of the step is Slurm's start and end of it, and the look at the NICs' settings.
        """
        spans = [_span(node) for node in self.nodes]
        return max([span for span in spans if span is not None], default=self.seconds or 0.0)

    def fail(self, phase: str, reason: str) -> StepEvidence:
        self.phase, self.reason = phase, reason
        return self


def collect(check, step, folder: Path) -> StepEvidence:
    """Read one step's files, parse its output and prove its path."""
    found = StepEvidence(step)
    line = step_line(folder, step.name)
    if line is None:
        said = tail(folder, "rfm_job")
        return found.fail("run", f"the job ended before step {step.name} did{said}")
    begin, end, code, limit = line
    found.began, found.seconds = begin, end - begin
    found.nodes = node_files(folder, step.name)
    if code in TIMED_OUT and found.seconds >= limit:
        return found.fail("run", f"step {step.name} was ended after its limit of {limit:.0f} s")
    if code != 0:
        how = ending(code, found.nodes)
        return found.fail("run", f"step {step.name} {how}{tail(folder, step.name)}")
    try:
        found.parsed = check.parse(step, folder)
    except ParseError as error:
        return found.fail("sanity", f"step {step.name}: {error}{tail(folder, step.name)}")
    except OSError as error:
        return found.fail("sanity", f"step {step.name}: its output cannot be read: {error}")
    if check.own_benchmark.proves_path and step.proves_path:
        found.proof = prove(check, step, found, folder)
        if not found.proof.crossed:
            found.fail("path", f"step {step.name}: {found.proof.reason}")
    return found


def _span(node: dict) -> float | None:
    """Seconds from a node's look before the step's program to that after it."""
    try:
        return max(0.0, float(node["after"]["time"]) - float(node["before"]["time"]))
    except (KeyError, TypeError, ValueError):
        return None


def ending(code: int, nodes: list[dict]) -> str:
    """How a step ended that failed: by the nodes' own account, else by srun's exit code.

    srun ends the other ranks when one fails, and may then report theirs: SIGTERM comes last.
    """
    codes = {node["after"]["node"]: node.get("exit_code") for node in nodes}
    bad = {name: one for name, one in codes.items() if isinstance(one, int) and one != 0}
    first = [name for name, one in bad.items() if one not in (-signal.SIGTERM, 143)]
    if first:
        name = first[0]
        return f"failed on {name}, where it {_how(bad[name])}"
    return _how(code)


def _how(code: int) -> str:
    """In words: an exit code as a shell sees it, or as Python's ``waitstatus_to_exitcode``."""
    try:
        return f"was ended by {signal.Signals(-code if code < 0 else code - 128).name}"
    except ValueError:
        return f"exited with code {code}"


def step_line(folder: Path, name: str) -> tuple[float, float, int, float] | None:
    """Begin and end (s since the epoch), exit code, limit (s) of a step; None: it never ended.

    A line that is cut off or garbled, as on a full disk, counts as none.
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
    """The end of what a step (or the job's script) said, for a reason that helps.

    What the program said comes before what Slurm says of its end.
    """
    said: list[str] = []
    for suffix in (".err", ".out"):
        with contextlib.suppress(OSError):
            text = (folder / f"{name}{suffix}").read_text(errors="replace")[-TAIL * 10 :]
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            own = [line for line in lines if not line.startswith(("srun: ", "slurmstepd"))]
            if own:
                return ": ..." + " | ".join(own[-3:])[-TAIL:]
            said = said or lines
    return ": ..." + " | ".join(said[-3:])[-TAIL:] if said else ""


def prove(check, step, found: StepEvidence, folder: Path) -> PathProof:
    """Compare the counters of the nodes with the volume that the benchmark moved."""
    assert found.parsed is not None
    wanted = step.nodes or check.num_nodes
    network = check.network
    required = found.parsed.moved_bytes
    if len(found.nodes) != wanted:
        names = ", ".join(node["after"]["node"] for node in found.nodes) or "none"
        return PathProof(
            network=network, required_bytes=required, counters=[], crossed=False,
            reason=f"ran on {len(found.nodes)} of {wanted} nodes (counters of: {names}): what "
            "moved within a node, by shared memory or loopback, did not cross the network under "
            "test",
        )  # fmt: skip
    reported = reported_path(check, step, folder)
    try:
        before = [counters.parse(json.dumps(node["before"])) for node in found.nodes]
        after = [counters.parse(json.dumps(node["after"])) for node in found.nodes]
        counted = counters.diff(before, after)
    except ParseError as error:
        return PathProof(network=network, required_bytes=required, counters=[], crossed=False,
                         reason=str(error), reported=reported)  # fmt: skip
    return counters.prove(network, required, counted, program=step.name, reported=reported)


def reported_path(check, step, folder: Path) -> str:
    """The line by which the MPI itself named its path; empty where it says nothing."""
    pattern = check.planned_transport.path_report
    if not pattern:
        return ""
    own = sorted(folder.glob(f"{step.name}.*.report"))
    for file in (*own, folder / f"{step.name}.err", folder / f"{step.name}.out"):
        if file.exists():
            for line in file.read_text(errors="replace").splitlines():
                if re.search(pattern, line):
                    return line.strip()[:300]
    return ""


def write_evidence(check, steps: list[StepEvidence], folder: Path) -> list[Run]:
    """One ``run`` record per variant, written to evidence.json; returns them."""
    runs = []
    notes = nic_proof.notes(folder)
    for variant in dict.fromkeys(found.step.variant for found in steps):
        of_variant = [found for found in steps if found.step.variant == variant]
        run = make_run(check, variant, of_variant)
        run.nic = nic_states(steps, nic_proof.states(notes))
        run.nic_proofs = nic_proof.proofs(notes)
        hold_against_profile(run, check)
        runs.append(run)
    text = json.dumps([run.model_dump(mode="json", by_alias=True) for run in runs], indent=1)
    write_whole(folder / EVIDENCE_FILE, text)
    return runs


def hold_against_profile(run: Run, check) -> None:
    """Make the run an error where a node had not, or does not show, its NIC profile's settings.

    Wrong settings come before what else failed, since they may be its cause; a node that shows
    nothing comes after it, since it is more likely its effect. Figures are dropped.
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
        run.reason = nic_proof.lacking(profile, run.nic_proofs, len(numbers))
        wrong = run.reason
    if wrong:
        run.outcome, run.phase = "error", "profile"
        run.metrics, run.curves = [], []


def make_run(check, variant: str, steps: list[StepEvidence]) -> Run:
    case = Case(
        check=check.benchmark, variant=variant, transport=check.transport,
        profile=check.profile_name, nodes=check.num_nodes,
    )  # fmt: skip
    failed = [found for found in steps if found.reason]
    run = Run(case=case, repeat=check.repeat, outcome="error" if failed else "ran")
    if failed:
        run.phase = failed[0].phase
        run.reason = "; ".join(found.reason for found in failed)
    for found in steps:
        if found.parsed is None:
            continue
        if not found.reason:
            names = "-".join(node["after"]["node"] for node in found.nodes)
            location = names if found.step.location == "nodes" else None
            run.metrics += [
                replace(metric, location=metric.location or location)
                for metric in found.parsed.metrics
            ]
            run.curves += [
                curve.model_copy(update={"name": f"{curve.name} {location}"}) if location else curve
                for curve in found.parsed.curves
            ]
        run.facts.update(found.parsed.facts)
        activity = activities.of_step(found.step.name, found.nodes, check.nodes_share_kernel)
        run.activity += activity
        if check.own_benchmark.activity_metrics and not found.reason:
            run.metrics += activities.metrics(activity, check.interface)
    run.metrics = best_of(run.metrics)
    run.path = combine([found.proof for found in steps if found.proof])
    run.job.benchmark_s = sum(found.benchmark_s for found in steps)
    set_times(run, steps)
    run.versions = {
        **check.planned_transport.versions,
        **packages_used(check, steps),
        **driver_versions(steps),
    }
    return run


def packages_used(check, steps: list[StepEvidence]) -> dict[str, str]:
    """Package name -> ``version/hash`` of Spack, of the packages whose files the steps ran."""
    return {
        package.name: f"{package.version}/{package.hash}"
        for found in steps
        for package in packages_of(check, found.step)
    }


def packages_of(check, step) -> list[Package]:
    """The packages of a Spack stack whose files a step's command names, each once."""
    found = {
        package.hash: package
        for package in check.planned_transport.packages.values()
        if any(word.startswith(package.prefix + "/") for word in step.command)
    }
    return list(found.values())


def set_times(run: Run, steps: list[StepEvidence]) -> None:
    """When the steps ran and where. Slurm's account of the job replaces it, if the job is theirs
    alone."""
    begins = [found.began for found in steps if found.began is not None]
    ends = [
        found.began + found.seconds
        for found in steps
        if found.began is not None and found.seconds is not None
    ]
    if begins:
        run.job.started = datetime.fromtimestamp(min(begins)).astimezone()
    if ends:
        run.job.ended = datetime.fromtimestamp(max(ends)).astimezone()
    run.job.nodes = sorted({node["after"]["node"] for found in steps for node in found.nodes})


def best_of(metrics: list[Metric]) -> list[Metric]:
    """One figure for each metric and location: where a job took several, the best of them."""
    found: dict[tuple[str, str | None], Metric] = {}
    for metric in metrics:
        key = (metric.metric, metric.location)
        seen = found.get(key)
        if seen is None or (metric.value > seen.value) == (metric.better == "higher"):
            found[key] = metric
    return list(found.values())


def combine(proofs: Iterable[PathProof]) -> PathProof | None:
    """The proof of several steps as one: volumes add up, and all must have crossed."""
    proofs = list(proofs)
    if not proofs:
        return None
    total: dict[tuple[str, str], Counters] = {}
    for one in (counter for proof in proofs for counter in proof.counters):
        key = (one.node, one.interface)
        if key not in total:
            total[key] = one.model_copy()
            continue
        seen = total[key]
        for name in ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets"):
            setattr(seen, name, getattr(seen, name) + getattr(one, name))
        if seen.interrupts is not None and one.interrupts is not None:
            seen.interrupts += one.interrupts
    return PathProof(
        network=proofs[0].network,
        required_bytes=sum(proof.required_bytes for proof in proofs),
        counters=list(total.values()),
        crossed=all(proof.crossed for proof in proofs),
        reason="; ".join(proof.reason for proof in proofs if not proof.crossed),
        reported=next((proof.reported for proof in proofs if proof.reported), ""),
    )


STATE_FIELDS = ("network", "mtu", "driver", "version", "firmware", "bus")


def nic_states(
    steps: list[StepEvidence], settings: dict[tuple[str, str, str], dict[str, Any]]
) -> dict[str, Any]:
    """node -> interface -> before the first and after the last step: what it is, and how set.

    ``settings`` are those in force by (node, interface, before or after).
    """
    states: dict[str, Any] = {}
    for found in steps:
        for node in found.nodes:
            for when in ("before", "after"):
                for interface, data in node[when]["interfaces"].items():
                    entry = states.setdefault(node[when]["node"], {}).setdefault(interface, {})
                    known = {key: data[key] for key in STATE_FIELDS if key in data}
                    if when == "before":
                        entry.setdefault("before", known)
                    else:
                        entry["after"] = known
    for (name, interface, when), state in settings.items():
        entry = states.setdefault(name, {}).setdefault(interface, {})
        entry[when] = {**entry.get(when, {}), **state}
    return states


def driver_versions(steps: list[StepEvidence]) -> dict[str, str]:
    found: dict[str, str] = {}
    for step in steps:
        for node in step.nodes:
            if node["after"].get("kernel"):
                found["kernel"] = node["after"]["kernel"]
            for interface, data in node["after"]["interfaces"].items():
                name = " ".join(filter(None, (data.get("driver"), data.get("version"))))
                if name:
                    found[f"driver of {interface}"] = name
                if data.get("firmware"):
                    found[f"firmware of {interface}"] = data["firmware"]
    return found
