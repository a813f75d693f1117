# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab ask`: questions about sheaves that measurements of kernels do not answer today."""

from __future__ import annotations

from pathlib import Path

from kmem.common.errors import BadUsage
from kmem.lab import ask_capacity, ask_forks, ask_knee, ask_memory, ask_nodes, ask_rings
from kmem.lab.questions import question_report
from kmem.lab.report import show_experiment

QUESTIONS = {
    module.QUESTION.name: module.QUESTION
    for module in (ask_capacity, ask_rings, ask_nodes, ask_forks, ask_knee, ask_memory)
}


def show_question(
    name: str, *, quick: bool, seed: int, json_file: Path | None, html_file: Path | None
) -> None:
    if name not in QUESTIONS:
        raise BadUsage(f"lab ask: {name}: expected one of {', '.join(QUESTIONS)}")
    show_experiment(
        lambda: question_report(QUESTIONS[name], quick=quick, seed=seed), json_file, html_file
    )
