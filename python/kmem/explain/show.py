# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem explain`: the answers as text, as JSON and as a page with treemaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table as TextTable

from kmem.common.console import wide_console
from kmem.common.files import write_json
from kmem.common.text import printable
from kmem.common.tree import build, need_extra
from kmem.explain import policies
from kmem.explain.answers import Answers, Machine, answer
from kmem.explain.document import document
from kmem.explain.facts import Facts
from kmem.explain.files import read_files
from kmem.explain.heap.files import profiles_among
from kmem.explain.heap.profile import HeapProfile
from kmem.explain.kernel_forms import OUT_OF_MEMORY
from kmem.explain.leaks import Growth, growths
from kmem.explain.notes import notes
from kmem.explain.shapes import COUNTS, RULES, counts_of, is_exact, order_of, shape_of, words
from kmem.explain.table import Figure, How, Reading, Unread
from kmem.explain.treemap import Item, treemap
from kmem.lab import orders
from kmem.lab.page import Drawing, write_page
from kmem.lab.report import Report, print_report, table

LETTERS = {"read": "r", "computed": "c", "modelled": "m"}
# First in each report, as the letters stand behind its first numbers.
LEGEND = "Behind each number: r read, c computed of what was read, m modelled."
OUT_OF_MEMORY_NOTE = (
    "The report has bytes of objects, so the ends of slabs are missing, and before 5.9 the caches"
    " of memory groups too."
)
UNREAD_SHOWN = 40
NAMES_SHOWN = 6
LARGEST_SHOWN = 3


def cell(figure: Figure | None, unit: float = 1) -> str:
    if figure is None:
        return "-"
    return f"{figure.value / unit:,.0f} {LETTERS[figure.how]}"


def percent(part: Figure | None, whole: Figure | None) -> str:
    if part is None or whole is None or not whole.value:
        return "-"
    return f"{100 * part.value / whole.value:.1f} c"


def total_line(answers: Answers) -> str:
    total = answers.total
    line = f"slabs: {cell(total, 1024)} KiB, pages of {cell(answers.page)} bytes"
    if answers.allocator:
        line += f", {answers.allocator}"
    if printed := answers.printed_total():
        line += (
            f"; {printed.name} is {printed.printed / 1024:,.0f} r KiB, of which these are"
            f" {100 * printed.share:.1f}% c"
        )
    return line


def waste_line(answers: Answers) -> str:
    names = {"free": "in free objects", "tail": "behind the last objects", "padding": "as padding"}
    parts = []
    for attribute, text in names.items():
        known = [getattr(fact, attribute) for fact in answers.facts]
        found = [figure.value for figure in known if figure]
        if found:
            whole = Figure(sum(found), "computed")
            parts.append(f"{cell(whole, 1024)} KiB ({percent(whole, answers.total)}%) {text}")
    return f"waste: {'; '.join(parts)}" if parts else "waste: the form has no figures for it"


def debugging_lines(answers: Answers) -> list[str]:
    found = answers.debugging
    if not found.compared:
        return [
            "debugging: no cache has both a size and a distance of its objects, which would tell"
        ]
    if not found.found:
        return ["debugging: no size is longer than it should be"]
    names = [
        f"{name} has {cell(stride)} bytes for {cell(real)}"
        for name, stride, real in found.inflated[:NAMES_SHOWN]
    ]
    more = len(found.inflated) - len(names)
    line = f"debugging makes sizes longer: {', '.join(names)}{f', and {more} more' if more else ''}"
    if found.extra_bytes is None:
        return [line]
    return [line, f"other caches have at least {cell(found.extra_bytes)} bytes more an object, too"]


def exceptions(answers: Answers) -> list[str]:
    """Caches whose slabs the best count does not give, with the counts that do."""
    names = []
    for fact in answers.facts:
        if not shape_of(fact, answers.page_bytes):
            continue
        exact = is_exact(fact)
        counts = counts_of(
            fact, answers.all_shapes, answers.fit.rule, answers.page_bytes, exact=exact
        )
        if not set(counts) & set(answers.fit.counts):
            names.append(f"{fact.name} ({words(counts) or 'no count'})")
    return names


