# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The mails that the experiments stand beside: their public archives, and their tables."""

import csv
from dataclasses import dataclass
from pathlib import Path

MAIL = Path(__file__).parent / "mail"
ARCHIVE = "https://lore.kernel.org/all"


@dataclass(frozen=True)
class Mail:
    """A mail with its place in the archive, and the experiments that repeat its measurements."""

    subject: str
    author: str
    date: str
    message_id: str
    experiments: tuple[str, ...]  # names of commands of `kmem lab`

    @property
    def address(self) -> str:
        return f"{ARCHIVE}/{self.message_id}/"


MAILS = (
    Mail(
        "mm, slub: change percpu partial accounting from objects to pages",
        "Vlastimil Babka",
        "12 October 2021",
        "20211012134651.11258-1-vbabka@suse.cz",
        ("lists", "cpu-partial"),
    ),
    Mail(
        "[RFC PATCH] greatly reduce SLOB external fragmentation",
        "Matt Mackall",
        "9 January 2008",
        "1199906151.6245.57.camel@cinder.waste.org",
        ("slob",),
    ),
    Mail(
        "[PATCH V2 10/11] mm: new API kfree_bulk() for SLAB+SLUB allocators",
        "Jesper Dangaard Brouer",
        "12 January 2016",
        "20160112151552.31725.9733.stgit@firesoul",
        ("bulk",),
    ),
    Mail(
        "[PATCH v5 0/9] slub: Delay freezing of CPU partial slabs",
        "Chengming Zhou",
        "2 November 2023",
        "20231102032330.1036151-1-chengming.zhou@linux.dev",
        ("freeze",),
    ),
    Mail(
        "[RFC PATCH v0] mm/slub: Let number of online CPUs determine the slub page order",
        "Bharata B Rao",
        "18 November 2020",
        "20201118082759.1413056-1-bharata@linux.ibm.com",
        ("order",),
    ),
)


def mails_of(experiment: str) -> list[Mail]:
    return [mail for mail in MAILS if experiment in mail.experiments]


def read_mail(name: str) -> list[dict[str, str]]:
    """The rows of a table of a mail."""
    with (MAIL / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))
