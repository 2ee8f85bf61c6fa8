"""``seatrial predict``: run times on more nodes than were measured, by simulation."""

from __future__ import annotations

import math
import os
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seatrial.base.errors import InputError, LabError
from seatrial.base.suggest import suggest
from seatrial.benchmarks.npb import due_ranks
from seatrial.cli.screen import out, say
from seatrial.cli.trial_folders import pooled
from seatrial.job.tune.outcome import figure as figure_in
from seatrial.results.wording import plural

if TYPE_CHECKING:
    from rich.status import Status

    from seatrial.analysis.conclusion import Measured
    from seatrial.predict.simulation import Simulated

KERNELS = ("is", "ep", "cg", "mg", "ft", "lu", "bt", "sp")
BENCHMARKS = tuple(f"npb-{kernel}" for kernel in KERNELS)
CLASSES = ("S", "W", "A", "B", "C")
#: family of a transport -> SMPI's name of its collective algorithms
SELECTORS = {"openmpi": "ompi", "mpich": "mpich", "intelmpi": "impi"}
MOST_NODES = 4096  # all ranks run on this machine
_SAY_EVERY_S = 60


def predict(
    trials: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of trials of one site; default: the newest."),
    ] = None,
    benchmark: Annotated[
        str | None, typer.Option(help="npb- and one of NPB's kernels; default: npb-is.")
    ] = None,
    problem_class: Annotated[
        str | None,
        typer.Option("--class", help=f"Of the kernel: {', '.join(CLASSES)}; default: A."),
    ] = None,
    nodes: Annotated[str, typer.Option(help="Numbers of nodes, such as 2,4,8.")] = "2,4,8,16",
    profile: Annotated[
        str | None, typer.Option(help="The NIC profile; default: the one named default.")
    ] = None,
    transport: Annotated[
        str | None, typer.Option(help="Default: the first with message times.")
    ] = None,
    network: Annotated[str, typer.Option(help="The rail, where trials have several.")] = "",
    source: Annotated[
        Path | None, typer.Option(help="Folder or archive of NPB 3.4; default: Spack's.")
    ] = None,
    program: Annotated[
        str | None,
        typer.Option(help="A program built by smpicc or smpif90 instead."),
    ] = None,
    figure: Annotated[
        str,
        typer.Option(metavar="REGEX", help="Matches its time in s; default: the whole run."),
    ] = "",
    measured: Annotated[
        str, typer.Option(help="Its measured times, NODES=SECONDS: 4=12.1,8=7.3.")
    ] = "",
    alltoallv: Annotated[
        str,
        typer.Option(help="linear or pairwise; default: the MPI's choice."),
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="Processor seconds.")] = 3600,
) -> None:
    """Predict the run time of a program on more nodes.

    SimGrid simulates the network of the trial. Measured cases give the error.

    Example: seatrial predict --benchmark npb-is --class A --nodes 2,4,8,16,32,64
    """
    from seatrial.analysis import runs as used
    from seatrial.predict import prediction as of
    from seatrial.predict import programs, simulation
    from seatrial.report import prediction as words

    counts = _counts(nodes)
    for option, value in (("--benchmark", benchmark), ("--class", problem_class)):
        if program and value:
            raise InputError(f"{option} is of the kernels of NPB: give it, or --program")
    benchmark, problem_class = benchmark or BENCHMARKS[0], problem_class or "A"
    kernel = "" if program else _kernel(benchmark, problem_class, counts)
    known_times = _measured(measured, program)
    if figure and not program:
        raise InputError("--figure is of a --program: the kernels of NPB print their time")
    try:
        re.compile(figure)
    except re.error as error:
        raise InputError(f"--figure {figure!r} is no regular expression: {error}") from None
    command = _command(program) if program else []
    if alltoallv and alltoallv not in simulation.ALLTOALLV:
        known_names = suggest(alltoallv, simulation.ALLTOALLV)
        raise InputError(f"--alltoallv: {alltoallv!r} is no algorithm ({known_names})")
    source = source or programs.kept_archive()
    if kernel and kernel not in programs.OF_SIMGRID and not source:
        raise InputError(programs.without_source(kernel))
    version = simulation.version()
    if command:
        programs.check_program(Path(command[0]))
    results = pooled(trials)
    results, not_used = used.usable(results)
    for missing in not_used:
        say(f"a run of {missing.subject}: {missing.reason}")
    if left_out := sum(count for count, _ in used.disturbed(results).values()):
        say(f"left out: {plural(left_out, 'run')} that waited for a processor")
    runs = used.measured(results)
    _check_measured("--network", network, (sample.run.case.network for sample in runs))
    _check_measured("--transport", transport, (sample.run.case.transport for sample in runs))
    profile = _profile(runs, profile)
    chosen = transport or _with_times(runs, profile)
    with (
        tempfile.TemporaryDirectory(prefix="seatrial-predict-") as text,
        out.status("building the programs") as status,
    ):
        folder = Path(text)
        tell = _progress(status, limit)
        suite = programs.suite_in(source, folder) if source else None
        # the measured cases are compared with the program that they ran
        own_suite = any(
            sample.run.case.check == "npb" and "version" in sample.run.facts for sample in runs
        )
        kernels = programs.Kernels(
            folder, lambda: _source(folder), suite, own_suite=own_suite and suite is not None
        )
        counter = programs.build_counter(folder)
        selector = SELECTORS.get(chosen.partition("-")[0], "ompi")
        run = of.runner(kernels.command, selector, limit, counter=counter, progress=tell)
        try:
            samples = of.selected(runs, chosen, profile, network)
            variant = f"{kernel}.{problem_class}" if kernel else ""
            known = of.calibrated(samples, programs.build_pingpong(folder), run, limit, variant)
        except ValueError as error:
            raise InputError(f"{chosen} under {profile}: {error}") from None
        say(f"{chosen} under {profile}, SimGrid {version}")
        for line in words.calibration(known):
            say(line)
        if own_suite and not suite and known.speed_case:
            say("speed of the nodes: the trial ran NPB itself, and SimGrid's kernel is simulated; "
                "--source names NPB's")  # fmt: skip
        if program:
            simulate_one = of.runner(
                lambda *_: command, selector, limit, alltoallv, counter, tell
            )(known.network)  # fmt: skip
            made = {
                count: simulate_one("", count, known.speed)
                for count in dict.fromkeys([*known_times, *counts])
            }
            times = {count: _time(done, figure) for count, done in made.items()}
            compared = of.compare_program(known_times, times.__getitem__)
            predictions: Iterable[of.Prediction] = [
                of.Prediction(
                    count, times[count], None, of.flaws_of(known, compared, count, made[count])
                )
                for count in counts
            ]
            title = program
        else:
            compared = of.compare(known, samples, kernel, run(known.network))
            simulate_one = of.runner(
                kernels.command, selector, limit, alltoallv, counter, tell
            )(known.network)  # fmt: skip
            predictions = (
                of.predict(known, compared, kernel, problem_class, count, simulate_one)
                for count in counts
            )
            title = f"{benchmark}, class {problem_class}:"
        for line in words.comparisons(compared):
            say(line)
        say(title)
        for line in words.predictions(predictions, compared):
            say(line)


