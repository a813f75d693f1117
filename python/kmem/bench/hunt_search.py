# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where `kmem bench hunt --search` looks next: Optuna's sampler learns from the points so far."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from kmem.bench.hunt_figures import Point
from kmem.bench.hunt_space import Dice, Value, suggest
from kmem.bench.suite_report import OURS

optuna.logging.set_verbosity(optuna.logging.ERROR)

GOALS = ("time", "memory", "both")


def loss(point: Point, goal: str) -> float:
    """What the search raises: how far the best is ahead of libkmem, or a peer in both."""
    if goal == "both":
        return point.loss
    return (point.time if goal == "time" else point.memory)[OURS].median


@dataclass
class Distinct:
    """A trial whose choices have every value once; Dice takes several for a weight."""

    trial: optuna.Trial

    def suggest_categorical(self, name: str, choices: Sequence[Value]) -> Value:
        value = self.trial.suggest_categorical(name, tuple(dict.fromkeys(choices)))
        assert isinstance(value, str | int)
        return value


def frozen(drawn: dict[str, tuple[tuple[Value, ...], Value]], value: float | None) -> FrozenTrial:
    return create_trial(
        state=TrialState.FAIL if value is None else TrialState.COMPLETE,
        values=None if value is None else [value],
        params={name: chosen for name, (_, chosen) in drawn.items()},
        distributions={
            name: CategoricalDistribution(tuple(dict.fromkeys(choices)))
            for name, (choices, _) in drawn.items()
        },
    )


class Search:
    """A study of the points that were drawn and proposed."""

    def __init__(self, goal: str, threads: Sequence[int], seed: int) -> None:
        self.goal = goal
        self.threads = threads
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # The sampler takes no larger seeds, but the user may give any.
            sampler = optuna.samplers.TPESampler(seed=seed % 2**32, multivariate=True, group=True)
        self.study = optuna.create_study(sampler=sampler, direction="maximize")
        self.asked: optuna.Trial | None = None

    def learn(self, dice: Dice, point: Point) -> None:
        """A point that was drawn."""
        self.study.add_trial(frozen(dice.drawn, self.value(point)))

    def value(self, point: Point) -> float | None:
        return loss(point, self.goal) if point.measured else None

    def propose(self) -> dict[str, Value]:
        self.asked = self.study.ask()
        return suggest(Distinct(self.asked), self.threads)

    def tell(self, point: Point) -> None:
        """The point that was proposed last."""
        assert self.asked is not None
        value = self.value(point)
        if value is None:
            self.study.tell(self.asked, state=TrialState.FAIL)
        else:
            self.study.tell(self.asked, value)
