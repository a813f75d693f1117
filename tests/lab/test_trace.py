# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Trace files: what is written is read again, and what is cut short or damaged is refused with
the byte where it is (docs/trace-format.md)."""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import frame

from kmem.traces import file as tr

TRACES = Path(tr.__file__).parent
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
BLOCK_RECORDS = 1 << 16


def lives(count: int) -> tr.Trace:
    """A trace of `count` objects that are allocated and freed in turn."""
    rows = []
    for number in range(count):
        for operation in (tr.ALLOC, tr.FREE):
            rows.append(
                (2 * number + operation, 64, 64, -7, number, 1, 0, number % 2, 0, operation)
            )
    return tr.Trace(frame(rows), ["kmalloc", "?"], ["?", "somewhere+0x12"], count, 2, 4096, "test")


def assert_same(one: tr.Trace, other: tr.Trace) -> None:
    assert one.records.equals(other.records)
    for name in ("caches", "sites", "objects", "cpus", "page_bytes", "source"):
        assert getattr(one, name) == getattr(other, name), name


def error_offset(path: Path, data: bytes) -> int:
    """The byte that reading names, for data that must not be readable."""
    path.write_bytes(data)
    with pytest.raises(tr.TraceError) as caught:
        tr.read_trace(path)
    text = str(caught.value)
    match = re.fullmatch(re.escape(str(path)) + r": byte (\d+): .+", text)
    assert match, text
    return int(match[1])


NAMES = st.lists(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
    max_size=5,
)


@st.composite
def traces(draw: st.DrawFn) -> tr.Trace:
    caches = ["kmalloc", "?", *draw(NAMES)]
    sites = ["?", *draw(NAMES)]
    cpus = draw(st.integers(1, 65536))
    count = draw(st.integers(0, 40))
    rows = []
    time = 0
    alive: list[int] = []
    objects = 0
    for _ in range(count):
        time += draw(st.one_of(st.integers(0, 1000), st.integers(0, 2**56)))
        pages = draw(st.booleans())
        if alive and draw(st.booleans()):
            thing = alive.pop(draw(st.integers(0, len(alive) - 1)))
            kind = draw(st.sampled_from([tr.FREE, tr.IMPLIED, tr.PAGE_FREE]))
        else:
            thing = objects
            objects += 1
            kind = draw(st.sampled_from([tr.ORPHAN, tr.PAGE_ALLOC if pages else tr.ALLOC]))
            if kind != tr.ORPHAN:
                alive.append(thing)
        rows.append(
            (
                time,
                draw(st.integers(0, 2**64 - 1)),
                draw(st.integers(0, 2**64 - 1)),
                draw(st.integers(-(2**31), 2**31 - 1)),
                thing,
                draw(st.integers(0, len(sites) - 1)),
                draw(st.integers(0, 2**32 - 1)),
                draw(st.integers(0, cpus - 1)),
                draw(st.integers(0, len(caches) - 1)),
                kind | draw(st.sampled_from([0, tr.KFREE, tr.SOFTIRQ, tr.HARDIRQ | tr.KFREE])),
            )
        )
    source = draw(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
    return tr.Trace(frame(rows), caches, sites, objects, cpus, 4096, source)


@settings(max_examples=100, derandomize=True, database=None, deadline=None)
@given(trace=traces())
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, trace: tr.Trace) -> None:
    path = tmp_path_factory.mktemp("trace") / "one.ktrace"
    tr.write_trace(path, trace)
    assert_same(tr.read_trace(path), trace)


@pytest.mark.parametrize("count", [0, 1, BLOCK_RECORDS // 2, BLOCK_RECORDS // 2 + 1, 100_000])
def test_blocks(tmp_path: Path, count: int) -> None:
    path = tmp_path / "one.ktrace"
    tr.write_trace(path, lives(count))
    assert_same(tr.read_trace(path), lives(count))
    # Header, caches, sites, as many blocks of records as it takes, end.
    blocks = 4 + -(-2 * count // BLOCK_RECORDS)
    assert path.read_bytes().count(ZSTD_MAGIC) == blocks


def test_zstd_unpacks_it(tmp_path: Path) -> None:
    path = tmp_path / "one.ktrace"
    tr.write_trace(path, lives(3))
    done = subprocess.run(["zstd", "-dc", path], capture_output=True, check=True)
    assert done.stdout.startswith(b"KMEMTRCE" + struct.pack("<IIII", 1, 4096, 2, 4) + b"test")
    assert done.stdout.endswith(struct.pack("<IIQQ", 4, 0, 6, 3))


def test_the_file_is_as_documented(tmp_path: Path) -> None:
    """Read once more by docs/trace-format.md alone."""
    path = tmp_path / "one.ktrace"
    trace = lives(3)
    tr.write_trace(path, trace)
    plain = subprocess.run(["zstd", "-dc", path], capture_output=True, check=True).stdout
    at = 24 + len("test")
    for kind, names in ((1, b"kmalloc\0?\0"), (2, b"?\0somewhere+0x12\0")):
        assert plain[at : at + 8 + len(names)] == struct.pack("<II", kind, 2) + names
        at += 8 + len(names)
    assert plain[at : at + 8] == struct.pack("<II", 3, 6)
    at += 8
    columns = []
    for width in (8, 8, 8, 4, 4, 4, 4, 2, 2, 1):
        planes = [plain[at + 6 * byte : at + 6 * byte + 6] for byte in range(width)]
        columns.append(
            [int.from_bytes(bytes(entry), "little") for entry in zip(*planes, strict=True)]
        )
        at += 6 * width
    columns[0] = [sum(columns[0][: i + 1]) for i in range(6)]
    columns[3] = [number - (1 << 32) for number in columns[3]]  # all of them are negative here
    assert columns == [column.to_list() for column in trace.records]
    assert plain[at:] == struct.pack("<IIQQ", 4, 0, 6, 3)


def test_every_truncation_is_named(tmp_path: Path) -> None:
    path = tmp_path / "one.ktrace"
    tr.write_trace(path, lives(5))
    data = path.read_bytes()
    borders = [at.start() for at in re.finditer(re.escape(ZSTD_MAGIC), data)]
    for length in range(len(data)):
        # The border in front of what is missing.
        expected = max(border for border in [0, *borders] if border <= length)
        assert error_offset(path, data[:length]) == expected


def test_truncation_at_the_borders_of_a_long_trace(tmp_path: Path) -> None:
    path = tmp_path / "one.ktrace"
    tr.write_trace(path, lives(100_000))
    data = path.read_bytes()
    borders = [at.start() for at in re.finditer(re.escape(ZSTD_MAGIC), data)]
    assert len(borders) == 8
    for border in borders:
        assert error_offset(path, data[:border]) == border
        if border:
            with pytest.raises(tr.TraceError, match="ends without its end block"):
                tr.read_trace(path)


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(data=st.data())
def test_damage_is_found_or_without_effect(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("trace") / "one.ktrace"
    tr.write_trace(path, lives(40))
    whole = bytearray(path.read_bytes())
    first = len(whole)
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
        whole[at] ^= data.draw(st.integers(1, 255))
        first = min(first, at)
    path.write_bytes(whole)
    try:
        assert_same(tr.read_trace(path), lives(40))
    except tr.TraceError as error:
        match = re.search(r": byte (\d+): ", str(error))
        assert match, error
        # Nothing in front of the damage is blamed but the block that it is in.
        assert int(match[1]) <= len(whole)
        assert whole[int(match[1]) : first].count(ZSTD_MAGIC) <= 1


def test_more_behind_the_end(tmp_path: Path) -> None:
    path = tmp_path / "one.ktrace"
    tr.write_trace(path, lives(5))
    data = path.read_bytes()
    assert error_offset(path, data + b"x") == len(data)


def test_what_no_trace_is(tmp_path: Path) -> None:
    path = tmp_path / "one.ktrace"
    assert error_offset(path, b"") == 0
    assert error_offset(path, b"some text that is no trace at all") == 0
    for wrong in (tmp_path, tmp_path / "missing"):
        with pytest.raises(tr.TraceError, match=re.escape(f"{wrong}: byte 0: ")):
            tr.read_trace(wrong)


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("cache", 2, "is of cache 2; 2 have names"),
        ("site", 2, "is of site 2; 2 have names"),
        ("object", 5, "is of object 5; there are 5"),
        ("cpu", 2, "is of CPU 2; there are 2"),
        ("operation", 6, "has operation 6"),
        ("operation", 64, "has operation 64"),
        ("operation", tr.FREE, "record 4 frees an object before its allocation: 2"),
        ("object", 1, "record 4 allocates an object that has been there already: 1"),
    ],
)
def test_records_that_cannot_be(tmp_path: Path, column: str, value: int, reason: str) -> None:
    path = tmp_path / "one.ktrace"
    trace = lives(5)
    trace.records[4, column] = value
    tr.write_trace(path, trace)
    with pytest.raises(tr.TraceError, match=re.escape(reason)):
        tr.read_trace(path)


@pytest.mark.parametrize("objects", [(1 << 32) + 1, 1 << 40, (1 << 64) - 1])
def test_more_objects_than_ids(tmp_path: Path, objects: int) -> None:
    """A table of one entry an object, and one more, must not become a small one."""
    path = tmp_path / "one.ktrace"
    trace = lives(5)
    trace.objects = objects
    tr.write_trace(path, trace)
    with pytest.raises(tr.TraceError, match=f"byte .*: {objects} objects; expected at most"):
        tr.read_trace(path)


def test_times_that_fall_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "one.ktrace"
    trace = lives(5)
    trace.records[4, "time"] = 0
    with pytest.raises(tr.TraceError, match=re.escape(f"{path}: a record is earlier")):
        tr.write_trace(path, trace)
    assert not any(tmp_path.iterdir())


def test_what_cannot_be_written_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "one.ktrace"
    trace = lives(5)
    tr.write_trace(path, trace)
    trace.records[4, "time"] = 0
    with pytest.raises(tr.TraceError, match="earlier"):
        tr.write_trace(path, trace)
    assert [*tmp_path.iterdir()] == [path]
    assert_same(tr.read_trace(path), lives(5))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("cpu", pl.lit(70_000), "record 0 has cpu 70000; expected UInt16"),
        ("object", pl.lit(-1), "record 0 has object -1; expected UInt32"),
        ("requested", pl.col("requested") + 0.5, "record 0 has requested 64.5; expected UInt64"),
        (
            "thread",
            pl.when(pl.col("time") != 4).then("thread"),
            "record 4 has thread None; expected Int32",
        ),
    ],
)
def test_what_a_column_cannot_have_is_not_written(
    tmp_path: Path, name: str, value: pl.Expr, reason: str
) -> None:
    """Cut off it would be the number of another CPU or object."""
    path = tmp_path / "one.ktrace"
    trace = lives(5)
    trace.records = trace.records.with_columns(value.alias(name))
    with pytest.raises(tr.TraceError, match=re.escape(f"{path}: {reason}")):
        tr.write_trace(path, trace)
    assert not path.exists()


def test_types_that_hold_the_same_numbers_are_written(tmp_path: Path) -> None:
    path = tmp_path / "one.ktrace"
    trace = lives(5)
    trace.records = trace.records.cast(pl.Int64)
    tr.write_trace(path, trace)
    assert_same(tr.read_trace(path), lives(5))


@pytest.mark.parametrize("part", ["caches", "sites", "source"])
def test_a_text_with_a_zero_byte_is_not_written(tmp_path: Path, part: str) -> None:
    path = tmp_path / "one.ktrace"
    trace = lives(5)
    text = "one\0two"
    setattr(trace, part, text if part == "source" else [*getattr(trace, part), text])
    with pytest.raises(tr.TraceError, match=r"'one\\x00two': expected a text without a zero byte"):
        tr.write_trace(path, trace)
    assert not path.exists()


def test_a_source_that_would_be_cut_off_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "one.ktrace"
    trace = lives(5)
    trace.source = "é" * (tr.SOURCE_MOST // 2)
    tr.write_trace(path, trace)
    assert_same(tr.read_trace(path), trace)
    trace.source += "."
    with pytest.raises(tr.TraceError, match="a source of 65,537 bytes; expected at most 65,536"):
        tr.write_trace(path, trace)


@pytest.mark.parametrize("letter", ["n", "é", "€", "𝄞"])
def test_a_name_that_is_too_long_is_not_written(tmp_path: Path, letter: str) -> None:
    """The message is cut off, maybe within a character."""
    path = tmp_path / "one.ktrace"
    trace = lives(5)
    trace.caches = ["kmalloc", "x" + letter * 4096]
    with pytest.raises(tr.TraceError, match=f"a name is longer than 4,095 bytes: x{letter}"):
        tr.write_trace(path, trace)
    assert not path.exists()


def test_a_file_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(tr.TraceError, match="No such file"):
        tr.write_trace(tmp_path / "missing" / "one.ktrace", lives(1))


# Names for more than one block, and once the file is begun no room for another one.
MANY_NAMES = """
import ctypes, resource, sys
from kmem.traces import file as tr

