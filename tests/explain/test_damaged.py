# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Damaged and hostile files: each ends in tables and unread lines, or in one line with a reason.

KMEM_EXPLAIN_INPUTS is how many mutated files test_mutated_files reads besides those of Hypothesis,
here and of heap profiles in test_profiles.py; 3,000 if it is not set.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_reports import FORMS, REPORTS, kept

from kmem.common.errors import KmemError
from kmem.explain.facts import allocator_of, debugging_of, facts_of, page_bytes_of
from kmem.explain.files import read_content
from kmem.explain.leaks import growths, holders
from kmem.explain.reader import Collector
from kmem.explain.table import Reading
from kmem.explain.treemap import Item, treemap
from kmem.lab.boots import BOOTS

INPUTS = int(os.environ.get("KMEM_EXPLAIN_INPUTS", "3000"))
TEXTS = [kept(file).text.encode() for file in REPORTS + FORMS]
TEXTS.append(
    "\n".join(
        f"{cache}/{name}:{text}"
        for cache, values in list(BOOTS[0].attributes().items())[:8]
        for name, text in values.items()
    ).encode()
)
WORDS = [
    *("kmalloc-64", "a:", ":", "tunables", "slabdata", "0", "1", "9999999999999999999", "64"),
    *("4096", "50%", "0.06K", "1.00K", "32k", "?", "ffff888100001400", "0x00020", "-", "12KB"),
    *("1/0/1", "a/order:1", "slabinfo", "kB", "Slab:", "2.8GB"),
]
LONGEST = 4000  # bytes of a mutated text


def packed(content: bytes) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name in ("a/slab/kmalloc-64/order", "a/slab/kmalloc-64/slabs", "proc/slabinfo"):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(written.getvalue(), mtime=0)


def reading_of(content: bytes) -> Reading:
    reading = Reading()
    collector = Collector(reading)
    collector.begin_file("file")
    read_content(collector, Path("file"), content)
    collector.end_file()
    return reading


def look_at(content: bytes) -> Reading:
    """Everything but the orders, which a program computes."""
    reading = reading_of(content)
    moments = []
    for table in reading.tables:
        page = int(page_bytes_of(table).value)
        facts = [facts_of(cache, page) for cache in table.caches]
        allocator_of(table)
        debugging_of(facts)
        total = sum(fact.total.value for fact in facts if fact.total)
        holders(facts, total)
        treemap(
            "t",
            [Item(f.name, f.total.value, f.use, f.reclaimed) for f in facts if f.total],
        )
        moments.append({fact.name: fact for fact in facts})
        assert all(0 <= (fact.use or 0) <= 1 for fact in facts)
    growths(moments)
    assert all(fault.reason and "\n" not in fault.reason for fault in reading.unread)
    return reading


def mutated(content: bytes, source: random.Random) -> bytes:
    """A few bytes changed, taken away, doubled, or taken from another report."""
    data = bytearray(content[:LONGEST])
    for _ in range(source.randint(1, 8)):
        at = source.randrange(len(data) + 1)
        kind = source.randrange(6)
        if kind == 0 and at < len(data):
            data[at] = source.randrange(256)
        elif kind == 1:
            del data[at : at + source.randint(1, 20)]
        elif kind == 2:
            data[at:at] = data[at : at + source.randint(1, 60)]
        elif kind == 3:
            other = source.choice(TEXTS)
            begin = source.randrange(len(other))
            data[at:at] = other[begin : begin + source.randint(1, 120)]
        elif kind == 4:
            data[at:at] = source.choice((b"\n", b" ", b"-", b"9" * 25, b"\0", b"\xff", b"%", b"?"))
        else:
            data = data[:at] or data
    return bytes(data)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=400))
def test_any_bytes(content: bytes) -> None:
    look_at(content)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.lists(
            st.sampled_from(WORDS),
            max_size=14,
        ).map(" ".join),
        max_size=8,
    ).map("\n".join)
)
def test_any_words(text: str) -> None:
    look_at(text.encode())


def test_mutated_files() -> None:
    source = random.Random(7)
    for number in range(INPUTS):
        content = mutated(source.choice(TEXTS), source)
        if number % 50 == 0:
            content = mutated(packed(content), source)
        try:
            look_at(content)
        except Exception as error:
            raise AssertionError(f"input {number}: {content!r}") from error


@pytest.mark.parametrize("cut", [1, 9, 40])
def test_a_tar_that_ends_early(cut: int) -> None:
    (fault,) = look_at(packed(b"1\n")[:-cut]).unread
    assert fault.line == 0
    assert fault.reason == "is cut off; expected a whole file"


def test_a_packed_text() -> None:
    for pack in (gzip.compress, bz2.compress, lzma.compress):
        assert look_at(pack(TEXTS[0])).tables == look_at(TEXTS[0]).tables


def test_a_packed_file_that_ends_early_has_no_lines(tmp_path: Path) -> None:
    from kmem.explain.files import read_files

    for pack in (gzip.compress, bz2.compress, lzma.compress):
        file = tmp_path / "cut"
        file.write_bytes(pack(b"\x0a\x04\x08\x01" * 1000)[:-6])
        with pytest.raises(KmemError) as error:
            read_files([file])
        assert str(error.value) == f"explain: {file}: is cut off; expected a whole file"


def test_a_damaged_stream_behind_a_whole_one_is_told() -> None:
    for pack in (gzip.compress, bz2.compress, lzma.compress):
        first, second = pack(TEXTS[0]), bytearray(pack(TEXTS[0]))
        assert look_at(first + bytes(second)).tables == look_at(TEXTS[0] * 2).tables
        second[len(second) // 2] ^= 0x40
        (fault,) = look_at(first + bytes(second)).unread
        assert fault.reason.startswith("a packed file that cannot be read to its end: ")


def test_an_error_is_one_line(tmp_path: Path) -> None:
    from kmem.explain.files import read_files

    for content in (b"", b"\xff\xfe\0", b"\x1f\x8b", b"x" * 10**6, b"\n" * 50):
        file = tmp_path / "damaged"
        file.write_bytes(content)
        with pytest.raises(KmemError) as error:
            read_files([file])
        assert str(error.value).startswith(f"explain: {file}: ")
        assert "\n" not in str(error.value)
