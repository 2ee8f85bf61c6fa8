"""The ``Stack`` of a site, from spack.lock and the install tree: transports, programs, BLAS.

Spack is not started.
"""

from __future__ import annotations

import json
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.files import sha256
from seatrial.base.run import run
from seatrial.stack import install, machine
from seatrial.stack.files import digest
from seatrial.stack.graph import PER_BLAS, Graph, Node, target_of
from seatrial.stack.model import Blas, Package, SpackFacts, Stack, Transport, read
from seatrial.stack.paths import HOME, Paths
from seatrial.stack.pins import Pins
from seatrial.stack.transports import MPI_NAMES, WITHOUT_MPI, fill, pmi2_library, transports

#: variables of vars.sh; not PATH, because programs are named by their absolute path
INTEL_VARIABLES = ("I_MPI_ROOT", "LD_LIBRARY_PATH", "FI_PROVIDER_PATH")
#: in the prefix of mpi-transport with ch3:sock: the task prolog that reads the node's address
SOCK_PROLOG = "libexec/sock-address"
OSU = "libexec/osu-micro-benchmarks/mpi"
#: MPI package -> program -> path in the prefix
PROGRAMS = {
    "comms": {"comms": "bin/comms"},
    "mpi-pairs": {"mpi_pairs": "bin/mpi_pairs"},
    "mpi-time": {"mpi_time": "lib/libmpi_time.so"},
    "netpipe": {"netpipe": "bin/NPmpi"},
    "intel-mpi-benchmarks": {"imb": "bin/IMB-MPI1"},
    "llcbench": {"mpbench": "bin/mpi_bench"},
    "osu-micro-benchmarks": {
        f"osu_{test}": f"{OSU}/pt2pt/osu_{test}"
        for test in ("latency", "bw", "bibw", "multi_lat", "mbw_mr")
    },
}
#: package without MPI -> program -> path in the prefix
SOCKETS = {
    "netpipe": {"nptcp": "bin/NPtcp"},
    "iperf3": {"iperf3": "bin/iperf3"},
    "perftest": {f"ib_{name}": f"bin/ib_{name}" for name in ("write_lat", "send_lat", "write_bw")},
    "netperf": {"netperf": "bin/netperf", "netserver": "bin/netserver"},
}


def load(site: str) -> Stack:
    """The stack of a site as its last build described it. Raises LabError if it is not built."""
    try:
        return read(HOME / "sites" / site)
    except LabError:
        raise LabError(
            f"the stack of {site} is not built: run `seatrial stack build --site {site}`"
        ) from None


def describe(paths: Paths, pins: Pins) -> Stack:
    """The installed stack. Raises LabError if the package of a transport is not installed."""
    graph = Graph(paths)
    transports: dict[str, Transport] = {}
    for node in graph.roots:
        if node["name"] == "mpi-transport":
            part = transport(graph, node)
            transports[part.name] = part
    transports = dict(sorted(transports.items()))
    transports |= without_mpi(graph, transports)
    blas = blas_libraries(graph)
    facts = SpackFacts(
        version=pins.spack.tag.removeprefix("v"),
        commit=install.commit_of(paths.root) or pins.spack.commit,
        root=str(paths.root),
        builtin_version=pins.builtin.tag.removeprefix("v"),
        builtin_commit=pins.builtin.commit,
        environment=str(paths.environment),
        target=next((target_of(n) for n in graph.roots if n["name"] != "mpi-transport"), ""),
        lock=sha256(paths.lock),
    )
    release = machine.os_release()
    content = {
        "source": "spack",
        "prefix": str(paths.folder),
        "distribution": release.get("PRETTY_NAME", "a system without os-release"),
        "versions": versions(graph, facts),
        "origins": origins(graph),
        "transports": {name: part.model_dump() for name, part in transports.items()},
        "blas_libraries": {name: part.model_dump() for name, part in blas.items()},
        "modulepath": [str(folder) for folder in module_folders(paths)],
        "spack": facts.model_dump(),
    }
    identity = digest([json.dumps(content, sort_keys=True)])
    return Stack.model_validate({"id": identity, **content})


