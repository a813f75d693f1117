# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a model of the mail's hackbench rows can reach, from the mail's own table.

Processes and threads of one machine, and two machines that are nearly alike, do the same work; how
far their rows disagree is chance that no model can have.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from kmem.common.figures import rank_correlation

LIKE_MACHINES = ("xeon5218r", "e5-2698v4")
DRAWS = 500
SEED = 1

Row = Mapping[str, Any]  # machine, kind, groups, mail_percent


Percents = Mapping[tuple[str, str, int], float]  # by machine, kind and groups


def percents_of(rows: Sequence[Row]) -> Percents:
    return {(row["machine"], row["kind"], row["groups"]): row["mail_percent"] for row in rows}


def pairs_of_kinds(found: Percents) -> dict[tuple[str, int], tuple[float, float]]:
    """Processes and threads, by machine and number of groups."""
    return {
        (machine, groups): (percent, found[machine, "thread", groups])
        for (machine, kind, groups), percent in found.items()
        if kind == "process" and (machine, "thread", groups) in found
    }


def pairs_of_machines(found: Percents) -> list[tuple[float, float]]:
    """The two machines that are alike, for each kind and number of groups."""
    first, second = LIKE_MACHINES
    return [
        (percent, found[second, kind, groups])
        for (machine, kind, groups), percent in found.items()
        if machine == first and (second, kind, groups) in found
    ]


def resampled(
    rows: Sequence[Row], pairs: Sequence[tuple[float, float]]
) -> tuple[float, float, float] | None:
    """The mail's numbers against themselves with the pairs' noise: mean, 5th and 95th percentile.

    Each of two alike rows has half of their difference's variance.
    """
    noise = [(one - other) / 2**0.5 for one, other in pairs]
    mail = [row["mail_percent"] for row in rows]
    draw = random.Random(SEED)
    values = [
        value
        for _ in range(DRAWS)
        if (value := rank_correlation([one + draw.choice(noise) for one in mail], mail)) is not None
    ]
    if not values:
        return None
    values.sort()
    last = len(values) - 1
    mean = sum(values) / len(values)
    low, high = values[round(0.05 * last)], values[round(0.95 * last)]
    return round(mean, 3), round(low, 3), round(high, 3)


def pairs_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    value = rank_correlation([one for one, _ in pairs], [other for _, other in pairs])
    return None if value is None else round(value, 3)


def ceilings(rows: Sequence[Row], cpus: Mapping[str, int]) -> dict[str, Any]:
    """Rank correlations that bound a model's from above, and of the number of CPUs alone.

    @cpus: of each machine. Rows are named whose sign differs between processes and threads.
    """
    found = percents_of(rows)
    pairs = pairs_of_kinds(found)
    kinds, machines = list(pairs.values()), pairs_of_machines(found)
    mail = [row["mail_percent"] for row in rows]
    by_cpus = rank_correlation([-cpus[row["machine"]] for row in rows], mail)
    return {
        "kinds": pairs_correlation(kinds),
        "like_machines": pairs_correlation(machines),
        "resampled": resampled(rows, kinds) if kinds else None,
        "cpus_alone": None if by_cpus is None else round(by_cpus, 3),
        "other_signs": [
            [machine, groups]
            for (machine, groups), (process, thread) in pairs.items()
            if (process > 0) != (thread > 0)
        ],
    }
