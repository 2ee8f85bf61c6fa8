"""Site files: every error has file, line, field and correction."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import jsonschema
import pytest
from pydantic import TypeAdapter
from ruamel.yaml import YAML
from site_support import problems_of
from typer.testing import CliRunner

from seatrial.base.errors import InputError
from seatrial.base.fields import NodeList, parse_cpus, parse_rate, parse_size
from seatrial.base.paths import CHECKOUT, CHECKS
from seatrial.benchmarks.registry import registry
from seatrial.cli.site import app as site_commands
from seatrial.cli.site import site_schema
from seatrial.site import load
from seatrial.site.load import load_site, site_names
from seatrial.site.model import Site
from seatrial.site.new import write_starting_point
from seatrial.site.nic_policy import compile_policy
from seatrial.site.validate import site_problems

LAB = CHECKOUT / "site-configs" / "lab" / "site.yaml"
COST = "usd: 1, name: a, date: 2026-11-01, includes: b"


@pytest.fixture
def changed(tmp_path):
    """The lab's site file with one piece of text replaced; returns its path and the line."""

    def make(old: str, new: str) -> tuple[Path, int]:
        text = LAB.read_text()
        assert text.count(old) >= 1, old
        at = text.index(old)
        file = tmp_path / "lab" / "site.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text.replace(old, new, 1))
        return file, text[:at].count("\n") + 1

    return make


