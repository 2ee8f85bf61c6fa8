"""HPL, and the same ranks' DGEMM in the same job, for each BLAS library."""

from dataclasses import replace
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.benchmarks import hpcc, hpl, programs
from seatrial.benchmarks.hpldat import grid, render
from seatrial.benchmarks.parsing import ParseError, higher
from seatrial.checks import context
from seatrial.checks.base import Check, Step
from seatrial.checks.evidence import node_files


@rfm.simple_test
class HPL(Check):
    descr = "HPL and DGEMM with each BLAS"
    benchmark = "hpl"
    valid_systems = ["+hpl"]
    valid_prog_environs = ["+hpl"]
    num_nodes = parameter(context.node_counts("hpl"))

    @property
    def libraries(self):
        """BLAS name -> folder of its library."""
        return self.current_environ.extras["blas"]

    def steps(self):
        return [step for blas in self.variants() for step in self.steps_with(blas)]

    def steps_with(self, blas):
        """One run of hpcc for HPL and DGEMM; where the stack has xhpl, that is HPL, and DGEMM's
        run comes before it."""
        commands = programs.hpl(self.programs, blas)
        if "xhpl" not in commands:
            return [self.step(f"hpl-{blas}", "hpccinf.txt", commands["hpcc"], blas)]
        dgemm = ["/usr/bin/env", "HPCC_TESTS=SingleDGEMM,StarDGEMM", *commands["hpcc"]]
        return [
            self.step(f"dgemm-{blas}", "hpccinf.txt", dgemm, blas),
            self.step(f"hpl-{blas}", "HPL.dat", commands["xhpl"], blas),
        ]

    def step(self, name, file, program, blas):
        """A run in a folder of its own, with its input file in it."""
        settings = self.settings
        ranks = self.num_nodes * settings.ranks_per_node
        parameters = render(settings.size, settings.block, *grid(ranks))
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS")
        env = dict.fromkeys(names, str(settings.threads_per_rank))
        if program == self.programs.get("hpcc"):  # the one that is linked with any libblas.so.3
            path = dict(self.current_environ.env_vars).get("LD_LIBRARY_PATH", "")
            env["LD_LIBRARY_PATH"] = f"{self.libraries[blas]}:{path}".rstrip(":")
        command = 'cd "$1" && shift && exec "$@"'
        return Step(
            name,
            ["/bin/sh", "-c", command, "sh", name, *program],
            variant=blas,
            tasks_per_node=settings.ranks_per_node,
            env=env,
            maps="blas,blis",
            proves_path=not name.startswith("dgemm") and self.num_nodes > 1,
            setup=[f"mkdir -p {name}", f"cat >{name}/{file} <<'EOF'\n{parameters}EOF"],
        )

    def figures(self, step, folder):
        """What the step's program printed."""
        if "HPL.dat" in " ".join(step.setup):
            found = hpl.parse((folder / f"{step.name}.out").read_text(errors="replace"))
            return percent_of(
                found, self.summary(f"dgemm-{step.variant}", folder, hpcc.parse_dgemm)
            )
        parser = hpcc.parse_dgemm if step.name.startswith("dgemm") else hpcc.parse
        return self.summary(step.name, folder, parser)

    def summary(self, step, folder, parser):
        try:
            text = (folder / step / "hpccoutf.txt").read_text(errors="replace")
        except FileNotFoundError:
            raise ParseError("hpcc wrote no hpccoutf.txt") from None
        return parser(text)

    def parse(self, step, folder):
        parsed = self.figures(step, folder)
        if step.name.startswith("dgemm"):
            return parsed  # which library it had is told with HPL's
        wanted = self.libraries[step.variant]
        loaded = {}
        for name in (f"dgemm-{step.variant}", f"hpl-{step.variant}"):
            for node in node_files(folder, name):
                libs = loaded.setdefault(node["after"]["node"], [])
                libs += [lib for lib in node["mapped"] if is_blas(lib) and lib not in libs]
        matches = []
        for node, libs in loaded.items():
            # 1 where every BLAS that the node's rank had mapped is the case's own, else 0
            match = bool(libs) and all(within(lib, wanted) for lib in libs)
            metric = higher("blas_as_declared", float(match), "of 1")
            matches.append(metric.model_copy(update={"location": node}))
        facts = {"BLAS mapped": loaded, "BLAS wanted": wanted}
        return replace(parsed, metrics=[*parsed.metrics, *matches], facts={**parsed.facts, **facts})


def percent_of(parsed, dgemm):
    """HPL's figures with ``hpl_percent_of_dgemm``: of what all ranks' DGEMM did in the same job."""
    ranks = parsed.facts["P"] * parsed.facts["Q"]
    share = 100 * parsed.value("hpl_GFLOPS") / (ranks * dgemm.value("dgemm_GFLOPS"))
    metric = higher("hpl_percent_of_dgemm", share, "percent")
    return replace(parsed, metrics=[*parsed.metrics, metric])


def is_blas(library):
    """Whether a mapped file implements BLAS (and is not, say, a wrapper of another name)."""
    names = (
        "libblas.so",
        "libopenblas",
        "libblis",
        "libatlas",
        "libtatlas",
        "libsatlas",
        "libacml",
    )
    return Path(library).name.startswith(names)


def within(library, folder):
    """Whether a file is below a folder, or one that the folder has a link to."""
    file, folder = Path(library).resolve(), Path(folder)
    return file.is_relative_to(folder.resolve()) or any(
        one.resolve() == file for one in folder.glob("lib*.so*")
    )
