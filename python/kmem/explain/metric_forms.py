# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Metrics of Prometheus's node_exporter: a line for each figure of each cache of /proc/slabinfo.

NAME{LABELS} VALUE, in which a label is the cache and the others, as the host, tell tables apart.
"""

from __future__ import annotations

import re

from kmem.explain.items import Bad, Item, Memory, Part, Passed

METRICS = "metrics of /proc/slabinfo"
LINE = re.compile(r"node_slabinfo_(\w{1,40})(?:\{([^{}]{0,600})\})?(?: (\S{1,40}))?(?: \d{9,14})?")
# Of /proc/meminfo; with labels it is one host's of several, and tables have no hosts.
MEMORY = re.compile(r"node_memory_(\w{1,40})_bytes(\{[^{}]{0,600}\})? (\S{1,40})(?: \d{9,14})?")
LABEL = re.compile(r'(\w{1,60}) ?= ?"((?:[^"\\]|\\.){0,200})"')
CACHE_LABEL = "slab"
FIELDS = {
    "active_objects": "active",
    "objects": "objects",
    "object_size_bytes": "stride_bytes",
    "objects_per_slab": "per_slab",
    "pages_per_slab": "pages_per_slab",
}
VALUE = re.compile(r"\d{1,19}(?:\.\d{1,18})?(?:[eE]\+?\d{1,2})?", re.ASCII)
MOST = 1 << 64
LONGEST_LABELS = 80  # in the name of a form
LARGEST_SLAB = 1 << 20  # pages


def counted(text: str) -> int | None:
    """1.206e+06 as the exporter writes 1206000."""
    value = float(text) if VALUE.fullmatch(text) else None
    return int(value) if value is not None and value < MOST and value == int(value) else None


def metric_line(text: str) -> Item | None:
    if memory := MEMORY.fullmatch(text):
        size = counted(memory[3])
        return Passed() if memory[2] or size is None else Memory(memory[1], size >> 10)
    match = LINE.fullmatch(text)
    if match is None:
        return None
    labels = dict(LABEL.findall(match[2] or ""))
    cache = labels.pop(CACHE_LABEL, "")
    value = counted(match[3] or "")
    field = FIELDS.get(match[1])
    if field is None:
        return Bad(f"a metric {match[1][:40]!r}; expected one of {', '.join(FIELDS)}")
    if not cache:
        return Bad(f"a metric without a cache; expected a label {CACHE_LABEL}")
    if value is None or (field == "pages_per_slab" and value > LARGEST_SLAB):
        return Bad(f"a metric of {cache[:40]} with {(match[3] or '')[:40]!r}; expected a count")
    beside = ", ".join(f"{name} {labels[name]}" for name in sorted(labels))[:LONGEST_LABELS]
    return Part(f"{METRICS} ({beside})" if beside else METRICS, cache, field, value)
