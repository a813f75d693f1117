# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Dask's workers replay option sets, each set once."""

import logging
import os
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import cloudpickle
import dask
from distributed import CancelledError, Client, KilledWorker, LocalCluster

from kmem.common.errors import KmemError
from kmem.common.signals import handle
from kmem.tune import worker as tune_worker
from kmem.tune.search import Search, ratios_of
from kmem.tune.study import Trial

SCHEDULER_SECONDS = 20  # to find it, and for its first worker


class Answers:
    """A queue of finished replays, and of signals that end the search.

    Python loses a KeyboardInterrupt where it has no caller to give it to, and Dask has functions
    called by the garbage collector. So once the search has begun, a signal goes into this queue,
    and is raised where the search takes its answers. A signal handler may put into a SimpleQueue at
    any moment.
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
        """Each future once, in the order in which they finish."""
        for future in futures:
            future.add_done_callback(self.queue.put)
        for _ in futures:
            future = self.queue.get()
            if future is None:
                raise KeyboardInterrupt
            yield future


@contextmanager
def workers(scheduler: str | None) -> Iterator[Client]:
    """Workers of a cluster, or threads of this process that each run a replay at a time."""
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
                dashboard_address=":0",  # any free port; None means the usual port
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
        self.refused: set[str] = set()  # option sets that the tool does not accept
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
        # The table of costs has no cost of anything that these options do.
        if any(one["modelled_ns"] == 0 for one in figures):
            self.found[options] = (None, "the costs model no time of it")
            return
        self.found[options] = (ratios_of(figures, self.defaults), figures)

    def run(self, wanted: Sequence[str]) -> Iterator[str]:
        """Replay the sets that are not known yet; yields each set as soon as it is known."""
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
