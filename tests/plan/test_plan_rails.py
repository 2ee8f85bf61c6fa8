"""Sites with several networks under test: their cases, environments, selections and notes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from plan_support import bare_stack
from seatrial.base.errors import InputError
from seatrial.base.paths import CHECKOUT
from seatrial.checks.configuration import configuration
from seatrial.plan.check import check_site
from seatrial.plan.resolve import resolve, unmeasured
from seatrial.plan.selection import Selection, select
from seatrial.results.record import Case
from seatrial.results.requirements import Other, Select
from seatrial.site.load import load_site
from trial_support import make_site

BENCHMARKS = {
    "netpipe": {},
    "imb": {"networks": ["rail1"]},
    "links": {},
    "node_compute": {},
    "tcp_streams": {"networks": ["rail1", "rail2"], "streams": [2]},
}
BOND = {
    "description": "one of both",
    "bonding": {"mode": "balance-rr", "members": ["eth1", "eth2"]},
}
ONE = {"description": "large frames", "networks": ["rail2"], "mtu": 9000}


@pytest.fixture
def site(tmp_path):
    return load_site(
        make_site(
            tmp_path / "site",
            BENCHMARKS,
            transports={"openmpi-tcp": {}, "mpich-ofi": {"network": "rail2"}},
            nic_profiles={"bond": {**BOND, "transports": ["tcp"]}, "one": ONE},
            rails=2,
            profiles=["*"],
        )
    )


@pytest.mark.parametrize(
    ("change", "field", "message", "correction"),
    [
        (
            {"transports": {"openmpi-tcp": {"network": "mgmt"}}}, "transports.openmpi-tcp.network",
            "network 'mgmt' is not of role test", "one of rail1, rail2",
        ),
        (
            {"transports": {"openmpi-tcp": {"network": "rail2"}}, "cable": False},
            "transports.openmpi-tcp.network", "network 'rail2' has no cable", "another network",
        ),
        (
            {"benchmarks": {"tcp_streams": {"networks": ["rail1", "rail2"]}}, "cable": False},
            "benchmarks.tcp_streams.networks.1", "network 'rail2' has no cable", "another network",
        ),
        (
            {
                "benchmarks": {"netpipe": {"networks": ["rail1"]}, "links": {}},
                "transports": {"openmpi-tcp": {"network": "rail2"}}, "networks": ["rail9"],
            },
            "trial.networks.0", "'rail9' matches nothing", "rail",
        ),
    ],
)  # fmt: skip
def test_a_network_that_cannot_be_measured_is_one_problem(
    tmp_path, change, field, message, correction
):
    change = dict(change)
    cable = change.pop("cable", True)
    benchmarks = change.pop("benchmarks", {"netpipe": {}})
    file = make_site(
        tmp_path / "site", benchmarks, **{"transports": {"openmpi-tcp": {}}, **change}, rails=2
    )
    data = YAML(typ="safe").load(file)
    data["networks"]["rail2"]["cable"] = cable
    YAML().dump(data, file)
    with pytest.raises(InputError) as caught:
        load_site(file)
    (problem,) = caught.value.problems
    assert problem.field == field
    assert message in problem.message
    assert correction in problem.correction
    assert problem.line is not None


def cases_of(site, profile, **selection):
    plan = resolve(select(site, Selection(**selection)), bare_stack())
    return [case.id for case in plan.cases if case.profile == profile]


def test_each_rail_is_measured_by_each_transport_that_can_use_it(site):
    assert cases_of(site, "default") == [
        "netpipe.openmpi-tcp@rail1.default.2n",
        "netpipe.openmpi-tcp@rail2.default.2n",
        "netpipe.mpich-ofi@rail2.default.2n",
        "netpipe.tcp@rail1.default.2n",
        "netpipe.tcp@rail2.default.2n",
        "imb.openmpi-tcp@rail1.default.2n",
        "links.tcp@rail1.default.4n",
        "links.tcp@rail2.default.4n",
        "node_compute.none.default.4n",
        "tcp_streams-2-streams.tcp.default.2n",
    ]


def test_a_bond_leaves_one_network_and_a_profile_of_one_rail_is_measured_on_it(site):
    assert [one for one in cases_of(site, "bond") if "netpipe" in one] == [
        "netpipe.tcp@rail1.bond.2n"
    ]
    assert {one.split("@")[1].split(".")[0] for one in cases_of(site, "one") if "@" in one} == {
        "rail2"
    }


def test_the_environment_has_the_interface_of_its_rail(site):
    stack = bare_stack()
    stack.transports["openmpi-tcp"].bind = {"OMPI_MCA_btl_tcp_if_include": "{interface}"}
    plan = resolve(site, stack)
    written = configuration(plan, None, Path("site.yaml"))
    env = {
        environment["name"]: dict(environment["env_vars"])
        for environment in written["environments"]
        if "target_systems" not in environment
    }
    name = "OMPI_MCA_btl_tcp_if_include"
    assert env["openmpi-tcp--rail1"][name] == "eth1"
    assert env["openmpi-tcp--rail2"][name] == "eth2"
    partitions = {
        partition["name"]: partition["environs"]
        for partition in written["systems"][0]["partitions"]
    }
    assert "tcp--rail2" in partitions["compute"]
    assert "tcp--rail2" not in partitions["compute_bond"]
    assert "tcp--rail1" not in partitions["compute_one"]
    features = {
        environment["name"]: environment["features"] for environment in written["environments"]
    }
    assert "imb" in features["openmpi-tcp--rail1"]
    assert "imb" not in features["openmpi-tcp--rail2"]
    assert features["none"] == ["node_compute"]
    assert plan.job("tcp", "default", 2, "rail2").interface == "eth2"
    assert plan.job("tcp", "bond", 2, "rail1").interface == "bond0"


TCP = "OMPI_MCA_btl_tcp_if_include"


def pairs_plan(tmp_path, **changed):
    """The plan of a site on which pairs of ranks use both rails, and trials measure the first."""
    settings = {"networks": ["rail1", "rail2"], "pairs": [2]}
    file = make_site(
        tmp_path / "site", {"mpi_pairs": settings, "netpipe": {}},
        transports={"openmpi-tcp": changed.pop("transport", {})},
        nic_profiles={"bond": BOND, "jumbo": {**ONE, "networks": ["rail1", "rail2"]}},
        rails=2, profiles=["*"], networks=["rail1"],
    )  # fmt: skip
    stack = bare_stack()
    part = stack.transports["openmpi-tcp"]
    part.bind, part.env, part.programs = {TCP: "{interface}"}, {}, {"mpi_pairs": ["/b/mpi_pairs"]}
    part.check_env = {"UCX_TLS": "tcp,self", "OMPI_MCA_btl": "tcp,self"}
    part.within_env = {"UCX_TLS": "tcp,self,sm", "OMPI_MCA_btl": "^ofi"}
    return resolve(load_site(file), stack)


def test_pairs_use_networks_that_the_trials_do_not_measure(tmp_path):
    plan = pairs_plan(tmp_path)
    for profile in ("default", "jumbo"):
        job = plan.job("openmpi-tcp", profile, 2)
        rails = {name: (rail.network, rail.interface, rail.env[TCP])
                 for name, rail in job.rails.items()}  # fmt: skip
        assert rails == {"rail1": ("rail1", "eth1", "eth1"), "rail2": ("rail2", "eth2", "eth2")}
        assert (job.interface, job.env[TCP]) == ("eth1", "eth1")  # the network under test


def test_pairs_of_a_bonds_members_use_the_bond(tmp_path):
    rails = pairs_plan(tmp_path).job("openmpi-tcp", "bond", 2).rails
    assert {(rail.network, rail.interface, rail.env[TCP]) for rail in rails.values()} == {
        ("rail1", "bond0", "bond0")
    }
    assert set(rails) == {"rail1", "rail2"}


def test_ranks_within_a_node_get_its_memory_and_the_rest_of_the_sites_choice(tmp_path):
    job = pairs_plan(tmp_path).job("openmpi-tcp", "default", 2)
    assert job.within_env == {"UCX_TLS": "tcp,self,sm", "OMPI_MCA_btl": "^ofi"}
    assert job.env["OMPI_MCA_btl"] == "tcp,self"
    own = pairs_plan(tmp_path / "own", transport={"env": {"UCX_TLS": "rc_v,self"}})
    assert own.job("openmpi-tcp", "default", 2).within_env["UCX_TLS"] == "rc_v,self,sm"


def test_a_selected_rail_keeps_the_names_of_the_cases(site):
    assert cases_of(site, "default", networks=("rail2",), checks=("links",)) == [
        "links.tcp@rail2.default.4n"
    ]
    assert not [one for one in cases_of(site, "default", networks=("rail1",)) if "rail1" not in one]
    with pytest.raises(InputError, match="--network 'rial2' matches nothing"):
        select(site, Selection(networks=("rial2",)))


def test_one_network_of_the_trials_gives_the_names_of_a_site_with_one(tmp_path):
    file = make_site(tmp_path / "site", {"links": {}}, transports={}, rails=2, networks=["rail2"])
    plan = resolve(load_site(file), bare_stack())
    assert [case.id for case in plan.cases] == ["links.tcp.default.4n"]
    assert plan.job("tcp", "default", 4).interface == "eth2"


def test_a_rail_that_is_not_measured_is_named_with_the_reason(site, tmp_path):
    plan = resolve(site, bare_stack())
    profiles = [case for case in plan.cases if case.check != "tcp_streams"]
    (bonded, other) = unmeasured(plan.model_copy(update={"cases": profiles}), site)
    assert bonded == (
        "network rail1 (eth1) is not measured under NIC profile one: the profile sets only rail2"
    )
    assert other == (
        "network rail2 (eth2) is not measured under NIC profile bond: its interface is a member "
        "of bond0 there"
    )
    part = resolve(
        select(site, Selection(networks=("rail1",), profiles=("default",))), bare_stack()
    )
    part.outside = plan.cases
    assert list(unmeasured(part, site)) == [
        "network rail2 (eth2) is not measured: the trial's selection leaves it out"
    ]
    only = {"openmpi-tcp": {"network": "rail1"}}
    file = make_site(
        tmp_path / "only", {"netpipe": {"networks": ["rail1"]}}, transports=only, rails=2
    )
    notes = check_site(file).notes
    assert any("rail2 (eth2) is not measured: no check and transport" in note for note in notes)


def test_a_rail_without_the_rdma_device_of_the_others_is_named(tmp_path):
    folder = shutil.copytree(CHECKOUT / "site-configs/lab-rdma", tmp_path / "lab-rdma")
    file = folder / "site.yaml"
    (folder / "requirements.yaml").write_text(
        "schema: 1\ninformative:\n  - {select: {}, metric: '*', reason: a test}\n"
    )
    assert not any("over RDMA" in note for note in check_site(file).notes)
    text = file.read_text()
    assert text.count("    device: rxe2_%n:1\n") == 1
    file.write_text(text.replace("    device: rxe2_%n:1\n", ""))
    (note,) = [note for note in check_site(file).notes if "over RDMA" in note]
    assert note.startswith("network rail2 (eth2) is not measured over RDMA (")
    assert "verbs" in note
    assert note.endswith("it has no device in site.yaml, and another network of its fabric has one")


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"nodes": [{"names": "n[1-3]", "cores": 2},
                    {"names": "n4", "cores": 2, "networks": ["mgmt", "rail1"]}]},
         "nodes.1.networks", ("n4", "rail2", "compute", "trial.networks")),
        ({"nodes": [{"names": "n[1-4]", "cores": 2, "networks": ["rail9"]}]},
         "nodes.0.networks.0", ("rail9", "rail")),
        ({"trial": {"networks": ["rial*"]}}, "trial.networks.0", ("rial*", "rail")),
        ({"benchmarks": {"links": {"networks": ["mgmt"]}}}, "benchmarks.links.networks.0",
         ("mgmt",)),
        ({"trial": {"networks": ["rail1"]}, "transports": {"mpich-ofi": {"network": "rail2"}}},
         "transports.mpich-ofi.network", ("rail2", "trial.networks")),
    ],
)  # fmt: skip
def test_site_check_names_what_is_wrong_with_a_rail(tmp_path, change, field, words):
    file = make_site(tmp_path / "site", {"links": {}}, transports={}, rails=2, changes=change)
    with pytest.raises(InputError) as caught:
        load_site(file)
    texts = [str(problem) for problem in caught.value.problems if problem.field == field]
    assert texts, [str(problem) for problem in caught.value.problems]
    assert all(word in texts[0] for word in words)


def test_a_requirement_is_of_all_rails_or_of_one_and_compares_within_a_rail():
    case = Case(check="imb", transport="openmpi-tcp", network="rail2", nodes=2)
    assert Select(check="imb").matches_case(case)
    assert Select(network="rail2").matches_case(case)
    assert not Select(network="rail1").matches_case(case)
    other = Other(check="netpipe", transport="tcp", metric="latency_us").case(case)
    assert other.id == "netpipe.tcp@rail2.default.2n"
    assert Other(network="rail1", metric="x").case(case).network == "rail1"
    assert Other(check="node_compute", transport="none", metric="x").case(case).network == ""
