# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab scale`: verdicts that follow from the figures, and figures that no machine could have
otherwise. The figures themselves are not tested here; docs/experiments.md holds those."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kmem.common.errors import KmemError
from kmem.lab import scale
from kmem.lab.everything import EXPERIMENTS
from kmem.lab.loads import Load, run
from kmem.lab.page import as_html
from kmem.lab.report import Report

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "build" / "tools" / "loads-4k"
CACHES = ROOT / "python" / "kmem" / "lab" / "load_caches.csv"
NAMED = {workload.name: workload for workload in scale.WORKLOADS}


@pytest.fixture(scope="module")
def report() -> Report:
    return scale.scale_report(quick=True)


def kmem(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "kmem", *words], capture_output=True, text=True, check=False)


def case(workload: str, cpus: int, *, policy: str = "default", nodes: int = 1) -> scale.Case:
    return scale.Case(NAMED[workload], policy, nodes, cpus)


def small(workload: str, cpus: int, **where: Any) -> dict[str, Any]:
    return scale.one_row(case(workload, cpus, **where), quick=True, seed=1)


# ---- The report ------------------------------------------------------------------------------


def test_every_case_has_a_row(report: Report) -> None:
    rows = report.document["rows"]
    found = [(*scale.key_of(row), row["cpus"]) for row in rows]
    assert len(set(found)) == len(found)
    assert len(found) == (
        len(scale.WORKLOADS) * len(scale.NODES) * len(scale.POLICIES) * len(scale.QUICK_CPUS)
    )
    *tables, verdicts = (part for part in report.parts if not isinstance(part, str))
    assert sum(table.row_count for table in tables) == len(rows)  # type: ignore[attr-defined]
    assert verdicts.row_count == len({scale.key_of(row) for row in rows})  # type: ignore[attr-defined]


def test_a_row_is_flat_or_has_a_reason(report: Report) -> None:
    rows = report.document["rows"]
    for row in rows:
        assert row["ns"] == pytest.approx(sum(row["parts"].values()), abs=0.01)
        assert row["flat"] == (row["of_2"] <= scale.FLAT)
        assert bool(row["grew"]) != row["flat"]
        assert row["cpus"] > 2 or row["of_2"] == 1
        assert set(row["parts"]) <= {*scale.PARTS.values(), *scale.WAITS.values(), "other"}
    assert {row["flat"] for row in rows} == {False, True}


def test_every_cost_has_a_part(report: Report) -> None:
    """A count without a part of its own would be named "other", which is no reason."""
    assert all(row["parts"].get("other", 0) < 0.01 * row["ns"] for row in report.document["rows"])
    assert all("other" not in row["grew"] for row in report.document["rows"])


def test_the_paragraph_is_of_the_rows(report: Report) -> None:
    document = report.document
    assert report.parts[-1] == "\n".join(document["summary"])
    for policy, line in zip(scale.POLICIES, document["summary"], strict=True):
        mine = [row for row in document["rows"] if row["policy"] == policy]
        flat = sum(row["flat"] for row in mine)
        assert line.startswith(f"{policy}: {flat} of {len(mine)} rows are flat.")
        grown = [row for row in mine if not row["flat"] and row["cpus"] == max(scale.QUICK_CPUS)]
        assert line.count("times the operation of 2") == len(grown)


def test_a_page_is_drawn(report: Report) -> None:
    page = as_html("scale", [report])
    assert page.count("<svg") == len(scale.NODES)
    assert '<section id="scale">' in page
    assert "scale" in EXPERIMENTS


def test_command(tmp_path: Path, report: Report) -> None:
    """Equal seeds give equal files, and no figure of the table is cut off."""
    file = tmp_path / "scale.json"
    done = kmem("lab", "scale", "--quick", "--json", file)
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text()) == report.document
    assert "…" not in done.stdout
    assert report.document["summary"][0] in done.stdout


