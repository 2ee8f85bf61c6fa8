"""``seatrial nic`` as an operator types it, on a real lab: tables, exit codes, sentences."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from labs import own_name, running
from seatrial.base.paths import CHECKOUT
from seatrial.cli import main
from seatrial_lab.common.slurm_files import lab_layout
from seatrial_lab.native.engine import Lab
from seatrial_lab.native.site import spec_for_site

pytestmark = [pytest.mark.root, pytest.mark.slurm]


class Said(NamedTuple):
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str


Nic = Callable[..., Said]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """The lab of the site 'lab'. Its nodes do not check their health by themselves: the tests do
    by hand to their interfaces what would drain them."""
    spec = spec_for_site("lab", own_name("nic"))
    seconds = lab_layout(spec.instance).health_interval_s
    files = {
        path: text.replace(f"HealthCheckInterval={seconds}", "HealthCheckInterval=0")
        for path, text in spec.files.items()
    }
    with running(dataclasses.replace(spec, accounting=False, files=files)) as shared:
        yield shared


@pytest.fixture
def nic(lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Nic:
    """``nic(*words, node="n1")``: what the command line answers; node "" is this machine."""

    def run(*words: str, node: str = "n1") -> Said:
        where = ["--node", node, "--instance", lab.spec.instance] if node else []
        monkeypatch.setattr("sys.argv", ["seatrial", "nic", *words, *where])
        with pytest.raises(SystemExit) as ended:
            main()
        return Said(int(ended.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def clean(lab: Lab, nic: Nic) -> Iterator[None]:
    """Every node as it boots and idle, also after a test that failed."""
    yield
    lab.run(["scancel", f"--user={lab.spec.user}"], user="root")
    for node in lab.spec.nodes:
        nic("restore", "--force", node=node)
        nic("recover", node=node)
        if lab.node_states()[node] != "idle":
            lab.run(["scontrol", "update", f"nodename={node}", "state=resume"], user="root")


def root(lab: Lab, node: str, script: str) -> str:
    """What a script of the node's root prints."""
    return lab.run(["sh", "-euc", script], user="root", node=node, check=True).stdout


def settings(nic: Nic, node: str) -> dict[str, Any]:
    return json.loads(nic("show", "--json", node=node).out)["interfaces"]


def rows(text: str) -> dict[str, list[str]]:
    """Words of each line of a table, by the first."""
    return {line.split()[0]: re.split(r"  +", line)[1:] for line in text.splitlines() if line}


def until(what: str, test: Callable[[], Any], seconds: float = 200) -> None:
    deadline = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < deadline, f"not yet {what}"
        time.sleep(0.05)


# -- looking


def test_the_program_itself_shows_a_node(lab: Lab) -> None:
    words = ["nic", "show", "--node", "n1", "--instance", lab.spec.instance]
    answer = subprocess.run([CHECKOUT / "seatrial", *words], capture_output=True, text=True)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("node n1, NIC profile in force: none\n")


def test_what_a_driver_lacks_is_not_0(nic: Nic) -> None:
    table = rows(nic("show").out)
    assert table["setting"] == ["eth1", "tap0"]
    assert table["coalesce.rx-frames"] == ["unsupported", "0"]
    assert table["egress_bit_s"] == ["no limit", "no limit"]
    assert table["mtu"] == ["1500", "1500"]
    state = json.loads(nic("show", "--json").out)
    assert (state["node"], state["in_force"]) == ("n1", None)
    eth1, tap0 = (state["interfaces"][name] for name in ("eth1", "tap0"))
    assert (eth1.get("coalesce.rx-frames"), tap0["coalesce.rx-frames"]) == (None, 0)
    assert (eth1["channels.combined"], tap0["channels.combined"]) == (None, 0)


