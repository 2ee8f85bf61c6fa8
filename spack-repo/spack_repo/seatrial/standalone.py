"""What the recipes' stand-alone tests (``spack test run``) share: starting a program on the
MPI it was built with, a server on the loopback, and reading the figures that come out.

Not a package and not a build system: a recipe takes ``MpiTests`` or ``LoopbackTests`` as an
additional base class. The tests show that a build works and that its figures are of the right
kind; how good the figures are is for the checks to judge, on the cluster's network.
"""

import contextlib
import os
import re
import socket
import subprocess
import time
from pathlib import Path

from spack.package import Executable, join_path, which

#: Seconds after which a program that hangs is ended.
LIMIT = 300


class MpiTests:
    """Runs programs with the launcher of the MPI that the spec was built with."""

    def mpi_launcher(self):
        """Path and options of the launcher, for one node, whatever its number of cores.

        It is looked for beside the MPI's compilers, never along PATH: another MPI's launcher
        starts the ranks as so many worlds of one rank each, and each of them ends well. An MPI
        without a launcher (Cray's) is started by Slurm's.
        """
        mpi = self.spec["mpi"]
        home = getattr(mpi.package, "component_prefix", mpi.prefix)  # oneAPI's folders
        for name in ("mpirun", "mpiexec"):
            path = join_path(home, "bin", name)
            if os.access(path, os.X_OK):
                options = []
                if mpi.name == "openmpi":
                    options = ["--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"]
                    if os.geteuid() == 0:
                        options.append("--allow-run-as-root")
                # Through a link in a folder made for an external, Hydra misses the proxy that
                # it looks for beside itself.
                return os.path.realpath(path), options
        srun = which("srun")
        if srun is None:
            raise RuntimeError(f"no mpirun or mpiexec in {home}/bin, and no srun in PATH")
        return srun.path, ["--oversubscribe", "--overlap"]

    def run_mpi(self, ranks, program, *args, timeout=LIMIT, extra_env=None):
        """Run ``program`` on ``ranks`` ranks of this node and return its standard output.

        An exit code other than 0, or more than ``timeout`` seconds, fails the test.
        """
        path, options = self.mpi_launcher()
        arguments = [*options, "-n", str(ranks), str(program), *map(str, args)]
        return run(path, *arguments, timeout=timeout, extra_env=extra_env)


class LoopbackTests:
    """Runs a server and its client over 127.0.0.1."""

    @contextlib.contextmanager
    def server(self, *command, port, patience=20):
        """Have ``command`` listen on ``port`` while the block runs; end it afterwards."""
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
        try:
            wait_for_listener(process, port, patience)
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run(program, *args, timeout=LIMIT, extra_env=None):
    """Run ``program``, echo its standard output and return it.

    An exit code other than 0, or more than ``timeout`` seconds, raises.
    """
    exe = Executable(str(program))
    out = exe(
        *map(str, args),
        output=str.split,
        fail_on_error=False,
        timeout=timeout,
        extra_env=extra_env or {},
    )
    if exe.returncode != 0:
        raise RuntimeError(f"{program} {' '.join(map(str, args))}: exit code {exe.returncode}")
    return out


def free_port():
    """A TCP port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_listener(process, port, patience):
    """Return when some socket listens on ``port``, as the kernel's table says.

    The port is not tried by a connection: a server for one client would take that for it.
    """
    end = time.monotonic() + patience
    while not _listens(port):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with code {process.returncode}")
        if time.monotonic() > end:
            raise RuntimeError(f"nothing listened on port {port} within {patience} s")
        time.sleep(0.05)


def _listens(port):
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError), Path(table).open() as lines:
            next(lines)
            for line in lines:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    return True
    return False


def table(text, columns):
    """The lines of ``text`` that are ``columns`` numbers and nothing else, as tuples.

    The last column may not be missing: a program that ends within a line fails here or in
    ``check_table``.
    """
    number = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
    row = re.compile(rf"\s*{number}(?:\s+{number}){{{columns - 1}}}\s*")
    return [tuple(map(float, line.split())) for line in text.splitlines() if row.fullmatch(line)]


def check_table(rows, sizes, what, positive_from=0):
    """Fail unless the first column of ``rows`` is ``sizes`` and every other figure is > 0.

    Below ``positive_from`` bytes a figure may be 0: a rate of few digits, on a busy node.
    """
    found = [int(row[0]) for row in rows]
    if found != list(sizes):
        raise RuntimeError(f"{what}: expected the sizes {list(sizes)}, found {found}")
    for row in rows:
        zero = row[0] < positive_from
        if not all(0 < figure < float("inf") or (zero and figure == 0) for figure in row[1:]):
            raise RuntimeError(f"{what}: a figure that is not positive at {int(row[0])} B: {row}")


def check_rate(figure, what, unit):
    """Fail unless ``figure`` is a positive, finite rate."""
    if not 0 < figure < float("inf"):
        raise RuntimeError(f"{what}: expected a positive rate, found {figure} {unit}")


#: Starts "$@" as a server, waits until it listens on $port, and runs "$@" again as its client.
PAIR = """
port=$1 host=$2
shift 2
"$@" &
server=$!
trap 'kill $server 2> /dev/null' EXIT
left=200
until grep -q ":$(printf %04X "$port") 00000000:0000 0A" /proc/net/tcp; do
    left=$((left - 1))
    [ $left -gt 0 ] || { echo "nothing listened on port $port" >&2; exit 1; }
    sleep 0.1
done
"$@" -h "$host" && wait $server
"""


def run_pair(*command, port, timeout=120):
    """Run ``command`` as server and, with ``-h 127.0.0.1`` appended, as client.

    For a program that listens on every address and can't be told otherwise: both get a network
    of their own, nothing but a loopback, where the kernel lets this user make one.
    """
    words = [*private_network(), "sh", "-c", PAIR, "sh", port, "127.0.0.1", *command]
    return run(*words, timeout=timeout)


def private_network():
    """Words before a command that give it a network namespace with nothing but a loopback.

    Empty where this user may not make one (the kernel's user namespaces are off).
    """
    words = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c"]
    words += ['ip link set lo up && exec "$@"', "sh"]
    try:
        works = subprocess.run([*words, "true"], capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        works = False
    return words if works else []
