# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Profiles that `kmem serve` takes for those who ask by HTTP, as Go's programs are asked."""

import math
from typing import Any
from urllib.parse import parse_qs

from kmem.common.errors import BadUsage
from kmem.common.sizes import interval_text

# Go's name of a profile, and the view of `kmem profile` that comes first in it.
KINDS = {"heap": "live", "allocs": "rate"}
SECONDS, SECONDS_MOST = 10.0, 600.0
SITES = 20  # most that are listed


def query_of(text: str) -> dict[str, list[str]]:
    return parse_qs(text, keep_blank_values=True)


def seconds_of(query: dict[str, list[str]]) -> float:
    text = query.get("seconds", [str(SECONDS)])[-1]
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= SECONDS_MOST:
        raise BadUsage(f"seconds={text[:40]}: expected more than 0, and up to {SECONDS_MOST:g}")
    return seconds


def interval_of(query: dict[str, list[str]]) -> int | None:
    """Bytes between samples, None without the parameter."""
    if "interval" not in query:
        return None
    text = query["interval"][-1]
    try:
        return interval_text(text)
    except ValueError as error:
        raise BadUsage(f"interval={text[:40]}: {error}") from None


def sampled(
    process: int,
    query: dict[str, list[str]],
    *,
    growth: bool,
    known: str = "seconds= and interval=",
) -> Any:
    """The profile that the query's `seconds` and `interval` (bytes, as 16K) ask for.

    ImportError if the packages of `kmem profile` are not there.

    @known: the parameters of the address, for those who ask for another.
    """
    from kmem.live.profile import check_interval, take

    if unknown := query.keys() - {"seconds", "interval"}:
        raise BadUsage(f"{min(unknown)[:40]}=: expected {known}")
    seconds = seconds_of(query)
    interval = interval_of(query)
    check_interval("interval=", interval)
    made, _ = take(process, seconds=seconds, interval=interval, slices=0, growth=growth, signals=[])
    return made


def take_pprof(process: int, kind: str, query_text: str) -> bytes:
    """A pprof file; its first figure is that of the kind."""
    from kmem.live.profile_files import pprof_of

    return pprof_of(sampled(process, query_of(query_text), growth=False), KINDS[kind])


def ages_document(ages: Any) -> dict[str, Any]:
    """What is in use by age and by thread, and leak suspects; null of an older library."""
    from kmem.live.ages import BANDS, suspects, thread_rows, top_threads
    from kmem.live.profile_files import VIEWS
    from kmem.live.sites import CALLERS

    if ages is None:
        return {"ages": None, "suspects": None, "threads": None}

    def text(calls: tuple[str, ...]) -> str:
        return " < ".join(calls[: 1 + CALLERS])

    threads = top_threads(thread_rows(ages), VIEWS["live"][1])
    return {
        "ages": [name for _, name in BANDS],
        "sampled_seconds": ages.sampled_ms / 1000,
        "old_seconds": ages.old_ms / 1000,
        "can_tell": ages.can_tell,
        "suspects": [
            {
                "bytes_a_minute": one.per_minute,
                "old_bytes": one.old,
                "kept": one.kept,
                "site": text(one.calls),
            }
            for one in suspects(ages)[:SITES]
        ],
        "threads": [
            {"bytes": size, "objects": objects, "thread": name, "site": text(calls)}
            for size, objects, name, calls in threads[:SITES]
        ],
    }


def take_sites(process: int, query_text: str) -> dict[str, Any]:
    """The call sites that hold most bytes; with growth=1 those that grew most between two profiles.

    Each profile takes the query's seconds.
    """
    from kmem.live.ages import NO_BANDS, bytes_by_age
    from kmem.live.profile_files import VIEWS
    from kmem.live.sites import CALLERS, top_sites

    query = query_of(query_text)
    text = query.pop("growth", ["0"])[-1]
    if text not in ("0", "1"):
        raise BadUsage(f"growth={text[:40]}: expected 0 or 1")
    growth = text == "1"
    known = "seconds=, interval= and growth="
    made = sampled(process, query, growth=growth, known=known)
    sites = top_sites(made.rows, VIEWS["live"][1])
    by_age = {} if made.ages is None or growth else bytes_by_age(made.ages)
    return {
        "growth": growth,
        "seconds": made.duration_ns / 1e9,
        "sites": [
            {
                "bytes": size,
                "objects": objects,
                "ages": by_age.get(stack[0], NO_BANDS),
                "site": " < ".join(stack[: 1 + CALLERS]),
            }
            for size, objects, stack in sites[:SITES]
            if size > 0
        ],
        **ages_document(None if growth else made.ages),
    }
