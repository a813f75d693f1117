# SPDX-License-Identifier: Apache-2.0 OR MIT
"""kmem.common.figures on made-up data: medians, ratios, bootstrap intervals, bounds, means, and
correlations of ranks."""

import math

import numpy as np
import pytest

from kmem.common.figures import (
    Ratio,
    geometric_mean,
    median_of_ratios,
    median_ratio,
    rank_correlation,
    ratios_to_best,
)


def test_geometric_mean() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([1.0, 1.0, 8.0]) == pytest.approx(2.0)
    assert geometric_mean([3.5]) == pytest.approx(3.5)


def test_ratio_is_that_of_the_medians() -> None:
    # The median of the ratios would be 2; that of the medians is 3 / 4.
    ratio = median_ratio([1.0, 3.0, 8.0], [4.0, 1.5, 4.0])
    assert ratio.median == pytest.approx(0.75)
    assert ratio.rounds == 3
    assert ratio.low <= ratio.median <= ratio.high


def test_interval_of_equal_rounds_is_a_point() -> None:
    ratio = median_ratio([3.0] * 7, [2.0] * 7)
    assert (ratio.low, ratio.median, ratio.high) == (1.5, 1.5, 1.5)


def test_rounds_are_drawn_as_pairs() -> None:
    # Load that triples both sides of a round leaves no doubt about their ratio.
    theirs = [1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0]
    ratio = median_ratio([1.2 * value for value in theirs], theirs)
    assert ratio.low == pytest.approx(1.2)
    assert ratio.high == pytest.approx(1.2)


def test_interval_grows_with_the_scatter() -> None:
    calm = median_ratio([1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0], [1.0] * 7)
    wild = median_ratio([1.0, 1.5, 0.6, 1.0, 1.4, 0.7, 1.0], [1.0] * 7)
    assert wild.high - wild.low > 5 * (calm.high - calm.low) > 0


def test_same_seed_gives_the_same_interval() -> None:
    values, others = [1.0, 1.3, 1.1, 1.6, 1.2], [1.0, 1.1, 0.9, 1.0, 1.05]
    assert median_ratio(values, others, 5) == median_ratio(values, others, 5)


@pytest.mark.parametrize(
    ("low", "rounds", "over"),
    [(1.11, 7, True), (1.10, 7, False), (1.09, 7, False), (1.5, 6, False), (1.5, 30, True)],
)
def test_over_a_bound_needs_the_whole_interval_and_rounds(
    low: float, rounds: int, over: bool
) -> None:
    assert Ratio(2.0, low, 3.0, rounds).over(1.10) is over


@pytest.mark.parametrize(("values", "others"), [([1.0], [1.0, 2.0]), ([], [])])
def test_unequal_or_no_rounds_are_refused(values: list[float], others: list[float]) -> None:
    with pytest.raises(ValueError, match="rounds"):
        median_ratio(values, others)


def test_ratios_are_to_the_least_median() -> None:
    ratios = ratios_to_best({"a": [4.0, 4.0, 9.0], "b": [2.0, 2.0, 2.0], "c": [3.0, 1.0, 3.0]})
    assert {name: ratio.median for name, ratio in ratios.items()} == {"a": 2.0, "b": 1.0, "c": 1.5}
    assert ratios["b"].low == ratios["b"].high == 1.0
    assert not math.isnan(ratios["c"].low)
    assert ratios_to_best({}) == {}


def test_ratios_to_the_best_of_those_that_count() -> None:
    rounds = {"a": [4.0], "b": [2.0], "c": [3.0]}
    ratios = ratios_to_best(rounds, outside=["b"])
    assert ratios["c"].median == 1 and ratios["b"].median == pytest.approx(2 / 3)
    assert ratios_to_best(rounds, outside=["a", "b", "c"])["b"].median == 1


def test_interval_of_a_single_round_is_a_point() -> None:
    for ratio in (median_ratio([3.0], [2.0]), median_of_ratios([3.0], [2.0])):
        assert (ratio.low, ratio.median, ratio.high, ratio.rounds) == (1.5, 1.5, 1.5, 1)


def test_ends_of_an_interval_by_hand() -> None:
    """Percentiles 2.5 and 97.5 of resamples that are drawn in the same way, without SciPy."""
    values, others = np.array([1.0, 1.3, 1.1, 1.6, 1.2]), np.array([1.0, 1.1, 0.9, 1.0, 1.05])
    drawn = np.random.default_rng(7).integers(5, size=(2000, 5))
    medians = [np.median(side[drawn], axis=1) for side in (values, others, values / others)]
    of_medians = median_ratio(values.tolist(), others.tolist(), 7)
    expected = np.percentile(medians[0] / medians[1], (2.5, 97.5))
    assert (of_medians.low, of_medians.high) == pytest.approx(tuple(expected))
    of_pairs = median_of_ratios(values.tolist(), others.tolist(), 7)
    assert (of_pairs.low, of_pairs.high) == pytest.approx(
        tuple(np.percentile(medians[2], (2.5, 97.5)))
    )


def test_rank_correlation() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 99]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # One pair of neighbours changed places: 1 - 6 * 2 / (4 * 15).
    assert rank_correlation([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    # Equal values share the mean of their ranks.
    assert rank_correlation([1, 1, 2], [1, 2, 3]) == pytest.approx(3**0.5 / 2)
    assert rank_correlation([1, 2], [5, 5]) is None
    assert rank_correlation([1, 1], [1, 2]) is None
    assert rank_correlation([1], [1]) is None
