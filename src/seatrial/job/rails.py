"""Which variables make an MPI use several interfaces, and which one ties a rank to one of them.

By the variable that ties a transport to its network (``Transport.bind``), so that a transport that
is added needs nothing here as long as it is tied by one of these.
"""

from __future__ import annotations

from dataclasses import dataclass

from seatrial.base.errors import InputError


@dataclass(frozen=True)
class Way:
    """``stripe``: one process over all interfaces, by these variables; "" where it cannot."""

    variable: str
    stripe: bool
    note: str


WAYS = {
    "OMPI_MCA_btl_tcp_if_include": Way(
        "OMPI_MCA_btl_tcp_if_include",
        True,
        "ob1 opens a connection over each interface listed and divides long messages among them "
        "(Open MPI, FAQ on TCP)",
    ),
    "UCX_NET_DEVICES": Way(
        "UCX_NET_DEVICES",
        True,
        "UCX divides long messages among as many of these devices as UCX_MAX_RNDV_RAILS says "
        "(UCX, FAQ on multi-rail)",
    ),
    "FI_TCP_IFACE": Way(
        "FI_TCP_IFACE",
        False,
        "libfabric's tcp provider takes one interface in a process (fi_tcp(7)). For providers that "
        "name their NICs, such as verbs, MPICH has MPIR_CVAR_CH4_OFI_MAX_NICS and Intel MPI "
        "I_MPI_MULTIRAIL=1",
    ),
}


def way(transport: str, bind: dict[str, str]) -> Way:
    """How a transport takes several interfaces. Raises InputError where that is not known."""
    for variable in bind:
        if variable in WAYS:
            return WAYS[variable]
    raise InputError(f"transport {transport}: it is not known how it takes several interfaces")


def stripe(chosen: Way, interfaces: list[str]) -> dict[str, str]:
    """Variables for one process over all ``interfaces``. Raises InputError where it cannot."""
    if not chosen.stripe:
        raise InputError(
            f"rails: stripe is not possible: {chosen.note}; take "
            "--set rails=per-rank, or an ob1 or UCX transport"
        )
    found = {chosen.variable: ",".join(interfaces)}
    if chosen.variable == "UCX_NET_DEVICES":
        found["UCX_MAX_RNDV_RAILS"] = str(len(interfaces))
    return found
