"""What is tuned: the candidates that a site allows for a program, and the job script of a run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import seatrial
from seatrial.base.errors import InputError
from seatrial.base.files import write_whole
from seatrial.base.names import PLAIN_SOCKETS
from seatrial.base.suggest import matching, suggest
from seatrial.benchmarks.benchmark import NODE_PYTHON
from seatrial.checks import nic_proof
from seatrial.job.plan import plan
from seatrial.job.render import render
from seatrial.job.request import Request, Surroundings
from seatrial.job.template import FOLDER, SUFFIX, read_template
from seatrial.job.tune.record import Candidate, Chosen, Tuned
from seatrial.results.statistics import Better
from seatrial.site.model import Site
from seatrial.site.nic_policy import declared
from seatrial.site.profiles import carrier_interfaces, is_tested, resolved
from seatrial.stack.transports import TRANSPORTS

#: the programs of ``seatrial.checks`` for nodes
NODE_FILES = Path(nic_proof.__file__).with_name("node")
#: of the job's time limit over that of the program: Slurm's Prolog, and the ranks' start and end
MARGIN_S = 60
#: a library of MPI -> the family of its ABI. MPICH's and Intel MPI's is version 12.
_LIBRARY = re.compile(r"\blibmpi(ch)?\.so\.(\d+)")
#: names in the paths of mapped files, for the wrapper
LIBRARIES = "libmpi.so,libmpich.so"
#: values of the job template that the user may set
SETTINGS = (
    "account", "partition", "mem", "distribution", "cpus_per_rank", "module", "module_folder",
)  # fmt: skip


@dataclass(frozen=True)
class Wish:
    """The options of a user."""

    site: str
    program: list[str]
    cwd: Path
    nodes: int = 2
    ranks_per_node: int | None = None
    profiles: list[str] = field(default_factory=list)  # globs; none: all that fit
    transports: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    figure: str = ""
    better: Better = "lower"
    run_limit_s: int = 600
    unit: str = ""  # of the figure


def mpi_family(library: str) -> str:
    """openmpi or mpich, by the name of a library; "" if it is none of MPI."""
    match = _LIBRARY.search(library)
    if not match:
        return ""
    return "openmpi" if not match[1] and int(match[2]) >= 20 else "mpich"


def family_of(program: str, cwd: Path) -> str:
    """The MPI that a program is linked with, as ``mpi_family``; "" if none is seen."""
    file = str(cwd / program) if "/" in program else shutil.which(program)
    if not file:
        return ""
    try:
        done = subprocess.run(["ldd", file], capture_output=True, text=True, errors="replace",
                              timeout=60)  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return mpi_family(done.stdout)


def tuned_of(wish: Wish, around: Surroundings) -> Tuned:
    """The request with its candidates. Raises InputError."""
    site = around.site
    _check(wish)
    left_out: dict[str, str] = {}
    transports = _transports(wish, around)
    profiles = matching(wish.profiles or ["*"], site.nic_profiles)
    for pattern in wish.profiles:
        if not matching([pattern], site.nic_profiles):
            hint = suggest(pattern, site.nic_profiles)
            raise InputError(f"--profile {pattern}: site {site.name} has no such profile ({hint})")
    chosen: list[Chosen] = []
    ranks = wish.ranks_per_node
    for transport in transports:
        for profile in profiles:
            candidate = Candidate(profile, transport)
            path = site.data_path(transport)
            whole = resolved(site, profile)
            if not is_tested(site, profile, transport):
                left_out[candidate.name] = "the site does not allow it (transports in nic_profiles)"
            elif path in whole.ignored_by and not wish.profiles:
                left_out[candidate.name] = f"it has no effect: {whole.ignored_by[path]}"
            else:
                try:
                    made = plan(_request(wish, candidate, ["x"]), around)
                except InputError as error:
                    left_out[candidate.name] = str(error)
                    continue
                ranks = min(ranks or made.ranks_per_node, made.ranks_per_node)
                base = site.base_of(transport)
                chosen.append(Chosen(
                    candidate=candidate, feature=made.constraint, network=made.network,
                    interface=made.interface, data_path=path, family=_family(site, transport),
                    variant_of=base if base != transport else "",
                ))  # fmt: skip
    if len(chosen) < 2:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        only = f"only {chosen[0].candidate.name} is left" if chosen else "no candidate is left"
        why = f" ({reasons})" if reasons else ""
        raise InputError(f"there is nothing to compare: {only}{why}")
    return Tuned(
        id=os.urandom(4).hex(), started=datetime.now().astimezone(), seatrial=seatrial.__version__,
        site=wish.site, site_name=site.name, program=wish.program, cwd=str(wish.cwd),
        nodes=wish.nodes, ranks_per_node=ranks or 1, settings=wish.settings, figure=wish.figure,
        figure_unit=wish.unit, better=wish.better, run_limit_s=wish.run_limit_s,
        candidates=chosen, left_out=left_out,
    )  # fmt: skip


def _check(wish: Wish) -> None:
    if not wish.program:
        raise InputError("PROGRAM is missing: write the program and its arguments after --")
    for word in wish.program:
        if "\0" in word or any("\ud800" <= letter <= "\udfff" for letter in word):
            raise InputError(f"{word!r}: bytes that are not UTF-8, which no job script can hold")
    program = wish.program[0]
    if "/" in program and not os.access(wish.cwd / program, os.X_OK):
        what = "cannot be executed" if (wish.cwd / program).exists() else "there is no such program"
        raise InputError(f"{program}: {what}")
    if wish.figure:
        try:
            re.compile(wish.figure.encode())
        except re.error as error:
            raise InputError(f"--figure {wish.figure!r}: no regular expression: {error}") from None
    if wish.run_limit_s < 1:
        raise InputError(f"--run-limit: {wish.run_limit_s}; it must be 1 or more seconds")
    for name in wish.settings:
        if name not in SETTINGS:
            raise InputError(f"--set {name}: not a value of job tune ({suggest(name, SETTINGS)})")


def _transports(wish: Wish, around: Surroundings) -> list[str]:
    """The transports that can start the program. Raises InputError if there is none."""
    site = around.site
    family = family_of(wish.program[0], wish.cwd)
    known = [*site.transports, PLAIN_SOCKETS]
    if not wish.transports:
        names = [name for name in known if _family(site, name) == family]
        if names:
            return names
        raise InputError(f"{wish.program[0]} is linked with {family}, and site {site.name} has no "
                         "transport of it")  # fmt: skip
    names = matching(wish.transports, known)
    for pattern in wish.transports:
        if not matching([pattern], known):
            hint = suggest(pattern, known)
            raise InputError(f"--transport {pattern}: site {site.name} has none such ({hint})")
    wrong = [name for name in names if family and _family(site, name) != family]
    if wrong:
        right = [name for name in known if _family(site, name) == family]
        raise InputError(
            f"--transport: {wish.program[0]} is linked with {family}, and cannot run over "
            f"{', '.join(wrong)} (known here: {', '.join(right) or 'none'})"
        )
    return names


def _family(site: Site, transport: str) -> str:
    part = TRANSPORTS.get(site.base_of(transport))
    return part.family if part else ""


def _request(
    wish: Wish | Tuned, candidate: Candidate, words: list[str], folder: str = ""
) -> Request:
    values = {
        **wish.settings,
        "time": str(_minutes(wish)),
        "program": shlex.join(words),
        "run_folder": folder,
        "work_folder": str(wish.cwd),
        "run_limit": str(wish.run_limit_s),
    }
    template = read_template(FOLDER / f"_tune{SUFFIX}")
    return Request(
        template, nodes=wish.nodes, ranks_per_node=wish.ranks_per_node,
        transport=candidate.transport, profile=candidate.profile, values=values,
    )  # fmt: skip


def limit_h(tuned: Tuned) -> float:
    """The most node hours that a run can take."""
    return tuned.nodes * _minutes(tuned) / 60


def _minutes(wish: Wish | Tuned) -> int:
    """The time limit of a run's job, which Slurm counts in whole minutes."""
    return (wish.run_limit_s + MARGIN_S + 59) // 60


