# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The layout that the head of a registry describes, checked as a whole before it is used.

Any user may have written the description. So this module keeps only fields that readers know,
checks the form of each, refuses fields that overlap, and bounds every length: the memory that a
reader needs does not grow with numbers in the file. A newer library may describe more fields, and
an older library may lack the fields that are optional here.
"""

import functools
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kmem.common.errors import KmemError

MAGIC = b"libkmem\0"
VERSION = 1
START = struct.Struct("<8s4I")  # magic, version, bytes of the head, place and number of the fields
FIELD = np.dtype(
    {
        "names": ["name", "part", "offset", "bytes", "count", "value"],
        "formats": ["S32", "<u2", "<u2", "<u2", "<u2", "<u8"],
        "offsets": [0, 32, 34, 36, 38, 40],
        "itemsize": 48,
    }
)
PARTS = (
    *("head", "request", "cache", "slot", "node", "flag", "zone", "stack", "name"),
    *("samples", "sample", "thread"),
)
NUMBERS = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}

FIELDS_MOST = 512  # the library has about a hundred
HEAD_MOST_BYTES = 64 << 10  # the library has 12 KiB
TEXT_MOST_BYTES = 64
STRIDE_MOST_BYTES = 1024  # of a node, zone, request or kept word
ARRAY_MOST = 64

# Without these nothing can be read.
REQUIRED = {
    "head": "head_bytes process asked namespace start_time id used_bytes missing release requests",
    "request": "state error number birth result attribute value",
    "cache": "birth name engine object_size slab_size objs_per_slab order align usersize aliases"
    " flags cpu_partial cpu_partial_most sheaf_capacity sheaf_capacity_most min_partial"
    " min_partial_most failslab skip_kfence remote_node_defrag_ratio limit batchcount shared taken"
    " given objects_inuse cpu_partial_objects cpu_partial_slabs nodes node",
    "slot": "birth taken given",
    "node": "number slabs objects partial free_slabs free_objects shared_objects refused"
    " listed_free objects_partial cpu_slabs",
}
# The fields of a line are all there, or an older library has none of them.
TOGETHER = (
    {
        "head": "kept zone zones heap_base heap_reserved_bytes huge_blocks huge_bytes"
        " huge_kept_bytes",
        "zone": "used_pages free_pages free_touched_pages purged_pages large_blocks large_pages",
    },
    {
        "head": "hardened_level hardened_slab_bytes hardened_large_bytes hardened_waiting_bytes"
        " hardened_closed_bytes",
    },
    {"head": "soft_limit_bytes soft_limit_trims soft_limit_given_back"},
    {"cache": "pages_per_slab"},
    {"cache": "refreshed"},
    {"slot": "slot"},
    {"slot": "slow_calls fast_calls"},
    {"head": "profile_interval samples_missed"},
    {"head": "profile_slices slice_ns"},
    {"head": "profile_lease_ms"},
    {"head": "guards_made guards_live guards_missed guard_faults", "cache": "guard_sampling"},
    {"stack": "frames frame samples objects bytes freed_samples freed_objects freed_bytes"},
    {"stack": "slice_samples slice_objects slice_bytes"},
    {"name": "number bytes text"},
    {
        "head": "profile_since_ms profile_old_ms",
        "stack": "old_freed_samples old_freed_bytes",
        "samples": "sample",
        "sample": "time_ms stack thread objects bytes",
        "thread": "thread name",
    },
)
FLAGS = (
    "hwcache_align reclaim_account destroy_by_rcu cache_dma sanity_checks red_zone poison"
    " store_user trace"
)
TEXTS = {
    ("head", "release"),
    ("request", "attribute"),
    ("request", "value"),
    ("cache", "name"),
    ("cache", "engine"),
    ("thread", "name"),
}
# Most elements of each array; 0: the cache gives the number.
ARRAYS = {
    ("head", "kept"): ARRAY_MOST,
    ("head", "zone"): ARRAY_MOST,
    ("head", "requests"): ARRAY_MOST,
    ("cache", "node"): 0,
    ("stack", "frame"): ARRAY_MOST,
    ("name", "text"): ARRAY_MOST,
    ("samples", "sample"): ARRAY_MOST,
}
# The array that holds the elements of a part.
ELEMENTS = {
    "zone": ("head", "zone"),
    "request": ("head", "requests"),
    "node": ("cache", "node"),
    "sample": ("samples", "sample"),
}

Value = TypeVar("Value")


class RegistryError(KmemError):
    """Why a process's registry cannot be used."""


class UnfinishedError(RegistryError):
    """The process has not finished its registry."""


class Fields(dict[str, Value]):
    """Fields of a part, by name; the registry of another library may lack some."""

    def __init__(self, path: Path, part: str, items: Iterable[tuple[str, Value]] = ()) -> None:
        super().__init__(items)
        self.path = path
        self.part = part

    def __missing__(self, name: str) -> Value:
        raise RegistryError(f"{self.path}: no field {name} in part {self.part}")


@dataclass(frozen=True)
class Place:
    """Offset, size and form of a field in its part."""

    offset: int
    size: int
    count: int
    value: int

    @property
    def end(self) -> int:
        return self.offset + self.size * max(self.count, 1)


Places = dict[str, Fields[Place]]


def names_of(groups: Iterable[dict[str, str]]) -> Iterator[tuple[str, str]]:
    for group in groups:
        for part, names in group.items():
            yield from ((part, name) for name in names.split())


