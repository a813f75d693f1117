# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The shape of a workload: shares of caches and sizes, lifetimes, and frees on another CPU."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kmem.common.errors import KmemError

if TYPE_CHECKING:
    from kmem.traces.file import Trace

RECORDED = Path(__file__).parent / "load_recorded.csv"


@dataclass(frozen=True)
class Shape:
    """The figures of a workload that are compared."""

    shares: Mapping[str, float]  # percent of the allocations, by kmalloc-SIZE or cache-SIZE
    median_ns: float
    percentile_90_ns: float
    other_cpu: float  # percent of the frees that are paired


def shape_of(trace: "Trace") -> Shape:
    """Frees that nobody recorded, and frees of older objects, are left out."""
    import polars as pl

    from kmem.traces.file import ALLOC, CACHE_KMALLOC, FREE, OPERATION_MASK

    records = trace.records.with_columns(pl.col("operation") & OPERATION_MASK)
    allocs = records.filter(pl.col("operation") == ALLOC)
    kinds = allocs.group_by(pl.col("cache") == CACHE_KMALLOC, "given").len()
    shares: dict[str, float] = {}
    for by_size, given, count in kinds.sort("len", "given", descending=True).iter_rows():
        shares[f"{'kmalloc' if by_size else 'cache'}-{given}"] = 100 * count / allocs.height
    lives = (
        records.filter(pl.col("operation") == FREE)
        .select("object", "time", "cpu")
        .join(allocs.select("object", begin="time", cpu_then="cpu"), on="object")
        .select(
            life=pl.col("time").cast(pl.Int64) - pl.col("begin").cast(pl.Int64),
            other=pl.col("cpu") != pl.col("cpu_then"),
        )
    )
    if not lives.height:
        raise KmemError("lab workloads: a trace without a free of what it allocates")
    quantiles = [float(lives["life"].quantile(share, "nearest") or 0) for share in (0.5, 0.9)]
    other = lives["other"].sum() * 100 / lives.height
    return Shape(shares, quantiles[0], quantiles[1], float(other))


def read_recorded(file: Path = RECORDED) -> dict[str, Shape]:
    """The figures of recorded runs, by trace."""
    figures: dict[str, dict[str, float]] = {}
    with file.open(encoding="utf-8") as text:
        for row in csv.DictReader(line for line in text if not line.startswith("#")):
            figures.setdefault(row["trace"], {})[row["figure"]] = float(row["value"])
    fixed = ("median_ns", "percentile_90_ns", "other_cpu")
    return {
        trace: Shape(
            {name: value for name, value in values.items() if name not in fixed},
            *(values[name] for name in fixed),
        )
        for trace, values in figures.items()
    }
