# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Files without events that people give to `kmem import`: what each is, and what reads it."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path

LOOKED_AT = 65536  # bytes at the beginning
EXPLAINED = "which has no events; kmem explain reads it"

WITHOUT_EVENTS = (
    (re.compile(rb'\A\s*\{\s*"dhatFileVersion"'), f"a profile of DHAT, {EXPLAINED}"),
    (re.compile(rb"\A[\nZ][\x00-\x1f]\x08"), f"a profile in pprof's format, {EXPLAINED}"),
    (re.compile(rb"\Aheap profile: .{1,200} @ heap/"), f"a heap profile of Go, {EXPLAINED}"),
    (
        re.compile(
            rb"(?:slabinfo - version|OBJS ACTIVE +USE|CACHE +OBJSIZE|Unreclaimable slab info)"
        ),
        f"a slab table, {EXPLAINED}",
    ),
    (
        re.compile(rb"\Adesc: .{0,200}\ncmd: "),
        "snapshots of valgrind's massif, which have no events",
    ),
    (
        re.compile(rb"MOST CALLS TO ALLOCATION FUNCTIONS"),
        "a text of heaptrack_print; expected the data file that heaptrack writes",
    ),
    (
        re.compile(rb"(?:^|\n)--\d{1,9}-- (?:malloc|calloc|free)\("),
        "a log of valgrind's --trace-malloc; expected a log of ltrace or mtrace",
    ),
)


def why_no_events(file: Path) -> str:
    """What a file without events is, if it is known. A stream cannot be read again."""
    if not file.is_file():
        return ""
    try:
        with file.open("rb") as opened:
            content = opened.read(LOOKED_AT)
        if content.startswith(b"\x1f\x8b"):
            with gzip.open(file) as packed:
                content = packed.read(LOOKED_AT)
    except (OSError, EOFError, zlib.error):
        return ""
    return next((what for mark, what in WITHOUT_EVENTS if mark.search(content)), "")