def boot_lines(answers: Answers) -> list[str]:
    """What SLUB said when the kernel started, and whether the slabs agree."""
    boot = answers.table.boot
    if boot is None or answers.allocator != "SLUB":
        return []
    line = f"boot line: {boot.cpus:,} r possible CPUs, {boot.nodes:,} r nodes"
    fit = answers.fit
    if fit.known and policies.power(boot.cpus) not in fit.counts:
        line += (
            f"; the slabs are those of {fit.text} c, as later kernels count the CPUs that a machine"
            " has (S3-12)"
        )
    return [line]


def cpus_lines(answers: Answers) -> list[str]:
    fit = answers.fit
    if answers.allocator != "SLUB":
        line = "CPU count: only SLUB chooses slabs by it; --cpus shows what SLUB would make of this"
        return [line] if answers.allocator else []
    if not fit.caches:
        return ["CPU count: the form does not have the shape of slabs"]
    if not fit.told:
        return [f"CPU count: the slabs of all {fit.caches} caches fit any"]
    line = (
        f"CPU count: {fit.text} c gives {fit.fitting} of {fit.caches} caches their slabs, by the"
        f" rule of {fit.rule} ({fit.told} depend on it)"
    )
    names = exceptions(answers)
    if not names:
        return [line]
    more = f", and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return [line, f"slabs of other counts: {', '.join(names[:NAMES_SHOWN])}{more}"]


def holder_lines(answers: Answers) -> list[str]:
    lines = []
    for holder in answers.holders:
        end = (
            "the kernel frees such objects when memory is short"
            if holder.reclaimed
            else "a leak looks like this"
        )
        lines.append(
            f"{holder.name} holds {100 * holder.share:.1f}% c of the slabs' memory, and nearly all"
            f" its objects are in use: {end}"
        )
    return lines


def largest_lines(answers: Answers) -> list[str]:
    """The caches that hold most, where none of them looks like a leak."""
    whole = answers.total.value if answers.total else 0
    largest = [fact for fact in answers.facts[:LARGEST_SHOWN] if fact.total and fact.total.value]
    if not whole or not largest:
        return []
    shares = [
        f"{printable(fact.name)} {100 * fact.total.value / whole:.1f}% c"
        for fact in largest
        if fact.total
    ]
    return [f"largest: {', '.join(shares)} of the memory of these caches"]


@dataclass(frozen=True)
class Cell:
    """A text of a number, and where the number comes from."""

    text: str
    how: How


def shown(figure: Figure | None, unit: float = 1) -> Cell | None:
    return Cell(f"{figure.value / unit:,.0f}", figure.how) if figure else None


def in_percent(share: float | None) -> Cell | None:
    return None if share is None else Cell(f"{100 * share:.1f}", "computed")


def in_kib(value: float | None) -> Cell | None:
    return None if value is None else Cell(f"{value / 1024:,.0f}", "modelled")


def marked_table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[Cell | str | None]]
) -> TextTable:
    """A table whose headings say where the numbers come from; where these differ, the cells do."""
    marks = []
    for column in range(len(headings)):
        cells = [row[column] for row in rows]
        marks.append({cell.how for cell in cells if isinstance(cell, Cell)})
    output = table(
        title,
        [
            f"{heading}, {LETTERS[min(mark)]}" if len(mark) == 1 else heading
            for heading, mark in zip(headings, marks, strict=True)
        ],
    )
    for row in rows:
        texts = []
        for cell, mark in zip(row, marks, strict=True):
            if isinstance(cell, Cell):
                texts.append(f"{cell.text} {LETTERS[cell.how]}" if len(mark) > 1 else cell.text)
            else:
                texts.append(cell or "-")
        output.add_row(*texts)
    return output


CACHE_HEADINGS = (
    *("cache", "KiB", "% of\nall", "objects", "in use", "used\n%", "bytes\neach", "real\nbytes"),
    *("objects\na slab", "order\n(KiB)", "CPU count", "free\nKiB", "ends\nKiB", "padding\nKiB"),
)


def order_cell(answers: Answers, fact: Facts) -> Cell | None:
    order = order_of(fact, answers.page_bytes)
    if fact.slab is None:
        return None
    kib = f"({fact.slab.value / 1024:,.0f})"
    return Cell(f"{order.value:.0f} {kib}" if order else kib, "computed")


def count_cell(answers: Answers, fact: Facts) -> Cell | None:
    """By which counts the cache has its slabs."""
    if answers.allocator != "SLUB" or not shape_of(fact, answers.page_bytes):
        return None
    rule = answers.fit.rule
    counts = counts_of(fact, answers.all_shapes, rule, answers.page_bytes, exact=is_exact(fact))
    every = len(counts) == len(COUNTS)
    return Cell("any" if every else words(counts) or "none", "computed")


