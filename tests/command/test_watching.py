# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A redis-server and a python3 under load, watched by `kmem top`, `info` and `serve` at once.

While they run no figure contradicts another; stopped by SIGSTOP all three say the same, and what
they say of the heap is what the system counts in its addresses, within 3%.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from kmem_command import KMEM, ROOT
from test_live import value, wait_until
from test_serve import Server, serve
from test_top import play, rows, screen, shown
from textual.pilot import Pilot

from kmem.live.registry.find import open_process
from kmem.live.registry.heap import Heap
from kmem.live.registry.layout import RegistryError
from kmem.live.top import ProcessView
from kmem.live.watch import Figures, read_figures, short_bytes, use_percent
from kmem.traces.slabinfo import parse_slabinfo

pytestmark = pytest.mark.alone

WIDE = (120, 24)  # a terminal that has all columns
LOOKS = 25  # at the screen of each, while they run
MOST = 1 << 48  # no figure of these programs comes near
WITHIN = 0.03
LOAD_BYTES = 60 << 20  # the heap is at least so large when the comparison begins

# Replaces blocks of all sizes, and writes to all of them: what nobody touches has no pages.
PYTHON = """
import random
kept = {}
while True:
    for _ in range(2000):
        key = random.randrange(40000)
        kept[key] = b"x" * (random.randrange(50_000, 300_000) if key % 200 == 0
                            else random.randrange(1, 3000))
"""


@dataclass
class Load:
    name: str
    pid: int


