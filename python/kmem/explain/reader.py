# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads slab tables: recognises the form of each line, and puts the lines together to tables.

A table ends where a head of its form, its totals or its first cache comes again: then the text has
several moments. What no form has is kept as unread, with its line and a reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from operator import itemgetter

from kmem.explain import cache_forms as single
from kmem.explain import kernel_forms as kernel
from kmem.explain import tool_forms as tool
from kmem.explain.clean import clean, other_writings, with_blanks, without_groups
from kmem.explain.column_forms import (
    COLUMNS,
    Columns,
    column_rows,
    columns_of,
    columns_of_command,
    rows_beside,
)
from kmem.explain.items import (
    Adds,
    Attribute,
    Bad,
    Figures,
    Head,
    Item,
    Memory,
    Part,
    Passed,
    Skips,
    Totals,
    is_number,
)
from kmem.explain.metric_forms import METRICS, metric_line
from kmem.explain.script_forms import SCRIPT, Script, script_of, script_row
from kmem.explain.table import Boot, Cache, Reading, Table, Unread
from kmem.explain.within import (
    behind_words,
    goes_on,
    is_figure,
    is_misread,
    joined,
    with_own_name,
    without_front,
)
from kmem.explain.without_caches import why_no_cache
from kmem.traces.attribute_tree import (
    PARSERS,
    AttributeFormatError,
    NodeCounts,
    Value,
    parse_attribute,
)

LONGEST_LINE = 4000  # letters
PAGE_SIZES = (4096, 16384, 65536)
LEAST_SERIES = 3  # lines of a cache that are those of as many times
LINES_OF_A_ROW = 5  # into which mails fold a line of /proc/slabinfo
NO_FORM = "no line of a slab table"
CUT_OUT = "lines were cut out here"
# A mail in quoted-printable ends a full line with it; the rest of a name stands in the next line.
SOFT_BREAK = "="
LIST = re.compile("[,;]")  # between columns, where no blank is
END_OF_NAME = re.compile(r"[\w-]{1,60}", re.ASCII)
RULER = frozenset("-=_+ []{}(),:")  # lines, and the ends of lists in JSON

Recogniser = Callable[[str], Item | None]
# The narrow forms first: a line that several read belongs to the first.
RECOGNISERS: tuple[tuple[str, Recogniser], ...] = (
    ("", kernel.slabinfo_head),
    ("", kernel.boot_line),
    (kernel.SLABINFO, kernel.slabinfo_line),
    (tool.SLABTOP, tool.slabtop_line),
    (kernel.OUT_OF_MEMORY, kernel.out_of_memory_line),
    (kernel.FAILED, kernel.failed_line),
    (tool.SHARES, tool.shares_line),
    (tool.LARGEST, tool.largest_line),
    (single.REPORT, single.report_line),
    (tool.SLABINFO_TOOL, tool.slabinfo_tool_line),
    (tool.ZFS, tool.zfs_line),
    (tool.DRGN, tool.drgn_line),
    ("", kernel.meminfo_line),
    (kernel.SYSFS, kernel.sysfs_line),
    (METRICS, metric_line),
    (tool.CRASH, tool.crash_line),
    (single.GDB, single.gdb_line),
    (single.COLLECTL, single.collectl_line),
    (kernel.SLABINFO_1, kernel.old_line),
)


def recognise(text: str, form: str) -> tuple[str, Item] | None:
    """A line's form and content; `form` is that of the lines before."""
    if item := tool.crash_around(text, form):
        return form, item
    for name, recogniser in RECOGNISERS:
        item = recogniser(text)
        if item is not None:
            return name, with_own_name(item)
    # Version 1.1 has six columns of its own.
    if form != kernel.SLABINFO_1 and (item := kernel.short_line(text)):
        return kernel.SLABINFO, with_own_name(item)
    if item := tool.vmstat_line(text, form):
        return tool.VMSTAT, item
    if item := tool.older_drgn_line(text, form):
        return tool.DRGN, item
    if form in (kernel.SLABINFO, kernel.SLABINFO_1) and (item := kernel.folded_statistics(text)):
        return form, item
    if form == kernel.SLABINFO_1 and (item := kernel.old_lines_fault(text)):
        return form, item
    return None


