# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Build the C tests of suite `compilers` with gcc's sanitizers, on locked slots.

    sanitizers.py address|thread

`address` is AddressSanitizer with UndefinedBehaviorSanitizer, `thread` is ThreadSanitizer. A
sanitizer brings its own malloc and knows no restartable sequences, so it sees caches and
protocols, but neither the drop-in nor the sequences. Tests that cannot run are left out by name,
and the reason is printed. run_tests.py runs the others; this program only builds them.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import compilers
import ending

ROOT = Path(__file__).resolve().parent.parent

OWN_MALLOC = "takes malloc or operator new from libkmem, and the sanitizer has its own"
OWN_OPTIONS = "names its options, so the reclaim thread runs, which ThreadSanitizer does not know"
OWN_HANDLER = "ends processes by faults, and the sanitizer has a handler of its own"


@dataclass(frozen=True)
class Kind:
    """A sanitizer: what Meson is told, how tests run, and which cannot."""

    folder: Path
    arguments: tuple[str, ...]
    environment: dict[str, str]
    wrapper: tuple[str, ...]  # in front of `meson test`
    left_out: dict[str, str]  # reasons by name
    chosen: tuple[str, ...] = ()  # the only tests; all if there are none


KINDS = {
    "address": Kind(
        ROOT / "build-asan",
        ("-Db_sanitize=address,undefined",),
        # What a test leaves allocated at its end is no fault here.
        {
            "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:abort_on_error=1",
            "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_stacktrace=1",
        },
        (),
        {
            "cxx": OWN_MALLOC,
            "group": OWN_MALLOC,
            "guards": OWN_HANDLER,
            "hardened": OWN_MALLOC,
            "malloc": OWN_MALLOC,
            "registry": "forks ten thousand times, and each child copies the shadow memory",
            "slob slots=rseq": "is 'slob slots=locked' where there are locked slots only",
        },
    ),
    "thread": Kind(
        ROOT / "build-tsan",
        # It does not know fences; pairs of them are in base/rcu.c, beside the accesses it checks.
        ("-Db_sanitize=thread", "-Dc_args=-Wno-tsan"),
        {"KMEM_OPTIONS": "reclaim_thread=off", "TSAN_OPTIONS": "halt_on_error=0"},
        # Addresses of a program that is placed at random may lie where its shadow memory is.
        ("setarch", "-R"),
        {
            "group": OWN_MALLOC,
            "malloc": OWN_MALLOC,
            "percpu": "a child refuses system calls that ThreadSanitizer needs",
            "profile": "maps memory where ThreadSanitizer does not allow it",
            "reclaim": "starts the reclaim thread, which ThreadSanitizer does not know",
            "registry": "allocates in signal handlers, as fork does under ThreadSanitizer",
            "slob slots=locked": OWN_OPTIONS,
            "slob slots=rseq": OWN_OPTIONS,
        },
        (
            "attributes",
            "cache",
            "debug",
            "deferred",
            "failslab",
            "handed",
            "hotplug",
            "info",
            "kmalloc",
            "mempool",
            "metadata",
            "nodes",
            "rcu",
            "row_walk",
            "runs",
            "slab_tune",
            "slub_policies_checked",
            "slub_transitions_checked",
            "typed",
        ),
    ),
}


def programs(kind: Kind) -> dict[str, str]:
    """The program of each test that runs, by the test's name."""
    return {
        name: program
        for name, program in compilers.tests(kind.folder).items()
        if name not in kind.left_out and (not kind.chosen or name in kind.chosen)
    }


def build(kind: Kind) -> str:
    """Configure and build; the reason if that failed."""
    arguments = ["-Dslots=locked", "-Doptimization=1", *kind.arguments]
    if reason := compilers.configure(kind.folder, "gcc", arguments):
        return reason
    log, status = compilers.make(kind.folder, lambda: sorted(set(programs(kind).values())))
    return f"the build failed, see {log}" if status else ""


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in KINDS:
        print(f"usage: sanitizers.py {'|'.join(KINDS)}", file=sys.stderr)
        return 2
    kind = KINDS[sys.argv[1]]
    if reason := build(kind):
        print(reason, file=sys.stderr)
        return 1
    for name, reason in kind.left_out.items():
        print(f"left out: {name}: {reason}")
    names = " ".join(f"'{name}'" for name in programs(kind))
    folder = os.path.relpath(kind.folder)
    print(f"built; they run with: meson test -C {folder} --no-rebuild {names}")
    return 0


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main())
