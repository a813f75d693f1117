# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem explain` of heap profiles: the answers as text, as JSON and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table as TextTable

from kmem.common.console import wide_console
from kmem.common.files import write_json
from kmem.common.text import printable
from kmem.explain.document import modelled, number
from kmem.explain.heap.figures import PAGE_BYTES, TABLES, Answers, Sum, answer
from kmem.explain.heap.profile import JEMALLOC, HeapProfile
from kmem.explain.heap.sites import Site, sites_of
from kmem.explain.heap.slabs import Slabs, slabs_of
from kmem.explain.show import LEGEND, Cell, cell, in_percent, marked_table, shown, unread_report
from kmem.explain.table import Figure, Reading
from kmem.explain.treemap import Item, treemap
from kmem.lab.page import Drawing, write_page
from kmem.lab.report import Report, print_report

KIB = 1024.0
CALLERS = 3  # shown of a site
UNREAD_SHOWN = 40
JEMALLOC_NOTE = (
    "jemalloc writes what it gave, by its own size classes, and not what was asked for: rounding"
    " here is what libkmem's classes would add to that."
)
SLABS_NOTE = (
    "Slabs: by a replay of these objects alone, which frees nothing. These are the fewest; a"
    " program that frees has more, and sheaves and lists of CPUs come on top."
)
MEAN_NOTE = "All objects of a stack count with the stack's mean size."


@dataclass(frozen=True)
class Explained:
    """All that is said of a profile."""

    answers: Answers
    sites: list[Site]
    slabs: list[Slabs]

    @property
    def profile(self) -> HeapProfile:
        return self.answers.profile


def explain(profile: HeapProfile) -> Explained:
    answers = answer(profile)
    return Explained(
        answers, sites_of(answers.all.held, profile.mappings), slabs_of(answers.all.held)
    )


def sampling_lines(one: Explained) -> list[str]:
    """How the counts were made: of all objects, or of samples that are scaled up."""
    answers, profile = one.answers, one.profile
    stacks = f"{len(profile.stacks):,} r stack{'' if len(profile.stacks) == 1 else 's'}"
    if not profile.interval:
        return [f"sampling: none, every object was counted; {stacks}"]
    error = f"{100 * answers.all.error:.1f} c % either way, in 95 of 100 such profiles"
    every = f"a sample every {profile.interval:,} r bytes"
    if profile.is_scaled:
        return [
            f"sampling: {every}, scaled up by the writer; {stacks}; the bytes are off by {error}"
        ]
    objects = sum(stack.objects for stack in profile.stacks)
    size = sum(stack.bytes for stack in profile.stacks)
    return [
        f"sampling: {every}; {objects:,} c samples of {size / KIB:,.0f} c KiB in {stacks}",
        f"correction: an object of s bytes is sampled with probability 1 - exp(-s /"
        f" {profile.interval:,}), so bytes count {answers.all.bytes / size:.2f} m times and"
        f" objects {answers.all.objects / objects:.2f} m times; the bytes are off by {error}",
    ]


def sum_lines(one: Explained) -> list[str]:
    answers = one.answers
    whole = answers.all
    lines = [
        f"in use: {cell(answers.figure(whole.bytes, of_sum=True), KIB)} KiB in"
        f" {cell(answers.figure(whole.objects, of_sum=True))} objects",
        *sampling_lines(one),
    ]
    printed = one.profile.printed
    # jemalloc's sum is of counts that were corrected otherwise, so it is not the stacks' sum.
    if printed and one.profile.form != JEMALLOC:
        ours = sum(stack.bytes for stack in one.profile.stacks)
        share = f"{100 * ours / printed[1]:.1f} c %" if printed[1] else "- %"
        lines.append(
            f"the head has {printed[1] / KIB:,.0f} r KiB in {printed[0]:,} r objects, of which"
            f" these stacks are {share}"
        )
    rounding = "; ".join(
        f"{whole.rounding(table) / KIB:,.0f} m KiB"
        f" ({100 * whole.rounding(table) / whole.bytes:.1f} m %) with classes={table}"
        for table in TABLES
    )
    return [*lines, f"rounding by libkmem's classes: {rounding}"]


