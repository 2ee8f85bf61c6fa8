"""Each recorded output yields the metrics that its benchmark declares, with unit and direction."""

from __future__ import annotations

import pytest
from parser_cases import CASES, read

from seatrial.benchmarks import (
    comms,
    hpcc,
    hpl,
    imb,
    mpbench,
    mpi_pairs,
    mpi_time,
    netpipe,
    npb,
    osu,
    perftest,
    tcp_stream,
)
from seatrial.benchmarks.benchmark import ACTIVITY_METRICS, DeclaredMetric, Settings
from seatrial.benchmarks.parsing import Parsed
from seatrial.benchmarks.registry import registry
from seatrial.checks import activity
from seatrial.results.record import Activity

MPBENCH_LARGEST = 4096
#: computed from other files than the output (``HPL.parse``, ``seatrial.checks.activity``)
NOT_OF_OUTPUT = {"blas_as_declared", "dgemm_spread_percent", *ACTIVITY_METRICS}


def declared(name: str, parsed: Parsed) -> dict[str, DeclaredMetric]:
    program = name.removeprefix("constructed_").partition("_")[0].partition(".")[0]
    match program:
        case "nptcp" | "npmpi":
            return netpipe.METRICS
        case "comms":
            return comms.Comms(comms.CommsSettings()).metrics()
        case "imb":
            sizes = {int(size) for curve in parsed.curves for size, _ in curve.points}
            return imb.declared(parsed.facts["benchmarks"], sorted(sizes))
        case "hpccoutf" if (one := name[len("hpccoutf_") : -len(".txt")]) in hpcc.TESTS:
            settings = hpcc.HPCCSettings.model_validate({"tests": [one]})
            return hpcc.HPCC(settings).metrics()
        case "hpccoutf" | "xhpl":
            return hpl.METRICS
        case "iperf3":
            return tcp_stream.TCPStream(tcp_stream.TCPStreamSettings()).metrics()
        case "perftest":
            one = name.removeprefix("perftest_").removesuffix(".txt")
            operations = perftest.PerftestSettings.model_validate({"operations": [one]})
            return perftest.Perftest(operations).metrics()
        case "mpi" if name.startswith("mpi_pairs"):
            within = {"pairs": [], "pairs_within": [2]}
            chosen = within if "openmpi" in name else {"pairs_within": []}
            settings = mpi_pairs.MPIPairsSettings.model_validate({"networks": ["test"], **chosen})
            return mpi_pairs.MPIPairs(settings).metrics()
        case "mpi":
            return mpi_time.METRICS
        case "npb":
            return npb.METRICS
        case "osu":
            return osu.declared(parsed.facts["test"], parsed.facts.get("largest_B", 1))
        case "mpbench":
            options = {option[1]: mode for mode, option in mpbench.OPTIONS.items()}
            return mpbench.declared(options[name[8]], MPBENCH_LARGEST)
    raise AssertionError(f"no benchmark of {name}")


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_output_has_the_declared_metrics(name: str) -> None:
    parsed = read(name)
    reported = {metric.metric: (metric.unit, metric.better) for metric in parsed.metrics}
    wanted = {
        key: (one.unit, one.better)
        for key, one in declared(name, parsed).items()
        if key not in NOT_OF_OUTPUT
    }
    assert reported.items() <= wanted.items()
    if declared(name, parsed) is not hpl.METRICS:  # they are of several programs
        assert reported == wanted


def test_the_outputs_of_hpl_have_all_its_metrics() -> None:
    names = [name for name in CASES if declared(name, read(name)) is hpl.METRICS]
    reported = {metric.metric for name in names for metric in read(name).metrics}
    assert reported == set(hpl.METRICS) - NOT_OF_OUTPUT


def test_the_activity_of_a_node_has_the_declared_metrics() -> None:
    one = Activity(
        step="s", node="n1", seconds=1.0, interrupts_per_s={"eth1": 1.0}, net_rx_per_s=1.0,
        softirq_percent=1.0, irq_percent=1.0,
    )  # fmt: skip
    reported = {m.metric: (m.unit, m.better) for m in activity.metrics([one], "eth1")}
    assert reported == {name: (m.unit, m.better) for name, m in ACTIVITY_METRICS.items()}


@pytest.mark.parametrize("name", registry())
def test_every_benchmark_declares_its_metrics(name: str) -> None:
    kind = registry()[name]
    given = {"networks": ["test"]} if kind.spans_networks else {}
    settings: Settings = kind.Settings(**given)
    assert kind(settings).metrics()
