# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Lines that kernels print: /proc/slabinfo and meminfo, out-of-memory reports, sysfs."""

from __future__ import annotations

import re

from kmem.common.attribute_table import ATTRIBUTES
from kmem.explain.items import (
    Adds,
    Attribute,
    Bad,
    Head,
    Item,
    Memory,
    Passed,
    Totals,
    is_number,
    wanted,
)
from kmem.explain.table import Boot, Cache
from kmem.traces.slabinfo import match_cache_line

SLABINFO = "/proc/slabinfo"
SLABINFO_1 = "/proc/slabinfo 1.1"
OUT_OF_MEMORY = "unreclaimable slabs of an out-of-memory report"
SYSFS = "/sys/kernel/slab"
FAILED = "failed allocations of slabs"

VERSION = re.compile(r"slabinfo - version: (\d)\.(\d)(?: \((?:statistics|SMP)\))*", re.ASCII)
COLUMNS = (
    *("active_objs", "num_objs", "objsize", "objperslab", "pagesperslab"),
    *("limit", "batchcount", "sharedfactor", "active_slabs", "num_slabs", "sharedavail"),
)
# The line with the names of the columns, of which mails make several; and statistics on lines of
# their own.
FIRST_NAMES = (
    *("# name <", "#name <", "name <active_objs>"),
    *("<name> <active_objs>", "name active_objs "),
)
COLUMN_NAMES = (
    *("<pagesperslab>", "<objsize>", "slabdata <", "<active_slabs>"),
    *(": tunables <", ": slabdata <", ": globalstat", ": cpustat"),
)
# Words of the names of the columns, and of a row's statistics, where a mail has folded them.
FOLDED_NAME = re.compile(r"<\w{1,20}>?|\w{1,20}>|:|tunables|slabdata|globalstat|cpustat", re.ASCII)
FOLDED_WORDS = (":", "globalstat", "cpustat")
# Linux 2.4 has caches as "file lock cache".
NAME_IN_WORDS = re.compile(r"([A-Za-z]\S*(?: [A-Za-z]\S*){1,3}) (\d[\d :]*)", re.ASCII)
COLUMNS_1 = ("active", "objects", "objsize", "active slabs", "slabs", "pages of a slab")


# What SLUB prints when a kernel boots.
BOOT = re.compile(
    r"SLUB: (?:Genslabs=\d{1,4}, )?HWalign=\d{1,5}, Order=(\d{1,2})-(\d{1,2}),"
    r" MinObjects=(\d{1,5}), (?:CPUs|Processors)=(\d{1,5}), Nodes=(\d{1,5})",
    re.ASCII,
)
MOST_CPUS, MOST_NODES, MOST_OBJECTS = 8192, 1024, 32767


def boot_line(text: str) -> Item | None:
    match = BOOT.fullmatch(text)
    if match is None:
        return None
    least, greatest, objects, cpus, nodes = map(int, match.groups())
    sound = least <= greatest <= LARGEST_ORDER and objects <= MOST_OBJECTS
    if not sound or not 1 <= cpus <= MOST_CPUS or not 1 <= nodes <= MOST_NODES:
        return Bad(
            f"SLUB's line of a boot; expected orders up to {LARGEST_ORDER}, 1 to {MOST_CPUS} CPUs"
            f" and 1 to {MOST_NODES} nodes"
        )
    return Boot(cpus, nodes, least, greatest, objects)


def slabinfo_head(text: str) -> Item | None:
    if match := VERSION.fullmatch(text):
        return Head(SLABINFO_1 if match[1] == "1" else SLABINFO)
    if text.startswith(FIRST_NAMES):
        return Head(SLABINFO, below_totals=True)
    if text.startswith(COLUMN_NAMES):
        return Passed()
    is_folded = "<" in text and all(
        map(FOLDED_NAME.fullmatch, text.removeprefix("#").removeprefix(" name").split())
    )
    return Passed() if is_folded else None


def folded_statistics(text: str) -> Item | None:
    """Below a row: the rest of its statistics, which nothing here uses."""
    is_folded = all(is_number(word) or word in FOLDED_WORDS for word in text.split())
    return Passed() if is_folded else None


def full_line(text: str, *, folded: bool = False) -> Cache | None:
    """A line of version 2; what statistics, and makers of phones, add is left out.

    Of a line that was folded, the number of its figures says where the parts belong.
    """
    parts = text.split(" : ")
    if not folded and len(parts) > 2 and parts[2].startswith("slabdata "):
        parts[2] = " ".join(parts[2].split()[:4])
    line = match_cache_line(" : ".join(parts[:3]))
    if line is None or any(not part.startswith(("globalstat", "cpustat")) for part in parts[3:]):
        return None
    return Cache(
        line.name,
        objects=line.objects,
        active=line.active_objects,
        stride_bytes=line.object_size,
        per_slab=line.objects_per_slab,
        pages_per_slab=line.pages_per_slab,
        slabs=line.slabs,
        slab_allocator=line.limit > 0,
    )


