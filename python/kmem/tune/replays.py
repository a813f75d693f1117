# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Replays of option sets at the place that was chosen, each set once."""

import json
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from kmem.common.errors import KmemError
from kmem.common.signals import handle
from kmem.common.spread import run_program
from kmem.common.text import printable
from kmem.replay.tool import TOOLS, reason_of
from kmem.tune.search import Search, ratios_of
from kmem.tune.study import Trial

EXIT_OF_REPLAY = 2  # at most, with a line that has the reason


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


class Replays:
    """Option sets in, figures out; each set is replayed once."""

    def __init__(
        self, search: Search, pool: ThreadPoolExecutor, answers: Answers, known: Sequence[Trial]
    ) -> None:
        self.search = search
        self.pool = pool
        self.answers = answers
        self.defaults = next((trial.figures for trial in known if trial.number == 0), None)
        self.found = {trial.line: (trial.ratios, trial.figures) for trial in known}
        self.refused: set[str] = set()  # option sets that the tool does not accept

    def replay(self, options: str) -> dict[str, Any]:
        """Documents of the replays; or the line that says why there are none.

        Raises KmemError if replays cannot run there, whatever the options.
        """
        documents = []
        for trace in self.search.traces:
            done = run_program([TOOLS[4], trace, *self.search.arguments(options)])
            self.search.check_unchanged()
            *messages, _ = done.messages.splitlines() or [""]
            if done.status < 0 or done.status > EXIT_OF_REPLAY:
                # Killed, or not started: a missing library, too little memory.
                raise KmemError(
                    f"tune: replay ended with status {done.status}: {done.messages.strip()}"
                )
            if done.status != 0 or messages:
                text = next(filter(None, done.messages.splitlines()), "replay failed")
                # A replay that runs complains only about its options.
                return {"error": reason_of(text), "refused": done.status != 1}
            documents.append(dict(json.loads(done.output)))
        return {"documents": documents}

    def keep(self, options: str, answer: Mapping[str, Any]) -> None:
        if "error" in answer:
            self.found[options] = (None, answer["error"])
            if answer["refused"]:
                self.refused.add(options)
            return
        figures = self.search.figures(answer["documents"])
        if self.defaults is None:
            self.defaults = figures
        for one in self.defaults:
            if one["modelled_ns"] == 0 or one["memory_bytes"] == 0:
                self.found[options] = (None, f"{printable(one['trace'])} has nothing to replay")
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
        futures: dict[Future[dict[str, Any]], str] = {
            self.pool.submit(self.replay, one): one for one in missing
        }
        try:
            for future in self.answers.to(futures):
                self.keep(futures[future], future.result())
                yield futures[future]
        except (OSError, CancelledError) as error:
            raise KmemError(f"tune: a replay failed: {error}") from None
        finally:
            for future in futures:
                future.cancel()