library, error = ctypes.CDLL(str(tr.LIBRARY)), tr._Error()
library.trace_writer_open.restype = ctypes.c_void_p
writer = ctypes.c_void_p(
    library.trace_writer_open(sys.argv[1].encode(), 1, 4096, None, ctypes.byref(error))
)
with open("/proc/self/statm") as statm:
    pages = int(statm.read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, ((pages + 64) * 4096, resource.RLIM_INFINITY))
for _ in range(2000):
    library.trace_writer_site(writer, b"n" * 4000)
library.trace_writer_close.restype = ctypes.c_bool
print(library.trace_writer_close(writer, ctypes.c_uint64(0), ctypes.byref(error)))
"""


@pytest.mark.parametrize("caches", [1, 1 << 16])
def test_lives_of_more_caches_than_ids_leave_no_trace(tmp_path: Path, caches: int) -> None:
    """Two names are there already."""
    path = tmp_path / "one.ktrace"
    library, error = ctypes.CDLL(str(tr.LIBRARY)), tr._Error()
    library.lives_open.restype = ctypes.c_void_p
    library.lives_close.restype = ctypes.c_bool
    lives = ctypes.c_void_p(
        library.lives_open(bytes(path), 1, 4096, b"", None, None, ctypes.byref(error))
    )
    for number in range(caches):
        library.lives_cache(lives, b"%x" % number)
    counts = (ctypes.c_uint64 * 6)()
    assert library.lives_close(lives, counts, ctypes.byref(error)) == (caches == 1)
    assert path.exists() == (caches == 1)
    if caches > 1:
        assert b"more objects or caches than ids" in error.text


def test_names_without_memory(tmp_path: Path) -> None:
    path = tmp_path / "one.ktrace"
    done = subprocess.run(
        [sys.executable, "-c", MANY_NAMES, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert path.exists() == (done.stdout == "True\n")
    if path.exists():
        assert tr.read_trace(path).sites == ["n" * 4000] * 2000


# ---- What a file may ask for ---------------------------------------------------------------------


def zstd(plain: bytes) -> bytes:
    size = f"--stream-size={len(plain)}"
    done = subprocess.run(
        ["zstd", "-qc", "--check", size], input=plain, capture_output=True, check=True
    )
    return done.stdout


HEADER = b"KMEMTRCE" + struct.pack("<4I", 1, 4096, 1, 0)
CACHES = struct.pack("<II", 1, 2) + b"kmalloc\0?\0"
SITES = struct.pack("<II", 2, 1) + b"?\0"


def end(records: int, objects: int) -> bytes:
    return struct.pack("<II2Q", 4, 0, records, objects)


# Decoders of older frames trust what they read, and some of these end the process.
LEGACY = {f"0.{x}": bytes([0x20 + x, 0xB5, 0x2F, 0xFD]) for x in range(2, 8)} | {
    "0.1": bytes([0xFD, 0x2F, 0xB5, 0x1E])
}


@pytest.mark.parametrize("name", LEGACY)
@pytest.mark.parametrize("first", [False, True])
def test_frames_of_older_forms(tmp_path: Path, name: str, first: bool) -> None:
    path = tmp_path / "one.ktrace"
    front = b"" if first else zstd(HEADER) + zstd(CACHES)
    path.write_bytes(front + (LEGACY[name] + bytes([0x54, 0xFF, 0xFF, 0x54, 2])) * 5 + zstd(SITES))
    with pytest.raises(tr.TraceError, match=f"byte {len(front)}: .*not a frame of zstd before 0.8"):
        tr.read_trace(path)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (struct.pack("<2I", 0x184D2A50, 8) + bytes(8), "not a skippable frame"),
        (struct.pack("<2I", 0x184D2A5F, 8) + bytes(8), "not a skippable frame"),
        (struct.pack("<I4B", 0xFD2FB528, 0x25, 7, 10, 0) + bytes(20), "wants a dictionary"),
        (
            struct.pack("<IBBQ", 0xFD2FB528, 0xC4, 18 << 3, 10) + bytes(20),
            "wants a window of 268435456 bytes; expected at most 134217728",
        ),
        (struct.pack("<IBB", 0xFD2FB528, 0x04, 0xFF) + bytes(20), "wants a window of"),
    ],
)
@pytest.mark.parametrize("first", [False, True])
def test_frames_of_other_kinds(tmp_path: Path, frame: bytes, reason: str, first: bool) -> None:
    path = tmp_path / "one.ktrace"
    front = b"" if first else zstd(HEADER)
    path.write_bytes(front + frame + zstd(CACHES))
    with pytest.raises(tr.TraceError, match=f"byte {len(front)}: .*{reason}"):
        tr.read_trace(path)


def test_more_names_than_numbers() -> None:
    """Of 2^32 - 1 names and one more there would be none, and their pointers lie elsewhere."""
    library, names = ctypes.CDLL(str(tr.LIBRARY)), tr._Names()
    library.trace_names_add.restype = ctypes.c_bool
    add = [b"\0", ctypes.c_size_t(1), ctypes.c_uint32(1)]
    names.count = (1 << 32) - 2
    assert library.trace_names_add(ctypes.byref(names), *add)
    assert names.count == (1 << 32) - 1
    assert not library.trace_names_add(ctypes.byref(names), *add)
    assert names.count == (1 << 32) - 1


READ = """
import sys, pathlib
from kmem.traces import file as tr
tr.read_trace(pathlib.Path(sys.argv[1]))
"""


def failure(path: Path, program: str = READ) -> str:
    """The last line of a process that reads the trace, which a crash would end."""
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, (done.returncode, done.stderr)
    return done.stderr.splitlines()[-1]


def test_names_beyond_memory(tmp_path: Path) -> None:
    path = tmp_path / "one.ktrace"
    each = (4 << 20) - 8
    whole, rest = divmod((1 << 32) - 1, each)
    full = zstd(struct.pack("<II", 2, each) + bytes(each))
    last = zstd(struct.pack("<II", 2, rest) + bytes(rest))
    path.write_bytes(b"".join([zstd(HEADER), zstd(CACHES), full * whole, last, zstd(end(0, 0))]))
    assert re.search(r"byte 0: it takes \d+ bytes of memory, .* --memory \d+M", failure(path))


def test_objects_beyond_memory(tmp_path: Path) -> None:
    """Tables have an entry for each object, whatever the records are."""
    path = tmp_path / "one.ktrace"
    path.write_bytes(b"".join(map(zstd, [HEADER, CACHES, SITES, end(0, 1 << 32)])))
    expected = f"a file of {path.stat().st_size} may take 268435456; --memory"
    assert expected in failure(path)


def many_lives(count: int) -> tr.Trace:
    """Objects that are allocated and freed in turn; such a trace compresses well."""
    number = pl.int_range(2 * count, dtype=pl.UInt64, eager=True)
    columns = {
        name: pl.repeat(0, 2 * count, dtype=kind, eager=True) for name, kind in tr.TYPES.items()
    }
    columns |= {"time": number, "object": (number // 2).cast(pl.UInt32)}
    columns["operation"] = (number % 2).cast(pl.UInt8)
    return tr.Trace(pl.DataFrame(columns), ["kmalloc", "?"], ["?"], count, 1)


def test_a_trace_that_unpacks_to_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the line says is enough, and the memory is not taken before."""
    path = tmp_path / "one.ktrace"
    trace = many_lives(1_700_000)
    tr.write_trace(path, trace)
    size = path.stat().st_size
    assert 128 * size < 256 << 20
    with pytest.raises(tr.TraceError) as caught:
        tr.read_trace(path)
    match = re.fullmatch(
        rf"{path}: byte 0: it takes (\d+) bytes of memory, and a file of {size} may take"
        r" 268435456; --memory (\d+)M allows it",
        str(caught.value),
    )
    assert match
    needed, wanted = int(match[1]), int(match[2])
    # The record and the frame have 45 bytes each; the object has one.
    assert 90 * 3_400_000 + 1_700_000 <= needed < 90 * 3_400_000 + (16 << 20)
    monkeypatch.setenv(tr.MEMORY_VARIABLE, str(wanted << 20))
    assert_same(tr.read_trace(path), trace)
    monkeypatch.setenv(tr.MEMORY_VARIABLE, "much")
    with pytest.raises(tr.TraceError, match="KMEM_TRACE_MEMORY=much: expected bytes"):
        tr.read_trace(path)


