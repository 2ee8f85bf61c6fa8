"""Lists of nodes as Slurm writes them, such as ``n[1-4,7],login``."""

from __future__ import annotations

import re
from typing import Any

from ClusterShell.NodeSet import NodeSet, NodeSetException

MOST_NODES = 65_536  # of a list: ClusterShell's NodeSet takes minutes for a hundred million
_MOST_TOGETHER = 16 * MOST_NODES  # of all parts of a list, which may overlap: 2 s
_PART = re.compile(r"(?:\[[^]]*\]|[^,!&^\[])+")  # between the operators of NodeSet


def node_set(text: str, **options: Any) -> NodeSet:
    """The nodes of a list; ``options`` are those of NodeSet.

    Raises ValueError, which says what is wrong, for what is no list of nodes, and for a list of
    more than ``MOST_NODES``.
    """
    many = f"names more than {MOST_NODES} nodes"
    counts = [count_at_most(part) for part in _PART.findall(text)]
    if max(counts, default=0) > MOST_NODES or sum(counts) > _MOST_TOGETHER:
        raise ValueError(many)
    try:
        nodes = NodeSet(text, **options)
    except (NodeSetException, ValueError, AssertionError) as error:  # an assertion: a great number
        raise ValueError(f"not a node list: {error}") from None
    if len(nodes) > MOST_NODES:
        raise ValueError(many)
    return nodes


def count_at_most(part: str) -> int:
    """How many nodes a part of a list names, or more, without their names: ``n[1-4,10-90/10]``.

    What is no range counts as one: NodeSet says what is wrong with it.
    """
    names = 1
    for ranges in re.findall(r"\[([^]]*)\]?", part):
        names *= sum(_count(numbers) for numbers in ranges.split(","))
    return names


def _count(numbers: str) -> int:
    ends, _, step = numbers.partition("/")
    signs = ends.split("-")  # NodeSet takes -7-9 for the numbers from -7 to 9
    try:
        values = [int(end) for end in signs if end.strip()]
        width = sum(values) if len(signs) > 2 else values[-1] - values[0]
        return max(1, width // max(1, int(step or 1)) + 1)
    except (ValueError, IndexError):
        return 1
