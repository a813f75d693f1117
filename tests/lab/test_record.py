# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem record`: traces of programs whose calls are known, of python3 and redis beside their slab
tables, and of the running kernel where tracefs can be read."""

from __future__ import annotations

import errno
import gc
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kmem.record import kernel as kernel_recording
from kmem.record import program as program_recording
from kmem.record.folder import work_folder
from kmem.record.running import run_with_its_signals
from kmem.traces import file as tr

pytestmark = pytest.mark.alone

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
KMEM = ROOT / "kmem"
REPLAY = ROOT / "build" / "tools" / "replay"
OPERATION = pl.col("operation") & tr.OPERATION_MASK
# Every slot source and back end has its own way to the slow paths that are recorded.
SETTINGS = ["slots=auto", "slots=locked", "engine=slab", "engine=slob", "classes=kernel"]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("recorded") / "recorded"
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs gcc")
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-fno-builtin"]
    subprocess.run([compiler, *flags, "-o", out, HERE / "recorded.c"], check=True)
    return out


def run(
    command: Sequence[object], timeout: int = 300, **options: Any
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        **options,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def record(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run([KMEM, "record", *arguments])


def record_program(
    folder: Path, *command: str | Path, options: tuple[str | Path, ...] = (), status: int = 0
) -> tuple[tr.Trace, str]:
    out = folder / "one.ktrace"
    done = record("program", "--out", out, *options, "--", *command)
    assert done.returncode == status, done.stderr
    assert not list(folder.glob(".kmem-record-*"))
    return tr.read_trace(out), done.stderr


def living(trace: tr.Trace) -> pl.DataFrame:
    """Rows of allocations that nothing freed."""
    begun = trace.records.filter(OPERATION == tr.ALLOC)
    ended = trace.records.filter(OPERATION.is_in([tr.FREE, tr.IMPLIED]))
    return begun.join(ended, on="object", how="anti")


def assert_whole(trace: tr.Trace) -> None:
    """Every free was recorded, and came after its allocation (read_trace has checked that)."""
    left = trace.records.filter(OPERATION.is_in([tr.IMPLIED, tr.ORPHAN]))
    assert left.height == 0, left


EXPECTED_ALLOCATIONS = [7001, 7002, 7003, 70004, 40000005, 80000006, 7007, 7008, 7009]
EXPECTED_FREES = [7001, 7003, 70004, 40000005, 80000006, 7008, 7009]
OURS = pl.col("requested").is_in(EXPECTED_ALLOCATIONS)


def asked(frame: pl.DataFrame, operation: int) -> list[int]:
    """Sizes that the program asks for and libc does not, in the order of time."""
    return frame.filter(OURS, operation == OPERATION)["requested"].to_list()


@pytest.mark.parametrize("setting", SETTINGS)
def test_calls(program: Path, tmp_path: Path, setting: str) -> None:
    trace, _ = record_program(tmp_path, program, "calls", options=("--set", setting))
    assert_whole(trace)
    records = trace.named()
    assert asked(records, tr.ALLOC) == EXPECTED_ALLOCATIONS
    assert asked(records, tr.FREE) == EXPECTED_FREES
    ours = records.filter(OURS)
    # The call sites are the program's own, also those of frees and of what realloc does.
    assert ours["site"].str.starts_with("recorded+0x").all(), ours["site"].to_list()
    assert (ours["given"] >= ours["requested"]).all()
    assert ours["thread"].n_unique() == 1
    assert sorted(living(trace).filter(OURS)["requested"]) == [7002, 7007]


def raw_file(folder: Path, *, cpus: int = 1, ended: int = 0) -> Path:
    """One process with a block and its free, as record/format.h has them."""
    header = b"KMEMRAW1" + struct.pack("<4I4Q", 40, 4096, cpus, 1, 0, 0, ended, 0)
    events = [
        struct.pack("<4Q4x2H", 1 << 48, 0, 77, 0, 0, 4),
        struct.pack("<4Q4x2H", 1 << 48 | 4096, 0, 64, 1, 0, 1),
        struct.pack("<4Q4x2H", 1 << 48 | 4096, 0, 0, 2, 0, 2),
    ]
    file = folder / "raw"
    head = header.ljust(128, b"\0") + struct.pack("<Q", len(events))
    file.write_bytes(head.ljust(1 << 16, b"\0") + b"".join(events))
    return file


def test_raw_files(tmp_path: Path) -> None:
    """A header that no recording makes is named; it became a trace that nobody reads."""
    out = tmp_path / "one.ktrace"
    tool = ROOT / "build" / "tools" / "record-program"
    assert run([tool, raw_file(tmp_path), 1, out, "raw"]).returncode == 0
    assert tr.read_trace(out).records["requested"].to_list() == [64, 64]
    out.unlink()
    for wrong, reason in (
        ({"cpus": 65537}, "65537 CPUs; expected at most 65536"),
        ({"ended": 1 << 40}, "ended by error 1099511627776; expected at most 4095"),
    ):
        file = raw_file(tmp_path, **wrong)
        done = run([tool, file, 1, out, "raw"])
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"kmem: record: {file}: {reason}\n"
        assert not out.exists()


def test_a_long_command_line(program: Path, tmp_path: Path) -> None:
    """Longer than one argument of a program may be; the header has room for its beginning."""
    trace, _ = record_program(tmp_path, program, "calls", *["word"] * 40_000)
    assert asked(trace.records, tr.ALLOC) == EXPECTED_ALLOCATIONS
    assert trace.source.startswith("kmem record program: recorded (")
    assert len(trace.source) == 65536


@pytest.mark.parametrize("setting", SETTINGS)
def test_hand_over_between_threads(program: Path, tmp_path: Path, setting: str) -> None:
    """Blocks go from thread to thread and CPU to CPU; in the trace none is freed too early."""
    trace, _ = record_program(tmp_path, program, "threads", options=("--set", setting))
    assert_whole(trace)
    small = trace.records.filter(OPERATION == tr.ALLOC, pl.col("requested").is_between(16, 215))
    assert small.height >= 4 * 20000
    assert trace.records["thread"].n_unique() == 5
    ends = trace.records.filter(OPERATION == tr.FREE).select("object", by="thread")
    across = small.join(ends, on="object").filter(pl.col("thread") != pl.col("by"))
    assert across.height > 0, "no block was handed over"


@pytest.mark.parametrize("setting", SETTINGS)
def test_bulk_that_fails(program: Path, tmp_path: Path, setting: str) -> None:
    """What a failing call took and gave back is recorded as both."""
    options = ("--set", f"{setting},reserve=32M")
    trace, errors = record_program(tmp_path, program, "bulks", options=options)
    assert "nable to allocate memory" in errors
    assert_whole(trace)
    assert not (living(trace)["requested"] == 30000).any()


def test_forked_child_has_its_parents_heap(program: Path, tmp_path: Path) -> None:
    record_program(tmp_path, program, "forks", options=("--all",))
    (child_file,) = (path for path in tmp_path.iterdir() if path.name != "one.ktrace")
    traces = [tr.read_trace(tmp_path / "one.ktrace"), tr.read_trace(child_file)]
    left = []
    for trace in traces:
        assert_whole(trace)
        sizes = [size for size in living(trace)["requested"] if size in (7100, 7200, 7300)]
        left.append(Counter(sizes))
    # Each has 50 of the 100 blocks and ten of its own.
    assert sorted(left, key=str) == [{7100: 50, 7200: 10}, {7100: 50, 7300: 10}]


@pytest.mark.parametrize(
    ("how", "status"), [("killed", 128 + signal.SIGKILL), ("exits", 3)], ids=["SIGKILL", "_exit"]
)
def test_nothing_is_lost_without_an_orderly_end(
    program: Path, tmp_path: Path, how: str, status: int
) -> None:
    trace, errors = record_program(tmp_path, program, how, status=status)
    assert_whole(trace)
    assert asked(trace.records, tr.FREE) == EXPECTED_FREES
    assert "were lost" not in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on(program: Path, tmp_path: Path, number: signal.Signals) -> None:
    """What the program did until then becomes a trace, and nothing else is left."""
    out = tmp_path / "one.ktrace"
    command = [KMEM, "record", "program", "--out", out, "--", program, "waits"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as recording:
        assert recording.stdout is not None
        assert recording.stdout.readline() == "waits\n"
        recording.send_signal(number)
        assert recording.wait(60) == 128 + number
    assert list(tmp_path.iterdir()) == [out]
    trace = tr.read_trace(out)
    assert_whole(trace)
    assert asked(trace.records, tr.FREE) == EXPECTED_FREES


def test_a_program_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For want of processes: that is not said of the trace."""

    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(program_recording, "build", lambda: None)
    monkeypatch.setattr(program_recording, "end_as_by_ctrl_c", lambda *_: None)
    monkeypatch.setattr(subprocess, "Popen", refused)
    with pytest.raises(BlockingIOError):
        program_recording.record_program(["true"], tmp_path / "one.ktrace", [], every=False)
    assert not list(tmp_path.iterdir())


