# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tries option sets in batches until there are as many trials as were asked for."""

import re
from collections.abc import Sequence
from typing import Any

from kmem.common.errors import BadUsage, KmemError
from kmem.tune.replays import Replays
from kmem.tune.space import entries, line
from kmem.tune.study import Asked, Study, Trial, ask, score


def run_batch(replays: Replays, study: Study, batch: Sequence[Asked], progress: Any) -> None:
    """Every trial of the batch goes into the study as soon as its figures are there."""
    search = replays.search
    lines = {one.number: line(search.options, entries(one.params)) for one in batch}
    for options in replays.run(list(lines.values())):
        ratios, figures = replays.found[options]
        if batch[0].number == 0 and ratios is None:
            reason = re.sub("^(replay|kmem): ", "", figures)
            kind = BadUsage if options in replays.refused else KmemError
            raise kind(f"tune: the defaults cannot be replayed: {reason}")
        for one in batch:
            if lines[one.number] == options:
                study.add(
                    Trial(one.number, one.params, one.distributions, options, ratios, figures)
                )
                progress()


def run_search(replays: Replays, study: Study, trials: int, progress: Any) -> list[Trial]:
    """Trials 0 to `trials` - 1, including trials that the study has."""
    search = replays.search
    known = study.trials()
    # Ratios need the defaults, so the defaults are a batch of their own.
    for start in (0, *range(1, trials, search.batch)):
        count = search.batch if start else 1
        done = {trial.number for trial in known}
        wanted = set(range(start, min(start + count, trials))) - done
        if not wanted:
            continue
        before = [trial for trial in known if trial.number < start]
        asked = ask(
            before, start, count, options=search.options, goal=search.goal, seed=search.seed
        )
        run_batch(replays, study, [one for one in asked if one.number in wanted], progress)
        known = study.trials()
    return known[:trials]


def without_idle(replays: Replays, chosen: Trial) -> str:
    """The options of a trial without the options that the goal does not need."""
    search = replays.search
    options = [one for one in entries(chosen.params)]
    found = replays.found[chosen.line][0]
    assert found is not None
    again = True
    while again:
        again = False
        shorter = [
            [one for one in options if one != left_out]
            for left_out in options
            if not left_out.startswith("engine=")
        ]
        for _ in replays.run([line(search.options, one) for one in shorter]):
            pass
        for one in shorter:
            ratios = replays.found[line(search.options, one)][0]
            if ratios is not None and score(ratios, search.goal) <= score(found, search.goal):
                options, found, again = one, ratios, True
                break
    return line(search.options, options)
