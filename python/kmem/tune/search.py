# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem tune`: searches the options that serve traces best, by replays on the simulated machine.

Optuna says what to try (kmem.tune.study), Dask's workers replay it (kmem.tune.worker). Time is
modelled time; memory is the pages in use at the peak, and the library's records.
"""

import hashlib
import json
import logging
import math
import os
import re
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import cloudpickle
import dask
from distributed import CancelledError, Client, KilledWorker, LocalCluster
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from kmem.common.console import wide_console
from kmem.common.errors import BadUsage, KmemError
from kmem.common.files import write_json
from kmem.common.signals import handle
from kmem.common.tree import build
from kmem.replay.costs import ASSUMED, read_costs
from kmem.replay.simulated import TOOLS, add_derived, check_options, tool_arguments
from kmem.traces.file import read_trace
from kmem.tune import worker as tune_worker
from kmem.tune.space import BY_ENGINE, COMMON, FIRST, entries, line
from kmem.tune.study import Asked, Study, Trial, ask, best, pareto, score

SCHEDULER_SECONDS = 20  # to find it, and for its first worker
PAGE_BYTES = 4096
WIDTH = 120  # columns; a narrower terminal wraps lines, a cut figure is worse

NOTE = (
    "time: modelled, with {costs} costs. memory: pages in use at the peak, and the library's"
    " records at the end. Both as ratios to the defaults{mean}. Check on this machine with"
    " kmem replay --real-time --compare."
)


class Interrupted(Exception):
    """The user ended the search; what was found is kept."""


@dataclass(frozen=True)
class Search:
    """What is searched; all of it is in the name of the study."""

    traces: tuple[Path, ...]
    contents: tuple[bytes, ...]
    tool: bytes
    goal: str
    seed: int
    batch: int
    options: str  # that every set has
    machine: Mapping[str, int | None]  # cpus, nodes, repeat
    costs: Mapping[str, float]

    def name(self) -> str:
        space = {"common": COMMON, "engines": BY_ENGINE, "first": FIRST}
        identity = {
            "traces": [hashlib.sha256(content).hexdigest() for content in self.contents],
            "tool": hashlib.sha256(self.tool).hexdigest(),
            "goal": self.goal,
            "seed": self.seed,
            "batch": self.batch,
            "options": self.options,
            "machine": dict(self.machine),
            "costs": dict(self.costs),
            "space": space,
        }
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        more = f" and {len(self.traces) - 1} more" if len(self.traces) > 1 else ""
        # A name of a file is bytes, SQLite takes text.
        first = os.fsencode(self.traces[0].name).decode(errors="replace")
        return f"{first}{more}, {self.goal}, seed {self.seed}, {digest[:16]}"

    def arguments(self, options: str) -> list[str]:
        machine = self.machine
        return tool_arguments(options, machine["cpus"], machine["nodes"], machine["repeat"])

    def figures(self, documents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """What is kept of a trial, for each trace."""
        kept = []
        for trace, document in zip(self.traces, documents, strict=True):
            add_derived(document, self.costs, ASSUMED)
            metadata = document["waste_bytes"]["metadata"]
            kept.append(
                {
                    "trace": trace.name,
                    "modelled_ns": document["modelled"]["ns"],
                    "peak_pages": document["peak"]["pages"],
                    "end_pages": document["end"]["pages"],
                    "metadata_bytes": metadata,
                    "memory_bytes": document["peak"]["pages"] * PAGE_BYTES + metadata,
                }
            )
        return kept


def ratios_of(
    figures: Sequence[Mapping[str, Any]], defaults: Sequence[Mapping[str, Any]]
) -> tuple[float, float]:
    """Time and memory over those of the defaults, as geometric means over traces."""

    def mean(name: str) -> float:
        logarithms = [
            math.log(one[name] / other[name]) for one, other in zip(figures, defaults, strict=True)
        ]
        return round(math.exp(sum(logarithms) / len(logarithms)), 6)

    return mean("modelled_ns"), mean("memory_bytes")


# ---- Workers ------------------------------------------------------------------------------------


class Answers:
    """
    What the search waits for: replays, and signals that end it. A KeyboardInterrupt is lost where
    Python has no caller to give it to, and Dask has the collector of garbage call back. So, once
    the search has begun, signals are put with the answers and raised where these are taken. A
    handler may put into a SimpleQueue, whatever it came between.
    """

    def __init__(self) -> None:
        self.queue: SimpleQueue[Any] = SimpleQueue()
        self.begun = False
        handle(self.interrupt, signal.SIGINT, signal.SIGTERM)

    def interrupt(self, *_: object) -> None:
        self.queue.put(None)
        if not self.begun:
            raise KeyboardInterrupt

    def to(self, futures: Collection[Any]) -> Iterator[Any]:
        """Each once, as they come."""
        for future in futures:
            future.add_done_callback(self.queue.put)
        for _ in futures:
            future = self.queue.get()
            if future is None:
                raise KeyboardInterrupt
            yield future


@contextmanager
def workers(scheduler: str | None) -> Iterator[Client]:
    """Those of a cluster, or threads of this process that each run one replay at a time."""
    for name in (
        "asyncio",
        "distributed",
        "distributed.scheduler",
        "distributed.worker",
        "tornado",
    ):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if scheduler is None:
        with (
            dask.config.set({"distributed.worker.memory.terminate": False}),
            LocalCluster(
                n_workers=1,
                threads_per_worker=len(os.sched_getaffinity(0)),
                processes=False,
                dashboard_address=":0",  # any that is free; None means the usual one
                memory_limit=0,
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client
        return
    try:
        client = Client(scheduler, timeout=SCHEDULER_SECONDS)
    except (OSError, ValueError, TimeoutError) as error:
        reason = str(error).splitlines()[0]
        raise KmemError(f"tune: --scheduler {scheduler}: no scheduler there: {reason}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=SCHEDULER_SECONDS)
        except TimeoutError:
            raise KmemError(f"tune: --scheduler {scheduler}: it has no workers") from None
        yield client


class Replays:
    """Option sets in, figures out; each set is replayed once."""

    def __init__(
        self, search: Search, client: Client, answers: Answers, known: Sequence[Trial]
    ) -> None:
        self.search = search
        self.client = client
        self.answers = answers
        self.defaults = next((trial.figures for trial in known if trial.number == 0), None)
        self.found = {trial.line: (trial.ratios, trial.figures) for trial in known}
        self.refused: set[str] = set()  # as no options at all
        cloudpickle.register_pickle_by_value(tune_worker)
        self.tool = client.scatter(search.tool, broadcast=True, hash=False)
        self.traces = [
            client.scatter(content, broadcast=True, hash=False) for content in search.contents
        ]

    def submit(self, options: str) -> Any:
        return self.client.submit(
            tune_worker.replay,
            self.tool,
            self.traces,
            self.search.arguments(options),
            pure=False,
        )

    def keep(self, options: str, answer: Mapping[str, Any]) -> None:
        if "error" in answer:
            self.found[options] = (None, answer["error"])
            if answer["refused"]:
                self.refused.add(options)
            return
        figures = self.search.figures(answer["documents"])
        if self.defaults is None:
            self.defaults = figures
        if any(one["modelled_ns"] == 0 or one["memory_bytes"] == 0 for one in self.defaults):
            self.found[options] = (None, "a trace has nothing to replay")
            return
        # By a table that has no cost of anything that these options do.
        if any(one["modelled_ns"] == 0 for one in figures):
            self.found[options] = (None, "the costs model no time of it")
            return
        self.found[options] = (ratios_of(figures, self.defaults), figures)

    def run(self, wanted: Sequence[str]) -> Iterator[str]:
        """Replays what is not known yet; gives each set as soon as it is known."""
        missing = list(dict.fromkeys(one for one in wanted if one not in self.found))
        for one in dict.fromkeys(wanted):
            if one in self.found:
                yield one
        futures = {self.submit(one): one for one in missing}
        try:
            for future in self.answers.to(futures):
                self.keep(futures[future], future.result())
                yield futures[future]
        except (OSError, RuntimeError, KilledWorker, CancelledError) as error:
            raise KmemError(f"tune: a worker failed: {error}") from None
        finally:
            self.client.cancel(list(futures))


# ---- The search ---------------------------------------------------------------------------------


def run_batch(replays: Replays, study: Study, batch: Sequence[Asked], progress: Any) -> None:
    """Every trial of the batch goes into the study as soon as its figures are there."""
    search = replays.search
    lines = {one.number: line(search.options, entries(one.params)) for one in batch}
    for options in replays.run(list(lines.values())):
        ratios, figures = replays.found[options]
        if batch[0].number == 0 and ratios is None:
            reason = re.sub("^(replay|kmem): ", "", figures)
            kind = BadUsage if options in replays.refused else KmemError
            raise kind(f"tune: the defaults cannot be replayed: {reason}")
        for one in batch:
            if lines[one.number] == options:
                study.add(
                    Trial(one.number, one.params, one.distributions, options, ratios, figures)
                )
                progress()


def run_search(replays: Replays, study: Study, trials: int, progress: Any) -> list[Trial]:
    """Trials 0 to `trials` - 1, those in the study included."""
    search = replays.search
    known = study.trials()
    # Without the defaults there are no ratios, so they are a batch of their own.
    for start in (0, *range(1, trials, search.batch)):
        count = search.batch if start else 1
        done = {trial.number for trial in known}
        wanted = set(range(start, min(start + count, trials))) - done
        if not wanted:
            continue
        before = [trial for trial in known if trial.number < start]
        asked = ask(
            before, start, count, options=search.options, goal=search.goal, seed=search.seed
        )
        run_batch(replays, study, [one for one in asked if one.number in wanted], progress)
        known = study.trials()
    return known[:trials]


def without_idle(replays: Replays, chosen: Trial) -> str:
    """The options of a trial without those that the goal does not need."""
    search = replays.search
    options = [one for one in entries(chosen.params)]
    found = replays.found[chosen.line][0]
    assert found is not None
    again = True
    while again:
        again = False
        shorter = [
            [one for one in options if one != left_out]
            for left_out in options
            if not left_out.startswith("engine=")
        ]
        for _ in replays.run([line(search.options, one) for one in shorter]):
            pass
        for one in shorter:
            ratios = replays.found[line(search.options, one)][0]
            if ratios is not None and score(ratios, search.goal) <= score(found, search.goal):
                options, found, again = one, ratios, True
                break
    return line(search.options, options)


# ---- The command --------------------------------------------------------------------------------


def row(trial: int | None, options: str, ratios: Any, figures: Any) -> dict[str, Any]:
    return {
        "trial": trial,
        "kmem_options": options,
        "time_ratio": ratios[0],
        "memory_ratio": ratios[1],
        "traces": figures,
    }


def as_document(
    search: Search, trials: Sequence[Trial], chosen: str, replays: Replays
) -> dict[str, Any]:
    """No clock's figure is in it: the same command gives the same document."""
    ratios, figures = replays.found[chosen]
    return {
        "goal": search.goal,
        "seed": search.seed,
        "options": search.options,
        "machine": dict(search.machine),
        "costs_ns": dict(search.costs),
        "trials": len(trials),
        "failed": [
            {"trial": trial.number, "kmem_options": trial.line, "reason": trial.figures}
            for trial in trials
            if trial.ratios is None
        ],
        "defaults": row(0, trials[0].line, trials[0].ratios, trials[0].figures),
        "pareto": [
            row(trial.number, trial.line, trial.ratios, trial.figures) for trial in pareto(trials)
        ],
        "chosen": row(None, chosen, ratios, figures),
    }


