"""A real build by Spack of three small packages: one works, one fails, one needs that."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from seatrial.base.errors import LabError
from seatrial.stack import build, make, portable, scope, transfer

pytestmark = pytest.mark.spack

RECIPE = '''\
from spack.package import depends_on, version
from spack_repo.builtin.build_systems.generic import Package
from spack.package import which


class {name}(Package):
    """A package of the tests."""

    homepage = "https://example.org"
    has_code = False
    version("1.0")
    {dependency}

    def install(self, spec, prefix):
        which("sh")("-c", "{command}; mkdir -p $0; touch $0/done", prefix.bin)
'''
PACKAGES = {
    "works": ("", "true"),
    "fails": ("", "echo the cable is cut >&2; exit 3"),
    "needs_fails": ('depends_on("fails")', "true"),
    "needs_both": ('depends_on("fails"); depends_on("works")', "true"),
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> str:
    """A line of spack.yaml that declares the packages."""
    folder = tmp_path_factory.mktemp("three")
    repo = folder / "repo" / "spack_repo" / "three"
    for name, (dependency, command) in PACKAGES.items():
        file = repo / "packages" / name / "package.py"
        file.parent.mkdir(parents=True)
        words = name.title().replace("_", "")
        file.write_text(RECIPE.format(name=words, dependency=dependency, command=command))
    (repo / "repo.yaml").write_text("repo:\n  namespace: three\n  api: v2.2\n")
    return f"repos: {{three: {repo}}}"


@pytest.fixture(scope="module")
def three(spack, repository, tmp_path_factory):
    """An environment of the three packages: its paths."""
    home = tmp_path_factory.mktemp("home") / "three"
    return spack.environment(home, ["works", "needs-fails"], repository)


@pytest.fixture(scope="module")
def outcome(three):
    """What the first build did, and the lines that it said."""
    said: list[str] = []
    build.concretize(three, said.append)
    return build.build(three, said.append), said


def test_what_can_be_built_is_built(outcome, three):
    done, said = outcome
    assert len(done.built) == 1
    assert any(line.startswith("1 of 3: works@1.0, ") for line in said)
    assert (Path(build.prefixes(three)[next(iter(done.built))]) / "bin/done").exists()


def test_a_failure_is_told_with_its_reason_and_the_end_of_its_log(outcome):
    done, _ = outcome
    assert [failure.package for failure in done.failures] == ["fails@1.0"]
    failure = done.failures[0]
    assert failure.message[0].startswith("ProcessError: Command exited with status 3")
    assert any("the cable is cut" in line for line in failure.tail)
    assert Path(failure.log).is_file()


def test_what_needs_it_is_named_apart(outcome):
    done, _ = outcome
    assert done.left_out == ["needs-fails@1.0"]
    assert done.summary()[0].endswith("1 failed, 1 not tried")


def test_the_lock_without_paths_holds_all_packages(outcome, three):
    text = portable.write(three).read_text()
    assert "works@1.0 build_system=generic\n" in text
    assert "needs-fails@1.0 build_system=generic ^fails@1.0\n" in text
    assert str(three.home) not in text
    assert portable.differences(three) == []
    three.portable_lock.write_text(text.replace("works@1.0", "works@0.9"))
    assert portable.differences(three) == [
        "- works@0.9 build_system=generic",
        "+ works@1.0 build_system=generic",
    ]


def test_a_second_concretization_does_nothing(outcome, three, monkeypatch):
    monkeypatch.setattr(build, "inputs_digest", lambda _: "as they were")
    (three.folder / "concretized").write_text("as they were")
    monkeypatch.setattr(build.install, "spack", lambda *_, **__: pytest.fail("Spack was started"))
    assert build.concretize(three, lambda _: None) == 0.0


def test_a_second_build_starts_no_spack(outcome, three, monkeypatch, tmp_path):
    """Of what is built already: the packages that fail are tried again."""
    graph = build.nodes(three)
    works = {key: node for key, node in graph.items() if node["name"] == "works"}
    monkeypatch.setattr(build, "nodes", lambda _: works)
    monkeypatch.setattr(build, "_output_lines", lambda *_: pytest.fail("Spack was started"))
    done = build.build(three, lambda _: None)
    assert (done.built, done.present, done.failures) == ({}, 1, [])


def test_a_changed_recipe_is_concretized_again(three, outcome, tmp_path):
    before = build.inputs_digest(three)
    extra = tmp_path / "scope"
    extra.mkdir()
    (extra / "config.yaml").write_text("config: {}\n")
    assert build.inputs_digest(dataclasses.replace(three, scopes=(extra,))) != before


def test_another_machine_takes_binaries_from_a_cache(spack, repository, tmp_path):
    def environment(name: str):
        found = spack.environment(tmp_path / name, ["works"], repository)
        build.concretize(found, print)
        return found

    first, second = environment("first"), environment("second")
    assert not build.build(first, print).failures
    assert transfer.cache(first, tmp_path / "cache", print) == len(build.nodes(first))
    done = build.build(second, print, transfer.options(second, None, tmp_path / "cache"))
    assert not done.failures, done.summary()
    assert "from binary cache" in (second.logs / "install.log").read_text()
    works = next(key for key, node in build.nodes(second).items() if node["name"] == "works")
    assert (Path(build.prefixes(second)[works]) / "bin/done").exists()


def test_a_cache_of_what_is_not_built_is_refused(spack, repository, tmp_path):
    found = spack.environment(tmp_path / "home", ["works"], repository)
    build.concretize(found, print)
    with pytest.raises(LabError, match=r"1 packages are not built \(works@1.0"):
        transfer.cache(found, tmp_path / "cache", print)


def test_where_no_benchmark_could_be_built_it_says_why(spack, repository, tmp_path, monkeypatch):
    """And not that there are no modules, which is only what comes of it."""
    place = spack.environment(tmp_path / "one", ["needs-both"], repository)
    build.concretize(place, lambda _: None)
    monkeypatch.setattr(make, "prepare", lambda *_: place)
    outcome, stack = make.build_stack(spack.site, place.site_file, lambda _: None)
    assert stack is None
    assert len(outcome.built) == 1
    assert "the cable is cut" in "\n".join(outcome.summary())


@pytest.fixture
def without_libtool(spack, tmp_path):
    """Paths where the last look for build tools found no libtool, and what it found."""
    mine = dataclasses.replace(spack.paths, home=tmp_path)
    for name in ("python", "builtin", "cache"):
        (tmp_path / name).symlink_to(spack.paths.home / name)
    packages = YAML(typ="safe").load(spack.paths.tools)["packages"]
    assert {"gcc", "libtool"} <= set(packages)
    del packages["libtool"]
    scope.write_section(mine.tools, {"packages": packages})
    shutil.copy(spack.paths.tools.with_name("repos.yaml"), mine.tools.parent)
    return mine, packages


def test_a_tool_that_came_later_is_found(without_libtool):
    """As after `apt install libtool`, which a failed build had asked for."""
    mine, packages = without_libtool
    said: list[str] = []
    scope.find_tools(mine, said.append)
    assert set(YAML(typ="safe").load(mine.tools)["packages"]) == {*packages, "libtool"}
    scope.find_tools(mine, said.append)
    assert len(said) == 1


@pytest.fixture
def path_without(tmp_path, monkeypatch):
    """Makes a folder of links to the system's programs, and has build tools looked for there."""

    def make(*absent: str) -> Path:
        folder = tmp_path / "path"
        folder.mkdir()
        for program in ("gcc", "g++", "gfortran", "make", "ld", "bash", "sh", "env"):
            if program not in absent:
                (folder / program).symlink_to(shutil.which(program))
        monkeypatch.setattr(scope, "SYSTEM_PATH", str(folder))
        return folder

    return make


