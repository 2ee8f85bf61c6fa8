"""HPL and, in the same job and with the same ranks, DGEMM, with each BLAS library.

With ``dgemm_calls: 0`` HPL runs alone, and its share of DGEMM is not known.

HPL is ``xhpl``, or ``hpcc`` if the stack does not have it. ``checks/node/dgemm.py`` measures DGEMM
right before and right after HPL, by many calls of the same library on all ranks at once.
``hpl_input`` writes the input of HPL, ``hpl_output`` and ``hpcc_output`` read the outputs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field

from seatrial.base.fields import Name
from seatrial.base.suggest import FieldProblem
from seatrial.benchmarks import hpcc_output, hpl_output, mpi_time
from seatrial.benchmarks.benchmark import (
    NODE_PYTHON,
    Benchmark,
    DeclaredMetric,
    Job,
    Programs,
    Settings,
    SiteFacts,
    Step,
    node_files,
    output,
    too_many_cores,
)
from seatrial.benchmarks.hpl_input import grid, in_folder, render, too_large_block
from seatrial.benchmarks.limits import Known, Limit, Peak, above
from seatrial.benchmarks.parsing import Parsed, ParseError, higher, lower
from seatrial.results.figures import DISTURBED_PERCENT
from seatrial.results.record import Metric

#: the beginnings of the names of files that implement BLAS
BLAS_FILES = (
    "libblas.so", "libopenblas", "libblis", "libatlas", "libtatlas", "libsatlas", "libacml",
)  # fmt: skip
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS")
#: DGEMM before and after HPL may differ by this many per cent, or its share decides nothing
MOST_SPREAD = 10.0
#: HPL may exceed DGEMM by this many per cent, because the rate of DGEMM depends on the shape of
#: the matrices: HPL was 6 to 10 % above hpcc's DGEMM with five builds (docs/dev/benchmarks.md)
SHAPE = 10.0
#: order of the matrices at which DGEMM is at its full rate, for one thread
FULL_RATE_ORDER = 1024


#: of the nodes' memory for the matrix (netlib.org/benchmark/hpl/faqs.html)
MEMORY_FRACTION = 0.8
#: HPL reads 80 characters of a line, and at most 20 problem sizes (``HPL_pdinfo.c``)
MOST_SOLVES = 8
OF_DGEMM = ("dgemm_GFLOPS", "dgemm_spread_percent", "hpl_percent_of_dgemm")
METRICS = {
    "hpl_GFLOPS": DeclaredMetric("GFLOPS", "higher"),
    "dgemm_GFLOPS": DeclaredMetric("GFLOPS", "higher"),
    "dgemm_spread_percent": DeclaredMetric("percent", "lower"),
    "hpl_percent_of_dgemm": DeclaredMetric("percent", "higher"),
    "stream_triad_GB_s": DeclaredMetric("GB/s", "higher", optional=True),
    "blas_as_declared": DeclaredMetric("of 1", "higher", "node"),
}


class HPLSettings(Settings):
    blas: list[Name] = ["atlas", "blis", "openblas"]
    size: int = Field(default=1000, ge=64, description="order N of the matrix")
    block: int = Field(default=64, ge=1, description="block size NB")
    ranks_per_node: int = Field(default=1, ge=1)
    threads_per_rank: int = Field(default=1, ge=1)
    grid_rows: int | None = Field(
        default=None,
        ge=1,
        description="rows P of the grid of ranks; default: as close to a square as possible",
    )
    solves: int = Field(
        default=1,
        ge=1,
        le=MOST_SOLVES,
        description="of the matrix in a run; the fastest counts, as the first one also opens "
        "the connections between the ranks",
    )
    dgemm_calls: int | None = Field(
        default=None,
        ge=0,
        description="calls of DGEMM with each order; default: many, for 0.2 s; 0: no DGEMM",
    )
    mpi_time: list[str] = mpi_time.SETTING


class _ShareOfDgemm(Limit):
    """HPL is mostly DGEMM: it cannot be faster than the DGEMM of its ranks.

    The tolerance is the spread of DGEMM and ``SHAPE``.
    """

    def beyond(self, metric: Metric, parsed: Parsed, known: Known) -> str:
        most = most_share(parsed.value("dgemm_spread_percent"))
        if metric.value <= most:
            return ""
        source = "the DGEMM of the same ranks, with its spread and"
        return above(metric, most, f"{source} {SHAPE:g} % for the shape of the matrices")


class HPL(Benchmark[HPLSettings]):
    name = "hpl"
    performance = "hpl_GFLOPS"
    of_several_steps = OF_DGEMM
    Settings = HPLSettings
    chooses = ("blas", "mpi_time")
    limits = (
        _ShareOfDgemm("hpl_percent_of_dgemm"),
        Peak("hpl_GFLOPS", cores="cores"),
        Peak("dgemm_GFLOPS", cores="threads"),
    )

    def variants(self) -> list[str]:
        return list(self.settings.blas)

    def has_program(self, variant: str, programs: Programs, blas: Collection[str]) -> bool:
        return variant in blas and command(programs, variant) is not None

    def lacks_library(self, variant: str, blas: Collection[str]) -> bool:
        return bool(blas) and variant not in blas

    def steps(self, job: Job) -> list[Step]:
        variants = self.available(job.transport, job.programs, job.blas)
        return [step for blas in variants for step in self._steps_with(blas, job)]

    def _steps_with(self, blas: str, job: Job) -> list[Step]:
        steps = [self._hpl(blas, job)]
        if self.settings.dgemm_calls != 0:
            before, after = (
                self._dgemm(f"dgemm-{blas}-{when}", blas, job) for when in ("before", "after")
            )
            steps = [before, *steps, after]
        if library := mpi_time.library(self.settings.mpi_time, job.transport, job.programs):
            steps.append(self._hpl(blas, job, library))
        return steps

    def not_measured(self, transport: str, programs: Programs) -> str:
        return mpi_time.lacking(self.settings.mpi_time, transport, programs)

    def _hpl(self, blas: str, job: Job, library: list[str] | None = None) -> Step:
        """HPL in its own folder, which has the input file.

        With the library ``mpi_time`` HPL is the only test of hpcc, as in others ranks wait for one,
        and solves once, as the library measures the whole program.
        """
        settings = self.settings
        program = command(job.programs, blas)
        assert program is not None  # ``has_program``
        name, file = f"hpl-{blas}", "HPL.dat" if is_xhpl(job.programs, blas) else "hpccinf.txt"
        ranks = job.nodes * settings.ranks_per_node
        parameters = render(
            settings.size,
            settings.block,
            *grid(ranks, settings.grid_rows),
            1 if library else settings.solves,
        )
        env = self._threads()
        if program == job.programs.get("hpcc"):  # it takes the libblas.so.3 of the path
            env |= search_path(job, blas)
        if library:
            only = [word for word in program if not word.startswith("HPCC_TESTS=")]
            name, program = mpi_time.timed(library, name, only)
            env["HPCC_TESTS"] = "HPL"
        words, setup = in_folder(name, program, file, parameters)
        return Step(
            name,
            words,
            variant=blas,
            tasks_per_node=settings.ranks_per_node,
            env=env,
            maps="blas,blis",
            proves_path=job.nodes > 1,
            setup=setup,
        )

    def _dgemm(self, name: str, blas: str, job: Job) -> Step:
        """DGEMM of all ranks.

        The matrices are no larger than those of hpcc's DGEMM: three of them have the size of a
        rank's part of HPL's matrix (``tstdgemm.c`` of HPC Challenge 1.5.0).
        """
        settings = self.settings
        ranks = job.nodes * settings.ranks_per_node
        most = FULL_RATE_ORDER * math.ceil(math.sqrt(settings.threads_per_rank))
        order = max(1, min(most, int(settings.size / math.sqrt(3 * ranks))))
        calls = [str(settings.dgemm_calls)] if settings.dgemm_calls else []
        return Step(
            name,
            [*NODE_PYTHON, "dgemm.py", name, job.blas[blas], str(order), *calls],
            variant=blas,
            tasks_per_node=settings.ranks_per_node,
            env=self._threads(),
            proves_path=False,
        )

    def _threads(self) -> dict[str, str]:
        return dict.fromkeys(THREADS, str(self.settings.threads_per_rank))

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        if step.name.startswith("dgemm"):
            return Parsed(metrics=[])  # the figures of DGEMM are those of HPL's step
        settings, blas = self.settings, step.variant
        if step.name.endswith(mpi_time.SUFFIX):
            return self._share(step, folder, job)
        ranks = job.nodes * settings.ranks_per_node
        if is_xhpl(job.programs, blas):
            parsed = hpl_output.parse(output(step, folder))
        else:
            parsed = _without_dgemm(hpcc_output.parse(hpcc_output.read(folder / step.name)))
        self._check_problem(parsed, ranks, settings.solves)
        loaded = mapped_blas(folder, step.name)
        share: list[Metric] = []
        facts: dict[str, object] = {}
        if settings.dgemm_calls != 0:
            dgemm = read_dgemm(folder, blas, ranks)
            share = share_of_dgemm(parsed.value("hpl_GFLOPS"), ranks, dgemm, loaded)
            facts = {
                "dgemm_before_GFLOPS": dgemm.before,
                "dgemm_after_GFLOPS": dgemm.after,
                "dgemm_library": dgemm.libraries,
            }
        return replace(
            parsed,
            metrics=[*parsed.metrics, *share, *_as_declared(loaded, job.blas[blas])],
            facts={
                **parsed.facts,
                "cores": ranks * settings.threads_per_rank,
                "threads": settings.threads_per_rank,
                **facts,
                "BLAS mapped": loaded,
                "BLAS wanted": job.blas[blas],
            },
        )

    def _check_problem(self, parsed: Parsed, ranks: int, solves: int) -> None:
        """Raises ParseError if HPL solved another problem than the settings', or not so often."""
        settings = self.settings
        p, q = grid(ranks, settings.grid_rows)
        wanted = {"N": settings.size, "NB": settings.block, "P": p, "Q": q, "tests": solves}
        found = {key: parsed.facts[key] for key in wanted}
        if found != wanted:
            raise ParseError(f"HPL solved {_problem(found)}, but the input has {_problem(wanted)}")

    def _share(self, step: Step, folder: Path, job: Job) -> Parsed:
        """The share of communication of a run with the library ``mpi_time``."""
        if is_xhpl(job.programs, step.variant):
            parsed, rounding = hpl_output.rounded(output(step, folder))
        else:
            parsed = hpcc_output.parse_hpl(hpcc_output.read(folder / step.name))
            rounding = mpi_time.SIX_DIGITS
        self._check_problem(parsed, job.nodes * self.settings.ranks_per_node, 1)
        rate, order = parsed.value(self.performance), parsed.facts["N"]
        seconds = hpl_output.flops(order) / rate / 1e9
        step_folder = folder / step.name
        return mpi_time.share(step_folder, step.name, parsed, self.performance, seconds, rounding)

    def metrics(self) -> dict[str, DeclaredMetric]:
        metrics = {
            name: metric
            for name, metric in METRICS.items()
            if self.settings.dgemm_calls != 0 or name not in OF_DGEMM
        }
        return {**metrics, **mpi_time.METRICS} if self.settings.mpi_time else metrics

    def problems(self, site: SiteFacts) -> Iterator[FieldProblem]:
        settings = self.settings
        cores = settings.ranks_per_node * settings.threads_per_rank
        yield from too_many_cores("ranks_per_node", cores, site)
        rows = settings.grid_rows or 1
        ranks = [nodes * settings.ranks_per_node for nodes in settings.nodes]
        if unfit := [count for count in ranks if count % rows]:
            common = math.gcd(*ranks)
            yield FieldProblem(
                "grid_rows",
                f"{unfit[0]} ranks do not fill a grid of {rows} rows",
                "1" if common == 1 else f"a divisor of {common}",
            )
        yield from too_large_block(settings.block, settings.size)
        fewest = min(settings.nodes)
        matrix_MiB, memory_MiB = 8 * settings.size**2 >> 20, fewest * site.node_memory_MiB
        if matrix_MiB > memory_MiB:
            most = math.isqrt(int(MEMORY_FRACTION * memory_MiB) << 17)
            yield FieldProblem(
                "size",
                f"the matrix of order {settings.size} has {matrix_MiB} MiB, but {fewest} "
                f"{'node has' if fewest == 1 else 'nodes have'} {memory_MiB} MiB",
                f"at most {most}, which is {MEMORY_FRACTION:.0%} of the memory",
            )


