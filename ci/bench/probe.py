"""What a back end of ReFrame learns of a job that fails: not a benchmark, used by backends.py."""

import json
import os
from pathlib import Path

import reframe as rfm
from reframe.core.backends import getlauncher
from reframe.core.builtins import parameter, run_before, sanity_function

from seatrial.base.names import NO_TRANSPORT

SCRIPTS = {
    "exit code 3": (["-c", "exit 3"], []),
    "dead node": (["-c", "touch running; sleep 120"], ["--nodelist=" + os.environ["PROBE_NODE"]]),
}


@rfm.simple_test
class Probe(rfm.RunOnlyRegressionTest):
    how = parameter(SCRIPTS)
    valid_systems = ["*"]  # noqa: RUF012
    valid_prog_environs = [NO_TRANSPORT]  # noqa: RUF012
    sourcesdir = None
    executable = "bash"
    num_tasks = 1
    local = False

    @run_before("run")
    def set_job(self):
        self.executable_opts, self.job.options = ([*part] for part in SCRIPTS[self.how])
        self.executable_opts[-1] = f"'{self.executable_opts[-1]}'"
        self.job.launcher = getlauncher("local")()

    @sanity_function
    def write(self):
        job = self.job
        known = {"how": self.how, "state": job.state, "exit_code": job.exitcode}
        folder = Path(os.environ["PROBE_FOLDER"])
        (folder / f"probe-{self.how.split()[0]}.json").write_text(json.dumps(known))
        return True
