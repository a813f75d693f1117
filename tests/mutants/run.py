#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Mutants: builds with one step of a protocol removed, which the tests must catch.

    run.py [--rounds N] [--keep DIRECTORY] [NAME...]

Copies the tree, checks that the tests pass on it, then for each mutant of
mutants.toml (or those whose name or protocol contains a NAME) applies its
edits, rebuilds what depends on them, and runs its tests with one seed after
the other until one fails, crashes or hangs. Prints a table and exits with 1 if
a mutant survives, or with 2 if an edit does not apply exactly once or a test
fails without any mutant.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

import ending  # noqa: E402

SKIPPED = 77
RUN_SECONDS = 90  # a run that takes longer hangs

FLAGS = [
    *("-std=gnu17", "-O2", "-g", "-w", "-pthread"),
    *("-fvisibility=hidden", "-fcf-protection=none", "-fomit-frame-pointer"),
    *("-fno-builtin-malloc", "-fno-builtin-calloc", "-fno-semantic-interposition"),
    "-DKMEM_SWAP_HOOK=1",  # weak: some tests of slabs have one
]

WALKERS = ["unit/walker.c", "unit/walk_slab.c", "unit/slob_walk.c"]

PAGE_WRAPS = ["commit", "faults", "map", "page_bytes", "purge", "remap", "time_ms"]
ZONE_WRAPS = [*PAGE_WRAPS, "bind", "current_node", "near_node"]

