# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A treemap as SVG: a rectangle for each cache, as large as its memory, with the free part fainter.

Rows of rectangles are laid out by the squarified method: a row takes the next cache as long as its
rectangles do not become narrower by it.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 1000.0, 560.0
LETTER = 7.0  # width of a letter
LINE = 16.0
SMALLEST_SHARE = 0.0015  # smaller caches are drawn together


@dataclass(frozen=True)
class Item:
    """A rectangle's label, its size, and the share of it that is in use."""

    name: str
    bytes: float
    use: float | None
    reclaimed: bool


@dataclass(frozen=True)
class Box:
    item: Item
    x: float
    y: float
    width: float
    height: float


def worst(areas: Sequence[float], side: float) -> float:
    """The longest rectangle of a row along a side, as a quotient of its sides."""
    total = sum(areas)
    return max(max(side**2 * area / total**2, total**2 / (side**2 * area)) for area in areas)


def lay_out(items: Sequence[Item]) -> list[Box]:
    """Boxes for items, the largest first."""
    whole = sum(item.bytes for item in items)
    scale = WIDTH * HEIGHT / whole
    x = y = 0.0
    width, height = WIDTH, HEIGHT
    boxes: list[Box] = []
    rest = list(items)
    while rest:
        side = min(width, height)
        row = [rest.pop(0)]
        areas = [row[0].bytes * scale]
        while rest and worst([*areas, rest[0].bytes * scale], side) <= worst(areas, side):
            row.append(rest.pop(0))
            areas.append(row[-1].bytes * scale)
        depth = sum(areas) / side
        at = 0.0
        for item, area in zip(row, areas, strict=True):
            length = area / depth
            if width >= height:
                boxes.append(Box(item, x, y + at, depth, length))
            else:
                boxes.append(Box(item, x + at, y, length, depth))
            at += length
        if width >= height:
            x, width = x + depth, max(width - depth, 1e-9)
        else:
            y, height = y + depth, max(height - depth, 1e-9)
    return boxes


def gathered(items: Sequence[Item], things: str) -> list[Item]:
    """The small ones as a single item."""
    whole = sum(item.bytes for item in items)
    large = [item for item in items if item.bytes >= SMALLEST_SHARE * whole]
    small = [item for item in items if 0 < item.bytes < SMALLEST_SHARE * whole]
    if small:
        rest = Item(f"{len(small)} smaller {things}", sum(one.bytes for one in small), None, False)
        large.append(rest)
    return sorted(large, key=lambda item: -item.bytes)


def label(box: Box) -> str:
    """The name, where it fits."""
    letters = int((box.width - 8) / LETTER)
    if box.height < LINE + 4 or letters < 4:
        return ""
    name = box.item.name if len(box.item.name) <= letters else box.item.name[: letters - 1] + "…"
    lines = [f'<text x="{box.x + 4:.1f}" y="{box.y + LINE:.1f}">{html.escape(name)}</text>']
    size = f"{box.item.bytes / 1024:,.0f} KiB"
    if box.height >= 2 * LINE + 4 and len(size) <= letters:
        lines.append(
            f'<text x="{box.x + 4:.1f}" y="{box.y + 2 * LINE:.1f}" class="small">{size}</text>'
        )
    return "".join(lines)


def drawn(box: Box) -> str:
    item = box.item
    use = 1.0 if item.use is None else item.use
    colour = "var(--reclaimed)" if item.reclaimed else "var(--kept)"
    share = "" if item.use is None else f", {100 * use:.1f}% of it in use"
    title = html.escape(f"{item.name}: {item.bytes / 1024:,.0f} KiB{share}")
    used_height = box.height * use
    return (
        f"<g><title>{title}</title>"
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
        f' style="fill: {colour}; fill-opacity: 0.18; stroke: var(--paper)"/>'
        f'<rect x="{box.x:.1f}" y="{box.y + box.height - used_height:.1f}"'
        f' width="{box.width:.1f}" height="{used_height:.1f}"'
        f' style="fill: {colour}; fill-opacity: 0.45; stroke: var(--paper)"/>{label(box)}</g>\n'
    )


STYLE = (
    ":root { --kept: #c2571a; --reclaimed: #2a7f62; }"
    " .treemap text { font-size: 12px; } .treemap .small { font-size: 11px; opacity: 0.8; }"
)


def treemap(title: str, items: Sequence[Item], things: str = "caches") -> str:
    """The figure; empty if no item has a size."""
    shown = gathered([item for item in items if item.bytes > 0], things)
    if not shown:
        return ""
    boxes = "".join(map(drawn, lay_out(shown)))
    return (
        f'<svg class="treemap" role="img" aria-label="{html.escape(title)}"'
        f' viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}"><style>{STYLE}</style>\n{boxes}</svg>'
    )
