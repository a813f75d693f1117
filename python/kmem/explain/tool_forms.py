# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Lines that tools print: slabtop, crash, the kernel's slabinfo, ZFS, scripts of drgn."""

from __future__ import annotations

import re

from kmem.explain.items import (
    BINARY,
    THOUSANDS,
    Bad,
    Head,
    Item,
    Passed,
    Skips,
    Totals,
    decimal,
    is_number,
    sized,
)
from kmem.explain.table import Cache

SLABTOP = "slabtop"
CRASH = "kmem -s of crash"
SLABINFO_TOOL = "the kernel's slabinfo tool"
ZFS = "/proc/spl/kmem/slab"
DRGN = "a drgn listing"
SHARES = "memory and shares in use"
VMSTAT = "vmstat -m"

TOP_HEAD = re.compile(r"Active / Total (Objects|Slabs|Caches|Size) \(% used\) ?: (\S+) / (\S+) .*")
TOP_NAMES = {"Objects": "objects", "Slabs": "slabs", "Caches": "caches", "Size": "bytes"}


def slabtop_line(text: str) -> Item | None:
    if match := TOP_HEAD.fullmatch(text):
        active, total = (sized(part, BINARY) for part in (match[2], match[3]))
        if active is None or total is None:
            return Bad("a head of slabtop without two numbers")
        name = TOP_NAMES[match[1]]
        return Totals({f"active_{name}": active, name: total})
    if text.startswith("OBJS ACTIVE USE OBJ SIZE"):
        return Head(SLABTOP, below_totals=True)
    if text.startswith("Minimum / Average / Maximum Object"):
        return Passed()
    fields = text.split()
    if len(fields) < 7 or not fields[2].endswith("%"):
        return None
    return slabtop_row(fields)


def cut_slabtop_row(text: str) -> str:
    """Why the end of a paste, with the first columns alone, is no row."""
    fields = text.split()
    if not 3 <= len(fields) < 8 or not fields[2].endswith("%"):
        return ""
    return f"a line of slabtop with {len(fields)} fields; expected 8"


def slabtop_row(fields: list[str]) -> Item:
    objects, active, _, size, slabs, per_slab, whole, *name = fields
    rounded, bytes_all = decimal(size.removesuffix("K")), sized(whole.rstrip("Kk") + "K", BINARY)
    if not name:
        return Bad(f"a line of slabtop with {len(fields)} fields; expected 8")
    if not all(map(is_number, (objects, active, slabs, per_slab))) or bytes_all is None:
        return Bad(
            "a line of slabtop; expected OBJS ACTIVE USE SIZE SLABS OBJ/SLAB CACHE-SIZE NAME"
        )
    if rounded is None:
        return Bad(f"a line of slabtop with OBJ SIZE {size[:40]!r}; expected K behind a number")
    return Cache(
        " ".join(name),
        objects=int(objects),
        active=int(active),
        rounded_bytes=rounded * 1024,
        per_slab=int(per_slab),
        slabs=int(slabs),
        total_bytes=round(bytes_all),
    )


ADDRESS = re.compile(r"[0-9a-f]{6,16}", re.ASCII)
CRASH_COLUMNS = ("OBJSIZE", "ALLOCATED", "TOTAL", "SLABS")
CRASH_DETAILS = (
    "SLAB MEMORY ",
    "FREE / [ALLOCATED]",
    "CPU ",
    "NODE ",
    "KMEM_CACHE_NODE",
    "(sum of",
)


# What kmem says of an address: slabs, objects, pages and the task; and the sums of kmem -i.
CRASH_AROUND = re.compile(
    r"\[?[0-9a-f]{8,16}\]?(?: \(.{1,40}\))?"
    r"|[0-9a-f]{8,16} [0-9a-f]{8,16}(?: \d{1,4})? \d{1,9} \d{1,9} \d{1,9}"
    r"|PAGE PHYSICAL MAPPING INDEX CNT FLAGS"
    r"|[0-9a-f]{8,16}(?: [0-9a-f]{1,16}){3} \d{1,9} [0-9a-f]{1,16}(?: [\w,]+)?"
    r"|(?:PID|COMMAND|TASK|CPU|STATE): .*",
    re.ASCII,
)
CRASH_SUMS = re.compile(
    r"PAGES TOTAL PERCENTAGE"
    r"|[A-Z]{4,12}(?: [A-Z]{3,12})? \d{1,16} [\d.]{1,16} [KMGT]B (?:\d.*|----)",
    re.ASCII,
)


def crash_around(text: str, form: str) -> Item | None:
    """Lines that crash prints beside its tables, of which those with addresses only there."""
    if CRASH_SUMS.fullmatch(text):
        return Passed()
    return Passed() if form == CRASH and CRASH_AROUND.fullmatch(text) else None


