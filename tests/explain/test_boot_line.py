# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The line that SLUB prints at a boot: its CPUs and nodes stand for options that are not given."""

from __future__ import annotations

from pathlib import Path

import pytest
from readings import read

from kmem.common.tree import build
from kmem.explain.answers import Answers, Machine, answer
from kmem.explain.show import boot_lines
from kmem.lab import orders

END = ": tunables 0 0 0 : slabdata 100 100 0\n"
# As 2 to 7 CPUs give them, and as 16 to 511.
FEW = f"kmalloc-64 6400 6400 64 64 1 {END}kmalloc-512 1600 1600 512 16 2 {END}"
MANY = f"kmalloc-192 4200 4200 192 42 2 {END}kmalloc-1k 3200 3200 1024 32 8 {END}"


@pytest.fixture(scope="module", autouse=True)
def tool() -> None:
    build(orders.TOOL)


def line(cpus: int, nodes: int = 1, bounds: str = "Order=0-3, MinObjects=0") -> str:
    return f"[    0.000000] SLUB: HWalign=64, {bounds}, CPUs={cpus}, Nodes={nodes}\n"


def answered(folder: Path, text: str, machine: Machine | None = None) -> Answers:
    (table,) = read(folder, text).tables
    return answer(table, machine or Machine())


def test_cpus_and_nodes_of_the_boot(tmp_path: Path) -> None:
    plain = answered(tmp_path, FEW)
    found = answered(tmp_path, line(4, 2) + FEW)
    assert plain.cpus is not None
    assert found.cpus is not None
    assert (plain.cpus.value, plain.cpus.how) == (2, "computed")
    assert (found.cpus.value, found.cpus.how) == (4, "read")
    assert (plain.nodes, found.nodes) == (1, 2)
    assert boot_lines(found) == ["boot line: 4 r possible CPUs, 2 r nodes"]
    sheaves = [one.outcomes[-1].sheaves for one in (plain, found)]
    assert sheaves[0] is not None
    assert sheaves[1] is not None
    assert sheaves[1] / sheaves[0] == (2 * 4 + 10 * 2) / (2 * 2 + 10 * 1)
    # A log below the table is of that machine, too; what the user says comes first.
    assert answered(tmp_path, FEW + line(4, 2)).nodes == 2
    given = answered(tmp_path, line(4, 2) + FEW, Machine(cpus=6, nodes=1))
    assert given.cpus is not None
    assert (given.cpus.value, given.nodes) == (6, 1)


def test_slabs_of_fewer_cpus_than_the_machine_can_have(tmp_path: Path) -> None:
    found = answered(tmp_path, line(128) + FEW)
    assert found.cpus is not None
    assert (found.cpus.value, found.cpus.how) == (2, "computed")
    assert "the slabs are those of 2-7 c" in boot_lines(found)[0]


def test_bounds_of_the_boot_are_those_of_the_rule(tmp_path: Path) -> None:
    """slub_max_order=0: a page each, whatever the count."""
    row = f"kmalloc-512 800 800 512 8 1 {END}kmalloc-1k 400 400 1024 4 1 {END}"
    found = answered(tmp_path, line(16, bounds="Order=0-0, MinObjects=0") + row)
    assert found.fit.fitting == found.fit.caches == 2
    assert found.fit.told == 0
    assert answered(tmp_path, line(16) + row).fit.fitting < 2


@pytest.mark.parametrize(
    "text",
    [
        "SLUB: Genslabs=15, HWalign=64, Order=0-3, MinObjects=0, CPUs=16, Nodes=1\n",
        "kernel: [ 17.271291] SLUB: Genslabs=12, HWalign=64, Order=0-3, MinObjects=0,"
        " Processors=16, Nodes=1\n",
        "[UART] [ 0.0] SLUB: HWalign=64, Order=0-3, MinObjects=0, CPUs=16, Nodes=1\n",
    ],
)
def test_older_words_and_what_stands_in_front(text: str, tmp_path: Path) -> None:
    found = answered(tmp_path, text + MANY)
    assert found.cpus is not None
    assert (found.cpus.value, found.cpus.how, found.fit.text) == (16, "read", "16-511")


def test_a_boot_of_another_machine_is_that_of_its_table(tmp_path: Path) -> None:
    tables = read(tmp_path, line(4) + FEW + line(8) + FEW).tables
    assert [table.boot and table.boot.cpus for table in tables] == [4, 8]


@pytest.mark.parametrize(
    "bad", [line(0), line(9000), line(2, 0), line(2, bounds="Order=3-1, MinObjects=0")]
)
def test_a_boot_that_cannot_be(bad: str, tmp_path: Path) -> None:
    reading = read(tmp_path, bad + FEW)
    assert reading.tables[0].boot is None
    assert "expected orders up to 10" in reading.unread[0].reason