def slab_lines(one: Explained) -> list[str]:
    lines = []
    for slabs in one.slabs:
        in_slabs, alone = slabs.bytes / KIB, slabs.large_bytes / KIB
        share = f", a replay of {100 * slabs.share:.3g}% of the objects" if slabs.share < 1 else ""
        lines.append(
            f"on libkmem with classes={slabs.table}: {in_slabs + alone:,.0f} m KiB,"
            f" {in_slabs:,.0f} m in slabs and {alone:,.0f} m in blocks of their own{share}"
        )
    return lines


def amount(answers: Answers, part: Sum, value: float, unit: float = 1) -> Cell | None:
    return shown(answers.figure(value, of_sum=len(part.held) > 1), unit)


def rounding_cell(part: Sum, table: str) -> Cell | None:
    return shown(Figure(part.rounding(table), "modelled"), KIB)


def error_cell(answers: Answers, part: Sum) -> Cell | None:
    return in_percent(part.error) if answers.profile.interval else None


def class_name(size: int) -> str:
    if size <= max(TABLES["fine"]):
        return f"{size:,}"
    return f"{size // PAGE_BYTES:,} pages"


def sizes_table(one: Explained) -> TextTable:
    answers = one.answers
    return marked_table(
        "by size class of libkmem (classes=fine)",
        (
            *("class", "KiB", "% of\nall", "objects", "bytes\neach", "KiB off\nby %"),
            *("rounding,\nKiB", "with kernel's\nclasses, KiB"),
        ),
        [
            (
                class_name(size),
                amount(answers, part, part.bytes, KIB),
                in_percent(part.bytes / answers.all.bytes),
                amount(answers, part, part.objects),
                shown(Figure(part.mean, "computed")),
                error_cell(answers, part),
                rounding_cell(part, "fine"),
                rounding_cell(part, "kernel"),
            )
            for size, part in answers.sizes
        ],
    )


def site_text(site: Site) -> str:
    return printable(" < ".join(site.calls[: 1 + CALLERS]))


def sites_table(one: Explained, top: int) -> TextTable:
    answers = one.answers
    output = marked_table(
        "by call site",
        (
            *("KiB", "% of\nall", "objects", "bytes\neach", "KiB off\nby %", "rounding,\nKiB"),
            "call site, and its callers",
        ),
        [
            (
                amount(answers, site.sum, site.sum.bytes, KIB),
                in_percent(site.sum.bytes / answers.all.bytes),
                amount(answers, site.sum, site.sum.objects),
                shown(Figure(site.sum.mean, "computed")),
                error_cell(answers, site.sum),
                rounding_cell(site.sum, "fine"),
                site_text(site),
            )
            for site in one.sites[:top]
        ],
    )
    output.columns[0].justify, output.columns[6].justify = "right", "left"
    output.columns[6].no_wrap = False
    return output


def slabs_table(slabs: Slabs, top: int) -> TextTable:
    def cell_of(value: float, unit: float = 1) -> Cell | None:
        return shown(Figure(value, "modelled"), unit)

    return marked_table(
        f"slabs on libkmem, classes={slabs.table}",
        (
            *("name", "active\nobjects", "objects", "object\nbytes", "objects\na slab"),
            *("pages\na slab", "slabs", "KiB", "free\nKiB"),
        ),
        [
            (
                cache.name,
                cell_of(cache.objects),
                cell_of(cache.total_objects),
                cell_of(cache.stride_bytes),
                cell_of(cache.objects_per_slab),
                cell_of(cache.pages_per_slab),
                cell_of(cache.slabs),
                cell_of(cache.bytes, KIB),
                cell_of((cache.total_objects - cache.objects) * cache.stride_bytes, KIB),
            )
            for cache in slabs.caches[:top]
        ],
    )


def drawing(one: Explained) -> Drawing | None:
    title = "memory of each call site"
    items = [Item(printable(site.calls[0]), site.sum.bytes, None, False) for site in one.sites]
    svg = treemap(title, items, "call sites")
    return Drawing(title, svg) if svg else None


