"""The settings of UCX, Open MPI and libfabric against the data path that a site declares.

They are the environment of a transport: that of the stack, and the site's own. Not here: whether
the messages took the path, which the counters prove (``seatrial.checks.counters``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from seatrial.base.suggest import FieldProblem
from seatrial.site.model import Site
from seatrial.site.profiles import rails_of

#: UCX's transports over verbs, and the names of groups of them (``ucx_info -d``; UCX_TLS)
UCX_VERBS = ("rc", "rc_*", "ud", "ud_*", "dc", "dc_*", "ib", "ib_*")
UCX_TCP = ("tcp", "all")  # all: UCX chooses, perhaps TCP
#: variable -> the words that choose verbs, those that let TCP take its place, and what is right
PROVIDERS = {
    "UCX_TLS": (UCX_VERBS, UCX_TCP, "rc,ud,self"),
    "OMPI_MCA_btl": (("openib", "self", "vader", "sm"), ("tcp",), "self, with OMPI_MCA_pml: ucx"),
    "OMPI_MCA_mtl_ofi_provider_include": (("verbs*",), ("tcp*", "sockets"), "verbs;ofi_rxm"),
    "FI_PROVIDER": (("verbs*",), ("tcp*", "sockets"), "verbs;ofi_rxm"),
    "I_MPI_OFI_PROVIDER": (("verbs*",), ("tcp*", "sockets"), "verbs"),
}  # fmt: skip
DEVICES = "UCX_NET_DEVICES"  # names interfaces, or RDMA ports


def data_path_problems(
    site: Site, transport: str, env: Mapping[str, str], bind: Mapping[str, str]
) -> Iterator[FieldProblem]:
    """Problems of a transport's environment, which has the stack's variables and the site's.

    ``bind``: the variables that tie it to a network, with ``{interface}`` and ``{subnet}``.
    """
    path = site.data_path(transport)
    if path == "libfabric":
        return  # its providers have no common names
    at = f"transports.{transport}.env"
    for variable, (verbs, tcp, right) in PROVIDERS.items():
        value = env.get(variable)
        if value is None or (variable == "OMPI_MCA_btl" and env.get("OMPI_MCA_pml") == "ucx"):
            continue  # with pml ucx no btl carries messages
        words = value.replace(";", ",").split(",")
        if path == "verbs":
            wrong = [word for word in words if _any(word, tcp)]
            if wrong:
                why = f"{wrong[0]!r} lets TCP carry the messages"
            elif value.startswith("^") or not any(_any(word, verbs) for word in words):
                why = "it names no RDMA transport"
            else:
                continue
            yield FieldProblem(
                f"{at}.{variable}",
                f"{value!r} does not fit data_path: verbs: {why}",
                f"{variable}: {right}; or data_path: kernel",
            )
        elif variable != "OMPI_MCA_btl" and any(_any(word, verbs) for word in words):
            yield FieldProblem(
                f"{at}.{variable}",
                f"{value!r} chooses RDMA, but the data path is the kernel",
                f"data_path: verbs for {transport}, or {variable} with tcp",
            )
    yield from _interface_problems(site, transport, env, bind)


def _interface_problems(
    site: Site, transport: str, env: Mapping[str, str], bind: Mapping[str, str]
) -> Iterator[FieldProblem]:
    """Variables that name an interface or RDMA port, which must be that of each network on which
    the transport is measured, and no other. The trial sets them itself, for each network."""
    verbs = site.data_path(transport) == "verbs"
    rails = rails_of(site, transport, "default") or [site.network_of(transport)]
    for variable in [variable for variable in bind if variable in env]:
        words = [word.strip() for word in env[variable].split(",")]
        for name in rails:
            network, what = site.networks[name], "interface"
            right = {bind[variable].format(interface=network.interface, subnet=network.subnet)}
            if variable == DEVICES and verbs:
                what, right = "RDMA port", {(network.device or "").replace("%n", "{node}")} - {""}
            elif variable.startswith("OMPI_MCA_"):
                right.add(str(network.subnet))  # Open MPI takes either
            if not right or (len(words) == 1 and right.issuperset(words)):
                continue
            yield FieldProblem(
                f"transports.{transport}.env.{variable}",
                f"{env[variable]!r} is not the {what} of network {name!r}",
                f"leave {variable} out: a trial sets it to {sorted(right)[0]!r} for {name}"
                + (f"; or network: for {transport}" if len(rails) > 1 else ""),
            )
            break


def _any(word: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(word.strip(), pattern) for pattern in patterns)