def module_folders(paths: Paths) -> list[Path]:
    """The folders for ``module use``, of the module system that the site uses."""
    root = paths.module_root(paths.modules)
    if paths.modules == "lmod":
        return sorted(root.glob("*/Core"))
    return sorted(folder for folder in root.glob("*") if folder.is_dir())


def transport(graph: Graph, node: Node) -> Transport:
    """The transport of an mpi-transport package: its entry in TRANSPORTS, with the site's programs.

    Raises LabError if the package has no MPI, or if TRANSPORTS has no such transport.
    """
    mpi = graph.provider(node, "mpi")
    if mpi is None:
        raise LabError(f"mpi-transport/{node['hash'][:7]} has no MPI")
    path = node["parameters"]["transport"]
    name = f"{MPI_NAMES.get(mpi['name'], mpi['name'])}-{path}"
    known = transports(node["parameters"]).get(name)
    if known is None:
        raise LabError(f"Seatrial knows no transport {name} (mpi-transport/{node['hash'][:7]})")
    programs, packages = programs_of(graph, mpi)
    home = mpi_home(graph, mpi)
    env = fill(known.env, {"pmi2_library": pmi2_library()})
    if mpi["name"] == "intel-oneapi-mpi":
        env |= intel_env(home)
    if path == "sock":
        env["SLURM_TASK_PROLOG"] = str(graph.prefix(node) / SOCK_PROLOG)
    return known.model_copy(
        update={
            "env": env,
            "programs": programs,
            "packages": packages,
            "compilers": str(home / "bin"),
            "modules": [name],
            "versions": mpi_versions(graph, mpi),
        }
    )


def mpi_versions(graph: Graph, mpi: Node) -> dict[str, str]:
    """The versions of the MPI and of UCX, libfabric and PMIx, as far as Spack knows them."""
    libraries = (graph.dependency(mpi, name) for name in ("ucx", "libfabric", "pmix"))
    parts = [mpi, *(part for part in libraries if part)]
    return {part["name"]: part["version"] for part in parts}


def mpi_home(graph: Graph, mpi: Node) -> Path:
    """The folder that has bin and lib of an MPI.

    Intel's is <prefix>/mpi/<major.minor> (recipe of intel-oneapi-mpi).
    """
    prefix = graph.prefix(mpi)
    if mpi["name"] == "intel-oneapi-mpi":
        return prefix / "mpi" / ".".join(mpi["version"].split(".")[:2])
    return prefix


def intel_env(home: Path) -> dict[str, str]:
    """The variables that Intel's vars.sh sets: Intel's programs have no run path to libfabric.

    Raises LabError if vars.sh fails.
    """
    script = home / "env" / "vars.sh"
    command: list[str | Path] = ["/usr/bin/env", "-i", "/bin/bash", "-c", '. "$0" && env', script]
    text = run(command, f"reading {script}")
    env = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {name: env[name].rstrip(":") for name in INTEL_VARIABLES if name in env}


def programs_of(graph: Graph, mpi: Node) -> tuple[dict[str, list[str]], dict[str, Package]]:
    """The installed programs that were built with an MPI, and the package of each."""
    programs: dict[str, list[str]] = {}
    packages: dict[str, Package] = {}
    for node in graph.roots:
        own_mpi = graph.provider(node, "mpi")
        if own_mpi is None or own_mpi["hash"] != mpi["hash"] or node["name"] == "mpi-transport":
            continue
        if node["hash"] not in graph.prefixes:
            continue
        for name, file in _files(graph, node).items():
            programs[name] = [str(file)]
            packages[name] = graph.package(node)
    return dict(sorted(programs.items())), packages


