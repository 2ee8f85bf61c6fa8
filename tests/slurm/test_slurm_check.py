"""What ``seatrial slurm check`` finds in a Slurm that is set up, half set up, or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from seatrial.slurm.check import Finding, check, parse_config
from seatrial.slurm.layout import Layout

GOOD = {
    "SlurmctldHost[0]": "login(10.73.0.254)",
    "SlurmdUser": "root(0)",
    "Prolog": "/usr/libexec/seatrial/prolog",
    "Epilog": "/usr/libexec/seatrial/epilog",
    "PrologFlags": "Alloc,Contain,DeferBatch",
    "PrologEpilogTimeout": "240",
    "BatchStartTimeout": "300 sec",
    "HealthCheckProgram": "/usr/libexec/seatrial/health",
    "HealthCheckInterval": "60 sec",
    "HealthCheckNodeState": "ANY",
    "JobSubmitPlugins": "lua",
    "PreemptMode": "OFF",
}
NODES = """\
NodeName=n1 Arch=x86_64 AvailableFeatures=nic_default,nic_jumbo,nic_few,fast ActiveFeatures=x
NodeName=n2 Arch=x86_64 AvailableFeatures=nic_default,nic_jumbo,nic_few ActiveFeatures=x
NodeName=n3 Arch=x86_64 AvailableFeatures=nic_default,nic_jumbo ActiveFeatures=x
"""
PARTITIONS = "PartitionName=compute OverSubscribe=NO\n"
Look = Callable[..., list[Finding]]


@pytest.fixture
def look(policy: dict, layout: Layout) -> Look:
    """The findings that are not good, with some of Slurm's answers changed."""

    def run(nodes: str = NODES, partitions: str = PARTITIONS, **changed: str | None) -> list:
        config = {k: v for k, v in {**GOOD, **changed}.items() if v is not None}
        answers = {
            "config": "".join(f"{key:<24}= {value}\n" for key, value in config.items()),
            "node": nodes,
            "partition": partitions,
        }
        return [one for one in check(lambda words: answers[words[-1]], policy, layout)
                if not one.good]  # fmt: skip

    return run


def test_a_complete_configuration_has_no_findings(look: Look) -> None:
    assert look() == []


@pytest.mark.parametrize(
    ("changed", "what", "sentence", "fix"),
    [
        (
            {"SlurmctldHost[0]": "ctl(10.73.0.9)"},
            "SlurmctldHost",
            "has 10.73.0.254: a node does",
            "write 10.73.0.9 into nic: controllers:",
        ),
        (
            {"SlurmctldHost[0]": "ctl", "SlurmctldHost[1]": "backup"},
            "SlurmctldHost",
            "has 10.73.0.254",
            "the addresses of ctl, backup",
        ),
        ({"Prolog": "(null)"}, "Prolog", "no Prolog", "Include /etc/slurm/seatrial-nic.conf"),
        ({"Prolog": "/etc/p"}, "Prolog", "/etc/p, not", "exec /usr/libexec/seatrial/prolog"),
        ({"Epilog": "/etc/e"}, "Epilog", "/etc/e, not", '"/usr/libexec/seatrial/epilog" || exit'),
        ({"PrologFlags": "Alloc,DeferBatch"}, "PrologFlags", "no Contain", "Contain"),
        ({"PrologFlags": "Contain"}, "PrologFlags", "no DeferBatch", "DeferBatch"),
        ({"PrologEpilogTimeout": "65534"}, "PrologEpilogTimeout", "infinite", "=240"),
        ({"PrologEpilogTimeout": "239"}, "PrologEpilogTimeout", "may take 230 s", "=240"),
        ({"BatchStartTimeout": "10 sec"}, "BatchStartTimeout", "is 10 s", "=300"),
        ({"BatchStartTimeout": "240 sec"}, "BatchStartTimeout", "is 240 s", "=300"),
        ({"HealthCheckProgram": "(null)"}, "HealthCheckProgram", "no HealthCheck", "Include"),
        ({"HealthCheckProgram": "/nhc"}, "HealthCheckProgram", "is /nhc", "call /usr"),
        ({"HealthCheckInterval": "0 sec"}, "HealthCheckInterval", "is 0", "=60"),
        ({"HealthCheckNodeState": "IDLE"}, "HealthCheckNodeState", "IDLE", "=ANY"),
        ({"JobSubmitPlugins": "(null)"}, "JobSubmitPlugins", "not exclusive", "=lua"),
        ({"JobSubmitPlugins": "throttle"}, "JobSubmitPlugins", "throttle", "=throttle,lua"),
        ({"PreemptMode": "GANG,SUSPEND"}, "PreemptMode", "suspended job keeps", "REQUEUE"),
        ({"SlurmdUser": "slurm(64030)"}, "SlurmdUser", "may not configure", "root"),
    ],
)
def test_each_wrong_setting(look: Look, changed, what: str, sentence: str, fix: str) -> None:
    findings = look(**changed)
    assert [finding.what for finding in findings] == [what]
    assert sentence in findings[0].sentence
    assert fix in findings[0].fix


def test_an_empty_configuration(look: Look) -> None:
    bare = dict.fromkeys(GOOD, "(null)") | {"SlurmdUser": "root(0)", "BatchStartTimeout": "10 sec"}
    names = {one.what for one in look(nodes="", **bare)}
    assert names == {"Prolog", "Epilog", "PrologFlags", "PrologEpilogTimeout",
                     "HealthCheckProgram", "JobSubmitPlugins", "nodes"}  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "sentences"),
    [
        (NODES.replace("nic_few,fast", "fast"), ["n1 lacks nic_few"]),
        (NODES.replace("nic_jumbo A", "nic_jumbo,nic_few A"), ["n3 has nic_few"]),
        (NODES.replace("NodeName=n2", "NodeName=x2"), ["no node n2"]),
    ],
)
def test_features_are_those_of_the_profiles_that_fit(look: Look, nodes: str, sentences) -> None:
    findings = look(nodes=nodes)
    assert len(findings) == len(sentences)
    assert all(text in finding.sentence for finding, text in zip(findings, sentences, strict=True))


@pytest.mark.parametrize(
    ("share", "bad"),
    [("NO", 0), ("EXCLUSIVE", 0), ("YES:4", 0), ("FORCE:1", 0), ("FORCE", 1), ("FORCE:4", 1),
     ("FORCE:12", 1)],
)  # fmt: skip
def test_partitions_that_always_share(look: Look, share: str, bad: int) -> None:
    assert len(look(partitions=f"PartitionName=p OverSubscribe={share}\n")) == bad


def test_newer_slurm_has_lists_and_two_timeouts(look: Look) -> None:
    config = parse_config("Prolog[0] = /a\nProlog[1] = /b\nEpilogTimeout = 65534\n")
    assert config == {"Prolog": "/a /b", "EpilogTimeout": "65534"}
    findings = look(Prolog="/site /usr/libexec/seatrial/prolog", PrologEpilogTimeout=None,
                 PrologTimeout="240", EpilogTimeout="65534")  # fmt: skip
    assert [finding.what for finding in findings] == ["EpilogTimeout"]


def test_a_pattern_that_covers_ours_is_right(look: Look) -> None:
    assert look(Prolog="/usr/libexec/seatrial/pro*") == []
