"""Records of made-up trials for the tests of the analysis, and the models of Tessera."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from seatrial.analysis.conclusion import Estimate, Measured
from seatrial.analysis.message_times import Line, Model
from seatrial.results.folder import Results
from seatrial.results.record import Case, Curve, Metric, PathProof, Run, Trial

K = 1024
SIZES = [round(10 ** (k / 6)) for k in range(6, 43)]


def published(*lines: tuple[float, float, float | None]) -> Model:
    """(intercept, slope, last size) of tables 2 and 3 of Tessera."""
    made = [Line(Estimate(a, a, a), Estimate(b, b, b), last) for a, b, last in lines]
    return Model(tuple(made), (1, 10_485_760))


MYRINET_SEND = published((4.02794, 0.00188, 10 * K), (57.43650, 0.00610, None))
MYRINET_RECV = published(
    (30.89969, 0.03339, 100), (37.23730, 0.02935, 10 * K), (57.43650, 0.00610, None)
)
ETHERNET_SEND = published((16.03866, 0.00578, 256 * K), (-21212.75604, 0.07966, None))
ETHERNET_RECV = published((192.69104, 0.20585, 256 * K), (26084.29131, 0.09761, None))


def measured(send: Model, recv: Model, facts=None, sizes=tuple(SIZES)) -> Measured:
    curves = [
        Curve(name=f"comms {call}_us rank {rank}", y_name="time", y_unit="us",
              points=[(n, model.at(n).us) for n in sizes])
        for call, model in (("send", send), ("recv", recv))
        for rank in (0, 1)
    ]  # fmt: skip
    case = Case(check="comms", transport="openmpi-tcp", nodes=2)
    return Measured("t1", Run(case=case, outcome="ran", curves=curves, facts=facts or {}))


NOW = datetime(2026, 8, 1, tzinfo=UTC)
JITTER = (1.0, 1.001, 0.999, 1.002, 0.998, 1.0005)


def app(check, variant, profile, value, repeat=0, nodes=2, **changed) -> Run:
    name, unit = {"npb": ("mops", "Mop/s"), "hpl": ("hpl_GFLOPS", "GFLOPS")}[check]
    case = Case(check=check, variant=variant, transport="openmpi-tcp", profile=profile, nodes=nodes)
    metric = Metric(metric=name, value=value, unit=unit, better="higher")
    proof = PathProof(network="test", required_bytes=1, counters=[], crossed=True)
    run = Run(
        case=case, repeat=repeat, round=repeat, outcome="ran", metrics=[metric], path=proof
    )  # fmt: skip
    return run.model_copy(update=changed)


def over_network(network: str, run: Run) -> Run:
    """The same run under the network, which the proof and the case have."""
    case = replace(run.case, network=network)
    proof = PathProof(network=network, required_bytes=1, counters=[], crossed=True)
    return run.model_copy(update={"case": case, "path": proof})


def trial(runs, name="t1", **changed) -> Results:
    cases = list(dict.fromkeys(run.case for run in runs))
    made = Trial(trial=name, site="lab", started=NOW, seatrial="0", cases=cases, **changed)
    return Results(trial=made, runs=list(runs))


def repeated(check, variant, repeats=6, **profiles) -> list[Run]:
    return [
        app(check, variant, profile, value * JITTER[(i + shift) % len(JITTER)], i)
        for shift, (profile, value) in enumerate(profiles.items())
        for i in range(repeats)
    ]


def stream(profile, rate, sender, receiver, repeat=0, interrupts=1000.0) -> Run:
    figures = {
        "bandwidth_MB_s": rate, "cpu_sender_percent": sender, "cpu_receiver_percent": receiver,
    }  # fmt: skip
    metrics = [Metric(metric=k, value=v, unit="", better="lower") for k, v in figures.items()]
    metrics += [
        Metric(metric="interrupts_per_s", value=interrupts, unit="1/s", better="lower", location=n)
        for n in ("n1", "n2")
    ]
    case = Case(check="tcp_stream", transport="tcp", profile=profile, nodes=2)
    return Run(case=case, repeat=repeat, round=repeat, outcome="ran", metrics=metrics)


def npb_time(variant, processes, time_s, profile="default"):
    case = Case(
        check="npb", variant=variant, transport="openmpi-tcp", profile=profile, nodes=processes
    )
    metric = Metric(metric="time_s", value=time_s, unit="s", better="lower")
    facts = {"processes": processes}
    return Measured("t1", Run(case=case, outcome="ran", metrics=[metric], facts=facts))


#: of a share, by repeat
SCATTER = (1.0, 1.01, 0.99, 1.02, 0.98, 1.005)


def mpi_fact(share, performance=1.0, run_s=2.0):
    send = {"calls": 30, "s": 0.75 * share * 2 * run_s, "bytes": 3000}
    wait = {"calls": 10, "s": 0.25 * share * 2 * run_s, "bytes": 0}
    return {
        "ranks": 2, "run_s": run_s, "mpi_s": share * run_s, "calls": 40, "bytes": 3000,
        "by_call": {"MPI_Wait": wait, "MPI_Send": send}, "performance": performance,
    }  # fmt: skip


def with_shares(variant, share, slower=1.0, **profiles):
    """Runs of a kernel whose share under each profile is the same; ``slower``: by the library."""
    runs = repeated("npb", variant, **profiles)
    for run in runs:
        jitter = SCATTER[run.repeat]
        run.facts["mpi"] = mpi_fact(share * jitter, run.metrics[0].value / slower)
    return runs
