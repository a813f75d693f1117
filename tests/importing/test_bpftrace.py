# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The bpftrace scripts beside the importer: their lines, and what they record here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kmem.traces import file as tr

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "command"))
from kmem_command import ROOT, kmem

SCRIPTS = ROOT / "python" / "kmem" / "importing"
SECONDS = 60  # until bpftrace has attached, at most

KERNEL = """\
7 [002] 0000000010.000002000: kmalloc: call_site=foo ptr=0xffff888000001000 bytes_req=100 \
bytes_alloc=128 gfp_flags=0xdc0
7 [002] 0000000010.000003000: kfree: call_site=bar ptr=0xffff888000001000
Lost 69291 events
"""
HEAP = """\
[pid 7] 1000000010.000002000 malloc(100) = 0x5500001000
[pid 8] 1000000010.000003000 realloc(0x5500001000, 200) = 0x5500002000
[pid 7] 1000000010.000004000 free(0x5500002000) = <void>
@count[3318]: 277
"""

# Each round has blocks of a size that nothing else asks for.
PROGRAM = """\
#include <stdlib.h>
#include <unistd.h>
int main(void)
{
        for (int i = 0; i < 100000; i++) {
                char *volatile block = malloc(12345);
                block = realloc(block, 23456);
                free(block);
                block = aligned_alloc(64, 34560);
                free(block);
                usleep(1000);
        }
        return 0;
}
"""


def imported(folder: Path, text: str) -> tuple[tr.Trace, str]:
    file, out = folder / "recording.txt", folder / "out.ktrace"
    file.write_text(text, encoding="utf-8")
    done = kmem("import", file, "-o", out)
    assert done.returncode == 0, done.stderr
    return tr.read_trace(out), done.stderr


def test_lines_of_the_kernel(tmp_path: Path) -> None:
    trace, said = imported(tmp_path, KERNEL)
    records = trace.named()
    assert records["operation"].to_list() == [tr.ALLOC, tr.FREE | tr.KFREE]
    assert records["time"].to_list() == [0, 1000]
    assert records["thread"].to_list() == [7, 7]
    assert records["cpu"].to_list() == [2, 2]
    assert records["flags"].to_list() == [0xDC0, 0]
    assert records["site"].to_list() == ["foo", "bar"]
    assert "69,291 events lost" in said
    assert "cannot be read" not in said


def test_lines_of_a_program(tmp_path: Path) -> None:
    trace, said = imported(tmp_path, HEAP)
    records = trace.records
    assert records["operation"].to_list() == [tr.ALLOC, tr.FREE, tr.ALLOC, tr.FREE]
    assert records["requested"].to_list() == [100, 100, 200, 200]
    assert records["thread"].to_list() == [7, 8, 8, 7]
    assert records["time"].to_list() == [0, 1000, 1000, 2000]
    assert "cannot be read" not in said


def recorded(folder: Path, words: list[str], *wanted: str) -> str:
    """The lines of a script in order of their times, once all @wanted are among them."""
    if shutil.which("bpftrace") is None:
        pytest.skip("bpftrace is missing (Debian package bpftrace)")
    if os.geteuid() != 0:
        pytest.skip("bpftrace needs root")
    output, errors = folder / "lines.txt", folder / "errors.txt"
    with output.open("wb") as lines, errors.open("wb") as said:
        running = subprocess.Popen(
            ["bpftrace", "-q", "-B", "line", *words], stdout=lines, stderr=said
        )
    deadline = time.monotonic() + SECONDS
    try:
        while not all(text in output.read_text(errors="replace") for text in wanted):
            if running.poll() is not None or time.monotonic() > deadline:
                last = errors.read_text(errors="replace").splitlines()[-1:]
                pytest.skip(f"bpftrace cannot attach here: {''.join(last)}")
            time.sleep(0.2)
    finally:
        running.terminate()
        running.wait()
    environment = os.environ | {"LC_ALL": "C"}
    return subprocess.run(
        ["sort", "-s", "-k3,3", output], capture_output=True, text=True, check=True, env=environment
    ).stdout


def test_a_programs_heap_is_recorded(tmp_path: Path) -> None:
    source, program = tmp_path / "asks.c", tmp_path / "kmem-asks"
    source.write_text(PROGRAM)
    subprocess.run(["cc", "-O0", "-o", program, source], check=True)
    with subprocess.Popen([program]) as running:
        words = [str(SCRIPTS / "malloc.bt"), "kmem-asks"]
        try:
            text = recorded(tmp_path, words, "malloc(12345)", "23456)", "memalign(64, 34560)")
        finally:
            running.kill()
    trace, said = imported(tmp_path, text)
    assert "cannot be read" not in said
    assert {12345, 23456, 34560} <= set(trace.records["requested"])
    assert set(trace.records["thread"]) == {running.pid}


def test_the_kernels_slabs_are_recorded(tmp_path: Path) -> None:
    text = recorded(tmp_path, [str(SCRIPTS / "kernel.bt")], " kmem_cache_free: ")
    trace, said = imported(tmp_path, text)
    assert "cannot be read" not in said
    operations = {operation & tr.OPERATION_MASK for operation in trace.records["operation"]}
    assert tr.ALLOC in operations
    assert operations & {tr.FREE, tr.ORPHAN}
