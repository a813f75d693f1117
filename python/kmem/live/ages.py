# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Bytes in use by their age and by their thread, and the call sites that look like leaks.

A site is a leak suspect if its old bytes grow and stay. Of its bytes that became old at least half
are still in use, and those in use came all along: the time from when sampling began until samples
are old is cut into spans of equal length, and nearly each span has left some. A cache that was
filled once has left samples in the first spans only, and of objects that come and go few become
old. A leak may be younger than the sampling, so the latest parts of the time are looked at too.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kmem.live.lines import Line
from kmem.live.living import Living
from kmem.live.pprof import Frame, Row
from kmem.live.sites import Calls, site_of, top_sites
from kmem.live.stacks import Stack

# Seconds up to which a sample is in a band, and the band's name.
BANDS = ((60.0, "<1 min"), (600.0, "<10 min"), (3600.0, "<1 h"), (float("inf"), "older"))
NO_BANDS = [0] * len(BANDS)
SPANS = 4  # that the time is cut into
SPANS_LEAST = 3  # that have left samples, the newest among them
SAMPLES_LEAST = 8  # old samples of a suspect: fewer are chance
KEPT_LEAST = 0.5  # of the bytes that became old
PARTS = (1, 4, 16)  # the whole time that was sampled, and its latest parts


@dataclass(frozen=True)
class Held:
    """A sample in use, with names."""

    calls: Calls  # its call site, and the callers
    frames: tuple[Frame, ...]
    thread: str
    age_ms: int
    objects: float
    size: int


@dataclass(frozen=True)
class Ages:
    """The samples in use, and for how long the process has been sampled."""

    held: list[Held]
    sampled_ms: int
    old_ms: int
    old_freed: dict[str, int]  # bytes of a site that were freed when they were old

    @property
    def can_tell(self) -> bool:
        """Whether it was sampled long enough for a suspect."""
        return self.sampled_ms >= 2 * self.old_ms


@dataclass(frozen=True)
class Suspect:
    """A site with old bytes that grow."""

    calls: Calls
    per_minute: int  # bytes that became old and stayed
    old: int  # bytes in use
    kept: float  # the part of the old bytes that is in use


def thread_frame(name: str) -> Frame:
    return Frame(0, (Line(f"thread {name}"),), None)


def has_threads(rows: Sequence[Row]) -> bool:
    """Whether all stacks have threads as outermost frames, as those of thread_rows."""
    ends = (frame for row in rows for frame in row.frames[-1:])
    return all(
        frame.mapping is None and frame.lines[-1].function.startswith("thread ") for frame in ends
    )


def thread_name(living: Living, number: int) -> str:
    if not number:
        return "unknown"
    name = living.threads.get(number, "")
    return f"{name} ({number})" if name else str(number)


def ages_of(living: Living, frames: Callable[[Stack], tuple[Frame, ...]]) -> Ages:
    """The samples with their names; @frames names a stack."""
    named = {
        stack: frames(stack)
        for stack in {sample.stack for sample in living.samples}
        | {stack for stack, size in living.old_freed.items() if size}
    }
    calls = {stack: site_of(Row(found, ())) for stack, found in named.items()}
    old_freed: Counter[str] = Counter()
    for stack, size in living.old_freed.items():
        if size:
            old_freed[calls[stack][0]] += size
    held = [
        Held(
            calls[sample.stack],
            named[sample.stack],
            thread_name(living, sample.thread),
            sample.age_ms,
            sample.objects,
            sample.size,
        )
        for sample in living.samples
    ]
    return Ages(held, living.sampled_ms, living.old_ms, dict(old_freed))


def by_site(ages: Ages) -> dict[str, list[Held]]:
    found: dict[str, list[Held]] = defaultdict(list)
    for held in ages.held:
        found[held.calls[0]].append(held)
    return found


def band_of(age_ms: int) -> int:
    return next(number for number, (seconds, _) in enumerate(BANDS) if age_ms < seconds * 1000)


def bytes_by_age(ages: Ages) -> dict[str, list[int]]:
    """Of each site the bytes in each of BANDS."""
    found: dict[str, list[int]] = defaultdict(lambda: [0] * len(BANDS))
    for held in ages.held:
        found[held.calls[0]][band_of(held.age_ms)] += held.size
    return found


def main_calls(held: Sequence[Held]) -> Calls:
    """The site with the most bytes, as its largest stack was called."""
    sums: Counter[Calls] = Counter()
    for one in held:
        sums[one.calls] += one.size
    return max(sums, key=lambda calls: (sums[calls], calls))


def growth(old: Sequence[Held], begin_ms: int, end_ms: int) -> float | None:
    """Bytes a millisecond that came in the newer half of this range of ages, and stayed.

    None if they did not come all along.
    """
    length = (end_ms - begin_ms) / SPANS
    sums = [0] * SPANS
    count = 0
    for one in old:
        if begin_ms <= one.age_ms < end_ms:
            sums[min(int((one.age_ms - begin_ms) / length), SPANS - 1)] += one.size
            count += 1
    if count < SAMPLES_LEAST or not sums[0] or sum(map(bool, sums)) < SPANS_LEAST:
        return None
    return sum(sums[: SPANS // 2]) / (SPANS // 2 * length)


def ranges(ages: Ages) -> Iterator[tuple[int, int]]:
    """Ranges of ages in which growth is looked for, the longest first."""
    oldest = max((held.age_ms for held in ages.held if held.age_ms <= ages.sampled_ms), default=0)
    for part in PARTS:
        end = ages.old_ms + (oldest - ages.old_ms) // part
        if end >= 2 * ages.old_ms:
            yield ages.old_ms, end + 1


def suspects(ages: Ages) -> list[Suspect]:
    """The sites that look like leaks, the fastest first."""
    found = []
    for site, held in by_site(ages).items():
        old = [one for one in held if one.age_ms >= ages.old_ms]
        size = sum(one.size for one in old)
        kept = size / max(size + ages.old_freed.get(site, 0), 1)
        if kept < KEPT_LEAST:
            continue
        rates = (growth(old, *limits) for limits in ranges(ages))
        rate = next((rate for rate in rates if rate is not None), None)
        if rate is not None:
            found.append(Suspect(main_calls(old), round(rate * 60_000), size, kept))
    return sorted(found, key=lambda one: (-one.per_minute, one.calls))


def thread_rows(ages: Ages) -> list[Row]:
    """A row for each stack of each thread, with the thread as its outermost frame.

    Its columns are those of a profile. What a thread has allocated and freed is not known.
    """
    sums: dict[tuple[Frame, ...], list[float]] = defaultdict(lambda: [0, 0])
    for held in ages.held:
        found = sums[*held.frames, thread_frame(held.thread)]
        found[0] += held.objects
        found[1] += held.size
    return [
        Row(frames, (0, 0, round(objects), round(size))) for frames, (objects, size) in sums.items()
    ]


def top_threads(rows: Sequence[Row], column: int) -> list[tuple[int, int, str, Calls]]:
    """Bytes and objects of each thread, the largest first, its name and the site of most bytes.

    @rows: of thread_rows, or a difference of such rows; @column as in top_sites.
    """
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        *frames, thread = row.frames
        name = thread.lines[0].function.removeprefix("thread ")
        found[name].append(Row(tuple(frames), row.values))
    made = []
    for name, of_thread in found.items():
        sites = top_sites(of_thread, column)
        size, objects = sum(one[0] for one in sites), sum(one[1] for one in sites)
        made.append((size, objects, name, sites[0][2]))
    return sorted(made, key=lambda one: (-one[0], one[2]))
