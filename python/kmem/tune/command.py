# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem tune`: searches the options that serve traces best, by replays on the simulated machine.

Optuna proposes option sets (study.py), and replays of them are spread (replays.py).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kmem.common.errors import BadUsage
from kmem.common.files import state_of, write_json
from kmem.common.spread import waiting_threads
from kmem.common.tree import build
from kmem.replay.costs import ASSUMED, read_costs
from kmem.replay.tool import TOOLS, entries_of, refuse_options
from kmem.traces.file import read_trace
from kmem.tune.replays import Answers, Replays
from kmem.tune.report import as_document, show
from kmem.tune.search import Search
from kmem.tune.study import Study, best
from kmem.tune.trials import run_search, without_idle


class Interrupted(Exception):
    """The user ended the search; its trials are kept."""


def make_search(
    traces: Sequence[Path],
    *,
    goal: str,
    seed: int,
    batch: int,
    options: str,
    machine: Mapping[str, int | None],
    costs: Mapping[str, float],
) -> Search:
    states = {file: state_of(file) for file in (*traces, TOOLS[4])}
    # The error has the file's name on this machine.
    programs = tuple(read_trace(trace).is_of_program for trace in traces)
    return Search(
        tuple(traces),
        states,
        tuple(trace.read_bytes() for trace in traces),
        programs,
        TOOLS[4].read_bytes(),
        goal,
        seed,
        batch,
        options,
        machine,
        costs,
    )


def refuse_process(search: Search, given: Mapping[str, float | None]) -> None:
    """Refuse figures of a process where a trace is of a kernel: no promise is a share of them."""
    for option, value in given.items():
        for trace, is_of_program in zip(search.traces, search.programs, strict=True):
            if value is not None and not is_of_program:
                raise BadUsage(
                    f"tune: {option}: {trace} is of a kernel, which has no process; expected traces"
                    " of programs"
                )


def tune(
    traces: Sequence[Path],
    *,
    goal: str,
    trials: int,
    study_file: Path,
    seed: int,
    batch: int,
    options: Sequence[str],
    machine: Mapping[str, int | None],
    costs_file: Path | None,
    resident_bytes: int | None,
    cpu_seconds: float | None,
    json_file: Path | None,
) -> None:
    refuse_options(options)
    # The search leaves alone what has a name here, and workers elsewhere do not have an @FILE.
    options = [entry for entry in entries_of(options) if entry]
    build()
    search = make_search(
        traces,
        goal=goal,
        seed=seed,
        batch=batch,
        options=",".join(options),
        machine=machine,
        costs=read_costs(costs_file or ASSUMED),
    )
    refuse_process(search, {"--resident": resident_bytes, "--cpu-seconds": cpu_seconds})
    study = Study(study_file, search.name())
    answers = Answers()
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("trials"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    try:
        with waiting_threads() as pool, bar:
            answers.begun = True
            known = study.trials()
            task = bar.add_task("trials", total=trials, completed=min(len(known), trials))
            replays = Replays(search, pool, answers, known)
            found = run_search(replays, study, trials, lambda: bar.advance(task))
            chosen = without_idle(replays, best(found, goal))
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted after {len(study.trials())} of {trials} trials, kept in {study_file};"
            " the same command goes on"
        ) from None
    document = as_document(search, found, chosen, replays, resident_bytes, cpu_seconds)
    try:
        write_json(json_file, document)
    finally:  # a full disk must not take the figures
        show(document, "assumed" if costs_file is None else str(costs_file))
