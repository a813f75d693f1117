# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Option sets that are compared: their rounds on the clock, and their order by both measures."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kmem.common.figures import Ratio, median_ratio, rank_correlation


@dataclass
class OptionSet:
    """A set of options, its rounds, and its figures on the simulated machine."""

    options: str
    name: str  # its options beyond the options that all sets have
    rounds: list[dict[str, Any]] = field(default_factory=list)  # documents of the tool
    simulated: dict[str, Any] | None = None

    def series(self, name: str) -> list[float]:
        return [document["real_time"][name] for document in self.rounds]

    def median(self, name: str) -> float | None:
        values = self.series(name)
        return None if None in values else float(np.median(values))

    def median_round(self) -> dict[str, Any]:
        """The round with the median CPU time; of two in the middle the lower."""
        ordered = sorted(self.rounds, key=lambda document: float(document["real_time"]["cpu_ns"]))
        return ordered[(len(ordered) - 1) // 2]


@dataclass(frozen=True)
class Miss:
    """Two sets that the simulation orders differently from the clock, beyond the clock's noise."""

    faster: str  # by the clock
    slower: str
    real: Ratio
    modelled: float  # ratio in that direction: not above 1


def misses(sets: Sequence[OptionSet]) -> list[Miss]:
    found = []
    for one in sets:
        for other in sets:
            real = median_ratio(one.series("cpu_ns"), other.series("cpu_ns"))
            modelled = modelled_ns(one) / modelled_ns(other)
            if one is not other and real.low > 1 and modelled <= 1:
                found.append(Miss(other.name, one.name, real, modelled))
    return found


def modelled_ns(one: OptionSet) -> float:
    assert one.simulated is not None
    return float(one.simulated["modelled"]["ns"])


def simulated_pages(one: OptionSet) -> float:
    assert one.simulated is not None
    return float(one.simulated["peak"]["pages"])


def compare_ranks(sets: Sequence[OptionSet], touch: bool) -> dict[str, Any]:
    resident = [one.median("peak_resident_bytes") for one in sets]
    known = [value for value in resident if value is not None]
    return {
        "time": rank_correlation(
            [float(np.median(one.series("cpu_ns"))) for one in sets],
            [modelled_ns(one) for one in sets],
        ),
        "memory": rank_correlation(known, [simulated_pages(one) for one in sets])
        if touch and len(known) == len(sets)
        else None,
        "misses": [
            {
                "faster": miss.faster,
                "slower": miss.slower,
                "ratio": miss.real.median,
                "low": miss.real.low,
                "high": miss.real.high,
                "modelled_ratio": miss.modelled,
            }
            for miss in misses(sets)
        ],
    }