def crash_number(text: str) -> int | None:
    """crash and drgn print ? where the memory image does not say."""
    return int(text) if is_number(text) else None


def crash_line(text: str) -> Item | None:
    fields = text.split()
    if fields[0] == "CACHE" and "OBJSIZE" in fields and "SSIZE" in fields:
        return Head(CRASH)
    if text.startswith(("kmem: ", *CRASH_DETAILS)):
        return Passed()
    if len(fields) != 7 or not ADDRESS.fullmatch(fields[0]):
        return None
    # Older versions print the name behind the address.
    name_last = is_number(fields[1]) or fields[1] == "?"
    name = fields[6] if name_last else fields[1]
    numbers, size = (fields[1:5], fields[5]) if name_last else (fields[2:6], fields[6])
    slab_bytes = sized(size, BINARY)
    for column, number in zip(CRASH_COLUMNS, numbers, strict=True):
        if not is_number(number) and number != "?":
            return Bad(f"a line of kmem -s with {column} {number[:40]!r}; expected a number or ?")
    if slab_bytes is None and size != "?":
        return Bad(f"a line of kmem -s with SSIZE {size[:40]!r}; expected as 32k")
    object_bytes, active, objects, slabs = map(crash_number, numbers)
    return Cache(
        name,
        objects=objects,
        active=active,
        object_bytes=object_bytes,
        slabs=slabs,
        per_slab=objects // slabs if objects and slabs else None,
        slab_bytes=round(slab_bytes) if slab_bytes else None,
    )


TOOL_LINE = re.compile(
    r"(\S+) (\d{1,19}) (\d{1,19}) (\S{1,20}) (-?\d{1,20})/(\d{1,12})/(\d{1,12})"
    r" (\d{1,9}) (\d{1,2}) (\d{1,3}) (\d{1,3})(?: ([*dAPaZFUT]{1,9}))?",
    re.ASCII,
)
TOOL_TOTALS = re.compile(r"Memory used: (\S+) # Loss : (\S+) MRatio: ?(\S+)", re.ASCII)
TOOL_DETAILS = (
    *("Slabcaches :", "# Objects :", "Per Cache Average", "Per Object Average", "#Objects "),
    *("#Slabs ", "#PartSlab ", "%PartSlab ", "PartObjs ", "% PartObj ", "Memory ", "Used "),
    *("Loss ", "User ", "Slabs sorted by size", "Waste "),
)


def slabinfo_tool_line(text: str) -> Item | None:
    if text == "Slabcache Totals" or text.startswith("Name Objects Objsize Space"):
        return Head(SLABINFO_TOOL)
    # Other orders of the caches above, some with what they lose in place of their space.
    if text.startswith("Slabs sorted by ") and not text.startswith("Slabs sorted by size"):
        return Skips()
    if match := TOOL_TOTALS.fullmatch(text):
        used, loss = sized(match[1], THOUSANDS), sized(match[2], THOUSANDS)
        if used is None or loss is None:
            return Bad("a total of slabinfo that is no number")
        return Totals({"bytes": used, "lost_bytes": loss})
    match = TOOL_LINE.fullmatch(text)
    if match is None:
        return Passed() if text.startswith(TOOL_DETAILS) else None
    space, order = sized(match[4], THOUSANDS), int(match[9])
    if space is None or order > 10:
        return Bad(f"a line of slabinfo with space {match[4]!r} and order {order}")
    letters = match[12] or ""
    beside_cpus = int(match[5])
    # The tool takes slabs of CPUs from all slabs, at two moments, and prints it without a sign.
    if beside_cpus >= 1 << 63:
        beside_cpus -= 1 << 64
    return Cache(
        match[1],
        active=int(match[2]),
        object_bytes=int(match[3]),
        total_bytes=round(space),
        slabs=max(0, beside_cpus + int(match[7])),
        partial_slabs=int(match[6]),
        cpu_slabs=int(match[7]),
        per_slab=int(match[8]),
        pages_per_slab=1 << order,
        reclaimable="a" in letters,
        debug="".join(letter for letter in letters if letter in "FZPUT"),
    )


ZFS_COLUMNS = 13
ZFS_OLDER_HEAD = "name flags - obj_size slab_objs slab_size -"
ZFS_HEADS = ("cache name flags size alloc", "name flags size alloc", "cache slab object emergency")