def test_another_seed_is_another_run() -> None:
    births = case("births", 4)
    first, second = (scale.one_row(births, quick=True, seed=seed) for seed in (1, 100))
    assert first["parts"] != second["parts"]


# ---- Verdicts --------------------------------------------------------------------------------


def test_a_verdict_is_of_all_its_machines(report: Report) -> None:
    for verdict in report.document["verdicts"]:
        mine = [
            row for row in report.document["rows"] if scale.key_of(row) == scale.key_of(verdict)
        ]
        assert verdict["least_ns"] == mine[0]["ns"]
        assert verdict["most_of_2"] == max(row["of_2"] for row in mine)
        assert (verdict["verdict"] == "flat") == all(row["flat"] for row in mine)
        grown = [row for row in mine if not row["flat"]]
        if grown:
            from_cpus, reasons = verdict["verdict"].split(": ")
            assert from_cpus == f"from {grown[0]['cpus']} CPUs"
            assert reasons.split(", ") == list(grown[-1]["grew"])


def test_the_document_has_every_verdict() -> None:
    """Figures are held by their comments (tests/documents), and words here."""
    kept = json.loads((ROOT / "docs" / "figures" / "scale.json").read_text())
    text = (ROOT / "docs" / "experiments.md").read_text()
    section = re.sub(r"<!--.*?-->", "", text[text.index("\n## scale\n") :]).split("\n## ")[1]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    found = {(line[0], line[1], int(line[2])): line[-1] for line in lines[2:]}
    assert found == {scale.key_of(one): one["verdict"] for one in kept["verdicts"]}


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ({"a": 10}, {"a": 10}, {}),
        ({"a": 10}, {"a": 5}, {}),
        ({"a": 10}, {"a": 10, "b": 8}, {"b": 8}),
        ({"a": 10, "b": 1}, {"a": 14, "b": 7, "c": 0.5}, {"b": 6, "a": 4}),
        ({"a": 10, "b": 1}, {"a": 2, "b": 31}, {"b": 30}),
        ({"a": 0, "b": 0}, {"a": 3, "b": 3}, {"a": 3, "b": 3}),
    ],
)
def test_parts_that_grew(
    first: Mapping[str, float], last: Mapping[str, float], expected: Mapping[str, float]
) -> None:
    found = scale.grown_parts(first, last)
    assert found == expected
    assert list(found) == list(expected)  # largest first


def test_rows_are_judged_beside_their_own_machine_of_2() -> None:
    rows = [
        {"workload": "w", "policy": policy, "nodes": nodes, "cpus": cpus, "ns": ns, "parts": parts}
        for policy, nodes, cpus, ns, parts in [
            ("default", 1, 2, 10.0, {"a": 10.0}),
            ("default", 1, 64, 13.0, {"a": 13.0}),
            ("default", 2, 2, 100.0, {"a": 100.0}),
            ("default", 2, 64, 131.0, {"a": 100.0, "b": 31.0}),
        ]
    ]
    scale.judge(rows)
    assert [row["of_2"] for row in rows] == [1, 1.3, 1, 1.31]
    assert [row["flat"] for row in rows] == [True, True, True, False]
    assert rows[3]["grew"] == {"b": 31.0}


# ---- Physics ---------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", scale.POLICIES)
@pytest.mark.parametrize("nodes", scale.NODES)
def test_local_pairs_know_no_other_cpu(policy: str, nodes: int) -> None:
    rows = [small("local pairs", cpus, policy=policy, nodes=nodes) for cpus in (2, 16)]
    for row in rows:
        assert row["remote_lines"] == row["list_locks"] == row["barn_locks"] == 0
    assert rows[0]["ns"] == rows[1]["ns"]


def test_a_hand_over_is_to_another_cpu() -> None:
    """Each object is another CPU's when it is given back, so half of all calls read its line."""
    counts = scale.counts_of(case("producer and consumer", 4), quick=True, seed=1)
    assert 0.4 < counts["remote_objects"] / counts["calls"] <= 0.5
    assert counts["remote_objects_node"] == 0
    counts = scale.counts_of(case("producer and consumer", 4, nodes=2), quick=True, seed=1)
    assert counts["remote_objects_node"] == counts["remote_objects"] > 0


