# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What happens around a heap: fork, threads that libc does not know, limits, loading, early and
late calls. Each test is a small program of the folder c/ that checks itself and prints `ok`."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from dropin import (
    DEFAULT,
    INPUTS,
    LIBRARIES,
    LOCKED,
    ROOT,
    SLAB,
    SLOB,
    UNREGISTERED,
    DropIn,
    Finished,
    Plain,
    Setting,
    check_status,
    start,
    wait,
)
from needs import require, skip_as_told
from settings import under
from slabtable import read_table

Build = Callable[..., Path]

THREADS = ("-pthread",)
HEADERS = (f"-I{ROOT / 'include'}",)
SETTINGS = (DEFAULT, LOCKED, UNREGISTERED, SLAB, SLOB)
everywhere = under(*SETTINGS, quick=(DEFAULT, LOCKED, UNREGISTERED))
each_engine_quick = under(*SETTINGS, quick=SETTINGS)
# Every call, or every other one, walks the stack.
OWNERS = Setting("owners", options="debug=U")
PROFILED = Setting("profiled", options="profile_interval=1024")
walking = under(OWNERS, PROFILED, quick=(OWNERS, PROFILED))
one_quick = under(*SETTINGS, quick=(DEFAULT,))


def expect_ok(finished: Finished) -> None:
    assert finished.stdout.splitlines()[-1:] == ["ok"], finished.describe()
    assert finished.stderr == "", finished.describe()


@each_engine_quick
def test_fork_while_threads_allocate(dropin: DropIn, build: Build) -> None:
    program = build("fork_threads", "fork_threads.c", flags=THREADS)
    expect_ok(dropin.run([program], minimum=1000, processes=61))


@everywhere
def test_starting_programs_while_threads_allocate(dropin: DropIn, build: Build) -> None:
    program = build("spawn_threads", "spawn_threads.c", flags=THREADS)
    expect_ok(dropin.run([program], minimum=500, processes=41))


@everywhere
def test_python_subprocess_while_threads_allocate(dropin: DropIn) -> None:
    require("python")
    script = INPUTS / "subprocess_threads.py"
    expect_ok(
        dropin.run(
            ["/usr/bin/python3", script],
            minimum=10_000,
            processes=30,
            environment={"PYTHONMALLOC": "malloc"},
        )
    )


@everywhere
def test_child_of_vfork_allocates(dropin: DropIn, build: Build) -> None:
    program = build("vfork_allocates", "vfork_allocates.c")
    expect_ok(dropin.run([program], minimum=200))


@everywhere
def test_children_of_vfork_allocate_beside_threads(dropin: DropIn, build: Build) -> None:
    program = build("vfork_beside_threads", "vfork_beside_threads.c", flags=THREADS)
    expect_ok(dropin.run([program], minimum=200))


def test_fork_before_the_heap_starts(plain: Plain, build: Build, library: Path) -> None:
    """Without options, which start it with the process."""
    program = build("fork_first", "fork_first.c", flags=THREADS)
    expect_ok(plain.run([program], environment={"LD_PRELOAD": str(library)}))


def test_heap_that_is_refused_says_why_once(
    plain: Plain, build: Build, library: Path, tmp_path: Path
) -> None:
    """Each process is in the recording once: two set limits, and the program begins anew."""
    options = f"record={tmp_path / 'recording'},nonsense=1"
    environment = {"LD_PRELOAD": str(library), "KMEM_OPTIONS": options}
    finished = wait(start([build("no_room", "no_room.c")], plain.folder, environment))
    skip_as_told(finished)
    check_status(finished)
    assert finished.stdout == "ok\n"
    assert finished.stderr.endswith("begin\nend\n"), finished.describe()
    assert 'unknown option "nonsense"' in finished.stderr
    assert len(list(tmp_path.glob("recording.maps.*"))) == 4


def test_child_of_vfork_starts_the_heap(plain: Plain, build: Build, library: Path) -> None:
    """Without options, which start it with the process."""
    program = build("vfork_first", "vfork_first.c")
    expect_ok(plain.run([program], environment={"LD_PRELOAD": str(library)}))


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="figures are shown in /dev/shm")
def test_child_of_vfork_is_not_whose_figures_are_shown(
    plain: Plain, build: Build, library: Path
) -> None:
    program = build("vfork_first", "vfork_first.c")
    options = {"LD_PRELOAD": str(library), "KMEM_OPTIONS": "registry=on"}
    expect_ok(plain.run([program, "shown"], environment=options))


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="figures are shown in /dev/shm")
def test_fork_in_a_handler_that_waited_for_vfork(plain: Plain, build: Build, library: Path) -> None:
    program = build("vfork_handler_forks", "vfork_handler_forks.c")
    options = {"LD_PRELOAD": str(library), "KMEM_OPTIONS": "registry=on"}
    expect_ok(plain.run([program], environment=options))


