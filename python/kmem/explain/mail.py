# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A mail as it travels: its heads are left out, and encoded parts become plain lines.

Archives give mails away like this, in quoted-printable with `=C2=A0` for a blank and `=` at the end
of a line that goes on, or in base64. Each line keeps its number, so that faults name the line that
the user sees; all of a part in base64 has that of its first line.
"""

from __future__ import annotations

import binascii
import quopri
import re
from collections.abc import Sequence

# A head begins with one of these. Other words with a colon are figures, as those of /proc/meminfo.
HEAD = re.compile(
    r"(?:return-path|received|from|to|date|subject|message-id|content-[a-z-]{1,40}|mime-version"
    r"|x-[a-z-]{1,40}):(?:\s|$)",
    re.ASCII | re.IGNORECASE,
)
HEAD_LINE = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,60}:|[ \t]", re.ASCII)
QUOTED_PRINTABLE = re.compile(r"Content-Transfer-Encoding:\s*quoted-printable\s*", re.IGNORECASE)
BASE64 = re.compile(r"Content-Transfer-Encoding:\s*base64\s*", re.IGNORECASE)
BASE64_LINE = re.compile(r"[A-Za-z0-9+/]{1,100}={0,2}", re.ASCII)
ENCODED = re.compile(r"=(?:3D|20|C2=A0|E2=80)", re.ASCII)
LONGEST_ENCODED = 76  # letters of a line in quoted-printable
LEAST_FULL = 65
BOUNDARY = re.compile(r'boundary="?([^";\s]{1,100})', re.IGNORECASE)


class Mail:
    """The place in a mail: a head, or a part with its encoding."""

    def __init__(self) -> None:
        self.boundaries: set[str] = set()
        self.in_head = False
        self.is_encoded = False
        self.is_base64 = False

    def begins_head(self, line: str, before: str) -> bool:
        """At the begin of the text, behind an empty line, or behind a boundary."""
        return HEAD.match(line) is not None and (not before.strip() or self.is_boundary(before))

    def is_boundary(self, line: str) -> bool:
        text = line.rstrip()
        return text.startswith("--") and text.removesuffix("--")[2:] in self.boundaries

    def take_head_line(self, line: str) -> None:
        if QUOTED_PRINTABLE.fullmatch(line):
            self.is_encoded = True
        self.is_base64 = self.is_base64 or BASE64.fullmatch(line) is not None
        if match := BOUNDARY.search(line):
            self.boundaries.add(match[1])


def decoded(lines: Sequence[str]) -> list[str]:
    """As many lines as before. A line that goes on has all its text, and the next are empty."""
    mail = Mail()
    if not any(QUOTED_PRINTABLE.fullmatch(line) or BASE64.fullmatch(line) for line in lines):
        if not looks_encoded(lines):
            return list(lines)
        mail.is_encoded = True
    found: list[str] = []
    packed: list[tuple[int, int]] = []  # first lines and numbers of lines in base64
    begun = -1  # the line that goes on
    for position, line in enumerate(lines):
        if mail.is_boundary(line):
            mail.is_encoded, mail.in_head, mail.is_base64, begun = False, False, False, -1
            found.append("")
            continue
        if mail.begins_head(line, lines[position - 1] if position else ""):
            mail.in_head, mail.is_encoded, mail.is_base64, begun = True, False, False, -1
        if mail.in_head:
            if HEAD_LINE.match(line):
                mail.take_head_line(line)
                found.append("")
                continue
            mail.in_head = False
        if mail.is_base64 and BASE64_LINE.fullmatch(line.strip()):
            if not packed or sum(packed[-1]) != position:
                packed.append((position, 0))
            packed[-1] = (packed[-1][0], packed[-1][1] + 1)
        if not mail.is_encoded:
            found.append(line)
            continue
        goes_on = line.endswith("=")
        text = line.removesuffix("=")
        found.append(text if begun < 0 else "")
        if begun >= 0:
            found[begun] += text
        if goes_on:
            begun = begun if begun >= 0 else position
        else:
            plain(found, begun if begun >= 0 else position)
            begun = -1
    if begun >= 0:
        plain(found, begun)
    for first, count in packed:
        unpack(found, first, count)
    return found


def unpack(lines: list[str], first: int, count: int) -> None:
    """A part in base64, if it is a text; its lines are then in the first one, behind each other."""
    try:
        text = binascii.a2b_base64("".join(lines[first : first + count])).decode("utf-8")
    except ValueError:
        return
    if "\0" not in text:
        lines[first] = text.replace("\r\n", "\n").replace("\n", "\r")
        lines[first + 1 : first + count] = [""] * (count - 1)


def looks_encoded(lines: Sequence[str]) -> bool:
    """A part of a mail without its head: full lines end with =, and no line is longer."""
    if any(len(line) > LONGEST_ENCODED for line in lines):
        return False
    goes_on = sum(line.endswith("=") and len(line) > LEAST_FULL for line in lines)
    return goes_on > 1 and any(ENCODED.search(line) for line in lines)


def plain(lines: list[str], position: int) -> None:
    text = lines[position]
    if "=" in text:
        content = quopri.decodestring(text.encode("utf-8", "replace"))
        lines[position] = " ".join(content.decode("utf-8", "replace").split("\n"))
