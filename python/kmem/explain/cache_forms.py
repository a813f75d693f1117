# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Lines of tools that look at caches one by one: slabinfo's report of a cache, gdb, collectl."""

from __future__ import annotations

import re

from kmem.explain.items import Bad, Figures, Head, Item, Passed, is_number
from kmem.explain.kernel_forms import short_line
from kmem.explain.table import Cache

REPORT = "reports of the kernel's slabinfo tool"
GDB = "lx-slabinfo of gdb"
COLLECTL = "slabs of collectl"
UNNAMED = "(no name)"  # of a report whose first line was left out

FIRST = re.compile(
    r"Slabcache: (\S{1,300}) Aliases: \d{1,9} Order ?: (\d{1,2})(?: Objects: (\d{1,19}))?", re.ASCII
)
# A row has a size, a count of slabs, a switch of debugging, and a sum of bytes. Names are those of
# the tool, and fields those of Cache; older versions leave out slabs of CPUs.
ROW = re.compile(
    r"(Object|SlabObj|SlabSiz|Loss|Align) ?: ?(\d{1,19})"
    r"(?: (Total|Full|Partial|CpuSlab|Objects) ?: ?(\d{1,19}))?"
    r" (?:Sanity Checks|Redzoning|Poisoning|Tracking|Tracing) ?: (On|Off)"
    r" (?:Total|Used|Loss|Lalig|Lpadd) ?: ?(-?\d{1,19})",
    re.ASCII,
)
SIZES = {"Object": "object_bytes", "SlabObj": "stride_bytes", "SlabSiz": "slab_bytes"}
SLABS = {
    "Total": "slabs",
    "Partial": "partial_slabs",
    "CpuSlab": "cpu_slabs",
    "Objects": "per_slab",
}
BYTES = {"Object": "total_bytes", "SlabObj": "used_bytes"}
LETTERS = {"Object": "F", "SlabObj": "Z", "SlabSiz": "P", "Loss": "U", "Align": "T"}
FLAGS = (
    "Hardware cacheline aligned",
    "Reclaim accounting",
    "Slabs are destroyed",
    "Memory is allocated",
)
HEAD = "Sizes (bytes) Slabs Debug Memory"
LARGEST_ORDER = 10


def report_line(text: str) -> Item | None:
    if match := FIRST.fullmatch(text):
        order = int(match[2])
        if order > LARGEST_ORDER:
            return Bad(f"a report of slabinfo with order {order}; expected at most {LARGEST_ORDER}")
        active = int(match[3]) if match[3] else None
        return Cache(match[1], active=active, pages_per_slab=1 << order)
    if text == HEAD or text.lstrip("* ").startswith(FLAGS):
        return Passed()
    match = ROW.fullmatch(text)
    if match is None:
        return None
    name, size, kind, count, switch, sum_bytes = match.groups()
    values = {}
    if name in SIZES:
        values[SIZES[name]] = int(size)
    if kind in SLABS:
        values[SLABS[kind]] = int(count)
    if name in BYTES:
        values[BYTES[name]] = max(0, int(sum_bytes))
    return Figures(values, LETTERS[name] if switch == "On" else "", first=name == "Object")


GDB_HEAD = "Pointer name active_objs num_objs objsize objperslab pagesperslab"
GDB_ROW = re.compile(r"0x[0-9a-f]{8,16} (.*)", re.ASCII)


def gdb_line(text: str) -> Item | None:
    """An address, and then the first columns of /proc/slabinfo."""
    if text == GDB_HEAD:
        return Head(GDB)
    match = GDB_ROW.fullmatch(text)
    return short_line(match[1]) if match and match[1] else None


COLLECTL_HEAD = "Name InUse Bytes Alloc Bytes InUse Bytes Total Bytes"
COLLECTL_AROUND = re.compile(r"<-+Objects-+><-+Slab Allocation-*>?|Bytes Total Bytes")
CLOCK = re.compile(r"\d\d:\d\d:\d\d(?:\.\d{1,6})? ", re.ASCII)
LEAST_SLAB = 4096


def collectl_line(text: str) -> Item | None:
    """NAME, and objects in use, objects, slabs in use and slabs, each with its bytes.

    Both counts of a kind have the same bytes each, so the row looks like nothing else.
    """
    if text.lstrip("# ") == COLLECTL_HEAD:
        return Head(COLLECTL)
    if COLLECTL_AROUND.fullmatch(text):
        return Passed()
    name, *numbers = CLOCK.sub("", text, count=1).split()
    if len(numbers) != 8 or not all(map(is_number, numbers)) or is_number(name):
        return None
    active, active_bytes, objects, object_bytes, used, used_bytes, slabs, bytes_all = map(
        int, numbers
    )
    if not objects and not slabs:
        return Cache(name, objects=0, active=0, slabs=0) if not any(map(int, numbers)) else None
    if not objects or not slabs or active > objects or used > slabs:
        return None
    stride, slab = object_bytes // objects, bytes_all // slabs
    fits = (
        (active_bytes, object_bytes) == (active * stride, objects * stride)
        and (used_bytes, bytes_all) == (used * slab, slabs * slab)
        and slab % LEAST_SLAB == 0
        and stride > 0
    )
    if not fits:
        return None
    return Cache(
        name,
        objects=objects,
        active=active,
        stride_bytes=stride,
        slab_bytes=slab or None,
        per_slab=objects // slabs,
        slabs=slabs,
        total_bytes=bytes_all,
    )
