# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reports that have no caches are named as what they are, and so are lines around a table."""

from __future__ import annotations

from pathlib import Path

import pytest
from readings import PASTED, read

from kmem.common.errors import KmemError
from kmem.explain.files import read_files

# The first telling lines of a report, and words of the reason.
REPORTS = {
    "Node 0, zone    DMA32    206    153     12   3   2   1   1   0   1   1   3": "buddyinfo",
    "nr_slab_unreclaimable 530000": "/proc/vmstat",
    "      nr_slab_reclaimable_B 530000": "/proc/vmstat",
    "ADDR     SIZE  NUM  COL COFF NEXT     NAME\nc0250be0   70   22  4   20 3   alpha": "mcrash",
    "cache                        buf    buf    buf    memory     alloc alloc": "kmastat",
    " Callsite     | Total_alloc/Per | Total_req/Per   | Hit    ": "kmem import reads",
    "[10:00:00] Top 10 stacks with outstanding allocations:": "memleak",
    "desc: --massif-out-file=m.out\ncmd: ./program": "massif",
    "ms_print arguments: massif.out.1": "ms_print",
    "MOST CALLS TO ALLOCATION FUNCTIONS\n1520 calls to": "heaptrack_print; kmem import reads",
    "Type: inuse_space": "pprof",
    "   256.2  50.0%  50.0%    256.2  50.0% work": "jeprof",
    "dhat: At t-gmax: 1,256 bytes in 6 blocks": "dhat-heap.json",
    "==1234== HEAP SUMMARY:": "valgrind",
    "📏 Total allocations:\n\t12345": "memray",
    "/app/cache.py:42: size=560 KiB, count=9034, average=64 B": "tracemalloc",
    "___ Begin jemalloc statistics ___": "statistics of jemalloc",
    '{\n\t"jemalloc": {\n\t\t"config": {': "statistics of jemalloc",
    '{"jemalloc":{"version":"5.3.0-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c"}}': "of jemalloc",
    "heap stats:     peak       total     current       block      total#   ": "of mimalloc",
    "heap stats:    peak      total      freed    current       unit      count   ": "of mimalloc",
    " blocks          peak       total     current       block      total#   ": "of mimalloc",
    "==00:00:00:01.234 1234== HEAP SUMMARY:": "valgrind",
    "[ 1.2] BUG: KASAN: slab-use-after-free in alpha+0x1a/0x20 [beta]": "a fault with an object",
    "BUG kmalloc-64 (Tainted: G    B      OE    ): Poison overwritten": "a fault with an object",
    "BUG dentry: Redzone overwritten": "a fault with an object",
    "swapper/0: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL)": "/proc/slabinfo",
    "alpha: page allocation failure. order:0, mode:0x20": "a failed or slow allocation",
    "kworker: page allocation stalls for 10004ms, order:0, mode:0x1": "a failed or slow",
    "MALLOC: +      1048576 (    1.0 MiB) Bytes in page heap freelist": "statistics of tcmalloc",
    "system bytes     =   10223616": "expected a log of mtrace",
    '<malloc version="1">': "expected a log of mtrace",
    "Total non-mmapped bytes (arena):       135168": "expected a log of mtrace",
    " num     #instances         #bytes  class name (module)": "a Java machine",
    "Native Memory Tracking:": "a Java machine",
    "gc 1 @0.012s 2%: 0.026+0.39+0.10 ms clock, 4->4->0 MB": "expected the heap profile",
    "  PID User     Command                  Swap      USS      PSS      RSS ": "smem",
    "Page allocated via order 0, mask 0x1100cca(GFP_HIGHUSER_MOVABLE), pid 953": "page_owner",
    "3 times, 12 pages, PID 953, task_comm_name: bash:": "page_owner",
    "SUMMARY (SLAB allocator)": "kmem import reads",
    "@bytes[\n    __kmalloc+0x220\n]: 40960": "a map of bpftrace",
    "@count[kmalloc-64]: 120": "a map of bpftrace",
    " Slab Cache @ 0xffff888003841400": "pwndbg",
    "kbmemfree kbavail kbmemused  %memused kbbuffers  kbslab  kbkstack": "sar",
}


def test_a_failed_page_is_no_lack_of_memory(tmp_path: Path) -> None:
    """Its sums are those of an out-of-memory report, which alone goes on with caches."""
    with pytest.raises(KmemError) as error:
        read(
            tmp_path,
            "alpha: page allocation failure: order:4, mode:0x1\nMem-Info:\n"
            " slab_reclaimable:12 slab_unreclaimable:34\n",
        )
    assert "/proc/slabinfo" in str(error.value)
    assert "out-of-memory" not in str(error.value)


@pytest.mark.parametrize("text", REPORTS)
def test_a_report_without_caches(text: str, tmp_path: Path) -> None:
    with pytest.raises(KmemError) as error:
        read(tmp_path, f"words of somebody\n{text}\n")
    message = str(error.value)
    assert REPORTS[text] in message
    assert message.count("expected") <= 1
    assert "\n" not in message


def test_lines_around_the_slabs_of_an_out_of_memory_report() -> None:
    reading = read_files([PASTED / "out-of-memory-whole.txt"])
    reasons = {fault.line - 5: fault.reason for fault in reading.unread}  # 5 lines are ours
    for lines, words in {
        (1, 33, 34, 35, 36, 37): "a task or a limit",
        (2, 3, 4, 5): "a stack of the kernel",
        (6, 14, 15, 16): "of a zone or node",
        (7, 8, 9, 11, 12, 13): "pages of the whole machine by their use",
        (17, 18): "free pages of a zone by order",
        (19, 20, 21, 22, 23, 24, 25, 26, 27, 28): "pages of the whole machine and its swap",
    }.items():
        for line in lines:
            if line in reasons:
                assert words in reasons[line], line
    assert len(reasons) == 32


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("CPU    0: hi:  186, btch:  31 usd:  30", "per-CPU lists"),
        ("Node 0 DMA32 per-cpu:", "per-CPU lists"),
        ("cpu 0 hot: low 62, high 186, batch 31 used:163", "per-CPU lists"),
        ("DMA: 1*4kB 1*8kB 0*16kB = 12kB", "free pages of a zone"),
        ("[<c0150000>] out_of_memory+0x11/0x2a", "a stack of the kernel"),
        ("memory: usage 524288kB, limit 524288kB, failcnt 1024", "a limit"),
    ],
)
def test_lines_around_older_reports(line: str, words: str, tmp_path: Path) -> None:
    reading = read(tmp_path, f"Unreclaimable slab info:\nalpha 40KB 80KB\n\n{line}\n")
    assert [(fault.line, words in fault.reason) for fault in reading.unread] == [(4, True)]


def test_the_sums_of_a_report_come_before_its_zones(tmp_path: Path) -> None:
    with pytest.raises(KmemError, match="only the sums of an out-of-memory report"):
        read(tmp_path, "Mem-Info:\n slab_reclaimable:6021 slab_unreclaimable:530000\n")
