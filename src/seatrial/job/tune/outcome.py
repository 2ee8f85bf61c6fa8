"""What a run left in its folder: figure, verification of its NIC profile, and its path.

The nodes' records are those of the checks (``checks/node/run.py``), read by the same modules. An
ordinary user can make them: they read counters, settings and the journal of the Prolog, and change
nothing.

Of the path less can be proven than in a check: what a program of a user must have moved is not
known. So the bytes of the network under test are compared with those of the other networks.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from seatrial.benchmarks.parsing import ParseError
from seatrial.checks import counters, nic_proof
from seatrial.checks.evidence import TIMED_OUT, ending
from seatrial.job.tune.job import End
from seatrial.job.tune.record import Chosen, Fault, Ran, Tuned
from seatrial.job.tune.request import mpi_family
from seatrial.nic.profile import DataPath
from seatrial.report.text import clean
from seatrial.results.record import Counters
from seatrial.results.wording import plural, volume
from seatrial.trial.allocation import GONE

#: bytes of one node in a run below which its network shows nothing: the start of the ranks and
#: broadcasts are of this order
FEW_B = 64 * 1024
_TAIL = 300
_TIMED_OUT = ("TIMEOUT", "DEADLINE")


def outcome(tuned: Tuned, chosen: Chosen, run: int, job: str, end: End, folder: Path,
            limit_h: float) -> Ran:  # fmt: skip
    """The outcome of a run. ``limit_h``: its node hours where Slurm does not say what it used."""
    used = end.entry.used_s
    hours = limit_h if used is None else used * tuned.nodes / 3600
    ran = Ran(number=run, candidate=chosen.candidate, job=job, nodes=end.entry.nodes,
              node_hours=hours)  # fmt: skip
    records = _records(folder)
    _read_path(ran, chosen, records)
    if not ran.nodes:
        ran.nodes = [str(record["after"]["node"]) for record in records]
    spans = [record["after"]["time"] - record["before"]["time"] for record in records]
    ran.wall_s = max(spans, default=None)
    ran.fault, ran.reason = _fault(tuned, chosen, end, folder, records, ran)
    if ran.fault:
        return ran
    if tuned.figure:
        ran.value, ran.reason = figure(tuned.figure, output(folder))
        ran.fault = "figure" if ran.reason else ""
    elif ran.wall_s and ran.wall_s > 0:
        ran.value = ran.wall_s
    else:
        ran.fault, ran.reason = "figure", "its wall time is not known: the clock of a node jumped"
    return ran


def _fault(
    tuned: Tuned, chosen: Chosen, end: End, folder: Path, records: list[dict[str, Any]], ran: Ran
) -> tuple[Fault, str]:
    """Why a run does not count, in a word and in a sentence."""
    profile = chosen.candidate.profile
    proofs = nic_proof.proofs(nic_proof.read_records(folder))
    if end.fault:
        return end.fault, end.reason
    if different := [proof for proof in proofs if not proof.ok]:
        more = (
            f"; {plural(len(different) - 1, 'more such verification')}"
            if len(different) > 1
            else ""
        )
        why = nic_proof.fault(profile, different[:1])
        return "profile", (why if len(why) <= 2 * _TAIL else why[: 2 * _TAIL] + "...") + more
    loaded = {family for name in ran.libraries if (family := mpi_family(name))}
    if loaded - {chosen.family}:
        what = ", ".join(sorted({Path(name).name for name in ran.libraries}))
        transport = chosen.candidate.transport
        hint = "" if chosen.family else "; name the transports of its MPI: --transport"
        return "transport", f"it loaded {what}, which is not the MPI of transport {transport}{hint}"
    code, seconds = _ending(folder)
    state = end.entry.state
    if state in _TIMED_OUT or (code in TIMED_OUT and seconds >= tuned.run_limit_s):
        return "timeout", f"it was ended after {tuned.run_limit_s} s, the limit of a run"
    if code is None:
        how = f"Slurm's state is {state}" if state != GONE else "Slurm no longer knows the job"
        return "slurm", f"it has no exit code: {how}{_tail(folder)}"
    if code:
        return "program", f"it {ending(code, records)}{_tail(folder)}"
    if wrong := nic_proof.missing(profile, proofs, tuned.nodes):
        return "profile", wrong
    if len(records) != tuned.nodes:
        return "profile", f"only {len(records)} of {tuned.nodes} nodes recorded their counters"
    return "", ""


def _ending(folder: Path) -> tuple[int | None, int]:
    """Exit code of the ranks and their seconds, as the script wrote them; None: it did not."""
    try:
        code, seconds = map(int, (folder / "exit").read_text().split())
    except (OSError, ValueError):
        return None, 0
    return code, seconds


def _records(folder: Path) -> list[dict[str, Any]]:
    """The wrapper's record of each node; damaged ones are left out."""
    records = []
    for file in sorted(folder.glob("run.*.json")):
        try:
            data = json.loads(file.read_text())
            times = [float(data[when]["time"]) for when in ("before", "after")]
            if data["after"]["node"] and all(map(math.isfinite, times)):
                records.append(data)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return records


