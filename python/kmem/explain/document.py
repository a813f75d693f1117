# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The result for --json: every number with the word read, computed or modelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kmem.explain.answers import Answers
from kmem.explain.facts import Facts
from kmem.explain.leaks import Growth
from kmem.explain.notes import notes
from kmem.explain.policies import KERNELS, cpu_partial, list_slabs, sheaf_capacity
from kmem.explain.shapes import order_of
from kmem.explain.table import Figure, Reading


def number(figure: Figure | None) -> dict[str, float | str] | None:
    if figure is None:
        return None
    value = figure.value
    whole = int(value) if float(value).is_integer() else round(value, 4)
    return Figure(whole, figure.how).as_json()


def modelled(value: float | None) -> dict[str, float | str] | None:
    return number(Figure(value, "modelled")) if value is not None else None


FIGURES = {
    "total_bytes": "total",
    "objects": "objects",
    "active": "active",
    "stride_bytes": "stride",
    "object_bytes": "real",
    "objects_per_slab": "per_slab",
    "slab_bytes": "slab",
    "slabs": "slabs",
    "free_bytes": "free",
    "end_of_slab_bytes": "tail",
    "padding_bytes": "padding",
}


def kernels_of(answers: Answers, fact: Facts) -> list[dict[str, Any]]:
    """The slabs, lists and sheaves of a cache under each kernel."""
    if answers.cpus is None or fact.stride is None:
        return []
    stride, page = fact.stride.value, answers.page_bytes
    rows = []
    for kernel in KERNELS:
        slab = answers.shape(fact, kernel.order_rule, int(answers.cpus.value))
        if slab is None:
            continue
        lists = list_slabs(kernel, stride, max(1, slab.objects), page)
        plain = not answers.debugging.found
        rows.append(
            {
                "kernels": list(kernel.versions),
                "objects_per_slab": modelled(slab.objects),
                "order": modelled(slab.order),
                "cpu_partial": modelled(cpu_partial(stride, page, kernel.objects))
                if kernel.cpu_lists and plain
                else None,
                "most_slabs_of_a_cpu_list": modelled(lists) if kernel.cpu_lists and plain else None,
                "sheaf_capacity": modelled(sheaf_capacity(stride, page))
                if kernel.sheaves and plain
                else None,
            }
        )
    return rows


def cache_document(answers: Answers, fact: Facts) -> dict[str, Any]:
    return {
        "name": fact.name,
        "line": fact.cache.line,
        **{name: number(getattr(fact, attribute)) for name, attribute in FIGURES.items()},
        "order": number(order_of(fact, answers.page_bytes)),
        "reclaimed": fact.reclaimed,
        "kernels": kernels_of(answers, fact),
    }


def printed_document(answers: Answers) -> dict[str, Any] | None:
    """A total that the report prints, beside the sum of the caches that it counts."""
    printed = answers.printed_total()
    if not printed:
        return None
    return {
        "name": printed.name,
        "bytes": {"value": printed.printed, "how": "read"},
        "of_these_caches": {"value": round(printed.ours), "how": "computed"},
    }


def boot_document(answers: Answers) -> dict[str, Any] | None:
    """What SLUB's line of a boot says of the machine."""
    boot = answers.table.boot
    if not boot:
        return None
    return {
        "cpus": {"value": boot.cpus, "how": "read"},
        "nodes": {"value": boot.nodes, "how": "read"},
    }


def cpu_fit_document(answers: Answers) -> dict[str, Any] | None:
    fit = answers.fit
    if not fit.caches:
        return None
    return {
        "order_rule": fit.rule,
        "counts": fit.text,
        "caches_that_fit": fit.fitting,
        "caches_that_tell": fit.told,
        "caches": fit.caches,
        "how": "computed",
    }


def debugging_document(answers: Answers) -> dict[str, Any]:
    return {
        "caches": [
            {"name": name, "stride_bytes": number(stride), "object_bytes": number(real)}
            for name, stride, real in answers.debugging.inflated
        ],
        "least_extra_bytes_of_others": number(answers.debugging.extra_bytes),
    }


def holder_documents(answers: Answers) -> list[dict[str, Any]]:
    return [
        {
            "name": holder.name,
            "total_bytes": {"value": holder.bytes, "how": "computed"},
            "share": {"value": round(holder.share, 4), "how": "computed"},
            "reclaimed": holder.reclaimed,
        }
        for holder in answers.holders
    ]


def outcome_documents(answers: Answers) -> list[dict[str, Any]]:
    """What other kernels would make of the table."""
    return [
        {
            "kernels": outcome.kernel,
            "slab_bytes": modelled(outcome.slabs),
            "most_bytes_of_cpu_lists": modelled(outcome.cpu_lists),
            "most_bytes_of_sheaves": modelled(outcome.sheaves),
        }
        for outcome in answers.outcomes
    ]


def mail_documents(answers: Answers) -> list[dict[str, Any]]:
    return [
        {
            "subject": mail.subject,
            "figure": mail.figure,
            "before_bytes": modelled(mail.before),
            "after_bytes": modelled(mail.after),
            "note": mail.note,
        }
        for mail in answers.mails
    ]


def table_document(answers: Answers) -> dict[str, Any]:
    table = answers.table
    return {
        "file": table.file,
        "line": table.line,
        "form": table.form,
        "allocator": answers.allocator,
        "page_bytes": number(answers.page),
        "total_bytes": number(answers.total),
        "printed": printed_document(answers),
        "boot": boot_document(answers),
        "cpus": number(answers.cpus),
        "cpu_fit": cpu_fit_document(answers),
        "debugging": debugging_document(answers),
        "holders": holder_documents(answers),
        "notes": notes(answers),
        "kernels": outcome_documents(answers),
        "mails": mail_documents(answers),
        "caches": [cache_document(answers, fact) for fact in answers.facts],
    }


def document(
    answers: Sequence[Answers], growths: Sequence[Growth], reading: Reading
) -> dict[str, object]:
    return {
        "tables": [table_document(one) for one in answers],
        "growths": [
            {
                "name": growth.name,
                "objects": [{"value": count, "how": "read"} for count in growth.objects],
                "grown_bytes": {"value": growth.grown_bytes, "how": "computed"},
                "reclaimed": growth.reclaimed,
            }
            for growth in growths
        ],
        "unread": [
            {"file": fault.file, "line": fault.line, "reason": fault.reason}
            for fault in reading.unread
        ],
    }
