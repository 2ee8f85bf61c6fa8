"""NIC profiles in a site file: what is valid, and the message for each error."""

from __future__ import annotations

import re
import textwrap

import pytest
from site_support import problems_of, site_with, text_with

from seatrial.base import yamlfile
from seatrial.base.paths import CHECKOUT
from seatrial.nic.profile import NicProfile
from seatrial.site.effects import statements
from seatrial.site.model import Site
from seatrial.site.profiles import is_tested
from seatrial.site.validate import site_problems

PAIR = """\
pair:
  description: x
  transports: [openmpi-tcp, tcp]
  bonding: {mode: balance-rr, members: [eth1, eth2]}
"""
TWO_DRIVERS = """\
two:
  description: x
  per_network:
    test: {driver: {module: e1000, parameters: {Itr: 0}}}
    rail: {driver: {module: e1000, parameters: {Itr: 3}}}
"""
# profile text; the field, a piece of the line and of the words with which the fault is named
ERRORS = [
    ("fast: {description: x, mtu: 20000}", "fast.mtu", "fast:", ("20000", "test", "9216")),
    ("fast: {description: x, mtu: 67}", "fast.mtu", "fast:", ("1280",)),
    ("fast: {description: x, mtu: 9k}", "fast.mtu", "fast:", ("write for example 'mtu: 1280'",)),
    ("fast: {description: x, mtu: 65536}", "fast.mtu", "fast:", ("65535",)),
    ("fast: {description: x, rx_usecs: 0}", "fast.rx_usecs", "fast:", ("unknown field",)),
    ("fast: {description: x, coalescing: {rx_usec: 0}}", "fast.coalescing.rx_usec", "fast:",
     ("rx_usecs",)),
    ("fast: {description: x, coalescing: {rx_usecs: -1}}", "fast.coalescing.rx_usecs", "fast:",
     ("0",)),
    ("fast: {mtu: 1400}", "fast.description", "fast:", ("say in a line",)),
    ("fast: {description: x}", "fast", "fast:", ("sets nothing",)),
    ("fast: {description: x, coalescing: {rx_usecs: 1000001}}", "fast.coalescing.rx_usecs",
     "fast:", ("less than or equal to 1000000",)),
    ("fast: {description: x, coalescing: {rx_usecs: null}}", "fast", "fast:", ("sets nothing",)),
    ("fast: {description: x, feature: fast, mtu: 1400}", "fast.feature", "fast:", ("nic_",)),
    ("fast: {description: x, feature: nic_a-b, mtu: 1400}", "fast.feature", "fast:", ("nic_a-b",)),
    ("a-b: {description: x, mtu: 1400}\na_b: {description: x, mtu: 1300}", "a_b.feature", "a_b:",
     ("nic_a_b", "'a-b'")),
    ("fast: {description: x, feature: nic_default, mtu: 1400}", "fast.feature", "fast:",
     ("'default'",)),
    ("fast: {base: slow}\nslo: {description: x, mtu: 1400}", "fast.base", "fast:", ("'slo'",)),
    ("fast: {base: jumbo}", "fast.base", "fast:", ("'ready:jumbo'",)),
    ("fast: {base: 'ready:jumb'}", "fast.base", "fast:", ("'ready:jumbo'",)),
    ("a: {base: b}\nb: {base: c}\nc: {base: b, mtu: 1400}", "b.base", "b:", ("b -> c -> b",)),
    ("a: {base: a, mtu: 1400}", "a.base", "a:", ("a -> a",)),
    ("fast: {description: x, mtu: 1400, networks: [tst]}", "fast.networks.0", "fast:", ("'test'",)),
    ("fast: {description: x, mtu: 1400, networks: [mgmt]}", "fast.networks.0", "fast:",
     ("management", "never touched")),
    ("fast: {description: x, per_network: {mgmt: {mtu: 1400}}}", "fast.per_network.mgmt", "fast:",
     ("never touched",)),
    ("fast:\n  description: x\n  networks: [test]\n  per_network:\n    rail: {mtu: 1400}",
     "fast.per_network.rail", "rail: {", ("not in the profile's networks",)),
    ("fast: {description: x, mtu: 1400, node_classes: [thick]}", "fast.node_classes.0", "fast:",
     ("'thick'", "thin")),
    ("fast: {description: x, mtu: 1400, transports: [opnmpi-*]}", "fast.transports.0", "fast:",
     ("matches nothing",)),
    ("fast: {description: x, mtu: 1400, suits: [latency]}", "fast.suits.0", "fast:",
     ("latency-bound",)),
    ("fast: {description: x, mtu: 1400, if_supported: [coalesce]}", "fast.if_supported.0", "fast:",
     ("coalescing",)),
    ("fast: {description: x, offloads: {tos: off}}", "fast.offloads.tos", "fast:", ("'tso'",)),
    ("fast: {description: x, offloads: {tso: off, tcp-segmentation-offload: on}}",
     "fast.offloads.tcp-segmentation-offload", "fast:", ("one and the same",)),
    ("fast: {description: x, offloads: {tso: maybe}}", "fast.offloads.tso", "fast:",
     ("true or false",)),
    ("fast: {description: x, private_flags: {--all: on}}", "fast.private_flags.--all", "fast:",
     ("flag",)),
    ("fast: {description: x, rps_cpus: 3-0}", "fast.rps_cpus", "fast:", ("0-3",)),
    ("fast: {description: x, rps_cpus: spread}", "fast.rps_cpus", "fast:", ("CPU list",)),
    ("fast: {description: x, irq_affinity: none}", "fast.irq_affinity", "fast:", ("CPU list",)),
    ("fast: {description: x, rps_flow_cnt: 1000}", "fast.rps_flow_cnt", "fast:", ("1024",)),
    ("fast: {description: x, rps_flow_cnt: 1024, rps_cpus: none}", "fast.rps_flow_cnt", "fast:",
     ("no effect while rps_cpus",)),
    ("fast: {description: x, egress_rate: 1 Gbit}", "fast.egress_rate", "fast:", ("1 Gbit/s",)),
    ("fast: {description: x, egress_rate: 7 bit/s}", "fast.egress_rate", "fast:", ("bytes",)),
    ("fast: {description: x, driver: {module: '-r'}}", "fast.driver.module", "fast:",
     ("lsmod",)),
    ("fast:\n  description: x\n  driver: {module: e1000, parameters: {Itr: '0 ; reboot'}}",
     "fast.driver.parameters.Itr", "driver:", ("blanks",)),
    ("fast: {description: x, coalescing: {adaptive_rx: on, rx_usecs: 5}}", "fast.coalescing",
     "fast:", ("rx_usecs has no effect", "null")),
    ("fast: {description: x, flow_control: {autoneg: on, tx: off}}", "fast.flow_control", "fast:",
     ("autoneg is on", "tx has no effect", "autoneg: off")),
    ("fast: {base: 'ready:low-latency', coalescing: {adaptive_rx: on}}", "fast.coalescing",
     "fast:", ("rx_usecs: null",)),
    ("slow: {description: x, mtu: 9217, networks: [rail]}\nfast: {base: slow, networks: [test]}",
     "fast.base", "fast:", ("9217",)),
    ("fast:\n  description: x\n  mtu: 1400\n  per_network: {test: {mtu: 9300}}",
     "fast.per_network.test.mtu", "per_network:", ("9300",)),
    ("pair: {description: x, bonding: {mode: balance-rr, members: [eth1]}}",
     "pair.bonding.members", "pair:", ("[eth1, eth2]",)),
    ("pair: {description: x, bonding: {mode: rr, members: [eth1, eth2]}}", "pair.bonding.mode",
     "pair:", ("balance-rr",)),
    ("pair: {description: x, bonding: {mode: balance-rr, members: [eth1, eth0]}}",
     "pair.bonding.members.1", "pair:", ("eth0", "role test")),
    ("pair: {description: x, bonding: {mode: balance-rr, members: [eth1, eth1]}}", "pair.bonding",
     "pair:", ("twice",)),
    ("pair: {description: x, bonding: {mode: balance-rr, members: [eth1, eth2], name: eth0}}",
     "pair.bonding", "pair:", ("eth0",)),
    ("pair: {description: x, bonding: {mode: balance-rr, members: [eth1, eth2]}}", "pair.bonding",
     "pair:", ("rail-tcp", "rail")),
    (PAIR + "  networks: [test]", "pair.bonding", "bonding:", ("eth2", "networks")),
    (PAIR + "  per_network: {rail: {mtu: 1400}}", "pair.bonding", "bonding:",
     ("eth1 1500, eth2 1400",)),
    (TWO_DRIVERS, "two.per_network", "per_network:", ("two sets of parameters",)),
    ("round2-jumbo: {description: x, mtu: 9000}", "round2-jumbo", "round2-jumbo:", ("rounds",)),
]  # fmt: skip