@pytest.mark.parametrize("absent", [["gcc"], ["g++", "gfortran"]], ids=" ".join)
def test_a_missing_compiler_is_named(without_libtool, path_without, absent):
    """Also where g++ is there, by which Spack declares a gcc without a compiler of C."""
    mine, _ = without_libtool
    mine.tools.unlink()
    folder = path_without(*absent)
    with pytest.raises(LabError) as caught:
        scope.find_tools(mine, lambda _: None)
    assert f"found no {' and '.join(absent)} in {folder}:" in str(caught.value)
    assert not mine.tools.exists()


def test_a_compiler_of_a_scope_is_enough(without_libtool, path_without, tmp_path):
    mine, packages = without_libtool
    mine.tools.unlink()
    path_without("gcc", "g++", "gfortran")
    folder = tmp_path / "scope"
    scope.write_section(folder / "packages.yaml", {"packages": {"gcc": packages["gcc"]}})
    scope.find_tools(dataclasses.replace(mine, scopes=(folder,)), lambda _: None)
    assert "gmake" in YAML(typ="safe").load(mine.tools)["packages"]


def test_a_site_that_was_prepared_looks_again(spack, without_libtool, monkeypatch):
    mine, packages = without_libtool
    monkeypatch.setattr(make, "site_paths", lambda *_: mine)
    monkeypatch.setattr(make.install, "prepare", lambda *_: None)
    monkeypatch.setattr(make.build, "concretize", lambda *_: 0.0)
    monkeypatch.setattr(make.scope, "write", lambda found, _, say: scope.find_tools(found, say))
    said: list[str] = []
    for _ in range(2):
        make.prepare(spack.site, mine.site_file, said.append)
    assert len(said) == 1  # the first time alone: then all is known
    scope.write_section(mine.tools, {"packages": packages})
    make.prepare(spack.site, mine.site_file, said.append)
    assert len(said) == 2