def show(document: Mapping[str, Any], costs_name: str) -> None:
    output = wide_console(WIDTH)
    table = Table(box=SIMPLE)
    for heading in ("trial", "time", "memory", "modelled ms", "MiB"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("options", overflow="fold")
    numbers = [one["trial"] for one in document["pareto"]]
    rows = [*document["pareto"]]
    if 0 not in numbers:
        rows.append(document["defaults"])

    def cells(one: Mapping[str, Any]) -> list[str]:
        nanoseconds = sum(figures["modelled_ns"] for figures in one["traces"])
        memory = sum(figures["memory_bytes"] for figures in one["traces"])
        return [
            f"{one['time_ratio']:.3f}",
            f"{one['memory_ratio']:.3f}",
            f"{nanoseconds / 1e6:,.2f}",
            f"{memory / (1 << 20):,.2f}",
        ]

    for one in rows:
        name = one["kmem_options"] or "(defaults)"
        table.add_row(str(one["trial"]), *cells(one), name)
    chosen = document["chosen"]
    table.add_section()
    table.add_row("chosen", *cells(chosen), chosen["kmem_options"] or "(defaults)")

    def say(text: str) -> None:
        output.print(text, highlight=False, markup=False, soft_wrap=True)

    failed = len(document["failed"])
    say(
        f"{document['trials']} trials, goal {document['goal']}, seed {document['seed']}"
        + (f"; {failed} failed, the first: {document['failed'][0]['reason']}" if failed else "")
    )
    output.print(table)
    mean = ", geometric means over the traces" if len(chosen["traces"]) > 1 else ""
    say(NOTE.format(costs=costs_name, mean=mean))
    say(f"KMEM_OPTIONS={chosen['kmem_options']}")


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
    for trace in traces:
        read_trace(trace)  # says what is wrong with it, where it has its name
    return Search(
        tuple(traces),
        tuple(trace.read_bytes() for trace in traces),
        TOOLS[4].read_bytes(),
        goal,
        seed,
        batch,
        options,
        machine,
        costs,
    )


def tune(
    traces: Sequence[Path],
    *,
    goal: str,
    trials: int,
    scheduler: str | None,
    study_file: Path,
    seed: int,
    batch: int,
    options: Sequence[str],
    machine: Mapping[str, int | None],
    costs_file: Path | None,
    json_file: Path | None,
) -> None:
    check_options(options)
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
        with workers(scheduler) as client, bar:
            answers.begun = True
            known = study.trials()
            task = bar.add_task("trials", total=trials, completed=min(len(known), trials))
            replays = Replays(search, client, answers, known)
            found = run_search(replays, study, trials, lambda: bar.advance(task))
            chosen = without_idle(replays, best(found, goal))
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted after {len(study.trials())} of {trials} trials, kept in {study_file};"
            " the same command goes on"
        ) from None
    document = as_document(search, found, chosen, replays)
    write_json(json_file, document)
    show(document, "assumed" if costs_file is None else str(costs_file))