@pytest.mark.parametrize(
    ("records", "text", "reason"),
    [
        (1 << 40, 0, "it takes .* --memory"),
        (0, (1 << 32) - 1, "it takes .* --memory"),
        (1 << 61, 0, "take more memory than any machine has"),
    ],
)
def test_what_an_older_header_asks_for(
    tmp_path: Path, records: int, text: int, reason: str
) -> None:
    """The frame does not say its length, so only memory bounds the counts."""
    path = tmp_path / "one.slt.zst"
    plain = b"SLTR0001" + struct.pack("<Q4I", records, 0, 0, 0, text)
    packed = subprocess.run(["zstd", "-qc"], input=plain, capture_output=True, check=True).stdout
    path.write_bytes(packed)
    with pytest.raises(tr.TraceError, match=f"byte 0: .*{reason}"):
        tr.read_trace(path)


# ---- SLTR0001 -----------------------------------------------------------------------------------


def slt(columns: dict[str, bytes] | None = None, count: int = 2) -> bytes:
    """Two records in the older form: an object is allocated and freed."""
    given = columns or {}
    names = b"kmalloc\0?\0" + b"?\0here+0x1\0"
    plain = b"SLTR0001" + struct.pack("<QIIII", count, 2, 2, 1, len(names)) + names
    defaults = {
        "dt": struct.pack("<2I", 0, 9),
        "op": bytes([0, 1 | 8]),
        "cpu": bytes([0, 3]),
        "pid": struct.pack("<2i", 5, 6),
        "cache": struct.pack("<2H", 0, 0),
        "site": struct.pack("<2H", 1, 0),
        "req": struct.pack("<2I", 50, 50),
        "size": struct.pack("<2I", 64, 64),
        "obj": struct.pack("<2I", 0, 0),
        "gfp": struct.pack("<2I", 0xCC0, 0),
    }
    return plain + b"".join((defaults | given).values())


