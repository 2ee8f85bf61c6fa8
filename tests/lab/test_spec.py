"""The lab's specification: what it refuses, its addresses, its way to disk and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.base.errors import InputError
from seatrial_lab.common.spec import LabSpec, default_spec


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"instance": "a-b"}, "instance"),
        ({"instance": "../x"}, "instance"),
        ({"nodes": ()}, "no nodes"),
        ({"nodes": ("n1", "n1")}, "one name"),
        ({"nodes": ("login",)}, "taken"),
        ({"nodes": ("averylongname",)}, "node name"),
        ({"user": "root"}, "ordinary user"),
        ({"uid": 0}, "above 0"),
        ({"mgmt_subnet": "10.73.1.0/24"}, "overlap"),
        ({"test_subnet": "10.1.0.0/30"}, "too small"),
        ({"test_subnet": "10.1.0.1/24"}, "test_subnet"),
        ({"test_mtu": 100}, "test_mtu"),
        ({"switch_mtu": 1400}, "switch_mtu"),
        ({"taps": ("eth1",)}, "taken"),
        ({"taps": ("a b",)}, "no interface name"),
        ({"files": {"../x": ""}}, "below the lab's data folder"),
        ({"files": {"/etc/x": ""}}, "below the lab's data folder"),
        ({"features": {"n9": ("x",)}}, "n9"),
        ({"partitions": ()}, "partitions"),
        ({"checkout": Path("here")}, "absolute"),
    ],
)
def test_refuses(settings: dict, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        LabSpec(**settings)


def test_names_every_fault_at_once() -> None:
    with pytest.raises(InputError) as caught:
        LabSpec(instance="-", nodes=(), cpus=0)
    assert all(word in str(caught.value) for word in ("instance", "no nodes", "cpus"))


def test_addresses_are_distinct_and_in_their_subnet() -> None:
    spec = default_spec()
    assert spec.mgmt_address("n1") == "10.73.0.1"
    assert spec.test_address("n4") == "10.73.1.4"
    assert spec.mgmt_address("login") == "10.73.0.254"
    with pytest.raises(InputError, match="n9"):
        spec.mgmt_address("n9")


def test_survives_json() -> None:
    spec = LabSpec(
        instance="x",
        binds=(Path("/a"),),
        features={"n1": ("f", "g")},
        slurm_files={"job_submit.lua": "-- nothing"},
        taps=("tap0",),
        files={"etc/x/y": "text"},
        epilog=None,
        before_slurmd=("/a", "b"),
        licenses=None,
        modulepath=("/m",),
    )
    assert LabSpec.from_json(spec.to_json()) == spec


def test_default_checkout_is_the_one_of_this_file() -> None:
    assert default_spec().checkout == Path(__file__).resolve().parents[2]
