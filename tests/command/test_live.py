# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem ps`, `info`, `attr` and `trim`: running processes, seen and steered from outside."""

import errno
import fcntl
import json
import os
import platform
import resource
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import kmem_command
import pytest
from kmem_command import KMEM, container
from test_run import LIBRARY

from kmem.common.processes import start_time
from kmem.live.attributes import NAMES, REFRESHED, refreshed
from kmem.live.metrics import ProcessesCollector
from kmem.live.registry.caches import Cache, read_caches
from kmem.live.registry.file import (
    CACHES_MOST,
    FILE_MOST_BYTES,
    RECORD_CACHE,
    RECORD_HEAD,
    Registry,
)
from kmem.live.registry.find import open_process
from kmem.live.registry.heap import read_heap
from kmem.live.registry.layout import FIELD, PARTS, START, RegistryError
from kmem.live.registry.owner import files, own_namespace, user_of
from kmem.live.registry.requests import answer, ask
from kmem.traces.slabinfo import parse_slabinfo

pytestmark = pytest.mark.alone

kmem = partial(kmem_command.kmem, timeout=60)

# Runs what it reads, line by line, and answers with a line. Makes caches by the library's calls.
SERVER = r"""
import ctypes, os, sys, threading, time
kmem = ctypes.CDLL(None)
kmem.kmem_cache_create.restype = ctypes.c_void_p
kmem.kmem_cache_create.argtypes = [ctypes.c_char_p] + [ctypes.c_uint] * 3 + [ctypes.c_void_p]
kmem.kmem_cache_alloc.restype = ctypes.c_void_p
kmem.kmem_cache_alloc.argtypes = [ctypes.c_void_p, ctypes.c_uint]
kmem.kmem_cache_free.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
kmem.kmem_cache_destroy.argtypes = [ctypes.c_void_p]
def create(name, size, flags=0):
    return kmem.kmem_cache_create(name, size, 0, flags, None)
def take(cache, count):
    return [kmem.kmem_cache_alloc(cache, 0) for _ in range(count)]
def give(cache, objects):
    for object in objects:
        kmem.kmem_cache_free(cache, object)
def attr(cache, name):
    text = ctypes.create_string_buffer(4096)
    assert kmem.kmem_attr_read(cache.encode(), name.encode(), text, 4096) >= 0
    return text.value.decode()
def crowd(cache, rounds, threads):
    def run():
        for _ in range(rounds):
            give(cache, take(cache, 300))
    all = [threading.Thread(target=run) for _ in range(threads)]
    for one in all: one.start()
    for one in all: one.join()
def busy():
    def run():
        while True:
            give(mine, take(mine, 1000))
            time.sleep(0.001)
    threading.Thread(target=run, daemon=True).start()
mine = create(b"mine", 100, flags)
print(os.getpid(), flush=True)
for line in iter(sys.stdin.readline, ""):
    try:
        answer = eval(line, globals())
    except SyntaxError:
        exec(line, globals())
        answer = None
    print(repr(answer), flush=True)
"""
FLAGS = {"slub": 0x20000000, "slob": 0x80000000, "slab": 0x40000000}
DEADLINE = 20