def _problem(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())


def command(programs: Programs, blas: str) -> list[str] | None:
    """The command of HPL with a BLAS library; None if the stack has none.

    The stack of a distribution has one hpcc for all BLAS libraries, that of Spack has one for each.
    """
    for name in (f"xhpl.{blas}", f"hpcc.{blas}", "hpcc"):
        if name in programs:
            return list(programs[name])
    return None


def search_path(job: Job, blas: str) -> dict[str, str]:
    """The variable by which an hpcc that takes any libblas.so.3 finds that of a library."""
    path = job.env.get("LD_LIBRARY_PATH", "")
    return {"LD_LIBRARY_PATH": f"{job.blas[blas]}:{path}".rstrip(":")}


def is_xhpl(programs: Programs, blas: str) -> bool:
    """Whether ``xhpl`` runs HPL; else ``hpcc`` does."""
    return f"xhpl.{blas}" in programs


@dataclass(frozen=True)
class Dgemm:
    """The DGEMM of a job. ``before``, ``after`` HPL: the mean over the ranks of a rank's best call
    in GFLOPS. ``waited``: the longest wait of a node for a processor, in per cent of the step."""

    before: float
    after: float
    libraries: list[str]
    waited: float

    @property
    def rate(self) -> float:
        """GFLOPS of a rank. Other programs only reduce the rate, so it is the higher of the two."""
        return max(self.before, self.after)

    @property
    def spread(self) -> float:
        """The difference of the two, in per cent of the higher one."""
        return 100 * abs(self.before - self.after) / self.rate


