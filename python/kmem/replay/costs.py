# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Modelled time: the counts of a simulated machine, each multiplied by a cost from a table."""

import csv
from collections.abc import Mapping
from pathlib import Path

from kmem.common.errors import KmemError
from kmem.common.files import read_text

ASSUMED = Path(__file__).parent / "assumed_costs.csv"


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
    costs = {}
    for row in rows:
        name = row["count"]
        try:
            ns = float(row["ns"])
        except (TypeError, ValueError):
            given = row["ns"] or ""
            raise KmemError(f"costs {file}: {name} costs {given!r}; expected 0 to 1e9 ns") from None
        if name in costs:
            raise KmemError(f"costs {file}: {name} is there twice; expected one cost of each count")
        if not 0 <= ns < 1e9:
            raise KmemError(f"costs {file}: {name} costs {row['ns']}; expected 0 to 1e9 ns")
        costs[name] = ns
    if not costs:
        raise KmemError(f"costs {file}: expected a table with columns count and ns")
    return costs


def modelled_ns(counts: Mapping[str, int], costs: Mapping[str, float]) -> float:
    """Time of all counts. A count without a cost, or a cost without a count, adds nothing."""
    return sum(cost * counts.get(name, 0) for name, cost in costs.items())
