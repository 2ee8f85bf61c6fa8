#!/usr/bin/env python3
"""Thirty nights of the virtual lab with four planted changes: what the history says of them.

    .venv/bin/python ci/bench/nights.py [FOLDER] [--trials 3] [--measure | --judge]

As root, in a checkout whose `seatrial trial --site lab-virtual` has run once. A night has one trial
of a short matrix: latency and bandwidth of all links of three nodes (igb) and NPB under one NIC
profile, and NetPIPE between two others (e1000) under another. The states of the cluster follow each
other, and each keeps the changes of those before it:

1. as it is
2. another coalescing value of a NIC profile
3. a kernel of another name, and the same code: harmless
4. another value of a driver's parameter
5. a node with a slow cable

``--trials`` real trials of each state are measured; those in FOLDER/measured are not measured
again. They are the first nights of their state. Its other nights are **drawn**: figures by the mean
and the scatter of real trials, see ``Drawing``; the other records are those of a real trial of the
state. A night's trial is named ``nights-DATE-measured`` or
``nights-DATE-drawn``, and a note in it says so. FOLDER/measured keeps the trials as they were.

Each night is added to FOLDER/trials, and `seatrial history notify` follows, as after a trial. At
the end the findings, the page, the messages, `seatrial compare` and a Prometheus with all nights
are held against what was planted. Exit code 1: a change was missed or named wrongly, or one was
named that was not planted.
"""

from __future__ import annotations

import html
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from seatrial.base.paths import CHECKOUT
from seatrial.history.changes import Condition, Finding, Scope, findings
from seatrial.history.export import export
from seatrial.history.index import Index, opened
from seatrial.report import HISTORY_FILE
from seatrial.report.changes import headline, sentences
from seatrial.results import manifest
from seatrial.results.folder import RESULTS_FILE, Results, read_results, write_results
from seatrial.results.judge import judge
from seatrial.results.record import Case, Job, Metric, Run
from seatrial.results.requirements import load_requirements
from seatrial.results.verdict import conclude
from seatrial_lab.virtual import image

SITE = "nights"
SLOW_NODE = "igb2"
VIRTUAL = CHECKOUT / ".seatrial" / "virtual"
OTHER_KERNEL = "renamed"  # of `lab: kernel`: the folder kernel-renamed beside the lab's own kernel
TRIAL_LIMIT_S = 1200
HOUR = 22  # of the trials, UTC
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 130)


@dataclass(frozen=True)
class State:
    """The cluster on some nights in a row."""

    name: str
    nights: int
    planted: str  # what changed with its first night; "": nothing
    harmless: bool = False
    coalescing_us: int = 125
    kernel: str = ""
    interrupts_per_s: int = 5000  # parameter of e1000
    delay: str = ""  # of the slow node's cable
    profile: str = ""  # whose figures change; "": of all
    #: what a finding names as changed that night, with its values before and since
    condition: tuple[str, str, str] | None = None

    def of_case(self, case: Case) -> tuple[object, ...]:
        """What of the state the figures of a case depend on. The kernel's name is no part of it."""
        if case.profile == "throttled":
            return (self.interrupts_per_s,)  # its nodes are others than the slow one
        return self.delay, self.coalescing_us


def states() -> list[State]:
    first = State("as-it-is", 9, "")
    moderated = replace(
        first, name="coalescing", nights=6, planted="rx-usecs of profile moderated 125 -> 150",
        coalescing_us=150, profile="moderated",
        condition=("setting coalesce.rx-usecs of eth1", "125", "150"),
    )  # fmt: skip
    renamed = replace(
        moderated, name="kernel-name", nights=4, planted="kernel of another name, the same code",
        harmless=True, kernel=OTHER_KERNEL, profile="", condition=None,
    )  # fmt: skip
    parameter = replace(
        renamed, name="parameter", nights=5, harmless=False, interrupts_per_s=3000,
        planted="InterruptThrottleRate of e1000 5000 -> 3000",
        profile="throttled", condition=(
            "setting driver.parameters.InterruptThrottleRate of eth1", "5000,5000", "3000,3000"),
    )  # fmt: skip
    slow = replace(
        parameter, name="slow-node", nights=6, delay="60us",
        planted=f"cable of {SLOW_NODE} delays frames by up to 60 us",
        profile="", condition=None,
    )  # fmt: skip
    return [first, moderated, renamed, parameter, slow]


# --- the site ----------------------------------------------------------------------------

