# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Heap profiles of DHAT, of valgrind and of Rust's dhat: JSON with every stack and its counts.

A stack ("program point") has its bytes and blocks at three moments: gb and gbk when the program
held most, eb and ebk at its end, and tb and tbk all that it ever allocated. The most is what a heap
has to hold, and at the end most programs have freed all.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeGuard

from kmem.common.text import printable
from kmem.explain.heap.profile import DHAT, HeapProfile, Place, Stack
from kmem.explain.table import Unread

FIRST = re.compile(rb'\s{0,64}\{\s{0,64}"dhatFileVersion"')
VERSIONS = (1, 2)
MODES = ("heap", "rust-heap")
# 0x109160: work (work.c:7); without debugging information ??? and the file.
FRAME = re.compile(r"0x([0-9A-Fa-f]{1,16}): (.{1,2000})", re.DOTALL)
ROOT = "[root]"
BYTES_MOST = 1 << 60


def is_dhat(content: bytes) -> bool:
    return FIRST.match(content) is not None


def place_of(frame: str) -> Place:
    match = FRAME.fullmatch(frame)
    if match is None:
        return Place(0, printable(frame))
    return Place(int(match[1], 16), "" if match[2].startswith("???") else printable(match[2]))


def is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= BYTES_MOST


def stack_of(point: Any, frames: list[Place | None]) -> Stack | str | None:
    """A stack at the moment of most bytes; nothing if it held none then; or what is wrong."""
    if not isinstance(point, dict):
        return "no object; expected gb, gbk and fs"
    size, objects, calls = point.get("gb"), point.get("gbk"), point.get("fs")
    if not is_count(size) or not is_count(objects):
        return "no counts gb and gbk of the moment of most bytes"
    if not isinstance(calls, list) or any(
        not is_count(call) or call >= len(frames) for call in calls
    ):
        return f"a stack with calls that the table of {len(frames)} does not have"
    if not objects and not size:
        return None
    if not objects or size < objects:
        return f"{objects:,} objects of {size:,} bytes; expected a byte each"
    places = tuple(place for call in calls if (place := frames[call]) is not None)
    return Stack(places, objects, size, 0)


def read_dhat(file: str, content: bytes) -> HeapProfile | str:
    """The profile; or why it says nothing of a heap."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return "a file of DHAT that is not whole: no JSON"
    version, mode = found.get("dhatFileVersion"), found.get("mode")
    if version not in VERSIONS:
        return f"a file of DHAT of version {printable(str(version)[:40])}; expected 1 or 2"
    if mode not in MODES:
        return f"a file of DHAT of mode {printable(str(mode)[:40])}, not of a heap"
    points, table = found.get("pps"), found.get("ftbl")
    if not isinstance(points, list) or not isinstance(table, list):
        return "a file of DHAT without pps and ftbl"
    frames = [None if frame == ROOT else place_of(str(frame)) for frame in table]
    profile = HeapProfile(DHAT, file)
    total = 0
    for number, point in enumerate(points, 1):
        stack = stack_of(point, frames)
        if isinstance(stack, Stack) and total + stack.bytes <= BYTES_MOST:
            total += stack.bytes
            profile.stacks.append(stack)
        elif stack is not None:
            reason = stack if isinstance(stack, str) else f"more than {BYTES_MOST:,} bytes in all"
            profile.unread.append(Unread(file, 0, f"stack {number}: {reason}"))
    return profile
