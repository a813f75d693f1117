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

# In whatever language: WORDS (% WORDS) : ACTIVE / TOTAL (SHARE).
TOP_HEAD = re.compile(
    r"[^:0-9]{4,60}[(\uff08][^:0-9]{0,20}%[^:0-9]{0,20}[)\uff09] ?: ?(\S{1,25}) / (\S{1,25}) .*"
)
TOP_OBJECT = re.compile(r"[^:0-9]{4,60}: ?(\S{1,25}) / (\S{1,25}) / (\S{1,25})")
# Of which slabtop says how many, by parts of the words in the languages of procps. Sums of memory
# have units. A word that is not here names no sum: those of slabs and of caches look alike.
TOP_NAMES = {
    "objects": ("obje", "obiek", "obiec", "\u043e\u0431", "개체", "đt", "对象", "物件"),
    "slabs": ("slab", "skiv", "част"),
    "caches": ("cach", "кеш", "кэш", "mtamp", "memtamp", "bufor", "캐시", "nhtạm", "缓存", "快取"),
}
TOP_PAGE = 4096
TOP_PAGES = [1 << order for order in range(11)]
ROUNDED_SHARE = 0.06  # 9.5 may be 10
TOP_COLUMNS = "OBJS ACTIVE USE OBJ SIZE"
TOP_WORDS = 7
# Among the names of columns in other languages.
TOP_COLUMN = re.compile(r"OBJ/SLAB|OBJ/SKIV|OB\./PŁ\.|ОБ\./ЧАСТ|ĐT/SLAB|개체/SLAB")


def slabtop_line(text: str) -> Item | None:
    if match := TOP_HEAD.fullmatch(text):
        return slabtop_totals(text, match[1], match[2])
    if text.startswith(TOP_COLUMNS) or is_translated_head(text):
        return Head(SLABTOP, below_totals=True)
    if (match := TOP_OBJECT.fullmatch(text)) and all(
        sized(part, BINARY) is not None and not is_number(part) for part in match.groups()
    ):
        return Passed()
    fields = text.split()
    if len(fields) < 7 or not fields[2].endswith("%"):
        return None
    return slabtop_row(fields)


def is_translated_head(text: str) -> bool:
    """The names of columns in another language, and no sentence with one of them."""
    words = text.split(" ")
    has_column = any(map(TOP_COLUMN.fullmatch, words))
    return has_column and len(words) >= TOP_WORDS and not any(map(str.isdigit, text))


def slabtop_totals(text: str, active_text: str, total_text: str) -> Item:
    """A line of slabtop's head, of objects, slabs, caches or memory."""
    active, total = sized(active_text, BINARY), sized(total_text, BINARY)
    if active is None or total is None:
        return Bad("a head of slabtop without two numbers")
    words = text[: text.index(":")].lower()
    if total_text[-1].isalpha():
        name = "bytes"  # with a unit
    else:
        # The last wins: the parts of "objects" are short, and other words may have them within.
        found = [name for name, parts in TOP_NAMES.items() if any(part in words for part in parts)]
        if not found:
            return Passed()
        name = found[-1]
    return Totals({f"active_{name}": active, name: total})


def cut_slabtop_row(text: str) -> str:
    """Why the end of a paste, with the first columns alone, is no row."""
    fields = text.split()
    if not 3 <= len(fields) < 8 or not fields[2].endswith("%"):
        return ""
    return f"a line of slabtop with {len(fields)} fields; expected 8"


def slabtop_row(fields: list[str]) -> Item:
    objects, active, _, size, slabs, per_slab, whole, *name = fields
    rounded = decimal(size.removesuffix("K"))
    is_rounded = whole.rstrip("i")[-1:] in "MGT"
    bytes_all = sized(whole if is_rounded else whole.rstrip("Kik") + "K", BINARY)
    if not name:
        return Bad(f"a line of slabtop with {len(fields)} fields; expected 8")
    if not all(map(is_number, (objects, active, slabs, per_slab))) or bytes_all is None:
        return Bad(
            "a line of slabtop; expected OBJS ACTIVE USE SIZE SLABS OBJ/SLAB CACHE-SIZE NAME"
        )
    if rounded is None:
        return Bad(f"a line of slabtop with OBJ SIZE {size[:40]!r}; expected K behind a number")
    pages = pages_of_rounded(bytes_all, int(slabs)) if is_rounded else None
    return Cache(
        " ".join(name),
        objects=int(objects),
        active=int(active),
        rounded_bytes=rounded * 1024,
        per_slab=int(per_slab),
        pages_per_slab=pages,
        slabs=int(slabs),
        total_bytes=None if pages else round(bytes_all),
    )


def pages_of_rounded(bytes_all: float, slabs: int) -> int | None:
    """Pages of a slab, where `slabtop --human` has rounded the memory of all slabs to two digits.

    Slabs have a power of two of pages, so the memory is known again without the error of rounding.
    """
    each = bytes_all / slabs / TOP_PAGE if slabs else 0
    return next((pages for pages in TOP_PAGES if abs(each / pages - 1) <= ROUNDED_SHARE), None)


ADDRESS = re.compile(r"[0-9a-f]{6,16}", re.ASCII)
SLAB_SIZE = re.compile(r"(?: (?:\d{1,12}|\?)){4} \d{1,6}[kKmM]\b", re.ASCII)
CRASH_COLUMNS = ("OBJSIZE", "ALLOCATED", "TOTAL", "SLABS")
CRASH_DETAILS = (
    "SLAB MEMORY ",
    "FREE / [ALLOCATED]",
    "KMEM_CACHE_NODE",
    "(sum of",
)


