# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The options of the library that `kmem tune` may change, and values to try for each.

None stands for the default: the option is left out. Values are few and a factor of about two apart,
since neighbours differ less than replays of two traces do.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Value = str | int | None
Params = dict[str, Value]

ENGINES = ("slub", "slab", "slob")

# For every engine.
COMMON: dict[str, Sequence[Value]] = {
    "classes": (None, "kernel"),
    "slab_merge": (None, 1),
}

BY_ENGINE: dict[str, dict[str, Sequence[Value]]] = {
    "slub": {
        "sheaf_capacity": (None, 0, 4, 8, 16, 32, 64, 128, 256, 512),
        "slot_cache_max": (None, "64K", "256K", "4M", "16M"),
        "min_partial": (None, 0, 1, 2, 10, 20, 40),
        "cpu_partial": (None, 0, 2, 6, 13, 30, 60, 120, 240),
        "cpu_partial_accounting": (None, "objects"),
        "freeze": (None, "eager"),
        "slub_min_order": (None, 1, 2, 3),
        "slub_max_order": (None, 0, 1, 2, 4, 5),
        "slub_min_objects": (None, 4, 8, 16, 32, 64),
    },
    "slab": {
        "limit": (None, 4, 8, 16, 32, 64, 128, 256, 512),
        # `limit` divided by this is the batchcount, which may not exceed `limit`.
        "batches": (None, 1, 2, 4, 8),
        "shared": (None, 0, 2, 4, 16),
        "slab_max_order": (None, 0, 1, 2, 3),
    },
    "slob": {
        "slob_breaks": (
            None,
            "",
            "300",
            "512",
            "1024",
            "128:512",
            "64:256:1024",
            "128:256:512:1024",
            "32:64:128:256:512:1024",
        ),
    },
}

# Tried before anything is searched, after the defaults: other engines, and the classic allocator.
FIRST: tuple[Params, ...] = (
    {"engine": "slab"},
    {"engine": "slob"},
    {"engine": "slub", "sheaf_capacity": 0},
)


class Suggest(Protocol):
    """The part of an Optuna trial that is needed."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any: ...


def fixed_names(options: str) -> set[str]:
    """Names of the options that a text sets for all caches; the search leaves them alone."""
    names = {entry.partition("=")[0] for entry in options.split(",") if entry}
    if names & {"limit", "batchcount"}:
        names |= {"limit", "batches"}
    return names


def fixed_engine(options: str) -> str | None:
    """The engine that a text sets for all caches; the last setting counts."""
    engine = None
    for entry in options.split(","):
        name, _, value = entry.partition("=")
        if name == "engine":
            engine = value
    return engine


def choices_for(engine: str, fixed: set[str]) -> dict[str, Sequence[Value]]:
    of_engine = COMMON | BY_ENGINE.get(engine, {})
    return {name: values for name, values in of_engine.items() if name not in fixed}


def suggest(trial: Suggest, options: str) -> None:
    """Asks a trial for a value of everything that `options` leaves open."""
    engine = fixed_engine(options) or trial.suggest_categorical("engine", ENGINES)
    for name, values in choices_for(str(engine), fixed_names(options)).items():
        # Optuna wants a name to have equal values everywhere.
        trial.suggest_categorical(name, values)


def first_params(options: str) -> list[Params]:
    """The defaults, then FIRST as far as `options` leaves it open, with all else at its default."""
    fixed, engine = fixed_names(options), fixed_engine(options)
    default: Params = {"engine": engine or "slub"}
    params: list[Params] = []
    for first in (default, *FIRST):
        if engine not in (None, first["engine"]) or fixed & (first.keys() - {"engine"}):
            continue
        point: Params = dict.fromkeys(choices_for(str(first["engine"]), fixed))
        point |= {name: first[name] for name in first if name not in fixed}
        if point not in params:
            params.append(point)
    return params


def entries(params: Mapping[str, Value]) -> list[str]:
    """NAME=VALUE for each parameter that is not at its default, in the order of the tables."""
    values = dict(params)
    batches, limit = values.pop("batches", None), values.get("limit")
    if limit is not None and batches is not None:
        values["batchcount"] = max(1, int(limit) // int(batches))
    if values.get("engine") == "slub":
        del values["engine"]
    order = ["engine", *COMMON]
    for of_engine in BY_ENGINE.values():
        order += [*of_engine, *(["batchcount"] if "limit" in of_engine else [])]
    return [f"{name}={values[name]}" for name in order if values.get(name) is not None]


def line(options: str, chosen: Sequence[str]) -> str:
    """The value of KMEM_OPTIONS."""
    return ",".join(filter(None, [options, *chosen]))
