"""What is missing is found without changing anything, from faked package states."""

import pytest

from seatrial.base.errors import LabError
from seatrial.stack import apt, machine
from seatrial_lab.software import build, provision
from seatrial_lab.software.packages import RELEASES, supported_release
from seatrial_lab.software.steps import code_of

BOOKWORM = 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nPRETTY_NAME="Debian 12"\n'


@pytest.fixture
def debian(monkeypatch, tmp_path):
    """A faked Debian: returns a function that says which release and which packages it has."""

    def set_up(version="12", packages=None):
        file = tmp_path / "os-release"
        file.write_text(BOOKWORM.replace("12", version))
        has = RELEASES[version].packages if packages is None else packages
        found = supported_release(file)
        monkeypatch.setattr(provision, "supported_release", lambda: found)
        monkeypatch.setattr(machine, "installed", lambda: dict.fromkeys(has, "1.0"))

    return set_up


@pytest.mark.parametrize("version", list(RELEASES))
def test_a_bare_system_needs_everything(debian, tmp_path, version):
    debian(version, packages=[])
    plan = provision.plan(tmp_path / "prefix")
    assert plan.packages == list(RELEASES[version].packages)
    assert set(plan.pins) == {"impi-rt", "mpich", "mpi4py", "simgrid"}
    names = [step.name for step in plan.steps]
    assert {"netpipe-openmpi", "hpcc-mpich", "npb-mpich", "osu"} <= set(names)
    assert not plan.empty
    assert not (tmp_path / "prefix").exists()


def test_only_what_is_missing_is_listed(debian, tmp_path):
    debian(packages=[name for name in RELEASES["12"].packages if name not in ("lmod", "munge")])
    plan = provision.plan(tmp_path)
    assert plan.packages == ["munge", "lmod"]
    assert "install 2 Debian packages: munge lmod" in plan.lines()


def test_a_finished_step_is_not_done_again_unless_its_key_or_product_goes(debian, tmp_path):
    debian()
    step = next(s for s in provision.plan(tmp_path).steps if s.name == "netpipe-openmpi")
    stamps = tmp_path / "stamps"
    stamps.mkdir()
    (stamps / step.name).write_text(step.key)
    for made in step.makes:
        made.parent.mkdir(parents=True)
        made.touch()

    def missing():
        return step.name in [s.name for s in provision.plan(tmp_path).steps]

    assert not missing()
    (stamps / step.name).write_text("another key")
    assert missing()
    (stamps / step.name).write_text(step.key)
    step.makes[0].unlink()
    assert missing()


def test_a_step_depends_only_on_the_code_that_it_uses(tmp_path):
    """A new program, or a change of one, must not build all the others again."""
    file = tmp_path / "builds.py"
    text = (
        "FLAGS = ['-O2']\nOTHER = 1\n\n\ndef helper():\n    return FLAGS\n\n\n"
        "def one():\n    return helper()\n\n\ndef two():\n    return OTHER\n"
    )

    def code(old="", new="", more=""):
        file.write_text((text.replace(old, new) if old else text) + more)
        names = {}
        exec(compile(file.read_text(), str(file), "exec"), names)
        return code_of(names["one"]), code_of(names["two"])

    one, two = code()
    assert code(more="\n\ndef three():\n    return one()\n") == (one, two)
    assert code("OTHER = 1", "OTHER = 2")[0] == one != code("'-O2'", "'-O3'")[0]
    assert code("return FLAGS", "return FLAGS[0]") != (one, two)
    assert code("return FLAGS", "return FLAGS[0]")[1] == two
    # the real builds: each includes what all C programs share, and no other program
    assert "WARNINGS" in code_of(build.netpipe)
    assert "def _compile" in code_of(build.comms)
    assert "def comms" not in code_of(build.netpipe)


def test_an_upgraded_mpi_is_built_against_again(debian, tmp_path, monkeypatch):
    debian()

    def key():
        return {s.name: s.key for s in provision.plan(tmp_path).steps}

    before = key()
    packages = machine.installed() | {"libopenmpi-dev": "2.0"}
    monkeypatch.setattr(machine, "installed", lambda: packages)
    after = key()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {name for name in before if name.endswith("-openmpi")}
    assert {"netpipe-openmpi", "hpcc-openmpi"} <= changed


def test_debian_13_has_its_own_names():
    old, new = RELEASES["12"], RELEASES["13"]
    assert "libatlas3-base" in old.packages
    assert "libatlas3-base" not in new.packages
    assert "atlas" not in new.blas
    assert "libpmi2-0t64" in new.packages


@pytest.mark.parametrize(
    "text",
    ["ID=ubuntu\nVERSION_ID=24.04\nPRETTY_NAME='Ubuntu 24.04'\n", BOOKWORM.replace("12", "11")],
)
def test_another_system_is_told_what_it_would_need(tmp_path, text):
    (tmp_path / "os-release").write_text(text)
    with pytest.raises(LabError, match=r"Ubuntu 24.04|Debian 11") as error:
        supported_release(tmp_path / "os-release")
    for package in ("slurm-wlm", "openmpi-bin", "libopenblas0-openmp"):
        assert package in str(error.value)


def test_without_root_the_missing_packages_are_named(debian, tmp_path, monkeypatch):
    debian(packages=[name for name in RELEASES["12"].packages if name != "iperf3"])
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(apt, "install", lambda packages: pytest.fail("apt was called"))
    with pytest.raises(LabError, match=r"iperf3 needs root"):
        provision.provision(lambda line: None, tmp_path / "prefix")
    assert not (tmp_path / "prefix").exists()
