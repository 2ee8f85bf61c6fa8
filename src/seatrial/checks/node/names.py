"""Node side: the name of the node, the same in all records of a step.

The records of run.py and rounds.py are matched by it. Only the Python standard library is used.
"""

import os
import socket


def node_name():
    """The node as Slurm names it, else its host name; both without a domain.

    NodeName may differ from the host name, and several slurmd may share one.
    """
    return (os.environ.get("SLURMD_NODENAME") or socket.gethostname()).split(".")[0]