def read_dgemm(folder: Path, blas: str, ranks: int) -> Dgemm:
    """Read the files of ``dgemm.py`` of all ranks. Raises ParseError."""
    best: dict[str, float] = {}
    libraries: set[str] = set()
    waits = [0.0]
    for when in ("before", "after"):
        step = f"dgemm-{blas}-{when}"
        rates = []
        for rank in range(ranks):
            library, rate = _rank_dgemm(folder / f"{step}.{rank}.dgemm.json")
            libraries.add(library)
            rates.append(rate)
        best[when] = sum(rates) / ranks
        for record in node_files(folder, step):
            seconds = record["after"].get("time", 0) - record["before"].get("time", 0)
            if seconds > 0:
                waits.append(100 * (record.get("waited_s") or 0) / seconds)
    return Dgemm(best["before"], best["after"], sorted(libraries), max(waits))


def _rank_dgemm(file: Path) -> tuple[str, float]:
    """The library of a rank, and the best rate of its calls in GFLOPS."""
    try:
        data = json.loads(file.read_text())
        calls = [rate for rates in data["GFLOPS"].values() for rate in rates]
        library = data["library"]
    except FileNotFoundError:
        raise ParseError(f"{file.name} is missing: DGEMM did not end on all ranks") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ParseError(f"{file.name}: expected the rates of DGEMM as JSON: {error!r}") from None
    good = all(isinstance(rate, float) and 0 < rate < math.inf for rate in calls)
    if not calls or not good or not isinstance(library, str):
        raise ParseError(f"{file.name}: expected a library and rates of DGEMM above zero")
    return library, max(calls)


