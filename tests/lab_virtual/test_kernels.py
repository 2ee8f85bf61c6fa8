"""A kernel and drivers of the user's own in the guest. Nothing here starts one."""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from virtual_support import BASE, SMALL, write_site

from seatrial.base.errors import InputError, LabError
from seatrial.site.load import load_site
from seatrial_lab.virtual import image, kernels
from seatrial_lab.virtual.hot_files import HotFiles
from seatrial_lab.virtual.site import virtual_spec
from seatrial_lab.virtual.spec import VirtualSpec

RELEASE = "6.9.1-own"
NEEDED = (*image.BOOT_MODULES, *image.NIC_MODULES, *image.PROFILE_MODULES, *image.RDMA_MODULES)


def module(name: str, release: str = RELEASE, depends: str = "", body: str = "") -> bytes:
    """The bytes of a module, as far as Seatrial reads them."""
    return f"\x7fELF{body}\0depends={depends}\0name={name}\0vermagic={release} SMP\0".encode()


def vmlinuz(packed: bytes, trailer: bytes) -> bytes:
    """A compressed image: boot.rst has the places of its fields."""
    head = bytearray(2 * 512)
    head[0x1F1] = 1
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", head, 0x248, 0, len(packed) + len(trailer))
    return bytes(head) + packed + trailer


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A kernel as its author unpacks it. igb needs dca, and virtio_net is part of the image."""
    folder = tmp_path / "mine"
    modules = folder / "lib/modules" / RELEASE
    modules.mkdir(parents=True)
    (folder / "boot").mkdir()
    (folder / f"boot/vmlinuz-{RELEASE}").write_bytes(vmlinuz(gzip.compress(b"\x7fELF one"), b""))
    for name in (*NEEDED, "dca"):
        if name != "virtio_net":
            (modules / f"{name}.ko").write_bytes(module(name))
    packed = modules / "igb.ko"
    packed.with_suffix(".ko.xz").write_bytes(lzma.compress(packed.read_bytes()))
    packed.unlink()
    (modules / "modules.builtin").write_text("kernel/drivers/net/virtio_net.ko\n")
    return folder


def lists(folder: Path) -> None:
    """The list of modules, as depmod makes it of real ones: the bytes here have no symbols."""
    modules = folder / "lib/modules" / RELEASE
    lines = [f"{file.name}:" for file in sorted(modules.glob("*.ko"))]
    text = "\n".join(lines).replace("igb.ko:", "igb.ko: dca.ko") + "\n"
    (modules / "modules.dep").write_text(text)


@pytest.fixture
def prepared(kernel: Path, tmp_path: Path) -> Path:
    place = kernels.provide_own(kernel, tmp_path)
    lists(place)
    return place


def needs(prepared: Path) -> dict[str, list[str]]:
    return image.dependencies(prepared / "lib/modules" / RELEASE)


def test_a_kernel_of_the_users_own_is_copied_and_unpacked(prepared: Path, kernel: Path) -> None:
    assert (prepared / "boot/vmlinux").read_bytes() == b"\x7fELF one"
    assert (prepared / "lib/modules" / RELEASE / "igb.ko").read_bytes() == module("igb")
    assert (prepared / "version").read_text().startswith(f"{RELEASE} of {kernel} (")
    # the author's files are as they were
    assert (kernel / "lib/modules" / RELEASE / "igb.ko.xz").exists()


def test_the_copy_is_made_again_when_the_kernel_was_built_again(
    prepared: Path, kernel: Path, tmp_path: Path
) -> None:
    before, version = prepared.stat().st_ino, (prepared / "version").read_text()
    said: list[str] = []
    assert kernels.provide_own(kernel, tmp_path, said.append).stat().st_ino == before
    assert not said
    image_file = kernel / f"boot/vmlinuz-{RELEASE}"
    image_file.write_bytes(vmlinuz(gzip.compress(b"\x7fELF two"), b""))
    assert kernels.provide_own(kernel, tmp_path, said.append) == prepared
    assert said == [f"copying kernel {RELEASE} of {kernel} (up to a minute)"]
    assert (prepared / "boot/vmlinux").read_bytes() == b"\x7fELF two"
    assert (prepared / "version").read_text() != version  # so no guest of before is used


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: shutil.rmtree(folder), "needs lib/modules/RELEASE"),
        (lambda folder: (folder / "lib/modules/6.1").mkdir(), "2 entries, not one"),
        (lambda folder: (folder / f"boot/vmlinuz-{RELEASE}").unlink(), "boot/vmlinuz-6.9.1-own is"),
        (
            lambda folder: (folder / f"boot/vmlinuz-{RELEASE}").write_bytes(b""),
            "vmlinuz-6.9.1-own has no boot header",
        ),
        (
            lambda folder: (folder / f"boot/vmlinuz-{RELEASE}").write_bytes(vmlinuz(b"lz4", b"")),
            "cannot be unpacked as gzip, xz or zstd",
        ),
    ],
)
def test_a_folder_that_is_no_kernel_is_said(
    kernel: Path, tmp_path: Path, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(kernel)
    with pytest.raises(LabError, match=words):
        kernels.provide_own(kernel, tmp_path)
    assert not list(tmp_path.glob("kernel-own-*"))


def test_a_driver_takes_the_place_of_the_kernels(prepared: Path, tmp_path: Path) -> None:
    own = tmp_path / "igb.ko"
    own.write_bytes(module("igb", depends="dca", body="mine"))
    (tmp_path / "busybox").write_bytes(b"#!")
    base = replace(
        BASE, busybox=tmp_path / "busybox", kernel_release=RELEASE,
        modules=prepared / "lib/modules" / RELEASE,
    )  # fmt: skip
    nothing = HotFiles((), ())
    plain = image.archive(base, nothing).to_bytes()
    changed = image.archive(replace(base, drivers=(own,)), nothing).to_bytes()
    assert b"mine" not in plain
    assert changed.count(module("igb", depends="dca", body="mine")) == 1
    assert changed.count(module("dca")) == 1


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("igb.ko", module("igb", "6.1.0-50-amd64"), "for kernel 6.1.0-50-amd64, the guest has 6.9"),
        ("igb.ko", b"text", "is no kernel module"),
        ("igb-first.ko", module("igb"), "is the module igb: name the file igb.ko"),
        ("igc.ko", module("igc"), "igc is none of its modules"),
        ("virtio_net.ko", module("virtio_net"), "virtio_net is part of its image"),
        ("igb.ko", module("igb", depends="dca,auxiliary"), "needs auxiliary, which"),
    ],
)
def test_a_driver_that_cannot_be_loaded_is_said(
    prepared: Path, tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(LabError, match=words):
        kernels.check_driver(file, RELEASE, needs(prepared))


def test_a_driver_may_need_what_is_part_of_the_image(prepared: Path, tmp_path: Path) -> None:
    file = tmp_path / "igb.ko"
    file.write_bytes(module("igb", depends="dca,virtio-net"))
    assert kernels.check_driver(file, RELEASE, needs(prepared)) == "igb"


def test_a_driver_that_was_built_again_is_another_version(tmp_path: Path) -> None:
    file = tmp_path / "igb.ko"
    file.write_bytes(b"one")
    one = kernels.drivers_version((file,))
    os.utime(file, (0, 0))
    assert kernels.drivers_version((file,)) == one
    file.write_bytes(b"two")
    assert kernels.drivers_version((file,)) != one
    assert one.startswith(", igb.ko ")
    file.unlink()
    with pytest.raises(LabError, match=r"driver .*/igb.ko: No such file"):
        kernels.drivers_version((file,))


def test_a_site_names_its_kernel_and_drivers(tmp_path: Path) -> None:
    kernel, driver = tmp_path / "mine", tmp_path / "igb.ko"
    (kernel / "lib/modules/6.9").mkdir(parents=True)
    (kernel / "lib/modules/6.9/vmlinuz").write_bytes(vmlinuz(b"", b""))
    driver.write_bytes(module("igb"))
    named = f"engine: virtual, kernel: {kernel}, drivers: [{driver}],"
    text = SMALL.replace("engine: virtual,", named)
    made = virtual_spec(load_site(write_site(tmp_path, text)), "t")
    assert (made.kernel, made.drivers) == (str(kernel), (str(driver),))
    assert VirtualSpec.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ("engine: virtual, drivers: [igb.ko],", "the absolute path of a module"),
        ("engine: native, drivers: [/k/igb.ko],", "this machine's kernel"),
    ],
)
def test_a_driver_that_no_lab_has_is_said(tmp_path: Path, new: str, words: str) -> None:
    text = SMALL.replace("engine: virtual,", new)
    if "native" in new:
        text = text.replace(", nics: {igb: [igb]}", "").replace("],,", "],").replace("],}", "]}")
    with pytest.raises(InputError, match=words):
        load_site(write_site(tmp_path, text))
