# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Lines of reports that speak of memory, or of other slabs, and have no caches.

People take these for slab tables. A line of one is unread as any other, but its reason says what
the report is, so that its reader need not look for a damaged row. Lines that only stand around a
table, as zones in an out-of-memory report, say less than its sums do, and so are apart.
"""

from __future__ import annotations

import re

from kmem.explain.heap.lists import CLOCK, OBJECT

WITHOUT_CACHES = (
    (
        re.compile(
            r"allocinfo - version: .{1,20}|Memory allocations:"
            r"|[\d.]{1,20}(?: ?[KMGT]?i?B)? \d{1,19} \S{1,200}:\d{1,7} (?:\[\S{1,80}\] )?"
            r"func:\S{1,200}",
            re.ASCII,
        ),
        "memory by place of the code, as of /proc/allocinfo, which has no caches",
    ),
    (
        re.compile(r"(?:slab(?:_(?:un)?reclaimable)?|kernel_stack|percpu) \d{1,19}", re.ASCII),
        "a sum of memory.stat of a control group, which has no caches",
    ),
    (
        re.compile(r"\d{1,19} \S{1,200}(?: .{1,200})? age=\S{1,80} pid=\S{1,40}(?: .*)?", re.ASCII),
        "a caller of a cache, as of alloc_calls or alloc_traces, which have no caches",
    ),
    (
        re.compile(r"excessive unreclaimable slab but cannot dump stats"),
        "the kernel could not lock its list of caches, and so printed none",
    ),
    (
        re.compile(r"CACHE ALLOCS BYTES"),
        "allocations of an interval, as of slabratetop, and not the memory of caches",
    ),
    (
        re.compile(r"(?:.{0,200} )?slab:\d{1,12}(?: .{0,200})?", re.ASCII),
        "a sum of an old out-of-memory report, which has no caches",
    ),
    (
        re.compile(r":[\w-]{4,20} <- \S.{0,1000}", re.ASCII),
        "names that share a cache, as of slabinfo -a, without its figures",
    ),
    (
        re.compile(r"slab,\S{1,400} [^\s,=]{1,100}_size=\d{1,19}i\b.{0,4000}", re.ASCII),
        "memory by cache of telegraf; expected the /proc/slabinfo that it was made of",
    ),
    (
        re.compile(r"Name Objects Alloc Free %Fast.{0,60}"),
        "calls of caches, as of slabinfo -D, and not their memory",
    ),
    (
        OBJECT,
        "an object that kmemleak found; expected the table of its cache",
    ),
    (
        re.compile(r"STAT \d{1,4}:chunk_size \d{1,19}|STAT active_slabs \d{1,9}", re.ASCII),
        "slabs of memcached, and not of a kernel",
    ),
    (
        re.compile(
            r"ITEM SIZE LIMIT USED FREE REQ.{0,40}|Type InUse MemUse (?:HighUse )?Requests.*"
        ),
        "zones of FreeBSD, as of its vmstat; expected caches of Linux",
    ),
    (
        re.compile(r"ADDR SIZE NUM COL COFF NEXT NAME"),
        "caches of mcrash with numbers in hexadecimal and no objects in use; expected kmem -s of"
        " crash",
    ),
    (
        re.compile(r"cache buf buf buf memory alloc alloc|name size in use total in use succeed.*"),
        "caches of illumos, as of ::kmastat; expected caches of Linux",
    ),
    (
        re.compile(r"Callsite Total_alloc/Per Total_req/Per Hit.*|Alloc Ptr Total_alloc/Per.*"),
        "calls that perf kmem stat added up; kmem import reads the recording of perf record -e"
        " 'kmem:*'",
    ),
    (
        re.compile(r"(?:\[\d\d:\d\d:\d\d\] )?Top \d{1,6} stacks with outstanding allocations:"),
        "allocations that are not freed yet, by stack, as of memleak, and not the memory of caches",
    ),
    (
        re.compile(r"desc: .{0,200}|heap_tree=(?:empty|detailed|peak)|mem_heap_B=\d{1,19}"),
        "snapshots of valgrind's massif, which have bytes of stacks and no objects; expected"
        " --tool=dhat",
    ),
    (
        re.compile(r"ms_print arguments: .{1,400}|n time\(\w{1,2}\) total\(B\) useful-heap\(B\).*"),
        "a text of ms_print, which has bytes of stacks and no objects; expected --tool=dhat",
    ),
    (
        re.compile(
            r"reading file \".{1,400}\" - please wait, this might take some time\.\.\."
            r"|MOST CALLS TO ALLOCATION FUNCTIONS|PEAK MEMORY CONSUMERS|heaptrack stats:"
        ),
        "a text of heaptrack_print; kmem import reads the data file that heaptrack writes",
    ),
    (
        re.compile(r"flat flat% sum% cum cum%|Type: (?:inuse|alloc)_(?:space|objects)"),
        "a text of pprof, which has sums of bytes alone; expected the profile that it was made of",
    ),
    (
        re.compile(
            r"Using local file .{1,400}\."
            r"|[\d.]{1,12} [\d.]{1,5}% [\d.]{1,5}% [\d.]{1,12} [\d.]{1,5}% \S.*"
        ),
        "a text of jeprof or pprof, which has sums of bytes alone; expected the profile that it was"
        " made of",
    ),
    (
        re.compile(
            r"dhat: (?:Total|At t-gmax|At t-end): .*"
            rf"|=={CLOCK}\d{{1,9}}== (?:Total|At t-\w+): .*"
        ),
        "sums of DHAT; expected the file with its stacks, dhat-heap.json or dhat.out.PID",
    ),
    (
        re.compile(rf"=={CLOCK}\d{{1,9}}== .*"),
        "a report of valgrind, which has no caches; expected the file of --tool=dhat",
    ),
    (
        re.compile(
            r"\W{0,3}(?:Total allocations|Total memory allocated|Histogram of allocation size):?"
        ),
        "sums of memray, which has no caches",
    ),
    (
        re.compile(r"(?:#\d{1,6}: )?\S{1,300}:\d{1,7}: (?:size=)?[\d.]{1,12} (?:[KMG]i)?B\b.*"),
        "memory by line of Python, as of tracemalloc, which has no caches",
    ),
    (
        # A version is all that a line of JSON has of jemalloc's name.
        re.compile(
            r"_{1,3} Begin jemalloc statistics _{1,3}|bins: size ind allocated.*"
            r"|\W{0,2}jemalloc\W{1,4}|\d\.\d\.\d-\d{1,4}-g[0-9a-f]{40}"
        ),
        "statistics of jemalloc, and not slabs of a kernel; expected a heap profile (prof:true)",
    ),
    (
        re.compile(r"MALLOC: (?:[+=-] )?\d{1,19} \( ?[\d.]{1,12} MiB\) .*"),
        "statistics of tcmalloc, and not slabs of a kernel; expected a heap profile (HEAPPROFILE)",
    ),
    (
        re.compile(
            r"(?:[\w ]{1,40}:? )?peak total (?:freed )?current (?:block|unit) (?:total#|count)"
        ),
        "statistics of mimalloc, and not slabs of a kernel; expected the file of valgrind"
        " --tool=dhat",
    ),
    (
        re.compile(
            r"(?:system|in use) bytes = \d{1,19}|<malloc version=.*"
            r"|Total non-mmapped bytes \(arena\):.*"
        ),
        "sums of glibc's malloc, which say neither sizes nor call sites; expected a log of mtrace"
        " or ltrace for kmem import, or the file of valgrind --tool=dhat",
    ),
    (
        re.compile(r"num #instances #bytes class name.*|Native Memory Tracking:"),
        "memory of a Java machine, which has no caches; expected kmem explain PID, or kmem profile"
        " PID, of the machine on libkmem",
    ),
    (
        re.compile(r"gc \d{1,9} @[\d.]{1,12}s \d{1,3}%: .*"),
        "collections of Go (gctrace), which have no objects; expected the heap profile,"
        " /debug/pprof/heap",
    ),
    (
        re.compile(r"PID User Command Swap USS PSS RSS"),
        "memory of processes, as of smem, which has no caches",
    ),
    (
        re.compile(r"Page allocated via order \d{1,2}, mask .*|\d{1,12} times, \d{1,12} pages\b.*"),
        "pages by their owner, as of page_owner, and not caches",
    ),
    (
        re.compile(r"SUMMARY \((?:SLAB|page) allocator\)"),
        "sums of perf kmem stat; kmem import reads the recording of perf record -e 'kmem:*'",
    ),
    (
        re.compile(r"@\w{0,40}\[.{0,200}"),
        "a map of bpftrace, whose figures have no unit; kmem import reads the scripts of"
        " docs/importing.md",
    ),
    (
        re.compile(r"Node \d{1,4}, zone \S{1,12}(?: \d{1,12}){8,14}"),
        "free pages by order, as of /proc/buddyinfo, and not caches",
    ),
    (
        re.compile(r"nr_slab_(?:un)?reclaimable(?:_B)?:? \d{1,19}"),
        "a sum of /proc/vmstat or /proc/zoneinfo, which have no caches",
    ),
    (
        re.compile(r"Slab Cache @ 0x[0-9a-f]{6,16}|- Slab @ 0x[0-9a-f]{6,16} .*"),
        "the lists of a single cache, as pwndbg shows them; expected lx-slabinfo of gdb",
    ),
    (
        re.compile(r"BUG: K(?:ASAN|FENCE): .{1,400}|BUG \S{1,300}(?: \(.{0,80}\))?: \S.{0,400}"),
        "a fault with an object that the kernel found, whose report has no figures of its cache",
    ),
    (
        re.compile(r".{1,60}: page allocation (?:failure|stalls)\b.{0,20} order:\d{1,2}, .*"),
        "a failed or slow allocation of pages, whose report has only sums of slabs; expected the"
        " machine's /proc/slabinfo",
    ),
    (
        re.compile(r"kbmemfree .*\bkbslab\b.*"),
        "sums of sar, which has no caches",
    ),
)

NODE = r"Node \d{1,4} "
ZONE = NODE + r"(?:DMA|DMA32|Normal|HighMem|Movable|Device) "
AROUND = (
    (
        re.compile(
            ZONE + r"?free:\d{1,12}kB .*|lowmem_reserve\[\]:(?: \d{1,12})*|"
            r"protections\[\]:.*|" + NODE + r"(?:in)?active_anon:\d{1,12}kB .*"
            r"|(?:DMA|Normal|HighMem)(?:32)? free:\d{1,12}kB .*|Mem-[Ii]nfo:.*"
        ),
        "free memory and limits of a zone or node, and not a cache",
    ),
    (
        re.compile(
            r"(?:active_anon|active_file|active|unevictable|mapped|free|kernel_misc_reclaimable"
            r"|sec_pagetables|pagetables|inactive_anon):\d{1,12}(?: .*)?"
        ),
        "pages of the whole machine by their use, and not a cache",
    ),
    (
        re.compile(
            r"CPU \d{1,5}: (?:hi: \d{1,9}, btch: .*|Hot: hi: .*)|" + ZONE.strip() + r" per-cpu:.*"
            r"|(?:cpu|CPU) \d{1,5} (?:hot|cold): .*|(?:DMA|Normal|HighMem)(?:32)? per-cpu:.*"
        ),
        "single pages that a CPU keeps of a zone (per-CPU lists of pages), and not a cache",
    ),
    (
        re.compile(
            r"(?:Node \d{1,4} )?\w{3,8}: (?:\d{1,9}\*\d{1,9}kB ?(?:\(\w{1,6}\) ?)?)+= \d+kB"
        ),
        "free pages of a zone by order, and not a cache",
    ),
    (
        re.compile(
            NODE + r"hugepages_total=.*|\d{1,12} (?:total pagecache pages|pages (?:RAM|reserved"
            r"|in swap cache|of RAM|HighMem/MovableOnly|hwpoisoned|cma reserved|of HIGHMEM"
            r"|shared|non-shared|swap cached)|(?:free|reserved|slab) pages.*)"
            r"|Swap cache stats: .*|(?:Free|Total) swap ?[=:] ?\d{1,12}kB"
        ),
        "pages of the whole machine and its swap, and not a cache",
    ),
    (
        re.compile(
            r".{1,60} invoked oom-killer: .*|oom-kill:.*|(?:Memory cgroup )?[Oo]ut of [Mm]emory.*"
            r"|Tasks state \(.*|\[ ?pid ?\] uid tgid .*|\[ ?\d{1,9} ?\](?: -?\d{1,19}){4,9} \S.*"
            r"|Killed process .*|oom_reaper: .*|Memory cgroup stats for .*"
            r"|(?:memory|kmem|swap|memory\+swap): usage \d{1,19}kB, limit .*"
        ),
        "a task or a limit of an out-of-memory report, and not a cache",
    ),
    (
        re.compile(
            r"Call Trace:|</?(?:TASK|IRQ|NMI)>|(?:\[<[0-9a-f]{8,16}>\] )?\??\s?[\w.]{1,80}"
            r"\+0x[0-9a-f]{1,6}/0x[0-9a-f]{1,6}.*|(?:CPU: \d{1,5} (?:UID: \d+ )?PID: .*|Pid: \d.*)"
            r"|Hardware name: .*|(?:RIP|RSP|RAX|RDX|RBP|R1\d|FS|CS|CR2|Code|ORIG_RAX): ?.*"
        ),
        "a stack of the kernel around a report, and not a cache",
    ),
)
AROUND_REASONS = frozenset(reason for _, reason in AROUND)


def why_no_cache(text: str) -> str:
    """Why a line of such a report is none of a slab table; else nothing."""
    known = (*WITHOUT_CACHES, *AROUND)
    return next((reason for line, reason in known if line.fullmatch(text)), "")
