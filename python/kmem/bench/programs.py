# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Real programs as rows of measurements: each run repeats a program's work on its input.

A program is prepared once, in a folder of its own, on the C library's malloc. A run then measures
the program alone; for a server, it measures the server and not its client. Servers are in
servers.py.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kmem.bench.allocators import GLIBC, Allocator
from kmem.bench.timed import RunError, Sample, timed_run
from kmem.common.tree import ROOT

INPUTS = ROOT / "bench" / "programs"

# Run a program on an allocator, with environment variables added to the caller's.
Run = Callable[[Allocator, Mapping[str, str]], Sample]

LARGEST_PROCESS = "its largest process"


@dataclass(frozen=True)
class Program:
    """`prepare` takes a folder and the scale of the work.

    Scale 1 takes 0.5 to 3 s on glibc's malloc.
    """

    name: str
    stands_for: str
    packages: tuple[str, ...]  # names of Debian packages
    files: tuple[str, ...]  # files that must exist
    prepare: Callable[[Path, float], Run]
    memory_of: str = ""  # name of the process to measure, if there are several

    def missing(self) -> list[str]:
        return [file for file in self.files if not Path(file).exists()]


def times(scale: float, whole: int) -> int:
    """WHOLE multiplied by the scale, but at least 1."""
    return max(1, round(whole * scale))


def run_command(folder: Path, command: list[str]) -> Run:
    return partial(timed_run, folder, command)


# ---- sqlite3, python3, perl, node ---------------------------------------------------------------


def sqlite3(folder: Path, scale: float) -> Run:
    rows = f".parameter set :rows {times(scale, 500_000)}"
    script = f".read {INPUTS / 'rows.sql'}"
    return run_command(folder, ["/usr/bin/sqlite3", "-batch", "-cmd", rows, ":memory:", script])


def python3(folder: Path, scale: float) -> Run:
    script = str(INPUTS / "json_regex.py")
    return run_command(folder, ["/usr/bin/python3", "-S", script, str(times(scale, 12_000))])


def perl(folder: Path, scale: float) -> Run:
    return run_command(folder, ["/usr/bin/perl", str(INPUTS / "words.pl"), str(times(scale, 8))])


def node(folder: Path, scale: float) -> Run:
    script = str(INPUTS / "buffers.js")
    return run_command(folder, ["/usr/bin/node", script, str(times(scale, 25))])


# ---- gcc ----------------------------------------------------------------------------------------


def c_function(number: int) -> str:
    """C source with loops, branches, and calls of the function before."""
    called = f"work_{number - 1}(node->next, steps / 2)" if number % 3 else "steps"
    cases = "".join(
        f"    case {c}: node->count[{c % 4}] += sum >> {c + number % 11};"
        f" sum = sum * {2 * c + 3} + node->key; break;\n"
        for c in range(6)
    )
    return (
        f"uint64_t work_{number}(struct node *node, uint64_t steps) {{\n"
        f"  uint64_t sum = {number * 2654435761 % 4294967296}u;\n"
        "  for (uint64_t k = 0; k < steps && node; k++) {\n"
        f"    switch ((node->key ^ k) % 7) {{\n{cases}"
        f"    default: sum ^= {called}; node->key += k;\n"
        "    }\n"
        "    if (sum & 1) node = node->next; else node->count[k & 3] -= sum;\n"
        "  }\n"
        "  return sum;\n"
        "}\n"
    )


def gcc(folder: Path, scale: float) -> Run:
    source = folder / "large.c"
    head = "#include <stdint.h>\nstruct node { struct node *next; uint64_t key, count[4]; };\n"
    source.write_text(head + "".join(map(c_function, range(times(scale, 95)))))
    return run_command(folder, ["/usr/bin/gcc", "-O1", "-S", "-o", "-", str(source)])


# ---- git ----------------------------------------------------------------------------------------

GIT_FILES = 60


