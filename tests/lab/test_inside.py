"""What a job and a login find inside a running lab."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab_support import SESSION, job_state, wait_for

from seatrial.base.errors import LabError
from seatrial_lab.common import access
from seatrial_lab.native import slowdown
from seatrial_lab.native.engine import Lab
from seatrial_lab.native.status import status

pytestmark = [pytest.mark.root, pytest.mark.slurm]


def test_second_up_changes_nothing(lab: Lab) -> None:
    before = [host["first_process"] for host in status(SESSION)["hosts"]]
    assert lab.up() is False
    assert [host["first_process"] for host in status(SESSION)["hosts"]] == before


def test_status_tells_all(lab: Lab) -> None:
    found = status(SESSION)
    assert found["state"] == "up"
    login, n1 = found["hosts"][:2]
    assert set(login["daemons"]) == {"munged", "mariadbd", "slurmdbd", "slurmctld"}
    assert set(n1["daemons"]) == {"munged", "slurmd"}
    assert n1["slurm_state"] == "idle"
    assert "slurm" in found["versions"]["slurm"]


def test_jobs_run_as_the_user_on_nodes_with_own_names(lab: Lab) -> None:
    out = lab.run(["srun", "-N4", "sh", "-c", "hostname; id -un; id -u"], check=True, timeout=600)
    words = sorted(out.stdout.split())
    assert words == sorted(["n1", "n2", "n3", "n4"] + 4 * ["sailor", "2000"])


def test_features_and_licenses_reach_slurm(lab: Lab) -> None:
    out = lab.run(["srun", "-C", "fast", "hostname"], check=True, timeout=600)
    assert out.stdout == "n1\n"
    assert "cores" in lab.run(["scontrol", "show", "licenses"]).stdout


def test_nodes_share_no_memory_and_no_scratch(lab: Lab) -> None:
    for folder in ("/dev/shm", "/tmp", "/var/tmp"):
        lab.run(["sh", "-c", f"echo x >{folder}/mine"], node="n1", check=True)
        assert lab.run(["test", "-e", f"{folder}/mine"], node="n2").returncode == 1
        assert not Path(folder, "mine").exists()
    kinds: dict[str, set[str]] = {}
    for node in ("login", "n1", "n2"):
        for kind in ("ipc", "uts", "pid", "net", "mnt"):
            link = lab.run(["readlink", f"/proc/self/ns/{kind}"], node=node, check=True).stdout
            kinds.setdefault(kind, set()).add(link)
    assert {kind: len(links) for kind, links in kinds.items()} == dict.fromkeys(kinds, 3)


def _sent(lab: Lab, node: str, interface: str) -> int:
    path = f"/sys/class/net/{interface}/statistics/tx_bytes"
    return int(lab.run(["cat", path], node=node, check=True).stdout)


@pytest.mark.parametrize(
    ("name", "used", "idle"), [("n2", "eth0", "eth1"), ("n2-test", "eth1", "eth0")]
)
def test_each_network_has_its_interface(lab: Lab, name: str, used: str, idle: str) -> None:
    before = {i: _sent(lab, "n1", i) for i in (used, idle)}
    script = (
        "import socket,sys; s=socket.create_server(('', 5999)); print('ready', flush=True)\n"
        "c,_=s.accept(); n=0\n"
        "while d:=c.recv(1<<16): n+=len(d)\n"
        "print(n)"
    )
    server = lab.popen([sys.executable, "-c", script], node="n2", stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    server.stdout.readline()
    client = f"import socket; s=socket.create_connection(('{name}', 5999)); s.sendall(bytes(10**6))"
    lab.run([sys.executable, "-c", client], node="n1", check=True, timeout=600)
    assert server.communicate(timeout=600)[0].strip() == str(10**6)
    assert _sent(lab, "n1", used) - before[used] > 10**6
    assert _sent(lab, "n1", idle) - before[idle] < 10**5


def test_the_machines_interfaces_are_out_of_reach(lab: Lab) -> None:
    names = lab.run(["ls", "/sys/class/net"], node="n1", check=True).stdout.split()
    assert sorted(names) == ["eth0", "eth1", "lo"]
    assert lab.run(["ls", "/sys/class/net"], check=True).stdout.split() == ["eth0", "lo"]


def test_sacct_sees_a_finished_job(lab: Lab) -> None:
    out = lab.run(["sbatch", "--parsable", "--wrap", "hostname"], check=True, timeout=600)
    job = out.stdout.strip()

    def known() -> bool:
        answer = lab.run(["sacct", "-X", "-n", "-P", "-j", job, "-o", "State"])
        return answer.stdout.strip() == "COMPLETED"

    wait_for(known, 15, "sacct says COMPLETED")
    assert (lab.paths.home / f"slurm-{job}.out").read_text().startswith("n")


def test_licenses_serialise_measurements(lab: Lab) -> None:
    cores = re.search(r"Total=(\d+)", lab.run(["scontrol", "show", "licenses"]).stdout)
    assert cores
    srun = ["srun", "-L", f"cores:{cores[1]}"]
    script = "date +%s.%N; sleep .6; date +%s.%N"
    both = [
        lab.popen([*srun, "sh", "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    spans = sorted([float(x) for x in p.communicate(timeout=600)[0].split()] for p in both)
    assert spans[0][1] <= spans[1][0]


def test_pmix_starts_a_parallel_job(lab: Lab) -> None:
    out = lab.run(["srun", "--mpi=pmix", "-N2", "-n2", "printenv", "PMIX_RANK"], timeout=600)
    assert sorted(out.stdout.split()) == ["0", "1"], out.stderr


def test_modules_work_in_jobs_and_login_shells(lab: Lab) -> None:
    for command in (["bash", "-c"], ["bash", "-lc"], ["srun", "-N1", "bash", "-c"]):
        out = lab.run([*command, "type -t module; echo $MODULEPATH"], check=True, timeout=600)
        assert out.stdout.startswith("function\n"), command
        assert "/usr/share/lmod" in out.stdout


def test_run_passes_input_environment_folder_and_code(lab: Lab) -> None:
    out = lab.run(
        ["sh", "-c", "cat; pwd; echo $X; exit 7"], stdin="in\n", cwd="/usr", env={"X": "y"}
    )
    assert (out.returncode, out.stdout) == (7, "in\n/usr\ny\n")
    with pytest.raises(LabError, match="exit code 3"):
        lab.run(["sh", "-c", "exit 3"], check=True)


def test_a_timeout_leaves_nothing_running(lab: Lab) -> None:
    begun = time.monotonic()
    with pytest.raises(LabError, match="not done after"):
        lab.run(["sh", "-c", "sleep 333; true"], timeout=0.3)
    assert time.monotonic() - begun < 300
    assert lab.run(["pgrep", "-f", "^sleep 333"]).returncode == 1


def test_shell_is_transparent(lab: Lab) -> None:
    code = f"""
