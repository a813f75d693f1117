# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab ask`: the shape of each answer, equal answers for equal seeds, and figures that no
machine could have otherwise. The figures themselves are not tested."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kmem.lab import ask_capacity, ask_nodes, ask_rings
from kmem.lab.ask import QUESTIONS
from kmem.lab.everything import EXPERIMENTS
from kmem.lab.loads import Load, run
from kmem.lab.questions import crossing, hackbench, question_report

ROOT = Path(__file__).resolve().parents[2]
Document = dict[str, Any]


@pytest.fixture(scope="module")
def documents() -> dict[str, Document]:
    """Of the quick form of each question."""
    return {
        name: question_report(question, quick=True, seed=1).document
        for name, question in QUESTIONS.items()
    }


def kmem(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "kmem", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", QUESTIONS)
def test_shape(name: str, documents: dict[str, Document]) -> None:
    document, question = documents[name], QUESTIONS[name]
    assert len(document["rows"]) == len(question.cases(True))
    keys = {column.key for column in question.columns} | {question.parts}
    assert keys <= set.union(*(set(row) for row in document["rows"]))
    assert all(row["ns"] > 0 and row["ns_per_call"] > 0 for row in document["rows"])
    # A sentence, and no figure that was not there.
    assert document["paragraph"].endswith(".")
    assert not re.search(r"\b(nan|inf|None)\b", document["paragraph"])
    assert json.loads(json.dumps(document, allow_nan=False)) == document


@pytest.mark.parametrize("name", QUESTIONS)
def test_equal_seeds_give_equal_answers(name: str, documents: dict[str, Document]) -> None:
    again = question_report(QUESTIONS[name], quick=True, seed=1).document
    assert again == documents[name]


def test_another_seed_gives_another_run(documents: dict[str, Document]) -> None:
    other = question_report(QUESTIONS["knee"], quick=True, seed=2).document
    assert other["rows"] != documents["knee"]["rows"]


@pytest.mark.parametrize("name", QUESTIONS)
def test_tables_plot_and_paragraph(name: str) -> None:
    """A page is drawn without a display, and every case has a row in a table."""
    from kmem.lab.page import as_html

    report = question_report(QUESTIONS[name], quick=True, seed=1)
    assert report.parts[-1] == report.document["paragraph"]
    tables = [part for part in report.parts if not isinstance(part, str)]
    assert sum(table.row_count for table in tables) == len(report.document["rows"])
    page = as_html(name, [report])
    assert page.count("<svg") == 1
    assert f'<section id="ask-{name}">' in page


def test_all_has_every_question() -> None:
    assert [name for name in EXPERIMENTS if name.startswith("ask-")] == [
        f"ask-{name}" for name in QUESTIONS
    ]


def test_command(tmp_path: Path, documents: dict[str, Document]) -> None:
    file = tmp_path / "nodes.json"
    done = kmem("lab", "ask", "nodes", "--quick", "--json", file)
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text()) == documents["nodes"]
    assert documents["nodes"]["paragraph"] in done.stdout


def test_an_unknown_question_is_named() -> None:
    done = kmem("lab", "ask", "weather")
    assert done.returncode == 2
    expected = f"kmem: lab ask: weather: expected one of {', '.join(QUESTIONS)}\n"
    assert done.stderr == expected


# ---- Physics ---------------------------------------------------------------------------------


def counts(load: str, settings: dict[str, int | str], options: str) -> dict[str, int]:
    return dict(run(Load(load, settings, (options,)))["counts"])


def test_larger_sheaves_take_no_more_list_locks_on_one_cpu() -> None:
    """Waits there are none: nobody else is there."""
    found = [
        counts("messages", hackbench(1, 1, 40), f"kernel=7.2,sheaf_capacity={capacity}")
        for capacity in (0, *ask_capacity.CAPACITIES)
    ]
    locks = [one["list_locks"] for one in found]
    assert locks == sorted(locks, reverse=True)
    assert locks[0] > locks[-1]
    assert all(one["list_wait_ns"] == one["barn_wait_ns"] == 0 for one in found)


def test_barns_of_no_sheaf_are_never_locked() -> None:
    limits = ("barn_full=0,barn_empty=0", "barn_full=40,barn_empty=40")
    settings = hackbench(8, 2, 20)
    none, many = (counts("messages", settings, f"kernel=7.2,{limit}") for limit in limits)
    assert none["barn_locks"] == 0 < many["barn_locks"]
    assert none["list_locks"] > many["list_locks"]


