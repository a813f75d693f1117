# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem import` and `kmem export`: each form in small, each fault in one line, and streams."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kmem.common.errors import KmemError
from kmem.importing.text import import_text
from kmem.traces import file as tr

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "command"))
from kmem_command import ROOT, kmem

TOOL = ROOT / "build" / "tools" / "import-trace"

FORMS = Path(__file__).parent / "forms"
# What every kernel form says: an allocation by size in a soft interrupt of CPU 2, one of a
# cache, and their frees.
TIMES = [0, 1000, 2000, 4000]
OPERATIONS = [tr.ALLOC | tr.SOFTIRQ, tr.ALLOC, tr.FREE | tr.KFREE, tr.FREE]

FTRACE_61 = (FORMS / "ftrace-6.1.txt").read_text(encoding="utf-8")
FTRACE_2632 = (FORMS / "ftrace-2.6.32.txt").read_text(encoding="utf-8")
FTRACE_TGID = (FORMS / "ftrace-processes.txt").read_text(encoding="utf-8")
TRACE_CMD = (FORMS / "trace-cmd.txt").read_text(encoding="utf-8")
# trace-cmd report -l: the CPU and the letters of ftrace are one word, names of tasks are cut.
TRACE_CMD_JOINED = re.sub(r"\[00(\d)\] ([a-z.\d]{5})", r"  \1\2", TRACE_CMD)
PERF = (FORMS / "perf.txt").read_text(encoding="utf-8")


def imported(folder: Path, text: str, *options: object) -> tuple[tr.Trace, str]:
    file, out = folder / "recording.txt", folder / "out.ktrace"
    file.write_text(text, encoding="utf-8")
    done = kmem("import", file, "-o", out, *options)
    assert done.returncode == 0, done.stderr
    return tr.read_trace(out), done.stderr


@pytest.mark.parametrize(
    ("text", "soft", "cache", "cpus"),
    [
        (FTRACE_61, True, "filp", 8),
        (FTRACE_2632, False, "?c01e0000:232", 3),
        (FTRACE_TGID, True, "?g:232", 3),
        (TRACE_CMD, True, "filp", 8),
        (TRACE_CMD_JOINED, True, "filp", 8),
        (PERF, False, "filp", 8),
    ],
    ids=["ftrace 6.1", "ftrace 2.6.32", "ftrace with processes", "trace-cmd", "with -l", "perf"],
)
def test_kernel_forms(tmp_path: Path, text: str, soft: bool, cache: str, cpus: int) -> None:
    trace, said = imported(tmp_path, text)
    records = trace.records
    assert records["time"].to_list() == TIMES
    bits = 0xFF if soft else 0xFF & ~tr.SOFTIRQ
    assert records["operation"].to_list() == [operation & bits for operation in OPERATIONS]
    assert records["cpu"].to_list() == [2, 1, 2, 0]
    assert records["thread"].to_list() == [0, 77, 1234, 1234]
    assert records["requested"].to_list() == [728, 232, 728, 232]
    assert records["given"].to_list() == [1024, 256, 1024, 256]
    assert records["flags"][0] == 0xA20 | 0x100
    assert trace.named()["cache"].to_list() == ["kmalloc", cache, "kmalloc", cache]
    assert trace.cpus == cpus
    assert trace.objects == 2
    assert trace.named()["site"][0] == (
        "c0123456" if "2.6" in cache or "c01" in cache else "f+0x4a"
    )
    assert "cannot be read" not in said
    assert "4 events" in said


@pytest.mark.parametrize(
    ("form", "cpus", "soft_site", "cache", "lost"),
    [
        ("babeltrace", [2, 1, 2, 0], "ffffffff81240000", "?ffffffff81230000:232", 7),
        ("perf-trace", [0, 0, 0, 0], "ffffffff81240000", "a kmem:kfree(x", 3),
    ],
)
def test_fields_in_brackets(
    tmp_path: Path, form: str, cpus: list[int], soft_site: str, cache: str, lost: int
) -> None:
    text = (FORMS / f"{form}.txt").read_text(encoding="utf-8")
    trace, said = imported(tmp_path, text)
    records = trace.records
    assert records["time"].to_list() == TIMES
    assert records["operation"].to_list() == [one & ~tr.SOFTIRQ for one in OPERATIONS]
    assert records["cpu"].to_list() == cpus
    assert records["thread"].to_list() == [0, 77, 1234, 1234]
    assert records["requested"].to_list() == [728, 232, 728, 232]
    assert records["given"].to_list() == [1024, 256, 1024, 256]
    assert records["flags"].to_list()[:2] == [0xA20 | 0x100, 0xCC0]
    assert trace.named()["cache"].to_list() == ["kmalloc", cache, "kmalloc", cache]
    assert trace.named()["site"][0] == soft_site
    assert "cannot be read" not in said
    assert f"{lost} events lost" in said


BABELTRACE_LINE = (
    "[23:59:59.999999000] (+?.?????????) h kmem_kmalloc_node: { cpu_id = 1 }, "
    "{ call_site = 0xFFFFFFFF81240000, ptr = 0xFFFF888100100000, bytes_req = 8, "
    "bytes_alloc = 8, gfp_flags = 3264, node = 0 }"
)
PERF_TRACE_LINE = "  0.108 a b/77 kmem:kmalloc(call_site=f+0x1 ptr=0xffff888100 bytes_req=8)"


def test_stamps_of_babeltrace(tmp_path: Path) -> None:
    for first, second in (
        ("23:59:59.999999000", "00:00:00.000001000"),
        ("2018-05-16 23:59:59.999999000", "2018-05-17 00:00:00.000001000"),
        ("1526428799.999999000", "1526428800.000001000"),
        ("00000000000000001000", "00000000000000003000"),
    ):
        lines = [
            BABELTRACE_LINE.replace("23:59:59.999999000", stamp).replace("00100000", address)
            for stamp, address in ((first, "00100000"), (second, "00200000"))
        ]
        lines[1] = lines[1].replace("(+?.?????????) ", "")
        trace, said = imported(tmp_path, "\n".join(lines) + "\n")
        assert trace.records["time"].to_list() == [0, 2000], first
        assert trace.records["cpu"].to_list() == [1, 1]
        assert trace.records["thread"].to_list() == [0, 0]
        assert "cannot be read" not in said


