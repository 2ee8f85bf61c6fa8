"""Made-up trials, to look at reports and to test them. Every figure here is INVENTED.

Nothing in this module was measured on anything: shapes follow what Gigabit
Ethernet clusters usually show, so that a page can be judged by eye. A trial from
here says so in its description and its notes.

Run as a program it writes the examples: ``python synthetic.py FOLDER``.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from seatrial.results.folder import RESULTS_FILE, Results, write_results
from seatrial.results.record import (
    Activity,
    Allocation,
    Case,
    Counters,
    Curve,
    Job,
    Judgement,
    Metric,
    NicProof,
    PathProof,
    ProfileUse,
    Requirement,
    Run,
    TransportUse,
    Trial,
    Verdict,
)

TRANSPORTS = ["openmpi-tcp", "openmpi-ucx", "mpich-ofi", "mpich-ucx", "mvapich-tcp", "intelmpi-tcp"]
BASE_US = dict(zip(TRANSPORTS, [31.0, 27.5, 29.0, 28.0, 34.0, 30.0], strict=True))
PROFILES = {"default": 0.0, "lowlat": -9.0, "throughput": 42.0}
NODES = ["n1", "n2", "n3", "n4"]
START = datetime(2031, 3, 14, 21, 5, 0, tzinfo=UTC)
SIZES = [2**k for k in range(0, 23)]


def _job(number: int, nodes: list[str], seconds: float, state: str = "COMPLETED") -> Job:
    started = START + timedelta(seconds=40 * number)
    return Job(
        id=str(4100 + number),
        state=state,
        exit_code=0 if state == "COMPLETED" else 1,
        partition="trial",
        nodes=nodes,
        submitted=started - timedelta(seconds=2),
        started=started,
        ended=started + timedelta(seconds=seconds),
        benchmark_s=seconds * 0.8,
    )


def _curves(name: str, latency0: float, peak: float, noise: random.Random) -> list[Curve]:
    latency = []
    bandwidth = []
    for size in SIZES:
        time = (latency0 + size / peak) * noise.uniform(0.97, 1.06)
        latency.append((float(size), time))
        bandwidth.append((float(size), size / time))
    return [
        Curve(name=name, y_name="latency", y_unit="us", points=latency),
        Curve(name=name, y_name="bandwidth", y_unit="MB/s", points=bandwidth),
    ]


def _proof(nodes: list[str], volume: int, seconds: float, profile: str, crossed: bool) -> PathProof:
    per_second = {"default": 8000, "lowlat": 61000, "throughput": 2900}.get(profile, 5000)
    moved = volume if crossed else volume // 900
    return PathProof(
        network="data",
        required_bytes=volume,
        crossed=crossed,
        reason="" if crossed else "n1 moved 0.1 % of the volume that the benchmark moved",
        reported="btl:tcp selected for peer 10.10.0.2 through eth1",
        counters=[
            Counters(
                node=node,
                interface="eth1",
                network="data",
                rx_bytes=moved // 2 + 1000 * i,
                tx_bytes=moved // 2 + 900 * i,
                rx_packets=moved // 3000,
                tx_packets=moved // 3000,
                interrupts=int(per_second * seconds) + 13 * i,
            )
            for i, node in enumerate(nodes)
        ],
    )


def _nic(nodes: list[str], profile: str) -> dict[str, object]:
    usual = {"coalesce": {"rx-usecs": 20, "tx-usecs": 72}, "ring": {"rx": 256, "tx": 256}}
    applied = {
        "default": usual,
        "lowlat": {**usual, "coalesce": {"rx-usecs": 0, "tx-usecs": 0}},
        "throughput": {
            "coalesce": {"rx-usecs": 120, "tx-usecs": 120},
            "ring": {"rx": 4096, "tx": 256},
        },
    }.get(profile, usual)
    state = {"driver": "e1000", "mtu": 1500, "tso": "on", "gro": "on"}
    return {
        node: {
            "eth1": {
                "before": {**state, **usual},
                "during": {**state, **applied},
                "after": {**state, **usual},
            }
        }
        for node in nodes
    }


def _proofs(nodes: list[str], profile: str, job: str) -> list[NicProof]:
    owner = "" if profile == "default" else job
    return [
        NicProof(node=node, when=when, ok=True, job=owner, seconds=0.04)
        for node in nodes
        for when in ("before", "after")
    ]


def _activity(step: str, nodes: list[str], profile: str, seconds: float) -> list[Activity]:
    rate = {"default": 8000.0, "lowlat": 61000.0, "throughput": 2900.0}.get(profile, 5000.0)
    return [
        Activity(
            step=step,
            node=node,
            seconds=seconds,
            interrupts_per_s={"eth1": rate},
            net_rx_per_s=rate * 1.1,
            softirq_percent=rate / 2000,
            irq_percent=rate / 20000,
        )
        for node in nodes
    ]


def _uses(runs: list[Run]) -> list[ProfileUse]:
    """The profiles of the runs: the default, and others that one job each held."""
    uses = []
    for profile in dict.fromkeys(run.case.profile for run in runs):
        own = [run for run in runs if run.case.profile == profile]
        job = own[0].job.model_copy(update={"nodes": NODES, "held": True})
        held = Allocation(job=job, waited_s=0.4, released_s=0.3, cases=len(own))
        settings = {"eth1": {"coalesce.rx-usecs": 0, "ring.rx": 4096}}
        other = profile != "default"
        uses.append(
            ProfileUse(
                name=profile,
                description=f"invented profile {profile}",
                feature=f"nic_{profile}" if other else "",
                statements=["profile x: does not reach transport y"] if other else [],
                settings=dict.fromkeys(NODES, settings) if other else {},
                allocations=[held] if other else [],
            )
        )
    return uses


class _Maker:
    """Collects runs; one method per kind of check."""

    def __init__(self, repeats: int, seed: int = 1):
        self.noise = random.Random(seed)
        self.repeats = repeats
        self.runs: list[Run] = []

    def add(
        self,
        case: Case,
        metrics: Iterable[Metric],
        repeat: int,
        curves: list[Curve] | None = None,
        facts: dict[str, object] | None = None,
        seconds: float = 25.0,
    ) -> None:
        nodes = NODES[: case.nodes]
        job = _job(len(self.runs), nodes, seconds)
        self.runs.append(
            Run(
                case=case,
                repeat=repeat,
                outcome="ran",
                job=job,
                metrics=list(metrics),
                curves=curves or [],
                path=None
                if case.transport == "none"
                else _proof(nodes, 900_000_000, seconds * 0.8, case.profile, True),
                facts=facts or {},
                nic=_nic(nodes, case.profile),
                nic_proofs=_proofs(nodes, case.profile, job.id),
                activity=_activity(case.check, nodes, case.profile, seconds),
                versions={"kernel": "6.1.0-18", "driver": "e1000 7.3.21-k8", "mpi": case.transport},
                evidence=f"evidence/{case.id}/{repeat}",
            )
        )

    def pingpong(self, check: str, transport: str, profile: str) -> None:
        latency0 = BASE_US.get(transport, 24.0) + PROFILES.get(profile, 0.0)
        peak = {"throughput": 117.5, "lowlat": 108.0}.get(profile, 114.0)
        case = Case(check=check, transport=transport, profile=profile, nodes=2)
        for repeat in range(self.repeats):
            curves = _curves("pingpong" if check == "imb" else check, latency0, peak, self.noise)
            low = min(y for _, y in curves[0].points)
            high = max(y for _, y in curves[1].points)
            self.add(
                case,
                [
                    Metric(metric="latency_us", value=low, unit="us", better="lower"),
                    Metric(metric="bandwidth_MB_s", value=high, unit="MB/s", better="higher"),
                ],
                repeat,
                curves,
            )

    def collective(self, transport: str, profile: str) -> None:
        latency0 = 2.6 * (BASE_US[transport] + PROFILES[profile])
        case = Case(check="osu", variant="allreduce", transport=transport, profile=profile, nodes=4)
        for repeat in range(self.repeats):
            curve = _curves("allreduce", latency0, 60.0, self.noise)[0]
            self.add(
                case,
                [
                    Metric(
                        metric="allreduce_8B_us",
                        value=curve.points[3][1],
                        unit="us",
                        better="lower",
                    )
                ],
                repeat,
                [curve],
            )

    def hpl(self, blas: str, transport: str, profile: str) -> None:
        dgemm = {"atlas": 28.1, "openblas": 55.4, "reference": 6.2}[blas]
        case = Case(check="hpl", variant=blas, transport=transport, profile=profile, nodes=4)
        share = 0.52 - 0.001 * (BASE_US[transport] + PROFILES[profile])
        for repeat in range(self.repeats):
            peak = dgemm * self.noise.uniform(0.99, 1.01)
            got = peak * share * self.noise.uniform(0.98, 1.02)
            self.add(
                case,
                [
                    Metric(metric="hpl_GFLOPS", value=got, unit="GFLOPS", better="higher"),
                    Metric(metric="dgemm_GFLOPS", value=peak, unit="GFLOPS", better="higher"),
                    Metric(
                        metric="hpl_percent_of_dgemm",
                        value=100 * got / peak,
                        unit="%",
                        better="higher",
                    ),
                ],
                repeat,
                facts={"blas": f"lib{blas}.so.3", "N": 12000, "NB": 192, "residual_ok": True},
                seconds=140.0,
            )

    def npb(self, kernel: str, transport: str, profile: str) -> None:
        case = Case(check="npb", variant=kernel, transport=transport, profile=profile, nodes=4)
        for repeat in range(self.repeats):
            value = 900 / (BASE_US[transport] + PROFILES[profile]) * self.noise.uniform(0.97, 1.03)
            self.add(
                case,
                [Metric(metric="npb_mops", value=value, unit="Mop/s", better="higher")],
                repeat,
                facts={"verification": "SUCCESSFUL", "class": kernel[-1]},
            )

    def stream(self, profile: str) -> None:
        sender, receiver, rate = {
            "default": (52.0, 84.0, 117.6),
            "lowlat": (61.0, 96.0, 109.0),
            "throughput": (42.0, 19.4, 117.6),
        }.get(profile, (50.0, 50.0, 100.0))
        case = Case(check="tcp_stream", transport="tcp", profile=profile, nodes=2)
        for repeat in range(self.repeats):
            jitter = self.noise.uniform(0.98, 1.02)
            self.add(
                case,
                [
                    Metric(
                        metric="bandwidth_MB_s", value=rate * jitter, unit="MB/s", better="higher"
                    ),
                    Metric(
                        metric="cpu_sender_percent", value=sender * jitter, unit="%", better="lower"
                    ),
                    Metric(
                        metric="cpu_receiver_percent",
                        value=receiver * jitter,
                        unit="%",
                        better="lower",
                    ),
                ],
                repeat,
            )

    def pairs(self, transport: str, profile: str, bad: str | None) -> None:
        case = Case(check="links", transport=transport, profile=profile, nodes=4)
        for repeat in range(self.repeats):
            metrics = []
            for i, a in enumerate(NODES):
                for b in NODES[i + 1 :]:
                    slow = 6.5 if bad in (a, b) else 1.0
                    latency = BASE_US.get(transport, 25.0) * slow * self.noise.uniform(0.97, 1.05)
                    location = f"{a}-{b}"
                    metrics += [
                        Metric(
                            metric="latency_us",
                            value=latency,
                            unit="us",
                            location=location,
                            better="lower",
                        ),
                        Metric(
                            metric="bandwidth_MB_s",
                            value=114 / math.sqrt(slow) * self.noise.uniform(0.98, 1.01),
                            unit="MB/s",
                            location=location,
                            better="higher",
                        ),
                    ]
            self.add(case, metrics, repeat)

    def nodes(self, bad: str | None) -> None:
        case = Case(check="nodes", transport="none", profile="default", nodes=4)
        for repeat in range(self.repeats):
            metrics = []
            for node in NODES:
                slow = 0.71 if node == bad else 1.0
                metrics += [
                    Metric(
                        metric="dgemm_GFLOPS",
                        value=14.0 * slow * self.noise.uniform(0.99, 1.01),
                        unit="GFLOPS",
                        location=node,
                        better="higher",
                    ),
                    Metric(
                        metric="memory_MB_s",
                        value=11800 * slow * self.noise.uniform(0.99, 1.01),
                        unit="MB/s",
                        location=node,
                        better="higher",
                    ),
                ]
            self.add(case, metrics, repeat)


def _judge(runs: list[Run], bad: str | None) -> list[Judgement]:
    """Judge in the manner of the real judge: per case, metric and location, over the repeats."""
    groups: dict[tuple[Case, str, str | None], list[Metric]] = {}
    for run in runs:
        for metric in run.metrics:
            groups.setdefault((run.case, metric.metric, metric.location), []).append(metric)
    judged = []
    for line, ((case, name, location), metrics) in enumerate(groups.items(), 12):
        samples = [metric.value for metric in metrics]
        value = sorted(samples)[len(samples) // 2]
        failed = bool(bad and location and bad in location.split("-"))
        lower = upper = None
        if metrics[0].better == "lower":
            upper = value * (0.3 if failed else 1.25)
            bound = f"at most {upper:.4g} {metrics[0].unit}"
        else:
            lower = value * (1.4 if failed else 0.8)
            bound = f"at least {lower:.4g} {metrics[0].unit}"
        at = f" at {location}" if location else ""
        judged.append(
            Judgement(
                case=case,
                metric=name,
                location=location,
                verdict="fail" if failed else "pass",
                value=value,
                unit=metrics[0].unit,
                samples=samples,
                spread=1.4826 * abs(samples[0] - samples[-1]) / 2,
                lower=lower,
                upper=upper,
                reference=upper or lower,
                requirement=Requirement(
                    id=f"site-configs/example/requirements.yaml:{line}",
                    basis="contract" if line % 3 else "baseline",
                    text=bound,
                ),
                explanation=f"{case.id}: {name}{at} is {value:.4g} {metrics[0].unit}, "
                f"where {bound} is required",
            )
        )
    return judged


def _results(
    runs: list[Run],
    judgements: list[Judgement],
    verdict: str | None,
    findings: list[str],
    planned: list[Case],
    notes: list[str],
    repeats: int,
) -> Results:
    counts: dict[str, int] = {}
    for judgement in judgements:
        counts[judgement.verdict] = counts.get(judgement.verdict, 0) + 1
    ended = max((run.job.ended for run in runs if run.job.ended), default=START)
    return Results(
        trial=Trial(
            trial="20310314-210500-example",
            site="example",
            description="SYNTHETIC: invented figures, to look at a report",
            started=START,
            seatrial="0.1.0+gdeadbee",
            command=[
                "seatrial",
                "run",
                "example",
                "--repeats",
                str(repeats),
                "--name",
                "two words",
            ],
            stack={
                "source": "distribution",
                "id": "debian-12",
                "versions": {"openmpi": "4.1.4", "mpich": "4.0.2", "ucx": "1.13.1", "hpl": "2.3"},
            },
            host={
                "kernel": "6.1.0-18-amd64",
                "cpu": "Example 3.06 GHz",
                "cores": 4,
                "memory_GB": 16,
            },
            repeats=repeats,
            cases=planned,
            notes=["SYNTHETIC: no figure in this report was measured.", *notes],
            profiles=_uses(runs),
            transports=[
                TransportUse(name="openmpi-tcp"),
                TransportUse(
                    name="openmpi-tcp-16k",
                    base="openmpi-tcp",
                    options=["--hint=nomultithread"],
                    env={"OMPI_MCA_btl_tcp_sndbuf": "16384", "OMPI_MCA_btl_tcp_rcvbuf": "16384"},
                ),
            ],
            benchmarks={"hpl": {"size": 2400, "block": 64, "grid_rows": None}},
        ),
        runs=runs,
        judgements=judgements,
        verdict=Verdict(verdict=verdict, counts=counts, findings=findings, ended=ended)
        if verdict
        else None,
    )


def _matrix(repeats: int, profiles: list[str], bad: str | None = None) -> _Maker:
    maker = _Maker(repeats)
    for profile in profiles:
        maker.pingpong("netpipe", "tcp", profile)
        maker.stream(profile)
        for transport in TRANSPORTS:
            maker.pingpong("netpipe", transport, profile)
            maker.pingpong("imb", transport, profile)
            maker.collective(transport, profile)
            for blas in ("atlas", "openblas", "reference"):
                maker.hpl(blas, transport, profile)
            for kernel in ("is.S", "ft.S", "lu.S"):
                maker.npb(kernel, transport, profile)
    maker.pairs("openmpi-tcp", "default", bad)
    maker.nodes(bad)
    return maker


def _planned(runs: list[Run]) -> list[Case]:
    return list(dict.fromkeys(run.case for run in runs))


def accepted(repeats: int = 2) -> Results:
    """Six transports, three profiles, two repeats; all is well."""
    maker = _matrix(repeats, list(PROFILES))
    judgements = _judge(maker.runs, None)
    notes = ["intelmpi-tcp: not offered for NPB ft.B (needs a licence that the lab has not)."]
    return _results(maker.runs, judgements, "accept", [], _planned(maker.runs), notes, repeats)


def rejected(repeats: int = 2) -> Results:
    """One profile; node n3 is slow: its links fail, and so does its own memory and DGEMM."""
    maker = _matrix(repeats, ["default"], bad="n3")
    judgements = _judge(maker.runs, "n3")
    findings = [
        "n3: every link is slow (latency_us 6.5 times the rest), links.openmpi-tcp.default.4n",
        "n3: dgemm_GFLOPS is 29 % under the other nodes (nodes.none.default.4n)",
    ]
    notes = ["Planted fault: n3 has netem delay 150us on eth1."]
    return _results(
        maker.runs, judgements, "reject", findings, _planned(maker.runs), notes, repeats
    )


def incomplete(repeats: int = 2) -> Results:
    """Errors of several kinds, missing requirements, and cases that never ran."""
    maker = _matrix(repeats, ["default", "lowlat"])
    planned = _planned(maker.runs)
    runs = []
    for run in maker.runs:
        case = run.case
        if case.transport == "mvapich-tcp" and case.check == "hpl":
            continue  # planned, never ran
        if case.transport == "mpich-ucx" and case.check == "imb":
            proof = _proof(run.job.nodes, 900_000_000, 20.0, case.profile, False)
            run = run.model_copy(
                update={
                    "outcome": "error",
                    "phase": "path",
                    "reason": "the traffic did not cross the network 'data'",
                    "path": proof,
                    "metrics": [],
                    "curves": [],
                }
            )
        elif case.check == "npb" and case.variant == "lu.S" and case.transport == "mpich-ofi":
            run = run.model_copy(
                update={
                    "outcome": "error",
                    "phase": "run",
                    "reason": "the job ended in state TIMEOUT",
                    "metrics": [],
                    "job": run.job.model_copy(update={"state": "TIMEOUT", "exit_code": None}),
                }
            )
        runs.append(run)
    judgements = []
    for judgement in _judge(runs, None):
        if judgement.case.check == "osu" and judgement.case.profile == "lowlat":
            judgement = replace(
                judgement,
                verdict="missing",
                requirement=None,
                lower=None,
                upper=None,
                explanation=f"{judgement.case.id}: no requirement for {judgement.metric}",
            )
        elif judgement.case.id == "npb-is.S.openmpi-ucx.lowlat.4n":
            judgement = replace(
                judgement, verdict="inconclusive", explanation="the spread covers the bound"
            )
        judgements.append(judgement)
    for run in runs:
        if run.outcome == "error" and run.repeat == 0:
            judgements.append(
                Judgement(
                    case=run.case,
                    metric="",
                    verdict="error",
                    explanation=f"{run.case.id}: {run.reason}",
                )
            )
    findings = [
        "imb.mpich-ucx.default.2n: the traffic did not cross the network 'data'",
        "npb-lu.S.mpich-ofi.default.4n: the job ended in state TIMEOUT",
        "osu allreduce under lowlat: no requirement for allreduce_8B_us",
    ]
    return _results(runs, judgements, "incomplete", findings, planned, [], repeats)


def cut_off() -> Results:
    """The machine went down in the middle: no judgement, no verdict."""
    full = rejected()
    return full.model_copy(update={"runs": full.runs[:21], "judgements": [], "verdict": None})


def empty() -> Results:
    """Cut off before anything ran."""
    full = rejected()
    return full.model_copy(update={"runs": [], "judgements": [], "verdict": None})


def one_node() -> Results:
    """A site of one node: only the node check."""
    maker = _Maker(1)
    case = Case(check="nodes", transport="none", nodes=1)
    metric = Metric(
        metric="dgemm_GFLOPS", value=14.0, unit="GFLOPS", location="n1", better="higher"
    )
    maker.add(case, [metric], 0)
    return _results(maker.runs, _judge(maker.runs, None), "accept", [], [case], [], 1)


def wide() -> Results:
    """Seven transports under six profiles: a matrix of more than 40 columns, 12 rows."""
    maker = _Maker(1)
    checks = [("netpipe", ""), ("imb", ""), ("osu", "allreduce"), ("osu", "bcast"), ("links", "")]
    checks += [("npb", f"{k}.A") for k in ("is", "ft", "lu", "cg", "mg")]
    checks += [("hpl", "atlas"), ("hpl", "openblas")]
    for number, transport in enumerate([*TRANSPORTS, "openmpi-ofi"]):
        for profile in ("default", "lowlat", "throughput", "jumbo", "bond", "vf"):
            for check, variant in checks:
                nodes = 2 if check in ("netpipe", "imb") else 4
                case = Case(
                    check=check, variant=variant, transport=transport, profile=profile, nodes=nodes
                )
                if number == 6 and check == "hpl":
                    continue
                metric = Metric(metric="latency_us", value=30.0, unit="us", better="lower")
                maker.add(case, [metric], 0)
    judgements = _judge(maker.runs, None)
    for i in range(0, len(judgements), 37):
        kind = ("fail", "error", "missing", "inconclusive")[i // 37 % 4]
        judgements[i] = replace(judgements[i], verdict=kind)
    return _results(maker.runs, judgements, "reject", ["many"], _planned(maker.runs), [], 1)


def many(count: int = 2000) -> Results:
    """About ``count`` judgements from links between 32 nodes under several transports."""
    names = [f"node{i:02d}" for i in range(1, 33)]
    links = [f"{a}-{b}" for i, a in enumerate(names) for b in names[i + 1 :]]
    noise = random.Random(3)
    runs = []
    for transport in TRANSPORTS:
        if len(runs) * len(links) >= count:
            break
        case = Case(check="links", transport=transport, nodes=32)
        metrics = [
            Metric(
                metric="latency_us",
                value=30 * noise.uniform(0.95, 1.05) * (4 if location == "node07-node19" else 1),
                unit="us",
                location=location,
                better="lower",
            )
            for location in links[: count - len(runs) * len(links)]
        ]
        runs.append(
            Run(
                case=case,
                outcome="ran",
                job=_job(len(runs), names, 500.0),
                metrics=metrics,
                path=_proof(names, 10**10, 400.0, "default", True),
                nic=_nic(names, "default"),
                evidence=f"evidence/{case.id}/0",
            )
        )
    return _results(runs, _judge(runs, None), "accept", [], _planned(runs), [], 1)


def weird() -> Results:
    """NaN and infinities in every location that holds a number."""
    nan, inf = math.nan, math.inf
    case = Case(check="imb", transport="openmpi-tcp", nodes=2)
    stream = Case(check="tcp_stream", transport="tcp", nodes=2)
    hpl = Case(check="hpl", variant="atlas", transport="openmpi-tcp", nodes=2)

    def metric(name: str, value: float, location: str | None = None) -> Metric:
        return Metric(metric=name, value=value, unit="us", location=location, better="lower")

    points = [(0.0, 1.0), (1.0, nan), (2.0, inf), (4.0, -inf), (8.0, 0.0), (16.0, -3.0)]
    curve = Curve(name="pingpong", y_name="latency", y_unit="us", points=points)
    job = Job(id="1", nodes=["n1", "n2"], benchmark_s=0.0)
    proof = _proof(["n1", "n2"], 1000, 1.0, "default", True)
    runs = [
        Run(
            case=case,
            outcome="ran",
            job=job,
            path=proof,
            curves=[curve, curve.model_copy(update={"points": []})],
            metrics=[metric("latency_us", v, "n1-n2") for v in (nan, inf, -inf)]
            + [metric("x_us", v, "n1") for v in (nan, inf)],
            facts={"residual": nan, "deep": {"er": [inf, {"x": None}]}},
        ),
        Run(
            case=stream,
            outcome="ran",
            path=proof,
            nic_proofs=[NicProof(node="n1", when="after", ok=True, seconds=nan)],
            activity=[
                Activity(step="s", node="n1", seconds=1, net_rx_per_s=nan, softirq_percent=inf)
            ],
            metrics=[metric("bandwidth_MB_s", nan), metric("cpu_sender_percent", inf)],
        ),
        Run(case=hpl, outcome="ran", metrics=[metric("hpl_GFLOPS", nan)]),
    ]
    judgements = [
        Judgement(
            case=case,
            metric="latency_us",
            location="n1-n2",
            verdict="inconclusive",
            value=nan,
            samples=[nan, inf, -inf],
            spread=nan,
            lower=-inf,
            upper=inf,
            explanation="not a number",
        )
    ]
    return _results(runs, judgements, "incomplete", [], [case, stream, hpl], [], 1)


def hostile(text: str) -> Results:
    """One failing run and judgement with ``text`` in every field that takes a string."""
    case = Case(check=text, variant=text, transport=text, profile=text, nodes=2)
    curve = Curve(
        name=text,
        x_name=text,
        x_unit=text,
        y_name=text,
        y_unit=text,
        points=[(1.0, 2.0), (2.0, 3.0)],
    )
    locations = [None, text, f"{text}-n2"]
    metrics = [
        Metric(metric=text, value=1.5, unit=text, location=p, better="lower") for p in locations
    ]
    # Known names too, so that the text also reaches the figures that look for them.
    named = [
        Metric(metric=name, value=2.0, unit=text, better="higher")
        for name in ("hpl_GFLOPS", "hpl_percent_of_dgemm", "bandwidth_MB_s", "cpu_sender_percent")
    ]
    proof = _proof([text, "n2"], 1000, 1.0, text, False)
    proof = proof.model_copy(update={"reason": text, "reported": text, "network": text})
    cases = [case]
    cases += [
        Case(check=c, variant=text, transport=text, profile=text, nodes=2)
        for c in ("hpl", "tcp_stream")
    ]
    runs = [
        Run(
            case=c,
            outcome="error",
            phase=text,
            reason=text,
            job=Job(id=text, state=text, partition=text, nodes=[text, "n2"], benchmark_s=1.0),
            metrics=metrics + named,
            curves=[curve],
            path=proof,
            facts={text: text, "nested": {text: [text, 1.0]}},
            nic={text: {text: {"before": {text: text}, "during": {text: text + "2"}}}},
            nic_proofs=[NicProof(node=text, when="before", ok=False, reason=text, job=text)],
            activity=[
                Activity(
                    step=text,
                    node=text,
                    seconds=1.0,
                    interrupts_per_s={text: 1.0},
                    net_rx_per_s=2.0,
                    softirq_percent=1.0,
                )
            ],
            versions={text: text},
            evidence=text,
        )
        for c in cases
    ]
    judgements = [
        Judgement(
            case=c,
            metric=text,
            location=location,
            verdict="fail",
            value=1.5,
            unit=text,
            statistic=text,
            samples=[1.5],
            upper=1.0,
            requirement=Requirement(id=text, basis="contract", text=text),
            explanation=text,
        )
        for c in cases
        for location in locations
    ]
    results = _results(runs, judgements, "reject", [text], cases, [text], 1)
    trial = results.trial.model_copy(
        update={
            "trial": text,
            "site": text,
            "description": text,
            "seatrial": text,
            "command": [text, text],
            "stack": {text: text, "source": text},
            "host": {text: [text]},
            "profiles": [
                ProfileUse(
                    name=text,
                    description=text,
                    feature=text,
                    statements=[text],
                    settings={text: {text: {text: text}}},
                    node_settings={text: text},
                    allocations=[Allocation(job=Job(id=text, nodes=[text]), reason=text)],
                )
            ],
            "transports": [
                TransportUse(name=text, base=text, data_path=text, env={text: text}, options=[text])
            ],
            "benchmarks": {text: {text: text}},
        }
    )
    return results.model_copy(update={"trial": trial})


def on_disk(results: Results, folder: Path) -> Results:
    """Write ``results`` and a few evidence files under ``folder``; return what a reader gets."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [results.trial, *results.runs, *results.judgements]
    write_results(folder / RESULTS_FILE, [*lines, results.verdict] if results.verdict else lines)
    for run in results.runs:
        if not run.evidence:
            continue
        evidence = folder / run.evidence
        evidence.mkdir(parents=True, exist_ok=True)
        (evidence / "stdout.txt").write_text("SYNTHETIC output\n")
        (evidence / "nic before#1.json").write_text("{}\n")  # a name that needs quoting
    return results.model_copy(update={"folder": folder})


EXAMPLES = {
    "accepted": accepted,
    "rejected": rejected,
    "incomplete": incomplete,
    "cut_off": cut_off,
    "empty": empty,
    "one_node": one_node,
    "wide": wide,
    "many": many,
    "weird": weird,
}


def main(folder: Path) -> None:
    from seatrial.report import write_all

    for name, make in EXAMPLES.items():
        for path in write_all(on_disk(make(), folder / name)):
            print(f"{path}  {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
