"""The files of this machine that a guest has in its memory, as each step of Slurm opens them.

A guest reads this machine's files over 9p. To open one takes several requests, for each of which
QEMU opens every folder of the path (docs/dev/virtual-lab.md, "How long it takes").
"""

from __future__ import annotations

import contextlib
import io
import os
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
    "usr/lib/*/libpmix.so.*",
)
#: folders that programs list: the guest has them as a whole. Python's library is one, too.
FOLDERS = (
    "usr/lib/*/slurm-wlm",
    "usr/lib/*/openmpi/lib/openmpi*",
    "usr/lib/*/pmix2/lib/pmix",
    "usr/lib/locale/C.utf8",
)
#: folders in these that stay on 9p, as they are large: Python's has a static library
COLD = "config-*"
MOST_LINKS = 40  # of a path, as for the kernel: links can lead back to themselves


@dataclass(frozen=True)
class HotFiles:
    """Paths without symbolic links in their folders; a path may itself be a link.

    ``folders`` are replaced as a whole, but for the folders ``cold`` in them. Files that not every
    user may read are left out, as the guest reads with the job user's permissions.
    """

    files: tuple[Path, ...]
    folders: tuple[Path, ...]

    @cached_property
    def entries(self) -> dict[Path, os.stat_result]:
        """All paths, those below the folders too, in the order of their names."""
        below = (path for folder in self.folders for path in (folder, *folder.rglob("*")))
        found = {}
        for path in (*self.files, *below):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                found[path] = path.lstat()
        closed = {path for path, entry in found.items() if _is_closed(entry.st_mode)}
        hidden = closed.union(self.cold)
        return {
            path: found[path]
            for path in sorted(found)
            if _is_public(found[path].st_mode) and not hidden.intersection(path.parents)
        }

    @cached_property
    def cold(self) -> list[Path]:
        """Folders in ``folders`` whose content is not in memory."""
        found = (path for folder in self.folders for path in folder.glob(COLD))
        return sorted(path for path in found if path.is_dir())

    def facts(self) -> str:
        """A text that changes with every change of a file; a folder has its name alone."""
        lines = []
        for path, entry in self.entries.items():
            facts = (entry.st_mode, entry.st_size, entry.st_mtime_ns, entry.st_ctime_ns)
            lines.append(f"{path} {'' if stat.S_ISDIR(entry.st_mode) else facts}\n")
        return "".join(lines)

    def packed(self) -> bytes:
        """A compressed tar archive with the paths relative to /, owned by root."""
        content = io.BytesIO()
        with tarfile.open(
            fileobj=content, mode="w:gz", compresslevel=1, format=tarfile.GNU_FORMAT
        ) as made:
            for path in self.entries:
                with contextlib.suppress(FileNotFoundError):  # removed since: the facts change, too
                    made.add(path, path.relative_to("/"), recursive=False, filter=_of_root)
        return content.getvalue()


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
    for _ in range(MOST_LINKS):
        path = path.parent.resolve() / path.name
        yield path
        if not path.is_symlink():
            return
        path = path.parent / path.readlink()


def _is_closed(mode: int) -> bool:
    """Whether a path is a folder that not every user may enter."""
    return stat.S_ISDIR(mode) and not mode & stat.S_IXOTH


def _is_public(mode: int) -> bool:
    """Whether a path is a folder, a link, or a file that every user may read."""
    readable = stat.S_ISREG(mode) and mode & stat.S_IROTH
    return bool(readable or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.mode &= 0o777  # a program with the rights of its owner would have those of root
    entry.uname = entry.gname = ""
    return entry