def rows_where(document: Document, keep: Callable[[Document], bool]) -> list[Document]:
    return [row for row in document["rows"] if keep(row)]


def test_sheaves_hold_what_they_can(documents: dict[str, Document]) -> None:
    """Memory in sheaves grows with their capacity, and the classic lists have none."""
    document = documents["capacity"]
    for part in {row["part"] for row in document["rows"]}:
        of_part = rows_where(document, lambda row, part=part: row["part"] == part)  # type: ignore[misc]
        kib = {row["configuration"]: row["sheaves_kib"] for row in of_part}
        assert kib[ask_capacity.CLASSIC] == 0
        sizes = [kib[f"sheaves of {capacity}"] for capacity in ask_capacity.CAPACITIES]
        assert sizes == sorted(sizes)


def test_taken_sheaves_save_enough(documents: dict[str, Document]) -> None:
    for machine in documents["capacity"]["findings"]["machines"].values():
        for load in ("hackbench", "netperf"):
            point = machine[load]
            assert point["saved_ns"] >= ask_capacity.ENOUGH * point["most_saved_ns"]
            assert point["capacity"] <= machine["capacity"]


def test_without_remote_frees_both_ways_are_one(documents: dict[str, Document]) -> None:
    past, into = rows_where(documents["nodes"], lambda row: row["share"] == 0)
    names = set(past) - {"policy"}
    assert {name: past[name] for name in names} == {name: into[name] for name in names}
    assert past["distant"] == 0


def test_bypassing_keeps_memory_near_and_takes_more_locks(documents: dict[str, Document]) -> None:
    document = documents["nodes"]
    for share in (one for one in ask_nodes.QUICK_SHARES if one):
        past, into = rows_where(document, lambda row, share=share: row["share"] == share)  # type: ignore[misc]
        assert past["distant"] < into["distant"]
        assert past["list_locks"] >= into["list_locks"]


def test_a_far_reader_is_dearer_for_cpu_slabs(documents: dict[str, Document]) -> None:
    for bulk in ask_rings.BULKS:
        near, far = (
            rows_where(
                documents["rings"],
                lambda row, place=place, bulk=bulk: (
                    (row["place"], row["bulk"], row["policy"])  # type: ignore[misc]
                    == (place, bulk, ask_rings.CLASSIC)
                ),
            )
            for place in ask_rings.PLACES
        )
        assert near[0]["ns"] < far[0]["ns"]


def test_shares_of_waiting_are_shares(documents: dict[str, Document]) -> None:
    for row in documents["knee"]["rows"]:
        assert 0 <= row["wait_percent"] <= 100
        assert 0 <= row["waits_of_allocator_percent"] <= 100
        assert row["wait_percent"] <= row["waits_of_allocator_percent"]


def test_places_hold_no_more_than_is_idle(documents: dict[str, Document]) -> None:
    """Means are rounded down, each by less than a KiB."""
    for row in documents["memory"]["rows"]:
        places = row["sheaves_kib"] + row["barns_kib"] + row["partial_kib"]
        assert places <= row["idle_kib"] + 4


@pytest.mark.parametrize(
    ("points", "level", "expected"),
    [
        ([(0, 0), (10, 20)], 5, 2.5),
        ([(0, 7), (10, 20)], 5, 0),
        ([(0, 0), (10, 4), (20, 4)], 5, None),
        ([(0, 0), (10, 5)], 5, 10),
        ([], 5, None),
    ],
)
def test_crossing(points: list[tuple[float, float]], level: float, expected: float | None) -> None:
    assert crossing(points, level) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pinned=1", "boot_cpus=2", "nodes=2"], "expected two CPUs a node with pinned=1"),
        (["present=1", "boot_cpus=2"], "expected boot_cpus <= present <= possible"),
        (["remote=101"], "expected remote from 0 to 100, not 101"),
    ],
)
def test_wrong_settings_are_named(words: list[str], message: str) -> None:
    tool = ROOT / "build" / "tools" / "loads-4k"
    caches = ROOT / "python" / "kmem" / "lab" / "load_caches.csv"
    line: list[str | Path] = [tool, "rings", caches, *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.strip() == f"loads: {message}"
