"""Values of coalescing that some drivers take for a mode."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.nic.library import ready_profiles
from seatrial.nic.modes import modes


@pytest.mark.parametrize(
    ("value", "drivers"),
    [
        (0, []),
        (1, ["dynamic: e1000, e1000e, igb, igc", "adaptive: ixgbe, ixgbevf"]),
        (3, ["dynamic, conservative: e1000, e1000e, igb, igc"]),
        (4, ["simplified balancing: e1000, e1000e"]),
        (10, []),
        (125, []),
    ],
)
def test_a_receive_time_that_is_a_mode(value: int, drivers: list[str]) -> None:
    said = list(modes({"coalesce.rx-usecs": value}))
    if not drivers:
        assert said == []
        return
    assert len(said) == 1
    assert said[0].startswith(f"rx_usecs {value} is a mode and not a time on some drivers (")
    assert f"({'; '.join(drivers)})" in said[0]


@pytest.mark.parametrize(
    ("module", "settings", "count"),
    [
        ("e1000e", {"coalesce.rx-usecs": 3}, 1),
        ("ixgbevf", {"coalesce.rx-usecs": 1}, 1),
        ("ixgbevf", {"coalesce.rx-usecs": 3}, 0),
        ("tg3", {"coalesce.rx-usecs": 1}, 0),
        ("e1000e", {"coalesce.tx-usecs": 3}, 0),
        ("igb", {"coalesce.tx-usecs": 3, "coalesce.rx-usecs": 1}, 2),
    ],
)
def test_a_profile_that_loads_its_driver(module: str, settings: dict[str, Any], count: int) -> None:
    said = list(modes({"driver": {"module": module, "parameters": {}}, **settings}))
    assert len(said) == count
    assert all(f": {module})" in sentence for sentence in said)


def test_no_ready_profile_has_one() -> None:
    for name, profile in ready_profiles().items():
        coalescing = profile.coalescing.model_dump(exclude_none=True) if profile.coalescing else {}
        flat = {f"coalesce.{word.replace('_', '-')}": value for word, value in coalescing.items()}
        assert list(modes(flat)) == [], name
