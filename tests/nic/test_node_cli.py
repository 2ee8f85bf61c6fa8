"""The node's command: exit codes, words, what Slurm gives it, and what it needs to start at all."""

from __future__ import annotations

import ast
import errno
import io
import json
import os
import stat
import subprocess
import sys
import syslog
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fake_node import INTERFACE, FakeNic, FakeWorld, Fuse, OpenGuard, Simulation

import seatrial.nic.node
from seatrial.nic.node import cli, evidence
from seatrial.nic.node.errors import BadInput
from seatrial.nic.node.store import JOURNAL, SECOND, SPARE, Store

NODE = Path(seatrial.nic.node.__file__).parent
FILES = sorted(NODE.glob("*.py"))
PROFILES: dict[str, Any] = {
    "default": {},
    "jumbo": {"mtu": 9000},
    "limits": {"mtu": 6000, "vfs": 4, "rps_cpus": "all"},
}


class LoneGuard(OpenGuard):
    """Of a node on which nothing else runs."""

    processes: ClassVar[dict[str, int]] = {}


class Node:
    """The command on a node that is not there, but for its files."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = patch
        self.nic = FakeNic(Fuse())
        self.simulation = Simulation()
        self.slurmd: tuple[int, int] | None = self.simulation.spawn()
        self.policy = folder / "nic.json"
        self.calls = folder / "calls"
        scontrol = folder / "scontrol"
        self.shown = folder / "shown"
        self.shown.write_text("NodeName=n1 State=IDLE\n")
        scontrol.write_text(
            f'#!/bin/sh\n[ "$1" = update ] || exec cat {self.shown}\n'
            f'for w in "$@"; do echo "$w" >> {self.calls}; done\n'
        )
        scontrol.chmod(0o755)
        self.data: dict[str, Any] = {
            "schema": 1, "site": "lab", "digest": "x", "feature_prefix": "nic_",
            "state_folder": str(folder / "state-%n"), "scontrol": str(scontrol), "protected": [],
            "nodes": {"n1": [INTERFACE]},
            "profiles": {
                name: {"feature": "nic_" + name, "nodes": ["n1"], "interfaces": {INTERFACE: wanted},
                       "if_supported": ["vfs"]}
                for name, wanted in PROFILES.items()
            },
        }  # fmt: skip
        self.write()
        patch.setattr(cli, "Nic", lambda: self.nic)
        patch.setattr(evidence, "Nic", lambda: self.nic)
        patch.setattr(cli, "World", lambda: FakeWorld(self.simulation, self.slurmd))
        patch.setattr(cli, "Guard", LoneGuard)
        patch.setattr(os, "geteuid", lambda: 0)
        for user in (evidence.owner, cli):
            patch.setattr(user, "boot_id", lambda: f"boot-{self.simulation.boot}")
        patch.setenv("SLURMD_NODENAME", "n1")
        for name in list(os.environ):
            if name.startswith("SLURM_"):
                patch.delenv(name)

    def write(self) -> None:
        self.policy.write_text(json.dumps(self.data))

    @property
    def store(self) -> Store:
        return Store(str(self.folder / "state-n1"))

    def run(self, *words: str, **environment: str) -> int:
        with self.patch.context() as patch:
            for name, value in environment.items():
                patch.setenv("SLURM_" + name, value)
            return cli.main([f"--policy={self.policy}", *words])

    def job(self, verb: str, constraint: str = "nic_jumbo", **more: str) -> int:
        return self.run(verb, JOB_ID="7", JOB_UID="1000", JOB_CONSTRAINTS=constraint, **more)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


# -- what it needs


@pytest.mark.parametrize("file", FILES, ids=lambda one: one.name)
def test_the_grammar_is_that_of_python_3_6(file: Path) -> None:
    ast.parse(file.read_text(), feature_version=(3, 6))


@pytest.mark.parametrize("file", FILES, ids=lambda one: one.name)
def test_nothing_but_the_standard_library_of_python_3_6(file: Path) -> None:
    since = {"dataclasses", "contextvars", "importlib.metadata", "zoneinfo", "tomllib", "graphlib"}
    for entry in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(entry, ast.Import):
            names = [one.name for one in entry.names]
        elif isinstance(entry, ast.ImportFrom) and not entry.level:
            names = [entry.module or ""]
        for name in names:
            assert name.split(".")[0] in sys.stdlib_module_names
            assert name not in since


START = (
    "import sys; sys.path.insert(0, {!r}); from node.cli import main; sys.exit(main(sys.argv[1:]))"
)


def imported() -> set[str]:
    """Modules that the command has when it is loaded as it is on nodes."""
    text = "import sys; sys.path.insert(0, {!r}); import node.cli; print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", text.format(str(NODE.parent))],
        capture_output=True, text=True, check=True, env={},
    )  # fmt: skip
    return set(answer.stdout.split())


def test_it_loads_nothing_slow() -> None:
    slow = {"asyncio", "email", "http", "urllib.request", "ssl", "pydantic", "multiprocessing",
            "concurrent.futures", "argparse", "logging", "inspect", "pathlib", "dataclasses",
            "unittest", "xml", "sqlite3", "ctypes", "seatrial", "importlib.metadata", "random",
            "tempfile", "shutil", "platform", "uuid", "decimal", "datetime"}  # fmt: skip
    found = imported()
    assert "node.cli" in found
    assert not found & slow


@pytest.mark.parametrize("words", [["show"], ["diff"], ["prolog"], ["nonsense"], []])
def test_with_an_empty_environment(tmp_path: Path, words: list[str]) -> None:
    """No PATH, no HOME, no locale, nothing open: a sentence and an exit code, never a traceback."""
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", START.format(str(NODE.parent)), *words],
        capture_output=True, text=True, check=False, env={}, cwd="/",
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert "Traceback" not in answer.stderr
    assert answer.returncode in ((0,) if not words else (2, 3))


# -- the command line


def test_help() -> None:
    for words in ([], ["--help"], ["-h"], ["help"]):
        assert cli.main(words) == 0


@pytest.mark.parametrize(
    "words", [["nonsense"], ["show", "show"], ["apply", "--profile"], ["--policy"], ["show", "-x"],
              ["--json"], ["--policy=/none", "show"]]
)  # fmt: skip
def test_a_wrong_command_line_is_bad_input(words: list[str], capsys: Any) -> None:
    assert cli.main(words) == 3
    first, _, usage = capsys.readouterr().err.partition("\n")
    assert first.startswith("seatrial-nic: ")
    assert usage in ("", cli.USAGE + "\n")
    assert bool(usage) == ("/none" not in words[0])


def test_options_before_and_after_the_verb() -> None:
    found = cli.Arguments(["--policy", "p", "apply", "--profile=x", "--interface", "a",
                           "--interface=b", "--dry-run"])  # fmt: skip
    assert (found.policy, found.verb, found.profile) == ("p", "apply", "x")
    assert found.interfaces == ["a", "b"]
    assert found.flags == {"dry-run"}
    with pytest.raises(BadInput, match="needs a value"):
        cli.Arguments(["apply", "--profile"])


@pytest.mark.parametrize("verb", cli.NEEDS_ROOT)
def test_only_root_changes_anything(node: Node, verb: str, capsys: Any) -> None:
    node.patch.setattr(os, "geteuid", lambda: 1000)
    assert node.job(verb) == 2
    assert "by root" in capsys.readouterr().err
    assert node.nic.exact() == FakeNic(Fuse()).exact()


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "x", '{"schema": 2}', '{"schema": 1, "nodes": []}'],
)
def test_a_wrong_policy_is_bad_input(node: Node, text: str) -> None:
    node.policy.write_text(text)
    for verb in ("show", "prolog", "health", "recover"):
        assert node.job(verb) == 3


# -- for Slurm


def test_a_job(node: Node, capsys: Any) -> None:
    before = node.nic.exact()
    assert node.job("prolog") == 0
    assert node.nic.raw["mtu"] == 9000
    journal = node.store.journal()
    assert journal
    assert (journal["job"], journal["uid"], journal["phase"]) == ("7", "1000", "applied")
    assert node.run("verify") == 0
    assert "as the profile has it" in capsys.readouterr().out
    node.nic.raw["mtu"] = 1400
    assert node.run("verify") == 1
    assert "mtu is 1400, not 9000" in capsys.readouterr().out
    assert node.job("epilog") == 0
    assert node.nic.exact() == before
    assert node.job("epilog") == 0


@pytest.mark.parametrize("constraint", ["", "haswell", "nic_default", "nic_default&haswell"])
def test_a_job_without_a_profile(node: Node, constraint: str) -> None:
    before = node.nic.exact()
    assert node.job("prolog", constraint) == 0
    assert node.nic.exact() == before
    assert node.store.journal() is None
    assert node.job("epilog", constraint) == 0


@pytest.mark.parametrize(
    "constraint", ["nic_none", "nic_jumbo|x", "nic_jumbo&nic_limits", "$(nic_jumbo)", "nic_\n"]
)
def test_a_constraint_that_cannot_be_met(node: Node, constraint: str) -> None:
    before = node.nic.exact()
    assert node.job("prolog", constraint) == 3
    reason = node.store.reason()
    assert reason is not None
    assert reason.startswith("job 7: the constraint ")
    assert node.nic.exact() == before
    assert node.job("epilog", constraint) == 0  # its Prolog changed nothing


@pytest.mark.parametrize(
    "number", ["", "x", "7;reboot", "../7", "-1", "7\n", "\u0661\u0662", "\u00b2"]
)
def test_a_job_number_that_is_none(node: Node, number: str) -> None:
    for verb in ("prolog", "epilog"):
        assert node.run(verb, JOB_ID=number, JOB_CONSTRAINTS="nic_jumbo") == 3
        assert node.run(verb, JOB_ID="7", RESTART_COUNT=number or "x") == 3
    assert not list(node.folder.glob("state*/tombstones/*"))


def test_jobs_of_two_clusters_with_the_same_id(node: Node, capsys: Any) -> None:
    assert node.job("prolog", CLUSTER_NAME="a/../b") == 0
    assert node.job("prolog", CLUSTER_NAME="c") == 2
    assert "is in force for job 7 of cluster a_.._b" in capsys.readouterr().err
    assert node.job("epilog", CLUSTER_NAME="c") == 0
    assert node.job("epilog", CLUSTER_NAME="a/../b") == 0
    assert node.store.journal() is None
    assert {path.name for path in Path(node.store.path("tombstones")).glob("*/*")} == {
        "7.0@c", "7.0@a_.._b"
    }  # fmt: skip


def test_a_late_prolog_leaves_nothing(node: Node, capsys: Any) -> None:
    world = FakeWorld(node.simulation, node.slurmd)
    node.patch.setattr(cli, "World", lambda: world)
    assert node.job("epilog") == 0
    before = node.nic.exact()
    assert node.job("prolog") == 2
    assert node.nic.exact() == before
    assert "Epilog has run already" in capsys.readouterr().err
    assert node.store.reason() is None  # nobody waits for it, and all is well


def test_a_setting_that_is_missing_and_one_that_may_be(node: Node, capsys: Any) -> None:
    assert node.job("prolog", "nic_limits") == 0
    assert node.nic.raw["mtu"] == 6000
    assert node.job("epilog", "nic_limits") == 0
    node.data["profiles"]["limits"]["if_supported"] = []
    node.write()
    assert node.job("prolog", "nic_limits") == 2
    assert "eth1 has no setting vfs" in capsys.readouterr().err
    assert node.nic.raw["mtu"] == 1500


def test_a_node_whose_reason_is_not_known_is_drained_by_the_next_check(node: Node) -> None:
    """Slurm does not answer: somebody else may have given a reason, which must stay."""
    assert node.run("recover") == 0
    node.nic.refuses = {"mtu"}
    assert node.job("prolog") == 2
    node.nic.refuses = set()
    node.shown.unlink()
    assert node.run("health") == 0
    assert not node.calls.exists()
    node.shown.write_text("NodeName=n1 State=IDLE Reason=disk fails [root@2026-01-01T00:00:00]\n")
    assert node.run("health") == 0
    assert (
        "reason=disk fails; seatrial: job 7: NIC profile jumbo: eth1 mtu" in node.calls.read_text()
    )


def test_health_drains_with_the_reason(node: Node) -> None:
    assert node.run("recover") == 0
    node.nic.refuses = {"mtu"}
    assert node.job("prolog") == 2
    node.nic.refuses = set()
    assert node.run("health") == 0
    words = node.calls.read_text().splitlines()
    assert words[:3] == ["update", "nodename=n1", "state=drain"]
    assert words[3].startswith(
        "reason=seatrial: job 7: NIC profile jumbo: eth1 mtu: Invalid argument"
    )
    # Told once: an operator who resumes the node is not contradicted.
    node.calls.unlink()
    assert node.run("health") == 0
    assert not node.calls.exists()


@pytest.mark.parametrize(
    ("shown", "written"),
    [
        ("State=IDLE+DRAIN Reason=new power supply [root@2026-01-01T00:00:00]", None),
        ("State=IDLE Reason=new power supply [root@x]", "new power supply; seatrial: job 7: "),
        ("State=IDLE+DRAIN Reason=Prolog error [root@x]", "seatrial: job 7: "),
        ("State=IDLE+DRAIN Reason=seatrial: another [root@x]", "seatrial: job 7: "),
    ],
)
def test_a_reason_of_somebody_else_stays(node: Node, shown: str, written: str | None) -> None:
    node.shown.write_text(f"NodeName=n1 {shown}\n")
    node.nic.refuses = {"mtu"}
    assert node.job("prolog") == 2
    assert node.run("health") == 0
    if written is None:
        assert not node.calls.exists()
    else:
        assert node.calls.read_text().splitlines()[3].startswith("reason=" + written)


def test_health_puts_back_what_a_dead_job_left(node: Node) -> None:
    before = node.nic.exact()
    assert node.job("prolog") == 0
    node.simulation.kill(node.slurmd)
    node.slurmd = node.simulation.spawn()
    assert node.run("health") == 0
    assert node.nic.exact() == before
    assert not node.calls.exists()


def test_health_keeps_out_a_node_that_cannot_be_put_back(node: Node) -> None:
    assert node.job("prolog") == 0
    node.nic.refuses = {"mtu"}
    node.simulation.kill(node.slurmd)
    node.slurmd = node.simulation.spawn()
    assert node.run("health") == 4
    assert "mtu" in node.calls.read_text()
    assert node.store.journal() is not None
    # Each time anew, until it is mended: a node that is resumed too early drains again.
    node.calls.unlink()
    assert node.run("health") == 4
    assert node.calls.exists()
    node.nic.refuses = set()
    assert node.run("recover") == 0
    assert node.store.reason() is None
    node.calls.unlink()
    assert node.run("health") == 0
    assert not node.calls.exists()


def test_health_waits_for_nobody(node: Node) -> None:
    with node.store.lock(0):
        assert node.run("health") == 0
        assert not node.calls.exists()
        # What a Prolog has left to say is said although its program still hangs.
        node.store.write_reason("job 7: ethtool did not end within 15 s")
        assert node.run("health") == 0
    assert "reason=seatrial: job 7: ethtool did not end" in node.calls.read_text()


# -- for people


def test_by_hand_and_back(node: Node, capsys: Any) -> None:
    before = node.nic.exact()
    assert node.run("restore") == 0
    capsys.readouterr()
    assert node.run("apply", "--profile", "jumbo") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "NIC profile jumbo is in force until: seatrial-nic restore"
    assert said[1].startswith("Drain the node first: ")
    assert node.nic.raw["mtu"] == 9000
    # It lasts: no health check takes it away, and no job gets the node.
    assert node.run("health") == 0
    assert node.nic.raw["mtu"] == 9000
    assert node.job("prolog", "nic_limits") == 2
    assert "in force for root (by hand)" in (node.store.reason() or "")
    assert node.run("restore", "--dry-run") == 0
    assert "mtu 1500" in capsys.readouterr().out
    assert node.nic.raw["mtu"] == 9000
    assert node.run("restore") == 0
    assert node.nic.exact() == before


def test_a_refused_apply_leaves_the_profile_that_is_in_force(node: Node, capsys: Any) -> None:
    assert node.run("apply", "--profile", "jumbo") == 0
    for words in (
        ("jumbo",), ("limits",), ("limits", "--interface", "eth0"), ("limits", "--dry-run"),
        ("default", "--dry-run"),
    ):  # fmt: skip
        assert node.run("apply", "--profile", *words) == 2
        assert (
            "is in force for root (by hand): first seatrial-nic restore" in capsys.readouterr().err
        )
        assert node.nic.raw["mtu"] == 9000
    assert node.run("verify") == 0
    assert node.run("restore") == 0
    assert node.run("apply", "--profile", "limits") == 0


def test_a_profile_by_hand_ends_with_the_boot(node: Node, capsys: Any) -> None:
    assert node.run("apply", "--profile", "jumbo") == 0
    node.simulation.boot += 1
    node.nic.reboot()
    capsys.readouterr()
    assert node.run("show") == 0
    assert "NIC profile in force: none" in capsys.readouterr().out
    node.run("verify")
    assert "NIC profile default: " in capsys.readouterr().out
    assert node.run("apply", "--profile", "limits") == 0
    assert node.run("restore") == 0


def test_a_setting_that_nobody_owns_is_refused_by_the_dry_run_too(node: Node, capsys: Any) -> None:
    node.patch.setattr(cli, "DryRun", lambda _: node.nic)
    assert node.run("accept") == 0
    node.nic.raw["mtu"] = 6000
    for words in (("--dry-run",), ()):
        assert node.run("apply", "--profile", "jumbo", *words) == 2
        assert "eth1: mtu is 6000, was 1500 at boot; restore" in capsys.readouterr().err


def test_a_dry_run_beside_the_profile_of_a_job(node: Node, capsys: Any) -> None:
    assert node.job("prolog", "nic_jumbo") == 0
    node.simulation.steps.add("7")
    assert node.run("apply", "--profile", "limits", "--dry-run") == 2
    assert "NIC profile jumbo is in force for job 7" in capsys.readouterr().err
    node.simulation.steps.clear()
    node.simulation.living.clear()
    assert node.run("apply", "--profile", "limits", "--dry-run") == 2
    assert "was left over for job 7: first seatrial-nic recover" in capsys.readouterr().err


def test_by_hand_needs_a_profile_that_sets_something(node: Node, capsys: Any) -> None:
    assert node.run("apply", "--profile", "default") == 3
    assert "restore undoes a profile" in capsys.readouterr().err
    node.data["nodes"]["n1"] = [INTERFACE, "eth2"]
    node.write()
    for verb in ("apply", "diff"):
        assert node.run(verb, "--profile", "jumbo", "--interface", "eth2") == 3
        assert "NIC profile jumbo sets nothing on eth2" in capsys.readouterr().err
    assert node.store.journal() is None


def test_a_profile_that_is_in_force_in_part_is_not_verified(node: Node, capsys: Any) -> None:
    profile = node.data["profiles"]["jumbo"]
    node.data["nodes"]["n1"] = [INTERFACE, "eth2"]
    profile["interfaces"]["eth2"] = {"mtu": 9000}
    node.write()
    read = node.nic.read
    node.nic.read = lambda name: read(INTERFACE) if name == INTERFACE else {"mtu": 1500}  # type: ignore[method-assign]
    assert node.run("apply", "--profile", "jumbo", "--interface", INTERFACE) == 0
    capsys.readouterr()
    assert node.run("verify", "--profile", "jumbo") == 1
    assert "eth2 mtu is 1500, not 9000" in capsys.readouterr().out
    assert node.run("verify", "--profile", "jumbo", "--interface", INTERFACE) == 0
    capsys.readouterr()
    assert node.run("verify") == 0
    assert "on eth1: it was applied there only" in capsys.readouterr().out
    assert node.run("verify", "--interface", "eth2") == 1


def test_a_setting_that_the_node_lacks_is_refused_by_the_dry_run_too(
    node: Node, capsys: Any
) -> None:
    """The kernel has no busy_poll."""
    node.patch.setattr(cli, "DryRun", lambda _: node.nic)
    node.data["profiles"]["jumbo"]["node"] = {"sysctl.net.core.busy_poll": "50"}
    node.write()
    for words in (("--dry-run",), ()):
        assert node.run("apply", "--profile", "jumbo", *words) == 2
        assert "this node has no setting sysctl.net.core.busy_poll" in capsys.readouterr().err
        assert node.nic.raw["mtu"] == 1500


def test_by_hand_names_the_command_that_restores(node: Node, capsys: Any) -> None:
    used = "seatrial nic restore --node n1"
    assert node.run("apply", "--profile", "jumbo", "--restore-command", used) == 0
    assert capsys.readouterr().out.startswith(f"NIC profile jumbo is in force until: {used}\n")


def test_by_hand_not_beside_a_job(node: Node) -> None:
    node.simulation.steps.add("9")
    assert node.run("apply", "--profile", "jumbo") == 2
    assert node.nic.raw["mtu"] == 1500


def test_a_running_jobs_profile_is_restored_only_by_force(node: Node, capsys: Any) -> None:
    assert node.job("prolog") == 0
    node.simulation.steps.add("7")
    assert node.run("restore") == 2
    assert "belongs to job 7" in capsys.readouterr().err
    assert node.run("recover") == 0
    assert node.nic.raw["mtu"] == 9000
    assert node.run("restore", "--force") == 0
    assert node.nic.raw["mtu"] == 1500


def test_diff(node: Node, capsys: Any) -> None:
    assert node.run("diff", "--profile", "jumbo") == 1
    assert capsys.readouterr().out.split()[-4:] == ["eth1", "mtu", "1500", "9000"]
    assert node.run("diff", "--profile", "jumbo", "--json") == 1
    assert json.loads(capsys.readouterr().out)["eth1"] == [
        {"setting": "mtu", "wanted": 9000, "actual": 1500}
    ]
    assert node.run("diff", "--profile", "default") == 0
    assert node.run("diff") == 3
    assert node.run("diff", "--profile", "none") == 3


def test_diff_leaves_out_what_the_profile_does_without(node: Node, capsys: Any) -> None:
    """As applying does."""
    assert node.run("diff", "--profile", "limits") == 1
    seen = capsys.readouterr().out
    assert "eth1 has no vfs" in seen
    assert "left out" in seen
    assert "unsupported" not in seen
    assert node.run("diff", "--profile", "limits", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert "vfs" not in [one["setting"] for one in found["eth1"]]
    assert found["skipped"] == {"eth1": ["vfs"]}
    node.data["profiles"]["limits"]["if_supported"] = []
    node.write()
    assert node.run("diff", "--profile", "limits") == 1
    assert "unsupported" in capsys.readouterr().out


def test_verify_accepts_a_feature_that_nobody_can_change(node: Node, capsys: Any) -> None:
    """Where the profile does without it: applying leaves it out."""
    node.nic.fixed = lambda _: {"feature.generic-receive-offload": "on"}  # type: ignore[method-assign]
    profile = node.data["profiles"]["limits"]
    profile["interfaces"][INTERFACE] = {"feature.generic-receive-offload": "off", "mtu": 6000}
    profile["if_supported"] = ["feature"]
    node.write()
    assert node.job("prolog", "nic_limits") == 0
    left_out = "# eth1 has no feature.generic-receive-offload: left out"
    for words in ((), ("--profile=limits",)):
        assert node.run("verify", *words) == 0
        assert left_out in capsys.readouterr().out
    assert node.job("epilog", "nic_limits") == 0
    assert node.run("apply", "--profile", "limits") == 0
    assert left_out in capsys.readouterr().out
    assert node.run("restore") == 0
    node.nic.raw["mtu"] = 6000
    capsys.readouterr()
    node.run("verify", "--profile=limits")
    said = capsys.readouterr().out
    assert left_out in said
    assert "is on, not off" not in said
    profile["if_supported"] = []
    node.write()
    node.run("verify", "--profile=limits")
    assert "feature.generic-receive-offload is on, not off" in capsys.readouterr().out


def test_verify_reads_a_switch_of_a_module_as_the_kernel_prints_it(node: Node) -> None:
    driver = {"module": "virtio_net", "parameters": {"napi_tx": 1}}
    declared = {"profile": "x", "nodes": {"n1": {INTERFACE: {"driver": driver}}}}
    node.nic.raw.update({"driver.module": "virtio_net", "driver.parameter.napi_tx": "Y"})
    found = evidence.collect(declared, "n1", nic=node.nic)["interfaces"][INTERFACE]
    assert found["differences"] == []
    node.nic.raw["driver.parameter.napi_tx"] = "N"
    found = evidence.collect(declared, "n1", nic=node.nic)["interfaces"][INTERFACE]
    assert found["differences"][0]["actual"] == "N"


def test_a_sum_of_features_that_the_card_cannot_change_is_left_out(node: Node, capsys: Any) -> None:
    fixed = {"feature.tcp-segmentation-offload": "on"}
    node.nic.fixed = lambda _: fixed  # type: ignore[method-assign]
    profile = node.data["profiles"]["limits"]
    profile["interfaces"][INTERFACE] = {"feature.tcp-segmentation-offload": "off", "mtu": 6000}
    profile["if_supported"] = ["feature"]
    node.write()
    assert node.job("prolog", "nic_limits") == 0
    assert node.run("verify") == 0
    assert "# eth1 has no feature.tcp-segmentation-offload: left out" in capsys.readouterr().out
    assert node.job("epilog", "nic_limits") == 0
    profile["if_supported"] = []
    node.write()
    assert node.job("prolog", "nic_limits") == 2
    assert "has no setting feature.tcp-segmentation-offload" in capsys.readouterr().err


def test_show_tells_unsupported_from_zero(node: Node, capsys: Any) -> None:
    assert node.run("show", "--all") == 0
    lines = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert lines["coalesce.rx-usecs-irq"] == ["unsupported"]
    assert lines["sysfs.gro_flush_timeout"] == ["0"]
    assert lines["egress_bit_s"] == ["no", "limit"]
    assert node.run("show", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["interfaces"]["eth1"]["coalesce.rx-usecs-irq"] is None
    assert found["in_force"] is None


def test_a_damaged_journal(node: Node, capsys: Any) -> None:
    before = node.nic.state()
    assert node.run("recover") == 0
    assert node.job("prolog") == 0
    for name in (JOURNAL, SECOND):
        Path(node.store.path(name)).write_text("x")
    assert node.run("show") == 4
    assert "damaged" in capsys.readouterr().err
    assert node.job("epilog") == 4
    assert node.nic.state() == before
    assert node.run("recover") == 0


def test_accept(node: Node, capsys: Any) -> None:
    assert node.run("recover") == 0
    node.nic.raw["mtu"] = 4000
    assert node.run("recover") == 4
    assert "no profile owns these settings: eth1: mtu is 4000" in capsys.readouterr().err
    assert node.job("prolog") == 4
    assert node.run("accept") == 0
    assert node.job("prolog") == 0
    assert node.run("accept") == 2  # what a profile set is not the node's own


def test_a_full_disk_is_said_and_nothing_changed(node: Node, capsys: Any) -> None:
    def full(self: Store, name: str, text: str) -> None:
        raise OSError(28, "No space left on device")

    node.patch.setattr(Store, "write", full)
    before = node.nic.exact()
    assert node.job("prolog") == 2
    assert "No space left on device" in capsys.readouterr().err
    assert node.nic.exact() == before


def fill(node: Node, patch: pytest.MonkeyPatch) -> None:
    """No byte is left on the disk of the state folder: what is written fails when it is synced."""

    def used() -> int:
        files = (path for path in Path(node.store.folder).rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in files)

    limit, real = used(), os.fsync

    def fsync(descriptor: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode) and used() > limit:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    patch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("verb", ["recover", "health"])
def test_a_disk_that_fills_before_the_first_profile_hides_no_reason(node: Node, verb: str) -> None:
    assert node.run(verb) == 0
    fill(node, node.patch)
    assert node.job("prolog") == 2
    reason = node.store.reason()
    assert reason
    assert "job 7: the journal cannot be written: [Errno 28] No space left on device" in reason
    assert node.run("health") == 0
    assert node.calls.read_text().splitlines()[3].startswith("reason=seatrial: " + reason)
    assert node.run("health") == 0  # the reason stays while nothing else could be written
    assert node.calls.read_text().splitlines()[-1].startswith("reason=seatrial: " + reason)


def test_a_disk_that_was_full_at_boot_is_the_reason(node: Node, capsys: Any) -> None:
    assert node.run("recover") == 0
    Path(node.store.path(SPARE)).unlink()
    with node.patch.context() as patch:
        fill(node, patch)
        assert node.job("prolog") == 2
        printed = capsys.readouterr().err
        assert "has no room for the reason of a failure: No space left on device" in printed
        assert "the reason cannot be written to " in printed
        assert "job 7" not in (node.store.reason() or "")
        assert node.run("health") == 0
        words = node.calls.read_text()
        assert f"reason=seatrial: {node.store.folder} has no room for the reason" in words
    node.calls.unlink()
    assert node.run("health") == 0
    assert not node.calls.exists()
    assert node.job("prolog") == 0


def test_a_read_only_disk_does_not_hide_why_a_prolog_refuses(node: Node, capsys: Any) -> None:
    def read_only(self: Store, *_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("prepare", "write", "remove"):
        node.patch.setattr(Store, name, read_only)
    assert node.job("prolog", "nic_none") == 3
    assert "the constraint asks for nic_none" in capsys.readouterr().err


def test_a_folder_that_turns_read_only_is_why_the_node_is_drained(node: Node) -> None:
    """Also where nothing else is wrong."""
    assert node.run("recover") == 0
    real = Store.reason

    def turned(self: Store) -> str | None:
        real(self)
        raise OSError(errno.EIO, "Input/output error", self.folder)

    node.patch.setattr(Store, "reason", turned)
    node.run("health")
    words = node.calls.read_text()
    assert "reason=seatrial: the state folder: [Errno 5] Input/output error" in words


#: clears a terminal, begins a line that looks like another's, and turns the direction of writing
HOSTILE = "\x1b[2Ja\n[root] error: b\r\x07 \u202e \x00 ä \udc80 "
HOSTILE_SHOWN = "?[2Ja [root] error: b ? ? ? ? ? "


def test_the_log_takes_any_text(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    lines: list[str] = []
    monkeypatch.setattr(syslog, "syslog", lambda _, line: lines.append(line))
    cli.log(HOSTILE + "x" * 10**6)
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("seatrial-nic: " + HOSTILE_SHOWN + "xxx")
    assert len(line) < 5000
    assert lines == [line[len("seatrial-nic: ") :]]


def test_a_reason_takes_any_text(node: Node) -> None:
    """Of a program that repeats what another user chose, such as the name of an interface."""
    node.store.prepare()
    node.store.write_reason(HOSTILE + "x" * 10**6)
    reason = node.store.reason()
    assert reason
    assert reason.startswith(HOSTILE_SHOWN + "xxx")
    assert len(reason) < 5000
    Path(node.store.path("reason")).write_bytes(
        (HOSTILE + "x" * 10**6).encode(errors="surrogateescape")
    )
    shown = f"NodeName=n1 State=IDLE Reason=fan {HOSTILE}{'y' * 10**6} [root@x]\n"
    node.shown.write_bytes(shown.encode(errors="surrogateescape"))
    assert node.run("health") == 0
    words = node.calls.read_text().splitlines()
    assert words[3].startswith(f"reason=fan {HOSTILE_SHOWN}yyy")
    assert "; seatrial: " + HOSTILE_SHOWN + "xxx" in words[3]
    assert len(words) == 4
    assert len(words[3]) < 5000


def test_what_is_printed_for_people_takes_any_text(node: Node, capsys: Any) -> None:
    node.nic.raw["private.a" + HOSTILE.replace("\n", "")] = HOSTILE
    assert node.run("recover") == 0
    assert node.run("show") == 0
    printed = capsys.readouterr().out
    assert "[2J" in printed
    assert not {"\x1b", "\u202e", "\r", "\x07"} & set(printed)
