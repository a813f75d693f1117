# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A line without what logs, mails and trackers put around it."""

import html
import re

# Of a log: priority, time, host, program. Each may be there once, in this order.
STAMPS = (
    r"\d{1,3},\d{1,19},\d{1,19},[-c][^;]{0,80};",  # /dev/kmsg, netconsole
    r"<\d{1,3}>",
    r"[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \S{1,80} (?:kernel|\S{1,40}): ?",  # syslog
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,24} \S{1,80} kernel: ?",  # journal
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,24} ",
    r"\w{2,10}: +\w{2,10}: \[[^\]]{1,40}\]: ?",  # kern: info: [2025-01-01T10:00:00.1Z]:
    r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4}\] ?",  # dmesg -T
    r"\[ *\d{1,10}\.\d{1,9}\](?:\[ *[CT]\d{1,10}\])? ?",  # dmesg
    r"\[\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,6}\] ?",  # a second clock, on phones
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
REMARK = re.compile(r"\s(?:\u2190|<--+|<==+|//)\s.*$")
BEFORE = ("**", "`", "*", '"', "'")
BEHIND = ('",', "',", '"', "'", "**", "`", "<==", "<--", "*")


def clean(line: str) -> str:
    """The fields of a line, with single spaces between them."""
    text = line
    if "&" in text:
        text = ENTITY.sub(lambda found: html.unescape(found[0]), text)
    if "{" in text or "[" in text:
        text = TRACKER.sub(" ", text)
    if "\\" in text:
        text = text.replace("\\_", "_")
    text = QUOTE.sub("", text.lstrip(), count=1) if text.lstrip()[:1] in (">", "|") else text
    text = STAMP.sub("", text.replace("|", " ").strip(), count=1).strip()
    text = GREP.sub("", text, count=1) if "slabinfo" in text and GREP.match(text) else text
    if not text.startswith("//"):
        text = REMARK.sub("", text)
    for mark in BEFORE:
        text = text.removeprefix(mark)
    for mark in BEHIND:
        text = text.removesuffix(mark)
    return " ".join(text.split())
