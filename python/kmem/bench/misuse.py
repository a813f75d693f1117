# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench misuse`: what becomes of heap misuse, on libkmem at each level and elsewhere.

tests/misuse has the cases, programs that misuse the heap and prove what it led to. Each case runs
by itself, on every allocator. The command also measures how well an attacker can guess where blocks
lie.
"""

import math
import platform
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from kmem.bench import peers
from kmem.bench.allocators import LIBKMEM, Allocator, preloadable
from kmem.bench.crates import DEFENDED, check_library
from kmem.bench.suite import commit, words_of
from kmem.bench.timed import clean_environment
from kmem.common.errors import BadUsage, KmemError
from kmem.common.files import write_json
from kmem.common.tree import BUILD, build, need_tree

PROGRAM = BUILD / "tests" / "misuse" / "misuse"
TIMEOUT = 200.0  # seconds; the program ends itself after 4 of CPU time, or 150
OWN_LINE = "misuse: "
OPTIONS = "KMEM_OPTIONS"
TABLE_WIDTH = 170  # columns; a narrower terminal wraps lines
# Older releases of allocators that are there anyway.
LEFT_OUT = ("mimalloc", "jemalloc", "tcmalloc")


class Outcome(StrEnum):
    """What became of a misuse, best first."""

    CAUGHT = "caught"  # the allocator ended the program or said what is wrong, before any harm
    TRAPPED = "trapped"  # the wrong access was a fault of the processor
    HARMLESS = "harmless"  # the program went on, and no harm was found
    LATE = "late"  # the allocator noticed something, after the harm
    CRASHED = "crashed"  # a fault somewhere else, without harm before
    HUNG = "hung"
    MISSED = "missed"  # harm, and nobody noticed
    ABSENT = "absent"  # the case makes no sense here


STOPPED = (Outcome.CAUGHT, Outcome.TRAPPED)
SAFE = (*STOPPED, Outcome.HARMLESS)


@dataclass(frozen=True)
class Level:
    """An allocator with options; those of libkmem are the levels of its protection."""

    name: str
    allocator: Allocator
    options: str = ""


# debug_abort: the first report ends the program, as the other levels' does.
LEVELS = (
    Level("default", LIBKMEM),
    Level("check=sheaf", LIBKMEM, "check=sheaf"),
    Level("protect=hardened", LIBKMEM, "protect=hardened"),
    Level("debug=FZP", LIBKMEM, "debug=FZP,large.debug=Z,debug_abort=1"),
    Level("engine=slab", LIBKMEM, "engine=slab"),
    Level("engine=slob", LIBKMEM, "engine=slob"),
)


@dataclass(frozen=True)
class Result:
    """The outcome of a case, with the line that tells why."""

    outcome: Outcome
    line: str = ""
    status: int = 0
    said: tuple[str, ...] = ()  # lines that the program did not write itself


def environment_of(level: Level) -> dict[str, str]:
    """The environment of a run. The caller's options would make the levels something else."""
    environment = {k: v for k, v in clean_environment().items() if k != OPTIONS}
    if level.allocator.library is not None:
        environment["LD_PRELOAD"] = preloadable(level.allocator.library)
    if level.options:
        environment[OPTIONS] = level.options
    return environment


def judge(output: str, status: int) -> Result:
    """What a run's lines and end say. Both of its outputs are in `output`, in their order."""
    foreign: list[str] = []
    harm = None
    noticed_first = False
    last = ""
    for line in filter(None, output.splitlines()):
        if not line.startswith(OWN_LINE):
            foreign.append(line)
            continue
        last, _, text = line.removeprefix(OWN_LINE).partition(" ")
        if last == "harm":
            harm, noticed_first = text, bool(foreign)
        elif last == "absent":
            return Result(Outcome.ABSENT, text)
    first = foreign[0] if foreign else ""
    if status in (-signal.SIGALRM, -signal.SIGXCPU):
        return Result(Outcome.HUNG, "no end", status, tuple(foreign))
    if status < 0 and not first:
        first = signal.Signals(-status).name
    crashed = last == "crashed" or status in (-signal.SIGSEGV, -signal.SIGBUS)
    noticed = bool(foreign) or (status != 0 and not crashed)
    if harm is not None and not noticed_first:
        return Result(Outcome.LATE if noticed else Outcome.MISSED, harm, status, tuple(foreign))
    if noticed:
        return Result(Outcome.CAUGHT, first, status, tuple(foreign))
    if last == "trapped":
        return Result(Outcome.TRAPPED, "", status)
    if crashed:
        return Result(Outcome.CRASHED, first, status)
    return Result(Outcome.HARMLESS, "", status)


