"""The profiles that come with Seatrial, each with the source of its values: ``profiles.yaml``.

A site uses one by ``base: ready:<name>``. None is in force by itself.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from seatrial.base import yamlfile
from seatrial.nic.profile import NicProfile, ReadyProfiles

FILE = Path(__file__).with_name("profiles.yaml")


@cache
def ready_profiles() -> dict[str, NicProfile]:
    """All of them by name, in the order of the file. Raises InputError if the file is damaged."""
    profiles, _ = yamlfile.load(FILE, ReadyProfiles)
    return profiles.profiles