def caches_table(answers: Answers, top: int) -> TextTable:
    whole = answers.total.value if answers.total else 0
    return marked_table(
        "caches by memory",
        CACHE_HEADINGS,
        [
            (
                printable(fact.name),
                shown(fact.total, 1024),
                in_percent(fact.total.value / whole if fact.total and whole else None),
                shown(fact.objects),
                shown(fact.active),
                in_percent(fact.use),
                shown(fact.stride),
                shown(fact.real),
                shown(fact.per_slab),
                order_cell(answers, fact),
                count_cell(answers, fact),
                shown(fact.free, 1024),
                shown(fact.tail, 1024),
                shown(fact.padding, 1024),
            )
            for fact in answers.facts[:top]
        ],
    )


def kernels_table(answers: Answers) -> TextTable:
    return marked_table(
        f"all caches under the policies of kernels, with {cell(answers.cpus)} CPUs",
        ("kernel", "slabs,\nKiB", "most in CPU\nlists, KiB", "most in\nsheaves, KiB"),
        [
            (one.kernel, in_kib(one.slabs), in_kib(one.cpu_lists), in_kib(one.sheaves))
            for one in answers.outcomes
        ],
    )


def shapes_row(answers: Answers, fact: Facts) -> list[Cell | str | None] | None:
    """A cache's slabs by both rules, its lists in two kernels, and its sheaf."""
    if answers.cpus is None or fact.stride is None:
        return None
    page, stride = answers.page_bytes, fact.stride.value
    row: list[Cell | str | None] = [printable(fact.name)]
    per_slab = 1
    for rule in RULES:
        slab = answers.shape(fact, rule, int(answers.cpus.value))
        if slab is None:
            return None
        per_slab = max(1, slab.objects)
        row.append(Cell(f"{slab.objects} in {slab.pages * page // 1024} KiB", "modelled"))
    for kernel in policies.KERNELS[:2]:
        row.append(Cell(f"{policies.list_slabs(kernel, stride, per_slab, page)}", "modelled"))
    row.append(Cell(f"{policies.sheaf_capacity(stride, page)}", "modelled"))
    return row


def shapes_table(answers: Answers, top: int) -> TextTable:
    first, second, *_, last = policies.KERNELS
    rows = [shapes_row(answers, fact) for fact in answers.facts[:top]]
    return marked_table(
        "slabs, lists and sheaves of a cache under the policies of kernels",
        (
            *("cache", f"slab\nfrom {first.versions[0]}", "slab\nfrom 6.7"),
            f"slabs of a CPU's\nlist, {first.versions[-1]}",
            f"slabs of a CPU's\nlist, {second.versions[0]}",
            f"objects of a\nsheaf, {last.name}",
        ),
        [row for row in rows if row],
    )


def mails_table(answers: Answers) -> TextTable:
    rows = []
    for mail in answers.mails:
        change = None
        if mail.before and mail.after is not None:
            change = Cell(f"{100 * (mail.after / mail.before - 1):+.1f}%", "modelled")
        before, after = in_kib(mail.before), in_kib(mail.after)
        rows.append((mail.subject, mail.figure, before, after, change, mail.note))
    headings = ("mail", "memory", "before,\nKiB", "after,\nKiB", "change", "note")
    output = marked_table("the changes of the five mails", headings, rows)
    output.columns[1].justify = output.columns[5].justify = "left"
    output.columns[0].no_wrap = output.columns[5].no_wrap = False
    return output


def drawing(answers: Answers) -> Drawing | None:
    items = [
        Item(printable(fact.name), fact.total.value, fact.use, fact.reclaimed)
        for fact in answers.facts
        if fact.total
    ]
    title = "memory of each cache; the fainter part is free, green ones can be reclaimed"
    svg = treemap(title, items)
    return Drawing(title, svg) if svg else None