SITE_TEXT = """\
schema: 1
name: {site}
description: virtual-time lab of thirty nights, as ci/bench/nights.py makes it

lab:
  engine: virtual
{kernel}\
  nics: {{igb: [igb], e1000: [e1000]}}

stack: {{source: distribution}}

networks:
  mgmt: {{role: management, interface: eth0, subnet: 10.75.0.0/24}}
  test: {{role: test, interface: eth1, subnet: 10.75.1.0/24, switch_mtu: 9216}}

nodes:
  - {{names: "igb[1-3]", class: igb, cores: 1}}
  - {{names: "emu[1-2]", class: e1000, cores: 1}}

partitions:
  compute: {{nodes: "igb[1-3],emu[1-2]"}}

slurm: {{backend: squeue}}
nic: {{controllers: [10.75.0.254]}}

nic_profiles:
  default: {{description: the interfaces as their drivers start them}}
  moderated:
    description: "igb, an interrupt every {coalescing_us} us at most"
    node_classes: [igb]
    coalescing: {{rx_usecs: {coalescing_us}}}
  throttled:
    description: "e1000, interrupts per second limited by the driver's parameter"
    node_classes: [e1000]
    driver: {{module: e1000, parameters: {{InterruptThrottleRate: "{throttle}"}}}}

transports:
  openmpi-tcp: {{description: "Open MPI, ob1 over the TCP BTL"}}

benchmarks:
  links:
    profiles: [moderated]
    nodes: [3]
    max_bytes: 16 KiB
    repetitions: 20
    stream_bytes: 4 MiB
    time_limit_s: 120
    suspect_factor: 4
  netpipe:
    transports: [tcp]
    profiles: [throttled]
    max_bytes: 16 KiB
    repetitions: 20
    time_limit_s: 300
  npb:
    transports: [openmpi-tcp]
    profiles: [moderated]
    kernels: [is]
    problem_class: S
    time_limit_s: 300

trial:
  repeats: 1
  reruns: 0
  transports: [tcp, openmpi-tcp]
  profiles: [moderated, throttled]
  time_limit_s: {limit_s}
  notify: [sh, -c, "tee -a {messages} > /dev/null; echo >> {messages}"]
"""

#: wide: the history must find what no bound does
REQUIREMENTS = """\
schema: 1
requirements:
  - {select: {check: "*"}, metric: latency_us, at_most: 2000, unit: us, basis: baseline}
  - {select: {check: "*"}, metric: bandwidth_MB_s, at_least: 1, unit: MB/s, basis: baseline}
  - {select: {check: links}, metric: stream_MB_s, at_least: 1, unit: MB/s, basis: baseline}
  - {select: {check: npb}, metric: mops, at_least: 0.1, unit: Mop/s, basis: baseline}
informative:
  - {select: {check: npb}, metric: time_s, reason: "as mops"}
  - {select: {check: "*"}, metric: n_half_B, reason: "of the curve"}
"""


def write_site(state: State, folder: Path) -> Path:
    """Write the site in one state. Returns its file."""
    place = site_file(state, folder).parent
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(CHECKOUT / "site-configs" / "lab-virtual" / "settings.py", place)
    (place / "requirements.yaml").write_text(REQUIREMENTS)
    throttle = f"{state.interrupts_per_s},{state.interrupts_per_s}"  # one value for each card
    text = SITE_TEXT.format(
        site=SITE, kernel=f"  kernel: {state.kernel}\n" if state.kernel else "",
        coalescing_us=state.coalescing_us, throttle=throttle,
        limit_s=TRIAL_LIMIT_S, messages=messages_file(folder),
    )  # fmt: skip
    (place / "site.yaml").write_text(text)
    return place / "site.yaml"


def site_file(state: State, folder: Path) -> Path:
    return folder / "sites" / state.name / SITE / "site.yaml"


def messages_file(folder: Path) -> Path:
    return folder / "messages.txt"


# --- real trials -------------------------------------------------------------------------


