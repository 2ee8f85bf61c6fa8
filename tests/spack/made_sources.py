"""Source archives made here, where Spack looks for those of upstream: no test needs a network.

The trees are as small as the recipe's own work allows; what upstream's code does is for the real
builds to show.
"""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "spack-repo" / "spack_repo" / "seatrial" / "packages"


def checksum(package: str, version: str) -> str:
    """The checksum that our recipe gives for a version."""
    recipe = (PACKAGES / package / "package.py").read_text()
    found = re.search(rf'version\("{re.escape(version)}", sha256="([0-9a-f]{{64}})"', recipe)
    assert found, f"{package}: no checksum of {version}"
    return found.group(1)


def archive(path: Path, files: dict[str, str]) -> Path:
    """A tar.gz of files by name; those that begin with #! can be executed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            member.mode = 0o755 if text.startswith("#!") else 0o644
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


def mirror(folder: Path, digest: str, ending: str, files: dict[str, str]) -> list[str]:
    """Options of spack for a mirror in ``folder`` that has ``files`` as one archive.

    Upstream's checksum can't be that of the archive, so none is compared.
    """
    cache = folder / "mirror" / "_source-cache" / "archive"
    archive(cache / digest[:2] / f"{digest}.{ending}", files)
    scope = folder / "scope"
    scope.mkdir(exist_ok=True)
    (scope / "mirrors.yaml").write_text(f"mirrors::\n  made-here: file://{folder / 'mirror'}\n")
    (scope / "config.yaml").write_text(
        f"config:\n  checksum: false\n  source_cache: {folder / 'cache'}\n"
    )
    return ["-C", str(scope)]