@pytest.mark.parametrize("packed", [False, True])
def test_the_older_form(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "one.slt"
    path.write_bytes(slt())
    if packed:
        subprocess.run(["zstd", "-q", path], check=True)
        path = path.with_suffix(".slt.zst")
    trace = tr.read_trace(path)
    assert trace.records.rows() == [
        (0, 50, 64, 5, 0, 1, 0xCC0, 0, 0, tr.ALLOC),
        (9, 50, 64, 6, 0, 0, 0, 3, 0, tr.FREE | tr.KFREE),
    ]
    assert (trace.caches, trace.sites) == (["kmalloc", "?"], ["?", "here+0x1"])
    assert (trace.objects, trace.cpus, trace.page_bytes) == (1, 4, 4096)
    assert trace.named()["site"].to_list() == ["here+0x1", "?"]


def test_a_plain_one_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "one.slt"
    for length in range(len(slt())):
        assert error_offset(path, slt()[:length]) <= length
    assert error_offset(path, slt() + b"x") == len(slt())
    # A count beyond all reason costs no memory.
    error_offset(path, slt(count=2**61))
    error_offset(path, slt(count=2**40))
    objects = slt()[:24] + b"\xff" * 4 + slt()[28:]
    error_offset(path, objects)
    for column, bad in (("op", b"\0\7"), ("cache", b"\0\0\2\0"), ("obj", b"\1\0\0\0\0\0\0\0")):
        error_offset(path, slt({column: bad}))


@pytest.mark.parametrize("name", ["boot-6.1tiny-slub-64M", "boot-6.1tiny-slob-64M"])
def test_recorded_traces(tmp_path: Path, name: str) -> None:
    trace = tr.read_trace(TRACES / f"{name}.slt.zst")
    stats = (TRACES / f"{name}.stats.txt").read_text()
    counts = re.search(r"allocs (\d+) .*\nfrees (\d+) paired \+ (\d+) orphan", stats)
    assert counts
    kinds = trace.records["operation"] & tr.OPERATION_MASK
    for kind, count in zip((tr.ALLOC, tr.FREE, tr.ORPHAN), counts.groups(), strict=True):
        assert (kinds == kind).sum() == int(count)
    path = tmp_path / "one.ktrace"
    tr.write_trace(path, trace)
    assert_same(tr.read_trace(path), trace)


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(data=st.data())
def test_damaged_recorded_traces(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    source = TRACES / "boot-6.1tiny-slob-64M.slt.zst"
    path = tmp_path_factory.mktemp("trace") / "one.slt.zst"
    whole = bytearray(source.read_bytes())
    length = data.draw(st.integers(0, len(whole) - 1))
    assert error_offset(path, whole[:length]) <= length
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole)
    try:
        assert_same(tr.read_trace(path), tr.read_trace(source))
    except tr.TraceError as error:
        assert re.search(r": byte \d+: ", str(error)), error
