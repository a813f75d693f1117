#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Boots Debian's kernels on emulated machines and records their slab events.

    record_kernels.py [--kernel VERSION]... [--cpus N]... [--load NAME]... [--keep | --only-keep]

All kernels, 6.1, 6.12 and 7.2 of linux-image-cloud-amd64, run on machines of 4 and of 16 CPUs
unless options choose: a machine boots, and then runs each load of LOADS. Files of a machine go to
build-booted/recordings/VERSION-Ncpu. With --keep they are put into
python/kmem/traces, and with --only-keep those of earlier runs are.

All comes from Debian's packages: kernels of three releases, the emulator of its newest, programs
of the release that made the oldest of these kernels. Nothing but the kernel differs between
machines of as many CPUs. Kernels merge no caches (slab_nomerge), so that names are true.

An emulator's clock is not a machine's. So kernels trace with the clock "counter", which counts
events over all CPUs: a time in these traces is a number of events, so 1 "ns" is an event.

Exit status: 0, 1 if a load failed or events were lost, 77 if the packages cannot be had here.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import ending
from emulated.archive import Archive
from emulated.debian import Release, Unavailable
from emulated.emulator import emulator

from kmem.record.kernel import KERNEL_TOOL, kernel_tool
from kmem.traces import file as tr

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "scripts" / "recorded"
CACHE = ROOT / "build-booted"
TRACES = ROOT / "python" / "kmem" / "traces"

KERNELS = {"6.1": "bookworm", "6.12": "trixie", "7.2": "sid"}
CPUS = {4: 1024, 16: 2048}  # and MiB of memory
PACKAGES = ["coreutils", "dash", "grep", "gzip", "mount", "rt-tests", "tar"]
PROGRAMS = ["cat", "dash", "grep", "gzip", "hackbench", "mkdir", "mount", "mv", "rm", "sleep"]
PROGRAMS += ["stty", "tar", "true", "uname"]
EVENTS = ["kmalloc", "kmalloc_node", "kfree", "kmem_cache_alloc", "kmem_cache_alloc_node"]
EVENTS += ["kmem_cache_free"]
COUNTS = ["events", "lost", "allocations", "frees", "implied", "orphans", "living"]
COUNTS += ["living_bytes"]
BUFFER_MIB = 12  # of each CPU
SECONDS_MOST = 1800
SKIPPED = 77


@dataclass(frozen=True)
class Load:
    name: str
    command: str


def loads_of(cpus: int) -> list[Load]:
    """Short loads, so that their traces are small."""
    hackbench = [
        Load(f"hackbench-g{groups}-{task}", f"hackbench -g {groups} -l {loops} {option}")
        for groups, loops in ((1, 12), (4, 3), (16, 1))
        for task, option in (("process", "-P"), ("thread", "-T"))
    ]
    pairs = cpus // 2
    return [
        *hackbench,
        *(
            Load(f"{kind}-rr", f"loads exchange {kind} {pairs} {3000 // pairs}")
            for kind in ("tcp", "udp")
        ),
        Load("forks", f"loads forks {cpus} {96 // cpus}"),
    ]


@dataclass(frozen=True)
class Machine:
    kernel: str
    cpus: int

    @property
    def name(self) -> str:
        return f"{self.kernel}-{self.cpus}cpu"

    @property
    def folder(self) -> Path:
        return CACHE / "recordings" / self.name


