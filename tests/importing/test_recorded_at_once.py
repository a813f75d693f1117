# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Recordings that several tools made of one load at once: imported, they have the same events.

Of Linux 6.1, 6.12 and 7.2 they are in the folder recorded, as scripts/compare_recordings.py has put
them there, made on emulated machines by Debian's perf and trace-cmd of these kernels' releases. The
test makes those of the running kernel.
"""

from __future__ import annotations

import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from kmem.traces import file as tr

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import compare_recordings as recordings  # noqa: E402
from recorded.compare import Compared, compare, marks_of  # noqa: E402

RECORDED = Path(__file__).parent / "recorded"
KERNELS = ["6.1", "6.12", "7.2"]
TEXTS = ["ftrace.txt", "perf.txt", "trace-cmd-l.txt", "trace-cmd.txt"]
# perf prints no interrupts, nor does trace-cmd 3.1 without -l.
NO_INTERRUPTS = {("perf.txt", kernel) for kernel in KERNELS} | {("trace-cmd.txt", "6.1")}


def text_of(folder: Path, kernel: str, name: str) -> Path:
    with tarfile.open(RECORDED / kernel / "texts.tar.xz") as archive:
        archive.extract(name, folder)
    return folder / name


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", TEXTS)
def test_recordings_of_other_kernels(tmp_path: Path, kernel: str, name: str) -> None:
    own = tr.read_trace(RECORDED / kernel / "own.ktrace")
    trace, lost = recordings.imported(text_of(tmp_path, kernel, name))
    compared = compare(own, trace, lost)
    assert compared.events == compared.paired > 100
    assert (compared.missing, compared.further, compared.lost) == (0, 0, 0)
    different = {what for what, count in compared.differ.items() if count}
    assert different == ({"irq"} if (name, kernel) in NO_INTERRUPTS else set())
    assert trace.cpus == (own.cpus if name != "perf.txt" else trace.cpus)


def changed(own: tr.Trace, kernel: str, folder: Path, change: pl.Expr) -> Compared:
    """How a recording compares with a trace of which one column is another."""
    other, _ = recordings.imported(text_of(folder, kernel, "trace-cmd-l.txt"))
    return compare(replace(own, records=own.records.with_columns(change)), other)


def test_wrong_events_are_found(tmp_path: Path) -> None:
    """An event in the middle of the marks that is another, or that is missing, is no pair."""
    own = tr.read_trace(RECORDED / "7.2" / "own.ktrace")
    first, last = marks_of(own.records, "the trace")
    rows = own.records.with_row_index("row")
    inside = rows.filter(pl.col("time").is_between(first, last, closed="none"))
    born = inside.filter((pl.col("operation") & tr.OPERATION_MASK) == tr.ALLOC)
    place = born["row"][born.height // 2]
    here = pl.int_range(pl.len()) == place
    for column, value in (("requested", 12_345), ("site", 1), ("thread", 77_777), ("cache", 0)):
        was = own.records[column][place]
        assert was != value
        change = pl.when(here).then(pl.lit(value)).otherwise(pl.col(column))
        kind = own.records[column].dtype
        compared = changed(own, "7.2", tmp_path, change.cast(kind).alias(column))
        assert (compared.missing, compared.further) == (1, 1), column
        assert not compared.well()
    other, _ = recordings.imported(text_of(tmp_path, "7.2", "ftrace.txt"))
    without = replace(own, records=rows.filter(pl.col("row") != place).drop("row"))
    assert compare(without, other).further == 1
    compared = compare(other, without)
    assert compared.missing == 1
    assert not compared.well()
    assert compare(other, without, lost=1).well()


def test_other_objects_are_found(tmp_path: Path) -> None:
    """Two frees of one place, whose objects are exchanged."""
    own = tr.read_trace(RECORDED / "7.2" / "own.ktrace")
    first, last = marks_of(own.records, "the trace")
    rows = own.records.with_row_index("row")
    frees = rows.filter(
        pl.col("time").is_between(first, last, closed="none")
        & ((pl.col("operation") & tr.OPERATION_MASK) == tr.FREE)
    )
    groups = frees.group_by("site", "cpu", "thread", "cache", maintain_order=True).agg("row")
    pair = next(group["row"][:2] for group in groups.iter_rows(named=True) if len(group["row"]) > 1)
    objects = own.records["object"].to_list()
    objects[pair[0]], objects[pair[1]] = objects[pair[1]], objects[pair[0]]
    wrong = own.records.with_columns(object=pl.Series(objects, dtype=pl.UInt32))
    other, _ = recordings.imported(text_of(tmp_path, "7.2", "perf.txt"))
    compared = compare(replace(own, records=wrong), other)
    assert not compared.well()


def test_losses_are_what_is_missing(tmp_path: Path) -> None:
    """A recording without some lines in a row, and with the line that perf has in their place."""
    own = tr.read_trace(RECORDED / "6.12" / "own.ktrace")
    file = text_of(tmp_path, "6.12", "perf.txt")
    lines = file.read_text().splitlines()
    middle = len(lines) // 2
    gone = sum("ptr=(nil)" not in line for line in lines[middle : middle + 40])
    word = lines[middle].split(":")[0]
    lines[middle : middle + 40] = [f"{word}: PERF_RECORD_LOST lost {gone}"]
    file.write_text("\n".join(lines) + "\n")
    trace, lost = recordings.imported(file)
    compared = compare(own, trace, lost)
    assert (lost, compared.missing, compared.further) == (gone, gone, 0)
    assert compared.well()


def test_perf_may_leave_out_a_few() -> None:
    assert not Compared(events=5000, paired=4999, missing=1).well()
    assert Compared(events=5000, paired=4995, missing=5).well(perf=True)
    assert not Compared(events=5000, paired=4994, missing=6).well(perf=True)
    assert not Compared(events=999, paired=998, missing=1).well(perf=True)


@pytest.mark.alone
def test_recordings_of_this_kernel(tmp_path: Path) -> None:
    try:
        recordings.record_here(tmp_path / "here", recordings.LOAD_HERE)
    except recordings.Refused as reason:
        pytest.skip(f"nothing can be recorded here: {reason}")
    rows = recordings.rows_of("here", tmp_path / "here")
    assert [what for _, what, _ in rows] == ["perf", "trace-cmd", "ftrace"]
    for _, what, compared in rows:
        assert compared.events > 1000
        assert compared.well(what == recordings.PERF), (what, compared)
