#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Records the heaps of real programs on libkmem for python/kmem/traces/heaps.

    record_heaps.py [NAME...]                  the traces of the tree anew, all or these
    record_heaps.py --whole DIR [NAME...]      all events of ten times the load, into DIR
    record_heaps.py --checked DIR [NAME...]    all events of the load of `kmem lab heaps --check`

Each program runs as a row of `kmem bench suite`, with less work (kmem/lab/heap_list.py). A longer
trace of the tree is cut to its middle; with --whole and --checked nothing is cut.

Exit status: 0, or 1 if a program is missing or failed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import ending

from kmem.common.errors import KmemError
from kmem.common.tree import build
from kmem.lab.heap_list import EVENTS_MOST, HEAP_LIST, HEAPS, record

WHOLE_TIMES = 10  # the load of the tree's traces


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    into = parser.add_mutually_exclusive_group()
    into.add_argument("--whole", type=Path, metavar="DIR", help="all events of ten times the load")
    into.add_argument(
        "--checked", type=Path, metavar="DIR", help="all events of the load that is checked"
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    words = parser.parse_args()
    known = [heap.name for heap in HEAP_LIST]
    for name in words.names:
        if name not in known:
            parser.error(f"{name}: expected one of {', '.join(known)}")
    build()
    whole = words.whole or words.checked
    target = whole or HEAPS
    target.mkdir(parents=True, exist_ok=True)
    failed = False
    for heap in HEAP_LIST:
        if words.names and heap.name not in words.names:
            continue
        out = target / heap.trace.name
        if words.whole:
            heap = replace(heap, recorded=heap.recorded * WHOLE_TIMES)
        elif words.checked:
            heap = replace(heap, recorded=heap.checked)
        try:
            with tempfile.TemporaryDirectory(prefix="kmem-heap-") as name:
                folder = Path(name)
                folder.chmod(0o711)
                record(heap, folder, out, None if whole else EVENTS_MOST)
        except KmemError as error:
            print(f"{heap.name}: {error}", file=sys.stderr)
            failed = True
            continue
        print(f"{out}: {out.stat().st_size:,} bytes")
    return int(failed)


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main())
