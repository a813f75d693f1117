# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Trace files as Polars frames.

libkmem-trace.so reads and writes them, so there is a single reader for C and for Python.
tools/trace/trace.h describes the columns, docs/trace-format.md the file.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from kmem.common.errors import KmemError
from kmem.common.files import whole
from kmem.common.tree import BUILD

LIBRARY = BUILD / "tools" / "trace" / "libkmem-trace.so"

# Operations; further bits say where the call came from.
ALLOC, FREE, IMPLIED, ORPHAN, PAGE_ALLOC, PAGE_FREE = range(6)
OPERATION_MASK = 7
KFREE, SOFTIRQ, HARDIRQ = 8, 16, 32

# Cache ids with a fixed meaning.
CACHE_KMALLOC, CACHE_UNKNOWN = 0, 1
FIRST_CACHE = 2  # of a name of its own
SITE_UNKNOWN = 0

SOURCE_MOST = 65536  # bytes, of the text in the header
CACHES_MOST, OBJECTS_MOST = 1 << 16, 1 << 32  # room of the ids

# Environment variable: bytes of memory that a trace may take, instead of a multiple of its file.
MEMORY_VARIABLE = "KMEM_TRACE_MEMORY"


COLUMNS: dict[str, type[np.generic[Any]]] = {
    "time": np.uint64,
    "requested": np.uint64,
    "given": np.uint64,
    "thread": np.int32,
    "object": np.uint32,
    "site": np.uint32,
    "flags": np.uint32,
    "cpu": np.uint16,
    "cache": np.uint16,
    "operation": np.uint8,
}

# Memory that a frame takes beside the trace in C. A name takes an entry in a list and the head of a
# text.
DEMAND = {
    "record": sum(np.dtype(dtype).itemsize for dtype in COLUMNS.values()),
    "name": 88,
    "name_byte": 4,  # as wide as characters can be
}


# The Polars type of each column.
TYPES: dict[str, pl.DataType] = {
    name: pl.Series(np.empty(0, dtype)).dtype for name, dtype in COLUMNS.items()
}


class TraceError(KmemError):
    """A file that is no sound trace; the text has the file, the byte and the expected content."""


class _Names(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_uint32),
        ("name", ctypes.POINTER(ctypes.c_char_p)),
        ("text", ctypes.c_void_p),
        ("text_bytes", ctypes.c_size_t),
    ]

    def texts(self) -> list[str]:
        return [self.name[i].decode(errors="replace") for i in range(self.count)]


class _Trace(ctypes.Structure):
    _fields_ = [
        ("records", ctypes.c_uint64),
        ("objects", ctypes.c_uint64),
        ("cpus", ctypes.c_uint32),
        ("page_bytes", ctypes.c_uint32),
        ("file_bytes", ctypes.c_uint64),
        ("source", ctypes.c_char_p),
        ("caches", _Names),
        ("sites", _Names),
        *((name, ctypes.c_void_p) for name in COLUMNS),
    ]


class _Demand(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ["record", "object", "name", "name_byte"]]


class _Contents(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64) for name in ["records", "objects", "names", "name_bytes", "others"]
    ]


class _Error(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("text", ctypes.c_char * 240)]

    def reason(self) -> str:
        """The reason. A long name in it may be cut off in the middle of a character."""
        return bytes(self.text).decode(errors="replace")


@dataclass
class Trace:
    """A whole trace: a row of `records` for each event, with ids of caches and sites."""

    records: pl.DataFrame  # COLUMNS
    caches: list[str]
    sites: list[str]
    objects: int  # ids of objects are below this
    cpus: int
    page_bytes: int = 4096
    source: str = ""

    @property
    def is_of_program(self) -> bool:
        """Whether malloc made all objects: a kernel's trace has caches beside kmalloc."""
        return len(self.caches) <= FIRST_CACHE

    def named(self) -> pl.DataFrame:
        """The records with names in place of the ids of caches and sites."""
        # A file may have more names of caches than there are ids; no record has these.
        caches = self.caches[:CACHES_MOST]
        return self.records.with_columns(
            pl.col(column).replace_strict(
                # Polars makes no range whose end, which is not in it, is beyond the type.
                pl.Series(range(len(names))).cast(self.records[column].dtype),
                pl.Series(names, dtype=pl.String),
                return_dtype=pl.String,
            )
            for column, names in (("cache", caches), ("site", self.sites))
        )