# -- the script of a run


def script(
    tuned: Tuned, candidate: Candidate, around: Surroundings, folder: Path, name: str
) -> str:
    """The job script of a run whose files are in ``folder``. Raises InputError."""
    words = [*_wrapper(candidate, around, folder), *tuned.program]
    request = _request(tuned, candidate, words, str(folder))
    request.values["job_name"] = name
    # sbatch replaces patterns such as %j in the name of the file
    request.values["log"] = str(folder / "job.out").replace("%", "%%")
    command = ["seatrial", "job", "tune", "--site", tuned.site, "--", *tuned.program]
    return render(plan(request, around), command)


def _wrapper(candidate: Candidate, around: Surroundings, folder: Path) -> list[str]:
    """The command of the node side, which reads counters and NIC settings around the program."""
    carriers = carrier_interfaces(around.site, candidate.profile)
    file = declared_file(folder.parent, candidate)
    networks = ",".join(f"{name}={interface}" for name, interface in carriers.items())
    ports = [
        f"{name}={around.site.networks[name].device}"
        for name in around.site.test_networks
        if around.site.networks[name].device
    ]
    return [
        *NODE_PYTHON, str(NODE_FILES / "run.py"), str(folder / "run"), networks,
        *(["--rdma", ",".join(ports)] if ports else []), "--maps", LIBRARIES,
        "--nic", str(file), str(nic_proof.NODE_PACKAGE), "both", "--",
    ]  # fmt: skip


def declared_file(runs: Path, candidate: Candidate) -> Path:
    return runs / f"nic-{candidate.profile}.json"


def write_declared(tuned: Tuned, around: Surroundings, runs: Path) -> None:
    """Write the settings that each profile declares, for the node side. Raises OSError."""
    for chosen in tuned.candidates:
        candidate = chosen.candidate
        text = json.dumps(declared(around.site, candidate.profile))
        write_whole(declared_file(runs, candidate), text)
