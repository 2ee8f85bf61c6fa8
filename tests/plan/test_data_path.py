"""The settings of UCX, Open MPI and libfabric against the declared data path."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seatrial.base.errors import InputError
from seatrial.benchmarks.benchmark import Job
from seatrial.benchmarks.perftest import Perftest, PerftestSettings
from seatrial.plan.check import check_site

#: the virtual lab with one network of soft RoCE
SITE = Path(__file__).with_name("one_rail") / "site.yaml"
VERBS = '{data_path: verbs, env: {UCX_TLS: "rc_verbs,ud_verbs,self"}}'


@pytest.fixture(autouse=True)
def no_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of transports are the table's, whatever this machine has."""
    monkeypatch.setenv("SEATRIAL_STACK", str(tmp_path / "none"))


def check(tmp_path: Path, transport: str, name: str = "openmpi-ucx") -> None:
    text = SITE.read_text().replace("[verbs, mpich-ucx, tcp]", f"[verbs, {name}, tcp]")
    start, end = text.index("transports:"), text.index("benchmarks:")
    file = tmp_path / "lab-rdma" / "site.yaml"
    file.parent.mkdir()
    file.write_text(f"{text[:start]}transports:\n  {name}: {transport}\n\n{text[end:]}")
    rules = SITE.with_name("requirements.yaml").read_text()
    file.with_name("requirements.yaml").write_text(rules)
    check_site(file)


def test_settings_that_fit_the_data_path(tmp_path: Path) -> None:
    check(tmp_path, VERBS)


@pytest.mark.parametrize(
    ("value", "wrong"),
    [("eth1", True), ("eth1, network: test", False), ("10.78.1.0/24, network: test", False)],
)
def test_an_interface_that_is_not_that_of_each_rail(
    tmp_path: Path, value: str, wrong: bool
) -> None:
    """The site's variable would replace that of the second rail."""
    text = SITE.read_text().replace("[verbs, mpich-ucx, tcp]", "[openmpi-tcp, tcp]")
    second = "  test2:\n    role: test\n    interface: eth2\n    subnet: 10.78.2.0/24\n\nnodes:"
    value, _, network = value.partition(", ")
    own = f"{{env: {{OMPI_MCA_btl_tcp_if_include: {value}}}, {network}}}"
    text = text.replace("nodes:", second, 1).replace("igb: [igb]", "igb: [igb, igb]")
    start, end = text.index("transports:"), text.index("benchmarks:")
    file = tmp_path / "lab-rdma" / "site.yaml"
    file.parent.mkdir()
    file.write_text(f"{text[:start]}transports:\n  openmpi-tcp: {own}\n\n{text[end:]}")
    file.with_name("requirements.yaml").write_text("schema: 1\nrequirements: []\n")
    if not wrong:
        check_site(file)
        return
    with pytest.raises(InputError) as caught:
        check_site(file)
    (problem,) = caught.value.problems
    assert problem.message == "'eth1' is not the interface of network 'test2'"
    assert "network: for openmpi-tcp" in problem.correction


