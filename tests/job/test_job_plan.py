"""What is chosen for an application, and the error where a request cannot work."""

from __future__ import annotations

import dataclasses
import re
import shlex

import pytest
from job_support import APPLICATION, HERE, harbour, planned, rendered, surroundings
from typer.testing import CliRunner

from seatrial.base.errors import InputError, LabError
from seatrial.base.paths import CHECKOUT
from seatrial.base.yamlfile import load
from seatrial.cli import app
from seatrial.job.choose import KINDS, choose_profile
from seatrial.job.request import Request
from seatrial.job.submit import submit
from seatrial.job.template import load_template
from seatrial.site.model import Site, Transport


@pytest.mark.parametrize(
    ("name", "options", "transport", "profile"),
    [
        # by the application's own figure, not by latency: NPB IS
        ("npb", {}, "mpich-ofi", "low-latency"),
        ("npb", {"values": {"kernel": "ep"}}, "openmpi-tcp", "cpu-saving"),
        ("osu", {}, "mpich-ucx", "low-latency"),
        ("hpl", {"values": {"blas": "openblas"}}, "openmpi-tcp", "cpu-saving"),
        # what the user says goes first
        ("hpl", {"kind": "latency-bound"}, "mpich-ucx", "low-latency"),
        ("hpl", {"profile": "default"}, "openmpi-tcp", "default"),
        ("hpl", {"transport": "intelmpi-tcp"}, "intelmpi-tcp", "cpu-saving"),
        # nothing is known of the program
        ("mpi", {"values": APPLICATION}, "openmpi-tcp", "default"),
        ("mpi", {"mpi": "intelmpi", "values": APPLICATION, "kind": "compute-bound"}, "intelmpi-tcp",
         "cpu-saving"),
    ],
)  # fmt: skip
def test_choice_by_kind(name, options, transport, profile):
    plan = planned(name, **options)
    assert (plan.transport, plan.profile) == (transport, profile)
    assert plan.constraint == ("" if profile == "default" else "nic_" + profile.replace("-", "_"))
    assert plan.exclusive or profile == "default"


@pytest.mark.parametrize(
    ("site", "choices"),
    [
        ("lab-virtual-apps", {"communication-bound": "igb-off", "compute-bound": "igb-125"}),
        ("lab-virtual", {"latency-bound": "igb-off", "compute-bound": "igb-125"}),
        ("lab-virtual-8", {"latency-bound": "igb-off", "compute-bound": "igb-125"}),
        ("lab-virtual-4", {"communication-bound": "igb-off", "compute-bound": "igb-125"}),
        ("lab-virtual-fabrics", {"communication-bound": "igb-off", "compute-bound": "igb-125"}),
        ("lab-virtual-smp", {"latency-bound": "igb-off", "compute-bound": "igb-125"}),
    ],
)
def test_the_virtual_labs_have_the_moderation_of_the_literature(site, choices):
    own = load(CHECKOUT / "site-configs" / site / "site.yaml", Site)[0]
    for kind, profile in choices.items():
        choice, _ = choose_profile(Request(load_template("mpi")), own, "openmpi-tcp", kind)
        assert choice.name == profile, kind
        assert ("from the literature, as no trial" in choice.why) == (profile != "default")


@pytest.fixture
def rdma():
    """The harbour with a RDMA port on each network under test, and a transport of verbs."""
    around = surroundings(with_stack=False)
    for number, name in enumerate(around.site.test_networks):
        around.site.networks[name].device = f"mlx5_{number}:1"
    own = around.site.transports["openmpi-ucx"]
    own.data_path, own.env = "verbs", {"UCX_TLS": "rc,self"}
    return around


def test_a_transport_of_verbs_has_the_rdma_port_of_its_network(rdma):
    script = rendered("mpi", rdma, transport="openmpi-ucx", values=APPLICATION)
    assert "export UCX_NET_DEVICES=mlx5_0:1\n" in script
    assert "sends its messages through mlx5_0:1 (network" in script
    for network in rdma.site.networks.values():
        network.device = network.device and "rxe_%n:1"
    script = rendered("mpi", rdma, transport="openmpi-ucx", values=APPLICATION)
    assert "UCX_NET_DEVICES" not in script  # no value is right for all nodes
    rdma.modules["openmpi-ucx"] = "/opt/modules"
    script = rendered("mpi", rdma, transport="openmpi-ucx", values=APPLICATION)
    loaded, _, rest = script.partition("module load openmpi-ucx || exit\n")
    assert loaded
    assert "\nunset UCX_NET_DEVICES\n" in rest  # the module's is an interface
    assert "export UCX_NET_DEVICES" not in rest


