# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Bytes in use by age and by thread, and the call sites that look like leaks."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from profiled import KMEM, on_library, profile, wait_for_registry

from kmem.live.ages import (
    Ages,
    Held,
    bytes_by_age,
    suspects,
    thread_frame,
    thread_rows,
    top_threads,
)
from kmem.live.lines import Line
from kmem.live.living import Living, now_ms, read_living
from kmem.live.pprof import Frame, Row
from kmem.live.profile_files import Profile, pprof_of
from kmem.live.profile_tables import print_tables
from kmem.live.registry import layout
from kmem.live.registry.file import RECORD_SAMPLES, Registry
from kmem.live.registry.find import open_process
from kmem.live.registry.layout import FIELD, START
from kmem.live.stacks import read_stacks

pytestmark = pytest.mark.alone

MINUTE = 60_000
PROGRAM = """#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static void *volatile kept;
static pthread_barrier_t done;
__attribute__((noinline)) void leak(void)
{
        void **block = malloc(2000);
        *block = kept;
        __atomic_store_n(&kept, block, __ATOMIC_RELAXED);
}
__attribute__((noinline)) void fill(void)
{
        void **block = malloc(4000);
        *block = kept;
        __atomic_store_n(&kept, block, __ATOMIC_RELAXED);
}
static void *work(void *name)
{
        pthread_setname_np(pthread_self(), name);
        for (int i = 0; i < 3000; i++)
                leak();
        pthread_barrier_wait(&done);
        return NULL;
}
int main(void)
{
        pthread_t threads[2];
        pthread_barrier_init(&done, NULL, 3);
        pthread_create(&threads[0], NULL, work, "first-worker");
        pthread_create(&threads[1], NULL, work, "second-worker");
        for (int i = 0; i < 9000; i++)
                fill();
        pthread_barrier_wait(&done);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        write(1, "done\\n", 5);
        for (;;) {
                free(malloc(3000));
                usleep(1000);
        }
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("threads") / "threads"
    source = path.with_suffix(".c")
    source.write_text(PROGRAM)
    words = ["gcc", "-O1", "-g", "-fno-builtin", "-pthread", str(source), "-o", str(path)]
    subprocess.run(words, check=True)
    return path


@contextmanager
def running(program: Path) -> Iterator[int]:
    with on_library("registry=on,profile_interval=16384", program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        yield process.pid


def read(process: int) -> Living:
    with open_process(process) as registry:
        living = read_living(registry)
    assert living is not None
    return living


def age(registry: Registry) -> None:
    """Makes samples of `leak` as old as if it had leaked for ten minutes, and the rest older."""
    now = now_ms(registry.process)
    place = registry.parts["samples"]["sample"]
    sizes = stack_sizes(registry)
    registry.write("head", "profile_since_ms", 0, max(now - 11 * MINUTE, 1))
    at_leak = 0
    for at in registry.records(registry.copy())[RECORD_SAMPLES]:
        for number in range(place.count):
            base = at + place.offset + number * place.size
            stack = 64 * registry.number("sample", "stack", base)
            if not stack:
                continue
            ago = 10 * MINUTE
            if sizes[stack] < 2500:
                at_leak += 1
                ago = at_leak * 7919 % (10 * MINUTE)
            registry.write("sample", "time_ms", base, now - ago)


def stack_sizes(registry: Registry) -> dict[int, float]:
    """The mean size of the objects of each stack, by its place."""
    from kmem.live.stacks import OBJECTS, stack_places

    return {
        at: OBJECTS
        * registry.number("stack", "bytes", at)
        / max(registry.number("stack", "objects", at), 1)
        for at in stack_places(registry, registry.copy())
    }


def test_samples_are_those_of_the_stacks(program: Path) -> None:
    with running(program) as process, open_process(process) as registry:
        living, stacks = read(process), read_stacks(registry)
    sizes: dict[tuple[int, ...], int] = {}
    for sample in living.samples:
        sizes[sample.stack] = sizes.get(sample.stack, 0) + sample.size
    for stack, size in sizes.items():
        # The program goes on with a site that frees what it allocates.
        assert abs(size - stacks[stack].live_size) < 100_000
    assert sum(sizes.values()) > 30 << 20
    assert living.old_ms == MINUTE
    assert all(0 <= sample.age_ms <= living.sampled_ms for sample in living.samples)


def test_threads(program: Path, tmp_path: Path) -> None:
    """Threads that have ended keep their bytes and their names."""
    picture = tmp_path / "threads.svg"
    with running(program) as process:
        words = (str(process), "--interval", "16384", "--seconds", "0.2", "--by", "thread")
        shown = profile(*words)
        assert shown.returncode == 0, shown.stderr
        assert profile(*words, "-o", picture).returncode == 0
        names = {name for name in read(process).threads.values()}
    lines = [line for line in shown.stdout.splitlines() if ": " in line and "thread " in line]
    assert "fill" in lines[0] and "thread threads" in lines[0]
    assert sorted(line.split("thread ")[1].split(" ")[0] for line in lines[1:3]) == [
        "first-worker",
        "second-worker",
    ]
    assert all("leak" in line for line in lines[1:3])
    assert names == {"threads", "first-worker", "second-worker"}
    assert "thread first-worker" in picture.read_text()


def test_explained(program: Path) -> None:
    with running(program) as process:
        words = (str(process), "--interval", "16384", "--seconds", "0.2")
        young = profile(*words)
        rate = profile(*words, "--view", "rate")
        with open_process(process, writable=True) as registry:
            age(registry)
        explained = subprocess.run(
            [KMEM, "explain", str(process), "--json", "/dev/stdout"], capture_output=True, text=True
        )
    assert young.returncode == rate.returncode == 0, young.stderr
    assert "leak suspects need 120 s" in young.stdout
    assert "<1 min" not in young.stdout
    assert "suspects" not in rate.stdout
    assert explained.returncode == 0, explained.stderr
    document = json.JSONDecoder().raw_decode(explained.stdout)[0]
    (suspect,) = document["leak_suspects"]
    assert suspect["calls"][0] == "leak (threads.c:9)"
    # 12 MB in ten minutes, by samples.
    assert 0.9e6 < suspect["bytes_a_minute"]["value"] < 1.6e6
    fill = next(one for one in document["ages"] if one["calls"][0].startswith("fill"))
    assert fill["by_age"]["<1 min"]["value"] == fill["by_age"]["older"]["value"] == 0
    assert fill["by_age"]["<1 h"]["value"] > 30e6
    assert {one["thread"].split()[0] for one in document["threads"]} == {
        "threads",
        "first-worker",
        "second-worker",
    }


def fields_of(registry: Registry) -> Iterator[tuple[int, str, int]]:
    """Where each field is described, its name and the number of its part."""
    *_, at, count = START.unpack(registry.content(0, START.size))
    for number in range(count):
        place = at + number * FIELD.itemsize
        text = registry.content(place, 34)
        yield place, text[:32].rstrip(b"\0").decode(), int.from_bytes(text[32:], "little")


NEWER = {"profile_since_ms", "profile_old_ms", "old_freed_samples", "old_freed_bytes"}
OLDER_PARTS = 9  # that there were before samples and threads had parts


def test_an_older_library(program: Path) -> None:
    """Its registry lacks these fields: ages are not shown, and all else is."""
    with running(program) as process:
        with open_process(process, writable=True) as registry:
            for place, name, part in list(fields_of(registry)):
                if name in NEWER or part >= OLDER_PARTS:
                    os.pwrite(registry.file, b"x" * 32, place)
        with open_process(process) as registry:
            assert read_living(registry) is None
            assert read_stacks(registry)
        words = (str(process), "--interval", "16384", "--seconds", "0.2")
        shown = profile(*words)
        assert shown.returncode == 0, shown.stderr
        assert "fill" in shown.stdout and "suspects" not in shown.stdout
        refused = profile(*words, "--by", "thread")
        assert refused.returncode == 1
        expected = f"--by thread: process {process} runs on a release that names no threads"
        assert refused.stderr == f"kmem: {expected}\n"


def test_an_older_command(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows neither the parts nor the kinds of records, and reads the rest."""
    known = {
        (part, name)
        for part, name in layout.KNOWN
        if part in layout.PARTS[:OLDER_PARTS] and name not in NEWER
    }
    with running(program) as process:
        monkeypatch.setattr(layout, "PARTS", layout.PARTS[:OLDER_PARTS])
        monkeypatch.setattr(layout, "KNOWN", frozenset(known))
        monkeypatch.setattr(layout, "TOGETHER", layout.TOGETHER[:-1])
        elements = {part: at for part, at in layout.ELEMENTS.items() if part in layout.PARTS}
        monkeypatch.setattr(layout, "ELEMENTS", elements)
        monkeypatch.setattr(
            "kmem.live.registry.file.RECORD_PARTS", {1: "cache", 2: "slot", 3: "stack", 4: "name"}
        )
        layout.check_fields.cache_clear()
        with open_process(process) as registry:
            assert "sample" not in registry.parts
            assert sum(counts.live_size for counts in read_stacks(registry).values()) > 30 << 20
        layout.check_fields.cache_clear()