@pytest.mark.parametrize(
    ("name", "transport", "field", "words"),
    [
        ("openmpi-ucx", "{data_path: verbs}", "UCX_TLS", "'tcp' lets TCP carry the messages"),
        ("openmpi-ucx", VERBS.replace("rc_verbs", "tcp"), "UCX_TLS", "'tcp' lets TCP"),
        ("openmpi-ucx", VERBS.replace("rc_verbs,ud_verbs", "sm"), "UCX_TLS", "no RDMA transport"),
        ("openmpi-ucx", VERBS.replace("rc_verbs,ud_verbs,self", "^tcp"), "UCX_TLS", "no RDMA"),
        ("openmpi-ucx", VERBS.replace("data_path: verbs, ", ""), "UCX_TLS", "data path is the ker"),
        (
            "openmpi-ucx", VERBS.replace("env: {", 'env: {UCX_NET_DEVICES: "mlx5_9:1", '),
            "UCX_NET_DEVICES", "is not the RDMA port of network 'test'",
        ),
        (
            "openmpi-ucx", VERBS.replace("env: {", 'env: {UCX_NET_DEVICES: "rxe_{node}:1,eth0", '),
            "UCX_NET_DEVICES", "is not the RDMA port of network 'test'",
        ),
        ("mpich-ofi", "{env: {FI_TCP_IFACE: eth0}}", "FI_TCP_IFACE", "is not the interface of"),
        (
            "openmpi-tcp", "{env: {OMPI_MCA_btl_tcp_if_include: 'eth1,eth0'}}",
            "OMPI_MCA_btl_tcp_if_include", "is not the interface of network 'test'",
        ),
        ("openmpi-tcp", "{data_path: verbs}", "OMPI_MCA_btl", "'tcp' lets TCP carry"),
        ("openmpi-ofi", "{data_path: verbs}", "OMPI_MCA_mtl_ofi_provider_include", "'tcp' lets"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_the_data_path(
    tmp_path: Path, name: str, transport: str, field: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        check(tmp_path, transport, name)
    (problem,) = caught.value.problems
    assert problem.field == f"transports.{name}.env.{field}"
    assert words in problem.message
    assert problem.line is not None
    assert field in problem.correction


def test_two_networks_with_one_rdma_port(tmp_path: Path) -> None:
    """The second rail would be proven by the counters of the first."""
    second = (
        '  test2: {role: test, interface: eth2, subnet: 10.78.2.0/24, device: "rxe_%n:1"}\n\nnodes:'
    )
    text = SITE.read_text().replace("nodes:", second, 1).replace("igb: [igb]", "igb: [igb, igb]")
    file = tmp_path / "lab-rdma" / "site.yaml"
    file.parent.mkdir()
    file.write_text(text)
    file.with_name("requirements.yaml").write_text("schema: 1\nrequirements: []\n")
    with pytest.raises(InputError, match="rxe_%n:1 is already the RDMA port of 'test'"):
        check_site(file)


def test_a_node_without_a_network_that_a_check_uses_beside_others(tmp_path: Path) -> None:
    second = "  test2: {role: test, interface: eth2, subnet: 10.78.2.0/24}\n\nnodes:"
    text = SITE.read_text().replace("nodes:", second, 1).replace("igb: [igb]", "igb: [igb, igb]")
    text = text.replace("    class: igb", "    class: igb\n    networks: [mgmt, test]")
    text = text.replace("trial:\n", "trial:\n  networks: [test]\n")
    text = text.replace("benchmarks:", "benchmarks:\n  tcp_streams: {networks: [test, test2]}")
    file = tmp_path / "lab-rdma" / "site.yaml"
    file.parent.mkdir()
    file.write_text(text)
    file.with_name("requirements.yaml").write_text("schema: 1\nrequirements: []\n")
    with pytest.raises(InputError, match=r"roce\[1-2\] has no interface of network test2"):
        check_site(file)


@pytest.mark.parametrize(
    ("variant", "metric", "message"),
    [
        ("write_bw", "latency_us", "'latency_us' is not a metric of perftest, write_bw"),
        ("[write_lat, send_lat]", "bandwidth_MB_s", "'bandwidth_MB_s' is not a metric of perftest"),
        ("'*'", "latency_us", "write_bw of perftest has no metric 'latency_us'"),
    ],
)
def test_a_contract_of_a_metric_that_another_variant_reports(tmp_path, variant, metric, message):
    site = Path(shutil.copytree(SITE.parent, tmp_path / "lab-rdma"))
    (site / "requirements.yaml").write_text(
        "schema: 1\nrequirements:\n"
        f"  - {{select: {{check: perftest, variant: {variant}}}, metric: {metric},\n"
        "     basis: contract, source: t, at_most: 9, unit: us}\n"
    )
    with pytest.raises(InputError) as error:
        check_site(site / "site.yaml")
    (problem,) = error.value.problems
    assert problem.message == message


def test_perftest_names_the_port_and_the_gid_index_on_both_nodes():
    settings = PerftestSettings(operations=["send_lat"], gid_index=3)
    programs = {"ib_send_lat": ["ib_send_lat"]}
    job = Job(nodes=2, transport="verbs", programs=programs, rdma_port="rxe_%n:1")
    (step,) = Perftest(settings).steps(job)
    words = " ".join(step.command)
    assert words.count("ib_send_lat -d rxe_{node} -i 1 ") == words.count("-x 3") == 2


def test_a_requirement_of_every_check_may_find_its_metric_in_some_variants(tmp_path):
    """So the judge reads it, too."""
    site = Path(shutil.copytree(SITE.parent, tmp_path / "lab-rdma"))
    (site / "requirements.yaml").write_text(
        "schema: 1\nrequirements:\n"
        "  - {select: {}, metric: latency_us, basis: contract, source: t, at_most: 9, unit: us}\n"
    )
    assert check_site(site / "site.yaml").requirements.rules