def _progress(status: Status, limit_s: int) -> Callable[[int, float], None]:
    """What shows how far a simulation is: on a terminal all the time, elsewhere a line a minute."""
    said = time.monotonic()

    def tell(nodes: int, processor_s: float) -> None:
        nonlocal said
        text = (
            f"simulating {plural(nodes, 'node')}: {processor_s:.0f} s of a processor so far, at "
            f"most {limit_s} s"
        )
        if out.is_terminal:
            status.update(text)
        elif time.monotonic() - said >= _SAY_EVERY_S:
            said = time.monotonic()
            say(f"  {text}")

    return tell


def _counts(text: str, option: str = "--nodes") -> list[int]:
    """The numbers of nodes; 2,4,...,64 are those that double. Raises InputError."""
    counts: list[int] = []
    words = text.split(",")
    for index, word in enumerate(words):
        if word.strip() == "..." and index >= 2 and words[index + 1 :]:
            continue
        if not re.fullmatch(r"[0-9]{1,6}", word.strip()) or not 1 <= int(word) <= MOST_NODES:
            raise InputError(
                f"{option}: {word.strip()!r} is no number of nodes from 1 to {MOST_NODES}: write "
                "for example 2,4,8"
            )
        if index and words[index - 1].strip() == "...":
            counts += _between(counts, int(word), f"{option}: {text!r}")
        counts.append(int(word))
    return counts


