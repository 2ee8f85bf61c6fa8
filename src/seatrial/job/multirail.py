"""How an MPI uses several interfaces of a node: the variables for one process, and for one rank.

The variable that ties a transport to its network (``Transport.bind``) decides, so a new transport
needs no entry here as long as one of these variables ties it.
"""

from __future__ import annotations

from dataclasses import dataclass

from seatrial.base.errors import InputError


@dataclass(frozen=True)
class Support:
    """``variable`` names a process's interfaces; ``stripe``: it may name several."""

    variable: str
    stripe: bool
    note: str


SUPPORT = {
    one.variable: one
    for one in (
        Support(
            "OMPI_MCA_btl_tcp_if_include",
            True,
            "ob1 opens a connection over each interface listed and divides long messages among "
            "them (Open MPI, FAQ on TCP)",
        ),
        Support(
            "UCX_NET_DEVICES",
            True,
            "UCX divides long messages among at most UCX_MAX_RNDV_RAILS of these devices "
            "(UCX, FAQ on multi-rail)",
        ),
        Support(
            "FI_TCP_IFACE",
            False,
            "libfabric's tcp provider uses one interface in a process (fi_tcp(7)). For providers "
            "that name their NICs, such as verbs, MPICH has MPIR_CVAR_CH4_OFI_MAX_NICS and Intel "
            "MPI I_MPI_MULTIRAIL=1",
        ),
    )
}


def support(transport: str, bind: dict[str, str]) -> Support:
    """How a transport uses several interfaces. Raises InputError where that is not known."""
    for variable in bind:
        if variable in SUPPORT:
            return SUPPORT[variable]
    raise InputError(
        f"transport {transport}: multirail knows only transports that one of these variables ties "
        f"to an interface: {', '.join(SUPPORT)}"
    )


def stripe_variables(
    chosen: Support, interfaces: list[str], rdma_ports: dict[str, str]
) -> dict[str, str]:
    """Variables for one process over all ``interfaces``, by their ``rdma_ports`` if there are any.

    Raises InputError where no such variables exist, or an interface has no RDMA port.
    """
    if not chosen.stripe:
        raise InputError(
            f"rails: stripe is not possible: {chosen.note}; use "
            "--set rails=per-rank, or an ob1 or UCX transport"
        )
    names = [rdma_ports.get(name, "") for name in interfaces] if rdma_ports else interfaces
    if not all(names):
        without = ", ".join(name for name in interfaces if not rdma_ports.get(name))
        raise InputError(
            f"interfaces: site.yaml names no RDMA port (device) that is the same on all nodes for "
            f"{without}, and the data path of the transport is verbs; choose others with --set "
            "interfaces="
        )
    variables = {chosen.variable: ",".join(names)}
    if chosen.variable == "UCX_NET_DEVICES":
        variables["UCX_MAX_RNDV_RAILS"] = str(len(interfaces))
    return variables