def report_of(one: Explained, count: int, top: int) -> Report:
    profile = one.profile
    report = Report(
        f"profile-{count}",
        f"{printable(profile.file)}: {profile.form}",
        {},
        [LEGEND, *sum_lines(one), *slab_lines(one)],
        [MEAN_NOTE, SLABS_NOTE],
    )
    if picture := drawing(one):
        report.parts.append(picture)
    report.parts += [sites_table(one, top), sizes_table(one)]
    if top < len(one.sites):
        left = len(one.sites) - top
        report.parts.append(f"{left} smaller call sites: --top {len(one.sites)} has them")
    report.parts += [slabs_table(slabs, top) for slabs in one.slabs]
    if profile.form == JEMALLOC:
        report.notes.append(JEMALLOC_NOTE)
    return report


def sum_document(answers: Answers, part: Sum) -> dict[str, Any]:
    error = Figure(part.error, "computed") if answers.profile.interval else None
    return {
        "bytes": number(answers.figure(part.bytes, of_sum=len(part.held) > 1)),
        "objects": number(answers.figure(part.objects, of_sum=len(part.held) > 1)),
        "bytes_error": number(error),
        "mean_bytes": number(Figure(part.mean, "computed")),
        "rounding_bytes": {table: modelled(part.rounding(table)) for table in TABLES},
    }


def slabs_document(slabs: Slabs) -> dict[str, Any]:
    return {
        "classes": slabs.table,
        "slab_bytes": modelled(slabs.bytes),
        "large_bytes": modelled(slabs.large_bytes),
        "replayed_share": {"value": round(slabs.share, 6), "how": "computed"},
        "caches": [
            {
                "name": cache.name,
                "active": modelled(cache.objects),
                "objects": modelled(cache.total_objects),
                "stride_bytes": modelled(cache.stride_bytes),
                "objects_per_slab": modelled(cache.objects_per_slab),
                "pages_per_slab": modelled(cache.pages_per_slab),
                "slabs": modelled(cache.slabs),
                "total_bytes": modelled(cache.bytes),
            }
            for cache in slabs.caches
        ],
    }


def profile_document(one: Explained) -> dict[str, Any]:
    answers, profile = one.answers, one.profile
    sampled = bool(profile.interval)
    raw = sampled and not profile.is_scaled
    return {
        "file": profile.file,
        "form": profile.form,
        "sampling": {
            "interval_bytes": number(Figure(profile.interval, "read")) if sampled else None,
            "scaled_by": ("writer" if profile.is_scaled else "kmem") if sampled else None,
            "samples": number(Figure(sum(s.objects for s in profile.stacks), "computed"))
            if raw
            else None,
            "sampled_bytes": number(Figure(sum(s.bytes for s in profile.stacks), "computed"))
            if raw
            else None,
        },
        "printed": {
            "objects": number(Figure(profile.printed[0], "read")),
            "bytes": number(Figure(profile.printed[1], "read")),
        }
        if profile.printed
        else None,
        "all": sum_document(answers, answers.all),
        "sizes": [
            {"class_bytes": modelled(size), **sum_document(answers, part)}
            for size, part in answers.sizes
        ],
        "sites": [
            {"calls": list(map(printable, site.calls)), **sum_document(answers, site.sum)}
            for site in one.sites
        ],
        "slabs": [slabs_document(slabs) for slabs in one.slabs],
    }


def document(explained: Sequence[Explained], reading: Reading) -> dict[str, Any]:
    return {
        "profiles": [profile_document(one) for one in explained],
        "unread": [
            {"file": fault.file, "line": fault.line, "reason": fault.reason}
            for fault in reading.unread
        ],
    }


def show_profiles(
    profiles: Sequence[HeapProfile], *, top: int, json_file: Path | None, html_file: Path | None
) -> None:
    explained = [explain(profile) for profile in profiles]
    reading = Reading(unread=[fault for profile in profiles for fault in profile.unread])
    reports = [report_of(one, count, top) for count, one in enumerate(explained, 1)]
    unread = bool(reading.unread)
    try:
        write_json(json_file, document(explained, reading))
        write_page(html_file, "kmem explain", reports + [unread_report(reading, None)] * unread)
    finally:  # a full disk must not take the figures
        console = wide_console()
        for report in reports + [unread_report(reading, UNREAD_SHOWN)] * unread:
            print_report(report, console)
