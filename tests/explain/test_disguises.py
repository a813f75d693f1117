# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Every report, as it would be read if somebody had copied it in another way.

A disguise changes how the lines of a table are written and not what they say. Under it a report has
the caches that it has without; a cache that is not read has an unread line, and no other cache is
read. Each disguise makes lines with the numbers of the lines that they come from.
"""

from __future__ import annotations

import base64
import functools
import html
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_carried import OUT_OF_MEMORY, SLABINFO, TOP, as_read
from test_damaged import reading_of
from test_reports import FORMS, REPORTS, kept

from kmem.explain.cache_forms import UNNAMED
from kmem.explain.mail import decoded
from kmem.explain.table import Reading

Lines = list[tuple[int, str]]  # the number of the line before, from 1 on, and the text
Disguise = Callable[[Sequence[str], random.Random], Lines]

STATISTICS = "".join(
    f"{name:<17} {active:6} {objects:6} {size:6} {per_slab:4} {pages:4} : tunables  120   60    8"
    f" : slabdata {slabs:6} {slabs:6}      0 : globalstat {objects:7} {objects:6} 5 1 0 0 0 0"
    f" : cpustat {3 * objects:6} {slabs:6} {2 * objects:6} 7\n"
    for name, active, objects, size, per_slab, pages, slabs in (
        ("dentry", 39, 40, 192, 20, 1, 2),
        ("vm_area_struct", 81, 84, 184, 21, 1, 4),
        ("ext4_inode_cache", 2999, 3000, 1008, 4, 1, 750),
    )
)
TEXTS = {
    # A mail in quoted-printable is no text that could be written in another way.
    **{file.stem: "\n".join(decoded(kept(file).text.splitlines())) for file in REPORTS + FORMS},
    "slabinfo": SLABINFO,
    "slabtop": TOP,
    "oom": OUT_OF_MEMORY,
    "slabinfo 2.0 (statistics)": f"slabinfo - version: 2.0 (statistics)\n{STATISTICS}",
    "slabinfo 2.1 (statistics)": f"slabinfo - version: 2.1 (statistics)\n{STATISTICS}",
}


def each(write: Callable[[str], str]) -> Disguise:
    """A disguise of single lines."""
    return lambda lines, _: [(number, write(line)) for number, line in enumerate(lines, 1)]


def counted(write: Callable[[int, str], str]) -> Disguise:
    return lambda lines, _: [(number, write(number, line)) for number, line in enumerate(lines, 1)]


def joined(lines: Sequence[str], width: int, before: str, end: str) -> Lines:
    """Lines that are cut at blanks, as a mail does; a mail does not cut words."""
    found: Lines = []
    for number, line in enumerate(lines, 1):
        rest = line.rstrip()
        while len(rest) > width and (at := rest.rfind(" ", 1, width)) > 0 and rest[:at].strip():
            found.append((number, before + rest[:at] + end))
            rest = rest[at + 1 :]
        found.append((number, before + rest))
    return found


def cut_in_words(lines: Sequence[str], width: int, end: str) -> Lines:
    """As a terminal cuts, with a sign at the end of what goes on."""
    return [
        (number, line[at : at + width] + (end if at + width < len(line) else ""))
        for number, line in enumerate(lines, 1)
        for at in range(0, max(1, len(line)), width)
    ]


def struck(line: str) -> str:
    return "".join(letter if letter == " " else f"{letter}\b{letter}" for letter in line)


def grouped(mark: str, least: int = 1000) -> Disguise:
    """Digits of counts in groups of three."""

    def write(match: re.Match[str]) -> str:
        number = match[0]
        return f"{int(number):,}".replace(",", mark) if int(number) >= least else number

    return each(lambda line: re.sub(r"(?<![^ ])(?!0)\d{4,19}(?![^ ])", write, line))


def with_entities(line: str) -> str:
    return html.escape(html.escape(line)).replace("  ", "&amp;nbsp; ")


def as_mail(lines: Sequence[str], _: random.Random) -> Lines:
    """In base64; all of it has the number of its first line."""
    text = base64.encodebytes("\n".join(lines).encode()).decode()
    heads = ["From: a@example.org", "Content-Transfer-Encoding: base64", ""]
    return [(0, line) for line in (*heads, *text.splitlines())]


CLOCK = "2024-05-01T10:00:{:02}.{:06}Z"
DISGUISES: dict[str, Disguise] = {
    "as it is": each(lambda line: line),
    # What mails, trackers and programs put in front.
    "a quote": each(lambda line: f"> {line}"),
    "quotes of quotes": each(lambda line: f">> > {line}"),
    "comments of a shell": each(lambda line: f"# {line}"),
    "comments without a blank": each(lambda line: f"#{line}"),
    "comments of C++": each(lambda line: f"// {line}"),
    "comments of C": each(lambda line: f" * {line}"),
    "comments of C, line by line": each(lambda line: f"/* {line} */"),
    "comments of SQL": each(lambda line: f"-- {line}"),
    "comments of Lisp": each(lambda line: f";; {line}"),
    "comments of TeX": each(lambda line: f"% {line}"),
    "comments of Rust": each(lambda line: f"//! {line}"),
    "a list": each(lambda line: f"- {line}"),
    "a list with numbers": counted(lambda number, line: f"{number}. {line}"),
    "numbers of lines": counted(lambda number, line: f"{number:6}  {line}"),
    "signs of a diff": each(lambda line: f"+{line}"),
    "an indented block": each(lambda line: f"    {line}"),
    "a preformatted block of a wiki": each(lambda line: f" {line}"),
    # What pages make of a text.
    "a page": each(html.escape),
    "a page in a page": each(with_entities),
    "marked rows": each(lambda line: f"<mark>{html.escape(line)}</mark>"),
    "rows of code": each(lambda line: f'<span class="line">{html.escape(line)}</span>'),
    # Blanks and ends of lines.
    "tabs": each(lambda line: re.sub(" {2,}", "\t", line)),
    "hard blanks": each(lambda line: line.replace(" ", "\u00a0")),
    "hard blanks in rows of blanks": each(lambda line: line.replace("  ", "\u00a0 ")),
    "narrow blanks": each(lambda line: line.replace(" ", "\u2007")),
    "no rows of blanks": each(lambda line: " ".join(line.split())),
    "blanks at the end": each(lambda line: f"{line}   \t "),
    "Windows": each(lambda line: f"{line}\r"),
    "a console": each(lambda line: f"{line}\r\r"),
    "cat -A": each(lambda line: f"{line}$"),
    "cat -A of Windows": each(lambda line: f"{line}^M$"),
    "a program's string": each(lambda line: f'"{line}\\n"'),
    "a call of a program": each(lambda line: f'puts("{line}");'),
    "lines that go on": each(lambda line: f"{line} \\"),
    "hyphens of a word processor": each(lambda line: line.replace("-", "\u2011")),
    "every second line empty": lambda lines, _: [
        pair for number, line in enumerate(lines, 1) for pair in ((number, line), (number, ""))
    ],
    "col -bx undone": each(struck),
    "separators of lines": lambda lines, _: [(0, "\u2028".join(lines))],
    # What logs put in front.
    "dmesg": counted(lambda number, line: f"[{800 + number:5}.{number:06}] {line}"),
    "dmesg -T": each(lambda line: f"[Wed May  1 10:00:00 2024] {line}"),
    "syslog": each(lambda line: f"May  1 10:00:00 host1 kernel: {line}"),
    "logger": each(lambda line: f"May  1 10:00:00 host1 root[4711]: {line}"),
    "journalctl -o short-iso": each(
        lambda line: f"2024-05-01T10:00:00+0200 host1 watch.sh[4711]: {line}"
    ),
    "journalctl -o short-monotonic": counted(
        lambda number, line: f"[{8000 + number}.412301] host1 watch.sh[4711]: {line}"
    ),
    "kubectl logs --timestamps": counted(
        lambda number, line: f"{CLOCK.format(number % 60, number)} {line}"
    ),
    "kubectl logs --prefix": each(lambda line: f"[pod/node-7d9f/watch] {line}"),
    "docker compose": each(lambda line: f"watch-1  | {line}"),
    "ts": each(lambda line: f"May 01 10:00:00 {line}"),
    "a chat": counted(lambda number, line: f"[10:{number % 60:02}] <kmem> {line}"),
    "pssh": each(lambda line: f"node7: {line}"),
    # Numbers of locales and columns of tools.
    "thousands with commas": grouped(","),
    "thousands with points": grouped(".", 1_000_000),
    "thousands with apostrophes": grouped("'"),
    "thousands with small blanks": grouped("\u202f"),
    "columns of a table": each(lambda line: f"| {' | '.join(line.split())} |"),
    "columns that were drawn": each(lambda line: f"\u2502 {' '.join(line.split())} \u2502"),
    # Lines in other places.
    "folded at 76": lambda lines, _: joined(lines, 76, "", ""),
    "folded with flowing blanks": lambda lines, _: joined(lines, 72, "", " "),
    "folded and quoted": lambda lines, _: joined(lines, 70, "> ", ""),
    "cut at 80": lambda lines, _: cut_in_words(lines, 80, ""),
    "cut at 79 by Emacs": lambda lines, _: cut_in_words(lines, 79, "\\"),
    "base64": as_mail,
}


@functools.cache
def plain_of(text: str) -> Reading:
    return reading_of(text.encode())


def named(reading: Reading) -> Counter[tuple[object, ...]]:
    return Counter((t.form, *as_read(cache)) for t in reading.tables for cache in t.caches)


@dataclass(frozen=True)
class Seen:
    """What a disguise left of a report."""

    missing: list[str]  # caches that are not read, and whose lines are not named either
    unread: list[str]  # caches that are not read, and have an unread line
    wrong: list[str]  # caches that the report does not have


def seen(text: str, disguise: Disguise, source: random.Random) -> Seen:
    plain = plain_of(text)
    disguised = disguise(text.splitlines(), source)
    content = "\n".join(line for _, line in disguised).encode()
    found = reading_of(content)
    left, faults = named(plain), {fault.line for fault in found.unread}
    if not found.tables and all(line.startswith("#") for _, line in disguised):
        return Seen([], [], [])  # so few lines are comments, and the command says so
    left.subtract(named(found))
    lines_of: dict[int, set[int]] = {}
    for place, (number, _) in enumerate(disguised, 1):
        lines_of.setdefault(number, set()).add(place)
    missing, unread = [], []
    for table in plain.tables:
        for cache in table.caches:
            if left[(table.form, *as_read(cache))] > 0:
                places = lines_of.get(cache.line, faults)  # all of them are of a single line
                (unread if places & faults else missing).append(cache.name)
    return Seen(missing, unread, [str(key) for key, count in left.items() if count < 0])


# What a disguise takes from a report.
LESS = {
    **{
        (name, report): "the line of a node or its orders is cut, and the rest is named"
        for name in ("folded at 76", "folded with flowing blanks", "folded and quoted")
        for report in ("failed-android", "failed-memory-group")
    },
    **{
        (name, "collectl-2007"): "its rows are folded before, and go on in the next line only"
        for name in (
            "every second line empty",
            "thousands with commas",
            "thousands with apostrophes",
        )
    },
    ("cut at 80", "crash-one-slab"): "a name that is cut is a name",
    ("cut at 79 by Emacs", "crash-one-slab"): "a name that is cut is a name",
}


@pytest.mark.parametrize("name", DISGUISES)
def test_each_report_is_read(name: str) -> None:
    """The same caches, by name and figures."""
    failed = {}
    for report, text in TEXTS.items():
        if (name, report) in LESS:
            continue
        found = seen(text, DISGUISES[name], random.Random(1))
        if found.missing or found.wrong or found.unread:
            failed[report] = found
    assert not failed


def damaged(lines: Sequence[str], first: int, last: int, begin: int, end: int) -> list[str]:
    """Lines from `first` to `last`, without some letters at both ends."""
    some = list(lines[first:last])
    if some:
        some[0] = some[0][begin:]
        some[-1] = some[-1][: max(0, len(some[-1]) - end)]
    return some


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    report=st.sampled_from(sorted(TEXTS)),
    disguise=st.sampled_from(sorted(DISGUISES)),
    other=st.sampled_from(("as it is", "a quote", "dmesg", "Windows", "an indented block")),
    ends=st.tuples(*[st.integers(0, 40)] * 4),
)
def test_a_part_of_a_report_is_never_another(
    report: str, disguise: str, other: str, ends: tuple[int, int, int, int]
) -> None:
    """A part of a table, in two disguises at once: its own caches, and else unread lines.

    A cut number is another number, so the first and the last line may say what they never said.
    """
    lines = TEXTS[report].splitlines()
    first, after = ends[0] % (len(lines) + 1), ends[1] % (len(lines) + 1)
    part = damaged(lines, first, len(lines) - after, ends[2], ends[3])
    source = random.Random(1)
    inner = DISGUISES[other](part, source)
    outer = DISGUISES[disguise]([line for _, line in inner], source)
    found = reading_of("\n".join(line for _, line in outer).encode())
    whole = {cache.name for table in plain_of(TEXTS[report]).tables for cache in table.caches}
    whole.add(UNNAMED)
    cut = {word for line in (part[:1] + part[-1:]) for word in line.split()}
    for table in found.tables:
        for cache in table.caches:
            assert cache.name in whole or any(word in cut for word in cache.name.split()), cache
