"""The guest's kernel as files: an unpacked one that starts fast, one of the user's own, and modules
in the place of the kernel's own.

It fetches nothing: ``packages`` does.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.files import sha256
from seatrial.base.run import run
from seatrial.base.say import Say, say_nothing
from seatrial.stack.files import fresh, replace

ZSTD = b"\x28\xb5\x2f\xfd"  # first bytes of a frame (RFC 8878)
GZIP = b"\x1f\x8b"  # first bytes of a file (RFC 1952)
HEADER_END = 0x250  # of what is read of an image's boot header
VERSION = "version"  # file of a prepared kernel; it marks the end


def only_entry(folder: Path) -> Path:
    """Return the one entry of a folder. Raises LabError if there are others or none."""
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    if len(entries) != 1:
        raise LabError(f"{folder} has {len(entries)} entries, not one")
    return entries[0]


def unpacked_folder(package: Path, name: str) -> Path:
    """Return a folder of an unpacked package: below / in Debian 12, below /usr in Debian 13."""
    return package / name if (package / name).exists() else package / "usr" / name


def module_name(file: str | Path) -> str:
    """Return the name of a module by its file: ``virtio_net`` of virtio-net.ko.xz."""
    return Path(file).name.partition(".")[0].replace("-", "_")


def prepare(kernel: Path) -> None:
    """Unpack the image and the modules of a kernel in their place, and list the modules."""
    if not (kernel / "lib").exists():  # depmod looks there
        (kernel / "lib").symlink_to("usr/lib")
    release = only_entry(kernel / "lib/modules").name
    # busybox loads only plain modules.
    for module in (kernel / "lib/modules" / release).rglob("*.ko.*"):
        if module.suffix in (".gz", ".xz", ".zst"):
            module.with_suffix("").write_bytes(_plain(module.read_bytes()))
            module.unlink()
    depmod = shutil.which("depmod", path="/usr/sbin:/sbin")
    if not depmod:
        raise LabError("depmod is missing: apt-get install kmod")
    run([depmod, "-b", kernel, release], "listing the kernel's modules")
    image = kernel / f"boot/vmlinuz-{release}"
    if not image.exists():  # since Debian's 7.0 the image is beside the modules
        image = kernel / f"lib/modules/{release}/vmlinuz"
    (kernel / "boot").mkdir(exist_ok=True)
    (kernel / "boot/vmlinux").write_bytes(uncompressed(image.read_bytes()))


def uncompressed(image: bytes) -> bytes:
    """Return the kernel in a compressed image; an emulated machine takes 10 s to unpack it.

    The format is in Documentation/arch/x86/boot.rst. Raises LabError if it is neither gzip (the
    kernel's default) nor xz (Debian 12) nor zstd (Debian 13).
    """
    if not has_boot_header(image):
        raise LabError(f"the kernel's image of {len(image)} bytes has no boot header")
    (sectors,) = struct.unpack_from("<B", image, 0x1F1)
    offset, size = struct.unpack_from("<II", image, 0x248)
    start = (sectors + 1) * 512 + offset
    payload = image[start : start + size]
    # It ends with the unpacked size, 4 bytes that are part of the stream with gzip only.
    return _plain(payload if payload.startswith(GZIP) else payload[:-4])


def has_boot_header(image: bytes) -> bool:
    """Return whether an image, or its first HEADER_END bytes, has the header of boot.rst."""
    return image[0x202:0x206] == b"HdrS" and len(image) >= HEADER_END


def _plain(packed: bytes) -> bytes:
    try:
        if packed.startswith(ZSTD):
            done = subprocess.run(["zstd", "-dcq"], input=packed, capture_output=True, check=True)
            return done.stdout
        if packed.startswith(GZIP):
            return gzip.decompress(packed)
        return lzma.decompress(packed)
    except FileNotFoundError:
        raise LabError("zstd is missing: apt-get install zstd") from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError, subprocess.CalledProcessError) as error:
        raise LabError(
            f"the kernel's image or module cannot be unpacked as gzip, xz or zstd: {error}"
        ) from None


def files_of_own(source: Path) -> tuple[Path, Path]:
    """Return the image and the folder of modules of the kernel in ``source``. Raises LabError."""
    modules = unpacked_folder(source, "lib/modules")
    try:
        release = only_entry(modules).name
    except LabError as error:
        raise LabError(
            f"kernel {source}: {error}: it needs lib/modules/RELEASE and boot/vmlinuz-RELEASE"
        ) from None
    image = source / f"boot/vmlinuz-{release}"
    if not image.is_file():
        image = modules / release / "vmlinuz"
    if not image.is_file():
        raise LabError(f"kernel {source}: boot/vmlinuz-{release} is missing")
    with image.open("rb") as stream:
        if not has_boot_header(stream.read(HEADER_END)):
            raise LabError(f"kernel {source}: {image.name} has no boot header")
    return image, modules / release


def provide_own(source: Path, folder: Path, progress: Say = say_nothing) -> Path:
    """Return a prepared copy, below ``folder``, of the kernel in ``source``.

    ``source`` has boot/vmlinuz-RELEASE and lib/modules/RELEASE, as an unpacked package. The copy is
    made again when a file of it has another size or time. Raises LabError.
    """
    image, modules = files_of_own(source)
    release = modules.name
    digest = hashlib.sha256()
    for file in (image, *sorted(modules.rglob("*.ko*"))):
        status = file.stat()
        digest.update(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    version = f"{release} of {source} ({digest.hexdigest()[:12]})"
    name = hashlib.sha256(str(source).encode()).hexdigest()[:12]
    place = folder / f"kernel-own-{name}"
    if (place / VERSION).is_file() and (place / VERSION).read_text().strip() == version:
        return place
    progress(f"copying kernel {release} of {source} (up to a minute)")
    draft = fresh(folder / f"{place.name}.new")
    try:
        (draft / "boot").mkdir()
        shutil.copy2(image, draft / f"boot/vmlinuz-{release}")
        shutil.copytree(modules, draft / "lib/modules" / release, symlinks=True)
        prepare(draft)
        (draft / VERSION).write_text(version + "\n")
        replace(draft, place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return place


def check_driver(file: Path, release: str, needs: dict[str, list[str]]) -> str:
    """Return the name of the kernel's module that ``file`` replaces.

    ``needs`` is of ``image.dependencies``. Raises LabError if the file is not a module for this
    kernel, or needs modules that the kernel's own does not need.
    """
    content = read_driver(file)
    name = module_name(file)
    built_for = _info(content, b"vermagic").partition(" ")[0]
    if built_for != release:
        raise LabError(f"driver {file} is built for kernel {built_for}, the guest has {release}")
    if not needs.get(name):
        reason = "part of its image" if name in needs else "none of its modules"
        raise LabError(f"driver {file}: {name} is {reason} in kernel {release}")
    known = {module_name(each) for each in needs[name]}
    wanted = [word for word in _info(content, b"depends").replace("-", "_").split(",") if word]
    # What is part of the kernel's image is there without being loaded.
    if more := [word for word in wanted if word not in known and needs.get(word) != []]:
        raise LabError(
            f"driver {file} needs {', '.join(more)}, which the kernel's own {name} does not"
        )
    return name


def read_driver(file: Path) -> bytes:
    """Return the content of a module. Raises LabError if the file is none, or has another name."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise LabError(f"driver {file}: {error.strerror}") from None
    if not _info(content, b"vermagic"):
        raise LabError(f"driver {file} is no kernel module: it has no vermagic")
    name = _info(content, b"name").replace("-", "_")
    if name not in ("", module_name(file)):
        raise LabError(f"driver {file} is the module {name}: name the file {name}.ko")
    return content


def _info(module: bytes, key: bytes) -> str:
    """Return a field of a module's section .modinfo: zero-terminated ``key=value``."""
    found = re.search(rb"\0" + key + rb"=([^\0]*)\0", module)
    return found[1].decode(errors="replace") if found else ""


def drivers_version(files: tuple[Path, ...]) -> str:
    """Return the drivers with their sums, to be added to a kernel's version; empty: none."""
    try:
        return "".join(f", {file.name} {sha256(file)[:12]}" for file in files)
    except OSError as error:
        raise LabError(f"driver {error.filename}: {error.strerror}") from None