def unfolded(lines: Sequence[str], position: int) -> tuple[Cache, int] | None:
    """A line of /proc/slabinfo that a mail folded, and its number of lines."""
    fields = without_groups(lines[position]).split(" ")
    if len(fields) < 4 or not fields[1].isdigit() or not fields[2].isdigit():
        return None
    if not any(":" in line for line in lines[position : position + LINES_OF_A_ROW]):
        return None
    texts = [without_groups(lines[position])]
    for count in range(2, LINES_OF_A_ROW + 1):
        if position + count > len(lines):
            return None
        # A terminal cuts between words or in one.
        following = without_groups(lines[position + count - 1])
        texts = [f"{text}{gap}{following}" for text in texts for gap in (" ", "")]
        for text in texts:
            if cache := kernel.full_line(text, folded=True):
                return cache, count
    return None


def counted(value: Value) -> int | None:
    """Of a total with its parts by node, the total."""
    if isinstance(value, NodeCounts):
        return value.total
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def cache_of_attributes(name: str, values: dict[str, Value], file: str, line: int) -> Cache:
    order = counted(values.get("order"))
    letters = {"sanity_checks": "F", "red_zone": "Z", "poison": "P", "store_user": "U"}
    reclaimable = values.get("reclaim_account")
    return Cache(
        name,
        objects=counted(values.get("total_objects")),
        active=counted(values.get("objects")),
        stride_bytes=counted(values.get("slab_size")),
        object_bytes=counted(values.get("object_size")),
        per_slab=counted(values.get("objs_per_slab")),
        pages_per_slab=1 << order if order is not None and order <= 10 else None,
        slabs=counted(values.get("slabs")),
        partial_slabs=counted(values.get("partial")),
        cpu_slabs=counted(values.get("cpu_slabs")),
        reclaimable=reclaimable if isinstance(reclaimable, bool) else None,
        debug="".join(letter for flag, letter in letters.items() if values.get(flag)),
        cpu_partial=counted(values.get("cpu_partial")),
        file=file,
        line=line,
    )


