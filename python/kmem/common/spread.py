# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Many runs of programs at once: on the CPUs of this machine, or on the workers of a Dask cluster.

A command chooses the place with `spread_to`; its threads then wait for programs there with
`run_program`. A run's output does not depend on the place, and `run_all` keeps the results in
order, so a command's figures do not depend on it either.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rich.console import Console
from rich.progress import Progress

from kmem.common.errors import KmemError
from kmem.common.signals import killed_by_errors

if TYPE_CHECKING:
    from distributed import Client

SCHEDULER_SECONDS = 20  # to find it, and for its first worker
# Readers of traces look here for --memory; a worker has an environment of its own.
SENT_VARIABLES = ("KMEM_TRACE_MEMORY",)
STOPPED = "the runs were stopped"
WAITING_EACH = 2  # threads for each of a cluster's, so that its workers have the next run at hand

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Finished:
    """A run that has ended."""

    status: int
    output: str
    messages: str


class Place(Protocol):
    """Where programs run."""

    threads: int  # that wait for runs

    def start(self) -> None:
        """Programs may run, also after a stop."""

    def run(self, command: Sequence[str | Path]) -> Finished:
        """A Path among the words is the program, or a file that it reads."""

    def stop(self) -> None:
        """End all runs; each `run` that waits for one raises an error."""


class Here:
    """The CPUs of this machine."""

    def __init__(self) -> None:
        self.threads = len(os.sched_getaffinity(0))
        self.lock = threading.Lock()
        self.running: set[subprocess.Popen[str]] = set()
        self.stopped = False

    def start(self) -> None:
        with self.lock:
            self.stopped = False

    def run(
        self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> Finished:
        with killed_by_errors(
            lambda: subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",  # names of files are bytes
                env=environment,
            )
        ) as process:
            # Under the lock, so that no program goes on behind the back of stop().
            with self.lock:
                if self.stopped:
                    raise KmemError(STOPPED)
                self.running.add(process)
            try:
                output, messages = process.communicate()
            finally:
                with self.lock:
                    self.running.discard(process)
        return Finished(process.returncode, output, messages)

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
            for process in self.running:
                process.terminate()


class Cluster:
    """The workers of a Dask cluster; each file is sent to them once."""

    def __init__(self, client: Client, name: str) -> None:
        import cloudpickle

        from kmem.common import worker

        cloudpickle.register_pickle_by_value(worker)
        self.client = client
        self.name = name  # of the command, for messages
        self.threads = WAITING_EACH * max(1, sum(client.nthreads().values()))
        self.task = worker.run
        self.lock = threading.Lock()
        self.sent: dict[Path, Any] = {}
        self.running: set[Any] = set()
        self.stopped = False

    def start(self) -> None:
        with self.lock:
            self.stopped = False

    def send(self, file: Path) -> Any:
        with self.lock:
            if file not in self.sent:
                content = file.read_bytes()
                self.sent[file] = self.client.scatter(content, broadcast=True, hash=False)
            return self.sent[file]

    def submit(self, command: Sequence[str | Path]) -> Any:
        environment = {name: os.environ[name] for name in SENT_VARIABLES if name in os.environ}
        words = [None if isinstance(word, Path) else word for word in command]
        files = [self.send(word) for word in command if isinstance(word, Path)]
        with self.lock:
            if self.stopped:
                raise KmemError(f"{self.name}: {STOPPED}")
            future = self.client.submit(self.task, words, files, environment, pure=False)
            self.running.add(future)
        return future

    def run(self, command: Sequence[str | Path]) -> Finished:
        from distributed import CancelledError, KilledWorker

        try:
            future = self.submit(command)
            try:
                return Finished(*future.result())
            finally:
                with self.lock:
                    self.running.discard(future)
        except (OSError, RuntimeError, KilledWorker, CancelledError) as error:
            raise KmemError(f"{self.name}: a worker failed: {error}") from None

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
            self.client.cancel(list(self.running))


here = Here()
place: Place = here


@contextmanager
def cluster_at(scheduler: str, name: str) -> Iterator[Cluster]:
    from distributed import Client

    for logger in (
        "asyncio",
        "distributed",
        "distributed.scheduler",
        "distributed.worker",
        "tornado",
    ):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    where = f"{name}: --scheduler {scheduler}"
    try:
        client = Client(scheduler, timeout=SCHEDULER_SECONDS)
    except (OSError, ValueError, TimeoutError) as error:
        reason = str(error).splitlines()[0]
        raise KmemError(f"{where}: no scheduler there: {reason}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=SCHEDULER_SECONDS)
        except TimeoutError:
            raise KmemError(f"{where}: it has no workers") from None
        yield Cluster(client, name)


@contextmanager
def spread_to(scheduler: str | None, name: str) -> Iterator[None]:
    """Programs run on the cluster of this scheduler, or here; `name` is the command's."""
    global place
    if scheduler is None:
        yield
        return
    before = place
    with cluster_at(scheduler, name) as place:
        try:
            yield
        finally:
            place = before


def run_program(command: Sequence[str | Path]) -> Finished:
    """Run a program at the chosen place; a Path is the program, or a file that it reads."""
    return place.run(command)


@contextmanager
def waiting_threads() -> Iterator[ThreadPoolExecutor]:
    """Threads that wait for programs.

    The programs end with the command, if it is ended or fails, those that run here as well.
    """
    try:
        with ThreadPoolExecutor(place.threads) as pool:
            try:
                yield pool
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                place.stop()
                here.stop()
                raise
    finally:
        # The threads have ended.
        place.start()
        here.start()


def run_all(
    what: str,
    items: Sequence[Item],
    work: Callable[[Item], Result],
    weight: Callable[[Item], int] = lambda _: 1,
) -> list[Result]:
    """The results in order; the heaviest begin first, under a progress bar."""
    order = sorted(range(len(items)), key=lambda index: -weight(items[index]))
    results: dict[int, Result] = {}
    console = Console(stderr=True)
    with (
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
        waiting_threads() as pool,
    ):
        bar = progress.add_task(what, total=sum(map(weight, items)))

        def one(index: int) -> None:
            results[index] = work(items[index])
            progress.advance(bar, weight(items[index]))

        for _ in pool.map(one, order):
            pass
    return [results[index] for index in range(len(items))]