def test_a_process_that_allocates_nothing_has_no_heap(
    plain: Plain, build: Build, library: Path
) -> None:
    program = build("no_heap", "no_heap.c")
    expect_ok(plain.run([program], environment={"LD_PRELOAD": str(library)}))


@everywhere
def test_threads_made_by_clone(dropin: DropIn, build: Build) -> None:
    program = build("raw_clone", "raw_clone.c", flags=THREADS)
    process, read = dropin.launch([program])
    ended = wait(process)
    skip_as_told(ended)
    check_status(ended)
    expect_ok(dropin.check(ended, read, minimum=500))


@everywhere
@pytest.mark.skipif(os.geteuid() != 0, reason="mlockall of a heap needs root (RLIMIT_MEMLOCK)")
def test_locked_memory(dropin: DropIn, build: Build) -> None:
    program = build("locked_memory", "locked_memory.c", flags=THREADS)
    expect_ok(dropin.run([program, "256"], minimum=500))


@everywhere
def test_whole_usable_size_under_fortify(dropin: DropIn, build: Build) -> None:
    program = build("usable_size", "usable_size.c", flags=("-D_FORTIFY_SOURCE=3",))
    expect_ok(dropin.run([program], minimum=4000))


@each_engine_quick
def test_program_with_a_clock_of_its_own(dropin: DropIn, build: Build) -> None:
    """As libraries have that fake the time, which allocate and wait for locks there."""
    program = build("own_clock", "own_clock.c", flags=("-rdynamic",))
    expect_ok(dropin.run([program], minimum=1000))


@each_engine_quick
def test_fork_in_a_handler_that_interrupted_a_call(dropin: DropIn, build: Build) -> None:
    program = build("fork_in_handler", "fork_in_handler.c")
    expect_ok(dropin.run([program], minimum=1000))


@walking
def test_walks_under_the_lock_of_the_unwinder(dropin: DropIn, build: Build) -> None:
    program = build("registered_frames", "registered_frames.c")
    expect_ok(dropin.run([program], minimum=20))


@walking
def test_a_walk_loads_no_library(dropin: DropIn) -> None:
    """It may be inside of a dlopen, which does not bear another one everywhere."""
    assert "libgcc_s" not in dropin.run(["/bin/cat", "/proc/self/maps"], minimum=1).stdout


@each_engine_quick
@pytest.mark.parametrize("registry", ["auto", "on"])
def test_child_with_less_address_space_than_it_has(
    dropin: DropIn, build: Build, registry: str
) -> None:
    """`(ulimit -v 300000; PROGRAM)` in a shell."""
    program = build("limit_in_child", "limit_in_child.c")
    under_registry = dropin.under(dropin.setting.with_options(f"registry={registry}"))
    expect_ok(under_registry.run([program], minimum=1000))


@each_engine_quick
def test_process_that_lowers_its_address_space(dropin: DropIn, build: Build) -> None:
    program = build("lowered_limit", "lowered_limit.c", flags=(*THREADS, "-fno-builtin"))
    with_groups = dropin.under(dropin.setting.with_options("memory_limit=4G"))
    for each in (dropin, with_groups):
        finished = each.run([program], minimum=1000)
        skip_as_told(finished)
        expect_ok(finished)


@each_engine_quick
def test_dumps_by_debuggers(dropin: DropIn, build: Build) -> None:
    """They hold what a process uses, also of one that may have no more mappings."""
    finished = dropin.run([build("dumped", "dumped.c")], minimum=1000)
    skip_as_told(finished)
    expect_ok(finished)


@everywhere
def test_namespaces_that_want_one_thread(dropin: DropIn, build: Build) -> None:
    program = build("namespaces", "namespaces.c", flags=THREADS)
    finished = dropin.run([program], minimum=100)
    skip_as_told(finished)
    expect_ok(finished)


def run_in_sandbox(
    plain: Plain, dropin: DropIn, library: Path, options: str, command: list[Path | str]
) -> None:
    """Without what the command asks for at the end, for which the sandbox would kill."""
    environment = {**dropin.setting.environment, "LD_PRELOAD": str(library)}
    if options:
        environment["KMEM_OPTIONS"] = options
    ended = wait(start(command, plain.folder, environment))
    skip_as_told(ended)
    check_status(ended)
    expect_ok(ended)


