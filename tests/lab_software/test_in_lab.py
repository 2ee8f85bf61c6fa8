"""Every program under every transport: started by Slurm, as a user, between two nodes of the lab.

Each must give its result, its messages must have crossed eth1, and the MPI must have named the
path that the transport stands for.
"""

import re

import pytest

from seatrial.benchmarks.hpl_input import render
from two_ranks import WIRE_UP, assert_paths, compile_exchange

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.stack]

MPI = ["openmpi-tcp", "openmpi-ucx", "openmpi-ofi", "mpich-ucx", "mpich-ofi", "intelmpi-tcp"]
#: program -> arguments, what its output must hold, bytes that must at least cross the link
PROGRAMS = {
    "netpipe": ("-p 0 -u 64 -n 20 -o /dev/null", r"64 bytes +20 times --> +[\d.]+ Mbps", 5_000),
    "comms": ("-u 64 -p 1 -r 20 -w 2", r"^# crc32 [0-9a-f]{8}$", 5_000),
    "mpi_pairs": ("-s 1000 -t 5 -r 2", r"^# crc32 [0-9a-f]{8}$", 5_000),
    "mpbench": ("-l -i 20 -e 2 -m 8 -x 0", r"^256 [\d.]+$", 5_000),
    "imb": ("PingPong -msglog 0:6 -iter 20", r"^ +64 +20 +[\d.]+ +[\d.]+$", 5_000),
    "npb_is": ("2 S", r"Verification +=  +SUCCESSFUL", 1_000_000),
    "npb_ep": ("2 S", r"Verification +=  +SUCCESSFUL", 500),
    "osu_latency": ("-m 64 -i 20 -x 2", r"^ +64 +[\d.]+$", 5_000),
    "osu_bw": ("-m 64 -i 5 -x 2", r"^ +64 +[\d.]+$", 20_000),
    "osu_bibw": ("-m 64 -i 5 -x 2", r"^ +64 +[\d.]+$", 20_000),
    "osu_multi_lat": ("-m 64 -i 20 -x 2", r"^ +64 +[\d.]+$", 5_000),
    "hpcc": ("", r"HPL_Tflops=(?!-)", 100_000),
}


@pytest.fixture
def lab(plain_lab):
    return plain_lab


def crossed(lab, interface="eth1"):
    """Bytes in and out of an interface of n1 so far."""
    text = lab.run(["cat", "/proc/net/dev"], user="root", node="n1").stdout
    words = re.search(rf"{interface}: *(.*)", text)[1].split()
    return int(words[0]) + int(words[8])


@pytest.mark.parametrize(
    ("transport", "program"),
    # IMB is a binary of the MPICH ABI
    [(t, p) for t in MPI for p in PROGRAMS if p != "imb" or not t.startswith("openmpi")],
)
def test_program_under_transport(real_stack, lab, transport, program):
    arguments, result, least = PROGRAMS[program]
    part = real_stack.transport(transport, "eth1", "10.73.1.0/24", check=True, lab=True)
    fields = {"report_file": "stderr", "report_fd": "2"}
    env = {name: value.format_map(fields) for name, value in part.env.items()}
    folder = f"{lab.paths.home}/{transport}-{program}"
    lab.run(["mkdir", "-p", folder])
    if program == "hpcc":
        env["OMP_NUM_THREADS"] = "1"
        lab.run(["tee", f"{folder}/hpccinf.txt"], stdin=render(200, 32, 1, 2))
    before = crossed(lab)
    start = ["bash", "-c", f'{WIRE_UP}exec "$@"', "bash"]
    command = ["srun", "-w", "n1,n2", "-N2", "-n2", "--kill-on-bad-exit=1", "-t", "1"]
    done = lab.run(
        [*start, *command, *part.launcher, *part.programs[program], *arguments.split()],
        env=env,
        cwd=folder,
        timeout=600,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-3000:]
    if program == "hpcc":
        said += lab.run(["cat", f"{folder}/hpccoutf.txt"]).stdout
    assert re.search(result, said, re.M), said[-3000:]
    assert re.search(part.path_report, said, re.M), said[-3000:]
    assert crossed(lab) - before > least


@pytest.mark.parametrize("transport", MPI)
def test_module_gives_the_transport_to_a_user(real_stack, lab, transport):
    use = f"module use {real_stack.prefix}/modules && module load {transport}"
    program = real_stack.programs(transport)["npb_is"][0]
    run = f"srun -w n1,n2 -N2 -n2 {program} 2 S"
    done = lab.run(["bash", "-c", f"{WIRE_UP}{use} && {run}"], timeout=600)
    assert "SUCCESSFUL" in done.stdout
    other = "mpich-ofi" if transport == "openmpi-tcp" else "openmpi-tcp"
    script = f"{use} && module load {other} && module list 2>&1"
    listed = lab.run(["bash", "-c", script]).stdout
    assert other in listed.split("Loaded Modules:")[-1]
    assert transport not in listed.split("Loaded Modules:")[-1]


@pytest.mark.parametrize("transport", MPI)
def test_two_ranks_of_a_user_share_memory_and_cross_the_test_network(real_stack, lab, transport):
    use = f"module use {real_stack.prefix}/modules"
    # the labs have Intel MPI without a compiler; its ABI is MPICH's
    program = compile_exchange(lab, use, "mpich-ofi" if transport == "intelmpi-tcp" else transport)
    within_node = real_stack.transports[transport].within_node
    assert_paths(lab, use, transport, program, within_node)


ELSEWHERE = {
    "another cluster": (
        {"SLURM_CLUSTER_NAME": "harbour"}, "n1",
        r"is a module of site lab, cluster seatrial, and this job runs on cluster harbour\.",
    ),
    "a node without the interface": (
        {"SLURMD_NODENAME": "login"}, "login", r"through interface eth1, which node login does not",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ELSEWHERE)
def test_module_of_another_site_does_not_load(real_stack, lab, case):
    env, node, reason = ELSEWHERE[case]
    script = f"module use {real_stack.prefix}/modules; module load openmpi-tcp; echo code $?; env"
    done = lab.run(["bash", "-c", script], env=env, node=node)
    said = " ".join((done.stdout + done.stderr).split())
    assert re.search(reason, said), said
    assert "code 1" in said
    assert "OMPI_MCA_pml" not in said


def test_module_warns_on_a_login_node_of_another_cluster(real_stack, lab):
    """A login node of one cluster may submit to another: the module loads there."""
    conf = f"{lab.paths.home}/slurm.conf"
    lab.run(["tee", conf], stdin="# ours\nClusterName=Harbour\n")
    script = f"module use {real_stack.prefix}/modules; module load openmpi-tcp; echo code $?; env"
    for cluster_conf, warned in ((conf, True), ("/etc/slurm/slurm.conf", False)):
        done = lab.run(["bash", "-c", script], env={"SLURM_CONF": cluster_conf})
        said = " ".join((done.stdout + done.stderr).split())
        assert ("this host is of cluster harbour" in said) == warned, said
        assert "code 0" in said
        assert "OMPI_MCA_pml=ob1" in said
