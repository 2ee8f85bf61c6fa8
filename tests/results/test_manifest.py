"""A manifest finds every change of a trial's folder, and a signature who may have made it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.base.errors import InputError, LabError
from seatrial.results import manifest, signature
from seatrial.results.manifest import LOCK_FILE, MANIFEST
from trial_folder import judge, make_key, make_trial

openssh = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is missing")


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A trial that was judged twice."""
    folder = make_trial(tmp_path_factory.mktemp("judged") / "t")
    judge(folder)
    return folder


@pytest.fixture
def folder(judged, tmp_path):
    return shutil.copytree(judged, tmp_path / "t")


def differences(folder):
    return [str(one) for one in manifest.check(folder)]


def test_sha256sum_reads_it(folder):
    done = subprocess.run(["sha256sum", "-c", "--strict", MANIFEST], cwd=folder, check=False)
    assert done.returncode == 0
    listed = manifest.read(folder)
    assert "cases/netpipe/r0/odd\nname\\.txt" in listed
    assert "judgements/2/judgement.jsonl" in listed
    (folder / LOCK_FILE).touch()
    assert differences(folder) == []


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_every_change_of_one_byte_is_found(judged, data):
    files = sorted(path for path in judged.rglob("*") if path.is_file() and path.stat().st_size)
    file = data.draw(st.sampled_from(files))
    before = file.read_bytes()
    at = data.draw(st.integers(0, len(before) - 1))
    after = bytearray(before)
    after[at] ^= data.draw(st.integers(1, 255))
    try:
        file.write_bytes(bytes(after))
        result = manifest.check(judged)
        name = str(file.relative_to(judged))
        assert result
        if name != MANIFEST:
            assert [(one.kind, one.name) for one in result] == [("changed", name)]
    finally:
        file.write_bytes(before)


def test_every_byte_of_the_manifest_counts(judged):
    """Each of the changes that sha256sum does not see: letters of a sum, marks, line ends."""
    file = judged / MANIFEST
    before = file.read_bytes()
    try:
        for old, new in (
            (b"  cases", b" *cases"), (before[:64], before[:64].upper()), (b"  cases", b"   cases"),
            (b"results.jsonl\n", b"results.jsonl\r\n"), (before[:64], b"\\" + before[:64]),
            (b"\n", b"\n\n"), (b"\n", b"\n# note\n"),
        ):  # fmt: skip
            file.write_bytes(before.replace(old, new, 1))
            assert differences(judged), (old, new)
        file.write_bytes(before[:-1])
        assert differences(judged)
        file.write_bytes(before + before.splitlines(keepends=True)[0])
        assert "damaged: SHA256SUMS" in differences(judged)[0]
    finally:
        file.write_bytes(before)


def test_what_was_removed_added_or_replaced_is_named(folder):
    (folder / "results.jsonl").write_text("{}\n")
    (folder / "cases/netpipe/r0/netpipe.out").unlink()
    (folder / "cases/more.txt").touch()
    (folder / "elsewhere").symlink_to("/tmp")
    (folder / LOCK_FILE).write_text("hidden")
    os.mkfifo(folder / "pipe")
    assert differences(folder) == [
        "added: .lock",
        "added: cases/more.txt",
        "removed: cases/netpipe/r0/netpipe.out",
        "added: elsewhere (not a regular file)",
        "added: pipe (not a regular file)",
        "changed: results.jsonl",
    ]


def test_no_link_is_followed(folder, tmp_path):
    """A trial that was killed has a folder to which its job user writes."""
    secret = tmp_path / "secret"
    secret.write_text("of root")
    (folder / "stage").mkdir()
    (folder / "stage/link").symlink_to(secret)
    (folder / "stage/folder").symlink_to(tmp_path)
    os.mkfifo(folder / "stage/pipe")
    assert not [name for name in manifest.files(folder) if name.startswith("stage")]
    assert "added: stage/link (not a regular file)" in differences(folder)
    with pytest.raises(OSError, match="symbolic link"):
        manifest.sums_of(folder, ["stage/link"])
    with pytest.raises(OSError, match=r"directory|symbolic link"):
        manifest.sums_of(folder, ["stage/folder/secret"])
    with pytest.raises(OSError, match="not a regular file"):
        manifest.sums_of(folder, ["stage/pipe"])


