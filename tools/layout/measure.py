#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Writes src/used_functions.ld: the functions that usual programs enter, most programs first.

Builds the drop-in with a call at each function's start, in a folder of its own, and runs under it
the workloads of bench/workloads, points of the kind that `kmem bench hunt` draws, and those of the
programs below that are installed. x86-64 only; by the Python of .venv. With --keep, functions that
the file has already stay in it, behind those that were entered: some are entered in few runs.
"""

import bisect
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from kmem.bench.hunt_space import Dice, as_words, suggest, threads_between

ROOT = Path(__file__).resolve().parents[2]
INPUTS = ROOT / "bench" / "programs"
WRITTEN = ROOT / "src" / "used_functions.ld"
HEADER = """\
/*
 * Functions that usual programs enter, written by tools/layout/measure.py: first those of a program
 * that allocates nothing, then those that most enter. One that is missing may cost each process
 * 64 KiB, one that is here wrongly takes the room of its code.
 */
"""

STARTS = ["true"]  # allocates nothing: its functions come first
PROGRAMS = [
    ["cat", "/proc/version"],
    ["ls", "-l", "/usr"],
    ["bash", "-c", "for i in 1 2 3; do x=$(echo $i); done"],
    ["python3", "-c", "import json; json.dumps(list(range(1000)))"],
    ["sh", "-c", "echo 'int main(void) { return 0; }' | gcc -x c - -o /dev/null"],
    ["perl", "-e", "my %h; $h{$_} = $_ for 1..10000;"],
    ["sqlite3", ":memory:", "create table a(b); insert into a values(1); select * from a;"],
    ["git", "-C", str(ROOT), "log", "-5"],
    ["awk", "BEGIN { for (i = 0; i < 10000; i++) a[i] = i }"],
    ["node", "-e", "1"],
    ["python3", "-S", str(INPUTS / "json_regex.py"), "1000"],
    ["perl", str(INPUTS / "words.pl"), "1"],
    ["ruby", str(INPUTS / "words.rb"), "1"],
    ["node", str(INPUTS / "buffers.js"), "2"],
    ["convert-im6.q16", "-size", "300x300", "gradient:navy-gold", "-swirl", "20", "info:"],
    ["sqlite3", "-cmd", ".parameter set :rows 50000", ":memory:", f".read {INPUTS / 'rows.sql'}"],
]
POINTS, POINTS_SEED = 200, 1
UNMEASURED = ["judge"]  # is inlined where functions begin with a call
WORKLOADS = [
    "batches order=forward handed=no threads=1 scale=0.05",
    "batches order=forward handed=no threads=1 scale=8",  # as long as the reclaim thread looks
    "batches order=random handed=yes scale=0.05",
    "false_sharing scale=0.02",
    "growing scale=0.05",
    "large_blocks scale=0.05",
    "mixed scale=0.05",
    "pareto scale=0.05",
    "phases scale=0.05",
    "pipeline scale=0.05",
    "server scale=0.05",
    "short_lived scale=0.05",
    "thread_per_request scale=0.05",
    "thread_per_request scale=0.5",
]


def points() -> list[str]:
    random = np.random.default_rng(POINTS_SEED)
    drawn = [suggest(Dice(random), threads_between(1, 32)) for _ in range(POINTS)]
    return [f"drawn {as_words(point)} seed={n} scale=0.05" for n, point in enumerate(drawn)]


def build(folder: Path, lines: list[str]) -> Path:
    subprocess.run(
        ["meson", "setup", folder / "build", ROOT, "-Db_lundef=false", "-Dc_args=-pg -mfentry"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    library = folder / "build" / "src" / "libkmem-malloc.so"
    names = {line.split()[0] for line in lines}
    targets = ["libraries", *(f"bench/workloads/{name}" for name in sorted(names))]
    subprocess.run(
        ["ninja", "-C", folder / "build", *targets], check=True, stdout=subprocess.DEVNULL
    )
    marker = folder / "entered.so"
    source = Path(__file__).parent / "entered.c"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", marker, source], check=True)
    return library


def functions(library: Path) -> list[tuple[int, str]]:
    listing = subprocess.run(["nm", library], check=True, capture_output=True, text=True).stdout
    symbols = [line.split() for line in listing.splitlines()]
    return sorted((int(s[0], 16), s[2]) for s in symbols if len(s) == 3 and s[1] in "tT")


def kinds(library: Path) -> dict[str, str]:
    """How a function's section begins: .text, or .text.unlikely and the like if it is marked so."""
    objects = sorted(library.parent.glob("lib*.p/*.o"))
    listing = subprocess.run(
        ["objdump", "-t", *objects], check=True, capture_output=True, text=True
    ).stdout
    placed = re.findall(r" F (\S+)\t\S+ (?:\.\w+ )?(\S+)$", listing, re.MULTILINE)
    return {
        name: section.removesuffix("." + name)
        for section, name in placed
        if section.endswith("." + name)
    }


def entered(library: Path, folder: Path, command: list[str]) -> set[int]:
    record = folder / "entered"
    record.unlink(missing_ok=True)
    environment = dict(os.environ, PYTHONMALLOC="malloc", ENTERED_FILE=str(record))
    environment["LD_PRELOAD"] = f"{library} {folder / 'entered.so'}"
    subprocess.run(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    return {int(line, 16) for line in record.read_text().split()}


def written() -> list[str]:
    return re.findall(r"^\*\(\S*\.(\w+) ", WRITTEN.read_text(), re.MULTILINE)


def main() -> None:
    programs: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Where the C library writes its counts, of the build's own checks too.
        os.environ["GMON_OUT_PREFIX"] = str(folder / "gmon")
        lines = WORKLOADS + points()
        library = build(folder, lines)
        symbols = functions(library)
        starts = [address for address, _ in symbols]
        workloads = folder / "build" / "bench" / "workloads"
        commands = [[str(workloads / line.split()[0]), *line.split()[1:]] for line in lines]
        for command in [STARTS, *commands, *PROGRAMS]:
            if not shutil.which(command[0]):
                print(f"not installed, left out: {command[0]}", file=sys.stderr)
                continue
            used = set()
            for address in entered(library, folder, command):
                start = starts[bisect.bisect_right(starts, address) - 1]
                used |= {name for at, name in symbols if at == start}
            programs.update({name.partition(".")[0] for name in used})
            if command == STARTS:
                first = set(programs)
        begins = kinds(library)
        present = {name.partition(".")[0] for _, name in symbols}
    names = sorted(programs, key=lambda name: (name not in first, -programs[name], name))
    also = UNMEASURED + (written() if sys.argv[1:] == ["--keep"] else [])
    names += [name for name in dict.fromkeys(also) if name in present - set(names)]
    lines = []
    for name in names:
        prefix = begins.get(name, ".text")
        lines.append(f"*({prefix}.{name} {prefix}.{name}.*)\n")
    WRITTEN.write_text(HEADER + "".join(lines))
    print(f"{WRITTEN.relative_to(ROOT)}: {len(lines)} functions")


if __name__ == "__main__":
    main()
