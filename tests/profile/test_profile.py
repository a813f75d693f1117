# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem profile`: estimates against a program whose sites are known, and the files it writes."""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from profiled import KMEM, LIBRARY, ROOT, on_library, profile, wait_for_registry

from kmem.common.errors import KmemError
from kmem.live import leases
from kmem.live import profile as kmem_profile
from kmem.live.images import Image, read_image
from kmem.live.leases import OWN, leased
from kmem.live.lines import Line
from kmem.live.perf_maps import made_line, parse
from kmem.live.pprof import Frame, Mapping, Row, encode, read
from kmem.live.profile_files import write_files
from kmem.live.registry.file import Registry
from kmem.live.registry.find import open_process
from kmem.live.registry.heap import read_heap
from kmem.live.stack_files import collapsed, speedscope
from kmem.live.stacks import Counts, read_stacks
from kmem.live.symbols import CUT, Symbols

pytestmark = pytest.mark.alone

SITES = ROOT / "build" / "tests" / "profile" / "profile-sites"
ENOUGH = 4000  # samples; a binomial estimate from so many is off by 1.6% in the standard deviation
BOUND = 0.05


@contextmanager
def sites(rounds: int, options: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    if not SITES.exists() or not LIBRARY.exists():
        pytest.skip(f"{SITES} is not built")
    with on_library(options, SITES, *words, str(rounds)) as process:
        yield process


def truth(process: subprocess.Popen[str]) -> dict[str, tuple[int, int, int]]:
    """Live objects, live bytes and allocations of each site."""
    assert process.stdout is not None
    rows = {}
    for line in process.stdout:
        if line == "end\n":
            return rows
        name, *numbers = line.split()
        live, size, allocations = map(int, numbers)
        rows[name] = (live, size, allocations)
    raise AssertionError("the program ended early")


@pytest.mark.parametrize("calls", [5, 40, 120, 200])
def test_depth(calls: int) -> None:
    """Stacks have up to 128 frames; a longer one has a root that says so."""
    with sites(calls, "profile_interval=256K", "deep") as process:
        truth(process)
        symbols = Symbols(process.pid)
        with contextlib.closing(open_process(process.pid)) as registry:
            stacks = read_stacks(registry)
            assert symbols.look(lambda: True)
            names = [[function(symbols.frame(at)) for at in stack] for stack in stacks]
        symbols.close()
    deep = [stack for stack in names if "deep_call" in stack]
    assert deep
    for stack in deep:
        assert stack[0] == "site_bulky"
        if calls < 128:
            assert stack.count("deep_call") == calls
            assert "main" in stack
            assert CUT not in stack
        else:
            assert stack == ["site_bulky", *["deep_call"] * 127, CUT]


def function(frame: Frame) -> str:
    """The function that the address is in, and not those inlined there."""
    return frame.lines[-1].function


def by_site(process: int) -> dict[str, list[Counts]]:
    found = defaultdict(list)
    with open_process(process) as registry:
        assert registry.number("head", "samples_missed") == 0
        assert registry.number("head", "missing") == 0
        symbols = Symbols(process)
        assert symbols.look(lambda: True)
        for stack, counts in read_stacks(registry).items():
            found[function(symbols.frame(stack[0])) if stack else "?"].append(counts)
    return found


# On one CPU, with one thread, all draws are the same in every run of the same build.
def test_estimates() -> None:
    options = "profile_interval=8192,reclaim_thread=off"
    with sites(50000, options) as process:
        expected = truth(process)
        found = by_site(process.pid)
    checked = []
    for name, (live, size, _) in expected.items():
        counts = found[name]
        samples = sum(one.live_samples for one in counts)
        objects = sum(one.live_objects for one in counts)
        space = sum(one.live_size for one in counts)
        print(f"{name}: {live} objects, {samples} samples, estimate {objects:.0f}, {space} bytes")
        if live == 0:
            assert objects == 0 and space == 0
        elif samples >= ENOUGH:
            checked.append(name)
            assert abs(objects - live) < BOUND * live
            # Bytes are those of the object that the size class gives.
            assert abs(space - size) < BOUND * size
    assert set(checked) >= {"site_keep", "site_burst", "site_table", "site_bulky"}
    # The C library's own, and what it gets while it walks a stack for the first time.
    others = [one for name, counts in found.items() if name not in expected for one in counts]
    assert sum(one.samples for one in others) < 10


def available_bytes() -> int:
    text = Path("/proc/meminfo").read_text()
    return 1024 * int(text.split("MemAvailable:")[1].split()[0])


@pytest.mark.full
def test_estimates_at_an_interval_of_a_megabyte() -> None:
    """Where a sample is one of thousands of objects and costs a program next to nothing."""
    hoard = 4300  # megabytes of each site
    if available_bytes() < 3 * hoard << 20:
        pytest.skip(f"needs {3 * hoard} MiB of free memory")
    with sites(hoard, "profile_interval=1M,reclaim_thread=off", "hoard") as process:
        expected = truth(process)
        found = by_site(process.pid)
    for name in ("site_burst", "site_bulky"):
        live, size, _ = expected[name]
        samples = sum(one.live_samples for one in found[name])
        objects = sum(one.live_objects for one in found[name])
        space = sum(one.live_size for one in found[name])
        print(f"{name}: {live} objects, {samples} samples, estimate {objects:.0f}, {space} bytes")
        assert samples >= ENOUGH
        assert abs(objects - live) < BOUND * live
        assert abs(space - size) < BOUND * size


def test_pairs_are_seen() -> None:
    """What is freed at once shows in what was allocated, as much as what stays."""
    with sites(50000, "profile_interval=4096,reclaim_thread=off") as process:
        _, _, allocations = truth(process)["site_pair"]
        found = by_site(process.pid)["site_pair"]
    assert abs(sum(one.objects for one in found) - allocations) < 0.1 * allocations
    assert sum(one.live_samples for one in found) == 0


def sliced(slots: str) -> tuple[list[float], list[int]]:
    """By how much estimates of both sites are off, and the objects seen of each."""
    options = f"slots={slots},profile_interval=1024,profile_slices=40"
    begun = time.monotonic()
    with sites(7000, options, "paced") as process:
        expected = truth(process)
        # Slices go on after the last allocation, and symbols take a time of their own.
        seconds = time.monotonic() - begun
        with open_process(process.pid) as registry:
            in_slices = registry.number("head", "slice_ns") / 1e9
        found = by_site(process.pid)
    assert in_slices < seconds
    off, seen = [], []
    for name in ("site_small", "site_wide"):
        samples = sum(one.slice_samples for one in found[name])
        seen.append(sum(one.slice_objects for one in found[name]))
        allocated = expected[name][2]
        off.append(abs(seen[-1] * seconds / in_slices / allocated - 1))
        print(f"{name}: {samples} samples, estimate {off[-1]:.1%} off")
        assert samples >= ENOUGH
        assert sum(one.live_samples for one in found[name]) == 0
    return off, seen


@pytest.mark.parametrize("slots", ["auto", "locked"])
def test_slices(slots: str) -> None:
    """Pairs that never leave a sheaf are seen while there are no sheaves, each on its own."""
    # How fast the program was in slices and outside depends on the machine's other work.
    for _ in range(4):
        off, seen = sliced(slots)
        if max(off) < 2 * BOUND and abs(seen[0] / seen[1] - 3) < 3 * BOUND:
            return
    pytest.fail(f"off by {off}, {seen} objects, four times")


def test_slices_take_their_part_of_the_time() -> None:
    shares = []
    with sites(20000, "registry=on,profile_interval=1024,profile_slices=50", "paced") as process:
        wait_for_registry(process.pid)
        with open_process(process.pid) as registry:
            # The machine's other work makes the thread late, in slices and outside.
            for _ in range(6):
                begun, before = time.monotonic(), registry.number("head", "slice_ns")
                time.sleep(1)
                sliced_ns = registry.number("head", "slice_ns") - before
                shares.append(sliced_ns / 1e9 / (time.monotonic() - begun))
                if abs(shares[-1] - 0.5) < 0.08:
                    return
    pytest.fail(f"slices were {shares} of the time")


def test_slices_of_a_running_process(tmp_path: Path) -> None:
    options = "registry=on,profile_interval=1024,profile_slices=1"
    picture = tmp_path / "rate.svg"
    with sites(20000, options, "paced") as process:
        wait_for_registry(process.pid)
        done = profile(
            str(process.pid), "--interval", "1024", "--slices", "30", "--seconds", "2",
            "--view", "rate", "-o", picture,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "slices were" in done.stdout
        graph = picture.read_text()
        assert "site_small" in graph and "site_wide" in graph
        process.kill()


def test_samples_without_room_are_said(tmp_path: Path) -> None:
    """Also those of the time before the command began: they are missing in what is in use."""
    options = "registry=on,profile_interval=1024"
    takes = "k = ctypes.CDLL(None).kmalloc; [k(8000, 0) for _ in range(140000)]"
    source = f"import ctypes; {takes}; print(flush=True); input()"
    with subprocess.Popen(
        [KMEM, "run", "--set", options, "--", sys.executable, "-c", source],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as popen:  # fmt: skip
        assert popen.stdout is not None
        popen.stdout.readline()
        done = profile(
            str(popen.pid), "--interval", "1024", "--seconds", "0.1", "-o", tmp_path / "x.svg"
        )
        popen.kill()
    assert done.returncode == 0, done.stderr
    assert re.search(r"no room for \d{4,} samples since", done.stdout)


def test_without_an_interval(tmp_path: Path) -> None:
    """A program that is sampled already is sampled as before, and the file says how."""
    options = "registry=on,profile_interval=8192,reclaim_thread=off"
    with sites(20000, options, "paced") as process:
        wait_for_registry(process.pid)
        done = profile(str(process.pid), "--seconds", "0.5", "-o", tmp_path / "x.pb.gz")
        with open_process(process.pid) as registry:
            assert registry.number("head", "profile_interval") == 8192
        process.kill()
    assert done.returncode == 0, done.stderr
    assert read(tmp_path / "x.pb.gz").period == 8192


def test_slices_without_a_thread(tmp_path: Path) -> None:
    options = "registry=on,profile_interval=1024,profile_slices=10,reclaim_thread=off"
    with sites(20000, options, "paced") as process:
        wait_for_registry(process.pid)
        done = profile(
            str(process.pid), "--interval", "1024", "--slices", "10", "--seconds", "1",
            "-o", tmp_path / "x.svg",
        )  # fmt: skip
        process.kill()
    assert done.returncode != 0
    assert "--slices 10" in done.stderr and "reclaim thread" in done.stderr
    assert not list(tmp_path.iterdir())


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and contents of the fields of a message."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        value = varint()
        if key & 7 == 0:
            yield key >> 3, value
        else:
            assert key & 7 == 2
            yield key >> 3, data[at : at + value]
            at += value


def texts(message: bytes) -> list[str]:
    return [bytes(value).decode() for field, value in fields(message) if field == 6]


def wait_until_off(process: int, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    with open_process(process) as registry:
        while registry.number("head", "profile_interval"):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def profiling(
    process: int, picture: Path, *wrapper: str, slices: int = 0
) -> subprocess.Popen[bytes]:
    """The command, which samples by now and would for ten minutes."""
    words = ["--seconds", "600", "--interval", "512K", "--slices", str(slices), "-o", picture]
    arguments = [*wrapper, KMEM, "profile", str(process), *words]
    command = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    with open_process(process) as registry:
        deadline = time.monotonic() + 60
        while not registry.number("head", "profile_interval"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    time.sleep(1.5)  # it has been answered, and waits
    return command


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_off_after_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    """What ends the command leaves no sampling behind, and what was seen until then."""
    picture = tmp_path / "heap.svg"
    with sites(1000000, "registry=on") as process:
        wait_for_registry(process.pid)
        with profiling(process.pid, picture) as command:
            command.send_signal(number)
            assert command.wait(60) == 0
        wait_until_off(process.pid)
    assert picture.exists()


def test_off_after_the_command_was_killed(tmp_path: Path) -> None:
    """The lease is renewed for as long as the command lives, and ends in the process by itself."""
    with sites(1000000, "registry=on,profile_slices=3") as process:
        wait_for_registry(process.pid)
        with (
            profiling(process.pid, tmp_path / "heap.svg", slices=9) as command,
            open_process(process.pid) as registry,
        ):
            lease = registry.number("head", "profile_lease_ms") / 1000
            deadline = time.monotonic() + lease + 2
            while time.monotonic() < deadline:
                assert registry.number("head", "profile_interval") == 512 << 10
                assert registry.number("head", "profile_slices") == 9
                time.sleep(0.1)
            command.kill()
            command.wait()
            wait_until_off(process.pid, lease + 20)
            # As the program's own options have it.
            assert registry.number("head", "profile_slices") == 3


def test_a_child_ends_the_lease_that_it_was_born_with(tmp_path: Path) -> None:
    """Nobody renews it: the command knows the parent alone."""
    program = (
        "import os, sys, time\n"
        "def work(): return [bytes(1000 + n % 1000) for n in range(20000)]\n"
        "while not os.path.exists(sys.argv[1]): work()\n"
        "child = os.fork()\n"
        "if child: print(child, flush=True)\n"
        "while True: work()\n"
    )
    started = tmp_path / "started"
    words = (sys.executable, "-c", program, started)
    with on_library("registry=on", *words, PYTHONMALLOC="malloc") as process:
        assert process.stdout is not None
        wait_for_registry(process.pid)
        with profiling(process.pid, tmp_path / "heap.svg") as command:
            started.touch()
            child = int(process.stdout.readline())
            try:
                wait_for_registry(child)
                with open_process(child) as registry:
                    lease = registry.number("head", "profile_lease_ms") / 1000
                wait_until_off(child, lease + 20)
                with open_process(process.pid) as registry:
                    assert registry.number("head", "profile_interval") == 512 << 10
            finally:
                os.kill(child, signal.SIGKILL)
                command.terminate()
            assert command.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_off_after_a_signal_at_the_end(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which may be the second one: it does not interrupt what leaves no sampling behind."""
    ask = leases.ask

    def interrupted(registry: Registry, birth: int, name: str, text: str = "") -> tuple[int, int]:
        if text == OWN:
            signal.raise_signal(number)
        return ask(registry, birth, name, text)

    monkeypatch.setattr(leases, "ask", interrupted)
    before = {
        each: signal.signal(each, signal.default_int_handler)
        for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    }
    try:
        with sites(1000000, "registry=on") as process:
            wait_for_registry(process.pid)
            with contextlib.suppress(KeyboardInterrupt):
                kmem_profile.profile(
                    process.pid,
                    seconds=0.1,
                    interval=1024,
                    slices=0,
                    outputs=[tmp_path / "heap.svg"],
                    view="live",
                )
            wait_until_off(process.pid)
    finally:
        for each, action in before.items():
            signal.signal(each, action)


@pytest.mark.parametrize("name", ["old.svg", "old.pb.gz"])
def test_files_are_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def write_a_part(file: Path, *_: object, **__: object) -> None:
        with file.open("w") as part:
            part.write("a part")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    old = tmp_path / name
    old.write_text("old")
    with sites(1000000, "registry=on") as process:
        wait_for_registry(process.pid)
        monkeypatch.setattr(kmem_profile, "end_as_by_ctrl_c", lambda *_: None)
        monkeypatch.setattr(Path, "write_text", write_a_part)
        monkeypatch.setattr(Path, "write_bytes", write_a_part)
        with pytest.raises(KmemError, match=f"-o {old}: No space left on device"):
            kmem_profile.profile(
                process.pid, seconds=0.1, interval=1024, slices=0, outputs=[old], view="live"
            )
    assert old.read_text() == "old"
    assert list(tmp_path.iterdir()) == [old]


def test_full_disk_does_not_take_the_figures(tmp_path: Path) -> None:
    """Neither the table, in place of the file, nor the other files."""
    full, other = tmp_path / "full.svg", tmp_path / "other.svg"
    full.symlink_to("/dev/full")
    with sites(1000000, "registry=on") as process:
        wait_for_registry(process.pid)
        words = (str(process.pid), "--seconds", "0.1", "--interval", "1024")
        done = profile(*words, "-o", full, "-o", other)
    assert (done.returncode, done.stderr) == (1, f"kmem: -o {full}: No space left on device\n")
    assert "call site" in done.stdout
    assert other.read_text().endswith("</svg>\n")


def test_one_at_a_time(tmp_path: Path) -> None:
    with sites(1000000, "registry=on") as process:
        wait_for_registry(process.pid)
        with profiling(process.pid, tmp_path / "first.svg") as first:
            second = tmp_path / "second.svg"
            arguments = [KMEM, "profile", str(process.pid), "--seconds", "0.1", "-o", second]
            refused = subprocess.run(arguments, capture_output=True, text=True, check=False)
            assert refused.returncode == 1
            expected = f"kmem: process {process.pid} is being profiled; expected one at a time\n"
            assert refused.stderr == expected
            first.terminate()
            assert first.wait(60) == 0
        assert not second.exists()
        assert subprocess.run(arguments, check=False).returncode == 0
        assert second.exists()


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    """As under nohup."""
    with sites(1000000, "registry=on") as process:
        wait_for_registry(process.pid)
        wrapper = ("env", "--ignore-signal=HUP")
        with profiling(process.pid, tmp_path / "heap.svg", *wrapper) as command:
            command.send_signal(signal.SIGHUP)
            with pytest.raises(subprocess.TimeoutExpired):
                command.wait(2)
            command.send_signal(signal.SIGTERM)
            assert command.wait(60) == 0


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (100 << 30, 100 << 30))
print(flush=True)
while True:
    [bytes(number) for number in range(600, 1000)]
"""


def test_attached_under_a_lowered_limit(tmp_path: Path) -> None:
    """Which leaves room for the places of samples, in what the reservation gave back."""
    with on_library("registry=on", sys.executable, "-c", LIMITED) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        wait_for_registry(process.pid)
        done = profile(str(process.pid), "--seconds", "1", "-o", tmp_path / "heap.pb.gz")
        assert done.returncode == 0, done.stderr


def test_attached(tmp_path: Path) -> None:
    """To a running process, without a restart: both kinds of file, and it is off afterwards."""
    packed, picture = tmp_path / "heap.pb.gz", tmp_path / "heap.svg"
    lines, document = tmp_path / "heap.collapsed", tmp_path / "heap.speedscope.json"
    with sites(1000000, "registry=on") as process:
        wait_for_registry(process.pid)
        done = profile(
            *(str(process.pid), "--seconds", "2", "--interval", "65536"),
            *("-o", packed, "-o", picture, "-o", lines, "-o", document, "--view", "rate"),
        )
        assert done.returncode == 0, done.stderr
        assert " stack" in done.stdout
        wait_until_off(process.pid)
    message = gzip.decompress(packed.read_bytes())
    names = texts(message)
    assert names[0] == ""
    assert {"site_burst", "site_keep", "site_large", "inuse_space", "bytes"} <= set(names)
    samples = [value for field, value in fields(message) if field == 2]
    for sample in samples:
        parts = dict(fields(bytes(sample)))
        assert len(bytes(parts[2])) >= 4
    assert str(SITES) in names
    graph = ElementTree.fromstring(picture.read_text())
    shown = {
        element.text.split(":")[0] for element in graph.iter() if element.tag.endswith("title")
    }
    assert {"all", "main", "site_burst"} <= shown
    folded = [line.rpartition(" ") for line in lines.read_text().splitlines()]
    total = sum(int(value) for _, _, value in folded)
    assert any(re.search(r";main;(.*;)?site_burst$", stack) for stack, _, _ in folded), folded
    found = json.loads(document.read_text())
    assert [profile["endValue"] for profile in found["profiles"]] == [total]
    assert {"main", "site_burst"} <= {frame["name"] for frame in found["shared"]["frames"]}


def test_stack_files() -> None:
    malloc, main, plain = Line("malloc", "/c/malloc.c", 9), Line("main"), Line("f(a;b)", "f.cpp", 3)
    stacks = [([malloc, plain, main], 5), ([malloc, main], 7), ([main], 0), ([main], -3)]
    stacks.append(([malloc, main], 1))
    assert collapsed(stacks) == "main;f(a,b);malloc 5\nmain;malloc 8\n"
    found = json.loads(speedscope(stacks, "title", "bytes"))
    (profile,) = found["profiles"]
    names = [frame["name"] for frame in found["shared"]["frames"]]
    assert [[names[at] for at in sample] for sample in profile["samples"]] == [
        ["main", "f(a;b)", "malloc"],
        ["main", "malloc"],
        ["main", "malloc"],
    ]
    assert found["shared"]["frames"][1] == {"name": "f(a;b)", "file": "f.cpp", "line": 3}
    assert found["shared"]["frames"][0] == {"name": "main"}
    assert profile["weights"] == [5, 7, 1]
    assert (profile["unit"], profile["startValue"], profile["endValue"]) == ("bytes", 0, 13)
    assert json.loads(speedscope([], "empty", "bytes"))["profiles"][0]["endValue"] == 0


@pytest.mark.parametrize("follower", [[], ["/bin/sleep", "60"]], ids=["ends", "exec"])
def test_a_program_that_goes_away(follower: list[str], tmp_path: Path) -> None:
    """Its own names are shown, not addresses, nor what another program has there."""
    picture = tmp_path / "heap.svg"
    program = tmp_path / "program.py"
    program.write_text(
        "import os, select, sys\n"
        "while not select.select([sys.stdin], [], [], 0.001)[0]:\n"
        "    kept = [bytes(1000 + n % 1000) for n in range(20000)]\n"
        f"if {follower}: os.execv({follower[:1]}[0], {follower})\n"
        "os._exit(0)\n"
    )
    with on_library("registry=on", sys.executable, program, PYTHONMALLOC="malloc") as process:
        assert process.stdin is not None
        wait_for_registry(process.pid)
        with profiling(process.pid, picture) as command:
            process.stdin.close()
            assert command.wait(60) == 0
            assert command.stdout is not None
            assert f"process {process.pid} has ended, or ".encode() in command.stdout.read()
    graph = ElementTree.fromstring(picture.read_text())
    shown = [element.text for element in graph.iter() if element.tag.endswith("title")]
    assert any("PyBytes" in str(name) or "python" in str(name) for name in shown), shown
    assert not any("sleep" in str(name) for name in shown), shown


def test_encoding() -> None:
    lines = (Line("g", "g.h", 7), Line("f<&>", "f.cpp", 3000))
    frame = Frame(0x1234, lines, Mapping(0x1000, 0x2000, 0, "/bin/x", "ab01", True))
    message = encode(
        [Row((frame,), (300, 1 << 40))],
        [("alloc_objects", "count"), ("alloc_space", "bytes")],
        default_type="alloc_space",
        period=512,
        time_ns=7,
        duration_ns=8,
        comment="c",
    )
    found = dict(fields(message))
    names = texts(message)
    assert (found[9], found[10], found[12]) == (7, 8, 512)
    assert names[int(found[14])] == "alloc_space"
    location = dict(fields(bytes(found[4])))
    assert location[3] == 0x1234 and location[2] == 1
    functions = {}
    for field, content in fields(message):
        if field == 5:
            parts = dict(fields(bytes(content)))
            functions[parts[1]] = (names[int(parts[2])], names[int(parts[4])])
    shown = [dict(fields(bytes(line))) for field, line in fields(bytes(found[4])) if field == 4]
    assert [(*functions[line[1]], line[2]) for line in shown] == [
        ("g", "g.h", 7),
        ("f<&>", "f.cpp", 3000),
    ]
    mapping = dict(fields(bytes(found[3])))
    assert names[int(mapping[6])] == "ab01" and all(mapping[field] == 1 for field in range(7, 11))


def test_the_first_mapping_is_the_program(tmp_path: Path) -> None:
    """Also where frames of a library come first, and in a file that was read and written again."""
    with sites(400, "profile_interval=64K") as process:
        truth(process)
        made, _ = kmem_profile.take(
            process.pid, seconds=0, interval=None, slices=0, growth=False, signals=[]
        )
    assert made.program == str(SITES)
    library = Frame(0x5234, (Line("malloc_for"),), Mapping(0x5000, 0x6000, 0, "/lib/x.so"))
    rows = [Row((library,), (1, 1, 1, 1)), *made.rows]
    path = tmp_path / "a.pb.gz"
    for given in (replace(made, rows=rows), None):
        write_files(given or kmem_profile.from_file(path), "live", [path])
        message = gzip.decompress(path.read_bytes())
        names = texts(message)
        found = [
            names[int(dict(fields(bytes(content)))[5])]
            for field, content in fields(message)
            if field == 3
        ]
        assert found[0] == str(SITES) and "/lib/x.so" in found[1:]


def test_damaged_section_headers(tmp_path: Path) -> None:
    """The system runs such a program; its functions have no names."""
    program = bytearray(Path("/bin/true").read_bytes())
    program[40:48] = (1).to_bytes(8, "little")  # where the section headers are
    path = tmp_path / "true"
    path.write_bytes(program)
    path.chmod(0o755)
    assert subprocess.run([path], check=False).returncode == 0
    assert read_image(str(path)) == Image()


@pytest.fixture(scope="module", params=["-pie", "-no-pie"])
def shop(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A program in C++ that allocates in a function inlined into a function inlined elsewhere."""
    program = tmp_path_factory.mktemp("shop") / "shop"
    source = program.with_suffix(".cpp")
    source.write_text(SHOP)
    subprocess.run(["g++", "-O2", "-g", request.param, source, "-o", program], check=True)
    return program


SHOP = """#include <cstdlib>
#include <cstdio>
namespace shop {
template <typename T> struct basket {
        __attribute__((always_inline)) void *take(T n) { return fetch(n); }
        __attribute__((always_inline)) void *fetch(T n) { return std::malloc(n); }
};
void *volatile kept;
__attribute__((noinline)) void fill(basket<int> &one) { kept = one.take(100000); kept = nullptr; }
}
int main() {
        shop::basket<int> one;
        for (int n = 0; n < 400; n++) shop::fill(one);
        std::puts("end"); std::fflush(stdout); return std::getchar();
}
"""
INLINED = ["shop::basket<int>::fetch(int)", "shop::basket<int>::take(int)"]


def filled(
    program: Path, meanwhile: Callable[[Symbols], object] = lambda _: None
) -> tuple[Line, ...]:
    """The lines of the frame that allocates in the program of `shop`, as it runs.

    @meanwhile: called before the command looks at the program.
    """
    with on_library("profile_interval=65536", program) as process:
        assert process.stdout is not None and process.stdout.readline() == "end\n"
        with (
            open_process(process.pid) as registry,
            contextlib.closing(Symbols(process.pid)) as symbols,
        ):
            meanwhile(symbols)
            assert symbols.look(lambda: True)
            stacks = read_stacks(registry)
            frames = [symbols.frame(stack[0]) for stack in stacks if stack]
    inside = [
        frame for frame in frames if frame.mapping and frame.mapping.path.startswith(str(program))
    ]
    assert inside
    assert len({frame.lines for frame in inside}) == 1
    return inside[0].lines


def check_filled(lines: tuple[Line, ...], source: Path) -> None:
    assert [line.function for line in lines[:-1]] == INLINED
    assert lines[-1].function.startswith("shop::fill(shop::basket<int>&")
    assert [(line.file, line.number) for line in lines] == [
        (str(source), 6),
        (str(source), 5),
        (str(source), 9),
    ]


def test_inlined_functions_and_lines(shop: Path) -> None:
    check_filled(filled(shop), shop.with_suffix(".cpp"))


@pytest.mark.parametrize("way", ["deleted", "replaced", "outside of the root"])
def test_a_program_that_is_not_at_its_path(shop: Path, tmp_path: Path, way: str) -> None:
    """Names are of the file that runs, after an update and in a process that calls chroot."""
    program = tmp_path / "shop"
    shutil.copy(shop, program)

    def move(symbols: Symbols) -> None:
        if way == "outside of the root":
            assert symbols.root is not None
            os.close(symbols.root)
            (tmp_path / "empty").mkdir()
            symbols.root = os.open(tmp_path / "empty", os.O_PATH)
            return
        program.unlink()
        if way == "replaced":
            shutil.copy("/bin/true", program)

    check_filled(filled(program, move), shop.with_suffix(".cpp"))


@pytest.mark.parametrize("way", ["link", "link in .debug", "build id", "no build id"])
def test_separate_debug_file(shop: Path, tmp_path: Path, way: str) -> None:
    """A stripped program's functions and lines are in a file beside it, or one by its build id."""
    program, debug = tmp_path / "shop", tmp_path / "shop.debug"
    copy = ["objcopy", "--remove-section=.note.gnu.build-id"] if way == "no build id" else ["cp"]
    subprocess.run([*copy, shop, program], check=True)
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    linked = [] if way == "build id" else [f"--add-gnu-debuglink={debug}"]
    subprocess.run(["objcopy", "--strip-all", *linked, program], check=True)
    if way == "build id":
        build_id = read_image(str(program)).build_id
        assert len(build_id) == 40
        folder = tmp_path / "root" / "usr" / "lib" / "debug" / ".build-id" / build_id[:2]
        folder.mkdir(parents=True)
        debug.rename(folder / f"{build_id[2:]}.debug")
        image = read_image(str(program), [Path("/"), tmp_path / "root"])
        assert image.has_lines
        symbol = subprocess.run(["nm", "-C", shop], capture_output=True, text=True, check=True)
        address = int(re.search(r"^(\w+) T shop::fill", symbol.stdout, re.M)[1], 16)
        # Pages of code lie at equal places in the file and, but for the base, in memory.
        found = image.lines_at(address % 0x400000)
        assert found[-1].function.startswith("shop::fill(")
        return
    if way == "link in .debug":
        (tmp_path / ".debug").mkdir()
        debug.rename(tmp_path / ".debug" / debug.name)
    check_filled(filled(program), shop.with_suffix(".cpp"))


@pytest.mark.parametrize("build_id", [True, False])
def test_debug_file_of_another_program(shop: Path, tmp_path: Path, build_id: bool) -> None:
    """Is not believed: its lines would be wrong ones."""
    program, debug = tmp_path / "shop", tmp_path / "shop.debug"
    drop = [] if build_id else ["--remove-section=.note.gnu.build-id"]
    subprocess.run(["objcopy", *drop, shop, program], check=True)
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    link = ["objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", program]
    subprocess.run(link, check=True)
    assert read_image(str(program)).has_lines
    other = tmp_path / "other.cpp"
    other.write_text("int main() { return 7; }")
    words = ["-Wl,--build-id"] if build_id else ["-Wl,--build-id=none"]
    subprocess.run(["g++", "-g", *words, other, "-o", debug], check=True)
    image = read_image(str(program))
    assert not image.has_lines and image.names is not None


def test_damaged_images(shop: Path, tmp_path: Path) -> None:
    """Whatever is in a file, there are names or none, and no error."""
    whole_ = shop.read_bytes()
    path = tmp_path / "damaged"
    draw = random.Random(1)
    read = 0
    for turn in range(60):
        content = bytearray(whole_)
        if turn % 3 == 0:
            del content[draw.randrange(len(content)) :]
        for _ in range(draw.choice((1, 8, 200)) if turn % 3 else 0):
            end = 64 if turn % 3 == 1 else len(content)
            content[draw.randrange(end)] = draw.randrange(256)
        path.write_bytes(content)
        image = read_image(str(path))
        read += image.names is not None
        for start, size, _ in image.parts[:16]:
            for offset in range(start, start + min(size, 1 << 14), 64):
                image.lines_at(offset)
    assert 0 < read < 60


MADE = """
import ctypes, mmap, sys
# push rbp; mov rbp, rsp; mov edi, 100000; mov rax, malloc; call rax; pop rbp; ret
malloc = ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value
begin, end = bytes.fromhex("554889e5bfa086010048b8"), bytes.fromhex("ffd05dc3")
pages = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
pages.write(begin + malloc.to_bytes(8, "little") + end)
start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
call = ctypes.CFUNCTYPE(ctypes.c_void_p)(start)
for _ in range(400): call()
print(hex(start), flush=True)
input()
"""


@pytest.mark.parametrize("mode", ["own", "other user's", "link"])
def test_perf_map(mode: str) -> None:
    """Code that is in no file has its name from a map, unless another user may have written it."""
    if os.uname().machine != "x86_64":
        pytest.skip("the code is for x86-64")
    if mode == "other user's" and os.getuid() != 0:
        pytest.skip("needs root to give a file to another user")
    words = ("profile_interval=65536", sys.executable, "-c", MADE)
    with on_library(*words) as process, contextlib.ExitStack() as stack:
        assert process.stdout is not None
        start = int(process.stdout.readline(), 16)
        path = Path(f"/tmp/perf-{process.pid}.map")
        stack.callback(path.unlink)
        target = path.with_suffix(".elsewhere") if mode == "link" else path
        lines = f"nonsense\n{start:x} 9 thrown away\n{start:x} 40 LazyCompile:~work a.js:3\n"
        if mode == "link":
            path.symlink_to(target)
            stack.callback(target.unlink)
        target.write_text(lines)
        if mode == "other user's":
            os.chown(path, 65534, 65534)
        symbols = stack.enter_context(contextlib.closing(Symbols(process.pid)))
        registry = stack.enter_context(open_process(process.pid))
        assert symbols.look(lambda: True)
        names = {function(symbols.frame(stack[0])) for stack in read_stacks(registry) if stack}
        process.kill()
    assert ("work" in names) == (mode == "own"), names


def test_names_in_perf_maps() -> None:
    """With file and line where they are told, and a function's name however it was compiled."""
    expected = {
        "JS:*order /srv/my shop.js:4:14": Line("order", "/srv/my shop.js", 4),
        "JS:~order /srv/my shop.js:4:14": Line("order", "/srv/my shop.js", 4),
        "LazyCompile:~work a.js:3": Line("work", "a.js", 3),
        "JS:^ node:internal/timers:9:1": Line("(anonymous)", "node:internal/timers", 9),
        "py::Shop.order:/srv/shop.py": Line("Shop.order", "/srv/shop.py"),
        "py::<module>:<string>": Line("<module>", "<string>"),
        "Builtin:ArrayMap": Line("Builtin:ArrayMap"),
        "java.util.List.add": Line("java.util.List.add"),
    }
    assert {name: made_line(name) for name in expected} == expected


def test_perf_map_lines() -> None:
    text = "\n12 g\n0x10 8 a\n10 8 b c\x01\nzz 8 d\n20 -4 e\n"
    assert parse(text) == {16: (8, "b c?"), 32: (-4, "e")}


def test_names_that_svg_cannot_hold() -> None:
    with contextlib.closing(Symbols(os.getpid())) as symbols:
        symbols.mappings = [Mapping(0x1000, 0x2000, 0, "/nowhere/a\x01b")]
        symbols.starts = [0x1000]
        frame = symbols.frame(0x1011)
    assert function(frame) == "[a?b]+0x10"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["1", "--interval", "10", "-o", "x.svg"], "--interval 10: expected 1024 to"),
        (["1", "--interval", "2T"], "--interval 2199023255552: expected 1024 to"),
        (["1", "--interval", "64k", "-o", "x.svg"], "process 1 does not run on libkmem"),
        (["1", "--interval", "64X"], "expected a number of bytes, with K, M, G or T if wanted"),
        (["1", "--seconds", "inf"], "--seconds 'inf': expected 0 to 86400\n"),
        (["1", "--seconds", "nan"], "--seconds 'nan': expected 0 to 86400\n"),
        (["1", "--seconds", "-1"], "--seconds '-1': expected 0 to 86400\n"),
        (["1", "--interval", "0"], "--interval '0': expected 1024 to 1099511627776 bytes\n"),
        (["1", "-o", "x.txt"], "expected a name that ends with .pb.gz, .html, .svg, .collapsed or"),
        (["1", "-o", "/nowhere/x.svg"], "-o /nowhere/x.svg: No such file or directory"),
        (["1", "-o", "x" * 300 + ".svg"], "File name too long"),
        (["999999999", "-o", "x.svg"], "process 999999999: there is none"),
    ],
)
def test_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [KMEM, "profile", *arguments], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode != 0
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_after_a_profile_that_saw_it_fall_asleep(tmp_path: Path) -> None:
    """What the first one put back waits for the process, and must not end the second."""
    program = (
        "import sys\n"
        "for line in sys.stdin:\n"
        "    for _ in range(int(line)): kept = [bytes(1000 + n % 1000) for n in range(2000)]\n"
        "    print('done', flush=True)\n"
    )
    options = "registry=on,reclaim_thread=off"
    with on_library(options, sys.executable, "-c", program, PYTHONMALLOC="malloc") as process:
        assert process.stdin is not None and process.stdout is not None

        def work() -> None:
            process.stdin.write("20\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"

        ended = threading.Event()

        def awake() -> None:
            while not ended.is_set():
                work()

        work()
        worker = threading.Thread(target=awake)
        worker.start()
        with profiling(process.pid, tmp_path / "first.svg") as first:
            ended.set()
            worker.join()
            first.terminate()
            assert first.wait(60) == 0
        with open_process(process.pid, writable=True) as registry:
            assert registry.number("head", "profile_interval") != 0
            ended.clear()
            worker = threading.Timer(1, awake)
            worker.start()
            with leased(registry, {"profile_interval": 512 << 10}):
                samples = registry.number("head", "profile_interval")
                for _ in range(20):
                    time.sleep(0.1)
                    assert registry.number("head", "profile_interval") == samples == 512 << 10
            wait_until_off(process.pid)
            ended.set()
            worker.join()


def test_sleeper(tmp_path: Path) -> None:
    with sites(1, "registry=on,reclaim_thread=off") as process:
        truth(process)
        done = profile(str(process.pid), "--seconds", "1", "-o", tmp_path / "x.svg")
    assert done.returncode != 0
    assert "has not passed a refill or drain" in done.stderr


PAGES = """#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void *kept[2000];
__attribute__((noinline)) void *take(void)
{
        void *block = malloc(40000);
        __asm__ volatile("" : : "r"(block) : "memory");
        return block;
}
int main(void)
{
        for (int i = 0; i < 2000; i++)
                kept[i] = take();
        puts("ready");
        fflush(stdout);
        pause();
}
"""


def test_classes_of_pages(tmp_path: Path) -> None:
    """Half of the blocks are samples, and all of them stay in their class."""
    program = tmp_path / "pages"
    program.with_suffix(".c").write_text(PAGES)
    words = ["gcc", "-O1", "-fno-builtin", program.with_suffix(".c"), "-o", program]
    subprocess.run(words, check=True)
    with on_library("registry=on,profile_interval=65536", program) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        found = by_site(process.pid)["take"]
        with open_process(process.pid) as registry:
            heap = read_heap(registry)
    samples = sum(one.live_samples for one in found)
    # Four standard deviations: a sample stands for 1 / 0.465 of the blocks.
    assert abs(sum(one.live_objects for one in found) - 2000) < 4 * 48
    assert abs(samples - 929) < 4 * 22
    assert heap is not None
    assert heap.large_blocks == 0
