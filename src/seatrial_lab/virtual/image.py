"""The initramfs of a guest: busybox, the drivers, the init script and the hot files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.files import sha256
from seatrial_lab.virtual.cache import is_whole, outdated, sum_file
from seatrial_lab.virtual.cpio import Archive
from seatrial_lab.virtual.hot_files import HotFiles, hot_files
from seatrial_lab.virtual.kernels import check_driver, module_name
from seatrial_lab.virtual.packages import Base

INIT = Path(__file__).parent / "guest" / "init.sh"
APPLETS = ("sh", "mount", "mkdir", "insmod", "cp", "chmod", "uname", "hostname", "switch_root",
           "poweroff", "echo", "cat", "sleep", "tar", "rm", "dmesg", "tail", "grep")  # fmt: skip
KEPT = 6  # images of 45 MB: of a few kernels and drivers, and before and after an upgrade
#: init loads these first: access to the host, then the nodes' interfaces
BOOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console", "veth", "bridge")
#: drivers of the NIC models, in the order of their loading
NIC_MODULES = ("igb", "e1000", "e1000e", "virtio_net", "vmxnet3")
#: in the image, but not loaded at boot: NIC profiles load them
PROFILE_MODULES = ("igbvf", "bonding", "sch_tbf", "sch_htb", "tun")
#: in the image, but not loaded at boot: the agent loads them for nodes with RDMA devices
RDMA_MODULES = ("ib_uverbs", "rdma_rxe")


def dependencies(modules: Path) -> dict[str, list[str]]:
    """Return module name -> files to load, its own file last, from the kernel's lists.

    A module that is part of the kernel (``modules.builtin``) has none.
    """
    builtin = (modules / "modules.builtin").read_text().splitlines()
    files_of: dict[str, list[str]] = {module_name(file): [] for file in builtin}
    for line in (modules / "modules.dep").read_text().splitlines():
        file, _, needs = line.partition(":")
        files_of[module_name(file)] = [*reversed(needs.split()), file]
    return files_of


def load_order(needs: dict[str, list[str]], names: tuple[str, ...]) -> list[str]:
    """Return the files of modules and their dependencies, each once. Raises LabError."""
    files: dict[str, None] = {}
    for name in names:
        if name not in needs:
            raise LabError(f"the kernel has no module {name}")
        files |= dict.fromkeys(needs[name])
    return list(files)


def archive(base: Base, hot: HotFiles) -> Archive:
    """Return the initramfs of a kernel."""
    needs = dependencies(base.modules)
    loaded = load_order(needs, (*BOOT_MODULES, *NIC_MODULES))
    place = f"lib/modules/{base.kernel_release}"
    made = Archive()
    for name in ("proc", "sys", "dev", "lower", "upper", "new", "hot"):
        made.folder(name)
    made.file("bin/busybox", base.busybox.read_bytes(), 0o755)
    for applet in APPLETS:
        made.link(f"bin/{applet}", "busybox")
    made.file("init", INIT.read_bytes(), 0o755)
    made.file("modules.list", "".join(f"{file}\n" for file in loaded).encode())
    made.file("hot.tar.gz", hot.packed())
    made.file("hot.folders", "".join(f"{folder}\n" for folder in hot.folders).encode())
    made.file("cold.folders", "".join(f"{folder}\n" for folder in hot.cold).encode())
    all_files = load_order(needs, (*BOOT_MODULES, *NIC_MODULES, *PROFILE_MODULES, *RDMA_MODULES))
    own_drivers = {check_driver(file, base.kernel_release, needs): file for file in base.drivers}
    if unused := own_drivers.keys() - set(map(module_name, all_files)):
        text = f"no card of a virtual lab has the driver {', '.join(sorted(unused))}"
        raise LabError(f"{text}: those of docs/virtual-lab.md can be replaced")
    for file in all_files:
        source = own_drivers.get(module_name(file), base.modules / file)
        made.file(f"{place}/{file}", source.read_bytes())
    for listing in sorted(base.modules.glob("modules.*")):
        made.file(f"{place}/{listing.name}", listing.read_bytes())
    return made


def initramfs(base: Base, folder: Path) -> Path:
    """Return the initramfs in ``folder``; create it if missing. The oldest are removed.

    Its name has the kernel's release and a hash of its inputs. The caller has the folder's lock.
    """
    hot = hot_files()
    digest = hashlib.sha256(os.fsencode(hot.facts()))
    here = Path(__file__)
    files_of_image = (here, INIT, here.with_name("cpio.py"), here.with_name("hot_files.py"))
    for text in (
        base.kernel_version,
        base.kernel_release,
        *(file.read_text() for file in files_of_image),
    ):
        digest.update(text.encode() + b"\0")
    digest.update(base.busybox.read_bytes())
    name = f"initramfs-{base.kernel_release}"
    file = folder / f"{name}-{digest.hexdigest()[:16]}.cpio"
    if not is_whole(file):
        draft = file.with_suffix(".new")
        try:
            draft.write_bytes(archive(base, hot).to_bytes())
            sum_file(file).write_text(sha256(draft))
            draft.rename(file)
        except OSError as error:
            raise LabError(f"{folder}: {file.name} cannot be written: {error.strerror}") from None
        finally:
            draft.unlink(missing_ok=True)
    # Another start may be about to read the last ones: its QEMU starts without the folder's lock.
    for old in outdated(file, "initramfs-*.cpio", KEPT):
        old.unlink()
        sum_file(old).unlink(missing_ok=True)
    return file