@pytest.mark.parametrize(("profiles", "field", "line", "words"), ERRORS)
def test_a_problem_has_line_field_and_correction(tmp_path, profiles, field, line, words):
    problems, text = problems_of(tmp_path, profiles)
    matches = [problem for problem in problems if problem.field == f"nic_profiles.{field}"]
    assert matches, [str(problem) for problem in problems]
    assert line in text.splitlines()[matches[0].line - 1]
    text_of_problem = f"{matches[0].message} {matches[0].correction}"
    for word in words:
        assert word in text_of_problem
    assert matches[0].correction or " is not one of " in text_of_problem


def test_a_problem_of_one_profile_does_not_hide_others(tmp_path):
    problems, _ = problems_of(
        tmp_path, "a: {base: nothing}\nb: {base: a}\nc: {description: x, mtu: 9300}"
    )
    fields = {problem.field for problem in problems}
    assert fields == {"nic_profiles.a.base", "nic_profiles.b.base", "nic_profiles.c.mtu"}


@pytest.mark.parametrize(
    "profile",
    [
        "a: {description: x, coalescing: {adaptive_rx: on, rx_usecs: 5}}",
        "a: {description: x, flow_control: {autoneg: on, rx: off}}",
        "a: {description: x, bonding: {mode: balance-rr, members: [eth1, eth1]}}",
    ],
)
def test_a_mistake_is_one_problem_on_all_networks(tmp_path, profile):
    problems, _ = problems_of(tmp_path, profile)
    assert len(problems) == 1, [str(problem) for problem in problems]


