#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How fast, and in how much memory, `kmem import` reads long texts of each form.

The texts are made up: events of 60 tasks on 8 CPUs with 400 places in the code, and as many objects
at once as --living says. A text is written, read once by the tool, and removed. CPU time is what
counts, as other programs may run beside.

With --repeat N the text is N times as long: its objects are freed at the end, and then it comes
again with later times, which takes a tenth of the time that making it anew would take. 10 GB are

    scripts/import_speed.py perf --repeat 10
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import ending
import numpy as np

from kmem.common.tree import build
from kmem.importing.text import TOOL

FORMS = ("perf", "trace-cmd", "ftrace")
HEADS = {
    "perf": "",
    "trace-cmd": "cpus=8\n",
    "ftrace": "# tracer: nop\n#\n# entries-in-buffer/entries-written: 5/5   #P:8\n#\n",
}
FLAGS = ("GFP_KERNEL", "GFP_ATOMIC", "GFP_KERNEL|__GFP_ZERO", "GFP_KERNEL_ACCOUNT|__GFP_ZERO")
SIZES = (32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096)
AT_ONCE = 20_000  # lines that are written together
SECONDS_DIGITS = 5  # of every time, with blanks in front
PIECE = 16 << 20  # bytes of a text that is repeated
SPARE = 4 << 30  # bytes that a disk keeps


def head(form: str, source: random.Random, now: int) -> str:
    """The words in front of an event's name."""
    number, cpu = source.randrange(60), source.randrange(8)
    seconds, ns = divmod(now, 10**9)
    if form == "perf":
        pid = 1000 + number
        return f"{f'task-{number}':>15} {pid:6}/{pid} [{cpu:03}] {seconds:6}.{ns:09}:  kmem:"
    task = f"{f'task-{number}':>16}-{1000 + number:<7}"
    return f"{task} [{cpu:03}] d..1. {seconds:5}.{ns // 1000:06}: "


class Ending:
    """Asked for, it ends the lines that are made."""

    is_asked = False


def lines(form: str, living: int, ends: Ending) -> Iterator[str]:
    """Allocations until enough objects live, and then frees of any as well; in the end of all."""
    source = random.Random(5)
    sites = [
        (f"func_{place:x}_alloc+0x{source.randrange(16, 900):x}", source.choice(SIZES))
        for place in range(400)
    ]
    objects: list[tuple[int, int]] = []
    address, now = 0xFFFF888000000000, 10**9
    while objects or not ends.is_asked:
        now += source.randrange(300, 2500)
        is_free = ends.is_asked or len(objects) > living
        if is_free or (objects and source.random() < 0.4):
            chosen = source.randrange(len(objects))
            objects[chosen], objects[-1] = objects[-1], objects[chosen]
            pointer, place = objects.pop()
            site, size = sites[place]
            is_kmalloc = size > 100
            name = "kfree" if is_kmalloc else "kmem_cache_free"
            words = "" if is_kmalloc else f" name=cache_{size}"
            body = f"call_site={site}/0x400 ptr=0x{pointer:016x}{words}"
        else:
            address += 64
            place = source.randrange(400)
            objects.append((address, place))
            site, size = sites[place]
            is_kmalloc = size > 100
            name = "kmalloc" if is_kmalloc else "kmem_cache_alloc"
            words = "" if is_kmalloc else f" name=cache_{size}"
            body = (
                f"call_site={site}/0x400 ptr=0x{address:016x}{words} bytes_req={size - 3}"
                f" bytes_alloc={size} gfp_flags={FLAGS[place % 4]} node=-1 accounted=false"
            )
        inner = f"              ({site}) " if form == "trace-cmd" else " "
        yield f"{head(form, source, now)}{name}:{inner}{body}\n"


def later(piece: bytes, seconds: tuple[int, int], more: int) -> bytes:
    """Whole lines with their seconds, of a number of digits in a column of each, later."""
    letters = np.frombuffer(piece, np.uint8).copy()
    starts = np.flatnonzero(np.concatenate(([True], letters[:-1] == ord("\n"))))
    first, end = seconds
    places = starts[:, None] + np.arange(first, end)
    digits = np.where(letters[places] == ord(" "), 0, letters[places] - ord("0"))
    tens = 10 ** np.arange(end - first - 1, -1, -1)
    values = digits.astype(np.int64) @ tens + more
    letters[places] = values[:, None] // tens % 10 + ord("0")
    return letters.tobytes()


