#!/usr/bin/env python3
"""What Spack costs: concretization of the lab's matrix, as it is and without what makes it fast,
a build that has nothing to do, and what it brings: HPL against DGEMM of the same ranks, and against
the distribution's generic build.

    .venv/bin/python ci/bench/spack.py [--quick] [--part concretize|build|hpl]

Times are compared as ratios of one run: user time of the processes, which other work on the
machine disturbs least, and wall time beside it. HPL's figures are of wall time; the best of the
rounds is the least disturbed.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from seatrial.base.errors import LabError, SeatrialError
from seatrial.base.run import run
from seatrial.benchmarks import hpcc_output as hpcc
from seatrial.benchmarks import hpl_output as hpl
from seatrial.benchmarks.hpl_input import grid, render
from seatrial.benchmarks.parsing import Parsed
from seatrial.site.load import load_site, site_file
from seatrial.stack import Stack, build, install, load_stack
from seatrial.stack.make import build_stack, prepare
from seatrial.stack.paths import Paths
from seatrial.trial.host import host_facts, version_with_commit

AS_IS = "as it is"
#: way -> Spack's options against the environment's own
WAYS = {
    AS_IS: [],
    "nothing left out": ["-c", "concretizer:static_analysis:false"],
    "each root by itself": ["-c", "concretizer:unify:false"],
}
PARTS = ("concretize", "build", "hpl")
#: of both stacks the one that HPL is measured with; on one node its path is shared memory
MPI = "openmpi-tcp"
ONE_NODE = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader", "OMPI_MCA_io": "^romio321"}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS")
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)


@dataclass
class Series:
    """One way, its rounds in s."""

    way: str
    wall: list[float] = field(default_factory=list)
    user: list[float] = field(default_factory=list)

    def took(self, begin: tuple[float, float]) -> None:
        self.wall.append(time.monotonic() - begin[0])
        self.user.append(os.times().children_user - begin[1])


def say(text: str) -> None:
    out.print(f"  {time.strftime('%H:%M:%S')} {text}", style="dim", markup=False)


def now() -> tuple[float, float]:
    return time.monotonic(), os.times().children_user


def copied(paths: Paths, folder: Path) -> Path:
    """The environment in a folder of its own: no lock of the checkout is touched."""
    text = (paths.environment / "spack.yaml").read_text()
    root = (paths.environment / "../../..").resolve()
    folder.mkdir(parents=True)
    (folder / "spack.yaml").write_text(text.replace("- ../../..", f"- {root}"))
    return folder


def concretizations(paths: Paths, rounds: int, ways: list[str], root: Path) -> list[Series]:
    """The ways take turns, so that a slow minute falls on all."""
    found = [Series(way) for way in ways]
    folder = copied(paths, root / "environment")
    for number in range(rounds):
        for series in found:
            say(f"concretizing, {series.way}, round {number + 1} of {rounds}")
            words: list[str | Path] = [paths.spack, *WAYS[series.way], "-e", folder]
            words += ["concretize", "--force"]
            begin = now()
            run(words, "concretizing", env=paths.variables())
            series.took(begin)
    return found


def nothing_to_do(name: str, rounds: int) -> list[Series]:
    """``stack build`` of a stack that is built, against one start of Spack that does nothing."""
    file = site_file(name)
    site = load_site(file)
    paths = prepare(site, file, say)
    if absent := build.missing(paths):
        raise ValueError(f"{len(absent)} packages of {name} are not built: seatrial stack build")
    again, spack = Series("seatrial stack build"), Series("spack install")
    for _ in range(rounds):
        begin = now()
        build_stack(site, file, lambda _: None)
        again.took(begin)
        begin = now()
        install.spack(paths, ["install", "--only-concrete"], "installing", environment=True)
        spack.took(begin)
    return [spack, again]


@dataclass
class Rates:
    """HPL and DGEMM of one build with one BLAS, by round, in GFLOPS. DGEMM is of all ranks."""

    build: str
    blas: str
    hpl: list[float] = field(default_factory=list)
    dgemm: list[float] = field(default_factory=list)
    hpl_seconds: float = 0.0

    def percent(self) -> float:
        return 100 * max(self.hpl) / max(self.dgemm)


@dataclass(frozen=True)
class Linpack:
    """One build of HPL: its programs, and what they need. Without xhpl, hpcc has HPL as well."""

    rates: Rates
    mpirun: str
    hpcc: list[str]
    xhpl: list[str]
    env: dict[str, str]

    def measure(self, size: int, block: int, ranks: int, folder: Path) -> None:
        """DGEMM, then HPL, one right after the other, as the trial's job has them."""
        launcher = [self.mpirun, "--allow-run-as-root", "-n", str(ranks)]
        launcher += ["--map-by", "core", "--bind-to", "core"]
        tests = "SingleDGEMM,StarDGEMM" if self.xhpl else "SingleDGEMM,StarDGEMM,HPL"
        first = [*launcher, "/usr/bin/env", f"HPCC_TESTS={tests}", *self.hpcc]
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        text = render(size, block, *grid(ranks))
        for name in ("hpccinf.txt", "HPL.dat"):
            (folder / name).write_text(text)
        env = {**os.environ, **ONE_NODE, **dict.fromkeys(THREADS, "1"), **self.env}
        run(first, "running hpcc", cwd=folder, env=env)
        summary = (folder / "hpccoutf.txt").read_text()
        parsed: Parsed = hpcc.parse_dgemm(summary) if self.xhpl else hpcc.parse(summary)
        self.rates.dgemm.append(ranks * parsed.value("dgemm_GFLOPS"))
        if self.xhpl:
            parsed = hpl.parse(run([*launcher, *self.xhpl], "running xhpl", cwd=folder, env=env))
        self.rates.hpl.append(parsed.value("hpl_GFLOPS"))
        self.rates.hpl_seconds = hpl.flops(size) / 1e9 / max(self.rates.hpl)


