# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Medians, ratios and their intervals, for figures that were taken in rounds; orders of figures."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import bootstrap, spearmanr

RESAMPLES = 2000
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

    def share(self, whole: float) -> "Change":
        """The change as a share of a whole."""
        return Change(self.median / whole, self.low / whole, self.high / whole)

    def meets(self, other: "Change") -> bool:
        """Whether the intervals have a value in common."""
        return self.low <= other.high and other.low <= self.high

    def is_none(self) -> bool:
        """Whether the interval has zero."""
        return self.low <= 0 <= self.high

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


def difference_of_medians(ours: Floats, theirs: Floats, axis: int) -> Floats:
    return np.asarray(np.median(ours, axis=axis) - np.median(theirs, axis=axis))


def median_change(values: Sequence[float], others: Sequence[float], seed: int = 1) -> Change:
    """Median of `values` without the median of `others`; figures of rounds, as of median_ratio."""
    ours, theirs = np.asarray(values, float), np.asarray(others, float)
    if ours.shape != theirs.shape or ours.ndim != 1 or ours.size == 0:
        raise ValueError(f"{ours.size} and {theirs.size} rounds; expected as many of both, and one")
    low, high = interval(difference_of_medians, (ours, theirs), seed)
    return Change(float(np.median(ours) - np.median(theirs)), low, high)


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