def test_dates_of_babeltrace(tmp_path: Path) -> None:
    """Days without events, and times of day that fall by less than half a day, were lost."""
    stamps = (
        "2023-12-31 10:00:00.0",
        "2024-02-28 10:00:00.0",
        "2024-03-01 09:00:00.0",
        "2025-03-01 09:00:00.000000001",
    )
    lines = (
        BABELTRACE_LINE.replace("23:59:59.999999000", stamp).replace("00100000", f"00{at}00000")
        for at, stamp in enumerate(stamps, 1)
    )
    trace, said = imported(tmp_path, "\n".join(lines) + "\n")
    begin, *others = (datetime.fromisoformat(stamp.partition(".")[0]) for stamp in stamps)
    times = [int((one - begin).total_seconds()) * 10**9 for one in others]
    assert trace.records["time"].to_list() == [0, times[0], times[1], times[2] + 1]
    assert "cannot be read" not in said


@pytest.mark.parametrize(
    ("line", "thread", "site", "requested"),
    [
        (PERF_TRACE_LINE, 77, "f+0x1", 8),
        (PERF_TRACE_LINE.replace("a b/77", "a:-1/-1"), -1, "f+0x1", 8),
        (
            "    28541630.108 kmem:kmalloc:call_site=f+0x1 ptr=0xffff888100 bytes_req=8",
            0,
            "f+0x1",
            8,
        ),
        ("  0.108 (         ): kmem:kmalloc:call_site=f ptr=0xffff888100 bytes_req=8)", 0, "f", 8),
        ("  0.108 a/7 kmem:kmalloc(call_site: 305419896, ptr: 0xffff888100)", 7, "12345678", 0),
    ],
)
def test_lines_of_perf_trace(
    tmp_path: Path, line: str, thread: int, site: str, requested: int
) -> None:
    trace, _ = imported(tmp_path, f"{line}\n")
    records = trace.records
    assert trace.named()["site"].to_list() == [site]
    assert records["thread"].to_list() == [thread]
    assert records["requested"].to_list() == [requested]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (BABELTRACE_LINE[:-20], "kmalloc_node without its last"),
        (BABELTRACE_LINE.replace("{ cpu_id = 1 }, ", ""), "kmalloc_node without cpu_id"),
        (BABELTRACE_LINE.replace("= 1 }", "= 65536 }"), "expected a CPU below 65536"),
        (
            BABELTRACE_LINE.replace(" = 0xFFFF8", " = -0xFFF"),
            "kmalloc_node: expected an address in ptr",
        ),
        (BABELTRACE_LINE.replace("ptr = 0x", "0x"), "kmalloc_node without ptr"),
        (BABELTRACE_LINE.replace("23:59", "23:59:59"), "expected a time before the event"),
        (PERF_TRACE_LINE[:-1], "kmalloc without its last"),
        (PERF_TRACE_LINE.replace("bytes_req=8", ""), "kmalloc: expected a number of bytes"),
    ],
)
def test_damaged_fields_in_brackets(tmp_path: Path, line: str, reason: str) -> None:
    _, said = imported(tmp_path, f"{PERF_TRACE_LINE}\n{line}\n")
    assert "1 events of 2 lines" in said
    assert f"1 lines cannot be read, the first: line 2: {reason}" in said


def test_a_period_in_front_of_an_event(tmp_path: Path) -> None:
    """perf script -F +period; events were passed over as those of other tracepoints."""
    plain, _ = imported(tmp_path, PERF)
    text = re.sub(r"(\d: +)(kmem:)", r"\g<1>         1 \2", PERF)
    assert text.count(" 1 kmem:") == 4
    trace, said = imported(tmp_path, text)
    assert trace.records.equals(plain.records)
    assert "cannot be read" not in said


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"dhatFileVersion":2\n,"mode":"heap"', "DHAT, which has no events; kmem explain"),
        ("heap profile: 1: 64 [1: 64] @ heap/1024\n", "Go, which has no events; kmem explain"),
        ("\n\x04\x08\x01\x10\x02", "pprof's format, which has no events; kmem explain"),
        ("$ cat it\nslabinfo - version: 2.1\n", "a slab table, which has no events"),
        ("desc: (none)\ncmd: ./program\n", "massif"),
        ("words\nMOST CALLS TO ALLOCATION FUNCTIONS\n", "expected the data file"),
        ("==1== words\n--1-- malloc(100) = 0x4A2B040\n", "--trace-malloc"),
    ],
)
@pytest.mark.parametrize("opener", [open, gzip.open], ids=["plain", "packed"])
def test_files_without_events_are_named(
    tmp_path: Path, text: str, what: str, opener: Callable[..., Any]
) -> None:
    file = tmp_path / "recording"
    with opener(file, "wb") as out:
        out.write(text.encode())
    with pytest.raises(KmemError) as error:
        import_text(file, tmp_path / "out.ktrace", 0, 4096)
    assert what in str(error.value)
    assert not (tmp_path / "out.ktrace").exists()


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    alloc, flags = "kmalloc: call_site=f+0x1/0x2", "gfp_flags=0xcc0"
    events = [
        "kfree: call_site=f+0x1/0x2 ptr=00000000aa000000",
        f"{alloc} ptr=(____ptrval____) bytes_req=8 bytes_alloc=8 {flags}",
        f"{alloc} ptr=(null) bytes_req=8 bytes_alloc=8 {flags}",
        f"{alloc} ptr=0000000000000010 bytes_req=0 bytes_alloc=0 {flags}",
        f"{alloc} ptr=00000000bb000000 bytes_req=8 bytes_alloc=8 {flags}",
        f"{alloc} ptr=00000000bb000000 bytes_req=9 bytes_alloc=16 {flags}",
        "kfree_bulk: call_site=f+0x1/0x2 nr=16",
        "sched_switch: prev_comm=kmalloc: next_comm=x",
    ]
    lines = [
        "CPU:2 [LOST 12 EVENTS]",
        "CPU:1 [EVENTS DROPPED]",
        "CPU:1 [7 EVENTS DROPPED]",
        *(f"  a-1 [000] ..... 1.0{number}: {event}" for number, event in enumerate(events)),
    ]
    trace, said = imported(tmp_path, "\n".join(lines))
    counts = [line.split(" ", 2)[1] for line in said.splitlines()[1:]]
    assert counts == ["20", "1", "1", "1", "1", "2"]
    operations = [tr.ORPHAN | tr.KFREE, tr.ALLOC, tr.IMPLIED, tr.ALLOC]
    assert trace.records["operation"].to_list() == operations
    assert trace.records["flags"][1] == 0xCC0


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("CPU:2 [LOST 12 EVENTS]", 12),
        ("CPU:1 [7 EVENTS DROPPED]", 7),
        ("CPU:1 [EVENTS DROPPED]", 1),
        (" seq  5316/5316  [001] 40667.585119866: PERF_RECORD_LOST lost 172", 172),
        ("Lost 69291 events", 69_291),
        ("# entries-in-buffer/entries-written: 995128/1022087   #P:2", 26_959),
        ("# entries-in-buffer/entries-written: 4/4   #P:8", 0),
    ],
)
def test_losses_are_added_up(tmp_path: Path, line: str, lost: int) -> None:
    """Each tool's own words; ftrace's head says how many events a full buffer has written over."""
    _, said = imported(tmp_path, f"{line}\n{FTRACE_TGID}{line}\n")
    assert "cannot be read" not in said
    assert (f"{2 * lost:,} events lost" in said) == (lost > 0), said