@pytest.mark.parametrize(
    ("way", "state"),
    [
        ("filter", "used"),
        ("filter", "new"),
        ("rights", "used"),
        ("rights", "new"),
        ("unseen", "used"),
    ],
)
@each_engine_quick
def test_life_in_a_sandbox(
    plain: Plain, build: Build, library: Path, dropin: DropIn, way: str, state: str
) -> None:
    """Which kills for what libc's malloc does not do; a heap that starts unseen does more."""
    program = build("sandboxed", "sandboxed.c")
    options = dropin.setting.options
    if state == "used":
        options = ",".join(filter(None, (options, "registry=on")))
    run_in_sandbox(plain, dropin, library, options, [program, way, state])


@each_engine_quick
def test_sandbox_of_all_threads(plain: Plain, build: Build, library: Path, dropin: DropIn) -> None:
    program = build("sandboxed_threads", "sandboxed_threads.c", flags=THREADS)
    run_in_sandbox(plain, dropin, library, dropin.setting.options, [program])


@under(DEFAULT)
def test_mask_where_blocking_is_refused(dropin: DropIn, build: Build) -> None:
    """The report at the end tries to block signals, and leaves the mask as the program had it."""
    program = build("refused_mask", "refused_mask.c")
    process, _ = dropin.launch([program], every=True)
    finished = wait(process)
    skip_as_told(finished)
    check_status(finished)
    expect_ok(finished)


@under(DEFAULT)
def test_end_where_pending_signals_are_not_told(dropin: DropIn, build: Build) -> None:
    """The report at the end blocks the signal of a file size limit, whatever it is not told."""
    program = build("refused_pending", "refused_pending.c", flags=("-rdynamic",))
    process, _ = dropin.launch([program], every=True)
    finished = wait(process)
    check_status(finished)
    assert finished.stdout == "ok\n", finished.describe()
    assert "File too large" in finished.stderr, finished.describe()


def build_early_late(build: Build) -> Path:
    """Allocates before libc's start and behind its end; with its library."""
    library = build("libearly_late.so", "early_late_library.c", flags=("-shared", "-fPIC"))
    return build(
        "early_late",
        "early_late.c",
        flags=THREADS,
        libraries=(str(library), f"-Wl,-rpath,{library.parent}"),
    )


@everywhere
def test_every_stage_of_a_life(dropin: DropIn, build: Build, plain: Plain) -> None:
    program = build_early_late(build)
    expected = plain.run([program])
    finished = dropin.run([program], minimum=100)
    assert finished.stdout == expected.stdout
    assert finished.stdout.startswith("preinit\n")
    assert finished.stdout.endswith("library destructor\n")
    assert finished.stderr == ""


@pytest.mark.parametrize("filler", [65436, 65520, 100000])
def test_options_behind_a_large_environment(
    plain: Plain, build: Build, library: Path, tmp_path: Path, filler: int
) -> None:
    """The heap starts before libc knows the environment."""
    program = build_early_late(build)
    table = tmp_path / "table"
    environment = {"LD_PRELOAD": str(library), "FILLER": "x" * filler}
    plain.run([program], environment={**environment, "KMEM_OPTIONS": f"slabinfo={table}"})
    read_table(table)
    long = {**environment, "KMEM_OPTIONS": "x" * 4096}
    assert "at most 4095 characters; ignored" in plain.run([program], environment=long).stderr


@everywhere
def test_deep_bound_library(dropin: DropIn, build: Build) -> None:
    library = build("libdeepbind.so", "deepbind_library.c", flags=("-shared", "-fPIC"))
    program = build("deepbind", "deepbind.c")
    expect_ok(dropin.run([program, library], minimum=50))


@pytest.mark.parametrize(
    "names",
    [
        ("libkmem.so",),
        ("libkmem-malloc.so",),
        ("libkmem.so", "libkmem-malloc.so"),
        ("libkmem-malloc.so", "libkmem.so"),
    ],
    ids="+".join,
)
@pytest.mark.parametrize("options", ["", pytest.param("slots=locked", marks=pytest.mark.full)])
def test_opened_and_closed_under_signals(
    plain: Plain, build: Build, library: Path, names: tuple[str, ...], options: str
) -> None:
    program = build("dlopen_library", "dlopen_library.c", flags=(*THREADS, *HEADERS))
    finished = plain.run(
        [program, *(LIBRARIES / name for name in names)],
        environment={"KMEM_OPTIONS": options} if options else {},
    )
    expect_ok(finished)


@everywhere
def test_one_heap_a_process(dropin: DropIn, build: Build, library: Path) -> None:
    program = build("one_heap", "one_heap.c", flags=(*THREADS, *HEADERS))
    expect_ok(dropin.run([program, LIBRARIES / "libkmem.so"], minimum=50))


