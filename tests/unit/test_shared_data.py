# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The table of shared data in docs/performance.md has every lock of the library, and every variable
that threads share by the accesses of lang/atomic.h, and nothing else. The table of locks in
src/README.md has the order in which fork takes them.

A variable whose address goes to another function, which accesses it there, is not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
OUTSIDE = ("simulator", "urcu")  # beside the library
SCOPES = {"process", "node", "slot", "thread", "hash", "cache and node", "cache and slot"}

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
LOCK = re.compile(r"\bstruct (?:group_)?lock\s+(\w+)(?:\[[^]]*\])?\s*(?:;|=)")
# A variable outside functions, also behind its structure, or a static one inside.
VARIABLE = re.compile(
    r"^(?:\s+static |(?!\s|extern|typedef|return|goto|#)|\})[\w ()*,]*?[ *](\w+)(?:\[[^\]]*\])*"
    r"\s*(?:;|=|__attribute__|KMEM_\w+)",
    re.MULTILINE,
)


def helpers() -> set[str]:
    """The accesses that lang/atomic.h defines."""
    text = (SOURCE / "lang" / "atomic.h").read_text()
    return set(re.findall(r"^#define (\w+)\(", text, re.MULTILINE))


def stripped(file: Path) -> str:
    return COMMENT.sub(" ", file.read_text())


def sources() -> Iterator[tuple[str, str]]:
    for file in sorted([*SOURCE.rglob("*.c"), *SOURCE.rglob("*.h")]):
        name = file.relative_to(SOURCE).as_posix()
        if name.split("/")[0] not in OUTSIDE:
            yield name, stripped(file)


def locks_in(text: str) -> set[str]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("extern "))
    return set(LOCK.findall("\n".join(lines)))


def accessed_in(text: str) -> set[str]:
    """Names with which an argument of an atomic access begins."""
    names = "|".join(sorted(helpers()))
    return set(re.findall(rf"\b(?:{names})\(\s*&?\s*\(?\s*([A-Za-z_]\w*)", text))


def variables_in(text: str) -> dict[str, bool]:
    """Variables that outlive a function, and whether only this file sees them."""
    return {
        found[1]: found[0][:1] == "}" or "static " in found[0] for found in VARIABLE.finditer(text)
    }


def in_the_code() -> set[tuple[str, str]]:
    texts = dict(sources())
    accessed = {name: accessed_in(text) for name, text in texts.items()}
    anywhere = set().union(*accessed.values())
    found = set()
    for name, text in texts.items():
        found |= {(name, lock) for lock in locks_in(text)}
        if name.endswith(".c"):
            for variable, own in variables_in(text).items():
                if variable in (accessed[name] if own else anywhere):
                    found.add((name, variable))
    return found


def rows() -> list[list[str]]:
    text = (ROOT / "docs" / "performance.md").read_text()
    section = text[text.index("\n## Shared data\n") :].split("\n## ")[1]
    table = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    return table[2:]


def in_the_table() -> list[tuple[str, str]]:
    return [
        (row[0].strip("`"), name) for row in rows() for name in re.findall(r"`([^`]+)`", row[1])
    ]


def test_the_table_is_the_code() -> None:
    table = in_the_table()
    assert len(table) == len(set(table))
    missing, unknown = in_the_code() - set(table), set(table) - in_the_code()
    assert not missing, f"not in docs/performance.md: {sorted(missing)}"
    assert not unknown, f"not in src: {sorted(unknown)}"


def taken_by_fork() -> list[str]:
    """The locks that fork takes, outermost first; `lock` for each that is a member."""
    function = re.compile(r"^(?:static )?void (\w+)\([^;{]*\)\n{(.*?)^}", re.MULTILINE | re.DOTALL)
    bodies = {name: body for _, text in sources() for name, body in function.findall(text)}
    calls = re.compile(
        r"\b(?:(?:take|act|pool|change)\(&[^;]*?(\w+)(?:\[\w+\])?\);|(\w+)\((?:take|act))"
    )

    def taken(body: str) -> Iterator[str]:
        for lock, function in calls.findall(body):
            if lock:
                yield lock
            elif function in bodies:
                yield from taken(bodies[function])

    return list(taken(bodies["prepare"]))


def test_the_locks_are_in_the_order_of_fork() -> None:
    section = (ROOT / "src" / "README.md").read_text().split("\n## Locks\n")[1].split("\n## ")[0]
    table = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    order = re.findall(r"`(\w+)`", "".join(table))
    taken = [lock for lock in taken_by_fork() if lock != "lock"]
    assert {"cache_mutex", "drain_mutex", "slob_lock", "record_lock"} <= set(taken)
    assert not set(taken) - set(order) - {"heap_start_lock", "pool_locks", "free_lock"}
    assert [lock for lock in taken if lock in order] == [lock for lock in order if lock in taken]


def test_rows_are_whole() -> None:
    for row in rows():
        assert len(row) == 5, row
        assert row[2] in SCOPES, row
        assert all(row), row


@pytest.mark.parametrize(
    ("text", "locks", "shared"),
    [
        ("static struct lock one;", {"one"}, set()),
        ("struct a {\n  struct lock one;\n};", {"one"}, set()),
        ("extern struct lock one;", set(), set()),
        ("void f(struct lock *one);", set(), set()),
        ("struct lock many[4];", {"many"}, set()),
        ("/* struct lock one; */", set(), set()),
        ("static uint32_t word;\nvoid f(void)\n{\n  add_relaxed(&word, 1);\n}", set(), {"word"}),
        ("static uint32_t word;\nvoid f(void)\n{\n  word++;\n}", set(), set()),
        ("void f(void)\n{\n  static bool on;\n  load_relaxed(&on);\n}", set(), {"on"}),
        ("void f(void)\n{\n  bool on = 0;\n\n  load_relaxed(&on);\n}", set(), set()),
        ("struct s all[2] = {0};\nint f(void)\n{\n  load_acquire(&all[1].x);\n}", set(), {"all"}),
    ],
)
def test_what_counts(text: str, locks: set[str], shared: set[str]) -> None:
    text = COMMENT.sub(" ", text)
    assert locks_in(text) == locks
    assert set(variables_in(text)) & accessed_in(text) == shared


def test_all_accesses_are_known() -> None:
    assert {"load_acquire", "store_release", "compare_swap", "add_owned"} <= helpers()