def test_threads_that_are_gone(tmp_path: Path) -> None:
    """perf has no number for a task that has ended; a name may end where a number begins."""
    text = PERF.replace("tmux: server    70/77", ":-1    -1/-1").replace("1234/1234", "-1")
    trace, _ = imported(tmp_path, text)
    assert trace.records["thread"].to_list() == [0, -1, -1, 1234]
    text = TRACE_CMD_JOINED.replace("<idle>-0", "kworker/-65").replace("bash-1234", "init-1")
    trace, _ = imported(tmp_path, text)
    assert trace.records["thread"].to_list() == [65, 77, 1, 1]


def test_heap_logs(tmp_path: Path) -> None:
    """A realloc is a free and an allocation; calls that others interrupt are joined."""
    mtrace = """\
= Start
@ ./a:(main+0x1a)[0x11d9] + 0x5000 0x64
@ ./a:[0x11e9] < 0x5000
@ ./a:[0x11e9] > 0x6000 0xc8
@ ./a:[0x11f9] ! 0x6000 0xffffffff
@ ./a:[0x12ab] - 0x6000
= End
"""
    trace, said = imported(tmp_path, mtrace)
    assert trace.records["operation"].to_list() == [tr.ALLOC, tr.FREE, tr.ALLOC, tr.FREE]
    assert trace.records["requested"].to_list() == [100, 100, 200, 200]
    assert trace.sites[1] == "./a:(main+0x1a)[0x11d9]"
    assert "no times" in said

    ltrace = """\
[pid 7] 1700000000.000001 a->malloc(100 <unfinished ...>
[pid 8] 1700000000.000002 a->calloc(10, 20)  = 0x7000
[pid 7] 1700000000.000003 <... malloc resumed> ) = 0x5000
[pid 7] 1700000000.000004 realloc(0x5000, 300) = 0x6000
[pid 7] 1700000000.000005 realloc(0x6000, 99999999999) = nil
[pid 7] 1700000000.000006 operator new(unsigned long)(8, 3) = 0x9000
[pid 8] 1700000000.000007 free(0x7000 <unfinished ...>
[pid 8] 1700000000.000008 <... free resumed> ) = <void>
[pid 8] 1700000000.000009 strlen("malloc(3)") = 9
[pid 8] 1700000000.000010 +++ exited (status 0) +++
"""
    trace, said = imported(tmp_path, ltrace)
    assert "no times" not in said
    rows = trace.records.select("time", "thread", "operation", "requested").rows()
    assert rows == [
        (0, 8, tr.ALLOC, 200),
        (1000, 7, tr.ALLOC, 100),
        (2000, 7, tr.FREE, 100),
        (2000, 7, tr.ALLOC, 300),
        (4000, 7, tr.ALLOC, 8),
        (5000, 8, tr.FREE, 200),
    ]


@pytest.mark.parametrize(
    ("stamps", "times"),
    [
        # ltrace -r fills seconds up with blanks; -t has whole seconds.
        (("  0.000000", "  0.000123", " 12.000001"), [0, 123_000, 12_000_124_000]),
        (("23:59:58", "23:59:58", "00:00:01"), [0, 0, 3_000_000_000]),
        (("23:59:58.5", "23:59:59.000001", "00:00:00.5"), [0, 500_001_000, 2_000_000_000]),
    ],
)
@pytest.mark.parametrize("process", ["", "[pid 7] "])
def test_stamps_of_ltrace(
    tmp_path: Path, stamps: tuple[str, ...], times: list[int], process: str
) -> None:
    calls = "malloc(100) = 0x5000", "realloc(0x5000, 9) = 0x6000", "free(0x6000) = <void>"
    lines = (f"{process}{stamp} {call}\n" for stamp, call in zip(stamps, calls, strict=True))
    trace, said = imported(tmp_path, "".join(lines))
    times = [times[0], times[1], times[1], times[2]]
    assert trace.records["time"].to_list() == times
    assert trace.records["requested"].to_list() == [100, 100, 9, 9]
    assert "no times" not in said


def test_a_block_that_realloc_has_left_before_its_line_ends(tmp_path: Path) -> None:
    """The end of the call freed the block of the thread that has been given it since."""
    ltrace = """\
[pid 1] malloc(100) = 0x5000
[pid 1] realloc(0x5000, 300 <unfinished ...>
[pid 2] malloc(80) = 0x5000
[pid 1] <... realloc resumed> ) = 0x6000
[pid 2] realloc(0x5000, 90 <unfinished ...>
[pid 1] free(0x6000) = <void>
[pid 2] <... realloc resumed> ) = 0x5000
[pid 2] free(0x5000) = <void>
"""
    trace, said = imported(tmp_path, ltrace)
    rows = trace.records.select("operation", "thread", "object", "requested").rows()
    assert rows == [
        (tr.ALLOC, 1, 0, 100),
        (tr.FREE, 1, 0, 100),
        (tr.ALLOC, 2, 1, 80),
        (tr.ALLOC, 1, 2, 300),
        (tr.FREE, 1, 2, 300),
        (tr.FREE, 2, 1, 80),
        (tr.ALLOC, 2, 3, 90),
        (tr.FREE, 2, 3, 90),
    ]
    assert len(said.splitlines()) == 2


def test_mtrace_of_a_name_with_a_bracket_and_a_call_that_got_nothing(tmp_path: Path) -> None:
    """As glibc prints them, of a program ./a] b."""
    mtrace = """\
= Start
@ ./a] b:[0x11a0] + 0x5635d8b212a0 0xa
@ ./a] b:[0x11b6] + (nil) 0x1000000000000000
@ ./a] b:[0x11d3] ! 0x5635d8b212a0 0x1000000000000000
@ ./a] b:[0x122d] - 0x5635d8b212a0
"""
    trace, said = imported(tmp_path, mtrace)
    assert trace.records["operation"].to_list() == [tr.ALLOC, tr.FREE]
    assert trace.sites[1] == "./a] b:[0x11a0]"
    assert "2 allocations that got nothing" in said
    assert "cannot be read" not in said