@pytest.mark.parametrize(
    "names", [("libkmem.so", "libkmem-malloc.so"), ("libkmem-malloc.so", "libkmem.so")]
)
def test_one_heap_whichever_library_is_first(
    plain: Plain, build: Build, library: Path, names: tuple[str, ...]
) -> None:
    program = build("one_heap", "one_heap.c", flags=(*THREADS, *HEADERS))
    preload = ":".join(str(LIBRARIES / name) for name in names)
    finished = plain.run([program, LIBRARIES / "libkmem.so"], environment={"LD_PRELOAD": preload})
    expect_ok(finished)


def test_what_is_no_block_is_left_to_the_owner(plain: Plain, build: Build, library: Path) -> None:
    program = build("one_heap", "one_heap.c", flags=(*THREADS, *HEADERS))
    environment = {"LD_PRELOAD": str(library), "KMEM_OPTIONS": "bad_free=ignore"}
    finished = plain.run([program, LIBRARIES / "libkmem.so", "bad"], environment=environment)
    assert finished.stdout == "ok\n", finished.describe()
    assert re.fullmatch(r"kmem: krealloc\(0x[0-9a-f]+\): .*; ignored\n", finished.stderr)


def test_static_cpp_program(plain: Plain, build: Build, library: Path) -> None:
    """What its operators throw can be caught, as where they are the runtime's."""
    program = build(
        "static_operators",
        "operators.cpp",
        flags=("-static", *THREADS),
        libraries=(str(LIBRARIES / "libkmem.a"),),
    )
    expect_ok(plain.run([program]))


@pytest.mark.parametrize("options", ["", "slots=locked"])
def test_static_program(
    plain: Plain, build: Build, library: Path, tmp_path: Path, options: str
) -> None:
    program = build(
        "static_threads",
        "static_threads.c",
        flags=("-static", *THREADS, *HEADERS),
        libraries=(str(LIBRARIES / "libkmem.a"),),
    )
    table = tmp_path / "table"
    joined = ",".join(filter(None, (f"slabinfo={table}.%p", options)))
    finished = plain.run([program], environment={"KMEM_OPTIONS": joined})
    expect_ok(finished)
    tables = sorted(tmp_path.glob("table.*"))
    assert len(tables) == 21, "one table for each process was to be written"
    assert all(read_table(path).handed_out >= 200 for path in tables)


MIB_PER_STEP = re.compile(r"^(\d+) bytes: (\d+) MiB$", re.MULTILINE)


def taken(finished: Finished) -> list[int]:
    """MiB that could be taken in each of the steps; each follows on freeing everything."""
    steps = [int(mib) for _, mib in MIB_PER_STEP.findall(finished.stdout)]
    assert len(steps) == 8, finished.describe()
    return steps


@everywhere
def test_no_memory_left_under_a_limit_from_the_start(dropin: DropIn, build: Build) -> None:
    program = build("exhaust", "exhaust.c")
    limited = dropin.under(dropin.setting.with_address_space(512 << 20))
    finished = limited.run([program, "none", "2000"], minimum=10_000)
    expect_ok(finished)
    # The heap reserves a part of what the limit leaves; small objects live there.
    assert all(64 <= mib <= 512 for mib in taken(finished)), finished.describe()


def test_a_limit_below_the_first_memory_of_the_heap_is_named(dropin: DropIn) -> None:
    """Once a process, and with the limit to raise: perl ends by SIGSEGV without a word."""
    limited = ["prlimit", f"--data={5 << 20}", "--", "perl", "-e", "print 1"]
    finished = dropin.attempt(limited)
    if finished.status == 0:
        pytest.skip("RLIMIT_DATA is not enforced here")
    named = "kmem: no memory for the first 4096 KiB of the heap; expected higher limits of memory"
    assert finished.messages() == [f"{named} (ulimit -d, -l, -v)"], finished.describe()


@pytest.mark.parametrize("resource", ["data", "space", "call"])
@one_quick
def test_no_memory_left_under_a_later_limit(dropin: DropIn, build: Build, resource: str) -> None:
    program = build("exhaust", "exhaust.c")
    finished = dropin.run([program, resource, "240"], minimum=10_000)
    expect_ok(finished)
    assert all(mib <= 240 for mib in taken(finished)), finished.describe()
    if resource == "data":
        # What has become the heap's stays the heap's: only small blocks are there again for sure.
        assert taken(finished)[0] >= 120, finished.describe()
        assert taken(finished)[-1] >= 60, finished.describe()
    else:
        # As from the start, or in the heap, which has room for blocks of every size.
        assert all(mib >= (48 if resource == "space" else 120) for mib in taken(finished)), (
            finished.describe()
        )
