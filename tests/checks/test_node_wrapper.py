"""Node side: run.py and pair.py, as a job step starts them but without Slurm."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.base.paths import CHECKOUT
from seatrial.checks import counters

NODE = CHECKOUT / "src" / "seatrial" / "checks" / "node"
PYTHON = ["/usr/bin/python3", "-IS"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder of a job; no variable of a real job is around."""
    for name in list(os.environ):
        if name.startswith("SLURM_"):
            monkeypatch.delenv(name)
    return tmp_path


def run(folder, *command, options=(), env=None, script=NODE / "run.py", **others):
    argv = [*PYTHON, script, "step", "test=lo,mgmt=absent0", *options, "--", *command]
    environment = {**os.environ, **(env or {})}
    return subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
        check=False, **others,
    )  # fmt: skip


def noted(folder):
    (file,) = folder.glob("step.*.json")
    return json.loads(file.read_text())


def test_counters_of_a_program_that_sends(folder):
    script = (
        "import socket\n"
        "a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "a.bind(('127.0.0.1', 0))\n"
        "[a.sendto(bytes(1000), a.getsockname()) for _ in range(50)]\n"
    )
    done = run(folder, sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    data = noted(folder)
    assert data["step"] == "step"
    assert data["exit_code"] == 0
    assert list(data["before"]["interfaces"]) == ["lo"]  # a missing interface is left out
    before, after = (counters.parse(data[side]) for side in ("before", "after"))
    (lo,) = counters.diff([before], [after])
    assert lo.network == "test"
    assert lo.tx_bytes >= 50_000
    assert lo.rx_bytes >= 50_000
    assert data["after"]["interfaces"]["lo"]["mtu"] > 0
    for which in ("before", "after"):
        assert data[which]["softirqs"]["NET_RX"] >= 0
        assert data[which]["ticks_per_s"] > 0


@pytest.mark.parametrize(
    ("script", "code", "noted_code"),
    [("exit 0", 0, 0), ("exit 7", 7, 7), ("kill -SEGV $$", 139, -11), ("kill -KILL $$", 137, -9)],
)
def test_exit_codes_are_passed_on(folder, script, code, noted_code):
    done = run(folder, "/bin/sh", "-c", f"echo said; echo so >&2; {script}")
    assert done.returncode == code
    assert (done.stdout, done.stderr) == ("said\n", "so\n")
    assert noted(folder)["exit_code"] == noted_code


def test_a_missing_program(folder):
    done = run(folder, "/no/such/program")
    assert done.returncode == 127
    assert "/no/such/program: No such file" in done.stderr
    assert noted(folder)["exit_code"] == 127


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_program(folder, number):
    script = "trap 'echo caught; exit 9' TERM INT; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        [*PYTHON, NODE / "run.py", "step", "test=lo", "--", "/bin/sh", "-c", script],
        cwd=folder, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    said, _ = process.communicate(timeout=300)
    assert said == "caught\n"
    assert process.returncode == 9
    assert noted(folder)["exit_code"] == 9


def test_only_the_first_rank_of_a_node_records(folder):
    done = run(folder, "/bin/sh", "-c", "echo $PPID", env={"SLURM_LOCALID": "1"})
    assert done.returncode == 0
    assert done.stdout.strip() == str(os.getpid())  # it became the program
    assert list(folder.glob("step.*.json")) == []


def test_report_file_and_descriptor(folder):
    env = {"A_FILE": "{report_file}", "A_FD": "{report_fd}", "SLURM_PROCID": "3", "C": "{other}"}
    done = run(folder, "/bin/sh", "-c", 'echo one >&$A_FD; echo two >>"$A_FILE"; echo $C', env=env)
    assert done.stdout == "{other}\n"
    (file,) = folder.glob("step.*.3.report")
    assert file.read_text() == "one\ntwo\n"


def test_mapped_files(folder):
    libc = next(
        line.split()[-1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "libc.so" in line or "libc-" in line
    )
    done = run(folder, "/bin/sleep", "2", options=("--maps", "libc"))
    assert done.returncode == 0
    assert noted(folder)["mapped"] == [libc]


def test_the_wrapper_ends_with_the_program(folder):
    """With --maps the wrapper reads the maps for up to 4 s, here for ever, but ends with it."""
    text = (NODE / "run.py").read_text()
    assert "0.4, 1.0, 2.0, 4.0)" in text
    script = folder / "run.py"
    script.write_text(text.replace("0.4, 1.0, 2.0, 4.0)", "0.4, 1e6)"))
    for name in ("names.py", "wire.py"):
        shutil.copy(NODE / name, folder)
    done = run(folder, "/bin/sleep", "0.2", options=("--maps", "libc"), script=script)
    assert done.returncode == 0, done.stderr


def test_only_the_standard_library_without_site(folder):
    """A node has nothing installed, and starting must cost little."""
    for name in ("run.py", "names.py", "wire.py", "pair.py"):
        text = (NODE / name).read_text()
        result = [
            line.split()[1] for line in text.splitlines() if line.startswith(("import", "from"))
        ]
        assert set(result) <= {*sys.stdlib_module_names, "names", "wire"}
        assert not {"subprocess", "asyncio", "logging"} & set(result) or name == "pair.py"


@pytest.fixture
def wrapper(tmp_path, monkeypatch):
    """The wrapper as a module, with a /sys of its own."""
    spec = importlib.util.spec_from_file_location("wrapper", NODE / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "NET", str(tmp_path / "net"))
    return module


TABLE = [
    line.split()
    for line in """\
 24:        100         20   PCI-MSI 512-edge      virtio0-input.0
 25:          3          4   PCI-MSI 513-edge      mlx5_comp0@pci:0000:01:00.0
 26:          5          6   PCI-MSI 514-edge      eth2-TxRx-0
 27:          7          8   PCI-MSI 515-edge      eth2-TxRx-1
 28:          9         10   PCI-MSI 516-edge      eth22-TxRx-1
LOC:     999999     999999   Local timer interrupts""".splitlines()
]


def device(tmp_path, interface, path, lines=(), legacy=""):
    folder = tmp_path / "devices" / path
    folder.mkdir(parents=True)
    (tmp_path / "net" / interface).mkdir(parents=True)
    (tmp_path / "net" / interface / "device").symlink_to(folder)
    card = folder.parent if folder.name.startswith("virtio") else folder
    for line in lines:
        (card / "msi_irqs").mkdir(exist_ok=True)
        (card / "msi_irqs" / line).touch()
    if legacy:
        (card / "irq").write_text(legacy + "\n")


def test_interrupts_of_an_interface(wrapper, tmp_path):
    device(tmp_path, "eth1", "pci0/0000:01:00.0", ["25"])  # named after the card
    device(tmp_path, "eth0", "pci0/0000:00:03.0/virtio0", ["24"])
    device(tmp_path, "eth3", "pci0/0000:02:00.0", legacy="25")
    device(tmp_path, "eth4", "pci0/0000:03:00.0", legacy="0")
    assert wrapper.interrupts("eth2", TABLE) is None  # lines of a card of that name elsewhere
    device(tmp_path, "eth2", "pci0/0000:04:00.0")
    result = {name: wrapper.interrupts(name, TABLE) for name in ("eth0", "eth1", "eth2", "eth3")}
    assert result == {"eth0": 120, "eth1": 7, "eth2": 26, "eth3": 7}
    assert wrapper.interrupts("eth4", TABLE) is None
    assert wrapper.interrupts("veth7", TABLE) is None  # no device: none is not zero


def test_nodes_that_share_a_kernel_have_the_interrupts_of_their_own_cards(wrapper, tmp_path):
    device(tmp_path, "eth2", "pci0/0000:05:00.0", ["26"])  # line 27 is of a card of that name
    assert wrapper.interrupts("eth2", TABLE) == 11


def test_a_bond_has_the_interrupts_of_its_members(wrapper, tmp_path):
    device(tmp_path, "eth1", "pci0/0000:01:00.0", ["25"])
    device(tmp_path, "eth0", "pci0/0000:00:03.0/virtio0", ["24"])
    for name, members in (("bond0", "eth1 eth0\n"), ("bond1", "eth1 veth7\n")):
        folder = Path(wrapper.NET) / name / "bonding"
        folder.mkdir(parents=True)
        (folder / "slaves").write_text(members)
    assert wrapper.interrupts("bond0", TABLE) == 127
    assert wrapper.interrupts("bond1", TABLE) is None


# -- NIC profiles

EVIDENCE = """
def collect(declared, hostname, job=None):
    with open("looks", "a") as stream:
        stream.write("x")
    if declared.get("broken"):
        raise ValueError("no such interface")
    return {"ok": True, "reason": "", "asked": [declared["profile"], declared["state_folder"], job],
            "interfaces": {}}
"""


@pytest.fixture
def package(tmp_path_factory):
    """A substitute for the node side of NIC profiles, in another folder."""
    folder = tmp_path_factory.mktemp("libexec") / "node_side"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "evidence.py").write_text(EVIDENCE)
    return folder


def looked(folder, package, when, declared=None, env=None):
    wanted = declared or {"profile": "jumbo", "state_folder": "/var/lib/x"}
    (folder / "nic.json").write_text(json.dumps(wanted))
    done = run(folder, "/bin/true", options=("--nic", "nic.json", package, when), env=env)
    assert done.returncode == 0, done.stderr
    return {file.name.split(".")[0]: json.loads(file.read_text())
            for file in folder.glob("nic-*.json")}  # fmt: skip


@pytest.mark.parametrize(
    ("when", "names"),
    [("before", {"nic-before"}), ("after", {"nic-after"}), ("both", {"nic-before", "nic-after"})],
)
def test_verifies_the_settings(folder, package, when, names):
    result = looked(folder, package, when, env={"SLURM_JOB_ID": "7"})
    assert set(result) == names
    for name, note in result.items():
        assert note["ok"] is True
        assert note["asked"] == ["jumbo", "/var/lib/x", "7"]
        assert note["when"] == name.removeprefix("nic-")
        assert 0 < note["seconds"] < 10
        assert note["node"] == socket.gethostname().split(".")[0]
    assert noted(folder)["exit_code"] == 0


def test_a_node_has_the_name_of_slurm_in_all_its_records(folder, package):
    """NodeName differs from the host name; several slurmd of a host have records of their own."""
    for name in ("x7", "x8.cluster"):
        looked(folder, package, "both", env={"SLURMD_NODENAME": name, "SLURM_PROCID": "0"})
    files = {file.name for file in folder.glob("*.x?.json")}
    kinds = ("nic-before", "nic-after", "step")
    assert files == {f"{kind}.{node}.json" for kind in kinds for node in ("x7", "x8")}
    record = json.loads((folder / "step.x8.json").read_text())
    assert record["before"]["node"] == record["after"]["node"] == "x8"
    assert json.loads((folder / "nic-after.x8.json").read_text())["node"] == "x8"


def test_the_first_record_before_and_the_last_after_are_kept(folder, package):
    first = looked(folder, package, "both")
    second = looked(folder, package, "both")
    assert second["nic-before"] == first["nic-before"]
    assert second["nic-after"]["seconds"] != first["nic-after"]["seconds"]
    assert (folder / "looks").read_text() == "xxx"


def test_a_failed_verification_is_recorded_and_does_not_end_the_benchmark(folder, package):
    declared = {"profile": "jumbo", "state_folder": "", "broken": True}
    result = looked(folder, package, "before", declared)
    assert result["nic-before"]["ok"] is False
    assert "cannot be read: ValueError: no such interface" in result["nic-before"]["reason"]


def test_a_missing_node_side(folder, tmp_path):
    result = looked(folder, tmp_path / "nowhere", "after")
    assert result["nic-after"]["ok"] is False
    assert "ModuleNotFoundError" in result["nic-after"]["reason"]


def test_real_node_side_of_profiles(folder):
    """Imported from the checkout by a Python without its packages."""
    node = socket.gethostname().split(".")[0]
    declared = {"profile": "default", "state_folder": str(folder / "state"), "node": {},
                "nodes": {node: {}}, "if_supported": [], "tests": {node: ["lo"]}}  # fmt: skip
    package = CHECKOUT / "src" / "seatrial" / "nic" / "node"
    note = looked(folder, package, "before", declared)["nic-before"]
    assert (note["ok"], note["reason"]) == (True, "")
    assert note["interfaces"]["lo"]["state"]["mtu"] > 0


# -- pair.py


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


SERVER = (
    "import socket, sys, time\n"
    "time.sleep(float(sys.argv[2]))\n"
    "s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
    "s.bind(('127.0.0.1', int(sys.argv[1]))); s.listen()\n"
    "c, _ = s.accept(); print('got', c.recv(9)); sys.stdout.flush()\n"
    "time.sleep(float(sys.argv[3]))\n"
)
CLIENT = (
    "import socket, sys\n"
    "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
    "s.send(b'x')\n"
    "print('sent')\n"
)


def pair(folder, server, client, port, times=()):
    """Start both ranks; returns the two processes: server's, client's."""
    text = (NODE / "pair.py").read_text()
    for name, seconds in times:
        assert f"\n{name} = " in text
        text = text.replace(f"\n{name} = ", f"\n{name} = {seconds} or ")
    script = folder / "pair.py"
    script.write_text(text)
    shutil.copy(NODE / "names.py", folder)
    argv = [*PYTHON, script, "step", "lo", str(port), *server, "--", *client]
    return [
        subprocess.Popen(
            argv, cwd=folder, env={**os.environ, "SLURM_PROCID": rank}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in ("0", "1")
    ]  # fmt: skip


def ended(process):
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def python(code, *words):
    return [sys.executable, "-c", code, *(str(word) for word in words)]


def test_client_waits_for_a_slow_server(folder):
    port = free_port()
    server, client = pair(
        folder, python(SERVER, port, 0.7, 0), python(CLIENT, "{address}", port), port
    )
    assert ended(client) == (0, "sent\n", "")
    assert ended(server) == (0, "", "")
    assert (folder / "step.server").read_text() == "got b'x'\n"  # not in the client's table
    assert (folder / "step.address").read_text() == "127.0.0.1"


def test_a_server_that_never_listens(folder):
    times = [("START_S", 0.5)]
    port = free_port()
    server, client = pair(folder, ["/bin/sleep", "60"], ["/bin/true"], port, times)
    code, _, err = ended(server)
    assert code == 1
    assert "the server's port did not come within" in err
    code, _, err = ended(client)
    assert code == 1
    assert "the server's address" in err


def test_a_server_that_ends_at_once(folder):
    """Its exit code is passed on, and the client ends soon."""
    port = free_port()
    server, client = pair(
        folder, ["/bin/sh", "-c", "exit 5"], python(CLIENT, "{address}", port), port
    )
    assert ended(server)[0] == 5
    code, _, err = ended(client)
    assert code != 0
    assert err


def test_a_server_that_does_not_end_is_ended(folder):
    port = free_port()
    server, client = pair(
        folder, python(SERVER, port, 0, 300), python(CLIENT, "{address}", port), port,
        [("END_S", 0.3)],
    )  # fmt: skip
    assert ended(client)[0] == 0
    assert ended(server)[0] == 0


def test_a_client_that_fails(folder):
    port = free_port()
    server, client = pair(
        folder, python(SERVER, port, 0, 0), ["/bin/sh", "-c", "exit 6"], port, [("END_S", 0.3)]
    )
    assert ended(client)[0] == 6
    assert ended(server)[0] == 0  # ended without a connection


BURN = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"


def test_processor_time_of_the_step_and_of_no_other(folder):
    """It includes the program, its children and the node's other ranks."""
    wait = "import os, time\nwhile not os.path.exists({!r}): time.sleep(0.01)\n"
    beside = wait.format("begun") + BURN + "open('done', 'w')\n"
    program = (
        f"import subprocess, sys\nopen('begun', 'w')\n"
        f"subprocess.run([sys.executable, '-c', {BURN!r}], check=True)\n{wait.format('done')}"
    )
    wrapper = [*PYTHON, str(NODE / "run.py"), "step", "test=lo", "--"]
    # A shell instead of slurmstepd, with another rank beside the first.
    step = 'python3 -c "$0" & "$@" & wait'
    other = subprocess.Popen([sys.executable, "-c", BURN.replace("0.3", "5")])
    try:
        command = ["/bin/sh", "-c", step, beside, *wrapper, sys.executable, "-c", program]
        subprocess.run(command, cwd=folder, timeout=600, check=True)
    finally:
        other.kill()
        other.wait()
    data = noted(folder)
    assert 0.55 < data["after"]["used_s"] - data["before"]["used_s"] < 3  # ticks of 10 ms are cut
    assert data["after"]["cpus"] == os.cpu_count()


# Two programs on one processor for a second: each waits while the other computes.
CROWDED = (
    "import os, time\nos.sched_setaffinity(0, [0])\nos.fork()\nend = time.monotonic() + 1\n"
    "while time.monotonic() < end: pass\n"
)


def test_how_long_the_program_waited_for_a_processor(folder):
    run(folder, sys.executable, "-c", CROWDED)
    assert 0.3 < noted(folder)["waited_s"] < 30


def test_how_long_a_pair_waited_for_a_processor(folder):
    """The wrapper adds the waits that pair.py wrote for the client and the server."""
    port = free_port()
    server, client = pair(
        folder, python(SERVER, port, 0, 0), python(CLIENT + CROWDED, "{address}", port), port
    )
    assert (ended(client)[0], ended(server)[0]) == (0, 0)
    assert 0.3e9 < int((folder / "step.1.waited").read_text()) < 30e9
    assert int((folder / "step.0.waited").read_text()) >= 0
    run(folder, "/bin/true", env={"SLURM_PROCID": "1"})
    assert noted(folder)["waited_s"] > 0.3


# -- facts for physical limits


@pytest.mark.parametrize(
    ("driver", "clock"), [("intel_pstate", 3_500_000), ("acpi-cpufreq", None), ("", None)]
)
def test_clock_with_turbo(wrapper, tmp_path, monkeypatch, driver, clock):
    monkeypatch.setattr(wrapper, "CPUFREQ", str(tmp_path))
    if driver:
        (tmp_path / "scaling_driver").write_text(driver + "\n")
    (tmp_path / "cpuinfo_max_freq").write_text("3500000\n")
    processor = wrapper.processor()
    assert processor["max_kHz"] == clock
    assert set(processor["flags"]) <= set(wrapper.FLAGS)


def test_a_record_has_the_facts_for_limits(folder):
    run(folder, "/bin/true")
    data = noted(folder)
    assert data["after"]["interfaces"]["lo"]["link"] == "up"
    assert "speed_Mbit_s" not in data["after"]["interfaces"]["lo"]
    assert "flags" in data["processor"]