def test_a_variant_of_a_transport_loads_the_module_of_its_base():
    around = surroundings()
    around.site.transports["openmpi-tcp-small"] = Transport(
        base="openmpi-tcp", env={"OMPI_MCA_btl_tcp_sndbuf": "16384"}
    )
    script = rendered("mpi", around, transport="openmpi-tcp-small", values=APPLICATION)
    assert "module load openmpi-tcp || exit\n" in script
    assert "export OMPI_MCA_btl_tcp_sndbuf=16384\n" in script
    own_program = rendered("npb", around, transport="openmpi-tcp-small")
    assert "/openmpi/is" in own_program
    assert "export OMPI_MCA_btl_tcp_sndbuf=16384\n" in own_program
    around.modules.clear()
    plain = rendered("mpi", around, transport="openmpi-tcp-small", values=APPLICATION)
    assert "export OMPI_MCA_btl_tcp_if_include=eth" in plain
    assert "export OMPI_MCA_btl_tcp_sndbuf=16384\n" in plain


def test_a_variant_is_not_chosen_beside_its_base():
    around = surroundings(with_stack=False)
    site = around.site
    site.jobs.transports.clear()
    site.transports = {
        "openmpi-tcp": Transport(),
        "openmpi-tcp-small": Transport(base="openmpi-tcp"),
    }
    assert planned("mpi", around, values=APPLICATION).transport == "openmpi-tcp"
    del site.transports["openmpi-tcp"]
    assert planned("mpi", around, values=APPLICATION).transport == "openmpi-tcp-small"


def test_several_rdma_ports(rdma):
    script = rendered("multirail", rdma, transport="openmpi-ucx", values=APPLICATION)
    ports = ",".join(f"mlx5_{number}:1" for number in range(script.count("mlx5_")))
    assert f"export UCX_NET_DEVICES={ports}\n" in script
    with pytest.raises(InputError, match="per-rank is not possible for transport openmpi-ucx"):
        rendered("multirail", rdma, transport="openmpi-ucx",
                 values={**APPLICATION, "rails": "per-rank"})  # fmt: skip
    rdma.site.networks[rdma.site.test_networks[0]].device = None
    with pytest.raises(InputError, match=r"site.yaml names no RDMA port .* for"):
        rendered("multirail", rdma, transport="openmpi-ucx", values=APPLICATION)


def test_script_says_in_one_line_which_transport_and_why():
    def line(**options):
        lines = rendered(**options).splitlines()
        return next(one for one in lines if one.startswith("# Transport: "))

    # like is compared with like: IS of class C was measured under one transport only
    assert line(name="npb") == (
        "# Transport: mpich-ofi (MPICH, ch4:ofi): the highest npb mops (is.B, NIC profile default) "
        "of the baselines: openmpi-tcp 400, mpich-ofi 500."
    )
    assert "intelmpi-tcp" not in line(name="npb")  # a contract is no measurement
    declared = line(name="mpi", values=APPLICATION, kind="compute-bound")
    assert declared.startswith("# Transport: openmpi-tcp ")
    assert "declared by the site (jobs.transports); the site's baselines have no hpl" in declared


def test_transport_is_never_the_first_of_the_list():
    site = harbour()
    site.jobs.transports = ["intelmpi-tcp", "openmpi-tcp"]
    around = dataclasses.replace(surroundings(), site=site)
    assert planned("mpi", around, APPLICATION).transport == "intelmpi-tcp"
    assert planned("mpi", around, APPLICATION, mpi="openmpi").transport == "openmpi-tcp"
    assert planned("npb", around).transport == "mpich-ofi"  # measured
    with pytest.raises(InputError, match=r"jobs.transports .* none of mpich-ofi, mpich-ucx"):
        planned("mpi", around, APPLICATION, mpi="mpich")
    site.jobs.transports = []
    with pytest.raises(InputError, match=r"does not say which transport .*give --transport"):
        planned("mpi", around, APPLICATION)
    only = planned("mpi", around, APPLICATION, mpi="intelmpi")
    assert (only.transport, "the only one" in only.transport_why) == ("intelmpi-tcp", True)


def directives(text):
    return dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", text, re.M))


