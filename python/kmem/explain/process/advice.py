# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Advice for a process's heap: options with their predicted savings, if these are worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kmem.explain.facts import computed
from kmem.explain.process.figures import Process
from kmem.explain.process.holders import Site
from kmem.explain.process.predict import Replayed, Saving, Trim
from kmem.explain.process.shares import Explained, Totals
from kmem.explain.table import Figure

LEAST_BYTES = 1 << 20  # savings below this, or below a share of the heap, are not worth a word
LEAST_SHARE = 0.05
PINNED_USE = 0.5  # of a cache's objects: with more in use it is not said to be pinned


@dataclass(frozen=True)
class Advice:
    """A thing to do, and what it is predicted to save."""

    option: str
    text: str
    saving: Figure


def least_of(totals: Totals) -> float:
    return max(LEAST_BYTES, LEAST_SHARE * totals.held.value)


def mebibytes(figure: Figure) -> str:
    return f"{figure.value / 2**20:,.1f} MiB"


def pinned_bytes(one: Explained) -> float:
    """Slab memory that its last objects keep: no trim gives it back, and fewer slabs would do."""
    shares, cache = one.shares, one.cache
    if not cache["objs_per_slab"] or cache.fields["engine"] != "slub":
        return 0.0
    needed = -(-int(one.live.value) // cache["objs_per_slab"]) * cache.slab_bytes
    needed //= max(cache.total("slabs"), 1)
    back = shares.given_back.value if shares.given_back else 0
    due = one.due.value if one.due else 0
    return max(cache.slab_bytes - needed - back - due, 0.0)


def is_pinned(one: Explained) -> bool:
    return one.cache.objects > 0 and one.live.value < PINNED_USE * one.cache.objects


def pinned(caches: Sequence[Explained], sites: dict[int, list[Site]], least: float) -> list[Advice]:
    found = []
    for one in caches:
        saving = computed(pinned_bytes(one))
        if saving is None or saving.value < least or not is_pinned(one):
            continue
        holding = sites.get(one.birth)
        of = f", most of them of {holding[0].calls[0]}," if holding else ""
        found.append(
            Advice(
                "kmem_cache_create",
                f"the {one.live.value:,.0f} last objects of {one.name}{of} pin slabs: in a cache"
                " of their own (kmem_cache_create), apart from objects that are freed, they need"
                f" up to {mebibytes(saving)} less",
                saving,
            )
        )
    return found


def best_order(orders: Sequence[Saving]) -> Saving | None:
    return max(orders, key=lambda saving: saving.bytes.value, default=None)


def trim_advice(process: Process, total: Figure) -> Advice:
    own = "reclaim_thread=on" not in process.options and process.threads == 1
    by_itself = "; option reclaim_thread=on does that whenever the program sleeps" if own else ""
    return Advice(
        "reclaim_thread=on" if own else "kmem trim",
        f"`kmem trim {process.number}` gives back {mebibytes(total)}{by_itself}",
        total,
    )


def advise(
    process: Process,
    totals: Totals,
    caches: Sequence[Explained],
    sites: dict[int, list[Site]],
    *,
    trim: Trim,
    orders: Sequence[Saving],
    classes: Replayed,
) -> list[Advice]:
    least = least_of(totals)
    found = []
    if trim.total and trim.total.value >= least:
        found.append(trim_advice(process, trim.total))
    order = best_order(orders)
    if order and order.bytes.value >= least:
        overlap = ", mostly the pages that a trim gives back" if trim.slabs else ""
        found.append(
            Advice(
                order.option,
                f"option {order.option} would have saved {mebibytes(order.bytes)}{overlap}",
                order.bytes,
            )
        )
    saving = classes.saving
    # A saving no larger than what it may be wrong by may be none.
    if saving and saving.bytes.value >= least and saving.least_bytes > 0:
        found.append(
            Advice(
                saving.option,
                f"option {saving.option} would have saved {mebibytes(saving.bytes)} by a replay,"
                f" {saving.interval}",
                saving.bytes,
            )
        )
    return found + pinned(caches, sites, least)


def paragraph(advice: Sequence[Advice], trim: Trim) -> str:
    unknown = [] if trim.total else ["what a trim would give back is not known"]
    if not advice:
        return "; ".join(["advice: none, as nothing that was predicted is worth it", *unknown])
    sentences = [one.text for one in advice] + unknown
    return f"advice: {'. '.join(text[0].upper() + text[1:] for text in sentences)}."