# A page or a chat has taken the colons away.
LOST_COLON = re.compile(r" (?=(?:tunables|slabdata) \d)")


def slabinfo_line(text: str) -> Item | None:
    if " tunables " in text and " : " not in text:
        text = LOST_COLON.sub(" : ", text)
    if cache := full_line(text):
        return cache
    if " : tunables" not in text and " : slabdata" not in text:
        return None
    fields = text.replace(" :", "").split()
    numbers = [field for field in fields[1:] if field not in ("tunables", "slabdata")]
    return Bad(f"a line of /proc/slabinfo with {wanted(numbers, COLUMNS)}")


def cut_line(text: str) -> str:
    """Why the end of a paste, NAME and less than five numbers, is no row."""
    _, *numbers = text.split()
    if not 2 <= len(numbers) < 5 or not all(map(is_number, numbers)):
        return ""
    return f"a line of /proc/slabinfo with {len(numbers)} numbers; expected at least 5"


def short_line(text: str) -> Item | None:
    """The first six columns of version 2, as people cut them off; or these and those of slabs."""
    name, *numbers = text.split()
    if len(numbers) not in (5, 7, 8) or not all(map(is_number, numbers)):
        return None
    active, objects, stride, per_slab, pages, *more = map(int, numbers)
    fits = stride >= 8 and pages in ORDERS and 0 < per_slab * stride <= pages * LARGEST_PAGE
    if not fits or active > objects:
        return None
    slabs = more[1] if more else None
    # Slabs may be smaller than the kernel wants them, but not by much on average.
    if slabs is not None and not (
        more[0] <= slabs and slabs * per_slab // 2 <= objects <= slabs * per_slab
    ):
        return None
    return Cache(
        name,
        objects=objects,
        active=active,
        stride_bytes=stride,
        per_slab=per_slab,
        pages_per_slab=pages,
        slabs=slabs,
    )


ORDERS = [1 << order for order in range(11)]
LARGEST_PAGE = 65536


def old_line(text: str) -> Item | None:
    """Version 1.1: NAME ACTIVE OBJECTS SIZE ACTIVE_SLABS SLABS PAGES, and more with SMP."""
    words, behind = "", text
    if match := NAME_IN_WORDS.fullmatch(text):
        words, behind = match[1], f"- {match[2]}"
    main, *more = behind.removesuffix(" :").split(" : ")
    name, *numbers = main.split()
    if len(numbers) != 6 or not all(map(is_number, [*numbers, *" ".join(more).split()])):
        return None
    active, objects, stride, active_slabs, slabs, pages = map(int, numbers)
    if active > objects or active_slabs > slabs or pages not in ORDERS or not stride:
        return None
    return Cache(
        words or name,
        objects=objects,
        active=active,
        stride_bytes=stride,
        per_slab=objects // slabs if slabs else None,
        pages_per_slab=pages,
        slabs=slabs,
        slab_allocator=True,
    )


def old_lines_fault(text: str) -> Item | None:
    """Only below a head of version 1.1."""
    numbers = text.split(" : ")[0].split()[1:]
    digits = sum(map(is_number, numbers))
    if digits < 3:
        return None
    return Bad(f"a line of /proc/slabinfo 1.1 with {wanted(numbers, COLUMNS_1)}")


SIZES = re.compile(r"(\S+) (\d{1,16})KB (\d{1,16})KB", re.ASCII)
PAGES = re.compile(r"(?:.* )?slab_reclaimable:(\d{1,16}) slab_unreclaimable:(\d{1,16})", re.ASCII)


def out_of_memory_head(text: str) -> Item | None:
    return Head(OUT_OF_MEMORY) if text == "Unreclaimable slab info:" else None


def out_of_memory_line(text: str) -> Item | None:
    if head := out_of_memory_head(text):
        return head
    if text == "Name Used Total":
        return Passed()
    if match := PAGES.fullmatch(text):
        return Totals({"reclaimable_pages": int(match[1]), "unreclaimable_pages": int(match[2])})
    match = SIZES.fullmatch(text)
    if match is None:
        return None
    return Cache(
        match[1],
        used_bytes=int(match[2]) << 10,
        total_bytes=int(match[3]) << 10,
        reclaimable=False,
    )


