# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Readers in Python on damaged inputs of each form (tests/fuzz/readers.py), and the driver itself.

KMEM_READER_INPUTS is how many inputs of all forms together are read; 3,000 if it is not set.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kmem.common.errors import KmemError
from kmem.common.tree import build
from kmem.explain import shapes
from kmem.lab import orders

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fuzz"))
import readers

FUZZ = Path(readers.__file__).parent
INPUTS = int(os.environ.get("KMEM_READER_INPUTS", "3000"))
FORMS = readers.forms()


@pytest.fixture(scope="module", autouse=True)
def tool() -> Iterator[None]:
    build(orders.TOOL)
    before = signal.signal(signal.SIGPROF, readers.out_of_time)
    yield
    signal.signal(signal.SIGPROF, before)
    shapes.compute = orders.compute  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", FORMS)
def test_inputs(name: str, tmp_path: Path) -> None:
    place = readers.Place(tmp_path)
    for number in range(-(-INPUTS // len(FORMS))):
        content = readers.input_of(name, FORMS[name], 1, number)
        said = readers.look_at(FORMS[name], content, number, place)
        assert not said.startswith("\n"), f"input {number}, {content!r}:{said}"


def test_seeds_are_read(tmp_path: Path) -> None:
    """A form whose examples are refused would test the refusal only."""
    place = readers.Place(tmp_path)
    for name, form in FORMS.items():
        refused = [said for seed in form.seeds if (said := readers.look_at(form, seed, 1, place))]
        # A profile of another kind, and those of CPU time; a machine of another release of Java.
        most = 1 if "pprof" in name or "profile" in name or "java" in name else 0
        assert len(refused) <= most, (name, refused)


def test_what_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reads(_: bytes, number: int, place: readers.Place) -> None:
        if number == 0:
            raise KmemError("a line")
        if number == 1:
            raise KmemError("two\nlines")
        if number == 2:
            raise KmemError("")
        if number == 3:
            raise KeyError("x")
        while number == 4:
            time.process_time()

    monkeypatch.setattr(readers, "SECONDS_MOST", 0.05)
    form, place = readers.Form(reads, [b"a\n"]), readers.Place(tmp_path)
    said = [readers.look_at(form, b"", number, place) for number in range(6)]
    assert said[0] == "a line"
    assert said[5] == ""
    assert "'two\\nlines' is no line" in said[1]
    assert "'' is no line" in said[2]
    assert "KeyError" in said[3]
    assert "TooLong" in said[4]


def test_inputs_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever they are made: gzip writes the time into what it packs, if it is let."""
    clock = itertools.count(1_000_000_000)
    monkeypatch.setattr(time, "time", lambda: next(clock))
    for name, form in FORMS.items():
        first = [readers.input_of(name, form, 3, number) for number in range(20)]
        assert first == [readers.input_of(name, form, 3, number) for number in range(20)]
        assert len(set(first)) > 10


def test_the_command_counts_by_form(tmp_path: Path) -> None:
    file = tmp_path / "counts.json"
    words = ["costs", "perf map", "--inputs", "60", "--jobs", "2", "--json", file]
    done = subprocess.run(
        [sys.executable, FUZZ / "readers.py", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.splitlines()[-1] == "60 inputs of 2 forms, 0 faults"
    rows = json.loads(file.read_text())["rows"]
    assert [row["form"] for row in rows] == ["costs", "perf map"]
    assert all(row["read"] + row["refused"] == 30 and row["faults"] == 0 for row in rows)
    # Counts of another seed are added to them, and those of a seed once.
    counts = {"costs": readers.Counts(1, 2, [(3, "x")])}
    for seed in (2, 2):
        readers.keep_counts(file, seed, counts)
    document = json.loads(file.read_text())
    assert (document["seeds"], document["inputs"]) == ([1, 2], 64)
    assert [row["faults"] for row in document["rows"]] == [1, 0]
    done = subprocess.run(
        [sys.executable, FUZZ / "readers.py", "nothing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "nothing: expected one of " in done.stderr
