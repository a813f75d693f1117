# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A row of a table behind words that are not its own, and a row that was cut into several lines.

Logs, consoles, tools that run a command on many hosts, and people put hosts, stamps, numbers of
lines and words in front of a row. There are more of them than a list could have, so what stands in
front of most lines of a file is taken away from them (a comment's mark, a host with a program), and
then a row is looked for from its end. Only rows that look like nothing else are found so: the
others need a mark in front of them, as a colon, or rows of their form before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from kmem.explain import cache_forms as single
from kmem.explain import kernel_forms as kernel
from kmem.explain import tool_forms as tool
from kmem.explain.clean import without_groups
from kmem.explain.items import (
    Adds,
    Bad,
    Figures,
    Head,
    Item,
    Memory,
    Part,
    Passed,
    Totals,
)
from kmem.explain.metric_forms import METRICS, metric_line
from kmem.explain.table import Boot, Cache

MOST_WORDS = 16  # in front of a row
# No row is in a line without one of these, which is quicker to see than that no form has it.
SCREEN = re.compile(
    r": tunables |: slabdata |\d% |\dKB \d{1,16}KB\b|slabinfo - version|Unreclaimable slab info"
    r"|SLUB: .{0,20}HWalign"
    r"|Active / Total|Minimum / Average|OBJ SIZE|Name Used Total|\d kB\b|SL[AU]B: Unable"
    r"|object size: |objs: \d|Slabcache: |SlabObj|SlabSiz|Sanity Checks|CpuSlab|Tracing"
    r"|\b0x[0-9a-f]{8,16} |\d\.\d[KMGT]B |/sys/kernel/slab/"
    r"|node_slabinfo_|ALLOCATED|\d/\d{1,12}/\d| 0x[0-9a-f]{4,5} |\b[0-9a-f]{16} ",
    re.ASCII,
)
FIRST_WORDS = ("Active / ", "Minimum / ", "OBJS ", "# name", "slabinfo - ", "Name InUse ")
MARKS = tuple(":]>;|),\"'")
QUOTES = "\"'[({+"
EMPHASIS = ("*", "`")
Recogniser = Callable[[str], Item | None]
STRONG: tuple[tuple[str, Recogniser], ...] = (
    ("", kernel.slabinfo_head),
    ("", kernel.boot_line),
    (kernel.SLABINFO, kernel.slabinfo_line),
    (tool.SLABTOP, tool.slabtop_line),
    (kernel.FAILED, kernel.failed_line),
    (kernel.OUT_OF_MEMORY, kernel.out_of_memory_head),
    (single.REPORT, single.report_line),
    (tool.SLABINFO_TOOL, tool.slabinfo_tool_line),
    (tool.ZFS, tool.zfs_line),
    (tool.CRASH, tool.crash_line),
    (METRICS, metric_line),
)
WEAK: tuple[tuple[str, Recogniser], ...] = (
    (kernel.OUT_OF_MEMORY, kernel.out_of_memory_line),
    ("", kernel.meminfo_line),
    (kernel.SYSFS, kernel.sysfs_line),
)
# Rows that mails fold, besides those of slabtop and /proc/slabinfo.
FOLDED_ROWS: tuple[tuple[str, Recogniser], ...] = (
    (kernel.FAILED, kernel.failed_line),
    (tool.ZFS, tool.zfs_line),
    (tool.CRASH, tool.crash_line),
    (tool.SLABINFO_TOOL, tool.slabinfo_tool_line),
    (tool.DRGN, tool.drgn_line),
    (single.REPORT, single.report_line),
    (single.GDB, single.gdb_line),
    (single.COLLECTL, single.collectl_line),
)
TOP_FORMS = (kernel.SLABINFO, tool.SLABTOP)
LINES_JOINED_MOST = 3
ENDS_OF_HEADS = ("max", "Total", "NAME", "...", "\u2026")
MANY_NUMBERS = re.compile(r"(?:\S{1,300} )?\S{1,300}(?: \d{1,19}){4,8}", re.ASCII)
MARKS_OF_COMMENTS = frozenset("#/;%!*-+")
# Of a name that grep or a diff has written in front of: a file with its line, a number, a sign.
NAME_BEFORE = re.compile(
    r"(?:(?=[^:]{0,200}[./])[\w./@-]{1,200}:(?:\d{1,9}[:-])?|\d{1,9}[:-](?=[a-zA-Z:])|[-+]+)(?=\S)",
    re.ASCII,
)


def with_own_name(item: Item) -> Item:
    if isinstance(item, Cache) and (match := NAME_BEFORE.match(item.name)):
        item = replace(item, name=item.name[match.end() :])
    if isinstance(item, Cache) and item.name[:1] in EMPHASIS:
        return replace(item, name=item.name.lstrip("*`"))
    return item


def found_in(text: str, forms: Sequence[tuple[str, Recogniser]]) -> tuple[str, Item] | None:
    for name, recogniser in forms:
        item = recogniser(text) if text else None
        if item is not None and not isinstance(item, Bad) and not is_misread(item):
            return name, with_own_name(item)
    return None


def is_misread(item: Item) -> bool:
    """A row whose begin was taken for words in front, or two rows, by its name.

    No cache has a name without a letter, nor one in words that begins with a number.
    """
    if not isinstance(item, Cache):
        return False
    first, *others = item.name.split(" ")
    begins = first[0].isalpha() or first[0] in ":_"
    return not any(map(str.isalpha, item.name)) or (bool(others) and not begins)


def behind_words(text: str, form: str) -> tuple[str, Item] | None:
    """The row at the end of a line; `form` is that of the rows before."""
    if not SCREEN.search(text) or text.count(": tunables ") > 1:
        return None
    words = text.split(" ")
    for cut in range(min(len(words), MOST_WORDS)):
        # Without the first word's quotes the whole line may be a row.
        rest = " ".join(words[cut:])
        rest = rest.lstrip(QUOTES) if rest[:1] in QUOTES else rest
        before = NAME_BEFORE.match(rest)
        rest = rest[before.end() :] if before else rest
        if found := found_in(rest, STRONG):
            return found
        has_mark = before is not None or (cut > 0 and words[cut - 1].endswith(MARKS))
        weak = found_in(rest, WEAK) if has_mark or form == kernel.OUT_OF_MEMORY else None
        if weak is not None and (has_mark or weak[0] == form):
            return weak
    return None


def joined(lines: Sequence[str], position: int, form: str) -> tuple[str, Item, int] | None:
    """A row or a head whose end is in the next lines, cut between words or in one; and how many.

    Rows of /proc/slabinfo are put together elsewhere: their colons say what belongs together.
    """
    first = lines[position]
    if not first or first[0] in "#-" or first in ENDS_OF_HEADS or not any(map(str.isalpha, first)):
        return None
    if position + 1 >= len(lines):
        return None
    # Most lines of a log are neither, and are passed over quickly.
    has_top = form in TOP_FORMS or first.startswith(FIRST_WORDS)
    pair = f"{first} {lines[position + 1]}"
    has_row = MANY_NUMBERS.fullmatch(first) is not None or SCREEN.search(pair) is not None
    if not has_top and not has_row:
        return None
    texts = [first]
    best: tuple[str, Item, int] | None = None
    for count in range(2, LINES_JOINED_MOST + 1 if has_row else 3):
        if position + count > len(lines) or not lines[position + count - 1]:
            break
        texts = [f"{text}{gap}{lines[position + count - 1]}" for text in texts for gap in ("", " ")]
        for text in texts if has_top else ():
            if found := joined_top(text):
                return *found, count
        # Numbers that stand apart make rows that are longer, and so are tried first.
        for text in reversed(texts) if has_row else ():
            found = joined_row(text, form)
            if found is None and (other := without_groups(text)) != text:
                found = joined_row(other, form)
            if found and not goes_on(found[1]):
                return *found, count
            best = best or (found and (*found, count))
    return best


def goes_on(item: Item) -> bool:
    """A failed allocation whose orders may be in the next line."""
    return isinstance(item, Cache) and item.objects == item.slabs == 0 and item.order is None


def joined_top(text: str) -> tuple[str, Item] | None:
    """A row or a head of slabtop, or a head of /proc/slabinfo."""
    item = tool.slabtop_line(text)
    if isinstance(item, Cache | Totals) and not is_misread(item):
        return tool.SLABTOP, item
    head = kernel.slabinfo_head(text)
    return ("", head) if isinstance(head, Head | Passed) else None


def joined_row(text: str, form: str) -> tuple[str, Item] | None:
    if form == kernel.OUT_OF_MEMORY and isinstance(item := kernel.out_of_memory_line(text), Cache):
        return form, item
    for name, recogniser in FOLDED_ROWS:
        item = recogniser(text)
        if isinstance(item, Cache | Adds | Figures) and not is_misread(item) and adds_up(item):
            return name, item
        if isinstance(item, Head) and name == single.COLLECTL:
            return name, item
    return None


def adds_up(item: Item) -> bool:
    """Whether a row that was put together has the memory that its objects and slabs have.

    Numbers that stood apart, 12 and 345, make another row than 12345. Rows of ZFS have both sums.
    """
    if not isinstance(item, Cache) or item.slab_bytes is None or item.used_bytes is None:
        return True
    return item.name[0].isalpha() and (
        item.total_bytes == (item.slabs or 0) * item.slab_bytes
        and item.used_bytes == (item.active or 0) * (item.stride_bytes or 0)
    )


MARK_OF_COMMENT = re.compile(r"^(([^\w\s])\2*)(?=\S)", re.ASCII)
DIGITS = re.compile(r"\d+", re.ASCII)
LEAST_SHARING = 3  # lines
FRONT_WORDS_MOST = 8
LINES_TRIED = 2000
LINES_IN_A_ROW = 100


def front_shape(words: Sequence[str]) -> str:
    """Words of lines that differ in their numbers alone are equal."""
    return DIGITS.sub("0", " ".join(words))


def shared_front(lines: Sequence[str]) -> tuple[int, str]:
    """The most words that stand in front of more than half of the lines, and their shape."""
    words = [line.split(" ") for line in lines if line]
    best = 0, ""
    for count in range(1, FRONT_WORDS_MOST + 1):
        shapes = Counter(front_shape(some[:count]) for some in words if len(some) > count)
        shape, times = next(iter(shapes.most_common(1)), ("", 0))
        if times < LEAST_SHARING or 2 * times <= len(words):
            break
        best = count, shape
    return best


def without_front(lines: Sequence[str], read: Callable[[Sequence[str]], float]) -> list[str]:
    """The lines without the words that stand in front of most of them, if more are read then.

    `read` says how much is read of lines. How many words are none of the table is tried, as rows
    may begin alike.
    """
    apart = [
        MARK_OF_COMMENT.sub(r"\1 ", line, count=1) if line[:1] in MARKS_OF_COMMENTS else line
        for line in lines
    ]
    step = len(lines) // LINES_TRIED + 1
    some = [number for number in range(len(lines)) if number // LINES_IN_A_ROW % step == 0]
    most, shape = shared_front([apart[number] for number in some])

    def cut(number: int, count: int) -> str:
        words = apart[number].split(" ")
        has_front = len(words) >= count and front_shape(words[:count]) == " ".join(
            shape.split(" ")[:count]
        )
        return " ".join(words[count:]) if count and has_front else lines[number]

    counts = range(most + 1 if most else 0)
    best = max(
        counts, key=lambda count: (read([cut(number, count) for number in some]), -count), default=0
    )
    return [cut(number, best) for number in range(len(lines))] if best else list(lines)


def is_figure(item: Item) -> bool:
    """What a table has, and not only what stands around it."""
    return isinstance(item, Cache | Totals | Memory | Part | Adds | Figures | Head | Boot)
