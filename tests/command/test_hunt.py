# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench hunt`: the program that does drawn work, the space, the figures, the command."""

import json
import os
import signal
import subprocess
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kmem_command import KMEM, kmem

from kmem.bench.hunt import SETS, read_set
from kmem.bench.hunt_figures import as_ratios, kinds
from kmem.bench.hunt_report import (
    Hunt,
    failures,
    notes,
    share_lines,
    summary,
    worst_lines,
)
from kmem.bench.hunt_runs import DRAWN, LINE, Found, line_ns
from kmem.bench.hunt_search import Search, loss
from kmem.bench.hunt_space import Dice, Value, as_point, as_words, suggest, threads_between
from kmem.common.tree import LIBRARY

hunt = partial(kmem, "bench", "hunt")

TINY = ("--seconds", "0.005", "--rounds", "1", "--peers", "glibc", "--threads", "1-3")
LIVES = ("stack", "queue", "random", "phases", "scattered")
HANDOVERS = ("none", "pairs", "ring", "random", "oneway")


def drawn(words: str, preload: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("KMEM_OPTIONS", "LD_PRELOAD")}
    if preload:
        environment["LD_PRELOAD"] = str(preload)
    return subprocess.run(
        [DRAWN, *words.split()],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def line(words: str, preload: Path | None = None) -> str:
    done = drawn(words, preload)
    assert (done.returncode, done.stderr) == (0, ""), words
    return done.stdout


def point_of(seed: int) -> dict[str, Value]:
    return suggest(Dice(np.random.default_rng(seed)), threads_between(1, 8))


# ---- the program --------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_points_give_the_same_line_on_both_allocators(seed: int) -> None:
    words = f"{as_words(point_of(seed) | {'generations': 3})} seed={seed} scale=0.002"
    assert line(words) == line(words, LIBRARY)


@pytest.mark.parametrize("lives", LIVES)
@pytest.mark.parametrize("handover", HANDOVERS)
def test_lines_do_not_depend_on_how_threads_ran(lives: str, handover: str) -> None:
    words = f"lives={lives} handover={handover} threads=5 generations=3 burst=7 batch=3 handed=50"
    words += " realloc=10 calloc=10 aligned=10 reads=1 touch=all scale=0.01"
    assert len({line(words) for _ in range(3)}) == 1


def test_work_is_what_the_words_say() -> None:
    """Resized blocks count as made: 100 in 100 are as many again, but where a place is empty."""
    blocks = [
        int(line(f"threads=2 scale=0.02 lives=queue {more}").split("blocks=")[1].split()[0])
        for more in ("", "realloc=50", "realloc=100", "handover=oneway")
    ]
    assert blocks[0] == blocks[3] == 20000
    assert 28000 < blocks[1] < 30000 < 37000 < blocks[2] <= 40000


def peak_kib(words: str, folder: Path) -> int:
    timed, result = DRAWN.parents[1] / "timed", folder / "timed"
    subprocess.run([timed, result, DRAWN, *words.split()], stdout=subprocess.DEVNULL, check=True)
    return int(result.read_text().split()[2])


def test_live_bytes_are_live(tmp_path: Path) -> None:
    words = "threads=2 sizes=constant least=1000 lives=queue touch=all scale=0.2"
    small, large = (peak_kib(f"{words} live={mib << 20}", tmp_path) for mib in (1, 33))
    assert 31 << 10 < large - small < 36 << 10


TWICE = """
#include <stddef.h>
extern void *__libc_malloc(size_t bytes);
static void *last;
static size_t last_bytes;
void *malloc(size_t bytes)
{
        void *block = last;
        if (block && bytes <= last_bytes) {
                last = NULL;
                return block;
        }
        last = block = __libc_malloc(bytes);
        last_bytes = bytes;
        return block;
}
void free(void *block)
{
}
"""


@pytest.mark.parametrize("touch", ["first", "pages", "all"])
@pytest.mark.parametrize("lives", LIVES)
def test_a_block_with_two_owners_is_noticed(touch: str, lives: str, tmp_path: Path) -> None:
    (tmp_path / "twice.c").write_text(TWICE)
    library = tmp_path / "twice.so"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-fno-builtin", "-o", library]
    subprocess.run([*command, tmp_path / "twice.c"], check=True)
    done = drawn(f"threads=1 scale=0.01 least=64 most=4096 touch={touch} lives={lives}", library)
    assert (done.returncode, done.stdout) == (1, "")
    assert "contents changed" in done.stderr


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("least=7", "a whole number from 8 to 16777216"),
        ("most=16777217", "a whole number from 8 to 16777216"),
        ("burst=x", "a whole number from 1 to 1048576"),
        ("batch=", "a whole number from 1 to 1024"),
        ("handed=-1", "a whole number from 0 to 100"),
        ("lives=long", "lives=stack|queue|random|phases|scattered"),
        ("most=15", "at least least=16"),
        ("size=1", "threads=, scale=, seed=, progress= or the program's own key"),
        ("progress=x", "another program, whose threads stay"),
    ],
)
def test_wrong_words(word: str, expected: str) -> None:
    done = drawn(word)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f": expected {expected}\n") and done.stderr.count("\n") == 1
    replayed = hunt("--replay", word, *TINY)
    assert (replayed.returncode, replayed.stdout) == (2, "")
    assert replayed.stderr.splitlines()[-1] == f"kmem: bench hunt: {done.stderr.strip()}"