class Program:
    """A Python on libkmem that does what it is told."""

    def __init__(self, *options: str, flags: int = 0, before: str = "", **popen) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "KMEM_OPTIONS"}
        self.popen = subprocess.Popen(
            [KMEM, "run", "--set", "registry=on", *options, "--", sys.executable, "-c",
             f"flags = {flags}\n{before}\n{SERVER}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, **popen,
        )  # fmt: skip
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line, "the program did not start"
        self.pid = int(line)

    def do(self, line: str) -> str:
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()
        answer = self.popen.stdout.readline()
        assert answer, f"ended by {line}"
        return answer.rstrip("\n")

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self.popen.kill()
        self.popen.communicate()


@pytest.fixture
def program() -> Iterator[Program]:
    with Program() as running:
        yield running


def value(*arguments: object) -> str:
    result = kmem(*arguments)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def assert_refused(result: subprocess.CompletedProcess[str], *words: str, status: int = 1) -> None:
    """One line that says why; never a traceback. 2: the command line is wrong."""
    assert result.returncode == status
    assert result.stdout == ""
    assert result.stderr.startswith("kmem: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)


def stat_of(pid: int) -> list[str]:
    """Fields of /proc/PID/stat behind the name: the state first."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def file_of(pid: int) -> Path | None:
    return next((path for path, process in files() if process == pid), None)


def mine_of(pid: int) -> Cache:
    with open_process(pid) as registry:
        return next(cache for cache in read_caches(registry) if cache.name == "mine")


def assert_agrees(program: Program, *, engine: str = "slub") -> None:
    """What is read from outside of cache mine is what the program itself says, at rest."""
    names = ["slab_size", "object_size", "order", "align", "min_partial", "cpu_partial"]
    if engine != "slob":
        names += ["slabs", "total_objects", "partial"]
    deadline = time.monotonic() + DEADLINE
    while True:
        mine = mine_of(program.pid)
        said = {
            name: int(eval(program.do(f"attr('mine', '{name}')")).split()[0])
            for name in (*names, "objects_inuse")
        }
        # A program at rest has a reaper still, which may come between two readings.
        if mine == mine_of(program.pid):
            break
        assert time.monotonic() < deadline, "it never came to rest"
    ours = {
        "slabs": mine.total("slabs"),
        "total_objects": mine.total("objects"),
        "partial": mine.total("partial"),
    }
    assert {name: ours.get(name, mine.fields.get(name)) for name in names} == {
        name: said[name] for name in names
    }
    # What is handed out rests in sheaves or is the program's.
    assert said["objects_inuse"] <= mine.handed_out <= mine.objects


def calls_of_mine(program: Program) -> tuple[int, int]:
    mine = mine_of(program.pid)
    return mine.slow_calls, mine.fast_calls


@pytest.mark.parametrize("slots", ["auto", "locked"])
def test_calls_are_counted(slots: str) -> None:
    """Never more of the fast path's than there were, and of long runs nearly all."""
    with Program("--set", f"slots={slots}") as program:
        program.do("os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})")
        program.do("some = take(mine, 2000)")
        slow, fast = calls_of_mine(program)
        program.do("some += take(mine, 10000)")
        program.do("give(mine, some[2000:])")
        calls = [now - then for now, then in zip(calls_of_mine(program), (slow, fast), strict=True)]
        # Sheaves of 126, some of which are filled by half.
        assert 20000 // 126 - 8 <= calls[0] <= 2 * (20000 // 126)
        assert 20000 - 40 * 126 <= sum(calls) <= 20000 + 1
        before = calls_of_mine(program)
        for _ in range(3):
            program.do("give(mine, take(mine, 40))")
        after = calls_of_mine(program)
        assert sum(after) - sum(before) <= 240
        # What a drain takes out of main was no call's.
        program.do("kmem.kmem_cache_shrink.argtypes = [ctypes.c_void_p]")
        for _ in range(10):
            program.do("give(mine, take(mine, 1))")
            program.do("kmem.kmem_cache_shrink(mine)")
        assert sum(calls_of_mine(program)) - sum(after) <= 20


@pytest.mark.parametrize("engine", FLAGS)
@pytest.mark.parametrize("sheaves", [True, False])
def test_figures_are_exact_at_rest(engine: str, sheaves: bool) -> None:
    options = [] if sheaves else ["--set", "mine.sheaf_capacity=0,mine.limit=1,mine.batchcount=1"]
    with Program(*options, flags=FLAGS[engine]) as program:
        program.do("some = take(mine, 1000)")
        assert_agrees(program, engine=engine)
        program.do("give(mine, some[::3])")
        assert_agrees(program, engine=engine)
        program.do("crowd(mine, 40, 8)")
        assert_agrees(program, engine=engine)
        if not sheaves and engine != "slab":
            assert mine_of(program.pid).handed_out == 666


def test_shrinking_shows_every_partial_slab() -> None:
    """Slabs are sorted beside their list while empty ones leave it."""
    with Program(
        "--set", "mine.sheaf_capacity=0,mine.cpu_partial=0,mine.min_partial=100"
    ) as program:
        program.do("some = take(mine, 1000)")
        program.do("give(mine, some[:200:3])")
        program.do("give(mine, some[400:800])")
        program.do("ctypes.CDLL(None).malloc_trim(0)")
        assert_agrees(program)
        mine = mine_of(program.pid)
        assert mine.total("partial") > 1


def test_made_late_it_shows_what_was_before() -> None:
    """The registry is made in the middle of a program's work."""
    with Program("--set", "registry=auto") as program:
        program.do("crowd(mine, 100, 8)")
        program.do("some = take(mine, 5000)")
        wait_until(lambda: file_of(program.pid) is not None)
        assert_agrees(program)


def test_ps_lists_processes(program: Program) -> None:
    with subprocess.Popen([KMEM, "run", "--set", "registry=off", "sleep", "60"]) as asleep:
        wait_until(lambda: str(LIBRARY) in Path(f"/proc/{asleep.pid}/maps").read_text())
        rows = {row["pid"]: row for row in json.loads(value("ps", "--json"))}
        assert rows[program.pid]["caches"] > 5
        assert rows[asleep.pid] == {
            "pid": asleep.pid, "command": "sleep", "command_line": "sleep 60",
            "caches": None, "slab_kib": None, "release": None,
        }  # fmt: skip
        assert os.getppid() not in rows
        lines = {line.split()[0]: line.split() for line in value("ps").splitlines()}
        assert lines[str(asleep.pid)][1:] == ["-", "-", "-", "sleep", "60"]
        assert lines[str(program.pid)][4].startswith("python")
        assert lines[str(program.pid)][5] == "-c"
        asleep.kill()


def test_a_folder_of_the_librarys_name(tmp_path: Path) -> None:
    """What lies in one does not run on the library: this command, in a clone of this repository."""
    folder = tmp_path / "libkmem"
    folder.mkdir()
    shutil.copy("/bin/sleep", folder)
    with subprocess.Popen([folder / "sleep", "60"]) as asleep:
        wait_until(lambda: str(folder) in Path(f"/proc/{asleep.pid}/maps").read_text())
        assert asleep.pid not in {row["pid"] for row in json.loads(value("ps", "--json"))}
        assert_refused(kmem("info", asleep.pid), "does not run on libkmem")
        asleep.kill()


def test_names_cannot_write_to_the_terminal(program: Program) -> None:
    """A process and a cache may have any name; what is no character of a word is not printed."""
    program.do(r"ctypes.CDLL(None).prctl(15, b'a\n\x1b[2J\xc2\x9bK\xc3\xa9\xff', 0, 0, 0)")
    rows = [row for row in value("ps").splitlines() if f"{program.pid} " in row]
    assert [row.split()[4] for row in rows] == ["a??[2J?K\u00e9\\xff"]
    program.do(r"kmem.kmem_cache_create(b'b\n\x1b[2J\xc2\x9bK', 100, 0, 0, None)")
    assert "\nb!![2J!K " in value("info", program.pid)
    program.do(r"kmem.kmem_cache_create(b'\xe9t\xe9', 100, 0, 0, None)")
    for name in (os.fsdecode(b"\xe9t\xe9"), r"\xe9t\xe9"):
        assert "\n\\xe9t\\xe9 " in value("info", program.pid, name)
        assert value("attr", program.pid, f"{name}/object_size") == "100\n"


def test_a_name_that_is_the_word_of_another(program: Program) -> None:
    """Each of both is reached by its own name, whichever is newer."""
    sizes = {"own!word": 40, "own word": 200, "other word": 300, "other!word": 500}
    for name, size in sizes.items():
        program.do(f"create({name.encode()}, {size})")
    for name, size in sizes.items():
        assert value("attr", program.pid, f"{name}/object_size") == f"{size}\n"


def keys_of(document: object) -> set[str]:
    """All keys of a document."""
    if isinstance(document, list):
        return set().union(*map(keys_of, document))
    if not isinstance(document, dict):
        return set()
    return set(document).union(*map(keys_of, document.values()))


@pytest.mark.parametrize("option", ["soft_limit=1G", "protect=hardened"])
def test_the_documents_have_every_key(option: str) -> None:
    text = (kmem_command.ROOT / "docs" / "attributes.md").read_text(encoding="utf-8")
    with Program("--set", option) as program:
        info = json.loads(value("info", program.pid, "--json"))
        assert list(info) == [
            "pid", "caches", "records_missing", "protect", "guards", "soft_limit",
        ]  # fmt: skip
        assert info[option.partition("=")[0]]
        keys = keys_of([info, json.loads(value("ps", "--json"))])
    assert not [key for key in sorted(keys) if f"`{key}`" not in text]


def test_names_that_the_locale_has_no_letters_for(program: Program) -> None:
    """They hide no other process."""
    program.do(r"ctypes.CDLL(None).prctl(15, b'\xe6\x97\xa5', 0, 0, 0)")
    done = subprocess.run(
        [sys.executable, "-m", "kmem", "ps"],
        env=os.environ | {"PYTHONIOENCODING": "latin-1:strict"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = [row for row in done.stdout.splitlines() if f"{program.pid} " in row]
    assert [row.split()[4] for row in rows] == [r"\u65e5"]


def test_engines_cannot_write_to_the_terminal(program: Program) -> None:
    """A process may write what it likes over its registry, and root reads it."""
    with open_process(program.pid, writable=True) as registry:
        mine = next(cache for cache in read_caches(registry) if cache.name == "mine")
        registry.write("cache", "engine", mine.offset, b"s\x1b[2J")
    assert value("attr", program.pid, "mine/engine") == "s?[2J\n"


def test_info_is_a_slab_table(program: Program) -> None:
    program.do("some = take(mine, 1000)")
    table = {line.name: line for line in parse_slabinfo(value("info", program.pid))}
    assert table["mine"].object_size == 104
    assert 1000 <= table["mine"].active_objects <= table["mine"].objects
    assert [line.name for line in parse_slabinfo(value("info", program.pid, "mine"))] == ["mine"]
    assert_refused(kmem("info", program.pid, ""), "has no cache ''")
    for words in (["info", program.pid, "*"], ["attr", program.pid, "*/min_partial", "3"]):
        assert_refused(kmem(*words), "'*/guard_sampling' VALUE")
    document = json.loads(value("info", program.pid, "mine", "--json"))
    assert document["pid"] == program.pid
    assert document["caches"][0]["num_objs"] == table["mine"].objects


def test_requested_at_once_in_force_later(program: Program) -> None:
    before = value("attr", program.pid, "mine/cpu_partial")
    assert value("attr", program.pid, "mine/cpu_partial", 7) == ""
    assert value("attr", program.pid, "mine/cpu_partial", 9) == ""
    assert value("attr", program.pid, "mine/cpu_partial") == "9\n"
    # It sleeps in a read and passes no slow path.
    assert value("attr", program.pid, "mine/cpu_partial", "--effective") == before
    program.do("some = take(mine, 3000)")
    assert value("attr", program.pid, "mine/cpu_partial", "--effective") == "9\n"
    assert program.do("attr('mine', 'cpu_partial')") == r"'9\n'"


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("min_partial", 3),
        ("sheaf_capacity", 5),
        ("sheaf_capacity", 0),
        ("remote_node_defrag_ratio", 50),
        ("failslab", 1),
        ("skip_kfence", 1),
        ("guard_sampling", 1000),
    ],
)
def test_writable_attributes(program: Program, name: str, new: int) -> None:
    program.do("busy()")
    value("attr", program.pid, f"mine/{name}", new)
    assert value("attr", program.pid, f"mine/{name}") == f"{new}\n"
    wait_until(lambda: value("attr", program.pid, f"mine/{name}", "--effective") == f"{new}\n")
    assert program.do(f"attr('mine', '{name}')") == rf"'{new}\n'"


def test_what_is_the_programs_own_to_write() -> None:
    """The command refuses these itself; here they stand in the file all the same."""
    with Program("--set", "stats=1,mine.debug=F", "--set", "sheaf_capacity=0") as program:
        program.do("own = create(b'own', 64)")
        program.do("give(own, take(own, 3000))")
        counted = program.do("attr('own', 'alloc_slowpath')")
        assert counted != repr("0\n")
        program.do("busy()")
        with open_process(program.pid, writable=True) as registry:
            births = {cache.name: cache["birth"] for cache in read_caches(registry)}
            for cache, name, text in (
                ("mine", "validate", "1"),
                ("own", "alloc_slowpath", "0"),
                ("own", "order", "0"),
            ):
                request = ask(registry, births[cache], name, text)
                assert answer(registry, request, DEADLINE) == (errno.EIO, 0)
        assert program.do("attr('own', 'alloc_slowpath')") == counted


def test_shrink_and_trim(program: Program) -> None:
    program.do("some = take(mine, 30000)")
    program.do("give(mine, some)")
    program.do("other = create(b'other', 64)")
    value("attr", program.pid, "mine/shrink", 1)
    program.do("some = take(other, 3000)")
    assert value("attr", program.pid, "mine/slabs") == "0\n"
    program.do("busy()")
    assert value("trim", program.pid).endswith(" bytes given back\n")


def test_trim_of_a_sleeper_is_pending(program: Program) -> None:
    assert value("trim", program.pid).startswith(f"pending: process {program.pid} sleeps or ")


def test_stopped_process_is_called_stopped(program: Program) -> None:
    program.popen.send_signal(signal.SIGSTOP)
    why = f"process {program.pid} is stopped, by SIGSTOP or a debugger"
    assert value("trim", program.pid).startswith(f"pending: {why}; ")
    assert_refused(kmem("attr", program.pid, "mine/objects"), why)
    assert_refused(kmem("profile", program.pid, "--seconds", 1), why, "no samples were taken")
    program.popen.send_signal(signal.SIGCONT)
    program.do("busy()")
    assert value("trim", program.pid).endswith(" bytes given back\n")


IN_A_CONTAINER = """
kept = [bytes(3000) for _ in range(3000)]
print("ready", flush=True)
while True:
    some = [bytes(3000) for _ in range(1000)]
"""


@pytest.mark.container
def test_process_in_a_container() -> None:
    """Root sees a process with numbers and a /dev/shm of its own by its number outside."""
    if os.geteuid() != 0:
        pytest.skip("only root may open what other processes map")
    script = 'mount -t tmpfs none /dev/shm || exit 77; exec "$@"'
    program = (KMEM, "run", "--set", "registry=on", "--", sys.executable, "-c", IN_A_CONTAINER)
    with container("--mount", "--ipc", "sh", "-c", script, "-", *program) as pid:
        rows = {row["pid"]: row for row in json.loads(kmem("ps", "--json").stdout)}
        assert rows[pid]["slab_kib"] > 3000 * 3000 >> 10
        assert not list(Path("/dev/shm").glob(f"kmem-*/*.{pid}"))
        value("attr", pid, "kmalloc-64/min_partial", 77)
        wait_until(lambda: value("attr", pid, "--effective", "kmalloc-64/min_partial") == "77\n")
        assert value("trim", pid).endswith(" bytes given back\n")
        assert f"Process {pid} python" in value("top", "--once", pid)
        assert "kmalloc-3k" in value("info", pid)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert_refused(kmem("info", pid), f"process {pid}: there is none")


WITHOUT_ITS_FIRST_THREAD = """
import ctypes, os, select, sys, threading
def work():
    while not select.select([sys.stdin], [], [], 0.001)[0]:
        kept = [bytes(5000) for _ in range(1000)]
    os._exit(0)
threading.Thread(target=work).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_first_thread_has_ended() -> None:
    """Its folder in /proc has no mappings then, and its registry was removed as nobody's."""
    command = [KMEM, "run", "--", "/usr/bin/python3", "-c", WITHOUT_ITS_FIRST_THREAD]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        wait_until(lambda: stat_of(process.pid)[0] == "Z" and file_of(process.pid) is not None)
        assert not Path(f"/proc/{process.pid}/maps").read_bytes()
        assert str(process.pid) in value("ps").split()
        assert "kmalloc" in value("info", process.pid)
        taken = kmem("profile", process.pid, "--seconds", "0.1")
        assert taken.returncode == 0, taken.stderr
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0
    assert_refused(kmem("info", process.pid), f"process {process.pid}: there is none")


def test_process_whose_end_nobody_asked_for() -> None:
    with Program() as program:
        program.popen.kill()
        stat = Path(f"/proc/{program.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
        assert_refused(kmem("info", program.pid), f"process {program.pid} has ended")
        assert_refused(kmem("top", "--once", program.pid), f"process {program.pid} has ended")


# Its heap is large blocks only, and after the first ones no memory comes or goes.
LARGE_BLOCKS = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void)
{
        static char *block[32];

        for (int i = 0; i < 32; i++)
                memset(block[i] = malloc(2 << 20), 1, 2 << 20);
        for (int i = 0; i < 32; i++)
                free(block[i]);
        write(STDOUT_FILENO, "\n", 1);
        for (int i = 0; i < 60000; i++) {
                free(malloc(1300000));
                usleep(1000);
        }
        return 0;
}
"""


def test_large_blocks_honour_requests(tmp_path: Path) -> None:
    source = tmp_path / "large.c"
    source.write_text(LARGE_BLOCKS)
    subprocess.run(["gcc", "-O0", "-w", "-o", tmp_path / "large", source], check=True)
    options = "registry=on,purge_delay=3600000"
    with subprocess.Popen(
        [KMEM, "run", "--set", options, "--", tmp_path / "large"], stdout=subprocess.PIPE
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == b"\n"
            assert int(value("trim", running.pid).split()[0]) >= 30 << 20
        finally:
            running.kill()


def test_every_attribute_that_can_be_read_is_a_number_but_the_engine(program: Program) -> None:
    program.do("busy()")
    for name in set(NAMES) - {"engine", "shrink", "slabs_cpu_partial"} - set(REFRESHED.split()):
        assert value("attr", program.pid, f"mine/{name}").split()[0].isdecimal(), name


def test_what_the_process_works_out(program: Program) -> None:
    program.do("some = take(mine, 123)")
    program.do("other = create(b'other', 64)")
    assert_refused(kmem("attr", program.pid, "mine/objects_inuse"), "mine/objects_inuse", "sleeps")
    program.do("some2 = take(other, 3000)")
    program.do(
        "busy2 = threading.Thread(target=lambda: crowd(other, 2000, 1), daemon=True).start()"
    )
    assert value("attr", program.pid, "mine/objects_inuse") == "123\n"


def test_a_cache_that_goes_while_it_is_read(program: Program) -> None:
    """One line says so, also when another cache has got its record."""
    program.do("busy()")
    program.do("other = create(b'other', 64)")
    with open_process(program.pid, writable=True) as registry:
        other = next(cache for cache in read_caches(registry) if cache.name == "other")
        program.do("kmem.kmem_cache_destroy(other)")
        for _ in range(2):
            with pytest.raises(RegistryError, match="has destroyed the cache"):
                refreshed(registry, other, "objects")
            program.do("create(b'another', 64)")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mine/cpu_partial", "x"], ["mine/cpu_partial", "'x'", "0 to"]),
        (["mine/cpu_partial", "4294967296"], ["4294967296"]),
        (["mine/cpu_partial", "-1"], ["mine/cpu_partial", "'-1'", "0 to"]),
        (["mine/sheaf_capacity", "99999"], ["99999", "0 to"]),
        (["mine/remote_node_defrag_ratio", "101"], ["101", "0 to 100"]),
        (["mine/shrink", "0"], ["shrink", "expected 1"]),
        (["mine/order", "1"], ["order", "read only"]),
        (["mine/nothing"], ["nothing", "cpu_partial"]),
        (["nocache/order"], ["nocache"]),
        (["mine"], ["CACHE/NAME"]),
        ([""], ["attr '': expected CACHE/NAME"]),
        (["mine/cpu_partial", "1", "--effective"], ["--effective"]),
    ],
)
def test_wrong_requests(program: Program, arguments: list[str], words: list[str]) -> None:
    status = 1 if "nocache" in words else 2
    assert_refused(kmem("attr", program.pid, *arguments), *words, status=status)


def test_processes_without_a_registry() -> None:
    assert_refused(kmem("info", 4194305), "4194305", "none")
    assert_refused(kmem("info", os.getppid()), str(os.getppid()), "does not run on libkmem")
    with Program("--set", "registry=off") as program:
        assert file_of(program.pid) is None
        assert_refused(kmem("trim", program.pid), "registry=off")


def test_newer_version_and_garbage(program: Program) -> None:
    path = file_of(program.pid)
    assert path is not None
    with path.open("r+b") as file:
        file.seek(8)
        file.write((2).to_bytes(4, "little"))
        file.flush()
        assert_refused(kmem("info", program.pid), "version 2")
        assert kmem("ps").returncode == 0
        file.seek(8)
        file.write((1).to_bytes(4, "little"))
        file.flush()
        # Whatever else stands there: one line, or figures that are no use.
        for place in (12, 16, 20, 56):
            file.seek(place)
            old = file.read(4)
            for bad in (0, 1, 0xFFFFFFFF, 4096):
                file.seek(place)
                file.write(bad.to_bytes(4, "little"))
                file.flush()
                result = kmem("info", program.pid)
                assert "Traceback" not in result.stderr
                assert result.stderr.count("\n") <= 1
            file.seek(place)
            file.write(old)
            file.flush()
    assert kmem("info", program.pid, "mine").returncode == 0


@pytest.fixture
def beside(program: Program) -> Iterator[Path]:
    """A name in the folder of registries that a registry of this process would have."""
    path = file_of(program.pid)
    assert path is not None
    other = path.with_name(f"{own_namespace()}.{os.getpid()}")
    yield other
    other.unlink(missing_ok=True)


def test_a_fifo_is_no_registry(program: Program, beside: Path) -> None:
    """Nobody has its other end open."""
    os.mkfifo(beside, 0o600)
    assert_refused(kmem("info", os.getpid(), timeout=30), str(beside), "regular file")
    listed = kmem("ps")
    assert (listed.returncode, listed.stderr) == (0, f"kmem: {beside}: not a regular file\n")
    assert str(program.pid) in listed.stdout


def test_a_file_of_another_user_is_no_registry(program: Program, beside: Path) -> None:
    needs_root()
    path = file_of(program.pid)
    assert path is not None
    shutil.copyfile(path, beside)
    os.chown(beside, 65534, 65534)
    assert_refused(kmem("info", os.getpid()), str(beside), "user")


CUT_OFF = """
import os, sys
from pathlib import Path
from kmem.live.registry.caches import read_caches
from kmem.live.registry.file import Registry
from kmem.live.registry.layout import RegistryError
from kmem.live.registry.requests import ask
with Registry(Path(sys.argv[1]), writable=True) as registry:
    for length in (32768, 16448, 16384, 3000, 0):
        os.truncate(sys.argv[1], length)
        try:
            read_caches(registry)
            ask(registry, 0, "trim")
        except RegistryError as error:
            print(error)
"""


def test_a_file_that_is_cut_off_while_it_is_read(program: Program, beside: Path) -> None:
    """An error and no signal."""
    path = file_of(program.pid)
    assert path is not None
    shutil.copyfile(path, beside)
    result = subprocess.run(
        [sys.executable, "-c", CUT_OFF, beside],
        env=os.environ | {"PYTHONPATH": str(kmem_command.ROOT / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "behind the end" in result.stdout


ZONE, CACHE = PARTS.index("zone"), PARTS.index("cache")


def with_fields(
    registry: Path, out: Path, rows: list[tuple[bytes, int, int, int, int, int]]
) -> None:
    """A copy that describes these fields too: name, part, offset, bytes, count, value."""
    content = bytearray(registry.read_bytes())
    *_, place, count = START.unpack_from(content)
    end = place + count * FIELD.itemsize
    added = b"".join(struct.pack("<32s4HQ", *row) for row in rows)
    assert end + len(added) <= START.unpack_from(content)[2]
    content[end : end + len(added)] = added
    content[20:24] = (count + len(rows)).to_bytes(4, "little")
    out.write_bytes(content)


def test_figures_of_more_zones_than_there_are(program: Program, beside: Path) -> None:
    """Root's readers do not count to the end of what another user has put there."""
    path = file_of(program.pid)
    assert path is not None
    zones = [(b"zones", 0, 0, 4, 1, 0), (b"zone", 0, 0, 0, 0xFFFF, 0)]
    zones += [(b"kept", 0, 0, 8, 0xFFFF, 0)]
    fields = [(b"more%d" % number, ZONE, 0, 8, 1, 0) for number in range(10)]
    with_fields(path, beside, [*zones, *fields])
    with pytest.raises(RegistryError, match="is twice in part head"):
        Registry(beside)


def test_records_within_others(program: Program, beside: Path) -> None:
    """Which would be copied once for each: gigabytes of some megabytes."""
    path = file_of(program.pid)
    assert path is not None
    with_fields(path, beside, [(b"far", CACHE, 0xFFF8, 8, 1, 0)])
    with Registry(beside, writable=True) as registry:
        assert "far" not in registry.parts["cache"]
        at, records = registry.number("head", "head_bytes"), 3000
        content = RECORD_HEAD.pack(RECORD_CACHE, 64).ljust(64, b"\0") * records
        os.pwrite(registry.file, content, at)
        registry.write("head", "used_bytes", 0, at + len(content) + 0x10000)
        with pytest.raises(RegistryError, match="64 bytes for a cache; expected at least"):
            read_caches(registry)


def test_more_caches_than_any_process_has(program: Program, beside: Path) -> None:
    """Each of which would take some kilobytes here."""
    path = file_of(program.pid)
    assert path is not None
    shutil.copy(path, beside)
    with Registry(beside, writable=True) as registry:
        at, size = registry.number("head", "head_bytes"), 1024
        birth = registry.parts["cache"]["birth"].offset - RECORD_HEAD.size
        head = RECORD_HEAD.pack(RECORD_CACHE, size) + bytes(birth)
        for count in (CACHES_MOST, CACHES_MOST + 1):
            records = [head + number.to_bytes(8, "little") for number in range(count)]
            os.pwrite(registry.file, b"".join(one.ljust(size, b"\0") for one in records), at)
            registry.write("head", "used_bytes", 0, at + count * size)
            with Registry(beside) as again:
                if count == CACHES_MOST:
                    assert len(read_caches(again)) == count
                else:
                    with pytest.raises(RegistryError, match="at most 4,096 caches"):
                        read_caches(again)
    os.truncate(beside, FILE_MOST_BYTES + 1)
    with pytest.raises(RegistryError, match="too long"):
        Registry(beside)


def test_a_description_without_end(program: Program, beside: Path) -> None:
    path = file_of(program.pid)
    assert path is not None
    content = bytearray(path.read_bytes())
    content[20:24] = (300000).to_bytes(4, "little")
    beside.write_bytes(content)
    with pytest.raises(RegistryError, match="300000 fields"):
        Registry(beside)
    content[12:16] = len(content).to_bytes(4, "little")
    beside.write_bytes(content)
    with pytest.raises(RegistryError, match="a head of 16777216 bytes"):
        Registry(beside)


def test_a_locked_file_is_not_waited_for(program: Program) -> None:
    path = file_of(program.pid)
    assert path is not None
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert_refused(kmem("trim", program.pid, timeout=30), str(path), "locked")
    assert value("trim", program.pid).startswith("pending: ")


def test_a_description_that_ends_early(program: Program) -> None:
    """Fields that are missing: figures, or an error that says so."""
    path = file_of(program.pid)
    assert path is not None
    refused = 0
    with path.open("r+b") as file:
        file.seek(20)
        fields = int.from_bytes(file.read(4), "little")
        for count in range(fields + 1):
            file.seek(20)
            file.write(count.to_bytes(4, "little"))
            file.flush()
            try:
                with open_process(program.pid) as registry:
                    read_caches(registry)
            except RegistryError:
                refused += 1
    assert 10 < refused < fields
    assert kmem("info", program.pid, "mine").returncode == 0


def test_a_killed_process_is_swept() -> None:
    with Program() as program:
        path = file_of(program.pid)
        assert path is not None
        program.popen.kill()
        program.popen.wait()
        assert path.exists()
        assert str(program.pid) not in value("ps").split()
        assert not path.exists()


def test_the_file_goes_with_its_process() -> None:
    for end in ("sys.exit()", "os._exit(0)", "ctypes.CDLL(None).quick_exit(0)"):
        with Program() as program:
            path = file_of(program.pid)
            assert path is not None
            assert program.popen.stdin is not None
            program.popen.stdin.write(end + "\n")
            program.popen.stdin.flush()
            program.popen.wait(timeout=DEADLINE)
            assert not path.exists(), end


FORKS = {
    "fork": "os.fork()",
    "raw": "ctypes.CDLL(None).syscall(57)",
}


@pytest.mark.parametrize("way", FORKS)
def test_a_child_has_its_own(program: Program, way: str) -> None:
    if way == "raw" and platform.machine() != "x86_64":
        pytest.skip("SYS_fork is x86_64's")
    program.do("some = take(mine, 1000)")
    program.do("reader, writer = os.pipe()")
    child = program.do(
        f"(lambda pid: pid if pid else (take(mine, 5000), os.write(writer, b'x'), time.sleep(60),"
        f" os._exit(0)))({FORKS[way]})"
    )
    try:
        program.do("os.read(reader, 1)")
        wait_until(lambda: file_of(int(child)) is not None)
        assert_agrees(program)
        mine = mine_of(int(child))
        assert 6000 <= mine.handed_out <= 6000 + 1000
        program.do("give(mine, some)")
        assert_agrees(program)
    finally:
        os.kill(int(child), signal.SIGKILL)


SLAB_ACCOUNT = 0x04000000


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ("give(mine, some)", 0),
        ("kmem.kmem_attr_write(b'mine', b'min_partial', b'77')", 0),
        ("kmem.kmem_attr_read(b'mine', b'slabs', text, 4096)", FLAGS["slub"]),
        ("kmem.kmem_group_create(b'group', None, 0)", SLAB_ACCOUNT),
        ("kmem.kmem_slabinfo_write(b'mine 60 30 4')", FLAGS["slab"]),
    ],
    ids=["gives", "writes", "reads", "makes a group", "tunes"],
)
def test_a_child_changes_none_of_its_parents(changes: str, flags: int) -> None:
    """Not with the first thing that it does either, while the parent does nothing."""
    with Program(flags=flags) as program:
        program.do("some = take(mine, 20000)")
        program.do("given = give(mine, some[10000:])")
        program.do("some = some[:10000]")
        program.do("text = ctypes.create_string_buffer(4096)")
        program.do("reader, writer = os.pipe()")
        program.do("wait, go = os.pipe()")

        def figures() -> tuple[int, ...]:
            cache = mine_of(program.pid)
            names = ("slabs", "objects", "partial", "free_objects", "shared_objects")
            return (cache["min_partial"], cache.handed_out, *map(cache.total, names))

        child = program.do(
            f"(lambda pid: pid if pid else (os.read(wait, 1), {changes}, os.write(writer, b'x'),"
            f" time.sleep(60), os._exit(0)))(os.fork())"
        )
        try:
            program.do("give(mine, some[5000:])")
            before = figures()
            program.do("(os.write(go, b'x'), os.read(reader, 1))")
            assert figures() == before
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_a_child_below_its_address_space(program: Program) -> None:
    """It may map nothing any more: neither its own figures in place of its parent's nor a file."""
    program.do("import resource")
    program.do("some = take(mine, 1000)")
    before = mine_of(program.pid).handed_out
    limit = "resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28))"
    status = program.do(
        f"os.waitpid(os.fork() or ({limit}, take(mine, 20000), [bytes(i) for i in"
        f" range(30000, 31000)], os._exit(0)), 0)[1]"
    )
    assert status == "0"
    assert mine_of(program.pid).handed_out == before
    assert_agrees(program)