def test_default_must_exist_without_settings(tmp_path):
    default = "default: {description: the node as it boots}"
    problems, _ = problems_of(
        tmp_path, "", {default: "jumbo: {base: 'ready:jumbo'}\ntrial: {profiles: [jumbo]}"}
    )
    assert [problem.field for problem in problems] == ["nic_profiles"]
    for extra in ("mtu: 1500", "base: 'ready:jumbo'", "per_network: {test: {mtu: 1500}}"):
        wrong = default.replace("}", f", {extra}}}")
        problems, _ = problems_of(tmp_path, "", {default: wrong})
        assert [problem.field for problem in problems] == ["nic_profiles.default"], extra
    problems, _ = problems_of(tmp_path, "", {default: "default: {base: 'ready:default'}"})
    assert problems == []


def test_the_networks_own_mtu_must_pass_its_switches(tmp_path):
    problems, _ = problems_of(tmp_path, "", {"switch_mtu: 9216": "mtu: 9000, switch_mtu: 1500"})
    assert [problem.field for problem in problems] == ["networks.test.mtu"]


def test_a_profile_that_fits_too_few_nodes_is_an_error(tmp_path):
    fat = "fast: {description: x, mtu: 1400, node_classes: [fat]}"
    assert problems_of(tmp_path, fat)[0] == []
    tried = {"netpipe: {}": "node_compute: {nodes: [1, 2]}\ntrial: {profiles: [default, fast]}"}
    (problem,), _ = problems_of(tmp_path, fat, tried)
    assert problem.field == "benchmarks.node_compute.nodes.1"
    assert "only 1 node" in problem.message
    tried['compute: {nodes: "n[1-2],n3.pier.example"}'] = 'compute: {nodes: "n[1-2]"}'
    (problem,), _ = problems_of(tmp_path, fat, tried)
    assert problem.field == "nic_profiles.fast.node_classes"


def test_features_come_from_names_or_from_the_file():
    site = site_with("low-latency: {base: 'ready:low-latency'}\n"
                     "jumbo: {base: 'ready:jumbo', feature: nic_mtu.9000}")  # fmt: skip
    features = {name: profile.feature for name, profile in site.nic_profiles.items()}
    # A job that asks for nothing gets default: it must not need a feature that nodes may lack.
    assert features == {"default": None, "low-latency": "nic_low_latency", "jumbo": "nic_mtu.9000"}


VERBS = {"openmpi-tcp: {}": "openmpi-tcp: {}\n  ucx: {data_path: verbs}",
         "switch_mtu: 9216": "fabric: roce, device: 'mlx5_0:1'"}  # fmt: skip


