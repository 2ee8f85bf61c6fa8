"""Node side: which links a round measures, what a measured one gave, and which are suspected.

Only the Python standard library is used.
"""

import re

#: of a suspected node that are measured alone
NODE_LINKS = 3
LINE = re.compile(r"\d+:\s+\d+ bytes\s+\d+ times -->\s+(\S+) Mbps in\s+(\S+) usec")
#: metric -> whether lower values are better
BETTER = {"latency_us": "lower", "bandwidth_MB_s": "higher", "stream_MB_s": "higher"}


def schedule(count):
    """The rounds of ``count`` nodes: each pair of numbers once, disjoint within a round.

    The circle method: the first node stays, the others move on by one place. With an odd number
    one node rests in each round.
    """
    places = list(range(count)) + ([-1] if count % 2 else [])
    rounds = []
    for _ in range(len(places) - 1):
        half = len(places) // 2
        facing = [(places[at], places[-1 - at]) for at in range(half)]
        rounds.append([tuple(sorted(two)) for two in facing if -1 not in two])
        places.insert(1, places.pop())
    return rounds


def figures_of(record):
    """(metric, sender, receiver) or (metric,) -> figure, of a measured pair.

    The whole table is read, and checked, by the parser of the benchmark.
    """
    low, high = record["pair"]
    rows = [(float(a), float(b)) for a, b in LINE.findall(record["text"])]
    figures = {}  # type: dict
    for ends, (count, seconds) in zip(((low, high), (high, low)), record["streams"]):  # noqa: B905
        figures[("stream_MB_s", *ends)] = count / seconds / 1e6
    if rows and not record["failed"]:
        figures["latency_us",] = rows[0][1]
        figures["bandwidth_MB_s",] = max(rate for rate, _ in rows)
    return {key: value for key, value in figures.items() if value > 0}


def choose(in_rounds, factor, two_way):
    """Suspected links, the worst first; good ones, the best first; the links of suspected nodes.

    A link is suspected if it is worse than usual by ``factor`` (a logarithm), in any metric. Where
    the effect of a node explains that, only a few links of the node are, with the best partners.
    """
    worst, explained = {}, {}  # type: dict, dict
    for metric, better in BETTER.items():
        cells = {}
        for link, figures in in_rounds.items():
            for key, value in figures.items():
                if key[0] == metric:
                    ends = key[1:]
                    groups = (("sends", ends[0]), ("receives", ends[1])) if ends else tuple(
                        ("node", end) for end in link)  # fmt: skip
                    cells[(link, *ends)] = (two_way.badness(value, better), groups)
        if not cells:
            continue
        fitted = two_way.fit(cells)
        for cell, (value, groups) in cells.items():
            link = cell[0]
            excess = value - fitted.overall
            worst[link] = max(worst.get(link, excess), excess)
            for group in groups:
                if fitted.effects[group] > factor and fitted.residuals[cell] <= factor < excess:
                    explained.setdefault(group, []).append(link)
    suspects = {link for link, excess in worst.items() if excess > factor}
    by_node = set()  # type: set
    kept = set()  # type: set
    for links in explained.values():
        links[:] = sorted(set(links), key=lambda link: worst[link])
        kept.update(links[:NODE_LINKS])
        by_node.update(links)
    suspects -= by_node - kept
    ordered = sorted(suspects, key=lambda link: -worst[link])
    good = sorted((link for link in worst if worst[link] <= factor), key=lambda link: worst[link])
    return ordered, good, list(explained.values())
