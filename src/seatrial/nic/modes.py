"""Values of coalescing that a driver takes for a mode, not for a time.

They read back as they were set, and the driver then chooses the time by itself. The values are
those of the kernel's sources: ``e1000_set_coalesce`` of e1000 and e1000e, ``igb_set_coalesce``,
``igc_ethtool_set_coalesce``, ``ixgbe_set_coalesce`` and ``ixgbevf_set_coalesce``; the names of the
modes are those of Documentation/networking/device_drivers/ethernet/intel/e1000.rst.
"""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.nic.flatten import Flat

DYNAMIC, CONSERVATIVE, BALANCED = "dynamic", "dynamic, conservative", "simplified balancing"
RX, TX = "coalesce.rx-usecs", "coalesce.tx-usecs"
_INTEL = {1: DYNAMIC, 3: CONSERVATIVE}
_ADAPTIVE = {1: "adaptive"}
#: driver -> setting -> value -> mode
MODES: dict[str, dict[str, dict[int, str]]] = {
    "e1000": {RX: {**_INTEL, 4: BALANCED}},
    "e1000e": {RX: {**_INTEL, 4: BALANCED}},
    "igb": {RX: _INTEL, TX: _INTEL},
    "igc": {RX: _INTEL, TX: _INTEL},
    "ixgbe": {RX: _ADAPTIVE, TX: _ADAPTIVE},
    "ixgbevf": {RX: _ADAPTIVE, TX: _ADAPTIVE},
}


def modes(settings: Flat) -> Iterator[str]:
    """A sentence on each setting of an interface that is a mode of its driver.

    Which driver the interface has is known only if the settings load one; else all are named.
    """
    driver = settings.get("driver")
    module = driver["module"] if isinstance(driver, dict) else None
    for key in (RX, TX):
        value = settings.get(key)
        named: dict[str, list[str]] = {}
        for name, numbers in MODES.items():
            if module in (None, name) and isinstance(value, int) and value in numbers.get(key, {}):
                named.setdefault(numbers[key][value], []).append(name)
        if named:
            word = key.partition(".")[2].replace("-", "_")
            what = "; ".join(f"{mode}: {', '.join(names)}" for mode, names in named.items())
            yield (
                f"{word} {value} is a mode and not a time on some drivers ({what}): "
                f"for a fixed time write 0, or 10 and more"
            )