# What SLUB and SLAB say when there is no page for a slab: a cache, and a line for each node. The
# log may be folded.
FAILED_WORD = "cache: "
FAILED_CACHE = re.compile(
    FAILED_WORD + r"(\S{1,300}), object size: (\d{1,9})(?:, buffer size: (\d{1,9}))?,?"
    r"(?: (?:default )?order: (\d{1,2}))?(?:, min order: (\d{1,2}))?",
    re.ASCII,
)
FAILED_ORDERS = re.compile(r"default order: (\d{1,2}), min order: (\d{1,2})", re.ASCII)
FAILED_NODE = re.compile(
    r"node ?\d{1,4}: slabs: (?:\d{1,12}/)?(\d{1,12}), ?objs: (?:(\d{1,12})/)?(\d{1,12})"
    r"(?:, ?free: (\d{1,12}))?",
    re.ASCII,
)
# Newer kernels name the CPU that asked, too.
FAILED_FIRST = re.compile(
    r"SL[AU]B: Unable to allocate memory on (?:CPU \d{1,5} \(of node -?\d{1,4}\) on )?"
    r"node -?\d{1,4}\b.*",
    re.ASCII,
)
FLAGS_ALONE = re.compile(r"gfp=0x[0-9a-f]{1,8}(?:\(\S{0,200}\))?", re.ASCII)
DEBUGGED = re.compile(r"\S{1,300} debugging increased min order, use slu?b_debug=O to disable\.")
LARGEST_ORDER = 10


def order_or_none(text: str | None) -> int | None:
    return int(text) if text is not None and int(text) <= LARGEST_ORDER else None


def failed_line(text: str) -> Item | None:
    if (match := FAILED_NODE.fullmatch(text)) and (match[2] or match[4]):
        slabs, objects = int(match[1]), int(match[3])
        # SLAB of 4.10 and newer has no count of free objects: those are the others of "used/all".
        free = int(match[4]) if match[4] else objects - int(match[2])
        return Adds(slabs, objects, min(max(free, 0), objects))
    if match := FAILED_ORDERS.fullmatch(text):
        return Adds(order=order_or_none(match[1]), least_order=order_or_none(match[2]))
    if any(line.fullmatch(text) for line in (FAILED_FIRST, FLAGS_ALONE, DEBUGGED)):
        return Passed()
    match = FAILED_CACHE.fullmatch(text)
    if match is None:
        return None
    is_slab = match[3] is None
    return Cache(
        match[1],
        objects=0,
        active=0,
        slabs=0,
        stride_bytes=int(match[3] or match[2]) or None,
        object_bytes=None if is_slab else int(match[2]),
        slab_allocator=is_slab,
        order=order_or_none(match[4]),
        least_order=order_or_none(match[5]),
    )


# Of Linux 2.4 in front of /proc/meminfo, and of `free`: nothing that slabs have.
MEMORY_ROWS = re.compile(
    r"total:? used:? free:? shared:? buffers:?(?: cached:?)?"
    r"|total used free shared buff/cache available"
    r"|(?:Mem|Swap|-/\+ buffers(?:/cache)?):(?: \d{1,19}){2,6}",
    re.ASCII,
)
# /sys/devices/system/node/nodeN/meminfo has its node in front of each line.
KIB = re.compile(r"(?:Node (\d{1,4}) )?([A-Z]\w{1,40}(?:\(\w{1,20}\))?): (\d{1,16}) kB", re.ASCII)
COUNT = re.compile(r"HugePages_\w+: \d{1,16}", re.ASCII)


def meminfo_line(text: str) -> Item | None:
    if match := KIB.fullmatch(text):
        return Memory(match[2], int(match[3]), int(match[1]) if match[1] else None)
    return Passed() if COUNT.fullmatch(text) or MEMORY_ROWS.fullmatch(text) else None


# grep . */* in /sys/kernel/slab; a name that several caches share begins with a colon.
# Before 5.9 those of memory groups lie in a folder of their cache, NAME/cgroup/NAME(ID:GROUP).
FILE = re.compile(
    r"(?:\./|/?sys/kernel/slab/)?(?:[^/ ]{1,80}/cgroup/)?"
    r"(:?[^/: ]{1,80}(?:\(\d{1,9}:[^/ ]{1,255}\))?)/([a-z_]{1,40}):(.*)",
    re.ASCII,
)


def sysfs_line(text: str) -> Item | None:
    match = FILE.fullmatch(text)
    if match is None or match[2] not in ATTRIBUTES:
        return None
    return Attribute(match[1], match[2], match[3].strip())
