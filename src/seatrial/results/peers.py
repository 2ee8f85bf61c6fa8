"""The figures of one metric at all locations of a case, for comparing each with the others."""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.results import statistics
from seatrial.results.figures import Figure
from seatrial.results.statistics import Limit, Statistic


class Peers:
    """The figures of one metric of one case at all locations, for comparing each with the others.

    Each list of values is sorted once. The median of the other locations is then one of three
    numbers. It leaves out the judged location: one bad node among three spoils two of the three
    links, and the median of all links would be a bad value.
    """

    def __init__(self, figures: Sequence[Figure]):
        self.figures = [f for f in figures if f.location is not None and not f.fault]
        self.count = max(0, len(self.figures) - 1)  # the others of each
        self._samples = sum(len(f.values) for f in self.figures)
        self._typical: dict[str, list[float]] = {}  # sorted, by statistic
        self._spreads: list[float] = []
        self._chances: dict[Limit, list[float]] = {}

    def typical(self, figure: Figure, statistic: Statistic) -> float:
        """Median of the other locations' typical values; there must be one."""
        return statistics.median_without(self.typical_values(statistic), typical(figure, statistic))

    def typical_values(self, statistic: Statistic) -> list[float]:
        """All locations' typical values, sorted."""
        if statistic not in self._typical:
            self._typical[statistic] = sorted(typical(f, statistic) for f in self.figures)
        return self._typical[statistic]

    def spreads(self) -> list[float]:
        """All locations' robust standard deviations, sorted."""
        if not self._spreads:
            self._spreads = sorted(f.spread or 0.0 for f in self.figures)
        return self._spreads

    def noise(self, figure: Figure) -> tuple[float, float]:
        """Median of the robust standard deviations at the other locations, and the error of the
        median of all their samples. A difference between locations is the signal; noise is the
        scatter at one location."""
        sigma = statistics.median_without(self.spreads(), figure.spread or 0.0)
        return sigma, statistics.median_error(sigma, self._samples - len(figure.values))

    def chance(self, figure: Figure, limit: Limit) -> float:
        """Probability that all samples of a sound location break the limit.

        Each sample breaks it by chance as often as those of the median location. 1 if there is no
        other location.
        """
        if not self.count:
            return 1.0
        if limit not in self._chances:
            self._chances[limit] = sorted(_chance(f, limit) for f in self.figures)
        chance = statistics.median_without(self._chances[limit], _chance(figure, limit))
        return chance ** len(figure.values)


def typical(figure: Figure, statistic: Statistic) -> float:
    """The value of another figure that a bound is taken of: its median.

    For ``best`` it is its best sample. A disturbance only makes a run worse. A requirement that
    takes the least disturbed of its own samples takes the other metric's likewise, and the scatter
    of the disturbed samples says nothing.
    """
    if statistic == "best":
        return statistics.summarize(figure.values, "best", figure.better)
    return figure.median


def _chance(figure: Figure, limit: Limit) -> float:
    broken = sum(limit.excess(x) > 0 for x in figure.values)
    return statistics.chance_of_breaking(broken, len(figure.values))