def libraries_of(root: Path, program: Path) -> list[Path]:
    """The libraries of a program in a folder of unpacked packages, by the folder's own loader."""
    libraries = root / "usr" / "lib" / "x86_64-linux-gnu"
    loader = root / "usr" / "lib64" / "ld-linux-x86-64.so.2"
    listed = subprocess.run(
        [loader, "--library-path", libraries, "--list", program],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [Path(line.split()[2]) for line in listed.splitlines() if " => " in line]


def add_recorder(archive: Archive) -> None:
    """The recorder with this machine's libraries, as it was built here."""
    listed = subprocess.run(["ldd", KERNEL_TOOL], capture_output=True, text=True, check=True).stdout
    words = [word for line in listed.splitlines() for word in line.split()]
    found = [Path(word) for word in words if word.startswith("/")]
    for path in dict.fromkeys([KERNEL_TOOL, *found]):
        archive.add_file(path.resolve(), f"recorder/{path.name}")
    loader = next(path.name for path in found if path.name.startswith("ld-linux"))
    run = f"/recorder/{loader} --library-path /recorder /recorder/{KERNEL_TOOL.name}"
    archive.add("recorder/run", 0o100755, f'#!/bin/dash\nexec {run} "$@"\n'.encode())


def compiled(name: str, folder: Path) -> Path:
    """A program of scripts/recorded that needs no libraries."""
    program = folder / name
    flags = ["-std=gnu17", "-O2", "-static"]
    subprocess.run(["gcc", *flags, "-o", program, HERE / f"{name}.c"], check=True)
    return program


def add_system(archive: Archive, root: Path, programs: list[Path]) -> None:
    """Folders, programs of a folder of unpacked packages with their libraries, the recorder."""
    libraries = {path.name: path for program in programs for path in libraries_of(root, program)}
    archive.add_console()
    for folder in ("lib64", "proc", "recorder", "sys", "usr", "usr/bin", "usr/lib"):
        archive.add_folder(folder)
    archive.add("bin", 0o120777, b"usr/bin")
    archive.add("lib", 0o120777, b"usr/lib")
    for program in programs:
        archive.add_file(program.resolve(), f"usr/bin/{program.name}")
    for name, path in libraries.items():
        folder = "lib64" if name.startswith("ld-linux") else "usr/lib"
        archive.add_file(path.resolve(), f"{folder}/{name}")
    add_recorder(archive)


def write_archive(loads: list[Load], made: Path) -> None:
    """Few files, since each of them is an inode and a dentry of the boot that is recorded."""
    root = Release(CACHE, "bookworm", "amd64").unpack("recorder", PACKAGES)
    programs = [root / "usr" / "bin" / name for name in PROGRAMS]
    load_tool = compiled("loads", made.parent)
    with made.open("wb") as file:
        archive = Archive(file)
        add_system(archive, root, programs)
        archive.add_file(load_tool, "usr/bin/loads")
        archive.add_file(HERE / "init", "init")
        lines = "".join(f"{load.name} {load.command}\n" for load in loads)
        archive.add("loads", 0o100644, lines.encode())
        archive.end()


def command_line() -> str:
    events = ",".join(f"kmem:{event}" for event in EVENTS)
    return (
        "console=ttyS0 quiet panic=-1 no_timer_check slab_nomerge"
        f" trace_event={events} trace_buf_size={BUFFER_MIB}M trace_clock=counter"
    )


def boot(machine: Machine, files: Path, out: Path, line: str, seconds: int) -> list[str]:
    """Runs the machine to its end, with a command line for its kernel; the emulator's options."""
    kernel = Release(CACHE, KERNELS[machine.kernel], "amd64").kernel("linux-image-cloud-amd64")
    options = ["-machine", "q35", "-cpu", "max", "-accel", "tcg,thread=multi"]
    options += ["-smp", str(machine.cpus), "-m", str(CPUS[machine.cpus])]
    command = [*emulator(CACHE, "qemu-system-x86_64"), *options]
    command += ["-nographic", "-no-reboot", "-nodefaults", "-monitor", "none"]
    command += ["-serial", "stdio", "-serial", f"file:{out}"]
    command += ["-kernel", str(kernel), "-initrd", str(files), "-append", line]
    with (machine.folder / "console").open("w") as console:
        ending.run(
            ["timeout", str(seconds), *ending.tied(["nice", *command])],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
        )
    return options


def take_files(machine: Machine, out: Path) -> None:
    """Unpacks what the machine has sent."""
    try:
        with tarfile.open(out) as archive:
            archive.extractall(machine.folder)
    except (OSError, tarfile.TarError) as error:
        raise SystemExit(f"{machine.name}: {error}: see {machine.folder / 'console'}") from None


def record(machine: Machine, loads: list[Load]) -> None:
    """Fills the machine's folder."""
    shutil.rmtree(machine.folder, ignore_errors=True)
    machine.folder.mkdir(parents=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        out = Path(folder) / "out.tar.gz"
        write_archive(loads, Path(folder) / "files.cpio")
        files = Path(folder) / "files.cpio"
        options = boot(machine, files, out, command_line(), SECONDS_MOST)
        take_files(machine, out)
    (machine.folder / "machine").write_text(" ".join(options) + "\n")
    print(f"{machine.name}: {time.monotonic() - began:.0f} s", flush=True)


def kept_name(machine: Machine, load: str) -> str:
    return f"{load}-{machine.name}"


def text_of(folder: Path, name: str) -> str:
    path = folder / name
    return path.read_text().strip() if path.exists() else ""


def stats_of(machine: Machine, load: Load, counts: dict[str, int]) -> str:
    folder = machine.folder
    memory = " ".join(text_of(folder, f"{load.name}.meminfo").split())
    return (
        f"trace: {kept_name(machine, load.name)}\n"
        f"load: {load.command}\n"
        f"kernel: {text_of(folder, 'kernel')}\n"
        f"emulator: {text_of(folder, 'machine')}\n"
        f"command line: {text_of(folder, 'cmdline')}\n"
        f"counts: {' '.join(f'{name} {counts[name]}' for name in COUNTS)}\n"
        f"memory: {memory}\n"
        f"output: {' '.join(text_of(folder, f'{load.name}.output').split()) or 'none'}\n"
    )


def attributes_of(text: str) -> str:
    """Lines of cache, attribute and value, from lines of /sys/kernel/slab/CACHE/ATTRIBUTE:VALUE."""
    rows = re.findall(r"^/sys/kernel/slab/([^/]+)/(\w+):(.*)$", text, re.MULTILINE)
    return "".join(f"{cache}\t{name}\t{value}\n" for cache, name, value in sorted(rows))


def keep(machine: Machine, loads: list[Load]) -> bool:
    """Puts recordings beside the project's traces; whether all are whole."""
    whole = True
    for load in (Load("boot", "none: until the first process has mounted what it needs"), *loads):
        name = kept_name(machine, load.name)
        counts = json.loads(text_of(machine.folder, f"{load.name}.json"))
        status = text_of(machine.folder, f"{load.name}.status")
        if counts["lost"] or status not in ("", "0"):
            print(f"{name}: {counts['lost']} events lost, status {status}")
            whole = False
        trace = tr.read_trace(machine.folder / f"{load.name}.ktrace")
        source = f"{name}: {text_of(machine.folder, 'kernel')}: {load.command}"
        tr.write_trace(TRACES / f"{name}.ktrace", replace(trace, source=source))
        (TRACES / f"{name}.stats.txt").write_text(stats_of(machine, load, counts))
        shutil.copyfile(
            machine.folder / f"{load.name}.slabinfo.txt", TRACES / f"{name}.slabinfo.txt"
        )
    attributes = attributes_of((machine.folder / "boot.attributes").read_text())
    packed = gzip.compress(attributes.encode(), mtime=0)
    (TRACES / f"{kept_name(machine, 'boot')}.attributes.tsv.gz").write_bytes(packed)
    return whole


def main() -> int:
    parser = argparse.ArgumentParser(description="Records Debian's kernels on emulated machines.")
    parser.add_argument("--kernel", action="append", choices=list(KERNELS))
    parser.add_argument("--cpus", action="append", type=int, choices=list(CPUS))
    parser.add_argument("--load", action="append", metavar="NAME")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--only-keep", action="store_true")
    arguments = parser.parse_args()
    os.environ[tr.MEMORY_VARIABLE] = str(2**40)
    kernel_tool()
    whole = True
    try:
        for cpus in arguments.cpus or CPUS:
            loads = loads_of(cpus)
            chosen = [load for load in loads if not arguments.load or load.name in arguments.load]
            for kernel in arguments.kernel or reversed(KERNELS):
                machine = Machine(kernel, cpus)
                if not arguments.only_keep:
                    record(machine, chosen)
                if arguments.keep or arguments.only_keep:
                    whole = keep(machine, chosen) and whole
    except Unavailable as reason:
        print(f"no machines can be booted here: {reason}")
        return SKIPPED
    return int(not whole)


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main())
