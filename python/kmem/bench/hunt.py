# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench hunt`: work drawn at random, on libkmem and on its peers.

hunt_space.py has the space, hunt_runs.py the runs of a point, hunt_search.py the search,
hunt_figures.py the ratios and hunt_report.py the tables.
"""

import json
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from kmem.bench import peers
from kmem.bench.allocators import LIBKMEM, Allocator
from kmem.bench.crates import check_library
from kmem.bench.hunt_figures import Point, as_ratios
from kmem.bench.hunt_report import Hunt, as_document, show
from kmem.bench.hunt_runs import Found, check_words, measure
from kmem.bench.hunt_space import THREADS_MAX, Dice, as_words, suggest, threads_between
from kmem.bench.suite import TABLE_WIDTH, choose_peers, commit, own_options
from kmem.bench.suite_report import OURS
from kmem.common.console import wide_console
from kmem.common.errors import BadUsage, KmemError
from kmem.common.files import read_text, write_result
from kmem.common.tree import LIBRARY, ROOT, build

if TYPE_CHECKING:
    from kmem.bench.hunt_search import Search

SETS = ROOT / "bench" / "hunt"
INTERRUPTED = 130  # the status that a shell gives a program which Ctrl-C ended
RUN_SECONDS = (0.005, 60.0)
RESULT = ("seed", "rounds", "run_seconds", "threads", "allocators", "missing")  # of a result file


@dataclass(frozen=True)
class Wanted:
    """The options of the command."""

    points: int
    seed: int | None  # None: a fresh one
    rounds: int
    seconds: float
    peers: str | None
    threads: str
    search: int
    goal: str
    known_set: str | None
    replay: str | None
    output: Path | None


def read_threads(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", text, re.ASCII)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= least <= most <= THREADS_MAX:
        raise BadUsage(f"bench hunt: --threads {text}: expected MIN-MAX, from 1 to {THREADS_MAX}")
    return least, most


def read_result(file: Path, option: str) -> dict[str, Any]:
    """A result file of an earlier hunt."""
    try:
        document: dict[str, Any] = json.loads(read_text(file, f"bench hunt: {option}"))
        [Found.read(point) for point in document["points"]]
        [document[name] for name in RESULT]
        valid = document["seed"] >= 0 and dict(document["allocators"]) | dict(document["missing"])
        if not valid:
            raise ValueError("expected a seed and allocators")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise KmemError(f"bench hunt: {option} {file}: expected a result of bench hunt") from None
    return document


def read_set(name: str) -> list[str]:
    names = sorted(file.stem for file in SETS.glob("*.txt"))
    if name not in names:
        raise BadUsage(f"bench hunt: --set {name}: there are {', '.join(names)}")
    lines = (SETS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def read_replay(text: str) -> list[str]:
    """The words of a point, or FILE:NUMBER, a point of a result file."""
    file, _, number = text.rpartition(":")
    if not file or not number.isdecimal():
        check_words(text)
        return [text]
    points = read_result(Path(file), "--replay")["points"]
    if not 1 <= int(number) <= len(points):
        raise BadUsage(f"bench hunt: --replay {text}: {file} has points 1 to {len(points)}")
    words: str = points[int(number) - 1]["words"]
    check_words(words)
    return [words]


def without_scale(words: str) -> str:
    return " ".join(word for word in words.split() if not word.startswith("scale="))


@dataclass
class Hunter:
    """The points measured so far, and how to measure the next."""

    hunt: Hunt
    allocators: Sequence[Allocator]
    folder: Path
    output: Path | None
    console: Console
    earlier: dict[str, Found] = field(default_factory=dict)  # by words without scale
    taken: set[str] = field(default_factory=set)  # words of `earlier` that are in the hunt
    search: "Search | None" = None

    def measure(self, words: str, total: int) -> Point:
        number = len(self.hunt.points) + 1
        found = self.earlier.get(without_scale(words))
        is_new = found is None
        if found is None:
            self.keep_earlier()
            with self.console.status("measuring") as status:
                found = measure(
                    self.folder,
                    words,
                    self.allocators,
                    self.hunt.rounds,
                    self.hunt.seconds,
                    self.hunt.seed + number,
                    lambda what: status.update(f"point {number} of {total}: {what}"),
                )
        else:
            self.taken.add(without_scale(words))
        point = as_ratios(number, found)
        self.hunt.points.append(point)
        self.console.print(f"{number} of {total}: {told(point)}", soft_wrap=True)
        if is_new:  # the file holds the others, and those that come after this one
            self.write()
        return point

    def keep_earlier(self) -> None:
        """Refuse to measure a point while the file has points that it would lose by that."""
        if left := len(self.earlier.keys() - self.taken):
            raise BadUsage(
                f"bench hunt: --output {self.output}: holds {left} points that are not of this"
                " hunt; expected a new file"
            )

    def write(self) -> None:
        if self.output is not None:
            text = json.dumps(as_document(self.hunt), indent=1) + "\n"
            write_result(self.output, "--output", text)


def told(point: Point) -> str:
    """A point in a line of progress."""
    failed = "".join(f"; {name}: {why}" for name, why in point.found.failures.items())
    if not point.measured:
        return f"not measured: {point.found.words}{failed}"
    return (
        f"time {point.time[OURS].median:.2f} of {point.best(point.time)}'s,"
        f" memory {point.memory[OURS].median:.2f} of {point.best(point.memory)}'s:"
        f" {point.found.words}{failed}"
    )


def draw_all(hunter: Hunter, wanted: Wanted, threads: Sequence[int]) -> None:
    """The drawn points, then the points that the search proposes."""
    random = np.random.default_rng(hunter.hunt.seed)
    total = wanted.points + wanted.search
    if wanted.search:
        from kmem.bench.hunt_search import Search

        hunter.search = Search(wanted.goal, threads, hunter.hunt.seed)
    for _ in range(wanted.points):
        dice = Dice(random)
        words = suggest(dice, threads)
        point = hunter.measure(as_words(words | {"seed": int(random.integers(1 << 32))}), total)
        if hunter.search is not None:
            hunter.search.learn(dice, point)
    for _ in range(wanted.search):
        assert hunter.search is not None
        words = hunter.search.propose()
        hunter.search.tell(hunter.measure(as_words(words), total))


def go_on(
    wanted: Wanted, threads: tuple[int, int], chosen: Sequence[str]
) -> tuple[int, dict[str, Found]]:
    """The seed, and the points of the file of --output, if it has the hunt that is asked for."""
    fresh = secrets.randbelow(1 << 32) if wanted.seed is None else wanted.seed
    if wanted.output is None or not wanted.output.is_file() or not wanted.output.stat().st_size:
        return fresh, {}
    document = read_result(wanted.output, "--output")
    document["peers"] = sorted({*document["allocators"], *document["missing"]} - {OURS})
    # The file has a single commit and single options for all of its points.
    asked: dict[str, object] = {
        "commit": commit(),
        "options": own_options(),
        "rounds": wanted.rounds,
        "run_seconds": wanted.seconds,
        "threads": list(threads),
        "peers": sorted(chosen),
    }
    if wanted.seed is not None:
        asked["seed"] = wanted.seed
    for name, value in asked.items():
        held = document.get(name)
        if held != value:
            raise BadUsage(
                f"bench hunt: --output {wanted.output}: holds a hunt with {name}"
                f" {held or 'none'}; expected {value or 'none'}, or a new file"
            )
    found = [Found.read(point) for point in document["points"]]
    return document["seed"], {without_scale(point.words): point for point in found}


@contextmanager
def work_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="kmem-hunt-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def bench_hunt(wanted: Wanted) -> int:
    """The exit status."""
    threads = read_threads(wanted.threads)
    chosen = choose_peers(wanted.peers)
    if not RUN_SECONDS[0] <= wanted.seconds <= RUN_SECONDS[1]:
        raise BadUsage(
            f"bench hunt: --seconds {wanted.seconds:g}: expected {RUN_SECONDS[0]:g} to"
            f" {RUN_SECONDS[1]:g}"
        )
    seed, earlier = go_on(wanted, threads, chosen)
    build()
    known = read_set(wanted.known_set) if wanted.known_set is not None else []
    if wanted.replay is not None:
        known = read_replay(wanted.replay)
    check_library(LIBRARY)
    console, progress = wide_console(TABLE_WIDTH), Console(stderr=True, markup=False)
    found, missing = peers.find(chosen, progress)
    now = commit()
    versions = {OURS: f"commit {now}"} | {peer.allocator.name: peer.version for peer in found}
    options = own_options()
    hunt = Hunt(now, seed, wanted.rounds, wanted.seconds, threads, options, versions, missing, [])
    progress.print(f"seed {seed}")
    status = 0
    with work_folder() as folder:
        allocators = [LIBKMEM, *(peer.allocator for peer in found)]
        hunter = Hunter(hunt, allocators, folder, wanted.output, progress, earlier)
        try:
            for words in known:
                hunter.measure(words, len(known))
            if not known:
                draw_all(hunter, wanted, threads_between(*threads))
        except KeyboardInterrupt:
            progress.print(f"ended after {len(hunt.points)} points")
            status = INTERRUPTED
    show(console, hunt)
    return status
