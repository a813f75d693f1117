# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The trials of `kmem tune`: the choice of the next option sets, and all results, in SQLite.

A trial is a number, parameters and figures. Trial 0 is the defaults. Then come batches: the study
asks Optuna's sampler for all sets of a batch at once. The answer depends on the seed, the batch's
first number and the trials below that number, and on nothing else: not on the number or the order
of workers, nor on an interruption of the command. So equal commands find equal options, and a
command that goes on asks again for the sets without an answer. A trial is written once it is known,
whole.
"""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import OptunaError
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from kmem.common.errors import BadUsage, KmemError
from kmem.tune.space import Params, first_params, suggest

GOALS = {"time": (0,), "memory": (1,), "both": (0, 1)}  # places in Trial.ratios

FAILURES = (SQLAlchemyError, OptunaError)  # of the file
MADE_SECONDS = 60  # for another command to make the file

optuna.logging.set_verbosity(optuna.logging.ERROR)


@dataclass(frozen=True)
class Asked:
    """An option set that the sampler wants to know about."""

    number: int
    params: Params
    distributions: dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """A trial with its results."""

    number: int
    params: Params
    distributions: dict[str, Any]
    line: str  # KMEM_OPTIONS
    ratios: tuple[float, float] | None  # time and memory relative to the defaults; None: failed
    figures: Any  # figures of each trace; for a failed trial the reason


class Study:
    """The trials in a file, under a name that identifies the search. Searches may share a file."""

    def __init__(self, file: Path, name: str) -> None:
        self.file = file
        if set("?%") & set(str(file)):
            raise BadUsage(f"tune: --study {file}: expected a name without ? and %")
        deadline = time.monotonic() + MADE_SECONDS
        while True:
            try:
                self.study = optuna.create_study(
                    # From the root, because a name without a folder may have a meaning other than a
                    # file.
                    storage=optuna.storages.RDBStorage(f"sqlite:///{file.absolute()}"),
                    study_name=name,
                    directions=["minimize", "minimize"],
                    load_if_exists=True,
                )
                return
            except (*FAILURES, RuntimeError) as error:
                # Another command may be making the tables and their first rows at this moment.
                causes = (error, error.__cause__)
                met = any(isinstance(one, IntegrityError) for one in causes)
                met |= "already exists" in str(error)
                if not met or time.monotonic() > deadline:
                    raise self.failure(error) from None
            time.sleep(0.05)

    def failure(self, error: Exception) -> KmemError:
        # Optuna raises one text for any failure of a write; the cause has the reason.
        known = error.__cause__ if isinstance(error, OptunaError) else None
        error = known if isinstance(known, SQLAlchemyError) else error
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        return KmemError(f"tune: --study {self.file}: {reason}")

    def trials(self) -> list[Trial]:
        """Trials by number. If two commands shared the work, each number occurs once."""
        try:
            stored = self.study.get_trials(deepcopy=False)
        except FAILURES as error:
            raise self.failure(error) from None
        found: dict[int, Trial] = {}
        for trial in stored:
            number = trial.user_attrs["number"]
            found.setdefault(number, from_frozen(number, trial))
        return [found[number] for number in sorted(found)]

    def add(self, trial: Trial) -> None:
        attributes = {"number": trial.number, "line": trial.line, "figures": trial.figures}
        try:
            self.study.add_trial(as_frozen(trial, trial.ratios, attributes))
        except FAILURES as error:
            raise self.failure(error) from None


def from_frozen(number: int, trial: FrozenTrial) -> Trial:
    time, memory = trial.values if trial.state == TrialState.COMPLETE else (None, None)
    return Trial(
        number,
        trial.params,
        trial.distributions,
        trial.user_attrs["line"],
        None if time is None or memory is None else (time, memory),
        trial.user_attrs["figures"],
    )


def as_frozen(
    trial: Trial, values: Sequence[float] | None, attributes: dict[str, Any] | None = None
) -> FrozenTrial:
    return create_trial(
        state=TrialState.FAIL if values is None else TrialState.COMPLETE,
        values=values,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs=attributes,
    )


def ask(
    known: Sequence[Trial], start: int, count: int, *, options: str, goal: str, seed: int
) -> list[Asked]:
    """The batch that begins at a number; `known` has the trials below."""
    # The sampler takes no larger seeds, but the user may give any.
    batch_seed = (seed * 1_000_003 + start) % 2**32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=batch_seed, multivariate=True, group=True, constant_liar=True
        )
    places = GOALS[goal]
    study = optuna.create_study(sampler=sampler, directions=["minimize"] * len(places))
    for trial in known:
        values = None if trial.ratios is None else [trial.ratios[place] for place in places]
        study.add_trial(as_frozen(trial, values))
    for params in first_params(options)[start : start + count]:
        study.enqueue_trial(params)
    asked = []
    for number in range(start, start + count):
        point = study.ask()
        suggest(point, options)
        asked.append(Asked(number, point.params, point.distributions))
    return asked


# ---- Results -----------------------------------------------------------------------------------


def score(ratios: tuple[float, float], goal: str) -> tuple[float, float]:
    """A key that is less for a better trial.

    With goal both, a percent of time is worth a percent of memory.
    """
    time, memory = ratios
    return {
        "time": (time, memory),
        "memory": (memory, time),
        "both": (time * memory, max(time, memory)),
    }[goal]


def pareto(trials: Sequence[Trial]) -> list[Trial]:
    """Trials that no other trial beats in a figure without losing in the other, the fastest first.

    If several trials have equal figures, the trial with the fewest options is taken, then the
    first.
    """
    front: list[Trial] = []
    order = [(trial.ratios, trial.line.count("="), trial.number, trial) for trial in trials]
    for ratios, _, _, trial in sorted(
        (entry for entry in order if entry[0] is not None), key=lambda entry: entry[:3]
    ):
        assert ratios is not None
        if not front or front[-1].ratios is None or ratios[1] < front[-1].ratios[1]:
            front.append(trial)
    return front


def best(trials: Sequence[Trial], goal: str) -> Trial:
    def key(trial: Trial) -> tuple[float, float]:
        assert trial.ratios is not None
        return score(trial.ratios, goal)

    return min(pareto(trials), key=key)