def run_program(level: Level, *arguments: str) -> tuple[str, int]:
    """What the program writes to both of its outputs, and its status."""
    try:
        done = subprocess.run(
            [PROGRAM, *arguments],
            env=environment_of(level),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", -signal.SIGALRM
    return done.stdout, done.returncode


def run_case(level: Level, case: str) -> Result:
    return judge(*run_program(level, case))


def list_cases() -> list[str]:
    done = subprocess.run([PROGRAM], capture_output=True, text=True, check=True)
    return done.stdout.split()


def choose_cases(only: str | None) -> list[str]:
    cases = list_cases()
    if only is None:
        return cases
    patterns = words_of(only)
    for pattern in patterns or [only]:
        if not any(fnmatchcase(case, pattern) for case in cases):
            kinds = ", ".join(dict.fromkeys(case.split("/")[0] for case in cases))
            raise BadUsage(
                f"bench misuse: --only {pattern!r}: no case has that name; expected patterns as"
                f" 'double-free/*/small'; kinds are {kinds}"
            )
    return [case for case in cases if any(fnmatchcase(case, pattern) for pattern in patterns)]


# ---- Where blocks lie ----------------------------------------------------------------------------


@dataclass
class Addresses:
    """Addresses of the first block of each size, and distances between blocks, of many runs."""

    first: dict[str, list[int]] = field(default_factory=dict)
    distances: list[list[int]] = field(default_factory=list)

    def add(self, output: str) -> None:
        distances = []
        for line in output.splitlines():
            name, _, number = line.partition(" ")
            if name == "distance":
                distances.append(int(number))
            else:
                self.first.setdefault(name, []).append(int(number))
        self.distances.append(distances)


def varying_bits(addresses: Sequence[int]) -> int:
    """How many bits of an address differ in some runs."""
    changed = 0
    for address in addresses:
        changed |= address ^ addresses[0]
    return changed.bit_count()


def guess_bits(values: Iterable[object]) -> float:
    """Bits that the best guess of a value lacks: 0 if it is right always, 1 if every other time."""
    counts = Counter(values)
    return math.log2(counts.total() / max(counts.values()))


def measure_addresses(level: Level, runs: int) -> dict[str, float]:
    found = Addresses()
    for _ in range(runs):
        output, status = run_program(level, "addresses")
        if status != 0:
            raise KmemError(f"misuse addresses on {level.name}: status {status}")
        found.add(output)
    pairs = [distance for run in found.distances for distance in run]
    return {
        "small_bits": varying_bits(found.first["small"]),
        "pages_bits": varying_bits(found.first["pages"]),
        "huge_bits": varying_bits(found.first["huge"]),
        "between_sizes_bits": guess_bits(
            a - b for a, b in zip(found.first["pages"], found.first["small"], strict=True)
        ),
        "next_block_bits": guess_bits(pairs),
        "order_bits": guess_bits(tuple(run) for run in found.distances),
    }


ADDRESS_COLUMNS = {
    "small_bits": "bits of a small block's address",
    "pages_bits": "of 100,000 bytes",
    "huge_bits": "of 40 MB",
    "between_sizes_bits": "from one to the other",
    "next_block_bits": "to the next block",
    "order_bits": "of 33 blocks",
}


# ---- Tables --------------------------------------------------------------------------------------


Results = dict[str, dict[str, Result]]  # by case, then by level


def kinds_of(cases: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(case.split("/")[0] for case in cases))


def count(results: Results, level: str, kind: str | None = None) -> Counter[Outcome]:
    """How often each outcome occurs, of all cases or of a kind's."""
    return Counter(
        row[level].outcome
        for case, row in results.items()
        if kind is None or case.split("/")[0] == kind
    )


def of_those(counts: Mapping[Outcome, int], wanted: Sequence[Outcome]) -> tuple[int, int]:
    """How many have a wanted outcome, and how many make sense."""
    present = sum(counts.values()) - counts.get(Outcome.ABSENT, 0)
    return sum(counts.get(outcome, 0) for outcome in wanted), present


def table(
    results: Results, levels: Sequence[Level], wanted: Sequence[Outcome], title: str
) -> Table:
    output = Table("kind", *(level.name for level in levels), box=box.SIMPLE, title=title)
    output.title_justify = "left"
    for column in output.columns[1:]:
        column.justify = "right"
    for kind in [*kinds_of(results), None]:
        cells = []
        for level in levels:
            found, present = of_those(count(results, level.name, kind), wanted)
            cells.append(f"{found}/{present}" if present else "-")
        output.add_row(kind or "all", *cells)
    return output


def address_table(addresses: Mapping[str, Mapping[str, float]], runs: int) -> Table:
    title = f"Bits that an attacker has to guess, from {runs} runs (at most {math.log2(runs):.1f})"
    output = Table("allocator", *ADDRESS_COLUMNS.values(), box=box.SIMPLE, title=title)
    output.title_justify = "left"
    for name, figures in addresses.items():
        output.add_row(name, *(f"{figures[key]:.1f}" for key in ADDRESS_COLUMNS))
    return output


def as_document(
    results: Results,
    levels: Sequence[Level],
    versions: Mapping[str, str],
    missing: Mapping[str, str],
    addresses: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    return {
        "machine": {"kernel": platform.release(), "libc": " ".join(platform.libc_ver())},
        "allocators": dict(versions),
        "missing": dict(missing),
        "rows": [
            {
                "level": level.name,
                "kind": kind or "all",
                **{outcome.value: counts.get(outcome, 0) for outcome in Outcome},
                "stopped": of_those(counts, STOPPED)[0],
                "safe": of_those(counts, SAFE)[0],
                "present": of_those(counts, SAFE)[1],
            }
            for level in levels
            for kind in [*kinds_of(results), None]
            for counts in [count(results, level.name, kind)]
        ],
        "addresses": {name: dict(figures) for name, figures in addresses.items()},
        "cases": {
            case: {name: result.outcome.value for name, result in row.items()}
            for case, row in results.items()
        },
    }


def show(
    results: Results,
    levels: Sequence[Level],
    addresses: Mapping[str, Mapping[str, float]],
    runs: int,
    *,
    each: bool,
) -> None:
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    if each:
        for case, row in results.items():
            for name, result in row.items():
                console.print(
                    f"{case} {name}: {result.outcome} {result.line}".rstrip(),
                    highlight=False,
                    markup=False,
                    soft_wrap=True,
                )
    ours = [level for level in levels if level.allocator == LIBKMEM]
    others = [level for level in levels if level.allocator != LIBKMEM]
    for group in filter(None, (ours, others)):
        console.print(table(results, group, STOPPED, "Stopped: caught or trapped before any harm"))
        console.print(table(results, group, SAFE, "Without harm: stopped, or nothing came of it"))
    if addresses:
        console.print(address_table(addresses, runs))


# ---- The command ---------------------------------------------------------------------------------


def peer_names() -> list[str]:
    return [name for name in peers.names(DEFENDED) if name not in LEFT_OUT]


def choose_names(wanted: str | None, names: Sequence[str], option: str) -> list[str]:
    """The wanted names in their order, all if none are given; '' or `none` for none."""
    if wanted is None:
        return list(names)
    chosen = [] if wanted == "none" else words_of(wanted)
    for name in chosen or ([] if wanted == "none" else [wanted]):
        if name not in names:
            raise BadUsage(f"bench misuse: {option} {name}: there are none, {', '.join(names)}")
    return [name for name in names if name in chosen]


def understood(level: Level) -> bool:
    """Whether the library has the level's options: it says so if not."""
    return run_program(level, "addresses")[0].startswith("tiny ")


def choose_levels(wanted: str | None) -> tuple[list[Level], dict[str, str]]:
    names = choose_names(
        wanted.replace(" ", ",") if wanted else wanted, [level.name for level in LEVELS], "--levels"
    )
    chosen = [level for level in LEVELS if level.name in names]
    missing = {
        level.name: f"the library does not know {level.options}"
        for level in chosen
        if not understood(level)
    }
    return [level for level in chosen if level.name not in missing], missing


def run_all(cases: Sequence[str], levels: Sequence[Level], progress: Console) -> Results:
    """All cases; those of a level one after the other, so that a run is like the next."""
    results: Results = {case: {} for case in cases}
    for level in levels:
        what = f"{len(cases)} cases on {level.name}"
        for case in track(cases, what, console=progress, disable=not progress.is_terminal):
            results[case][level.name] = run_case(level, case)
    return results


def bench_misuse(
    wanted_levels: str | None,
    wanted_peers: str | None,
    only: str | None,
    runs: int,
    json_file: Path | None,
    *,
    each: bool,
) -> None:
    need_tree("bench misuse")
    chosen = choose_names(wanted_peers, peer_names(), "--peers")
    progress = Console(stderr=True)
    build()
    assert LIBKMEM.library is not None
    check_library(LIBKMEM.library)
    cases = choose_cases(only)
    levels, missing = choose_levels(wanted_levels)
    found, not_found = peers.find(chosen, progress, DEFENDED)
    levels += [Level(peer.allocator.name, peer.allocator) for peer in found]
    results = run_all(cases, levels, progress)
    addresses = {level.name: measure_addresses(level, runs) for level in levels} if runs else {}
    now = commit()
    versions = {LIBKMEM.name: f"commit {now}"}
    versions |= {peer.allocator.name: peer.version for peer in found}
    document = as_document(results, levels, versions, missing | not_found, addresses)
    try:
        write_json(json_file, {"commit": now, "runs": runs} | document)
    finally:  # a full disk must not take the figures
        show(results, levels, addresses, runs, each=each)
        for name, why in (missing | not_found).items():
            progress.print(f"{name} is missing: {why}", highlight=False, soft_wrap=True)
