# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab all`: every experiment in turn, in a single report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from kmem.common.console import wide_console
from kmem.common.errors import KmemError
from kmem.common.files import write_json
from kmem.common.tree import build
from kmem.lab.ask import QUESTIONS
from kmem.lab.bulk import bulk_report
from kmem.lab.cpu_partial import cpu_partial_report
from kmem.lab.freeze import freeze_report
from kmem.lab.kernels import KERNELS, kernels_report
from kmem.lab.lists import lists_report
from kmem.lab.orders import order_report
from kmem.lab.page import write_page
from kmem.lab.questions import question_report
from kmem.lab.report import Report, print_report, say
from kmem.lab.scale import scale_report
from kmem.lab.sheaves import sheaves_report
from kmem.lab.slob import slob_report

# Functions that make the reports; an experiment that takes long has a quick form.
EXPERIMENTS: dict[str, Callable[[bool], Report]] = {
    "lists": lambda quick: lists_report(),
    "order": lambda quick: order_report(table_only=quick),
    "kernels": lambda quick: kernels_report(KERNELS, quick=quick),
    "scale": lambda quick: scale_report(quick=quick),
    "cpu-partial": lambda quick: cpu_partial_report(quick=quick),
    "freeze": lambda quick: freeze_report(quick=quick),
    "slob": lambda quick: slob_report(quick=quick),
    "sheaves": lambda quick: sheaves_report(quick=quick),
    "bulk": lambda quick: bulk_report(rounds=30 if quick else 60),
    **{
        f"ask-{name}": lambda quick, question=question: question_report(  # type: ignore[misc]
            question, quick=quick, seed=1
        )
        for name, question in QUESTIONS.items()
    },
}


def show_all(*, quick: bool, json_file: Path | None, html_file: Path | None) -> None:
    build()
    reports: list[Report] = []
    status = Console(stderr=True)
    for name, make in EXPERIMENTS.items():
        if status.is_terminal:
            say(status, f"{name} ({len(reports) + 1} of {len(EXPERIMENTS)})")
        reports.append(make(quick))
    try:
        write_json(json_file, {report.name: report.document for report in reports})
        write_page(html_file, "kmem lab all", reports)
    finally:  # a full disk must not take the figures
        console = wide_console()
        for report in reports:
            console.rule(report.name)
            print_report(report, console)
    failures = [report.failure for report in reports if report.failure]
    if failures:
        raise KmemError("; ".join(failures))