def _between(counts: list[int], last: int, of: str) -> list[int]:
    """The numbers after two that ``last`` ends, each the same multiple. Raises InputError."""
    before, first = counts[-2:]
    factor, rest = divmod(first, before)
    made = [first]
    while not rest and factor > 1 and made[-1] < last:
        made.append(made[-1] * factor)
    if made[-1] != last or len(made) < 2:
        raise InputError(f"{of}: {last} is no multiple that follows {before},{first}")
    return made[1:-1]


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
        if due := due_ranks(kernel, count):
            raise InputError(f"--nodes: {benchmark} does not run on {count} ranks: it needs {due}")
    return kernel


def _measured(text: str, program: str | None) -> dict[int, float]:
    """Number of nodes -> measured time in s of a program. Raises InputError."""
    if text and not program:
        raise InputError("--measured is of a --program: the times of NPB are those of the trial")
    times = {}
    for word in text.split(",") if text else []:
        nodes, _, seconds = word.strip().partition("=")
        try:
            value = float(seconds)
        except ValueError:
            value = 0.0
        if not math.isfinite(value) or value <= 0:
            raise InputError(
                f"--measured: {word.strip()!r} is not NODES=SECONDS: write 4=12.1,8=7.3"
            )
        times[_counts(nodes, "--measured")[0]] = value
    return times


def _command(program: str) -> list[str]:
    """The words of a program, which exists. Raises InputError."""
    command = shlex.split(program)
    if not command or not os.access(command[0], os.X_OK):
        raise InputError(f"--program: {program!r} is no program that can be executed")
    return [str(Path(command[0]).resolve()), *command[1:]]


def _time(done: Simulated, pattern: str) -> float:
    """The time in s of a simulated program: of the whole run, or what it prints.

    Raises LabError.
    """
    if not pattern:
        return done.seconds
    value, reason = figure_in(pattern, done.output.encode())
    if value is None:
        raise LabError(f"the simulated program ended, but {reason}")
    return value


def _profile(measured: Sequence[Measured], named: str | None) -> str:
    """The profile that is named, else ``default``. Raises InputError if no run has it."""
    known = list(dict.fromkeys(sample.run.case.profile for sample in measured))
    if named is None and known and "default" not in known:
        raise InputError(
            "--profile: no run is under the profile default: name another one (known here: "
            f"{', '.join(known)})"
        )
    _check_measured("--profile", named, known)
    return named or "default"


def _check_measured(option: str, value: str | None, known: Iterable[str]) -> None:
    """Raise InputError if a value is given that no run has."""
    names = list(dict.fromkeys(filter(None, known)))
    if value and value not in names:
        raise InputError(f"{option}: no run is of {value!r} ({suggest(value, names)})")


def _with_times(measured: Sequence[Measured], profile: str) -> str:
    """The first transport with message times of MPI under a profile. Raises InputError."""
    from seatrial.base.names import PSEUDO_TRANSPORTS
    from seatrial.predict.calibration import SOURCES

    others: dict[str, None] = {}
    for check in SOURCES:
        for sample in measured:
            case = sample.run.case
            if case.check == check and case.transport not in PSEUDO_TRANSPORTS:
                if case.profile == profile:
                    return str(case.transport)
                others[case.profile] = None
    hint = f" (those under {', '.join(others)} have)" if others else ""
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
