# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tables with some columns of /proc/slabinfo, and what looks like them and is not read."""

from __future__ import annotations

from pathlib import Path

import pytest
from readings import read

from kmem.common.errors import KmemError
from kmem.common.tree import build
from kmem.explain.answers import Machine, answer
from kmem.explain.column_forms import COLUMNS
from kmem.explain.notes import notes
from kmem.lab import orders

HEAD = "name <active_objs> <num_objs> <objsize>\n"


@pytest.fixture(scope="module", autouse=True)
def tool() -> None:
    build(orders.TOOL)


def test_the_memory_of_objects_is_the_least(tmp_path: Path) -> None:
    (table,) = read(tmp_path, HEAD + "alpha 3970374 3970374 1344\n").tables
    answers = answer(table, Machine())
    assert answers.total is not None
    assert (answers.total.value, answers.total.how) == (5336182656, "computed")
    assert "slabs have more" in notes(answers)[0]
    # With slabs the memory is theirs.
    head = "slab_name num_objs objsize objperslab pagesperslab num_slabs\n"
    (table,) = read(tmp_path, head + "alpha 42 192 21 1 3\n").tables
    assert table.form == COLUMNS
    answers = answer(table, Machine())
    assert answers.total is not None
    assert answers.total.value == 3 * 4096
    assert notes(answers) == []


# Of 4,096 bytes, and of 65,536.
@pytest.mark.parametrize(
    ("rows", "allocator"),
    [
        ("dentry 100 120 192 20 1\nalpha 5 9 4096 1 1\nkmalloc-1024 5 8 1024 4 1\n", "SLAB"),
        ("dentry 100 120 192 21 1\nalpha 5 9 4096 1 1\nkmalloc-1024 5 8 1024 4 1\n", "SLUB"),
        ("dentry 100 340 192 340 1\nalpha 5 64 1024 64 1\nbeta 5 32 2048 32 1\n", "SLAB"),
        ("dentry 100 341 192 341 1\nalpha 5 64 1024 64 1\nbeta 5 32 2048 32 1\n", "SLUB"),
    ],
)
def test_six_columns_tell_the_allocator(rows: str, allocator: str, tmp_path: Path) -> None:
    (table,) = read(tmp_path, f"slabinfo - version: 2.1\n{rows}").tables
    assert answer(table, Machine()).allocator == allocator
    # Tunables of 0 are SLUB's, whatever else the row says.
    (table,) = read(tmp_path, "alpha 5 20 192 20 1 : tunables 0 0 0 : slabdata 1 1 0\n").tables
    assert answer(table, Machine()).allocator == "SLUB"


@pytest.mark.parametrize(
    "row",
    [
        "alpha 5 4 192",  # more in use than there are
        "alpha 4 5 0",
        "alpha 4 5",
        "alpha 4 5 192 21",
        "12 4 5 192",
        "alpha 4 5 192 beta 4 5 192",  # the head stands once
    ],
)
def test_rows_that_are_not_as_their_head_says(row: str, tmp_path: Path) -> None:
    reading = read(tmp_path, f"{HEAD}beta 4 5 192\n{row}\n")
    assert [cache.name for cache in reading.tables[0].caches] == ["beta"]
    assert [fault.line for fault in reading.unread] == [3]


@pytest.mark.parametrize(
    "head",
    [
        "name <active_objs> <num_objs>",  # without sizes there is no memory
        "name active objects size",  # "size" may be that of a whole cache
        "name <active_objs> <num_objs> <objsize> <objsize>",
        "name num_objs objsize name objsize num_objs",
        "the name of num_objs and objsize",
    ],
)
def test_words_that_are_no_head(head: str, tmp_path: Path) -> None:
    numbers = len(head.replace("#", "").split()) - 1
    with pytest.raises(KmemError):
        read(tmp_path, head + "\nalpha" + " 3" * numbers + "\n")


def test_a_folded_head_names_no_columns_of_whole_rows(tmp_path: Path) -> None:
    text = (
        "# name <active_objs> <num_objs> <objsize>\n<objperslab> <pagesperslab> : tunables\n"
        "alpha 42 42 192 21 1 : tunables 0 0 0 : slabdata 2 2 0\nit took 1 2 3\n"
    )
    reading = read(tmp_path, text)
    assert [cache.name for cache in reading.tables[0].caches] == ["alpha"]
    assert [fault.line for fault in reading.unread] == [4]


def test_fields_that_awk_printed_end_with_the_next_command(tmp_path: Path) -> None:
    text = (
        "$ awk '{print $1, $2, $3, $4}' /proc/slabinfo\n# name <active_objs> <num_objs>\n"
        "alpha 40 42 192\n$ head numbers\nbeta 40 42 192\n"
    )
    reading = read(tmp_path, text)
    assert [cache.name for cache in reading.tables[0].caches] == ["alpha"]
    assert [fault.line for fault in reading.unread] == [5]
    # A command that prints no sizes says nothing of memory.
    with pytest.raises(KmemError):
        read(tmp_path, text.replace(", $4", ", $5"))


def test_rows_beside_each_other_are_all_whole(tmp_path: Path) -> None:
    row = "alpha 64 64 64 64 1"
    reading = read(tmp_path, f"{row} beta 21 21 192 21 1\n{row} beta 22 21 192 21 1\n")
    assert [cache.name for cache in reading.tables[0].caches] == ["alpha", "beta"]
    assert [fault.line for fault in reading.unread] == [2]


def test_words_end_the_rows_of_a_head(tmp_path: Path) -> None:
    text = f"{HEAD}alpha 10 20 192\nNAME READY WANTED AGE\nweb-1 1 1 64\n"
    reading = read(tmp_path, text)
    assert [cache.name for cache in reading.tables[0].caches] == ["alpha"]
    assert [fault.line for fault in reading.unread] == [3, 4]


@pytest.mark.parametrize("mark", [",", ";"])
def test_a_list_with_commas(mark: str, tmp_path: Path) -> None:
    text = "name,active_objs,num_objs,objsize\nalpha,10,20,192\n".replace(",", mark)
    ((cache,),) = (table.caches for table in read(tmp_path, text).tables)
    assert (cache.name, cache.active, cache.objects, cache.stride_bytes) == ("alpha", 10, 20, 192)
