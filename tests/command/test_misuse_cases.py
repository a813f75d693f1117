# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The cases of heap misuse: what becomes of each at every level of protection, as kept in
docs/figures/misuse.json; that the message names the call; and that the cases prove what they say.
"""

import json
import re
import signal
import subprocess
from collections import Counter
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from kmem_command import ROOT, kmem

from kmem.bench.allocators import GLIBC, LIBKMEM
from kmem.bench.misuse import (
    LEVELS,
    STOPPED,
    Level,
    Outcome,
    Result,
    as_document,
    guess_bits,
    judge,
    list_cases,
    measure_addresses,
    run_case,
    run_program,
    understood,
    varying_bits,
)

LIFO = ROOT / "tests" / "misuse" / "lifo.c"
KEPT = ROOT / "docs" / "figures" / "misuse.json"
ADDR_NO_RANDOMIZE = 0x0040000
misuse = partial(kmem, "bench", "misuse")
# Each run of the command tries all of these, so that few runs are needed.
CHECKED = [level for level in LEVELS if not level.name.startswith("engine=")]
AGAIN = 4
SAFE = (Outcome.CAUGHT, Outcome.TRAPPED, Outcome.HARMLESS)
OTHERS = [level for level in LEVELS if level not in CHECKED]


@cache
def kept() -> dict[str, Any]:
    return json.loads(KEPT.read_text())


@cache
def outcomes(level: Level) -> dict[str, Result]:
    return {case: run_case(level, case) for case in list_cases()}


def named(levels: list[Level]) -> list[Any]:
    return [pytest.param(level, id=level.name) for level in levels]


def expect_kept(level: Level) -> None:
    if not understood(level):
        assert level.name in kept()["missing"], f"{level.name} is not in {KEPT.name}"
        pytest.skip(f"the library does not know {level.options}")
    expected = comparable(level, {c: row[level.name] for c, row in kept()["cases"].items()})
    found = comparable(level, {c: str(r.outcome) for c, r in outcomes(level).items()})
    # About one case in a thousand depends on addresses that the kernel drew, or on another thread.
    for case in [case for case in expected if found.get(case) != expected[case]]:
        for _ in range(AGAIN):
            found |= comparable(level, {case: str(run_case(level, case).outcome)})
            if found[case] == expected[case]:
                break
    assert found == expected


def comparable(level: Level, found: dict[str, str]) -> dict[str, str | bool]:
    """What is equal in each run: not what depends on when free pages go back to the system.

    At the hardened level places are drawn, so what a write hits is reported in some runs and
    without harm in others, and what lies 64 bytes or more from a block differs. A stale write in
    front of a second free is a trap, or the free is caught.
    """
    steady: dict[str, str] = {
        c: o for c, o in found.items() if not re.search(r"-late/|/after-trim/|/write-calloc/", c)
    }
    if "hardened" not in level.name:
        stale = re.compile(r"/after-write/|/after-first-word/|/fclose/")
        return {c: o in STOPPED if stale.search(c) else o for c, o in steady.items()}
    return {c: o in SAFE for c, o in steady.items() if not re.search(r"/far/|/page/|[-/]64/", c)}


@pytest.mark.parametrize("level", named(CHECKED))
def test_outcomes_are_those_kept(level: Level) -> None:
    expect_kept(level)


@pytest.mark.full
@pytest.mark.parametrize("level", named(OTHERS))
def test_outcomes_of_other_levels(level: Level) -> None:
    expect_kept(level)


def faults_said(result: Result) -> list[str]:
    """Lines that are not a caller's place."""
    return [line for line in result.said if not line.startswith("kmem:   ")]


@pytest.mark.parametrize("level", named([LEVELS[0], LEVELS[1]]))
def test_what_is_caught_is_said_in_a_line(level: Level) -> None:
    """One line with the pointer and what is wrong with it, its callers' places, and then SIGABRT.

    Some misuses of named caches have no effect, and are reported only: an object that is freed to a
    wrong cache goes to its own.
    """
    for case, result in outcomes(level).items():
        if result.outcome != Outcome.CAUGHT or case.startswith("caches/destroyed"):
            continue
        if result.status != -signal.SIGABRT:
            assert "wrong slab cache" in result.line, (case, result)
        assert faults_said(result) == [result.line], (case, result)
        assert re.fullmatch(r"kmem: .*\b0x[0-9a-f]+\b.*", result.line), (case, result)