# ---- the space ----------------------------------------------------------------------------------


def test_every_value_of_every_word_is_drawn() -> None:
    points = [point_of(seed) for seed in range(3000)]
    for word, values in {
        "lives": LIVES,
        "handover": HANDOVERS,
        "touch": ("first", "pages", "all"),
        "threads": (1, 2, 4, 8),
        "inherit": ("yes", "no"),
        "realloc": (0, 5, 30),
    }.items():
        assert {point[word] for point in points} == set(values)
    assert all(int(point["least"]) <= int(point["most"]) for point in points)


@pytest.mark.parametrize(
    ("least", "most", "counts"),
    [(1, 32, (1, 2, 4, 8, 16, 32)), (3, 3, (3,)), (3, 9, (3, 4, 8, 9))],
)
def test_counts_of_threads(least: int, most: int, counts: tuple[int, ...]) -> None:
    assert threads_between(least, most) == counts


def test_words_of_a_point() -> None:
    point = point_of(1)
    assert as_point(as_words(point)) == {name: str(value) for name, value in point.items()}


@pytest.mark.parametrize("name", sorted(file.stem for file in SETS.glob("*.txt")))
def test_sets_are_words_of_the_program(name: str) -> None:
    words = read_set(name)
    assert len(words) >= 20 and len(set(words)) == len(words)
    for point in words:
        assert drawn(f"{point} scale=0.0001").returncode == 0, point


# ---- figures ------------------------------------------------------------------------------------


def found(words: str, seconds: dict[str, list[float]], peaks: dict[str, list[float]]) -> Found:
    return Found(words, seconds, seconds, peaks, 0, {})


def made_up_hunt() -> Hunt:
    """Point 1: glibc is ahead in both; 2: in time only; 3: in both by medians only; 4: failed."""
    three = [1.0, 1.0, 1.0]
    points = [
        found(
            "lives=queue",
            {"libkmem": [2.0] * 3, "glibc": three},
            {"libkmem": [3.0] * 3, "glibc": three},
        ),
        found(
            "lives=stack",
            {"libkmem": [1.2] * 3, "glibc": three},
            {"libkmem": three, "glibc": [4.0] * 3},
        ),
        found(
            "lives=stack",
            {"libkmem": [1.1, 1.1, 0.9], "glibc": three},
            {"libkmem": [2.0] * 3, "glibc": three},
        ),
        Found("lives=stack", {}, {}, {}, 0, {"libkmem": "drawn ended with SIGSEGV"}),
    ]
    versions = {"libkmem": "commit abc", "glibc": "2.36"}
    numbered = [as_ratios(number, point) for number, point in enumerate(points, 1)]
    return Hunt("abc", 5, 3, 0.25, (1, 32), "", versions, {}, numbered)


