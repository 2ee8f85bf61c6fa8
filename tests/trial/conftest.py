"""One lab for all trials of a test session, and a folder that it sees."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from labs import running
from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.results.folder import Results
from seatrial.site.load import load_site, site_file
from seatrial.trial.run import run_trial
from seatrial_lab.native.engine import Lab
from seatrial_lab.native.machine import LabMachine
from seatrial_lab.native.site import lab_spec
from trial_support import SESSION, Silent, all_jobs, until


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where sites and trials of the tests are."""
    folder = tmp_path_factory.mktemp("trials")
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def trial_lab(workplace: Path) -> Iterator[Lab]:
    """The lab of the site 'lab'; a test that breaks it must mend it."""
    with running(lab_spec(load_site(site_file("lab")), SESSION)) as lab:
        yield lab


@pytest.fixture
def place(workplace: Path, request: pytest.FixtureRequest) -> Path:
    """A folder of the test's own that the lab sees."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))
    folder = workplace / f"{name}-{len(list(workplace.iterdir()))}"  # a second try has another
    folder.mkdir()
    return folder


@pytest.fixture
def try_site(trial_lab: Lab, workplace: Path) -> Callable[..., Results]:
    """``try_site(file, **selection)``: a whole trial in the lab, nothing of it left in Slurm."""

    def run(file: Path, trials: Path | None = None, **selection) -> Results:
        trial_lab.add_bind(workplace)  # each time: a node that was revived has lost it
        machine = LabMachine(trial_lab)
        where = trials or file.parent.parent / "trials"
        results = run_trial(
            plan_trial(file, Selection(**selection)), file, machine, Silent(), where
        )
        until(lambda: not all_jobs(trial_lab), 20, "an empty queue")
        return results

    return run