@pytest.fixture(scope="module")
def loads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Load]]:
    packages = [ROOT / "scripts" / "debian-packages", "redis-server", "redis-tools"]
    done = subprocess.run(packages, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no redis-server: {' '.join(done.stderr.split())[-200:]}")
    folder = tmp_path_factory.mktemp("redis")
    socket = folder / "redis.sock"
    environment = {name: text for name, text in os.environ.items() if name != "KMEM_OPTIONS"}
    redis = [
        *("/usr/bin/redis-server", "--port", "0", "--unixsocket", str(socket), "--save", ""),
        *("--dir", str(folder), "--logfile", str(folder / "log")),
    ]
    benchmark = [
        *("/usr/bin/redis-benchmark", "-s", str(socket), "-q", "-l", "-n", "100000"),
        *("-r", "100000", "-d", "400", "-P", "8", "-t", "set,hset,zadd,sadd"),
    ]
    started: list[subprocess.Popen[bytes]] = []

    def start(command: list[str], *, on_libkmem: bool = True) -> int:
        before = [KMEM, "run", "--set", "registry=on", "--"] if on_libkmem else []
        # Python's own small object allocator would keep most blocks from malloc.
        started.append(
            subprocess.Popen(
                [*before, *command],
                env={**environment, "PYTHONMALLOC": "malloc"},
                stdout=subprocess.DEVNULL,
            )
        )
        return started[-1].pid

    try:
        found = [
            Load("redis-server", start(redis)),
            Load("python3", start([sys.executable, "-c", PYTHON])),
        ]
        wait_until(socket.exists)
        start(benchmark, on_libkmem=False)
        for load in found:
            wait_until(lambda load=load: held(load) > LOAD_BYTES)
        yield found
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    yield from serve()


def held(load: Load) -> int:
    heap = figures_of(load).heap
    return heap.held_bytes if heap else 0


def figures_of(load: Load) -> Figures:
    try:
        with open_process(load.pid) as registry:
            return read_figures(registry)
    except RegistryError:
        assert Path(f"/proc/{load.pid}").exists(), f"{load.name} has ended"
        return Figures(load.pid, 0, load.name, "", [], None, 0, 0)


# ---- while they run ------------------------------------------------------------------------------


def check_heap(heap: Heap) -> None:
    sizes = (heap.used_bytes, heap.free_bytes, heap.free_touched_bytes, heap.purged_bytes)
    assert all(0 <= size < MOST for size in (*sizes, heap.large_bytes, heap.huge_bytes))
    assert heap.free_touched_bytes <= heap.free_bytes
    assert heap.used_bytes + heap.free_bytes <= heap.reserved_bytes


def check_figures(figures: Figures) -> None:
    for cache in figures.caches:
        assert 0 <= cache.active <= cache.objects < MOST, cache.name
        assert cache.objects <= cache.total("slabs") * cache["objs_per_slab"], cache.name
        assert 0 <= cache.given <= cache.taken + cache.total("refused") < MOST, cache.name
        assert all(0 <= figure < MOST for node in cache.nodes for figure in node.values())
        assert 0 <= use_percent(cache) <= 100
    assert 0 <= figures.waste_bytes <= figures.slab_bytes
    assert figures.heap is not None
    check_heap(figures.heap)


def poll_info(load: Load) -> None:
    for line in parse_slabinfo(value("info", load.pid)):
        assert line.active_objects <= line.objects <= line.slabs * line.objects_per_slab


def poll_registry(load: Load) -> None:
    with open_process(load.pid) as registry:
        for _ in range(50):
            check_figures(read_figures(registry))


def poll_metrics(server: Server, load: Load) -> None:
    metrics = server.metrics()
    pid = str(load.pid)
    assert all(0 <= figure < MOST for figure in metrics.values())
    caches = [cache for name, of, cache in metrics if name == "kmem_cache_slabs" and of == pid]
    assert len(caches) > 10
    for cache in caches:
        of_cache = {
            name: metrics[f"kmem_cache_{name}", pid, cache]
            for name in ("objects", "active_objects", "slab_bytes", "active_bytes", "waste_bytes")
        }
        assert of_cache["active_objects"] <= of_cache["objects"]
        assert of_cache["active_bytes"] <= of_cache["slab_bytes"]
        assert of_cache["waste_bytes"] <= of_cache["slab_bytes"]
    assert metrics["kmem_heap_free_bytes", pid, ""] <= metrics["kmem_heap_held_bytes", pid, ""]


def poll_page(server: Server, load: Load) -> None:
    document = server.get(f"api/processes/{load.pid}")
    for cache in document["caches"]:
        assert 0 <= cache["active_objects"] <= cache["objects"]
        for name in ("taken", "given"):
            history = cache["history"][name]
            assert history == sorted(history), (cache["name"], name)
        assert all(0 <= figure < MOST for figure in cache["history"]["slab"])


def test_no_figure_contradicts_another(loads: list[Load], server: Server) -> None:
    """Each watcher in a thread of its own, the screen in this one."""
    for load in loads:
        wait_until(lambda load=load: server.ask(f"api/processes/{load.pid}")[0] == 200)
    done = threading.Event()
    counts: Counter[str] = Counter()

    def again(name: str, poll: Callable[[Load], None]) -> None:
        while counts[name] < 4 or not done.is_set():
            for load in loads:
                poll(load)
                counts[name] += 1

    async def look(pilot: Pilot[None]) -> None:
        await shown(pilot, lambda lines: "SIZE  GROWTH" in "".join(lines))
        for _ in range(LOOKS):
            view = pilot.app.screen
            assert isinstance(view, ProcessView)
            assert view.figures is not None
            check_figures(view.figures)
            for row in rows(screen(pilot)):
                assert not row[0].startswith("-")
                assert int(row[4]) >= 0
                assert 0 <= int(row[5].rstrip("%")) <= 100
            await pilot.pause(0.1)

    with ThreadPoolExecutor() as threads:
        watchers = [
            threads.submit(again, "info", poll_info),
            threads.submit(again, "registry", poll_registry),
            threads.submit(again, "metrics", lambda load: poll_metrics(server, load)),
            threads.submit(again, "page", lambda load: poll_page(server, load)),
        ]
        try:
            for load in loads:
                play(load.pid, look)
        finally:
            done.set()
        for watcher in watchers:
            watcher.result()
    print(f"polls: {dict(counts)}, looks at the screen: {LOOKS * len(loads)}")


# ---- stopped -------------------------------------------------------------------------------------


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def resident_in_heap(load: Load, heap: Heap) -> int:
    """Bytes that the system holds for the process in the addresses of its heap."""
    total = 0
    inside = False
    for line in Path(f"/proc/{load.pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            start = int(words[0].partition("-")[0], 16)
            inside = heap.base <= start < heap.base + heap.reserved_bytes
        elif inside and words[0] == "Rss:":
            total += int(words[1]) << 10
    return total


@pytest.mark.parametrize("which", [0, 1], ids=["redis-server", "python3"])
def test_stopped_all_say_the_same(loads: list[Load], server: Server, which: int) -> None:
    load = loads[which]
    os.kill(load.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: state_of(load.pid) == "T")
        compare(load, server)
    finally:
        os.kill(load.pid, signal.SIGCONT)


def compare(load: Load, server: Server) -> None:
    now = time.time()
    path = f"api/processes/{load.pid}"
    wait_until(lambda: server.get(path)["times"][-1] > now)
    page = server.get(path)
    metrics = server.metrics()
    figures = figures_of(load)
    info = json.loads(value("info", load.pid, "--json"))["caches"]
    check_figures(figures)

    # Cache by cache: info, metrics, page.
    of_page = {cache["name"]: cache for cache in page["caches"]}
    assert len(info) == len(of_page) > 10
    for row in info:
        of_metrics = {
            name: metrics[f"kmem_cache_{name}", str(load.pid), row["name"]]
            for name in ("objects", "active_objects", "slabs", "slab_bytes")
        }
        assert of_metrics == {
            "objects": row["num_objs"],
            "active_objects": row["active_objs"],
            "slabs": row["num_slabs"],
            "slab_bytes": row["num_slabs"] * row["pagesperslab"] << 12,
        }
        assert of_page[row["name"]]["table"] == row

    # The screen: its rows, and the sums above them.
    by_name = {row["name"]: row for row in info}
    heap = figures.heap
    assert heap is not None

    async def look(pilot: Pilot[None]) -> None:
        lines = await shown(pilot, lambda lines: f"Process {load.pid} " in lines[0])
        assert f"Slabs   {short_bytes(page['slab_bytes'])} " in lines[1]
        assert f"held {short_bytes(page['heap']['held_bytes'])}," in lines[2]
        shown_rows = rows(lines, WIDE[0])
        assert len(shown_rows) > 10
        for row in shown_rows:
            assert int(row[4]) == by_name[row[0]]["num_objs"]
            assert int(row[8]) == by_name[row[0]]["num_slabs"]

    play(load.pid, look, WIDE)

    # The heap as a whole, and the pages that the process really has.
    slabs = sum(row["num_slabs"] * row["pagesperslab"] << 12 for row in info)
    assert slabs == page["slab_bytes"]
    assert slabs + heap.large_bytes == pytest.approx(heap.used_bytes, rel=WITHIN)
    assert metrics["kmem_heap_held_bytes", str(load.pid), ""] == heap.held_bytes
    resident = resident_in_heap(load, heap)
    assert heap.held_bytes == pytest.approx(resident, rel=WITHIN)
    print(
        f"{load.name}: slabs {slabs >> 10} KiB, large {heap.large_bytes >> 10},"
        f" free {heap.free_touched_bytes >> 10}; held {heap.held_bytes >> 10},"
        f" resident {resident >> 10}: {heap.held_bytes / resident:.4f}"
    )


def test_watchers_come_and_go(loads: list[Load]) -> None:
    """Readers killed in the middle leave nothing behind that others, or the target, notice."""
    for _ in range(5):
        readers = [
            subprocess.Popen([KMEM, "info", str(load.pid)], stdout=subprocess.DEVNULL)
            for load in loads
        ]
        threading.Event().wait(0.2)
        for reader in readers:
            reader.kill()
            reader.wait()
    for load in loads:
        assert len(parse_slabinfo(value("info", load.pid))) > 10
        assert state_of(load.pid) in "RS"
