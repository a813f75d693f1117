#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Records one load with several tools at once, imports all recordings, and compares their events.

    compare_recordings.py [--here] [--kernel VERSION]... [--load COMMAND] [--only-compare] [--keep]

--here is this machine, and --kernel 6.1, 6.12 or 7.2 an emulated machine with Debian's kernel of
that version, and trace-cmd and perf of the same release (record_kernels.py has the machines);
without options all of them. On each, `kmem record kernel` (an instance of tracefs of its own),
perf, trace-cmd and the text of another instance record a load between two marks (of
recorded/marked.c). Files go to build-booted/compared/MACHINE; --only-compare compares those of an
earlier run, and --keep puts what emulated machines recorded between the marks into
tests/importing/recorded. This machine needs root, tracefs, perf and trace-cmd.

A row is printed for each imported recording. Exit status: 0; 1 if an event is missing that its tool
has not reported as lost, or if two events differ; 77 if nothing can be recorded, with the reason.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import ending
import polars as pl
import record_kernels
from emulated.archive import Archive, below
from emulated.debian import Release, Unavailable
from recorded.compare import MARK_FIRST, MARK_LAST, Compared, compare, marks_of

from kmem.importing.sources import opened
from kmem.importing.text import run_tool
from kmem.record.kernel import kernel_tool
from kmem.traces import file as tr

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "scripts" / "recorded"
CACHE = ROOT / "build-booted"
TRACEFS = Path("/sys/kernel/tracing")
EVENTS = record_kernels.EVENTS
PACKAGES = ["coreutils", "dash", "grep", "gzip", "libtraceevent1-plugin", "linux-perf", "mount"]
PACKAGES += ["tar", "trace-cmd"]
PROGRAMS = ["cat", "dash", "grep", "gzip", "mkdir", "mount", "mv", "perf", "sleep", "stty", "tar"]
PROGRAMS += ["trace-cmd", "true", "uname"]
PLUGINS = "usr/lib/x86_64-linux-gnu/traceevent/plugins"
CPUS = 4
LOAD_THERE = f"loads forks {CPUS} 8"
LOAD_HERE = "for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; /bin/ls /; done >/dev/null"
BUFFER_KIB = 32768  # of each CPU
SECONDS_MOST = 600
MARGIN = 20  # events kept in front of the first mark and behind the last
SKIPPED = 77
KEPT = ROOT / "tests" / "importing" / "recorded"
# Files of a recording that are imported, and what they are.
FORMS = {
    "perf.data": "perf",
    "perf.txt": "perf's text there",
    "trace.dat": "trace-cmd",
    "trace-cmd.txt": "trace-cmd's text there",
    "ftrace.txt": "ftrace",
}
PERF = "perf"


class Refused(Exception):
    """This machine records nothing; the text says why."""


@dataclass(frozen=True)
class Machine(record_kernels.Machine):
    @property
    def folder(self) -> Path:
        return CACHE / "compared" / self.kernel


def write_archive(machine: Machine, load: str, made: Path) -> None:
    release = Release(CACHE, record_kernels.KERNELS[machine.kernel], "amd64")
    root = release.unpack("tracers", PACKAGES)
    with made.open("wb") as file:
        archive = Archive(file)
        record_kernels.add_system(archive, root, [root / "usr" / "bin" / name for name in PROGRAMS])
        for name in ("loads", "marked"):
            archive.add_file(record_kernels.compiled(name, made.parent), f"usr/bin/{name}")
        for parent in reversed(Path(PLUGINS).parents[:2]):
            archive.add_folder(str(parent))
        archive.add_folder(PLUGINS)
        for path in below(root / PLUGINS):
            archive.add_file(path, f"{PLUGINS}/{path.name}")
        archive.add_file(HERE / "init-compared", "init")
        archive.add("load", 0o100644, f"{load}\n".encode())
        archive.end()


