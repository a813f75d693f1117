# SPDX-License-Identifier: Apache-2.0 OR MIT
"""kmem profile: a sampling heap profile of a running process (docs/profiles.md)."""

import contextlib
import fcntl
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import typer

from kmem.common.errors import BadUsage, KmemError
from kmem.common.processes import command_line
from kmem.common.signals import end_as_by_ctrl_c, signals_kept
from kmem.common.sizes import INTERVAL_LEAST, INTERVAL_MOST
from kmem.live import pace
from kmem.live.ages import ages_of, has_threads, thread_rows
from kmem.live.differences import subtract
from kmem.live.leases import Lease, leased
from kmem.live.living import Living, read_living
from kmem.live.pprof import Row, read
from kmem.live.profile_files import TYPES, Profile, check_outputs, write_files
from kmem.live.profile_tables import print_tables
from kmem.live.registry.file import Registry, alive
from kmem.live.registry.find import open_process
from kmem.live.registry.heap import read_sample_interval
from kmem.live.registry.layout import RegistryError
from kmem.live.registry.requests import waiting_request
from kmem.live.stacks import Counts, Stack, all_stacks, count_samples, read_names, read_stacks
from kmem.live.symbols import Symbols

INTERVAL = "profile_interval"
SEE_SECONDS = 1  # between looks at code that does not stay
threads = threading.Lock()
profiled: set[int] = set()  # processes, by threads of this command


