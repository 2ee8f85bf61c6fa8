"""The files of this machine that a guest has in its memory, as each step of Slurm opens them.

A guest reads this machine's files over 9p. To open one takes some ten requests, each about as long
as a start of a small program on this machine (docs/dev/virtual-lab.md, "Files in memory").
"""

from __future__ import annotations

import re
import stat
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from seatrial_lab.common.programs import find

PROGRAMS = (
    "srun", "sbatch", "scontrol", "squeue", "sinfo", "scancel", "slurmctld", "slurmd",
    "slurmstepd", "munged", "ip", "tc", "ethtool", "python3", "sh", "bash", "env", "cat", "tee",
    "cp", "mkdir", "rm", "id", "hostname", "setpriv", "nsenter", "iperf3", "NPtcp",
)  # fmt: skip
#: files that programs open by their own paths, as patterns below /
OTHERS = (
    "etc/ld.so.cache",
    "usr/lib/*/gconv/gconv-modules.cache",
    "usr/share/zoneinfo/Etc/UTC",
    "usr/share/locale/locale.alias",
)
#: libraries that are opened while a program runs
PLUGINS = (
    "usr/lib/*/slurm-wlm/auth_munge.so",
    "usr/lib/*/slurm-wlm/mpi_pmix*.so",
    "usr/lib/*/libmpi.so.*",
    "usr/lib/*/openmpi/lib/openmpi3/mca_pmix_ext3x.so",
)
#: folders that programs list: the guest has them as a whole. Python's library is one, too.
FOLDERS = (
    "usr/lib/*/slurm-wlm",
    "usr/lib/*/openmpi/lib/openmpi3",
    "usr/lib/*/pmix2/lib/pmix2",
    "usr/lib/locale/C.utf8",
)
#: large folders in these that are read over 9p: of Python, a static library
COLD = "config-*"


@dataclass(frozen=True)
class HotFiles:
    """Paths without symbolic links in their folders; a path may itself be a link.

    ``folders`` are replaced as a whole, but for the folders ``cold`` in them. Files that not every
    user may read are left out, as the guest reads with the job user's permissions.
    """

    files: tuple[Path, ...]
    folders: tuple[Path, ...]

    @cached_property
    def paths(self) -> list[Path]:
        """All paths, those below the folders too, in the order of their names."""
        below = (path for folder in self.folders for path in (folder, *folder.rglob("*")))
        paths = {path for path in (*self.files, *below) if _is_public(path)}
        return sorted(path for path in paths if not self._cold.intersection(path.parents))

    @property
    def cold(self) -> list[Path]:
        """Folders in ``folders`` whose content is not in memory."""
        return sorted(self._cold)

    @cached_property
    def _cold(self) -> set[Path]:
        return {path for folder in self.folders for path in folder.glob(COLD) if path.is_dir()}

    def facts(self) -> str:
        """A text that changes with every change of a file."""
        lines = []
        for path in self.paths:
            entry = path.lstat()
            lines.append(f"{path} {entry.st_mode} {entry.st_size} {entry.st_mtime_ns}\n")
        return "".join(lines)

    def write(self, file: Path) -> None:
        """Write a compressed tar archive with the paths relative to /, owned by root."""
        with tarfile.open(file, "w:gz", compresslevel=1, format=tarfile.GNU_FORMAT) as made:
            for path in self.paths:
                made.add(path, path.relative_to("/"), recursive=False, filter=_of_root)


def hot_files() -> HotFiles:
    """Return those that this machine has."""
    programs = [Path(found) for name in PROGRAMS if (found := find(name))]
    root = Path("/")
    others = [path for pattern in OTHERS for path in root.glob(pattern)]
    plugins = [path for pattern in PLUGINS for path in root.glob(pattern)]
    folders = [path for pattern in FOLDERS for path in root.glob(pattern)]
    if python := find("python3"):
        folders += root.glob(f"usr/lib/{Path(python).resolve().name}")
    whole = {path.resolve() for path in folders}
    wanted = (*programs, *others, *plugins, *_libraries((*programs, *plugins)))
    files = {step for path in wanted for step in _steps(path)}
    return HotFiles(
        tuple(sorted(path for path in files if not whole.intersection(path.parents))),
        tuple(sorted(whole)),
    )


def _libraries(programs: Iterable[Path]) -> list[Path]:
    """The libraries that the loader opens for programs, and the loader."""
    said = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, check=False
    ).stdout
    return [Path(found) for found in re.findall(r"^\t(?:\S+ => )?(/\S+) \(0x", said, re.MULTILINE)]


def _steps(path: Path) -> Iterator[Path]:
    """A path, and where it leads to if it is a link; none has links in its folders."""
    while True:
        path = path.parent.resolve() / path.name
        yield path
        if not path.is_symlink():
            return
        path = path.parent / path.readlink()


def _is_public(path: Path) -> bool:
    """Whether a path is a folder, a link, or a file that every user may read."""
    mode = path.lstat().st_mode
    readable = stat.S_ISREG(mode) and mode & stat.S_IROTH
    return bool(readable or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
