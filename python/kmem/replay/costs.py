# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Modelled time: the counts of a simulated machine, each multiplied by a cost from a table."""

import csv
import difflib
from collections.abc import Mapping
from pathlib import Path

from kmem.common.errors import KmemError
from kmem.common.files import read_text

ASSUMED = Path(__file__).parent / "assumed_costs.csv"

# What the simulated machine counts beside the counts that have assumed costs.
LOCKS = ("slot", "list", "barn", "alien", "slob", "page", "metadata", "other")
OF_LOCK = ("locks", "handed_over", "handed_over_node", "waits", "waits_node")
FURTHER = {"slow_calls", "slow_paths", "fences"} | {
    f"{lock}_{what}" for lock in LOCKS for what in OF_LOCK
}


def read_costs(file: Path = ASSUMED) -> dict[str, float]:
    """Nanoseconds by name of a count; raises KmemError if the file is no table of costs."""
    text = read_text(file, "costs")
    table = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    try:
        rows = list(table)
    except csv.Error as error:
        raise KmemError(f"costs {file}: {error}") from None
    columns = table.fieldnames or ()
    if columns and not {"count", "ns"} <= set(columns):
        given = ",".join(columns)[:60]
        raise KmemError(f"costs {file}: expected columns count and ns, not {given!r}")
    costs: dict[str, float] = {}
    # A misspelt name would leave its count without a cost.
    known = FURTHER.union(row["count"] for row in rows) if file == ASSUMED else known_counts()
    for row in rows:
        name = row["count"] or ""
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), 1)
            wanted = near[0] if near else f"a name of {ASSUMED.name}"
            raise KmemError(f"costs {file}: {name[:60]!r} is no count; expected {wanted}")
        if None in row:
            # As of a comma in a number, of which only the part before it would count.
            line = ",".join([*filter(None, list(row.values())[:-1]), *row[None]])
            raise KmemError(f"costs {file}: {line[:60]!r}: expected columns {','.join(columns)}")
        try:
            ns = float(row["ns"])
        except (TypeError, ValueError):
            given = row["ns"] or ""
            raise KmemError(f"costs {file}: {name} costs {given!r}; expected 0 to 1e9 ns") from None
        if name in costs:
            raise KmemError(f"costs {file}: {name} is there twice; expected one cost of each count")
        if not 0 <= ns <= 1e9:
            raise KmemError(f"costs {file}: {name} costs {row['ns']}; expected 0 to 1e9 ns")
        costs[name] = ns
    if not costs:
        raise KmemError(f"costs {file}: expected a table with columns count and ns")
    return costs


def known_counts() -> set[str]:
    return FURTHER.union(read_costs())


def modelled_ns(counts: Mapping[str, int], costs: Mapping[str, float]) -> float:
    """Time of all counts. A count without a cost, or a cost without a count, adds nothing."""
    return sum(cost * counts.get(name, 0) for name, cost in costs.items())
