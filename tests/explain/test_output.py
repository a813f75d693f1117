# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The text as its reader meets it: who holds the memory comes first, and no figure is cut."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from readings import read
from rich.console import Console

from kmem.common.tree import build
from kmem.explain.answers import Machine, answer
from kmem.explain.show import table_report
from kmem.lab import orders
from kmem.lab.report import Report, print_report, table

END = ": tunables 0 0 0 : slabdata {0} {0} 0\n"
LEAK = "alpha 734506368 734506368 64 64 1 " + END.format(11476662)
SMALL = "beta 6400 6400 64 64 1 " + END.format(100)


@pytest.fixture(scope="module", autouse=True)
def tool() -> None:
    build(orders.TOOL)


def lines_of(folder: Path, text: str) -> list[str]:
    (found,) = read(folder, text).tables
    output = io.StringIO()
    console = Console(file=output, width=80, markup=False, emoji=False)
    print_report(table_report(answer(found, Machine()), 1, 20), console)
    assert console.width == 80
    return output.getvalue().splitlines()


def test_the_main_point_is_below_the_total(tmp_path: Path) -> None:
    leak = lines_of(tmp_path, LEAK + SMALL)
    assert leak[2].startswith("slabs: 45,907,048 c KiB")
    assert leak[3].startswith("alpha holds 100.0% c of the slabs' memory")
    others = lines_of(tmp_path, SMALL + SMALL.replace("beta 6400", "gamma 3200"))
    assert others[3] == "largest: beta 50.0% c, gamma 50.0% c of the memory of these caches"
    assert others[4].startswith("waste: 200 c KiB")


def test_no_figure_is_cut(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, LEAK + SMALL)
    row = next(line for line in lines if line.startswith("  alpha "))
    assert row.split()[1:5] == ["45,906,648", "100.0", "734,506,368", "734,506,368"]
    figures = [line for line in lines if "mail" not in line]
    assert not any("…" in line for line in figures)


def test_columns_of_words_wrap() -> None:
    """A note is as wide as the terminal lets it be."""
    words = table("", ("name", "note"), texts=2)
    words.columns[1].no_wrap = False
    words.add_row("alpha", "words " * 60)
    output = io.StringIO()
    print_report(Report("r", "title", {}, [words]), Console(file=output, width=80))
    assert max(map(len, output.getvalue().splitlines())) <= 80