def repeat(file: Path, begin: int, times: int) -> None:
    """The file's lines from a byte on are there several times, each with later seconds."""
    end = file.stat().st_size
    with file.open("rb") as source, file.open("ab") as text:
        source.seek(begin)
        head = source.readline().decode()
        found = re.search(r" (\d+)\.\d+:", head)
        assert found is not None
        seconds = found.end(1) - SECONDS_DIGITS, found.end(1)
        source.seek(end - 1000)
        last = source.read(1000).decode().splitlines()[-1]
        period = int(last[slice(*seconds)]) + 1
        for number in range(1, times):
            source.seek(begin)
            left, rest = end - begin, b""
            while left:
                piece = rest + source.read(min(left, PIECE))
                left = end - source.tell()
                whole = piece.rfind(b"\n") + 1
                piece, rest = piece[:whole], piece[whole:]
                text.write(later(piece, seconds, number * period))


def write(form: str, size: int, living: int, file: Path, times: int) -> None:
    total = 0
    ends = Ending()
    made = lines(form, living, ends)
    with file.open("w", encoding="ascii") as text:
        text.write(HEADS[form])
        while total < size:
            total += text.write("".join(itertools.islice(made, AT_ONCE)))
        if times > 1:
            ends.is_asked = True
            text.writelines(made)
    if times > 1:
        repeat(file, len(HEADS[form]), times)


def measured(file: Path, trace: Path) -> dict[str, float]:
    """The tool's own figures, its CPU seconds, and the most memory that it had."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    with file.open("rb") as text:
        process = subprocess.Popen(
            ending.tied([TOOL, trace, "0", "4096", "speed"]),
            stdin=text,
            stdout=subprocess.PIPE,
            text=True,
        )
        peak = 0
        while process.poll() is None:
            peak = max(peak, peak_of(process.pid))
            time.sleep(0.05)
        assert process.stdout is not None
        figures = json.loads(process.stdout.read())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "events": figures["events"],
        "unreadable": figures["unreadable"],
        "living": figures["living"],
        "text_bytes": file.stat().st_size,
        "trace_bytes": trace.stat().st_size,
        "cpu_seconds": round(cpu, 2),
        "seconds": round(time.monotonic() - began, 2),
        "million_events_a_cpu_second": round(figures["events"] / cpu / 1e6, 2),
        "peak_bytes": peak,
    }


def peak_of(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(found[0]) << 10 if found else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("forms", nargs="*", default=FORMS, help="perf, trace-cmd, ftrace")
    parser.add_argument("--bytes", type=int, default=10**9, help="of each text")
    parser.add_argument("--repeat", type=int, default=1, help="times that a text is read through")
    parser.add_argument("--folder", type=Path, help="where the texts are written")
    parser.add_argument("--living", type=int, default=100_000, help="objects at once")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    words = parser.parse_args()
    build(TOOL)
    rows = {}
    for form in words.forms:
        with tempfile.TemporaryDirectory(prefix="kmem-speed-", dir=words.folder) as name:
            file = Path(name) / "text"
            needed = words.bytes * words.repeat * 5 // 4 + SPARE
            if shutil.disk_usage(name).free < needed:
                parser.error(f"{name}: expected {needed >> 30} GiB free there; see --folder")
            write(form, words.bytes, words.living, file, words.repeat)
            rows[form] = measured(file, Path(name) / "trace")
        row = rows[form]
        print(
            f"{form}: {row['events']:,} events of {row['text_bytes']:,} bytes in"
            f" {row['cpu_seconds']} CPU seconds: {row['million_events_a_cpu_second']} million a"
            f" second, {row['peak_bytes'] / 2**20:.0f} MiB at the peak,"
            f" {row['unreadable']} lines not read"
        )
    if words.json:
        document = {"living": words.living, "repeat": words.repeat, "rows": rows}
        words.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    ending.exceptions_for_signals()
    main()
