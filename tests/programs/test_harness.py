# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tests of this folder must fail when something is wrong: here something is.

First the checks on a program's end and on its slab table, with a stand-in for the command. Then the
programs of c/ on a malloc with one fault built in; without a fault the same malloc must pass.
"""

import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from dropin import DEFAULT, DropIn, Finished, Plain, ProgramError
from slabtable import TableError, parse_table
from test_misuse import expect_line_and_callers

from kmem.traces.slabinfo import HEADER_LINE, VERSION_LINE

Build = Callable[..., Path]

GOOD_TABLE = f"""\
{VERSION_LINE}
{HEADER_LINE}
kmalloc-64           128    192     64   64    1 : tunables    0    0    0 : slabdata      3      3      0
a-long-name-for-a-cache     10     16    256   16    1 : tunables    0    0    0 : slabdata      1      1      0
# objects handed out: 4321
"""  # noqa: E501


def test_good_table() -> None:
    table = parse_table(GOOD_TABLE)
    assert table.handed_out == 4321
    assert [cache.name for cache in table.caches] == ["kmalloc-64", "a-long-name-for-a-cache"]
    assert table.caches[0].objects == 192
    assert table.kmalloc_caches() == table.caches[:1]


@pytest.mark.parametrize(
    ("part", "replacement"),
    [
        ("version: 2.1", "version: 2.0"),
        ("<num_objs>", "<objs>"),
        ("# objects handed out: 4321\n", ""),
        ("handed out: 4321", "handed out: many"),
        ("    192     64", "    100     64"),
        ("    192     64", "    193     64"),
        ("64   64    1 :", "64   65    1 :"),
        ("slabdata      3      3", "slabdata      4      3"),
        ("tunables    0    0    0", "tunables    0    0"),
        (GOOD_TABLE, "\n\n"),
    ],
)
def test_bad_table(part: str, replacement: str) -> None:
    assert part in GOOD_TABLE
    with pytest.raises(TableError):
        parse_table(GOOD_TABLE.replace(part, replacement))


@pytest.fixture
def stand_in(tmp_path: Path) -> DropIn:
    """Its command writes the good table and runs the program as it is."""
    (tmp_path / "good").write_text(GOOD_TABLE)
    command = tmp_path / "stand-in"
    command.write_text(
        "#!/bin/sh\n"
        "# Called as: run --slabinfo FILE -- PROGRAM ARGUMENTS\n"
        f'[ -n "$NO_TABLE" ] || cp {tmp_path / "good"} "$3"\n'
        'export TABLE="$3"\nshift 4\nexec "$@"\n'
    )
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return DropIn(DEFAULT, tmp_path, command, preload="")


def test_good_run(stand_in: DropIn) -> None:
    finished = stand_in.run(["/bin/cat"], minimum=4321, stdin="text")
    assert (finished.stdout, finished.handed_out()) == ("text", 4321)


@pytest.mark.parametrize(
    ("script", "minimum", "environment", "reason"),
    [
        ("exit 3", 1, {}, "status 3"),
        ("kill -SEGV $$", 1, {}, "status -11"),
        ("echo 'kmem: something' >&2", 1, {}, "wrote to standard error"),
        ("true", 4322, {}, "4321 objects handed out"),
        ("true", 1, {"NO_TABLE": "1"}, "no slab table"),
        ("sed -i s/kmalloc/malloc/ $TABLE", 1, {}, "0 objects handed out"),
    ],
)
def test_bad_run(
    stand_in: DropIn, script: str, minimum: int, environment: dict[str, str], reason: str
) -> None:
    with pytest.raises(AssertionError, match=reason):
        stand_in.run(["/bin/sh", "-c", script], minimum=minimum, environment=environment)


def test_too_few_processes(stand_in: DropIn) -> None:
    with pytest.raises(ProgramError, match="1 slab tables, at least 2"):
        stand_in.run(["/bin/true"], minimum=1, processes=2)


def test_hang_is_ended(plain: Plain) -> None:
    with pytest.raises(ProgramError, match="not finished after 1 s"):
        plain.run(["/bin/sh", "-c", "sleep 1000 & wait"], timeout=1)


Faulty = Callable[..., Finished]


@pytest.fixture
def faulty(build: Build, plain: Plain) -> Faulty:
    """Runs a program on the faulty malloc: faulty(FAULT, SOURCE, ARGUMENT...)."""

    def run(fault: str, source: str, *arguments: str, **environment: str) -> Finished:
        library = build(
            f"{fault}.so",
            "faulty_malloc.c",
            flags=("-shared", "-fPIC", "-fno-builtin", f"-DFAULT_{fault}", "-pthread"),
        )
        program = build(source.split(".")[0], source, flags=FLAGS.get(source, ()))
        setting = DropIn(DEFAULT, plain.folder, preload=str(library))
        return setting.attempt([program, *arguments], environment=environment)

    return run


FLAGS = {
    "fork_threads.c": ("-pthread",),
    "raw_clone.c": ("-pthread",),
    "operators.cpp": ("-pthread",),
    "usable_size.c": ("-D_FORTIFY_SOURCE=3",),
}


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        ("symbols.c", ["all"]),
        ("operators.cpp", []),
        ("usable_size.c", []),
        ("fork_threads.c", []),
        ("raw_clone.c", []),
        ("vfork_allocates.c", []),
        ("exhaust.c", ["data", "300"]),
    ],
)
def test_malloc_without_fault_passes(faulty: Faulty, source: str, arguments: list[str]) -> None:
    finished = faulty("NONE", source, *arguments)
    assert (finished.status, finished.stderr) == (0, ""), finished.describe()
    assert finished.stdout.endswith("ok\n")


@pytest.mark.parametrize(
    ("fault", "source", "arguments"),
    [
        ("MISALIGNED", "symbols.c", ["all"]),
        ("MISALIGNED", "operators.cpp", []),
        ("DIRTY", "symbols.c", ["all"]),
        ("REALLOC", "symbols.c", ["all"]),
        ("OVERFLOW", "symbols.c", ["all"]),
        ("NO_ERRNO", "symbols.c", ["all"]),
        ("ZERO_IS_NULL", "symbols.c", ["all"]),
        ("ALIGNMENTS", "symbols.c", ["all"]),
        ("TWICE", "symbols.c", ["all"]),
        ("TWICE", "fork_threads.c", []),
        ("TWICE", "raw_clone.c", []),
        ("TWICE", "usable_size.c", []),
        ("USABLE", "usable_size.c", []),
        ("NO_ERRNO", "exhaust.c", ["data", "300"]),
    ],
)
def test_fault_is_noticed(faulty: Faulty, fault: str, source: str, arguments: list[str]) -> None:
    finished = faulty(fault, source, *arguments)
    assert finished.status != 0, finished.describe()


def test_hang_after_fork_is_noticed_by_the_watchdog(faulty: Faulty) -> None:
    finished = faulty("FORK", "fork_threads.c", WATCHDOG_SECONDS="3")
    assert finished.status in (1, -signal.SIGALRM), finished.describe()


def test_deep_bound_library_needs_an_interposed_dlopen(build: Build, plain: Plain) -> None:
    """The malloc without fault leaves dlopen alone, and so must fail here."""
    library = build("NONE.so", "faulty_malloc.c", flags=("-shared", "-fPIC", "-pthread"))
    bound = build("libdeepbind.so", "deepbind_library.c", flags=("-shared", "-fPIC"))
    dropin = DropIn(DEFAULT, plain.folder, preload=str(library))
    assert dropin.attempt([build("deepbind", "deepbind.c"), bound]).status != 0


@pytest.mark.parametrize("misuse", ["on-stack", "interior-huge", "double-small", "kfree-on-stack"])
def test_misuse_report_is_required(faulty: Faulty, misuse: str) -> None:
    aborted = faulty("NONE", "misuse.c", misuse)
    assert aborted.status == -signal.SIGABRT
    expect_line_and_callers(aborted, misuse)
    ignored = faulty("NONE", "misuse.c", misuse, KMEM_OPTIONS="bad_free=ignore")
    assert ignored.status == 0, ignored.describe()
    expect_line_and_callers(ignored, misuse)
    for fault in ("SILENT", "NAMELESS"):
        with pytest.raises((AssertionError, IndexError)):
            expect_line_and_callers(faulty(fault, "misuse.c", misuse), misuse)
