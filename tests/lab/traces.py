# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Traces for tests: a frame from rows in the order of `COLUMNS`, and lives of objects."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from hypothesis import strategies as st

from kmem.traces import file as tr

PAGE_BYTES = 4096


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
    """A row; the object was asked for as many bytes as it was given. A CPU has its thread."""
    return (time, size, size, 1 + cpu, number, 0, 0, cpu, cache, operation)


def trace_of(
    rows: Sequence[tuple[int, ...]], caches: Sequence[str] = (), cpus: int = 1
) -> tr.Trace:
    """Caches have the ids from 2 on."""
    objects = max((row[4] for row in rows), default=-1) + 1
    return tr.Trace(frame(rows), ["kmalloc", "?", *caches], ["?"], objects, cpus)


@st.composite
def random_traces(draw: st.DrawFn) -> tr.Trace:
    """Objects of four caches, sizes and pages, on three CPUs, freed on any of them."""
    rows = []
    alive: list[tuple[int, int, int]] = []
    objects = 0
    sizes = [(2, 24), (3, 192), (4, 1000), (5, 5000)]
    for time in range(draw(st.integers(0, 60))):
        cpu = draw(st.integers(0, 2))
        if alive and draw(st.integers(0, 2)) == 0:
            number, cache, size = alive.pop(draw(st.integers(0, len(alive) - 1)))
            kind = tr.PAGE_FREE if cache == -1 else tr.FREE
            rows.append(event(time, kind, number, size, cpu=cpu, cache=max(cache, 0)))
            continue
        cache, size = draw(
            st.one_of(
                st.sampled_from(sizes),
                st.tuples(st.just(0), st.integers(0, 40_000)),
                st.tuples(st.just(-1), st.just(2 * PAGE_BYTES)),
            )
        )
        kind = tr.PAGE_ALLOC if cache == -1 else tr.ALLOC
        # Several at once, so that slabs fill.
        for _ in range(draw(st.sampled_from([1, 1, 40]))):
            alive.append((objects, cache, size))
            rows.append(event(time, kind, objects, size, cpu=cpu, cache=max(cache, 0)))
            objects += 1
    return trace_of(rows, ["small", "middle", "thousand", "big"], cpus=3)
