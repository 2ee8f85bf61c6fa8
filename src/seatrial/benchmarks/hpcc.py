"""HPC Challenge's tests of all nodes: PTRANS, MPIFFT, MPIRandomAccess and StarSTREAM.

Each test is a step and a variant. Their patterns of communication are not those of NPB's IS and
EP: a transposition of blocks, an FFT with an exchange among all ranks, and small messages to random
ranks. StarSTREAM, which HPC Challenge's results call EP-STREAM, is bound by the memory, as NPB's EP
is by the processor. It sends no data, but each of its times has a barrier in it, which counts where
the arrays are small. Not here: HPL and DGEMM (``hpl``), the tests of one process, and hpcc's
latency and bandwidth, which ``netpipe`` and ``osu`` measure for each size.

``hpcc`` chooses its tests by HPCC_TESTS (``select.c`` of the recipe), and derives their sizes from
the order of HPL's matrix. ``hpl_input`` writes its input, ``hpcc_output`` reads its output.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Literal

from pydantic import Field

from seatrial.base.suggest import FieldProblem
from seatrial.benchmarks import mpi_time
from seatrial.benchmarks.benchmark import (
    Benchmark,
    DeclaredMetric,
    Job,
    Programs,
    Settings,
    SiteFacts,
    Step,
    too_many_cores,
)
from seatrial.benchmarks.hpcc_output import parse_test, read
from seatrial.benchmarks.hpl import search_path
from seatrial.benchmarks.hpl_input import grid, in_folder, render, too_large_block
from seatrial.benchmarks.limits import Peak, Transfer
from seatrial.benchmarks.parsing import Parsed

#: variant -> the name of the test in HPCC_TESTS and in the output
TESTS = {
    "ptrans": "PTRANS",
    "mpifft": "MPIFFT",
    "random_access": "MPIRandomAccess",
    "star_stream": "StarSTREAM",
}
METRICS = {
    "ptrans_MB_s": DeclaredMetric("MB/s", "higher", variants=("ptrans",)),
    "mpifft_GFLOPS": DeclaredMetric("GFLOPS", "higher", variants=("mpifft",)),
    "random_access_Mops": DeclaredMetric("Mop/s", "higher", variants=("random_access",)),
    "stream_triad_GB_s": DeclaredMetric("GB/s", "higher", variants=("star_stream",)),
    "time_s": DeclaredMetric("s", "lower"),
}
#: the program that runs all tests: of the labs' stack. Spack has one for each BLAS, hpcc.openblas.
ALL_TESTS = "hpcc_all"


class HPCCSettings(Settings):
    """HPC Challenge's tests of all nodes."""

    tests: list[Literal["ptrans", "mpifft", "random_access", "star_stream"]] = Field(
        default=["ptrans", "mpifft", "random_access"], min_length=1
    )
    size: int = Field(
        default=1000,
        ge=64,
        description="order N of HPL's matrix, from which hpcc derives the sizes of its tests",
    )
    stream_size: int = Field(
        default=4000,
        ge=64,
        description="the same for star_stream, whose three arrays have together so many numbers "
        "squared, over all ranks; more than the caches hold",
    )
    block: int = Field(default=64, ge=1, description="block size of PTRANS")
    ranks_per_node: int = Field(default=1, ge=1)
    mpi_time: list[str] = mpi_time.SETTING


class HPCC(Benchmark[HPCCSettings]):
    """HPC Challenge: PTRANS, MPIFFT, MPIRandomAccess and StarSTREAM over all ranks."""

    name = "hpcc"
    performance = "time_s"
    Settings = HPCCSettings
    chooses = ("tests", "mpi_time")
    limits = (Transfer("time_s"), Peak("mpifft_GFLOPS", cores="processes"))

    def variants(self) -> list[str]:
        return list(dict.fromkeys(self.settings.tests))

    def has_program(self, variant: str, programs: Programs, blas: Collection[str]) -> bool:
        return command(programs) is not None

    def steps(self, job: Job) -> list[Step]:
        settings = self.settings
        program = command(job.programs)
        if program is None:
            return []
        env = {"OMP_NUM_THREADS": "1"}
        if ALL_TESTS in job.programs and job.blas:
            env |= search_path(job, min(job.blas))  # none of these tests calls BLAS
        ranks = job.nodes * settings.ranks_per_node
        library = mpi_time.library(settings.mpi_time, job.transport, job.programs)
        steps = []
        for variant, loaded in product(self.variants(), (None, library) if library else (None,)):
            name, words_of_run = f"hpcc-{variant}", program
            if loaded:
                name, words_of_run = mpi_time.timed(loaded, name, program)
            size = settings.stream_size if variant == "star_stream" else settings.size
            parameters = render(size, settings.block, *grid(ranks))
            words, setup = in_folder(name, words_of_run, "hpccinf.txt", parameters)
            steps.append(
                Step(
                    name,
                    words,
                    variant=variant,
                    tasks_per_node=settings.ranks_per_node,
                    env={**env, "HPCC_TESTS": TESTS[variant]},
                    proves_path=job.nodes > 1,
                    setup=setup,
                )
            )
        return steps

    def not_measured(self, transport: str, programs: Programs) -> str:
        return mpi_time.lacking(self.settings.mpi_time, transport, programs)

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        parsed = parse_test(read(folder / step.name), TESTS[step.variant])
        if step.variant == "ptrans" and self.settings.ranks_per_node > 1:
            # Ranks that exchange their blocks may be on one node.
            parsed = replace(parsed, moved_bytes=0)
        if step.name.endswith(mpi_time.SUFFIX):
            step_folder, seconds = folder / step.name, parsed.value("time_s")
            rounding = mpi_time.SIX_DIGITS
            return mpi_time.share(
                step_folder, step.name, parsed, self.performance, seconds, rounding
            )
        return parsed

    def metrics(self) -> dict[str, DeclaredMetric]:
        every = {**METRICS, **mpi_time.METRICS} if self.settings.mpi_time else METRICS
        return {
            name: declared_metric
            for name, declared_metric in every.items()
            if not declared_metric.variants or set(declared_metric.variants) & set(self.variants())
        }

    def problems(self, site: SiteFacts) -> Iterator[FieldProblem]:
        settings = self.settings
        yield from too_many_cores("ranks_per_node", settings.ranks_per_node, site)
        yield from too_large_block(settings.block, settings.size)


def command(programs: Programs) -> list[str] | None:
    """The command of an hpcc that can run these tests; None if the stack has none."""
    names = [name for name in sorted(programs) if name == ALL_TESTS or name.startswith("hpcc.")]
    return list(programs[names[0]]) if names else None
