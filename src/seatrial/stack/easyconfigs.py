"""Easyconfigs of the benchmark packages, for sites that build their software with EasyBuild.

Versions, addresses and checksums stand in ``versions.json``, once for both builders: a test
holds the table against the Spack recipes. How each package is built with EasyBuild is in the
templates ``easybuild/*.eb.j2``. This module is not a second recipe book: what Spack's recipes
offer as variants is fixed here at their defaults.

``python -m seatrial.stack.easyconfigs FOLDER`` writes the files; the project's ``easybuild/``
holds its output.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from seatrial.base.errors import InputError

HERE = Path(__file__).parent
TABLE = HERE / "versions.json"


def load_table(path: Path = TABLE) -> dict[str, Any]:
    """The table: ``packages`` by Spack's name, and EasyBuild's generation of toolchains.

    Raises InputError where a package lacks one of its fields or has an unusable checksum.
    """
    table = json.loads(path.read_text())
    for name, package in table["packages"].items():
        for field in ("easybuild", "toolchain", "version", "url", "sha256"):
            if not isinstance(package.get(field), str):
                raise InputError(f"{path}: packages.{name}.{field}: expected a text")
        digits = package["sha256"]
        if len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
            raise InputError(f"{path}: packages.{name}.sha256: expected 64 hexadecimal digits")
        if package["toolchain"] not in ("gompi", "foss", "GCCcore"):
            raise InputError(
                f"{path}: packages.{name}.toolchain: expected gompi, foss or GCCcore, "
                f"found {package['toolchain']}"
            )
    return table


def render(table: dict[str, Any]) -> dict[str, str]:
    """Name and content of each easyconfig, by EasyBuild's rule for names of files."""
    templates = Environment(
        loader=FileSystemLoader(HERE / "easybuild"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    generation = table["easybuild"]
    files = {}
    for package in table["packages"].values():
        toolchain = package["toolchain"]
        release = generation["gcccore"] if toolchain == "GCCcore" else generation["toolchain"]
        folder, _, source = package["url"].rpartition("/")
        name = f"{package['easybuild']}-{package['version']}-{toolchain}-{release}.eb"
        files[name] = templates.get_template(f"{package['easybuild']}.eb.j2").render(
            package,
            folder=folder + "/",
            source=source,
            release=release,
            binutils=generation["binutils"],
            python=generation["python"],
        )
    return files


def write(folder: Path, files: dict[str, str]) -> list[Path]:
    """Write the files and remove easyconfigs of ``folder`` that are no longer made."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.eb"):
        if old.name not in files:
            old.unlink()
    for name, text in files.items():
        (folder / name).write_text(text)
    return [folder / name for name in files]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m seatrial.stack.easyconfigs FOLDER")
    for path in write(Path(sys.argv[1]), render(load_table())):
        print(path)
