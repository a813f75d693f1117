#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Record programs of the benchmark suite, and print bench/workloads/size_tables.h.

Run from the tree: .venv/bin/python scripts/size_tables.py >bench/workloads/size_tables.h
It takes a minute. A table holds the sizes that a program asked for, with their shares.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import ending
import polars as pl

from kmem.bench.allocators import LIBKMEM
from kmem.bench.servers import PROGRAMS
from kmem.record.program import write_traces
from kmem.traces.file import read_trace

NAMES = ("python3", "redis", "node", "gcc", "sqlite3")
SCALE = 0.1
ENTRIES = 24  # of a table, at most
SHARES = 4096  # the parts that a program's requests are divided into
OPERATION = 7  # the bits of an operation that say which it is; 0 is an allocation

HEAD = """\
/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The sizes that programs asked malloc for, as recorded by scripts/size_tables.py at scale {scale}
 * of the rows of `kmem bench suite`. Sizes beside each other were put together until {entries}
 * were left, each under the mean of its requests.
 */
#ifndef KMEM_BENCH_SIZE_TABLES_H
#define KMEM_BENCH_SIZE_TABLES_H

#include <stdint.h>

enum {{ SIZE_SHARES = {shares}, SIZE_ENTRIES = {entries} }};

struct size_share {{
        uint32_t bytes;
        uint16_t share; /* of the requests, in parts of SIZE_SHARES; a table's shares are all */
}};

static const struct size_share size_tables[][SIZE_ENTRIES] = {{"""


def record(name: str, folder: Path) -> Path:
    (program,) = [program for program in PROGRAMS if program.name == name]
    own = folder / name
    own.mkdir()
    run = program.prepare(own, SCALE)
    raw, trace = folder / f"{name}.raw", folder / f"{name}.ktrace"
    run(LIBKMEM, {"KMEM_OPTIONS": f"record={raw}"})
    write_traces(raw, trace, [name], every=False)
    return trace


def groups_of(trace: Path) -> list[tuple[float, int]]:
    """Mean size and requests of each group; the closest neighbours join first, if both are rare."""
    records = read_trace(trace).records
    asked = records.filter(pl.col("operation") & OPERATION == 0, pl.col("requested") > 0)
    counts = asked.group_by("requested").len().sort("requested")
    groups = [(float(size), count) for size, count in counts.iter_rows()]

    def price(place: int) -> float:
        (size, count), (next_size, next_count) = groups[place : place + 2]
        return (next_size / size - 1) * min(count, next_count)

    while len(groups) > ENTRIES:
        place = min(range(len(groups) - 1), key=price)
        (size, count), (next_size, next_count) = groups[place : place + 2]
        both = count + next_count
        mean = (size * count + next_size * next_count) / both
        groups[place : place + 2] = [(mean, both)]
    return groups


def shares_of(groups: list[tuple[float, int]]) -> list[tuple[int, int]]:
    """Each share is at least a part; the most frequent size gives or takes what is left over."""
    total = sum(count for _, count in groups)
    shares = [
        (max(1, round(size)), max(1, round(SHARES * count / total))) for size, count in groups
    ]
    shares.sort(key=lambda entry: -entry[1])
    size, share = shares[0]
    shares[0] = (size, share + SHARES - sum(share for _, share in shares))
    return shares


def main() -> None:
    print(HEAD.format(scale=SCALE, entries=ENTRIES, shares=SHARES))
    with tempfile.TemporaryDirectory(prefix="kmem-sizes-") as text:
        folder = Path(text)
        folder.chmod(0o755)  # a server's user has to read files in it
        for name in NAMES:
            print(f"        /* {name} */")
            entries = ", ".join(
                f"{{{size}, {share}}}" for size, share in shares_of(groups_of(record(name, folder)))
            )
            print(f"        {{{entries}}},")
    print("};\n\n#endif")


if __name__ == "__main__":
    ending.exceptions_for_signals()
    main()