def test_a_listed_file_that_a_link_replaced_is_changed(folder, tmp_path):
    file = folder / "results.jsonl"
    file.rename(tmp_path / "same")
    file.symlink_to(tmp_path / "same")
    assert differences(folder) == ["changed: results.jsonl"]


@pytest.mark.root
def test_a_user_writes_to_own_trials_only(tmp_path, monkeypatch):
    """On a cluster: in a folder that a group shares, below folders of others."""
    folder, user = make_trial(tmp_path / "project" / "t"), 2000
    os.chown(folder.parent, 65534, 65534)
    folder.parent.chmod(0o2775)
    folder.chmod(0o2775)
    os.chown(folder, user, user)
    (folder / "judgements").mkdir()
    os.chown(folder / "judgements", user, user)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert manifest.exposure(folder) is None
    for place in (folder, folder / "judgements"):
        place.chmod(0o777)
        with pytest.raises(InputError, match=f"{place}: everybody can write to it.*chmod o-w"):
            manifest.check_own(folder)
        place.chmod(0o755)
        os.chown(place, 65534, 65534)
        with pytest.raises(InputError, match=f"{place}: user 65534 owns it.*as that user"):
            manifest.check_own(folder)
        os.chown(place, user, user)
    assert manifest.exposure(folder) is None


def test_removing_a_whole_judgement_is_found(folder):
    shutil.rmtree(folder / "judgements")
    assert differences(folder)[0] == "removed: judgements/2/judgement.jsonl"


def test_a_trial_without_a_manifest_is_bad_input(folder):
    (folder / MANIFEST).unlink()
    with pytest.raises(InputError, match="there is no manifest"):
        manifest.check(folder)


def test_a_damaged_manifest_does_not_grow(folder):
    text = (folder / MANIFEST).read_bytes()[:-1]
    (folder / MANIFEST).write_bytes(text)
    (folder / "new.txt").touch()
    with pytest.raises(InputError, match="SHA256SUMS:"):
        manifest.append(folder, manifest.sums_of(folder, ["new.txt"]))
    assert (folder / MANIFEST).read_bytes() == text


# --- signatures ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """The keys of a buyer and of a vendor."""
    place = tmp_path_factory.mktemp("keys")
    for name in ("buyer", "vendor"):
        make_key(place / name, f"{name}@example.org")
    return place


def signers(keys: Path, *names: str) -> Path:
    file = keys / f"signers-{'-'.join(names)}"
    text = [f"{name}@example.org {(keys / f'{name}.pub').read_text()}" for name in names]
    file.write_text("".join(text))
    return file


@openssh
def test_both_sides_sign(folder, keys):
    first = signature.sign(folder, keys / "buyer")
    second = signature.sign(folder, keys / "vendor")
    lines = len(manifest.read(folder))
    assert first.name == f"SHA256SUMS.{lines}.sig"
    assert second.name == f"SHA256SUMS.{lines}-2.sig"
    assert differences(folder) == []
    good = signature.check(folder, signers(keys, "buyer", "vendor"))
    assert {(one.signer, one.fault, one.lines) for one in good} == {
        ("buyer@example.org", "", lines), ("vendor@example.org", "", lines),
    }  # fmt: skip
    by_key = signature.check(folder, keys=[keys / "buyer.pub", keys / "vendor.pub"])
    assert [one.fault for one in by_key] == ["", ""]
    known = signature.check(folder, signers(keys, "buyer"))
    assert sorted(one.fault for one in known) == ["", ""]
    assert sorted(one.listed for one in known) == [False, True]
    with first.open("rb") as stream, (folder / MANIFEST).open("rb") as data:
        assert stream.read().startswith(b"-----BEGIN SSH SIGNATURE-----")
        done = subprocess.run(
            ["ssh-keygen", "-Y", "verify", "-f", signers(keys, "buyer"), "-n", "seatrial",
             "-I", "buyer@example.org", "-s", first], stdin=data, check=False,
        )  # fmt: skip
        assert done.returncode == 0  # without Seatrial


