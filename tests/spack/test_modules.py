"""The modules that Spack writes from our templates: their text, and what loading one does."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from labs import plain, running
from seatrial.base.errors import InputError
from seatrial.report import module_help
from seatrial.results.folder import Results, write_results
from seatrial.results.record import Case, Metric, Run, Trial
from seatrial.stack import build, describe, modules, pins
from seatrial.stack.transports import TRANSPORTS, fill, pmi2_library
from spack_support import REFUSED_SPECS
from two_ranks import assert_paths, compile_exchange

GOLDEN = Path(__file__).parent / "golden"
#: transport -> spec
SPECS = {
    "openmpi-tcp": "mpi-transport interface=eth1 transport=tcp ^openmpi",
    "openmpi-ucx": "mpi-transport interface=eth1 transport=ucx ^openmpi",
    "openmpi-ofi": "mpi-transport interface=eth1 transport=ofi ^openmpi",
    "mpich-ucx": "mpi-transport interface=eth1 transport=ucx ^mpich",
    "mpich-ofi": "mpi-transport interface=eth1 transport=ofi ^mpich",
    "mpich-sock": "mpi-transport interface=eth1 transport=sock ^mpich device=ch3:sock",
    "intelmpi-tcp": "mpi-transport interface=eth1 transport=tcp ^intel-oneapi-mpi",
}
MORE_TRANSPORTS = pytest.mark.nightly(reason="modules of transports over verbs, built by Spack")
#: file of a golden module -> spec, of transports that share a name with one of SPECS
VERBS = {
    "openmpi-ucx-verbs": "mpi-transport interface=eth1 rdma_port=mlx5_0:1 transport=ucx "
    "ucx_tls=rc,ud,self ^openmpi",
    "mpich-ucx-verbs": "mpi-transport interface=eth1 transport=ucx ucx_tls=rc,ud,self ^mpich",
}
LMOD = Path("/usr/share/lmod/lmod/init/bash")


def results(profile: str = "jumbo") -> Results:
    """A trial of two profiles: openmpi-tcp is faster under ``profile``."""
    cases = [
        Case(check="netpipe", transport="openmpi-tcp", profile=p, nodes=2)
        for p in ("default", profile)
    ]
    values = {"default": (40.0, 900.0), profile: (36.0, 1200.0)}
    runs = [
        Run(
            case=case,
            repeat=repeat,
            outcome="ran",
            metrics=[
                Metric(metric="latency_us", value=latency + repeat, unit="us", better="lower"),
                Metric(metric="bandwidth_MB_s", value=rate, unit="MB/s", better="higher"),
            ],
        )
        for case in cases
        for latency, rate in [values[case.profile]]
        for repeat in range(3)
    ]
    trial = Trial(
        trial="t1", site="lab", started=datetime(2026, 1, 1, tzinfo=UTC), seatrial="0", cases=cases
    )
    return Results(trial=trial, runs=runs)


def test_figures_name_the_profile_that_was_best():
    text = module_help.texts(results())["openmpi-tcp"]
    assert "latency   netpipe          37 us   NIC profile jumbo, 3 runs" in text
    assert "latency   netpipe          41 us   NIC profile default, 3 runs" in text
    assert "NIC profile for best latency: jumbo (of 2 tried)" in text
    assert "NIC profile for best bandwidth: jumbo (of 2 tried)" in text


def test_figures_of_no_trial_are_an_error(tmp_path: Path):
    with pytest.raises(InputError, match="there are no results of a trial"):
        module_help.read(tmp_path)


def test_figures_are_read_from_a_trials_folder(tmp_path: Path):
    found = results()
    write_results(tmp_path / "results.jsonl", [found.trial, *found.runs])
    assert module_help.texts(module_help.read(tmp_path)) == module_help.texts(found)


@pytest.fixture(scope="module")
def trees(spack, tmp_path_factory):
    """All transports, installed, with module files: their paths."""
    folder = tmp_path_factory.mktemp("transports")
    # No distribution has an MPICH with ch3:sock, and nothing of it is run here.
    sock = folder / "externals" / "mpich-sock"
    external = f"{{spec: 'mpich@4.2.1 device=ch3:sock', prefix: {sock}}}"
    lines = ["packages:", "  mpich:", f"    externals: [{external}]"]
    found = spack.environment(folder, list(SPECS.values()), *lines)
    build.concretize(found, print)
    outcome = build.build(found, print)
    assert not outcome.failures, outcome.summary()
    modules.refresh(found, print)
    return found


@pytest.fixture(scope="module")
def verbs_trees(spack, tmp_path_factory):
    """The transports of VERBS, with module files: their paths."""
    found = spack.environment(tmp_path_factory.mktemp("verbs"), list(VERBS.values()))
    build.concretize(found, print)
    outcome = build.build(found, print)
    assert not outcome.failures, outcome.summary()
    modules.refresh(found, print)
    return found


def neutral(text: str, home: Path) -> str:
    """Without what differs between machines: folders, hashes, targets, versions of MPI."""
    text = text.replace(str(home), "HOME")
    text = re.sub(r"HOME/opt/\w+/", "HOME/opt/TARGET/", text)
    text = re.sub(r'/[^\s":{}]*/externals/', "EXTERNALS/", text)
    text = re.sub(r"/\S*\.seatrial/spack", "HOME", text)
    text = re.sub(r"\b(\S+)/[a-z0-9]{7}\b(?=$| with|\})", r"\1/HASH", text, flags=re.M)
    text = re.sub(r"(\d+(?:\.\d+)+)-[a-z0-9]{7}\b", r"\1-HASH", text)
    return re.sub(r"\b\d+\.\d+(\.\d+)*", "VERSION", text)


@pytest.mark.spack
@pytest.mark.parametrize("kind", modules.KINDS)
@pytest.mark.parametrize("name", SPECS)
def test_module_is_as_its_golden_file(trees, name: str, kind: str):
    ending = {"lmod": ".lua", "tcl": ""}[kind]
    file = next(trees.module_root(kind).rglob(f"{name}{ending}"))
    golden = GOLDEN / f"{name}.{'lua' if kind == 'lmod' else 'tcl'}"
    assert neutral(file.read_text(), trees.home) == golden.read_text()


@MORE_TRANSPORTS
@pytest.mark.spack
@pytest.mark.parametrize("kind", modules.KINDS)
@pytest.mark.parametrize("name", VERBS)
def test_module_of_verbs_has_the_rdma_port(verbs_trees, name: str, kind: str):
    """Of UCX over verbs: never the interface; nothing where the port has no name for all nodes."""
    ending = {"lmod": ".lua", "tcl": ""}[kind]
    file = next(verbs_trees.module_root(kind).rglob(name.removesuffix("-verbs") + ending))
    text = neutral(file.read_text(), verbs_trees.home)
    assert text == (GOLDEN / f"{name}.{'lua' if kind == 'lmod' else 'tcl'}").read_text()
    set_to = re.findall(r"setenv\W+UCX_NET_DEVICES\W+([\w:]+)", text)
    looked_for = re.findall(r"/sys/class/infiniband/[\w/]+", text)
    if name == "openmpi-ucx-verbs":
        assert set_to == ["mlx5_0:1"]
        assert looked_for == ["/sys/class/infiniband/mlx5_0/ports/1"]
    else:
        assert not set_to
        assert not looked_for


@MORE_TRANSPORTS
@pytest.mark.spack
@pytest.mark.stack
@pytest.mark.parametrize("kind", modules.KINDS)
def test_a_module_of_verbs_does_not_load_without_its_rdma_port(verbs_trees, kind: str):
    """This machine stands for a node without the port. The interface exists: it is lo."""
    folder = core(verbs_trees) if kind == "lmod" else flat(verbs_trees)
    file = next(verbs_trees.module_root(kind).rglob("openmpi-ucx*"))
    text = file.read_text()
    try:
        file.write_text(text.replace("/sys/class/net/eth1", "/sys/class/net/lo"))
        node = "export SLURMD_NODENAME=x7 SLURM_CLUSTER_NAME=seatrial"
        said = load(folder, f"{node}; module load openmpi-ucx; echo code $?; env")
    finally:
        file.write_text(text)
    said = " ".join(said.split())
    assert "RDMA port mlx5_0:1, which node x7 does not have." in said
    assert "code 1" in said
    assert "UCX_TLS" not in said


@REFUSED_SPECS
@pytest.mark.spack
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("interface=mlx5_0:1 transport=tcp", "interface"),
        ("rdma_port=mlx5_0 transport=ucx ucx_tls=rc,self", "rdma_port"),
    ],
)
def test_a_wrong_port_is_refused(spack, mpi_scope, words: str, reason: str):
    done = spack("-C", str(mpi_scope), "spec", f"mpi-transport {words} ^openmpi")
    assert done.returncode
    assert reason in done.stderr


@pytest.mark.nightly(reason="a transport that Spack refuses while it installs")
@pytest.mark.spack
def test_a_rdma_port_without_a_transport_over_verbs_is_refused(spack, tmp_path):
    found = spack.environment(tmp_path, ["mpi-transport rdma_port=mlx5_0:1 transport=ucx ^openmpi"])
    build.concretize(found, print)
    outcome = build.build(found, print)
    assert outcome.failures
    assert "rdma_port=mlx5_0:1 needs a transport over verbs in ucx_tls" in "\n".join(
        outcome.summary()
    )


@pytest.mark.spack
@pytest.mark.parametrize("name", SPECS)
def test_a_module_sets_what_its_path_needs_and_nothing_of_a_check(trees, name: str):
    text = next(trees.module_root("lmod").rglob(f"{name}.lua")).read_text()
    found = dict(re.findall(r'^setenv\("(\w+)", "(.*)"\)$', text, re.M))
    part = TRANSPORTS[name]
    words = {"interface": "eth1", "pmi2_library": pmi2_library()}
    expected = fill(part.env | part.bind, words)
    assert expected.items() <= found.items()
    assert f"--mpi={found['SLURM_MPI_TYPE']}" in part.launcher
    checks = (part.check_env | part.lab_env).items() - part.env.items()
    assert not checks & found.items()


def load(folder: Path, script: str, init: str = f". {LMOD}") -> str:
    """What a plain shell says."""
    command = ["/usr/bin/env", "-i", "PATH=/usr/bin:/bin", "/bin/bash", "--norc", "-c"]
    command.append(f"{init}; module use {folder}; {script}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def core(trees) -> Path:
    return next(trees.module_root("lmod").glob("*/Core"))


def flat(trees) -> Path:
    return next(folder for folder in trees.module_root("tcl").iterdir() if folder.is_dir())


@pytest.mark.spack
@pytest.mark.stack
def test_loading_a_transport_in_a_plain_shell(trees):
    said = load(core(trees), "module load openmpi-tcp && mpicc --version >/dev/null && env")
    assert "OMPI_MCA_btl=^openib,uct,usnic,ofi\n" in said
    assert "OMPI_MCA_btl_tcp_if_include=eth1\n" in said
    assert re.search(r"^PATH=\S*/externals/openmpi/bin:", said, re.M)


@pytest.mark.spack
@pytest.mark.stack
@pytest.mark.parametrize("kind", modules.KINDS)
@pytest.mark.parametrize("name", SPECS)
def test_every_transport_loads_in_a_plain_shell(trees, name: str, kind: str):
    """Lmod reads both kinds. With MPI installed, its compiler is the one that is found."""
    folder = core(trees) if kind == "lmod" else flat(trees)
    said = load(folder, f"module load {name}; module -t list 2>&1; env; command -v mpicc || true")
    part = TRANSPORTS[name]
    assert said.startswith(f"{name}\n")
    assert f"SLURM_MPI_TYPE={part.launcher[0].removeprefix('--mpi=')}\n" in said
    home = next(found for found in re.findall(r"^PATH=([^:\n]+):", said, re.M))
    if (Path(home) / "mpicc").exists():
        assert f"\n{home}/mpicc\n" in said


@pytest.fixture(scope="module")
def lab(trees):
    """A lab that has the module files. Its root runs the jobs: other users cannot read them."""
    with running(dataclasses.replace(plain(), binds=(trees.home,))) as lab:
        yield lab


@pytest.mark.spack
@pytest.mark.stack
@pytest.mark.root
@pytest.mark.slurm
@pytest.mark.parametrize("name", [name for name in SPECS if name != "mpich-sock"])
def test_two_ranks_share_memory_and_cross_the_test_network(trees, lab, name: str):
    """With the MPIs of the distribution and of PyPI, which Spack takes as external."""
    use = f"module use {core(trees)}"
    program = compile_exchange(lab, use, name, user="root")
    assert_paths(lab, use, name, program, TRANSPORTS[name].within_node, user="root")


@pytest.mark.spack
@pytest.mark.stack
@pytest.mark.parametrize("kind", modules.KINDS)
@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ("SLURM_CLUSTER_NAME=harbour", "cluster seatrial, and this job runs on cluster harbour."),
        ("SLURMD_NODENAME=x7 SLURM_CLUSTER_NAME=seatrial", "eth1, which node x7 does not have."),
    ],
)
def test_a_module_of_another_site_does_not_load(trees, kind: str, env: str, reason: str):
    """This machine stands for a node of another site: it has no eth1."""
    folder = core(trees) if kind == "lmod" else flat(trees)
    said = load(folder, f"export {env}; module load openmpi-tcp; echo code $?; env")
    said = " ".join(said.split())
    assert "openmpi-tcp is a module of site test, cluster seatrial" in said
    assert reason in said
    assert "code 1" in said
    assert "OMPI_MCA_pml" not in said


@pytest.mark.spack
@pytest.mark.stack
@pytest.mark.parametrize("kind", modules.KINDS)
@pytest.mark.parametrize("cluster", ["harbour", "Seatrial"])
def test_a_login_node_of_another_cluster_is_warned(trees, tmp_path, kind: str, cluster: str):
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"# ClusterName=old\n ClusterName = {cluster} # ours\n")
    folder = core(trees) if kind == "lmod" else flat(trees)
    said = load(folder, f"export SLURM_CONF={conf}; module load openmpi-tcp; echo code $?; env")
    said = " ".join(said.split())
    assert ("this host is of cluster harbour." in said) == (cluster == "harbour")
    assert "Warning" in said or cluster == "Seatrial"
    assert "code 0" in said
    assert "OMPI_MCA_pml=ob1" in said


@pytest.mark.spack
@pytest.mark.stack
def test_another_transport_takes_the_place_of_the_first(trees):
    said = load(core(trees), "module load openmpi-tcp; module load mpich-ucx; module -t list; env")
    assert 'replacing "openmpi-tcp" with "mpich-ucx"' in said
    assert "OMPI_MCA_" not in said
    assert "UCX_NET_DEVICES=eth1\n" in said


@pytest.mark.spack
@pytest.mark.stack
def test_tcl_modules_conflict_also_under_lmod(trees):
    said = load(flat(trees), "module load openmpi-tcp; module load mpich-ucx || true; env")
    assert "OMPI_MCA_pml=ob1" in said
    assert "UCX_TLS" not in said


@pytest.mark.spack
def test_spider_reads_well(trees):
    said = load(core(trees), "module spider mpich-ofi 2>&1; module whatis mpich-ofi 2>&1")
    assert "Description: MPICH" in said
    assert "Interface: eth1" in said
    assert "Figures: none measured yet" in said


@pytest.mark.spack
def test_figures_come_into_the_help(trees):
    modules.save_figures(trees, module_help.texts(results()))
    assert modules.refresh(trees, lambda _: None)
    said = load(core(trees), "module help openmpi-tcp 2>&1")
    assert "NIC profile for best latency: jumbo (of 2 tried)" in said
    assert "none measured" not in said
    assert "none measured" in load(core(trees), "module help mpich-ucx 2>&1")
    assert not modules.refresh(trees, lambda _: None)


def sock_address(prolog: str, interface: str) -> str:
    """What the task prolog of ch3:sock tells Slurm."""
    env = {"PATH": "/usr/bin:/bin", "MPI_TRANSPORT_INTERFACE": interface}
    done = subprocess.run([prolog], env=env, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.spack
def test_the_described_stack_has_the_transports(trees, monkeypatch):
    stack = describe.describe(trees, pins.read(trees.pins))
    assert set(stack.names()) == set(SPECS)
    part = stack.transport("intelmpi-tcp", "eth1", "10.0.0.0/24")
    assert part.modules == ["intelmpi-tcp"]
    assert part.env["FI_TCP_IFACE"] == "eth1"
    assert (Path(part.env["I_MPI_ROOT"]) / "lib/libmpi.so.12").exists()
    prolog = stack.transport("mpich-sock").env["SLURM_TASK_PROLOG"]
    assert sock_address(prolog, "lo") == "export MPICH_INTERFACE_HOSTNAME=127.0.0.1\n"
    assert sock_address(prolog, "gone") == (
        "export MPICH_INTERFACE_HOSTNAME=no-IPv4-address-on-gone\n"
    )
    assert not sock_address(prolog, "")
    assert stack.spack.commit == pins.read(trees.pins).spack.commit
