# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The difference of two profiles by call stack: less the base, as pprof's -base takes it."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from kmem.live.pprof import Row

Key = tuple[tuple[str, str], ...]


def key_of(row: Row) -> Key:
    """What a stack is known by in another process or build: not by addresses and lines."""
    return tuple(
        (line.function, PurePosixPath(frame.mapping.path).name if frame.mapping else line.file)
        for frame in row.frames
        for line in frame.lines
    )


def subtract(rows: Sequence[Row], base: Sequence[Row]) -> list[Row]:
    """A row for each stack whose values differ; the frames are of the newer profile if it has it.

    Values that shrank are negative.
    """
    newest: dict[Key, Row] = {}
    sums: dict[Key, list[int]] = {}
    for part, sign in ((rows, 1), (base, -1)):
        for row in part:
            key = key_of(row)
            newest.setdefault(key, row)
            values = sums.setdefault(key, [0] * len(row.values))
            sums[key] = [old + sign * value for old, value in zip(values, row.values, strict=True)]
    return [Row(newest[key].frames, tuple(values)) for key, values in sums.items() if any(values)]
