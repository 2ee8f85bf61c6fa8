"""Lists of nodes as Slurm writes them, before they are expanded."""

from __future__ import annotations

import re

MOST_NODES = 65_536  # of a list: ClusterShell's NodeSet takes minutes for a hundred million


def count_at_most(text: str) -> int:
    """The number of nodes that a list such as ``n[1-4,7],n[10-90/10]`` names, or more, without
    their names. What is no range counts as one: NodeSet says what is wrong with it."""
    total = 0
    for part in re.findall(r"(?:\[[^]]*\]|[^,\[])+", text):
        names = 1
        for ranges in re.findall(r"\[([^]]*)\]?", part):
            names *= sum(_count(one) for one in ranges.split(","))
        total += names
    return total


def _count(numbers: str) -> int:
    ends, _, step = numbers.partition("/")
    first, _, last = ends.partition("-")
    try:
        return max(1, (int(last) - int(first)) // max(1, int(step or 1)) + 1)
    except ValueError:
        return 1
