"""The policy of a site for a layout."""

from __future__ import annotations

from typing import Any

from seatrial.site.model import Site
from seatrial.site.nic_policy import compile_policy
from seatrial.slurm.layout import Layout


def policy_of(site: Site, layout: Layout) -> dict[str, Any]:
    """The policy file of the nodes, with the layout's state folder where it has one."""
    if layout.state:
        nic = site.nic.model_copy(update={"state_folder": layout.state})
        site = site.model_copy(update={"nic": nic})
    return compile_policy(site)
