"""The /etc that a lab's nodes see, and the other files a lab needs before it starts.

The nodes' /etc is a folder of links to the machine's entries, plus a few files
of the lab. It is not a set of file mounts over /etc: the kernel drops a mount
on a file that the machine replaces, as package installation replaces
/etc/passwd. It is not a copy: the nodes must see packages installed later.
"""

from __future__ import annotations

import compileall
import os
import pwd
import py_compile
import secrets
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.files import write_whole
from seatrial_lab.common import render
from seatrial_lab.common.paths import HOST_ETC, LabPaths
from seatrial_lab.common.programs import Programs
from seatrial_lab.common.spec import LabSpec

_ETC = Path("/etc")


def account(name: str) -> pwd.struct_passwd:
    """Return this machine's account of a daemon. Raises LabError if there is none."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise LabError(
            f"this machine has no account {name!r}: is its Debian package installed?"
        ) from None


def _folder(path: Path, mode: int = 0o755, owner: pwd.struct_passwd | None = None) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    if owner:
        os.chown(path, owner.pw_uid, owner.pw_gid)
    return path


def _file(
    path: Path, text: str | bytes, mode: int = 0o644, owner: pwd.struct_passwd | None = None
) -> None:
    # Atomic, because the nodes of a running lab can read these files at any time.
    ids = (owner.pw_uid, owner.pw_gid) if owner else None
    write_whole(path, text, mode, owner=ids, durable=False)


def write_data(spec: LabSpec, programs: Programs, private: bool = True) -> None:
    """Write everything below the instance's data folder. Raises LabError, OSError.

    ``private``: also what only a daemon may read, the key of munge and the state of slurmctld.
    """
    paths = LabPaths(spec.instance)
    slurm = account(programs.slurm_user)
    munge = account("munge")
    _folder(paths.data)
    for host in spec.hosts:
        _folder(paths.log(host))
    for node in spec.nodes:
        _folder(paths.data / "spool" / node)
    if private:
        _folder(paths.controller_state, 0o700, slurm)
        _folder(paths.munge_key.parent, 0o700, munge)
        _file(paths.munge_key, secrets.token_bytes(128), 0o400, munge)
    home = _folder(paths.home)
    for skeleton in (".bashrc", ".profile"):
        source = _ETC / "skel" / skeleton
        if source.is_file():
            write_whole(
                home / skeleton, source.read_bytes(), owner=(spec.uid, spec.gid), durable=False
            )
    os.chown(home, spec.uid, spec.gid)  # last: from now on root writes nothing in it
    write_etc(spec, programs)


def write_etc(spec: LabSpec, programs: Programs) -> None:
    """Write or update the nodes' /etc. A running lab sees the change at once."""
    paths = LabPaths(spec.instance)
    slurm = account(programs.slurm_user)
    etc = _folder(paths.etc)
    files: dict[str, str] = {
        "hosts": render.hosts_file(spec),
        "hostname": "localhost\n",
        "passwd": render.passwd_file(spec, (_ETC / "passwd").read_text()),
        "group": render.group_file(spec, (_ETC / "group").read_text()),
        # Accounts come from these files only, not from a directory service of the machine.
        "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
        "seatrial-mariadb.cnf": render.mariadb_conf(),
        "seatrial-mariadb-init.sql": render.mariadb_init_sql(programs.slurm_user),
    }
    for name, text in files.items():
        _file(etc / name, text)
    slurm_folder = _folder(etc / "slurm")
    _file(slurm_folder / "slurm.conf", render.slurm_conf(spec, slurm.pw_name, programs.pmix))
    _file(slurm_folder / "cgroup.conf", render.cgroup_conf(programs.slurm_version))
    _file(slurm_folder / "plugstack.conf", "")
    if spec.accounting:
        _file(slurm_folder / "slurmdbd.conf", render.slurmdbd_conf(slurm.pw_name), 0o600, slurm)
    for name, text in spec.slurm_files.items():
        _file(slurm_folder / Path(name).name, text, 0o755 if text.startswith("#!") else 0o644)
    for name, text in spec.files.items():
        path = paths.data / name
        _folder(path.parent)
        _file(path, text, 0o755 if text.startswith("#!") else 0o644)
    _compile({paths.data / Path(name).parent for name in spec.files if name.endswith(".py")})
    lmod = _folder(etc / "lmod")
    _file(lmod / "modulespath", "".join(f"{folder}\n" for folder in module_path(spec)))
    ours = {*files, "slurm", "lmod"}
    for entry in os.scandir(_ETC):
        link = etc / entry.name
        if entry.name in ours or os.path.lexists(link):
            continue
        # Copy the text of a link: the new link is at the same depth, so it still resolves.
        target = Path(entry.path).readlink() if entry.is_symlink() else HOST_ETC / entry.name
        link.symlink_to(target)


def _compile(folders: set[Path]) -> None:
    """Byte-compile the nodes' Python programs, as their installation on a cluster does."""
    for folder in sorted(folders):
        compileall.compile_dir(
            str(folder), quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
        )


def module_path(spec: LabSpec) -> list[str]:
    """Return the folders that Lmod searches in the lab: the spec's, then this machine's."""
    folders = list(spec.modulepath)
    system = _ETC / "lmod" / "modulespath"
    if system.is_file():
        lines = (line.partition("#")[0].split() for line in system.read_text().splitlines())
        folders += [folder for line in lines for folder in line]
    return list(dict.fromkeys(folders))