def git_file(number: int, version: int) -> str:
    lines = (
        f"line {i} of file {number}: {i * i * (version if i % 25 == 0 else 1) % 9973}"
        for i in range(200 + number % 50)
    )
    return "\n".join(lines) + "\n"


def git_history(commits: int) -> Iterator[str]:
    """Input for git fast-import; each commit rewrites three files."""
    for number in range(commits):
        message = f"Change number {number}\n"
        yield f"commit refs/heads/main\nmark :{number + 1}\n"
        yield f"committer A U Thor <author@example.org> {1_700_000_000 + number * 60} +0000\n"
        yield f"data {len(message)}\n{message}"
        if number:
            yield f"from :{number}\n"
        for offset in range(3):
            file = (number * 3 + offset) % GIT_FILES
            content = git_file(file, number)
            yield f"M 100644 inline folder{file % 7}/file{file}.txt\n"
            yield f"data {len(content)}\n{content}\n"
    yield "done\n"


def git(folder: Path, scale: float) -> Run:
    """git log of all commits with their differences, written to a file."""
    alone = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    history = "".join(git_history(times(scale, 2500)))
    timed_run(folder, ["/usr/bin/git", "init", "-q", "--bare", "history"], GLIBC, alone)
    repository = folder / "history"
    importer = ["/usr/bin/git", "-C", str(repository), "fast-import", "--quiet", "--done"]
    timed_run(folder, importer, GLIBC, alone, history)
    output = folder / "log"
    log = ["/usr/bin/git", "-C", str(repository), "log", "-p", "--stat", "-M"]
    log += [f"--output={output}", "main"]

    def run(allocator: Allocator, extra: Mapping[str, str]) -> Sample:
        sample = timed_run(folder, log, allocator, {**alone, **extra})
        return replace(sample, output=hashlib.sha256(output.read_bytes()).hexdigest())

    return run


# ---- z3 -----------------------------------------------------------------------------------------

PRIMES = (149, 151, 157, 163, 167, 173, 179, 181, 191, 193, 197, 199, 211, 223)
FACTOR_BITS = 16


def z3_question(number: int) -> str:
    """Factor a product of two primes, as bit vectors."""
    product = PRIMES[number % 14] * PRIMES[(number * 5 + 3) % 14]
    vector = f"(_ BitVec {FACTOR_BITS})"
    wide = f"(_ zero_extend {FACTOR_BITS})"
    return (
        f"(reset)\n(declare-const x {vector})\n(declare-const y {vector})\n"
        f"(assert (= (_ bv{product} {2 * FACTOR_BITS}) (bvmul ({wide} x) ({wide} y))))\n"
        f"(assert (bvugt x (_ bv1 {FACTOR_BITS})))\n(assert (bvule x y))\n"
        "(check-sat)\n(get-value (x y))\n"
    )


def z3(folder: Path, scale: float) -> Run:
    questions = folder / "factors.smt2"
    questions.write_text("".join(map(z3_question, range(times(scale, 4)))))
    command = ["/usr/bin/z3", str(questions)]

    def run(allocator: Allocator, extra: Mapping[str, str]) -> Sample:
        sample = timed_run(folder, command, allocator, extra)
        if "error" in sample.output or "unknown" in sample.output:
            raise RunError(f"z3: {sample.output.strip()[-200:]}")
        return sample

    return run


# ---- stress-ng ----------------------------------------------------------------------------------


def stress_ng(folder: Path, scale: float) -> Run:
    """Two processes that check the bytes they wrote. The output counts as equal whatever it says,
    because it has times in it.

    stress-ng calls malloc_trim now and then, so an allocator that implements it pays for it here.
    """
    command = ["/usr/bin/stress-ng", "--malloc", "2", "--malloc-bytes", "64K", "--seed", "1"]
    command += ["--malloc-max", "4096", "--malloc-ops", str(times(scale, 300_000))]
    command += ["--verify", "--temp-path", str(folder)]

    def run(allocator: Allocator, extra: Mapping[str, str]) -> Sample:
        return replace(timed_run(folder, command, allocator, extra), output="")

    return run