def zfs_line(text: str) -> Item | None:
    if text.strip("- ").startswith("cache") and "slab" in text and "object" in text:
        return Head(ZFS)
    if text.startswith(ZFS_OLDER_HEAD):
        return Head(ZFS)
    if text.startswith(ZFS_HEADS):
        return Passed()
    fields = text.split()
    if len(fields) < 11 or not fields[1].startswith("0x"):
        return None
    if fields[2] == "-":
        return older_zfs_line(fields)
    # name flags size alloc slabsize objsize; slabs total alloc max; objects total alloc max; and
    # since 0.6.2 as much of emergency objects
    numbers = fields[2:]
    if any(not is_number(number) and number != "-" for number in numbers):
        return Bad("a line of /proc/spl/kmem/slab; expected numbers behind its flags")
    if not 10 <= len(numbers) <= ZFS_COLUMNS:
        return Bad(f"a line of /proc/spl/kmem/slab with {len(numbers)} numbers; expected 10 or 13")
    size, alloc, slab_size, object_size, slabs, _, _, objects, *more = map(crash_number, numbers)
    active = more[0] if more else None
    return Cache(
        fields[0],
        objects=objects,
        active=active,
        stride_bytes=object_size,
        slab_bytes=slab_size,
        per_slab=objects // slabs if objects and slabs else None,
        slabs=slabs,
        total_bytes=size,
        used_bytes=alloc,
    )


def older_zfs_line(fields: list[str]) -> Item:
    """Before 0.6.0: name flags - of an object - of its making - slabs - objects."""
    numbers = [field for field in fields[2:] if field != "-"]
    if len(numbers) != 12 or not all(map(is_number, numbers)):
        return Bad("a line of /proc/spl/kmem/slab; expected 12 numbers behind its flags")
    stride, per_slab, slab_bytes, *_, slabs, _, _, objects, active, _ = map(int, numbers)
    return Cache(
        fields[0],
        objects=objects,
        active=active,
        stride_bytes=stride,
        slab_bytes=slab_bytes,
        per_slab=per_slab or None,
        slabs=slabs,
        total_bytes=slabs * slab_bytes,
        used_bytes=active * stride,
    )


VMSTAT_HEAD = "Cache Num Total Size Pages"
VMSTAT_LINE = re.compile(r"(\S{1,80}) (\d{1,12}) (\d{1,12}) (\d{1,9}) (\d{1,6})", re.ASCII)
VMSTAT_PAGE = 4096


def vmstat_line(text: str, form: str) -> Item | None:
    """NAME ACTIVE OBJECTS SIZE, and below "Pages" the number of objects of a slab.

    The program repeats the head for each screen, so only the first begins a table; the rows look
    like nothing else only below it.
    """
    if text == VMSTAT_HEAD:
        return Passed() if form == VMSTAT else Head(VMSTAT)
    match = VMSTAT_LINE.fullmatch(text) if form == VMSTAT else None
    if match is None:
        return None
    active, objects, stride, per_slab = map(int, list(match.groups())[1:])
    if active > objects or not stride or not per_slab:
        return Bad("a line of vmstat -m; expected NAME ACTIVE OBJECTS SIZE OBJECTS-OF-A-SLAB")
    # Slabs are the smallest that hold so many objects.
    pages = 1 << max(0, -(-stride * per_slab // VMSTAT_PAGE) - 1).bit_length()
    return Cache(
        match[1],
        objects=objects,
        active=active,
        stride_bytes=stride,
        per_slab=per_slab,
        pages_per_slab=pages if pages <= 1024 else None,
        slab_allocator=False,
    )


DRGN_LINE = re.compile(
    r"(\S+) (\d{1,19}) (\d{1,19}) (\S{1,16}[KMGTB]) (?:\S+\[SL[AU]B\] )?(\S{1,16}[KMGTB])"
    r" (\d{1,3})",
    re.ASCII,
)
DRGN_HEAD = re.compile(r"name entry_size active_objs active_memory (?:source )?total_memory util")


def drgn_line(text: str) -> Item | None:
    if DRGN_HEAD.fullmatch(text):
        return Head(DRGN)
    match = DRGN_LINE.fullmatch(text)
    if match is None:
        return None
    used, total = sized(match[4], BINARY), sized(match[5], BINARY)
    if used is None or total is None:
        return Bad("a line of a drgn listing; expected memory as 2.8GB")
    return Cache(
        match[1],
        active=int(match[3]),
        stride_bytes=int(match[2]),
        used_bytes=round(used),
        total_bytes=round(total),
    )


SHARE_LINE = re.compile(r"(\S+) (\d{1,12}) ([KMG])B (\d{1,3}\.\d\d)% (\d{1,3}\.\d\d)%", re.ASCII)


def shares_line(text: str) -> Item | None:
    """A script's: NAME MEMORY, and which share of its objects and slabs is in use."""
    if text in ("slab mem objs slabs", "used active active"):
        return Head(SHARES) if text.startswith("slab") else Passed()
    match = SHARE_LINE.fullmatch(text)
    if match is None:
        return None
    return Cache(
        match[1],
        total_bytes=int(match[2]) * BINARY[match[3]],
        used_percent=float(match[4]),
    )