def test_settings_that_nobody_has_are_shown_when_asked_for(nic: Nic) -> None:
    short, everything = nic("show"), nic("show", "--all")
    assert "--all shows them" in short.out
    assert "feature.tls-hw-rx-offload" not in short.out
    assert "feature.tls-hw-rx-offload" in everything.out


def test_one_interface_also_one_that_is_not_under_test_can_be_looked_at(nic: Nic) -> None:
    answer = nic("show", "-I", "eth0")
    assert (answer.code, rows(answer.out)["setting"]) == (0, ["eth0"])
    answer = nic("show", "-I", "eth7")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "seatrial-nic: there is no interface eth7\n"


def test_diff_ends_with_1_where_a_profile_would_change_something(nic: Nic) -> None:
    answer = nic("diff", "-p", "bulk")
    assert answer.code == 1
    assert [line.split() for line in answer.out.splitlines()] == [
        ["interface", "setting", "here", "profile"],
        ["eth1", "mtu", "1500", "9000"],
        ["eth1", "txqueuelen", "1000", "10000"],
        ["tap0", "coalesce.rx-frames", "0", "64"],
        ["tap0", "txqueuelen", "1000", "10000"],
    ]
    answer = nic("diff", "-p", "jumbo", "--json")
    assert answer.code == 1
    wanted = [{"setting": "mtu", "actual": 1500, "wanted": 9000}]
    assert json.loads(answer.out) == {"eth1": wanted, "node": []}
    answer = nic("diff", "-p", "default")
    assert (answer.code, answer.out) == (
        0,
        "default sets nothing: verify compares with the state at boot\n",
    )


# -- what must not be


@pytest.mark.parametrize("verb", ["diff", "apply", "verify"])
def test_an_unknown_profile_is_answered_with_the_known_ones(nic: Nic, verb: str) -> None:
    answer = nic(verb, "-p", "jumbu")
    assert (answer.code, answer.out) == (3, "")
    known = "bulk, default, gigabit, jumbo, multi-queue, no-offload"
    assert answer.err == f"seatrial-nic: there is no NIC profile 'jumbu'; known: {known}\n"


def test_a_missing_profile_is_a_wrong_command_line(nic: Nic) -> None:
    answer = nic("apply")
    assert answer.code == 3
    assert "--profile" in answer.err


@pytest.mark.parametrize(
    ("interface", "sentence"),
    [
        ("eth0", "eth0 is not under test at this site (it carries its management)"),
        ("lo", "lo is not under test on n1; under test: eth1, tap0"),
    ],
)
@pytest.mark.parametrize("option", [[], ["--dry-run"]])
def test_other_interfaces_are_refused(
    lab: Lab, nic: Nic, clean: None, interface: str, sentence: str, option: list[str]
) -> None:
    look = f"cat /sys/class/net/{interface}/mtu"
    before = root(lab, "n1", look)
    answer = nic("apply", "-p", "jumbo", "-I", interface, *option)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"seatrial-nic: {sentence}\n"
    assert root(lab, "n1", look) == before


def test_a_refusal_by_hand_does_not_drain_the_node(lab: Lab, nic: Nic, clean: None) -> None:
    assert nic("apply", "-p", "jumbo", "-I", "lo", node="n4").code == 2
    root(lab, "n4", f"{lab_layout(lab.spec.instance).libexec}/health")
    assert lab.node_states()["n4"] == "idle"


def test_this_machine_is_no_node_of_the_site(nic: Nic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "desk")
    answer = nic("show", "--site", "lab", node="")
    assert (answer.code, answer.out) == (3, "")
    sentence = " ".join(answer.err.split())
    assert "this machine (desk) is no node of site lab (nodes: n1, n2, n3, n4)" in sentence
    assert "--node" in sentence