# What a program consists of besides the library: sources under tests/, link arguments.
PROGRAMS: dict[str, tuple[list[str], list[str]]] = {
    "attack": (["stress/attack.c", "stress/checked.c", "stress/crowd.c", *WALKERS], []),
    "test_code_map": (
        ["unit/test_code_map.c", "unit/child.c", *WALKERS],
        ["-lcmocka", "-Wl,--wrap=system_sleep_ns"],
    ),
    "test_debug": (
        ["unit/test_debug.c", "unit/child.c", *WALKERS],
        ["-lcmocka", "-Wl,--wrap=metadata_alloc", "-Wl,--wrap=stack_capture"],
    ),
    "test_group": (
        ["unit/test_group.c", "unit/child.c", *WALKERS],
        ["-lcmocka", "-Wl,--wrap=metadata_alloc", "-Wl,--wrap=system_sleep_ns"],
    ),
    "test_fresh": (["unit/test_fresh.c", "unit/child.c", *WALKERS], ["-lcmocka"]),
    "test_bulk_chains": (["unit/test_bulk_chains.c", "unit/child.c", *WALKERS], ["-lcmocka"]),
    "test_malloc": (["unit/test_malloc.c", "unit/child.c", *WALKERS], ["-lcmocka"]),
    "test_hardened": (["unit/test_hardened.c", "unit/child.c", *WALKERS], ["-lcmocka"]),
    "test_kmalloc": (["unit/test_kmalloc.c", "unit/child.c", *WALKERS], ["-lcmocka"]),
    "test_mempool": (
        ["unit/test_mempool.c", "unit/child.c", *WALKERS],
        [
            "-lcmocka",
            *(f"-Wl,--wrap={call}" for call in ("event_sleep", "lock_wait", "lock_wake")),
        ],
    ),
    "test_guards": (["unit/test_guards.c", "unit/child.c", *WALKERS], ["-lcmocka"]),
    "test_page": (
        ["unit/test_page.c", "unit/page_model.c", "unit/system_wrap.c"],
        ["-lcmocka", *(f"-Wl,--wrap=system_{call}" for call in PAGE_WRAPS)],
    ),
    "test_large": (
        ["unit/test_large.c", "unit/system_wrap.c"],
        ["-lcmocka", *(f"-Wl,--wrap=system_{call}" for call in PAGE_WRAPS)],
    ),
    "test_percpu": (["unit/test_percpu.c", "unit/child.c", *WALKERS], ["-lcmocka"]),
    "test_profile": (
        ["unit/test_profile.c", "unit/child.c", *WALKERS],
        ["-lcmocka", "-Wl,--wrap=handed_mark"],
    ),
    "test_rcu": (
        ["unit/test_rcu.c", "unit/child.c", *WALKERS],
        [
            "-lcmocka",
            *(f"-Wl,--wrap={call}" for call in ("rcu_wait", "rcu_poll_seldom", "metadata_alloc")),
            *(f"-Wl,--wrap={call}" for call in ("blocks_free", "rcu_sheaf_end", "lock_wait")),
        ],
    ),
    "test_row_walk": (["unit/test_row_walk.c"], ["-lcmocka"]),
    "test_shared_file": (["unit/test_shared_file.c", "unit/child.c", *WALKERS], ["-lcmocka"]),
    "test_slab_tune": (
        ["unit/test_slab_tune.c", "unit/child.c", *WALKERS],
        ["-lcmocka", *(f"-Wl,--wrap=metadata_{call}" for call in ("alloc", "free"))],
    ),
    "test_slub_layout": (["unit/test_slub_layout.c", "unit/child.c", *WALKERS], ["-lcmocka"]),
    "test_slub_policies": (["unit/test_slub_policies.c", "unit/child.c", *WALKERS], ["-lcmocka"]),
    "test_slub_transitions": (
        ["unit/test_slub_transitions.c", "unit/child.c", *WALKERS],
        ["-lcmocka"],
    ),
    "test_reclaim": (
        ["unit/test_reclaim.c", "unit/child.c", *WALKERS],
        [
            "-lcmocka",
            "-Wl,--wrap=thread_clone",
            *(f"-Wl,--wrap=system_{call}" for call in ("time_ms", "reserve", "page_bytes")),
        ],
    ),
    "test_registry": (
        ["unit/test_registry.c", "unit/child.c", *WALKERS],
        ["-lcmocka", "-Wl,--wrap=file_read"],
    ),
    "test_slub_chains": (
        ["unit/test_slub_chains.c", "unit/child.c", *WALKERS],
        ["-lcmocka"],
    ),
    "test_slub_lists": (
        ["unit/test_slub_lists.c", "unit/child.c", *WALKERS],
        [
            "-lcmocka",
            *(
                f"-Wl,--wrap={call}"
                for call in ("pages_alloc_many", "metadata_alloc", "metadata_alloc_many")
            ),
        ],
    ),
    "test_slub_refill": (["unit/test_slub_refill.c", "unit/child.c", *WALKERS], ["-lcmocka"]),
    "vfork": (["stress/vfork.c"], []),
    "test_zones": (
        ["unit/test_zones.c", "unit/page_model.c", "unit/system_wrap.c"],
        ["-lcmocka", *(f"-Wl,--wrap=system_{call}" for call in ZONE_WRAPS)],
    ),
}
# Libraries that a program opens, beside it: file, source under tests/, arguments.
OPENED: dict[str, list[tuple[str, str, list[str]]]] = {
    "test_row_walk": [
        ("row_walk_small.so", "unit/row_walk_module.c", ["-DMODULE_FRAME_BYTES=1024"]),
        ("row_walk_large.so", "unit/row_walk_module.c", ["-DMODULE_FRAME_BYTES=2048"]),
    ],
}
WITHOUT_MALLOC = {name for name in PROGRAMS if name.startswith("test_")} - {
    "test_group",
    "test_malloc",
    "test_hardened",
}
# Files of malloc that they have all the same.
WITH_FILES = {"test_guards": {"src/malloc/signals.c"}}


LEFT_OUT = {"lab", "urcu", "simulator", "unwind.c", "older_libc.c", "newer_names.c"}


class MutantError(Exception):
    """A mutant that cannot be built as it is written down; the text is for people."""


@dataclass
class Test:
    name: str
    program: str
    options: str
    arguments: list[str]
    seeded: bool


@dataclass
class Mutant:
    name: str
    protocol: str
    why: str
    tests: list[str]
    edits: list[dict[str, str]]


