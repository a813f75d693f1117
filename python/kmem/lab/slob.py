# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab slob`: memory and time of SLOB with split page lists, on whole traces.

The mail that split the list took its figures once, after boot. This experiment looks at every trace
at many moments: with one list, two lists (the mail), three lists (the merged version), 2.6.24's two
faults, and the other back ends. `churn.py` makes a boot under the mail's conditions, and
`permutations.py` makes other possible runs of a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kmem.lab.report import Report, show_experiment
from kmem.lab.slob_figures import JUDGED_KIB
from kmem.lab.slob_plots import plots_of
from kmem.lab.slob_runs import CHURN, FULL, QUICK, make_document
from kmem.lab.slob_show import (
    conditions_table,
    gains_table,
    mail_table,
    pivot,
    spread_table,
    trace_table,
)
from kmem.lab.traces import named_traces

MAIL = "[RFC PATCH] greatly reduce SLOB external fragmentation"

NOTES = (
    "overhead: pages beyond the optimum of SLOB at the same moment, which is its allocated bytes,"
    " headers included, in whole pages, and the pages of large blocks; for the other back ends too,"
    " as the mail has it.",
    f"worst and mean: of the moments at which the optimum has at least {JUDGED_KIB} KiB."
    " full: pages without a free byte; fragment: a free block.",
    "2.6.24: a freed block is not merged with the one behind it if it becomes the first of its page"
    " (mended in the mail's first column), and the next search begins behind a page that got full.",
    "page scans: pages that could not serve, block scans: free blocks looked at.",
)


def slob_report(traces: Sequence[Path] = (), *, quick: bool = False, seed: int = 1) -> Report:
    named = named_traces(traces)
    document = make_document(named, QUICK if quick else FULL, seed)
    said = document["mail_overhead_percent"]
    parts = [trace_table(name, trace) for name, trace in document["traces"].items()]
    return Report(
        "slob",
        f"{MAIL}: one list {said['one']:.0f}% over the optimum, two lists {said['two']:.0f}%",
        document,
        [
            mail_table(document["traces"][CHURN]),
            conditions_table(document["conditions"]),
            gains_table(document["gains"]),
            *parts,
            pivot(
                "made-up boots, % over the optimum at the end, mean of the moments",
                document["churn"],
                "lists",
                ("large_bytes", "overlap"),
                ("large bytes", "overlap"),
            ),
            *(
                pivot(
                    f"two lists by their break in bytes, % over the optimum, {what}",
                    document["breaks"],
                    "break_bytes",
                    ("trace",),
                    ("trace",),
                    (figure,),
                )
                for what, figure in (
                    ("at the end", "overhead_percent"),
                    ("mean of the moments", "mean_overhead_percent"),
                )
            ),
            pivot(
                "by KiB of a page, % over the optimum at the end, mean of the moments",
                document["page_sizes"],
                "page_kib",
                ("trace", "lists"),
                ("trace", "lists"),
            ),
            spread_table(document["permutations"]),
        ],
        list(NOTES),
        plots_of(document),
    )


def show_slob(
    traces: Sequence[Path],
    *,
    quick: bool,
    seed: int,
    json_file: Path | None,
    html_file: Path | None,
) -> None:
    show_experiment(lambda: slob_report(traces, quick=quick, seed=seed), json_file, html_file)
