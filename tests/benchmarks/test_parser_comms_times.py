"""The file of times of comms: both byte orders; a damaged or hostile file is an error."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np
import parser_cases as cases
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.benchmarks import comms, comms_times
from seatrial.benchmarks.parsing import ParseError

RECORDED = cases.DATA / "comms_openmpi.raw"
#: field of the header -> its first byte; numbers of 4 bytes each, times of 8
NUMBERS = {
    "byte_order": 8, "version": 12, "bytes": 16, "sizes": 20, "repetitions": 24, "warmup": 28,
    "smallest": 32, "largest": 36, "per_decade": 40, "ranks": 44, "calls": 48, "zero": 52,
}  # fmt: skip
TIMES = {"resolution_ns": 56, "step_ns": 64, "cost_ns": 80}
CLOCK, SIZES = 96, 128
QUICK = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "times.raw"


def sealed(data: bytes) -> bytes:
    """The data with a correct checksum, as only a hostile program writes it after a change."""
    return data[:-4] + zlib.crc32(data[:-4]).to_bytes(4, "little")


def changed(at: int, new: bytes) -> bytes:
    data = RECORDED.read_bytes()
    return sealed(data[:at] + new + data[at + len(new) :])


def refused(file: Path, data: bytes, reason: str) -> None:
    file.write_bytes(data)
    with pytest.raises(ParseError, match=reason) as caught:
        comms_times.read_times(file)
    assert str(caught.value).startswith(f"{file}: ")


def test_recorded() -> None:
    times = comms_times.read_times(RECORDED)
    assert times.sizes.tolist() == comms.schedule(1, 1_000_000, 2)
    assert times.ns.shape == (13, 2, 4, 20)
    assert (times.warmup, times.clock) == (5, "CLOCK_MONOTONIC")
    assert times.resolution_ns == 1.0
    assert times.step_ns == (20.0, 20.0)
    assert times.ns[0, 0, :, 0].tolist() == [7111, 66559, 6369, 60]
    assert times.us("recv_ready", 1)[12, 19] == 523.311


def test_the_table_of_the_same_run_has_its_medians() -> None:
    times, table = comms_times.read_times(RECORDED), cases.read("comms_openmpi.txt")
    curves = {curve.name: [y for _, y in curve.points] for curve in table.curves}
    half = np.median(times.round_trip_us(0), axis=1) / 2
    assert table.curves[0].points == list(zip(times.sizes, half.round(5), strict=True))
    for call in comms.CALLS:
        for rank in range(comms.RANKS):
            middle = np.median(times.us(call, rank), axis=1).round(4)
            assert curves[f"comms {call}_us rank {rank}"] == middle.tolist()


def test_the_other_byte_order(file: Path) -> None:
    data = RECORDED.read_bytes()
    numbers = np.frombuffer(data, "u4", 12, 8).byteswap().tobytes()
    longs = np.frombuffer(data, "u8", 5, 56).byteswap().tobytes()
    times = np.frombuffer(data[:-4], "u8", -1, SIZES).byteswap().tobytes()
    swapped = data[:8] + numbers + longs + data[CLOCK:SIZES] + times
    file.write_bytes(swapped + zlib.crc32(swapped).to_bytes(4, "big"))
    times, recorded = comms_times.read_times(file), comms_times.read_times(RECORDED)
    assert np.array_equal(times.ns, recorded.ns)
    assert (times.step_ns, times.cost_ns) == (recorded.step_ns, recorded.cost_ns)


@QUICK
@given(data=st.data())
def test_a_changed_byte_is_detected(file: Path, data: st.DataObject) -> None:
    whole = bytearray(RECORDED.read_bytes())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    refused(file, bytes(whole), "expected")


@QUICK
@given(data=st.data())
def test_a_cut_is_detected(file: Path, data: st.DataObject) -> None:
    whole = RECORDED.read_bytes()
    refused(file, whole[: data.draw(st.integers(0, len(whole) - 1))], "expected")


def test_a_longer_file_is_detected(file: Path) -> None:
    data = RECORDED.read_bytes()
    refused(file, data + b"\0", "expected 16876 bytes, found 16877")
    refused(file, data + data, "expected 16876 bytes")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("byte_order", 1, "in either order"),
        ("version", 2, "expected 1, found 2"),
        ("bytes", 64, "expected 128, found 64"),
        ("sizes", 12, "expected 13, found 12"),
        ("repetitions", 0, "expected 1 to 100000, found 0"),
        ("repetitions", 100_001, "expected 1 to 100000, found 100001"),
        ("warmup", 0, "expected 1 to 100000, found 0"),
        ("smallest", 0, "expected 1 to 1000000, found 0"),
        ("smallest", 1_000_001, "expected 1 to 1000000, found 1000001"),
        ("largest", 2**30 + 1, "expected 1 to 1073741824, found 1073741825"),
        ("per_decade", 0, "expected 1 to 100, found 0"),
        ("per_decade", 2**32 - 1, "expected 1 to 100, found 4294967295"),
        ("ranks", 3, "expected 2, found 3"),
        ("calls", 5, "expected 4, found 5"),
        ("zero", 1, "expected 0, found 1"),
    ],
)
def test_each_number_of_the_header_is_checked(
    file: Path, field: str, value: int, expected: str
) -> None:
    at = NUMBERS[field]
    refused(file, changed(at, value.to_bytes(4, "little")), rf"{field} \(byte {at}\): .*{expected}")


@pytest.mark.parametrize("field", TIMES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_each_time_of_the_header_is_checked(file: Path, field: str, value: float) -> None:
    damaged = changed(TIMES[field], np.float64(value).tobytes())
    refused(file, damaged, rf"{field} \(byte {TIMES[field]}\)")


def test_contents_are_checked(file: Path) -> None:
    data = RECORDED.read_bytes()
    refused(file, b"OTHERFMT" + data[8:], r"magic \(byte 0\): expected b'COMMSRAW'")
    refused(file, data[:-1] + bytes([data[-1] ^ 1]), r"checksum \(byte 16872\)")
    refused(file, changed(SIZES, (2).to_bytes(8, "little")), r"sizes \(byte 128\)")
    refused(file, changed(CLOCK, b"\x1b[2J"), r"clock \(byte 96\)")
    refused(file, changed(CLOCK, b"A" * 32), r"clock \(byte 96\)")
    year = (365 * 86_400 * 10**9).to_bytes(8, "little")
    refused(file, changed(SIZES + 8 * 13 + 8 * 5, year), r"a time \(byte 272\): expected at most")
    refused(file, changed(SIZES + 8 * 13, b"\xff" * 8), r"a time \(byte 232\)")


@QUICK
@given(field=st.sampled_from(sorted(NUMBERS)), value=st.integers(0, 2**32 - 1), extra=st.binary())
def test_no_header_leads_to_another_error(file: Path, field: str, value: int, extra: bytes) -> None:
    file.write_bytes(sealed(changed(NUMBERS[field], value.to_bytes(4, "little")) + extra))
    try:
        comms_times.read_times(file)
    except ParseError:
        return
    # No other field depends on this number.
    assert field in ("warmup",) or value == int.from_bytes(
        RECORDED.read_bytes()[NUMBERS[field] : NUMBERS[field] + 4], "little"
    )


def test_only_regular_files_of_a_limited_size(tmp_path: Path) -> None:
    def reason(path: Path, **options: int) -> str:
        with pytest.raises(ParseError) as caught:
            comms_times.read_times(path, **options)
        return str(caught.value)

    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(RECORDED)
    os.mkfifo(pipe)
    assert "symbolic links" in reason(link)
    assert reason(pipe) == f"{pipe}: expected a regular file"
    assert reason(Path("/dev/zero")) == "/dev/zero: expected a regular file"
    assert reason(tmp_path) == f"{tmp_path}: expected a regular file"
    assert "No such file" in reason(tmp_path / "none")
    limited = reason(RECORDED, limit=16_875)
    assert "expected at most 16875 bytes, found 16876" in limited
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as stream:
        stream.truncate(2**40)
    assert f"found {2**40}" in reason(sparse)