def _library() -> ctypes.CDLL:
    if not LIBRARY.exists():
        raise KmemError(f"{LIBRARY} is missing; make build makes it where libzstd is installed")
    library = ctypes.CDLL(str(LIBRARY))
    trace, error = ctypes.POINTER(_Trace), ctypes.POINTER(_Error)
    library.trace_load.restype = library.trace_save.restype = ctypes.c_bool
    library.trace_load.argtypes = [ctypes.c_char_p, ctypes.POINTER(_Demand), trace, error]
    library.trace_save.argtypes = [ctypes.c_char_p, trace, error]
    library.trace_memory_allows.restype = ctypes.c_bool
    library.trace_memory_allows.argtypes = [
        ctypes.POINTER(_Contents),
        ctypes.POINTER(_Demand),
        ctypes.c_uint64,
        error,
    ]
    library.trace_free.restype = None
    library.trace_free.argtypes = [trace]
    library.trace_check.restype = ctypes.c_bool
    library.trace_check.argtypes = [trace, error]
    return library


def _column(address: int | None, count: int, dtype: type[np.generic[Any]]) -> pl.Series:
    """A copy of a column that C owns."""
    if not count or address is None:
        return pl.Series(np.empty(0, dtype))
    kind = np.dtype(dtype)
    memory = memoryview((ctypes.c_char * (count * kind.itemsize)).from_address(address))
    return pl.Series(np.frombuffer(memory, kind).copy())


def read_trace(path: Path) -> Trace:
    """The trace in a file of either form, .slt.zst too.

    Raises TraceError with the byte at which the file is damaged or cut short, or with the first
    record that frees an object which does not exist, or if the trace takes more memory than it may
    (docs/trace-format.md).
    """
    library = _library()
    raw, error = _Trace(), _Error()
    if not library.trace_load(bytes(path), _Demand(**DEMAND), raw, error):
        raise TraceError(f"{path}: byte {error.offset}: {error.reason()}")
    try:
        if not library.trace_check(raw, error):
            raise TraceError(f"{path}: {error.reason()}")
        return Trace(
            records=pl.DataFrame(
                {
                    name: _column(getattr(raw, name), raw.records, dtype)
                    for name, dtype in COLUMNS.items()
                }
            ),
            caches=raw.caches.texts(),
            sites=raw.sites.texts(),
            objects=raw.objects,
            cpus=raw.cpus,
            page_bytes=raw.page_bytes,
            source=raw.source.decode(errors="replace"),
        )
    finally:
        library.trace_free(raw)


def check_memory(what: str, file_bytes: int, needed: int) -> None:
    """Raises TraceError if NEEDED bytes of memory are more than files of FILE_BYTES may take."""
    error = _Error()
    if not _library().trace_memory_allows(_Contents(others=needed), None, file_bytes, error):
        raise TraceError(f"{what}: {error.reason()}")


def _as_c(path: Path, records: pl.DataFrame, name: str) -> np.ndarray[Any, Any]:
    """A column in C's type. An error if a value does not fit, since NumPy would cut it off."""
    given, kind = records[name], TYPES[name]
    column = given.cast(kind, strict=False)
    wrong = (column.is_null() | (column != given)).fill_null(True)
    if wrong.any():
        at = wrong.arg_max() or 0
        raise TraceError(f"{path}: record {at} has {name} {given[at]}; expected {kind}")
    return np.ascontiguousarray(column.to_numpy(), COLUMNS[name])


def write_trace(path: Path, trace: Trace) -> None:
    """Write a trace file; on TraceError the earlier file is unchanged.

    Refuses values that are no numbers of their column, or would be cut off. The reader checks
    whether ids, CPUs and lives are sound.
    """
    columns = {name: _as_c(path, trace.records, name) for name in COLUMNS}
    for text in (*trace.caches, *trace.sites, trace.source):
        if "\0" in text:
            raise TraceError(f"{path}: {text!r}: expected a text without a zero byte")
    raw, error = _Trace(), _Error()
    raw.records, raw.objects = trace.records.height, trace.objects
    raw.cpus, raw.page_bytes, raw.source = trace.cpus, trace.page_bytes, trace.source.encode()
    if len(raw.source) > SOURCE_MOST:
        raise TraceError(
            f"{path}: a source of {len(raw.source):,} bytes; expected at most {SOURCE_MOST:,}"
        )
    for names, texts in ((raw.caches, trace.caches), (raw.sites, trace.sites)):
        names.count = len(texts)
        names.name = (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))
    for name, column in columns.items():
        setattr(raw, name, column.ctypes.data)
    with whole(path) as place:
        if not _library().trace_save(bytes(place), raw, error):
            raise TraceError(f"{path}: {error.reason()}")
