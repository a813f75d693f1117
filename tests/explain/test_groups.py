# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Caches of memory groups, NAME(ID:GROUP), whose groups have blanks in their names or long ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from readings import read, tables_of

from kmem.explain import shapes
from kmem.explain.answers import Machine, answer
from kmem.explain.facts import facts_of
from kmem.explain.files import read_files
from kmem.explain.notes import notes
from kmem.explain.table import Cache
from kmem.lab.orders import Case, Slab

LONG = f"kmalloc-1k(12345:cri-containerd-{'0123456789abcdef' * 4}.scope)"
END = ": tunables 0 0 0 : slabdata 100 100 0"


@pytest.mark.parametrize(
    "name", ["alpha(7:web pool  a)", "alpha(7:a 12 b)", "alpha(7:a (old) b)", LONG]
)
@pytest.mark.parametrize(
    "row",
    [
        "{} 2100 2100 192 21 1 " + END,
        "Jan  2 10:00:00 host program: {} 2100 2100 192 21 1 " + END,
        "{} 2100 2100 192 21 1",
        "2100 2100 100% 0.19K 100 21 400K {}",
        "Unreclaimable slab info:\n{} 400KB 400KB",
        "ffff88017a2b3c00 192 2100 2100 100 4k {}",
        "ffff88017a2b3c00 {} 192 2100 2100 100 4k",
        "cache: {}, object size: 192, buffer size: 192, default order: 0, min order: 0\n"
        " node 0: slabs: 100, objs: 2100, free: 0",
        "Cache Num Total Size Pages\n{} 2100 2100 192 21",
    ],
)
def test_a_group_in_a_row(name: str, row: str, tmp_path: Path) -> None:
    reading = read(tmp_path, row.format(name) + "\n")
    ((cache,),) = (table.caches for table in reading.tables)
    assert cache.name == " ".join(name.split())
    total = answer(reading.tables[0], Machine()).total
    assert total is not None
    assert total.value == 400 * 1024
    assert reading.unread == []


def test_a_folder_has_those_of_groups_below_their_cache(tmp_path: Path) -> None:
    for place, slabs in (("alpha", 3), ("alpha/cgroup/alpha(7:web pool)", 2)):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        for name, text in {
            "slab_size": "192",
            "order": "0",
            "slabs": f"{slabs} N0={slabs}",
        }.items():
            (folder / name).write_text(f"{text}\n")
    (table,) = read_files([tmp_path]).tables
    assert {cache.name: cache.slabs for cache in table.caches} == {
        "alpha": 3,
        "alpha(7:web pool)": 2,
    }


def test_a_bracket_alone_is_no_group(tmp_path: Path) -> None:
    """SLAB has caches for memory of devices, as size-64(DMA)."""
    text = (
        "  cache: size-64(DMA), object size: 64, order: 0\n"
        "  node 0: slabs: 1/1, objs: 59/59, free: 0\n"
    )
    (line,) = notes(answer(read(tmp_path, text).tables[0], Machine()))
    assert "group" not in line
    (table,) = tables_of("group-with-a-long-name")
    assert all("group" in line for line in notes(answer(table, Machine())))


def test_slabs_of_a_size_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with containers has thousands of caches, of a few dozen sizes."""
    asked: list[Case] = []

    def compute(cases: list[Case]) -> list[Slab]:
        asked.extend(cases)
        return [Slab(*[case.size] * len(Slab.__dataclass_fields__)) for case in cases]

    monkeypatch.setattr(shapes, "compute", compute)
    facts = [
        facts_of(Cache(f"alpha({number}:a)", stride_bytes=192 + number % 2 * 64), 4096)
        for number in range(100)
    ]
    found = shapes.all_shapes(facts, 4096)
    each = len(shapes.RULES) * len(shapes.COUNTS)
    assert (len(asked), len(found)) == (2 * each, 100 * each)
    slab = found["alpha(7:a)", shapes.RULES[-1], shapes.COUNTS[-1]]
    assert slab == Slab(*[256] * len(Slab.__dataclass_fields__))
