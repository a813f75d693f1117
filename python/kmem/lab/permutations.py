# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A trace with its concurrent parts in another order that could have happened, too.

Two runs of a system differ in the moments at which its threads and interrupts run. A part is a
sequence of events of one thread, or of the interrupts of one CPU. This module puts each part off by
a random number of events, and takes it as soon as its turn has come and the order allows it: a
thread keeps its own order, and no object is freed before it is allocated. The times of the trace
stay in place; only the events at these times differ.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from kmem.traces import file as tr

SLICE = 64  # events after which another thread may run at the latest
WINDOW = 1000  # events by which a part is put off at most


@dataclass(frozen=True)
class Parts:
    """Parts of a trace, numbered as they begin."""

    start: np.ndarray[tuple[int], np.dtype[np.int64]]  # first records, then the number of records
    before: list[list[int]]  # for each part the parts that must be over before it

    def __len__(self) -> int:
        return len(self.start) - 1


def _flows(records: pl.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The flow of each event: its thread, or the interrupts of its CPU."""
    interrupt = pl.col("operation") & (tr.SOFTIRQ | tr.HARDIRQ)
    by_cpu = -1 - (pl.col("cpu").cast(pl.Int64) * 64 + interrupt.cast(pl.Int64)) - (1 << 40)
    flow = pl.when(interrupt != 0).then(by_cpu).otherwise(pl.col("thread").cast(pl.Int64))
    return records.select(flow.alias("flow"))["flow"].to_numpy()


def find_parts(trace: tr.Trace) -> Parts:
    records = trace.records
    flow = _flows(records)
    count = len(flow)
    begins = np.flatnonzero(np.diff(flow, prepend=flow[:1] - 1))
    runs = pairwise([*begins, count])
    start = np.array(
        [at for begin, end in runs for at in range(begin, end, SLICE)] + [count], np.int64
    )
    part_of = np.repeat(np.arange(len(start) - 1), np.diff(start))
    before: list[list[int]] = [[] for _ in range(len(start) - 1)]
    last: dict[int, int] = {}
    for part, at in enumerate(start[:-1]):
        who = int(flow[at])
        if who in last:
            before[part].append(last[who])
        last[who] = part
    operation = records["operation"].to_numpy() & tr.OPERATION_MASK
    objects = records["object"].to_numpy()
    made_in = np.full(trace.objects, -1, np.int64)
    begin_life = np.isin(operation, (tr.ALLOC, tr.PAGE_ALLOC))
    made_in[objects[begin_life]] = part_of[begin_life]
    frees = np.isin(operation, (tr.FREE, tr.IMPLIED, tr.PAGE_FREE))
    pairs = np.unique(np.stack([part_of[frees], made_in[objects[frees]]]), axis=1)
    for part, maker in pairs.T:
        if maker != part:
            before[part].append(int(maker))
    return Parts(start, before)


def order_of(parts: Parts, seed: int) -> list[int]:
    """The parts in the order that this seed gives."""
    delay = np.random.default_rng(seed).uniform(0, WINDOW, len(parts))
    turn = parts.start[:-1] + delay
    waits_for = [len(set(before)) for before in parts.before]
    behind: list[list[int]] = [[] for _ in range(len(parts))]
    for part, before in enumerate(parts.before):
        for other in set(before):
            behind[other].append(part)
    ready = [(float(turn[part]), part) for part in range(len(parts)) if not waits_for[part]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, part = heapq.heappop(ready)
        order.append(part)
        for other in behind[part]:
            waits_for[other] -= 1
            if not waits_for[other]:
                heapq.heappush(ready, (float(turn[other]), other))
    return order


def permute(trace: tr.Trace, parts: Parts, seed: int) -> tr.Trace:
    """The trace with its parts in the order that this seed gives; seed 0 is the trace itself."""
    if seed == 0 or not len(parts):
        return trace
    rows = np.concatenate(
        [np.arange(parts.start[part], parts.start[part + 1]) for part in order_of(parts, seed)]
    )
    records = trace.records[rows].with_columns(trace.records["time"])
    source = f"{trace.source}; permutation {seed}"
    return tr.Trace(
        records,
        trace.caches,
        trace.sites,
        trace.objects,
        trace.cpus,
        trace.page_bytes,
        source.strip("; "),
    )
