"""Transports: complete data, binding to an interface, and the modulefiles made of it."""

import re

import pytest

from seatrial.base.errors import InputError, LabError
from seatrial.stack.model import Transport, read
from seatrial.stack.transports import SPACK_ONLY, TRANSPORTS
from seatrial_lab.software import describe, modules
from seatrial_lab.software.packages import RELEASES

MPI = ["openmpi-tcp", "openmpi-ucx", "openmpi-ofi", "mpich-ucx", "mpich-ofi", "intelmpi-tcp"]


@pytest.fixture
def stack(tmp_path):
    installed = dict.fromkeys(RELEASES["12"].packages, "1.0") | {"libucx0": "1", "libfabric1": "1"}
    return describe.describe(tmp_path, "12", RELEASES["12"], installed)


def test_all_transports_and_their_programs_are_there(stack):
    assert stack.names() == MPI
    for name in MPI:
        programs = {
            "netpipe", "comms", "mpi_pairs", "mpi_time", "mpbench", "hpcc", "hpcc_all", "npb_is",
            "npb_ep", "osu_latency", "osu_bw", "osu_bibw", "osu_multi_lat",
        }  # fmt: skip
        if stack.transports[name].family == "mpich":
            programs.add("imb")
        else:
            assert "MPICH ABI" in stack.transports[name].lacks["imb"]
            assert "imb" not in stack.programs(name)
        assert set(stack.programs(name)) >= programs
        assert "mbw_mr" in stack.transports[name].lacks["osu_mbw_mr"]
    assert set(stack.programs("tcp")) == {"nptcp", "iperf3"}
    assert list(stack.programs("none")) == ["npb_ep"]
    assert list(stack.blas()) == ["atlas", "blis", "openblas", "reference"]


def test_no_placeholder_is_left(stack):
    for name in stack.transports:
        part = stack.transport(name, "eth1", "10.0.0.0/24", lab=True)
        own = stack.transports[name]
        part.env |= own.check_env | own.within_env | own.overcommit
        values = [*part.env.values(), *(w for c in part.programs.values() for w in c)]
        assert not [value for value in values if re.search(r"[{}]", value)]
        if part.family:
            assert "eth1" in part.env.values()
            reporting = "".join(stack.transports[name].report.values())
            assert set(re.findall(r"{.*?}", reporting)) <= {"{report_file}", "{report_fd}"}


def test_only_a_check_gets_what_it_needs(stack):
    plain = stack.transport("intelmpi-tcp").env
    assert not {"I_MPI_DEBUG", "I_MPI_FABRICS", "FI_TCP_IFACE"} & set(plain)
    full = stack.transport("intelmpi-tcp", "eth1", check=True).env
    assert full.items() >= {"I_MPI_DEBUG": "5", "I_MPI_FABRICS": "ofi"}.items()
    assert full["FI_TCP_IFACE"] == "eth1"
    yields = "OMPI_MCA_mpi_yield_when_idle"
    assert yields not in stack.transport("openmpi-tcp", "eth1", check=True).env
    assert stack.transport("openmpi-tcp", "eth1", check=True, lab=True).env[yields] == "1"
    assert stack.transport("openmpi-tcp", check=True).env["OMPI_MCA_btl"] == "tcp,self"


def test_every_version_is_known(stack):
    for name in stack.names():
        involved = stack.transports[name].versions
        assert involved
        bundled = {"mpich-ucx", "mpich-libfabric"}  # known once MPICH is unpacked
        assert all(value for key, value in involved.items() if key not in bundled)
    assert set(stack.origins) >= {
        "netpipe", "nptcp", "comms", "mpi_pairs", "mpi_time", "mpbench", "imb", "hpcc", "npb",
        "osu", "iperf3", "perftest",
    }  # fmt: skip


@pytest.mark.parametrize("name", MPI)
def test_every_program_has_an_origin_and_a_version(stack, name):
    for program in stack.programs(name):
        names = {program, program.partition("_")[0]}  # of npb_is: npb
        assert names & set(stack.origins), program
        assert names & set(stack.versions), program


def test_the_id_changes_with_what_is_installed(stack, tmp_path):
    installed = dict.fromkeys(RELEASES["12"].packages, "1.1")
    other = describe.describe(tmp_path, "12", RELEASES["12"], installed)
    assert other.id != stack.id


def test_an_unknown_transport_is_the_users_error(stack):
    with pytest.raises(InputError, match="no transport 'openmpi'; it has openmpi-tcp"):
        stack.transport("openmpi", "eth1")


def test_saved_and_read_again(stack, tmp_path):
    stack.save()
    assert read(tmp_path) == stack


def test_no_stack_says_how_to_get_one(tmp_path):
    with pytest.raises(LabError, match="seatrial stack provision"):
        read(tmp_path)
    (tmp_path / "stack.json").write_text('{"id": "of another version"}')
    with pytest.raises(LabError, match="seatrial stack provision"):
        read(tmp_path)


def test_modulefile():
    transport = Transport(
        name="some-mpi",
        description="Some MPI",
        family="mpich",
        launcher=["--mpi=pmi2"],
        env={"LD_LIBRARY_PATH": "/p/first:/p/second", "SOME_SETTING": 'a "b";c'},
        compilers="/p/bin",
        programs={"imb": ["/p/IMB", "a b"]},
    )
    text = modules.render(transport)
    check = text[text.index("-- Slurm sets") : text.index('family("mpi")')]
    assert "/sys/class/net/eth1" in check
    assert text.replace(check, "") == (
        "-- Some MPI. Written by `seatrial stack provision`: do not edit.\n"
        'whatis("Name: some-mpi")\n'
        'whatis("Description: Some MPI")\n'
        'whatis("Category: MPI")\n'
        "help([[\n"
        "Some MPI.\n"
        "\n"
        "Interface: eth1\n"
        "In a node: shared memory\n"
        "\n"
        "Start programs with srun.\n"
        "  imb            /p/IMB 'a b'\n"
        "]])\n"
        'family("mpi")\n'
        'setenv("SLURM_MPI_TYPE", "pmi2")\n'
        'setenv("SOME_SETTING", "a \\"b\\";c")\n'
        'prepend_path("LD_LIBRARY_PATH", "/p/second")\n'
        'prepend_path("LD_LIBRARY_PATH", "/p/first")\n'
        'prepend_path("PATH", "/p/bin")\n'
    )


def test_one_modulefile_per_mpi_transport(stack, tmp_path):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "gone.lua").touch()
    assert not modules.current(stack, tmp_path / "modules")
    modules.write(stack, tmp_path / "modules")
    assert modules.current(stack, tmp_path / "modules")
    assert sorted(f.stem for f in (tmp_path / "modules").iterdir()) == sorted(MPI)
    (tmp_path / "modules" / "openmpi-tcp.lua").write_text("of an earlier version")
    assert not modules.current(stack, tmp_path / "modules")
    assert set(TRANSPORTS) - set(MPI) == {"tcp", "verbs", "none", *SPACK_ONLY}
