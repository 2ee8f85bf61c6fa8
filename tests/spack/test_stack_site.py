"""The ``stack`` of a site file, and where things of a site's Spack stack are."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.base import yamlfile
from seatrial.base.errors import InputError, LabError
from seatrial.site.load import load_site, site_file
from seatrial.site.model import Stack
from seatrial.stack import load_stack, paths


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source: spak\n", r"x:1: source: 'spak' is not one of distribution, spack"),
        ("source: spack\nroot: opt\n", r"x:2: root: 'opt' is not an absolute path"),
        ("source: spack\nmodules: tmod\n", r"x:2: modules: 'tmod' is not one of lmod, tcl"),
        (
            "source: spack\npypi_packages: [impi-rt]\n",
            r"x:2: pypi_packages.0: 'impi-rt' is not name==version",
        ),
        (
            "source: distribution\nscopes: [a]\n",
            r"x:2: scopes: scopes is for a stack of Spack",
        ),
    ],
)
def test_a_fault_names_its_line_and_field(text: str, message: str):
    with pytest.raises(InputError, match=message):
        yamlfile.loads(text, Stack, "x")


def test_a_site_of_the_distribution_has_no_environment():
    file = site_file("lab")
    with pytest.raises(InputError, match=r"stack.source: the stack of lab is distribution's"):
        paths.site_paths(load_site(file), file)


@pytest.fixture
def site(tmp_path: Path):
    """A site of Spack, with ``stack`` as given; without an environment."""

    def make(**stack: object):
        file = site_file("lab-spack")
        site = load_site(file).model_copy(deep=True)
        site.name = "nowhere"
        site.stack = Stack.model_validate({"source": "spack", **stack})
        return site, tmp_path / "site.yaml"

    return make


def test_a_missing_environment_is_named(site):
    with pytest.raises(InputError, match=r"stack.environment: there is no .*spack/spack.yaml"):
        paths.site_paths(*site())


def test_a_missing_scope_is_named(site, tmp_path: Path):
    (tmp_path / "spack").mkdir()
    (tmp_path / "spack/spack.yaml").touch()
    with pytest.raises(InputError, match=r"stack.scopes.0: there is no folder .*gone"):
        paths.site_paths(*site(scopes=["gone"]))


def test_the_sites_own_spack_is_used(site, tmp_path: Path, monkeypatch):
    (tmp_path / "spack").mkdir()
    (tmp_path / "spack/spack.yaml").touch()
    assert paths.site_paths(*site()).own_root
    found = paths.site_paths(*site(root="/opt/spack"))
    assert (found.root, found.own_root) == (Path("/opt/spack"), False)
    monkeypatch.setenv(paths.ROOT, "/usr/local/spack")
    assert paths.site_paths(*site()).root == Path("/usr/local/spack")


def test_a_stack_that_is_not_built_says_what_to_run(site, monkeypatch):
    monkeypatch.delenv("SEATRIAL_STACK", raising=False)
    with pytest.raises(LabError, match=r"run `seatrial stack build --site nowhere`"):
        load_stack(site()[0])


def test_no_spack_and_no_network_is_one_sentence(tmp_path: Path, monkeypatch):
    monkeypatch.delenv(paths.ROOT, raising=False)
    monkeypatch.setattr(paths, "GITHUB", f"file://{tmp_path}/none")
    with pytest.raises(LabError, match=r"there is no Spack in .*, and .* cannot be reached"):
        paths.check_spack(tmp_path)


def test_the_system_scope_is_read_and_the_users_is_not(site, tmp_path: Path):
    (tmp_path / "spack").mkdir()
    (tmp_path / "spack/spack.yaml").touch()
    found = paths.site_paths(*site())
    variables = found.variables()
    assert variables["SPACK_USER_CONFIG_PATH"] == str(found.home / "config")
    assert not {"SPACK_DISABLE_LOCAL_CONFIG", "SPACK_SYSTEM_CONFIG_PATH"} & set(variables)