def with_node(cache: Cache, more: Adds) -> Cache:
    """A cache that no page was left for, with the figures of one more node.

    Its slabs have the wished order only if they hold as many objects as that: the kernel takes
    smaller ones when memory is short.
    """
    slabs, objects = (cache.slabs or 0) + more.slabs, (cache.objects or 0) + more.objects
    order = cache.order if more.order is None else more.order
    per_slab = objects // slabs if slabs and objects % slabs == 0 else None
    stride = cache.stride_bytes or 0
    is_whole = (
        per_slab is not None
        and order is not None
        and stride > 0
        and any((page << order) // stride == per_slab for page in PAGE_SIZES)
    )
    return replace(
        cache,
        slabs=slabs,
        objects=objects,
        active=(cache.active or 0) + more.objects - more.free,
        order=order,
        least_order=cache.least_order if more.least_order is None else more.least_order,
        per_slab=per_slab if is_whole else None,
        pages_per_slab=1 << order if is_whole and order is not None else None,
    )


def with_figures(cache: Cache, figures: Figures) -> Cache:
    """A cache with a further line of its report.

    Objects in use, if it does not say how many, are the bytes in use by their size.
    """
    fields = {**asdict(cache), **figures.values}
    used, each = fields["used_bytes"], fields["object_bytes"]
    if fields["active"] is None and used is not None and each:
        fields["active"] = used // each
    return Cache(**{**fields, "debug": cache.debug + figures.debug})


def without_aliases(caches: dict[str, dict[str, Value]]) -> dict[str, dict[str, Value]]:
    """Each cache once: `grep . */*` shows a cache that names share under all of them.

    The cache's own name begins with a colon. It gets a name of kmalloc, or else its first.
    """
    found = dict(caches)
    texts = {
        name: repr(sorted(values.items(), key=itemgetter(0))) for name, values in caches.items()
    }
    named: dict[str, list[str]] = {}
    for name, text in texts.items():
        if name[0] != ":":
            named.setdefault(text, []).append(name)
    for name, text in texts.items():
        names = named.get(text, []) if name[0] == ":" else []
        if not names:
            continue
        best = next((other for other in names if other.startswith("kmalloc")), names[0])
        for other in (name, *names):
            if other != best:
                found.pop(other, None)
    return found


class Collector:
    """Takes the lines of files, and makes tables of them."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.file = ""
        self.first_table = 0
        self.table: Table | None = None
        self.totals: dict[str, float] = {}
        self.memories: list[dict[str, int]] = []
        self.seen_memory: set[tuple[str, int | None]] = set()  # of the last of them, with nodes
        self.attributes: dict[str, dict[str, Value]] = {}
        self.attribute_lines: dict[str, int] = {}
        self.skips = False
        self.is_unread = False  # the line before
        self.comments = 0  # lines
        self.refused = ""  # the first attribute that the system did not let be read, and why
        self.known: dict[str, Cache] = {}  # caches of a table of crash
        self.series: list[Table] = []  # of a cache alone, line after line
        self.series_place = 0
        self.parts: dict[str, tuple[Table, dict[str, int]]] = {}  # by form, with places of caches
        self.script: Script | None = None  # whose rows these are
        self.columns: Columns | None = None  # of the last head that has some of them
        self.boots: list[tuple[int, Boot]] = []  # with their lines

    def begin_file(self, file: str) -> None:
        self.file = file
        self.first_table = len(self.reading.tables)
        self.table, self.totals, self.memories, self.skips = None, {}, [], False
        self.series, self.is_unread, self.comments, self.refused = [], False, 0, ""
        self.parts, self.script, self.columns, self.boots = {}, None, None, []

    def end_file(self) -> None:
        self.end_attributes()
        tables = [table for table in self.reading.tables[self.first_table :] if table.caches]
        self.reading.tables[self.first_table :] = tables
        for number, table in enumerate(tables):
            if len(self.memories) == len(tables):
                table.memory = self.memories[number]
            elif self.memories:
                table.memory = self.memories[0]
            # A log's boot is that of the tables behind it, and one below them may be theirs, too.
            before = [boot for line, boot in self.boots if line < table.line]
            table.boot = before[-1] if before else next((boot for _, boot in self.boots), None)

    def end_attributes(self) -> None:
        """The attributes so far are a moment's."""
        if not self.attributes:
            return
        table = Table(kernel.SYSFS, self.file, min(self.attribute_lines.values()), whole=True)
        table.caches = [
            cache_of_attributes(name, values, self.file, self.attribute_lines[name])
            for name, values in without_aliases(self.attributes).items()
        ]
        self.reading.tables.append(table)
        self.attributes, self.attribute_lines = {}, {}

    def begin_table(self, form: str, line: int, *, whole: bool) -> Table:
        self.table = Table(form, self.file, line, printed=self.totals, whole=whole)
        self.totals, self.skips, self.known = {}, False, {}
        self.reading.tables.append(self.table)
        return self.table

    def unread(self, line: int, reason: str) -> None:
        reason = with_blanks(reason)
        self.reading.unread.append(Unread(self.file, line, reason, follows=self.is_unread))
        self.is_unread = True

    def take_attribute(self, line: int, attribute: Attribute) -> None:
        try:
            value = parse_attribute(attribute.name, attribute.text + "\n")
        except AttributeFormatError:
            self.unread(line, f"attribute {attribute.name}: cannot read {attribute.text[:40]!r}")
            return
        if attribute.name in self.attributes.get(attribute.cache, {}):
            self.end_attributes()
        self.attributes.setdefault(attribute.cache, {})[attribute.name] = value
        self.attribute_lines.setdefault(attribute.cache, line)

    def take_part(self, line: int, part: Part) -> None:
        """A figure that its cache has already is of the next time."""
        table, places = self.parts.get(part.form, (None, {}))
        place = places.get(part.cache)
        if table is None or (
            place is not None and getattr(table.caches[place], part.field) is not None
        ):
            table, places = self.begin_table(part.form, line, whole=False), {}
            self.parts[part.form] = table, places
        if part.cache not in places:
            places[part.cache] = len(table.caches)
            table.caches.append(Cache(part.cache, file=self.file, line=line))
        at = places[part.cache]
        table.caches[at] = Cache(**{**asdict(table.caches[at]), part.field: part.value})

    def take_cache(self, form: str, line: int, cache: Cache) -> None:
        if self.skips or self.take_of_series(line, form, cache):
            return
        table = self.table
        again = table is not None and table.caches and table.caches[0].name == cache.name
        if form == tool.CRASH and table is not None and table.form == form:
            # Of each address crash prints the cache, again, too: a memory image stands still.
            again = cache.name in self.known
            if again and self.known[cache.name] == cache:
                return
        if table is None or table.form != form or again or (self.totals and table.caches):
            table = self.begin_table(form, line, whole=bool(self.totals))
            self.series = [*self.series, table] if again else [table]
            self.series_place = 0
        if form == tool.CRASH:
            self.known[cache.name] = cache
        table.caches.append(replace(cache, file=self.file, line=line))

    def take_of_series(self, line: int, form: str, cache: Cache) -> bool:
        """Lines of a cache at many times, and then those of the next cache at these times.

        People collect them with grep. Each further line of a name is of the next time.
        """
        if len(self.series) < LEAST_SERIES or self.series[0].form != form:
            return False
        first = self.series[0].caches[0].name
        if any(table.caches[0].name != first for table in self.series):
            return False
        place = self.series_place
        if place == 0:
            if any(len(table.caches) != 1 for table in self.series) or cache.name == first:
                return False
        elif self.series[place - 1].caches[-1].name != cache.name:
            place = 0
        if place >= len(self.series):
            return False
        self.series[place].caches.append(replace(cache, file=self.file, line=line))
        self.series_place = place + 1
        return True

    def take_more(self, line: int, more: Adds) -> None:
        table = self.table
        if table is None or table.form != kernel.FAILED or not table.caches:
            self.unread(line, "figures of a node; expected the line of their cache before")
            return
        table.caches[-1] = with_node(table.caches[-1], more)

    def take_figures(self, line: int, figures: Figures) -> None:
        """Of a cache's report; without the line of its name it begins by its first figures."""
        table = self.table
        known = table.caches[-1] if table and table.form == single.REPORT and table.caches else None
        if known is None or (figures.first and known.object_bytes is not None):
            if not figures.first:
                self.unread(line, "figures of a cache; expected their first line before")
                return
            self.take_cache(single.REPORT, line, Cache(single.UNNAMED))
        if self.table is not None and not self.skips:
            self.table.caches[-1] = with_figures(self.table.caches[-1], figures)

    def take_head(self, line: int, head: Head) -> None:
        if head.form == tool.CRASH and self.table is not None and self.table.form == tool.CRASH:
            return
        if self.table is None or self.table.form != head.form or self.table.caches:
            self.begin_table(head.form, line, whole=bool(self.totals) or not head.below_totals)
        self.skips = False

    def take_totals(self, totals: Totals) -> None:
        if self.table is not None and not self.table.caches:
            self.table.printed.update(totals.values)
        else:
            self.totals = {**self.totals, **totals.values}

    def take_memory(self, memory: Memory) -> None:
        """Of nodes the sum, if there is no line of the whole machine beside them."""
        if not self.memories or (memory.name, memory.node) in self.seen_memory:
            self.memories.append({})
            self.seen_memory = set()
        self.seen_memory.add((memory.name, memory.node))
        of_moment = self.memories[-1]
        if memory.node is None:
            of_moment[memory.name] = memory.kib
        elif (memory.name, None) not in self.seen_memory:
            of_moment[memory.name] = of_moment.get(memory.name, 0) + memory.kib

    def take(self, form: str, line: int, item: Item) -> None:
        self.is_unread = self.is_unread and isinstance(item, Bad | Adds | Figures)
        match item:
            case Cache():
                # A mail may have folded the head of whole rows.
                if form != COLUMNS and self.columns and not self.columns.by_command:
                    self.columns = None
                self.take_cache(form, line, replace(item, name=with_blanks(item.name)))
            case Head():
                self.take_head(line, item)
            case Totals():
                self.take_totals(item)
            case Memory():
                self.take_memory(item)
            case Attribute():
                self.take_attribute(line, replace(item, cache=with_blanks(item.cache)))
            case Part():
                self.take_part(line, item)
            case Adds():
                self.take_more(line, item)
            case Figures():
                self.take_figures(line, item)
            case Skips():
                self.skips = True
            case Boot():
                self.boots.append((line, item))
            case Bad():
                self.unread(line, item.reason)
            case Passed():
                pass

    def take_columns(self, line: int, text: str, found: tuple[str, Item] | None) -> bool:
        """A head with some columns, or a row below it, where no form has the line."""
        if found is not None and not isinstance(found[1], Head | Passed):
            return False
        text = text if " " in text else " ".join(LIST.split(text))
        if columns := columns_of(text):
            if self.columns is None or not self.columns.by_command:
                self.columns = columns
            if found is None:
                self.take(COLUMNS, line, Head(COLUMNS))
            return found is None
        if found is not None:
            return False
        form = COLUMNS if self.columns else kernel.SLABINFO
        caches = column_rows(text, self.columns) if self.columns else []
        if not caches:
            form, caches = kernel.SLABINFO, rows_beside(text)
        for cache in caches:
            self.take(form, line, cache)
        return bool(caches)

    def take_lines(self, lines: Sequence[str], numbers: Sequence[int] | None = None) -> None:
        """Lines with their numbers in the file, or from 1 on."""
        numbers = numbers or range(1, len(lines) + 1)
        cleaned = without_front(
            [clean(line) if len(line) <= LONGEST_LINE else line for line in lines], figures_in
        )
        position = 0
        while position < len(lines):
            position += self.take_line(cleaned, lines[position], numbers, position)

    def take_line(self, cleaned: Sequence[str], raw: str, numbers: Sequence[int], at: int) -> int:
        """Take the line at this place, and those that belong to it; returns how many they are."""
        text, line = cleaned[at], numbers[at]
        if attribute := shown_attribute(cleaned, at):
            self.take(kernel.SYSFS, numbers[at + 1], attribute)
            return 2
        if script := script_of(text):
            self.script = script
            self.take(SCRIPT, line, Head(SCRIPT))
            return 1
        if COMMAND.fullmatch(text):
            self.script, self.columns = None, columns_of_command(text)
        self.comments += is_comment(text)
        if not text or RULER.issuperset(text) or is_comment(text) or is_around(text):
            return 1
        if reason := no_text(raw):
            self.unread(line, reason)
            return 1
        form = self.table.form if self.table else ""
        if form == SCRIPT and self.script and (row := script_row(text, self.script)):
            self.take_script_row(line, row)
            return 1
        found = recognise(text, form)
        if (found is None or isinstance(found[1], Bad | Cache)) and (
            folded := folded_row(found, cleaned, at)
        ):
            cache, count = folded
            self.take(kernel.SLABINFO, line, cache)
            return count
        if self.take_columns(line, text, found):
            return 1
        found, count = found_at(found, cleaned, raw, at, form)
        if found is None:
            self.columns = None if is_prose(text) else self.columns
            self.unread(line, no_form(text, form))
            return count
        if isinstance(found[1], Cache) and found[1].name.endswith(SOFT_BREAK):
            rest = cleaned[at + count] if at + count < len(cleaned) else ""
            rest = rest if END_OF_NAME.fullmatch(rest) else ""
            count += bool(rest)
            name = found[1].name.removesuffix(SOFT_BREAK) + rest
            found = found[0], replace(found[1], name=name)
        self.take(found[0], line, found[1])
        return count

    def take_script_row(self, line: int, row: Item) -> None:
        # A sum stands below its rows, where other forms have that of the next table.
        if isinstance(row, Totals) and self.table is not None:
            self.table.printed.update(row.values)
        else:
            self.take(SCRIPT, line, row)


def found_at(
    found: tuple[str, Item] | None, cleaned: Sequence[str], raw: str, at: int, form: str
) -> tuple[tuple[str, Item] | None, int]:
    """What the line at this place is, with its neighbours, and how many lines it takes."""
    text = cleaned[at]
    if found is None or isinstance(found[1], Bad):
        within = behind_words(text, form)
        # Words behind others may be passed over, and have been of a row.
        if within is not None and not isinstance(within[1], Passed):
            return within, 1
        if other := rewritten(text, raw, form):
            return other, 1
        if several := joined(cleaned, at, form):
            return several[:2], several[2]
        return within or found, 1
    if goes_on(found[1]) and (several := joined(cleaned, at, form)):
        return several[:2], several[2]
    if found[0] == tool.ZFS:
        return found, 1 + rest_of_row(found[1], cleaned, at + 1)
    return found, 1


def figures_in(lines: Sequence[str]) -> float:
    """How many lines have figures of a table.

    A row counts more if all of it was read, and less if its name may have a word too many.
    """
    count, form, position = 0.0, "", 0
    while position < len(lines):
        text, at = lines[position], position
        position += 1
        if not text or is_comment(text) or len(text) > LONGEST_LINE:
            continue
        found = recognise(text, form)
        if (found is None or isinstance(found[1], Bad | Cache)) and (
            folded := folded_row(found, lines, at)
        ):
            found, position = (kernel.SLABINFO, folded[0]), at + folded[1]
        found = found if found and is_figure(found[1]) else behind_words(text, form)
        if (found is None or isinstance(found[1], Passed)) and (several := joined(lines, at, form)):
            found, position = several[:2], at + several[2]
        if found is not None and is_figure(found[1]) and not is_misread(found[1]):
            count, form = count + 1, found[0] or form
            if isinstance(found[1], Cache):
                has_slabs = found[1].slabs is not None
                count += (has_slabs - found[1].name.count(" ")) / 100
    return count


def rest_of_row(item: Item, lines: Sequence[str], position: int) -> int:
    """How many lines of @position on are the end of a row that has all that is used without it."""
    if not isinstance(item, Cache) or position >= len(lines):
        return 0
    before, numbers = lines[position - 1].split(" "), lines[position].split(" ")
    is_end = len(before) + len(numbers) == 2 + tool.ZFS_COLUMNS and all(map(is_number, numbers))
    return int(is_end and len(before) >= 2 and before[1].startswith("0x"))


def rewritten(text: str, line: str, form: str) -> tuple[str, Item] | None:
    """A line that no form has, by what it has in other writings of numbers and columns."""
    for other in other_writings(text, line):
        found = recognise(other, form) or behind_words(other, form)
        if found is not None and is_figure(found[1]) and not is_misread(found[1]):
            return found
    return None


def folded_row(
    found: tuple[str, Item] | None, lines: Sequence[str], position: int
) -> tuple[Cache, int] | None:
    """A row that goes on in the next lines; a whole line of version 2 does not."""
    if found is not None and isinstance(found[1], Cache) and found[1].slabs is not None:
        return None
    return unfolded(lines, position)


def is_prose(text: str) -> bool:
    """Mostly words, as the head of another table, whose rows look like those before."""
    words = text.split(" ")
    return 2 * sum(any(map(str.isalpha, word)) for word in words) > len(words) + 1


def is_comment(text: str) -> bool:
    """A comment, as libkmem's own tables end with, or the prompt of root."""
    return text.startswith("#") and not text.startswith(kernel.FIRST_NAMES)


# A prompt and a command that prints tables, a prompt that names its user and host, and what the
# program `script` writes around a session; and the marks around code in trackers.
COMMAND = re.compile(
    r".{0,80}[$#%>] ?(?:sudo )?(?:\w{1,20}=\S{1,40} )?"
    r"(?:awk|cat|dmesg|e?grep|free|head|journalctl|slab\w+|sort|tail|vmstat|watch|kmem) .*"
    r"|.{0,80}[$#%>] ?(?:sudo )?(?:slabtop|slabinfo|free|dmesg)"
    r"|\[?[\w.-]{1,40}@[\w.()-]{1,60}[: ][^ ]{1,80}[$#](?: .*)?"
    r"|Script (?:started|done)\b.*|\(gdb\) lx-.*"
)
CAT = re.compile(
    r"(?:(?:.{0,80}[$#%>] ?)?(?:sudo )?cat /sys/kernel/slab/|==> (?:/?sys/kernel/slab/|\./)?)"
    r"(?:[^/ ]{1,80}/cgroup/)?(:?[^/: ]{1,80}(?:\(\d{1,9}:[^/ ]{1,255}\))?)/([a-z_]{1,40})"
)
FENCE = re.compile(r"[`~]{1,3}\w{0,12}")


def is_around(text: str) -> bool:
    """Neither of a table nor worth a word."""
    return FENCE.fullmatch(text) is not None or COMMAND.fullmatch(text) is not None


def shown_attribute(lines: Sequence[str], position: int) -> Attribute | None:
    """Of `cat /sys/kernel/slab/NAME/ATTRIBUTE` and the line below, which is its output.

    `head` and `tail` print the names of files as ==> NAME <==.
    """
    line = lines[position]
    if position + 1 >= len(lines) or ("/sys/kernel/slab/" not in line and line[:4] != "==> "):
        return None
    match, value = CAT.fullmatch(line), lines[position + 1]
    if match is None or match[2] not in PARSERS or not value or is_comment(value):
        return None
    return None if is_around(value) else Attribute(match[1], match[2], value)


SNIP = re.compile(
    r"\W{0,16}(?:snip\w{0,4}|cut|\.\.\.|\u2026|(?:(?:output|lines?|rows?|rest)[ -])?"
    r"(?:omitted|truncated|skipped))\W{0,16}",
    re.IGNORECASE,
)


def no_form(text: str, form: str) -> str:
    """Why a line is none of a table."""
    if text.strip(". \u2026") == "" or SNIP.fullmatch(text):
        return CUT_OUT
    if form == kernel.SLABINFO and (fault := kernel.cut_line(text)):
        return fault
    if form == tool.SLABTOP and (fault := tool.cut_slabtop_row(text)):
        return fault
    return why_no_cache(text) or NO_FORM


def no_text(line: str) -> str:
    """Why a line cannot be of a table, before its fields are looked at."""
    if len(line) > LONGEST_LINE:
        return f"{len(line)} letters; expected at most {LONGEST_LINE}"
    if "\ufffd" in line or "\0" in line:
        return "bytes that are no text in UTF-8"
    return ""


def share_memory(reading: Reading, memories: Iterator[dict[str, int]]) -> None:
    """A /proc/meminfo in a file of its own belongs to the tables that have none."""
    for memory in memories:
        for table in reading.tables:
            table.memory = table.memory or memory
