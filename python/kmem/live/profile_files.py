# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The files and the table of a profile, by the ends of their names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kmem.common.errors import BadUsage, KmemError
from kmem.common.files import whole, why_not_written
from kmem.live.ages import Ages
from kmem.live.flame import draw
from kmem.live.flame_html import facts_of, page
from kmem.live.lines import Line
from kmem.live.pprof import Row, compressed, encode
from kmem.live.stack_files import Stack, collapsed, speedscope

TYPES = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
]
VIEWS = {"live": ("bytes in use", 3), "rate": ("bytes allocated", 1)}


@dataclass(frozen=True)
class Profile:
    """Call stacks with a value for each of TYPES, and where they come from."""

    rows: list[Row]
    source: str  # "process 7", or the file
    interval: int
    time_ns: int  # when it began, since the epoch
    duration_ns: int
    comment: str
    is_difference: bool = False  # values may be negative
    ages: Ages | None = None  # of what is in use at the end; None for files and older libraries
    program: str = ""  # its path among the mappings


def named(stacks: Sequence[Stack]) -> list[tuple[list[str], int]]:
    return [([line.function for line in lines], value) for lines, value in stacks]


def draw_svg(stacks: Sequence[Stack], title: str, is_difference: bool) -> str:
    return draw(named(stacks), title, "bytes", is_difference=is_difference)


# Files that show one figure for each stack, by the end of their names.
TEXTS: dict[str, Callable[[Sequence[Stack], str, bool], str]] = {
    ".svg": draw_svg,
    ".collapsed": lambda stacks, *_: collapsed(stacks),
    ".speedscope.json": lambda stacks, title, _: speedscope(stacks, title, "bytes"),
}
ENDS = (".pb.gz", ".html", *TEXTS)
SIGNED = (".pb.gz", ".html", ".svg")  # can show values that shrank


def check_outputs(outputs: Sequence[Path], *, is_difference: bool) -> None:
    ends = SIGNED if is_difference else ENDS
    for path in outputs:
        if not path.name.endswith(ends):
            of = " for a difference" if is_difference else ""
            listed = f"{', '.join(ends[:-1])} or {ends[-1]}"
            raise BadUsage(f"-o {path}: expected a name that ends with {listed}{of}")
        if reason := why_not_written(path):
            raise KmemError(f"-o {path}: {reason}")


def lines_of(row: Row) -> list[Line]:
    return [line for frame in row.frames for line in frame.lines] or [Line("unknown")]


def write_file(profile: Profile, view: str, path: Path) -> None:
    figure, column = VIEWS[view]
    title = f"{profile.source}: {figure}{', growth' if profile.is_difference else ''}"
    form = next((end for end in TEXTS if path.name.endswith(end)), None)
    if form is not None:
        stacks: list[Stack] = [(lines_of(row), row.values[column]) for row in profile.rows]
        text = TEXTS[form](stacks, title, profile.is_difference)
    elif path.name.endswith(".html"):
        text = make_page(profile, title, figure, column)
    else:
        with whole(path) as place:
            place.write_bytes(pprof_of(profile, view))
        return
    with whole(path) as place:
        place.write_text(text, encoding="utf-8")


def make_page(profile: Profile, title: str, figure: str, column: int) -> str:
    facts = facts_of(
        profile.rows,
        column,
        figure,
        signed=profile.is_difference,
        interval=profile.interval,
        time_ns=profile.time_ns,
        duration_ns=profile.duration_ns,
    )
    return page(
        profile.rows,
        column,
        title=title,
        comment=profile.comment,
        facts=facts,
        signed=profile.is_difference,
    )


def pprof_of(profile: Profile, view: str) -> bytes:
    """A pprof file, which shows the figure of the view first."""
    message = encode(
        profile.rows,
        TYPES,
        default_type=TYPES[VIEWS[view][1]][0],
        period=profile.interval,
        time_ns=profile.time_ns,
        duration_ns=profile.duration_ns,
        comment=profile.comment,
        program=profile.program,
    )
    return compressed(message)


def write_files(profile: Profile, view: str, outputs: Sequence[Path]) -> None:
    """One that cannot be written does not take the others: a profile may last for a day."""
    faults = []
    for path in outputs:
        try:
            write_file(profile, view, path)
        except OSError as error:
            faults.append(f"-o {path}: {error.strerror}")
    if faults:
        raise KmemError("; ".join(faults))
