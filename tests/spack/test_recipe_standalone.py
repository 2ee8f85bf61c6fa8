"""What the recipes' stand-alone tests share: launchers, which tables and rates pass, servers."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.spack

SCRIPT = """
import json, os, pathlib, sys
from spack_repo.seatrial import standalone

folder = pathlib.Path(sys.argv[1])
said = {}

def outcome(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except RuntimeError as error:
        return str(error)
    return "accepted"

text = "# size  MB/s\\n1  2.5\\n2  .5e1\\n4  x\\n8  3 4\\n0 -1\\n"
said["table"] = standalone.table(text, 2)
check = standalone.check_table
said["whole"] = outcome(check, [(1, 2.5), (2, 5.0)], [1, 2], "t")
said["short"] = outcome(check, [(1, 2.5)], [1, 2], "t")
said["zero"] = outcome(check, [(1, 0.0), (2, 5.0)], [1, 2], "t")
said["zero of a small size"] = outcome(check, [(1, 0.0), (2, 5.0)], [1, 2], "t", positive_from=2)
said["zero of a large size"] = outcome(check, [(1, 1.0), (2, 0.0)], [1, 2], "t", positive_from=2)
said["negative"] = outcome(check, [(1, -1.0), (2, 5.0)], [1, 2], "t", positive_from=2)
said["nan"] = outcome(check, [(1, float("nan"))], [1], "t")
said["rates"] = [outcome(standalone.check_rate, rate, "r", "b/s")
                 for rate in (1.0, 0.0, float("inf"), float("nan"))]

class Mpi(standalone.MpiTests):
    def __init__(self, name, prefix, **package):
        spec = type("Spec", (), {})()
        spec.name, spec.prefix, spec.package = name, str(prefix), type("P", (), package)()
        self.spec = {"mpi": spec}

def prefix(name, *programs):
    for program in programs:
        path = folder / name / "bin" / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\\necho started $0 $*\\n")
        path.chmod(0o755)
    return folder / name

os.environ["PATH"] = f"{prefix('stranger', 'mpirun')}/bin:/usr/bin:/bin"
root = os.geteuid() == 0
path, options = Mpi("openmpi", prefix("openmpi", "mpirun", "mpiexec")).mpi_launcher()
said["openmpi"] = [os.path.relpath(path, folder), ("--allow-run-as-root" in options) == root]
path, options = Mpi("mpich", prefix("mpich", "mpiexec")).mpi_launcher()
said["mpich"] = [os.path.relpath(path, folder), options]
home = prefix("oneapi/mpi/2021.19", "mpirun")
oneapi = Mpi("intel-oneapi-mpi", folder / "oneapi", component_prefix=str(home))
said["oneapi"] = os.path.relpath(oneapi.mpi_launcher()[0], folder)
cray = Mpi("cray-mpich", prefix("cray", "unrelated"))
os.environ["PATH"] = f"{folder}/stranger/bin"
said["none"] = outcome(cray.mpi_launcher)
os.environ["PATH"] = f"{prefix('slurm', 'srun')}/bin"
said["srun"] = os.path.relpath(cray.mpi_launcher()[0], folder)
os.environ["PATH"] = "/usr/bin:/bin"
(folder / "linked/bin").mkdir(parents=True)
(folder / "linked/bin/mpirun").symlink_to(folder / "mpich/bin/mpiexec")
said["linked"] = os.path.relpath(Mpi("mpich", folder / "linked").mpi_launcher()[0], folder)
said["run"] = Mpi("mpich", folder / "mpich").run_mpi(2, "/bin/prog", "-i", 3).split()[2:]
failing = prefix("failing", "mpirun")
(failing / "bin" / "mpirun").write_text("#!/bin/sh\\nexit 3\\n")
said["failing"] = outcome(Mpi("mpich", failing).run_mpi, 2, "prog")[-11:]

server = [sys.executable, "-c", '''
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listening:
    listening.accept()[0].sendall(b"hello")
    listening.accept()
''']
import socket
port = standalone.free_port()
with standalone.LoopbackTests().server(*server, port, port=port) as process:
    with socket.create_connection(("127.0.0.1", port)) as client:
        said["server"] = client.recv(5).decode()
said["ended"] = process.returncode is not None

def dead():
    words = [sys.executable, "-c", "raise SystemExit(4)"]
    with standalone.LoopbackTests().server(*words, port=standalone.free_port()):
        pass

said["dead server"] = outcome(dead)

pair = folder / "pair.py"
pair.write_text('''
import socket, sys
port = int(sys.argv[1])
if "-h" in sys.argv:
    with socket.create_connection((sys.argv[-1], port)) as server:
        print("client got", server.recv(9).decode())
else:
    import time
    time.sleep(0.5)
    with socket.create_server(("0.0.0.0", port)) as listening:
        listening.accept()[0].sendall(b"a message")
''')
said["pair"] = standalone.run_pair(sys.executable, pair, port, port=port).split("got ")[-1].strip()
print("RESULT" + json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(spack, tmp_path_factory):
    folder = tmp_path_factory.mktemp("standalone")
    script = folder / "script.py"
    script.write_text(SCRIPT)
    done = spack("python", str(script), str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    return json.loads(line.removeprefix("RESULT"))


def test_a_table_has_the_lines_of_numbers_only(said):
    assert said["table"] == [[1, 2.5], [2, 5.0], [0, -1]]


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        ("whole", "accepted"),
        ("short", "t: expected the sizes [1, 2], found [1]"),
        ("zero", "t: a figure that is not positive at 1 B: (1, 0.0)"),
        ("zero of a small size", "accepted"),
        ("zero of a large size", "t: a figure that is not positive at 2 B: (2, 0.0)"),
        ("negative", "t: a figure that is not positive at 1 B: (1, -1.0)"),
        ("nan", "t: a figure that is not positive at 1 B: (1, nan)"),
    ],
)
def test_only_whole_tables_of_positive_figures_pass(said, case, verdict):
    assert said[case] == verdict


def test_only_positive_finite_rates_pass(said):
    assert [verdict == "accepted" for verdict in said["rates"]] == [True, False, False, False]


def test_the_launcher_is_the_one_beside_the_mpi(said):
    assert said["openmpi"] == ["openmpi/bin/mpirun", True]
    assert said["mpich"] == ["mpich/bin/mpiexec", []]
    assert said["linked"] == "mpich/bin/mpiexec"  # where Hydra finds its proxy
    assert said["oneapi"] == "oneapi/mpi/2021.19/bin/mpirun"
    assert said["run"] == ["-n", "2", "/bin/prog", "-i", "3"]


def test_an_mpi_without_a_launcher_is_started_by_slurm_and_by_no_other_mpis(said):
    assert said["srun"] == "slurm/bin/srun"
    assert said["none"].endswith("/cray/bin, and no srun in PATH")


def test_a_failing_program_fails_the_test(said):
    assert said["failing"] == "exit code 3"


def test_a_server_is_there_for_its_block(said):
    assert said["server"] == "hello"
    assert said["ended"] is True


def test_a_server_that_ends_is_told_at_once(said):
    assert said["dead server"] == "the server ended with code 4"


def test_a_pair_waits_for_its_server(said):
    assert said["pair"] == "a message"
