"""The policy of the nodes: flat settings by node and interface, from profiles and their bases."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from site_support import site_with, text_with

from campaigns import rounds
from seatrial.nic.inheritance import resolve
from seatrial.nic.library import ready_profiles
from seatrial.nic.profile import NicProfile
from seatrial.site.nic_policy import compile_policy, declared, digest

EVERYTHING = """\
all:
  description: every group
  feature: nic_all
  driver: {module: e1000e, parameters: {InterruptThrottleRate: 0, SmartPowerDownEnable: true}}
  virtual_functions: 2
  mtu: 9000
  txqueuelen: 500
  rings: {rx: 512, tx: 256, rx_mini: 0, rx_jumbo: 64}
  channels: {combined: 4}
  offloads: {tso: off, rx_checksum: on, tx-udp-segmentation: off}
  private_flags: {legacy-rx: on}
  coalescing: {adaptive_rx: off, rx_usecs: 0, rx_frames_irq: 1}
  flow_control: {autoneg: off, rx: on, tx: off}
  irq_affinity: spread
  rps_cpus: 1,0,3
  rps_flow_cnt: 1024
  xps_cpus: none
  napi_defer_hard_irqs: 2
  gro_flush_timeout_ns: 20000
  napi_threaded: on
  egress_rate: 1 Gbit/s
  busy_poll_us: 50
  busy_read_us: 0
  networks: [test]
  if_supported: [rings, coalescing, napi, rps_cpus]
"""


def policy_of(profiles: str) -> dict:
    return compile_policy(site_with(profiles))


def interface(profiles: str, name: str, which: str = "eth1") -> dict:
    return policy_of(profiles)["profiles"][name]["interfaces"].get(which, {})


def test_the_whole_of_a_policy():
    policy = policy_of(EVERYTHING)
    assert {key: value for key, value in policy.items() if key not in ("profiles", "digest")} == {
        "schema": 1,
        "site": "pier",
        "feature_prefix": "nic_",
        "state_folder": "/var/lib/seatrial-nic",
        "scontrol": "/usr/bin/scontrol",
        "controllers": [],
        "protected": ["eth0"],
        "nodes": {"n1": ["eth1", "eth2"], "n2": ["eth1", "eth2"], "n3": ["eth1", "eth2"]},
    }
    assert policy["profiles"]["default"] == {
        "feature": "nic_default",
        "description": "the node as it boots",
        "nodes": ["n1", "n2", "n3"],
        "interfaces": {},
        "node": {},
        "if_supported": [],
    }
    assert policy["profiles"]["all"] == {
        "feature": "nic_all",
        "description": "every group",
        "nodes": ["n1", "n2", "n3"],
        "interfaces": {
            "eth1": {
                "channels.combined": 4,
                "coalesce.adaptive-rx": "off",
                "coalesce.rx-frames-irq": 1,
                "coalesce.rx-usecs": 0,
                "driver": {
                    "module": "e1000e",
                    "parameters": {"InterruptThrottleRate": "0", "SmartPowerDownEnable": "1"},
                    "link_timeout_s": 30,
                    "allow_shared": False,
                },
                "egress_bit_s": 10**9,
                "feature.rx-checksumming": "on",
                "feature.tcp-segmentation-offload": "off",
                "feature.tx-udp-segmentation": "off",
                "irq_affinity": "spread",
                "mtu": 9000,
                "pause.autoneg": "off",
                "pause.rx": "on",
                "pause.tx": "off",
                "private.legacy-rx": "on",
                "ring.rx": 512,
                "ring.rx-jumbo": 64,
                "ring.rx-mini": 0,
                "ring.tx": 256,
                "rps_cpus": "0-1,3",
                "rps_flow_cnt": 1024,
                "sysfs.gro_flush_timeout": 20000,
                "sysfs.napi_defer_hard_irqs": 2,
                "sysfs.threaded": 1,
                "txqueuelen": 500,
                "vfs": 2,
                "xps_cpus": "none",
            }
        },
        "node": {"sysctl.net.core.busy_poll": 50, "sysctl.net.core.busy_read": 0},
        "if_supported": ["coalesce", "ring", "rps_cpus", "sysfs"],
    }
    assert json.loads(json.dumps(policy)) == policy


def test_the_declared_state_is_the_policy_of_the_nodes():
    site = site_with(EVERYTHING + "  node_classes: [fat]\n")
    policy = compile_policy(site)["profiles"]["all"]
    state = declared(site, "all")
    assert state["nodes"] == {"n3": policy["interfaces"]}
    assert (state["node"], state["if_supported"]) == (policy["node"], policy["if_supported"])
    assert state["tests"]["n1"] == ["eth1", "eth2"]
    assert (state["profile"], state["state_folder"]) == ("all", "/var/lib/seatrial-nic")
    assert declared(site, "default")["nodes"] == {"n1": {}, "n2": {}, "n3": {}}
    with pytest.raises(KeyError):
        declared(site, "none-such")


def test_a_setting_of_one_network_is_for_its_interface_only():
    text = "p: {description: x, mtu: 1400, per_network: {rail: {mtu: 1300, txqueuelen: 10}}}"
    assert interface(text, "p") == {"mtu": 1400}
    assert interface(text, "p", "eth2") == {"mtu": 1300, "txqueuelen": 10}


def test_an_interface_without_settings_is_left_out():
    text = "p: {description: x, per_network: {rail: {mtu: 1300}}}"
    assert list(policy_of(text)["profiles"]["p"]["interfaces"]) == ["eth2"]
    node_wide = "p: {description: x, busy_poll_us: 50}"
    assert policy_of(node_wide)["profiles"]["p"]["interfaces"] == {}


def test_a_bond_belongs_to_its_first_member():
    text = """\