def test_a_note_names_settings_without_effect_on_a_kernel_bypass():
    text = "low-latency: {base: 'ready:low-latency', mtu: 4200, transports: [ucx, openmpi-tcp]}"
    notes = statements(site_with(text, VERBS))
    assert notes[0] == (
        "profile low-latency: coalescing and busy polling do not affect transport ucx, whose data "
        "path (verbs) is polled from user space; only mtu does"
    )
    assert "transport ucx" in notes[1]
    assert "MPI library polls" in notes[1]
    assert len(notes) == 2  # nothing of openmpi-tcp, which the kernel carries


@pytest.mark.parametrize(
    ("fabric", "path", "last"),
    [
        ("roce", "verbs", "only mtu does"),
        ("infiniband", "verbs", "no setting does"),
        ("efa", "libfabric", "no setting does"),
        ("slingshot", "libfabric", "no setting does"),
    ],
)
def test_the_effective_settings_depend_on_the_fabric(fabric, path, last):
    fast = f"fast: {{data_path: {path}, network: test}}"
    changes = {"openmpi-tcp: {}": f"openmpi-tcp: {{}}\n  {fast}",
               "switch_mtu: 9216": f"fabric: {fabric}, device: 'mlx5_0:1'"}  # fmt: skip
    text = "p: {description: x, mtu: 4200, offloads: {tso: on}, transports: [fast]}"
    (sentence,) = statements(site_with(text, changes))
    assert sentence.endswith(last)


def test_a_note_names_a_profile_that_sets_nothing_on_a_transports_network():
    text = "p: {description: x, mtu: 1400, networks: [test]}"
    (sentence,) = statements(site_with(text))
    assert "sets nothing on network rail" in sentence
    assert "rail-tcp" in sentence
    of_one = "p: {description: x, mtu: 1400, per_network: {rail: {mtu: null}}}"
    (sentence,) = statements(site_with(of_one))
    assert sentence.startswith("profile p: sets nothing on network rail, on which it is tested (")
    limited = "p: {description: x, mtu: 1400, networks: [test], transports: [openmpi-tcp]}"
    assert statements(site_with(limited)) == []


def test_a_coalescing_value_that_is_a_mode_is_noted_once():
    text = "p: {description: x, coalescing: {adaptive_rx: off, rx_usecs: 3}}"
    (sentence,) = statements(site_with(text))
    assert sentence.startswith("profile p: rx_usecs 3 is a mode and not a time on some drivers")
    assert "e1000, e1000e, igb, igc" in sentence


def test_a_set_of_numbers_means_the_same_in_each_pattern_of_a_site(tmp_path):
    text = """
        rate2: {description: x, mtu: 1400}
        rate10:
          description: x
          mtu: 1300
          node_classes: [thin]
          transports: ["rail[9-12]-tcp"]
    """
    changes = {
        "rail-tcp": "rail10-tcp",
        "schema: 1": 'schema: 1\ntrial: {profiles: ["rate[2,10]"]}',
        "netpipe: {}": 'links: {nodes: [3], profiles: ["rate[9-12]"]}',
    }
    ((problem,), _) = problems_of(tmp_path, text, changes)
    assert problem.field == "benchmarks.links.nodes.0"
    assert "rate10 fits only 2 nodes" in problem.message
    site = site_with(text, {"rail-tcp": "rail10-tcp"})
    tested = [one for one in ("tcp", "openmpi-tcp", "rail10-tcp") if is_tested(site, "rate10", one)]
    assert tested == ["rail10-tcp"]


PAGE = (CHECKOUT / "docs" / "write-a-nic-profile.md").read_text()


def test_the_page_on_profiles_names_every_field():
    missing = [name for name in NicProfile.model_fields if f"`{name}" not in PAGE]
    assert missing == []


@pytest.mark.parametrize("example", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_the_pages_examples_are_valid(example):
    text = textwrap.dedent(example.replace("nic_profiles:\n", ""))
    own = re.sub(r"(?m)^default:\n( +.*\n)+", "", text)
    assert len(site_with(own).nic_profiles) > 1


def test_verbs_without_an_rdma_device_is_a_problem():
    changes = {"openmpi-tcp: {}": "openmpi-tcp: {}\n  ucx: {data_path: verbs}"}
    site, _ = yamlfile.loads(text_with("", changes), Site)
    (problem,) = site_problems(site)
    assert problem.field == "transports.ucx.data_path"
    assert "no RDMA device" in problem.message
    changes = {"netpipe: {}": "perftest: {}"}
    (problem,) = site_problems(yamlfile.loads(text_with("", changes), Site)[0])
    assert problem.field == "benchmarks.perftest"
