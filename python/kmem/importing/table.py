# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem export`: a trace as a table that other tools read."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from kmem.common.errors import BadUsage, KmemError, say
from kmem.common.files import whole, why_not_written
from kmem.traces import file as tr

OPERATIONS = {
    tr.ALLOC: "alloc",
    tr.FREE: "free",
    tr.IMPLIED: "implied free",
    tr.ORPHAN: "orphan free",
    tr.PAGE_ALLOC: "pages alloc",
    tr.PAGE_FREE: "pages free",
}
FORMS = (".parquet", ".csv")


def as_table(trace: tr.Trace) -> pl.DataFrame:
    """The columns of docs/trace-format.md with names for ids; the bits beside operations apart."""
    operation = pl.col("operation")
    return trace.named().with_columns(
        operation=(operation & tr.OPERATION_MASK).replace_strict(
            OPERATIONS, return_dtype=pl.String
        ),
        kfree=operation & tr.KFREE != 0,
        softirq=operation & tr.SOFTIRQ != 0,
        hardirq=operation & tr.HARDIRQ != 0,
    )


def export(trace_file: Path, out: Path) -> None:
    if out.suffix not in FORMS:
        raise BadUsage(f"export: --out {out}: expected a name that ends in .parquet or .csv")
    if reason := why_not_written(out):
        raise KmemError(f"export: --out {out}: {reason}; expected a file to write")
    table = as_table(tr.read_trace(trace_file))
    try:
        # Polars takes no name that is not UTF-8, and of a file that is open it hands errors on.
        with whole(out) as place, place.open("wb") as file:
            if out.suffix == ".csv":
                table.write_csv(file)
            else:
                table.write_parquet(file)
    except (OSError, pl.exceptions.ComputeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise KmemError(f"export: --out {out}: {reason}") from None
    say(f"{out}: {table.height:,} events")