# -- the path


def _read_path(ran: Ran, chosen: Chosen, records: list[dict[str, Any]]) -> None:
    ran.libraries = sorted({str(name) for record in records for name in record.get("mapped") or ()})
    path = chosen.data_path
    try:
        before = [counters.parse(record["before"]) for record in records]
        after = [counters.parse(record["after"]) for record in records]
        ran.counters = counters.diff(before, after, path, chosen.network) if records else []
    except ParseError as error:
        ran.path = f"the counters cannot be compared: {error}"
        return
    ran.crossed, ran.path = crossing(ran.counters, chosen.network, path)


def crossing(counted: list[Counters], network: str, data_path: DataPath) -> tuple[bool | None, str]:
    """Whether most bytes of each node were on the network under test, and a sentence.

    None: no node had more than ``FEW_B`` there or elsewhere, so nothing is shown.
    """
    worst: bool | None = None
    reasons = []
    for node in dict.fromkeys(of_interface.node for of_interface in counted):
        of_node = [
            of_interface
            for of_interface in counted
            if of_interface.node == node and of_interface.interface != "lo"
        ]
        here = sum(
            _volume(of_interface, data_path)
            for of_interface in of_node
            if of_interface.network == network
        )
        other = {
            of_interface.network: _volume(of_interface, "kernel")
            for of_interface in of_node
            if of_interface.network != network
        }
        if data_path == "verbs":  # TCP on the same interface is another path
            other[f"{network}, by the kernel"] = sum(
                _volume(of_interface, "kernel")
                for of_interface in of_node
                if of_interface.network == network
            )
        most = max(other, key=lambda name: other[name], default="")
        if max(here, *other.values(), 0) < FEW_B:
            continue
        if here > sum(other.values()):
            worst = True if worst is None else worst
        else:
            worst = False
            reasons.append(
                f"{node}: network {network} carried {volume(here)}, {most} {volume(other[most])}"
            )
    return worst, "; ".join(reasons[:2])


def _volume(counted: Counters, data_path: DataPath) -> int:
    """Bytes in both directions: of the RDMA port for verbs, else by the kernel."""
    return (
        counters.rdma_volume(counted) if data_path == "verbs" else counters.kernel_volume([counted])
    )


# -- the output


def output(folder: Path) -> bytes:
    """The beginning and the end of what the program printed."""
    parts = []
    for name in ("output.begin", "output.end"):
        try:
            parts.append((folder / name).read_bytes())
        except OSError:
            parts.append(b"")
    return b"\n".join(filter(None, parts)) if len(parts[0]) == len(parts[1]) else b"".join(parts)


def figure(pattern: str, text: bytes) -> tuple[float | None, str]:
    """The number that a regular expression matches last, or None and the reason."""
    last = None
    for last in re.finditer(pattern.encode(), text, re.MULTILINE):  # noqa: B007
        pass
    if last is None:
        return None, "its output does not match --figure"
    group = last[1] if last.re.groups else last[0]
    shown = clean((group or b"").decode(errors="replace"))[:40]
    try:
        value = float(group or b"")
    except ValueError:
        return None, f"{shown!r} in its output is not a number"
    if not math.isfinite(value) or value <= 0:
        return None, f"its figure is {shown}, and must be above zero"
    return value, ""


def _tail(folder: Path) -> str:
    """The last lines of the output, for a reason."""
    text = output(folder)
    if not text.strip():
        try:
            with (folder / "job.out").open("rb") as stream:
                text = stream.read(1 << 20)
        except OSError:
            return ""
    lines = [line.strip() for line in text[-10 * _TAIL :].decode(errors="replace").splitlines()]
    lines = [line for line in lines if line.strip("-=*_ ")]
    of_program = [line for line in lines if not line.startswith(("srun: ", "slurmstepd"))]
    shown = clean(" | ".join((of_program or lines)[-2:])[-_TAIL:])
    return f": ...{shown}" if shown else ""