def test_debug_reports_name_the_fault() -> None:
    level = next(level for level in CHECKED if level.name == "debug=FZP")
    caught = {c: r for c, r in outcomes(level).items() if r.outcome == Outcome.CAUGHT}
    said = {
        "double-free/a-b-a/small": "Object already free",
        "invalid-free/inside-16/small": "Invalid object pointer",
        "overflow-write/usable-1/small": "Redzone overwritten",
        "use-after-free/write/small": "Poison overwritten",
    }
    for case, fault in said.items():
        assert any(fault in line for line in caught[case].said), (case, caught[case])


def test_metadata_is_out_of_reach() -> None:
    """docs/security.md: what is written near blocks does not decide where later blocks lie."""
    for case, row in kept()["cases"].items():
        if case.startswith("metadata/"):
            ours = {level.name: row[level.name] for level in LEVELS if level.name in row}
            assert len(ours) >= 5 and all(outcome in SAFE for outcome in ours.values()), case


def test_huge_blocks_that_are_not_kept_are_unmapped() -> None:
    level = Level("unmapped", LIBKMEM, "huge_cache_max=0")
    assert run_case(level, "use-after-free/read/huge").outcome == Outcome.TRAPPED
    assert outcomes(LEVELS[0])["use-after-free/read/huge"].outcome == Outcome.MISSED


def test_glibc_is_judged_as_it_is_known() -> None:
    glibc = Level("glibc", GLIBC)
    known = {
        "double-free/at-once/tiny": (Outcome.CAUGHT, "double free"),
        "double-free/after-reuse/tiny": (Outcome.LATE, "handed out again"),
        "invalid-free/static/-": (Outcome.CAUGHT, "invalid pointer"),
        "use-after-free/read-reused/small": (Outcome.MISSED, "was read"),
        "old-content/calloc/small": (Outcome.HARMLESS, ""),
        "caches/twice/small": (Outcome.ABSENT, "no such function"),
    }
    for case, (outcome, text) in known.items():
        result = run_case(glibc, case)
        assert result.outcome == outcome and text in result.line, (case, result)


@pytest.fixture(scope="module")
def lifo(tmp_path_factory: pytest.TempPathFactory) -> Level:
    """An allocator that notices nothing."""
    library = tmp_path_factory.mktemp("lifo") / "lifo.so"
    build = ["gcc", "-O2", "-fno-builtin", "-shared", "-fPIC", "-o", library, LIFO]
    subprocess.run(build, check=True)
    return Level("lifo", type(LIBKMEM)("lifo", library))


@pytest.mark.parametrize(
    ("case", "harm"),
    [
        ("double-free/at-once/small", "an address was handed out twice"),
        ("double-free/a-b-a/small", "an address was handed out twice"),
        ("double-free/after-reuse/small", "a block in use was handed out again"),
        ("overflow-write/usable-1/tiny", ""),
        ("use-after-free/read/small", "what the freed block held was read"),
        ("use-after-free/write-reused/small", "a block in use was changed"),
        ("old-content/same-size/small", "content of an old block is in a new one"),
        ("reuse/next/small", "the freed block was handed out again"),
        ("realloc/freed-grows/small", "realloc succeeded"),
        ("usable-size/freed/small", "malloc_usable_size allows bytes"),
        ("metadata/link/small", "a chosen address was handed out"),
        ("invalid-free/stack-forged/-", ""),
    ],
)
def test_harm_is_proven_where_nobody_notices(lifo: Level, case: str, harm: str) -> None:
    result = run_case(lifo, case)
    if harm:
        assert result == Result(Outcome.MISSED, harm), result
    else:
        assert result.outcome in (Outcome.MISSED, Outcome.CRASHED, Outcome.HARMLESS), result


