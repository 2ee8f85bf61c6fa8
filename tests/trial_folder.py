"""A small trial's folder, as a trial leaves it: evidence, results, requirements, manifest."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from seatrial.results import manifest
from seatrial.results.folder import Results
from seatrial.results.later import judge_again
from seatrial.results.record import Case, Metric, Run, Trial
from seatrial.results.requirements import load_requirements
from seatrial.trial.run import finish

COMMAND = ["seatrial", "judge"]


def requirements_text(at_most: float) -> str:
    return (
        "schema: 1\nrequirements:\n  - {select: {}, metric: latency_us, basis: contract, "
        f"source: tender 7, at_most: {at_most}, unit: us}}\n"
    )


def make_trial(
    folder: Path,
    at_most: float = 20,
    values=(30.0, 30.1),
    name="t1",
    site: Path | None = None,
    **fields: Any,
) -> Path:
    """``site``: the site.yaml that the trial keeps a copy of. ``fields``: of its record."""
    config = folder / "config" / "lab"
    config.mkdir(parents=True)
    if site:
        shutil.copy(site, config)
    (config / "requirements.yaml").write_text(requirements_text(at_most))
    evidence = folder / "cases" / "netpipe" / "r0"
    evidence.mkdir(parents=True)
    (evidence / "netpipe.out").write_text("1: 30.0 us\n")
    (evidence / "empty.err").touch()
    (evidence / "odd\nname\\.txt").write_text("a name that a manifest must escape")
    case = Case(check="netpipe", transport="tcp", nodes=2)
    runs = [
        Run(case=case, repeat=repeat, outcome="ran", metrics=[_latency(value)])
        for repeat, value in enumerate(values)
    ]
    started = datetime(2026, 8, 2, tzinfo=UTC)
    trial = Trial(
        trial=name, site="lab", started=started, seatrial="0", cases=[case], **fields
    )  # fmt: skip
    results = Results(trial=trial, runs=runs, folder=folder)
    finish(results, load_requirements(config / "requirements.yaml"), folder, [])
    manifest.append(folder, manifest.sums_of(folder, manifest.files(folder)))
    return folder


def _latency(value: float) -> Metric:
    return Metric(metric="latency_us", value=value, unit="us", better="lower")


def judge(folder: Path, requirements: Path | None = None, report=None, say=print) -> Results:
    return judge_again(folder, requirements, COMMAND, "0", report or write_page, say)


def write_page(results: Results, folder: Path) -> None:
    assert results.verdict
    (folder / "report.html").write_text(results.verdict.verdict)


def content(folder: Path) -> dict[str, bytes | None]:
    """The bytes of every file of a folder; None for a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def make_key(file: Path, comment: str = "") -> Path:
    """A private key of OpenSSH; the public one is beside it."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", file], check=True
    )
    return file
