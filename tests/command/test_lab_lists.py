# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab lists`: table, JSON, bad input. The rules are in tests/command/test_lists.py."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from kmem_command import kmem

lists = partial(kmem, "lab", "lists")


def test_table_has_the_figures_of_the_json(tmp_path: Path) -> None:
    file = tmp_path / "lists.json"
    result = lists("--slabs", "60", "--json", file)
    assert result.returncode == 0, result.stderr
    assert "change percpu partial accounting from objects to pages" in result.stdout
    document = json.loads(file.read_text())
    assert document["slabs"] == 60
    printed = {tuple(line.split()) for line in result.stdout.splitlines()}
    mail = {("objects", "seed"): "30", ("slabs", "seed"): "2"}
    for row in document["rows"]:
        freed = row["all_free"]
        figures = (freed["listed"], freed["wasted_bytes"], freed["slab_bytes"])
        figures += (freed["charged_bytes"], row["list_locks"], row["swaps"])
        names = (row["accounting"], row["defaults"], row["freeze"], str(row["size"]))
        said = mail.get(names[:2], "-")
        assert (*names, str(row["longest"]), said, *map(str, figures)) in printed


def test_mails_statement_holds(tmp_path: Path) -> None:
    file = tmp_path / "lists.json"
    assert lists("--json", file).returncode == 0
    longest = {"objects": 0, "slabs": 0}
    for row in json.loads(file.read_text())["rows"]:
        if row["defaults"] == "seed":
            rule = row["accounting"]
            longest[rule] = max(longest[rule], row["longest"])
    # A list drains when its count is above the limit: 30 objects are 31 slabs (S2-05).
    assert longest["objects"] == 31
    # 2 in the mail; slabs of few objects, as with few CPUs, give some more.
    assert 2 <= longest["slabs"] <= 8


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--slabs", "0"], "--slabs 0; expected 1 to 4000"),
        (["--slabs", "4001"], "--slabs 4001; expected 1 to 4000"),
        (["--slabs", "many"], "--slabs"),
        (["--slabs", "40", "--json", "/no/such/folder/file"], "/no/such/folder/file"),
    ],
)
def test_bad_input_is_named(arguments: list[str], named: str) -> None:
    result = lists(*arguments)
    assert result.returncode != 0
    assert result.stdout == ""
    assert named in result.stderr
    assert "Traceback" not in result.stderr
