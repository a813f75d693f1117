# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Sampled guards of the drop-in: reports, ends, the program's handlers, and `kmem guards`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kmem.live.guards import fault_files, parsed

ROOT = Path(__file__).resolve().parents[2]
KMEM = ROOT / "kmem"
FAULTS = ROOT / "build" / "tests" / "guards" / "guard-faults"
SIZES = (1, 16, 100, 1000, 4096, 20000)
EVERY = "sheaf_capacity=0,registry=on"


def run_case(
    *words: str | int, options: str = EVERY, program: Path = FAULTS
) -> tuple[int, subprocess.CompletedProcess[str]]:
    """The process's number, and how it ended."""
    if not FAULTS.exists():
        pytest.skip(f"{FAULTS} is not built")
    command = [str(KMEM), "run", "--guards=1", "--set", options, "--", str(program)]
    with subprocess.Popen(
        [*command, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        out, err = process.communicate(timeout=60)
    return process.pid, subprocess.CompletedProcess(command, process.returncode, out, err)


def listed(process: int, *words: str) -> list[dict[str, Any]]:
    command = [str(KMEM), "guards", str(process), "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture(autouse=True)
def no_files_left() -> Iterator[None]:
    yield
    for file in fault_files(None):
        if file.ended:
            file.remove()


@pytest.mark.parametrize("size", SIZES)
def test_use_after_free(size: int) -> None:
    process, done = run_case("use_after_free", size)
    assert done.returncode == -signal.SIGSEGV, done.stderr
    assert f", {size // 2} bytes into it, of an object of {size} bytes" in done.stderr
    assert done.stderr.startswith("kmem: use after free: a")
    (fault,) = listed(process)
    assert fault["fault"] == "use after free" and fault["bytes"] == size
    assert fault["command"] == "guard-faults" and fault["process"] == process
    assert "allocate_here" in fault["allocated"]["frames"][0]
    assert "use_after_free" in fault["here"]["frames"][0]
    assert any("free_in_thread" in frame for frame in fault["freed"]["frames"])
    assert fault["freed"]["thread"] != fault["allocated"]["thread"] == process
    # The faults of a process that has ended are shown once.
    assert listed(process) == []


@pytest.mark.parametrize("size", SIZES)
def test_overflow(size: int) -> None:
    process, done = run_case("overflow", size)
    assert done.returncode == -signal.SIGSEGV, done.stderr
    assert f"bytes behind the end, of an object of {size} bytes" in done.stderr
    assert done.stderr.startswith("kmem: overflow: a")
    assert [fault["fault"] for fault in listed(process, "--keep")] == ["overflow"]
    assert [fault["fault"] for fault in listed(process)] == ["overflow"]


@pytest.mark.parametrize("size", SIZES)
def test_double_free(size: int) -> None:
    process, done = run_case("double_free", size)
    assert done.returncode == -signal.SIGABRT
    assert "kmem: double free: a free at" in done.stderr
    assert "not the start of an object that is in use" in done.stderr
    (fault,) = listed(process)
    assert "free_here" in "".join(fault["freed"]["frames"])


def test_small_overflow() -> None:
    process, done = run_case("small_overflow", 100)
    assert done.returncode == 0 and done.stdout == "goes on\n"
    assert "kmem: overflow: an earlier write, found by the free, at" in done.stderr
    (fault,) = listed(process)
    assert fault["where"] == "1 bytes behind the end"


def test_small_overflow_where_no_file_may_be_written() -> None:
    """A write to the file of faults would end the program by SIGXFSZ."""
    process, done = run_case("small_overflow_without_files", 100)
    assert (done.returncode, done.stdout) == (0, "goes on\ngoes on\n"), done.stderr
    assert done.stderr.count("kmem: overflow: an earlier write, found by the free, at") == 2
    assert len(listed(process)) == 1


def test_small_overflows_on_a_full_disk() -> None:
    """The part of a line that a full /dev/shm takes does not hide the lines behind it."""
    if not FAULTS.exists():
        pytest.skip(f"{FAULTS} is not built")
    script = (
        "mount -t tmpfs -o size=2m none /dev/shm || exit 77\n"
        '"$0" run --guards=1 --set "$1" -- "$2" small_overflows_on_full_disk 100 >&2\n'
        '"$0" guards --all --json'
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, KMEM, EVERY, FAULTS],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no file system can be mounted here")
    assert done.stderr.count("kmem: overflow: an earlier write") == 22, done.stderr
    places = [fault["where"] for fault in json.loads(done.stdout)]
    assert 1 < len(places) < 22
    assert set(places[:-1]) == {"1 bytes behind the end"}
    assert places[-1] == "2 bytes behind the end"


def test_handler_that_is_set_later() -> None:
    _, done = run_case("handler_later")
    assert done.returncode == 3, done.stderr
    assert "kmem: overflow: a" in done.stderr
    assert f"handler of the program: {signal.SIGSEGV} 1\n" in done.stderr


def test_handler_that_jumps() -> None:
    _, done = run_case("handler_jumps")
    assert done.returncode == -signal.SIGSEGV
    assert done.stdout == "jumped twice\n"
    assert done.stderr.count("kmem: overflow: a") == 2


def test_signal_that_is_sent() -> None:
    process, done = run_case("sent")
    assert done.returncode == -signal.SIGSEGV and done.stderr == ""
    assert listed(process) == []


def test_nothing_wrong() -> None:
    _, done = run_case("clean")
    assert done.returncode == 0 and done.stderr == ""
    assert '<guards made="' in done.stdout and 'faults="0"' in done.stdout


def test_a_program_that_was_built_anew_gives_no_names(tmp_path: Path) -> None:
    """Its functions are at other places; libraries that are as they were keep their names."""
    if not FAULTS.exists():
        pytest.skip(f"{FAULTS} is not built")
    program = tmp_path / "faults"
    shutil.copy(FAULTS, program)
    process, _ = run_case("double_free", 100, program=program)
    (before,) = listed(process, "--keep")
    assert any("allocate_here" in frame for frame in before["allocated"]["frames"])
    deadline = time.monotonic() + 20
    while int(program.stat().st_ctime) <= before["time"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        program.touch()
    command = [str(KMEM), "guards", str(process), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == (
        f"kmem: {program} was changed after a fault, whose frames there have no names\n"
    )
    (after,) = json.loads(done.stdout)
    assert after["allocated"]["frames"][0].startswith("[faults]+0x")
    assert any("libc_start" in frame for frame in after["allocated"]["frames"])


def test_all_processes() -> None:
    first, _ = run_case("overflow")
    second, _ = run_case("use_after_free")
    done = subprocess.run(
        [str(KMEM), "guards", "--all"], capture_output=True, text=True, check=True
    )
    assert f" process {first} (guard-faults): overflow: a" in done.stdout
    assert f" process {second} (guard-faults): use after free: a" in done.stdout
    assert "  allocated by thread" in done.stdout and "    allocate_here (" in done.stdout


def said(*words: str) -> tuple[int, str]:
    """The status, and the line on standard error, of a list without faults."""
    command = [str(KMEM), "guards", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_no_faults_are_said() -> None:
    process, _ = run_case("clean")
    line = f"kmem: process {process}: there is none, and it has left no faults that were not shown"
    assert said(str(process)) == (0, f"{line}\n")
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    line = f"kmem: process 99999999: there never was one; expected at most {most}\n"
    assert said("99999999") == (1, line)
    own = os.getpid()
    assert said(str(own)) == (1, f"kmem: process {own} does not run on libkmem\n")
    assert said("--all") == (0, "kmem: no faults that were not shown\n")


@pytest.mark.parametrize("guards", [[], ["--guards=1"]])
def test_whether_there_are_guards_is_said(guards: list[str]) -> None:
    program = "blocks = [bytearray(1000) for _ in range(10000)]; print('up', flush=True); input()"
    command = [str(KMEM), "run", *guards, "--", sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as popen:
        assert popen.stdout is not None and popen.stdout.readline() == b"up\n"
        status, line = said(str(popen.pid))
        popen.communicate(b"\n", timeout=60)
    assert status == 0
    expected = f"process {popen.pid}: no faults, with " if guards else "it has made no guards"
    assert expected in line and line.count("\n") == 1


@pytest.mark.parametrize("words", [(), ("1", "--all")])
def test_wrong_arguments(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [str(KMEM), "guards", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "kmem: guards: expected a process id, or --all\n"


@pytest.mark.parametrize("rate", ["", "x", "-1", "1073741825", "99999999999"])
def test_wrong_rate(rate: str) -> None:
    done = subprocess.run(
        [str(KMEM), "run", f"--guards={rate}", "true"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"kmem: run: --guards={rate}: expected a number from 0 to")


def test_lines_that_are_no_faults() -> None:
    assert parsed(b"") is None
    assert parsed(b"[1]") is None
    assert parsed(b"\xff{") is None
    assert parsed(b'{"fault": 7, "process": "x", "here": {"frames": [[1, 2], ["a", 1]]}}') == {
        "fault": "?",
        "process": 0,
        "here": {"thread": 0, "frames": []},
    }


@pytest.fixture
def others() -> Iterator[tuple[Path, str]]:
    """The folder of another user, and the beginning of the names in it."""
    if os.geteuid() != 0:
        pytest.skip("needs root to have files of another user")
    folder = Path("/dev/shm/kmem-54321")
    folder.mkdir(mode=0o700)
    os.chown(folder, 54321, 54321)
    yield folder, str(Path("/proc/self/ns/pid").stat().st_ino)
    shutil.rmtree(folder)


def test_other_users_do_not_fill_the_readers_memory(others: tuple[Path, str]) -> None:
    """A file may have any number of names, and a folder many files."""
    folder, namespace = others
    line = b'{"fault": "overflow", "command": "x"}\n'
    for number in range(99_000_000, 99_000_010):
        file = folder / f"{namespace}.{number}.faults"
        file.write_bytes(line + b" " * (1 << 20))
        os.chown(file, 54321, 54321)
    os.link(file, folder / f"{namespace}.99000010.faults")
    done = subprocess.run(
        [str(KMEM), "guards", "--all", "--json"], capture_output=True, text=True, check=True
    )
    assert [fault["command"] for fault in json.loads(done.stdout)] == ["x"] * 3
    lines = done.stderr.splitlines()
    assert "not read; expected 4 MiB of faults of a user at a time" in lines[0]
    assert lines[3] == f"kmem: {folder}: 5 more of this user's files could not be read"
    assert len(lines) == 4
    # What was not shown is there for the next look.
    assert len(list(folder.iterdir())) == 8
    for each in list(folder.iterdir()):
        if each.stat().st_nlink == 1:
            each.unlink()
    assert said("--all")[1].count("has 2 names; expected one") == 2


def test_rate_of_a_running_process() -> None:
    """All caches at once; the cache of one name says it."""
    environment = {**os.environ, "LD_PRELOAD": str(ROOT / "build/src/libkmem-malloc.so")}
    program = "import sys\nwhile True: list(map(str, range(5000)))\n"
    with subprocess.Popen(
        ["/usr/bin/python3", "-c", program],
        env=environment | {"KMEM_OPTIONS": "registry=on", "PYTHONMALLOC": "malloc"},
    ) as process:
        try:
            deadline = 100
            for words in (["*/guard_sampling", "50"], ["kmalloc-64/guard_sampling"]):
                while True:
                    done = subprocess.run(
                        [str(KMEM), "attr", str(process.pid), *words],
                        capture_output=True,
                        text=True,
                        check=False,
                    )
                    deadline -= 1
                    good = done.stdout == ("" if len(words) == 2 else "50\n")
                    if (done.returncode == 0 and good) or not deadline:
                        break
                assert deadline, done.stderr
            info = [str(KMEM), "info", str(process.pid), "--json"]
            while deadline:
                done = subprocess.run(info, capture_output=True, text=True, check=True)
                if json.loads(done.stdout)["guards"]["made"] > 10:
                    break
                deadline -= 1
            assert deadline
        finally:
            process.kill()
