# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Heap profiles in pprof's format: of Go, of tcmalloc's and jemalloc's converters, of kmem profile.

Their writers scale samples up already, and keep the interval between them as the period.
"""

from __future__ import annotations

from pathlib import Path

from kmem.common.errors import KmemError
from kmem.explain.heap.profile import PPROF, HeapProfile, Mapping, Place, Stack
from kmem.explain.table import Unread
from kmem.live.pprof import Frame, Row, Saved, parse
from kmem.live.sites import script_calls, text_of

# Names of the columns with objects and bytes in use, of which writers have several.
OBJECTS = ("inuse_objects", "objects")
BYTES = ("inuse_space", "space")


def places_of(frame: Frame) -> list[Place]:
    # The reader gives a place without a name its address for one.
    named = [line for line in frame.lines if line.function != f"0x{frame.address:x}"]
    if not named:
        return [Place(frame.address)]
    return [Place(frame.address, text_of(line)) for line in named]


def places_of_stack(row: Row) -> tuple[Place, ...]:
    """An interpreter's or a compiler's own functions are left out, as `kmem profile` does."""
    # A writer without mappings may have machine code alone.
    has_code = any(frame.mapping for frame in row.frames)
    scripts = script_calls(row) if has_code else ()
    if scripts:
        return tuple(Place(name=call) for call in scripts)
    return tuple(place for frame in row.frames for place in places_of(frame))


def column(saved: Saved, names: tuple[str, ...], unit: str) -> int | None:
    for number, (name, of) in enumerate(saved.types):
        if name in names and of in (unit, ""):
            return number
    return None


def read_proto(file: str, content: bytes) -> HeapProfile | str:
    """The profile; or why it says nothing of a heap."""
    try:
        saved = parse(content, Path(file))
    except KmemError:
        return "no text, and no whole profile in pprof's format"
    bytes_at, objects_at = column(saved, BYTES, "bytes"), column(saved, OBJECTS, "count")
    if bytes_at is None or objects_at is None:
        kinds = ", ".join(f"{name}/{unit}" for name, unit in saved.types) or "nothing"
        return f"a pprof profile of {kinds[:200]}, not of objects and bytes in use"
    found = HeapProfile(PPROF, file, max(saved.period, 0), is_scaled=True)
    for number, row in enumerate(saved.rows, 1):
        objects, size = row.values[objects_at], row.values[bytes_at]
        if objects == 0 and size <= 0:
            continue
        if objects < 1 or size < objects:
            found.unread.append(
                Unread(file, 0, f"sample {number}: {objects:,} objects of {size:,} bytes")
            )
            continue
        found.stacks.append(Stack(places_of_stack(row), objects, size, 0))
    mappings = {frame.mapping for row in saved.rows for frame in row.frames if frame.mapping}
    found.mappings = sorted(
        (Mapping(one.start, one.end, one.offset, 0, one.path) for one in mappings),
        key=lambda one: one.start,
    )
    return found
