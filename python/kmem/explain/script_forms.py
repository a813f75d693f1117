# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What people's one-liners print of /proc/slabinfo: a name and memory, below the command itself.

The rows are two words, of which only the command says what they are: objects by their size, in
bytes or in what it divides them by. Without the command nothing of it is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kmem.explain.items import BINARY, Item, Passed, Totals, sized
from kmem.explain.table import Cache

SCRIPT = "memory by awk of /proc/slabinfo"
# Columns of version 2: 2 are objects in use, 3 are all of them, and 4 is their size. Either is the
# memory of objects, and slabs have at least that.
PRODUCT = re.compile(r"\$[23]\*\$4|\$4\*\$[23]", re.ASCII)
DIVISOR = re.compile(
    r"/\(?(1048576|1000000|1024|1000|1e3|1e6)(?:\*(1024|1000))?(?:(?:\^|\*\*)([123]))?\)?", re.ASCII
)
ROW = re.compile(
    r"(?:(?P<first>\S{1,100}) )?(?P<value>\d{1,19}(?:\.\d{1,6})?(?:e\+\d\d)?)"
    r" ?(?P<unit>[KMG]i?B?|B)?(?: (?P<last>\S{1,100}))?",
    re.ASCII,
)
SUMS = ("total", "sum")
HEADS = ("slabinfo", "#", "name")  # of the file's first lines, which the command takes for rows


@dataclass(frozen=True)
class Script:
    """What the numbers of a command are."""

    bytes_each: float


def script_of(text: str) -> Script | None:
    """Of a line with the command."""
    if "awk" not in text or "slabinfo" not in text:
        return None
    compact = text.replace(" ", "")
    products = list(PRODUCT.finditer(compact))
    if not products:
        return None
    each = 1.0
    # A condition may have the product, too; the last is printed, and divided behind it.
    for number, factor, power in DIVISOR.findall(compact[products[-1].end() :]):
        each *= (float(number) * float(factor or 1)) ** int(power or 1)
    return Script(each)


def script_row(text: str, script: Script) -> Item | None:
    """A row below the command: NAME VALUE, or VALUE NAME, with a unit or none."""
    match = ROW.fullmatch(text)
    if match is None or (match["first"] is None) == (match["last"] is None):
        return None
    name = (match["first"] or match["last"]).rstrip(":")
    if not any(map(str.isalpha, name)):
        return Passed() if name in HEADS else None
    # The command writes units as it likes; with one behind its number it counts in powers of 1024.
    unit = sized(f"1{match['unit']}", BINARY) if match["unit"] else None
    size = round(float(match["value"]) * (unit or script.bytes_each))
    if size >= 1 << 63:
        return None
    if name.lower() in SUMS:
        return Totals({"bytes": size})
    if name in HEADS:
        return Passed()
    return Cache(name, total_bytes=size)