def test_sheaves_take_what_cpu_slabs_pay_for_in_a_hand_over() -> None:
    """Objects that any other CPU frees stay in its sheaf on one node."""
    ours, classic = (
        small("freed on any other CPU", 16, policy=policy) for policy in ("default", "6.12")
    )
    assert ours["remote_lines"] < classic["remote_lines"]
    assert ours["parts"].get("lines of slabs' states", 0) == 0
    assert classic["parts"]["lines of slabs' states"] > 0


def test_no_one_waits_alone() -> None:
    settings: dict[str, int | str] = {"boot_cpus": 1, "loops": 500, "capacity": 64, "defaults": 1}
    counts = run(Load("bursts", settings))["counts"]
    assert counts["list_wait_ns"] == counts["barn_wait_ns"] == 0
    assert counts["list_waits"] == counts["barn_waits"] == 0


def test_defaults_are_the_librarys_own() -> None:
    """Without the setting a load has no sheaves, as kernels until 6.17."""
    settings: dict[str, int | str] = {"boot_cpus": 4, "loops": 2000, "capacity": 256}
    own, old, asked = (
        run(Load("bursts", {**settings, **more}, options))["counts"]
        for more, options in [
            ({"defaults": 1}, ()),
            ({}, ()),
            ({"defaults": 1}, ("sheaf_capacity=0",)),
        ]
    )
    assert own["slow_paths"] < own["calls"] / 10
    assert old["slow_paths"] == old["calls"]
    assert old == asked


def test_more_seeds_are_added_up() -> None:
    births = case("births", 4)
    alone = replace(births, workload=replace(births.workload, seeds=1))
    whole, *single = (
        scale.one_row(one, quick=True, seed=seed)
        for one, seed in [(births, 1), (alone, 1), (alone, 2), (alone, 3)]
    )
    times = [row["ns"] for row in single]
    assert min(times) < whole["ns"] < max(times)


# ---- Bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load", "words", "message"),
    [
        ("handed", ["boot_cpus=3"], "expected an even number of CPUs (load_cpus) with load handed"),
        ("random", ["boot_cpus=1"], "expected two CPUs or more (load_cpus) with load random"),
        (
            "births",
            ["boot_cpus=1", "task=process"],
            "expected two CPUs or more (load_cpus) with load births",
        ),
        ("pairs", ["message="], "the load needs an object of each message"),
        ("bursts", ["message="], "the load needs an object of each message"),
        ("births", ["task="], "the load needs an object of each task"),
        ("pairs", ["defaults=2"], "expected defaults from 0 to 1, not 2"),
        ("bursts", ["capacity=0"], "expected capacity from 1 to 65536, not 0"),
    ],
)
def test_wrong_settings_are_named(load: str, words: list[str], message: str) -> None:
    line: list[str | Path] = [TOOL, load, CACHES, "boot_cpus=2", *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.strip() == f"loads: {message}"


def test_what_the_tool_refuses_ends_the_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "QUICK_CPUS", (2, 3))
    with pytest.raises(KmemError, match="expected an even number of CPUs"):
        scale.scale_report(quick=True)


@pytest.mark.parametrize("words", [["--seed", "x"], ["--seed", "-1"], ["--nodes", "2"], ["more"]])
def test_wrong_words_are_named(words: list[str]) -> None:
    done = kmem("lab", "scale", *words)
    assert done.returncode == 2
    assert words[-2 if words[0] == "--nodes" else -1] in done.stderr
    assert "Traceback" not in done.stderr


def test_files_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    file = tmp_path / "none" / "scale.json"
    done = kmem("lab", "scale", "--quick", "--json", file)
    assert done.returncode != 0
    assert str(file) in done.stderr and len(done.stderr.splitlines()) == 1