pair:
  description: x
  transports: [rail-tcp]
  mtu: 1400
  bonding: {mode: 802.3ad, members: [eth2, eth1]}
"""
    bond = {"name": "bond0", "mode": "802.3ad", "members": ["eth2", "eth1"], "miimon_ms": 100}
    assert interface(text, "pair", "eth2") == {"mtu": 1400, "bond": bond}
    assert interface(text, "pair", "eth1") == {"mtu": 1400}


CHAIN = """\
far:
  description: far
  source: a paper
  mtu: 1300
  coalescing: {rx_usecs: 5, tx_usecs: 6}
  offloads: {tso: off, gro: off}
  driver: {module: e1000, parameters: {RxIntDelay: 0, TxIntDelay: 8}}
  suits: [latency-bound]
  per_network: {rail: {mtu: 1290}}
near:
  base: far
  coalescing: {rx_usecs: 1}
  offloads: {tcp-segmentation-offload: on}
  driver: {module: e1000, parameters: {TxIntDelay: 0}}
"""


def test_a_profile_has_its_own_values_and_the_rest_of_its_bases():
    flat = interface(CHAIN, "near")
    assert {key: value for key, value in flat.items() if key != "driver"} == {
        "mtu": 1300,
        "coalesce.rx-usecs": 1,
        "coalesce.tx-usecs": 6,
        "feature.tcp-segmentation-offload": "on",
        "feature.generic-receive-offload": "off",
    }
    assert flat["driver"]["parameters"] == {"RxIntDelay": "0", "TxIntDelay": "0"}
    whole = resolve("near", site_with(CHAIN).nic_profiles)
    assert (whole.description, whole.source) == ("far", "a paper")
    assert whole.suits == ("latency-bound",)
    # A feature is of one profile alone.
    assert policy_of(CHAIN)["profiles"]["near"]["feature"] == "nic_near"


def test_another_module_inherits_no_parameters():
    text = CHAIN + "other: {base: near, driver: {module: igb}}"
    assert interface(text, "other")["driver"]["parameters"] == {}


def test_null_removes_a_setting_of_the_base():
    text = CHAIN + "less: {base: near, mtu: null, driver: null, coalescing: {tx_usecs: null}}"
    assert set(interface(text, "less")) == {
        "coalesce.rx-usecs", "feature.tcp-segmentation-offload", "feature.generic-receive-offload",
    }  # fmt: skip
    text = CHAIN + "none: {base: near, offloads: null, coalescing: null}"
    assert set(interface(text, "none")) == {"mtu", "driver"}


def test_the_nearer_profile_wins_over_a_networks_part_of_a_farther_one():
    text = CHAIN + "mine: {base: far, mtu: 1400}"
    assert interface(text, "mine", "eth2")["mtu"] == 1400
    assert interface(CHAIN, "near", "eth2")["mtu"] == 1290


@pytest.mark.parametrize("name", list(ready_profiles())[1:])
def test_each_ready_profile_is_a_profile_of_a_site_by_its_base(name):
    changes = {"subnet: 10.0.2.0/24": "subnet: 10.0.2.0/24, switch_mtu: 9000"}
    site = site_with(f'{name}: {{base: "ready:{name}"}}', changes)
    profile = compile_policy(site)["profiles"][name]
    assert profile["description"] == ready_profiles()[name].description
    assert profile["interfaces"]["eth1"] == resolve(name, ready_profiles()).settings("test")
    assert profile["interfaces"]["eth1"]


def test_the_digest_covers_all_other_fields():
    policy = policy_of(EVERYTHING)
    assert re.fullmatch(r"[0-9a-f]{64}", policy["digest"])
    assert digest(policy) == policy["digest"]
    assert digest({**policy, "digest": ""}) == policy["digest"]
    assert digest(dict(reversed(policy.items()))) == policy["digest"]  # as another program wrote it
    other = policy_of(EVERYTHING.replace("mtu: 9000", "mtu: 9001"))
    assert other["digest"] != policy["digest"]


def test_the_policy_does_not_depend_on_hashing_or_the_order_of_keys(tmp_path):
    lines = EVERYTHING.splitlines(keepends=True)
    for index, text in enumerate((EVERYTHING, "".join([lines[0], *lines[:0:-1]]))):
        (tmp_path / f"{index}.yaml").write_text(text_with(text))
    program = textwrap.dedent("""\
        import sys
        from seatrial.base import yamlfile
        from seatrial.site.nic_policy import compile_policy
        from seatrial.site.model import Site
        for file in sys.argv[1:]:
            print(compile_policy(yamlfile.load(file, Site)[0])["digest"])
    """)
    digests = set()
    for seed in ("1", "2"):
        out = subprocess.run(
            [sys.executable, "-c", program, *map(str, sorted(tmp_path.glob("*.yaml")))],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True, timeout=600,
        ).stdout  # fmt: skip
        digests.update(out.split())
    assert len(digests) == 1


# --- properties of inheritance, for any chain of profiles ------------------------------------

COUNTS = st.none() | st.integers(0, 1000)
GROUPS = st.fixed_dictionaries(
    {},
    optional={
        "mtu": st.none() | st.integers(1280, 9000),
        "txqueuelen": COUNTS,
        "coalescing": st.none()
        | st.dictionaries(st.sampled_from(["rx_usecs", "tx_usecs", "rx_frames"]), COUNTS),
        "offloads": st.none()
        | st.dictionaries(st.sampled_from(["tso", "gro", "rx-all"]), st.none() | st.booleans()),
        "napi_threaded": st.none() | st.booleans(),
        "rps_cpus": st.none() | st.sampled_from(["all", "none", "0", "0-3"]),
        "egress_rate": st.none() | st.sampled_from(["1 Gbit/s", 8_000_000]),
    },
)
PROFILES = st.lists(
    st.tuples(GROUPS, st.dictionaries(st.sampled_from(["test", "rail"]), GROUPS)),
    min_size=1,
    max_size=4,
)
FLAT = {"coalescing": "coalesce.", "offloads": "feature.", "egress_rate": "egress_bit_s",
        "napi_threaded": "sysfs.threaded"}  # fmt: skip
KEYS = re.compile(
    r"mtu|txqueuelen|egress_bit_s|sysfs\.threaded|rps_cpus|coalesce\.(rx|tx)-(usecs|frames)"
    r"|feature\.(tcp-segmentation-offload|generic-receive-offload|rx-all)"
)


def line_of(chain) -> dict[str, NicProfile]:
    """Profiles p0, p1 ..., each the base of the next."""
    return {
        f"p{index}": NicProfile.model_validate(
            {"description": "x", **general, "per_network": special}
            | ({"base": f"p{index - 1}"} if index else {})
        )
        for index, (general, special) in enumerate(chain)
    }


@given(PROFILES)
@settings(max_examples=rounds(50, 1000))
def test_flat_keys_and_values_are_those_of_the_policy(chain):
    profiles = line_of(chain)
    for network in ("test", "rail", "other"):
        flat = resolve(f"p{len(chain) - 1}", profiles).settings(network)
        assert list(flat) == sorted(flat)
        for key, value in flat.items():
            assert KEYS.fullmatch(key)
            assert type(value) in (int, str)
            if key.startswith("feature."):
                assert value in ("on", "off")


@given(PROFILES)
@settings(max_examples=rounds(50, 1000))
def test_own_values_win_and_others_are_inherited(chain):
    profiles = line_of(chain)
    last = f"p{len(chain) - 1}"
    flat = resolve(last, profiles).settings("test")
    alone = resolve("p0", line_of(chain[-1:])).settings("test")
    assert alone.items() <= flat.items()
    before = resolve(f"p{len(chain) - 2}", profiles).settings("test") if len(chain) > 1 else {}
    general, special = chain[-1]
    named = {FLAT.get(group, group) for group in (*general, *special.get("test", {}))}
    for key in {*before, *flat} - set(alone):
        if not key.startswith(tuple(named)):
            assert flat.get(key) == before.get(key)
        else:  # named, and not among its own values: taken away, or left to the base
            assert key not in flat or flat[key] == before[key]


@given(PROFILES)
@settings(max_examples=rounds(25, 500))
def test_a_profile_without_settings_equals_its_base(chain):
    profiles = line_of([*chain, ({}, {})])
    base, same = f"p{len(chain) - 1}", f"p{len(chain)}"
    for network in ("test", "rail"):
        assert resolve(same, profiles).settings(network) == resolve(base, profiles).settings(
            network
        )


@given(PROFILES, st.randoms())
@settings(max_examples=rounds(12, 250))
def test_the_order_of_profiles_in_the_file_does_not_matter(chain, random):
    profiles = list(line_of(chain).items())
    expected = [resolve(name, dict(profiles)).settings("rail") for name, _ in profiles]
    names = [name for name, _ in profiles]
    random.shuffle(profiles)
    assert [resolve(name, dict(profiles)).settings("rail") for name in names] == expected
