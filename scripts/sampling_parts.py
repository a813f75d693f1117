#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which parts of a sample cost what: CPU time that python3 on malloc loses by sampling.

Copies of the library lack the walk of functions in Python, and all stacks: these functions return 0
there. A process of each copy repeats the work of `kmem bench profile`, with sampling and without in
a newly drawn order; windows are pieces of work, and what counts is CPU time:

    PYTHONPATH=python .venv/bin/python scripts/sampling_parts.py --rounds 100
"""

import argparse
import contextlib
import os
import random
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import ending
from elftools.elf.elffile import ELFFile

from kmem.bench.profile_cost import NOTHING
from kmem.common.figures import median_of_ratios
from kmem.live.registry.file import Registry
from kmem.live.registry.find import open_process
from kmem.live.registry.requests import ask
from kmem.live.stacks import count_samples

LIBRARY = Path(__file__).resolve().parent.parent / "build" / "src" / "libkmem-malloc.so"
# What is left out, and the functions that return 0 for it.
PARTS: dict[str, tuple[str, ...]] = {
    "a whole sample": (),
    "without functions in Python": ("python_frames",),
    "without a stack": ("python_frames", "stack_capture", "stack_capture_from"),
}
RETURN_0 = {"EM_X86_64": b"\x31\xc0\xc3", "EM_AARCH64": b"\x00\x00\x80\xd2\xc0\x03\x5f\xd6"}
PROGRAM = """
import json, sys, time
rows = [{"name": str(i), "values": list(range(i % 50)), "text": "x" * i} for i in range(500)]
print("ready", flush=True)
for line in sys.stdin:
    begun = time.process_time()
    for _ in range(int(line)):
        rows = json.loads(json.dumps(rows))
        table = {row["name"]: [str(value) for value in row["values"]] for row in rows}
    print(time.process_time() - begun, flush=True)
"""


def write_copy(names: tuple[str, ...], to: Path) -> None:
    """The library with functions that return 0 at once; their results are of integer types."""
    content = bytearray(LIBRARY.read_bytes())
    with LIBRARY.open("rb") as file:
        elf = ELFFile(file)
        symbols = elf.get_section_by_name(".symtab")
        for name in names:
            (symbol,) = symbols.get_symbol_by_name(name)
            (place,) = elf.address_offsets(symbol["st_value"])
            code = RETURN_0[elf["e_machine"]]
            content[place : place + len(code)] = code
    to.write_bytes(content)


@dataclass
class Running:
    """A program on a copy, and CPU seconds of its windows by whether it sampled."""

    process: "subprocess.Popen[str]"
    registry: Registry
    seconds: dict[int, list[float]] = field(default_factory=dict)
    samples: list[float] = field(default_factory=list)  # a second

    def work(self, pieces: int) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{pieces}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def window(self, interval: int, pieces: int) -> None:
        # Only a new interval empties the sheaves: so either kind of window begins with one.
        for each in (NOTHING, interval):
            ask(self.registry, 0, "profile_interval", str(each))
            self.work(4)  # refills see the change
        self.work(pieces)
        before = count_samples(self.registry)
        spent = self.work(pieces)
        self.seconds.setdefault(interval, []).append(spent)
        if interval:
            self.samples.append((count_samples(self.registry) - before) / spent)


@contextlib.contextmanager
def running(library: Path) -> Iterator[Running]:
    with subprocess.Popen(
        ["/usr/bin/python3", "-s", "-S", "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ
        | {"LD_PRELOAD": str(library), "KMEM_OPTIONS": "registry=on"}
        | {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "1", "PYTHONPATH": ""},
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            with open_process(process.pid, writable=True) as registry:
                one = Running(process, registry)
                one.work(100)
                yield one
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--pieces", type=int, default=25, help="pieces of work in a window")
    parser.add_argument("--interval", type=int, default=512 << 10, help="bytes between samples")
    wanted = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        programs = {}
        for number, (part, names) in enumerate(PARTS.items()):
            copy = folder / f"libkmem-malloc-{number}.so"
            write_copy(names, copy)
            programs[part] = stack.enter_context(running(copy))
        windows = [
            (one, interval) for one in programs.values() for interval in (0, wanted.interval)
        ]
        for _ in range(wanted.rounds):
            random.shuffle(windows)
            for one, interval in windows:
                one.window(interval, wanted.pieces)
    print(f"CPU time that sampling costs at {wanted.interval >> 10} KiB, {wanted.rounds} rounds:")
    for part, one in programs.items():
        spent = one.seconds
        ratio = median_of_ratios(spent[wanted.interval], spent[0])
        mean = sum(spent[wanted.interval]) / sum(spent[0]) - 1
        print(
            f"{part}: {100 * (ratio.median - 1):.1f}% [{100 * (ratio.low - 1):.1f},"
            f" {100 * (ratio.high - 1):.1f}], mean {100 * mean:.1f}%,"
            f" {statistics.median(one.samples):.0f} samples a second"
        )


if __name__ == "__main__":
    ending.exceptions_for_signals()
    main()
