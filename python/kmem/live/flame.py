# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A flame graph as SVG: the outermost caller at the bottom, widths by value, names on hover.

Of a difference, the width is what grew and what shrank together, and the colour tells which is
more: red for growth, blue for the opposite.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, ROW, TOP, LETTER = 1200, 18, 48, 7.2  # pixels; of a letter: about as wide as it is
LEAST = 0.3  # pixels; narrower boxes are left out


@dataclass
class Box:
    """A function at a place of the tree of calls."""

    value: int = 0
    size: int = 0  # without signs
    callees: dict[str, "Box"] = field(default_factory=dict)

    def add(self, value: int) -> None:
        self.value += value
        self.size += abs(value)

    def depth(self) -> int:
        levels, boxes = 0, [self]
        while boxes:
            levels += 1
            boxes = [callee for box in boxes for callee in box.callees.values()]
        return levels


def tree(stacks: Iterable[tuple[Sequence[str], int]]) -> Box:
    """A tree of stacks, innermost name first, with their values."""
    root = Box()
    for names, value in stacks:
        if value == 0:
            continue
        box = root
        box.add(value)
        for name in reversed(names):
            box = box.callees.setdefault(name, Box())
            box.add(value)
    return root


def colour(name: str) -> str:
    mixed = zlib.crc32(name.encode())
    return f"rgb({205 + mixed % 50},{80 + (mixed >> 8) % 130},{(mixed >> 16) % 60})"


def colour_of_change(box: Box) -> str:
    """Red where all of it grew, blue where all of it shrank, pale where both are alike."""
    pale = round(225 * (1 - abs(box.value) / box.size))
    return f"rgb(235,{pale},{pale})" if box.value > 0 else f"rgb({pale},{pale + 30},250)"


def draw(
    stacks: Iterable[tuple[Sequence[str], int]],
    title: str,
    unit: str,
    *,
    is_difference: bool = False,
) -> str:
    """The picture; it needs no other file and no script."""
    root = tree(stacks)
    height = TOP + ROW * root.depth() + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fdf6ec"/>',
        f'<text x="{WIDTH // 2}" y="26" font-size="16" text-anchor="middle">{escape(title)}</text>',
    ]

    # Not by recursion: with inlined functions a stack may be deeper than Python's own.
    waiting: list[tuple[str, Box, float, int]] = [("all", root, 0, 0)] if root.size else []
    while waiting:
        name, box, left, level = waiting.pop()
        wide = WIDTH * box.size / root.size
        if wide < LEAST:
            continue
        y = height - 8 - ROW * (level + 1)
        share = 100 * box.value / root.size
        figure = f"{box.value:+,}" if is_difference else f"{box.value:,}"
        fill = colour_of_change(box) if is_difference else colour(name)
        letters = int((wide - 6) / LETTER)
        shown = name if len(name) <= letters else name[: letters - 1] + "…" if letters > 3 else ""
        parts.append(
            f"<g><title>{escape(name)}: {figure} {unit}, {share:.1f}%</title>"
            f'<rect x="{left:.2f}" y="{y}" width="{wide:.2f}" height="{ROW - 1}"'
            f' fill="{fill}" rx="2"/>'
            f'<text x="{left + 3:.2f}" y="{y + 13}">{escape(shown)}</text></g>'
        )
        callees = []
        for callee, inner in sorted(box.callees.items()):
            callees.append((callee, inner, left, level + 1))
            left += WIDTH * inner.size / root.size
        waiting += reversed(callees)
    return "\n".join([*parts, "</svg>", ""])