def test_ranks_of_pure_mpi_have_one_thread_and_a_core():
    text = rendered("mpi", values={**APPLICATION, "mem": "4G"})
    assert "\nexport OMP_NUM_THREADS=1\n" in text
    options = directives(text)
    assert options["hint"] == "nomultithread"
    assert options["distribution"] == "block:block"
    assert options["mem"] == "4G"
    assert "mem" not in directives(rendered("mpi", values=APPLICATION))  # the cluster's default
    whole = directives(rendered("npb", values={"account": "fish", "distribution": "cyclic"}))
    assert (whole["mem"], whole["account"], whole["distribution"]) == ("0", "fish", "cyclic")


@pytest.mark.parametrize("name", ["hpl", "hybrid"])
def test_ranks_with_threads_are_one_for_each_socket(name):
    site = harbour()
    site.nodes = [group.model_copy(update={"cores": 16, "sockets": 2}) for group in site.nodes]
    around = dataclasses.replace(surroundings(), site=site)
    values = {"hpl": {"blas": "openblas"}, "hybrid": APPLICATION}[name]
    text = rendered(name, around, values)
    options = directives(text)
    assert (options["ntasks-per-node"], options["cpus-per-task"]) == ("2", "8")
    assert options["distribution"] == "block:cyclic"
    assert 'export OMP_NUM_THREADS="$SLURM_CPUS_PER_TASK"\n' in text
    assert "OMP_NUM_THREADS=1" not in text


def test_ranks_of_a_node_share_memory_also_where_the_site_sets_ucx_tls():
    text = rendered("mpi", values=APPLICATION, transport="openmpi-ucx")
    assert "export UCX_TLS=rc,self,sm\n" in text
    assert "Within a node: shared memory" in text.replace("\n#  ", "")
    text = rendered("mpi", around=surroundings(False), values=APPLICATION, transport="mpich-ucx")
    assert "NOLOCAL" not in text
    assert "UCX_TLS=tcp,self,sm" in text


def test_a_network_without_a_cable_is_no_rail():
    site = harbour()
    site.networks["rail2"].cable = False
    around = dataclasses.replace(surroundings(), site=site)
    with pytest.raises(InputError, match="several interfaces"):
        rendered("multirail", around, APPLICATION)
    site.transports["openmpi-tcp"].network = "rail2"
    with pytest.raises(InputError, match="network rail2, which has no cable"):
        planned("mpi", around, APPLICATION, transport="openmpi-tcp")


def test_a_profile_that_the_transport_ignores_is_not_chosen():
    options = {"kind": "communication-bound", "transport": "openmpi-ucx", "values": APPLICATION}
    plan = planned("mpi", **options)
    assert plan.profile == "default"
    assert "polled from user space" in plan.profile_why
    plan = planned("mpi", **options, profile="low-latency")
    assert plan.constraint == "nic_low_latency"
    assert "no effect" in plan.profile_why


def test_a_profile_that_is_not_measured_under_the_transport_is_remarked():
    site = harbour()
    site.nic_profiles["low-latency"].transports = ["mpich-*", "tcp"]
    around = dataclasses.replace(surroundings(), site=site)
    options = {"transport": "openmpi-tcp", "values": APPLICATION, "profile": "low-latency"}
    plan = planned("mpi", around, **options)
    assert plan.constraint == "nic_low_latency"
    assert "measures it under this transport, only under mpich-*, tcp." in plan.profile_why


def test_reason_is_in_the_script_and_its_source_in_the_guide():
    text = rendered("npb")
    assert KINDS["communication-bound"] in text.replace("\n#  ", "")
    assert "mpich-ofi 500" in text
    assert "2004" not in text
    assert "docs/job-templates.md" in text
    guide = (CHECKOUT / "docs" / "job-templates.md").read_text()
    for words in ("Celebioglu, Leng and Mashayekhi", "0.66 of its rate with tg3", *KINDS):
        assert words in guide


@pytest.mark.parametrize(
    ("mpi", "launcher", "started"),
    [
        ("openmpi", "srun", "srun --mpi=pmix "),
        ("openmpi", "mpirun", "mpirun -np "),
        ("mpich", "srun", "srun --mpi=pmi2 "),
        ("mpich", "mpiexec", "mpiexec.hydra -bootstrap slurm "),
        ("intelmpi", "srun", "srun --mpi=pmi2 --unbuffered "),
        ("intelmpi", "mpiexec", 'bin/}mpiexec.hydra" -n '),
    ],
)
def test_one_template_serves_every_mpi_and_launcher(mpi, launcher, started):
    text = rendered("mpi", values=APPLICATION, mpi=mpi, launcher=launcher)
    commands = [line for line in text.splitlines() if started in line]
    assert len(commands) == 1
    assert f"# Transport: {mpi}-" in text


