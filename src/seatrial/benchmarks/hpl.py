"""HPL and, in the same job and with the same ranks, DGEMM, with each BLAS library.

If the stack has ``xhpl``, it runs HPL, and ``hpcc`` runs DGEMM before it. Else ``hpcc`` runs both.
``hpl_input`` writes the input, ``hpl_output`` and ``hpcc_output`` read the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from pydantic import Field

from seatrial.base.fields import Name
from seatrial.benchmarks import hpcc_output, hpl_output
from seatrial.benchmarks.benchmark import (
    Benchmark,
    Job,
    Programs,
    Settings,
    Step,
    node_files,
    output,
)
from seatrial.benchmarks.hpl_input import grid, render
from seatrial.benchmarks.parsing import Parsed, ParseError, higher

#: the beginnings of the names of files that implement BLAS
BLAS_FILES = (
    "libblas.so", "libopenblas", "libblis", "libatlas", "libtatlas", "libsatlas", "libacml",
)  # fmt: skip
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS")


class HPLSettings(Settings):
    blas: list[Name] = ["atlas", "blis", "openblas"]
    size: int = Field(default=1000, ge=64, description="order N of the matrix")
    block: int = Field(default=64, ge=1, description="block size NB")
    ranks_per_node: int = Field(default=1, ge=1)
    threads_per_rank: int = Field(default=1, ge=1)


class HPL(Benchmark[HPLSettings]):
    name = "hpl"
    Settings = HPLSettings

    def variants(self) -> list[str]:
        return list(self.settings.blas)

    def has_program(self, variant: str, programs: Programs, blas: Collection[str]) -> bool:
        return variant in blas and commands(programs, variant) is not None

    def lacks_library(self, variant: str, blas: Collection[str]) -> bool:
        return bool(blas) and variant not in blas

    def steps(self, job: Job) -> list[Step]:
        variants = self.available(job.transport, job.programs, job.blas)
        return [step for blas in variants for step in self._steps_with(blas, job)]

    def _steps_with(self, blas: str, job: Job) -> list[Step]:
        programs = commands(job.programs, blas)
        assert programs is not None  # ``has_program``
        if "xhpl" not in programs:
            return [self._step(f"hpl-{blas}", "hpccinf.txt", programs["hpcc"], blas, job)]
        dgemm = ["/usr/bin/env", "HPCC_TESTS=SingleDGEMM,StarDGEMM", *programs["hpcc"]]
        return [
            self._step(f"dgemm-{blas}", "hpccinf.txt", dgemm, blas, job),
            self._step(f"hpl-{blas}", "HPL.dat", programs["xhpl"], blas, job),
        ]

    def _step(self, name: str, file: str, program: list[str], blas: str, job: Job) -> Step:
        """A run in its own folder, which has the input file."""
        settings = self.settings
        ranks = job.nodes * settings.ranks_per_node
        parameters = render(settings.size, settings.block, *grid(ranks))
        env = dict.fromkeys(THREADS, str(settings.threads_per_rank))
        if program == job.programs.get("hpcc"):  # it takes the libblas.so.3 of the path
            path = job.env.get("LD_LIBRARY_PATH", "")
            env["LD_LIBRARY_PATH"] = f"{job.blas[blas]}:{path}".rstrip(":")
        command = 'cd "$1" && shift && exec "$@"'
        return Step(
            name,
            ["/bin/sh", "-c", command, "sh", name, *program],
            variant=blas,
            tasks_per_node=settings.ranks_per_node,
            env=env,
            maps="blas,blis",
            proves_path=not name.startswith("dgemm") and job.nodes > 1,
            setup=[f"mkdir -p {name}", f"cat >{name}/{file} <<'EOF'\n{parameters}EOF"],
        )

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        parsed = self._figures(step, folder)
        if step.name.startswith("dgemm"):
            return parsed  # the mapped BLAS is a metric of HPL's step
        wanted = job.blas[step.variant]
        loaded = mapped_blas(folder, (f"dgemm-{step.variant}", f"hpl-{step.variant}"))
        matches = []
        for node, files in loaded.items():
            # 1 if all BLAS files that the node's rank has mapped are of the variant's library
            match = bool(files) and all(is_below(file, wanted) for file in files)
            metric = higher("blas_as_declared", float(match), "of 1")
            matches.append(replace(metric, location=node))
        facts = {"BLAS mapped": loaded, "BLAS wanted": wanted}
        return replace(parsed, metrics=[*parsed.metrics, *matches], facts={**parsed.facts, **facts})

    def _figures(self, step: Step, folder: Path) -> Parsed:
        if "HPL.dat" in " ".join(step.setup):
            dgemm = _summary(f"dgemm-{step.variant}", folder, hpcc_output.parse_dgemm)
            return percent_of_dgemm(hpl_output.parse(output(step, folder)), dgemm)
        dgemm_only = step.name.startswith("dgemm")
        parser = hpcc_output.parse_dgemm if dgemm_only else hpcc_output.parse
        return _summary(step.name, folder, parser)


def commands(programs: Programs, blas: str) -> dict[str, list[str]] | None:
    """Program (``xhpl``, ``hpcc``) -> command, with a BLAS library; None if the stack has none.

    The stack of a distribution has one hpcc for all BLAS libraries, that of Spack has one for each.
    """
    if f"xhpl.{blas}" in programs and f"hpcc.{blas}" in programs:
        return {kind: list(programs[f"{kind}.{blas}"]) for kind in ("xhpl", "hpcc")}
    if f"hpcc.{blas}" in programs:
        return {"hpcc": list(programs[f"hpcc.{blas}"])}
    return {"hpcc": list(programs["hpcc"])} if "hpcc" in programs else None


def percent_of_dgemm(parsed: Parsed, dgemm: Parsed) -> Parsed:
    """Add ``hpl_percent_of_dgemm``, the rate of HPL over that of all ranks' DGEMM in the job."""
    ranks = parsed.facts["P"] * parsed.facts["Q"]
    share = 100 * parsed.value("hpl_GFLOPS") / (ranks * dgemm.value("dgemm_GFLOPS"))
    metric = higher("hpl_percent_of_dgemm", share, "percent")
    return replace(parsed, metrics=[*parsed.metrics, metric])


def mapped_blas(folder: Path, steps: tuple[str, ...]) -> dict[str, list[str]]:
    """Node -> the files that implement BLAS and that its ranks had mapped in the steps."""
    loaded: dict[str, list[str]] = {}
    for name in steps:
        for record in node_files(folder, name):
            files = loaded.setdefault(record["after"]["node"], [])
            blas = [file for file in record["mapped"] if Path(file).name.startswith(BLAS_FILES)]
            files += [file for file in blas if file not in files]
    return loaded


def is_below(library: str, folder: str) -> bool:
    """Whether a file is below a folder, or a link in the folder refers to it."""
    file, top = Path(library).resolve(), Path(folder)
    return file.is_relative_to(top.resolve()) or any(
        link.resolve() == file for link in top.glob("lib*.so*")
    )


def _summary(step: str, folder: Path, parser: Callable[[str], Parsed]) -> Parsed:
    try:
        text = (folder / step / "hpccoutf.txt").read_text(errors="replace")
    except FileNotFoundError:
        raise ParseError("hpcc wrote no hpccoutf.txt") from None
    return parser(text)
