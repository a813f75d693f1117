# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem explain PID`: the answers about a running process as text, as JSON and as a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table as TextTable

from kmem.common.console import wide_console
from kmem.common.files import write_json
from kmem.common.text import printable
from kmem.explain.document import number
from kmem.explain.process.advice import Advice, advise, least_of, paragraph
from kmem.explain.process.aged import aged_document, aged_tables
from kmem.explain.process.figures import Process, read_process
from kmem.explain.process.holders import SEVERAL_SIZES, Samples, Site, holders, samples_of
from kmem.explain.process.predict import (
    Replayed,
    Saving,
    Trim,
    predict_classes,
    predict_orders,
    predict_trim,
)
from kmem.explain.process.shares import (
    PARTS,
    TOTALS,
    Explained,
    Totals,
    explain_caches,
    totals_of,
)
from kmem.explain.show import LEGEND, cell, percent
from kmem.explain.table import Figure
from kmem.explain.treemap import Item, treemap
from kmem.lab.page import Drawing, write_page
from kmem.lab.report import Report, print_report, table
from kmem.live.registry.find import open_process
from kmem.live.tables import word

KIB = 1024.0
TITLES = {
    "slabs": "slabs of caches",
    "large": "large blocks",
    "other": "the library's own pages",
    "free_pages": "free pages, not given back yet",
    "huge": "huge blocks",
    "huge_kept": "freed huge blocks, kept for reuse",
    "hardened": "hardened blocks",
    "asked": "in use, as asked for",
    "rounding": "in use, behind what was asked for",
    "sheaves": "free in sheaves, stocks and barns",
    "of_cpus": "free on CPU slabs and CPU partial lists",
    "partial": "free in partial slabs of nodes",
    "tails": "ends of slabs",
    "unsplit": "shared by caches of engine slob, not split",
}
CACHE_HEADS = {
    "slabs": "slabs",
    "asked": "asked",
    "rounding": "round",
    "sheaves": "sheaves",
    "of_cpus": "cpus",
    "partial": "partial",
    "tails": "ends",
    "given_back": "back",
}
SLEEPS = (
    "The process has passed no refill or drain, as while it sleeps or while sheaves serve all its"
    " calls, or its library is older: it did not say what is in sheaves, on CPU lists and free"
    " inside slabs. So free objects of all slabs stand as partial, and there is no"
    " prediction of a trim and of smaller slabs."
)
NO_SAMPLES = (
    "no samples: --seconds N takes some of what is allocated meanwhile, and"
    " `kmem run --set profile_interval=64K` of everything"
)


@dataclass(frozen=True)
class Answers:
    """All that is said of a process."""

    process: Process
    totals: Totals
    caches: list[Explained]
    samples: Samples
    sites: dict[int, list[Site]]
    trim: Trim
    orders: list[Saving]
    classes: Replayed
    advice: list[Advice]

    def sum_of(self, part: str) -> Figure | None:
        """A share of all caches; modelled if the share of a cache is."""
        known = [getattr(one.shares, part) for one in self.caches]
        found = [figure for figure in known if figure is not None]
        if not found:
            return None
        modelled = any(figure.how == "modelled" and figure.value for figure in found)
        return Figure(sum(figure.value for figure in found), "modelled" if modelled else "computed")


def answer(process: Process, samples: Samples) -> Answers:
    caches, totals = explain_caches(process), totals_of(process)
    sites = holders(samples, caches)
    trim = predict_trim(process, caches, totals)
    orders = predict_orders(process, caches)
    classes = predict_classes(process, caches, totals)
    advice = advise(process, totals, caches, sites, trim=trim, orders=orders, classes=classes)
    return Answers(process, totals, caches, samples, sites, trim, orders, classes, advice)


def heap_table(answers: Answers) -> TextTable:
    output = table("the heap", ("bytes", "KiB", "%"))
    held = answers.totals.held
    for name in TOTALS:
        figure = getattr(answers.totals, name)
        if not figure.value:
            continue
        output.add_row(TITLES[name], cell(figure, KIB), percent(figure, held))
        if name != "slabs":
            continue
        for part in PARTS:
            share = answers.sum_of(part)
            if share is None or (part == "unsplit" and not share.value):
                continue
            output.add_row(f"  {TITLES[part]}", cell(share, KIB), percent(share, held))
    output.add_row("all that it holds", cell(held, KIB), percent(held, held), end_section=True)
    return output