def rename_kernel() -> None:
    """A copy of the lab's kernel and of the modules that a guest gets, with the next number in its
    name and otherwise the same. The name is in the kernel and in each module, with the same length.
    """
    kernel, other = VIRTUAL / "kernel", VIRTUAL / f"kernel-{OTHER_KERNEL}"
    (modules,) = (kernel / "lib/modules").iterdir()
    name = other_name(modules.name)
    place = other / "lib/modules" / name
    needs = image.dependencies(modules)
    names = (*image.BOOT_MODULES, *image.NIC_MODULES, *image.PROFILE_MODULES, *image.RDMA_MODULES)
    files = [
        *(path.relative_to(modules) for path in modules.glob("modules.*")),
        *map(Path, image.load_order(needs, names)),
    ]
    shutil.rmtree(other, ignore_errors=True)
    for source, target in [
        (kernel / "boot/vmlinux", other / "boot/vmlinux"),
        *((modules / file, place / file) for file in files),
    ]:
        target.parent.mkdir(parents=True, exist_ok=True)
        content = unsigned(source.read_bytes())
        target.write_bytes(content.replace(modules.name.encode(), name.encode()))
    for old in VIRTUAL.glob(f"initramfs-{name}-*"):  # its name says nothing of the modules
        old.unlink()
    version = (kernel / "version").read_text().strip()
    (other / "version").write_text(f"{version} named {name}\n")


def unsigned(module: bytes) -> bytes:
    """A kernel module without its signature, which another name would break: the kernel refuses a
    wrong one, and takes none. ``struct module_signature`` (linux/module_signature.h) is before the
    mark at the end, and its last four bytes are the length of the signature before it."""
    mark = b"~Module signature appended~\n"
    if not module.endswith(mark):
        return module
    end = len(module) - len(mark)
    return module[: end - 12 - int.from_bytes(module[end - 4 : end], "big")]


def other_name(release: str) -> str:
    """``6.1.0-50-amd64`` -> ``6.1.0-51-amd64``. Raises SystemExit if its number has no place."""
    base, number_, flavour = release.rsplit("-", 2)
    after = f"{base}-{int(number_) + 1}-{flavour}"
    if len(after) != len(release):
        raise SystemExit(f"no other name of the same length for the kernel {release}")
    return after


def seatrial(*words: str | Path, codes: tuple[int, ...] = (0,)) -> str:
    """The output of a command. Raises SystemExit with it if the exit code is another."""
    command = [sys.executable, "-I", "-m", "seatrial", *map(str, words)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, cwd=CHECKOUT, check=False,
    )  # fmt: skip
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def measured(state: State, folder: Path) -> list[Results]:
    """The real trials of a state, oldest first."""
    files = sorted((folder / "measured" / state.name).glob(f"*/{RESULTS_FILE}"))
    return [read_results(file) for file in files]


def whole(trials: list[Results]) -> list[Results]:
    """Those in which every case ran. The others give samples, and no night."""
    return [
        results for results in trials
        if results.verdict and len(results.runs) == len(results.trial.cases)
        and all(run.outcome == "ran" for run in results.runs)
    ]  # fmt: skip


def measure(state: State, folder: Path, trials: int) -> None:
    """Run the trials of a state that are missing, in a lab of its own."""
    missing = trials - len(whole(measured(state, folder)))
    if missing <= 0:
        return
    if state.kernel:
        rename_kernel()
    site, output = write_site(state, folder), folder / "measured" / state.name
    output.mkdir(parents=True, exist_ok=True)
    try:
        seatrial("lab", "up", "--site", site)
        if state.delay:
            seatrial("lab", "fault", "link", SLOW_NODE, "--delay", state.delay, "--site", site)
        for _ in range(missing):
            begin = datetime.now(UTC)
            text = seatrial(
                "trial", "--site", site, "--keep-lab", "--output", output, codes=(0, 1, 2)
            )
            seconds = (datetime.now(UTC) - begin).total_seconds()
            (output / "last.out").write_text(text)
            out.print(f"{begin:%H:%M:%S} {state.name}: {seconds:.0f} s")
    finally:
        seatrial("lab", "down", "--site", site)
        shutil.rmtree(VIRTUAL / f"kernel-{OTHER_KERNEL}", ignore_errors=True)


# --- the nights --------------------------------------------------------------------------


@dataclass
class Night:
    """One trial of the thirty."""

    at: int  # from 0
    state: State
    begin: datetime
    of: Results  # the real trial of this night, or the one whose records a drawn night has
    drawn: bool
    site: Path
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.site.parents[3] / "trials" / self.name

    @property
    def name(self) -> str:
        return f"{SITE}-{self.begin:%Y%m%d}-{'drawn' if self.drawn else 'measured'}"


