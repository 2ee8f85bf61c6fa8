"""The launcher, and each place that starts Python: what they import, and who can write to it."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from seatrial.base.paths import CHECKOUT

PLANTED = "import pathlib\npathlib.Path('/{place}/ran').touch()\nraise SystemExit('planted')\n"


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder with modules that have the names of those that the command line imports."""
    for name in ("typer", "rich", "json", "seatrial", "pip", "venv", "ensurepip", "sysconfig"):
        (tmp_path / f"{name}.py").write_text(PLANTED.format(place=str(tmp_path).lstrip("/")))
    return tmp_path


@pytest.mark.parametrize("variable", [{}, {"PYTHONPATH": "/nonexistent:"}, {"PYTHONPATH": "."}])
def test_the_launcher_imports_nothing_from_the_current_folder(
    planted: Path, variable: dict[str, str]
) -> None:
    done = subprocess.run(
        [CHECKOUT / "seatrial", "--version"], cwd=planted, env={**os.environ, **variable},
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert not (planted / "ran").exists()


def test_neither_does_the_making_of_the_virtual_environment(planted: Path) -> None:
    """A program plays Python: it notes its options and the umask, and cannot make one."""
    noted = planted / "noted"
    python = planted / "python"
    python.write_text(f'#!/bin/sh\necho "$(umask) $*" >>{noted}\n[ "$2" = -c ]\n')
    python.chmod(0o755)
    variables = {"SEATRIAL_PYTHON": str(python), "SEATRIAL_VENV": str(planted / "new")}
    subprocess.run(
        ["/bin/sh", "-c", f"umask 0; exec {CHECKOUT}/seatrial --version"], cwd=planted,
        env={**os.environ, **variables}, capture_output=True,
    )  # fmt: skip
    lines = noted.read_text().splitlines()
    assert len(lines) == 3
    assert all(line.startswith("0022 -I ") for line in lines)


MAKES = """#!/bin/sh
echo "$*" >>{noted}
case "$*" in
*"-m venv"*)
    for venv; do :; done
    while [ ! -e "{noted}.go" ]; do sleep 0.1; done
    mkdir -p "$venv/bin"
    touch "$venv/pyvenv.cfg"
    cp "$0" "$venv/bin/python" ;;
*purelib*) echo "$PWD" ;;
*"pip config list"*) echo "$PIP_CONFIGURATION" ;;
esac
"""


def test_two_launchers_make_one_virtual_environment(tmp_path: Path) -> None:
    """A program plays Python; without the lock both would make the environment."""
    noted, python = tmp_path / "noted", tmp_path / "python"
    python.write_text(MAKES.format(noted=noted))
    python.chmod(0o755)
    variables = {"SEATRIAL_PYTHON": str(python), "SEATRIAL_VENV": str(tmp_path / "venv")}
    said = tmp_path / "said"
    with said.open("w") as stderr:
        both = [
            subprocess.Popen(
                [CHECKOUT / "seatrial", "--version"], cwd=tmp_path,
                env={**os.environ, **variables}, stderr=stderr,
            )
            for _ in range(2)
        ]  # fmt: skip
    deadline = time.monotonic() + 60
    while "waiting for another seatrial" not in said.read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    (tmp_path / "noted.go").touch()
    assert [process.wait() for process in both] == [0, 0]
    assert said.read_text().count("waiting for another seatrial") == 1
    lines = noted.read_text().splitlines()
    assert len([line for line in lines if "-m venv" in line]) == 1
    assert len([line for line in lines if "-m seatrial --version" in line]) == 2


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a program that plays Python: it makes an environment at once."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("seatrial", "requirements.lock"):
        shutil.copy(CHECKOUT / name, folder)
    python = tmp_path / "python"
    python.write_text(MAKES.format(noted=tmp_path / "noted"))
    python.chmod(0o755)
    (tmp_path / "noted.go").touch()
    return folder


def version(checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    variables["SEATRIAL_PYTHON"] = str(checkout.parent / "python")
    return subprocess.run(
        [checkout / "seatrial", "--version"], cwd=checkout.parent, capture_output=True, text=True,
        env={**os.environ, **variables},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("configured", "uses"),
    [
        ("", True),
        ("global.cert='/etc/ssl/certs/ca-certificates.crt'", True),
        ("global.index-url='https://pypi.example.org/simple'", False),
        (":env:.no-index='1'", False),
        ("global.proxy='proxy.example.org:3128'", False),
    ],
)
def test_uv_does_not_install_where_pip_has_an_index_or_a_proxy(
    checkout: Path, configured: str, uses: bool
) -> None:
    """And where there is no uv, pip installs."""
    done = version(checkout, PIP_CONFIGURATION=configured)
    assert done.returncode == 0
    assert ("uv could not install" in done.stderr) == uses
    lines = (checkout.parent / "noted").read_text().splitlines()
    assert any("--requirement" in line and line.endswith("uv.lock") for line in lines) == uses
    assert any(line.endswith(f"--requirement {checkout}/requirements.lock") for line in lines)


def test_the_lock_has_one_uv_with_its_hashes(checkout: Path) -> None:
    version(checkout)
    lines = (checkout / ".venv" / "uv.lock").read_text().splitlines()
    assert lines[0].startswith("uv==")
    assert all(line.strip().startswith("--hash=sha256:") for line in lines[1:])
    assert [line.endswith("\\") for line in lines] == [True] * (len(lines) - 1) + [False]


def test_an_environment_that_was_left_half_made_is_made_again(checkout: Path) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    assert version(checkout).returncode == 0
    assert (checkout / ".venv" / "pyvenv.cfg").exists()
    assert (checkout / ".venv" / ".seatrial-lock").exists()


def test_a_launcher_that_fails_gives_no_verdict(checkout: Path) -> None:
    """Without the list of packages the shell itself would end with 1 or 2: reject, incomplete."""
    (checkout / "requirements.lock").unlink()
    assert version(checkout).returncode == 4


@pytest.mark.parametrize("kind", ["notes", "link"])
def test_nothing_else_is_removed_in_the_place_of_the_environment(checkout: Path, kind: str) -> None:
    own = checkout / ".venv"
    if kind == "link":
        (checkout.parent / "other" / "bin").mkdir(parents=True)
        own.symlink_to(checkout.parent / "other")
    else:
        own.mkdir()
        (own / "notes").touch()
    done = version(checkout)
    assert done.returncode == 4
    assert "is not a virtual environment, and its files would be lost" in done.stderr
    assert len(list(own.iterdir())) == 1


def test_an_environment_of_another_python_is_made_again(checkout: Path) -> None:
    """Debian 12's, after the upgrade to 13."""
    own, programs = checkout / ".venv", checkout.parent / "usr"
    programs.mkdir()
    shutil.copy(checkout.parent / "python", programs / "python3.99")
    (own / "bin").mkdir(parents=True)
    (own / "pyvenv.cfg").touch()
    (own / "bin" / "python").symlink_to(programs / "python3.99")
    shutil.copy(checkout / "requirements.lock", own / ".seatrial-lock")
    site = own / "lib" / "python3.98" / "site-packages"
    site.mkdir(parents=True)
    (site / "seatrial-src.pth").write_text(f"{checkout}/src\n")
    done = version(checkout)
    assert "making the virtual environment" in done.stderr
    (site.parents[1] / "python3.99").symlink_to("python3.98")
    assert "making" not in version(checkout).stderr


@pytest.mark.parametrize(
    ("umask", "wanted"),
    [
        ("000", "0022"),
        ("022", "0022"),
        pytest.param("077", "0022", marks=pytest.mark.root),  # the job user of a lab reads it
    ],
)
def test_nobody_else_writes_to_what_the_launcher_writes(
    tmp_path: Path, umask: str, wanted: str
) -> None:
    """Byte code above all: root runs it."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    (venv / ".seatrial-lock").write_bytes((CHECKOUT / "requirements.lock").read_bytes())
    python = venv / "bin" / "python"
    python.write_text('#!/bin/sh\necho "$(umask) $*"\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", f"umask {umask}; exec {CHECKOUT}/seatrial --version"],
        env={**os.environ, "SEATRIAL_VENV": str(venv)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == f"{wanted} -I -m seatrial --version\n"


def words_of(node: ast.List | ast.Tuple) -> list[str]:
    return [
        each.value if isinstance(each, ast.Constant) and isinstance(each.value, str)
        else ast.unparse(each)
        for each in node.elts
    ]  # fmt: skip


def test_each_place_that_starts_python_with_a_module_is_safe() -> None:
    """-P or -I: otherwise a module in the current folder comes before the installed ones."""
    unsafe, safe = [], 0
    for file in (*CHECKOUT.glob("src/**/*.py"), *CHECKOUT.glob("ci/**/*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.List | ast.Tuple):
                continue
            words = words_of(node)
            if "-m" not in words or ("python" not in words[0] and "executable" not in words[0]):
                continue
            if any(
                word.startswith("-") and set(word) & set("IP")
                for word in words[: words.index("-m")]
            ):
                safe += 1
            else:
                unsafe.append(f"{file}:{node.lineno}")
    for file in (CHECKOUT / "seatrial", CHECKOUT / "src/seatrial_lab/virtual/guest/init.sh"):
        for line in file.read_text().splitlines():
            if "python" in line and (" -m " in line or " -c " in line):
                safe += 1
                if not {"-I", "-P"} & set(line.split()):
                    unsafe.append(f"{file}: {line}")
    assert unsafe == []
    assert safe > 15