# CPU 0 SLAB:, NODE 0 PARTIAL:; an out-of-memory report has lines of CPUs, too.
CRASH_PLACE = re.compile(r"(?:CPU|NODE) \d{1,5} [A-Z_]{3,20}\b.*", re.ASCII)
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
    # Programs for drgn write addresses with 0x, as gdb's listing does, which has no unit.
    if fields[0].startswith("0x") and SLAB_SIZE.search(text):
        fields[0] = fields[0].removeprefix("0x")
    if fields[0] == "CACHE" and "OBJSIZE" in fields and "SSIZE" in fields:
        return Head(CRASH)
    if text.startswith(("kmem: ", *CRASH_DETAILS)) or CRASH_PLACE.fullmatch(text):
        return Passed()
    if len(fields) != 7 or not ADDRESS.fullmatch(fields[0]):
        return None
    # Older versions print the name behind the address.
    name_last = is_number(fields[1]) or fields[1] == "?"
    name = fields[6] if name_last else fields[1]
    numbers, size = (fields[1:5], fields[5]) if name_last else (fields[2:6], fields[6])
    # Sizes of slabs have a unit; mcrash's kmem_cache prints six other columns, in hexadecimal.
    if is_number(size):
        return None
    slab_bytes = sized(size, BINARY)
    if slab_bytes is None and size != "?" and not all(map(is_number, numbers)):
        return None
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
        return borrowed_zfs_line(fields) if fields[4] == "-" else older_zfs_line(fields)
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


def borrowed_zfs_line(fields: list[str]) -> Item:
    """A cache whose objects lie in slabs of the kernel's: name flags - alloc - objsize ... alloc.

    Its slabs are those of a cache of /proc/slabinfo, so the row has no memory of its own.
    """
    numbers = [field for field in fields[2:] if field != "-"]
    if len(numbers) != 3 or not all(map(is_number, numbers)):
        return Bad("a line of /proc/spl/kmem/slab; expected 3 numbers between its dashes")
    used, stride, active = map(int, numbers)
    return Cache(fields[0], active=active, stride_bytes=stride or None, used_bytes=used)


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
# The last two of the five words in the languages of procps.
VMSTAT_ENDS = (
    *("Größe Seiten", "Tamaño Páginas", "Taille Pages", "ზომა გვერდი", "크기 페이지"),
    *("Rozm. Stron", "Tam. Págs.", "Dim. Pagini", "Strlk Sidor", "Розмір Сторінки", "Cỡ Trang"),
    *("大小 Pages", "大小 页", "大小 页面", "Размер Страниц"),
)
VMSTAT_WORDS = range(5, 7)  # "Nhớ tạm" is a single column
VMSTAT_LINE = re.compile(r"(\S{1,300}) (\d{1,12}) (\d{1,12}) (\d{1,9}) (\d{1,6})", re.ASCII)
VMSTAT_PAGE = 4096


def vmstat_line(text: str, form: str) -> Item | None:
    """NAME ACTIVE OBJECTS SIZE, and below "Pages" the number of objects of a slab.

    The program repeats the head for each screen, so only the first begins a table; the rows look
    like nothing else only below it.
    """
    if text == VMSTAT_HEAD or (text.endswith(VMSTAT_ENDS) and text.count(" ") + 1 in VMSTAT_WORDS):
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
DRGN_HEAD = re.compile(
    r"name entry_size (?:active_objs active_memory (?:source )?total_memory|objs mem_used) util"
)
# The first version of sdb has all objects, and their memory alone. A row of the kernel's slabinfo
# that was cut looks like this, so it is looked for only below its head.
DRGN_OLDER = re.compile(r"(\S+) (\d{1,19}) (\d{1,19}) (\S{1,16}[KMGTB]) (\d{1,3})", re.ASCII)


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


def older_drgn_line(text: str, form: str) -> Item | None:
    match = DRGN_OLDER.fullmatch(text) if form == DRGN else None
    size = sized(match[4], BINARY) if match else None
    if match is None or size is None or int(match[5]) > 100:
        return None
    return Cache(
        match[1],
        objects=int(match[3]),
        stride_bytes=int(match[2]),
        total_bytes=round(size),
        used_percent=float(match[5]),
    )


# Of kernels that print their largest caches in each report of memory, as bcachefs's do.
LARGEST = "the largest slabs of a report of memory"
LARGEST_LINE = re.compile(
    r"(\S{1,300}) total: (\d{1,9}(?:\.\d{1,2})?) ([KMG]?i?B)"
    r" active: (\d{1,9}(?:\.\d{1,2})?) ([KMG]?i?B)",
    re.ASCII,
)


def largest_line(text: str) -> Item | None:
    match = LARGEST_LINE.fullmatch(text)
    if match is None:
        return None
    total, used = sized(match[2] + match[3], BINARY), sized(match[4] + match[5], BINARY)
    if total is None or used is None:
        return None
    return Cache(match[1], total_bytes=round(total), used_bytes=round(used))


SHARE_LINE = re.compile(r"(\S+) (\d{1,12}) ([KMG])B (\d{1,3}\.\d\d)% (\d{1,3}\.\d\d)%", re.ASCII)


def shares_line(text: str) -> Item | None:
    """A script's: NAME MEMORY, and which share of its objects and slabs is in use."""
    if text in ("slab mem objs slabs", "used active active"):
        return Head(SHARES) if text.startswith("slab") else Passed()
    match = SHARE_LINE.fullmatch(text)
    if match is None:
        return None
    if max(float(match[4]), float(match[5])) > 100:
        return Bad(f"shares of {match[4]}% and {match[5]}%; expected at most 100%")
    return Cache(
        match[1],
        total_bytes=int(match[2]) * BINARY[match[3]],
        used_percent=float(match[4]),
    )