def caches_table(answers: Answers, top: int) -> TextTable:
    heads = ("cache", "objects", "in use", "size", *(CACHE_HEADS[name] for name in CACHE_HEADS))
    title = (
        "caches, in KiB, size in bytes; asked to ends: the rows of the heap above;"
        " back: pages of slabs given back"
    )
    output = table(title, heads)
    for one in answers.caches[:top]:
        output.add_row(
            word(one.name),
            f"{one.cache.objects:,} r",
            cell(one.live),
            f"{one.cache['slab_size']:,} r",
            *(cell(getattr(one.shares, name), KIB) for name in CACHE_HEADS),
        )
    return output


def worst_first(answers: Answers) -> list[Explained]:
    """Caches with the most free memory in slabs, where somebody knows the sites."""
    return sorted(
        (one for one in answers.caches if one.birth in answers.sites),
        key=lambda one: -(one.shares.partial.value + one.shares.tails.value),
    )


def sites_table(answers: Answers, top: int) -> TextTable:
    output = table(
        f"call sites that hold the last objects, by {answers.samples.source}",
        ("cache", "KiB held", "objects", "call site, and its callers"),
    )
    output.columns[3].justify = "left"
    output.columns[3].no_wrap = False
    rows = [(word(one.name), answers.sites[one.birth]) for one in worst_first(answers)[:top]]
    if mixed := answers.sites.get(SEVERAL_SIZES):
        rows.append(("several sizes", mixed))
    for name, sites in rows:
        for count, site in enumerate(sites):
            calls = printable(" < ".join(site.calls[:4]))
            output.add_row(
                name if not count else "", cell(site.bytes, KIB), cell(site.objects), calls
            )
    return output


def back_rows(answers: Answers) -> list[tuple[str, Figure | None, str]]:
    trim = answers.trim
    rows: list[tuple[str, Figure | None, str]] = [
        ("kmem trim", trim.total, "the sum of the next four"),
        ("  of slabs", trim.slabs, "empty slabs, and pages in which nothing is in use"),
        (
            "  of sheaves",
            trim.sheaves,
            "pages whose last objects lie in sheaves",
        ),
        ("  of free pages", trim.free_pages, "free pages not given back since their use"),
        ("  of huge blocks", trim.huge_kept, "freed mappings that are kept"),
    ]
    rows += [(saving.option, saving.bytes, saving.how) for saving in answers.orders]
    if answers.classes.saving:
        saving = answers.classes.saving
        rows.append((saving.option, saving.bytes, f"{saving.interval}, by a {saving.how}"))
    return rows


def back_table(answers: Answers) -> TextTable:
    output = table("what would come back, or would not be there", ("by", "KiB", "how"))
    output.columns[2].justify = "left"
    output.columns[2].no_wrap = False
    for name, figure, how in back_rows(answers):
        output.add_row(name, cell(figure, KIB), how)
    return output


def drawing(answers: Answers) -> Drawing | None:
    items = [
        Item(
            word(one.name),
            one.cache.slab_bytes,
            min(1.0, one.live.value * one.cache["slab_size"] / one.cache.slab_bytes),
            False,
        )
        for one in answers.caches
    ]
    title = "slabs of each cache; the fainter part is free"
    svg = treemap(title, items)
    return Drawing(title, svg) if svg else None


def report_of(answers: Answers, top: int) -> Report:
    process = answers.process
    report = Report(
        f"process-{process.number}",
        f"process {process.number} {process.command} on libkmem {process.release}: it holds"
        f" {cell(answers.totals.held, KIB)} KiB; resident with all else are"
        f" {process.resident_bytes / KIB:,.0f} r KiB",
        {},
        [LEGEND, heap_table(answers)],
    )
    if picture := drawing(answers):
        report.parts.append(picture)
    if answers.caches:
        report.parts.append(caches_table(answers, top))
    if top < len(answers.caches):
        report.parts.append(
            f"{len(answers.caches) - top} smaller caches: --top {len(answers.caches)} has them"
        )
    report.parts.append(sites_table(answers, top) if answers.sites else NO_SAMPLES)
    if answers.samples.ages is not None:
        report.parts += aged_tables(answers.samples.rows, answers.samples.ages, top)
    report.parts.append(back_table(answers))
    if answers.classes.reason:
        report.parts.append(f"no other class table was tried: {answers.classes.reason}")
    if not process.asked.answered:
        report.notes.append(SLEEPS)
    if process.hardened_bytes:
        report.notes.append("What a trim gives back of hardened blocks is not known.")
    if process.missing:
        report.notes.append(f"{process.missing} records found no room in the registry.")
    report.parts.append(paragraph(answers.advice, answers.trim))
    return report