def test_no_such_node_and_no_such_lab(
    nic: Nic, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    answer = nic("show", node="n9")
    assert answer.code == 4
    assert "no node 'n9': login, n1, n2, n3, n4" in answer.err
    answer = nic("show", "--node", "n1", "--instance", "tn_none", node="")
    assert (answer.code, answer.out) == (4, "")
    assert "the lab 'tn_none' is not up; start it with: seatrial lab up --instance" in answer.err


# -- changing


@pytest.mark.parametrize("profile", ["bulk", "multi-queue", "no-offload", "gigabit"])
def test_a_dry_run_prints_exactly_what_is_done(
    lab: Lab, nic: Nic, clean: None, profile: str
) -> None:
    """Typed on one node, its lines do what `apply` does on another, and back."""
    before = settings(nic, "n1")
    assert settings(nic, "n2") == before
    dry = nic("apply", "-p", profile, "--dry-run", node="n2")
    assert (dry.code, dry.err) == (0, "")
    assert settings(nic, "n2") == before
    root(lab, "n2", dry.out)
    assert nic("diff", "-p", profile, node="n2").code == 0

    assert nic("apply", "-p", profile).code == 0
    applied = settings(nic, "n1")
    assert applied == settings(nic, "n2") != before

    back = nic("restore", "--dry-run")
    assert (back.code, settings(nic, "n1")) == (0, applied)
    root(lab, "n2", back.out)
    assert settings(nic, "n2") == before
    assert nic("restore").code == 0
    assert settings(nic, "n1") == before


def test_a_dry_run_of_nothing_says_so(nic: Nic) -> None:
    answer = nic("apply", "-p", "default", "--dry-run")
    assert answer == (0, "# nothing to do: default is as this node is\n", "")


def test_applied_verified_changed_by_somebody_restored(lab: Lab, nic: Nic, clean: None) -> None:
    answer = nic("verify")
    assert (answer.code, answer.out) == (0, "NIC profile default: as the profile has it\n")
    answer = nic("apply", "-p", "jumbo")
    assert answer.code == 0
    assert answer.out.startswith(
        "NIC profile jumbo is in force until: seatrial nic restore --node n1 --instance "
    )
    shown = nic("show").out
    assert shown.startswith("node n1, NIC profile in force: jumbo, for root (by hand)\n")
    assert rows(shown)["mtu"] == ["9000", "1500"]
    assert json.loads(nic("show", "--json").out)["in_force"]["profile"] == "jumbo"
    assert nic("verify").out == "NIC profile jumbo: as the profile has it\n"
    assert nic("verify", "-p", "default").code == 1

    root(lab, "n1", "ip link set eth1 mtu 1400")
    answer = nic("verify")
    assert (answer.code, answer.out) == (1, "NIC profile jumbo: eth1 mtu is 1400, not 9000\n")
    found = json.loads(nic("verify", "--json").out)
    assert not found["ok"]
    assert found["interfaces"]["eth1"]["differences"] == [
        {"setting": "mtu", "wanted": 9000, "actual": 1400}
    ]
    assert "1400" in nic("diff", "-p", "jumbo").out

    answer = nic("restore")
    assert (answer.code, answer.out) == (0, "NIC profile jumbo of root (by hand) was undone\n")
    assert settings(nic, "n1")["eth1"]["mtu"] == 1500
    answer = nic("restore")
    assert (answer.code, answer.out) == (0, "no NIC profile is in force\n")


def test_only_the_named_interface_is_changed(nic: Nic, clean: None) -> None:
    assert nic("apply", "-p", "bulk", "-I", "tap0").code == 0
    found = settings(nic, "n1")
    assert (found["eth1"]["txqueuelen"], found["tap0"]["txqueuelen"]) == (1000, 10000)
    answer = nic("verify")
    text = "NIC profile bulk: as the profile has it, on tap0: it was applied there only\n"
    assert (answer.code, answer.out) == (0, text)
    answer = nic("verify", "-p", "bulk")
    assert (answer.code, "eth1 mtu is 1500, not 9000" in answer.out) == (1, True)


def test_what_nobody_owns_is_refused_until_accepted(lab: Lab, nic: Nic, clean: None) -> None:
    def set_by_hand(length: int) -> None:
        root(lab, "n3", f"ip link set eth1 txqueuelen {length}")

    set_by_hand(500)
    found = "eth1: txqueuelen is 500, was 1000 at boot"
    answer = nic("verify", node="n3")
    assert answer.code == 1
    assert "eth1 txqueuelen is 500, was 1000 at boot, and no profile owns that" in answer.out
    answer = nic("apply", "-p", "jumbo", node="n3")
    assert answer.code == 2
    assert found in answer.err
    answer = nic("recover", node="n3")
    assert answer.code == 4
    assert f"{found}; restore them, or accept them with seatrial-nic accept" in answer.err

    answer = nic("accept", node="n3")
    assert (answer.code, answer.out) == (
        0, "the present state is recorded as the node's own\n",
    )  # fmt: skip
    for verb in ("verify", "recover"):
        assert nic(verb, node="n3").code == 0
    set_by_hand(1000)
    assert nic("accept", node="n3").code == 0


def test_a_profile_is_not_accepted_as_the_nodes_own(nic: Nic, clean: None) -> None:
    assert nic("apply", "-p", "jumbo").code == 0
    answer = nic("accept")
    assert answer.code == 2
    assert "a NIC profile is in force" in answer.err
    answer = nic("recover")
    assert (answer.code, answer.out) == (
        0, "NIC profile jumbo is in force for root (by hand)\n",
    )  # fmt: skip


# -- and jobs


def test_applied_by_hand_it_keeps_jobs_away_and_says_why(lab: Lab, nic: Nic, clean: None) -> None:
    def reason() -> str:
        return lab.run(["sinfo", "-h", "-n", "n4", "-o", "%E"], check=True).stdout.strip()

    def touched() -> bool:
        return (lab.paths.home / "it-ran").exists()

    job = ["sbatch", "--nodelist=n4", "--output=/dev/null", "--wrap", "touch it-ran"]
    assert nic("apply", "-p", "jumbo", node="n4").code == 0
    lab.run(job, check=True)
    until("drained", lambda: lab.node_states()["n4"] == "drained")
    root(lab, "n4", f"{lab_layout(lab.spec.instance).libexec}/health")
    assert re.fullmatch(
        r"seatrial: job \d+: NIC profile jumbo is in force for root \(by hand\)", reason()
    )
    assert not touched()
    assert settings(nic, "n4")["eth1"]["mtu"] == 9000

    assert nic("restore", node="n4").code == 0
    lab.run(["scontrol", "update", "nodename=n4", "state=resume"], user="root", check=True)
    lab.run(job, check=True)
    until("run", touched)


def test_a_jobs_profile_is_left_to_its_epilog(lab: Lab, nic: Nic, clean: None) -> None:
    def mtu() -> int:
        return settings(nic, "n2")["eth1"]["mtu"]

    words = ["sbatch", "--parsable", "--nodelist=n2", "--constraint=nic_jumbo", "-o", "/dev/null"]
    number = lab.run([*words, "--wrap", "sleep 600"], check=True).stdout.strip()
    until("running", lambda: lab.run(["squeue", "-h", "-j", number, "-o", "%t"]).stdout == "R\n")
    until("applied", lambda: mtu() == 9000)
    assert nic("show", node="n2").out.startswith(
        f"node n2, NIC profile in force: jumbo, for job {number}\n"
    )
    answer = nic("apply", "-p", "bulk", node="n2")
    assert answer.code == 2
    assert re.search(rf"\bjob {number}\b", answer.err)
    answer = nic("restore", node="n2")
    assert answer.code == 2
    assert f"belongs to job {number}, which runs: its Epilog undoes it" in answer.err
    answer = nic("recover", node="n2")
    assert (answer.code, mtu()) == (0, 9000)
    lab.run(["scancel", number], check=True)
    until("undone", lambda: mtu() == 1500)