def test_exec_replaces_it(program: Program) -> None:
    before = file_of(program.pid)
    assert before is not None
    assert program.popen.stdin is not None
    program.popen.stdin.write(
        "os.execve('/bin/sleep', ['sleep', '60'], {k: v for k, v in os.environ.items()"
        " if k != 'LD_PRELOAD'})\n"
    )
    program.popen.stdin.flush()
    wait_until(lambda: Path(f"/proc/{program.pid}/comm").read_text() == "sleep\n")
    # The process is there, began at the same time, and is another program.
    assert start_time(program.pid) is not None
    assert_refused(kmem("info", program.pid), "does not run on libkmem")


def test_all_descriptors_closed(program: Program) -> None:
    program.do("os.closerange(3, 1000)")
    program.do("some = take(mine, 1000)")
    assert_agrees(program)


def test_a_daemon(tmp_path: Path) -> None:
    """Forks twice, leaves its session, closes everything, changes its directory."""
    script = (
        "import os, sys, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "os.chdir('/'); os.umask(0)\n"
        f"open('{tmp_path}/pid', 'w').write(str(os.getpid()))\n"
        "os.closerange(0, 1000)\n"
        "x = [bytes(i) for i in range(3000)]\n"
        f"os.rename('{tmp_path}/pid', '{tmp_path}/ready')\n"
        "time.sleep(60)\n"
    )
    subprocess.run([KMEM, "run", sys.executable, "-c", script], check=True, timeout=60)
    wait_until((tmp_path / "ready").exists)
    pid = int((tmp_path / "ready").read_text())
    try:
        assert len(parse_slabinfo(value("info", pid))) > 10
    finally:
        os.kill(pid, signal.SIGKILL)


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")