def cache_document(answers: Answers, one: Explained) -> dict[str, Any]:
    cache = one.cache
    return {
        "name": word(cache.name),
        "engine": str(cache.fields["engine"]),
        "objects": number(Figure(cache.objects, "read")),
        "in_use": number(one.live),
        "object_bytes": number(Figure(cache["object_size"], "read")),
        "stride_bytes": number(Figure(cache["slab_size"], "read")),
        "objects_per_slab": number(Figure(cache["objs_per_slab"], "read")),
        "pages_per_slab": number(Figure(cache.pages_per_slab, "read")),
        **{
            f"{name}_bytes": number(getattr(one.shares, name)) for name in (*CACHE_HEADS, "unsplit")
        },
        "due_bytes": number(one.due),
        "sites": [site_document(site) for site in answers.sites.get(one.birth, [])],
    }


def site_document(site: Site) -> dict[str, Any]:
    return {
        "calls": list(site.calls),
        "bytes": number(site.bytes),
        "objects": number(site.objects),
    }


def saving_document(saving: Saving) -> dict[str, Any]:
    said = {"option": saving.option, "bytes": number(saving.bytes), "computed_by": saving.how}
    off = Figure(round(saving.off_bytes), "modelled") if saving.off_bytes else None
    return said | {"off_bytes": number(off)}


def document(answers: Answers) -> dict[str, Any]:
    process, trim, classes = answers.process, answers.trim, answers.classes
    return {
        "process": {
            "pid": process.number,
            "command": process.command,
            "release": process.release,
            "options": process.options,
            "resident_bytes": number(Figure(process.resident_bytes, "read")),
            "answered": process.asked.answered,
        },
        "heap": {
            f"{name}_bytes": number(getattr(answers.totals, name)) for name in ("held", *TOTALS)
        },
        "slabs": {f"{name}_bytes": number(answers.sum_of(name)) for name in PARTS},
        "caches": [cache_document(answers, one) for one in answers.caches],
        "samples": answers.samples.source or None,
        "sites_of_several_sizes": [
            site_document(site) for site in answers.sites.get(SEVERAL_SIZES, [])
        ],
        **aged_document(answers.samples.rows, answers.samples.ages),
        "trim": {
            "total_bytes": number(trim.total),
            "slabs_bytes": number(trim.slabs),
            "sheaves_bytes": number(trim.sheaves),
            "free_pages_bytes": number(trim.free_pages),
            "huge_kept_bytes": number(trim.huge_kept),
        },
        "orders": [saving_document(saving) for saving in answers.orders],
        "classes": {
            "saving": saving_document(classes.saving) if classes.saving else None,
            "reason": classes.reason or None,
            "slabs_bytes": number(classes.slabs),
            "replayed_bytes": number(classes.model),
        },
        "advice": {
            "least_bytes": number(Figure(least_of(answers.totals), "computed")),
            "text": paragraph(answers.advice, answers.trim),
            "items": [
                {"option": one.option, "text": one.text, "saving_bytes": number(one.saving)}
                for one in answers.advice
            ],
        },
    }


def show_process(
    process: int,
    *,
    seconds: float,
    top: int,
    json_file: Path | None,
    html_file: Path | None,
) -> None:
    with open_process(process, writable=True) as registry:
        before = read_process(registry)
        samples = samples_of(registry, before, seconds)
        found = read_process(registry) if seconds else before
    answers = answer(found, samples)
    report = report_of(answers, top)
    try:
        write_json(json_file, document(answers))
        write_page(html_file, f"kmem explain {process}", [report])
    finally:  # a full disk must not take the figures
        print_report(report, wide_console())
