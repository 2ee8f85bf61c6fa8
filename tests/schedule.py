"""Which tests run in one process under pytest-xdist, which are started first and collected first.

Tests that share a lab, or Spack, stay together; of the others each file. By name, as
`--dist=loadgroup` of pytest-xdist 3.8 has no effect under pytest 9.2.
"""

from __future__ import annotations

from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

#: beginning of a test's id -> those with whom it shares. In the order of their start: first what
#: takes longest, as the others fill the gaps. Guest and Spack compute, a lab of Slurm mostly waits.
GROUPS = {
    "tests/lab_virtual/test_clocks.py": "built QEMU",
    "tests/lab_virtual/test_hub_wires.py": "built QEMU",
    "tests/lab_virtual/": "virtual",
    "tests/spack/": "spack",
    "tests/trial/test_trial_faults.py": "trial",
    "tests/trial/test_trial_healthy.py": "trial",
    "tests/trial/test_trial_planted.py": "trial",
    "tests/trial/test_trial_rounds.py": "trial",
    "tests/lab/": "plain lab",
    "tests/lab_software/": "plain lab",
    "tests/job/test_job_in_lab.py": "plain lab",
    "tests/trial/test_trial_links.py": "links",
    "tests/trial/test_trial_rails.py": "links",
    "tests/trial/test_trial_profiles.py": "profiles",
    "tests/nic/test_survives.py": "survives",
    # at night, 40 and 17 minutes of one processor
    "tests/analysis/test_hostile_records.py": "hostile records",
    "tests/results/test_hostile_figures.py": "hostile figures",
    "tests/cli/test_cli_trial.py": "cli lab",
    "tests/cli/test_cli_nic.py": "cli lab",
    "tests/cli/": "cli",
    "tests/slurm/": "slurm",
    "tests/nic/test_real_interfaces.py": "interfaces",
    "tests/nic/test_routes.py": "routes",
    "tests/test_suite_options.py": "suite options",
    "tests/test_pipelines.py": "pipelines",
    "tests/test_code_style.py": "style",
}


def group(test: str) -> str:
    """The group of a test's id."""
    for beginning, name in GROUPS.items():
        if test.startswith(beginning):
            return name
    return test.partition("::")[0]


def turn(test: str) -> int:
    """Its place in the order in which groups are started."""
    names = list(dict.fromkeys(GROUPS.values()))
    name = group(test)
    return names.index(name) if name in names else len(names)


def collected_by(tests: Path, worker: int, workers: int) -> list[str]:
    """All files and folders of tests, in the order in which a worker collects them.

    Pytest compiles a test file at its first import, which takes 10 s of a processor for all files.
    Each worker starts elsewhere, and finds the files compiled where another worker has been.
    """
    places = sorted(
        str(place) for place in tests.iterdir()
        if place.match("test_*.py") or next(place.rglob("test_*.py"), None)
    )  # fmt: skip
    first = worker * len(places) // workers
    return [*places[first:], *places[:first]]


class ByGroup(LoadScopeScheduling):
    """Gives each process a group at a time, in the order in which tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)
