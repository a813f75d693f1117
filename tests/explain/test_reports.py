# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Slab tables of public reports (README.md): each is read whole, and adds up to its own totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kmem.common.tree import build
from kmem.explain.answers import Answers, Machine, answer
from kmem.explain.cache_forms import COLLECTL, REPORT
from kmem.explain.files import read_files
from kmem.explain.show import debugging_lines
from kmem.explain.table import Reading
from kmem.explain.tool_forms import SLABINFO_TOOL, SLABTOP, ZFS
from kmem.lab import orders

FOLDER = Path(__file__).parent
REPORTS = sorted((FOLDER / "reports").glob("*.txt"))
FORMS = sorted((FOLDER / "forms").glob("*.txt"))
MARK = "#: "


@pytest.fixture(scope="module", autouse=True)
def tool() -> None:
    build(orders.TOOL)


@dataclass(frozen=True)
class Kept:
    """A file's head and the report below it."""

    head: dict[str, str]
    text: str

    def number(self, key: str, default: int = 0) -> int:
        return int(self.head.get(key, default))


def kept(file: Path) -> Kept:
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    heads = [line.removeprefix(MARK).rstrip("\n") for line in lines if line.startswith(MARK)]
    text = "".join(line for line in lines if not line.startswith(MARK))
    return Kept(dict(line.split(": ", 1) for line in heads), text)


def read_kept(file: Path, folder: Path) -> tuple[Kept, Reading, list[Answers]]:
    one = kept(file)
    place = folder / file.name
    place.write_text(one.text, encoding="utf-8")
    reading = read_files([place])
    return one, reading, [answer(table, Machine()) for table in reading.tables]


def names(answers: Sequence[Answers]) -> list[str]:
    return [holder.name for one in answers for holder in one.holders]


def test_there_are_many_sources() -> None:
    sources = {kept(file).head["source"] for file in REPORTS}
    assert len(sources) >= 30
    assert all(source.startswith("https://") for source in sources)


@pytest.mark.parametrize("file", REPORTS + FORMS, ids=lambda file: file.stem)
def test_report_is_read_whole(file: Path, tmp_path: Path) -> None:
    one, reading, answers = read_kept(file, tmp_path)
    assert [table.form for table in reading.tables] == [one.head["form"]] * one.number("tables", 1)
    assert {len(table.caches) for table in reading.tables} == {one.number("caches")}
    assert len(reading.unread) == one.number("unread"), reading.unread
    for found in answers:
        assert found.allocator == one.head.get("allocator", found.allocator)
        assert found.page_bytes == one.number("page", found.page_bytes)
        assert found.fit.text == one.head.get("cpus", found.fit.text)
    if "suspect" in one.head:
        assert names(answers[-1:]) == [one.head["suspect"]]


@pytest.mark.parametrize("file", REPORTS + FORMS, ids=lambda file: file.stem)
def test_report_adds_up(file: Path, tmp_path: Path) -> None:
    one, _, answers = read_kept(file, tmp_path)
    for found in answers:
        total, printed = found.total, found.printed_total()
        assert total is not None
        if "slab_kib" in one.head:
            assert printed is not None
            assert printed.printed == 1024 * one.number("slab_kib")
            assert printed.share == pytest.approx(1, abs=0.01)
        if "total_percent" in one.head:
            assert printed is not None
            assert printed.share == pytest.approx(one.number("total_percent") / 100, abs=0.01)
        assert printed is None or printed.share <= 1.01


@pytest.mark.parametrize("file", REPORTS + FORMS, ids=lambda file: file.stem)
def test_lines_add_up(file: Path, tmp_path: Path) -> None:
    """Where a line prints its cache's memory, its slabs have it."""
    _, _, answers = read_kept(file, tmp_path)
    for found in answers:
        for fact in found.facts:
            cache = fact.cache
            if found.table.form == ZFS and cache.slab_bytes and cache.slabs is not None:
                assert cache.slabs * cache.slab_bytes == cache.total_bytes
                assert cache.stride_bytes is not None
                assert (cache.active or 0) * cache.stride_bytes == cache.used_bytes
            if found.table.form in (REPORT, COLLECTL) and cache.total_bytes:
                assert cache.slabs and cache.slab_bytes
                assert cache.slabs * cache.slab_bytes == cache.total_bytes
            if found.table.form == SLABINFO_TOOL and fact.slab and fact.slabs and fact.total:
                whole = fact.slab.value * fact.slabs.value
                # The tool cuts off all but one decimal.
                unit = 1e6 if fact.total.value >= 1e6 else 1e3
                assert -1 <= whole - fact.total.value < unit / 10
            by_shape = found.table.form == SLABTOP and found.allocator == "SLUB"
            if by_shape and fact.slab and fact.per_slab and fact.stride:
                assert fact.slab.value % 4096 == 0
                assert fact.slab.value // fact.stride.value == fact.per_slab.value


@pytest.mark.parametrize(
    "file", [file for file in REPORTS if "debug" in kept(file).head], ids=lambda file: file.stem
)
def test_debugging_is_seen(file: Path, tmp_path: Path) -> None:
    one, _, answers = read_kept(file, tmp_path)
    name, size = one.head["debug"].split()
    real = {name: real.value for name, _, real in answers[0].debugging.inflated}
    assert real[name] == int(size)
    assert answers[0].outcomes == ()


def test_what_tells_of_debugging(tmp_path: Path) -> None:
    """Sizes that slabtop rounded do, and a size that is only that of a name does not."""
    slabtop = (
        "  OBJS ACTIVE  USE OBJ SIZE  SLABS OBJ/SLAB CACHE SIZE NAME\n"
        "   420    420 100%    {0}     20       {1}       {2}K kmalloc-64\n"
        "   210    210 100%    0.19K     10       21       40K alpha\n"
    )
    unreclaimable = "Unreclaimable slab info:\nName Used Total\nkmalloc-64 15000KB 20000KB\n"
    row = "alpha 21 21 192 21 1 : tunables 0 0 0 : slabdata 1 1 0\n"
    expected = {
        slabtop.format(
            "0.38K", 21, 160
        ): "debugging makes sizes longer: kmalloc-64 has 384 c bytes",
        slabtop.format("0.06K", 64, 80): "debugging: no size is longer",
        unreclaimable: "debugging: no cache has both",
        row: "debugging: no cache has both",
    }
    for text, line in expected.items():
        place = tmp_path / "table"
        place.write_text(text, encoding="utf-8")
        (table,) = read_files([place]).tables
        lines = debugging_lines(answer(table, Machine()))
        assert [one.startswith(line) for one in lines] == [True], lines


def test_other_reports_have_no_debugging(tmp_path: Path) -> None:
    for file in REPORTS:
        one, _, answers = read_kept(file, tmp_path)
        if "debug" not in one.head:
            assert not any(found.debugging.found for found in answers), file.name


def test_saving_of_the_mail_on_orders(tmp_path: Path) -> None:
    """The largest caches of that mail's guest before its patch: 64 CPUs possible, 16 online.

    The mail saves 24.1% after the boot and 30.0% after hackbench, of all caches.
    """
    savings = []
    for name in ("power-64k-boot", "power-64k-hackbench"):
        place = tmp_path / name
        place.write_text(kept(FOLDER / "reports" / f"{name}.txt").text)
        (table,) = read_files([place]).tables
        mail = answer(table, Machine(cpus=64, online=16)).mails[-1]
        assert mail.before and mail.after
        savings.append(1 - mail.after / mail.before)
    boot, hackbench = savings
    assert 0.1 < boot < hackbench < 0.5
