"""The least volume that one repetition of an MPI benchmark moves over a node's interface.

The volume is in payload bytes, sum of both directions, of the node that carries least, for P
processes with any placement on two or more nodes. X is the message size as IMB and OSU count it.
The bounds hold for every algorithm: they count only data that another node needs from the node, and
data that the node needs from others. Headers, acknowledgements and retries are not counted.
"""

from __future__ import annotations


def per_repetition(benchmark: str, size: int, processes: int) -> int:
    """Bytes (rx + tx) per repetition of IMB's ``benchmark`` at ``size`` bytes.

    With k of the P processes on the node, 1 <= k < P:

    - ping-pong, ping-ping: one message out, one in: 2X. Sendrecv is a ring: at least one edge
      leaves the node and one enters it: 2X. Exchange does so both ways: 4X.
    - Allreduce: each element leaves the node and enters it, as a share or as the result: 2X.
      Reduce, Bcast: X, out or in. Reduce_scatter: a node sends its shares of the elements of other
      nodes and receives at least one share of its own elements: X.
    - Gather, Scatter: X, for a process of the node or, if the node has the root, of another.
    - Allgather: kX out, (P - k)X in: PX. Alltoall: k(P - k)X each way; the least is at k = 1 or
      P - 1: 2(P - 1)X.

    0 for all other benchmarks, and for Barrier, which carries no payload.
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
