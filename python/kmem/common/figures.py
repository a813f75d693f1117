# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Medians, ratios and their intervals, for figures that were taken in rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
INTERVAL = (2.5, 97.5)  # percentiles: 95%
ROUNDS_FOR_BOUNDS = 7  # fewer say nothing about a bound


@dataclass(frozen=True)
class Ratio:
    """The ratio of two medians and its bootstrap 95% interval."""

    median: float
    low: float
    high: float
    rounds: int

    def over(self, bound: float) -> bool:
        """Over a bound is only what is so with its whole interval, over enough rounds."""
        return self.rounds >= ROUNDS_FOR_BOUNDS and self.low > bound


def median_ratio(values: Sequence[float], others: Sequence[float], seed: int = 1) -> Ratio:
    """Median of `values` by that of `others`; both have one figure a round, in the same order.

    Rounds are drawn as a whole, so what disturbed a round disturbs both sides of a resample.
    """
    ours, theirs = np.asarray(values, float), np.asarray(others, float)
    if ours.shape != theirs.shape or ours.ndim != 1 or ours.size == 0:
        raise ValueError(f"{ours.size} and {theirs.size} rounds; expected as many of both, and one")
    drawn = np.random.default_rng(seed).integers(ours.size, size=(RESAMPLES, ours.size))
    ratios = np.median(ours[drawn], axis=1) / np.median(theirs[drawn], axis=1)
    low, high = np.percentile(ratios, INTERVAL)
    return Ratio(float(np.median(ours) / np.median(theirs)), float(low), float(high), ours.size)


def median_of_ratios(values: Sequence[float], others: Sequence[float], seed: int = 1) -> Ratio:
    """Median of each value by its other, for pairs that stand so close that a slow one is both's.

    Both have one figure a pair, in the same order; pairs are drawn as a whole.
    """
    of_pairs = np.asarray(values, float) / np.asarray(others, float)
    if of_pairs.ndim != 1 or of_pairs.size == 0:
        raise ValueError(f"{of_pairs.shape} pairs; expected a row of them")
    drawn = np.random.default_rng(seed).integers(of_pairs.size, size=(RESAMPLES, of_pairs.size))
    low, high = np.percentile(np.median(of_pairs[drawn], axis=1), INTERVAL)
    return Ratio(float(np.median(of_pairs)), float(low), float(high), of_pairs.size)


def ratios_to_best(rounds: Mapping[str, Sequence[float]]) -> dict[str, Ratio]:
    """Each name's ratio to the name with the least median; a figure a round for each."""
    if not rounds:
        return {}
    best = min(rounds, key=lambda name: float(np.median(rounds[name])))
    return {name: median_ratio(values, rounds[best]) for name, values in rounds.items()}


def geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(np.asarray(values, float)))))
