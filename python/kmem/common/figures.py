# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Medians, ratios and their intervals, for figures that were taken in rounds; orders of figures."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from scipy.stats import bootstrap, spearmanr

RESAMPLES = 2000
EXACT_RANKS_MOST = 500  # pairs, up to which all sums of ranks are counted
CONFIDENCE = 0.95  # resamples of an interval
ROUNDS_FOR_BOUNDS = 7  # with fewer rounds, an interval says nothing about a bound

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ratio:
    """The ratio of two medians and its bootstrap 95% interval."""

    median: float
    low: float
    high: float
    rounds: int

    def over(self, bound: float) -> bool:
        """Whether the whole interval is over the bound, from enough rounds."""
        return self.rounds >= ROUNDS_FOR_BOUNDS and self.low > bound


@dataclass(frozen=True)
class Change:
    """A difference and the ends of its interval, in the unit of its figures."""

    median: float
    low: float
    high: float

    @property
    def reach(self) -> float:
        """How far the interval goes from zero."""
        return max(abs(self.low), abs(self.high))

    def distance(self, other: "Change") -> float:
        """What lies between both intervals; 0 if they meet."""
        return max(0.0, self.low - other.high, other.low - self.high)

    def wider(self, by: float) -> "Change":
        return Change(self.median, self.low - by, self.high + by)

    def share(self, whole: float) -> "Change":
        """The change as a share of a whole."""
        return Change(self.median / whole, self.low / whole, self.high / whole)

    def as_json(self) -> dict[str, float]:
        return {"change": self.median, "low": self.low, "high": self.high}


def interval(
    statistic: Callable[..., Floats], columns: Sequence[Floats], seed: int
) -> tuple[float, float]:
    """The bootstrap interval of a statistic of columns. A resample draws whole rows.

    The statistic takes an axis, so that SciPy computes it for all resamples at once. SciPy refuses
    a single row, for which the interval is a point.
    """
    if columns[0].size == 1:
        only = float(statistic(*columns, axis=-1))
        return only, only
    found = bootstrap(
        columns,
        statistic,
        n_resamples=RESAMPLES,
        paired=True,
        vectorized=True,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)


def ratio_of_medians(ours: Floats, theirs: Floats, axis: int) -> Floats:
    return np.asarray(np.median(ours, axis=axis) / np.median(theirs, axis=axis))


def median_ratio(values: Sequence[float], others: Sequence[float], seed: int = 1) -> Ratio:
    """Median of `values` divided by the median of `others`. Both hold a figure of each round, in
    order.

    A resample draws whole rounds, so a disturbance of a round affects both of its figures.
    """
    ours, theirs = np.asarray(values, float), np.asarray(others, float)
    if ours.shape != theirs.shape or ours.ndim != 1 or ours.size == 0:
        raise ValueError(f"{ours.size} and {theirs.size} rounds; expected as many of both, and one")
    low, high = interval(ratio_of_medians, (ours, theirs), seed)
    return Ratio(float(np.median(ours) / np.median(theirs)), low, high, ours.size)


def paired_change(values: Sequence[float], others: Sequence[float]) -> Change:
    """The middle of the differences of pairs, and the interval of Wilcoxon's signed ranks.

    Both arguments hold a figure of each pair, in order. The two runs of a pair are so close that a
    disturbance changes both. The interval needs no more of the differences than that they are as
    often above the middle as below it, and holds with a probability of at least 95%; fewer than six
    pairs give none, so it then goes from the least difference to the most.
    """
    differences = np.asarray(values, float) - np.asarray(others, float)
    count = differences.size
    if differences.ndim != 1 or count == 0:
        raise ValueError(f"{differences.shape} pairs; expected a row of them")
    first, second = np.triu_indices(count)
    means = np.sort((differences[first] + differences[second]) / 2)
    left_out = signed_rank_bound(count)
    return Change(float(np.median(means)), float(means[left_out]), float(means[-1 - left_out]))


def signed_rank_bound(count: int) -> int:
    """Of the means of pairs of `count` differences, how many at either end the interval leaves out.

    likely[w] is the part of all choices of signs of the ranks 1 to `count` whose positive ones add
    up to w. Of many ranks these sums are spread as by the normal distribution.
    """
    if count > EXACT_RANKS_MOST:
        spread = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
        middle = count * (count + 1) / 4
        return math.floor(NormalDist(middle, spread).inv_cdf((1 - CONFIDENCE) / 2) - 0.5)
    likely = np.zeros(count * (count + 1) // 2 + 1)
    likely[0] = 1
    for rank in range(1, count + 1):
        likely[rank:] += likely[:-rank].copy()
        likely /= 2
    return max(0, int(np.searchsorted(np.cumsum(likely), (1 - CONFIDENCE) / 2, side="right")) - 1)


def range_of(changes: Sequence[float]) -> Change:
    """The median of changes, of which all are known: from the least to the most."""
    return Change(float(np.median(changes)), float(min(changes)), float(max(changes)))


def median_of_ratios(values: Sequence[float], others: Sequence[float], seed: int = 1) -> Ratio:
    """Median of the ratios of pairs. The two runs of a pair are so close that a disturbance slows
    both.

    Both arguments hold a figure of each pair, in order; a resample draws whole pairs.
    """
    of_pairs = np.asarray(values, float) / np.asarray(others, float)
    if of_pairs.ndim != 1 or of_pairs.size == 0:
        raise ValueError(f"{of_pairs.shape} pairs; expected a row of them")
    low, high = interval(np.median, (of_pairs,), seed)
    return Ratio(float(np.median(of_pairs)), low, high, of_pairs.size)


def ratios_to_best(
    rounds: Mapping[str, Sequence[float]], outside: Collection[str] = ()
) -> dict[str, Ratio]:
    """Each name's ratio to the name with the least median.

    Every name has a figure of each round. A name in `outside` is the best only if all names are in
    it.
    """
    if not rounds:
        return {}
    inside = [name for name in rounds if name not in outside] or list(rounds)
    best = min(inside, key=lambda name: float(np.median(rounds[name])))
    return {name: median_ratio(values, rounds[best]) for name, values in rounds.items()}


def geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(np.asarray(values, float)))))


def rank_correlation(values: Sequence[float], others: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None if all figures of a side are equal."""
    if len(set(values)) < 2 or len(set(others)) < 2:
        return None
    return float(spearmanr(values, others).statistic)