class Drawing:
    """The nights, with drawn figures where there is no real trial.

    A figure is drawn from a log-normal distribution. Its mean is that of all real trials in which
    its case was under the same values. Its standard deviation is that of all real trials about
    these means, over all values: one value has too few trials for one of its own. (One of the few
    measured values, at random, would give runs of equal nights.)
    """

    def __init__(self, real: dict[str, list[Results]], seed: int):
        self.real = real
        self.random = random.Random(seed)
        #: of all nights, though this checkout may have changed between the real trials
        self.version = real[states()[-1].name][-1].trial.seatrial
        #: figure -> what its case was under -> logarithms of its values
        self.samples: dict[tuple[object, ...], dict[tuple[object, ...], list[float]]] = {}
        for state in states():
            for results in real[state.name]:
                for run in results.runs:
                    for metric in run.metrics if run.outcome == "ran" else ():
                        own = self.samples.setdefault(self._figure(run, metric), {})
                        own.setdefault(state.of_case(run.case), []).append(math.log(metric.value))

    @staticmethod
    def _figure(run: Run, metric: Metric) -> tuple[object, ...]:
        return run.case, metric.metric, metric.location

    def _value(self, run: Run, metric: Metric, state: State) -> float:
        every = self.samples[self._figure(run, metric)]
        degrees = sum(len(x) - 1 for x in every.values())
        if not degrees:
            raise SystemExit(f"{run.case.id} {metric.metric} was measured once under each value")
        squares = sum((y - statistics.mean(x)) ** 2 for x in every.values() for y in x)
        mean = statistics.mean(every[state.of_case(run.case)])
        return math.exp(self.random.gauss(mean, math.sqrt(squares / degrees)))

    def nights(self, folder: Path) -> list[Night]:
        """All nights in order, the real trials of a state first; the last one is yesterday's."""
        today = datetime.now(UTC).replace(hour=HOUR, minute=0, second=0, microsecond=0)
        first = today - timedelta(days=sum(state.nights for state in states()))
        result: list[Night] = []
        for state in states():
            own = whole(self.real[state.name])
            if not own:
                raise SystemExit(f"no real trial of the state {state.name}: run without --judge")
            for place in range(state.nights):
                drawn = place >= len(own)
                of = self.random.choice(own) if drawn else own[place]
                begin = first + timedelta(days=len(result))
                site = site_file(state, folder)
                result.append(Night(len(result), state, begin, of, drawn, site))
        return result

    def write(self, night: Night) -> None:
        """The folder of a night's trial: records, verdict and manifest."""
        of = night.of
        shift = night.begin - of.trial.started
        runs, note = of.runs, f"measured as {of.trial.trial}: the dates are those of the night"
        if night.drawn:
            runs = [self._drawn(run, night.state) for run in runs]
            note = (f"drawn, not measured: figures by the mean and scatter of real trials; the "
                    f"other records are those of {of.trial.trial}")  # fmt: skip
        # The evidence is in the folder of the real trial.
        runs = [
            run.model_copy(update={"job": shifted(run.job, shift), "evidence": ""}) for run in runs
        ]
        trial = of.trial.model_copy(
            update={
                "trial": night.name,
                "started": night.begin,
                "notes": [*of.trial.notes, note],
                "seatrial": self.version,
            }
        )
        assert of.ended
        requirements = load_requirements(night.site.with_name("requirements.yaml"))
        judgements = judge(trial, runs, requirements)
        verdict = conclude(trial, runs, judgements, requirements, ended=of.ended + shift)
        night.folder.mkdir(parents=True)
        write_results(night.folder / RESULTS_FILE, [trial, *runs, *judgements, verdict])
        manifest.append(night.folder, manifest.sums_of(night.folder, [RESULTS_FILE]))

    def _drawn(self, run: Run, state: State) -> Run:
        metrics = [replace(metric, value=self._value(run, metric, state)) for metric in run.metrics]
        # These were measured with other figures.
        others: dict[str, list[object]] = {"curves": [], "activity": [], "suspects": []}
        return run.model_copy(update={"metrics": metrics, **others})


def shifted(job: Job, shift: timedelta) -> Job:
    times = {name: time + shift for name in ("submitted", "started", "ended")
             if (time := getattr(job, name))}  # fmt: skip
    return job.model_copy(update=times)


def replay(drawing: Drawing, nights: list[Night], folder: Path) -> dict[int, str]:
    """Add one night after the other, each with `history notify`. Returns night -> message."""
    shutil.rmtree(folder / "trials", ignore_errors=True)
    messages_file(folder).unlink(missing_ok=True)
    sent: dict[int, str] = {}
    for night in nights:
        drawing.write(night)
        before = message_text(folder)
        notify = ("history", "notify", "--site", night.site, "--trials", folder / "trials")
        seatrial(*notify)
        if text := message_text(folder)[len(before) :].strip():
            sent[night.at] = text
            seatrial(*notify)  # has nothing new
            if message_text(folder)[len(before) :].strip() != text:
                raise SystemExit(f"{night.folder.name}: the message was sent twice")
    return sent