def _files(graph: Graph, node: Node) -> dict[str, Path]:
    """Program -> file, of one package; only files that exist."""
    prefix = graph.prefix(node)
    files = {name: prefix / path for name, path in PROGRAMS.get(node["name"], {}).items()}
    if node["name"] == "osu-micro-benchmarks":
        # the folder since OSU 7.5
        standard = {name: prefix / OSU / "pt2pt" / "standard" / name for name in files}
        files |= {name: file for name, file in standard.items() if file.exists()}
    if node["name"] == "npb":
        for file in sorted((prefix / "bin").glob("*.x")):
            files[f"npb_{file.name.removesuffix('.x')}"] = file
    if node["name"] in PER_BLAS:
        program, path = PER_BLAS[node["name"]]
        blas = graph.provider(node, "blas")
        if blas:
            files[f"{program}.{blas['name']}"] = prefix / path
    return {name: file for name, file in files.items() if file.exists()}


def without_mpi(graph: Graph, transports: dict[str, Transport]) -> dict[str, Transport]:
    """The transports without a network path of MPI: ``tcp`` (plain sockets) and ``none``.

    ``none`` (each node by itself) runs NPB EP under the first Open MPI of the stack; without an
    Open MPI it has no programs.
    """
    programs: dict[str, list[str]] = {}
    packages: dict[str, Package] = {}
    for node in graph.roots:
        if node["hash"] not in graph.prefixes:
            continue
        for name, path in SOCKETS.get(node["name"], {}).items():
            file = graph.prefix(node) / path
            if file.exists() and name not in programs:
                programs[name] = [str(file)]
                packages[name] = graph.package(node)
    tcp = WITHOUT_MPI["tcp"].model_copy(update={"programs": programs, "packages": packages})
    verbs = WITHOUT_MPI["verbs"].model_copy(update={"programs": programs, "packages": packages})
    none = WITHOUT_MPI["none"].model_copy(update={"env": {}})
    first = next((part for part in transports.values() if part.family == "openmpi"), None)
    if first:
        ep = {name: words for name, words in first.programs.items() if name.startswith("npb_ep")}
        none = none.model_copy(
            update={
                "programs": ep,
                "packages": {name: first.packages[name] for name in ep},
                "env": {**first.env, **WITHOUT_MPI["none"].env},
                "versions": first.versions,
            }
        )
    return {"tcp": tcp, "verbs": verbs, "none": none}


def blas_libraries(graph: Graph) -> dict[str, Blas]:
    """BLAS name -> the library with which the programs of that name are linked."""
    libraries: dict[str, Blas] = {}
    for node in graph.roots:
        blas = graph.provider(node, "blas")
        if node["name"] not in PER_BLAS or blas is None or blas["name"] in libraries:
            continue
        if "external" in blas or blas["hash"] in graph.prefixes:
            libraries[blas["name"]] = Blas(
                folder=str(graph.prefix(blas) / "lib"),
                version=blas["version"],
                package=f"{blas['name']}@{blas['version']}",
                hash=blas["hash"],
            )
    return dict(sorted(libraries.items()))


def versions(graph: Graph, facts: SpackFacts) -> dict[str, str]:
    """Name -> versions, of all roots and of their MPI, BLAS and compiler."""
    numbers: dict[str, set[str]] = {}
    for node in graph.roots:
        parts = [node, graph.provider(node, "mpi"), graph.provider(node, "blas")]
        parts.append(graph.dependency(node, "gcc"))
        for part in parts:
            if part is not None and part["name"] != "mpi-transport":
                numbers.setdefault(part["name"], set()).add(part["version"])
    listed = {name: ", ".join(sorted(each)) for name, each in sorted(numbers.items())}
    return {"spack": facts.version, "builtin": facts.builtin_version, **listed}


def origins(graph: Graph) -> dict[str, str]:
    """Benchmark -> the recipe of its program."""
    names = {"intel-mpi-benchmarks": "imb", "llcbench": "mpbench", "osu-micro-benchmarks": "osu"}
    return {
        names.get(node["name"], node["name"]): f"{node['name']} {node['version']}, recipe of "
        f"{node.get('namespace', 'builtin')}"
        for node in graph.roots
        if node["name"] != "mpi-transport"
    }