WRAPPED = (FORMS / "lttng-malloc.txt").read_text(encoding="utf-8")


def test_calls_of_a_program_by_lttng(tmp_path: Path) -> None:
    """What LTTng's wrapper of the C library recorded of a program that makes each call once.

    It records no aligned_alloc, so a free is of an object that the recording does not know.
    """
    trace, said = imported(tmp_path, WRAPPED)
    rows = trace.records.select("operation", "requested", "cpu").rows()
    first = WRAPPED.index("vtid = ") + len("vtid = ")
    thread = int(WRAPPED[first : WRAPPED.index(" ", first)])
    assert rows[:8] == [
        (tr.ALLOC, 100, 1),  # malloc
        (tr.FREE, 100, 1),  # realloc
        (tr.ALLOC, 300, 1),
        (tr.ALLOC, 200, 1),  # calloc of ten times 20
        (tr.FREE, 200, 1),
        (tr.ALLOC, 77, 1),  # posix_memalign
        (tr.FREE, 77, 1),
        (tr.ALLOC, 55, 1),  # memalign
    ]
    assert rows[10] == (tr.FREE, 300, 1)  # realloc to 0; a failed one frees nothing
    assert trace.records["thread"][0] == thread
    assert {500, 44} <= set(trace.records["requested"])
    assert trace.records["time"][1] == 703
    assert "3 frees of objects older than the recording" in said
    assert "4 allocations that got nothing and frees of NULL" in said
    assert "cannot be read" not in said


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (", ptr = 0x", ", 0x", "malloc without ptr"),
        ("{ size = 100,", "{ size = -1,", "malloc without size"),
        ("nmemb = 10,", "nmemb = ten,", "calloc without size"),
        ("in_ptr = 0x", "in_ptr = x", "realloc without in_ptr"),
        ("{ cpu_id = 1 }, ", "", "malloc without cpu_id"),
        ("B0 }\n", "B0\n", 'malloc without its last "}"'),
    ],
)
def test_damaged_calls_by_lttng(tmp_path: Path, old: str, new: str, reason: str) -> None:
    lines = WRAPPED.splitlines(keepends=True)
    damaged = next(line for line in lines if old in line).replace(old, new, 1)
    _, said = imported(tmp_path, lines[0] + damaged)
    assert f"1 lines cannot be read, the first: line 2: {reason}" in said


def test_more_bytes_than_there_are(tmp_path: Path) -> None:
    """calloc of more than 64 bits of bytes got nothing; so did posix_memalign with an error."""
    text = WRAPPED.replace("nmemb = 10,", "nmemb = 18446744073709551615,")
    text = text.replace("result = 0 ", "result = 12 ")
    trace, said = imported(tmp_path, text)
    assert not {200, 77} & set(trace.records["requested"])
    assert "6 allocations that got nothing and frees of NULL" in said


HEAPTRACK = (FORMS / "heaptrack.txt").read_text(encoding="utf-8")


def test_heaptrack(tmp_path: Path) -> None:
    """Form 3: a free names a kind, of which the youngest object dies; times are milliseconds."""
    trace, said = imported(tmp_path, HEAPTRACK)
    named = trace.named()
    assert trace.records["operation"].to_list() == [tr.ALLOC] * 3 + [tr.FREE] * 2 + [tr.ALLOC]
    assert trace.records["requested"].to_list() == [100, 24, 100, 100, 24, 100]
    assert trace.records["object"].to_list() == [0, 1, 2, 2, 1, 3]
    assert trace.records["time"].to_list() == [0, 0, 0, 7_000_000, 7_000_000, 31_000_000]
    assert named["site"][:2].to_list() == ["main (a.c:31)", "lib.so+0x401200"]
    assert "cannot be read" not in said
    assert "no times" not in said


def test_older_and_raw_heaptrack(tmp_path: Path) -> None:
    """Texts had no length before form 3; form 0 and raw files have addresses."""
    older = HEAPTRACK.replace("v 10400 3", "v 10100 2")
    older = "\n".join(
        f"s {line.split(' ', 2)[2]}" if line.startswith("s ") else line
        for line in older.splitlines()
    )
    trace, _ = imported(tmp_path, older)
    assert trace.named()["site"][0] == "main (a.c:31)"
    for head in ("v 10000", "v 10400 3\nx 3 a b"):
        events = ["t 401136 0", "+ 64 1 5000", "+ 64 1 6000", "- 5000", "c 2", "- 6000", "- 7000"]
        trace, _ = imported(tmp_path, "\n".join([head, *events]))
        operations = [tr.ALLOC, tr.ALLOC, tr.FREE, tr.FREE, tr.ORPHAN]
        assert trace.records["operation"].to_list() == operations
        assert trace.records["object"].to_list()[:4] == [0, 1, 0, 1]
        assert trace.named()["site"][0] == "0x401136"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("+ 5", "a kind of allocation below 2 expected"),
        ("- 1\n- 1\n- 1", "a free of a kind of which no object lives"),
        ("+ zz", "expected a number behind + or -"),
        ("s 3", "expected a text and its length"),
        ("t 1", "expected two numbers"),
        ("i", "expected an address of code"),
        ("c", "expected a time in milliseconds"),
        ("?", 'no line begins with "?"'),
    ],
)
def test_damaged_heaptrack(tmp_path: Path, line: str, reason: str) -> None:
    trace, said = imported(tmp_path, HEAPTRACK + line + "\n")
    assert reason in said
    assert trace.records.height >= 6


@pytest.mark.parametrize(
    ("line", "damaged", "site"),
    [
        ("s 4 main", "s z main", "?+0x401136"),
        ("s 4 main", "s 200000 " + "m" * 0x200000, "?+0x401136"),
        ("i 401136 3 1 2 1f", "i 401136g 3 1 2 1f", "?"),
        ("t 1 0", "t 1 z", "?"),
    ],
)
def test_damaged_lines_of_heaptrack_have_numbers(
    tmp_path: Path, line: str, damaged: str, site: str
) -> None:
    """Lines behind a damaged one were taken for those after them: other sites, other sizes."""
    assert line in HEAPTRACK
    trace, said = imported(tmp_path, HEAPTRACK.replace(line, damaged))
    assert trace.named()["site"][:2].to_list() == [
        site.replace("?+", "lib.so+"),
        "lib.so+0x401200",
    ]
    assert trace.records["requested"].to_list() == [100, 24, 100, 100, 24, 100]
    assert "1 lines cannot be read" in said