def test_a_program_without_mpi_has_plain_sockets():
    text = rendered("mpi", values=APPLICATION, transport="tcp", profile="low-latency")
    assert "\nsrun --mpi=none " in text
    assert "# Nothing ties the program to a network" in text
    assert "\n#SBATCH --constraint=nic_low_latency\n" in text
    assert "module load" not in text
    with pytest.raises(InputError, match="with srun, not with 'mpirun'"):
        rendered("mpi", values=APPLICATION, transport="tcp", launcher="mpirun")
    with pytest.raises(InputError, match="tcp is one of no MPI"):
        rendered("mpi", values=APPLICATION, transport="tcp", mpi="openmpi")


def test_mpi_narrows_the_choice_in_every_template():
    assert planned("npb", mpi="openmpi").transport == "openmpi-tcp"
    assert planned("npb", launcher="mpirun").mpi == "openmpi"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("npb", {"values": {"kernl": "is"}}, ("kernl", "did you mean 'kernel'")),
        ("npb", {"values": {"kernel": "isp"}}, ("kernel", "did you mean 'sp'")),
        ("npb", {"values": {"kernel": "lu"}}, ("program", "npb_lu", "--set program=")),
        ("npb", {"ranks_per_node": 1, "nodes": 3}, ("power of two", "3")),
        ("mpi", {}, ("needs program", "--set program=")),
        ("mpi", {"values": {"program": "'a"}}, ("program", "quotation")),
        ("mpi", {"values": {"program": "a\0b"}}, ("program", "NUL")),
        ("npb", {"transport": "mpich-ofl"}, ("mpich-ofl", "did you mean 'mpich-ofi'")),
        ("mpi", {"values": APPLICATION, "mpi": "mpich", "transport": "openmpi-tcp"},
         ("--mpi mpich", "openmpi")),
        ("mpi", {"values": APPLICATION, "mpi": "openmp"}, ("--mpi", "did you mean 'openmpi'")),
        ("mpi", {"values": APPLICATION, "mpi": "mpich", "launcher": "mpirun"},
         ("mpich programs with srun or mpiexec, not with 'mpirun'",)),
        ("npb", {"profile": "low-latncy"}, ("low-latncy", "did you mean 'low-latency'")),
        ("npb", {"kind": "io-bound"}, ("io-bound", "compute-bound")),
        ("npb", {"launcher": "mpiexec", "transport": "openmpi-tcp"}, ("srun or mpirun",)),
        ("all-pairs", {"launcher": "mpirun"}, ("all-pairs", "mpirun")),
        ("npb", {"nodes": 5}, ("--nodes: 5", "compute has 4")),
        ("npb", {"nodes": 2, "profile": "old-only"}, ("has 1 node ", "old-only")),
        ("npb", {"nodes": 0}, ("--nodes: 0",)),
        ("npb", {"ranks_per_node": 3}, ("3 ranks", "2 cores")),
        ("npb", {"ranks_per_node": -1}, ("--ranks-per-node: -1",)),
        ("npb", {"values": {"partition": "comput"}}, ("comput", "did you mean 'compute'")),
        ("npb", {"values": {"time": "soon"}}, ("time", "soon", "2:00:00")),
        ("osu", {"nodes": 3}, ("two ranks", "3")),
        ("osu", {"values": {"max_bytes": "64 KiB"}}, ("max_bytes", "whole number")),
        ("hpl", {"values": {"memory_fraction": "1.5"}}, ("memory_fraction", "out of range")),
        ("hpl", {"values": {"memory_fraction": "nan"}}, ("memory_fraction", "not a number")),
        ("hpl", {"values": {"memory_fraction": "0.00001"}}, ("memory_fraction", "no block")),
        ("hpl", {"values": {"rows": "3"}}, ("rows", "3", "2 ranks")),
        ("hpl", {"values": {"blas": "acml"}}, ("acml", "openblas")),
        ("hpl", {"values": {"job_name": "a\n#SBATCH --uid=0"}}, ("control character",)),
        ("multirail", {"values": {**APPLICATION, "interfaces": "eth1"}}, ("several", "eth1")),
        *(
            ("multirail", {"values": {**APPLICATION, "interfaces": f"eth1 {name}"}},
             (f"{name} is not the interface", "role: test", "eth1, eth2"))
            for name in ("eth0", "eth9")  # the management network's, and nobody's
        ),
        ("multirail", {"values": {**APPLICATION, "rails": "stripe"}, "transport": "mpich-ofi"},
         ("per-rank", "one interface")),
    ],
)  # fmt: skip
def test_bad_requests_name_what_is_wrong_and_what_is_right(name, options, words):
    with pytest.raises(InputError) as error:
        rendered(name, **options)
    for word in words:
        assert word in str(error.value)


