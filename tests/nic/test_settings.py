"""The table of settings: whole, without contradictions, and shown as it is in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.base.paths import CHECKOUT
from seatrial.nic import document
from seatrial.nic.node import settings
from seatrial.nic.node.guard import Guard
from seatrial.nic.node.policy import Policy
from seatrial.nic.node.settings import BY_NAME, SETTINGS, UNKNOWN, Setting, of
from seatrial.nic.schema import FORMS, Driver, ProfileSettings, Settings
from seatrial.site.model import Network

PAGE = CHECKOUT / "docs" / "write-a-nic-profile.md"
#: driver reloads and bonds are made by ``links``, the rate is read with the queueing discipline
NOT_WRITTEN, NOT_READ = {"driver", "bond"}, {"egress_bit_s"}


def test_the_page_has_todays_list() -> None:
    text = PAGE.read_text()
    how = "renew it: .venv/bin/python -m seatrial.nic.document docs/write-a-nic-profile.md"
    assert document.renewed(text) == text, how


def test_an_old_list_on_the_page_is_replaced() -> None:
    page = f"a\n{document.BEGIN}| old |\n{document.END}b\n"
    text = document.renewed(page)
    assert text.startswith("a\n")
    assert text.endswith("b\n")
    assert "old" not in text
    assert document.renewed(text) == text
    with pytest.raises(ValueError, match="unpack"):
        document.renewed("a page without markers")


def test_every_field_of_a_profile_is_an_entry() -> None:
    assert set(ProfileSettings.model_fields) == set(BY_NAME)
    assert set(BY_NAME) - set(Settings.model_fields) == {
        "bonding", "busy_poll_us", "busy_read_us",
    }  # fmt: skip


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda one: one.key)
def test_an_entry_is_whole(setting: Setting) -> None:
    assert setting.about
    assert setting.command
    assert bool(setting.write) != (setting.key in NOT_WRITTEN)
    assert bool(setting.read) != (setting.key in NOT_READ)
    # Each key of a policy and of a state leads back to it.
    for key in (setting.key, setting.state_key):
        assert of(key + "x" if key.endswith((".", "-")) else key) is setting
    fabrics = Network.model_fields["fabric"].annotation
    assert set(setting.data_paths) <= set(fabrics.__args__)


def test_keys_that_nothing_has_are_no_setting() -> None:
    for key in ("mtux", "sysctl.kernel.hostname", "sysfs.flags", ""):
        assert of(key) is UNKNOWN, key
    assert settings.switch_of("mtu") == ""


def test_a_module_has_the_kernels_name() -> None:
    assert Driver(module="virtio-net").module == "virtio_net"


def test_every_form_has_its_check() -> None:
    forms = {one.takes.name for one in BY_NAME.values() if isinstance(one.takes, settings.Form)}
    assert forms == set(FORMS)


@pytest.mark.parametrize(
    "setting", [setting for setting in SETTINGS if setting.rivals], ids=lambda o: o.key
)
def test_the_guard_has_a_check_for_each_rival(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"schema": 1, "feature_prefix": "nic_", "state_folder": "/nowhere", "protected": [],
            "nodes": {"n1": ["eth1"]}, "profiles": {}}  # fmt: skip
    monkeypatch.setattr(Guard, "check_interface", lambda *_: None)
    monkeypatch.setattr(Guard, "_check_elsewhere", lambda *_: None)
    value = {"driver": {"module": "x"}, "bond": {"members": ["eth1"]}}.get(setting.key, 1)
    for rival in setting.rivals:
        looked: list[tuple[str, list[str]]] = []
        guard = Guard(str(tmp_path), processes={rival: 1})
        name = f"_check_{rival.lower().replace('-', '_')}"
        assert hasattr(guard.daemons, name)
        monkeypatch.setattr(guard.daemons, name, lambda *words, looked=looked: looked.append(words))
        guard.check(Policy(data, hostname="n1"), {"interfaces": {"eth1": {setting.key: value}}})
        assert looked == [("eth1", [setting.name])]