def test_a_damaged_kind_of_heaptrack(tmp_path: Path) -> None:
    """Its allocations have no size, and so are left out; numbers with other letters are none."""
    trace, said = imported(tmp_path, HEAPTRACK.replace("a 64 1", "a 6q4 1") + "+ 1q\n")
    assert trace.records["requested"].to_list() == [24, 24]
    assert trace.named()["site"][0] == "lib.so+0x401200"
    assert "6 lines cannot be read, the first: line 9: heaptrack: expected two numbers" in said


def test_heaptrack_of_later_forms(tmp_path: Path) -> None:
    file = tmp_path / "recording.txt"
    file.write_text(HEAPTRACK.replace("v 10400 3", "v 20000 4"))
    done = kmem("import", file, "-o", tmp_path / "out.ktrace")
    assert done.returncode == 1
    assert "heaptrack: form 4 of its files; expected 3 at most" in done.stderr


COUNTED = """\
#include <stdlib.h>
int main(void)
{
        void *kept[100];
        for (int i = 0; i < 100; i++) {
                kept[i] = malloc(1000 + i);
                free(malloc(3333));
        }
        for (int i = 0; i < 60; i++)
                free(kept[i]);
        return kept[99] == NULL;
}
"""


@pytest.mark.parametrize("options", [[], ["--raw"]], ids=["interpreted", "raw"])
def test_real_heaptrack(tmp_path: Path, options: list[str]) -> None:
    if not shutil.which("heaptrack") or not shutil.which("zstd"):
        pytest.skip("needs heaptrack and zstd (Debian packages of these names)")
    source = tmp_path / "counted.c"
    source.write_text(COUNTED)
    subprocess.run(["gcc", "-O0", "-o", tmp_path / "counted", source], check=True)
    subprocess.run(
        ["heaptrack", *options, "-o", tmp_path / "data", tmp_path / "counted"],
        check=True,
        capture_output=True,
    )
    (data,) = tmp_path.glob("data*")
    done = kmem("import", data, "-o", tmp_path / "out.ktrace")
    assert done.returncode == 0, done.stderr
    assert "cannot be read" not in done.stderr
    records = tr.read_trace(tmp_path / "out.ktrace").records
    born = records.filter(pl.col("operation") == tr.ALLOC)
    died = records.filter(pl.col("operation") == tr.FREE)
    kept = pl.col("requested").is_between(1000, 1099)
    assert born.filter(kept)["requested"].to_list() == list(range(1000, 1100))
    assert died.filter(kept)["requested"].to_list() == list(range(1000, 1060))
    assert born.filter(pl.col("requested") == 3333).height == 100
    assert died.filter(pl.col("requested") == 3333).height == 100


JEMALLOC = (FORMS / "jemalloc.txt").read_text(encoding="utf-8")
TCMALLOC = (FORMS / "tcmalloc.txt").read_text(encoding="utf-8")


