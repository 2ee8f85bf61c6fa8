"""Small sites, false programs and a silent progress, for the tests that run whole trials."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from labs import own_name
from seatrial.base.paths import CHECKOUT
from seatrial.results import disturbance
from seatrial.results.folder import Results
from seatrial.results.record import Run
from seatrial.stack import load_stack
from seatrial_lab.native.engine import Lab

SESSION = own_name("trial")
FURTHER_FAULT = pytest.mark.nightly(reason="trials of labs with further faults")
LAB_SITE = CHECKOUT / "site-configs" / "lab"
MPI = ["openmpi-tcp", "openmpi-ucx", "openmpi-ofi", "mpich-ucx", "mpich-ofi", "intelmpi-tcp"]
#: the smallest that still prove their path
SMALL: dict[str, dict[str, Any]] = {
    "netpipe": {"max_bytes": 1024, "repetitions": 10, "time_limit_s": 20},
    "hpl": {"blas": ["openblas"], "size": 200, "block": 32},
    "tcp_stream": {"seconds": 1},
    "links": {
        "nodes": [4],
        "max_bytes": "64 KiB",
        "repetitions": 20,
        "stream_bytes": "1 MiB",
        "cores": [0],
    },
    "node_compute": {"nodes": [4], "problem_class": "S", "runs": 1},
}
ALL_INFORMATIVE = 'schema: 1\ninformative:\n  - {select: {}, metric: "*", reason: a test}\n'


def make_site(
    folder: Path,
    benchmarks: dict[str, dict[str, Any]],
    requirements: str = ALL_INFORMATIVE,
    transports: dict[str, dict[str, Any]] | None = None,
    nic_profiles: dict[str, dict[str, Any]] | None = None,
    rails: int = 1,
    changes: dict[str, Any] | None = None,
    **trial: Any,
) -> Path:
    """A site like the lab with these benchmarks only, in a new folder; returns its file.

    ``nic_profiles`` are those beside the default, ``transports`` all transports; None for
    transports means the lab's. ``rails``: so many networks rail1, rail2 ... on eth1, eth2 ... in
    the place of the lab's, if more than one. ``changes``: sections to replace.
    """
    yaml = YAML()  # keeps the order, in which the cases run
    site = yaml.load((LAB_SITE / "site.yaml").read_text())
    site["name"] = folder.name
    site["benchmarks"] = benchmarks
    if transports is not None:
        site["transports"] = transports
        del site["jobs"]  # names the lab's transports
    default = site["nic_profiles"]["default"]
    site["nic_profiles"] = {"default": default, **(nic_profiles or {})}
    site["trial"] = {"repeats": 1, **trial}
    if rails > 1:
        site["networks"] = {"mgmt": site["networks"]["mgmt"]} | {
            f"rail{number}": {
                "role": "test", "interface": f"eth{number}", "subnet": f"10.73.{number}.0/24",
                "switch_mtu": 9216,
            }
            for number in range(1, rails + 1)
        }  # fmt: skip
    site.update(changes or {})
    folder.mkdir(parents=True, exist_ok=True)  # there already at a second try
    with (folder / "site.yaml").open("w") as stream:
        yaml.dump(site, stream)
    (folder / "requirements.yaml").write_text(requirements)
    (folder / "settings.py").write_text((LAB_SITE / "settings.py").read_text())
    return folder / "site.yaml"


def false_stack(folder: Path, scripts: dict[str, str]) -> Path:
    """A copy of the stack in which some transports' NetPIPE is a shell script; its folder.

    ``{real}`` in a script is the program that it stands for.
    """
    folder.mkdir(parents=True, exist_ok=True)  # there already at a second try
    stack = load_stack().model_copy(update={"prefix": str(folder)}, deep=True)
    for transport, text in scripts.items():
        part = stack.transports[transport]
        name = "netpipe" if part.family else "nptcp"
        script = folder / f"{transport}.sh"
        script.write_text("#!/bin/sh\n" + text.replace("{real}", " ".join(part.programs[name])))
        script.chmod(0o755)
        part.programs[name] = [str(script)]
    stack.save()
    return folder


@contextmanager
def undisturbed() -> Iterator[None]:
    """Waits for a processor excuse no figure.

    A busy machine can take a short step's processor for most of its time: a planted fault is then
    inconclusive, and measured again.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disturbance, "DISTURBED_PERCENT", math.inf)
        yield