def record_there(machine: Machine, load: str) -> None:
    shutil.rmtree(machine.folder, ignore_errors=True)
    machine.folder.mkdir(parents=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        out, files = Path(folder) / "out.tar.gz", Path(folder) / "files.cpio"
        write_archive(machine, load, files)
        line = "console=ttyS0 quiet panic=-1 no_timer_check slab_nomerge"
        record_kernels.boot(machine, files, out, line, SECONDS_MOST)
        record_kernels.take_files(machine, out)
    print(f"{machine.kernel}: {time.monotonic() - began:.0f} s", flush=True)


def write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None


def remove(folder: Path) -> None:
    """Ends an instance; the kernel refuses that while its events are on."""
    write(folder / "tracing_on", "0")
    write(folder / "events" / "enable", "0")
    folder.rmdir()


@contextmanager
def instance() -> Iterator[Path]:
    """A tracing instance that records until its end. Those of killed processes end before."""
    if os.geteuid() != 0:
        raise Refused("only root may read tracefs")
    instances = TRACEFS / "instances"
    for left in instances.glob("kmem-compare-*"):
        if not Path("/proc", left.name.rpartition("-")[2]).exists():
            remove(left)
    folder = instances / f"kmem-compare-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        raise Refused(f"{folder}: {error.strerror}") from None
    try:
        write(folder / "trace_clock", "mono")
        write(folder / "buffer_size_kb", str(BUFFER_KIB))
        for name in EVENTS:
            enable = folder / "events" / "kmem" / name / "enable"
            if enable.exists():
                write(enable, "1")
        yield folder
    finally:
        remove(folder)


def run(words: Sequence[object], folder: Path) -> None:
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        raise Refused(f"{words[0]} ended with {done.returncode}: {said}")


def record_here(folder: Path, load: str) -> None:
    """trace-cmd takes the ring buffers of the instance: `trace-cmd record` changes settings of all
    of ftrace, which a machine may refuse."""
    for name in ("perf", "trace-cmd"):
        if not shutil.which(name):
            raise Refused(f"{name} is not installed")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kernel_tool()
    with tempfile.TemporaryDirectory() as other, instance() as text:
        marked, work = record_kernels.compiled("marked", Path(other)), Path(other) / "work"
        work.mkdir()
        events = [name for name in EVENTS if (text / "events" / "kmem" / name).exists()]
        perf = ["perf", "record", "-q", "-k", "mono", "-a", "-m", "16M"]
        perf += ["-e", ",".join(f"kmem:{name}" for name in events), "-o", folder / "perf.data"]
        own = [record_kernels.KERNEL_TOOL, folder / "own.ktrace", work, "0", BUFFER_KIB]
        own += [f"kernel: {os.uname().sysname} {os.uname().release}: {load}"]
        run([*own, *perf, "--", marked, "sh", "-c", load], folder)
        shutil.copyfile(work / "report", folder / "report.json")
        write(text / "tracing_on", "0")
        shutil.copyfile(text / "trace", folder / "ftrace.txt")
        run(["trace-cmd", "extract", "-k", "-B", text.name, "-o", "trace.dat"], folder)


def imported(file: Path) -> tuple[tr.Trace, int]:
    """The trace, and what the tool says to have lost."""
    out = file.with_name(f"{file.name}.ktrace")
    with opened(file) as text:
        counts = run_tool(out, out, ["0", "4096", f"kmem import {file.name}"], text)
    if counts["unreadable"]:
        raise SystemExit(f"{file}: line {counts['first_unreadable']}: {counts['reason']}")
    return tr.read_trace(out), int(counts["lost"])


@contextmanager
def tools_of(machine: Machine) -> Iterator[None]:
    """Lets `kmem import` find the machine's perf and trace-cmd: older ones refuse newer files."""
    release = Release(CACHE, record_kernels.KERNELS[machine.kernel], "amd64")
    root = release.unpack("tracers", PACKAGES)
    loader = root / "usr/lib64/ld-linux-x86-64.so.2"
    before = os.environ["PATH"]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("perf", "trace-cmd"):
            program = Path(folder) / name
            run = f"exec {loader} --library-path {root / 'usr/lib/x86_64-linux-gnu'}"
            program.write_text(f'#!/bin/sh\n{run} {root / "usr/bin" / name} "$@"\n')
            program.chmod(0o755)
        os.environ["PATH"] = f"{folder}:{before}"
        try:
            yield
        finally:
            os.environ["PATH"] = before


def rows_of(machine: str, folder: Path) -> list[tuple[str, str, Compared]]:
    own = tr.read_trace(folder / "own.ktrace")
    lost = json.loads((folder / "report.json").read_text())["lost"]
    if lost:
        raise SystemExit(f"{folder}: kmem record kernel has lost {lost} events")
    rows = []
    for name, what in FORMS.items():
        if (folder / name).exists():
            rows.append((machine, what, compare(own, *imported(folder / name))))
    return rows


def print_rows(rows: list[tuple[str, str, Compared]]) -> None:
    heads = ["events", "paired", "moved", "missing", "unseen", "lost", "further"]
    print(f"| kernel | recording | {' | '.join(heads)} | differing |")
    print(f"|---|---|{'---:|' * len(heads)}---|")
    for machine, what, compared in rows:
        cells = [f"{getattr(compared, head):,}" for head in heads]
        print(f"| {machine} | {what} | {' | '.join(cells)} | {compared.differing()} |")


def cut_text(text: str) -> str:
    """The head, and the lines between the marks, with some more on either side."""
    lines = text.splitlines()
    marks = [f" bytes_req={size} " for size in (MARK_FIRST, MARK_LAST)]
    first = next(i for i, line in enumerate(lines) if marks[0] in line)
    last = max(i for i, line in enumerate(lines) if marks[1] in line)
    head = [line for line in lines[:20] if line.startswith(("#", "cpus="))]
    return "\n".join(head + lines[max(0, first - MARGIN) : last + MARGIN]) + "\n"


def cut_trace(trace: tr.Trace) -> tr.Trace:
    """The same of a trace; frees of objects from before are orphans."""
    records = trace.records
    first, last = marks_of(records, "the trace")
    before = records.filter(pl.col("time") < first).height
    behind = records.filter(pl.col("time") <= last).height
    begin = max(0, before - MARGIN)
    kept = records[begin : behind + MARGIN]
    operation = pl.col("operation") & tr.OPERATION_MASK
    born = kept.filter(operation == tr.ALLOC)["object"].implode()
    known = pl.col("object").is_in(born)
    kept = kept.filter(known | (operation != tr.IMPLIED)).with_columns(
        time=pl.col("time") - kept["time"][0],
        operation=pl.when((operation == tr.FREE) & ~known)
        .then(pl.col("operation") - tr.FREE + tr.ORPHAN)
        .otherwise(pl.col("operation"))
        .cast(pl.UInt8),
    )
    return replace(trace, records=kept)


def keep(machine: Machine) -> None:
    folder = KEPT / machine.kernel
    folder.mkdir(parents=True, exist_ok=True)
    tr.write_trace(folder / "own.ktrace", cut_trace(tr.read_trace(machine.folder / "own.ktrace")))
    texts = {path.name: path.read_text() for path in machine.folder.glob("*.txt")}
    with opened(machine.folder / "trace.dat") as text:
        texts["trace-cmd-l.txt"] = text.read().decode()
    with tarfile.open(folder / "texts.tar.xz", "w:xz", preset=9) as archive:
        for name, whole in sorted(texts.items()):
            content = cut_text(whole).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def main() -> int:
    parser = argparse.ArgumentParser(description="Compares recordings of several tools.")
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--kernel", action="append", choices=list(record_kernels.KERNELS))
    parser.add_argument("--load", metavar="COMMAND")
    parser.add_argument("--only-compare", action="store_true")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    everything = not arguments.here and not arguments.kernel
    kernels = list(record_kernels.KERNELS) if everything else arguments.kernel or []
    os.environ[tr.MEMORY_VARIABLE] = str(2**40)
    rows = []
    try:
        kernel_tool()
        if everything or arguments.here:
            folder = CACHE / "compared" / "here"
            if not arguments.only_compare:
                record_here(folder, arguments.load or LOAD_HERE)
            rows += rows_of(os.uname().release.split("-")[0], folder)
        for kernel in kernels:
            machine = Machine(kernel, CPUS)
            if not arguments.only_compare:
                record_there(machine, arguments.load or LOAD_THERE)
            with tools_of(machine):
                rows += rows_of(kernel, machine.folder)
                if arguments.keep:
                    keep(machine)
    except (Refused, Unavailable) as reason:
        print(f"nothing is recorded here: {reason}")
        return SKIPPED
    print_rows(rows)
    return int(not all(row.well(what == PERF) for _, what, row in rows))


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main())
