# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Traces for tests: a frame from rows in the order of kmem.trace.COLUMNS, and lives of objects."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from kmem import trace as tr


def frame(rows: Sequence[tuple[int, ...]]) -> pl.DataFrame:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(tr.TYPES)
    return pl.DataFrame(
        [
            pl.Series(name, list(values), kind)
            for (name, kind), values in zip(tr.TYPES.items(), columns, strict=True)
        ]
    )


def event(
    time: int, operation: int, number: int, size: int, *, cpu: int = 0, cache: int = 0
) -> tuple[int, ...]:
    """A row; the object was asked for as many bytes as it was given."""
    return (time, size, size, 1, number, 0, 0, cpu, cache, operation)


def trace_of(
    rows: Sequence[tuple[int, ...]], caches: Sequence[str] = (), cpus: int = 1
) -> tr.Trace:
    """Caches have the ids from 2 on."""
    objects = max((row[4] for row in rows), default=-1) + 1
    return tr.Trace(frame(rows), ["kmalloc", "?", *caches], ["?"], objects, cpus)