def test_refused() -> None:
    for words in (["x.pb.gz"], ["1", "--growth"], ["1", "--view", "rate"]):
        done = profile(*words, "--by", "thread")
        assert done.returncode != 0
        assert "--by thread: expected a process, and neither --growth nor --view rate" in (
            done.stderr
        )


def test_a_base_with_threads_and_one_without(tmp_path: Path) -> None:
    """Their stacks differ by a frame, so all of it would seem to have grown."""
    plain, threads = tmp_path / "plain.pb.gz", tmp_path / "threads.pb.gz"
    frame = Frame(1, (Line("leak"),), None)
    for path, frames in ((plain, (frame,)), (threads, (frame, thread_frame("worker (7)")))):
        made = Profile([Row(frames, (1, 2, 3, 4096))], "x", 1, 0, 0, "")
        path.write_bytes(pprof_of(made, "live"))
    for words in ([plain, "--base", threads], ["1", "--base", threads]):
        done = profile(*words)
        assert done.returncode == 2
        assert f"--base {threads}: expected a profile without --by thread" in done.stderr
    for words in ([threads, "--base", plain], ["1", "--by", "thread", "--base", plain]):
        done = profile(*words)
        assert done.returncode == 2
        assert f"--base {plain}: expected a profile that --by thread wrote" in done.stderr
    assert profile(threads, "--base", threads).returncode == 0


