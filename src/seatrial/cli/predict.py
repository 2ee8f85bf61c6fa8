"""``seatrial predict``: run times on more nodes than were measured, by simulation."""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from seatrial.base.errors import InputError
from seatrial.base.suggest import suggest
from seatrial.cli.trial import pooled, say
from seatrial.results.figures import valid_runs

BENCHMARKS = ("npb-is", "npb-ep")
CLASSES = ("S", "W", "A", "B", "C")
#: family of a transport -> SMPI's name of its collective algorithms
SELECTORS = {"openmpi": "ompi", "mpich": "mpich", "intelmpi": "impi"}
MOST_NODES = 4096  # all ranks run on this machine


def predict(
    trials: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of trials of one site; default: the newest."),
    ] = None,
    benchmark: Annotated[
        str, typer.Option(help=f"The kernel of NPB: {', '.join(BENCHMARKS)}.")
    ] = BENCHMARKS[0],
    problem_class: Annotated[
        str, typer.Option("--class", help=f"Class of the kernel: {', '.join(CLASSES)}.")
    ] = "A",
    nodes: Annotated[str, typer.Option(help="Numbers of nodes, such as 2,4,8.")] = "2,4,8,16",
    profile: Annotated[str, typer.Option(help="The NIC profile.")] = "default",
    transport: Annotated[
        str | None, typer.Option(help="Default: the first with message times.")
    ] = None,
    network: Annotated[str, typer.Option(help="The rail, where trials have several.")] = "",
    program: Annotated[
        str | None,
        typer.Option(help="A program built by smpicc or smpif90 instead."),
    ] = None,
    alltoallv: Annotated[
        str,
        typer.Option(help="linear or pairwise; default: the MPI's choice."),
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="Processor seconds of a simulation.")] = 600,
) -> None:
    """Predict the run time of a program on more nodes.

    SimGrid runs the program over a network that has the message times of the trial, and predicts
    measured cases, too: their error is that of the prediction.

    Example: seatrial predict --benchmark npb-is --class A --nodes 2,4,8,16,32,64
    """
    from seatrial.analysis.conclusion import Measured
    from seatrial.predict import prediction as of
    from seatrial.predict import programs, simulation
    from seatrial.report import prediction as words

    counts = _counts(nodes)
    kernel = "" if program else _kernel(benchmark, problem_class, counts)
    if alltoallv and alltoallv not in simulation.ALLTOALLV:
        known_names = suggest(alltoallv, simulation.ALLTOALLV)
        raise InputError(f"--alltoallv: {alltoallv!r} is no algorithm ({known_names})")
    version = simulation.version()
    results = pooled(trials)
    measured = [
        Measured(one.trial.trial, run)
        for one in results
        for run in valid_runs(one.runs)
        if not one.trial.is_rerun(run)
    ]
    chosen = transport or _with_times(measured, profile)
    with tempfile.TemporaryDirectory(prefix="seatrial-predict-") as text:
        folder = Path(text)
        built = programs.build_npb(_source(folder), folder)
        selector = SELECTORS.get(chosen.partition("-")[0], "ompi")
        run = of.runner(built, selector, limit)
        try:
            own = of.selected(measured, chosen, profile, network)
            known = of.calibrated(own, programs.build_pingpong(folder), run, limit)
        except ValueError as error:
            raise InputError(f"{chosen} under {profile}: {error}") from None
        say(f"{chosen} under {profile}, SimGrid {version}")
        for line in words.calibration(known):
            say(line)
        simulate_one = run(known.network)
        compared = of.compare(known, own, kernel, simulate_one) if kernel else []
        for line in words.comparisons(compared):
            say(line)
        simulate_one = of.runner(built, selector, limit, alltoallv)(known.network)
        say(program or f"{benchmark}, class {problem_class}:")
        for count in counts:
            if program:
                command = shlex.split(program)
                command[0] = str(Path(command[0]).resolve())
                done = simulation.simulate(
                    command, count, known.network, speed=known.speed, selector=selector,
                    alltoallv=alltoallv, limit_s=limit,
                )  # fmt: skip
                made = of.Prediction(count, done.seconds, None, of.far(count, []))
            else:
                made = of.predict(known, compared, kernel, problem_class, count, simulate_one)
            say(words.prediction(made, compared))


def _counts(text: str) -> list[int]:
    """The numbers of nodes. Raises InputError."""
    counts = []
    for word in text.split(","):
        if not re.fullmatch(r"[0-9]{1,6}", word.strip()) or not 1 <= int(word) <= MOST_NODES:
            raise InputError(
                f"--nodes: {word.strip()!r} is no number of nodes from 1 to {MOST_NODES}: write "
                "for example 2,4,8"
            )
        counts.append(int(word))
    return counts


def _kernel(benchmark: str, problem_class: str, counts: list[int]) -> str:
    """The kernel of NPB. Raises InputError."""
    if benchmark not in BENCHMARKS:
        raise InputError(
            f"--benchmark: {benchmark!r} cannot be predicted ({suggest(benchmark, BENCHMARKS)}); "
            "build another program with smpicc or smpif90, and name it by --program"
        )
    if problem_class not in CLASSES:
        known = suggest(problem_class, CLASSES)
        raise InputError(f"--class: {problem_class!r} is no class of NPB ({known})")
    kernel = benchmark.removeprefix("npb-")
    for count in counts:
        if kernel == "is" and count & (count - 1):
            raise InputError(f"--nodes: npb-is does not run on {count} ranks: write a power of two")
    return kernel


def _with_times(measured: list, profile: str) -> str:
    """The first transport with message times of MPI under a profile. Raises InputError."""
    from seatrial.base.names import PSEUDO_TRANSPORTS
    from seatrial.predict.calibration import SOURCES

    for check in SOURCES:
        for one in measured:
            case = one.run.case
            if case.check == check and case.profile == profile and \
                    case.transport not in PSEUDO_TRANSPORTS:  # fmt: skip
                return str(case.transport)
    profiles = list(dict.fromkeys(one.run.case.profile for one in measured))
    hint = "" if profile in profiles else f" ({suggest(profile, profiles)})"
    raise InputError(
        f"no transport of MPI has message times under {profile}{hint}: run "
        "'seatrial trial -c comms -c npb'"
    )


def _source(folder: Path) -> Path:
    """The source of NPB: of the labs' stack, else of PyPI. Raises LabError."""
    from seatrial.stack import stack_folder
    from seatrial_lab.software import pypi

    kept = stack_folder() / "sources" / "simgrid.tar.gz"
    return kept if kept.is_file() else pypi.download_source("simgrid", folder / "download")
