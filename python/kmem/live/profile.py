# SPDX-License-Identifier: Apache-2.0 OR MIT
"""kmem profile: a sampling heap profile of a running process (docs/profiles.md)."""

import contextlib
import fcntl
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import typer

from kmem.common.errors import BadUsage, KmemError
from kmem.common.files import whole, why_not_written
from kmem.common.signals import end_as_by_ctrl_c, handle
from kmem.live.flame import draw
from kmem.live.leases import leased
from kmem.live.pprof import Line, Row, encode, write
from kmem.live.registry.file import Registry, alive
from kmem.live.registry.find import open_process
from kmem.live.registry.layout import RegistryError
from kmem.live.stack_files import Stack as TextStack
from kmem.live.stack_files import collapsed, speedscope
from kmem.live.stacks import Counts, Stack, read_stacks
from kmem.live.symbols import Symbols

LEAST, MOST = 1 << 10, 1 << 40  # bytes between samples
TYPES = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
]
VIEWS = {"live": ("bytes in use", 3), "rate": ("bytes allocated", 1)}


def lines_of(row: Row) -> list[Line]:
    return [line for frame in row.frames for line in frame.lines]


def named(stacks: list[TextStack]) -> list[tuple[list[str], int]]:
    return [([line.function for line in lines], value) for lines, value in stacks]


# Files that show one figure for each stack, by the end of their names.
TEXTS: dict[str, Callable[[list[TextStack], str], str]] = {
    ".svg": lambda stacks, title: draw(named(stacks), title, "bytes"),
    ".collapsed": lambda stacks, _: collapsed(stacks),
    ".speedscope.json": lambda stacks, title: speedscope(stacks, title, "bytes"),
}


@contextlib.contextmanager
def only_one(registry: Registry) -> Iterator[None]:
    """Lock the registry: a second profile would end the settings of the first.

    The lock ends with the command.
    """
    try:
        fcntl.lockf(registry.file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except BlockingIOError:
        process = registry.process
        raise RegistryError(
            f"process {process} is being profiled; expected one at a time"
        ) from None
    yield


@contextlib.contextmanager
def signals_kept() -> Iterator[list[int]]:
    """Collect the signals that would end the command.

    A closed terminal sends more than one, and people press Ctrl-C twice. The second signal must not
    interrupt the orderly end that the first began, or the program would stay under sampling.
    """
    kept: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        handle(lambda number, _: kept.append(number), *numbers)
        yield kept
    finally:
        for number, action in before.items():
            signal.signal(number, action)


def wait(
    registry: Registry,
    seconds: float,
    symbols: Symbols,
    signals: list[int],
    renew: Callable[[], None],
) -> None:
    """Wait until the time is over, the process ends, or a signal has come."""
    deadline = time.monotonic() + seconds
    while symbols.look(partial(alive, registry)) and not signals:
        renew()
        left = deadline - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(left, 0.2))


def make_rows(
    before: dict[Stack, Counts],
    after: dict[Stack, Counts],
    symbols: Symbols,
    scale: float | None,
) -> list[Row]:
    """A row for each stack: allocated since `before`, and live.

    Live counts everything in use that was ever sampled. With a scale, the allocated figures are the
    figures of slices times the scale.
    """
    rows = []
    for stack, counts in after.items():
        new = counts.since(before.get(stack, Counts()))
        allocated: tuple[float, float] = (new.objects, new.size)
        if scale is not None:
            allocated = (new.slice_objects * scale, new.slice_size * scale)
        values = (
            *map(round, allocated),
            round(counts.live_objects),
            counts.live_size,
        )
        if any(values):
            rows.append(Row(tuple(map(symbols.frame, stack)), values))
    return rows


def check(interval: int, outputs: list[Path]) -> None:
    if not LEAST <= interval <= MOST:
        raise BadUsage(f"--interval {interval}: expected {LEAST} to {MOST} bytes")
    for path in outputs:
        if not path.name.endswith((".pb.gz", *TEXTS)):
            raise BadUsage(
                f"-o {path}: expected a name that ends with .pb.gz, .svg, .collapsed or"
                " .speedscope.json"
            )
        if reason := why_not_written(path):
            raise KmemError(f"-o {path}: {reason}")


def profile(
    process: int, *, seconds: float, interval: int, slices: int, outputs: list[Path], view: str
) -> None:
    check(interval, outputs)
    settings = {"profile_interval": interval} | ({"profile_slices": slices} if slices else {})
    # Without this the program would stay under sampling until the lease is over.
    end_as_by_ctrl_c(signal.SIGTERM, signal.SIGHUP)
    with (
        open_process(process, writable=True) as registry,
        contextlib.closing(Symbols(process)) as symbols,
    ):
        with (
            signals_kept() as signals,
            only_one(registry),
            leased(registry, settings) as renew,
        ):
            before = read_stacks(registry)
            sliced = registry.number("head", "slice_ns") if slices else 0
            missed_before = registry.number("head", "samples_missed")
            start = time.time_ns()
            wait(registry, seconds, symbols, signals, renew)
            after = read_stacks(registry)
            duration = time.time_ns() - start
            sliced = registry.number("head", "slice_ns") - sliced if slices else 0
            missed = registry.number("head", "samples_missed") - missed_before
        rows = make_rows(before, after, symbols, duration / sliced if sliced else None)
    if slices and not sliced:
        raise KmemError(
            f"--slices {slices}: process {process} had none; expected one with a reclaim thread"
            " (docs/profiles.md)"
        )
    title, column = VIEWS[view]
    for path in outputs:
        try:
            form = next((end for end in TEXTS if path.name.endswith(end)), None)
            if form is not None:
                stacks: list[TextStack] = [
                    (lines_of(row) or [Line("unknown")], row.values[column]) for row in rows
                ]
                text = TEXTS[form](stacks, f"process {process}: {title}")
                with whole(path) as place:
                    place.write_text(text, encoding="utf-8")
            else:
                message = encode(
                    rows,
                    TYPES,
                    default_type=TYPES[column][0],
                    period=interval,
                    time_ns=start,
                    duration_ns=duration,
                    comment=f"libkmem, process {process}",
                )
                with whole(path) as place:
                    write(place, message)
        except OSError as error:
            raise KmemError(f"-o {path}: {error.strerror}") from None
    samples = sum(
        counts.since(before.get(stack, Counts())).samples for stack, counts in after.items()
    )
    typer.echo(f"{samples} samples, {len(rows)} stacks" + (f", {missed} missed" if missed else ""))
    if missed + missed_before:
        typer.echo(
            f"there was no room for {missed + missed_before} samples since sampling began, so more"
            " may be in use than is shown; expected a coarser interval"
        )
    if not rows:
        typer.echo("nothing was sampled; a finer --interval takes more samples")
    if slices:
        typer.echo(f"slices were {sliced / duration:.1%} of the time")
