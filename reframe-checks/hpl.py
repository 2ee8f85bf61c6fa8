"""HPL, and the same ranks' DGEMM, from one hpcc run for each BLAS library."""

from dataclasses import replace
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, Step
from seatrial.checks.evidence import node_files
from seatrial.results.parsers import hpcc
from seatrial.results.parsers.base import ParseError, higher
from seatrial.stack.hpccinf import grid, render


@rfm.simple_test
class HPL(Check):
    descr = "HPL by hpcc, one run for each BLAS"
    benchmark = "hpl"
    valid_systems = ["+hpl"]
    valid_prog_environs = ["+hpl"]
    num_nodes = parameter(context.node_counts("hpl"))

    @property
    def libraries(self):
        """BLAS name -> folder of its libblas.so.3, for those that the site wants."""
        offered = self.current_environ.extras["blas"]
        return {name: offered[name] for name in self.settings.blas if name in offered}

    def steps(self):
        ranks = self.num_nodes * self.settings.ranks_per_node
        rows, columns = grid(ranks)
        parameters = render(self.settings.size, self.settings.block, rows, columns)
        path = dict(self.current_environ.env_vars).get("LD_LIBRARY_PATH", "")
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS")
        threads = dict.fromkeys(names, str(self.settings.threads_per_rank))
        steps = []
        for blas, folder in self.libraries.items():
            name = f"hpl-{blas}"
            command = 'cd "$1" && shift && exec "$@"'
            steps.append(
                Step(
                    name,
                    ["/bin/sh", "-c", command, "sh", name, *self.program("hpcc")],
                    variant=blas,
                    tasks_per_node=self.settings.ranks_per_node,
                    env={"LD_LIBRARY_PATH": f"{folder}:{path}".rstrip(":"), **threads},
                    maps="blas",
                    setup=[f"mkdir -p {name}", f"cat >{name}/hpccinf.txt <<'EOF'\n{parameters}EOF"],
                )
            )
        return steps

    def parse(self, step, folder):
        try:
            text = (folder / step.name / "hpccoutf.txt").read_text(errors="replace")
        except FileNotFoundError:
            raise ParseError("hpcc wrote no hpccoutf.txt") from None
        parsed = hpcc.parse(text)
        wanted = self.libraries[step.variant]
        loaded = {
            node["after"]["node"]: [lib for lib in node["mapped"] if is_blas(lib)]
            for node in node_files(folder, step.name)
        }
        matches = []
        for node, libs in loaded.items():
            # 1 where every BLAS that the node's rank had mapped is the case's own, else 0
            match = bool(libs) and all(within(lib, wanted) for lib in libs)
            metric = higher("blas_as_declared", float(match), "of 1")
            matches.append(metric.model_copy(update={"place": node}))
        facts = {"BLAS mapped": loaded, "BLAS wanted": wanted}
        return replace(parsed, metrics=[*parsed.metrics, *matches], facts={**parsed.facts, **facts})


def is_blas(library):
    """Whether a mapped file implements BLAS (and is not, say, a wrapper of another name)."""
    return Path(library).name.startswith(("libblas.so", "libopenblas", "libblis", "libatlas"))


def within(library, folder):
    return Path(library).resolve().is_relative_to(Path(folder).resolve())