@openssh
def test_a_manifest_that_was_made_to_fit_is_found(folder, keys):
    signature.sign(folder, keys / "buyer")
    file = folder / "results.jsonl"
    old = manifest.sha256(file)
    file.write_text(file.read_text().replace("reject", "accept"))
    text = (folder / MANIFEST).read_text().replace(old, manifest.sha256(file))
    (folder / MANIFEST).write_text(text)
    assert differences(folder) == []
    for allowed in (None, signers(keys, "buyer")):
        (one,) = signature.check(folder, allowed)
        assert "not one of this manifest" in one.fault


@openssh
def test_a_signature_holds_when_the_trial_is_judged_later(folder, keys):
    signature.sign(folder, keys / "buyer")
    lines = len(manifest.read(folder))
    judge(folder)
    (one,) = signature.check(folder, signers(keys, "buyer"))
    assert (one.fault, one.lines) == ("", lines)
    now = len(manifest.read(folder))
    assert now > lines
    assert f"the first {lines} of {now} files" in one.sentence(now)


@openssh
def test_a_signature_that_was_moved_or_damaged_is_not_good(folder, keys):
    file = signature.sign(folder, keys / "buyer")
    moved = file.rename(folder / "SHA256SUMS.3.sig")
    assert signature.check(folder)[0].fault
    moved.rename(folder / "SHA256SUMS.99999.sig")
    assert signature.check(folder)[0].fault
    (folder / "SHA256SUMS.99999.sig").write_text("no signature")
    assert signature.check(folder)[0].fault


@openssh
def test_a_changed_trial_is_not_signed(folder, keys):
    (folder / "results.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"results\.jsonl: changed"):
        signature.sign(folder, keys / "buyer")
    assert not list(folder.glob("*.sig"))


@openssh
def test_what_is_no_key_is_named(folder, keys, tmp_path):
    wrong = tmp_path / "wrong"
    wrong.write_text("no key\n")
    with pytest.raises(InputError, match="wrong: cannot sign"):
        signature.sign(folder, wrong)
    with pytest.raises(InputError, match="no such key"):
        signature.sign(folder, tmp_path / "none")
    signature.sign(folder, keys / "buyer")
    with pytest.raises(InputError, match="cannot be read"):
        signature.check(folder, tmp_path / "none")
    with pytest.raises(InputError, match=r"not a public key.*\.pub"):
        signature.check(folder, keys=[keys / "buyer"])


def test_without_ssh_keygen_the_error_says_so(folder, monkeypatch, tmp_path):
    key = tmp_path / "key"
    key.touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match=r"ssh-keygen is missing.*OpenSSH"):
        signature.sign(folder, key)


def test_a_hole_in_a_killed_trial_is_not_hashed(folder):
    """It costs the job user nothing, and hours to hash."""
    (folder / MANIFEST).unlink()
    left = folder / "stage" / "left"
    left.parent.mkdir()
    with left.open("w") as stream:
        stream.truncate(1 << 42)
    before = sorted(folder.rglob("*"))
    with pytest.raises(InputError, match=rf"{left}: it has {1 << 42} bytes: .*move or remove it"):
        judge(folder)
    assert sorted(path for path in folder.rglob("*") if path.name != LOCK_FILE) == before
    left.unlink()
    judge(folder)
    assert differences(folder) == []
