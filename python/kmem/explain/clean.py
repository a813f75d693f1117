# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A line without what logs, mails and trackers put around it."""

import html
import re
from collections.abc import Iterator

from kmem.explain.items import ungrouped

# Of a log: priority, time, host, program. Each may be there once, in this order.
STAMPS = (
    r"\d{1,3},\d{1,19},\d{1,19},[-c][^;]{0,80};",  # /dev/kmsg, netconsole
    r"<\d{1,3}>",
    r"[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d [^\s>|]{1,80} (?:kernel|\S{1,40}): ?",  # syslog
    # logread of OpenWrt.
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4} [a-z]{2,8}\.[a-z]{2,8}"
    r" \S{1,40}: ?",
    # The journal; a program's name has its number behind it.
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,24} \S{1,80} (?:kernel|[\w./-]{1,40}\[\d{1,9}\]): ?",
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,24} ",
    r"\w{2,10}: +\w{2,10}: \[[^\]]{1,40}\]: ?",  # kern: info: [2025-01-01T10:00:00.1Z]:
    r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4}\] ?",  # dmesg -T
    r"\[ *\d{1,10}\.\d{1,9}\](?:\[ *[CT]\d{1,10}\])? ?",  # dmesg
    r"\[\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,6}\] ?",  # a second clock, on phones
    # Of phones: the CPU with the task, as (5)[412:kworker/5:1] and I[3:  lmkd:  563].
    r" {0,3}(?:\.?\(\d{1,2}\)\[\d{1,7}:[^\]]{1,40}\]"
    r"|[A-Z]?\[\d{1,2}: {0,20}[^\]]{1,30}: {0,7}\d{1,7}\]) ?",
)
STAMP = re.compile("".join(f"(?:{stamp})?" for stamp in STAMPS), re.ASCII)
# grep with several files names the file, and with -n the line.
GREP = re.compile(r"[\w./-]{0,200}slabinfo[\w.-]{0,80}:(?:\d{1,9}:)?(?=\S)", re.ASCII)
QUOTE = re.compile(r"(?:[>|] ?)+")
ENTITY = re.compile(r"&(?:[A-Za-z]{1,10}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});")
# Marks of code in trackers and wikis, with what may stand in them.
TRACKER = re.compile(
    r"\[/?(?:code|pre|quote|tt|b|i)(?:=[^\]]{0,40})?\]|\{(?:noformat|code|quote|panel)[^{}]{0,80}\}",
    re.IGNORECASE,
)
# What people write behind a row.
REMARK = re.compile(r"\s(?:\u2190|<--+|<==+|//)(?:\s.*)?$")
CALL = re.compile(r"[\w.]{1,40}\(f?[\"'](?=.)")  # of a program that prints the row
BEFORE = ("**", "`", "/*", "*", '"', "'")
# Of strings in programs and lists, comments, arrows; of `cat -A` and of lines that go on. A bracket
# is no part of the row if none is open: names have some, as size-64(DMA).
BEHIND = ('"', "'", ",", ";", "\\n", "\\", "*/", "*", "-->", "`", "<==", "<--", "^M", "$")
BRACKETS = {")": "(", "]": "[", "}": "{"}
ENDS = frozenset(mark[-1] for mark in (*BEHIND, *BRACKETS))
TABS = ("^I", "\\t")  # as letters
DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2212"), "-")
BLANKS_IN_NUMBERS = re.compile(r"(?<=\d)[\u2009\u202f](?=\d{3}(?!\d))")
BOX = dict.fromkeys(range(0x2500, 0x2580), " ")  # lines of drawn tables
UNSTYLED = DASHES | BOX
# A memory group's cache is NAME(ID:GROUP), and a group may have blanks in its name. Fields are
# split at blanks, so these become another letter until the cache is kept.
GROUP = re.compile(
    r"(?<=[\w\]-])\(\d{1,9}:(?:[^()]|\([^()]{0,255}\)){1,255}\)(?=[\s,/]|$)", re.ASCII
)
GROUP_BLANK = "\ue000"


def without_marks_behind(text: str) -> str:
    while text[-1:] in ENDS:
        before = text
        for mark in BEHIND:
            # A prompt of a shell ends in a dollar sign, too.
            if mark != "$" or "@" not in text:
                text = text.removesuffix(mark).rstrip()
        opening = BRACKETS.get(text[-1:])
        if opening and text.count(opening) < text.count(text[-1]):
            text = text[:-1].rstrip()
        if text == before:
            break
    return text


def clean(line: str) -> str:
    """The fields of a line, with single spaces between them."""
    text = line
    if "&" in text:
        # Twice: what a page shows of a page's text has entities of entities.
        for _ in range(2):
            text = ENTITY.sub(lambda found: html.unescape(found[0]), text)
    if not text.isascii():
        text = BLANKS_IN_NUMBERS.sub("", text).translate(UNSTYLED)
    if "{" in text or "[" in text:
        text = TRACKER.sub(" ", text)
    if "\\" in text or "^I" in text:
        text = text.replace("\\_", "_")
        for tab in TABS:
            text = text.replace(tab, " ")
    text = QUOTE.sub("", text.lstrip(), count=1) if text.lstrip()[:1] in (">", "|") else text
    text = STAMP.sub("", text.replace("|", " ").strip(), count=1).strip()
    text = GREP.sub("", text, count=1) if "slabinfo" in text and GREP.match(text) else text
    if not text.startswith("//"):
        text = REMARK.sub("", text)
    text = CALL.sub("", text, count=1) if "(" in text[:42] and CALL.match(text) else text
    for mark in BEFORE:
        text = text.removeprefix(mark)
    if "(" in text and " " in text:
        text = GROUP.sub(lambda found: GROUP_BLANK.join(found[0].split()), text)
    return " ".join(without_marks_behind(text.rstrip()).split())


def with_blanks(name: str) -> str:
    """A cache's name with the blanks of its memory group."""
    return name.replace(GROUP_BLANK, " ")


HARD_BLANKS = re.compile(r"(?<=\d)\u00a0(?=\d{3}(?!\d))")
COLUMNS = re.compile(r"[,;\t ]+")
LEAST_COLUMNS = 6  # of a row


def without_groups(text: str) -> str:
    return " ".join(map(ungrouped, text.split(" ")))


def other_writings(text: str, line: str) -> Iterator[str]:
    """The text of a line that no form has, if its numbers or columns are written in another way."""
    if "\u00a0" in line and " " in line.strip():
        yield clean(HARD_BLANKS.sub("", line))
    if (other := without_groups(text)) != text:
        yield other
    # A row of a list or of a spreadsheet.
    if text.count(",") + text.count(";") >= LEAST_COLUMNS:
        columns = (word.strip("[](){}'\"") for word in COLUMNS.split(text))
        yield " ".join(filter(None, columns))