class Silent:
    """Keeps the progress lines of a trial."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, word: str, done: int, total: int, name: str) -> None:
        self.lines.append(f"{word} {done}/{total} {name}")

    def said(self, text: str) -> None:
        self.lines.append(text)


class Resuming(Silent):
    """Puts drained nodes, which Slurm would prefer, back before cases are run again."""

    def __init__(self, lab: Lab, nodes: str) -> None:
        super().__init__()
        self.lab, self.nodes = lab, nodes

    def __enter__(self) -> Resuming:
        self._set("drain", "reason=test")
        return self

    def __exit__(self, *_: object) -> None:
        self._set("resume")

    def said(self, text: str) -> None:
        super().said(text)
        if text.startswith("rerun "):
            self._set("resume")

    def _set(self, state: str, *more: str) -> None:
        change = ["scontrol", "update", f"nodename={self.nodes}", f"state={state}", *more]
        self.lab.run(change, user="root")


def run_of(results: Results, check: str, transport: str, variant: str = "") -> Run:
    """The one run of a case. Fails where there is none, or several."""
    (match,) = [
        run
        for run in results.runs
        if (run.case.check, run.case.transport, run.case.variant) == (check, transport, variant)
    ]
    return match


def running_jobs(lab: Lab) -> list[tuple[str, str]]:
    """(job id, job nodes) of the running jobs whose batch script has started its step."""
    text = lab.run(["squeue", "-h", "-t", "R", "-o", "%i|%N"], user="root").stdout
    steps = lab.run(["squeue", "-h", "-s", "-o", "%i"], user="root").stdout.split()
    rows = [line.partition("|") for line in text.splitlines()]
    return [(job, nodes) for job, _, nodes in rows if f"{job}.0" in steps]


def all_jobs(lab: Lab) -> list[str]:
    """What is left in the queue."""
    return lab.run(["squeue", "-h", "-o", "%i %T"], user="root").stdout.splitlines()


@contextmanager
def meanwhile(*deeds: Callable[[], None]):
    """Do something in another thread while the block runs; its errors come up at the end."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for deed in deeds:
                deed()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join(timeout=60 * PATIENCE)
    if errors:
        raise errors[0]
    assert not thread.is_alive()


#: a machine with ten times as much to do as it has cores
PATIENCE = 10
#: until a trial has its first job: ReFrame starts by itself
START_S = 20


def until(
    condition: Callable[[], Any], timeout: float, what: str, found: Callable[[], object] = str
) -> Any:
    """What ``condition`` gives once that is true. Fails after ``timeout`` s, which is what an idle
    machine takes at most, and PATIENCE times that on a busy one; ``found`` then says what was there
    instead."""
    timeout *= PATIENCE
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"not in {timeout} s: {what} {found()}")


def wait_for_idle_nodes(lab: Lab) -> None:
    """Until all nodes can take a job; else the error names states and jobs."""

    def shown(*command: str) -> str:
        return lab.run([*command], user="root").stdout

    def is_idle() -> bool:
        return set(shown("sinfo", "-h", "-N", "-o", "%T").split()) == {"idle"}

    try:
        until(is_idle, 20, "all nodes idle")
    except AssertionError as error:
        jobs = shown("squeue", "-h", "-o", "%i %j %T %r")
        raise AssertionError(f"{error}\n{shown('sinfo', '-N', '-o', '%N %T %E')}{jobs}") from None


def traces(instance: str, mounts_below: Iterable[str] = ()) -> list[str]:
    """What is called after a lab on this machine: namespaces, mounts, folders."""
    name = f"seatrial-{instance}-"
    names = [str(path) for path in Path("/run/netns").glob(name + "*")]
    lines = Path("/proc/self/mounts").read_text().splitlines()
    words = (name, f"/seatrial/{instance}", *mounts_below)
    names += [line for line in lines if any(word in line for word in words)]
    folders = (Path(root, "seatrial", instance) for root in ("/run", "/var/lib"))
    return names + [str(folder) for folder in folders if folder.exists()]