@pytest.mark.parametrize(
    ("output", "status", "outcome"),
    [
        ("misuse: end\n", 0, Outcome.HARMLESS),
        ("misuse: harm x y\nmisuse: end\n", 0, Outcome.MISSED),
        ("misuse: harm x y\nmisuse: crashed\n", 0, Outcome.MISSED),
        ("misuse: harm x\nfree(): bad\n", -signal.SIGABRT, Outcome.LATE),
        ("misuse: harm x\n", -signal.SIGABRT, Outcome.LATE),
        ("free(): bad\n", -signal.SIGABRT, Outcome.CAUGHT),
        ("", -signal.SIGTRAP, Outcome.CAUGHT),
        ("BUG x\nmisuse: harm x\nmisuse: end\n", 0, Outcome.CAUGHT),
        ("BUG x\nmisuse: end\n", 0, Outcome.CAUGHT),
        ("misuse: trapped\n", 0, Outcome.TRAPPED),
        ("misuse: crashed\n", 0, Outcome.CRASHED),
        ("", -signal.SIGSEGV, Outcome.CRASHED),
        ("", -signal.SIGALRM, Outcome.HUNG),
        ("misuse: absent no memory\n", 0, Outcome.ABSENT),
    ],
)
def test_judgement(output: str, status: int, outcome: Outcome) -> None:
    assert judge(output, status).outcome == outcome


def test_counts_of_the_document() -> None:
    level = LEVELS[0]
    results = {
        "a/x/tiny": {level.name: Result(Outcome.CAUGHT)},
        "a/y/tiny": {level.name: Result(Outcome.HARMLESS)},
        "b/x/tiny": {level.name: Result(Outcome.ABSENT)},
        "b/y/tiny": {level.name: Result(Outcome.LATE)},
    }
    rows = as_document(results, [level], {}, {}, {})["rows"]
    figures = {row["kind"]: (row["stopped"], row["safe"], row["present"]) for row in rows}
    assert figures == {"a": (1, 2, 2), "b": (0, 0, 1), "all": (1, 2, 3)}


def test_bits() -> None:
    assert varying_bits([0b1000, 0b1010, 0b0010]) == 2
    assert guess_bits([1, 1, 2, 2]) == 1 and guess_bits([7, 7, 7]) == 0


def test_cases_are_many_and_named_once() -> None:
    cases = list_cases()
    assert len(cases) >= 120 and max(Counter(cases).values()) == 1
    assert run_program(LEVELS[0], "double-free/at-once/gigantic")[1] == 2


def test_heap_begins_at_another_address_each_time() -> None:
    """The kernel draws the place of a mapping; nothing that the library does undoes that."""
    personality = int(Path("/proc/self/personality").read_text(), 16)
    if Path("/proc/sys/kernel/randomize_va_space").read_text().strip() == "0" or (
        personality & ADDR_NO_RANDOMIZE
    ):
        pytest.skip("the kernel draws no addresses here")
    assert measure_addresses(LEVELS[0], 32)["small_bits"] >= 12


def test_command(tmp_path: Path) -> None:
    file = tmp_path / "misuse.json"
    only = "double-free/at-once/*,reuse/next/small"
    options = ("--levels", "default", "--peers", "glibc", "--runs", "4", "--each")
    done = misuse(*options, "--only", only, "--json", file)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert document["missing"] == {} and document["runs"] == 4
    assert set(document["cases"]) == {
        *(f"double-free/at-once/{size}" for size in ("tiny", "small", "medium", "pages")),
        *("double-free/at-once/large", "double-free/at-once/huge", "reuse/next/small"),
    }
    assert document["cases"]["double-free/at-once/tiny"] == {"default": "caught", "glibc": "caught"}
    assert {row["level"] for row in document["rows"]} == {"default", "glibc"}
    assert "double-free/at-once/tiny default: caught kmem: free(0x" in done.stdout
    assert set(document["addresses"]) == {"default", "glibc"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--only", "free/*"), "--only 'free/*': no case has that name"),
        (("--levels", "strict"), "--levels strict: there are none, default, check=sheaf"),
        (("--peers", "hoard"), "--peers hoard: there are none, glibc, "),
    ],
)
def test_bad_arguments(arguments: tuple[str, ...], named: str) -> None:
    done = misuse(*arguments)
    assert done.returncode == 2
    assert named in done.stderr