KNOWN = frozenset(names_of([REQUIRED, *TOGETHER, {"flag": FLAGS}]))


def wrong_form(part: str, name: str, place: Place) -> str | None:
    """The expected form of this field, if it has another form."""
    if part == "flag":
        return None
    if (part, name) in ARRAYS:
        most = ARRAYS[part, name]
        least = min(most, 1)
        if not (least <= place.count <= most and 8 <= place.size <= STRIDE_MOST_BYTES):
            return f"{least} to {most} elements of 8 to {STRIDE_MOST_BYTES} bytes"
        return None if place.offset % 8 == place.size % 8 == 0 else "a multiple of 8"
    if (part, name) in TEXTS:
        fits = place.value and place.count == 1 and 1 <= place.size <= TEXT_MOST_BYTES
        return None if fits else f"a text of 1 to {TEXT_MOST_BYTES} bytes"
    if place.value or place.count != 1 or place.size not in NUMBERS:
        return "a number of 1, 2, 4 or 8 bytes"
    return None if place.offset % place.size == 0 else f"a multiple of {place.size}"


def check_together(path: Path, parts: Places) -> None:
    for part, name in names_of([REQUIRED]):
        if name not in parts[part]:
            raise RegistryError(f"{path}: no field {name} in part {part}")
    for group in TOGETHER:
        there = {(part, name): name in parts[part] for part, name in names_of([group])}
        if any(there.values()):
            for (part, name), is_there in there.items():
                if not is_there:
                    raise RegistryError(f"{path}: no field {name} in part {part}")


def check_places(path: Path, parts: Places, head_bytes: int) -> None:
    """Check that no field overlaps another, or lies behind the end of its part."""
    ends = {part: parts[whole][name].size for part, (whole, name) in ELEMENTS.items()
            if name in parts[whole]}  # fmt: skip
    ends["head"] = head_bytes
    for part, places in parts.items():
        if part == "flag":
            continue
        before = 0
        for name, place in sorted(places.items(), key=lambda item: item[1].offset):
            if place.offset < before:
                raise RegistryError(f"{path}: field {name} of part {part} lies in another")
            before = place.end
            if before > ends.get(part, before):
                raise RegistryError(f"{path}: field {name} of part {part} lies behind the end")


Forms = dict[str, "np.dtype[np.void]"]


def read_layout(path: Path, head: bytes) -> tuple[Places, Forms]:
    """All fields that readers know, by part, and the parts' numpy types.

    @head is the beginning of the file. RegistryError gives the reason if it is wrong.
    """
    if len(head) < START.size:
        raise RegistryError(f"{path}: too short for a registry")
    magic, version, head_bytes, offset, count = START.unpack_from(head)
    if version == 0:
        # The library writes the version last.
        raise UnfinishedError(f"{path}: not a registry, or one that is being made")
    if magic != MAGIC:
        raise RegistryError(f"{path}: not a registry")
    if version > VERSION:
        raise RegistryError(f"{path}: version {version}; this command knows up to {VERSION}")
    if head_bytes > HEAD_MOST_BYTES or head_bytes % 64:
        raise RegistryError(
            f"{path}: a head of {head_bytes} bytes; expected a multiple of 64 up to"
            f" {HEAD_MOST_BYTES}"
        )
    if count > FIELDS_MOST:
        raise RegistryError(f"{path}: {count} fields; expected at most {FIELDS_MOST}")
    if offset + count * FIELD.itemsize > min(head_bytes, len(head)):
        raise RegistryError(f"{path}: the description of its fields is cut off")
    return check_fields(path, head_bytes, head[offset : offset + count * FIELD.itemsize])


@functools.lru_cache(maxsize=512)
def check_fields(path: Path, head_bytes: int, description: bytes) -> tuple[Places, Forms]:
    """A process describes its fields once, and readers come every second."""
    rows: npt.NDArray[np.void] = (
        np.frombuffer(description, FIELD) if description else np.array([], FIELD)
    )
    parts: Places = {part: Fields(path, part) for part in PARTS}
    for name_bytes, number, *rest in rows.tolist():
        name = name_bytes.decode("ascii", "replace")
        part = PARTS[number] if number < len(PARTS) else ""
        if (part, name) not in KNOWN:
            continue
        if name in parts[part]:
            raise RegistryError(f"{path}: field {name} is twice in part {part}")
        place = Place(*rest)
        expected = wrong_form(part, name, place)
        if expected is not None:
            raise RegistryError(
                f"{path}: field {name} of part {part} has {place.count} times {place.size} bytes"
                f" at {place.offset}; expected {expected}"
            )
        parts[part][name] = place
    check_together(path, parts)
    check_places(path, parts, head_bytes)
    return parts, {part: form_of(places, part) for part, places in parts.items()}


def form_of(places: dict[str, Place], part: str) -> np.dtype[np.void]:
    """The numpy type of a part: whole words, with a column for each of its numbers."""
    numbers = {
        name: place
        for name, place in places.items()
        if part != "flag" and (part, name) not in TEXTS and (part, name) not in ARRAYS
    }
    end = max((place.end for place in numbers.values()), default=0)
    return np.dtype(
        {
            "names": list(numbers),
            "formats": [NUMBERS[place.size] for place in numbers.values()],
            "offsets": [place.offset for place in numbers.values()],
            "itemsize": (end + 7) // 8 * 8,
        }
    )