def test_heap_profiles(tmp_path: Path) -> None:
    """Objects that live, by stack; counts of samples are scaled up to all objects."""
    trace, said = imported(tmp_path, JEMALLOC)
    sizes = trace.records["requested"].value_counts(sort=True).rows()
    # 5,906 samples of 165.2 bytes, each taken with probability 1 - exp(-165.2 / 4096); of the
    # 150,000 objects that the program had.
    assert sizes == [(165, 149_416), (5220, 1981)]
    assert trace.records["operation"].unique().to_list() == [tr.ALLOC]
    assert trace.objects == 149_416 + 1981
    assert "cannot be read" not in said
    trace, said = imported(tmp_path, TCMALLOC)
    assert trace.records["requested"].to_list() == [100, 200, 200]
    assert trace.named()["site"].to_list() == ["0x55d0", "0x55e4", "0x55e4"]
    assert "cannot be read" not in said


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            TCMALLOC.replace("1:      100", "9999999999:  999999999900"),
            "a heap profile of more than",
        ),
        (TCMALLOC.replace("1:      100", "1: 18446744073709551615"), "of more than 2^47 bytes"),
        (JEMALLOC.replace("5906: 975612", "5906: 0"), "sampled objects of 0 bytes"),
        (TCMALLOC.replace("@ 0x55d0", "0x55d0"), "expected objects, bytes and a stack"),
        (JEMALLOC.replace("5906:", "5906"), "expected objects and bytes"),
        (JEMALLOC.replace("heap_v2/4096", "heap_v2/x").split("MAPPED")[0], "bytes between samples"),
        (TCMALLOC.replace("@ heapprofile", "@ growthz"), "expected @ heapprofile or"),
        (TCMALLOC.split("\n     2:")[0], "line 2: heap profile: no MAPPED_LIBRARIES: behind"),
        (JEMALLOC.split("@ 0x7f43bf2a2630 0x563d57f711f6")[0], "behind the stacks: cut off"),
    ],
)
def test_damaged_profiles(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "recording.txt"
    file.write_text(text)
    done = kmem("import", file, "-o", tmp_path / "out.ktrace")
    assert done.returncode in (0, 1)
    assert reason in done.stderr


@pytest.mark.parametrize("opener", [gzip.open, bz2.open, lzma.open])
def test_packed_files(tmp_path: Path, opener) -> None:
    file, out = tmp_path / "packed", tmp_path / "out.ktrace"
    with opener(file, "wb") as packed:
        packed.write(PERF.encode())
    assert kmem("import", file, "-o", out).returncode == 0
    assert tr.read_trace(out).records["time"].to_list() == TIMES
    out.unlink()
    file.write_bytes(file.read_bytes()[:-20])
    done = kmem("import", file, "-o", out)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"{file}: damaged" in done.stderr
    assert not out.exists()


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_files_of_several_streams(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """As pbzip2 and `cat` make them: a damaged one behind a whole one is not the file's end."""
    file, out = tmp_path / "packed", tmp_path / "out.ktrace"
    first, second = (pack(part.encode()) for part in (PERF[:200], PERF[200:]))
    file.write_bytes(first + second + bytes(64))
    assert kmem("import", file, "-o", out).returncode == 0
    assert tr.read_trace(out).records["time"].to_list() == TIMES
    out.unlink()
    at = len(second) // 2
    for damaged in (second[:-9], second[:at] + bytes([second[at] ^ 0x40]) + second[at + 1 :]):
        file.write_bytes(first + damaged)
        done = kmem("import", file, "-o", out)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert f"{file}: damaged" in done.stderr
        assert not out.exists()


def test_standard_input_and_options(tmp_path: Path) -> None:
    out = tmp_path / "out.ktrace"
    done = subprocess.run(
        [ROOT / "kmem", "import", "-", "-o", out, "--cpus", "64", "--page-size", "65536"],
        input=PERF,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    trace = tr.read_trace(out)
    assert (trace.cpus, trace.page_bytes) == (64, 65536)
    assert [path.name for path in tmp_path.iterdir()] == ["out.ktrace"]


def packed_by_zstd(content: bytes) -> bytes:
    if shutil.which("zstd") is None:
        pytest.skip("zstd is missing (Debian package zstd)")
    return subprocess.run(["zstd", "-cq"], input=content, capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    "pack",
    [bytes, gzip.compress, bz2.compress, lzma.compress, packed_by_zstd],
    ids=["plain", "gzip", "bzip2", "xz", "zstd"],
)
@pytest.mark.parametrize("way", ["file", "pipe", "fifo"])
def test_streams(tmp_path: Path, pack: Callable[[bytes], bytes], way: str) -> None:
    """A stream is read once, so what it is must be told from bytes that are not lost."""
    file, fifo, out = tmp_path / "packed", tmp_path / "fifo", tmp_path / "out.ktrace"
    file.write_bytes(pack(PERF.encode()))
    os.mkfifo(fifo)
    words = {
        "file": '"$0" import - -o "$3" <"$1"',
        "pipe": 'cat "$1" | "$0" import - -o "$3"',
        "fifo": 'cat "$1" >"$2" & "$0" import "$2" -o "$3"',
    }[way]
    done = subprocess.run(
        ["sh", "-c", words, ROOT / "kmem", file, fifo, out],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert tr.read_trace(out).records["time"].to_list() == TIMES


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"words\n", 'line 1: expected an event, not "words"'),
        (b"PERFILE2", "only perf reads it, and not from a stream; expected a file"),
        (gzip.compress(PERF.encode())[:-9], "damaged gzip file: "),
        (packed_by_zstd, "zstd ended with 1: "),
    ],
)
def test_faults_of_streams(tmp_path: Path, content: Any, reason: str) -> None:
    """A stream without events was opened again, to say what it is, and had no writer any more."""
    fifo, out = tmp_path / "fifo", tmp_path / "out.ktrace"
    os.mkfifo(fifo)
    text = content if isinstance(content, bytes) else content(PERF.encode())[:-9]
    with subprocess.Popen(["sh", "-c", 'cat >"$0"', fifo], stdin=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        writer.stdin.write(text)
        writer.stdin.close()
        done = kmem("import", fifo, "-o", out, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(f"kmem: import: {fifo}: {reason}"), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not out.exists()


def tools_of(process: int) -> list[int]:
    """Children that run the reader."""
    files = Path(f"/proc/{process}/task").glob("*/children")
    children = [int(child) for file in files for child in file.read_text().split()]
    return [child for child in children if str(TOOL) in command_line(child)]


def command_line(process: int) -> str:
    """Nothing once it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.parametrize("way", ["plain", "gzip", "file"])
def test_an_import_that_is_ended_leaves_nothing_running(tmp_path: Path, way: str) -> None:
    """A signal to the command alone: its reader went on, and waited for a writer that paused."""
    fifo, out = tmp_path / "fifo", tmp_path / "out.ktrace"
    os.mkfifo(fifo)
    text = PERF.encode() * 1000
    with subprocess.Popen(
        [ROOT / "kmem", "import", "/dev/zero" if way == "file" else fifo, "-o", out],
        stderr=subprocess.PIPE,
    ) as working:
        writer = os.open(fifo, os.O_RDWR)
        os.write(writer, gzip.compress(text)[:-20] if way == "gzip" else text[:4096])
        deadline = time.monotonic() + 60
        while not (tools := tools_of(working.pid)) and time.monotonic() < deadline:
            time.sleep(0.01)
        working.terminate()
        status = working.wait(60)
        assert working.stderr and working.stderr.read() == b""
        os.close(writer)
    assert tools
    assert status == 130
    assert not any(map(command_line, tools))
    assert [path.name for path in tmp_path.iterdir()] == ["fifo"]


def test_results_that_are_no_files_of_their_own(tmp_path: Path) -> None:
    """A pipe gets the trace, and what a link names keeps its content if no event can be read.

    The reader's standard output has its figures: a trace for /dev/stdout was written there.
    """
    file, trace, link = tmp_path / "recording", tmp_path / "o.ktrace", tmp_path / "link.ktrace"
    file.write_text(PERF, encoding="utf-8")
    assert kmem("import", file, "-o", trace).returncode == 0
    written = trace.read_bytes()
    for out in ("/dev/stdout", "/dev/fd/1"):
        done = subprocess.run(
            [ROOT / "kmem", "import", file, "-o", out], capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == written
    link.symlink_to(trace)
    file.write_text("no events")
    assert kmem("import", file, "-o", link).returncode == 1
    assert trace.read_bytes() == written
    trace.write_bytes(b"")
    file.write_text(PERF, encoding="utf-8")
    assert kmem("import", file, "-o", link).returncode == 0
    assert trace.read_bytes() == written
    assert link.is_symlink()


def test_faults_of_the_reader_name_the_result(tmp_path: Path) -> None:
    """They named a file in a folder that nobody had asked for, and which was gone."""
    file, out = tmp_path / "recording", tmp_path / ("n" * 250)
    file.write_text(PERF, encoding="utf-8")
    done = kmem("import", file, "-o", out)
    assert done.returncode == 1
    assert done.stderr == f"kmem: import: {out}: cannot write: File name too long\n"
    assert [path.name for path in tmp_path.iterdir()] == ["recording"]


def test_a_stream_that_takes_no_trace_is_named(tmp_path: Path) -> None:
    file = tmp_path / "recording"
    file.write_text(PERF, encoding="utf-8")
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [ROOT / "kmem", "import", file, "-o", "/dev/stdout"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    line = "kmem: import: /dev/stdout: cannot write: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, line)


def test_results_may_have_names_of_any_bytes(tmp_path: Path) -> None:
    """Also where the reader, or Polars, has a fault to tell."""
    file, trace = tmp_path / "recording", Path(os.fsdecode(bytes(tmp_path) + b"/\xff.ktrace"))
    file.write_text(PERF, encoding="utf-8")
    trace.symlink_to("/dev/full")
    done = kmem("import", file, "-o", trace)
    assert done.returncode == 1
    assert done.stderr.endswith("cannot write: No space left on device\n"), done.stderr
    assert len(done.stderr.splitlines()) == 1
    trace.unlink()
    assert kmem("import", file, "-o", trace).returncode == 0
    for form in ("csv", "parquet"):
        table = trace.with_suffix(f".{form}")
        assert kmem("export", trace, "-o", table).returncode == 0
        assert table.stat().st_size > 0
        table.unlink()
        table.symlink_to("/dev/full")
        done = kmem("export", trace, "-o", table)
        assert done.returncode == 1
        assert "No space left on device" in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("", [], "no event; expected kmem events as perf"),
        ("\x7fELF\x02\n", [], 'line 1: expected an event, not "'),
        ("KMEMTRCE", [], "a trace already"),
        (PERF.replace("100.0", "abc1:"), [], "line 2: expected a time before the event"),
        (PERF.replace("ptr=", "pt="), [], "line 2: kmalloc without ptr"),
        (
            PERF.replace("bytes_req=", "bytes_req=-").replace("kfree", "x").replace("_free", "x"),
            [],
            "line 2: kmalloc: expected a number of bytes in bytes_req",
        ),
        (PERF.replace("ptr=0x", "ptr=0y"), [], 'kmalloc: expected an address in ptr, not "0y'),
        (PERF, ["--page-size", "100"], "--page-size 100: expected 4096, 16384 or 65536"),
        (PERF.replace("[00", "[70"), ["--cpus", "64"], "line 2: expected a CPU below 64"),
    ],
)
def test_faults_are_a_line(tmp_path: Path, text: str, options: list[str], reason: str) -> None:
    file, out = tmp_path / "recording.txt", tmp_path / "out.ktrace"
    file.write_text(text, encoding="utf-8")
    out.write_text("older")
    done = kmem("import", file, "-o", out, *options)
    assert done.returncode in (1, 2)
    assert reason in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert out.read_text() == "older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.ktrace", "recording.txt"]


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for words, reason in (
        (["/no/such", "-o", tmp_path / "out"], "/no/such: No such file"),
        (
            [tmp_path, "-o", tmp_path / "out"],
            "a folder; expected a file; of a folder of LTTng the text",
        ),
        ([__file__, "-o", "/no/such/out"], "--out /no/such/out"),
    ):
        done = kmem("import", *words)
        assert done.returncode == 1
        assert reason in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_programs_of_other_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """perf.data and trace.dat are for perf and trace-cmd: their text, or their refusal."""
    file, out, program = tmp_path / "perf.data", tmp_path / "out.ktrace", tmp_path / "perf"
    file.write_bytes(b"PERFILE2" + bytes(100))
    (tmp_path / "text").write_text(PERF)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program.write_text(f"#!/bin/sh\ncat {tmp_path / 'text'}\n")
    program.chmod(0o755)
    import_text(file, out, 0, 4096)
    assert tr.read_trace(out).records["time"].to_list() == TIMES
    program.write_text("#!/bin/sh\necho incompatible file format >&2\nexit 255\n")
    with pytest.raises(KmemError, match=r"perf ended with 255: incompatible file format$"):
        import_text(file, out, 0, 4096)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(KmemError, match=r"only perf reads it; expected .* \(Debian: linux-perf\)"):
        import_text(file, out, 0, 4096)


LONG = {
    "ftrace": (
        "  a-{p} [00{c}] ..... {t}.000001: {event}: call_site=f+0x1/0x2 ptr={at:016x}{rest}\n",
        " bytes_req=10 bytes_alloc=16 gfp_flags=GFP_KERNEL",
    ),
    "babeltrace": (
        "[{t}.000001000] h kmem_{event}: {{ cpu_id = {c} }}, {{ tid = {p} }}, "
        "{{ call_site = 0xFFFFFFFF81240000, ptr = 0x{at:X}{rest} }}\n",
        ", bytes_req = 10, bytes_alloc = 16, gfp_flags = 3264",
    ),
    "perf trace": (
        "{t}.001 a/{p} kmem:{event}(call_site: -1, ptr: 0x{at:x}{rest})\n",
        ", bytes_req: 10, bytes_alloc: 16, gfp_flags: 3264",
    ),
}


@pytest.mark.parametrize("form", LONG)
def test_bounded_memory(tmp_path: Path, form: str) -> None:
    """A long recording through a pipe; what is kept is what lives at once."""
    line, size = LONG[form]
    count = 100_000
    with subprocess.Popen(
        ["/usr/bin/env", "-i", "bash", "-c", f"ulimit -v 60000; exec {TOOL} {tmp_path}/o 0 4096 x"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tool:
        assert tool.stdin is not None
        for number in range(count):
            values = {
                "p": number % 50,
                "c": number % 4,
                "t": number,
                "at": (number % 100 + 1) << 12,
            }
            tool.stdin.write(line.format(**values, event="kmalloc", rest=size))
            tool.stdin.write(line.format(**values, event="kfree", rest=""))
        output, _ = tool.communicate()
    assert tool.returncode == 0
    assert f'"events": {2 * count}' in output
    assert tr.read_trace(tmp_path / "o").records.height == 2 * count


IN_BRACKETS = [
    (FORMS / f"{name}.txt").read_text(encoding="utf-8")
    for name in ("babeltrace", "lttng-malloc", "perf-trace")
]
LINES = st.sampled_from(
    [
        line
        for text in (FTRACE_61, PERF, TRACE_CMD, TRACE_CMD_JOINED, *IN_BRACKETS)
        for line in text.splitlines()
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(LINES, min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=6)), max_size=6),
)
def test_damaged_text(lines: list[str], damage: list[tuple[int, bytes]]) -> None:
    """Bytes in wrong places never end the reader, and every line is counted."""
    text = bytearray("\n".join(lines).encode())
    for at, new in damage:
        place = at % max(len(text), 1)
        text[place : place + len(new)] = new
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [TOOL, f"{folder}/out", "0", "4096", ""],
            input=bytes(text),
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        trace = tr.read_trace(Path(folder) / "out")
        assert not trace.records["time"].diff().drop_nulls().cast(pl.Int64).lt(0).any()


def test_as_many_names_as_ids_are_exported(tmp_path: Path) -> None:
    """As many as there are ids, and more: those are in the file, but no record can have them."""
    names = ["kmalloc", "?", *(f"cache {number}" for number in range(tr.CACHES_MOST))]
    columns = {name: [0] for name in tr.COLUMNS} | {"cache": [tr.CACHES_MOST - 1]}
    for count in (tr.CACHES_MOST, len(names)):
        trace = tr.Trace(pl.DataFrame(columns), names[:count], ["?"], 1, 1)
        tr.write_trace(tmp_path / "one.ktrace", trace)
        done = kmem("export", tmp_path / "one.ktrace", "-o", tmp_path / "t.csv")
        assert done.returncode == 0, done.stderr
        assert pl.read_csv(tmp_path / "t.csv")["cache"].to_list() == [names[tr.CACHES_MOST - 1]]


def test_export(tmp_path: Path) -> None:
    trace, _ = imported(tmp_path, FTRACE_61)
    for name, reader in (("t.parquet", pl.read_parquet), ("t.csv", pl.read_csv)):
        done = kmem("export", tmp_path / "out.ktrace", "-o", tmp_path / name)
        assert done.returncode == 0, done.stderr
        table = reader(tmp_path / name)
        assert table["time"].to_list() == TIMES
        assert table["operation"].to_list() == ["alloc", "alloc", "free", "free"]
        assert table["cache"].to_list() == trace.named()["cache"].to_list()
        assert table["softirq"].to_list() == [True, False, False, False]
        assert table["kfree"].to_list() == [False, False, True, False]
    done = kmem("export", tmp_path / "out.ktrace", "-o", tmp_path / "t.xls")
    assert done.returncode == 2
    assert "t.xls: expected a name that ends in .parquet or .csv" in done.stderr
    done = kmem("export", tmp_path / "recording.txt", "-o", tmp_path / "u.csv")
    assert done.returncode == 1
    assert "recording.txt: byte 0" in done.stderr
    assert not (tmp_path / "u.csv").exists()


def test_lines_that_a_mail_folded_and_quoted(tmp_path: Path) -> None:
    trace, said = imported(tmp_path, (FORMS / "folded-mail.txt").read_text())
    records = trace.records
    assert records["operation"].to_list() == [tr.ALLOC, tr.ALLOC, tr.FREE | tr.KFREE, tr.FREE]
    assert records["requested"].to_list() == [60, 56, 60, 56]
    assert records["given"].to_list() == [64] * 4
    assert records["object"].to_list() == [0, 1, 0, 1]
    assert records["time"].to_list() == [0, 1_000_000, 333_000_000, 334_000_000]
    assert trace.named()["cache"].to_list() == ["kmalloc", "my cache", "kmalloc", "my cache"]
    assert "1 lines cannot be read, the first: line 1: expected an event" in said


@pytest.mark.parametrize(
    ("lines", "first", "reason"),
    [
        # What follows does not complete the event, which is then named with its own line.
        (["EVENT ptr=0000000000abc000", "others"], 2, "kmalloc: expected a number of bytes"),
        (["EVENT", "ptr=0000000000abc000"], 2, "kmalloc: expected a number of bytes"),
        (["EVENT", "FREE"], 2, "kmalloc without ptr"),
        (["EVENT x=" + "y" * 2000, "ptr=0000000000abc000"], 2, "kmalloc without ptr"),
        (["EVENT", "x=" + "y" * 2000], 2, "kmalloc without ptr"),
    ],
)
def test_events_that_nothing_completes(
    tmp_path: Path, lines: list[str], first: int, reason: str
) -> None:
    head = "bash-1 [000] ..... 1.5: "
    known = {
        "EVENT": f"{head}kmalloc: call_site=f+0x1",
        "FREE": f"{head}kfree: call_site=f+0x1 ptr=0000000000abc000",
    }
    text = "\n".join([known["FREE"], *lines])
    for word, line in known.items():
        text = text.replace(word, line)
    _, said = imported(tmp_path, text)
    assert f"the first: line {first}: {reason}" in said


def test_an_allocation_without_flags(tmp_path: Path) -> None:
    """Each line is whole: no field follows."""
    line = "bash-1 [000] ..... 1.{}: kmalloc: call_site=f+0x1 ptr=0000000000{}bc000 bytes_req=8"
    trace, said = imported(tmp_path, "\n".join(line.format(n, n) for n in range(1, 4)))
    assert trace.records["requested"].to_list() == [8, 8, 8]
    assert trace.records["time"].to_list() == [0, 10**8, 2 * 10**8]
    assert "cannot be read" not in said


def test_the_trace_of_a_kernel_that_ends(tmp_path: Path) -> None:
    """ftrace_dump_on_oops, as dmesg has it: microseconds, and marks of delays."""
    trace, said = imported(tmp_path, (FORMS / "dying-kernel.txt").read_text())
    assert trace.records["time"].to_list() == [0, 2000]
    assert trace.records["cpu"].to_list() == [2, 0]
    assert trace.records["thread"].to_list() == [0, 1234]
    assert trace.records["operation"].to_list() == [tr.ALLOC | tr.SOFTIRQ, tr.FREE | tr.KFREE]
    assert "3 lines cannot be read" in said


def test_null_of_older_kernels(tmp_path: Path) -> None:
    text = FTRACE_2632 + "  bash-1  [000]  100.000009: kfree: call_site=c01e0010 ptr=  (null)\n"
    trace, said = imported(tmp_path, text)
    assert trace.records.height == 4
    assert "1 allocations that got nothing and frees of NULL left out" in said
    assert "cannot be read" not in said


@pytest.mark.parametrize("at", ["          <idle>", "call_site=f+0x4a", "bytes_req=728"])
def test_lines_with_zero_bytes(tmp_path: Path, at: str) -> None:
    """A line with an event behind them is no comment: it counts as one that cannot be read."""
    trace, said = imported(tmp_path, FTRACE_61.replace(at, "\0" * 100 + at))
    assert trace.records.height == 3
    assert "1 lines cannot be read, the first: line 7: a zero byte in the line" in said


def test_text_of_windows(tmp_path: Path) -> None:
    trace, said = imported(tmp_path, "\ufeff" + FTRACE_61.replace("\n", "\r\n"))
    assert trace.records.height == 4
    assert "cannot be read" not in said
    file = tmp_path / "utf-16.txt"
    file.write_text(FTRACE_61, encoding="utf-16")
    done = kmem("import", file, "-o", tmp_path / "out.ktrace")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "text in UTF-16; expected UTF-8" in done.stderr
    file.write_text(FTRACE_61, encoding="utf-16-le")
    done = kmem("import", file, "-o", tmp_path / "out.ktrace")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "line 1: a zero byte in the line; expected text" in done.stderr
