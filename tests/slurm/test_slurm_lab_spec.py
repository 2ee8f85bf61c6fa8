"""The files of NIC profiles in a lab: those of a cluster, in other folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial.base.errors import InputError
from seatrial.site.model import Site
from seatrial.slurm.layout import Layout
from seatrial.slurm.render import render
from seatrial.stack import STACK_FOLDER
from seatrial_lab.native.site import lab_spec, spec_for_site


def test_a_lab_gets_what_a_cluster_gets(site: Site, policy: dict) -> None:
    spec = lab_spec(site, "x")
    names = {file.path.rsplit("/", 1)[1] for file in render(policy, Layout())}
    there = {name.rsplit("/", 1)[1] for name in spec.files}
    assert names - there == {"seatrial-nic-recover.service"}  # nodes have no service manager
    assert spec.before_slurmd[1:] == ("recover", "--boot")
    assert spec.extra_slurm_conf[-1] == "Include /etc/slurm/seatrial-nic.conf"
    assert spec.epilog is None


def test_nodes_of_a_lab_share_no_state_with_each_other_or_another_lab(site: Site) -> None:
    folders = {
        json.loads(text)["state_folder"]
        for name in ("x", "y")
        for file, text in lab_spec(site, name).files.items()
        if file.endswith("/nic.json")
    }
    assert len(folders) == 2
    assert all("%n" in folder for folder in folders)


def test_a_tap_is_a_second_interface_under_test(site: Site) -> None:
    spec = lab_spec(site, "x")
    assert (spec.taps, spec.switch_mtu, spec.test_mtu) == (("tap0",), 9216, 1500)
    other = site.networks["aux"].model_copy(update={"interface": "eth3"})
    wrong = site.model_copy(update={"networks": {**site.networks, "aux": other}})
    with pytest.raises(InputError, match="may have a second on tap0"):
        lab_spec(wrong)


def test_a_site_without_profiles_has_nothing_of_it(site: Site) -> None:
    only = {"default": site.nic_profiles["default"]}
    spec = lab_spec(site.model_copy(update={"nic_profiles": only}), "x")
    assert (spec.files, spec.features, spec.before_slurmd) == ({}, {}, ())
    assert spec.epilog == "/bin/true"


def test_hosts_show_a_stack_that_is_not_in_the_checkout(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv(STACK_FOLDER, str(tmp_path))
    assert tmp_path in spec_for_site("lab").binds
    monkeypatch.delenv(STACK_FOLDER)
    assert spec_for_site("lab").binds == ()
