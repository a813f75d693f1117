#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How fast, and in how much memory, `kmem import` reads long texts of each form.

The texts are made up: events of 60 tasks on 8 CPUs with 400 places in the code, and as many objects
at once as --living says. A text is written, read once by the tool, and removed. CPU time is what
counts, as other programs may run beside.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import ending

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


def head(form: str, source: random.Random, now: int) -> str:
    """The words in front of an event's name."""
    number, cpu = source.randrange(60), source.randrange(8)
    seconds, ns = divmod(now, 10**9)
    if form == "perf":
        pid = 1000 + number
        return f"{f'task-{number}':>15} {pid:6}/{pid} [{cpu:03}] {seconds:6}.{ns:09}:  kmem:"
    task = f"{f'task-{number}':>16}-{1000 + number:<7}"
    return f"{task} [{cpu:03}] d..1. {seconds:5}.{ns // 1000:06}: "


def lines(form: str, living: int) -> Iterator[str]:
    """Endless: allocations until enough objects live, and then frees of any of them as well."""
    source = random.Random(5)
    sites = [
        (f"func_{place:x}_alloc+0x{source.randrange(16, 900):x}", source.choice(SIZES))
        for place in range(400)
    ]
    objects: list[tuple[int, int]] = []
    address, now = 0xFFFF888000000000, 10**9
    while True:
        now += source.randrange(300, 2500)
        if len(objects) > living or (objects and source.random() < 0.4):
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


def write(form: str, size: int, living: int, file: Path) -> None:
    total = 0
    made = lines(form, living)
    with file.open("w", encoding="ascii") as text:
        text.write(HEADS[form])
        while total < size:
            total += text.write("".join(next(made) for _ in range(AT_ONCE)))


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
    parser.add_argument("--living", type=int, default=100_000, help="objects at once")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    words = parser.parse_args()
    build(TOOL)
    rows = {}
    for form in words.forms:
        with tempfile.TemporaryDirectory(prefix="kmem-speed-") as name:
            file = Path(name) / "text"
            write(form, words.bytes, words.living, file)
            rows[form] = measured(file, Path(name) / "trace")
        row = rows[form]
        print(
            f"{form}: {row['events']:,} events of {row['text_bytes']:,} bytes in"
            f" {row['cpu_seconds']} CPU seconds: {row['million_events_a_cpu_second']} million a"
            f" second, {row['peak_bytes'] / 2**20:.0f} MiB at the peak,"
            f" {row['unreadable']} lines not read"
        )
    if words.json:
        document = {"living": words.living, "rows": rows}
        words.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    ending.exceptions_for_signals()
    main()