from seatrial_lab.native.engine import Lab
Lab.attach({SESSION!r}).exec(["sh", "-c", "cat; id -un; hostname; exit 9"], node="n3")
"""
    out = subprocess.run(
        [sys.executable, "-c", code], input="hello\n", capture_output=True, text=True, check=False
    )
    assert (out.returncode, out.stdout) == (9, "hello\nsailor\nn3\n")


def test_the_user_reads_the_checkout_and_cannot_write_it(lab: Lab) -> None:
    checkout = lab.spec.checkout
    assert lab.run(["cat", f"{checkout}/pyproject.toml"], node="n1", check=True).stdout
    assert lab.run(["touch", f"{checkout}/x"], node="n1").returncode == 1


def test_a_job_can_be_cancelled(lab: Lab) -> None:
    job = lab.run(["sbatch", "--parsable", "--wrap", "sleep 60"], check=True).stdout.strip()
    wait_for(lambda: job_state(lab, job) == "RUNNING", 10, "job runs")
    lab.run(["scancel", job], check=True)
    wait_for(lambda: job_state(lab, job) == "CANCELLED", 10, "job cancelled")


def test_other_settings_are_refused_while_it_is_up(lab: Lab) -> None:
    with pytest.raises(LabError, match=r"other settings \(cpus\): seatrial lab down --"):
        Lab(dataclasses.replace(lab.spec, cpus=4)).up()
    with pytest.raises(LabError, match=r"is up for the checkout .*first seatrial lab down in that"):
        Lab(dataclasses.replace(lab.spec, checkout=Path("/elsewhere"), modulepath=("/m",))).up()


def test_jobs_run_before_the_machines_other_work(lab: Lab) -> None:
    """Where the kernel can weigh groups of processes, a job's are in one of the highest weight."""
    with slowdown.controller() as controller:
        if controller is None:
            first = access.first_process(lab.spec, "n1")
            assert first is not None
            assert slowdown.prioritise(SESSION, "n1", first) is False
            return
        version, root = controller.version, controller.place
    out = lab.run(["srun", "-w", "n1", "cat", "/proc/self/cgroup"], check=True, timeout=600).stdout
    group = lab.paths.netns("n1")
    assert f"/{group}\n" in out
    name, value = ("cpu.shares", "262144") if version == "v1" else ("cpu.weight", "10000")
    assert (root / group / name).read_text().strip() == value