def test_an_ignored_ctrl_c_stays_ignored(program: Path, tmp_path: Path) -> None:
    """As in the background of a shell."""
    script = 'kill -INT $$; exec "$0" exits'
    command = ["sh", "-c", script, program]
    arguments = ["program", "--out", tmp_path / "one.ktrace", "--", *command]
    done = run(["env", "--ignore-signal=INT", KMEM, "record", *arguments])
    assert done.returncode == 3, done.stderr


def test_a_signal_while_the_program_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is passed on when there is somebody to get it; no program is left behind."""

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            signal.raise_signal(signal.SIGTERM)

    def end(*_: object) -> None:
        raise AssertionError("the command has ended, and the program has not")

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.signal(signal.SIGTERM, end)
    try:
        assert run_with_its_signals(["sleep", "20"]) == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)


def test_exec_begins_a_new_heap(program: Path, tmp_path: Path) -> None:
    trace, errors = record_program(tmp_path, program, "execs")
    assert_whole(trace)
    assert living(trace).filter(pl.col("requested") == 24).height >= 200000
    assert "not written, --all would: recorded" in errors


def test_full_disk_ends_the_recording_and_not_the_program(program: Path, tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for the disk; a signal would end the program there."""
    out = tmp_path / "one.ktrace"
    done = subprocess.run(
        ["prlimit", f"--fsize={4 << 20}", KMEM, "record", "program", "--out", out, "--",
         program, "many"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"kmem: record: .*: File too large \(error 27\); .* are lost, and counted", done.stderr
    )
    trace = tr.read_trace(out)
    assert_whole(trace)
    lost = re.search(r"kmem: ([\d,]+) events were lost: File too large", done.stderr)
    assert lost, done.stderr
    missing = int(lost.group(1).replace(",", ""))
    kept = trace.records.filter(pl.col("requested") == 24).height
    assert kept > 32768
    assert 200000 <= kept + missing <= 201000


HEADER, PIECE = 65536, 1310720  # bytes of a raw file's header, and of each piece that it grows by


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "nodev", folder]
    if os.geteuid() != 0 or run(words).returncode != 0:
        pytest.skip("only root may mount a disk, where mounts are allowed")
    try:
        yield folder
    finally:
        run(["umount", "-l", folder])


