# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The samples that are in use in a process: since when, of which thread, with which stack."""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kmem.live.registry.file import RECORD_HEAD, RECORD_SAMPLES, RECORD_THREAD, Registry
from kmem.live.stacks import OBJECTS, Stack, stack_at, stack_places

UNIT = 64  # bytes that places of stacks count in
SAMPLES_MOST = 1 << 17  # as many as the library has places for


@dataclass(frozen=True)
class Sample:
    """An object in use, and what it stands for."""

    stack: Stack
    thread: int  # 0: not known
    age_ms: int
    objects: float
    size: int


@dataclass(frozen=True)
class Living:
    """The samples in use at a moment."""

    samples: list[Sample]
    threads: dict[int, str]  # names by numbers
    sampled_ms: int  # how long the process has been sampled
    old_ms: int  # age from which a sample is old
    old_freed: dict[Stack, int]  # bytes that were freed when they were old


def clock_offset_ms(process: int | str) -> int:
    """What a time namespace adds to CLOCK_MONOTONIC of a process."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{process}/timens_offsets").read_text().splitlines():
            clock, seconds, nanoseconds = line.split()
            if clock == "monotonic":
                return int(seconds) * 1000 + int(nanoseconds) // 1_000_000
    return 0


def now_ms(process: int) -> int:
    """The time by the clock that the process reads."""
    own = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000
    return own - clock_offset_ms("self") + clock_offset_ms(process)


def read_living(registry: Registry) -> Living | None:
    """The samples in use; None if the library is older than these."""
    if "sample" not in registry.parts["samples"]:
        return None
    copy = registry.copy()
    records = registry.records(copy)
    now, since = now_ms(registry.process), registry.number("head", "profile_since_ms")
    stacks = {at: stack_at(registry, copy, at) for at in stack_places(registry, copy)}
    found = []
    rows = [row for at in records[RECORD_SAMPLES] for row in rows_at(registry, copy, at)]
    for row in rows[:SAMPLES_MOST]:
        # A stack that came after the copy was begun has its samples in the next look.
        stack = stacks.get(UNIT * int(row["stack"]))
        if stack is not None:
            age = max(now - int(row["time_ms"]), 0)
            objects = int(row["objects"]) / OBJECTS
            found.append(Sample(stack, int(row["thread"]), age, objects, int(row["bytes"])))
    threads = {
        registry.number("thread", "thread", at): str(registry.read("thread", "name", at))
        for at in records[RECORD_THREAD]
    }
    old_freed = {
        stack: registry.number("stack", "old_freed_bytes", at) for at, stack in stacks.items()
    }
    return Living(
        samples=found,
        threads=threads,
        sampled_ms=max(now - since, 0) if since else 0,
        old_ms=registry.number("head", "profile_old_ms"),
        old_freed=old_freed,
    )


def rows_at(registry: Registry, copy: bytes, at: int) -> npt.NDArray[np.void]:
    """The places of a record with samples. Its length is that of the copy, which was checked."""
    place = registry.parts["samples"]["sample"]
    form = registry.forms["sample"]
    _, size = RECORD_HEAD.unpack_from(copy, at)
    count = min(place.count, (size - place.offset) // place.size)
    if count <= 0:
        return np.array([], form)
    rows: npt.NDArray[np.void] = np.ndarray((count,), form, copy, at + place.offset, (place.size,))
    used: npt.NDArray[np.void] = rows[rows["stack"] != 0]
    return used
