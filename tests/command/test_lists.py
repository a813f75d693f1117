# SPDX-License-Identifier: Apache-2.0 OR MIT
"""bench/lists: its document, and what the two accounting rules must make of its pattern."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "build" / "bench" / "lists"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    done = run("slabs=150")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["slabs"] == 150
    assert len(document["rows"]) == 35
    return list(document["rows"])


def test_length_of_lists(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        by_objects = row["accounting"] == "objects"
        expected = row["limit_objects"] + 1 if by_objects else row["limit_slabs"]
        assert row["longest"] == expected, row


def test_empty_slabs_are_held(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        listed = row["all_free"]["listed"]
        assert listed == row["all_free"]["listed_empty"] == row["longest"]
        assert row["all_free"]["slabs"] == listed + 1  # and the CPU slab
        stride = row["charged_object"] - 8
        free = row["objects_per_slab"] * (listed + 1) - 1
        assert row["all_free"]["wasted_bytes"] == free * stride


def test_groups_are_charged_by_the_object(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        live = row["longest"] * (row["objects_per_slab"] - 1) + 1
        assert row["one_free"]["charged_bytes"] == live * row["charged_object"]
        assert row["all_free"]["charged_bytes"] == row["charged_object"]


def test_delayed_freezing_swaps_less(rows: list[dict[str, Any]]) -> None:
    pairs = {(row["accounting"], row["defaults"], row["size"], row["freeze"]): row for row in rows}
    for size in {row["size"] for row in rows}:
        eager = pairs["slabs", "later", size, "eager"]
        delayed = pairs["slabs", "later", size, "delayed"]
        assert delayed["swaps"] < eager["swaps"]
        assert delayed["swaps_locked"] < eager["swaps_locked"]


def test_bad_arguments() -> None:
    for argument in ("slabs=0", "slabs=4001", "slabs", "nonsense"):
        done = run(argument)
        assert done.returncode == 2
        assert done.stderr == "usage: lists [slabs=N], N from 1 to 4000\n"