@dataclass
class Tree:
    """A copy of the sources with its objects."""

    path: Path
    objects: dict[str, Path] = field(default_factory=dict)  # by source, relative to the tree
    depends: dict[str, set[str]] = field(default_factory=dict)  # files a source includes

    def compile(self, sources: list[str]) -> None:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for source, (made, depends) in zip(
                sources, pool.map(self.compile_one, sources), strict=True
            ):
                self.objects[source] = made
                self.depends[source] = depends

    def compile_one(self, source: str) -> tuple[Path, set[str]]:
        made = self.path / "objects" / (source.replace("/", "_") + ".o")
        made.parent.mkdir(exist_ok=True)
        listing = made.with_suffix(".d")
        command = ["gcc", *FLAGS, "-MMD", "-MF", str(listing), "-c", source, "-o", str(made)]
        command += ["-Isrc", "-Iinclude", "-Itests", "-Itests/unit", "-Itests/stress"]
        done = subprocess.run(command, cwd=self.path, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MutantError(f"{source} does not compile:\n{done.stderr}")
        words = listing.read_text().replace("\\\n", " ").split()[1:]
        return made, {word for word in words if not word.startswith("/")}

    def link(self, program: str) -> Path:
        made = self.path / program
        sources, arguments = PROGRAMS[program]
        objects = [self.objects[f"tests/{source}"] for source in sources]
        for source, compiled in self.objects.items():
            library = source.startswith("src/")
            malloc = source.startswith("src/malloc/")
            left_out = malloc and source not in WITH_FILES.get(program, set())
            if library and not (program in WITHOUT_MALLOC and left_out):
                objects.append(compiled)
        commands = [["gcc", "-pthread", *map(str, objects), *arguments, "-o", str(made)]]
        for name, source, flags in OPENED.get(program, []):
            shared = ["gcc", *FLAGS, "-fPIC", "-shared", f"tests/{source}"]
            commands.append([*shared, *flags, "-o", name])
        for command in commands:
            done = subprocess.run(
                command, cwd=self.path, capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise MutantError(f"{program} does not link:\n{done.stderr}")
        return made


def copy_tree(source: Path, target: Path) -> Tree:
    for name in ("src", "include", "tests/unit", "tests/stress"):
        shutil.copytree(source / name, target / name)
    shutil.copy(source / "tests/exec.h", target / "tests")
    return Tree(target)


def build_base(target: Path) -> Tree:
    tree = copy_tree(ROOT, target)
    # lab/ and urcu/ are no part of the library and need others; simulator/ stands in for others.
    # These three are of the shared libraries alone, as in the build: without them libc is asked.
    sources = sorted(
        str(path.relative_to(target))
        for path in (target / "src").rglob("*.c")
        if not LEFT_OUT & set(path.relative_to(target).parts)
    )
    sources += sorted({f"tests/{name}" for parts, _ in PROGRAMS.values() for name in parts})
    tree.compile(sources)
    return tree


def source_of(edit: dict[str, str]) -> str:
    """An edit's file as the compiler names it; the file is written relative to src/."""
    return os.path.normpath(f"src/{edit['file']}")


def check_edits(mutants: list[Mutant]) -> None:
    """Every text must be found, also those of mutants that are not asked for."""
    for mutant in mutants:
        for edit in mutant.edits:
            found = (ROOT / source_of(edit)).read_text().count(edit["find"])
            if found != 1:
                raise MutantError(
                    f'"{mutant.name}": its text occurs {found} times in {source_of(edit)}, '
                    f"expected 1:\n{edit['find']}"
                )


def apply_edits(tree: Tree, mutant: Mutant) -> set[str]:
    """Edits the sources; returns the files changed."""
    for edit in mutant.edits:
        path = tree.path / source_of(edit)
        path.write_text(path.read_text().replace(edit["find"], edit["replace"]))
    return {source_of(edit) for edit in mutant.edits}


def build_mutant(base: Tree, mutant: Mutant, target: Path) -> Tree:
    """The base's objects, but for those that depend on an edited file."""
    tree = copy_tree(base.path, target)
    changed = apply_edits(tree, mutant)
    tree.objects = dict(base.objects)
    tree.compile([source for source, files in base.depends.items() if files & changed])
    return tree


def run_test(program: Path, test: Test, seed: int) -> str:
    """Empty if it passed, "skipped", or how it failed in a few words."""
    environment = os.environ | {"KMEM_OPTIONS": test.options}
    command = [str(program), *test.arguments, *([f"seed={seed}"] if test.seeded else [])]
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=RUN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "hang"
    if done.returncode == 0:
        return ""
    if done.returncode == SKIPPED:
        return "skipped"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    telling = [line for line in lines if "check failed" in line or "FAILED" in line]
    said = (telling or lines or [""])[0]
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit {done.returncode}"
    return f"{how}: {said}"[:160]


def catch(tree: Tree, mutant: Mutant, tests: dict[str, Test], rounds: int) -> tuple[str, str]:
    """The test that caught the mutant and how; empty if none did."""
    programs = {name: tree.link(name) for name in {tests[name].program for name in mutant.tests}}
    for seed in range(1, rounds + 1):
        for name in mutant.tests:
            test = tests[name]
            if seed > 1 and not test.seeded and len(mutant.tests) > 1:
                continue
            how = run_test(programs[test.program], test, seed)
            if how not in ("", "skipped"):
                return f"{name}, run {seed}", how
    return "", ""


def check_base(base: Tree, tests: dict[str, Test], used: set[str]) -> None:
    programs = {name: base.link(name) for name in PROGRAMS}
    for name in sorted(used):
        how = run_test(programs[tests[name].program], tests[name], 1)
        if how == "skipped":
            raise MutantError(f"test {name} cannot run here")
        if how:
            raise MutantError(f"test {name} fails without any mutant: {how}")


def read_file() -> dict[str, Any]:
    with (Path(__file__).parent / "mutants.toml").open("rb") as file:
        return tomllib.load(file)


def read_definitions() -> tuple[dict[str, Test], list[Mutant]]:
    content = read_file()
    tests = {
        name: Test(
            name=name,
            program=entry["program"],
            options=entry.get("options", ""),
            arguments=entry.get("arguments", []),
            seeded=entry["program"] in ("attack", "vfork"),
        )
        for name, entry in content["tests"].items()
    }
    mutants = [
        Mutant(entry["name"], entry["protocol"], entry["why"], entry["tests"], entry["edit"])
        for entry in content["mutant"]
    ]
    return tests, mutants


def run(arguments: argparse.Namespace, work: Path) -> int:
    tests, mutants = read_definitions()
    check_edits(mutants)
    if arguments.names:
        mutants = [
            mutant
            for mutant in mutants
            if any(name in f"{mutant.name} / {mutant.protocol}" for name in arguments.names)
        ]
    base = build_base(work / "base")
    check_base(base, tests, {name for mutant in mutants for name in mutant.tests})
    survivors = 0
    for number, mutant in enumerate(mutants):
        start = time.monotonic()
        target = work / f"mutant-{number}"
        by, how = catch(build_mutant(base, mutant, target), mutant, tests, arguments.rounds)
        seconds = time.monotonic() - start
        survivors += not by
        verdict = f"caught by {by} ({how})" if by else f"SURVIVED {', '.join(mutant.tests)}"
        print(f"{mutant.protocol}: {mutant.name}: {verdict}, {seconds:.0f} s", flush=True)
        if not arguments.keep:
            shutil.rmtree(target)
    for entry in read_file()["uncatchable"]:
        print(f"{entry['protocol']}: {entry['name']}: not tried: {entry['why']}")
    print(f"{len(mutants) - survivors} of {len(mutants)} mutants caught")
    return 1 if survivors else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests against mutants.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--keep", type=Path, help="build here and keep it")
    arguments = parser.parse_args()
    try:
        if arguments.keep:
            return run(arguments, arguments.keep)
        with tempfile.TemporaryDirectory(prefix="kmem-mutants-") as work:
            return run(arguments, Path(work))
    except MutantError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main())
