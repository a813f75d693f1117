# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Real programs as rows of measurements: each run repeats a program's work on its input.

A program is prepared once, in a folder of its own, on the C library's malloc. A run then measures
the program alone; for a server, it measures the server and not its client. Compilers are in
compilers.py, servers in servers.py and web.py, and the list of all in program_list.py.
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


# ---- sqlite3, python3, perl, node, ruby, java ----------------------------------------------------


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


def ruby(folder: Path, scale: float) -> Run:
    return run_command(folder, ["/usr/bin/ruby", str(INPUTS / "words.rb"), str(times(scale, 6))])


def java(folder: Path, scale: float) -> Run:
    """A source file: Java's own compiler runs first, in the same process."""
    options = ["-XX:+UseSerialGC", "-Xmx256m", "-Xshare:auto", f"-Djava.io.tmpdir={folder}"]
    script = str(INPUTS / "Words.java")
    return run_command(folder, ["/usr/bin/java", *options, script, str(times(scale, 6))])


# ---- imagemagick --------------------------------------------------------------------------------


def imagemagick(folder: Path, scale: float) -> Run:
    """Draws, distorts, scales and blurs images, and says what the last one is."""
    side = times(scale**0.5, 900)
    command = ["/usr/bin/convert-im6.q16", "-limit", "thread", "1", "-size", f"{side}x{side}"]
    command += ["gradient:navy-gold", "-swirl", "120", "-wave", "9x90", "-resize", "130%"]
    command += ["-gaussian-blur", "0x1.5", "-colors", "200", "-format", "%w %h %k %#", "info:"]
    return run_command(folder, command)


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