def linpacks(stack: Stack, title: str, wanted: list[str]) -> list[Linpack]:
    """Every build of a stack with one of the ``wanted`` BLAS libraries."""
    part = stack.transports[MPI]
    mpirun = f"{part.compilers}/mpirun" if part.compilers else "mpirun.openmpi"
    found = []
    for name in wanted:
        rates = Rates(title, f"{name} {stack.blas_libraries[name].version}")
        if f"xhpl.{name}" in part.programs:
            programs = part.programs[f"hpcc.{name}"], part.programs[f"xhpl.{name}"]
            found.append(Linpack(rates, mpirun, *programs, {}))
        else:  # the distribution's: one program, under which any libblas.so.3 is put
            folder = {"LD_LIBRARY_PATH": stack.blas_libraries[name].folder}
            found.append(Linpack(rates, mpirun, list(part.programs["hpcc_all"]), [], folder))
    return found


def hpl_rates(site: str, rounds: int, ranks: int, size: int, block: int, root: Path) -> list[Rates]:
    """Spack's builds against the distribution's; the builds take turns."""
    spack = load_stack(load_site(site_file(site)))
    builds = linpacks(spack, "Spack", list(spack.blas_libraries))
    try:
        builds += linpacks(load_stack(), "distribution", ["openblas", "reference"])
    except LabError as error:
        say(f"without the distribution's build: {error}")
    for number in range(rounds):
        for part in builds:
            # The reference BLAS does a hundredth of the others' work in the same time.
            slow = part.rates.blas.startswith("reference")
            if slow and number:
                continue
            say(f"HPL, {part.rates.build}, {part.rates.blas}, round {number + 1} of {rounds}")
            part.measure(size // 4 if slow else size, block, ranks, root / "hpl")
    return [part.rates for part in builds]


def show_hpl(found: list[Rates], title: str) -> None:
    table = Table(
        "build", "BLAS", "HPL GFLOPS", "DGEMM GFLOPS", "% of DGEMM", "ratio", title=title
    )  # fmt: skip
    base = max(found[0].hpl)
    for part in found:
        table.add_row(
            part.build, part.blas, f"{max(part.hpl):.1f}", f"{max(part.dgemm):.1f}",
            f"{part.percent():.1f}", f"{max(part.hpl) / base:.2f}",
        )  # fmt: skip
    out.print(table)


def show(title: str, series: list[Series]) -> None:
    table = Table("way", "wall s", "user s", "ratio of wall", "ratio of user", title=title)
    first = series[0]
    for part in series:
        wall, user = statistics.median(part.wall), statistics.median(part.user)
        base = statistics.median(first.wall), statistics.median(first.user)
        table.add_row(
            part.way, f"{wall:.1f}", f"{user:.1f}", f"{wall / base[0]:.2f}",
            f"{user / base[1]:.2f}" if base[1] > 0.05 else "-",
        )  # fmt: skip
    out.print(table)


def main(
    quick: Annotated[bool, typer.Option("--quick", help="One round, only as it is.")] = False,
    site: Annotated[str, typer.Option("--site", "-s", help="A site of Spack.")] = "lab-spack",
    rounds: Annotated[int | None, typer.Option(min=1)] = None,
    part: Annotated[
        list[str] | None, typer.Option("--part", "-p", help="Only this one: " + ", ".join(PARTS))
    ] = None,
    ranks: Annotated[int | None, typer.Option(min=1, help="Of HPL; every core has one.")] = None,
    size: Annotated[int, typer.Option(min=1000, help="HPL's N.")] = 10000,
    block: Annotated[int, typer.Option(min=1, help="HPL's NB.")] = 256,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything to this file as well.")
    ] = None,
) -> None:
    """Measure concretization, a build with nothing to do, and HPL."""
    rounds = rounds or (1 if quick else 3)
    chosen = part or list(PARTS)
    if wrong := set(chosen) - set(PARTS):
        raise ValueError(f"--part {wrong.pop()}: there are {', '.join(PARTS)}")
    ranks = ranks or len(os.sched_getaffinity(0))
    file = site_file(site)
    paths = prepare(load_site(file), file, say)
    root = Path(tempfile.mkdtemp(prefix="seatrial-bench-"))
    host = host_facts()
    out.print(f"{host['processor']}, {host['cores']} cores, {host['operating system']}, "
              f"load {host['load']}")  # fmt: skip
    roots = len(build.roots(paths))
    found = {"seatrial": version_with_commit(), "host": host, "roots": roots}
    try:
        if "concretize" in chosen:
            series = concretizations(paths, rounds, [AS_IS] if quick else list(WAYS), root)
            show(f"Concretization of {roots} roots", series)
            found["concretization"] = [asdict(one) for one in series]
        if "build" in chosen:
            built = nothing_to_do(site, rounds)
            show("A build with nothing to do", built)
            found["build"] = [asdict(one) for one in built]
        if "hpl" in chosen:
            rates = hpl_rates(site, rounds, ranks, size, block, root)
            show_hpl(rates, f"HPL of N={size}, NB={block}, {ranks} ranks of one thread")
            found["hpl"] = [asdict(rate) for rate in rates]
        out.print(f"load at the end {host_facts()['load']}")
    finally:
        if json_file:
            json_file.write_text(json.dumps(found, indent=1) + "\n")
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    try:
        typer.run(main)
    except (SeatrialError, ValueError) as error:
        sys.exit(f"spack.py: {error}")
