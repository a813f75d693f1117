# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A profile as tables: its call sites with the ages of what they hold, leak suspects, threads."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from kmem.common.console import wide_console
from kmem.live.ages import BANDS, NO_BANDS, Ages, Suspect, bytes_by_age, suspects, top_threads
from kmem.live.pprof import Row
from kmem.live.profile_files import VIEWS, Profile
from kmem.live.sites import CALLERS, Calls, top_sites
from kmem.live.watch import short_bytes

LINES = 10  # of a table


def empty_table(heads: Iterable[str], last: str) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    for head in heads:
        made.add_column(head, justify="right", no_wrap=True)
    made.add_column(last, overflow="fold")
    return made


def calls_text(calls: Calls) -> Text:
    return Text(" < ").join(map(Text, calls[: 1 + CALLERS]))


def bands_shown(ages: dict[str, list[int]]) -> list[int]:
    """The bands of age with bytes in them; none if all bytes are in the youngest."""
    found = [band for band in range(len(BANDS)) if any(sums[band] for sums in ages.values())]
    return found if any(found) else []


def sites_table(
    rows: Sequence[Row], column: int, title: str, *, signed: bool, ages: Ages | None = None
) -> Table:
    """The sites with the largest figures; of a difference, those that grew most."""
    by_age = {} if ages is None else bytes_by_age(ages)
    bands = bands_shown(by_age)
    made = empty_table(
        [title, "objects", *(BANDS[band][1] for band in bands)], "call site, and its callers"
    )
    for size, objects, calls in top_sites(rows, column)[:LINES]:
        if size > 0:
            count = f"{objects:+,}" if signed else f"{objects:,}"
            aged = (short_bytes(by_age.get(calls[0], NO_BANDS)[band]) for band in bands)
            made.add_row(short_bytes(size, sign=signed), count, *aged, calls_text(calls))
    return made


def suspects_table(found: Sequence[Suspect], old_ms: int) -> Table:
    heads = ["leak suspects: growth/min", f"older than {old_ms / 1000:g} s", "of it kept"]
    made = empty_table(heads, "call site, and its callers")
    for one in found[:LINES]:
        figures = (short_bytes(one.per_minute, sign=True), short_bytes(one.old), f"{one.kept:.0%}")
        made.add_row(*figures, calls_text(one.calls))
    return made


def threads_table(rows: Sequence[Row], column: int, title: str, *, signed: bool) -> Table:
    made = empty_table([title, "objects"], "thread, and the call site of most of it")
    for size, objects, name, calls in top_threads(rows, column)[:LINES]:
        if size > 0:
            count = f"{objects:+,}" if signed else f"{objects:,}"
            text = Text(f"thread {name}: ") + calls_text(calls)
            made.add_row(short_bytes(size, sign=signed), count, text)
    return made


def print_tables(profile: Profile, view: str, *, by_thread: bool) -> None:
    title, column = VIEWS[view]
    signed = profile.is_difference
    shown = f"growth of {title}" if signed else title
    console = wide_console()
    ages = profile.ages if view == "live" and not signed else None
    if by_thread:
        made = threads_table(profile.rows, column, shown, signed=signed)
    else:
        made = sites_table(profile.rows, column, shown, signed=signed, ages=ages)
    if made.row_count:
        console.print(made)
    else:
        console.print(f"no {shown} in what was sampled")
    if by_thread or ages is None:
        return
    if found := suspects(ages):
        console.print(suspects_table(found, ages.old_ms))
    elif not ages.can_tell:
        console.print(
            f"sampled for {ages.sampled_ms // 1000} s: leak suspects need"
            f" {2 * ages.old_ms // 1000} s, --growth needs less"
        )