def message_text(folder: Path) -> str:
    file = messages_file(folder)
    return file.read_text() if file.exists() else ""


# --- what was found ----------------------------------------------------------------------


@dataclass
class Check:
    """One statement and whether it holds."""

    what: str
    holds: bool
    seen: str


def check_findings(nights: list[Night], own: list[Finding]) -> Iterator[Check]:
    """Each planted change is one finding, with its date and cause, and there is no other."""
    left = list(own)
    for state in states():
        if not state.planted:
            continue
        first = next(night for night in nights if night.state.name == state.name)
        here = [finding for finding in left if finding.first.folder == first.folder]
        left = [finding for finding in left if finding not in here]
        seen = "; ".join(headline(finding) for finding in here) or "nothing"
        if state.harmless:
            yield Check(f"night {first.at + 1}, {state.planted}: no finding", not here, seen)
            continue
        if state.condition:
            name, old, new = state.condition
            due = f"{name} {old} -> {new}"
            causes = [finding.conditions for finding in here] == [[Condition(name, old, new)]]
        else:
            due = f"node {SLOW_NODE}"
            causes = [(finding.scope, finding.conditions) for finding in here] == [
                (Scope("node", SLOW_NODE), [])
            ]
        yield Check(f"night {first.at + 1}, {state.planted}: one finding with {due}", causes, seen)
    yield Check(
        "no other finding", not left, "; ".join(headline(finding) for finding in left) or "none"
    )


def check_messages(nights: list[Night], sent: dict[int, str]) -> Iterator[Check]:
    """One message for each change that is not harmless, on a night of its state, and one more if
    worse series join; no other."""
    by_state: dict[str, list[int]] = {}
    for at in sent:
        by_state.setdefault(nights[at].state.name, []).append(at)
    for state in states():
        due = 1 if state.planted and not state.harmless else 0
        own = by_state.get(state.name, [])
        seen = "; ".join(f"night {at + 1}: {' / '.join(sent[at].splitlines()[:-1])}" for at in own)
        again = [at for at in own if "; sent before as " in sent[at]]
        right = (
            len(own) - len(again) == due
            and len(again) <= due
            and all(sent[at].startswith(f"{SITE}: 1 change") for at in own)
        )
        yield Check(f"{state.name}: {due} message", right, seen or "none")


def check_compare(nights: list[Night], folder: Path) -> Iterator[Check]:
    """A comparison of the nights of each state with those before it: one line has the cause."""
    for before, state in zip(states(), states()[1:], strict=False):
        groups = []
        for one in (before, state):
            own = [night.folder.name for night in nights if night.state.name == one.name]
            groups.append(",".join(own))
        chosen = ("--profile", state.profile) if state.profile else ()
        text = seatrial("compare", *groups, "--trials", folder / "trials", *chosen, codes=(0, 1, 2))
        (folder / f"compare-{state.name}.txt").write_text(text)
        lines = [line for line in text.splitlines() if line.startswith("also differs: ")]
        worse = [line for line in text.splitlines() if line.lstrip("│ ").startswith("worse")]
        if state.harmless:
            right = not worse and any(line.startswith("also differs: kernel: ") for line in lines)
        elif state.condition:
            name, old, new = state.condition
            right = bool(worse) and lines == [f"also differs: {name}: {old} -> {new}"]
        else:
            right = bool(worse) and not lines
        seen = f"{len(worse)} worse; {'; '.join(lines) or 'nothing else differs'}"
        yield Check(f"compare {before.name} with {state.name}", right, seen)