CHECK = """\
@site_test
class Comms(Check):
    benchmark = "comms"
    valid_systems = ["+comms"]
    blas = parameter(context.variants("comms"), fmt="+".join)
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CHECK, ""),
        (None, "its check is missing: checks/comms.py"),
        (CHECK.replace('= "comms"', '= "cooms"'), 'checks/comms.py has no check of this benchmark'),
        (CHECK.replace("+comms", "+cooms"), "asks for +cooms, which no partition has"),
        (CHECK.replace("@site_test\n", ""), "checks/comms.py:1: ReFrame does not run class Comms"),
        (CHECK.replace("(Check):", "(Check)"), "checks/comms.py: expected ':' (comms.py, line 2)"),
        (CHECK + "\0", "checks/comms.py: source code string cannot contain null bytes"),
        (CHECK.replace('variants("comms")', 'variants("osu")'),
         "checks/comms.py:5: context.variants('osu') is of another benchmark"),
    ],
)  # fmt: skip
def test_a_benchmark_needs_a_check_that_reframe_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, message: str
) -> None:
    """ReFrame passes over a check of something else without a word."""
    checks = tmp_path / "checks"
    shutil.copytree(CHECKS, checks)
    monkeypatch.setattr("seatrial.benchmarks.registry.CHECKS", checks)
    (checks / "comms.py").unlink()
    if text:
        (checks / "comms.py").write_text(text)
    found = [" ".join(problem) for problem in site_problems(load_site(LAB))]
    assert len(found) == bool(message)
    assert all(message in one and "benchmarks.comms" in one for one in found)


@pytest.mark.parametrize("name", site_names())
def test_shipped_sites_have_no_errors(name):
    site = load_site(load.site_file(name))
    assert site.name == name


@pytest.mark.parametrize(
    ("old", "new", "field", "words"),
    [
        ("    role: test\n", "    role: tset\n", "networks.test.role", ("test",)),
        ("    nodes: n[1-4]\n", "    nodes: n[1-5]\n", "partitions.compute.nodes", ("n5",)),
        ("interface: eth1", "interface: eth0", "networks.test.interface", ("eth0", "mgmt")),
        ("  openmpi-ucx:\n", "  openmpi-ucx:\n    network: tset\n",
         "transports.openmpi-ucx.network", ("tset", "'test'")),
        ("    max_bytes: 1 MiB\n", "    max_bytes: 1 MB\n", "benchmarks.netpipe.max_bytes",
         ("MiB",)),
        ("  hpl:\n", "  hpll:\n", "benchmarks.hpll", ("hpl",)),
        ("  hpl:\n", "  mpbench:\n  hpl:\n", "benchmarks.mpbench", ("nothing", "mpbench: {}")),
        ("    nodes: [4]\n", "    nodes: [5]\n", "benchmarks.links.nodes.0", ("5 nodes",)),
        ("repeats: 2", "repeats: 0", "trial.repeats", ("1",)),
        ("repeats: 2", "repeats: true", "trial.repeats", ("true is not a number",)),
        ("cores: 2\n", "cores: two\n", "nodes.0.cores", ()),
        ("mpi_time: [openmpi-tcp]", "mpi_time: [opnmpi-tcp]", "benchmarks.hpl.mpi_time.0",
         ("'openmpi-tcp'",)),
        ("cores: 2\n", "cores: 2\n    GHz: 2.5\n", "nodes.0.GHz", ("flop_per_cycle",)),
        ("trial:\n", "machine:\n  power: {watts: 9, source: BCM, load: HPL}\n\ntrial:\n",
         "machine.power.source", ("'BMC'",)),
        ("jobs:\n", f"machine: {{costs: [{{{COST}, profile: x}}]}}\njobs:\n",
         "machine.costs.0.profile", ("jumbo",)),
        ("trial:\n", "machine:\n  costs: [{name: a, usd: 1, date: soon, includes: b}]\n\ntrial:\n",
         "machine.costs.0.date", ()),
    ],
)  # fmt: skip
def test_a_problem_has_line_and_field(changed, old, new, field, words):
    file, line = changed(old, new)
    with pytest.raises(InputError) as caught:
        load_site(file)
    matches = [p for p in caught.value.problems if p.field == field]
    assert matches, [str(p) for p in caught.value.problems]
    inserted = new.count("\n") - old.count("\n")
    offset = new[: new.index(field.rsplit(".", 1)[-1])].count("\n") if inserted else 0
    assert matches[0].line == line + offset
    assert matches[0].correction
    for word in words:
        assert word in f"{matches[0].message} {matches[0].correction}"


def test_a_trial_of_an_unknown_profile_is_refused(changed):
    file, _ = changed("name: lab\n", "name: lab\n")
    text = re.sub(r"(?m)^  profiles: .*$", "  profiles: [none-such]", file.read_text())
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        load_site(file)
    (problem,) = caught.value.problems
    assert problem.field == "trial.profiles.0"
    assert text.splitlines()[problem.line - 1] == "  profiles: [none-such]"


def test_all_problems_are_reported_at_once(changed):
    file, _ = changed("repeats: 2", "repeats: 0")
    file.write_text(file.read_text().replace("role: management", "role: mgmt"))
    with pytest.raises(InputError) as caught:
        load_site(file)
    assert {"trial.repeats", "networks.mgmt.role"} <= {p.field for p in caught.value.problems}


def test_an_unknown_site_suggests_the_nearest_name():
    with pytest.raises(InputError, match="did you mean 'lab'"):
        load.site_file("lba")


@pytest.mark.parametrize("path", ["site-configs/lba/site.yaml", "/lba.yml"])
def test_a_file_of_a_site_that_is_not_there_is_named_as_it_was_given(path):
    with pytest.raises(InputError) as caught:
        load.site_file(path)
    assert str(caught.value) == f"{path}: there is no such file"


def test_the_folder_and_the_name_must_agree(changed):
    file, line = changed("name: lab\n", "name: harbour\n")
    with pytest.raises(InputError) as caught:
        load_site(file)
    assert caught.value.problems[0].line == line


def test_starting_point_is_valid_and_commented(tmp_path):
    folder = write_starting_point(tmp_path / "harbour", "harbour", "node[01-16]", "ens1f0")
    site = load_site(folder / "site.yaml")
    assert site.networks["test"].interface == "ens1f0"
    assert site.benchmarks.links.nodes == site.benchmarks.node_compute.nodes == [16]
    assert (folder / "site.yaml").read_text().count("#") > 8
    profiles = compile_policy(load_site(folder / "site.yaml"))["profiles"]
    assert {"default", "low-latency"} < set(profiles)
    assert profiles["bulk"]["interfaces"]["ens1f0"]["coalesce.rx-usecs"] == 100
    with pytest.raises(InputError, match="exists already"):
        write_starting_point(folder, "harbour", "n[1-2]", "eth1")


def test_an_option_with_a_second_line_is_refused(tmp_path):
    """It would be a command in a job script."""
    changes = {"partitions:": 'slurm: {options: ["--exclusive\\ntouch x"]}\npartitions:'}
    [problem], _ = problems_of(tmp_path, "", changes)
    assert (problem.field, problem.correction) == (
        "slurm.options.0",
        "write for example --exclusive",
    )
    assert problem.message == "'--exclusive\\ntouch x' is not an option on one line"


def test_links_of_a_large_site_are_those_of_all_nodes(tmp_path):
    folder = write_starting_point(tmp_path / "harbour", "harbour", "node[001-100]", "eth1")
    benchmarks = load_site(folder / "site.yaml").benchmarks
    assert (benchmarks.links.nodes, benchmarks.node_compute.nodes) == ([100], [64])


@pytest.mark.parametrize(
    ("name", "nodes", "interface", "sentence"),
    [
        ("Fjord2", "n1", "eth1",
         "'Fjord2' is not a site name: a lower-case letter, then lower-case letters"),
        ("harbour", "n[1", "eth1", "--nodes 'n[1': not a node list"),
        ("harbour", "n[1-100000000]", "eth1",
         "--nodes 'n[1-100000000]': names more than 65536 nodes"),
        ("harbour", "n[1-300]x[1-300]", "eth1",
         "--nodes 'n[1-300]x[1-300]': names more than 65536 nodes"),
        ("harbour", "n1,$(x)", "eth1", "--nodes 'n1,$(x)': '$(x)' is not the name of a node"),
        ("harbour", "n1", "e h", "--interface: 'e h' is not an interface (write for example eth1)"),
        ("harbour", "n1..4", "eth1", "--nodes 'n1..4' is one node; a network has two"),
        ("harbour", "n[1-400]", "eth1", "networks.mgmt.subnet: 10.0.0.0/24 has 254 addresses"),
    ],
)  # fmt: skip
def test_a_bad_value_leaves_no_files_and_names_none(tmp_path, name, nodes, interface, sentence):
    with pytest.raises(InputError) as caught:
        write_starting_point(tmp_path / "new", name, nodes, interface)
    assert str(caught.value).startswith(sentence)
    assert "site.yaml" not in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_a_new_site_names_all_benchmarks(tmp_path):
    text = (
        write_starting_point(tmp_path / "new", "new", "n[1-4]", "eth1") / "site.yaml"
    ).read_text()
    listed = re.search(r"(?s)# There are: (.*?)\nbenchmarks:", text)[1]
    assert re.findall(r"\w+", listed) == list(registry())


@pytest.mark.parametrize(
    ("section", "correction"),
    [
        ("partitions", """add 'partitions: {compute: {nodes: "n[1-64]"}}'"""),
        ("nodes", """add 'nodes: [{names: "n[1-64]", cores: 16}]'"""),
        ("transports", "add 'transports: {openmpi-tcp: {}}'"),
    ],
)
def test_a_missing_section_comes_with_an_example_that_is_valid(changed, section, correction):
    file, _ = changed("name: lab\n", "name: lab\n")
    text = re.sub(rf"(?m)^{section}:\n(?:(?: |#|-).*\n|\n)+", "", file.read_text())
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        load_site(file)
    (problem,) = [one for one in caught.value.problems if one.field == section]
    assert problem.correction == correction
    example = correction.removeprefix("add '").removesuffix("'")
    file.write_text(f"{text}\n{example}\n")
    Site.model_validate(YAML(typ="safe").load(file.read_text()))


def test_a_wrong_value_comes_with_an_example_of_its_field(changed):
    file, _ = changed("cores: 2\n", "cores: two\n")
    file.write_text(file.read_text().replace("repeats: 2", "repeats: 0"))
    with pytest.raises(InputError) as caught:
        load_site(file)
    corrections = {problem.field: problem.correction for problem in caught.value.problems}
    assert corrections["nodes.0.cores"] == "write for example 'cores: 16'"
    assert corrections["trial.repeats"] == "write for example 'repeats: 2'"


def test_published_schema_fits_the_model_and_the_lab():
    published = json.loads((CHECKOUT / "site-configs" / "site.schema.json").read_text())
    assert published == site_schema(), "renew it: seatrial site schema --output ..."
    jsonschema.validate(YAML(typ="safe").load(LAB), published)


def test_a_hyphen_of_a_name_is_no_range():
    assert TypeAdapter(NodeList).validate_python("rack1-99999999") == "rack1-99999999"


@pytest.mark.parametrize(("text", "size"), [("64 KiB", 65536), ("4MiB", 4 << 20), (17, 17)])
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1 Gbit/s", 10**9),
        ("2.5Gbit/s", 2_500_000_000),
        ("100 Mbit/s", 10**8),
        (1_000_000, 1_000_000),
    ],
)
def test_rates(text, rate):
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["1 GB/s", "1 gbit/s", "0", "-8", "4", "0.1 kbit/s", ""])
def test_wrong_rates(text):
    with pytest.raises(ValueError, match=r"not a|above 0"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["999 kbit/s", 1000, "1000"])
def test_a_rate_without_its_unit_is_too_low(text):
    with pytest.raises(ValueError, match="below 1 Mbit/s"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "cpus"), [("3,1,2", "1-3"), ("0", "0"), (4, "4"), ("0-1, 3,8-9", "0-1,3,8-9")]
)
def test_cpu_lists_have_one_form(text, cpus):
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize("text", ["", "a", "3-1", "0,,1", "9999", "0-3;reboot", "-1"])
def test_wrong_cpu_lists(text):
    with pytest.raises(ValueError, match="not a CPU list"):
        parse_cpus(text)


@pytest.mark.parametrize("text", ["4 MB", "", "-1", "1.5 KiB", "4 KiB x"])
def test_wrong_sizes(text):
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


def test_several_partitions_need_a_choice(changed):
    two = "partitions:\n  debug:\n    nodes: n1\n"
    file, _ = changed("partitions:\n", two)
    with pytest.raises(InputError) as caught:
        load_site(file)
    assert [p.field for p in caught.value.problems] == ["trial.partition"]
    assert "debug, compute" in caught.value.problems[0].message
    file.write_text(file.read_text().replace("trial:\n", "trial:\n  partition: compute\n"))
    load_site.cache_clear()
    assert load_site(file).trial_partition == "compute"


def test_a_profile_that_sets_nothing_is_refused(changed):
    two = "nic_profiles:\n  idle: {description: more coalescing, feature: nic_idle}\n"
    file, line = changed("nic_profiles:\n", two)
    with pytest.raises(InputError) as caught:
        load_site(file)
    (problem,) = caught.value.problems
    assert (problem.field, problem.line) == ("nic_profiles.idle", line + 1)


def test_site_check_says_where_a_profile_has_no_effect(changed):
    file, _ = changed("nic_profiles:\n", "nic_profiles:\n  slow: {base: 'ready:cpu-saving'}\n")
    text = file.read_text().replace(
        "  openmpi-ucx:\n", "  openmpi-ucx:\n    data_path: verbs\n    env: {UCX_TLS: rc}\n"
    )
    text = text.replace("    switch_mtu: 9216\n", "    switch_mtu: 9216\n    device: mlx5_0:1\n", 1)
    file.write_text(text)
    file.with_name("requirements.yaml").write_text("schema: 1\nrequirements: []\n")
    result = CliRunner().invoke(site_commands, ["check", str(file)])
    assert result.exit_code == 0, result.output
    assert "no errors" in result.output
    sentence = "profile slow: coalescing and offloads do not affect transport openmpi-ucx"
    assert sentence in result.output
