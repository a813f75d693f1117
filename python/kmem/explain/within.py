# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A row of a table behind words that are not its own, and a row that was cut into two lines.

Logs, consoles, tools that run a command on many hosts, and people put hosts, stamps, numbers of
lines and words in front of a row. There are more of them than a list could have, so the row is
looked for from its end. Only rows that look like nothing else are found so: the others need a mark
in front of them, as a colon, or rows of their form before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from kmem.explain import kernel_forms as kernel
from kmem.explain import tool_forms as tool
from kmem.explain.items import Adds, Bad, Head, Item, Memory, Passed, Totals
from kmem.explain.table import Cache

MOST_WORDS = 16  # in front of a row
# No row is in a line without one of these, which is quicker to see than that no form has it.
SCREEN = re.compile(
    r": tunables |: slabdata |\d% |\dKB \d{1,16}KB\b|slabinfo - version|Unreclaimable slab info"
    r"|Active / Total|Minimum / Average|OBJ SIZE|Name Used Total|\d kB\b|SL[AU]B: Unable"
    r"|object size: |objs: \d"
    r"|/sys/kernel/slab/|ALLOCATED|\d/\d{1,12}/\d| 0x[0-9a-f]{4,5} |\b[0-9a-f]{16} ",
    re.ASCII,
)
FOLDED_FORMS = (kernel.SLABINFO, tool.SLABTOP)
FIRST_WORDS = ("Active / ", "Minimum / ", "OBJS ", "# name", "slabinfo - ")
MARKS = tuple(":]>;|),\"'")
QUOTES = "\"'[({+"
Recogniser = Callable[[str], Item | None]
STRONG: tuple[tuple[str, Recogniser], ...] = (
    ("", kernel.slabinfo_head),
    (kernel.SLABINFO, kernel.slabinfo_line),
    (tool.SLABTOP, tool.slabtop_line),
    (kernel.FAILED, kernel.failed_line),
    (kernel.OUT_OF_MEMORY, kernel.out_of_memory_head),
    (tool.SLABINFO_TOOL, tool.slabinfo_tool_line),
    (tool.ZFS, tool.zfs_line),
    (tool.CRASH, tool.crash_line),
)
WEAK: tuple[tuple[str, Recogniser], ...] = (
    (kernel.OUT_OF_MEMORY, kernel.out_of_memory_line),
    ("", kernel.meminfo_line),
    (kernel.SYSFS, kernel.sysfs_line),
)
# Of a name that grep or a diff has written in front of: a file with its line, a number, a sign.
NAME_BEFORE = re.compile(
    r"(?:(?=[^:]{0,200}[./])[\w./@-]{1,200}:(?:\d{1,9}[:-])?|\d{1,9}[:-](?=[a-zA-Z:])|[-+]+)(?=\S)",
    re.ASCII,
)


def with_own_name(item: Item) -> Item:
    if isinstance(item, Cache) and (match := NAME_BEFORE.match(item.name)):
        return replace(item, name=item.name[match.end() :])
    return item


def found_in(text: str, forms: Sequence[tuple[str, Recogniser]]) -> tuple[str, Item] | None:
    for name, recogniser in forms:
        item = recogniser(text) if text else None
        if item is not None and not isinstance(item, Bad):
            return name, with_own_name(item)
    return None


def behind_words(text: str, form: str) -> tuple[str, Item] | None:
    """The row at the end of a line; `form` is that of the rows before."""
    if not SCREEN.search(text):
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


def joined(lines: Sequence[str], position: int, form: str) -> tuple[str, Item] | None:
    """A row or a head of slabtop whose end is in the next line, cut between words or in one."""
    if position + 1 >= len(lines) or not lines[position] or not lines[position + 1]:
        return None
    if form not in FOLDED_FORMS and not lines[position].startswith(FIRST_WORDS):
        return None
    for between in ("", " "):
        text = f"{lines[position]}{between}{lines[position + 1]}"
        item = tool.slabtop_line(text)
        if isinstance(item, Cache | Totals):
            return tool.SLABTOP, item
        head = kernel.slabinfo_head(text)
        if isinstance(head, Head | Passed):
            return "", head
    return None


def is_figure(item: Item) -> bool:
    """What a table has, and not only what stands around it."""
    return isinstance(item, Cache | Totals | Memory | Adds | Head)
