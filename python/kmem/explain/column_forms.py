# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tables with some columns of /proc/slabinfo, as appliances print them and people cut them out.

Their rows are a name and a few numbers, of which only the head above says what they are, by the
kernel's names of columns. Head and rows may stand several times beside each other; rows with all
of the first six columns need no head for that, as each of them has numbers that fit together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kmem.explain.items import is_number
from kmem.explain.kernel_forms import ORDERS, short_line
from kmem.explain.table import Cache

COLUMNS = "some columns of /proc/slabinfo"
# The names of columns that the kernel and its readers have, and the fields of a cache. "size" is
# none of them: in other tables it is that of a whole cache.
FIELDS = {
    "active_objs": "active",
    "active_objects": "active",
    "num_objs": "objects",
    "num_objects": "objects",
    "objsize": "stride_bytes",
    "obj_size": "stride_bytes",
    "object_size": "stride_bytes",
    "objperslab": "per_slab",
    "obj_per_slab": "per_slab",
    "pagesperslab": "pages_per_slab",
    "pages_per_slab": "pages_per_slab",
    "num_slabs": "slabs",
}
OTHERS = ("limit", "batchcount", "sharedfactor", "active_slabs", "sharedavail")
NAMES = ("name", "slab", "cache", "slab_name", "cache_name")
SIZE_OF_ROW = 6  # a name and the first five columns, which version 2 has in each line


def field_of(word: str) -> str | None:
    """What a word of a head names: a field, "name", nothing of use, or None for no column."""
    plain = word.strip("<>#,:").lower()
    if plain in NAMES:
        return "name"
    return "" if plain in OTHERS else FIELDS.get(plain)


@dataclass(frozen=True)
class Columns:
    """What the numbers behind a name are, and how often a row may stand in a line."""

    fields: tuple[str, ...]
    times: int
    by_command: bool = False


# awk's fields of a line of version 2.
FIELDS_OF_AWK = {
    1: "name",
    2: "active",
    3: "objects",
    4: "stride_bytes",
    5: "per_slab",
    6: "pages_per_slab",
    15: "slabs",
}
LAST_OF_AWK = 16
PRINTED = re.compile(
    r"print *(\$\d{1,2}(?:[, ]{1,3}(?:\" {1,3}\"[, ]{1,3})?\$\d{1,2}){1,15}) *[};]"
)


def columns_of_command(text: str) -> Columns | None:
    """Of a line with awk that prints fields of /proc/slabinfo.

    The head that it prints names columns that are not those below: its # counts as a field, too.
    """
    match = PRINTED.search(text) if "awk" in text and "slabinfo" in text else None
    if match is None:
        return None
    numbers = [int(word) for word in re.findall(r"\$(\d{1,2})", match[1])]
    fields = tuple(FIELDS_OF_AWK.get(number, "") for number in numbers)
    if max(numbers) > LAST_OF_AWK or fields[0] != "name" or not is_whole(fields):
        return None
    return Columns(fields[1:], 1, by_command=True)


def is_whole(fields: Sequence[str]) -> bool:
    """Whether rows have sizes and counts of all objects, without which they have no memory."""
    known = list(filter(None, fields))
    return {"objects", "stride_bytes"} <= set(known) and len(set(known)) == len(known)


def columns_of(text: str) -> Columns | None:
    """Of a head."""
    words = [field_of(word) for word in text.split(" ") if word != "#"]
    if None in words:
        return None
    fields = tuple(word for word in words if word is not None)
    # An appliance leaves the name's own column without a head.
    first = fields if fields[:1] == ("name",) else ("name", *fields)
    times = first.count("name")
    one = first[: len(first) // times]
    if one * times != first or not is_whole(one):
        return None
    return Columns(one[1:], times)


def groups_of(text: str) -> list[tuple[str, list[int]]] | None:
    """Names with the numbers behind them."""
    found: list[tuple[str, list[int]]] = []
    for word in text.split(" "):
        if is_number(word):
            if not found:
                return None
            found[-1][1].append(int(word))
        else:
            found.append((word, []))
    return found


def column_rows(text: str, columns: Columns) -> list[Cache]:
    """The caches of a line below a head; none if a single one is not as the head says."""
    groups = groups_of(text) or []
    if not 1 <= len(groups) <= columns.times:
        return []
    caches = []
    for name, numbers in groups:
        if len(numbers) != len(columns.fields) or not any(map(str.isalpha, name)):
            return []
        values: dict[str, Any] = dict(zip(columns.fields, numbers, strict=True))
        values.pop("", None)
        active, objects = values.get("active"), values.get("objects")
        if active is not None and objects is not None and active > objects:
            return []
        if not values["stride_bytes"] or values.get("pages_per_slab", 1) not in ORDERS:
            return []
        caches.append(replace(Cache(name), **values))
    return caches


def rows_beside(text: str) -> list[Cache]:
    """Rows of the first six columns that stand beside each other in a line."""
    words = text.split(" ")
    if len(words) < 2 * SIZE_OF_ROW or len(words) % SIZE_OF_ROW:
        return []
    items = [
        short_line(" ".join(words[at : at + SIZE_OF_ROW]))
        for at in range(0, len(words), SIZE_OF_ROW)
    ]
    caches = [item for item in items if isinstance(item, Cache)]
    has_names = all(any(map(str.isalpha, cache.name)) for cache in caches)
    return caches if has_names and len(caches) == len(items) else []