def table_report(answers: Answers, number: int, top: int) -> Report:
    source = answers.table
    report = Report(
        f"table-{number}",
        f"{printable(source.file)}, from line {source.line}: {source.form},"
        f" {len(source.caches)} caches",
        {},
        [LEGEND, total_line(answers)],
    )
    # The first thing to know is who holds the memory.
    report.parts += [
        *(holder_lines(answers) or largest_lines(answers)),
        *map(printable, notes(answers)),
        waste_line(answers),
        *debugging_lines(answers),
        *boot_lines(answers),
        *cpus_lines(answers),
    ]
    if picture := drawing(answers):
        report.parts.append(picture)
    report.parts.append(caches_table(answers, top))
    if top < len(answers.facts):
        report.parts.append(
            f"{len(answers.facts) - top} smaller caches: --top {len(answers.facts)} has them"
        )
    if source.form == OUT_OF_MEMORY:
        report.notes.append(OUT_OF_MEMORY_NOTE)
    if answers.outcomes:
        report.parts += [kernels_table(answers), shapes_table(answers, top), mails_table(answers)]
    elif answers.debugging.found and answers.allocator == "SLUB":
        report.notes.append("Debugged caches have no CPU lists and no sheaves in any kernel.")
    return report


def growth_report(found: Sequence[Growth], moments: int) -> Report:
    output = table("", ("cache", "KiB more", "objects in use, or KiB, at each moment", ""))
    for growth in found:
        output.add_row(
            printable(growth.name),
            f"{growth.grown_bytes / 1024:,.0f} c",
            " ".join(f"{count:,.0f} r" for count in growth.objects),
            "can be reclaimed" if growth.reclaimed else "grows like a leak",
        )
    return Report(
        "growth",
        f"{moments} moments: {len(found) or 'no'} caches grow without ever shrinking",
        {},
        [output] if found else [],
    )


def unread_runs(reading: Reading) -> list[list[Unread]]:
    """Lines in a row with a common reason, as those of a mail around its table."""
    runs: list[list[Unread]] = []
    for one in reading.unread:
        last = runs[-1][-1] if runs else None
        if last and one.follows and (one.file, one.reason) == (last.file, last.reason):
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs


def run_line(run: Sequence[Unread]) -> str:
    first, last = run[0], run[-1]
    if len(run) == 1:
        # Of a packed file no line was seen.
        place = f":{first.line}" if first.line else ""
        return f"{printable(first.file)}{place}: {first.reason}"
    return f"{printable(first.file)}:{first.line}-{last.line}: {first.reason} ({len(run)} lines)"


def unread_report(reading: Reading, limit: int | None) -> Report:
    runs = unread_runs(reading)
    lines = [run_line(run) for run in runs[:limit]]
    left = sum(map(len, runs)) - sum(map(len, runs[:limit]))
    if left:
        lines.append(f"and {left} more, which --json has")
    count = len(reading.unread)
    return Report("unread", f"{count} line{'' if count == 1 else 's'} not read", {}, list(lines))


def moments_of(answers: Sequence[Answers]) -> list[Answers]:
    """The tables of the form that most have, in the order given."""
    forms = [one.table.form for one in answers]
    return [one for one in answers if one.table.form == max(forms, key=forms.count)]


def show_heap_profiles(
    profiles: Sequence[HeapProfile], *, top: int, json_file: Path | None, html_file: Path | None
) -> None:
    """Of other allocators: packages that tables do not need name functions and replay objects."""
    need_extra("profile")
    need_extra("lab")
    from kmem.explain.heap.show import show_profiles

    show_profiles(profiles, top=top, json_file=json_file, html_file=html_file)


def show(
    files: Sequence[Path],
    machine: Machine,
    *,
    top: int,
    json_file: Path | None,
    html_file: Path | None,
) -> None:
    profiles, contents = profiles_among(files)
    if profiles:
        show_heap_profiles(profiles, top=top, json_file=json_file, html_file=html_file)
        return
    build(orders.TOOL)
    reading = read_files(files, contents)
    answers = [answer(one, machine) for one in reading.tables]
    moments = moments_of(answers)
    found = growths([{fact.name: fact for fact in one.facts} for one in moments])
    reports = [table_report(one, number, top) for number, one in enumerate(answers, 1)]
    if len(moments) > 1:
        reports.append(growth_report(found, len(moments)))
    unread = bool(reading.unread)
    try:
        write_json(json_file, document(answers, found, reading))
        write_page(html_file, "kmem explain", reports + [unread_report(reading, None)] * unread)
    finally:  # a full disk must not take the figures
        console = wide_console()
        for report in reports + [unread_report(reading, UNREAD_SHOWN)] * unread:
            print_report(report, console)