def held(site: str, age_ms: int, size: int = 1000, thread: str = "main") -> Held:
    return Held((site, "main"), (Frame(1, (Line(site),), None),), thread, age_ms, 1, size)


def ages(
    samples: Iterable[Held], *, sampled: int = 60 * MINUTE, freed: dict[str, int] | None = None
) -> Ages:
    return Ages(list(samples), sampled, MINUTE, freed or {})


def names(found: Ages) -> list[str]:
    return [one.calls[0] for one in suspects(found)]


def test_a_leak_is_a_suspect() -> None:
    samples = [held("leak", second * 1000) for second in range(0, 3600, 10)]
    found = suspects(ages(samples))
    assert [one.calls for one in found] == [("leak", "main")]
    assert found[0].per_minute == pytest.approx(6000, rel=0.02)
    assert found[0].old == 1000 * 354
    assert found[0].kept == 1
    # Half of what became old was freed, or more.
    (half,) = suspects(ages(samples, freed={"leak": 354_000}))
    assert half.kept == 0.5
    assert not suspects(ages(samples, freed={"leak": 355_000}))


def test_the_fastest_comes_first() -> None:
    slow = [held("slow", second * 1000) for second in range(0, 3600, 60)]
    fast = [held("fast", second * 1000) for second in range(0, 3600, 10)]
    assert names(ages([*slow, *fast])) == ["fast", "slow"]


def test_no_suspects() -> None:
    # Sampled for less than two minutes.
    assert not names(ages([held("leak", n * 1000) for n in range(115)], sampled=115_000))
    oldest = held("begin", 60 * MINUTE)
    # Filled at the beginning, and then left alone.
    once = [held("once", 59 * MINUTE + n) for n in range(500)]
    assert not names(ages([oldest, *once]))
    # Everything lives for two minutes.
    brief = [held("brief", second * 1000) for second in range(120)]
    assert not names(ages([oldest, *brief]))
    # A few old samples may be anything.
    few = [held("few", n * 8 * MINUTE) for n in range(8)]
    assert not names(ages([oldest, *few]))
    # Grew until twenty minutes ago.
    over = [held("over", (20 + n) * MINUTE) for n in range(40)]
    assert not names(ages([oldest, *over]))