def test_summary() -> None:
    figures = summary(made_up_hunt())
    assert figures["points"] == 3
    assert figures["ahead_in_both"] == {"glibc": {"medians": 2, "intervals": 1}}
    assert figures["unbeaten_share"] == {
        "medians": pytest.approx(1 / 3),
        "intervals": pytest.approx(2 / 3),
    }
    assert figures["slow_share"] == pytest.approx(1 / 3)
    assert figures["time"]["libkmem"] == {
        "mean": pytest.approx((2.0 * 1.2 * 1.1) ** (1 / 3)),
        "median": pytest.approx(1.2),
        "high": pytest.approx(1.84),
        "worst": pytest.approx(2.0),
    }
    assert figures["memory"]["glibc"]["worst"] == pytest.approx(4.0)


def test_kinds_are_means_of_their_points() -> None:
    rows = {(kind.dimension, kind.value): kind for kind in kinds(made_up_hunt().points)}
    assert set(rows) == {("lives", "queue"), ("lives", "stack")}
    stack = rows["lives", "stack"]
    assert (stack.points, stack.beaten) == (2, 0.5)
    assert stack.time == pytest.approx((1.2 * 1.1) ** 0.5)
    assert stack.memory == pytest.approx(2**0.5)


def test_kinds_put_sizes_together() -> None:
    equal = {"libkmem": [1.0], "glibc": [1.0]}
    points = [
        as_ratios(number, found(f"live={live}", equal, equal))
        for number, live in enumerate((65536, 1 << 19, 1 << 20), 1)
    ]
    assert [(kind.value, kind.points) for kind in kinds(points)] == [
        ("65536-1048575", 2),
        ("1048576-16777215", 1),
    ]


def test_kinds_tell_near_cpus_from_far() -> None:
    """A host that moves a virtual CPU may make a line's way longer in the middle of a hunt."""
    equal = {"libkmem": [1.0], "glibc": [1.0]}
    ways: list[list[float]] = [[45.0, 99.9], [99.9, 100.0], [210.0, 45.0], [100.0, 210.0], []]
    points = [
        as_ratios(number, replace(found("lives=stack", equal, equal), line_ns=way))
        for number, way in enumerate(ways, 1)
    ]
    assert [(kind.dimension, kind.value, kind.points) for kind in kinds(points)] == [
        ("line", "0-99 ns", 1),
        ("line", "100 ns at times", 2),
        ("line", "100 ns or more", 1),
    ]
    assert kinds(points[:1]) == []
    assert "a cache line took 45 to 210 ns between CPUs" in notes(
        replace(made_up_hunt(), points=points)
    )


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a single CPU")
def test_a_line_takes_time_between_cpus() -> None:
    assert 1 < line_ns()[0] < 1e6
    cpu = min(os.sched_getaffinity(0))
    alone = subprocess.run(
        ["taskset", "--cpu-list", str(cpu), LINE], capture_output=True, text=True, check=False
    )
    assert (alone.returncode, alone.stdout) == (1, "")
    assert alone.stderr == "line: the process may use a single CPU; expected two or more\n"


def test_results_without_a_lines_way_are_read() -> None:
    document = asdict(found("lives=stack", {"glibc": [1.0]}, {"glibc": [1.0]}))
    del document["line_ns"]
    assert Found.read(document).line_ns == []


def test_lines_of_the_worst_points() -> None:
    lines = worst_lines(made_up_hunt())
    worst_time = lines[lines.index("") + 2]
    assert worst_time == "2.00 (2.00 to 2.00) of glibc's 1.000 s, point 1: lives=queue"
    both = [text for text in lines if " and " in text and "point" in text][-2:]
    assert both == [
        "2.00 and 3.00 to glibc (sure), point 1: lives=queue",
        "1.10 and 2.00 to glibc, point 3: lives=stack",
    ]
    assert failures(made_up_hunt()) == [
        "point 4 on libkmem failed: drawn ended with SIGSEGV: lives=stack"
    ]
    assert share_lines(made_up_hunt())[0].startswith(
        "no peer is ahead of libkmem in time and memory at 33%"
    )


