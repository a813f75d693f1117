# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The space of workloads that `kmem bench hunt` draws from.

A point is a set of words for bench/workloads/drawn.c, whose head explains each. A dimension has a
few values, so that the report has a mean for each value, and so that a search can learn from them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

KIB, MIB = 1 << 10, 1 << 20
THREADS_MAX = 1024

Value = str | int

RECORDED = ("python3", "redis", "node", "gcc", "sqlite")
SIZES = ("constant", "uniform", "power", "doublings", *RECORDED)
# Classes of most allocators, and sizes beside them.
LEAST = (8, 16, 24, 40, 48, 64, 100, 128, 200, 256, 520, KIB, 2000, 4 * KIB, 5000)
LARGE = (16 * KIB, 33_000, 64 * KIB, 100_000, 256 * KIB, MIB)
SPANS = (1, 4, 16, 64, 256, 4 * KIB)  # times the least size
BYTES_MAX = 4 * MIB
LIVE = tuple(1 << shift for shift in range(14, 27))
THREADS = (1, 2, 4, 8, 16, 32)


class Chooser(Protocol):
    """The part of an Optuna trial that is needed."""

    def suggest_categorical(self, name: str, choices: Sequence[Value]) -> Value: ...


@dataclass
class Dice:
    """A chooser that draws each value with its weight, and remembers the values."""

    random: np.random.Generator
    drawn: dict[str, tuple[tuple[Value, ...], Value]] = field(default_factory=dict)

    def suggest_categorical(self, name: str, choices: Sequence[Value]) -> Value:
        value = choices[int(self.random.integers(len(choices)))]
        self.drawn[name] = (tuple(choices), value)
        return value


def whole(chooser: Chooser, name: str, choices: Sequence[int]) -> int:
    return int(chooser.suggest_categorical(name, choices))


def threads_between(least: int, most: int) -> tuple[int, ...]:
    """The counts of threads to draw from: powers of two, and both ends."""
    inner = (count for count in THREADS if least < count < most)
    return tuple(dict.fromkeys((least, *inner, most)))


def suggest_sizes(chooser: Chooser) -> dict[str, Value]:
    sizes = str(chooser.suggest_categorical("sizes", SIZES))
    if sizes in RECORDED:
        return {"sizes": sizes, "least": 8, "most": BYTES_MAX}
    if sizes == "constant":
        least = whole(chooser, "constant", LEAST + LARGE)
        return {"sizes": sizes, "least": least, "most": least}
    least = whole(chooser, "least", LEAST)
    span = whole(chooser, "span", SPANS[1:])
    return {"sizes": sizes, "least": least, "most": min(least * span, BYTES_MAX)}


def suggest_handover(chooser: Chooser, threads: int) -> dict[str, Value]:
    if threads == 1 or chooser.suggest_categorical("hands over", ("no", "yes")) == "no":
        return {"handover": "none", "handed": 0, "batch": 1}
    return {
        "handover": chooser.suggest_categorical("handover", ("pairs", "ring", "random", "oneway")),
        "handed": chooser.suggest_categorical("handed", (5, 50, 100)),
        "batch": chooser.suggest_categorical("batch", (1, 8, 64, 512)),
    }


def suggest_generations(chooser: Chooser) -> dict[str, Value]:
    if chooser.suggest_categorical("threads end", ("no", "yes")) == "no":
        return {"generations": 1, "inherit": "yes"}
    return {
        "generations": chooser.suggest_categorical("generations", (4, 32, 256)),
        "inherit": chooser.suggest_categorical("inherit", ("yes", "no")),
    }


def suggest_calls(chooser: Chooser) -> dict[str, Value]:
    """The shares of other calls than malloc; most programs make few of them."""
    if chooser.suggest_categorical("other calls", ("no", "yes")) == "no":
        return {"realloc": 0, "calloc": 0, "aligned": 0}
    return {
        "realloc": chooser.suggest_categorical("realloc", (0, 5, 30)),
        "calloc": chooser.suggest_categorical("calloc", (0, 10, 100)),
        "aligned": chooser.suggest_categorical("aligned", (0, 0, 10)),
    }


def suggest(chooser: Chooser, threads: Sequence[int]) -> dict[str, Value]:
    """A point."""
    count = whole(chooser, "threads", threads)
    return {
        "threads": count,
        **suggest_sizes(chooser),
        "live": chooser.suggest_categorical("live", LIVE),
        "lives": chooser.suggest_categorical(
            "lives", ("stack", "queue", "random", "phases", "scattered")
        ),
        "burst": chooser.suggest_categorical("burst", (1, 8, 64, 512)),
        **suggest_generations(chooser),
        **suggest_handover(chooser, count),
        "touch": chooser.suggest_categorical("touch", ("first", "pages", "all")),
        "reads": chooser.suggest_categorical("reads", (0, 1, 4)),
        **suggest_calls(chooser),
    }


def as_words(point: Mapping[str, Value]) -> str:
    return " ".join(f"{key}={value}" for key, value in point.items())


def as_point(words: str) -> dict[str, Value]:
    """The values of words. drawn.c refuses words that it does not know, with a message."""
    return dict(word.partition("=")[::2] for word in words.split())