def test_a_young_leak_in_an_old_process() -> None:
    oldest = held("begin", 60 * MINUTE)
    young = [held("young", second * 1000) for second in range(0, 300, 3)]
    assert names(ages([oldest, *young])) == ["young"]


def test_samples_from_an_earlier_profile() -> None:
    """They are older than the present sampling, which began a while ago."""
    stray = [held("stray", 500 * MINUTE + n) for n in range(100)]
    leak = [held("leak", second * 1000) for second in range(0, 600, 5)]
    assert names(ages([*stray, *leak], sampled=10 * MINUTE)) == ["leak"]


def test_suspects_of_drawn_samples() -> None:
    """Ages of a leak are even, whatever the draw: it is a suspect from few samples on."""
    chance = random.Random(4)
    for _ in range(200):
        samples = [held("leak", chance.randrange(10 * MINUTE)) for _ in range(60)]
        assert names(ages(samples, sampled=10 * MINUTE)) == ["leak"]


def test_bands() -> None:
    borders = [0, MINUTE - 1, MINUTE, 10 * MINUTE - 1, 10 * MINUTE, 60 * MINUTE - 1, 60 * MINUTE]
    samples = [held("site", border, 1 << n) for n, border in enumerate(borders)]
    assert bytes_by_age(ages(samples)) == {"site": [3, 12, 48, 64]}


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    samples = [held("leak", second * 1000) for second in range(0, 600, 5)]
    samples += [held("cache", 10 * MINUTE) for _ in range(200)]
    rows = [row("leak", 120_000), row("cache", 200_000)]
    made = Profile(rows, "process 1", 1, 0, 0, "", ages=ages(samples, sampled=11 * MINUTE))
    print_tables(made, "live", by_thread=False)
    text = capsys.readouterr().out.split("leak suspects: growth/min")
    sites = [line.split() for line in text[0].splitlines() if "< main" in line]
    assert "<1 min   <10 min   <1 h   call site" in text[0]
    assert sites == [
        ["195K", "200", "0", "0", "195K", "cache", "<", "main"],
        ["117K", "120", "12K", "105K", "0", "leak", "<", "main"],
    ]
    suspected = [line.split() for line in text[1].splitlines() if "< main" in line]
    assert suspected == [["+12K", "105K", "100%", "leak", "<", "main"]]
    print_tables(made, "rate", by_thread=False)
    print_tables(replace(made, is_difference=True), "live", by_thread=False)
    assert "min" not in capsys.readouterr().out


def row(site: str, size: int) -> Row:
    frames = (Frame(1, (Line(site),), None), Frame(2, (Line("main"),), None))
    return Row(frames, (0, 0, size // 1000, size))


def test_sites_of_threads() -> None:
    samples = [
        held("small", 1, 10, "a (1)"),
        held("large", 1, 30, "a (1)"),
        held("small", 1, 25, "b (2)"),
    ]
    assert top_threads(thread_rows(ages(samples)), 3) == [
        (40, 2, "a (1)", ("large",)),
        (25, 1, "b (2)", ("small",)),
    ]


LEAKING = """
import collections, time
kept, filled, brief = [], [], collections.deque()
def leak(): kept.append(bytearray(20000))
def fill(): filled.append(bytearray(20000))
def forget(): brief.append((time.monotonic(), bytearray(20000)))
for _ in range(3000): fill()
turn = 0
while True:
    turn += 1
    forget()
    if turn % 4 == 0: leak()
    while brief and time.monotonic() - brief[0][0] > 100: brief.popleft()
    time.sleep(0.01)
"""


@pytest.mark.full
def test_a_leak_of_four_minutes() -> None:
    """Beside a cache that was filled once, and objects that live for a hundred seconds."""
    with on_library("registry=on,profile_interval=65536", sys.executable, "-c", LEAKING) as process:
        wait_for_registry(process.pid)
        time.sleep(240)
        shown = profile(str(process.pid), "--interval", "65536", "--seconds", "0.2")
    assert shown.returncode == 0, shown.stderr
    _, _, last = shown.stdout.partition("leak suspects: growth/min")
    rows = [line for line in last.splitlines() if "(<string>:" in line]
    assert len(rows) == 1 and "leak (<string>:4)" in rows[0], shown.stdout