def test_search_finds_the_kind_that_loses() -> None:
    """Made-up figures: libkmem is slow wherever all of a block is touched."""
    search = Search("time", (1, 2), seed=1)
    random = np.random.default_rng(1)

    def figures(point: dict[str, Value]) -> Any:
        slow = 3.0 if point["touch"] == "all" else 1.0
        ratios = found(
            as_words(point), {"libkmem": [slow], "glibc": [1.0]}, {"libkmem": [1.0], "glibc": [1.0]}
        )
        return as_ratios(1, ratios)

    for _ in range(20):
        dice = Dice(random)
        search.learn(dice, figures(suggest(dice, (1, 2))))
    proposed = []
    for _ in range(30):
        point = figures(search.propose())
        search.tell(point)
        proposed.append(loss(point, "time"))
    assert sum(value > 2 for value in proposed) > 20


# ---- the command --------------------------------------------------------------------------------


def test_small_hunt_goes_on_and_repeats_points(tmp_path: Path) -> None:
    file = tmp_path / "hunt.json"
    first = hunt("--points", "2", "--seed", "7", *TINY, "--output", file)
    assert first.returncode == 0, first.stderr
    two = json.loads(file.read_text())
    assert list(two["allocators"]) == ["libkmem", "glibc"] and two["seed"] == 7
    assert len(two["points"]) == 2 == two["summary"]["points"]
    for point in two["points"]:
        assert point["failures"] == {} and " scale=" in point["words"]
        assert set(point["seconds"]) == {"libkmem", "glibc"}
        assert all(len(values) == 1 and values[0] > 0 for values in point["seconds"].values())
    for text in (
        "2 points: time, CPU time",
        "libkmem by kind of work",
        "worst in memory",
        "seed 7",
    ):
        assert text in first.stdout
    assert "2 of 2: time " in first.stderr

    more = hunt("--points", "3", *TINY, "--output", file)
    assert more.returncode == 0, more.stderr
    three = json.loads(file.read_text())
    assert three["seed"] == 7 and three["points"][:2] == two["points"]
    assert len(three["points"]) == 3

    again = hunt("--replay", f"{file}:3", *TINY)
    assert again.returncode == 0, again.stderr
    assert f"point 1: {three['points'][2]['words']}" in again.stdout

    for option, value, said in (
        ("--seed", "8", "seed 7; expected 8"),
        ("--peers", "tcmalloc", "peers ['glibc']; expected ['tcmalloc']"),
    ):
        other = hunt("--points", "2", *TINY, option, value, "--output", file)
        assert (other.returncode, other.stdout) == (2, "")
        assert f"holds a hunt with {said}, or a new file" in other.stderr
    assert json.loads(file.read_text()) == three


def test_points_of_a_file_are_not_lost(tmp_path: Path) -> None:
    """Another hunt does not write over them, and one with fewer points only reports those."""
    file = tmp_path / "hunt.json"
    first = hunt("--points", "3", "--seed", "7", *TINY, "--output", file)
    assert first.returncode == 0, first.stderr
    before = file.read_text()
    fewer = hunt("--points", "1", *TINY, "--output", file)
    assert fewer.returncode == 0 and "1 points: time" in fewer.stdout
    for left, arguments in (
        (3, ("--replay", "threads=1 lives=stack")),
        (2, ("--points", "1", "--search", "1")),
    ):
        other = hunt(*arguments, *TINY, "--output", file)
        assert (other.returncode, other.stdout) == (2, ""), other.stderr
        assert other.stderr.splitlines()[-1] == (
            f"kmem: bench hunt: --output {file}: holds {left} points that are not of this hunt;"
            " expected a new file"
        )
    assert file.read_text() == before


def test_figures_of_other_code_do_not_come_into_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hunt.json"
    first = hunt("--points", "1", "--seed", "7", *TINY, "--output", file)
    assert first.returncode == 0, first.stderr
    document = json.loads(file.read_text())
    hardened = hunt(
        *("--points", "2", *TINY, "--output", file),
        environment={"KMEM_OPTIONS": "protect=hardened"},
    )
    assert (hardened.returncode, hardened.stdout) == (2, "")
    assert "a hunt with options none; expected protect=hardened, or a new" in hardened.stderr
    assert json.loads(file.read_text()) == document
    for name, expected in (("commit", document["commit"]), ("options", "none")):
        file.write_text(json.dumps(document | {name: "0123abc"}))
        other = hunt("--points", "2", *TINY, "--output", file)
        assert (other.returncode, other.stdout) == (2, "")
        assert f"a hunt with {name} 0123abc; expected {expected}, or a" in other.stderr
        assert json.loads(file.read_text()) == document | {name: "0123abc"}


