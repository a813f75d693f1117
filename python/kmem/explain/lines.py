# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The lines of a report, out of bytes of any encoding and out of what carried them.

Terminals, web pages and logs in JSON put several lines of a table into one line of a file. Each of
them keeps the number of that line, so that faults name the line that the user sees.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from kmem.explain.mail import decoded

BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
NO_UTF_8 = re.compile("[\udc80-\udcff]")
LOOKED_AT = 512  # bytes, for the zeros of UTF-16 without a mark
INVISIBLE: dict[int, str | None] = dict.fromkeys(map(ord, "\ufeff\u200b\u200c\u200d\u2060\u00ad"))
OTHER_ENDS = dict.fromkeys(map(ord, "\u2028\u2029\x85\v\f"), "\r")  # of lines
UNSEEN = INVISIBLE | OTHER_ENDS
# A terminal's commands: those that move to another line, and all others.
MOVES = re.compile(r"\x1b\[[\d;]{0,20}[Hf]|\x1b[DEM]")
COMMANDS = re.compile(
    r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[ -/]{1,2}[0-~]"
    r"|[0-~])"
)
# What terminals, syslog and bad copies leave of a command.
SHOWN_COMMANDS = re.compile(r"(?:\^\[|#033|\\033|\\x1b|\\e)\[[\d;]{0,20}[A-Za-z]")
TAG_BREAKS = re.compile(r"<(?:br ?/?|/tr|/p|/div|/li|/dt|/dd|/pre|/h\d)>", re.IGNORECASE)
# The head of /proc/slabinfo has names in angle brackets, so only these tags are none of a table.
TAGS = re.compile(
    r"</?(?:a|b|blockquote|body|br|code|dd|del|details|div|dl|dt|em|figure|font|h\d|html|i|ins|kbd|li"
    r"|mark|nowiki|ol|p|pre|s|samp|section|small|span|strong|sub|summary|table|tbody|td|textarea|th"
    r"|thead|tr|tt|u|ul)(?: [^<>]{0,400})?/?>",
    re.IGNORECASE,
)
ESCAPES = {"\\n": "\n", "\\r": "", "\\t": " ", '\\"': '"', "\\'": "'", "\\\\": "\\"}
ESCAPE = re.compile(r"\\[nrt\"'\\]")
ESCAPED_LINES = 2  # so many ends of lines in letters are those of a text that somebody quoted
# A letter that a printer struck over, as `man` and `script` leave it.
STRUCK = re.compile("[^\b\r\n]\b")
STRUCK_MOST = 8  # letters in a row
# Where a row begins behind another one, as chats and forms put all lines of a paste into one.
ROWS = (
    (
        ": tunables ",
        re.compile(r"\s{1,60}(?=\S{1,300}(?:\s{1,60}\d{1,20}){5}\s{1,60}:\s{1,60}tunables\s)"),
    ),
    ("% ", re.compile(r"\s{1,60}(?=\d{1,19}\s{1,60}\d{1,19}\s{1,60}\d{1,3}%\s{1,60}\d)")),
    ("KB ", re.compile(r"(?<=KB)\s{1,60}(?=\S{1,300}(?:\s{1,60}\d{1,16}KB){2}(?:\s|$))")),
)
NAMES = re.compile(r"(\S{1,300})(?:\s{1,60}\d{1,20}){5}\s{1,60}:\s{1,60}tunables\s", re.ASCII)
# Where logs in JSON have the text of their line.
MESSAGES = ("MESSAGE", "message", "msg", "log", "line", "text")
JSON_DEEPEST = 20


def text_of(content: bytes) -> str:
    for mark, encoding in BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, "replace")
    first = content[:LOOKED_AT]
    if b"\0" in first:
        half = len(first) // 2
        for begin, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
            if (
                half
                and first[begin::2].count(0) > 0.9 * half
                and b"\0" not in first[1 - begin :: 2]
            ):
                return content.decode(encoding, "replace")
    text = content.decode("utf-8", "surrogateescape")
    # Of text that is no UTF-8 the blank of Windows' code pages is read, as pages have many of them.
    return text if text.isascii() else NO_UTF_8.sub("\ufffd", text.replace("\udca0", "\u00a0"))


def strings_in(value: Any, deep: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif deep < JSON_DEEPEST and isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings_in(inner, deep + 1)


def of_json(line: str) -> list[str] | None:
    """The texts of a line that is an object in JSON: of a log's entry the message alone."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    for name in MESSAGES:
        if isinstance(entry.get(name), str):
            return str(entry[name]).split("\n")
    return [part for text in strings_in(entry) for part in text.split("\n")]


# What jc makes of a line of /proc/slabinfo, as a format of that line.
ROW_OF_JC = (
    "{name} {active_objs} {num_objs} {obj_size} {obj_per_slab} {pages_per_slab} : tunables {limit}"
    " {batch_count} {shared_factor} : slabdata {active_slabs} {num_slabs} {shared_avail}"
)
MARK_OF_JC = '"num_objs"'


def rows_of_jc(text: str) -> tuple[list[int], list[str]] | None:
    """The lines of /proc/slabinfo that jc turned into JSON, with those in which each stands."""
    if MARK_OF_JC not in text or not text.lstrip().startswith(("[", "{")):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    rows = []
    for one in found if isinstance(found, list) else [found]:
        if not isinstance(one, dict):
            return None
        values = dict(one)
        for inner in (one.get("tunables"), one.get("slabdata")):
            values.update(inner if isinstance(inner, dict) else {})
        try:
            rows.append(ROW_OF_JC.format_map(values))
        except KeyError:
            return None
    lines = enumerate(text.split("\n"), 1)
    numbers = [number for number, line in lines for _ in range(line.count(MARK_OF_JC))]
    return (numbers, rows) if len(numbers) == len(rows) else None


def unescaped(line: str) -> list[str]:
    return ESCAPE.sub(lambda found: ESCAPES[found[0]], line).split("\n")


def parts_of(line: str) -> list[str]:
    """What a line of the file has to say, in as many lines as it was."""
    if line.startswith("{") and line.rstrip().endswith("}") and (found := of_json(line.strip())):
        return found
    if "\x1b" in line:
        line = COMMANDS.sub("", MOVES.sub("\r", line))
    if "[" in line:
        line = SHOWN_COMMANDS.sub("", line)
    for _ in range(STRUCK_MOST if "\b" in line else 0):
        line = STRUCK.sub("", line)
    if "<" in line and TAGS.search(line):
        line = TAGS.sub(" ", TAG_BREAKS.sub("\r", line))
    parts = line.split("\r") if "\r" in line else [line]
    if line.count("\\n") >= ESCAPED_LINES:
        parts = [piece for part in parts for piece in unescaped(part)]
    return [row for part in parts for row in rows_of(part)]


def rows_of(text: str) -> list[str]:
    """The rows of a table that lost the ends of its lines; not those of two tables side by side."""
    for mark, begin in ROWS:
        if text.count(mark) > 1:
            names = NAMES.findall(text)
            if all(name != other for name, other in itertools.pairwise(names)):
                text = begin.sub("\r", text)
    return text.split("\r")


def lines_of(content: bytes) -> tuple[list[int], list[str]]:
    """Numbers and texts of lines; a number may be that of several."""
    text = text_of(content).translate(UNSEEN).replace("\r\n", "\n")
    if rows := rows_of_jc(text):
        return rows
    lines = decoded([line.rstrip("\r") for line in text.split("\n")])
    numbers, texts = [], []
    for number, line in enumerate(lines, 1):
        for part in parts_of(line):
            numbers.append(number)
            texts.append(part)
    return numbers, texts