def test_unknown_template_is_suggested():
    with pytest.raises(InputError, match="did you mean 'hybrid'"):
        load_template("hybird")


def test_without_a_stack_programs_must_be_named():
    around = surroundings(with_stack=False)
    with pytest.raises(InputError, match="needs program"):
        rendered("hpl", around)
    text = rendered("hpl", around, {"program": "./xhpl"})
    assert "module load" not in text
    assert "export OMPI_MCA_pml=ob1" in text


def test_a_variable_of_the_site_with_an_impossible_name_is_refused():
    site = harbour()
    site.transports["openmpi-tcp"].env["A=$(reboot) B"] = "1"
    with pytest.raises(InputError, match="not a valid name of a variable"):
        planned("mpi", dataclasses.replace(surroundings(), site=site), APPLICATION)


def test_command_line(tmp_path):
    run = CliRunner().invoke
    file = tmp_path / "ship.sbatch"
    words = ["job", "render", "mpi", "--set", "program=./a b", "-N", "3", "-n", "1"]
    words += ["--mpi", "mpich", "--launcher", "mpiexec"]
    done = run(app, [*words, "--output", str(file)])
    assert done.exit_code == 0, done.output
    text = file.read_text()
    assert "#SBATCH --nodes=3\n#SBATCH --ntasks-per-node=1\n" in text
    made = shlex.split(next(line for line in text.splitlines() if "Made by" in line)[11:])
    assert run(app, made[1:]).output == text  # and so it can be made again
    assert "./a b\n" in text
    assert run(app, words).output.count("./a b\n") == 1
    listed = run(app, ["job", "list"]).output
    assert "all-pairs" in listed
    assert "memory_fraction" in run(app, ["job", "list", "hpl"]).output
    with pytest.raises(InputError, match="KEY=VALUE"):
        run(app, ["job", "render", "npb", "--set", "kernel"], catch_exceptions=False)
    with pytest.raises(InputError, match="did you mean 'npb'"):
        run(app, ["job", "render", "nbp"], catch_exceptions=False)


def test_a_network_that_a_bond_takes_away_is_refused(tmp_path):
    text = (HERE / "harbour" / "site.yaml").read_text()
    bond = (
        "nic_profiles:\n  pair:\n    description: one bond of both\n"
        "    bonding: {mode: balance-rr, members: [eth1, eth2]}\n"
    )
    text = text.replace("nic_profiles:\n", bond)
    text = text.replace("openmpi-tcp: {}", "openmpi-tcp: {network: rail2}")
    (tmp_path / "site.yaml").write_text(text)
    site = load(tmp_path / "site.yaml", Site)[0]
    around = dataclasses.replace(surroundings(), site=site)
    with pytest.raises(InputError) as error:
        planned("mpi", around, APPLICATION, profile="pair", transport="openmpi-tcp")
    for word in ("rail2", "bond of NIC profile pair", "openmpi-tcp"):
        assert word in str(error.value)


def test_submit_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match=r"sbatch is not installed here: .* login node"):
        submit("#!/bin/bash\n", [])
    (tmp_path / "sbatch").write_text('#!/bin/bash\necho "$*"; exec /bin/cat\n')
    (tmp_path / "sbatch").chmod(0o755)
    assert submit("#!/bin/bash\n", ["--test-only"]) == "--test-only\n#!/bin/bash"
    (tmp_path / "sbatch").write_text("#!/bin/bash\necho no such partition >&2; exit 1\n")
    with pytest.raises(LabError, match=r"refused the job \(exit code 1\): no such partition"):
        submit("#!/bin/bash\n", [])
    error = "sbatch: error: Could not establish a configuration source"
    (tmp_path / "sbatch").write_text(f"#!/bin/bash\necho {error} >&2; exit 1\n")
    with pytest.raises(LabError, match=r"\(exit code 1\): this machine has no slurm.conf"):
        submit("#!/bin/bash\n", [])
