"""A robust two-way fit: what the figures of all links say of the nodes, and what is left to a link.

The model is additive: value = overall + effect of one end + effect of the other end + residual.
Values are logarithms, so effects are factors. Effects are medians, as in Tukey's median polish
(J. W. Tukey, Exploratory Data Analysis, 1977, chapter 11), which minimise the sum of the absolute
residuals one effect at a time. Up to half of the links of a node may be bad without a change of its
effect, and up to half of the nodes.

This module runs on compute nodes too, by its path: standard library only, grammar of Python 3.6.
numpy, scipy and statsmodels have no median polish. statsmodels' robust regression (RLM) would need
packages that compute nodes do not have.
"""

import math
from statistics import median, median_low

SWEEPS = 20
PRECISION = 1e-6  # of an effect; 1e-6 of a logarithm is a millionth of the figure


class Fit:
    """``overall`` is the log of the usual figure, ``effects`` group -> log of its factor,
    ``residuals`` cell -> log of the factor that the effects do not explain."""

    def __init__(self, overall, effects, residuals):
        self.overall = overall
        self.effects = effects
        self.residuals = residuals


def fit(cells):
    """Fit ``cells``, cell -> (value, groups that it belongs to); a missing cell is left out.

    The groups of a cell are its ends: two nodes, or the sender and the receiver. An effect starts
    with the lower quartile of its cells, as higher values are worse: of eight nodes four bad ones
    spoil more than half of the cells of the good ones. Effects are relative to the median effect of
    their kind, which is the first part of a group such as ``("sends", 3)``; of an even number of
    effects it is the lower one. Raises ValueError if there is no cell.
    """
    if not cells:
        raise ValueError("no cells")
    members = {}  # type: dict
    for cell, (_, groups) in cells.items():
        for group in groups:
            members.setdefault(group, []).append(cell)
    low = {
        group: sorted(cells[cell][0] for cell in cells_of)[len(cells_of) // 4]
        for group, cells_of in members.items()
    }
    usual = sorted(low.values())
    usual = median(usual[: (len(usual) + 1) // 2])
    effects = {group: value - usual for group, value in low.items()}
    residuals = {
        cell: value - usual - sum(effects[group] for group in groups)
        for cell, (value, groups) in cells.items()
    }
    middle = median(residuals.values())
    overall = usual + middle
    residuals = {cell: value - middle for cell, value in residuals.items()}
    for _ in range(SWEEPS):
        largest = 0.0
        for group, cells_of in members.items():
            shift = median(residuals[cell] for cell in cells_of)
            if abs(shift) > PRECISION:
                effects[group] += shift
                for cell in cells_of:
                    residuals[cell] -= shift
                largest = max(largest, abs(shift))
        if largest <= PRECISION:
            break
    for kind in {group[0] for group in effects}:
        alike = [group for group in effects if group[0] == kind]
        middle = median_low(effects[group] for group in alike)
        for group in alike:
            effects[group] -= middle
        # Each cell has one group of each kind, or two of the same kind.
        overall += middle * sum(group[0] == kind for group in next(iter(cells.values()))[1])
    return Fit(overall, effects, residuals)


def badness(value, better):
    """The logarithm of a figure above zero, of which higher is worse."""
    return math.log(value) if better == "lower" else -math.log(value)
