#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Make the pictures of README.md, in docs/pictures.

    readme_pictures.py chart     time.svg, from the newest result of bench/results
    readme_pictures.py top       top.svg, `kmem top` of a redis-server under load
    readme_pictures.py page      page.png, the page of `kmem serve` for that server, in Chromium

`chart` needs Python alone, and equal results give equal bytes. The others need the packages of
`make test`, redis and chromium.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ending
from document_figures import newest_result

ROOT = Path(__file__).resolve().parent.parent
KMEM = ROOT / "kmem"
PICTURES = ROOT / "docs" / "pictures"

# ---- Chart --------------------------------------------------------------------------------------

WIDTH, HEIGHT = 680, 360  # pixels, as all lengths below
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 20, 50
LETTER = 7  # width of a letter, about
LABELS = {
    "glibc": "glibc 2.36",
    "mimalloc": "mimalloc 2.0",
    "mimalloc-new": "mimalloc 3.3",
    "jemalloc": "jemalloc 5.3.0",
    "jemalloc-new": "jemalloc 5.3.1",
    "tcmalloc": "tcmalloc 2.10",
    "rpmalloc": "rpmalloc 2",
    "snmalloc": "snmalloc 0.7",
}


@dataclass(frozen=True)
class Scale:
    """Values on pixels of an axis."""

    most: float  # the axis begins at 1
    first: float
    last: float

    def __call__(self, value: float) -> float:
        return self.first + (value - 1) / (self.most - 1) * (self.last - self.first)

    def ticks(self) -> list[float]:
        step = 0.25 if self.most < 2.1 else 0.5
        return [1 + step * number for number in range(int((self.most - 1) / step + 1e-9) + 1)]


def axis_end(values: Sequence[float]) -> float:
    return math.ceil(max(values) * 4 + 0.2) / 4


def text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}"{more}>{words}</text>'


def axes(across: Scale, up: Scale) -> Iterator[str]:
    for value in across.ticks():
        x = across(value)
        yield f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>'
        yield text(x, HEIGHT - BOTTOM + 18, f"{value:g}", ' text-anchor="middle"')
    for value in up.ticks():
        y = up(value)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
        yield text(LEFT - 8, y + 4, f"{value:g}", ' text-anchor="end"')
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield text(
        middle, HEIGHT - 10, "time, as a ratio to the best of each row", ' text-anchor="middle"'
    )
    turned = f' text-anchor="middle" transform="rotate(-90 16 {HEIGHT // 2})"'
    yield text(16, HEIGHT / 2, "peak memory, likewise", turned)


def marks(points: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    """A circle and a name for each allocator; a name that would cover another goes to the left."""
    taken: list[tuple[float, float, float]] = []
    for name, (x, y) in sorted(points.items(), key=lambda point: (-point[1][0], point[0])):
        words = LABELS.get(name, name)
        length = LETTER * len(words)
        starts = (x + 9, x - 9 - length)
        right_is_free = x + 9 + length < WIDTH and not any(
            abs(y - row) < 14 and starts[0] < end and start < starts[0] + length
            for start, end, row in taken
        )
        start = starts[0] if right_is_free else starts[1]
        taken += [(start, start + length, y), (x - 7, x + 7, y)]
        ours = name == "libkmem"
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{"#c2410c" if ours else "#64748b"}"/>'
        anchor = "" if right_is_free else ' text-anchor="end"'
        weight = ' font-weight="bold"' if ours else ""
        yield text(x + 9 if right_is_free else x - 9, y + 4, words, anchor + weight)


def chart(result: Mapping[str, Any]) -> str:
    """Geometric means of time and peak memory over the rows that every allocator finished."""
    times, memory = result["geomean"]["time"], result["geomean"]["memory"]
    across = Scale(axis_end(list(times.values())), LEFT, WIDTH - RIGHT)
    up = Scale(axis_end(list(memory.values())), HEIGHT - BOTTOM, TOP)
    points = {name: (across(times[name]), up(memory[name])) for name in times}
    title = f"Time and peak memory, geometric means over {result['geomean']['rows']} rows"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
        f' height="{HEIGHT}" font-family="sans-serif" font-size="12" fill="#222" role="img">',
        f"<title>{title}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        *axes(across, up),
        *marks(points),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def draw_chart() -> None:
    (PICTURES / "time.svg").write_text(chart(json.loads(newest_result().read_text())))


# ---- Pictures of commands -----------------------------------------------------------------------


@contextlib.contextmanager
def redis_under_load() -> Iterator[int]:
    """The process id of a redis-server on libkmem that a redis-benchmark keeps busy."""
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/redis.sock"
        words = [
            "redis-server",
            "--port",
            "0",
            "--unixsocket",
            socket,
            "--save",
            "",
            "--dir",
            folder,
        ]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        server = subprocess.Popen([KMEM, "run", "--set", "registry=on", "--", *words], **quiet)
        while not Path(socket).exists():
            if server.poll() is not None:
                raise SystemExit("readme_pictures: redis-server did not start; is it installed?")
            time.sleep(0.05)
        load = [
            "redis-benchmark",
            "-s",
            socket,
            "-l",
            "-q",
            "-r",
            "200000",
            "-t",
            "set,lpush,hset,sadd",
        ]
        client = subprocess.Popen(load, **quiet)
        try:
            time.sleep(3)  # so that there is something to see
            yield server.pid
        finally:
            for process in (client, server):
                process.kill()
                process.wait()


def draw_top() -> None:
    sys.path.insert(0, str(ROOT / "python"))
    from kmem.live.top import Top

    async def look(process: int) -> str:
        app = Top(process, delay=0.5)
        async with app.run_test(size=(100, 18)) as pilot:
            await pilot.pause(6)  # a dozen looks, for the column of growth
            return app.export_screenshot(title="kmem top")

    with redis_under_load() as process:
        picture = asyncio.run(look(process))
    # Fonts of other sites stay away; a monospaced font of the reader's serves.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    (PICTURES / "top.svg").write_text(re.sub(r"[ \t]+$", "", picture, flags=re.MULTILINE))


def draw_page() -> None:
    from playwright.sync_api import sync_playwright

    command = [KMEM, "serve", "--port", "0", "--interval", "0.5"]
    with redis_under_load() as process, sync_playwright() as playwright:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", chromium_sandbox=False
        )
        try:
            assert server.stdout is not None
            page = browser.new_page(viewport={"width": 1180, "height": 530})
            page.goto(server.stdout.readline().split()[1])
            page.select_option("#process", str(process))
            page.wait_for_timeout(12_000)  # ms, for the charts
            page.screenshot(path=PICTURES / "page.png")
        finally:
            browser.close()
            server.terminate()
            server.wait()


DRAW = {"chart": draw_chart, "top": draw_top, "page": draw_page}


def main() -> int:
    names = sys.argv[1:]
    if not names or not set(names) <= set(DRAW):
        print(
            f"readme_pictures: {' '.join(names)}: expected some of {', '.join(DRAW)}",
            file=sys.stderr,
        )
        return 2
    PICTURES.mkdir(exist_ok=True)
    for name in names:
        DRAW[name]()
    return 0


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main())