def most_share(spread: float) -> float:
    """The highest possible share of DGEMM in per cent, by the spread of DGEMM in per cent."""
    return 100 + spread + SHAPE


def share_of_dgemm(
    hpl: float, ranks: int, dgemm: Dgemm, loaded: dict[str, list[str]]
) -> list[Metric]:
    """DGEMM, its spread, and HPL's share of it (``hpl`` in GFLOPS, all ranks together)."""
    share = 100 * hpl / (ranks * dgemm.rate)
    doubt, factor = "", None
    mapped = {str(Path(file).resolve()) for files in loaded.values() for file in files}
    others = [library for library in dgemm.libraries if mapped and library not in mapped]
    if dgemm.spread > MOST_SPREAD:
        doubt = (
            f"DGEMM was {dgemm.before:.4g} GFLOPS before HPL and {dgemm.after:.4g} after it: they "
            f"differ by {dgemm.spread:.3g} %, more than {MOST_SPREAD:g} %"
        )
        # The rate while HPL ran is as uncertain as that of DGEMM, unless HPL shows it to be higher.
        if share <= most_share(dgemm.spread) and not others:
            factor = dgemm.rate / min(dgemm.before, dgemm.after)
    elif others:
        doubt = f"DGEMM ran with {others[0]}, HPL with {', '.join(sorted(mapped))}"
    elif share > most_share(dgemm.spread) and dgemm.waited > DISTURBED_PERCENT:
        doubt = f"DGEMM waited for a processor for {dgemm.waited:.3g} % of its time"
    return [
        higher("dgemm_GFLOPS", dgemm.rate, "GFLOPS"),
        lower("dgemm_spread_percent", dgemm.spread, "percent"),
        replace(higher("hpl_percent_of_dgemm", share, "percent"), doubt=doubt, doubt_factor=factor),
    ]


def _as_declared(loaded: dict[str, list[str]], wanted: str) -> list[Metric]:
    """1 for each node whose ranks have mapped only BLAS files of the wanted folder; else 0."""
    return [
        replace(
            higher(
                "blas_as_declared",
                float(bool(files) and all(is_below(file, wanted) for file in files)),
                "of 1",
            ),
            location=node,
        )
        for node, files in loaded.items()
    ]


def mapped_blas(folder: Path, step: str) -> dict[str, list[str]]:
    """Node -> the files that implement BLAS and that its ranks had mapped in a step."""
    return {
        record["after"]["node"]: [
            file for file in record["mapped"] if Path(file).name.startswith(BLAS_FILES)
        ]
        for record in node_files(folder, step)
    }


def is_below(library: str, folder: str) -> bool:
    """Whether a file is below a folder, or a link in the folder refers to it."""
    file, top = Path(library).resolve(), Path(folder)
    return file.is_relative_to(top.resolve()) or any(
        link.resolve() == file for link in top.glob("lib*.so*")
    )


def _without_dgemm(parsed: Parsed) -> Parsed:
    """hpcc's figures; its DGEMM, a single call, is a fact."""
    of_dgemm = ("dgemm_GFLOPS", "hpl_percent_of_dgemm")
    return replace(
        parsed,
        metrics=[metric for metric in parsed.metrics if metric.metric not in of_dgemm],
        facts={**parsed.facts, "hpcc_dgemm_GFLOPS": parsed.value("dgemm_GFLOPS")},
    )
