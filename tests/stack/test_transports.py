"""The table of transports: each names its path, for the fabric that it is asked for."""

import re

import pytest

from seatrial.stack.transports import TRANSPORTS, bound, fill, transports, with_shared_memory

#: lines that the MPIs printed, and ones that must not be taken for them
PATH_LINES = {
    "openmpi-tcp": (
        "[n2:00020] mca: bml: Using tcp btl for send to [[13986,19801],0] on node n1",
        "[n2:00020] mca: bml: Using self btl for send to [[13986,19801],1] on node n2",
    ),
    "openmpi-ucx": (
        "[1795.29] [n1:43   :0]      ucp_worker.c:1763 UCX  INFO    ep_cfg[1]: tag(tcp/eth1)",
        "[1795.14] [n1:43   :0] ucp_worker.c:1763 UCX  INFO    ep_cfg[0]: tag(self/memory0 tcp/a)",
    ),
    "mpich-ucx": (
        "[1.6] [n2:17  :0] ucp_worker.c:1912 UCX  INFO ucp_context_0 inter-node cfg#1 tag(tcp/a)",
        "[1.8] [n2:36  :0] ucp_worker.c:1912 UCX  INFO ucp_context_0 self cfg#0 tag(self/memory)",
    ),
    "openmpi-ofi": (
        "[n1:20] ompi/mca/mtl/ofi/mtl_ofi_component.c:337: mtl:ofi:prov: tcp;ofi_rxm",
        "[n1:20] ompi/mca/mtl/ofi/mtl_ofi_component.c:365: mtl:ofi:provider: eth1",
    ),
    "mpich-ofi": (
        "libfabric provider: tcp - 10.73.1.0/24",
        "provider: tcp, score = 4, pref = 0, FI_SOCKADDR_IN [16] 10.73.1.1",
    ),
    "mpich-sock": (
        "Found interface name 10.73.1.1 from MPICH_INTERFACE_HOSTNAME",
        "Found interface name n1-ib from MPICH_INTERFACE_HOSTNAME_R0",
    ),
    "intelmpi-tcp": (
        "[0] MPI startup(): libfabric provider: tcp",
        "[0] MPI startup(): libfabric version: 2.5.1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PATH_LINES))
def test_path_report_picks_the_line_that_tells(name):
    telling, other = PATH_LINES[name]
    pattern = TRANSPORTS[name].path_report
    assert re.search(pattern, telling)
    assert not re.search(pattern, other)


def test_a_check_names_its_path_under_every_mpi():
    for name, part in TRANSPORTS.items():
        assert bool(part.family) == bool(part.bind) == bool(part.report) == bool(part.path_report)
        assert part.launcher[0].startswith("--mpi=")
        if part.family:
            assert "{interface}" in "".join(part.bind.values()), name


def test_the_fabric_is_the_recipes_variants():
    assert TRANSPORTS["mpich-ofi"].env["FI_PROVIDER"] == "tcp"
    assert TRANSPORTS["openmpi-ucx"].env["UCX_TLS"] == "tcp,self,sm"
    verbs = transports({"provider": "verbs", "transport": "ofi"})
    assert verbs["mpich-ofi"].env["FI_PROVIDER"] == "verbs"
    assert verbs["openmpi-ofi"].env["OMPI_MCA_mtl_ofi_provider_include"] == "verbs"
    default = transports({"provider": "tcp"})
    assert default["openmpi-ofi"].env["OMPI_MCA_mtl_ofi_provider_include"] == "tcp;ofi_rxm"
    for given in (["rc", "self", "ud"], ["rc,self,ud"], ["rc", "self", "ud", "posix", "cma"]):
        part = transports({"ucx_tls": given})["mpich-ucx"]
        assert part.env["UCX_TLS"] == "ud,self,rc,sm"
        assert part.check_env["UCX_TLS"] == "ud,self,rc"


@pytest.mark.parametrize("name", [name for name, part in TRANSPORTS.items() if part.family])
def test_what_a_check_needs_is_not_for_users(name):
    """No shared memory and a yield are a check's; a user's ranks share memory on their node."""
    part = TRANSPORTS[name]
    for variable in ("MPIR_CVAR_NOLOCAL", "I_MPI_FABRICS", "OMPI_MCA_mpi_yield_when_idle"):
        assert variable not in part.env
    assert "sm" in part.env.get("UCX_TLS", "sm").split(",")
    assert part.env.get("OMPI_MCA_btl", "^").startswith("^")
    if part.family == "openmpi":
        assert part.lab_env == {"OMPI_MCA_mpi_yield_when_idle": "1"}
        assert "sm" not in part.check_env["OMPI_MCA_btl"]
    elif name == "intelmpi-tcp":
        assert part.check_env == {"I_MPI_FABRICS": "ofi"}
    else:
        assert part.check_env["MPIR_CVAR_NOLOCAL"] == "1"
    assert "sm" not in part.check_env.get("UCX_TLS", "").split(",")


def test_a_transport_without_shared_memory_says_so():
    without = {name for name, part in TRANSPORTS.items() if part.within_node != "shared memory"}
    assert without == {"openmpi-ofi", "mpich-sock"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [("rc,self", "rc,self,sm"), ("rc,self,cma", "rc,self,cma"), ("^ib", "^ib"), ("all", "all")],
)
def test_a_sites_own_ucx_tls_gets_shared_memory_for_users(given, expected):
    assert with_shared_memory(given) == expected


def test_ucx_over_verbs_is_bound_to_the_rdma_port():
    bind = fill(TRANSPORTS["openmpi-ucx"].bind, {"interface": "ib0"})
    others = {"OMPI_MCA_btl_tcp_if_include": "ib0"}
    assert bound(bind, "mlx5_0:1") == {"UCX_NET_DEVICES": "mlx5_0:1", **others}
    assert bound(bind, "") == others
    assert bound(others, "mlx5_0:1") == others


def test_only_the_pmi2_library_is_left_to_the_machine():
    left = {word for part in TRANSPORTS.values() for value in part.env.values()
            for word in re.findall(r"{(.*?)}", value)}  # fmt: skip
    assert left == {"pmi2_library"}


def test_a_variable_without_its_word_is_left_out():
    variables = {"A": "1", "B": "{here}/x", "C": "{gone}", "D": "{other}"}
    words = {"here": "/p", "gone": ""}
    assert fill(variables, words) == {"A": "1", "B": "/p/x", "D": "{other}"}