@contextlib.contextmanager
def only_one(registry: Registry) -> Iterator[None]:
    """Lock the registry: a second profile would end the settings of the first.

    The lock is the command's and ends with it; the command's threads exclude each other by a set.
    """
    process = registry.process
    taken = RegistryError(f"process {process} is being profiled; expected one at a time")
    with threads:
        if process in profiled:
            raise taken
        profiled.add(process)
    try:
        fcntl.lockf(registry.file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        yield
    except BlockingIOError:
        raise taken from None
    finally:
        profiled.discard(process)


def wait(
    registry: Registry, seconds: float, symbols: Symbols, signals: list[int], lease: Lease
) -> None:
    """Wait until the time is over, the process ends, or a signal has come."""
    deadline, seen = time.monotonic() + seconds, 0.0
    while symbols.look(partial(alive, registry)) and not signals:
        lease.renew()
        if time.monotonic() - seen > SEE_SECONDS:
            symbols.see(lambda: all_stacks(registry))
            seen = time.monotonic()
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
            rows.append(Row(symbols.frames(stack), values))
    return rows


@dataclass(frozen=True)
class Look:
    """What the process had counted at a moment."""

    stacks: dict[Stack, Counts]
    time_ns: int
    sliced_ns: int
    missed: int


def look(registry: Registry, slices: int) -> Look:
    return Look(
        read_stacks(registry),
        time.time_ns(),
        registry.number("head", "slice_ns") if slices else 0,
        registry.number("head", "samples_missed"),
    )


def rows_between(before: Look, after: Look, symbols: Symbols) -> list[Row]:
    sliced = after.sliced_ns - before.sliced_ns
    scale = (after.time_ns - before.time_ns) / sliced if sliced else None
    return make_rows(before.stacks, after.stacks, symbols, scale)


def check_interval(given: str, interval: int | None) -> None:
    """@given: what names the interval in a message."""
    least, most = INTERVAL_LEAST, INTERVAL_MOST
    if interval is not None and not least <= interval <= most:
        raise BadUsage(f"{given}{interval}: expected {least} to {most} bytes, 1K to 1T")


@dataclass(frozen=True)
class Sampled:
    """What a process had counted before and behind, and what lives."""

    looks: list[Look]
    living: Living | None
    interval: int  # bytes between two samples


def chosen_interval(
    registry: Registry, symbols: Symbols, signals: list[int], lease: Lease, first: int
) -> int:
    """The interval by a short look under another one, which stays only if the profile ends then."""
    before, begun = count_samples(registry), time.monotonic()
    wait(registry, pace.LOOK_SECONDS, symbols, signals, lease)
    samples, seconds = count_samples(registry) - before, time.monotonic() - begun
    if signals or not alive(registry):
        return pace.look_interval(first)
    interval = pace.interval_after(first, samples, seconds)
    lease.change(INTERVAL, interval)
    return interval


def sampled(
    registry: Registry,
    symbols: Symbols,
    *,
    seconds: float,
    interval: int | None,
    first: int,
    slices: int,
    growth: bool,
    signals: list[int],
) -> Sampled:
    """Sample the process: a look before and a look behind, for growth one more, and what lives.

    What lives is read while sampling is still on.

    @interval, @first: as of take
    """
    settings = {INTERVAL: interval or pace.look_interval(first)}
    if slices:
        settings["profile_slices"] = slices
    with only_one(registry), leased(registry, settings) as lease:
        looks = [look(registry, slices)]
        if interval is None:
            interval = chosen_interval(registry, symbols, signals, lease, first)
            if growth:
                # The two profiles of a comparison have the same length.
                looks = [look(registry, slices)]
        for _ in range(2 if growth else 1):
            wait(registry, seconds, symbols, signals, lease)
            looks.append(look(registry, slices))
            if growth and len(looks) == 2 and (signals or not alive(registry)):
                why = "interrupted in" if signals else f"process {registry.process} ended in"
                raise KmemError(
                    f"--growth: {why} the first of two profiles, so there is nothing to compare"
                    " with"
                )
        living = read_living(registry)
        symbols.python_names = read_names(registry)
    return Sampled(looks, living, interval)


def remarks(looks: list[Look], rows: list[Row], slices: int, notes: list[str]) -> list[str]:
    """How the sampling went, a line each."""
    before, after = looks[-2:]
    samples = sum(
        counts.since(before.stacks.get(stack, Counts())).samples
        for stack, counts in after.stacks.items()
    )
    missed = after.missed - looks[0].missed
    counted = [
        f"{samples} sample{'s'[: samples != 1]}",
        f"{len(rows)} stack{'s'[: len(rows) != 1]}",
    ]
    said = [", ".join([*counted, *([f"{missed} missed"] if missed else [])])]
    if after.missed:
        said.append(
            f"there was no room for {after.missed} samples since sampling began, so more"
            " may be in use than is shown; expected a coarser interval"
        )
    said += notes
    if not samples and not rows:
        said.append("nothing was sampled; a finer --interval takes more samples")
    elif not samples:
        said.append("what is in use was sampled before")
    if slices:
        share = (after.sliced_ns - before.sliced_ns) / (after.time_ns - before.time_ns)
        said.append(f"slices were {share:.1%} of the time")
    return said


def interval_of(registry: Registry) -> int | None:
    """The interval of a program that is sampled; None behind a profile that it did not see end."""
    if waiting_request(registry, 0, INTERVAL) is not None:
        return None
    return read_sample_interval(registry) or None


def take(
    process: int,
    *,
    seconds: float,
    interval: int | None,
    slices: int,
    growth: bool,
    signals: list[int],
    first: int = pace.FIRST,
) -> tuple[Profile, list[str]]:
    """Sample a process, and say how that went; for growth twice, and the first is the base.

    @interval: None for that of the program, and if it has none, for @first or more (pace.py).
    @signals: the profile ends earlier when there is one.
    """
    with (
        open_process(process, writable=True) as registry,
        contextlib.closing(Symbols(process)) as symbols,
    ):
        own = interval or interval_of(registry)
        words = command_line(process)
        done = sampled(
            registry,
            symbols,
            seconds=seconds,
            interval=own,
            first=first,
            slices=slices,
            growth=growth,
            signals=signals,
        )
        looks, living = done.looks, done.living
        ended = not alive(registry)
        before, after = looks[-2:]
        rows = rows_between(before, after, symbols)
        if growth:
            rows = subtract(rows, rows_between(looks[0], before, symbols))
        ages = None if living is None else ages_of(living, symbols.frames)
    if slices and after.sliced_ns == before.sliced_ns:
        raise KmemError(
            f"--slices {slices}: process {process} had none; expected one with a reclaim thread"
            " (docs/profiles.md)"
        )
    notes = list(symbols.notes or [])
    if own is None and done.interval > pace.look_interval(first):
        notes.append(
            f"the process allocates much, so samples are {done.interval >> 10} KiB apart;"
            " --interval sets a distance"
        )
    if ended:
        notes.append(
            f"process {process} has ended, or became another program; what it freed before is"
            " not in use"
        )
    source = f"process {process}"
    made = Profile(
        rows,
        source,
        done.interval,
        before.time_ns,
        after.time_ns - before.time_ns,
        f"libkmem, {source}: {words}",
        growth,
        ages,
        symbols.program,
    )
    return made, remarks(looks, rows, slices, notes)


def from_file(path: Path) -> Profile:
    """A profile that this command wrote, or another with these figures (as Go's).

    Nothing but a difference has values below 0.
    """
    saved = read(path)
    try:
        columns = [saved.types.index(kind) for kind in TYPES]
    except ValueError:
        raise KmemError(
            f"{path}: expected the figures {', '.join(name for name, _ in TYPES)}; it has"
            f" {', '.join(name for name, _ in saved.types) or 'none'}"
        ) from None
    rows = [Row(row.frames, tuple(row.values[at] for at in columns)) for row in saved.rows]
    return Profile(
        rows,
        path.name,
        saved.period,
        saved.time_ns,
        saved.duration_ns,
        saved.comment,
        is_difference=any(value < 0 for row in rows for value in row.values),
        program=saved.program,
    )


def from_source(path: Path) -> Profile:
    """The profile in a file that stands where a process may stand."""
    try:
        return from_file(path)
    except KmemError as error:
        if path.exists():
            raise
        # It may be the name of a program.
        raise KmemError(
            f"{error}; expected a process id (kmem ps lists them), or a NAME.pb.gz"
        ) from None


def check_base(base: Path | None, earlier: Profile | None, *, by_thread: bool) -> None:
    """With threads as frames of one profile only, no stack would equal another."""
    if earlier is None or not earlier.rows or has_threads(earlier.rows) == by_thread:
        return
    expected = "a profile that --by thread wrote" if by_thread else "a profile without --by thread"
    raise BadUsage(f"--base {base}: expected {expected}, as the other")


def profile(
    source: int | Path,
    *,
    seconds: float,
    interval: int | None,
    slices: int,
    outputs: list[Path],
    view: str,
    base: Path | None = None,
    growth: bool = False,
    by: str = "site",
) -> None:
    """Profile a process, or read a profile; write its files, or print its largest call sites."""
    check_interval("--interval ", interval)
    if growth and (base is not None or isinstance(source, Path)):
        raise BadUsage("--growth: expected a process, and no --base")
    by_thread = by == "thread"
    if by_thread and (growth or view != "live" or isinstance(source, Path)):
        raise BadUsage("--by thread: expected a process, and neither --growth nor --view rate")
    is_difference = growth or base is not None
    check_outputs(outputs, is_difference=is_difference)
    earlier = None if base is None else from_file(base)
    said: list[str] = []
    if isinstance(source, Path):
        made = from_source(source)
        if made.rows:
            check_base(base, earlier, by_thread=has_threads(made.rows))
        check_outputs(outputs, is_difference=is_difference or made.is_difference)
    else:
        check_base(base, earlier, by_thread=by_thread)
        # Without this the program would stay under sampling until the lease is over.
        end_as_by_ctrl_c(signal.SIGTERM, signal.SIGHUP)
        with signals_kept() as signals:
            made, said = take(
                source,
                seconds=seconds,
                interval=interval,
                slices=slices,
                growth=growth,
                signals=signals,
            )
    if by_thread:
        if made.ages is None:
            raise KmemError(f"--by thread: {made.source} runs on a release that names no threads")
        made = replace(made, rows=thread_rows(made.ages))
    if earlier is not None:
        rows = subtract(made.rows, earlier.rows)
        comment = f"{made.comment}, less {earlier.source}"
        made = replace(made, rows=rows, comment=comment, is_difference=True)
    is_written = False
    try:
        write_files(made, view, outputs)
        is_written = bool(outputs)
    finally:  # a full disk must not take the figures
        for line in said:
            typer.echo(line)
        if not is_written and (made.rows or isinstance(source, Path)):
            print_tables(made, view, by_thread=by_thread)
