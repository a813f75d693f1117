# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A search with a bound on preemptions finds what needs so many, and reaches every outcome that so
many allow: as many as a model that enumerates the interleavings."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

EXPLORER = Path(__file__).resolve().parents[2] / "build/tests/explore/explore"
FOUND = 1

Step = int | None  # a store of the number, or a load whose value is kept


def explore(*arguments: str) -> subprocess.CompletedProcess[str]:
    if not EXPLORER.exists():
        pytest.skip(f"{EXPLORER} is not built: configure with -Dtests=true")
    return subprocess.run([EXPLORER, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", [[], ["--reduced"]])
def test_three_preemptions_find_what_two_do_not(kind: list[str]) -> None:
    two = explore("litmus_three_preemptions", *kind, "--preemptions", "2")
    three = explore("litmus_three_preemptions", *kind, "--preemptions", "3")
    assert two.returncode == 0 and "NOT exhausted" not in two.stdout, two.stdout
    assert three.returncode == FOUND and ": 3 preemptions: " in three.stdout, three.stdout
    replay = re.search(r"^replay: explore (.*)$", three.stdout, re.MULTILINE)
    assert replay and explore(*replay[1].split()).returncode == FOUND


@pytest.mark.parametrize("kind", [[], ["--reduced"], ["--all"], ["--memory", "tso"]])
def test_two_refusals_find_what_one_does_not(kind: list[str]) -> None:
    one = explore("litmus_refusals", *kind)
    two = explore("litmus_refusals", *kind, "--refusals", "2")
    assert one.returncode == 0 and "NOT exhausted" not in one.stdout, one.stdout
    assert two.returncode == FOUND and " is refused" in two.stdout, two.stdout
    replay = re.search(r"^replay: explore (.*)$", two.stdout, re.MULTILINE)
    assert replay and re.search(r" 0!\d+,1!\d+ *", replay[1]), two.stdout
    assert explore(*replay[1].split()).returncode == FOUND


def test_a_search_without_a_bound_finds_it() -> None:
    done = explore("litmus_three_preemptions", "--all")
    assert done.returncode == FOUND, done.stdout


# Steps of the threads of scenarios/litmus.c, on one word.
PROGRAMS: dict[str, list[list[Step]]] = {
    "litmus_outcomes_of_two": [[1, 2, 3], [None, None, None]],
    "litmus_outcomes_of_three": [[1, 2, 3], [None, None], [4, 5]],
}


def outcomes(program: list[list[Step]], preemptions: int) -> set[tuple[int, ...]]:
    """Values that were read, and the last one of the word."""

    def runs(
        at: tuple[int, ...], running: int, word: int, read: tuple[int, ...], left: int
    ) -> Iterator[tuple[int, ...]]:
        ready = [one for one, steps in enumerate(program) if at[one] < len(steps)]
        if not ready:
            yield (*read, word)
        for one in ready:
            cost = one != running and running in ready
            if cost > left:
                continue
            step = program[one][at[one]]
            after = tuple(done + (other == one) for other, done in enumerate(at))
            if step is None:
                yield from runs(after, one, word, (*read, word), left - cost)
            else:
                yield from runs(after, one, step, read, left - cost)

    return set(runs((0,) * len(program), -1, 0, (), preemptions))


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_outcome_within_the_bound_is_reached(name: str) -> None:
    done = explore(name, "--compare", "--preemptions", "4")
    assert done.returncode == 0, done.stdout
    counted = re.findall(
        r"(\d) preemptions: \d+ executions leave (\d+) memories, .* leave (\d+)$",
        done.stdout,
        re.MULTILINE,
    )
    wanted = [len(outcomes(PROGRAMS[name], bound)) for bound in range(5)]
    assert wanted[2] < wanted[3], "three preemptions reach what two do not"
    assert [(int(a), int(b), int(c)) for a, b, c in counted] == [
        (bound, number, number) for bound, number in enumerate(wanted)
    ]
