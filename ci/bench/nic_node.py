"""What the node side takes on one node: each verb, over the number of settings and of interfaces.

The node has eight tap interfaces besides eth1; each scenario has a policy and a state folder of its
own, in which only its interfaces are under test. No job runs there.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nic_labs

from seatrial.site.nic_policy import digest
from seatrial_lab.common.slurm_files import lab_layout
from seatrial_lab.native.engine import Lab

CLOCK = Path(__file__).with_name("nic_clock.py")
NODE = "n1"
PROFILE = "bench"
TAPS = tuple(f"tap{number}" for number in range(8))
#: of eth1, a veth; several are set by one command
SETTINGS: dict[str, Any] = {
    "mtu": 9000,
    "feature.tcp-segmentation-offload": "off",
    "feature.generic-segmentation-offload": "off",
    "txqueuelen": 5000,
    "sysfs.gro_flush_timeout": 20000,
    "sysfs.napi_defer_hard_irqs": 2,
    "feature.generic-receive-offload": "on",
    "egress_bit_s": 10**9,
    "channels.rx": 2,
    "channels.tx": 2,
    "rps_cpus": "0",
    "rps_flow_cnt": 32,
}
#: of each tap; three commands
TAP_SETTINGS = {"mtu": 9000, "txqueuelen": 5000, "coalesce.rx-frames": 16}
VERBS = ("show", "diff", "apply", "verify", "restore", "health")
#: nothing differs, or it is another profile: only these two compare
CODES = {"diff": 1}
TRUE, NOTHING, START = "/bin/true", "Prolog, job without a profile", "seatrial-nic --help"


@dataclass
class Scenario:
    """Settings by interface; ``times`` and ``cpu`` are in s, by verb."""

    name: str
    settings: dict[str, dict[str, Any]]
    commands: int = 0
    times: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)

    def policy(self, folder: str) -> dict[str, Any]:
        rest = {
            "schema": 1,
            "site": "bench",
            "feature_prefix": "nic_",
            "state_folder": folder,
            "scontrol": "/usr/bin/scontrol",
            "protected": ["eth0"],
            "nodes": {NODE: sorted(self.settings)},
            "profiles": {
                "default": {"feature": "nic_default", "nodes": [NODE]},
                PROFILE: {
                    "feature": f"nic_{PROFILE}",
                    "nodes": [NODE],
                    "interfaces": self.settings,
                },
            },
        }
        return {**rest, "digest": digest(rest)}


def scenarios() -> list[Scenario]:
    keys = list(SETTINGS)
    some = [Scenario(f"eth1: {count}", {"eth1": {key: SETTINGS[key] for key in keys[:count]}})
            for count in (1, 4, 8, len(keys))]  # fmt: skip
    return some + [
        Scenario(
            f"{count} x tap: {count * len(TAP_SETTINGS)}", dict.fromkeys(TAPS[:count], TAP_SETTINGS)
        )
        for count in (1, 2, 4, 8)
    ]


def measure(
    site_file: Path, instance: str, root: Path, rounds: int, say: Callable[[str], None]
) -> tuple[Scenario, list[Scenario]]:
    """(what does not depend on settings, the scenarios). The rounds are interleaved."""
    spec = nic_labs.spec_of(nic_labs.INSTALLED, site_file, instance, (root,))
    spec = dataclasses.replace(spec, nodes=(NODE,), taps=TAPS, features={})
    fixed, found = Scenario("whatever is set", {}), scenarios()
    with nic_labs.running(spec) as lab:
        layout = lab_layout(lab.spec.instance)
        policies = {}
        for number, scenario in enumerate(found):
            file = root / f"policy-{number}.json"
            file.write_text(json.dumps(scenario.policy(f"{lab.paths.data}/bench-{number}")))
            policies[scenario.name] = str(file)
        for number in range(rounds + 1):
            say(f"node side, round {number} of {rounds}" if number else "node side, to warm up")
            programs = {
                TRUE: ["/bin/true"],
                NOTHING: [f"{layout.libexec}/prolog"],
                START: [layout.command, "--help"],
            }
            _take(lab, fixed, programs, count=number > 0)
            for scenario in found:
                command = [layout.command, "--policy", policies[scenario.name]]
                if not number:
                    _set_up(lab, scenario, command)
                programs = {verb: _words(command, verb) for verb in VERBS}
                _take(lab, scenario, programs, count=number > 0)
    return fixed, found


def _words(command: list[str], verb: str) -> list[str]:
    return [*command, verb, *(["--profile", PROFILE] if verb in ("diff", "apply") else [])]


def _set_up(lab: Lab, scenario: Scenario, command: list[str]) -> None:
    """Record the node's own state, as at boot, and count what applying takes."""
    words = [[*command, "accept"], [*_words(command, "apply"), "--dry-run"]]
    scenario.commands = len(_run(lab, words)[1]["out"].splitlines())


def _take(lab: Lab, scenario: Scenario, programs: dict[str, list[str]], count: bool) -> None:
    for name, answer in zip(programs, _run(lab, list(programs.values())), strict=True):
        if answer["code"] != CODES.get(name, 0):
            said = answer["err"] or answer["out"]
            raise ValueError(f"{scenario.name}: {name} ended with {answer['code']}: {said}")
        if count:
            scenario.times.setdefault(name, []).append(answer["wall_s"])
            scenario.cpu.setdefault(name, []).append(answer["cpu_s"])


def _run(lab: Lab, words: list[list[str]]) -> list[dict[str, Any]]:
    # As slurmd starts a Prolog: no PATH, next to nothing else.
    env = {"SLURM_JOB_ID": "1", "SLURM_JOB_UID": "2000", "SLURMD_NODENAME": NODE}
    plan = json.dumps([{"argv": argv, "env": env} for argv in words])
    answer = lab.run(
        ["/usr/bin/python3", "-IS", str(CLOCK)], user="root", node=NODE, stdin=plan, timeout=300,
        check=True,
    )  # fmt: skip
    return json.loads(answer.stdout)
