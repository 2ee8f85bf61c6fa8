"""The least volume that one repetition of an MPI benchmark puts on a node's interface.

For P processes spread over two or more nodes with any placement, payload bytes in
both directions together, for the node that carries least. X is the message size
as IMB and OSU count it. The bounds hold for every algorithm, as they count only
what must leave a node for others to know it and what must enter for the node to
know it; headers, acknowledgements and retries come on top.
"""

from __future__ import annotations


def per_repetition(benchmark: str, size: int, processes: int) -> int:
    """Bytes (rx + tx) per repetition of IMB's ``benchmark`` at ``size`` bytes.

    With k of the P processes on the node, 1 <= k < P:

    - ping-pong, ping-ping: one message out, one in: 2X. Sendrecv is a ring, of which at
      least one edge leaves the node and one enters: 2X. Exchange: both ways: 4X.
    - Allreduce: each element must leave the node, as its share or as the result, and
      enter it likewise: 2X. Reduce, Bcast: X, out or in. Reduce_scatter: a node sends
      its shares of what others own and receives at least one share of what it owns: X.
    - Gather, Scatter: X for the node's own process, or for another where it has the root.
    - Allgather: kX out, (P - k)X in: PX. Alltoall: k(P - k)X each way, least at k = 1 or
      P - 1: 2(P - 1)X.

    0 for benchmarks not named here (and for Barrier, which carries no payload): no
    bound is claimed for what is not known.
    """
    name = benchmark.lower().replace("_", "")
    if name.endswith("v"):  # the vector variants are run with equal counts
        name = name[:-1]
    if name.startswith(("pingpong", "pingping")):
        return 2 * size
    factor = {
        "sendrecv": 2,
        "exchange": 4,
        "allreduce": 2,
        "reduce": 1,
        "bcast": 1,
        "reducescatter": 1,
        "gather": 1,
        "scatter": 1,
        "allgather": processes,
        "alltoall": 2 * (processes - 1),
    }
    # "sendrecv" itself ends in v.
    return factor.get(benchmark.lower(), factor.get(name, 0)) * size