def recovered(folder: Path, out: Path) -> tr.Trace:
    """What `record recover` makes of the one folder that is left there."""
    (left,) = folder.glob(".kmem-record-*")
    done = record("recover", left, "--out", out)
    assert done.returncode == 0, done.stderr
    assert not left.exists()
    return tr.read_trace(out)


# Pages of the disk around the end of the header and of the first two pieces of the raw file, and
# behind them, where the trace is.
@pytest.mark.parametrize(
    "size",
    [
        end + 4096 * pages
        for end in (HEADER, HEADER + PIECE, HEADER + 2 * PIECE)
        for pages in (-1, 0, 1, 2, 4, 8, 32)
    ],
)
def test_a_full_disk_loses_no_recording(program: Path, tmp_path: Path, size: int) -> None:
    with small_disk(tmp_path / "disk", size) as disk:
        out = disk / "one.ktrace"
        done = record("program", "--out", out, "--", program, "many")
        lines = done.stderr.splitlines()
        assert not [line for line in lines if "Traceback" in line]
        if "nothing is recorded" in done.stderr or "recorded nothing" in done.stderr:
            assert size < HEADER + PIECE + 2 * 4096, done.stderr
            assert not list(disk.glob(".kmem-*"))
            return
        assert "events were lost: No space left on device" in done.stderr or done.returncode == 1
        if done.returncode == 0:
            trace = tr.read_trace(out)
            assert not list(disk.glob(".kmem-*"))
        else:
            assert re.fullmatch(
                r"kmem: .*: No space left on device; what was recorded is kept: kmem record recover"
                r" \S+ --out FILE",
                lines[-1],
            ), done.stderr
            assert not out.exists()
            trace = recovered(disk, tmp_path / "elsewhere.ktrace")
        assert_whole(trace)
        kept = trace.records.filter(pl.col("requested") == 24).height
        # What else is on the disk has some pages of it.
        least, most = ((size - HEADER - other) // PIECE for other in (65536, 0))
        assert 32768 * least - 1000 < kept <= 32768 * most


def test_a_limit_of_files_at_every_byte_of_a_trace(program: Path, tmp_path: Path) -> None:
    """A trace is whole or not there, wherever its frames end; the tool says why in one line."""
    part = tmp_path / "part.ktrace"
    with kept_recording(program, tmp_path) as folder:
        tool = [program_recording.PROGRAM_TOOL, folder / "raw"]
        processes = json.loads(run(tool).stdout)["processes"]
        number = next(process["number"] for process in processes if process["name"] == "recorded")
        tool += [str(number), part, "test"]
        assert run(tool).returncode == 0
        size = part.stat().st_size
        # Times differ a little in each trace of it, and so does its size.
        for limit in range(size + 64):
            done = run(["prlimit", f"--fsize={limit}", *tool])
            if done.returncode == 0:
                assert limit > size - 64
                assert tr.read_trace(part).named().filter(OURS).height
                part.unlink()
            else:
                assert re.fullmatch(r"kmem: record: .*: File too large\n", done.stderr), done.stderr
                assert done.returncode == 1 and not part.exists()
        assert run(tool).returncode == 0


@contextmanager
def kept_recording(program: Path, folder: Path, *words: str) -> Iterator[Path]:
    """A folder as a command that was killed leaves it."""
    command = [KMEM, "record", "program", "--out", folder / "never.ktrace", "--"]
    code = f"{program} {words[0] if words else 'calls'}; echo done; exec sleep 600"
    with subprocess.Popen(
        [*command, "sh", "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as popen:
        assert popen.stdout is not None
        assert popen.stdout.readline() == "done\n"
        os.killpg(popen.pid, signal.SIGKILL)
    (left,) = folder.glob(".kmem-record-*")
    yield left


def test_a_killed_command_leaves_a_recording(program: Path, tmp_path: Path) -> None:
    out = tmp_path / "one.ktrace"
    with kept_recording(program, tmp_path) as folder:
        # The next one offers it.
        done = record("program", "--out", tmp_path / "next", "--", program, "calls")
        assert done.returncode == 0
        offer = (
            f"kmem: an earlier recording has no trace yet: kmem record recover {folder} --out FILE"
        )
        assert f"{offer} makes one" in done.stderr.splitlines()
        done = record("recover", folder, "--out", out, "--all")
        assert done.returncode == 0, done.stderr
        assert not folder.exists()
    traces = [tr.read_trace(path) for path in tmp_path.glob("one*.ktrace")]
    (ours,) = (trace for trace in traces if "recorded (" in trace.source)
    assert_whole(ours)
    assert asked(ours.named(), tr.ALLOC) == EXPECTED_ALLOCATIONS
    assert f"of: sh -c '{program} calls;" in ours.source


def test_a_program_outlives_the_command(program: Path, tmp_path: Path) -> None:
    """It goes on recording, and until its end there is no trace."""
    words = [KMEM, "record", "program", "--out", tmp_path / "never", "--"]
    code = "import sys; print(flush=True); input(); print(len([bytes(999) for _ in range(5000)]))"
    with subprocess.Popen(
        [*words, sys.executable, "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as popen:  # fmt: skip
        assert popen.stdin is not None and popen.stdout is not None
        assert popen.stdout.readline() == "\n"
        (folder,) = tmp_path.glob(".kmem-record-*")
        done = record("recover", folder, "--out", tmp_path / "one")
        assert done.returncode == 1
        assert done.stderr == f"kmem: record recover: {folder}: a recording into it goes on\n"
        popen.kill()
        popen.wait()
        done = record("recover", folder, "--out", tmp_path / "one")
        assert done.returncode == 1
        assert re.search(r"process \d+ goes on recording into it; expected its end\n", done.stderr)
        print(file=popen.stdin, flush=True)
        assert popen.stdout.readline() == "5000\n"
    deadline = time.monotonic() + 60
    while (done := record("recover", folder, "--out", tmp_path / "one")).returncode != 0:
        assert time.monotonic() < deadline, done.stderr
    trace = tr.read_trace(tmp_path / "one")
    assert trace.records.filter(pl.col("requested") == 999 + 33).height >= 5000


def test_a_truncated_recording(program: Path, tmp_path: Path) -> None:
    """Events are read up to the last whole one, and the rest is counted."""
    with kept_recording(program, tmp_path, "many") as folder:
        raw = folder / "raw"
        whole = raw.read_bytes()
        for size in (HEADER + 40 * 5000 + 39, HEADER + 40 * 5000, HEADER + 40 * 5000 - 1):
            raw.write_bytes(whole[:size])
            done = run([program_recording.PROGRAM_TOOL, raw])
            assert done.returncode == 0, done.stderr
            (number,) = struct.unpack_from("<Q", whole, 128)
            found = json.loads(done.stdout)
            assert found["missing"] >= number - (size - HEADER) // 40
            assert sum(process["events"] for process in found["processes"]) <= 5000
        for size in (0, 1, HEADER - 1):
            raw.write_bytes(whole[:size])
            done = run([program_recording.PROGRAM_TOOL, raw])
            assert done.returncode == 1 and "nothing was recorded" in done.stderr
        # A hole in the place of the event that says a process's id.
        raw.write_bytes(whole[:HEADER] + bytes(40) + whole[HEADER + 40 :])
        done = run([program_recording.PROGRAM_TOOL, raw])
        unnamed = json.loads(done.stdout)["processes"][0]
        assert unnamed["pid"] == 0 and unnamed["events"] > 0


def run_with_attributes(folder: Path, *command: str | Path) -> tuple[tr.Trace, dict[str, int], str]:
    """The trace, objects in use of each cache at the exit, and the slab table's last lines."""
    attributes, table = folder / "attrs", folder / "table"
    trace, _ = record_program(
        folder, *command, options=("--set", f"attrs={attributes},slabinfo={table}")
    )
    counts = {path.name: int((path / "objects_inuse").read_text()) for path in attributes.iterdir()}
    return trace, counts, table.read_text()


def class_bytes(name: str) -> int:
    match = re.fullmatch(r"kmalloc-(\d+)(k?)", name)
    assert match, f"{name}: a program on the drop-in has caches of sizes only"
    return int(match.group(1)) << (10 if match.group(2) else 0)


def assert_agrees_with_the_table(trace: tr.Trace, counts: dict[str, int], table: str) -> None:
    assert_whole(trace)
    left = living(trace)
    classes = {class_bytes(name): n for name, n in counts.items()}
    found = Counter(left["given"])
    assert {size: n for size, n in classes.items() if n} == {
        size: n for size, n in found.items() if size in classes
    }
    large = re.search(r"# large blocks: (\d+) of (\d+) bytes, huge: (\d+) of", table)
    assert large
    outside = sum(n for size, n in found.items() if size not in classes)
    assert outside == int(large.group(1)) + int(large.group(3))
    assert sum(found.values()) == sum(counts.values()) + outside


CLASSES_MOST = 1 << 20  # bytes; larger blocks of malloc are in no cache


def assert_replays(path: Path, trace: tr.Trace) -> None:
    done = subprocess.run([REPLAY, path], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    inuse = sum(cache["inuse"] for cache in document["caches"])
    assert inuse == living(trace).filter(pl.col("requested") <= CLASSES_MOST).height


@pytest.fixture
def told_of_ctrl_c() -> Iterator[None]:
    """Also where the tests run in the background of a shell, which has them ignore it.

    Hypothesis is called at each collection of garbage, and Python drops an exception there.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()
    yield
    gc.enable()
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("told_of_ctrl_c")
def test_an_interrupted_trace_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the trace is made: one of before stays, and nothing else is left."""
    tool = tmp_path / "tool"
    tool.write_text('#!/bin/sh\nprintf half > "$3"\nkill -INT $PPID\nsleep 10\n')
    tool.chmod(0o755)
    monkeypatch.setattr(program_recording, "PROGRAM_TOOL", tool)
    out = tmp_path / "out" / "one.ktrace"
    out.parent.mkdir()
    for before in ("", "old"):
        if before:
            out.write_text(before)
        with pytest.raises(KeyboardInterrupt), work_folder(out, {}) as folder:
            program_recording.write_trace(folder / "raw", 1, out, "")
        assert list(out.parent.iterdir()) == ([out] if before else [])
    assert out.read_text() == "old"


def test_python_agrees_with_its_slab_table(tmp_path: Path) -> None:
    code = "import json, re; data = [str(i) * 9 for i in range(9999)]; print(len(json.dumps(data)))"
    folder = tmp_path
    os.environ["PYTHONMALLOC"] = "malloc"
    try:
        trace, counts, table = run_with_attributes(
            folder, os.path.realpath(sys.executable), "-c", code
        )
    finally:
        del os.environ["PYTHONMALLOC"]
    assert trace.records.height > 20000
    assert_agrees_with_the_table(trace, counts, table)
    assert_replays(folder / "one.ktrace", trace)


def test_redis_agrees_with_its_slab_table(tmp_path: Path) -> None:
    for name in ("redis-server", "redis-cli"):
        if shutil.which(name) is None:
            pytest.skip(f"needs {name}")
    socket = tmp_path / "s"
    # The server writes no file and ends when it is told to; the script waits until it listens.
    script = tmp_path / "client"
    script.write_text(
        "#!/bin/sh\n"
        f"unset LD_PRELOAD KMEM_OPTIONS\n(for i in $(seq 200); do [ -S {socket} ] && break;"
        " sleep 0.05; done\n"
        f"for i in $(seq 3000); do echo SET key$i value$i; done | redis-cli -s {socket}\n"
        f"redis-cli -s {socket} DEL key1 key2; redis-cli -s {socket} SHUTDOWN NOSAVE)"
        f" >/dev/null 2>&1 &\n"
    )
    script.chmod(0o755)
    client = subprocess.Popen([script])
    trace, counts, table = run_with_attributes(
        tmp_path, "redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "",
        "--dir", str(tmp_path), "--logfile", str(tmp_path / "log"),
    )  # fmt: skip
    client.wait()
    assert trace.records.height > 10000
    assert_agrees_with_the_table(trace, counts, table)
    assert_replays(tmp_path / "one.ktrace", trace)


# ---- Errors -------------------------------------------------------------------------------------


def test_events_go_to_no_other_file(program: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    record_program(tmp_path, program, "calls", options=("--set", f"record={other}"))
    assert not list(tmp_path.glob("other*"))


def test_errors_are_one_line(program: Path, tmp_path: Path) -> None:
    for arguments, text in [
        (("program", "--out", tmp_path, "--", "true"), "Is a directory; expected a file to write"),
        (("program", "--out", "/proc/x/y", "--", "true"), "--out /proc/x/y: No such file"),
        (("program", "--out", tmp_path / "a,b" / "t", "--", "true"), "No such file or directory"),
        (("program", "--out", "x" * 300, "--", "true"), "File name too long; expected a file"),
        (("kernel", "--out", tmp_path / "k"), "expected --seconds N or -- COMMAND"),
        (("kernel", "--seconds", "-1", "--out", tmp_path / "k"), "--seconds -1: expected more"),
    ]:
        done = record(*arguments)
        assert done.returncode == (2 if arguments[0] == "kernel" else 1), done.stderr
        assert text in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    # Names that no option can hold.
    for name in ("a,b", "a\nb", "\u00e9" * 100):
        folder = tmp_path / name
        folder.mkdir()
        done = record("program", "--out", folder / "t", "--", program, "calls")
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert "expected a path without commas and line ends, of at most" in line
        assert list(folder.iterdir()) == []
    done = record("program", "--out", tmp_path / "t", "--", "/nonexistent/program")
    assert done.returncode == 127
    assert done.stderr == "kmem: /nonexistent/program: not found\n"
    assert not (tmp_path / "t").exists()


def test_wrong_option_keeps_the_program_from_starting(program: Path, tmp_path: Path) -> None:
    done = record("program", "--out", tmp_path / "t", "--set", "freeze=late", "--", program)
    assert done.returncode == 2
    assert done.stderr == "kmem: record: option freeze=late: expected one of: delayed eager\n"
    assert not list(tmp_path.iterdir())


def test_device_has_no_folder_beside_it(program: Path, tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    before = set(Path("/dev").iterdir())
    for device, status in [("full", 1), ("null", 0)]:
        command = [KMEM, "record", "program", "--out", f"/dev/{device}", "--", program, "calls"]
        done = run(command, env=environment)
        assert done.returncode == status, done.stderr
        assert set(Path("/dev").iterdir()) == before
        assert not list(tmp_path.iterdir())
        if status:
            assert done.stderr.endswith("what was recorded is lost, as /dev/full is no file\n")


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_open_file_of_the_command_is_refused(name: str, tmp_path: Path) -> None:
    done = record("program", "--out", name, "--", "touch", tmp_path / "started")
    assert done.returncode == 1
    assert (
        done.stderr
        == f"kmem: record: --out {name}: an open file of this command; expected its name\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("to", ["2>/dev/full", "2> >(true)"])
def test_nothing_is_lost_with_what_cannot_be_said(program: Path, tmp_path: Path, to: str) -> None:
    """Full disk or a reader that went away (`2>&1 | head`): all traces, the program's status."""
    words = "record program --all --out one.ktrace -- sh -c '\"$0\" calls; sleep 1; exit 7'"
    done = subprocess.run(
        ["/bin/bash", "-c", f'"$1" {words.replace("$0", str(program))} {to}', "-", KMEM],
        cwd=tmp_path,
        timeout=300,
        check=False,
    )
    assert done.returncode == 7
    assert len(list(tmp_path.glob("one*.ktrace"))) >= 2
    assert not list(tmp_path.glob(".kmem-record-*"))


def test_library_says_what_it_cannot_write(program: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [KMEM, "run", "--set", f"record={tmp_path}/none/raw", "--", program, "calls"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert re.fullmatch(
        r"kmem: record: cannot write .*/none/raw: No such file or directory \(error 2\); .*\n",
        done.stderr,
    )


@pytest.mark.parametrize("start", [b"Dear reader, ", bytes(8), b""], ids=["text", "zeros", "empty"])
def test_the_library_records_into_no_other_file(
    program: Path, tmp_path: Path, start: bytes
) -> None:
    """A name that was mistaken for a new one costs no file."""
    raw = tmp_path / "letter"
    text = start + b"all is well" if start else b""
    raw.write_bytes(text)
    done = subprocess.run(
        [KMEM, "run", "--set", f"record={raw}", "--", program, "calls"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    if not start:
        assert done.stderr == ""
        assert raw.stat().st_size > 1 << 16
        return
    assert re.fullmatch(
        r"kmem: record: .*/letter: expected a new file, or one of this recording; nothing is "
        r"recorded of process \d+\n",
        done.stderr,
    )
    assert raw.read_bytes() == text


# ---- The kernel ---------------------------------------------------------------------------------


def need_tracefs() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may read tracefs")
    for folder in ("/sys/kernel/tracing", "/sys/kernel/debug/tracing"):
        if Path(folder, "events", "kmem", "kmalloc").exists():
            return
    subprocess.run(["mount", "-t", "tracefs", "nodev", "/sys/kernel/tracing"], check=False)
    if not Path("/sys/kernel/tracing/events/kmem/kmalloc").exists():
        pytest.skip("no kmem tracepoints in tracefs")


def test_the_tool_is_made_with_our_ninja(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meson takes the first one in PATH, and looks for the tree in the current directory."""
    tools, made = tmp_path / ".venv" / "bin", tmp_path / "record-kernel"
    tools.mkdir(parents=True)
    (tools / "ninja").write_text("")
    (tools / "ninja").chmod(0o755)
    (tools / "meson").write_text(
        "import os, shutil\n"
        f"open({str(made)!r}, 'w').write(os.getcwd() + ' ' + shutil.which('ninja'))\n"
    )
    monkeypatch.setattr(kernel_recording, "ROOT", tmp_path)
    monkeypatch.setattr(kernel_recording, "KERNEL_TOOL", made)
    for name in ("build", "need_packages"):
        monkeypatch.setattr(kernel_recording, name, lambda *_: None)
    kernel_recording.kernel_tool()
    assert made.read_text() == f"{tmp_path} {tools / 'ninja'}"


def test_kernel(tmp_path: Path) -> None:
    """Pipes have a cache of their own: as many as a program makes are in the trace."""
    need_tracefs()
    out = tmp_path / "kernel.ktrace"
    code = "import os\nfor _ in range(3000):\n  a, b = os.pipe()\n  os.close(a)\n  os.close(b)\n"
    done = record("kernel", "--out", out, "--", os.path.realpath(sys.executable), "-c", code)
    assert done.returncode == 0, done.stderr
    assert ", none lost" in done.stderr
    assert re.search(r"frees in bulk paired by the address's next use, ", done.stderr)
    trace = tr.read_trace(out)
    named = trace.named()
    thread = named.filter(pl.col("site").str.starts_with("alloc_pipe_info"))["thread"].mode()[0]
    mine = named.filter(OPERATION == tr.ALLOC, pl.col("thread") == thread)
    pipes = mine.filter(pl.col("site").str.starts_with("alloc_pipe_info"))
    assert pipes.height >= 2 * 3000  # the pipe and its ring of buffers
    assert (mine["given"] >= mine["requested"]).all()
    ended = named.filter(OPERATION.is_in([tr.FREE, tr.IMPLIED]))
    assert pipes.join(ended, on="object", how="anti").height <= 2
    assert trace.records["time"].is_sorted()
    replayed = subprocess.run([REPLAY, out], capture_output=True, timeout=120, check=False)
    assert replayed.returncode == 0
    assert not [p for p in Path("/sys/kernel/tracing/instances").iterdir() if "kmem-" in p.name]


def test_kernel_passes_signals_on(tmp_path: Path) -> None:
    need_tracefs()
    out = tmp_path / "k"
    command = [KMEM, "record", "kernel", "--out", out, "--", "sh", "-c", "echo out; exec sleep 600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as recording:
        assert recording.stdout is not None
        assert recording.stdout.readline() == "out\n"
        recording.send_signal(signal.SIGTERM)
        assert recording.wait(60) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == [out]
    assert not [p for p in Path("/sys/kernel/tracing/instances").iterdir() if "kmem-" in p.name]


def test_kernel_is_ended_before_the_command_runs(tmp_path: Path) -> None:
    """By a signal that comes while the ring buffers are made: the command does not begin."""
    need_tracefs()
    out, ran = tmp_path / "k", tmp_path / "ran"
    tool = kernel_recording.KERNEL_TOOL
    arguments = [out, tmp_path, "0", "1408", "", "sh", "-c", f"echo >{ran}; exec sleep 20"]
    for _ in range(20):
        with subprocess.Popen([tool, *arguments]) as recording:
            process = Path(f"/proc/{recording.pid}")
            while recording.poll() is None:
                if Path(f"/sys/kernel/tracing/instances/kmem-record-{recording.pid}").exists():
                    break
            recording.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, recording.pid, os.WSTOPPED | os.WNOWAIT)
            begun = (process / "task" / process.name / "children").read_text()
            recording.send_signal(signal.SIGTERM)
            recording.send_signal(signal.SIGCONT)
            assert recording.wait(60) == 0
        if not begun:
            break
        ran.unlink(missing_ok=True)
    assert not ran.exists()
    assert json.loads((tmp_path / "report").read_text())["status"] == 128 + signal.SIGTERM


def test_a_kernel_trace_that_fails_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, tool = tmp_path / "k", tmp_path / "tool"
    out.write_text("of before")
    tool.write_text('#!/bin/sh\necho half >"$1"\nexit 1\n')
    tool.chmod(0o700)
    monkeypatch.setattr(kernel_recording, "KERNEL_TOOL", tool)
    monkeypatch.setattr(kernel_recording, "kernel_tool", lambda: None)
    monkeypatch.setattr(kernel_recording, "end_as_by_ctrl_c", lambda *_: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(SystemExit):
        kernel_recording.record_kernel([], 1, out, 1408)
    assert out.read_text() == "of before"
    assert sorted(tmp_path.iterdir()) == [out, tool]


def test_kernel_command_status(tmp_path: Path) -> None:
    need_tracefs()
    done = record("kernel", "--out", tmp_path / "k", "--", "sh", "-c", "echo out; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n")


def instances() -> list[Path]:
    return list(Path("/sys/kernel/tracing/instances").glob("kmem-*"))


@pytest.mark.parametrize("killed", ["command", "tool", "both"])
def test_a_killed_kernel_recording(tmp_path: Path, killed: str) -> None:
    """Nothing goes on tracing, and what was recorded can be read."""
    need_tracefs()
    out = tmp_path / "k"
    code = "import os\nfor _ in range(3000):\n  a, b = os.pipe()\n  os.close(a)\n  os.close(b)\n"
    words = [os.path.realpath(sys.executable), "-c", f"{code}print(flush=True)\ninput()"]
    with subprocess.Popen(
        [KMEM, "record", "kernel", "--out", out, "--", *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as recording:  # fmt: skip
        assert recording.stdout is not None and recording.stdin is not None
        assert recording.stdout.readline() == "\n"
        (instance,) = instances()
        tool = int(instance.name.rpartition("-")[2])
        # The program's start and its pipes are 3 MB. The readers take pages that are not full,
        # too, so other programs' events end the wait on any machine.
        (folder,) = tmp_path.glob(".kmem-record-*")
        deadline = time.monotonic() + 60
        while sum(file.stat().st_size for file in folder.glob("cpu*")) < 2_000_000:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if killed != "tool":
            recording.kill()
        if killed != "command":
            os.kill(tool, signal.SIGKILL)
        recording.stdin.close()
        recording.wait(60)
        if killed == "tool":
            assert recording.stderr is not None
            assert "what was recorded is kept: kmem record recover" in recording.stderr.read()
    deadline = time.monotonic() + 60
    while instances():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    done = record("recover", folder, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "what was lost is not known" in done.stderr
    assert not folder.exists()
    named = tr.read_trace(out).named()
    pipes = named.filter(OPERATION == tr.ALLOC, pl.col("site").str.starts_with("alloc_pipe_info"))
    assert pipes.height > 500


def test_a_full_disk_keeps_a_kernel_recording(tmp_path: Path) -> None:
    need_tracefs()
    code = "import os\nfor _ in range(30000):\n  a, b = os.pipe()\n  os.close(a)\n  os.close(b)\n"
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        words = [os.path.realpath(sys.executable), "-c", code]
        done = record("kernel", "--out", disk / "k", "--", *words)
        assert "later events of CPU" in done.stderr and "No space left on device" in done.stderr
        assert "what was recorded is kept: kmem record recover" in done.stderr.splitlines()[-1]
        trace = recovered(disk, tmp_path / "k")
    assert trace.records.height > 1000


def test_a_kernel_recording_of_another_start_of_the_machine(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may read tracefs")
    folder = tmp_path / ".kmem-record-x"
    folder.mkdir()
    (folder / "cpu0").write_bytes(bytes(4096))
    done = record("recover", folder, "--out", tmp_path / "k")
    assert done.returncode == 1
    assert "recorded before the machine was started" in done.stderr
    assert (folder / "cpu0").exists()