def test_dropped_privileges(program: Program) -> None:
    needs_root()
    program.do("os.setgid(65534)")
    program.do("os.setuid(65534)")
    program.do("some = take(mine, 5000)")
    assert_agrees(program)
    child = int(program.do("os.fork() or (take(mine, 5000), time.sleep(60), os._exit(0))"))
    try:
        wait_until(lambda: file_of(child) is not None)
        path = file_of(child)
        assert path is not None
        assert path.stat().st_uid == 65534
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_umask_that_forbids_everything(program: Program) -> None:
    """The user's folder may be used by the user's other programs, and the file by readers."""
    needs_root()
    user = 64000 + os.getpid() % 1000
    folder = Path(f"/dev/shm/kmem-{user}")
    program.do("os.umask(0o777)")
    program.do(f"os.setgid({user})")
    program.do(f"os.setuid({user})")
    child = int(program.do("os.fork() or (take(mine, 5000), time.sleep(60), os._exit(0))"))
    try:
        wait_until(lambda: file_of(child) is not None)
        path = file_of(child)
        assert path is not None
        assert path.parent == folder
        assert folder.stat().st_mode & 0o777 == 0o700
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.kill(child, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def test_chroot(program: Program, tmp_path: Path) -> None:
    needs_root()
    program.do(f"os.chroot('{tmp_path}')")
    program.do("some = take(mine, 5000)")
    assert_agrees(program)


def test_without_proc() -> None:
    """As in some chroots: it does not know its pid namespace, and is found and swept."""
    needs_root()
    work = "import sys; x = [bytes(i % 32000) for i in range(20000)]; print(1, flush=True)"
    script = (
        "mount -t tmpfs none /proc || exit 77\n"
        f"exec {KMEM} run --set registry=on {sys.executable} -c '{work}; sys.stdin.read()'"
    )
    with subprocess.Popen(
        ["unshare", "-m", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        if not process.stdout.readline():
            assert process.wait() in (1, 77)
            pytest.skip("no mount namespace or no tmpfs here")
        path = file_of(process.pid)
        assert path is not None and path.name == f"0.{process.pid}"
        assert len(parse_slabinfo(value("info", process.pid))) > 10
        assert str(process.pid) in value("ps")
        process.kill()
    value("ps")
    assert not path.exists()


def test_limit_of_file_sizes() -> None:
    """A size beyond it would bring SIGXFSZ."""
    with Program(
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
    ) as program:
        program.do("some = take(mine, 5000)")
        assert file_of(program.pid) is None
        assert_refused(kmem("info", program.pid), "no registry")


@pytest.mark.parametrize("size", ["readonly", "4k", "1m"])
def test_file_system_without_room(size: str, tmp_path: Path) -> None:
    """In a mount namespace of its own, with a /dev/shm that cannot be written or is (soon) full."""
    needs_root()
    options = "ro" if size == "readonly" else f"size={size}"
    script = (
        f"mount -t tmpfs -o {options} none /dev/shm 2>/dev/null || exit 77\n"
        f"[ {size} != 1m ] || head -c 950000 /dev/zero >/dev/shm/filler\n"
        f"exec {KMEM} run --set registry=on,reclaim_thread=off {sys.executable} -c '"
        "x = [bytes(i % 32000) for i in range(20000)]\n"
        'import os; print(os.listdir("/dev/shm"))\n\''
    )
    result = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if result.returncode in (1, 77):
        pytest.skip(f"no mount namespace or no tmpfs here: {result.stderr}")
    assert (result.returncode, result.stderr) == (0, "")


# Argument: the user's number within a user namespace of its own. The process that has made its
# registry is root; a child that drops its rights makes another.
OTHER_NUMBERS = """
import ctypes, os, sys
inside, outside = int(sys.argv[1]), 1234
libc = ctypes.CDLL(None)
child = os.fork()
if child == 0:
    os.setgid(outside)
    os.setuid(outside)
    dumpable, new_user = 4, 0x10000000
    assert libc.prctl(dumpable, 1, 0, 0, 0) == 0
    if libc.unshare(new_user):
        os._exit(77)
    open("/proc/self/uid_map", "w").write(f"{inside} {outside} 1")
    some = [bytes(number % 32000) for number in range(20000)]
    os._exit(0 if os.geteuid() == inside else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(*sorted(os.listdir("/dev/shm")))
sys.exit(status)
"""


@pytest.mark.parametrize("inside", [1234, 77])
def test_other_numbers_of_users(inside: int) -> None:
    """As `unshare -r` has them: user 1234 takes no folder from user 77, whose number it has."""
    needs_root()
    script = (
        "mount -t tmpfs -o mode=1777 none /dev/shm || exit 77\n"
        f'exec {KMEM} run --set registry=on {sys.executable} -c "$1" {inside}'
    )
    result = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", OTHER_NUMBERS],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if result.returncode == 77:
        pytest.skip(f"no mount namespace or no user namespace here: {result.stderr}")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.split() == ["kmem-0", "kmem-1234"][: 2 if inside == 1234 else 1]


def test_two_writers_at_once(program: Program) -> None:
    """No request is lost, and none is a mixture of two."""
    program.do("busy()")
    names = ("cpu_partial", "min_partial")

    def write(name: str) -> None:
        with open_process(program.pid, writable=True) as registry:
            mine = next(cache for cache in read_caches(registry) if cache.name == "mine")
            for number in range(500):
                ask(registry, mine["birth"], name, str(number * 1000))

    threads = [threading.Thread(target=write, args=(name,)) for name in names for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for name in names:
            mine = mine_of(program.pid)
            assert mine[name] % 1000 == 0 or mine[name] < 1000
    for thread in threads:
        thread.join()
    for name in names:
        wait_until(
            lambda name=name: (
                value("attr", program.pid, f"mine/{name}", "--effective") == "499000\n"
            )
        )


def test_a_request_in_place_of_one_that_is_honoured(program: Program) -> None:
    """It is not taken for that one: the process is stopped in the middle of it again and again."""
    program.do("busy()")
    with open_process(program.pid, writable=True) as registry:
        mine = next(cache for cache in read_caches(registry) if cache.name == "mine")
        for number in range(500):
            ask(registry, mine["birth"], "cpu_partial", str(2 * number))
            moment = time.perf_counter() + number % 100 * 1e-5
            while time.perf_counter() < moment:
                pass
            os.kill(program.pid, signal.SIGSTOP)
            wait_until(lambda: stat_of(program.pid)[0] == "T")
            request = ask(registry, mine["birth"], "cpu_partial", str(2 * number + 1))
            os.kill(program.pid, signal.SIGCONT)
            assert answer(registry, request, DEADLINE) == (0, 0)
            assert registry.number("cache", "cpu_partial", mine.offset) == 2 * number + 1


def test_readers_who_ask_for_the_same(program: Program) -> None:
    """Each gets its answer."""
    with open_process(program.pid, writable=True) as registry:
        mine = next(cache for cache in read_caches(registry) if cache.name == "mine")
        requests = [ask(registry, mine["birth"], "refresh") for _ in range(3)]
        trims = [ask(registry, 0, "trim") for _ in range(3)]
        program.do("crowd(mine, 100, 1)")
        assert [answer(registry, request, DEADLINE) for request in requests] == [(0, 0)] * 3
        assert None not in [answer(registry, trim, DEADLINE) for trim in trims]


def test_room_for_requests_ends(program: Program) -> None:
    program.do("many = [create(b'many%d' % i, 64) for i in range(60)]")
    with open_process(program.pid, writable=True) as registry:
        caches = [cache for cache in read_caches(registry) if cache.name.startswith("many")]
        for cache in caches[:40]:
            ask(registry, cache["birth"], "min_partial", "1")
        with pytest.raises(RegistryError, match="requests wait"):
            ask(registry, caches[41]["birth"], "min_partial", "1")
        program.do("crowd(mine, 100, 1)")
        wait_until(lambda: ask(registry, caches[41]["birth"], "min_partial", "1") is not None)


def test_caches_come_and_go(program: Program) -> None:
    """Records are used again; none is left over and none missing."""
    for _ in range(20):
        program.do("some = [create(b'short%d' % i, 64) for i in range(100)]")
        program.do("[give(c, take(c, 10)) for c in some]")
        with open_process(program.pid) as registry:
            names = [cache.name for cache in read_caches(registry)]
            assert sum(name.startswith("short") for name in names) == 100
        program.do("[kmem.kmem_cache_destroy(c) for c in some]")
        with open_process(program.pid) as registry:
            assert not any(c.name.startswith("short") for c in read_caches(registry))
            assert registry.number("head", "missing") == 0
            assert registry.number("head", "used_bytes") < 512 << 10


@pytest.mark.parametrize("place", ["in the head", "over the end"])
def test_links_that_lead_out_of_the_records(program: Program, place: str) -> None:
    """Of free records, written over from outside: no record is made where they point to."""
    program.do("some = [create(b'short%d' % i, 64) for i in range(4)]")
    program.do("[kmem.kmem_cache_destroy(c) for c in some[1:3]]")
    with open_process(program.pid, writable=True) as registry:
        release = registry.read("head", "release")
        copy = registry.copy()
        of_cache = registry.records(copy)[RECORD_CACHE][0]
        _, bytes_of_cache = RECORD_HEAD.unpack_from(copy, of_cache)
        link = 64 if place == "in the head" else len(copy) - 64
        at = registry.number("head", "head_bytes")
        links = 0
        while at + RECORD_HEAD.size <= len(copy):
            kind, length = RECORD_HEAD.unpack_from(copy, at)
            if (kind, length) == (0, bytes_of_cache):
                os.pwrite(registry.file, link.to_bytes(4, "little"), at + RECORD_HEAD.size)
                links += 1
            at += length or 64
        assert links >= 2
        names = [f"new{number}" for number in range(4)]
        program.do(f"more = [create(name.encode(), 64) for name in {names}]")
        assert {*names, "short0", "short3"} <= {cache.name for cache in read_caches(registry)}
        assert registry.read("head", "release") == release


@pytest.mark.parametrize("engine", FLAGS)
def test_read_while_threads_run(engine: str) -> None:
    """Never negative, never torn: what the reader clamps would be seen as a contradiction here."""
    with Program(flags=FLAGS[engine]) as program:
        program.do("threading.Thread(target=crowd, args=(mine, 10**9, 16), daemon=True).start()")
        end = time.monotonic() + 3
        reads = 0
        with open_process(program.pid) as registry:
            while time.monotonic() < end:
                for cache in read_caches(registry):
                    assert cache.taken + cache.total("refused") >= cache.given, cache.name
                    for node in cache.nodes:
                        assert max(node.values()) < 1 << 40, node
                    assert cache.handed_out < 1 << 32
                reads += 1
        assert reads > 10
        parse_slabinfo(value("info", program.pid))


def test_large_and_huge_blocks(program: Program) -> None:
    """Each block is seen as it comes and goes; a child's are not taken for its parent's."""

    def heap() -> tuple[int, int, int, int]:
        with open_process(program.pid) as registry:
            found = read_heap(registry)
        assert found is not None
        return found.large_blocks, found.large_bytes, found.huge_blocks, found.huge_bytes

    before = heap()
    program.do("libc = ctypes.CDLL(None)")
    program.do("libc.malloc.restype = ctypes.c_void_p; libc.malloc.argtypes = [ctypes.c_size_t]")
    program.do("libc.free.argtypes = [ctypes.c_void_p]")
    program.do("libc.realloc.restype = ctypes.c_void_p")
    program.do("libc.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]")
    before = heap()
    program.do("large = libc.malloc(2 << 20)")
    assert heap() == (before[0] + 1, before[1] + (2 << 20), *before[2:])
    program.do("huge = libc.malloc(64 << 20)")
    assert heap() == (before[0] + 1, before[1] + (2 << 20), before[2] + 1, before[3] + (64 << 20))
    program.do("huge = libc.realloc(huge, 128 << 20)")
    assert heap()[2:] == (before[2] + 1, before[3] + (128 << 20))
    program.do("large = libc.realloc(large, 1 << 19)")
    assert heap()[:2] == (before[0] + 1, before[1] + (1 << 19))
    now = heap()
    child = "some = [libc.malloc(1 << 20) for _ in range(50)], libc.malloc(99 << 20), os._exit(0)"
    program.do(f"os.waitpid(os.fork() or ({child.removeprefix('some = ')}), 0)")
    assert heap() == now
    program.do("libc.free(large)")
    program.do("libc.free(huge)")
    assert heap() == before


@pytest.mark.parametrize("options", [[], ["--set", "numa_fake=3"]])
def test_pages_of_the_heap(options: list[str]) -> None:
    """Slabs and large blocks are the used pages, on one node and on several."""
    with Program(*options) as program:
        program.do("some = take(mine, 200000)")
        with open_process(program.pid) as registry:
            heap = read_heap(registry)
            slabs = sum(cache.slab_bytes for cache in read_caches(registry))
        assert heap is not None
        # What is not a slab's or a block's: the page that no address begins with.
        assert 0 <= heap.used_bytes - slabs - heap.large_bytes <= 64 << 10
        assert slabs > 20 << 20
        program.do("give(mine, some)")
        program.do("kmem.malloc_trim(0)")
        with open_process(program.pid) as registry:
            after = read_heap(registry)
        assert after is not None
        assert after.used_bytes < heap.used_bytes - (16 << 20)
        assert after.purged_bytes >= heap.purged_bytes + (16 << 20)
        assert after.free_touched_bytes <= after.free_bytes


def test_all_on_engine_slob() -> None:
    """Blocks of exact size pass no slow path of sheaves, and are shown all the same."""
    with Program("--set", "engine=slob") as program:

        def handed_out() -> int:
            with open_process(program.pid) as registry:
                return sum(cache.handed_out for cache in read_caches(registry))

        wait_until(lambda: file_of(program.pid) is not None)
        program.do("libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p")
        program.do("libc.free.argtypes = [ctypes.c_void_p]; blocks = [libc.malloc(600)]")
        before = handed_out()
        program.do("blocks += [libc.malloc(600) for _ in range(5000)]")
        assert before + 5000 <= handed_out() < before + 6000
        now = handed_out()
        # A child that only frees writes to no file of its parent's.
        program.do("os.waitpid(os.fork() or ([libc.free(b) for b in blocks], os._exit(0)), 0)")
        assert now - 100 <= handed_out() <= now + 100
        program.do("[libc.free(block) for block in blocks]")
        assert handed_out() < now - 4500


def test_soft_limit_is_shown() -> None:
    """The limit, its trims and what they gave back, in the table, in JSON and in the metrics."""
    code = "held = [bytes(5000) for _ in range(20000)]; print(flush=True); input()"
    environment = os.environ | {"LD_PRELOAD": str(LIBRARY), "KMEM_OPTIONS": "soft_limit=1M"}
    with subprocess.Popen(
        ["/usr/bin/python3", "-S", "-c", code],  # other packages of the machine add trims
        env=environment | {"PYTHONMALLOC": "malloc"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        table = kmem_command.kmem("info", process.pid).stdout
        document = json.loads(kmem_command.kmem("info", process.pid, "--json").stdout)
        metrics = {
            sample.name: sample.value
            for metric in ProcessesCollector().collect()
            for sample in metric.samples
            if sample.labels.get("pid") == str(process.pid) and "soft_limit" in sample.name
        }
        process.communicate(b"\n")
    limit = document["soft_limit"]
    assert limit["limit_bytes"] == 1 << 20
    assert 1 <= limit["trims"] <= 5000
    assert (
        f"# soft_limit: 1048576 bytes; {limit['trims']} trims gave back"
        f" {limit['given_back_bytes']} bytes\n"
    ) in table
    assert metrics == {
        "kmem_soft_limit_bytes": 1 << 20,
        "kmem_soft_limit_trims_total": limit["trims"],
        "kmem_soft_limit_given_back_bytes_total": limit["given_back_bytes"],
    }


def test_a_name_of_lines_is_no_other_user() -> None:
    """The system tells a process's user in lines of text, and the process chooses its name."""
    with Program() as program:
        program.do(r"kmem.prctl(15, b'\nUid:\t7\t7\t7')")
        status = Path(f"/proc/{program.pid}/status").read_text()
        assert r"Name:" in status and r"\nUid:" in status.splitlines()[0]
        assert user_of(program.pid) == os.geteuid()


def test_figures_of_a_process_that_did_nothing_are_kept(program: Program) -> None:
    with open_process(program.pid) as registry:
        first = read_caches(registry)
        wait_until(lambda: read_caches(registry)[0] is read_caches(registry)[0])
        kept = read_caches(registry)
    program.do("more = take(mine, 5000)")
    with open_process(program.pid) as registry:
        wait_until(lambda: read_caches(registry)[0] is not kept[0])
        taken = {cache.name: cache.taken for cache in read_caches(registry)}
    assert taken["mine"] >= {cache.name: cache.taken for cache in first}["mine"] + 4000


def test_kept_figures_are_bounded_as_read_ones(program: Program) -> None:
    """A look that may have fewer caches refuses a process whose caches are known already."""
    with open_process(program.pid) as registry:
        wait_until(lambda: read_caches(registry)[0] is read_caches(registry)[0])
        registry.caches_most = 1
        with pytest.raises(RegistryError, match="expected at most 1 caches"):
            read_caches(registry)