def check_prometheus(index: Index, nights: list[Night], folder: Path) -> Check:
    """A real Prometheus has the figure of each series on each night, at the time of its trial."""
    sys.path.insert(0, str(CHECKOUT / "tests"))
    from prometheus_server import Server, key, make_blocks, running

    place = folder / "prometheus"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    export(index, "openmetrics", place / "all.om")
    make_blocks(place / "all.om", place / "data")
    ours = {
        (series.case.id, series.metric, series.location): [
            (point.trial.started.timestamp(), point.value) for point in index.points(series)
        ]
        for series in index.series()
    }
    with running(place, place / "data") as url:
        answer = Server(url).instant(f"seatrial_figure[{len(nights) + 2}d]", datetime.now(UTC))
    theirs = {
        key(one["metric"]): [(time, float(value)) for time, value in one["values"]]
        for one in answer
    }
    ours_count, theirs_count = (sum(map(len, one.values())) for one in (ours, theirs))
    name = max(ours)
    example = f"{' '.join(name)} on the last night {theirs.get(name, [(0, 0)])[-1][1]:.6g}"
    return Check("Prometheus answers with the same figures", ours == theirs,
                 f"{theirs_count} of {ours_count} figures of {len(ours)} series; {example}, "
                 f"ours {ours[name][-1][1]:.6g}")  # fmt: skip


def check_page(index: Index, folder: Path, own: list[Finding]) -> Check:
    """The page has the sentence of each finding."""
    seatrial("history", "--trials", folder / "trials", "--page", folder / "trials" / HISTORY_FILE)
    text = html.unescape((folder / "trials" / HISTORY_FILE).read_text())
    missing = [finding.id for finding in own if headline(finding).partition(": ")[2] not in text]
    return Check("the page has each finding", not missing, ", ".join(missing) or "all")


def count_draws(real: dict[str, list[Results]], folder: Path, seed: int, draws: int) -> None:
    """Print in how many of several draws each statement on the findings holds."""
    holds: dict[str, int] = {}
    for number in range(1, draws + 1):
        drawing = Drawing(real, seed + number)
        nights = drawing.nights(folder)
        shutil.rmtree(folder / "trials", ignore_errors=True)
        for night in nights:
            drawing.write(night)
        with opened(folder / "trials", print) as index:
            for check_finding in check_findings(nights, findings(index)):
                holds[check_finding.what] = holds.get(check_finding.what, 0) + check_finding.holds
    table = Table("", "holds in", title=f"{draws} other draws")
    for what, count in holds.items():
        table.add_row(what, str(count))
    out.print(table)


def show(nights: list[Night], own: list[Finding], checks: list[Check]) -> None:
    table = Table("nights", "state", "planted", "measured", "drawn", title="Nights")
    for state in states():
        here = [night for night in nights if night.state.name == state.name]
        drawn = sum(night.drawn for night in here)
        table.add_row(f"{here[0].at + 1} to {here[-1].at + 1}", state.name, state.planted,
                      str(len(here) - drawn), str(drawn))  # fmt: skip
    out.print(table)
    for finding in own:
        for sentence in sentences(finding, 20):
            out.print(sentence, markup=False)
    table = Table("", "holds", "seen", title="What was planted and what is said")
    for check in checks:
        table.add_row(check.what, "yes" if check.holds else "NO", check.seen)
    out.print(table)


def main(
    folder: Annotated[Path, typer.Argument(help="Keeps the trials.")] = CHECKOUT
    / ".seatrial/nights",
    trials: Annotated[int, typer.Option(min=1, help="Real trials of each state.")] = 3,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 17,
    only: Annotated[list[str] | None, typer.Option(help="Measure only these states.")] = None,
    draws: Annotated[int, typer.Option(help="First count the findings of so many draws.")] = 0,
    measure_only: Annotated[bool, typer.Option("--measure", help="Only run real trials.")] = False,
    judge_only: Annotated[bool, typer.Option("--judge", help="Run no trial.")] = False,
) -> None:
    """Measure, draw, and hold what the history says against what was planted."""
    folder = folder.resolve()
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)  # also where the shell had it ignored
    os.environ.setdefault("SEATRIAL_LAB_INSTANCE", SITE)
    for state in states():
        write_site(state, folder)
        if not judge_only and (not only or state.name in only):
            measure(state, folder, trials)
    if measure_only:
        return
    real = {state.name: measured(state, folder) for state in states()}
    if draws:
        count_draws(real, folder, seed, draws)
    drawing = Drawing(real, seed)
    nights = drawing.nights(folder)
    sent = replay(drawing, nights, folder)
    with opened(folder / "trials", print) as index:
        own = findings(index)
        checks = [
            *check_findings(nights, own), *check_messages(nights, sent),
            check_page(index, folder, own), *check_compare(nights, folder),
            check_prometheus(index, nights, folder),
        ]  # fmt: skip
    show(nights, own, checks)
    raise typer.Exit(0 if all(check.holds for check in checks) else 1)


if __name__ == "__main__":
    typer.run(main)
