# SPDX-License-Identifier: Apache-2.0 OR MIT
"""GitHub's Markdown in the form that Python-Markdown wants: lists.

Python-Markdown wants an empty line in front of a list, and four columns for each level of a list,
where GitHub takes the width of the marker. Fenced code keeps its text and gets the columns of its
item.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

ITEM = re.compile(r"( *)([-*+]|\d+[.)])( +)(?=\S)")
LEVEL = 4  # columns


@dataclass
class Lists:
    """The items around a line, by the columns of their content."""

    contents: list[int] = field(default_factory=list)

    def leave_for(self, indent: int) -> None:
        while self.contents and indent < self.contents[-1]:
            self.contents.pop()

    def moved(self, line: str) -> str:
        """A line of the innermost item."""
        if not self.contents or not line.strip():
            return line
        indent = len(line) - len(line.lstrip(" "))
        beyond = max(indent - self.contents[-1], 0)
        return " " * (LEVEL * len(self.contents) + beyond) + line.lstrip(" ")


def for_python_markdown(text: str) -> str:
    lines: list[str] = []
    lists = Lists()
    fence = ""
    for line in text.split("\n"):
        start = line.lstrip(" ")
        indent = len(line) - len(start)
        if fence:
            lines.append(lists.moved(line))
            if start.startswith(fence) and start.strip("`") == "":
                fence = ""
            continue
        after_blank = not lines or not lines[-1].strip()
        item = ITEM.match(line)
        if item:
            inside = bool(lists.contents)
            lists.leave_for(indent)
            if not inside and not after_blank:
                lines.append("")
            level = len(lists.contents)
            lists.contents.append(item.end())
            lines.append(" " * (LEVEL * level) + line[item.start(2) :])
            continue
        if after_blank and start:
            lists.leave_for(indent)
        elif indent == 0 and start.startswith(("#", "|", "```")):
            lists.leave_for(0)
        if start.startswith("```"):
            fence = "`" * (len(start) - len(start.lstrip("`")))
        lines.append(lists.moved(line))
    return "\n".join(lines)