def test_search_proposes_points(tmp_path: Path) -> None:
    file = tmp_path / "hunt.json"
    done = hunt("--points", "1", "--search", "2", "--goal", "time", *TINY, "--output", file)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(file.read_text())["points"]) == 3


def test_interrupted_hunt_reports_what_it_has() -> None:
    process = subprocess.Popen(
        [KMEM, "bench", "hunt", "--points", "500", *TINY],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    deadline = time.monotonic() + 200
    for text in process.stderr:
        assert time.monotonic() < deadline
        if text.startswith("2 of 500"):
            break
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "ended after" in stderr and "Traceback" not in stderr
    assert "points: time, CPU time" in stdout


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (("--threads", "0"), 2, "--threads 0: expected MIN-MAX, from 1 to 1024"),
        (("--threads", "4-2"), 2, "--threads 4-2: expected MIN-MAX, from 1 to 1024"),
        (("--seconds", "nan"), 2, "--seconds nan: expected 0.005 to 60"),
        (("--points", "0"), 2, "--points"),
        (("--goal", "speed"), 2, "--goal"),
        (("--peers", "hoard"), 2, "--peers hoard: there are glibc, mimalloc,"),
        (("--set", "worst"), 2, "--set worst: there are regression"),
        (("--output", "/no/such/folder/file"), 1, "--output /no/such/folder/file: No such file"),
        (("--replay", "/no/such/file:1"), 1, "--replay /no/such/file: No such file"),
    ],
)
def test_bad_arguments(arguments: tuple[str, ...], status: int, named: str) -> None:
    done = hunt(*arguments)
    assert done.returncode == status
    assert named in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"points": []}',
        '{"points": [1]}',
        '{"points": [{"words": 1}]}',
        "[" * 99999,
    ],
    ids=["empty", "object", "list", "no points", "number", "words", "deep"],
)
def test_file_that_is_no_result(text: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    done = hunt("--replay", f"{file}:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"kmem: bench hunt: --replay {file}: expected a result of bench hunt\n"


@pytest.mark.parametrize(
    "changed",
    [
        {"words": 5},
        {"seconds": [1]},
        {"seconds": {"libkmem": ["a"], "glibc": ["b"]}},
        {"seconds": {"libkmem": [1.0], "glibc": [1.0, 2.0]}},
        {"seconds": {"libkmem": [], "glibc": []}},
        {"cpu_seconds": {"glibc": [1.0]}},
        {"peak_bytes": {"libkmem": [0], "glibc": [1]}},
        {"line_ns": ["a"]},
        {"failures": {"glibc": 1}},
    ],
)
def test_a_changed_point_is_no_result(changed: dict[str, Any], tmp_path: Path) -> None:
    """A file that somebody edited ends in a line, before anything is measured."""
    one = {"libkmem": [1.0], "glibc": [1.0]}
    point = asdict(found("lives=stack scale=0.001", one, one))
    hunt_of_it = {
        **{"seed": 1, "rounds": 1, "run_seconds": 0.005, "threads": [1, 3]},
        **{"allocators": {"libkmem": "commit abc", "glibc": "2.36"}, "missing": {}},
    }
    Found.read(point)
    file = tmp_path / "file"
    file.write_text(json.dumps(hunt_of_it | {"points": [point | changed]}))
    done = hunt("--output", file, *TINY)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"kmem: bench hunt: --output {file}: expected a result of bench hunt\n"


@pytest.mark.parametrize(("name", "value"), [("seed", "x"), ("seed", -3), ("allocators", None)])
def test_a_changed_hunt_is_no_result(name: str, value: object, tmp_path: Path) -> None:
    whole = {
        **{"seed": 1, "rounds": 1, "run_seconds": 0.005, "threads": [1, 3], "points": []},
        **{"allocators": {"libkmem": "commit abc", "glibc": "2.36"}, "missing": {}},
    }
    file = tmp_path / "file"
    file.write_text(json.dumps(whole | {name: value}))
    done = hunt("--output", file, *TINY)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"kmem: bench hunt: --output {file}: expected a result of bench hunt\n"
