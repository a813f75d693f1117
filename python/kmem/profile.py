# SPDX-License-Identifier: Apache-2.0 OR MIT
"""kmem profile: a sampling heap profile of a running process (docs/profiles.md)."""

import contextlib
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

from kmem.flame import draw
from kmem.pprof import Row, encode, write
from kmem.registry import RECORD_STACK, Registry, RegistryError, alive, open_process
from kmem.setup import KmemError
from kmem.symbols import Symbols

LEAST, MOST = 1 << 10, 1 << 40  # bytes between samples
WAIT_SECONDS = 2.0
OBJECTS = 1024  # parts of an object that the process counts in
TYPES = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
]
VIEWS = {"live": ("bytes in use", 3), "rate": ("bytes allocated", 1)}

Stack = tuple[int, ...]  # return addresses, innermost first


@dataclass(frozen=True)
class Counts:
    """What was sampled with one stack. Freed is what became of it, never the larger."""

    samples: int = 0
    objects: float = 0
    size: int = 0
    freed_samples: int = 0
    freed_objects: float = 0
    freed_size: int = 0

    def since(self, before: "Counts") -> "Counts":
        """What came and went since an earlier look at the same stack."""
        return Counts(
            self.samples - before.samples,
            self.objects - before.objects,
            self.size - before.size,
            self.freed_samples - before.freed_samples,
            self.freed_objects - before.freed_objects,
            self.freed_size - before.freed_size,
        )

    @property
    def live_samples(self) -> int:
        return max(self.samples - self.freed_samples, 0)

    @property
    def live_objects(self) -> float:
        return max(self.objects - self.freed_objects, 0)

    @property
    def live_size(self) -> int:
        return max(self.size - self.freed_size, 0)


def read_stacks(registry: Registry) -> dict[Stack, Counts]:
    """All stacks that were sampled; what was freed is read before what was allocated."""
    found: dict[Stack, Counts] = {}
    place = registry.parts["stack"]["frame"]
    for at in registry.records(registry.copy())[RECORD_STACK]:

        def read(name: str, at: int = at) -> int:
            return registry.number("stack", name, at)

        freed = (read("freed_samples"), read("freed_objects") / OBJECTS, read("freed_bytes"))
        all_ = (read("samples"), read("objects") / OBJECTS, read("bytes"))
        frames = min(read("frames"), place.count)
        stack = struct.unpack_from(f"<{frames}Q", registry.memory, at + place.offset)
        found[stack] = Counts(*all_, *freed)
    return found


def set_interval(registry: Registry, interval: int) -> bool:
    """Whether the process did it in time."""
    done = registry.wait(registry.ask(0, "profile_interval", str(interval)), WAIT_SECONDS)
    process = registry.number("head", "process")
    if done is not None and done[0] != 0:
        raise RegistryError(f"process {process} cannot be profiled: error {done[0]}")
    return done is not None


@contextlib.contextmanager
def sampled(registry: Registry, interval: int) -> Iterator[None]:
    """Samples are taken inside; afterwards it is as it was before."""
    process = registry.number("head", "process")
    if "profile_interval" not in registry.parts["head"]:
        raise RegistryError(f"process {process} runs on a release without profiles")
    before = registry.number("head", "profile_interval")
    try:
        if before != interval and not set_interval(registry, interval):
            raise RegistryError(
                f"process {process} has not passed a refill or drain for {WAIT_SECONDS:g} s, so no"
                " samples were taken; expected one that allocates"
            )
        yield
    finally:
        if before != interval and alive(registry):
            registry.ask(0, "profile_interval", str(before))


def wait(registry: Registry, seconds: float) -> None:
    """Until the time is over, the process ends, or the user has had enough."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(KeyboardInterrupt):
        while (left := deadline - time.monotonic()) > 0 and alive(registry):
            time.sleep(min(left, 0.2))


def make_rows(
    process: int, before: dict[Stack, Counts], after: dict[Stack, Counts], symbols: Symbols
) -> list[Row]:
    """Allocated since before; live is what is in use of all that was ever sampled."""
    rows = []
    for stack, counts in after.items():
        new = counts.since(before.get(stack, Counts()))
        values = (
            round(new.objects),
            new.size,
            round(counts.live_objects),
            counts.live_size,
        )
        if any(values):
            rows.append(Row(tuple(map(symbols.frame, stack)), values))
    return rows


def check(interval: int, outputs: list[Path]) -> None:
    if not LEAST <= interval <= MOST:
        raise KmemError(f"--interval {interval}: expected {LEAST} to {MOST} bytes")
    for path in outputs:
        if not path.name.endswith((".pb.gz", ".svg")):
            raise KmemError(f"-o {path}: expected a name that ends with .pb.gz or .svg")
        if not path.absolute().parent.is_dir():
            raise KmemError(f"-o {path}: {path.parent} is no directory")


def profile(process: int, *, seconds: float, interval: int, outputs: list[Path], view: str) -> None:
    check(interval, outputs)
    with open_process(process, writable=True) as registry, sampled(registry, interval):
        before = read_stacks(registry)
        missed = registry.number("head", "samples_missed")
        start = time.time_ns()
        wait(registry, seconds)
        after = read_stacks(registry)
        duration = time.time_ns() - start
        missed = registry.number("head", "samples_missed") - missed
        symbols = Symbols(process)
    rows = make_rows(process, before, after, symbols)
    title, column = VIEWS[view]
    for path in outputs:
        try:
            if path.name.endswith(".svg"):
                stacks = [
                    ([frame.function for frame in row.frames] or ["unknown"], row.values[column])
                    for row in rows
                ]
                path.write_text(draw(stacks, f"process {process}: {title}", "bytes"))
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
                write(path, message)
        except OSError as error:
            raise KmemError(f"-o {path}: {error.strerror}") from None
    samples = sum(
        counts.since(before.get(stack, Counts())).samples for stack, counts in after.items()
    )
    typer.echo(f"{samples} samples, {len(rows)} stacks" + (f", {missed} missed" if missed else ""))
    if not rows:
        typer.echo("nothing was sampled; a finer --interval takes more samples")
